"""The primitives of derivatives of windowed extrema: `select_and_gather_add` and `select_and_scatter_add`.

In each window over the second operand, both select the position of the maximum or minimum. `select_and_gather_add`
returns the first operand's elements at these positions; `select_and_scatter_add` adds the first operand's elements to
these positions. Each is the transpose of the other. Both are linear in the first operand, and piecewise constant in the
second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, unique
from typing import Final, final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.core import DType, Literal, NDArray, Scalar, Shape, ShapedArray, Value, dtypes
from tracefx.core.handler import bind1
from tracefx.core.named_sharding import Spec
from tracefx.core.primitive import Differentiable, MappedAxis, Tangent, UndefinedPrimal, Zero
from tracefx.lowering import Attr, Builder, DenseI64Array, IrValue, Region, WindowPadding
from tracefx.ops import stablehlo
from tracefx.ops.casting import cast
from tracefx.ops.elementwise.arithmetic import sub
from tracefx.ops.elementwise.elementwise import REALS, add
from tracefx.ops.indexing.gather_scatter_add import ScatterAdd, ScatterDimensionNumbers
from tracefx.ops.indexing.indexed_windows import GatherScatterMode
from tracefx.ops.monoids import MAXIMUM, MINIMUM, Extremum
from tracefx.ops.operation import HasPullback, Operation
from tracefx.ops.padding_types import Pads
from tracefx.ops.reductions.sliding_windows import Ints, SlidingWindows
from tracefx.ops.shape.array_creation import iota
from tracefx.ops.shape.slicing import Pad, Slice, pad, slice
from tracefx.ops.sharding_rules import resized_spec
from tracefx.ops.structural import batch_first, full_like_aval, match_aval, reshape
from tracefx.text.printer import HasJaxParams


@unique
class SelectComparator(Enum):
    """The comparison of the selected element with the next one that holds if the selection stays."""

    GE = "ge"
    LE = "le"

    @property
    def extremum(self) -> Extremum:
        """The function whose result is selected."""
        return MAXIMUM if self is SelectComparator.GE else MINIMUM

    def start(self, dtype: DType) -> Scalar:
        """Returns the initial value, which every element replaces."""
        return self.extremum.identity(dtype)

    def keeps(self, x: NDArray, y: NDArray) -> NDArray:
        """Returns where the selected element `x` stays selected against `y`, in NumPy."""
        return np.asarray(x >= y if self is SelectComparator.GE else x <= y)

    def emit(self, builder: Builder, x: IrValue, y: IrValue) -> IrValue:
        """Emits where the selected element `x` stays selected against `y`."""
        return stablehlo.emit_compare(builder, self.name, x, y)


class _LinearInFirstOperand(Operation, Differentiable, HasPullback):
    """A primitive that is linear in its first operand and has no derivative with respect to the second."""

    __slots__ = ()
    arity = 2

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        out = bind1(self, *primals)
        t = tangents[0]
        aval = out.aval.tangent()
        return [out], [Zero(aval) if isinstance(t, Zero) else match_aval(bind1(self, t, primals[1]), aval)]


def _accumulation_dtype(dtype: DType) -> DType:
    """Returns the dtype for sums; wider for narrow floats, which XLA would round after every step."""
    return dtypes.float32 if dtypes.is_float(dtype) and dtype.itemsize < 4 else dtype


# ------------------------------------------------------------------ select_and_gather_add


@final
@frozen(eq=False)
class SelectAndGatherAdd(_LinearInFirstOperand, HasJaxParams):
    """Selects, in each window over the second operand, the first operand's element at the position of the extremum.

    Args:
        select_prim: Whether the maximum (`GE`) or the minimum (`LE`) of the second operand is selected.
        window_dimensions: The shape of a window.
        window_strides: The step of the window along each axis.
        padding: The padding before and after each axis, `(low, high)`.
        base_dilation: The spacing of the elements of the operands along each axis.
        window_dilation: The spacing of the elements of a window along each axis.

    `source: f32[n, m], x: f32[n, m] -> f32[k, l]`, integers or floats; `k` and `l` count the windows along the axes.
    Bound by the JVP of `ReduceWindowMax` and `ReduceWindowMin`.

    >>> from tracefx import jvp, lax, numpy
    >>> x, t = numpy.array([1.0, 3.0, 2.0]), numpy.array([10.0, 20.0, 30.0])
    >>> jvp(lambda x: lax.reduce_window(x, -numpy.inf, lax.max, (2,), (1,), "VALID"), (x,), (t,))[1]
    Array([20., 20.], dtype=float32)
    """

    name = "select_and_gather_add"
    select_prim: SelectComparator
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

    @staticmethod
    def from_windows(windows: SlidingWindows, selecting: SelectComparator) -> SelectAndGatherAdd:
        """Returns the primitive for windows that are given as one value.

        Args:
            windows: The windows.
            selecting: The comparison that selects an element.

        Returns:
            The primitive.
        """
        w = windows
        return SelectAndGatherAdd(selecting, w.dimensions, w.strides, w.padding, w.base_dilation, w.window_dilation)

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        return [resized_spec(self, avals[0], outs[0].shape)]

    @override
    def jax_params(self) -> Mapping[str, object]:
        return {
            "select_prim": self.select_prim.value,
            "window_dimensions": self.window_dimensions,
            "window_strides": self.window_strides,
            "padding": self.padding,
            "base_dilation": self.base_dilation,
            "window_dilation": self.window_dilation,
        }

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        source, x = avals
        if source.shape != x.shape:
            raise TypeError(f"{self.name}: both operands must have one shape, got {source} and {x}")
        REALS.require(self.name, x)
        windows = self.windows
        windows.check(self.name, x)
        return ShapedArray(windows.count(x.shape), source.dtype, source.weak_type and x.weak_type)

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        source, x = args
        windows = self.windows
        count = windows.count(x.shape)
        start = self.select_prim.start(x.dtype)
        best = np.full(count, start, x.dtype)
        selected: NDArray = np.zeros(count, source.dtype)
        if 0 in count:
            return selected
        pairs = zip(
            windows.views(windows.padded(x, start), count), windows.views(windows.padded(source, 0), count), strict=True
        )
        for element, source_element in pairs:
            stays = self.select_prim.keeps(best, element)
            best, selected = np.where(stays, best, element), np.where(stays, selected, source_element)
        return selected

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        source, x = args
        assert isinstance(source, UndefinedPrimal)
        assert not isinstance(x, UndefinedPrimal)
        if any(n > 1 for n in self.window_dilation):
            return [match_aval(self._transpose_dilated(ct, x), source.aval), None]
        shape = x.aval.shape
        dilated = any(n > 1 for n in self.base_dilation)
        if dilated:  # pads each element with values that are never selected
            start = Literal(self.select_prim.start(x.aval.dtype), ShapedArray((), x.aval.dtype))
            x = pad(x, start, [(0, 0, n - 1) for n in self.base_dilation])
        prim = SelectAndScatterAdd(self.select_prim, self.window_dimensions, self.window_strides, self.padding)
        out = bind1(prim, ct, x)
        if dilated:
            out = slice(out, (0,) * len(shape), out.shape, self.base_dilation)
        return [match_aval(out, source.aval), None]

    def _transpose_dilated(self, ct: Value, x: Value) -> Value:
        """Returns the transpose for dilated windows: a scatter-add to the indices of the selected elements."""
        aval, count = x.aval, ct.aval.size
        numbers = reshape(add(iota(dtypes.int32, aval.size), 1), aval.shape)  # 0 stands for padding
        indices = reshape(sub(bind1(self, numbers, x), 1), (count, 1))
        into = ScatterAdd(ScatterDimensionNumbers((), (0,), (0,)), False, False, GatherScatterMode.FILL_OR_DROP)
        zeros = full_like_aval(ShapedArray((aval.size,), ct.aval.dtype, ct.aval.weak_type), 0)
        return reshape(bind1(into, zeros, indices, reshape(ct, (count,))), aval.shape)

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]) -> tuple[Value, int | None]:
        operands = [batch_first(x, dim, axis) for x, dim in zip(args, dims, strict=True)]
        return bind1(self.from_windows(self.windows.with_axis(0), self.select_prim), *operands), 0

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        if builder.platform in _UNROLLED_PLATFORMS and self.windows.size <= _MAX_UNROLLED:
            return self.emit_unrolled(builder, out, *operands)
        source, x = operands
        element, source_element = ShapedArray((), x.aval.dtype), ShapedArray((), source.aval.dtype)
        starts = [
            stablehlo.emit_scalar(builder, self.select_prim.start(element.dtype), element.dtype),
            stablehlo.emit_scalar(builder, 0, source_element.dtype),
        ]

        def choose(b: Builder, args: Sequence[IrValue]) -> list[IrValue]:
            best, selected, new, new_source_element = args
            stays = self.select_prim.emit(b, best, new)
            return [
                *b.emit("stablehlo.select", [stays, best, new], [element]),
                *b.emit("stablehlo.select", [stays, selected, new_source_element], [source_element]),
            ]

        body = Region((element, source_element, element, source_element), choose)
        return self.windows.emit(builder, [x, source], starts, out.shape, body)[1]

    def emit_unrolled(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        """Emits the selection unrolled over window positions, where XLA can't reduce windows of two arrays together.

        Args:
            builder: The builder of the program.
            out: The type of the result.
            *operands: The two operands.

        Returns:
            The result.
        """
        source, x = operands
        windows = self.windows
        start = self.select_prim.start(x.aval.dtype)
        selected, best = [
            stablehlo.emit_full(builder, fill, ShapedArray(out.shape, v.aval.dtype))
            for v, fill in ((source, 0), (x, start))
        ]
        if 0 in out.shape:
            return selected
        padded = [_emit_padded(builder, windows, v, fill) for v, fill in ((source, 0), (x, start))]
        for offset in windows.offsets():
            starts, stops, steps = (
                zip(*windows.strided_slices(out.shape, offset), strict=True) if offset else ((), (), ())
            )
            cut = Slice(starts, stops, steps)
            source_element, element = [cut.emit(builder, ShapedArray(out.shape, v.aval.dtype), v) for v in padded]
            stays = self.select_prim.emit(builder, best, element)
            (selected,) = builder.emit("stablehlo.select", [stays, selected, source_element], [selected.aval])
            (best,) = builder.emit("stablehlo.select", [stays, best, element], [best.aval])
        return selected


_UNROLLED_PLATFORMS: Final = ("cuda", "rocm")
"""Platforms where the selection is unrolled."""
_MAX_UNROLLED: Final = 256  # window elements


def _emit_padded(builder: Builder, windows: SlidingWindows, x: IrValue, fill: Scalar) -> IrValue:
    padding = Pad(windows.padding_config)
    value = stablehlo.emit_scalar(builder, fill, x.aval.dtype)
    return padding.emit(builder, padding.out_aval(x.aval, value.aval), x, value)


# ------------------------------------------------------------------ select_and_scatter_add


@final
@frozen(eq=False)
class SelectAndScatterAdd(_LinearInFirstOperand, HasJaxParams):
    """Adds, for each window over the second operand, an element of the first one at the position of the extremum.

    The result starts as zeros of the second operand's shape.

    Args:
        select_prim: Whether the position of the maximum (`GE`) or of the minimum (`LE`) of the window is selected.
        window_dimensions: The shape of a window.
        window_strides: The step of the window along each axis.
        padding: The padding before and after each axis, `(low, high)`.

    `source: f32[k, l], x: f32[n, m] -> f32[n, m]`, integers or floats; `k` and `l` count the windows along the axes.
    Bound by the transpose of `SelectAndGatherAdd`.

    >>> from tracefx import grad, lax, numpy
    >>> x = numpy.array([1.0, 3.0, 2.0])
    >>> grad(lambda x: lax.reduce_window(x, -numpy.inf, lax.max, (2,), (1,), "VALID").sum())(x)
    Array([0., 2., 0.], dtype=float32)
    """

    name = "select_and_scatter_add"
    select_prim: SelectComparator
    window_dimensions: Shape
    window_strides: Ints
    padding: Pads

    @property
    def windows(self) -> SlidingWindows:
        ones = (1,) * len(self.window_dimensions)
        return SlidingWindows(self.window_dimensions, self.window_strides, self.padding, ones, ones)

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        return [avals[1].spec]

    @override
    def jax_params(self) -> Mapping[str, object]:
        return {
            "select_prim": self.select_prim.value,
            "window_dimensions": self.window_dimensions,
            "window_strides": self.window_strides,
            "padding": self.padding,
        }

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        source, x = avals
        REALS.require(self.name, source, x)
        if source.dtype != x.dtype:
            raise TypeError(f"{self.name}: both operands must have one dtype, got {source} and {x}")
        windows = self.windows
        windows.check(self.name, x)
        if source.shape != windows.count(x.shape):
            raise TypeError(
                f"{self.name}: the first operand must have one element for each window, {windows.count(x.shape)} for "
                f"{x}, got {source}"
            )
        return ShapedArray(x.shape, source.dtype, source.weak_type and x.weak_type)

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        source, x = args
        if not source.size:
            return np.zeros(x.shape, source.dtype)
        windows = self.windows
        padded = windows.padded(x, self.select_prim.start(x.dtype))
        views = zip(
            windows.views(padded, source.shape),
            windows.views(np.arange(padded.size).reshape(padded.shape), source.shape),
            strict=True,
        )
        best, index = next(views)
        for element, number in views:
            stays = self.select_prim.keeps(best, element)
            best, index = np.where(stays, best, element), np.where(stays, index, number)
        if dtypes.is_float(source.dtype):  # ten times as fast as `np.add.at`
            total = np.bincount(index.reshape(-1), source.reshape(-1).astype(np.float64), padded.size)
        else:
            total = np.zeros(padded.size, source.dtype)
            np.add.at(total, index.reshape(-1), source.reshape(-1))
        within = [(-low, -high, 0) for low, high in self.padding]
        return cast(Pad(tuple(within)).kernel(total.reshape(padded.shape), np.zeros((), total.dtype)), source.dtype)

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        source, x = args
        assert not isinstance(x, UndefinedPrimal)
        return [
            match_aval(bind1(SelectAndGatherAdd.from_windows(self.windows, self.select_prim), ct, x), source.aval),
            None,
        ]

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]) -> tuple[Value, int | None]:
        operands = [batch_first(x, dim, axis) for x, dim in zip(args, dims, strict=True)]
        w = self.windows.with_axis(0)
        return bind1(SelectAndScatterAdd(self.select_prim, w.dimensions, w.strides, w.padding), *operands), 0

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        wide = _accumulation_dtype(out.dtype)
        source, x = [
            v if v.aval.dtype == wide else builder.emit("stablehlo.convert", [v], [v.aval.update(dtype=wide)])[0]
            for v in operands
        ]
        # The operand is padded first: some platforms don't support padding here, and padding must be selectable.
        start = stablehlo.emit_scalar(builder, self.select_prim.start(wide), wide)
        low, high = [tuple([pair[i] for pair in self.padding]) for i in (0, 1)]
        zeros = (0,) * len(low)
        edges = {
            "edge_padding_low": DenseI64Array(low),
            "edge_padding_high": DenseI64Array(high),
            "interior_padding": DenseI64Array(zeros),
        }
        padded = ShapedArray(self.windows.padded_shape(x.aval.shape), wide)
        if padded.shape != x.aval.shape or any(low):
            (x,) = builder.emit("stablehlo.pad", [x, start], [padded], edges)
        element = ShapedArray((), wide)
        select = Region((element, element), lambda b, args: [self.select_prim.emit(b, *args)])
        scatter = Region((element, element), lambda b, args: b.emit("stablehlo.add", args, [element]))
        attrs: Mapping[str, Attr] = {
            "window_dimensions": DenseI64Array(self.window_dimensions),
            "window_strides": DenseI64Array(self.window_strides),
            "padding": WindowPadding(((0, 0),) * len(low)),
        }
        zero = stablehlo.emit_scalar(builder, 0, wide)
        (selected,) = builder.emit(
            "stablehlo.select_and_scatter", [x, source, zero], [padded], attrs, [select, scatter]
        )
        if padded.shape != out.shape or any(low):
            back = {
                "edge_padding_low": DenseI64Array(tuple([-n for n in low])),
                "edge_padding_high": DenseI64Array(tuple([-n for n in high])),
                "interior_padding": DenseI64Array(zeros),
            }
            (selected,) = builder.emit("stablehlo.pad", [selected, zero], [out.update(dtype=wide)], back)
        if wide == out.dtype:
            return selected
        return builder.emit("stablehlo.convert", [selected], [out])[0]
