"""The Laplace distribution."""

from __future__ import annotations

import tracefx.numpy as fnp
from tracefx.core.array import Array, ArrayLike
from tracefx.scipy.stats.standardization import standardize_arguments


def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the logarithm of the probability density of the Laplace distribution.

    Args:
        x: the point.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The log density, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logpdf(0.5)), 4)
    -1.1931
    """
    z, scale = standardize_arguments("laplace.logpdf", x, loc, scale)
    return -fnp.abs(z) - fnp.log(2 * scale)


def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the probability density of the Laplace distribution.

    The density is `exp(-abs(z)) / (2 * scale)` with `z = (x - loc) / scale`.

    Args:
        x: the point.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The density, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(pdf(0.5)), 4)
    0.3033
    """
    return fnp.exp(logpdf(x, loc, scale))


def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the cumulative distribution function of the Laplace distribution: the probability of at most `x`.

    Args:
        x: the point.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(cdf(0.5)), 4)
    0.6967
    """
    z, _ = standardize_arguments("laplace.cdf", x, loc, scale)
    half = 0.5 * fnp.exp(-fnp.abs(z))
    return fnp.where(z <= 0, half, 1 - half)
