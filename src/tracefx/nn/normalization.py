"""Softmax, its variants, and standardization: functions that reduce over axes.

They are numerically stable: exponentials do not overflow, and rows that are masked out entirely give no NaN.
"""

from __future__ import annotations

import math
from typing import Literal, overload

import tracefx.numpy as fnp
from tracefx.core import Array, ArrayLike, AxisLike, Value, as_value, dtypes
from tracefx.core.handler import as_array
from tracefx.numpy.operand_promotion import promote_args_inexact, to_inexact
from tracefx.numpy.shapes import axes
from tracefx.ops.elementwise.selection import stop_gradient
from tracefx.ops.elementwise.transcendental import rsqrt


def softmax(x: ArrayLike, axis: AxisLike = -1, where: ArrayLike | None = None) -> Array:
    """Computes `exp(x) / sum(exp(x))` over `axis`, without intermediate overflow.

    Args:
        x: an array of floats; integers are converted.
        axis: the axis or axes to normalize over; None means all.
        where: a mask that broadcasts against `x`; elements where it is false are left out, and their results are 0.

    Returns:
        An array of the shape of `x`.

    >>> softmax(fnp.array([1000.0, 1000.0])).tolist()
    [0.5, 0.5]
    """
    value = to_inexact(x, "softmax: x")
    axis = axes("softmax", axis, value.aval.ndim)
    highest = _constant_max(value, axis, where)
    shifted = fnp.subtract(value, highest)
    if where is not None:  # masked before the exponential, so that its derivative has no infinity or NaN
        shifted = fnp.where(where, shifted, -math.inf)
    powers = fnp.exp(shifted)
    # One division for each row instead of one for each element, in the backward pass too.
    probabilities = fnp.multiply(powers, fnp.reciprocal(fnp.sum(powers, axis, keepdims=True)))
    return probabilities if where is None else fnp.where(where, probabilities, 0)


def log_softmax(x: ArrayLike, axis: AxisLike = -1, where: ArrayLike | None = None) -> Array:
    """Computes the logarithm of `softmax`, without intermediate underflow.

    Args:
        x: an array of floats; integers are converted.
        axis: the axis or axes to normalize over; None means all.
        where: a mask that broadcasts against `x`; elements where it is false are left out, and their results are minus
            infinity.

    Returns:
        An array of the shape of `x`.

    >>> log_softmax(fnp.array([-1000.0, 0.0])).tolist()
    [-1000.0, 0.0]
    """
    value = to_inexact(x, "log_softmax: x")
    axis = axes("log_softmax", axis, value.aval.ndim)
    highest = _constant_max(value, axis, where)
    if where is None:
        shifted = fnp.subtract(value, highest)
        return fnp.subtract(shifted, fnp.log(fnp.sum(fnp.exp(shifted), axis, keepdims=True)))
    shifted = fnp.subtract(fnp.where(where, value, -math.inf), highest)
    total = fnp.log(fnp.sum(fnp.exp(shifted), axis, keepdims=True, where=where))
    return fnp.where(where, fnp.subtract(shifted, total), -math.inf)


def _constant_max(x: Value, axis: AxisLike, where: ArrayLike | None) -> Array:
    """Returns the maximum along `axis` without derivatives: the results do not depend on what is subtracted."""
    return stop_gradient(fnp.max(x, axis, keepdims=True, initial=-math.inf, where=where))


@overload
def logsumexp(
    a: ArrayLike,
    axis: AxisLike = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    return_sign: Literal[False] = False,
    where: ArrayLike | None = None,
) -> Array: ...
@overload
def logsumexp(
    a: ArrayLike,
    axis: AxisLike = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    *,
    return_sign: Literal[True],
    where: ArrayLike | None = None,
) -> tuple[Array, Array]: ...
def logsumexp(
    a: ArrayLike,
    axis: AxisLike = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    return_sign: bool = False,
    where: ArrayLike | None = None,
) -> Array | tuple[Array, Array]:
    """Computes `log(sum(b * exp(a)))` over `axis`, without intermediate overflow.

    Args:
        a: an array of floats or complex numbers; integers are converted.
        axis: the axis or axes to reduce over; None means all.
        b: factors of the exponentials, which broadcast against `a`; 1 by default.
        keepdims: whether the reduced axes stay, with size 1.
        return_sign: whether to return the logarithm of the absolute value of the sum, and its sign. Otherwise the
            result is NaN where the sum is negative.
        where: a mask that broadcasts against the array; elements where it is false are left out.

    Returns:
        The logarithm, and with `return_sign` also the sign. The logarithm of an empty sum is minus infinity.

    >>> logsumexp(fnp.array([1000.0, 1000.0]))
    Array(1000.6932, dtype=float32)
    """
    if where is not None:
        a = fnp.where(where, a, 0)
    factors: Value | None = None
    if b is None:
        value = as_array(to_inexact(a, "logsumexp: a"))
    else:
        exponents, factors = promote_args_inexact("logsumexp", a, b)
        value = fnp.where(fnp.not_equal(factors, 0), exponents, -math.inf)
    reduced_axes = axes("logsumexp", axis, value.ndim)
    highest = fnp.max(fnp.real(value), axis, initial=-math.inf, where=where)
    highest = stop_gradient(fnp.where(fnp.isfinite(highest), highest, 0))
    kept_maximum = fnp.expand_dims(highest, reduced_axes)
    powers = fnp.exp(fnp.subtract(value, kept_maximum))
    if factors is not None:
        powers = fnp.multiply(powers, factors)
    total = fnp.sum(powers, axis, keepdims=keepdims, where=where)
    sign = fnp.sign(total)
    if return_sign or not dtypes.is_complex(total.dtype):
        total = fnp.absolute(total)
    out = fnp.add(fnp.log(total), kept_maximum if keepdims else highest)
    if factors is not None and not return_sign and not dtypes.is_complex(out.dtype):
        out = fnp.where(fnp.less(sign, 0), math.nan, out)
    return (out, sign) if return_sign else out


def logmeanexp(x: ArrayLike, axis: AxisLike = None, where: ArrayLike | None = None, keepdims: bool = False) -> Array:
    """Computes `log(mean(exp(x)))` over `axis`, without intermediate overflow.

    Args:
        x: an array of floats; integers are converted.
        axis: the axis or axes to reduce over; None means all.
        where: a mask that broadcasts against the array; elements where it is false are left out.
        keepdims: whether the reduced axes stay, with size 1.

    Returns:
        The logarithm of the mean.

    >>> logmeanexp(fnp.array([1000.0, 1000.0]))
    Array(1000., dtype=float32)
    """
    total = logsumexp(x, axis, keepdims=keepdims, where=where)
    ones = fnp.ones_like(as_array(to_inexact(x, "logmeanexp: x")), total.dtype)
    return total - fnp.log(fnp.sum(ones, axis, keepdims=keepdims, where=where))


def standardize(
    x: ArrayLike,
    axis: AxisLike = -1,
    mean: ArrayLike | None = None,
    variance: ArrayLike | None = None,
    epsilon: ArrayLike = 1e-5,
    where: ArrayLike | None = None,
    *,
    algorithm: Literal["fast", "stable"] = "fast",
) -> Array:
    """Computes `(x - mean) / sqrt(variance + epsilon)`, with the mean and variance over `axis`.

    Args:
        x: an array.
        axis: the axis or axes of the mean and variance; None means all.
        mean: the mean, which broadcasts against `x`; computed by default.
        variance: the variance, which broadcasts against `x`; computed by default.
        epsilon: added to the variance.
        where: a mask that broadcasts against the array; elements where it is false are left out.
        algorithm: `"fast"` computes the variance as `mean(x**2) - mean(x)**2`, which loses digits where the mean is
            large; `"stable"` as `mean((x - mean(x))**2)`.

    Returns:
        An array of the shape of `x`.

    Raises:
        ValueError: if `algorithm` is unknown.

    >>> standardize(fnp.array([1.0, 3.0]), epsilon=0.0).tolist()
    [-1.0, 1.0]
    """
    if algorithm not in ("fast", "stable"):
        raise ValueError(f"standardize: algorithm must be 'fast' or 'stable', got {algorithm!r}")
    value = as_array(as_value(x, "standardize: x"))
    axis = axes("standardize", axis, value.ndim)
    center = fnp.mean(value, axis, keepdims=True, where=where) if mean is None else as_array(mean)
    if variance is not None:
        spread = as_array(variance)
    elif algorithm == "stable":
        spread = fnp.mean(fnp.square(value - center), axis, keepdims=True, where=where)
    else:
        square = fnp.mean(fnp.square(value), axis, keepdims=True, where=where)
        spread = fnp.clip(square - fnp.square(center), 0)
    return (value - center) * rsqrt(fnp.add(spread, epsilon))
