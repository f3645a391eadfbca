"""Selection by masks: `nonzero` and its relatives, `compress`, `extract`, and writing with `place` and `put`.

The number of selected elements depends on values. Concrete values determine the shape of the result; for traced ones
`size` must be given: further elements are dropped, and missing ones are filled.
"""

from __future__ import annotations

import math
from typing import SupportsIndex

import numpy as np

from tracefx.core import Array, ArrayLike, ConcreteArray, NDArray, ShapedArray, Value, dtypes
from tracefx.core.handler import as_array
from tracefx.errors import ConcretizationError
from tracefx.numpy.creation import zeros
from tracefx.numpy.indexing import getitem, take
from tracefx.numpy.kernels import KERNELS
from tracefx.numpy.logic import convert_to_bool
from tracefx.numpy.operand_promotion import as_operand, convert_dtype, promote_dtypes, reject_out
from tracefx.numpy.reductions import cumsum, sum
from tracefx.numpy.shapes import moveaxis
from tracefx.numpy.ufuncs import broadcast_select, clip, literal_like, remainder
from tracefx.numpy.updates import at
from tracefx.ops import structural
from tracefx.ops.elementwise import arithmetic, comparison, selection
from tracefx.ops.indexing import dynamic_slicing
from tracefx.ops.shape import array_creation, shape
from tracefx.ops.static_integers import canonicalize_axis, static_count
from tracefx.transforms.eager_calls import eager_cached


def concrete_values(name: str, x: Value, remedy: str = "pass size=") -> NDArray:
    """Returns the concrete values that a result's shape depends on; raises ConcretizationError if they are traced."""
    value = as_array(x)
    try:
        return value.concrete_or_error(ConcretizationError)
    except ConcretizationError as error:
        plain = selection.stop_gradient(value)  # a tracer of `grad` alone has concrete values
        if type(plain) is ConcreteArray:
            return plain.numpy()
        raise ConcretizationError(
            f"{name}: the shape of the result depends on the elements of its operand, but {error.detail} To fix the "
            f"shape, {remedy}, the number of elements of the result",
            error.detail,
        ) from error


def static_size(name: str, size: SupportsIndex) -> int:
    """Returns the argument `size` as a nonnegative static integer."""
    n = static_count(name, size, "size")
    return n


def flat_nonzero_indices(name: str, mask: Value, size: SupportsIndex | None) -> tuple[Array, Array | None]:
    """Returns the indices at which a flat mask is true, padded with 0, and, if `size` is given, how many there are."""
    dtype = dtypes.default_int()
    if size is None:
        true_indices = np.flatnonzero(concrete_values(name, mask))
        return ConcreteArray(ShapedArray(true_indices.shape, dtype), true_indices.astype(dtype)), None
    count, n = static_size(name, size), mask.aval.size
    if not n or not count:
        return zeros(count, dtype), sum(mask, dtype=dtype)
    numbers = cumsum(mask, dtype=dtype)  # 1 for the first true element, and so on
    targets = broadcast_select(mask, arithmetic.sub(numbers, literal_like(numbers, 1)), count)
    indices = at(zeros(count, dtype))[targets].set(array_creation.iota(dtype, n), mode="drop")
    return indices, getitem(numbers, n - 1)


def fill_tail(x: Value, fill: ArrayLike, count: Array) -> Array:
    """Returns `x` with the rows after the first `count` replaced by `fill`."""
    rows = array_creation.iota(count.aval.dtype, x.aval.shape[0])
    within = comparison.lt(rows, count)
    wide = structural.broadcast_in_dim(within, x.aval.shape, (0,))
    value, filler = promote_dtypes("fill_value", x, fill)
    return broadcast_select(wide, value, structural.broadcast_to(filler, x.aval.shape))


@eager_cached(kernel=KERNELS["nonzero"])
def nonzero(
    a: ArrayLike,
    *,
    size: int | None = None,
    fill_value: ArrayLike | tuple[ArrayLike, ...] | None = None,
) -> tuple[Array, ...]:
    """Returns the indices of the elements that are not 0, in order, as one vector per axis.

    Args:
        a: An array with at least one axis.
        size: The static length of the vectors, which is required if `a` is traced: further indices are dropped, missing
            ones filled. None means all.
        fill_value: The index for missing elements, one for all axes or a tuple; None means 0.

    Returns:
        A tuple of integer vectors.

    Raises:
        ValueError: If `a` has no axes.
        ConcretizationError: If `a` is traced without `size`.

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
    if size is None and type(x) is ConcreteArray and not dtypes.is_key(x.aval.dtype):
        axis_indices = [i.astype(dtype) for i in np.nonzero(x.numpy())]
        return tuple([ConcreteArray(ShapedArray(i.shape, dtype), i) for i in axis_indices])
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
    """Returns the indices of the nonzero elements of the flattened `a`.

    Args:
        a: The array.
        size: The static number of indices, which is required if `a` is traced: further ones are dropped, missing ones
            filled. None means all.
        fill_value: The index for missing elements; None means 0.

    Returns:
        A vector of integers.

    Raises:
        ConcretizationError: If `a` is traced without `size`.

    >>> flatnonzero(np.array([[0, 3], [5, 0]]))
    Array([1, 2], dtype=int32)
    """
    x = as_operand(a, "flatnonzero: a")
    return _nonzero("flatnonzero", structural.reshape(x, (x.aval.size,)), size, fill_value)[0]


def argwhere(a: ArrayLike, *, size: int | None = None, fill_value: ArrayLike | None = None) -> Array:
    """Returns the indices of the nonzero elements, one row per element.

    Args:
        a: The array.
        size: The static number of indices, which is required if `a` is traced: further ones are dropped, missing ones
            filled. None means all.
        fill_value: The index for missing elements; None means 0.

    Returns:
        A matrix of integers, `i32[elements, axes]`.

    Raises:
        ConcretizationError: If `a` is traced without `size`.

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
    """Returns the elements of the flattened `arr` where the flattened `condition` is true (differs from 0).

    Args:
        condition: The condition, of the size of `arr` at most.
        arr: The array.
        size: The static number of elements, which is required if `condition` is traced: further ones are dropped,
            missing ones filled. None means all.
        fill_value: The missing elements.

    Returns:
        A vector of the dtype of `arr`.

    Raises:
        ValueError: If `condition` is true beyond the end of `arr`.
        ConcretizationError: If `condition` is traced without `size`.

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
    """Returns the slices of an array along an axis where a condition is true (differs from 0).

    Args:
        condition: A vector; beyond its end it is false.
        a: The array.
        axis: The axis; None means the flattened array.
        size: The static number of slices, at most those of `a`, which is required if `condition` is traced: further
            slices are dropped, missing ones filled. None means all.
        fill_value: The element of missing slices.
        out: Not supported; must be None.

    Returns:
        An array of the dtype of `a`; a vector without `axis`.

    Raises:
        ValueError: If `condition` is not a vector, or is true beyond the end of the axis.
        ConcretizationError: If `condition` is traced without `size`.

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
        concrete_mask = concrete_values(name, mask)
        if concrete_mask[n:].any():
            raise ValueError(f"{name}: condition {mask.aval} is true beyond the axis, which has {n} elements")
        return moveaxis(getitem(rows, np.flatnonzero(concrete_mask[:n])), 0, along)
    count = static_size(name, size)
    if count > n:
        raise ValueError(f"{name}: size {count} exceeds the {n} elements of the axis")
    indices, true_count = flat_nonzero_indices(name, shape.slice_axis(mask, 0, n, 0), count)
    assert true_count is not None
    chosen = getitem(rows, indices) if count else shape.slice_axis(rows, 0, 0, 0)
    return moveaxis(fill_tail(chosen, as_array(convert_dtype(filler, x.aval.dtype)), true_count), 0, along)


# ------------------------------------------------------------------ writing


def _reject_inplace(name: str, inplace: bool) -> None:
    if inplace:
        raise ValueError(f"{name}: arrays are immutable; {name}(..., inplace=False) returns a new array")


def _repeat_to_length(values: Array, n: int) -> Array:
    """Repeats `values` cyclically to length `n`."""
    count = values.aval.size
    return getitem(values, np.arange(n) % count) if count != n else values


def place(arr: ArrayLike, mask: ArrayLike, vals: ArrayLike, *, inplace: bool = True) -> Array:
    """Returns `arr` with the elements where `mask` is true replaced by those of `vals`.

    Args:
        arr: The array.
        mask: A mask of the size of `arr`.
        vals: The new elements, used in order and repeated cyclically.
        inplace: Must be False, since arrays are immutable.

    Returns:
        An array of the shape and dtype of `arr`.

    Raises:
        ValueError: If `inplace` is True, the size of the mask does not fit, or there are no values.

    >>> place(np.arange(4), np.array([True, False, True, True]), np.array([7, 8]), inplace=False)
    Array([7, 1, 8, 7], dtype=int32)
    """
    x, mask_, values = [as_operand(v, f"place: {w}") for v, w in ((arr, "arr"), (mask, "mask"), (vals, "vals"))]
    _reject_inplace("place", inplace)
    n = x.aval.size
    if mask_.aval.size != n:
        raise ValueError(f"place: arr {x.aval} and mask {mask_.aval} must have the same size")
    if not values.aval.size:
        raise ValueError("place: vals must not be empty")
    if not n:
        return as_array(x)
    truths = structural.reshape(convert_to_bool(mask_, "place: mask"), (n,))
    numbers = cumsum(truths, dtype=dtypes.int32)
    value_index = remainder(arithmetic.sub(numbers, literal_like(numbers, 1)), values.aval.size)
    flat = convert_dtype(structural.reshape(values, (values.aval.size,)), x.aval.dtype, x.aval.weak_type)
    chosen = take(flat, value_index, mode="clip")
    return structural.reshape(broadcast_select(truths, chosen, structural.reshape(x, (n,))), x.aval.shape)


def put(a: ArrayLike, ind: ArrayLike, v: ArrayLike, mode: str | None = None, *, inplace: bool = True) -> Array:
    """Returns `a` with elements at flat indices replaced.

    Args:
        a: The array.
        ind: Indices into the flattened array; negative ones count from the end.
        v: The new elements, used in order and repeated cyclically.
        mode: How to treat indices out of bounds: None and `"clip"` use the nearest element, `"wrap"` the index modulo
            the size. With `"clip"`, negative indices mean the first element.
        inplace: Must be False, since arrays are immutable.

    Returns:
        An array of the shape and dtype of `a`.

    Raises:
        ValueError: If `inplace` is True or the mode is unknown.

    >>> put(np.arange(4), np.array([0, -1]), 9, inplace=False)
    Array([9, 1, 2, 9], dtype=int32)
    """
    _reject_inplace("put", inplace)
    x, indices, values = [as_array(as_operand(y, f"put: {w}")) for y, w in ((a, "a"), (ind, "ind"), (v, "v"))]
    indices, values = [structural.reshape(y, (y.aval.size,)) for y in (indices, values)]
    n = x.aval.size
    if mode not in (None, "clip", "wrap"):
        error = NotImplementedError if mode == "raise" else ValueError
        raise error(f"put: mode must be 'clip', 'wrap' or None, got {mode!r}")
    if not n or not indices.aval.size or not values.aval.size:
        return x
    indices = as_array(dynamic_slicing.widen_indices(indices))
    if mode == "wrap":
        indices = remainder(indices, n)
    elif mode == "clip":
        indices = clip(indices, 0, n - 1)
    else:
        indices = clip(broadcast_select(indices < 0, indices + n, indices), 0, n - 1)
    flat = structural.reshape(x, (n,))
    return structural.reshape(
        at(flat)[indices].set(_repeat_to_length(values, indices.aval.size), mode="promise_in_bounds"), x.aval.shape
    )
