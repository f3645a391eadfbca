"""Where something holds, and what stands there: `nonzero` and its like, selecting by masks, writing at places.

How many places there are depends on the numbers. Where these are known that decides the shape of the result. Where they
are traced `size` has to say it: places beyond it are left out, and what is missing is filled up.
"""

from __future__ import annotations

import math
from typing import SupportsIndex

import numpy as np

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import NDArray
from tracefx.core.handler import as_array
from tracefx.core.values import ConcreteArray, Value
from tracefx.errors import ConcretizationError
from tracefx.numpy.creation import zeros
from tracefx.numpy.evaluated import ALL, Kernel, by_numpy
from tracefx.numpy.indexing import getitem, take
from tracefx.numpy.logic import convert_to_bool
from tracefx.numpy.operand_promotion import as_operand, convert_dtype, promote_dtypes, reject_out
from tracefx.numpy.reductions import cumsum, sum
from tracefx.numpy.shapes import moveaxis
from tracefx.numpy.ufuncs import broadcast_select, clip, literal_like, remainder
from tracefx.numpy.updates import at
from tracefx.ops import structural
from tracefx.ops.elementwise import arithmetic, comparison, selection
from tracefx.ops.shape import array_creation, shape
from tracefx.ops.static_integers import ShapeError, canonicalize_axis, static_int


def concrete_values(name: str, x: Value, remedy: str = "give size=") -> NDArray:
    """The numbers on which the shape of a result depends."""
    value = as_array(x)
    try:
        return value.concrete_or_error(ConcretizationError)
    except ConcretizationError as error:
        plain = selection.stop_gradient(value)  # that numbers have a derivative is no obstacle
        if type(plain) is ConcreteArray:
            return plain.numpy()
        raise ConcretizationError(
            f"{name}: the shape of the result depends on the values of {value.aval}, which are not known when the "
            f"program is traced; {remedy}, an integer, to say how large the result is to be. In detail: {error}",
            error.detail,
        ) from error


def static_size(name: str, size: SupportsIndex) -> int:
    """An argument `size`."""
    n = static_int(name, size, "size")
    if n < 0:
        raise ShapeError(f"{name}: size must not be negative, got {n}")
    return n


def flat_nonzero_indices(name: str, mask: Value, size: SupportsIndex | None) -> tuple[Array, Array | None]:
    """The places of a flat mask where it holds, or 0 where there are no more; and how many there are, given `size`."""
    dtype = dtypes.default_int()
    if size is None:
        found = np.flatnonzero(concrete_values(name, mask))
        return ConcreteArray(ShapedArray(found.shape, dtype), found.astype(dtype)), None
    count, n = static_size(name, size), mask.aval.size
    if not n or not count:
        return zeros(count, dtype), sum(mask, dtype=dtype)
    numbers = cumsum(mask, dtype=dtype)  # from 1, of the places
    places = broadcast_select(mask, arithmetic.sub(numbers, literal_like(numbers, 1)), count)
    held = at(zeros(count, dtype))[places].set(array_creation.iota(dtype, n), mode="drop")
    return held, getitem(numbers, n - 1)


def fill_tail(x: Value, fill: ArrayLike, count: Array) -> Array:
    """The first `count` rows of `x`, and `fill` in the place of the others."""
    rows = array_creation.iota(count.aval.dtype, x.aval.shape[0])
    within = comparison.lt(rows, count)
    wide = structural.broadcast_in_dim(within, x.aval.shape, (0,))
    value, filler = promote_dtypes("fill_value", x, fill)
    return broadcast_select(wide, value, structural.broadcast_to(filler, x.aval.shape))


def _nonzero_kernel(a: ShapedArray, *, size: object = None, fill_value: object = None) -> Kernel | None:
    """`nonzero` of NumPy's arrays: as many places as `size` says."""
    if type(size) is not int or fill_value is not None or size < 0 or not a.ndim:
        return None
    dtype, single = dtypes.default_int(), a.ndim == 1

    def kernel(x: NDArray) -> NDArray | tuple[NDArray, ...]:
        outs = []
        for found in x.nonzero():
            out = np.zeros(size, dtype)
            n = min(size, found.size)
            out[:n] = found[:n]
            outs.append(out)
        return outs[0] if single else tuple(outs)

    return kernel


@by_numpy(_nonzero_kernel, among=ALL, replays=False)
def nonzero(
    a: ArrayLike,
    *,
    size: int | None = None,
    fill_value: ArrayLike | tuple[ArrayLike, ...] | None = None,
) -> tuple[Array, ...]:
    """For each axis of `a` the indices of the elements that are not 0, in order.

    Where `a` is traced `size` says how many indices there are to be: more are cut off, and missing ones are
    `fill_value`, one for all axes or one for each, 0 unless given. Raises ValueError for an array without axes,
    ConcretizationError for a traced one without `size`.

    >>> [i.tolist() for i in nonzero(np.array([[0, 3], [5, 0]]))]
    [[0, 1], [1, 0]]
    """
    return _nonzero("nonzero", a, size, fill_value)


def _nonzero(
    name: str, a: ArrayLike, size: SupportsIndex | None, fill_value: ArrayLike | tuple[ArrayLike, ...] | None
) -> tuple[Array, ...]:
    x = as_operand(a, f"{name}: a")
    sizes = x.aval.shape
    if not sizes:
        raise ValueError(f"{name}: a must have an axis, got {x.aval}; use atleast_1d")
    dtype = dtypes.default_int()
    if size is None and type(x) is ConcreteArray:
        found = [i.astype(dtype) for i in np.nonzero(x.numpy())]
        return tuple([ConcreteArray(ShapedArray(i.shape, dtype), i) for i in found])
    mask = convert_to_bool(x, f"{name}: a")
    flat, count = flat_nonzero_indices(name, structural.reshape(mask, (x.aval.size,)), size)
    if not x.aval.size:
        return (flat,) * len(sizes)
    outs = []
    for axis, n in enumerate(sizes):
        stride = math.prod(sizes[axis + 1 :])
        along = arithmetic.div(flat, literal_like(flat, stride)) if stride > 1 else flat
        outs.append(remainder(along, literal_like(flat, n)) if axis else along)
    if count is None or fill_value is None or not flat.aval.size:
        return tuple(outs)
    fills = fill_value if isinstance(fill_value, tuple) else (fill_value,) * len(sizes)
    if len(fills) != len(sizes) or any(as_operand(f, f"{name}: fill_value").aval.shape for f in fills):
        raise ValueError(f"{name}: fill_value must be a number, or one for each of {len(sizes)} axes: {fill_value!r}")
    return tuple([fill_tail(out, fill, count) for out, fill in zip(outs, fills, strict=True)])


def flatnonzero(
    a: ArrayLike,
    *,
    size: int | None = None,
    fill_value: ArrayLike | tuple[ArrayLike, ...] | None = None,
) -> Array:
    """The places of the flattened `a` where it is not 0; `size` and `fill_value` as for `nonzero`.

    >>> flatnonzero(np.array([[0, 3], [5, 0]]))
    Array([1, 2], dtype=int32)
    """
    x = as_operand(a, "flatnonzero: a")
    return _nonzero("flatnonzero", structural.reshape(x, (x.aval.size,)), size, fill_value)[0]


def argwhere(a: ArrayLike, *, size: int | None = None, fill_value: ArrayLike | None = None) -> Array:
    """The indices of the elements of `a` that are not 0, one row for each; `size` and `fill_value` as for `nonzero`.

    >>> argwhere(np.array([[0, 3], [5, 0]])).tolist()
    [[0, 1], [1, 0]]
    """
    x = as_operand(a, "argwhere: a")
    if not x.aval.shape:
        (row,) = _nonzero("argwhere", structural.reshape(x, (1,)), size, fill_value)
        return zeros((row.aval.size, 0), dtypes.default_int())
    return shape.stack(_nonzero("argwhere", x, size, fill_value), 1)


# ------------------------------------------------------------------ selecting


def extract(condition: ArrayLike, arr: ArrayLike, *, size: int | None = None, fill_value: ArrayLike = 0) -> Array:
    """The elements of the flattened `arr` where the flattened `condition` is true (differs from 0): as `compress`.

    >>> extract(np.array([True, False, True]), np.array([5, 6, 7]))
    Array([5, 7], dtype=int32)
    """
    x = as_operand(condition, "extract: condition")
    return _compress("extract", structural.reshape(x, (x.aval.size,)), arr, None, size, fill_value)


def compress(
    condition: ArrayLike,
    a: ArrayLike,
    axis: int | None = None,
    *,
    size: int | None = None,
    fill_value: ArrayLike = 0,
    out: None = None,
) -> Array:
    """The slices of `a` along `axis` where `condition`, a vector, is true (differs from 0); without `axis`, the
    elements of the flattened array. A condition that is shorter is false beyond its end.

    Where the condition is traced `size` says how many slices there are to be, at most as many as `a` has: more are cut
    off, and missing ones are `fill_value`. Raises ValueError for a condition that is no vector, or holds beyond the
    end of the axis.

    >>> compress(np.array([True, False, True]), np.array([[1, 2], [3, 4], [5, 6]]), axis=0).tolist()
    [[1, 2], [5, 6]]
    """
    reject_out("compress", out)
    return _compress("compress", condition, a, axis, size, fill_value)


def _compress(
    name: str, condition: ArrayLike, a: ArrayLike, axis: int | None, size: SupportsIndex | None, fill_value: ArrayLike
) -> Array:
    mask, x = convert_to_bool(condition, f"{name}: condition"), as_operand(a, f"{name}: a")
    filler = as_operand(fill_value, f"{name}: fill_value")
    if mask.aval.ndim != 1:
        raise ValueError(f"{name}: condition must be a vector, got {mask.aval}")
    along = 0 if axis is None else canonicalize_axis(name, axis, x.aval.ndim)
    rows = structural.reshape(x, (x.aval.size,)) if axis is None else moveaxis(x, along, 0)
    n = min(rows.aval.shape[0], mask.aval.size)
    if size is None:
        held = concrete_values(name, mask)
        if held[n:].any():
            raise ValueError(f"{name}: condition {mask.aval} holds beyond the {n} elements that there are")
        return moveaxis(getitem(rows, np.flatnonzero(held[:n])), 0, along)
    count = static_size(name, size)
    if count > n:
        raise ValueError(f"{name}: size {count} is more than the {n} elements that there are to choose from")
    places, held_places = flat_nonzero_indices(name, shape.slice_axis(mask, 0, n, 0), count)
    assert held_places is not None
    chosen = getitem(rows, places) if count else shape.slice_axis(rows, 0, 0, 0)
    return moveaxis(fill_tail(chosen, as_array(convert_dtype(filler, x.aval.dtype)), held_places), 0, along)


# ------------------------------------------------------------------ writing


def _reject_inplace(name: str, inplace: bool) -> None:
    if inplace:
        raise ValueError(f"{name}: arrays never change; {name}(..., inplace=False) gives a new array")


def _repeat_to_length(values: Array, n: int) -> Array:
    """`values` again and again, until there are `n`."""
    count = values.aval.size
    return getitem(values, np.arange(n) % count) if count != n else values


def place(arr: ArrayLike, mask: ArrayLike, vals: ArrayLike, *, inplace: bool = True) -> Array:
    """`arr` with the elements where `mask` is true replaced by those of `vals`, in order and over again.

    Raises ValueError unless `inplace=False`, for a mask of another size, and for no values.

    >>> place(np.arange(4), np.array([True, False, True, True]), np.array([7, 8]), inplace=False)
    Array([7, 1, 8, 7], dtype=int32)
    """
    x, held, values = [as_operand(v, f"place: {w}") for v, w in ((arr, "arr"), (mask, "mask"), (vals, "vals"))]
    _reject_inplace("place", inplace)
    n = x.aval.size
    if held.aval.size != n:
        raise ValueError(f"place: arr {x.aval} and mask {held.aval} must have the same size")
    if not values.aval.size:
        raise ValueError("place: vals must not be empty")
    if not n:
        return as_array(x)
    truths = structural.reshape(convert_to_bool(held, "place: mask"), (n,))
    numbers = cumsum(truths, dtype=dtypes.int32)
    turn = remainder(arithmetic.sub(numbers, literal_like(numbers, 1)), values.aval.size)
    flat = convert_dtype(structural.reshape(values, (values.aval.size,)), x.aval.dtype, x.aval.weak_type)
    chosen = take(flat, turn, mode="clip")
    return structural.reshape(broadcast_select(truths, chosen, structural.reshape(x, (n,))), x.aval.shape)


def put(a: ArrayLike, ind: ArrayLike, v: ArrayLike, mode: str | None = None, *, inplace: bool = True) -> Array:
    """`a` with the elements at the places `ind` of the flattened array replaced by those of `v`, in order and over
    again.

    A place out of bounds is left out; with `mode="clip"` it is the nearest end, with "wrap" it counts on from the other
    end. Raises ValueError unless `inplace=False`.

    >>> put(np.arange(4), np.array([0, -1]), 9, inplace=False)
    Array([9, 1, 2, 9], dtype=int32)
    """
    _reject_inplace("put", inplace)
    x, places, values = [as_array(as_operand(y, f"put: {w}")) for y, w in ((a, "a"), (ind, "ind"), (v, "v"))]
    places, values = [structural.reshape(y, (y.aval.size,)) for y in (places, values)]
    n = x.aval.size
    if mode not in (None, "clip", "wrap"):
        error = NotImplementedError if mode == "raise" else ValueError
        raise error(f"put: mode must be 'clip', 'wrap' or None, got {mode!r}")
    if not n or not places.aval.size or not values.aval.size:
        return x
    if mode == "clip":
        places = clip(places, 0, n - 1)
    elif mode == "wrap":
        places = remainder(places, n)
    flat = structural.reshape(x, (n,))
    return structural.reshape(
        at(flat)[places].set(_repeat_to_length(values, places.aval.size), mode="drop"), x.aval.shape
    )
