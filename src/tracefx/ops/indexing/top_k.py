"""`top_k`, and the approximations `approx_max_k` and `approx_min_k`.

In `top_k`, 0.0 is greater than -0.0, and NaN is greater than all numbers or, if its sign bit is set, less. The
approximations have the order of `sort`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Final, SupportsIndex, final

import numpy as np
from attrs import evolve, frozen
from typing_extensions import override

from tracefx.core import Array, ArrayLike, NDArray, Shape, ShapedArray, Value, as_value, dtypes
from tracefx.core.handler import as_array, bind
from tracefx.core.kernel_context import call_kernel
from tracefx.core.primitive import Batchable, BatchDims, MappedAxis, Primitive, Tangent, Zero
from tracefx.core.type_sharding import Spec
from tracefx.dimensions.symbolic_dimensions import exceeds
from tracefx.errors import AxisError
from tracefx.lowering import Attr, Builder, DenseI64Array, IrValue, Lowerable, Region
from tracefx.ops import stablehlo
from tracefx.ops.indexing.sorting import canonicalize_zero_nan, emit_total_order_compare, gather_along_axis, sort_keys
from tracefx.ops.operation import HasPushforward, require_arity
from tracefx.ops.sharding_rules import require_unsharded
from tracefx.ops.static_integers import canonicalize_axis, static_int

_MIN_PARTITION_LENGTH: Final = 2048
"""The length from which NumPy finds few elements faster by partitioning than by sorting."""


class TopKOperation(Primitive, HasPushforward, Batchable, Lowerable):
    """The first elements of each row along an axis in some order, and their indices."""

    __slots__ = ()
    multiple_results = True

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        (x,) = avals
        require_unsharded(self, x, [self.resolve_axis(x.ndim)])
        return [x.spec] * len(outs)

    @abstractmethod
    def resolve_axis(self, ndim: int) -> int:
        """Returns the axis as a non-negative integer."""
        raise NotImplementedError

    @abstractmethod
    def with_axis(self, axis: int) -> Primitive:
        """Returns the same primitive along another axis."""
        raise NotImplementedError

    @abstractmethod
    def count(self, x: ShapedArray) -> int:
        """Returns the size of the axis in the result."""
        raise NotImplementedError

    @abstractmethod
    def check(self, x: ShapedArray) -> None:
        """Raises unless `x` is a valid operand."""
        raise NotImplementedError

    @abstractmethod
    def sort_key(self, x: NDArray) -> NDArray:
        """Returns numbers or booleans whose ascending order is the order of the result."""
        raise NotImplementedError

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        require_arity(self.name, 1, avals)
        (x,) = avals
        self.check(x)
        axis = self.resolve_axis(x.ndim)
        shape = (*x.shape[:axis], self.count(x), *x.shape[axis + 1 :])
        return [x.update(shape=shape), ShapedArray(shape, dtypes.int32, x.weak_type)]

    @override
    def impl(self, *args: NDArray) -> Sequence[NDArray]:
        (x,) = args
        axis, count = self.resolve_axis(x.ndim), self.count(ShapedArray(x.shape, x.dtype))
        indices = call_kernel(_smallest_indices, call_kernel(self.sort_key, x), count, axis)
        return [np.take_along_axis(x, indices, axis), indices.astype(np.int32)]

    @override
    def pushforward(self, x: Value, t: Value) -> tuple[Sequence[Value], Sequence[Tangent]]:
        out, indices = bind(self, x)
        return [out, indices], [
            gather_along_axis(t, indices, self.resolve_axis(t.aval.ndim)),
            Zero(indices.aval.tangent()),
        ]

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        (x,), (dim,) = args, dims
        assert dim is not None
        along = self.resolve_axis(x.aval.ndim - 1)
        return bind(self.with_axis(along + (dim <= along)), x), [dim, dim]


def _smallest_indices(ranks: NDArray, count: int, axis: int) -> NDArray:
    """Returns the indices of the `count` smallest elements along an axis, in ascending order; ties by index."""
    n = ranks.shape[axis]
    if n < _MIN_PARTITION_LENGTH or 4 * count > n or not count:
        order = np.argsort(ranks, axis, kind="stable")
        return order[(*[slice(None)] * axis, slice(count))]
    rows = np.moveaxis(ranks, axis, -1)
    out = np.empty((*rows.shape[:-1], count), np.int64)
    for line in np.ndindex(rows.shape[:-1]):
        row = rows[line]
        last = np.partition(row, count - 1)[count - 1]
        candidates = np.flatnonzero(row <= last)
        out[line] = candidates[np.argsort(row[candidates], kind="stable")[:count]]
    return np.moveaxis(out, -1, axis)


def _descending_keys(key: NDArray) -> NDArray:
    """Returns numbers or booleans in the reverse order of `key`. Floats are ordered by their bits."""
    if not dtypes.is_float(key.dtype):
        return ~key
    bits = np.ascontiguousarray(key).view(f"i{key.itemsize}")  # as integers, negative floats are in reverse order
    return ~np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


@final
@frozen(eq=False)
class TopK(TopKOperation):
    """The `k` greatest elements along an axis in descending order, and their indices.

    Of equal elements the first ones are greater; NaN is the greatest.

    Args:
        k: The number of elements.
        axis: The axis.

    `x: f32[m, n] -> f32[m, k], i32[m, k]` with `axis=1`; numbers. Bound by `lax.top_k`.

    >>> from tracefx import bind, numpy, ops
    >>> bind(ops.TopK(2, 0), numpy.array([1, 3, 2]))
    [Array([3, 2], dtype=int32), Array([1, 2], dtype=int32)]
    """

    name = "top_k"
    k: int
    axis: int

    @override
    def resolve_axis(self, ndim: int) -> int:
        return self.axis

    @override
    def with_axis(self, axis: int) -> Primitive:
        return TopK(self.k, axis)

    @override
    def count(self, x: ShapedArray) -> int:
        return self.k

    @override
    def check(self, x: ShapedArray) -> None:
        if dtypes.is_complex(x.dtype):
            raise ValueError(f"top_k: complex numbers have no order, got {x}")
        if not x.ndim:
            raise AxisError(f"top_k: operand must have an axis, got {x}")
        if not 0 <= self.axis < x.ndim:
            raise AxisError(f"top_k: axis must be a non-negative axis of {x}, got {self.axis}")
        n = x.shape[self.axis]
        if not 0 <= self.k <= n:
            raise ValueError(f"top_k: k must be from 0 to {n}, the size of axis {self.axis} of {x}, got {self.k}")
        if exceeds(n, 2**31):
            raise ValueError(f"top_k: indices along axis {self.axis} of {x} do not fit int32")

    @override
    def sort_key(self, x: NDArray) -> NDArray:
        (key,) = sort_keys(x)
        return _descending_keys(key)

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        (x,) = operands
        outs = [aval.strong() for aval in self.abstract_eval(x.aval)]
        if dtypes.itemsize_bits(x.aval.dtype) < 8:  # for these, XLA assigns the indices a layout that it then rejects
            wide = dtypes.int8 if dtypes.is_signed(x.aval.dtype) else dtypes.uint8
            (x,) = builder.emit("stablehlo.convert", [x], [ShapedArray(x.aval.shape, wide)])
            values, indices = self.lower(builder, x)
            return [*builder.emit("stablehlo.convert", [values], outs[:1]), indices]
        order = list(range(x.aval.ndim))
        order[self.axis], order[-1] = order[-1], order[self.axis]
        attrs: Mapping[str, Attr] = {"permutation": DenseI64Array(tuple(order))}

        def swapped(shape: Shape) -> Shape:
            return tuple([shape[i] for i in order])

        def turned(y: IrValue) -> IrValue:
            if self.axis == x.aval.ndim - 1:
                return y
            aval = ShapedArray(swapped(y.aval.shape), y.aval.dtype)
            return builder.emit("stablehlo.transpose", [y], [aval], attrs)[0]

        found = [ShapedArray(swapped(aval.shape), aval.dtype) for aval in outs]
        return [turned(y) for y in builder.emit("chlo.top_k", [turned(x)], found, {"k": self.k})]


def top_k(
    operand: ArrayLike, k: SupportsIndex, *, axis: SupportsIndex = -1, is_stable: bool = True
) -> tuple[Array, Array]:
    """Returns the `k` greatest elements along `axis`, in descending order, and their indices.

    Of equal elements, the one with the smaller index comes first. 0.0 is greater than -0.0; NaN is greater than all
    numbers, or less than all if its sign bit is set.

    Args:
        operand: Array; not complex.
        k: How many elements, static; at most the size of the axis.
        axis: The axis to search. The last one by default.
        is_stable: Whether equal elements must keep their order; they always do.

    Returns:
        A pair of arrays: values, and indices (`i32`). Their size along the axis is `k`.

    Raises:
        TypeError: `operand` is a scalar.
        ValueError: `operand` is complex, `k` is out of range, or there is no such axis.

    >>> values, places = top_k(np.array([9.0, 3.0, 6.0]), 2)
    >>> values.tolist(), places.tolist()
    ([9.0, 6.0], [0, 2])
    """
    x = as_value(operand, "top_k: operand")
    count = static_int("top_k", k, "k")
    out, indices = bind(TopK(count, canonicalize_axis("top_k", axis, x.aval.ndim)), x)
    return as_array(out), as_array(indices)


# ------------------------------------------------------------------ approx_max_k, approx_min_k


@final
@frozen(eq=False)
class ApproxTopK(TopKOperation):
    """Approximately the greatest or least elements along an axis in order, and their indices.

    The algorithm for TPUs is that of Chern et al. 2022, TPU-KNN.

    On the CPU, as in XLA, results are exact; only the number of results without `aggregate_to_topk` is that of TPUs.

    Args:
        k: The number of elements.
        reduction_dimension: The axis; negative numbers count from the end.
        recall_target: The expected fraction of the `k` elements that is found, greater than 0 and at most 1.
        is_max_k: Whether to find the greatest elements; otherwise, the least ones.
        reduction_input_size_override: The size from which the recall is computed; negative for that of the axis.
        aggregate_to_topk: Whether the result has `k` elements; otherwise it has all candidates.

    `x: f32[m, n] -> f32[m, k], i32[m, k]` with `reduction_dimension=1`; floats. Bound by `lax.approx_max_k` and
    `lax.approx_min_k`.

    >>> from tracefx import bind, numpy, ops
    >>> bind(ops.ApproxTopK(1, 0, 0.95, True, -1, True), numpy.array([1.0, 3.0, 2.0]))
    [Array([3.], dtype=float32), Array([1], dtype=int32)]
    """

    name = "approx_top_k"
    k: int
    reduction_dimension: int
    recall_target: float
    is_max_k: bool
    reduction_input_size_override: int
    aggregate_to_topk: bool

    @override
    def resolve_axis(self, ndim: int) -> int:
        return self.reduction_dimension % ndim

    @override
    def with_axis(self, axis: int) -> Primitive:
        return evolve(self, reduction_dimension=axis)

    @override
    def check(self, x: ShapedArray) -> None:
        if self.k <= 0:
            raise ValueError(f"approx_top_k: k must be positive, got {self.k}")
        if not x.ndim:
            raise TypeError(f"approx_top_k: operand must have an axis, got {x}")
        if not -x.ndim <= self.reduction_dimension < x.ndim:
            raise AxisError(f"approx_top_k: reduction_dimension {self.reduction_dimension} is not an axis of {x}")
        n = x.shape[self.resolve_axis(x.ndim)]
        if n < self.k:
            raise ValueError(f"approx_top_k: k must be at most {n}, the size of the axis of {x}, got {self.k}")
        if not dtypes.is_float(x.dtype):
            raise ValueError(f"approx_top_k: operand must have a float dtype, got {x}; convert it with astype")
        if not 0 < self.recall_target <= 1:
            raise ValueError(
                f"approx_top_k: recall_target must be greater than 0 and at most 1, got {self.recall_target}"
            )
        if 0 <= self.reduction_input_size_override < n:
            raise ValueError(
                f"approx_top_k: reduction_input_size_override must be -1 or at least {n}, the size of the axis, "
                f"got {self.reduction_input_size_override}"
            )

    @override
    def count(self, x: ShapedArray) -> int:
        """Returns the number of results; without aggregation, as many as the reduction tree of TPU tiles leaves."""
        if self.aggregate_to_topk:
            return self.k
        n = x.shape[self.resolve_axis(x.ndim)]
        tile = 1024 if x.ndim == 1 else 128
        if n <= tile:
            return n
        if self.k == 1:
            return tile
        whole = n if self.reduction_input_size_override < 0 else self.reduction_input_size_override
        if self.recall_target == 1:
            return n
        windows = max(math.ceil((1 - self.k) / math.log(self.recall_target)), tile)
        halvings = (whole // min(windows, whole)).bit_length() - 1
        if not halvings:
            return n
        most = (n // tile - 1).bit_length()
        return -(-n // (tile << min(halvings, most))) * tile

    @override
    def sort_key(self, x: NDArray) -> NDArray:
        (key,) = sort_keys(x)
        return (
            _descending_keys(np.where(np.isnan(key), math.nan, key + 0.0).astype(key.dtype)) if self.is_max_k else key
        )

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        outs = [aval.strong() for aval in self.abstract_eval(operands[0].aval)]
        x = stablehlo.emit_widened_unless_cpu(builder, operands[0])
        axis = self.resolve_axis(x.aval.ndim)
        numbers = ShapedArray(x.aval.shape, dtypes.int32)
        (indices,) = builder.emit("stablehlo.iota", [], [numbers], {"iota_dimension": axis})
        element, index = ShapedArray((), x.aval.dtype), ShapedArray((), dtypes.int32)
        region = Region((element, element, index, index), self.emit_comparator)
        attrs: Mapping[str, Attr] = {"dimension": axis, "is_stable": True}
        found = builder.emit("stablehlo.sort", [x, indices], [x.aval.strong(), numbers], attrs, [region])
        limits = list(x.aval.shape)
        limits[axis] = outs[0].shape[axis]
        window: Mapping[str, Attr] = {
            "start_indices": DenseI64Array((0,) * x.aval.ndim),
            "limit_indices": DenseI64Array(tuple(limits)),
            "strides": DenseI64Array((1,) * x.aval.ndim),
        }
        found = [stablehlo.emit_convert(builder, y, aval.dtype) for y, aval in zip(found, outs, strict=True)]
        return [builder.emit("stablehlo.slice", [y], [aval], window)[0] for y, aval in zip(found, outs, strict=True)]

    def emit_comparator(self, builder: Builder, args: Sequence[IrValue]) -> Sequence[IrValue]:
        """Emits whether the first of two elements comes before the second.

        Args:
            builder: The builder of the region.
            args: The two elements, then their two indices.

        Returns:
            One boolean.
        """
        x, y = [canonicalize_zero_nan(builder, a) for a in args[:2]]
        return [emit_total_order_compare(builder, "GT" if self.is_max_k else "LT", x, y)]


def _approx_top_k(
    name: str,
    operand: ArrayLike,
    k: SupportsIndex,
    reduction_dimension: SupportsIndex,
    recall_target: float,
    is_max_k: bool,
    reduction_input_size_override: SupportsIndex,
    aggregate_to_topk: bool,
) -> tuple[Array, Array]:
    """Binds `ApproxTopK` with validated parameters."""
    prim = ApproxTopK(
        static_int(name, k, "k"),
        static_int(name, reduction_dimension, "reduction_dimension"),
        float(recall_target),
        is_max_k,
        static_int(name, reduction_input_size_override, "reduction_input_size_override"),
        bool(aggregate_to_topk),
    )
    out, indices = bind(prim, as_value(operand, f"{name}: operand"))
    return as_array(out), as_array(indices)


def approx_max_k(
    operand: ArrayLike,
    k: SupportsIndex,
    reduction_dimension: SupportsIndex = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: SupportsIndex = -1,
    aggregate_to_topk: bool = True,
) -> tuple[Array, Array]:
    """Returns approximately the `k` greatest floats along an axis, in descending order, and their indices.

    Accelerators may miss some; the CPU finds all. NaN is greater than all numbers.

    Args:
        operand: Array of floats.
        k: How many elements, static; at most the size of the axis.
        reduction_dimension: The axis to search. The last one by default.
        recall_target: The expected fraction of the true results that is found. 0.95 by default.
        reduction_input_size_override: The size of the whole axis, if `operand` has only a part of it; determines the
            number of results. -1, the default, means the size of the axis.
        aggregate_to_topk: Whether to reduce the candidates to `k` results. True by default; False returns more.

    Returns:
        A pair of arrays: values, and indices (`i32`).

    Raises:
        TypeError: `operand` is a scalar.
        ValueError: `k` is not positive or greater than the axis, `operand` does not have a float dtype, or another
            argument is out of range.

    >>> values, places = approx_max_k(np.array([9.0, 3.0, 6.0]), 2)
    >>> values.tolist(), places.tolist()
    ([9.0, 6.0], [0, 2])
    """
    search = recall_target, True, reduction_input_size_override, aggregate_to_topk
    return _approx_top_k("approx_max_k", operand, k, reduction_dimension, *search)


def approx_min_k(
    operand: ArrayLike,
    k: SupportsIndex,
    reduction_dimension: SupportsIndex = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: SupportsIndex = -1,
    aggregate_to_topk: bool = True,
) -> tuple[Array, Array]:
    """Returns approximately the `k` least floats along an axis, in ascending order, and their indices.

    Accelerators may miss some; the CPU finds all.

    Args:
        operand: Array of floats.
        k: How many elements, static; at most the size of the axis.
        reduction_dimension: The axis to search. The last one by default.
        recall_target: The expected fraction of the true results that is found. 0.95 by default.
        reduction_input_size_override: The size of the whole axis, if `operand` has only a part of it; determines the
            number of results. -1, the default, means the size of the axis.
        aggregate_to_topk: Whether to reduce the candidates to `k` results. True by default; False returns more.

    Returns:
        A pair of arrays: values, and indices (`i32`).

    Raises:
        TypeError: `operand` is a scalar.
        ValueError: `k` is not positive or greater than the axis, `operand` does not have a float dtype, or another
            argument is out of range.

    >>> values, places = approx_min_k(np.array([9.0, 3.0, 6.0]), 2)
    >>> values.tolist(), places.tolist()
    ([3.0, 6.0], [1, 2])
    """
    search = recall_target, False, reduction_input_size_override, aggregate_to_topk
    return _approx_top_k("approx_min_k", operand, k, reduction_dimension, *search)
