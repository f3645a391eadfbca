"""The generalized normal distribution."""

from __future__ import annotations

import tracefx.numpy as fnp
from tracefx.core.array import Array, ArrayLike
from tracefx.scipy import special
from tracefx.scipy.stats.standardization import promote_real


def logpdf(x: ArrayLike, beta: ArrayLike) -> Array:
    """Computes the logarithm of the probability density of the generalized normal distribution.

    Args:
        x: the point.
        beta: the shape parameter, positive; 2 gives a normal, 1 a Laplace distribution.

    Returns:
        The log density, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logpdf(0.5, 1.5)), 4)
    -0.9444
    """
    z, beta = promote_real("gennorm.logpdf", x, beta)
    return fnp.log(0.5 * beta) - special.gammaln(1 / beta) - fnp.abs(z) ** beta


def cdf(x: ArrayLike, beta: ArrayLike) -> Array:
    """Computes the cumulative distribution function of the generalized normal distribution.

    Args:
        x: the point.
        beta: the shape parameter, positive; 2 gives a normal, 1 a Laplace distribution.

    Returns:
        The probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(cdf(0.5, 1.5)), 4)
    0.7417
    """
    z, beta = promote_real("gennorm.cdf", x, beta)
    tail = 0.5 * special.gammaincc(1 / beta, fnp.abs(z) ** beta)
    return fnp.where(z < 0, tail, 1 - tail)


def pdf(x: ArrayLike, beta: ArrayLike) -> Array:
    """Computes the probability density of the generalized normal distribution.

    The density is `beta / (2 * gamma(1 / beta)) * exp(-abs(x)**beta)`.

    Args:
        x: the point.
        beta: the shape parameter, positive; 2 gives a normal, 1 a Laplace distribution.

    Returns:
        The density, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(pdf(0.5, 1.5)), 4)
    0.3889
    """
    return fnp.exp(logpdf(x, beta))
