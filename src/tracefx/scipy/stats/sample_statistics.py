"""Statistics of samples: the most frequent value, ranks, the standard error of the mean."""

from __future__ import annotations

import math
from typing import NamedTuple, SupportsIndex

import tracefx.numpy as fnp
from tracefx import lax
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.numpy.operand_promotion import as_operand, to_inexact
from tracefx.ops.static_integers import canonicalize_axis
from tracefx.transforms.vmap import vmap


class ModeResult(NamedTuple):
    """The most frequent values, and how often they occur."""

    mode: Array
    count: Array  # type: ignore[assignment]  # SciPy's name for it hides the method of tuples


def mode(
    a: ArrayLike, axis: SupportsIndex | None = 0, nan_policy: str = "propagate", keepdims: bool = False
) -> ModeResult:
    """The most frequent value along `axis`, over all elements if it is None, and how often it occurs.

    The least of several. NaNs are one value. ValueError and NotImplementedError for another `nan_policy`.

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
    places = fnp.arange(rows.shape[-1])
    # A run ends where the next value differs; its length is the distance from the end before it.
    starts = fnp.where(_run_starts(ordered), places, 0)
    lengths = places - lax.cummax(starts, axis=starts.ndim - 1) + 1
    longest = fnp.argmax(lengths, -1, keepdims=True)
    found = fnp.take_along_axis(ordered, longest, -1)
    return ModeResult(found.reshape(shape), fnp.max(lengths, -1).reshape(shape))


def _run_starts(ordered: Array) -> Array:
    """Where a value differs from the one before."""
    before, after = ordered[..., :-1], ordered[..., 1:]
    differs = before != after
    if dtypes.is_inexact(ordered.dtype):
        differs = differs & ~((before != before) & (after != after))
    first = fnp.ones((*ordered.shape[:-1], 1), dtypes.bool_)
    return fnp.concatenate([first, differs], -1)


def _flatten_to_rows(name: str, x: Array, axis: SupportsIndex | None, keepdims: bool) -> tuple[Array, tuple[int, ...]]:
    """The elements along an axis as the last one of a matrix, and the shape of results."""
    if axis is None:
        return x.reshape((1, x.size)), (1,) * x.ndim if keepdims else ()
    place = canonicalize_axis(name, axis, x.ndim)
    kept = tuple([1 if i == place else n for i, n in enumerate(x.shape) if keepdims or i != place])
    moved = fnp.moveaxis(x, place, -1)
    return moved.reshape((math.prod(moved.shape[:-1]), moved.shape[-1])), kept


def _require_policy(name: str, policy: str) -> None:
    if policy not in ("propagate", "omit", "raise"):
        raise ValueError(f"{name}: nan_policy must be 'propagate', 'omit' or 'raise', got {policy!r}")
    if policy != "propagate":
        raise NotImplementedError(f"{name}: nan_policy={policy!r} is not supported; look for NaNs before")


def rankdata(
    a: ArrayLike, method: str = "average", *, axis: SupportsIndex | None = None, nan_policy: str = "propagate"
) -> Array:
    """The ranks of the elements along `axis`, over all of them by default, from 1 on; NaN where one is NaN.

    Equal ones have the `"average"`, the `"min"` or the `"max"` of their ranks; are ranked in the order they are in,
    for `"ordinal"`; or have one and the next ones the rank after it, for `"dense"`. ValueError for another method.

    >>> rankdata(fnp.array([10, 30, 20, 30])).tolist()
    [1.0, 3.5, 2.0, 3.5]
    """
    _require_policy("rankdata", nan_policy)
    if method not in ("average", "min", "max", "dense", "ordinal"):
        raise ValueError(f"rankdata: method must be 'average', 'min', 'max', 'dense' or 'ordinal', got {method!r}")
    value = fnp.asarray(as_operand(a, "rankdata: a"))
    if axis is None:
        return _ranks(value.reshape((1, value.size)), method)[0]
    place = canonicalize_axis("rankdata", axis, value.ndim)
    moved = fnp.moveaxis(value, place, -1)
    rows = moved.reshape((math.prod(moved.shape[:-1]), moved.shape[-1]))
    return fnp.moveaxis(_ranks(rows, method).reshape(moved.shape), -1, place)


def _ranks(rows: Array, method: str) -> Array:
    n = rows.shape[-1]
    if n == 0:
        return fnp.zeros(rows.shape, dtypes.default_float())
    order = fnp.argsort(rows, axis=-1, stable=True)
    places = fnp.broadcast_to(fnp.arange(n), rows.shape)
    ordered = fnp.take_along_axis(rows, order, -1)
    starts = _run_starts(ordered)
    last = starts.ndim - 1
    low = lax.cummax(fnp.where(starts, places, 0), axis=last)
    ends = fnp.concatenate([starts[..., 1:], fnp.ones((*starts.shape[:-1], 1), dtypes.bool_)], -1)
    high = lax.cummin(fnp.where(ends, places, n), axis=last, reverse=True)
    ranks = {
        "ordinal": places + 1,
        "dense": fnp.cumsum(starts.astype(places.dtype), axis=-1),
        "min": low + 1,
        "max": high + 1,
        "average": 0.5 * (low + high) + 1,
    }[method].astype(dtypes.default_float())
    back = vmap(lambda r, o: fnp.zeros_like(r).at[o].set(r))(ranks, order)
    if not dtypes.is_inexact(rows.dtype):
        return back
    return fnp.where(fnp.any(rows != rows, -1, keepdims=True), math.nan, back)


def sem(
    a: ArrayLike,
    axis: SupportsIndex | None = 0,
    ddof: int = 1,
    nan_policy: str = "propagate",
    *,
    keepdims: bool = False,
) -> Array:
    """The standard error of the mean along `axis`, over all elements if it is None.

    With `nan_policy="omit"` of the elements that are not NaN. ValueError for another one.

    >>> round(float(sem(fnp.array([1.0, 2.0, 4.0]))), 4)
    0.8819
    """
    value = fnp.asarray(to_inexact(a, "sem: a"))
    where = axis if axis is None else canonicalize_axis("sem", axis, value.ndim)
    if nan_policy == "propagate":
        size = value.size if where is None else value.shape[where]
        return fnp.std(value, where, ddof=ddof, keepdims=keepdims) / math.sqrt(size)
    if nan_policy != "omit":
        raise ValueError(f"sem: nan_policy must be 'propagate' or 'omit', got {nan_policy!r}")
    there = value == value
    count = fnp.sum(there, where, keepdims=keepdims).astype(dtypes.real_dtype(value.dtype))
    middle = fnp.sum(fnp.where(there, value, 0), where, keepdims=True) / fnp.sum(there, where, keepdims=True)
    square = fnp.square(fnp.abs(fnp.where(there, value - middle, 0)))
    spread = fnp.sum(square, where, keepdims=keepdims) / (count - ddof)
    return fnp.sqrt(spread) / fnp.sqrt(count)
