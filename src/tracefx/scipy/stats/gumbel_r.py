"""The right-skewed Gumbel distribution: the limit distribution of the maximum of many numbers."""

from __future__ import annotations

import tracefx.numpy as fnp
from tracefx.core.array import Array, ArrayLike
from tracefx.scipy.stats.standardization import (
    nan_unless_positive,
    nan_unless_probability,
    promote_real,
    standardize_arguments,
)


def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the logarithm of the probability density of the right-skewed Gumbel distribution.

    Args:
        x: the point.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The log density, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logpdf(0.5)), 4)
    -1.1065
    """
    z, scale = standardize_arguments("gumbel_r.logpdf", x, loc, scale)
    return -z - fnp.exp(-z) - fnp.log(scale)


def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the probability density of the right-skewed Gumbel distribution.

    The density is `exp(-z - exp(-z)) / scale` with `z = (x - loc) / scale`.

    Args:
        x: the point.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The density, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(pdf(0.5)), 4)
    0.3307
    """
    return fnp.exp(logpdf(x, loc, scale))


def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the logarithm of the cumulative distribution function of the right-skewed Gumbel distribution.

    Args:
        x: the point.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The log probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logcdf(0.5)), 4)
    -0.6065
    """
    z, _ = standardize_arguments("gumbel_r.logcdf", x, loc, scale)
    return -fnp.exp(-z)


def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the cumulative distribution function of the right-skewed Gumbel distribution.

    Args:
        x: the point.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(cdf(0.5)), 4)
    0.5452
    """
    return fnp.exp(logcdf(x, loc, scale))


def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the survival function of the right-skewed Gumbel distribution: the probability of more than `x`.

    Args:
        x: the point.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(sf(0.5)), 4)
    0.4548
    """
    return -fnp.expm1(logcdf(x, loc, scale))


def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the logarithm of the survival function of the right-skewed Gumbel distribution.

    Args:
        x: the point.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The log probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logsf(0.5)), 4)
    -0.788
    """
    return fnp.log(sf(x, loc, scale))


def ppf(p: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the quantile function of the right-skewed Gumbel distribution, the inverse of `cdf`.

    Args:
        p: the probability; the result is NaN unless it is between 0 and 1.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The point that is not exceeded with this probability, an array of floats of the shape that the arguments
        broadcast to.

    >>> round(float(ppf(0.25)), 4)
    -0.3266
    """
    share, shift, scale = promote_real("gumbel_r.ppf", p, loc, scale)
    return shift - nan_unless_positive(scale) * fnp.log(-fnp.log(nan_unless_probability(share)))
