"""Editing of arrays: deleting, inserting, trimming, resizing and setting elements, each returning a new array."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from tracefx.core import Array, ArrayLike, dtypes, to_numpy
from tracefx.core.array import Index
from tracefx.core.handler import as_array
from tracefx.dimensions.symbolic_dimensions import is_symbolic_dim, max_dim
from tracefx.errors import ConcretizationError
from tracefx.numpy.creation import array, zeros
from tracefx.numpy.indexing import take
from tracefx.numpy.operand_promotion import as_operand, convert_dtype
from tracefx.numpy.ranges import arange
from tracefx.numpy.reductions import cumsum, sum
from tracefx.numpy.repeating import tile
from tracefx.numpy.shapes import ShapeLike, broadcast_to, moveaxis, normalize_axes, ravel, sizes_of
from tracefx.numpy.ufuncs import clip, where
from tracefx.numpy.updates import at
from tracefx.ops import structural
from tracefx.ops.shape import shape
from tracefx.ops.static_integers import canonicalize_axis

DeleteIndices: TypeAlias = ArrayLike | slice


def delete(
    arr: ArrayLike, obj: DeleteIndices, axis: int | None = None, *, assume_unique_indices: bool = False
) -> Array:
    """Returns `arr` without some elements along an axis.

    Args:
        arr: The array.
        obj: What to delete: an index, a slice, an array of indices, or a mask.
        axis: The axis; None means the flattened array.
        assume_unique_indices: Promises that the indices differ, so that they may be traced.

    Returns:
        An array of the dtype of `arr`; a vector without `axis`.

    Raises:
        IndexError: If an index is out of bounds.
        ConcretizationError: If `obj` is traced without `assume_unique_indices`.

    >>> delete(np.arange(5), np.array([1, 3])).tolist()
    [0, 2, 4]
    """
    x, along = _array_and_axis("delete", arr, axis)
    n = x.shape[along]
    if isinstance(obj, slice):
        return take(x, np.delete(np.arange(n), obj), along)
    indices = as_operand(obj, "delete: obj")
    dtype = indices.aval.dtype
    if dtypes.is_inexact(dtype):
        raise ValueError(f"delete: obj must be an index, indices, bools or a slice, got {indices.aval}")
    if dtypes.is_bool(dtype) and indices.aval.shape != (n,):
        raise ValueError(f"delete: obj must have one bool for each of {n} elements, got {indices.aval}")
    if dtypes.is_integer(dtype) and (assume_unique_indices or (is_symbolic_dim(n) and indices.aval.size == 1)):
        return _delete_at(x, ravel(indices), along)
    try:
        concrete_indices = to_numpy(indices)
    except ConcretizationError as error:
        raise ConcretizationError(
            f"delete: the shape of the result depends on the values of {indices.aval}, which is traced; pass "
            "assume_unique_indices=True if its indices differ from each other"
        ) from error
    return take(x, np.delete(np.arange(n), concrete_indices), along)


def _delete_at(x: Array, indices: Array, axis: int) -> Array:
    """Returns `x` without the elements at distinct indices: the others close the gaps in order."""
    n = x.shape[axis]
    positions = where(indices < 0, indices + n, indices)
    kept = at(zeros(n, "int32") + 1)[positions].set(0, mode="drop")
    target = where(kept != 0, cumsum(kept) - 1, n)
    sources = at(zeros(max_dim(0, n - indices.size), "int32"))[target].set(arange(n), mode="drop")
    return take(x, sources, axis)


def insert(arr: ArrayLike, obj: DeleteIndices, values: ArrayLike, axis: int | None = None) -> Array:
    """Returns `arr` with values inserted along an axis.

    Args:
        arr: The array.
        obj: The index, indices or slice before which to insert. An index out of bounds is clamped.
        values: The values, broadcast to the inserted elements.
        axis: The axis; None means the flattened array.

    Returns:
        An array of the dtype of `arr`; a vector without `axis`.

    Raises:
        ValueError: If `obj` is not an integer, a vector of integers or a slice, or the values do not fit.

    >>> insert(np.arange(3), 1, 5).tolist()
    [0, 5, 1, 2]
    """
    x, along = _array_and_axis("insert", arr, axis)
    n = x.shape[along]
    operand = as_operand(values, "insert: values")
    new = array(convert_dtype(operand, x.dtype), ndmin=x.ndim)
    positions = np.arange(*obj.indices(n)) if isinstance(obj, slice) else as_operand(obj, "insert: obj")
    aval = as_operand(positions, "insert: obj").aval
    if aval.ndim > 1 or (not dtypes.is_integer(aval.dtype) and aval.size):
        raise ValueError(f"insert: obj must be an integer, a vector of integers or a slice, got {aval}")
    index = as_array(convert_dtype(as_operand(positions, "insert: obj"), dtypes.default_int()))
    if not index.ndim:
        new = moveaxis(new, 0, along)
    if index.size == 1:
        index = broadcast_to(ravel(index), (new.shape[along],))
    count = index.size
    index = clip(where(index < 0, index + n, index), 0, n)
    # A new element goes behind those with a smaller index, and behind earlier ones with the same index.
    order = arange(count)
    earlier = (index[None, :] < index[:, None]) | (
        (index[None, :] == index[:, None]) & (order[None, :] < order[:, None])
    )
    targets = index + sum(earlier, 1, "int32")
    before = cumsum(at(zeros(n + 1, "int32"))[index].add(1))[:n]
    sizes = [m + count if i == along else m for i, m in enumerate(x.shape)]
    new = broadcast_to(new, [count if i == along else m for i, m in enumerate(x.shape)])
    out = at(zeros(sizes, x.dtype))[_index_along(along, targets)].set(new)
    out = at(out)[_index_along(along, arange(n) + before)].set(x)
    return as_array(convert_dtype(out, x.dtype, x.weak_type))


def _index_along(axis: int, places: Array) -> Index:
    key: list[slice | Array] = [slice(None)] * axis
    return (*key, places)


def _array_and_axis(name: str, arr: ArrayLike, axis: int | None) -> tuple[Array, int]:
    value = as_operand(arr, f"{name}: arr")
    if axis is None:
        return ravel(value), 0
    return as_array(value), canonicalize_axis(name, axis, value.aval.ndim)


def resize(a: ArrayLike, new_shape: ShapeLike) -> Array:
    """Returns the elements of `a` in another shape, repeated cyclically as necessary; zeros if `a` is empty.

    Args:
        a: The array.
        new_shape: The shape, an integer or a sequence of integers.

    Returns:
        An array of this shape.

    >>> resize(np.arange(3), (2, 2)).tolist()
    [[0, 1], [2, 0]]
    """
    x = ravel(as_operand(a, "resize: a"))
    sizes = sizes_of("resize", new_shape, "new_shape")
    size = math.prod(sizes)
    if not x.size or not size:
        return zeros(sizes, x.dtype)
    return structural.reshape(shape.slice_axis(tile(x, -(-size // x.size)), 0, size, 0), sizes)


def trim_zeros(filt: ArrayLike, trim: str = "fb", axis: int | Sequence[int] | None = None) -> Array:
    """Returns `filt` without leading and trailing zeros. The elements must be concrete.

    Args:
        filt: The array.
        trim: `"f"` trims at the front, `"b"` at the back, `"fb"` at both ends.
        axis: The axis or axes along which to trim slices of zeros; None means all.

    Returns:
        An array of the dtype of `filt`.

    >>> trim_zeros(np.array([0, 1, 0, 2, 0])).tolist()
    [1, 0, 2]
    """
    value = as_operand(filt, "trim_zeros: filt")
    x, mode = as_array(value), trim.lower()
    along = range(x.ndim) if axis is None else normalize_axes("trim_zeros", axis, x.ndim)
    nonzero_indices = np.nonzero(to_numpy(value)) if x.ndim else ()
    for i in along:
        positions = nonzero_indices[i]
        first = (int(positions.min()) if positions.size else 0) if "f" in mode else 0
        last = (int(positions.max()) + 1 if positions.size else 0) if "b" in mode else x.shape[i]
        x = shape.slice_axis(x, first if positions.size or "b" in mode else x.shape[i], last, i)
    return x


def fill_diagonal(a: ArrayLike, val: ArrayLike, wrap: bool = False, *, inplace: bool = True) -> Array:
    """Returns `a` with `val` on the main diagonal.

    Args:
        a: An array with at least two axes; with more than two, all must have one size.
        val: A number, or an array that is repeated cyclically along the diagonal.
        wrap: Not implemented; must be False.
        inplace: Must be False, since arrays are immutable.

    Returns:
        An array of the shape and dtype of `a`.

    Raises:
        ValueError: If the shape of `a` does not fit.
        NotImplementedError: If `wrap` or `inplace` is True.

    >>> fill_diagonal(np.zeros((2, 2)), 5, inplace=False).tolist()
    [[5.0, 0.0], [0.0, 5.0]]
    """
    if inplace:
        raise NotImplementedError("fill_diagonal: arrays are immutable; pass inplace=False and use the result")
    if wrap:
        raise NotImplementedError("fill_diagonal: wrap=True is not implemented")
    x, value = as_array(as_operand(a, "fill_diagonal: a")), as_array(as_operand(val, "fill_diagonal: val"))
    if x.ndim < 2:
        raise ValueError(f"fill_diagonal: a must have at least two axes, got {x.aval}")
    if x.ndim > 2 and len(set(x.shape)) > 1:
        raise ValueError(f"fill_diagonal: the axes of a must all have one size, got {x.aval}")
    n = min(x.shape)
    if value.ndim:
        value = resize(value, n)
    return at(x)[(arange(n),) * x.ndim].set(value)


def put_along_axis(
    arr: ArrayLike,
    indices: ArrayLike,
    values: ArrayLike,
    axis: int | None,
    inplace: bool = True,
    *,
    mode: str | None = None,
) -> Array:
    """Returns `arr` with values set at indices along an axis: the inverse of `take_along_axis`.

    Args:
        arr: The array.
        indices: Integers, with as many axes as `arr`.
        values: The values, broadcast to the shape of `indices`.
        axis: The axis; None means the flattened array.
        inplace: Must be False, since arrays are immutable.
        mode: How to treat indices out of bounds, as for `at`; None means to drop them.

    Returns:
        An array of the shape and dtype of `arr`.

    Raises:
        ValueError: If `inplace` is True, or the numbers of axes differ.
        TypeError: If `indices` are not integers.

    >>> put_along_axis(np.zeros((2, 2)), np.array([[1], [0]]), 5.0, 1, inplace=False).tolist()
    [[0.0, 5.0], [5.0, 0.0]]
    """
    if inplace:
        raise ValueError("put_along_axis: arrays are immutable; pass inplace=False and use the result")
    operand = as_operand(arr, "put_along_axis: arr")
    x, along = _array_and_axis("put_along_axis", operand, axis)
    index, value = as_operand(indices, "put_along_axis: indices"), as_operand(values, "put_along_axis: values")
    if index.aval.ndim != x.ndim:
        raise ValueError(f"put_along_axis: indices must have as many axes as arr, got {index.aval} for {x.aval}")
    if not dtypes.is_integer(index.aval.dtype):
        raise TypeError(f"put_along_axis: indices must be integers, got {index.aval}")
    new = broadcast_to(value, index.aval.shape)
    positions = [
        shape.broadcasted_iota("int32", [n if i == j else 1 for j in range(x.ndim)], i) for i, n in enumerate(x.shape)
    ]
    key = tuple([as_array(index) if i == along else positions[i] for i in range(x.ndim)])
    return structural.reshape(at(x)[key].set(new, mode=mode), operand.aval.shape)
