"""Indexing along single axes: `slice_in_dim`, `index_in_dim`, `unstack`, `index_take`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsIndex, final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.core import Array, ArrayLike, NDArray, ShapedArray, Value, as_value, dtypes
from tracefx.core.handler import as_array, bind
from tracefx.core.named_sharding import Spec
from tracefx.core.primitive import Batchable, BatchDims, MappedAxis, Tangent, Transposable, UndefinedPrimal
from tracefx.lowering import Builder, IrValue, Lowerable
from tracefx.ops.elementwise.arithmetic import rem
from tracefx.ops.elementwise.comparison import lt
from tracefx.ops.elementwise.elementwise import add, operands
from tracefx.ops.elementwise.selection import select
from tracefx.ops.indexing.gather_scatter_add import GatherDimensionNumbers, gather
from tracefx.ops.operation import UnaryLinear, require_arity
from tracefx.ops.shape.shape import concatenate, expand_dims, squeeze, stack
from tracefx.ops.shape.slicing import Slice, slice
from tracefx.ops.sharding_rules import require_unsharded, without_axes
from tracefx.ops.static_integers import canonicalize_axes, canonicalize_axis, static_int
from tracefx.ops.structural import instantiate, match_aval


def slice_in_dim(
    operand: ArrayLike,
    start_index: SupportsIndex | None,
    limit_index: SupportsIndex | None,
    stride: SupportsIndex = 1,
    axis: SupportsIndex = 0,
) -> Array:
    """Returns the elements of `operand` from `start_index` to `limit_index` (exclusive) along one axis.

    Args:
        operand: Array.
        start_index: The first index. None means the start of the axis; negative indices count from its end.
        limit_index: The end of the range. None means the end of the axis; negative indices count from it.
        stride: The positive step between elements. 1 by default.
        axis: The axis to slice. 0 by default.

    Returns:
        An array of the same rank and dtype.

    Raises:
        AxisError: There is no such axis; it is an IndexError.
        TypeError: The bounds or the stride are not static integers, or out of range.

    >>> slice_in_dim(np.arange(6), 1, -1, 2).tolist()
    [1, 3]
    """
    name = "slice_in_dim"
    x = as_value(operand, "operand")
    canonical_axis = canonicalize_axis(name, axis, x.aval.ndim)
    shape = x.aval.shape
    n = shape[canonical_axis]
    start = 0 if start_index is None else static_int(name, start_index, "start_index")
    limit = n if limit_index is None else static_int(name, limit_index, "limit_index")
    starts, limits, strides = [0] * len(shape), list(shape), [1] * len(shape)
    starts[canonical_axis] = start + n if start < 0 else start
    limits[canonical_axis] = limit + n if limit < 0 else limit
    strides[canonical_axis] = static_int(name, stride, "stride")
    return slice(x, starts, limits, strides)


def index_in_dim(operand: ArrayLike, index: SupportsIndex, axis: SupportsIndex = 0, keepdims: bool = True) -> Array:
    """Returns the element of `operand` at `index` along one axis.

    Args:
        operand: Array.
        index: A static index; negative ones count from the end of the axis.
        axis: The axis. 0 by default.
        keepdims: Whether the axis remains, with size 1. True by default.

    Returns:
        An array of the same dtype.

    Raises:
        IndexError: The index or the axis is out of bounds.

    >>> index_in_dim(np.arange(6).reshape(3, 2), -1, keepdims=False).tolist()
    [4, 5]
    """
    x = as_value(operand, "operand")
    canonical_axis = canonicalize_axis("index_in_dim", axis, x.aval.ndim)
    n = x.aval.shape[canonical_axis]
    at = static_int("index_in_dim", index, "index")
    if not -n <= at < n:
        raise IndexError(f"index_in_dim: index {at} is out of bounds for axis {canonical_axis} of {x.aval}")
    found = slice_in_dim(x, at % n, at % n + 1, 1, canonical_axis)
    return found if keepdims else squeeze(found, (canonical_axis,))


# ------------------------------------------------------------------ unstack


@final
@frozen(eq=False)
class Unstack(UnaryLinear, Transposable, Batchable, Lowerable):
    """The slices along an axis, each of them a result without the axis: `x[0]`, `x[1]`, ... along the first axis.

    Args:
        axis: The axis.

    `x: f32[2, n, m] -> f32[n, m], f32[n, m]` with `axis=0`, one result for each index; any dtype. Bound by
    `lax.unstack`.

    >>> from tracefx import bind, numpy, ops
    >>> bind(ops.Unstack(0), numpy.array([1, 2]))
    [Array(1, dtype=int32), Array(2, dtype=int32)]
    """

    name = "unstack"
    multiple_results = True
    axis: int

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        require_unsharded(self, avals[0], [self.axis])
        return [without_axes(avals[0].spec, [self.axis])] * len(outs)

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        require_arity(self.name, 1, avals)
        (x,) = avals
        if not 0 <= self.axis < x.ndim:
            raise ValueError(f"unstack: axis {self.axis} is out of bounds for {x}")
        return [x.without_axis(self.axis)] * x.shape[self.axis]

    @override
    def impl(self, *args: NDArray) -> Sequence[NDArray]:
        return [np.asarray(each) for each in np.moveaxis(args[0], self.axis, 0)]

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        return [match_aval(stack([instantiate(ct) for ct in cts], self.axis), args[0].aval)]

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        (dim,) = dims
        assert dim is not None
        outs = bind(Unstack(self.axis + (dim <= self.axis)), *args)
        return outs, [dim - (dim > self.axis)] * len(outs)

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        (x,) = operands
        shape = x.aval.shape
        found = []
        for i, out in enumerate(self.abstract_eval(x.aval)):
            low, high = [0] * len(shape), list(shape)
            low[self.axis], high[self.axis] = i, i + 1
            piece = out.with_axis(1, self.axis)
            cut = Slice(tuple(low), tuple(high), None).emit(builder, piece, x)
            found += builder.emit("stablehlo.reshape", [cut], [out])
        return found


def unstack(x: ArrayLike, axis: SupportsIndex = 0) -> tuple[Array, ...]:
    """Returns the elements of `x` along an axis, as a tuple of arrays without it: the inverse of `stack`.

    Args:
        x: Array.
        axis: The axis. 0 by default; negative ones count from the end.

    Returns:
        One array for each index along the axis.

    Raises:
        ValueError: There is no such axis.

    >>> [row.tolist() for row in unstack(np.array([[1, 2], [3, 4]]))]
    [[1, 2], [3, 4]]
    """
    value = as_value(x, "x")
    canonical_axis = canonicalize_axis("unstack", axis, value.aval.ndim)
    return tuple([as_array(each) for each in bind(Unstack(canonical_axis), value)])


# ------------------------------------------------------------------ index_take


def index_take(src: ArrayLike, idxs: Sequence[ArrayLike], axes: Sequence[SupportsIndex]) -> Array:
    """Returns the elements of `src` at vectors of indices along some axes; the other axes remain.

    Args:
        src: Array.
        idxs: For each of `axes`, a vector `i32[n]` of indices. They wrap around modulo the size of the axis.
        axes: The indexed axes.

    Returns:
        An array with a leading axis of size `n`, followed by the other axes of `src`.

    Raises:
        TypeError: An entry of `idxs` is not a vector of integers.
        ValueError: `idxs` and `axes` differ in length, or an axis is out of bounds.

    >>> index_take(np.arange(6).reshape(2, 3), (np.array([0, 1]), np.array([-1, 3])), (0, 1)).tolist()
    [2, 3]
    """
    x = as_value(src, "src")
    along = canonicalize_axes("index_take", axes, x.aval.ndim, "axes")
    if len(idxs) != len(along):
        raise ValueError(f"index_take: idxs must have one entry for each of the axes {along}, got {len(idxs)}")
    columns = []
    for each, axis in zip(operands(*idxs), along, strict=True):
        if each.aval.ndim != 1 or not dtypes.is_integer(each.aval.dtype):
            raise TypeError(f"index_take: idxs must be vectors of integers, got {each.aval}")
        left = rem(each, x.aval.shape[axis])
        columns.append(expand_dims(select(lt(left, 0), add(left, x.aval.shape[axis]), left), (1,)))
    sizes = [1 if i in along else n for i, n in enumerate(x.aval.shape)]
    offset = range(1, x.aval.ndim - len(along) + 1)
    numbers = GatherDimensionNumbers(offset, sorted(along), along)
    return gather(x, concatenate(columns, 1), numbers, sizes)
