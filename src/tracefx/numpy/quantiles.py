"""Quantiles, percentiles and medians, with or without NaN.

Among `n` sorted elements, counted from 0, the `q` quantile is at position `q * (n - 1)`. Between two elements `method`
decides: `"linear"` interpolates, `"lower"`, `"higher"` and `"nearest"` take an element, `"midpoint"` their mean.
`"inverted_cdf"` takes the first element at which the cumulative weight reaches the fraction `q` of the total.

Results are floats; NaN for an empty axis, and where an element is NaN. Complex numbers raise a ValueError.
"""

from __future__ import annotations

import math
from typing import Final, TypeAlias, final

import numpy as np
from attrs import frozen

from tracefx.core import (
    Array,
    ArrayLike,
    AxisLike,
    ConcreteArray,
    DType,
    Literal,
    NDArray,
    ShapedArray,
    Value,
    dtypes,
    from_numpy,
    to_numpy,
)
from tracefx.core.handler import as_array, evaluating
from tracefx.core.kernel_context import call_kernel
from tracefx.core.named_sharding import OutSharding
from tracefx.dimensions.symbolic_dimensions import is_symbolic_dim
from tracefx.numpy.indexing import getitem, take, take_along_axis
from tracefx.numpy.kernels import KERNELS
from tracefx.numpy.logic import isnan
from tracefx.numpy.operand_promotion import as_operand, convert_dtype, inexact_dtype, promote_dtypes, to_inexact
from tracefx.numpy.reductions import any, cumsum, sum
from tracefx.numpy.shapes import axes
from tracefx.numpy.symbolic_sizes import size_like
from tracefx.numpy.ufuncs import broadcast_select, clip, literal_like
from tracefx.ops import structural
from tracefx.ops.elementwise import arithmetic, bitwise, comparison, elementwise, rounding
from tracefx.ops.indexing import sorting
from tracefx.ops.promotion import promote
from tracefx.ops.shape import shape
from tracefx.transforms.eager_calls import eager_cached

Axis: TypeAlias = int | tuple[int, ...] | None
QUANTILE_METHODS: Final = ("linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf")


# ------------------------------------------------------------------ quantiles


@eager_cached(numbers=2, kernel=KERNELS["quantile"])
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
    """Returns quantiles over axes.

    Args:
        a: The array.
        q: A fraction from 0 to 1, or a vector of fractions, along which results are stacked in front.
        axis: The axis or axes to reduce; None means all.
        out: Not supported; must be None.
        overwrite_input: Not supported; must be False.
        method: How to interpolate between elements: `"linear"`, `"lower"`, `"higher"`, `"midpoint"`, `"nearest"` or
            `"inverted_cdf"`.
        keepdims: Whether to keep the reduced axes with size 1.
        weights: The weights of elements, of the shape of `a` or of its axes `axis`, for `"inverted_cdf"` only. Results
            are NaN where a weight is negative or NaN. None means equal weights.

    Returns:
        An array of floats without the reduced axes, behind the axis of `q` if that is a vector.

    Raises:
        ValueError: If `a` is complex, `q` has more than one axis, or the method is unknown.

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
    """Returns quantiles over axes of the elements that are not NaN; NaN if there are none.

    Args:
        a: The array.
        q: A fraction from 0 to 1, or a vector of fractions, along which results are stacked in front.
        axis: The axis or axes to reduce; None means all.
        out: Not supported; must be None.
        overwrite_input: Not supported; must be False.
        method: How to interpolate between elements: `"linear"`, `"lower"`, `"higher"`, `"midpoint"`, `"nearest"` or
            `"inverted_cdf"`.
        keepdims: Whether to keep the reduced axes with size 1.
        weights: The weights of elements, of the shape of `a` or of its axes `axis`, for `"inverted_cdf"` only. Results
            are NaN where a weight is negative or NaN. None means equal weights.

    Returns:
        An array of floats without the reduced axes, behind the axis of `q` if that is a vector.

    Raises:
        ValueError: If `a` is complex, `q` has more than one axis, or the method is unknown.

    >>> nanquantile(np.array([1.0, 2.0, np.nan, 4.0]), 0.75)
    Array(3., dtype=float32)
    """
    fraction = to_inexact(q, "nanquantile: q")
    return _quantile("nanquantile", a, fraction, axis, out, overwrite_input, method, keepdims, weights)


@eager_cached(numbers=2, kernel=KERNELS["percentile"])
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
    out_sharding: OutSharding = None,
) -> Array:
    """Returns percentiles over axes: the `q / 100` quantiles.

    Args:
        a: The array.
        q: A percentage from 0 to 100, or a vector of percentages, along which results are stacked in front.
        axis: The axis or axes to reduce; None means all.
        out: Not supported; must be None.
        overwrite_input: Not supported; must be False.
        method: How to interpolate between elements: `"linear"`, `"lower"`, `"higher"`, `"midpoint"`, `"nearest"` or
            `"inverted_cdf"`.
        keepdims: Whether to keep the reduced axes with size 1.
        weights: The weights of elements, of the shape of `a` or of its axes `axis`, for `"inverted_cdf"` only. Results
            are NaN where a weight is negative or NaN. None means equal weights.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        An array of floats without the reduced axes, behind the axis of `q` if that is a vector.

    Raises:
        ValueError: If `a` is complex, `q` has more than one axis, or the method is unknown.

    >>> percentile(np.array([1.0, 2.0, 4.0]), 75)
    Array(3., dtype=float32)
    """
    fraction = _percent_to_fraction("percentile", q)
    return _quantile("percentile", a, fraction, axis, out, overwrite_input, method, keepdims, weights)


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
    """Returns percentiles over axes of the elements that are not NaN: the `q / 100` quantiles; NaN if there are none.

    Args:
        a: The array.
        q: A percentage from 0 to 100, or a vector of percentages, along which results are stacked in front.
        axis: The axis or axes to reduce; None means all.
        out: Not supported; must be None.
        overwrite_input: Not supported; must be False.
        method: How to interpolate between elements: `"linear"`, `"lower"`, `"higher"`, `"midpoint"`, `"nearest"` or
            `"inverted_cdf"`.
        keepdims: Whether to keep the reduced axes with size 1.
        weights: The weights of elements, of the shape of `a` or of its axes `axis`, for `"inverted_cdf"` only. Results
            are NaN where a weight is negative or NaN. None means equal weights.

    Returns:
        An array of floats without the reduced axes, behind the axis of `q` if that is a vector.

    Raises:
        ValueError: If `a` is complex, `q` has more than one axis, or the method is unknown.

    >>> nanpercentile(np.array([1.0, 2.0, np.nan, 4.0]), 75)
    Array(3., dtype=float32)
    """
    fraction = _percent_to_fraction("nanpercentile", q)
    return _quantile("nanpercentile", a, fraction, axis, out, overwrite_input, method, keepdims, weights)


@eager_cached(compiled=True, kernel=KERNELS["median"])
def median(
    a: ArrayLike, axis: Axis = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False
) -> Array:
    """Returns the median over axes: the middle element, or the mean of the two middle elements.

    Args:
        a: The array.
        axis: The axis or axes to reduce; None means all.
        out: Not supported; must be None.
        overwrite_input: Not supported; must be False.
        keepdims: Whether to keep the reduced axes with size 1.

    Returns:
        An array of floats without the reduced axes.

    Raises:
        ValueError: If `a` is complex.

    >>> median(np.array([1, 2, 4, 8]))
    Array(3., dtype=float32)
    """
    return _quantile("median", a, None, axis, out, overwrite_input, "midpoint", keepdims, None)


def nanmedian(
    a: ArrayLike, axis: Axis = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False
) -> Array:
    """Returns the median over axes of the elements that are not NaN; NaN if there are none.

    Args:
        a: The array.
        axis: The axis or axes to reduce; None means all.
        out: Not supported; must be None.
        overwrite_input: Not supported; must be False.
        keepdims: Whether to keep the reduced axes with size 1.

    Returns:
        An array of floats without the reduced axes.

    Raises:
        ValueError: If `a` is complex.

    >>> nanmedian(np.array([1.0, np.nan, 4.0, 8.0]))
    Array(4., dtype=float32)
    """
    return _quantile("nanmedian", a, None, axis, out, overwrite_input, "midpoint", keepdims, None)


def _percent_to_fraction(name: str, q: ArrayLike) -> Value:
    percent = to_inexact(q, f"{name}: q")
    if isinstance(percent, ConcreteArray | Literal):
        known = to_numpy(percent)
        return from_numpy(call_kernel(np.divide, known, known.dtype.type(100)), known.dtype)
    return arithmetic.div(percent, literal_like(percent, 100))


# ------------------------------------------------------------------ implementation


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
    """Validates the arguments and computes quantiles; the median if `q` is None."""
    if out is not None or overwrite_input:
        raise ValueError(f"{name}: out must be None and overwrite_input False, since arrays are immutable")
    if method not in QUANTILE_METHODS:
        raise ValueError(f"{name}: method must be one of {', '.join(QUANTILE_METHODS)}, got {method!r}")
    x = to_inexact(a, f"{name}: a")
    if dtypes.is_complex(x.aval.dtype):
        raise ValueError(f"{name}: complex numbers are not ordered, got {x.aval}")
    if q is not None and q.aval.ndim > 1:
        raise ValueError(f"{name}: q must be a number or a vector, got {q.aval}")
    over = axes(name, axis, x.aval.ndim)
    operands: list[Value] = [] if q is None else [as_array(q) if evaluating() else q]
    if weights is not None:
        x, weights_ = promote_dtypes(name, x, _weights_operand(name, x, weights, axis, over, method))
        operands.append(weights_)
    ignoring = name.startswith("nan")
    return _compute_quantiles(
        as_array(x), *operands, over=over, method=method, ignoring=ignoring, keepdims=bool(keepdims)
    )


@eager_cached(compiled=True)
def _compute_quantiles(
    x: Array, *operands: Value, over: tuple[int, ...], method: str, ignoring: bool, keepdims: bool
) -> Array:
    sizes, result = x.aval.shape, x.aval.dtype
    q = operands[0] if operands else Literal(0.5, ShapedArray((), dtypes.default_float(), weak_type=True))
    weights = _merge_axes_to_end(operands[1], over) if len(operands) > 1 else None
    lines = _merge_axes_to_end(x, over)
    if method == "inverted_cdf":
        quantiles = _weighted_quantiles(lines, weights, structural.reshape(q, (q.aval.size,)), ignoring)
    else:
        fractions = q if isinstance(q, ConcreteArray | Literal) else structural.reshape(q, (q.aval.size,))
        quantiles = _interpolated_quantiles(lines, fractions, method, ignoring)
    quantiles = as_array(convert_dtype(quantiles, result))
    kept = [1 if i in over else n for i, n in enumerate(sizes) if keepdims or i not in over]
    if q.aval.ndim:
        quantiles = structural.move_axis(quantiles, quantiles.aval.ndim - 1, 0)
    return structural.reshape(quantiles, (*q.aval.shape, *kept))


def _merge_axes_to_end(x: Value, over: tuple[int, ...]) -> Array:
    """Returns `x` with the axes `over` merged into one, the last."""
    kept = [i for i in range(x.aval.ndim) if i not in over]
    moved = structural.transpose(x, [*kept, *over])
    return structural.reshape(moved, (*[x.aval.shape[i] for i in kept], math.prod(x.aval.shape[i] for i in over)))


def _weights_operand(
    name: str, x: Value, weights: ArrayLike, axis: AxisLike, over: tuple[int, ...], method: str
) -> Value:
    operand = as_operand(weights, f"{name}: weights")
    if dtypes.is_complex(operand.aval.dtype):
        raise ValueError(f"{name}: weights must be real, got {operand.aval}")
    if method != "inverted_cdf":
        raise NotImplementedError(f"{name}: method {method!r} does not support weights; use 'inverted_cdf'")
    if operand.aval.shape == x.aval.shape:
        return operand
    axes_shape = tuple([x.aval.shape[i] for i in over])
    if axis is None or operand.aval.shape != axes_shape:
        raise ValueError(
            f"{name}: weights {operand.aval} must have the shape of a, {x.aval}, or that of axis, {axes_shape}"
        )
    order = sorted(range(len(over)), key=over.__getitem__)
    return structural.broadcast_in_dim(structural.transpose(operand, order), x.aval.shape, sorted(over))


def _computation_dtype(x: DType, q: DType) -> DType:
    """Returns the dtype in which positions and interpolated values are computed."""
    dtype, _ = promote([(x, False), (inexact_dtype(q), False), (dtypes.float32, False)])
    return dtype


def _interpolated_quantiles(x: Array, q: Value, method: str, ignoring: bool) -> Array:
    """Returns quantiles over the last axis for a vector of fractions, along a new last axis."""
    dtype = _computation_dtype(x.aval.dtype, q.aval.dtype)
    rows, n, count = x.aval.shape[:-1], x.aval.shape[-1], q.aval.size
    if not n or not count:
        return structural.full_like_aval(ShapedArray((*rows, count), dtype), math.nan)
    x = sorting.sort(x, is_stable=False)  # stability shows only in the order of -0.0 and 0.0
    if ignoring:
        positions = _non_nan_positions(x, structural.reshape(convert_dtype(q, dtype), (count,)))
    elif isinstance(q, ConcreteArray | Literal) and not is_symbolic_dim(n):
        positions = _static_positions(to_numpy(q).astype(dtype).reshape(count), n)
    else:
        fractions = structural.reshape(convert_dtype(q, dtype), (count,))
        positions = _traced_positions(fractions, as_array(size_like(fractions, n - 1)))
    quantiles = as_array(_interpolate(x, positions, method, dtype))
    if ignoring:
        return quantiles
    is_nan = isnan(shape.slice_axis(x, n - 1, n, len(rows)))  # NaN is sorted to the end
    return broadcast_select(structural.broadcast_to(is_nan, quantiles.aval.shape), math.nan, quantiles)


@final
@frozen(eq=False)
class QuantilePositions:
    """The two elements of a sorted line between which each quantile lies, and its distance from the lower one."""

    low: Array | NDArray
    high: Array | NDArray
    fraction: Array
    """The fraction of the way from the lower to the higher element."""

    def take_from(self, x: Array, which: Array | NDArray, dtype: DType) -> Array:
        """Returns the elements at positions that are common to all lines, or separate for each line."""
        along = x.aval.ndim - 1
        if isinstance(which, Array):
            elements = (take if which.ndim < x.aval.ndim or not along else take_along_axis)(
                x, which, along, mode="clip"
            )
        elif which.size == 1:
            position = int(which[0])
            elements = shape.slice_axis(x, position, position + 1, along)
        else:
            elements = getitem(x, (..., which))
        return as_array(convert_dtype(elements, dtype))


def _static_positions(q: NDArray, n: int) -> QuantilePositions:
    position = call_kernel(np.multiply, q, q.dtype.type(n - 1))
    low, high = np.floor(position), np.ceil(position)
    fraction = call_kernel(np.subtract, position, low).astype(q.dtype)  # NaN at infinity
    clamped = [np.nan_to_num(p).clip(0, n - 1).astype(np.int32) for p in (low, high)]
    return QuantilePositions(clamped[0], clamped[1], from_numpy(fraction, fraction.dtype))


def _traced_positions(q: Array, last: Array) -> QuantilePositions:
    position = arithmetic.mul(q, last)
    low, high = rounding.floor(position), rounding.ceil(position)
    end = arithmetic.max(last, literal_like(last, 0))
    clamped = [as_array(convert_dtype(clip(p, 0, end), dtypes.int32)) for p in (low, high)]
    return QuantilePositions(clamped[0], clamped[1], arithmetic.sub(position, low))


def _non_nan_positions(x: Array, q: Array) -> QuantilePositions:
    """Returns the positions among the elements of each line that are not NaN."""
    counts = sum(bitwise.bitwise_not(isnan(x)), -1, q.aval.dtype, keepdims=True)
    wide = (*x.aval.shape[:-1], q.aval.size)
    last = structural.broadcast_to(arithmetic.sub(counts, literal_like(counts, 1)), wide)
    return _traced_positions(structural.broadcast_to(q, wide), last)


def _interpolate(x: Array, positions: QuantilePositions, method: str, dtype: DType) -> Array:
    """Combines the elements at the positions as the method says."""
    if method == "lower":
        return positions.take_from(x, positions.low, dtype)
    if method == "higher":
        return positions.take_from(x, positions.high, dtype)
    below = positions.take_from(x, positions.low, dtype)
    if isinstance(positions.low, np.ndarray) and not to_numpy(positions.fraction).any():
        return below
    above = positions.take_from(x, positions.high, dtype)
    if method == "midpoint":
        return arithmetic.mul(elementwise.add(below, above), literal_like(below, 0.5))
    fraction = structural.broadcast_to(positions.fraction, below.aval.shape)
    if method == "nearest":
        return broadcast_select(comparison.le(fraction, literal_like(fraction, 0.5)), below, above)
    mixed = elementwise.add(
        arithmetic.mul(below, arithmetic.sub(literal_like(fraction, 1), fraction)), arithmetic.mul(above, fraction)
    )
    # Interpolation between equal infinities gives NaN (0 * inf); the element itself is right, unless `q` is NaN.
    equal = bitwise.bitwise_and(comparison.eq(below, above), comparison.eq(fraction, fraction))
    return broadcast_select(bitwise.bitwise_and(equal, isnan(mixed)), below, mixed)


def _weighted_quantiles(x: Array, weights: Array | None, q: Array, ignoring: bool) -> Array:
    """Returns the first elements at which the cumulative weight reaches the fraction `q` of the total."""
    dtype = _computation_dtype(x.aval.dtype, q.aval.dtype)
    rows, n, count = x.aval.shape[:-1], x.aval.shape[-1], q.aval.size
    if not n:
        return structural.full_like_aval(ShapedArray((*rows, count), dtype), math.nan)
    is_nan = isnan(x)
    if weights is None:
        invalid_weights = structural.full_like_aval(ShapedArray((*rows, 1), dtypes.bool_), False)
        x, weights = sorting.sort(x, is_stable=False), structural.full_like_aval(x.aval, 1)
    else:
        negative = bitwise.bitwise_or(
            comparison.lt(weights, structural.full_like_aval(weights.aval, 0)), isnan(weights)
        )
        invalid_weights = any(negative, -1, keepdims=True)
        x, weights = sorting.sort_key_val(x, weights)
    counts = sum(bitwise.bitwise_not(is_nan), -1, dtypes.int32, keepdims=True)
    too_few = (
        comparison.eq(counts, literal_like(counts, 0)) if ignoring else comparison.lt(counts, literal_like(counts, n))
    )
    counted_weights = broadcast_select(bitwise.bitwise_not(isnan(x)), as_array(convert_dtype(weights, dtype)), 0)
    cumulative = cumsum(counted_weights, -1)
    total = shape.slice_axis(cumulative, n - 1, n, len(rows))
    wide = (*rows, count, n)
    threshold = arithmetic.mul(
        structural.broadcast_to(convert_dtype(q, dtype), (*rows, count)), structural.broadcast_to(total, (*rows, count))
    )
    axes = tuple(range(len(rows)))
    less = comparison.lt(
        structural.broadcast_in_dim(cumulative, wide, (*axes, len(rows) + 1)),
        structural.broadcast_in_dim(threshold, wide, (*axes, len(rows))),
    )
    last = arithmetic.max(arithmetic.sub(counts, literal_like(counts, 1)), literal_like(counts, 0))
    position = clip(sum(less, -1, dtypes.int32), 0, last)
    quantiles = as_array(convert_dtype(take_along_axis(x, position, -1, mode="clip"), dtype))
    undefined = bitwise.bitwise_or(invalid_weights, too_few)
    return broadcast_select(structural.broadcast_to(undefined, quantiles.aval.shape), math.nan, quantiles)
