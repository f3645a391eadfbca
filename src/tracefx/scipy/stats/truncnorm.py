"""The truncated normal distribution."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.core.array import Array, ArrayLike
from tracefx.scipy import special
from tracefx.scipy.stats import norm
from tracefx.scipy.stats.standardization import standardize_arguments


def logpdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the logarithm of the probability density of the truncated normal distribution.

    Args:
        x: the point.
        a: the lower bound of `(x - loc) / scale`.
        b: the upper bound of `(x - loc) / scale`; the result is NaN unless `a < b`.
        loc: the mean of the distribution before truncation.
        scale: the standard deviation before truncation, positive.

    Returns:
        The log density, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logpdf(0.5, -1.0, 2.0)), 4)
    -0.8438
    """
    z, a, b, scale = standardize_arguments("truncnorm.logpdf", x, loc, scale, a, b)
    value = norm.logpdf(z) - fnp.log(scale) - log_mass(a, b)
    return fnp.where(a < b, fnp.where((z < a) | (z > b), -math.inf, value), math.nan)


def pdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the probability density of the truncated normal distribution.

    The density is the normal density divided by the probability of the interval.

    Args:
        x: the point.
        a: the lower bound of `(x - loc) / scale`.
        b: the upper bound of `(x - loc) / scale`; the result is NaN unless `a < b`.
        loc: the mean of the distribution before truncation.
        scale: the standard deviation before truncation, positive.

    Returns:
        The density, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(pdf(0.5, -1.0, 2.0)), 4)
    0.4301
    """
    return fnp.exp(logpdf(x, a, b, loc, scale))


def logcdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the logarithm of the cumulative distribution function of the truncated normal distribution.

    Args:
        x: the point.
        a: the lower bound of `(x - loc) / scale`.
        b: the upper bound of `(x - loc) / scale`; the result is NaN unless `a < b`.
        loc: the mean of the distribution before truncation.
        scale: the standard deviation before truncation, positive.

    Returns:
        The log probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logcdf(0.5, -1.0, 2.0)), 4)
    -0.4294
    """
    z, a, b, _ = standardize_arguments("truncnorm.logcdf", x, loc, scale, a, b)
    return _log_share(z, a, b)


def cdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the cumulative distribution function of the truncated normal distribution.

    Args:
        x: the point.
        a: the lower bound of `(x - loc) / scale`.
        b: the upper bound of `(x - loc) / scale`; the result is NaN unless `a < b`.
        loc: the mean of the distribution before truncation.
        scale: the standard deviation before truncation, positive.

    Returns:
        The probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(cdf(0.5, -1.0, 2.0)), 4)
    0.6509
    """
    return fnp.exp(logcdf(x, a, b, loc, scale))


def logsf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the logarithm of the survival function of the truncated normal distribution.

    Args:
        x: the point.
        a: the lower bound of `(x - loc) / scale`.
        b: the upper bound of `(x - loc) / scale`; the result is NaN unless `a < b`.
        loc: the mean of the distribution before truncation.
        scale: the standard deviation before truncation, positive.

    Returns:
        The log probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logsf(0.5, -1.0, 2.0)), 4)
    -1.0523
    """
    z, a, b, _ = standardize_arguments("truncnorm.logsf", x, loc, scale, a, b)
    return _log_share(-z, -b, -a)


def sf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the survival function of the truncated normal distribution: the probability of more than `x`.

    Args:
        x: the point.
        a: the lower bound of `(x - loc) / scale`.
        b: the upper bound of `(x - loc) / scale`; the result is NaN unless `a < b`.
        loc: the mean of the distribution before truncation.
        scale: the standard deviation before truncation, positive.

    Returns:
        The probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(sf(0.5, -1.0, 2.0)), 4)
    0.3491
    """
    return fnp.exp(logsf(x, a, b, loc, scale))


def _log_share(z: Array, a: Array, b: Array) -> Array:
    """Returns the logarithm of the probability of the interval from `a` to `z`, relative to that from `a` to `b`."""
    inside = (z > a) & (z < b)
    y = fnp.where(inside, z, 0.5 * (a + b))
    whole = log_mass(a, b)
    below, above = log_mass(a, y) - whole, log_mass(y, b) - whole
    near = below > -0.1  # the complement is more accurate
    value = fnp.where(near, fnp.log1p(-fnp.exp(fnp.where(near, above, -1.0))), below)
    value = fnp.where(inside, value, fnp.where(z >= b, 0.0, fnp.where(z <= a, -math.inf, math.nan)))
    return fnp.where(a < b, value, math.nan)


def log_mass(a: Array, b: Array) -> Array:
    """Computes the logarithm of the standard normal probability of the interval from `a` to `b`, for `a < b`.

    An interval on one side of 0 is a difference of tail probabilities of that side; otherwise both tails are subtracted
    from 1.
    """
    right = a > 0
    aside = right | (b <= 0)
    low, high = fnp.where(right, -b, a), fnp.where(right, -a, b)
    low, high = fnp.where(aside, low, -2.0), fnp.where(aside, high, -1.0)
    greater = special.log_ndtr(high)
    tail = greater + fnp.log(-fnp.expm1(special.log_ndtr(low) - greater))
    left, up = fnp.where(aside, -1.0, a), fnp.where(aside, 1.0, b)
    return fnp.where(aside, tail, fnp.log1p(-(special.ndtr(left) + special.ndtr(-up))))
