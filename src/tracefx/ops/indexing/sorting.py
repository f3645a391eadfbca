"""Sorting of one or several arrays: `sort`, `sort_key_val`.

The order is NumPy's: -0.0 equals 0.0; NaN is last and equals NaN; complex numbers are ordered by their real, then by
their imaginary parts, each of which may be NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, SupportsIndex, final, overload

import numpy as np
from attrs import evolve, frozen
from typing_extensions import override

from tracefx.core import Array, ArrayLike, DType, NDArray, ShapedArray, Value, as_value, dtypes
from tracefx.core.handler import as_array, bind
from tracefx.core.kernel_context import call_kernel
from tracefx.core.primitive import Batchable, BatchDims, Differentiable, MappedAxis, Primitive, Tangent, Zero
from tracefx.core.type_sharding import Spec
from tracefx.dimensions.symbolic_dimensions import exceeds
from tracefx.errors import AxisError
from tracefx.lowering import Attr, Builder, IrValue, Lowerable, MlirText, Region
from tracefx.ops import stablehlo
from tracefx.ops.casting import cast
from tracefx.ops.indexing.gather_scatter_add import GatherDimensionNumbers, gather
from tracefx.ops.indexing.indexed_windows import GatherScatterMode
from tracefx.ops.operation import Domain, HasNumpyKernel, refuse_keys
from tracefx.ops.shape.array_creation import broadcasted_iota
from tracefx.ops.sharding_rules import joined_spec, require_unsharded
from tracefx.ops.static_integers import canonicalize_axis, static_int
from tracefx.ops.structural import NUMPY_NATIVE_DTYPES, broadcast_in_dim, full_like_aval, move_axis, reshape

_SORTABLE: Final = Domain("booleans or numbers", lambda d: not dtypes.is_key(d) and d != dtypes.float0)
_LONG: Final = 4096
"""The number of elements from which faster sorting is worth more compile time."""


def gather_along_axis(x: Value, indices: Value, axis: int) -> Array:
    """Returns, for each row of `x` along `axis`, the elements at the same row of `indices`, distinct and in bounds."""
    if not x.aval.size:  # no window fits, and there is nothing to gather
        return full_like_aval(x.aval.update(shape=indices.aval.shape), 0)
    others = [i for i in range(x.aval.ndim) if i != axis]
    numbers = GatherDimensionNumbers(
        offset_dims=(),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
        operand_batching_dims=others,
        start_indices_batching_dims=others,
    )
    columns = reshape(indices, (*indices.aval.shape, 1))
    mode = GatherScatterMode.PROMISE_IN_BOUNDS
    return gather(x, columns, numbers, (1,) * x.aval.ndim, unique_indices=True, mode=mode)


# ------------------------------------------------------------------ keys


def sort_keys(x: NDArray) -> list[NDArray]:
    """Returns arrays that NumPy sorts lexicographically in the order of `x`."""
    if dtypes.is_complex(x.dtype):
        return [x.real, x.imag]
    if dtypes.is_float(x.dtype) and dtypes.itemsize_bits(x.dtype) < 32:
        return [cast(x, dtypes.float32)]
    return [cast(x, dtypes.int8) if dtypes.itemsize_bits(x.dtype) < 8 else x]


def _emit_key(builder: Builder, x: IrValue) -> list[IrValue]:
    """Emits the sort keys of one element, to be compared in IEEE total order."""
    if dtypes.is_complex(x.aval.dtype):
        part = ShapedArray((), dtypes.real_dtype(x.aval.dtype))
        parts = [builder.emit(f"stablehlo.{name}", [x], [part])[0] for name in ("real", "imag")]
        return [canonicalize_zero_nan(builder, p) for p in parts]
    return [canonicalize_zero_nan(builder, x)] if dtypes.is_float(x.aval.dtype) else [x]


def canonicalize_zero_nan(builder: Builder, x: IrValue) -> IrValue:
    """Emits `x` with all zeros positive, and all NaNs positive, that is, greater than all numbers."""
    zero = stablehlo.emit_scalar(builder, 0, x.aval.dtype)
    (x_or_zero,) = builder.emit("stablehlo.select", [stablehlo.emit_compare(builder, "EQ", x, zero), zero, x], [x.aval])
    nan = stablehlo.emit_scalar(builder, math.nan, x.aval.dtype)
    is_nan = stablehlo.emit_compare(builder, "NE", x, x)
    return builder.emit("stablehlo.select", [is_nan, nan, x_or_zero], [x.aval])[0]


def emit_total_order_compare(builder: Builder, direction: str, x: IrValue, y: IrValue) -> IrValue:
    """Emits a comparison in IEEE total order."""
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
"""The integer dtype with the width of each float dtype."""


def _flip_negative_bits(builder: Builder, bits: IrValue) -> IrValue:
    """Emits the bits of floats as integers in the same order, or the reverse: flips all but the sign of negatives."""
    zero = stablehlo.emit_full(builder, 0, bits.aval)
    mask = stablehlo.emit_full(builder, int(dtypes.iinfo(bits.aval.dtype).max), bits.aval)
    (flipped,) = builder.emit("stablehlo.xor", [bits, mask], [bits.aval])
    negative = stablehlo.emit_compare(builder, "LT", bits, zero)
    return builder.emit("stablehlo.select", [negative, flipped, bits], [bits.aval])[0]


# ------------------------------------------------------------------ sort


@final
@frozen(eq=False)
class Sort(Primitive, Differentiable, Batchable, Lowerable, HasNumpyKernel):
    """Sorts several arrays of one shape along an axis, in the lexicographic order of the first `num_keys` of them.

    NaN comes last. Complex numbers are ordered by their real, then by their imaginary parts.

    Args:
        dimension: The axis.
        is_stable: Whether elements with equal keys keep their order.
        num_keys: The number of operands that are compared; the others are permuted along.

    `keys: f32[n, m], *more: i32[n, m] -> f32[n, m], *i32[n, m]`, booleans or numbers. Bound by `lax.sort` and
    `lax.sort_key_val`.

    >>> from tracefx import bind, numpy, ops
    >>> bind(ops.Sort(0, True, 1), numpy.array([3, 1, 2]))
    [Array([1, 2, 3], dtype=int32)]
    """

    name = "sort"
    multiple_results = True
    dimension: int
    is_stable: bool
    num_keys: int

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        for x in avals:
            require_unsharded(self, x, [self.dimension])
        return [joined_spec(self, avals)] * len(outs)

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
            raise AxisError(f"sort: dimension must be a non-negative axis of {first}, got {self.dimension}")
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
        """Returns several operands sorted by NumPy.

        Args:
            *args: The operands, the keys first.

        Returns:
            The sorted operands.
        """
        order = self.argsort(*args[: self.num_keys])
        if args[0].ndim == 1:
            return [x.take(order) for x in args]
        return [np.take_along_axis(x, order, self.dimension) for x in args]

    def _sort_native(self, x: NDArray) -> NDArray:
        """The fast path of `sort_single`, for native dtypes. For small arrays NumPy's algorithms take equally long."""
        out = x.copy()
        out.sort(self.dimension, "stable" if self.is_stable else None)
        return out

    def sort_single(self, x: NDArray) -> NDArray:
        """Returns one operand sorted by NumPy.

        Stability matters only where equal elements differ, that is, for zeros and NaNs with different signs.

        Args:
            x: The operand.

        Returns:
            The sorted operand.
        """
        if dtypes.is_complex(x.dtype) and np.isnan(x).any():  # NumPy orders them differently
            return np.take_along_axis(x, self.argsort(x), self.dimension)
        (key,) = [x] if dtypes.is_complex(x.dtype) else sort_keys(x)
        alike = not self.is_stable or dtypes.is_integer(x.dtype) or dtypes.is_bool(x.dtype) or key.all()
        ordered = np.sort(key, self.dimension) if alike else np.sort(key, self.dimension, kind="stable")
        return cast(ordered, x.dtype)

    def argsort(self, *args: NDArray) -> NDArray:
        """Returns the indices that sort the keys.

        Args:
            *args: The keys, the most significant one first.

        Returns:
            Indices along the sorted axis, of the shape of the keys.
        """
        keys = [key for x in args for key in sort_keys(x)]
        if len(keys) == 1:
            return np.asarray(np.argsort(keys[0], self.dimension, kind="stable"))
        return np.asarray(np.lexsort(keys[::-1], self.dimension))

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        shape = primals[0].aval.shape
        dtype = dtypes.int64 if exceeds(shape[self.dimension], 2**31 - 1) else dtypes.int32
        # A stable sort gives equal elements their own tangents, in a definite order.
        stable = evolve(self, is_stable=True)
        *outs, indices = bind(stable, *primals, broadcasted_iota(dtype, shape, self.dimension))
        out_tangents: list[Tangent] = [
            Zero(out.aval.tangent()) if isinstance(t, Zero) else gather_along_axis(t, indices, self.dimension)
            for out, t in zip(outs, tangents, strict=True)
        ]
        return outs, out_tangents

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        position = next(dim for dim in dims if dim is not None)
        moved: list[Value] = []
        for x, dim in zip(args, dims, strict=True):
            if dim is None:
                shape = list(x.aval.shape)
                shape.insert(position, axis.size)
                moved.append(broadcast_in_dim(x, shape, [i for i in range(len(shape)) if i != position]))
            else:
                moved.append(move_axis(x, dim, position))
        outs = bind(evolve(self, dimension=self.dimension + (position <= self.dimension)), *moved)
        return outs, [position] * len(outs)

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        avals = [x.aval.strong() for x in operands]
        if len(operands) == 1 and not self.is_stable and avals[0].dtype in _BITS and exceeds(avals[0].size, _LONG - 1):
            return [self.emit_by_bits(builder, operands[0])]
        widened = [stablehlo.emit_widened_unless_cpu(builder, x) for x in operands]
        pairs = tuple([ShapedArray((), x.aval.dtype) for x in widened for _ in range(2)])
        attrs: Mapping[str, Attr] = {"dimension": self.dimension, "is_stable": self.is_stable}
        result = builder.emit(
            "stablehlo.sort", widened, [x.aval.strong() for x in widened], attrs, [Region(pairs, self.emit_comparator)]
        )
        return [stablehlo.emit_convert(builder, x, aval.dtype) for x, aval in zip(result, avals, strict=True)]

    def emit_by_bits(self, builder: Builder, x: IrValue) -> IrValue:
        """Emits an unstable sort of floats as integers with the same order.

        XLA's CPU backend sorts integers in an eighth of the time, though it takes three times as long to compile. -0.0
        comes before 0.0, which an unstable sort permits.

        Args:
            builder: The builder of the program.
            x: The operand.

        Returns:
            The sorted operand.
        """
        aval = ShapedArray(x.aval.shape, x.aval.dtype)
        bits = ShapedArray(aval.shape, _BITS[aval.dtype])
        nan = stablehlo.emit_full(builder, math.nan, aval)
        (x,) = builder.emit("stablehlo.select", [stablehlo.emit_compare(builder, "NE", x, x), nan, x], [aval])
        (key,) = builder.emit("stablehlo.bitcast_convert", [x], [bits])
        pair = (ShapedArray((), bits.dtype),) * 2
        attrs: Mapping[str, Attr] = {"dimension": self.dimension, "is_stable": False}
        (result,) = builder.emit(
            "stablehlo.sort", [_flip_negative_bits(builder, key)], [bits], attrs, [Region(pair, self.emit_comparator)]
        )
        return builder.emit("stablehlo.bitcast_convert", [_flip_negative_bits(builder, result)], [aval])[0]

    def emit_comparator(self, builder: Builder, args: Sequence[IrValue]) -> Sequence[IrValue]:
        """Emits whether the first of two elements comes before the second, for the keys of all operands.

        Args:
            builder: The builder of the region.
            args: For each operand, its elements at both positions.

        Returns:
            One boolean.
        """
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
    """Returns `operand` sorted along `dimension` in ascending order.

    -0.0 equals 0.0, NaN is last, and complex numbers are ordered by their real, then by their imaginary parts.

    Args:
        operand: An array, or a sequence of arrays of one shape, which are permuted together.
        dimension: The axis to sort along. The last one by default.
        is_stable: Whether equal elements keep their order. True by default.
        num_keys: How many of the first operands are keys, compared lexicographically. 1 by default.

    Returns:
        A sorted array, or a tuple of arrays for a sequence.

    Raises:
        AxisError: There is no such axis; it is a ValueError.
        TypeError: There are no operands, or their shapes differ, or a key can't be sorted.
        ValueError: `num_keys` is less than 1 or greater than the number of operands.

    >>> sort(np.array([2, 1, 3]))
    Array([1, 2, 3], dtype=int32)
    >>> keys, values = sort((np.array([2, 1, 2]), np.array([6, 5, 4])), num_keys=2)
    >>> keys.tolist(), values.tolist()
    ([1, 2, 2], [5, 4, 6])
    """
    keys = static_int("sort", num_keys, "num_keys")
    if not isinstance(operand, list | tuple):
        x = as_value(operand, "sort: operand")
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
    """Returns `keys` sorted along `dimension` in ascending order, and `values` permuted in the same way.

    Args:
        keys: Array to sort.
        values: Array of the same shape.
        dimension: The axis to sort along. The last one by default.
        is_stable: Whether equal keys keep their order. True by default.

    Returns:
        A pair of arrays.

    Raises:
        AxisError: There is no such axis.
        TypeError: The shapes differ, or the keys can't be sorted.

    >>> [x.tolist() for x in sort_key_val(np.array([2, 1]), np.array([0.5, 1.5]))]
    [[1, 2], [1.5, 0.5]]
    """
    first, second = as_value(keys, "sort_key_val: keys"), as_value(values, "sort_key_val: values")
    axis = canonicalize_axis("sort_key_val", dimension, first.aval.ndim, "dimension")
    sorted_keys, moved = bind(Sort(axis, bool(is_stable), 1), first, second)
    return as_array(sorted_keys), as_array(moved)
