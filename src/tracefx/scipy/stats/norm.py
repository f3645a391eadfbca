"""The normal distribution."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.core.array import Array, ArrayLike
from tracefx.scipy import special
from tracefx.scipy.stats.standardization import promote_real, standardize_arguments, widths


def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the probability density.

    >>> round(float(logpdf(0.5)), 4)
    -1.0439
    """
    z, scale = standardize_arguments("norm.logpdf", x, loc, scale)
    return -0.5 * z * z - (fnp.log(scale) + 0.5 * math.log(2 * math.pi))


def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability density.

    >>> round(float(pdf(0.5)), 4)
    0.3521
    """
    return fnp.exp(logpdf(x, loc, scale))


def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability of at most `x`.

    >>> round(float(cdf(0.5)), 4)
    0.6915
    """
    return special.ndtr(standardize_arguments("norm.cdf", x, loc, scale)[0])


def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of `cdf`.

    >>> round(float(logcdf(0.5)), 4)
    -0.3689
    """
    return special.log_ndtr(standardize_arguments("norm.logcdf", x, loc, scale)[0])


def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability of more than `x`.

    >>> round(float(sf(0.5)), 4)
    0.3085
    """
    return special.ndtr(-standardize_arguments("norm.sf", x, loc, scale)[0])


def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of `sf`.

    >>> round(float(logsf(0.5)), 4)
    -1.1759
    """
    return special.log_ndtr(-standardize_arguments("norm.logsf", x, loc, scale)[0])


def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The number that is not exceeded with probability `q`.

    >>> round(float(ppf(0.25)), 4)
    -0.6745
    """
    p, shift, scale = promote_real("norm.ppf", q, loc, scale)
    return special.ndtri(p) * widths(scale) + shift


def isf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The number that is exceeded with probability `q`.

    >>> round(float(isf(0.25)), 4)
    0.6745
    """
    p, shift, scale = promote_real("norm.isf", q, loc, scale)
    return -special.ndtri(p) * widths(scale) + shift
