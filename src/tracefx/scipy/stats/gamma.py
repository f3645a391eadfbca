"""The gamma distribution."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.control.special import incomplete_gamma
from tracefx.core.array import Array, ArrayLike
from tracefx.scipy import special
from tracefx.scipy.stats.standardization import standardize_arguments


def logpdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the logarithm of the probability density of the gamma distribution.

    Args:
        x: the point.
        a: the shape parameter, positive.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The log density, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logpdf(2.5, 1.5)), 4)
    -1.9211
    """
    z, a, scale = standardize_arguments("gamma.logpdf", x, loc, scale, a)
    inside = z >= 0
    y = fnp.where(inside, z, 1.0)
    return fnp.where(inside, special.xlogy(a - 1, y) - y - special.gammaln(a) - fnp.log(scale), -math.inf)


def pdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the probability density of the gamma distribution.

    The density is `z**(a - 1) * exp(-z) / (gamma(a) * scale)` with `z = (x - loc) / scale >= 0`; 0 elsewhere.

    Args:
        x: the point.
        a: the shape parameter, positive.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The density, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(pdf(2.5, 1.5)), 4)
    0.1464
    """
    z, a, scale = standardize_arguments("gamma.pdf", x, loc, scale, a)
    inside = z >= 0
    return fnp.where(inside, incomplete_gamma.gamma_pdf(a, fnp.where(inside, z, 1.0)) / scale, 0.0)


def cdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the cumulative distribution function of the gamma distribution: the probability of at most `x`.

    Args:
        x: the point.
        a: the shape parameter, positive.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(cdf(2.5, 1.5)), 4)
    0.8282
    """
    z, a, _ = standardize_arguments("gamma.cdf", x, loc, scale, a)
    return special.gammainc(a, fnp.where(z < 0, 0.0, z))


def logcdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the logarithm of the cumulative distribution function of the gamma distribution.

    Args:
        x: the point.
        a: the shape parameter, positive.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The log probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logcdf(2.5, 1.5)), 4)
    -0.1885
    """
    return fnp.log(cdf(x, a, loc, scale))


def sf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the survival function of the gamma distribution: the probability of more than `x`.

    Args:
        x: the point.
        a: the shape parameter, positive.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(sf(2.5, 1.5)), 4)
    0.1718
    """
    z, a, _ = standardize_arguments("gamma.sf", x, loc, scale, a)
    return special.gammaincc(a, fnp.where(z < 0, 0.0, z))


def logsf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the logarithm of the survival function of the gamma distribution.

    Args:
        x: the point.
        a: the shape parameter, positive.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The log probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logsf(2.5, 1.5)), 4)
    -1.7614
    """
    return fnp.log(sf(x, a, loc, scale))
