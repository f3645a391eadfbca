"""Reductions by any associative function, given as a jaxpr: `reduce` and `reduce_window`.

They compile to XLA's own reductions. Differentiated, or under other handlers, they expand into a tree of applications
of the function to pairs of neighbours.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Self, final

from attrs import frozen
from typing_extensions import override

from tracefx.control.call import Call
from tracefx.core import Array, Shape, ShapedArray, Value, dtypes, show_avals
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import as_array, bind
from tracefx.core.jaxpr import HasBody, Jaxpr
from tracefx.core.named_sharding import Spec
from tracefx.core.primitive import Batchable, BatchDims, Expandable, MappedAxis, Primitive
from tracefx.interpreters.body_transform import BodyInterpreter, BodyTransformable
from tracefx.interpreters.jaxpr_transforms import batch_jaxpr
from tracefx.interpreters.stage import stage
from tracefx.lowering import Builder, DenseI64Array, IrValue, Lowerable, Region
from tracefx.ops.elementwise.bitwise import bitwise_or
from tracefx.ops.elementwise.selection import select_n
from tracefx.ops.operation import require_axes, run_compiled
from tracefx.ops.padding_types import Pads
from tracefx.ops.reductions.sliding_windows import Ints, SlidingWindows
from tracefx.ops.shape.shape import concatenate, stack
from tracefx.ops.shape.slicing import pad, slice, slice_axis
from tracefx.ops.sharding_rules import resized_spec, without_axes
from tracefx.ops.structural import batch_first, broadcast_to, convert, full_like_aval, move_axis, reshape, transpose
from tracefx.text.printer import HasJaxParams


@frozen(eq=False)
class ReductionPrimitive(HasBody, Primitive, BodyTransformable, Expandable, Batchable, Lowerable, HasJaxParams):
    """Base of reductions of several arrays together.

    The operands are the arrays, then one scalar initial value for each.

    Args:
        jaxpr: The reduction function: takes one accumulated element for each array, then one next element for each,
            and returns the new accumulated elements.
    """

    jaxpr: Jaxpr

    @abstractmethod
    def result_shape(self, x: ShapedArray) -> Shape:
        """Returns the shape of the results; raises for arrays that the reduction does not apply to."""
        raise NotImplementedError

    @property
    def has_padding(self) -> bool:
        """Whether rows contain elements that are not of the arrays."""
        return False

    @abstractmethod
    def as_rows(self, x: Value, start: Value) -> Array:
        """Returns an array of shape `[reduced elements, result elements]`, padded with `start`."""
        raise NotImplementedError

    @abstractmethod
    def with_leading_axis(self) -> Self:
        """Returns the same reduction of arrays that have one more leading axis."""
        raise NotImplementedError

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        n = len(self.jaxpr.outs)
        arrays, starts = avals[:n], avals[n:]
        if len(starts) != n:
            raise TypeError(f"{self.name} takes {n} arrays and as many starts, got {show_avals(avals)}")
        for x, start in zip(arrays, starts, strict=True):
            if start.shape:
                raise ReductionError(f"{self.name}: initial values must have no axes, got {show_avals(starts)}")
            if x.dtype != start.dtype or x.shape != arrays[0].shape:
                raise TypeError(
                    f"{self.name}: arrays must have one shape, and each the dtype of its initial value, got "
                    f"{show_avals(arrays)} and {show_avals(starts)}"
                )
        body = self.jaxpr
        if [a.dtype for a in body.in_avals] != 2 * [x.dtype for x in arrays]:
            raise TypeError(
                f"{self.name}: the function takes ({show_avals(body.in_avals)}), but must take two elements of each of "
                f"{show_avals(arrays)}"
            )
        shape = self.result_shape(arrays[0])
        return [ShapedArray(shape, x.dtype, x.weak_type and s.weak_type) for x, s in zip(arrays, starts, strict=True)]

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return run_compiled(self, args)

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        return self.reduce_pairwise((), args)

    def reduce_pairwise(self, consts: Sequence[Value], args: Sequence[Value]) -> list[Array]:
        """Computes the results by a tree of applications of the function; `consts` are its first operands."""
        n = len(args) // 2
        arrays, starts = args[:n], args[n:]
        shape = self.result_shape(arrays[0].aval)
        weak = [x.aval.weak_type and start.aval.weak_type for x, start in zip(arrays, starts, strict=True)]
        size = math.prod(shape)
        rows = [self.as_rows(x, start) for x, start in zip(arrays, starts, strict=True)]
        if self.has_padding:
            rows.append(self.as_rows(_full_mask(arrays[0].aval.shape, True), _full_mask((), False)))
        count = rows[0].shape[0]
        while count > 1:
            half = count // 2
            firsts, seconds = [[_alternate_rows(x, first, half) for x in rows] for first in (0, 1)]
            merged = self._apply_pairwise(consts, firsts, seconds, half * size)
            unpaired = [slice_axis(x, 2 * half, count, 0) for x in rows]
            rows = [reshape(x, (half, size)) for x in merged]
            if count % 2:
                rows = [concatenate([x, last], 0) for x, last in zip(rows, unpaired, strict=True)]
            count -= half
        outs = [broadcast_to(start, (size,)) for start in starts]
        if count:
            firsts = [*outs, *[_full_mask((size,), True) for _ in rows[n:]]]
            outs = self._apply_pairwise(consts, firsts, [reshape(x, (size,)) for x in rows], size)[:n]
        return [convert(reshape(x, shape), x.aval.dtype, w) for x, w in zip(outs, weak, strict=True)]

    def _apply_pairwise(
        self, consts: Sequence[Value], firsts: Sequence[Array], seconds: Sequence[Array], size: int
    ) -> list[Array]:
        """Applies the function to each of `size` pairs of elements.

        With padding, the last operands are masks of the elements that are not padding. A pair with padding gives its
        other element, as in XLA, which skips padding.
        """
        n = len(self.jaxpr.outs)
        pairs = [*firsts[:n], *seconds[:n]]
        dims = (*[None for _ in consts], *[0 for _ in pairs])
        derived = batch_jaxpr(self.jaxpr, MappedAxis(size), dims, (True,) * n)
        outs = [as_array(x) for x in eval_jaxpr(derived.jaxpr, (), [*derived.consts, *consts, *pairs])]
        if not self.has_padding:
            return outs
        has_first, has_second = firsts[n], seconds[n]
        return [
            *[
                select_n(has_first, second, select_n(has_second, first, out))
                for out, first, second in zip(outs, firsts[:n], seconds[:n], strict=True)
            ],
            bitwise_or(has_first, has_second),
        ]

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        n = len(args) // 2
        if all(dim is None for dim in dims[n:]):
            arrays = [batch_first(x, dim, axis) for x, dim in zip(args[:n], dims, strict=False)]
            return bind(self.with_leading_axis(), *arrays, *args[n:]), (0,) * n
        avals = [x.aval if dim is None else x.aval.without_axis(dim) for x, dim in zip(args, dims, strict=True)]
        program, consts = stage(self.expand, avals)
        derived = batch_jaxpr(program.closed(), axis, (*[None for _ in consts], *dims))
        return eval_jaxpr(derived.jaxpr, (), [*derived.consts, *consts, *args]), derived.out_dims

    @override
    def transform_bodies(self, interpreter: BodyInterpreter, args: Sequence[Value]) -> Sequence[Value]:
        program, consts = stage(self.expand, [interpreter.spec(a).avals[0] for a in args])
        return Call(self.name, program.closed()).transform_bodies(interpreter, [*consts, *args])

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        return self.lower_with_avals(builder, self.abstract_eval(*[x.aval for x in operands]), operands)

    def region(self) -> Region:
        """Returns the jaxpr as an MLIR region."""
        return Region(self.jaxpr.in_avals, lambda b, args: b.inline(self.jaxpr, args))


class ReductionError(TypeError, ValueError):
    """Arrays or initial values do not fit. JAX raises either of its base classes, depending on the function."""


def _full_mask(shape: Shape, value: bool) -> Array:
    return full_like_aval(ShapedArray(shape, dtypes.bool_), value)


def _alternate_rows(x: Array, first: int, count: int) -> Array:
    """Returns every second row from `first` on, `count` rows in all, flattened."""
    rows = slice(x, (first, 0), (first + 2 * count - 1, x.shape[1]), (2, 1))
    return reshape(rows, (count * x.shape[1],))


@final
@frozen(eq=False)
class Reduce(ReductionPrimitive):
    """Reduces the axes `dimensions` of arrays.

    Args:
        dimensions: The axes, which the results lack.
    """

    name = "reduce"
    dimensions: tuple[int, ...]

    @override
    def jax_params(self) -> Mapping[str, object]:
        return {"dimensions": self.dimensions, "jaxpr": self.jaxpr}

    @override
    def result_shape(self, x: ShapedArray) -> Shape:
        require_axes(self.name, self.dimensions, x.ndim)
        return tuple([n for i, n in enumerate(x.shape) if i not in self.dimensions])

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        return [without_axes(x.spec, self.dimensions) for x in avals[: len(outs)]]

    @override
    def as_rows(self, x: Value, start: Value) -> Array:
        shape = self.result_shape(x.aval)
        result_axes = [i for i in range(x.aval.ndim) if i not in self.dimensions]
        count = math.prod([x.aval.shape[i] for i in self.dimensions])
        return reshape(transpose(x, [*self.dimensions, *result_axes]), (count, math.prod(shape)))

    @override
    def with_leading_axis(self) -> Reduce:
        return Reduce(self.jaxpr, tuple([i + 1 for i in self.dimensions]))

    @override
    def lower_with_avals(
        self, builder: Builder, outs: Sequence[ShapedArray], operands: Sequence[IrValue]
    ) -> Sequence[IrValue]:
        return builder.emit(
            "stablehlo.reduce", operands, outs, {"dimensions": DenseI64Array(self.dimensions)}, [self.region()]
        )


@final
@frozen(eq=False)
class ReduceWindow(ReductionPrimitive):
    """Reduces sliding windows of arrays.

    Args:
        window_dimensions: The size of the window along each axis.
        window_strides: The distance between neighbouring windows along each axis.
        padding: For each axis, the number of initial values before and after the elements.
        base_dilation: The distance between neighbouring elements along each axis after dilation of the arrays.
        window_dilation: The distance between neighbouring elements of a window along each axis.
    """

    name = "reduce_window"
    window_dimensions: Shape
    window_strides: Ints
    padding: Pads
    base_dilation: Ints
    window_dilation: Ints

    @property
    def windows(self) -> SlidingWindows:
        return SlidingWindows(
            self.window_dimensions, self.window_strides, self.padding, self.base_dilation, self.window_dilation
        )

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        return [resized_spec(self, x, out.shape) for x, out in zip(avals, outs, strict=False)]

    @staticmethod
    def from_windows(jaxpr: Jaxpr, windows: SlidingWindows) -> ReduceWindow:
        w = windows
        return ReduceWindow(jaxpr, w.dimensions, w.strides, w.padding, w.base_dilation, w.window_dilation)

    @property
    @override
    def has_padding(self) -> bool:
        return any(low > 0 or high > 0 or inner for low, high, inner in self.windows.padding_config)

    @override
    def jax_params(self) -> Mapping[str, object]:
        return {
            "consts": (),
            "jaxpr": self.jaxpr,
            "window_dimensions": self.window_dimensions,
            "window_strides": self.window_strides,
            "padding": self.padding,
            "base_dilation": self.base_dilation,
            "window_dilation": self.window_dilation,
        }

    @override
    def result_shape(self, x: ShapedArray) -> Shape:
        self.windows.check(self.name, x)
        return self.windows.count(x.shape)

    @override
    def as_rows(self, x: Value, start: Value) -> Array:
        windows = self.windows
        count = windows.count(x.aval.shape)
        if 0 in count:
            return broadcast_to(start, (windows.size, 0))
        expanded = pad(x, start, windows.padding_config)
        ndim = len(count)
        for axis, n in enumerate(windows.dimensions):  # appends an axis for the positions within a window
            parts = []
            for position in range(n):
                offset = (0,) * axis + (position,) + (0,) * (ndim - axis - 1)
                begin, end, step = list(windows.strided_slices(count, offset))[axis]
                shape = expanded.shape
                begins, ends, steps = [0] * len(shape), list(shape), [1] * len(shape)
                begins[axis], ends[axis], steps[axis] = begin, end, step
                parts.append(slice(expanded, begins, ends, steps))
            expanded = move_axis(stack(parts, 0), 0, len(parts[0].shape))
        order = [*range(ndim, 2 * ndim), *range(ndim)]
        return reshape(transpose(expanded, order), (windows.size, math.prod(count)))

    @override
    def with_leading_axis(self) -> ReduceWindow:
        return self.from_windows(self.jaxpr, self.windows.with_axis(0))

    @override
    def lower_with_avals(
        self, builder: Builder, outs: Sequence[ShapedArray], operands: Sequence[IrValue]
    ) -> Sequence[IrValue]:
        n = len(outs)
        return self.windows.emit(builder, operands[:n], operands[n:], outs[0].shape, self.region())
