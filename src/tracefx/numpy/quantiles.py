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
from tracefx.core.array import Array, ArrayLike, AxisLike
from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import DType, NDArray
from tracefx.core.handler import as_array, evaluating
from tracefx.core.kernel_context import call_kernel
from tracefx.core.literal import Literal
from tracefx.core.promotion import promote
from tracefx.core.values import ConcreteArray, Value, from_numpy, to_numpy
from tracefx.numpy.evaluated import Kernel, by_numpy
from tracefx.numpy.indexing import getitem, take, take_along_axis
from tracefx.numpy.logic import isnan
from tracefx.numpy.operand_promotion import as_operand, convert_dtype, inexact_dtype, promote_dtypes, to_inexact
from tracefx.numpy.reductions import any, axes, cumsum, sum
from tracefx.numpy.ufuncs import broadcast_select, clip, literal_like
from tracefx.ops import structural
from tracefx.ops.elementwise import arithmetic, bitwise, comparison, elementwise, rounding
from tracefx.ops.indexing import sorting
from tracefx.ops.shape import shape
from tracefx.transforms.at_once import at_once
from tracefx.transforms.evaluations import Number

Axis: TypeAlias = int | tuple[int, ...] | None
QUANTILE_METHODS: Final = ("linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf")


# ------------------------------------------------------------------ of NumPy's arrays


def _median_kernel(a: ShapedArray, axis: Axis = None, *given: object, keepdims: bool = False) -> Kernel | None:
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


def _quantile_kernel(whole: int) -> Callable[..., Kernel | None]:
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


@by_numpy(_quantile_kernel(1), arrays=2, numbers=True, replays=False)
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
    return _quantile("quantile", a, to_inexact(q, "quantile: q"), axis, out, overwrite_input, method, keepdims, weights)


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
    share = to_inexact(q, "nanquantile: q")
    return _quantile("nanquantile", a, share, axis, out, overwrite_input, method, keepdims, weights)


@by_numpy(_quantile_kernel(100), arrays=2, numbers=True, replays=False)
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
    share = _percent_to_fraction("percentile", q)
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
    share = _percent_to_fraction("nanpercentile", q)
    return _quantile("nanpercentile", a, share, axis, out, overwrite_input, method, keepdims, weights)


@by_numpy(_median_kernel, replays=False)
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


def _percent_to_fraction(name: str, q: ArrayLike) -> Value:
    share = to_inexact(q, f"{name}: q")
    if isinstance(share, ConcreteArray | Literal):
        known = to_numpy(share)
        return from_numpy(call_kernel(np.divide, known, known.dtype.type(100)), known.dtype)
    return arithmetic.div(share, literal_like(share, 100))


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
    if method not in QUANTILE_METHODS:
        raise ValueError(f"{name}: method must be one of {', '.join(QUANTILE_METHODS)}, got {method!r}")
    x = to_inexact(a, f"{name}: a")
    if dtypes.is_complex(x.aval.dtype):
        raise ValueError(f"{name}: complex numbers have no order, got {x.aval}")
    if q is not None and q.aval.ndim > 1:
        raise ValueError(f"{name}: q must be a number or a vector, got {q.aval}")
    over = axes(name, axis, x.aval.ndim)
    given: list[Value] = [] if q is None else [as_array(q) if evaluating() else q]
    if weights is not None:
        x, load = promote_dtypes(name, x, _weights_operand(name, x, weights, axis, over, method))
        given.append(load)
    ignoring = name.startswith("nan")
    return _compute_quantiles(as_array(x), *given, over=over, method=method, ignoring=ignoring, keepdims=bool(keepdims))


@at_once
def _compute_quantiles(
    x: Array, *given: Value, over: tuple[int, ...], method: str, ignoring: bool, keepdims: bool
) -> Array:
    sizes, result = x.aval.shape, x.aval.dtype
    q = given[0] if given else Literal(0.5, ShapedArray((), dtypes.default_float(), weak_type=True))
    load = _merge_axes_to_end(given[1], over) if len(given) > 1 else None
    lines = _merge_axes_to_end(x, over)
    if method == "inverted_cdf":
        found = _weighted_quantiles(lines, load, structural.reshape(q, (q.aval.size,)), ignoring)
    else:
        shares = q if isinstance(q, ConcreteArray | Literal) else structural.reshape(q, (q.aval.size,))
        found = _interpolated_quantiles(lines, shares, method, ignoring)
    found = as_array(convert_dtype(found, result))
    kept = [1 if i in over else n for i, n in enumerate(sizes) if keepdims or i not in over]
    if q.aval.ndim:
        found = structural.move_axis(found, found.aval.ndim - 1, 0)
    return structural.reshape(found, (*q.aval.shape, *kept))


def _merge_axes_to_end(x: Value, over: tuple[int, ...]) -> Array:
    """`x` with the axes `over` made one, the last."""
    kept = [i for i in range(x.aval.ndim) if i not in over]
    moved = structural.transpose(x, [*kept, *over])
    return structural.reshape(moved, (*[x.aval.shape[i] for i in kept], math.prod(x.aval.shape[i] for i in over)))


def _weights_operand(
    name: str, x: Value, weights: ArrayLike, axis: AxisLike, over: tuple[int, ...], method: str
) -> Value:
    load = as_operand(weights, f"{name}: weights")
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
    return structural.broadcast_in_dim(structural.transpose(load, order), x.aval.shape, sorted(over))


def _computation_dtype(x: DType, q: DType) -> DType:
    """The dtype in which places are computed, and what lies between two elements."""
    dtype, _ = promote([(x, False), (inexact_dtype(q), False), (dtypes.float32, False)])
    return dtype


def _interpolated_quantiles(x: Array, q: Value, method: str, ignoring: bool) -> Array:
    """For lines along the last axis and a vector of shares: quantiles along the last axis."""
    dtype = _computation_dtype(x.aval.dtype, q.aval.dtype)
    rows, n, count = x.aval.shape[:-1], x.aval.shape[-1], q.aval.size
    if not n or not count:
        return structural.full_like_aval(ShapedArray((*rows, count), dtype), math.nan)
    x = sorting.sort(x, is_stable=False)  # only zeros of different sign tell
    if ignoring:
        places = _non_nan_positions(x, structural.reshape(convert_dtype(q, dtype), (count,)))
    elif isinstance(q, ConcreteArray | Literal):
        places = _static_positions(to_numpy(q).astype(dtype).reshape(count), n)
    else:
        places = _traced_positions(
            as_array(convert_dtype(q, dtype)), structural.full_like_aval(ShapedArray((), dtype), n - 1)
        )
    found = as_array(_interpolate(x, places, method, dtype))
    if ignoring:
        return found
    strange = isnan(shape.slice_axis(x, n - 1, n, len(rows)))  # where NaN is sorted to
    return broadcast_select(structural.broadcast_to(strange, found.aval.shape), math.nan, found)


@final
@frozen(eq=False)
class QuantilePositions:
    """Between which elements of a sorted line quantiles are, and how far from the lower to the higher."""

    low: Array | NDArray
    high: Array | NDArray
    share: Array

    def take_from(self, x: Array, which: Array | NDArray, dtype: DType) -> Array:
        """The elements at places that are the same in all lines, or for each line its own."""
        along = x.aval.ndim - 1
        if isinstance(which, Array):
            found = (take if which.ndim < x.aval.ndim or not along else take_along_axis)(x, which, along, mode="clip")
        elif which.size == 1:
            place = int(which[0])
            found = shape.slice_axis(x, place, place + 1, along)
        else:
            found = getitem(x, (..., which))
        return as_array(convert_dtype(found, dtype))


def _static_positions(q: NDArray, n: int) -> QuantilePositions:
    place = call_kernel(np.multiply, q, q.dtype.type(n - 1))
    low, high = np.floor(place), np.ceil(place)
    share = (place - low).astype(q.dtype)
    within = [np.nan_to_num(p).clip(0, n - 1).astype(np.int32) for p in (low, high)]
    return QuantilePositions(within[0], within[1], from_numpy(share, share.dtype))


def _traced_positions(q: Array, last: Array) -> QuantilePositions:
    place = arithmetic.mul(q, last)
    low, high = rounding.floor(place), rounding.ceil(place)
    end = arithmetic.max(last, literal_like(last, 0))
    within = [as_array(convert_dtype(clip(p, 0, end), dtypes.int32)) for p in (low, high)]
    return QuantilePositions(within[0], within[1], arithmetic.sub(place, low))


def _non_nan_positions(x: Array, q: Array) -> QuantilePositions:
    """Among those elements of each line that are not NaN."""
    held = sum(bitwise.bitwise_not(isnan(x)), -1, q.aval.dtype, keepdims=True)
    wide = (*x.aval.shape[:-1], q.aval.size)
    last = structural.broadcast_to(arithmetic.sub(held, literal_like(held, 1)), wide)
    return _traced_positions(structural.broadcast_to(q, wide), last)


def _interpolate(x: Array, places: QuantilePositions, method: str, dtype: DType) -> Array:
    if method == "lower":
        return places.take_from(x, places.low, dtype)
    if method == "higher":
        return places.take_from(x, places.high, dtype)
    below = places.take_from(x, places.low, dtype)
    if isinstance(places.low, np.ndarray) and (places.low == places.high).all():
        return below
    above = places.take_from(x, places.high, dtype)
    if method == "midpoint":
        return arithmetic.mul(elementwise.add(below, above), literal_like(below, 0.5))
    share = structural.broadcast_to(places.share, below.aval.shape)
    if method == "nearest":
        return broadcast_select(comparison.le(share, literal_like(share, 0.5)), below, above)
    mixed = elementwise.add(
        arithmetic.mul(below, arithmetic.sub(literal_like(share, 1), share)), arithmetic.mul(above, share)
    )
    # No part of an infinite element is no number.
    infinite = bitwise.bitwise_and(comparison.eq(below, above), isnan(mixed))
    return broadcast_select(infinite, below, mixed)


def _weighted_quantiles(x: Array, weights: Array | None, q: Array, ignoring: bool) -> Array:
    """The first elements up to which there is at least the share `q` of the weight."""
    dtype = _computation_dtype(x.aval.dtype, q.aval.dtype)
    rows, n, count = x.aval.shape[:-1], x.aval.shape[-1], q.aval.size
    if not n:
        return structural.full_like_aval(ShapedArray((*rows, count), dtype), math.nan)
    strange = isnan(x)
    if weights is None:
        wrong = structural.full_like_aval(ShapedArray((*rows, 1), dtypes.bool_), False)
        x, weights = sorting.sort(x, is_stable=False), structural.full_like_aval(x.aval, 1)
    else:
        negative = bitwise.bitwise_or(
            comparison.lt(weights, structural.full_like_aval(weights.aval, 0)), isnan(weights)
        )
        wrong = any(negative, -1, keepdims=True)
        x, weights = sorting.sort_key_val(x, weights)
    counts = sum(bitwise.bitwise_not(strange), -1, dtypes.int32, keepdims=True)
    nothing = (
        comparison.eq(counts, literal_like(counts, 0)) if ignoring else comparison.lt(counts, literal_like(counts, n))
    )
    load = broadcast_select(bitwise.bitwise_not(isnan(x)), as_array(convert_dtype(weights, dtype)), 0)
    so_far = cumsum(load, -1)
    total = shape.slice_axis(so_far, n - 1, n, len(rows))
    wide = (*rows, count, n)
    wanted = arithmetic.mul(
        structural.broadcast_to(convert_dtype(q, dtype), (*rows, count)), structural.broadcast_to(total, (*rows, count))
    )
    axes = tuple(range(len(rows)))
    less = comparison.lt(
        structural.broadcast_in_dim(so_far, wide, (*axes, len(rows) + 1)),
        structural.broadcast_in_dim(wanted, wide, (*axes, len(rows))),
    )
    last = arithmetic.max(arithmetic.sub(counts, literal_like(counts, 1)), literal_like(counts, 0))
    place = clip(sum(less, -1, dtypes.int32), 0, last)
    found = as_array(convert_dtype(take_along_axis(x, place, -1, mode="clip"), dtype))
    lost = bitwise.bitwise_or(wrong, nothing)
    return broadcast_select(structural.broadcast_to(lost, found.aval.shape), math.nan, found)
