"""The logistic distribution."""

from __future__ import annotations

import tracefx.numpy as fnp
from tracefx.core.array import Array, ArrayLike
from tracefx.scipy import special
from tracefx.scipy.stats.standardization import nan_unless_positive, promote_real, standardize_arguments


def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the logarithm of the probability density of the logistic distribution.

    Args:
        x: the point.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The log density, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logpdf(0.5)), 4)
    -1.4482
    """
    z, scale = standardize_arguments("logistic.logpdf", x, loc, scale)
    return -2 * fnp.logaddexp(0.5 * z, -0.5 * z) - fnp.log(scale)


def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the probability density of the logistic distribution.

    The density is `exp(-z) / (scale * (1 + exp(-z))**2)` with `z = (x - loc) / scale`.

    Args:
        x: the point.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The density, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(pdf(0.5)), 4)
    0.235
    """
    return fnp.exp(logpdf(x, loc, scale))


def ppf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the quantile function of the logistic distribution, the inverse of `cdf`.

    Args:
        x: the probability; the result is NaN unless it is between 0 and 1.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The point that is not exceeded with this probability, an array of floats of the shape that the arguments
        broadcast to.

    >>> round(float(ppf(0.25)), 4)
    -1.0986
    """
    p, shift, scale = promote_real("logistic.ppf", x, loc, scale)
    return special.logit(p) * nan_unless_positive(scale) + shift


def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the survival function of the logistic distribution: the probability of more than `x`.

    Args:
        x: the point.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(sf(0.5)), 4)
    0.3775
    """
    return special.expit(-standardize_arguments("logistic.sf", x, loc, scale)[0])


def isf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the inverse survival function of the logistic distribution.

    Args:
        x: the probability; the result is NaN unless it is between 0 and 1.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The point that is exceeded with this probability, an array of floats of the shape that the arguments broadcast
        to.

    >>> round(float(isf(0.25)), 4)
    1.0986
    """
    p, shift, scale = promote_real("logistic.isf", x, loc, scale)
    return -special.logit(p) * nan_unless_positive(scale) + shift


def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the cumulative distribution function of the logistic distribution: the probability of at most `x`.

    Args:
        x: the point.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(cdf(0.5)), 4)
    0.6225
    """
    return special.expit(standardize_arguments("logistic.cdf", x, loc, scale)[0])
