"""Numerically stable functions of logarithms and exponentials: the logistic function, entropies, Box-Cox."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx import nn
from tracefx.control.special.log_gamma import log1p_remainder
from tracefx.core import Array, ArrayLike, AxisLike, dtypes
from tracefx.numpy.operand_promotion import promote_args_inexact
from tracefx.ops.elementwise.transcendental import log, log1p, logistic
from tracefx.scipy.special.argument_promotion import promote_real
from tracefx.transforms.custom_derivatives import custom_jvp


def logit(x: ArrayLike) -> Array:
    """Computes `log(x / (1 - x))`, accurate near 1/2 as well.

    Args:
        x: an array of numbers between 0 and 1.

    Returns:
        An array of floats of the shape of `x`.

    >>> float(logit(0.5))
    0.0
    """
    return _logit(*promote_real("logit", x))


@custom_jvp
def _logit(x: Array) -> Array:
    is_near_half = fnp.abs(x - 0.5) < 0.1
    centered = fnp.where(is_near_half, 2 * x - 1, 0.0)  # exact there
    return fnp.where(is_near_half, 2 * fnp.arctanh(centered), log(x / (1 - x)))


_logit.defjvps(lambda t, out, x: t / (x * (1 - x)))


def expit(x: ArrayLike) -> Array:
    """Computes the logistic function, `1 / (1 + exp(-x))`.

    Args:
        x: an array of floats or complex numbers; integers are converted.

    Returns:
        An array of the shape of `x`.

    >>> float(expit(0.0))
    0.5
    """
    return logistic(*promote_args_inexact("expit", x))


def xlogy(x: ArrayLike, y: ArrayLike) -> Array:
    """Computes `x * log(y)`; 0 where `x` is 0, unless `y` is NaN.

    Args:
        x: an array of floats or complex numbers; integers are converted.
        y: an array of floats or complex numbers; integers are converted.

    Returns:
        An array of the shape that the arguments broadcast to.

    >>> float(xlogy(0.0, 0.0))
    0.0
    """
    return _xlogy(*[fnp.asarray(v) for v in promote_args_inexact("xlogy", x, y)])


@custom_jvp
def _xlogy(x: Array, y: Array) -> Array:
    return fnp.where((x != 0) | (y != y), x * log(y), fnp.zeros_like(x))


_xlogy.defjvps(lambda t, out, x, y: t * log(y), lambda t, out, x, y: t * (x / y))


def xlog1py(x: ArrayLike, y: ArrayLike) -> Array:
    """Computes `x * log(1 + y)`; 0 where `x` is 0, unless `y` is NaN.

    Args:
        x: an array of floats or complex numbers; integers are converted.
        y: an array of floats or complex numbers; integers are converted.

    Returns:
        An array of the shape that the arguments broadcast to.

    >>> float(xlog1py(0.0, -1.0))
    0.0
    """
    return _xlog1py(*[fnp.asarray(v) for v in promote_args_inexact("xlog1py", x, y)])


@custom_jvp
def _xlog1py(x: Array, y: Array) -> Array:
    return fnp.where((x != 0) | (y != y), x * log1p(y), fnp.zeros_like(x))


_xlog1py.defjvps(lambda t, out, x, y: t * log1p(y), lambda t, out, x, y: t * (x / (1 + y)))


@custom_jvp
def _xlogx(x: Array) -> Array:
    return _xlogy(x, x)


_xlogx.defjvps(lambda t, out, x: t * (log(x) + 1))


def entr(x: ArrayLike) -> Array:
    """Computes the elementwise entropy `-x * log(x)`.

    Args:
        x: an array of real numbers.

    Returns:
        An array of floats of the shape of `x`; 0 at 0, minus infinity for negative numbers.

    >>> float(entr(0.0))
    0.0
    """
    (value,) = promote_real("entr", x)
    is_negative = value < 0
    return fnp.where(is_negative, -math.inf, 0.0 - _xlogx(fnp.where(is_negative, 1.0, value)))


def rel_entr(p: ArrayLike, q: ArrayLike) -> Array:
    """Computes the elementwise relative entropy `p * log(p / q)`.

    Args:
        p: an array of real numbers.
        q: an array of real numbers.

    Returns:
        An array of floats of the shape that the arguments broadcast to; 0 where `p` is 0 and `q` is not negative,
        infinite elsewhere unless both are positive.

    >>> float(rel_entr(1.0, 1.0))
    0.0
    """
    x, y = promote_real("rel_entr", p, q)
    is_nan = (x != x) | (y != y)
    is_zero = (x == 0) & (y >= 0)
    are_positive = (x > 0) & (y > 0)
    a, b = fnp.where(are_positive, x, 1.0), fnp.where(are_positive, y, 1.0)
    ratio = a / b
    is_near_one = (ratio > 0.8) & (ratio < 1.2)
    logs = fnp.where(is_near_one, log1p(fnp.where(is_near_one, (a - b) / b, 0.0)), log(a) - log(b))
    value = fnp.where(are_positive, a * logs, fnp.where(is_zero, 0.0, math.inf))
    return fnp.where(is_nan, x + y, value)


def kl_div(p: ArrayLike, q: ArrayLike) -> Array:
    """Computes the elementwise Kullback-Leibler divergence `p * log(p / q) - p + q`.

    Args:
        p: an array of real numbers.
        q: an array of real numbers.

    Returns:
        An array of floats of the shape that the arguments broadcast to; infinite where an argument is negative.

    >>> float(kl_div(1.0, 1.0))
    0.0
    """
    x, y = promote_real("kl_div", p, q)
    is_close = (x > 0) & (y > 0) & (fnp.abs(x - y) < 0.5 * y)
    relative_difference = fnp.where(is_close, (x - y) / fnp.where(is_close, y, 1.0), 0.0)
    series_value = y * (
        relative_difference * relative_difference
        - (1 + relative_difference) * log1p_remainder(relative_difference, 1 + relative_difference)
    )
    relative_entropy = rel_entr(x, y)
    return fnp.where(
        is_close,
        series_value,
        fnp.where((relative_entropy == math.inf) & ~((x > 0) & (y > 0)), relative_entropy, relative_entropy - x + y),
    )


# ------------------------------------------------------------------ Box-Cox transformations


def boxcox(x: ArrayLike, lmbda: ArrayLike) -> Array:
    """Computes the Box-Cox transformation `(x**lmbda - 1) / lmbda`.

    Args:
        x: an array of real numbers; the result is NaN where they are negative.
        lmbda: the power; for 0 the result is `log(x)`.

    Returns:
        An array of floats of the shape that the arguments broadcast to.

    >>> float(boxcox(1.0, 2.0))
    0.0
    """
    value, power = promote_real("boxcox", x, lmbda)
    return _boxcox(log(fnp.where(value < 0, math.nan, value)), power)


def boxcox1p(x: ArrayLike, lmbda: ArrayLike) -> Array:
    """Computes the Box-Cox transformation of `1 + x`: `((1 + x)**lmbda - 1) / lmbda`.

    Args:
        x: an array of real numbers.
        lmbda: the power; for 0 the result is `log(1 + x)`.

    Returns:
        An array of floats of the shape that the arguments broadcast to.

    >>> float(boxcox1p(0.0, 2.0))
    0.0
    """
    value, power = promote_real("boxcox1p", x, lmbda)
    return _boxcox(log1p(value), power)


def _boxcox(logs: Array, power: Array) -> Array:
    """Computes `(exp(power * logs) - 1) / power`, by the first terms of its series where `power * logs` is small."""
    exponent = fnp.where(power == 0, 0.0, power * logs)
    is_small = fnp.abs(exponent) < 1e-3 if logs.dtype == dtypes.float64 else fnp.abs(exponent) < 0.05
    safe_exponent = fnp.where(is_small & fnp.isfinite(logs), exponent, 0.0)
    series = logs * (
        1
        + safe_exponent
        / 2
        * (1 + safe_exponent / 3 * (1 + safe_exponent / 4 * (1 + safe_exponent / 5 * (1 + safe_exponent / 6))))
    )
    divisor = fnp.where(is_small, 1.0, power)
    return fnp.where(is_small, series, fnp.expm1(fnp.where(is_small, 1.0, exponent)) / divisor)


# ------------------------------------------------------------------ reductions


def softmax(x: ArrayLike, /, *, axis: AxisLike = None) -> Array:
    """Computes `exp(x) / sum(exp(x))` over `axis`.

    Args:
        x: an array of floats; integers are converted.
        axis: the axis or axes to normalize over; None means all.

    Returns:
        An array of the shape of `x`.

    >>> softmax(fnp.array([1000.0, 1000.0])).tolist()
    [0.5, 0.5]
    """
    return nn.softmax(x, axis)


def log_softmax(x: ArrayLike, /, *, axis: AxisLike = None) -> Array:
    """Computes the logarithm of `softmax`.

    Args:
        x: an array of floats; integers are converted.
        axis: the axis or axes to normalize over; None means all.

    Returns:
        An array of the shape of `x`.

    >>> log_softmax(fnp.array([-1000.0, 0.0])).tolist()
    [-1000.0, 0.0]
    """
    return nn.log_softmax(x, axis)


logsumexp = nn.logsumexp
