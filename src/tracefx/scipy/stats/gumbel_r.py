"""Gumbel's distribution of the largest of many numbers."""

from __future__ import annotations

import tracefx.numpy as fnp
from tracefx.core.array import Array, ArrayLike
from tracefx.scipy.stats.standardization import nan_unless_probability, promote_real, standardize_arguments, widths


def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the probability density.

    >>> round(float(logpdf(0.5)), 4)
    -1.1065
    """
    z, scale = standardize_arguments("gumbel_r.logpdf", x, loc, scale)
    return -z - fnp.exp(-z) - fnp.log(scale)


def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability density.

    >>> round(float(pdf(0.5)), 4)
    0.3307
    """
    return fnp.exp(logpdf(x, loc, scale))


def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of `cdf`.

    >>> round(float(logcdf(0.5)), 4)
    -0.6065
    """
    z, _ = standardize_arguments("gumbel_r.logcdf", x, loc, scale)
    return -fnp.exp(-z)


def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability of at most `x`.

    >>> round(float(cdf(0.5)), 4)
    0.5452
    """
    return fnp.exp(logcdf(x, loc, scale))


def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability of more than `x`.

    >>> round(float(sf(0.5)), 4)
    0.4548
    """
    return -fnp.expm1(logcdf(x, loc, scale))


def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of `sf`.

    >>> round(float(logsf(0.5)), 4)
    -0.788
    """
    return fnp.log(sf(x, loc, scale))


def ppf(p: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The number that is not exceeded with probability `p`.

    >>> round(float(ppf(0.25)), 4)
    -0.3266
    """
    share, shift, scale = promote_real("gumbel_r.ppf", p, loc, scale)
    return shift - widths(scale) * fnp.log(-fnp.log(nan_unless_probability(share)))
