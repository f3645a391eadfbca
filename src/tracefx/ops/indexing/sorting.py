"""Order: `sort` of several arrays at once.

Keys are ordered as NumPy orders them: -0.0 equals 0.0, NaN stands at the end and equals NaN, complex numbers go by
their real and then by their imaginary parts, each of which may be NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, SupportsIndex, final, overload

import numpy as np
from attrs import evolve, frozen
from typing_extensions import override

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import DType, NDArray
from tracefx.core.handler import as_array, bind
from tracefx.core.kernel_context import call_kernel
from tracefx.core.primitive import Batchable, Differentiable, MappedAxis, Primitive, Tangent, Zero
from tracefx.core.values import Value, as_value
from tracefx.lowering import Attr, Builder, IrValue, Lowerable, MlirText, Region
from tracefx.ops import stablehlo
from tracefx.ops.casting import cast
from tracefx.ops.indexing.gather_scatter_add import GatherDimensionNumbers, gather
from tracefx.ops.indexing.indexed_windows import GatherScatterMode
from tracefx.ops.operation import Domain, HasNumpyKernel, refuse_keys
from tracefx.ops.shape.array_creation import broadcasted_iota
from tracefx.ops.static_integers import AxisError, canonicalize_axis, static_int
from tracefx.ops.structural import NUMPY_NATIVE_DTYPES, broadcast_in_dim, full_like_aval, move_axis, reshape

_SORTABLE: Final = Domain("booleans or numbers", lambda d: not dtypes.is_key(d) and d != dtypes.float0)
_LONG: Final = 4096
"""The size from which on less time for sorting is worth more time for compiling."""


def gather_along_axis(x: Value, places: Value, axis: int) -> Array:
    """For every line of `x` along `axis` its elements at the same line of `places`, all different and within it."""
    if not x.aval.size:  # where no window fits, and there is nothing to pick
        return full_like_aval(x.aval.update(shape=places.aval.shape), 0)
    others = [i for i in range(x.aval.ndim) if i != axis]
    numbers = GatherDimensionNumbers(
        offset_dims=(),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
        operand_batching_dims=others,
        start_indices_batching_dims=others,
    )
    columns = reshape(places, (*places.aval.shape, 1))
    mode = GatherScatterMode.PROMISE_IN_BOUNDS
    return gather(x, columns, numbers, (1,) * x.aval.ndim, unique_indices=True, mode=mode)


# ------------------------------------------------------------------ keys


def sort_keys(x: NDArray) -> list[NDArray]:
    """Arrays that NumPy orders as `x` is ordered, the first deciding."""
    if dtypes.is_complex(x.dtype):
        return [x.real, x.imag]
    if dtypes.is_float(x.dtype) and dtypes.itemsize_bits(x.dtype) < 32:
        return [cast(x, dtypes.float32)]
    return [cast(x, dtypes.int8) if dtypes.itemsize_bits(x.dtype) < 8 else x]


def _emit_key(builder: Builder, x: IrValue) -> list[IrValue]:
    """The same of one element: numbers whose total order, that of their bits, is the one wanted."""
    if dtypes.is_complex(x.aval.dtype):
        part = ShapedArray((), dtypes.real_dtype(x.aval.dtype))
        parts = [builder.emit(f"stablehlo.{name}", [x], [part])[0] for name in ("real", "imag")]
        return [canonicalize_zero_nan(builder, p) for p in parts]
    return [canonicalize_zero_nan(builder, x)] if dtypes.is_float(x.aval.dtype) else [x]


def canonicalize_zero_nan(builder: Builder, x: IrValue) -> IrValue:
    """One zero, and one NaN, which is greater than all numbers."""
    zero = stablehlo.emit_scalar(builder, 0, x.aval.dtype)
    (x_or_zero,) = builder.emit("stablehlo.select", [stablehlo.emit_compare(builder, "EQ", x, zero), zero, x], [x.aval])
    nan = stablehlo.emit_scalar(builder, math.nan, x.aval.dtype)
    strange = stablehlo.emit_compare(builder, "NE", x, x)
    return builder.emit("stablehlo.select", [strange, nan, x_or_zero], [x.aval])[0]


def emit_total_order_compare(builder: Builder, direction: str, x: IrValue, y: IrValue) -> IrValue:
    """A comparison by the total order."""
    if not dtypes.is_float(x.aval.dtype):
        return stablehlo.emit_compare(builder, direction, x, y)
    attrs = {
        "comparison_direction": MlirText(f"#stablehlo<comparison_direction {direction}>"),
        "compare_type": MlirText("#stablehlo<comparison_type TOTALORDER>"),
    }
    return builder.emit("stablehlo.compare", [x, y], [ShapedArray((), dtypes.bool_)], attrs)[0]


_BITS: Final[Mapping[DType, DType]] = MappingProxyType(
    {
        dtypes.float64: dtypes.int64,
        dtypes.float32: dtypes.int32,
        dtypes.float16: dtypes.int16,
        dtypes.bfloat16: dtypes.int16,
    }
)
"""Integers as long as floats."""


def _flip_negative_bits(builder: Builder, bits: IrValue) -> IrValue:
    """The bits of floats as integers in their order, and back: those of negative numbers count backwards."""
    zero = stablehlo.emit_full(builder, 0, bits.aval)
    rest = stablehlo.emit_full(builder, int(dtypes.iinfo(bits.aval.dtype).max), bits.aval)
    (backwards,) = builder.emit("stablehlo.xor", [bits, rest], [bits.aval])
    negative = stablehlo.emit_compare(builder, "LT", bits, zero)
    return builder.emit("stablehlo.select", [negative, backwards, bits], [bits.aval])[0]


# ------------------------------------------------------------------ sort


@final
@frozen(eq=False)
class Sort(Primitive, Differentiable, Batchable, Lowerable, HasNumpyKernel):
    name = "sort"
    dimension: int
    is_stable: bool
    num_keys: int

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        if not avals:
            raise TypeError("sort takes at least one operand, got none")
        if not 1 <= self.num_keys <= len(avals):
            raise ValueError(f"sort: num_keys must be from 1 to the number of operands, {len(avals)}: {self.num_keys}")
        for aval in avals:
            if dtypes.is_key(aval.dtype):
                refuse_keys(self.name, aval.dtype)
        first = avals[0]
        if not 0 <= self.dimension < first.ndim:
            raise AxisError(f"sort: dimension must be an axis of {first}, counted from 0, got {self.dimension}")
        _SORTABLE.require("sort", *avals[: self.num_keys])
        for i, aval in enumerate(avals):
            if aval.shape != first.shape:
                raise TypeError(f"sort: operands must have one shape, but operand 0 is {first} and {i} is {aval}")
        return avals

    @override
    def numpy_kernel(self, *avals: ShapedArray) -> Callable[..., NDArray | list[NDArray]]:
        if len(avals) > 1:
            return self.sort_operands
        return self._sort_native if avals[0].dtype in NUMPY_NATIVE_DTYPES else self.sort_single

    @override
    def impl(self, *args: NDArray) -> Sequence[NDArray]:
        return [call_kernel(self.sort_single, *args)] if len(args) == 1 else call_kernel(self.sort_operands, *args)

    def sort_operands(self, *args: NDArray) -> list[NDArray]:
        order = self.argsort(*args[: self.num_keys])
        if args[0].ndim == 1:
            return [x.take(order) for x in args]
        return [np.take_along_axis(x, order, self.dimension) for x in args]

    def _sort_native(self, x: NDArray) -> NDArray:
        """`sorted_alone` on the shortest way; of few elements NumPy's orders take equally long."""
        out = x.copy()
        out.sort(self.dimension, "stable" if self.is_stable else None)
        return out

    def sort_single(self, x: NDArray) -> NDArray:
        """Elements that are equal look alike, zeros and NaNs of different sign excepted."""
        if dtypes.is_complex(x.dtype) and np.isnan(x).any():  # of which NumPy has another order
            return np.take_along_axis(x, self.argsort(x), self.dimension)
        (key,) = [x] if dtypes.is_complex(x.dtype) else sort_keys(x)
        alike = not self.is_stable or dtypes.is_integer(x.dtype) or dtypes.is_bool(x.dtype) or key.all()
        kind = None if alike else "stable"
        return cast(np.sort(key, self.dimension, kind=kind), x.dtype)  # type: ignore[arg-type]  # None is a kind too

    def argsort(self, *args: NDArray) -> NDArray:
        """The places at which the elements stand that come first, second and so on."""
        keys = [key for x in args for key in sort_keys(x)]
        if len(keys) == 1:
            return np.asarray(np.argsort(keys[0], self.dimension, kind="stable"))
        return np.asarray(np.lexsort(keys[::-1], self.dimension))

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        shape = primals[0].aval.shape
        dtype = dtypes.int32 if shape[self.dimension] < 2**31 else dtypes.int64
        # What is equal has the tangents of its own order, whatever order is promised.
        stable = evolve(self, is_stable=True)
        *outs, places = bind(stable, *primals, broadcasted_iota(dtype, shape, self.dimension))
        pushed: list[Tangent] = [
            Zero(out.aval.tangent()) if isinstance(t, Zero) else gather_along_axis(t, places, self.dimension)
            for out, t in zip(outs, tangents, strict=True)
        ]
        return outs, pushed

    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        place = next(dim for dim in dims if dim is not None)
        moved: list[Value] = []
        for x, dim in zip(args, dims, strict=True):
            if dim is None:
                shape = list(x.aval.shape)
                shape.insert(place, axis.size)
                moved.append(broadcast_in_dim(x, shape, [i for i in range(len(shape)) if i != place]))
            else:
                moved.append(move_axis(x, dim, place))
        outs = bind(evolve(self, dimension=self.dimension + (place <= self.dimension)), *moved)
        return outs, [place] * len(outs)

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        avals = [x.aval.strong() for x in operands]
        if len(operands) == 1 and not self.is_stable and avals[0].dtype in _BITS and avals[0].size >= _LONG:
            return [self.emit_by_bits(builder, operands[0])]
        given = [stablehlo.emit_widened_unless_cpu(builder, x) for x in operands]
        pairs = tuple([ShapedArray((), x.aval.dtype) for x in given for _ in range(2)])
        attrs: Mapping[str, Attr] = {"dimension": self.dimension, "is_stable": self.is_stable}
        found = builder.emit(
            "stablehlo.sort", given, [x.aval.strong() for x in given], attrs, [Region(pairs, self.emit_comparator)]
        )
        return [stablehlo.emit_convert(builder, x, aval.dtype) for x, aval in zip(found, avals, strict=True)]

    def emit_by_bits(self, builder: Builder, x: IrValue) -> IrValue:
        """Floats by integers that have their order: XLA's CPU sorts these in an eighth of the time, for which it takes
        three times as long to compile.

        -0.0 comes before 0.0, as an order that is not stable may have it.
        """
        aval = ShapedArray(x.aval.shape, x.aval.dtype)
        bits = ShapedArray(aval.shape, _BITS[aval.dtype])
        nan = stablehlo.emit_full(builder, math.nan, aval)
        (x,) = builder.emit("stablehlo.select", [stablehlo.emit_compare(builder, "NE", x, x), nan, x], [aval])
        (key,) = builder.emit("stablehlo.bitcast_convert", [x], [bits])
        pair = (ShapedArray((), bits.dtype),) * 2
        attrs: Mapping[str, Attr] = {"dimension": self.dimension, "is_stable": False}
        (found,) = builder.emit(
            "stablehlo.sort", [_flip_negative_bits(builder, key)], [bits], attrs, [Region(pair, self.emit_comparator)]
        )
        return builder.emit("stablehlo.bitcast_convert", [_flip_negative_bits(builder, found)], [aval])[0]

    def emit_comparator(self, builder: Builder, args: Sequence[IrValue]) -> Sequence[IrValue]:
        """Whether the first of two elements comes before the second."""
        truth = ShapedArray((), dtypes.bool_)
        count = 2 * self.num_keys
        xs = [key for x in args[0:count:2] for key in _emit_key(builder, x)]
        ys = [key for y in args[1:count:2] for key in _emit_key(builder, y)]
        less: IrValue | None = None
        for x, y in zip(reversed(xs), reversed(ys), strict=True):
            before = emit_total_order_compare(builder, "LT", x, y)
            if less is not None:
                (tied,) = builder.emit("stablehlo.and", [emit_total_order_compare(builder, "EQ", x, y), less], [truth])
                (before,) = builder.emit("stablehlo.or", [before, tied], [truth])
            less = before
        assert less is not None
        return [less]


@overload
def sort(operand: ArrayLike, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Array: ...
@overload
def sort(
    operand: Sequence[ArrayLike], dimension: int = -1, is_stable: bool = True, num_keys: int = 1
) -> tuple[Array, ...]: ...
def sort(
    operand: ArrayLike | Sequence[ArrayLike],
    dimension: SupportsIndex = -1,
    is_stable: bool = True,
    num_keys: int = 1,
) -> Array | tuple[Array, ...]:
    """`operand` with its elements along `dimension` in ascending order.

    Several operands of one shape, in a sequence, are put into one order: that of the first `num_keys` of them, of which
    an earlier one decides before a later one. -0.0 equals 0.0, NaN comes last, complex numbers are ordered by their
    real and then their imaginary parts. Elements that are equal stay in their order if `is_stable`.

    Raises TypeError for no operands or ones of different shapes, ValueError for a `num_keys` or `dimension` that there
    is not.

    >>> sort(np.array([2, 1, 3]))
    Array([1, 2, 3], dtype=int32)
    >>> keys, values = sort((np.array([2, 1, 2]), np.array([6, 5, 4])), num_keys=2)
    >>> keys.tolist(), values.tolist()
    ([1, 2, 2], [5, 4, 6])
    """
    keys = static_int("sort", num_keys, "num_keys")
    if not isinstance(operand, list | tuple):
        x = as_value(operand, "sort: operand")  # type: ignore[arg-type]  # what is no array is refused there
        if keys != 1:
            raise ValueError(f"sort: num_keys must be 1 for a single operand, got {keys}")
        (out,) = bind(Sort(canonicalize_axis("sort", dimension, x.aval.ndim, "dimension"), bool(is_stable), 1), x)
        return as_array(out)
    if not operand:
        raise TypeError("sort takes at least one operand, got an empty sequence")
    values = [as_value(x, f"sort: operand {i}") for i, x in enumerate(operand)]
    axis = canonicalize_axis("sort", dimension, values[0].aval.ndim, "dimension")
    return tuple([as_array(out) for out in bind(Sort(axis, bool(is_stable), keys), *values)])


def sort_key_val(
    keys: ArrayLike, values: ArrayLike, dimension: SupportsIndex = -1, is_stable: bool = True
) -> tuple[Array, Array]:
    """`keys` in ascending order along `dimension`, and `values` put into the same order.

    >>> [x.tolist() for x in sort_key_val(np.array([2, 1]), np.array([0.5, 1.5]))]
    [[1, 2], [1.5, 0.5]]
    """
    first, second = as_value(keys, "sort_key_val: keys"), as_value(values, "sort_key_val: values")
    axis = canonicalize_axis("sort_key_val", dimension, first.aval.ndim, "dimension")
    sorted_keys, moved = bind(Sort(axis, bool(is_stable), 1), first, second)
    return as_array(sorted_keys), as_array(moved)
