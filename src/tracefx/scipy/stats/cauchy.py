"""The Cauchy distribution."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.core.array import Array, ArrayLike
from tracefx.scipy.stats.standardization import nan_unless_positive, promote_real, standardize_arguments


def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the logarithm of the probability density of the Cauchy distribution.

    Args:
        x: the point.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The log density, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logpdf(0.5)), 4)
    -1.3679
    """
    z, scale = standardize_arguments("cauchy.logpdf", x, loc, scale)
    size = fnp.abs(z)
    large = size > 1e4  # the square may overflow
    inner, outer = fnp.where(large, 0.0, z), fnp.where(large, size, 1.0)
    square = fnp.where(large, 2 * fnp.log(outer) + fnp.log1p((1 / outer) ** 2), fnp.log1p(inner * inner))
    return -(square + fnp.log(math.pi * scale))


def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the probability density of the Cauchy distribution.

    The density is `1 / (pi * scale * (1 + z**2))` with `z = (x - loc) / scale`.

    Args:
        x: the point.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The density, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(pdf(0.5)), 4)
    0.2546
    """
    return fnp.exp(logpdf(x, loc, scale))


def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the cumulative distribution function of the Cauchy distribution: the probability of at most `x`.

    Args:
        x: the point.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(cdf(0.5)), 4)
    0.6476
    """
    z, _ = standardize_arguments("cauchy.cdf", x, loc, scale)
    return fnp.arctan2(fnp.ones_like(z), -z) / math.pi


def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the logarithm of the cumulative distribution function of the Cauchy distribution.

    Args:
        x: the point.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The log probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logcdf(0.5)), 4)
    -0.4345
    """
    return fnp.log(cdf(x, loc, scale))


def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the survival function of the Cauchy distribution: the probability of more than `x`.

    Args:
        x: the point.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(sf(0.5)), 4)
    0.3524
    """
    z, _ = standardize_arguments("cauchy.sf", x, loc, scale)
    return fnp.arctan2(fnp.ones_like(z), z) / math.pi


def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the logarithm of the survival function of the Cauchy distribution.

    Args:
        x: the point.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The log probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logsf(0.5)), 4)
    -1.0429
    """
    return fnp.log(sf(x, loc, scale))


def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the quantile function of the Cauchy distribution, the inverse of `cdf`.

    Args:
        q: the probability; the result is NaN unless it is between 0 and 1.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The point that is not exceeded with this probability, an array of floats of the shape that the arguments
        broadcast to.

    >>> round(float(ppf(0.25)), 4)
    -1.0
    """
    p, shift, scale = promote_real("cauchy.ppf", q, loc, scale)
    return shift - nan_unless_positive(scale) * _cotangent(p)


def isf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the inverse survival function of the Cauchy distribution.

    Args:
        q: the probability; the result is NaN unless it is between 0 and 1.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The point that is exceeded with this probability, an array of floats of the shape that the arguments broadcast
        to.

    >>> round(float(isf(0.25)), 4)
    1.0
    """
    p, shift, scale = promote_real("cauchy.isf", q, loc, scale)
    return shift + nan_unless_positive(scale) * _cotangent(p)


def _cotangent(p: Array) -> Array:
    """Returns the cotangent of `pi * p`: infinite at 0 and 1, NaN outside."""
    low = p < 0.25
    high = p > 0.75
    ends = fnp.where(low, p, fnp.where(high, p - 1, 0.25))
    centre = fnp.where(low | high, 0.0, 0.5 - p)
    value = fnp.where(low | high, 1 / fnp.tan(math.pi * ends), fnp.tan(math.pi * centre))
    return fnp.where((p >= 0) & (p <= 1), fnp.where(p == 1, -math.inf, value), math.nan)
