"""The Pareto distribution."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.core.array import Array, ArrayLike
from tracefx.scipy.stats.standardization import (
    nan_unless_positive,
    nan_unless_probability,
    promote_real,
    standardize_arguments,
)


def logpdf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the logarithm of the probability density of the Pareto distribution.

    Args:
        x: the point.
        b: the shape parameter, positive.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The log density, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logpdf(2.5, 1.5)), 4)
    -1.8853
    """
    z, b, scale = standardize_arguments("pareto.logpdf", x, loc, scale, b)
    return fnp.where(z < 1, -math.inf, fnp.log(b) - fnp.log(scale) - (b + 1) * fnp.log(fnp.where(z < 1, 1.0, z)))


def pdf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the probability density of the Pareto distribution.

    The density is `b * z**-(b + 1) / scale` with `z = (x - loc) / scale >= 1`; 0 elsewhere.

    Args:
        x: the point.
        b: the shape parameter, positive.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The density, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(pdf(2.5, 1.5)), 4)
    0.1518
    """
    return fnp.exp(logpdf(x, b, loc, scale))


def cdf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the cumulative distribution function of the Pareto distribution: the probability of at most `x`.

    Args:
        x: the point.
        b: the shape parameter, positive.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(cdf(2.5, 1.5)), 4)
    0.747
    """
    return -fnp.expm1(logsf(x, b, loc, scale))


def logcdf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the logarithm of the cumulative distribution function of the Pareto distribution.

    Args:
        x: the point.
        b: the shape parameter, positive.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The log probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logcdf(2.5, 1.5)), 4)
    -0.2917
    """
    return fnp.log(cdf(x, b, loc, scale))


def logsf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the logarithm of the survival function of the Pareto distribution.

    Args:
        x: the point.
        b: the shape parameter, positive.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The log probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logsf(2.5, 1.5)), 4)
    -1.3744
    """
    z, b, _ = standardize_arguments("pareto.logsf", x, loc, scale, b)
    return fnp.where(z < 1, 0.0, -b * fnp.log(fnp.where(z < 1, 1.0, z)))


def sf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the survival function of the Pareto distribution: the probability of more than `x`.

    Args:
        x: the point.
        b: the shape parameter, positive.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(sf(2.5, 1.5)), 4)
    0.253
    """
    return fnp.exp(logsf(x, b, loc, scale))


def ppf(q: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the quantile function of the Pareto distribution, the inverse of `cdf`.

    Args:
        q: the probability; the result is NaN unless it is between 0 and 1.
        b: the shape parameter, positive.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The point that is not exceeded with this probability, an array of floats of the shape that the arguments
        broadcast to.

    >>> round(float(ppf(0.25, 1.5)), 4)
    1.2114
    """
    p, b, shift, scale = promote_real("pareto.ppf", q, b, loc, scale)
    return shift + nan_unless_positive(scale) * fnp.exp(-fnp.log1p(-nan_unless_probability(p)) / b)
