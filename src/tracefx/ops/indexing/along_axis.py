"""Parts of arrays along single axes: slices, elements, all elements apart, elements at index vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsIndex, final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import NDArray
from tracefx.core.handler import as_array, bind
from tracefx.core.primitive import (
    Batchable,
    Differentiable,
    MappedAxis,
    Primitive,
    Tangent,
    Transposable,
    UndefinedPrimal,
    Zero,
)
from tracefx.core.values import Value, as_value
from tracefx.lowering import Builder, IrValue, Lowerable
from tracefx.ops.elementwise.arithmetic import rem
from tracefx.ops.elementwise.comparison import lt
from tracefx.ops.elementwise.elementwise import add, operands
from tracefx.ops.elementwise.selection import select
from tracefx.ops.indexing.gather_scatter_add import GatherDimensionNumbers, gather
from tracefx.ops.operation import arity_error
from tracefx.ops.shape.shape import concatenate, expand_dims, squeeze, stack
from tracefx.ops.shape.slicing import Slice, slice
from tracefx.ops.static_integers import canonicalize_axes, canonicalize_axis, static_int
from tracefx.ops.structural import instantiate, match_aval


def slice_in_dim(
    operand: ArrayLike,
    start_index: SupportsIndex | None,
    limit_index: SupportsIndex | None,
    stride: SupportsIndex = 1,
    axis: SupportsIndex = 0,
) -> Array:
    """`slice` along one axis: the elements from `start_index` to before `limit_index`, `stride` apart.

    A negative index counts from the axis's end, None stands for either end. Raises IndexError for an axis that there
    isn't, TypeError or ValueError for what `slice` refuses.

    >>> slice_in_dim(np.arange(6), 1, -1, 2).tolist()
    [1, 3]
    """
    name = "slice_in_dim"
    x = as_value(operand, "operand")
    place = canonicalize_axis(name, axis, x.aval.ndim)
    shape = x.aval.shape
    n = shape[place]
    start = 0 if start_index is None else static_int(name, start_index, "start_index")
    limit = n if limit_index is None else static_int(name, limit_index, "limit_index")
    starts, limits, strides = [0] * len(shape), list(shape), [1] * len(shape)
    starts[place] = start + n if start < 0 else start
    limits[place] = limit + n if limit < 0 else limit
    strides[place] = static_int(name, stride, "stride")
    return slice(x, starts, limits, strides)


def index_in_dim(operand: ArrayLike, index: SupportsIndex, axis: SupportsIndex = 0, keepdims: bool = True) -> Array:
    """The element at `index` along one axis, which stays as an axis of size 1 if `keepdims`.

    A negative index counts from the axis's end. Raises IndexError if it is out of bounds, or the axis is.

    >>> index_in_dim(np.arange(6).reshape(3, 2), -1, keepdims=False).tolist()
    [4, 5]
    """
    x = as_value(operand, "operand")
    place = canonicalize_axis("index_in_dim", axis, x.aval.ndim)
    n = x.aval.shape[place]
    at = static_int("index_in_dim", index, "index")
    if not -n <= at < n:
        raise IndexError(f"index_in_dim: index {at} is out of bounds for axis {place} of {x.aval}")
    found = slice_in_dim(x, at % n, at % n + 1, 1, place)
    return found if keepdims else squeeze(found, (place,))


# ------------------------------------------------------------------ unstack


@final
@frozen(eq=False)
class Unstack(Primitive, Differentiable, Transposable, Batchable, Lowerable):
    """The elements along an axis, each of them an output."""

    name = "unstack"
    axis: int

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        if len(avals) != 1:
            raise arity_error(self.name, 1, len(avals))
        (x,) = avals
        if not 0 <= self.axis < x.ndim:
            raise ValueError(f"unstack: axis {self.axis} is out of bounds for {x}")
        return [x.without_axis(self.axis)] * x.shape[self.axis]

    @override
    def impl(self, *args: NDArray) -> Sequence[NDArray]:
        return [np.asarray(each) for each in np.moveaxis(args[0], self.axis, 0)]

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        (t,) = tangents
        assert not isinstance(t, Zero)
        return bind(self, *primals), bind(self, t)

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        return [match_aval(stack([instantiate(ct) for ct in cts], self.axis), args[0].aval)]

    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
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
    """The elements of `x` along `axis`, which they don't have: what `stack` was given.

    Raises ValueError if there is no such axis.

    >>> [row.tolist() for row in unstack(np.array([[1, 2], [3, 4]]))]
    [[1, 2], [3, 4]]
    """
    value = as_value(x, "x")
    place = canonicalize_axis("unstack", axis, value.aval.ndim)
    return tuple([as_array(each) for each in bind(Unstack(place), value)])


# ------------------------------------------------------------------ several indices at once


def index_take(src: ArrayLike, idxs: Sequence[ArrayLike], axes: Sequence[SupportsIndex]) -> Array:
    """The elements of `src` at index vectors: for each of `axes` its entry of `idxs`, `i32[n]`; the other axes stay.

    Indices count on from the other end, as `%` does.

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
