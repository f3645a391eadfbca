"""The chi-squared distribution: the gamma distribution with shape `df / 2` and twice the scale."""

from __future__ import annotations

from tracefx.core.array import Array, ArrayLike
from tracefx.scipy.stats import gamma
from tracefx.scipy.stats.standardization import promote_real


def logpdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the logarithm of the probability density of the chi-squared distribution.

    Args:
        x: the point.
        df: the degrees of freedom, positive.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The log density, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logpdf(2.5, 3.0)), 4)
    -1.7108
    """
    value, df, shift, scale = promote_real("chi2.logpdf", x, df, loc, scale)
    return gamma.logpdf(value, df / 2, shift, 2 * scale)


def pdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the probability density of the chi-squared distribution.

    The density is `z**(df / 2 - 1) * exp(-z / 2) / (2**(df / 2) * gamma(df / 2) * scale)` with
    `z = (x - loc) / scale >= 0`; 0 elsewhere.

    Args:
        x: the point.
        df: the degrees of freedom, positive.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The density, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(pdf(2.5, 3.0)), 4)
    0.1807
    """
    value, df, shift, scale = promote_real("chi2.pdf", x, df, loc, scale)
    return gamma.pdf(value, df / 2, shift, 2 * scale)


def cdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the cumulative distribution function of the chi-squared distribution: the probability of at most `x`.

    Args:
        x: the point.
        df: the degrees of freedom, positive.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(cdf(2.5, 3.0)), 4)
    0.5247
    """
    value, df, shift, scale = promote_real("chi2.cdf", x, df, loc, scale)
    return gamma.cdf(value, df / 2, shift, 2 * scale)


def logcdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the logarithm of the cumulative distribution function of the chi-squared distribution.

    Args:
        x: the point.
        df: the degrees of freedom, positive.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The log probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logcdf(2.5, 3.0)), 4)
    -0.6449
    """
    value, df, shift, scale = promote_real("chi2.logcdf", x, df, loc, scale)
    return gamma.logcdf(value, df / 2, shift, 2 * scale)


def sf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the survival function of the chi-squared distribution: the probability of more than `x`.

    Args:
        x: the point.
        df: the degrees of freedom, positive.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(sf(2.5, 3.0)), 4)
    0.4753
    """
    value, df, shift, scale = promote_real("chi2.sf", x, df, loc, scale)
    return gamma.sf(value, df / 2, shift, 2 * scale)


def logsf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the logarithm of the survival function of the chi-squared distribution.

    Args:
        x: the point.
        df: the degrees of freedom, positive.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The log probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logsf(2.5, 3.0)), 4)
    -0.7438
    """
    value, df, shift, scale = promote_real("chi2.logsf", x, df, loc, scale)
    return gamma.logsf(value, df / 2, shift, 2 * scale)
