"""The exponential distribution."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.core.array import Array, ArrayLike
from tracefx.scipy.stats.standardization import nan_unless_probability, promote_real, standardize_arguments, widths


def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the probability density.

    >>> round(float(logpdf(0.5)), 4)
    -0.5
    """
    z, scale = standardize_arguments("expon.logpdf", x, loc, scale)
    return fnp.where(z < 0, -math.inf, -z - fnp.log(scale))


def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability density.

    >>> round(float(pdf(0.5)), 4)
    0.6065
    """
    return fnp.exp(logpdf(x, loc, scale))


def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability of at most `x`.

    >>> round(float(cdf(0.5)), 4)
    0.3935
    """
    return -fnp.expm1(logsf(x, loc, scale))


def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of `cdf`.

    >>> round(float(logcdf(0.5)), 4)
    -0.9328
    """
    return fnp.log(cdf(x, loc, scale))


def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of `sf`.

    >>> round(float(logsf(0.5)), 4)
    -0.5
    """
    z, _ = standardize_arguments("expon.logsf", x, loc, scale)
    return fnp.where(z < 0, 0.0, -z)


def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability of more than `x`.

    >>> round(float(sf(0.5)), 4)
    0.6065
    """
    return fnp.exp(logsf(x, loc, scale))


def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The number that is not exceeded with probability `q`.

    >>> round(float(ppf(0.25)), 4)
    0.2877
    """
    p, shift, scale = promote_real("expon.ppf", q, loc, scale)
    return shift - widths(scale) * fnp.log1p(-nan_unless_probability(p))
