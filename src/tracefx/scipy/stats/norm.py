"""The normal distribution."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.core.array import Array, ArrayLike
from tracefx.scipy import special
from tracefx.scipy.stats.standardization import nan_unless_positive, promote_real, standardize_arguments


def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the logarithm of the probability density of the normal distribution.

    Args:
        x: the point.
        loc: the mean.
        scale: the standard deviation, positive.

    Returns:
        The log density, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logpdf(0.5)), 4)
    -1.0439
    """
    z, scale = standardize_arguments("norm.logpdf", x, loc, scale)
    return -0.5 * z * z - (fnp.log(scale) + 0.5 * math.log(2 * math.pi))


def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the probability density of the normal distribution.

    The density is `exp(-z**2 / 2) / (scale * sqrt(2 * pi))` with `z = (x - loc) / scale`.

    Args:
        x: the point.
        loc: the mean.
        scale: the standard deviation, positive.

    Returns:
        The density, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(pdf(0.5)), 4)
    0.3521
    """
    return fnp.exp(logpdf(x, loc, scale))


def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the cumulative distribution function of the normal distribution: the probability of at most `x`.

    Args:
        x: the point.
        loc: the mean.
        scale: the standard deviation, positive.

    Returns:
        The probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(cdf(0.5)), 4)
    0.6915
    """
    return special.ndtr(standardize_arguments("norm.cdf", x, loc, scale)[0])


def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the logarithm of the cumulative distribution function of the normal distribution.

    Args:
        x: the point.
        loc: the mean.
        scale: the standard deviation, positive.

    Returns:
        The log probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logcdf(0.5)), 4)
    -0.3689
    """
    return special.log_ndtr(standardize_arguments("norm.logcdf", x, loc, scale)[0])


def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the survival function of the normal distribution: the probability of more than `x`.

    Args:
        x: the point.
        loc: the mean.
        scale: the standard deviation, positive.

    Returns:
        The probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(sf(0.5)), 4)
    0.3085
    """
    return special.ndtr(-standardize_arguments("norm.sf", x, loc, scale)[0])


def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the logarithm of the survival function of the normal distribution.

    Args:
        x: the point.
        loc: the mean.
        scale: the standard deviation, positive.

    Returns:
        The log probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logsf(0.5)), 4)
    -1.1759
    """
    return special.log_ndtr(-standardize_arguments("norm.logsf", x, loc, scale)[0])


def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the quantile function of the normal distribution, the inverse of `cdf`.

    Args:
        q: the probability; the result is NaN unless it is between 0 and 1.
        loc: the mean.
        scale: the standard deviation, positive.

    Returns:
        The point that is not exceeded with this probability, an array of floats of the shape that the arguments
        broadcast to.

    >>> round(float(ppf(0.25)), 4)
    -0.6745
    """
    p, shift, scale = promote_real("norm.ppf", q, loc, scale)
    return special.ndtri(p) * nan_unless_positive(scale) + shift


def isf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the inverse survival function of the normal distribution.

    Args:
        q: the probability; the result is NaN unless it is between 0 and 1.
        loc: the mean.
        scale: the standard deviation, positive.

    Returns:
        The point that is exceeded with this probability, an array of floats of the shape that the arguments broadcast
        to.

    >>> round(float(isf(0.25)), 4)
    0.6745
    """
    p, shift, scale = promote_real("norm.isf", q, loc, scale)
    return -special.ndtri(p) * nan_unless_positive(scale) + shift
