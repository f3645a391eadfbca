"""Quantiles and medians, of all elements or of those that are not NaN.

With `n` elements in ascending order, counted from 0, the `q` quantile stands at the place `q * (n - 1)`. Between two
elements `method` decides: "linear" (the line between them), "lower", "higher", "nearest", "midpoint". "inverted_cdf" is
the first element up to which at least the share `q` of all `weights` lies, which are 1 unless given.

`q` is a number from 0 to 1 or a vector of them, along which results are stacked in front. Results are floats; those of
an empty axis, and where an element is NaN, are NaN. Complex numbers are refused by ValueError.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, TypeAlias, final

import numpy as np
from attrs import frozen

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike, Axes
from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import DType, NDArray
from tracefx.core.handler import as_array, evaluating
from tracefx.core.kernels import quietly
from tracefx.core.literal import Literal
from tracefx.core.promotion import promote
from tracefx.core.values import ConcreteArray, Value, from_numpy, to_numpy
from tracefx.numpy.evaluated import Kernel, by_numpy
from tracefx.numpy.indexing import getitem, take, take_along_axis
from tracefx.numpy.logic import isnan
from tracefx.numpy.promoting import converted, inexact, inexact_dtype, operand, retyped
from tracefx.numpy.reductions import any, axes, cumsum, sum
from tracefx.numpy.ufuncs import choose, clip, like
from tracefx.ops import arithmetic, basis, bitwise, comparison, elementwise, rounding, shape, sorting
from tracefx.transforms.at_once import at_once
from tracefx.transforms.evaluations import Number

Axis: TypeAlias = int | tuple[int, ...] | None
METHODS: Final = ("linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf")


# ------------------------------------------------------------------ of NumPy's arrays


def _middle(a: ShapedArray, axis: Axis = None, *given: object, keepdims: bool = False) -> Kernel | None:
    """`median` of a line."""
    if given or keepdims or a.ndim != 1 or not a.size:
        return None
    low, high, half = (a.size - 1) // 2, a.size // 2, a.dtype.type(0.5)

    def kernel(v: NDArray) -> NDArray | np.generic:
        line = v.copy()
        line.sort()
        last: np.generic = line[-1]
        found: np.generic = line[low] if low == high else (line[low] + line[high]) * half
        return last if last != last else found

    return kernel


def _shared(whole: int) -> Callable[..., Kernel | None]:
    """`quantile` of a line, of shares of `whole`."""

    def kernel(
        a: ShapedArray | Number, q: ShapedArray | Number, axis: Axis = None, *given: object, **options: object
    ) -> Kernel | None:
        if given or options or not isinstance(q, Number) or not isinstance(a, ShapedArray) or a.ndim != 1 or not a.size:
            return None
        element, last = a.dtype.type, a.size - 1
        steps, one = element(last), element(1)

        def quantile(v: NDArray, q: float) -> NDArray | np.generic:
            line = v.copy()
            line.sort()
            end: np.generic = line[-1]
            share = element(q) if whole == 1 else element(q) / element(whole)
            place = share * steps
            if end != end or place != place:
                return end if end != end else place
            low = math.floor(place) if -1 < place < last + 1 else -1 if place < 0 else last + 1
            part = place - element(math.floor(place)) if np.isfinite(place) else place - place
            below = line[min(max(low, 0), last)]
            above = line[min(max(low + (part != 0), 0), last)]
            mixed: np.generic = below * (one - part) + above * part
            return below if below == above and mixed != mixed else mixed

        return quantile

    return kernel


# ------------------------------------------------------------------ quantiles


@by_numpy(_shared(1), arrays=2, numbers=True, replays=False)
def quantile(
    a: ArrayLike,
    q: ArrayLike,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: ArrayLike | None = None,
) -> Array:
    """The `q` quantiles along `axis`. `weights`, which only the method "inverted_cdf" takes, have the shape of `a` or
    that of `axis`; results are NaN where one is negative or NaN.

    >>> quantile(np.array([1.0, 2.0, 4.0]), 0.75)
    Array(3., dtype=float32)
    """
    return _quantile("quantile", a, inexact(q, "quantile: q"), axis, out, overwrite_input, method, keepdims, weights)


def nanquantile(
    a: ArrayLike,
    q: ArrayLike,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: ArrayLike | None = None,
) -> Array:
    """The `q` quantiles along `axis` of what is not NaN; NaN of nothing.

    >>> nanquantile(np.array([1.0, 2.0, np.nan, 4.0]), 0.75)
    Array(3., dtype=float32)
    """
    share = inexact(q, "nanquantile: q")
    return _quantile("nanquantile", a, share, axis, out, overwrite_input, method, keepdims, weights)


@by_numpy(_shared(100), arrays=2, numbers=True, replays=False)
def percentile(
    a: ArrayLike,
    q: ArrayLike,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: ArrayLike | None = None,
) -> Array:
    """The `q / 100` quantiles along `axis`: as `quantile`.

    >>> percentile(np.array([1.0, 2.0, 4.0]), 75)
    Array(3., dtype=float32)
    """
    share = _hundredth("percentile", q)
    return _quantile("percentile", a, share, axis, out, overwrite_input, method, keepdims, weights)


def nanpercentile(
    a: ArrayLike,
    q: ArrayLike,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: ArrayLike | None = None,
) -> Array:
    """The `q / 100` quantiles along `axis` of what is not NaN: as `nanquantile`.

    >>> nanpercentile(np.array([1.0, 2.0, np.nan, 4.0]), 75)
    Array(3., dtype=float32)
    """
    share = _hundredth("nanpercentile", q)
    return _quantile("nanpercentile", a, share, axis, out, overwrite_input, method, keepdims, weights)


@by_numpy(_middle, replays=False)
@at_once(arrays=1)
def median(
    a: ArrayLike, axis: Axis = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False
) -> Array:
    """The median along `axis`: the element in the middle, or the mean of the two there.

    >>> median(np.array([1, 2, 4, 8]))
    Array(3., dtype=float32)
    """
    return _quantile("median", a, None, axis, out, overwrite_input, "midpoint", keepdims, None)


def nanmedian(
    a: ArrayLike, axis: Axis = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False
) -> Array:
    """The median along `axis` of what is not NaN; NaN of nothing.

    >>> nanmedian(np.array([1.0, np.nan, 4.0, 8.0]))
    Array(4., dtype=float32)
    """
    return _quantile("nanmedian", a, None, axis, out, overwrite_input, "midpoint", keepdims, None)


def _hundredth(name: str, q: ArrayLike) -> Value:
    share = inexact(q, f"{name}: q")
    if isinstance(share, ConcreteArray | Literal):
        known = to_numpy(share)
        return from_numpy(quietly(np.divide, known, known.dtype.type(100)), known.dtype)
    return arithmetic.div(share, like(share, 100))


# ------------------------------------------------------------------ how they are found


def _quantile(
    name: str,
    a: ArrayLike,
    q: Value | None,
    axis: Axis,
    out: object,
    overwrite_input: bool,
    method: str,
    keepdims: bool,
    weights: ArrayLike | None,
) -> Array:
    """Without `q`, the median."""
    if out is not None or overwrite_input:
        raise ValueError(f"{name}: out must be None and overwrite_input False, since arrays never change")
    if method not in METHODS:
        raise ValueError(f"{name}: method must be one of {', '.join(METHODS)}, got {method!r}")
    x = inexact(a, f"{name}: a")
    if dtypes.is_complex(x.aval.dtype):
        raise ValueError(f"{name}: complex numbers have no order, got {x.aval}")
    if q is not None and q.aval.ndim > 1:
        raise ValueError(f"{name}: q must be a number or a vector, got {q.aval}")
    over = axes(name, axis, x.aval.ndim)
    given: list[Value] = [] if q is None else [as_array(q) if evaluating() else q]
    if weights is not None:
        x, load = converted(name, x, _weights(name, x, weights, axis, over, method))
        given.append(load)
    ignoring = name.startswith("nan")
    return _found(as_array(x), *given, over=over, method=method, ignoring=ignoring, keepdims=bool(keepdims))


@at_once
def _found(x: Array, *given: Value, over: tuple[int, ...], method: str, ignoring: bool, keepdims: bool) -> Array:
    sizes, result = x.aval.shape, x.aval.dtype
    q = given[0] if given else Literal(0.5, ShapedArray((), dtypes.default_float(), weak_type=True))
    load = _last(given[1], over) if len(given) > 1 else None
    lines = _last(x, over)
    if method == "inverted_cdf":
        found = _by_weight(lines, load, basis.reshape(q, (q.aval.size,)), ignoring)
    else:
        shares = q if isinstance(q, ConcreteArray | Literal) else basis.reshape(q, (q.aval.size,))
        found = _between(lines, shares, method, ignoring)
    found = as_array(retyped(found, result))
    kept = [1 if i in over else n for i, n in enumerate(sizes) if keepdims or i not in over]
    if q.aval.ndim:
        found = basis.move_axis(found, found.aval.ndim - 1, 0)
    return basis.reshape(found, (*q.aval.shape, *kept))


def _last(x: Value, over: tuple[int, ...]) -> Array:
    """`x` with the axes `over` made one, the last."""
    kept = [i for i in range(x.aval.ndim) if i not in over]
    moved = basis.transpose(x, [*kept, *over])
    return basis.reshape(moved, (*[x.aval.shape[i] for i in kept], math.prod(x.aval.shape[i] for i in over)))


def _weights(name: str, x: Value, weights: ArrayLike, axis: Axes, over: tuple[int, ...], method: str) -> Value:
    load = operand(weights, f"{name}: weights")
    if dtypes.is_complex(load.aval.dtype):
        raise ValueError(f"{name}: weights must be real, got {load.aval}")
    if method != "inverted_cdf":
        raise NotImplementedError(f"{name}: method {method!r} takes no weights; 'inverted_cdf' does")
    if load.aval.shape == x.aval.shape:
        return load
    wanted = tuple([x.aval.shape[i] for i in over])
    if axis is None or load.aval.shape != wanted:
        raise ValueError(f"{name}: weights {load.aval} must have the shape of a, {x.aval}, or that of axis, {wanted}")
    order = sorted(range(len(over)), key=over.__getitem__)
    return basis.broadcast_in_dim(basis.transpose(load, order), x.aval.shape, sorted(over))


def _computed(x: DType, q: DType) -> DType:
    """The dtype in which places are computed, and what lies between two elements."""
    dtype, _ = promote([(x, False), (inexact_dtype(q), False), (dtypes.float32, False)])
    return dtype


def _between(x: Array, q: Value, method: str, ignoring: bool) -> Array:
    """For lines along the last axis and a vector of shares: quantiles along the last axis."""
    dtype = _computed(x.aval.dtype, q.aval.dtype)
    rows, n, count = x.aval.shape[:-1], x.aval.shape[-1], q.aval.size
    if not n or not count:
        return basis.full(ShapedArray((*rows, count), dtype), math.nan)
    x = sorting.sort(x, is_stable=False)  # only zeros of different sign tell
    if ignoring:
        places = _places_of_numbers(x, basis.reshape(retyped(q, dtype), (count,)))
    elif isinstance(q, ConcreteArray | Literal):
        places = _known_places(to_numpy(q).astype(dtype).reshape(count), n)
    else:
        places = _places(as_array(retyped(q, dtype)), basis.full(ShapedArray((), dtype), n - 1))
    found = as_array(_mixed(x, places, method, dtype))
    if ignoring:
        return found
    strange = isnan(shape.slice_axis(x, n - 1, n, len(rows)))  # where NaN is sorted to
    return choose(basis.broadcast_to(strange, found.aval.shape), math.nan, found)


@final
@frozen(eq=False)
class Places:
    """Between which elements of a sorted line quantiles are, and how far from the lower to the higher."""

    low: Array | NDArray
    high: Array | NDArray
    share: Array

    def element(self, x: Array, which: Array | NDArray, dtype: DType) -> Array:
        """The elements at places that are the same in all lines, or for each line its own."""
        along = x.aval.ndim - 1
        if isinstance(which, Array):
            found = (take if which.ndim < x.aval.ndim or not along else take_along_axis)(x, which, along, mode="clip")
        elif which.size == 1:
            place = int(which[0])
            found = shape.slice_axis(x, place, place + 1, along)
        else:
            found = getitem(x, (..., which))
        return as_array(retyped(found, dtype))


def _known_places(q: NDArray, n: int) -> Places:
    place = quietly(np.multiply, q, q.dtype.type(n - 1))
    low, high = np.floor(place), np.ceil(place)
    share = (place - low).astype(q.dtype)
    within = [np.nan_to_num(p).clip(0, n - 1).astype(np.int32) for p in (low, high)]
    return Places(within[0], within[1], from_numpy(share, share.dtype))


def _places(q: Array, last: Array) -> Places:
    place = arithmetic.mul(q, last)
    low, high = rounding.floor(place), rounding.ceil(place)
    end = arithmetic.max(last, like(last, 0))
    within = [as_array(retyped(clip(p, 0, end), dtypes.int32)) for p in (low, high)]
    return Places(within[0], within[1], arithmetic.sub(place, low))


def _places_of_numbers(x: Array, q: Array) -> Places:
    """Among those elements of each line that are not NaN."""
    held = sum(bitwise.bitwise_not(isnan(x)), -1, q.aval.dtype, keepdims=True)
    wide = (*x.aval.shape[:-1], q.aval.size)
    last = basis.broadcast_to(arithmetic.sub(held, like(held, 1)), wide)
    return _places(basis.broadcast_to(q, wide), last)


def _mixed(x: Array, places: Places, method: str, dtype: DType) -> Array:
    if method == "lower":
        return places.element(x, places.low, dtype)
    if method == "higher":
        return places.element(x, places.high, dtype)
    below = places.element(x, places.low, dtype)
    if isinstance(places.low, np.ndarray) and (places.low == places.high).all():
        return below
    above = places.element(x, places.high, dtype)
    if method == "midpoint":
        return arithmetic.mul(elementwise.add(below, above), like(below, 0.5))
    share = basis.broadcast_to(places.share, below.aval.shape)
    if method == "nearest":
        return choose(comparison.le(share, like(share, 0.5)), below, above)
    mixed = elementwise.add(arithmetic.mul(below, arithmetic.sub(like(share, 1), share)), arithmetic.mul(above, share))
    # No part of an infinite element is no number.
    infinite = bitwise.bitwise_and(comparison.eq(below, above), isnan(mixed))
    return choose(infinite, below, mixed)


def _by_weight(x: Array, weights: Array | None, q: Array, ignoring: bool) -> Array:
    """The first elements up to which there is at least the share `q` of the weight."""
    dtype = _computed(x.aval.dtype, q.aval.dtype)
    rows, n, count = x.aval.shape[:-1], x.aval.shape[-1], q.aval.size
    if not n:
        return basis.full(ShapedArray((*rows, count), dtype), math.nan)
    strange = isnan(x)
    if weights is None:
        wrong = basis.full(ShapedArray((*rows, 1), dtypes.bool_), False)
        x, weights = sorting.sort(x, is_stable=False), basis.full(x.aval, 1)
    else:
        negative = bitwise.bitwise_or(comparison.lt(weights, basis.full(weights.aval, 0)), isnan(weights))
        wrong = any(negative, -1, keepdims=True)
        x, weights = sorting.sort_key_val(x, weights)
    counts = sum(bitwise.bitwise_not(strange), -1, dtypes.int32, keepdims=True)
    nothing = comparison.eq(counts, like(counts, 0)) if ignoring else comparison.lt(counts, like(counts, n))
    load = choose(bitwise.bitwise_not(isnan(x)), as_array(retyped(weights, dtype)), 0)
    so_far = cumsum(load, -1)
    total = shape.slice_axis(so_far, n - 1, n, len(rows))
    wide = (*rows, count, n)
    wanted = arithmetic.mul(
        basis.broadcast_to(retyped(q, dtype), (*rows, count)), basis.broadcast_to(total, (*rows, count))
    )
    axes = tuple(range(len(rows)))
    less = comparison.lt(
        basis.broadcast_in_dim(so_far, wide, (*axes, len(rows) + 1)),
        basis.broadcast_in_dim(wanted, wide, (*axes, len(rows))),
    )
    last = arithmetic.max(arithmetic.sub(counts, like(counts, 1)), like(counts, 0))
    place = clip(sum(less, -1, dtypes.int32), 0, last)
    found = as_array(retyped(take_along_axis(x, place, -1, mode="clip"), dtype))
    lost = bitwise.bitwise_or(wrong, nothing)
    return choose(basis.broadcast_to(lost, found.aval.shape), math.nan, found)
