"""Sample statistics: the mode, ranks, and the standard error of the mean."""

from __future__ import annotations

import math
from typing import NamedTuple, SupportsIndex

import tracefx.numpy as fnp
from tracefx import lax
from tracefx.core import Array, ArrayLike, dtypes
from tracefx.numpy.operand_promotion import as_operand, to_inexact
from tracefx.ops.static_integers import canonicalize_axis
from tracefx.transforms.vmap import vmap


class ModeResult(NamedTuple):
    """The result of `mode`: the most frequent values, and how often they occur."""

    mode: Array
    count: Array  # type: ignore[assignment]  # SciPy's name for it hides the method of tuples


def mode(
    a: ArrayLike, axis: SupportsIndex | None = 0, nan_policy: str = "propagate", keepdims: bool = False
) -> ModeResult:
    """Finds the most frequent value along an axis; of several, the least. All NaNs count as one value.

    Args:
        a: an array.
        axis: the axis to reduce over; None means all axes.
        nan_policy: must be `"propagate"`.
        keepdims: whether the reduced axis stays, with size 1.

    Returns:
        The values and their counts; of empty axes NaN and 0.

    Raises:
        NotImplementedError: if `nan_policy` is `"omit"` or `"raise"`.
        ValueError: if `nan_policy` is unknown.

    >>> mode(fnp.array([1, 3, 3, 2])).mode.item()
    3
    """
    _require_policy("mode", nan_policy)
    value = fnp.atleast_1d(fnp.asarray(as_operand(a, "mode: a")))
    rows, shape = _flatten_to_rows("mode", value, axis, keepdims)
    if rows.shape[-1] == 0:
        empty = fnp.zeros(shape, dtypes.default_float())
        return ModeResult(fnp.full_like(empty, math.nan), empty)
    ordered = fnp.sort(rows, axis=-1)
    indices = fnp.arange(rows.shape[-1])
    # A run ends where the next value differs; its length is the distance from the end before it.
    starts = fnp.where(_run_starts(ordered), indices, 0)
    lengths = indices - lax.cummax(starts, axis=starts.ndim - 1) + 1
    longest = fnp.argmax(lengths, -1, keepdims=True)
    values = fnp.take_along_axis(ordered, longest, -1)
    return ModeResult(values.reshape(shape), fnp.max(lengths, -1).reshape(shape))


def _run_starts(ordered: Array) -> Array:
    """Returns where a run of equal values begins in sorted rows."""
    before, after = ordered[..., :-1], ordered[..., 1:]
    differs = before != after
    if dtypes.is_inexact(ordered.dtype):
        differs = differs & ~((before != before) & (after != after))
    first = fnp.ones((*ordered.shape[:-1], 1), dtypes.bool_)
    return fnp.concatenate([first, differs], -1)


def _flatten_to_rows(name: str, x: Array, axis: SupportsIndex | None, keepdims: bool) -> tuple[Array, tuple[int, ...]]:
    """Moves an axis last and flattens the others; also returns the shape of the results."""
    if axis is None:
        return x.reshape((1, x.size)), (1,) * x.ndim if keepdims else ()
    canonical_axis = canonicalize_axis(name, axis, x.ndim)
    result_shape = tuple(
        [1 if i == canonical_axis else n for i, n in enumerate(x.shape) if keepdims or i != canonical_axis]
    )
    moved = fnp.moveaxis(x, canonical_axis, -1)
    return moved.reshape((math.prod(moved.shape[:-1]), moved.shape[-1])), result_shape


def _require_policy(name: str, policy: str) -> None:
    """Raises unless `nan_policy` is `"propagate"`."""
    if policy not in ("propagate", "omit", "raise"):
        raise ValueError(f"{name}: nan_policy must be 'propagate', 'omit' or 'raise', got {policy!r}")
    if policy != "propagate":
        raise NotImplementedError(f"{name}: nan_policy={policy!r} is not supported; handle NaNs before the call")


def rankdata(
    a: ArrayLike, method: str = "average", *, axis: SupportsIndex | None = None, nan_policy: str = "propagate"
) -> Array:
    """Computes the ranks of the elements along an axis, from 1 on.

    Args:
        a: an array.
        method: the rank of equal elements: the `"average"`, the `"min"` or the `"max"` of their positions in sorted
            order; `"ordinal"`, distinct ranks in the given order; or `"dense"`, as `"min"` but without gaps after them.
        axis: the axis of the elements; None ranks all elements, and returns them flattened.
        nan_policy: must be `"propagate"`.

    Returns:
        The ranks, as floats; NaN along axes that contain a NaN.

    Raises:
        NotImplementedError: if `nan_policy` is `"omit"` or `"raise"`.
        ValueError: if `method` or `nan_policy` is unknown.

    >>> rankdata(fnp.array([10, 30, 20, 30])).tolist()
    [1.0, 3.5, 2.0, 3.5]
    """
    _require_policy("rankdata", nan_policy)
    if method not in ("average", "min", "max", "dense", "ordinal"):
        raise ValueError(f"rankdata: method must be 'average', 'min', 'max', 'dense' or 'ordinal', got {method!r}")
    value = fnp.asarray(as_operand(a, "rankdata: a"))
    if axis is None:
        return _ranks(value.reshape((1, value.size)), method)[0]
    canonical_axis = canonicalize_axis("rankdata", axis, value.ndim)
    moved = fnp.moveaxis(value, canonical_axis, -1)
    rows = moved.reshape((math.prod(moved.shape[:-1]), moved.shape[-1]))
    return fnp.moveaxis(_ranks(rows, method).reshape(moved.shape), -1, canonical_axis)


def _ranks(rows: Array, method: str) -> Array:
    """Returns the ranks along the last axis of a matrix."""
    n = rows.shape[-1]
    if n == 0:
        return fnp.zeros(rows.shape, dtypes.default_float())
    order = fnp.argsort(rows, axis=-1, stable=True)
    indices = fnp.broadcast_to(fnp.arange(n), rows.shape)
    ordered = fnp.take_along_axis(rows, order, -1)
    starts = _run_starts(ordered)
    last = starts.ndim - 1
    first_index = lax.cummax(fnp.where(starts, indices, 0), axis=last)
    ends = fnp.concatenate([starts[..., 1:], fnp.ones((*starts.shape[:-1], 1), dtypes.bool_)], -1)
    last_index = lax.cummin(fnp.where(ends, indices, n), axis=last, reverse=True)
    ranks = {
        "ordinal": indices + 1,
        "dense": fnp.cumsum(starts.astype(indices.dtype), axis=-1),
        "min": first_index + 1,
        "max": last_index + 1,
        "average": 0.5 * (first_index + last_index) + 1,
    }[method].astype(dtypes.default_float())
    unsorted = vmap(lambda r, o: fnp.zeros_like(r).at[o].set(r))(ranks, order)
    if not dtypes.is_inexact(rows.dtype):
        return unsorted
    return fnp.where(fnp.any(rows != rows, -1, keepdims=True), math.nan, unsorted)


def sem(
    a: ArrayLike,
    axis: SupportsIndex | None = 0,
    ddof: int = 1,
    nan_policy: str = "propagate",
    *,
    keepdims: bool = False,
) -> Array:
    """Computes the standard error of the mean along an axis.

    Args:
        a: an array.
        axis: the axis to reduce over; None means all axes.
        ddof: the degrees of freedom subtracted from the number of elements in the divisor of the variance.
        nan_policy: `"propagate"`, or `"omit"` to leave NaNs out.
        keepdims: whether the reduced axis stays, with size 1.

    Returns:
        The standard deviation divided by the square root of the number of elements.

    Raises:
        ValueError: if `nan_policy` is another one.

    >>> round(float(sem(fnp.array([1.0, 2.0, 4.0]))), 4)
    0.8819
    """
    value = fnp.asarray(to_inexact(a, "sem: a"))
    canonical_axis = axis if axis is None else canonicalize_axis("sem", axis, value.ndim)
    if nan_policy == "propagate":
        size = value.size if canonical_axis is None else value.shape[canonical_axis]
        return fnp.std(value, canonical_axis, ddof=ddof, keepdims=keepdims) / math.sqrt(size)
    if nan_policy != "omit":
        raise ValueError(f"sem: nan_policy must be 'propagate' or 'omit', got {nan_policy!r}")
    is_present = value == value
    count = fnp.sum(is_present, canonical_axis, keepdims=keepdims).astype(dtypes.real_dtype(value.dtype))
    center = fnp.sum(fnp.where(is_present, value, 0), canonical_axis, keepdims=True) / fnp.sum(
        is_present, canonical_axis, keepdims=True
    )
    square = fnp.square(fnp.abs(fnp.where(is_present, value - center, 0)))
    variance = fnp.sum(square, canonical_axis, keepdims=keepdims) / (count - ddof)
    return fnp.sqrt(variance) / fnp.sqrt(count)
