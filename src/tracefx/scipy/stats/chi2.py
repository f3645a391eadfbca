"""The chi-squared distribution: that of gamma with half as many degrees, twice as wide."""

from __future__ import annotations

from tracefx.core.array import Array, ArrayLike
from tracefx.scipy.stats import gamma
from tracefx.scipy.stats.standardization import promote_real


def logpdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the probability density.

    >>> round(float(logpdf(2.5, 3.0)), 4)
    -1.7108
    """
    value, df, shift, scale = promote_real("chi2.logpdf", x, df, loc, scale)
    return gamma.logpdf(value, df / 2, shift, 2 * scale)


def pdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability density.

    >>> round(float(pdf(2.5, 3.0)), 4)
    0.1807
    """
    value, df, shift, scale = promote_real("chi2.pdf", x, df, loc, scale)
    return gamma.pdf(value, df / 2, shift, 2 * scale)


def cdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability of at most `x`.

    >>> round(float(cdf(2.5, 3.0)), 4)
    0.5247
    """
    value, df, shift, scale = promote_real("chi2.cdf", x, df, loc, scale)
    return gamma.cdf(value, df / 2, shift, 2 * scale)


def logcdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of `cdf`.

    >>> round(float(logcdf(2.5, 3.0)), 4)
    -0.6449
    """
    value, df, shift, scale = promote_real("chi2.logcdf", x, df, loc, scale)
    return gamma.logcdf(value, df / 2, shift, 2 * scale)


def sf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability of more than `x`.

    >>> round(float(sf(2.5, 3.0)), 4)
    0.4753
    """
    value, df, shift, scale = promote_real("chi2.sf", x, df, loc, scale)
    return gamma.sf(value, df / 2, shift, 2 * scale)


def logsf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of `sf`.

    >>> round(float(logsf(2.5, 3.0)), 4)
    -0.7438
    """
    value, df, shift, scale = promote_real("chi2.logsf", x, df, loc, scale)
    return gamma.logsf(value, df / 2, shift, 2 * scale)
