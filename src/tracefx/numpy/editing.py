"""Arrays edited, each time into a new one: elements left out, put in, put in places, repeated to a size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike, Index
from tracefx.core.handler import as_array
from tracefx.core.values import to_numpy
from tracefx.errors import ConcretizationError
from tracefx.numpy.creation import arange, array, zeros
from tracefx.numpy.indexing import take
from tracefx.numpy.operand_promotion import as_operand, convert_dtype
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
    """`arr` without what `obj` says along an axis (flattened, if it is None): an index, a slice, indices or bools.

    Indices must be known when the program is traced, unless they are assumed to differ from each other. IndexError for
    one out of bounds.

    >>> delete(np.arange(5), np.array([1, 3])).tolist()
    [0, 2, 4]
    """
    x, along = _array_and_axis("delete", arr, axis)
    n = x.shape[along]
    if isinstance(obj, slice):
        return take(x, np.delete(np.arange(n), obj), along)
    gone = as_operand(obj, "delete: obj")
    dtype = gone.aval.dtype
    if dtypes.is_inexact(dtype):
        raise ValueError(f"delete: obj must be an index, indices, bools or a slice, got {gone.aval}")
    if dtypes.is_bool(dtype) and gone.aval.shape != (n,):
        raise ValueError(f"delete: obj must have one bool for each of {n} elements, got {gone.aval}")
    if dtypes.is_integer(dtype) and assume_unique_indices:
        return _delete_at(x, ravel(gone), along)
    try:
        numbers = to_numpy(gone)
    except ConcretizationError as error:
        raise ConcretizationError(
            f"delete: how much {gone.aval} leaves isn't known while the program is traced; pass "
            "assume_unique_indices=True if its indices differ from each other"
        ) from error
    return take(x, np.delete(np.arange(n), numbers), along)


def _delete_at(x: Array, gone: Array, axis: int) -> Array:
    """`x` without the elements at different indices: each of the others goes to the number of those before it."""
    n = x.shape[axis]
    places = where(gone < 0, gone + n, gone)
    kept = at(zeros(n, "int32") + 1)[places].set(0, mode="drop")
    target = where(kept != 0, cumsum(kept) - 1, n)
    sources = at(zeros(max(0, n - gone.size), "int32"))[target].set(arange(n), mode="drop")
    return take(x, sources, axis)


def insert(arr: ArrayLike, obj: DeleteIndices, values: ArrayLike, axis: int | None = None) -> Array:
    """`arr` with values put in before an index, several, or those of a slice, along an axis (flattened, if it is None).
    An index out of bounds is taken for the nearest end.

    ValueError for indices that are no integers or no vector, and for values that don't fit.

    >>> insert(np.arange(3), 1, 5).tolist()
    [0, 5, 1, 2]
    """
    x, along = _array_and_axis("insert", arr, axis)
    n = x.shape[along]
    given = as_operand(values, "insert: values")
    new = array(convert_dtype(given, x.dtype), ndmin=x.ndim)
    places = np.arange(*obj.indices(n)) if isinstance(obj, slice) else as_operand(obj, "insert: obj")
    aval = as_operand(places, "insert: obj").aval
    if aval.ndim > 1 or (not dtypes.is_integer(aval.dtype) and aval.size):
        raise ValueError(f"insert: obj must be an integer, a vector of integers or a slice, got {aval}")
    index = as_array(convert_dtype(as_operand(places, "insert: obj"), dtypes.default_int()))
    if not index.ndim:
        new = moveaxis(new, 0, along)
    if index.size == 1:
        index = broadcast_to(ravel(index), (new.shape[along],))
    count = index.size
    index = clip(where(index < 0, index + n, index), 0, n)
    # Each goes behind those with a lower index, and those with the same that come first.
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
    """The elements of `a` in another shape, repeated from the first as often as it takes; zeros if there are none.

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
    """`filt` without the zeros in front ("f" in `trim`) and behind ("b") that go through along an axis, along all of
    them by default. The numbers must be known when the program is traced.

    >>> trim_zeros(np.array([0, 1, 0, 2, 0])).tolist()
    [1, 0, 2]
    """
    value = as_operand(filt, "trim_zeros: filt")
    x, mode = as_array(value), trim.lower()
    along = range(x.ndim) if axis is None else normalize_axes("trim_zeros", axis, x.ndim)
    places = np.nonzero(to_numpy(value)) if x.ndim else ()
    for i in along:
        found = places[i]
        first = (int(found.min()) if found.size else 0) if "f" in mode else 0
        last = (int(found.max()) + 1 if found.size else 0) if "b" in mode else x.shape[i]
        x = shape.slice_axis(x, first if found.size or "b" in mode else x.shape[i], last, i)
    return x


def fill_diagonal(a: ArrayLike, val: ArrayLike, wrap: bool = False, *, inplace: bool = True) -> Array:
    """`a` with `val`, repeated as often as it takes, on the main diagonal. `inplace` must be False, since arrays never
    change. ValueError for a vector, and for more than two axes of different sizes.

    >>> fill_diagonal(np.zeros((2, 2)), 5, inplace=False).tolist()
    [[5.0, 0.0], [0.0, 5.0]]
    """
    if inplace:
        raise NotImplementedError("fill_diagonal: arrays never change; pass inplace=False and use what is returned")
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
    """`arr` with values at indices along an axis, one for each place beside it: what `take_along_axis` would take.
    `inplace` must be False, since arrays never change. ValueError where ranks or shapes don't fit.

    >>> put_along_axis(np.zeros((2, 2)), np.array([[1], [0]]), 5.0, 1, inplace=False).tolist()
    [[0.0, 5.0], [5.0, 0.0]]
    """
    if inplace:
        raise ValueError("put_along_axis: arrays never change; pass inplace=False and use what is returned")
    given = as_operand(arr, "put_along_axis: arr")
    x, along = _array_and_axis("put_along_axis", given, axis)
    index, value = as_operand(indices, "put_along_axis: indices"), as_operand(values, "put_along_axis: values")
    if index.aval.ndim != x.ndim:
        raise ValueError(f"put_along_axis: indices must have as many axes as arr, got {index.aval} for {x.aval}")
    if not dtypes.is_integer(index.aval.dtype):
        raise TypeError(f"put_along_axis: indices must be integers, got {index.aval}")
    new = broadcast_to(value, index.aval.shape)
    counted = [
        shape.broadcasted_iota("int32", [n if i == j else 1 for j in range(x.ndim)], i) for i, n in enumerate(x.shape)
    ]
    key = tuple([as_array(index) if i == along else counted[i] for i in range(x.ndim)])
    return structural.reshape(at(x)[key].set(new, mode=mode), given.aval.shape)
