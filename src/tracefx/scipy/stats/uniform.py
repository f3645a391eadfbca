"""The uniform distribution on the interval from `loc` to `loc + scale`."""

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


def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the logarithm of the probability density of the uniform distribution.

    Args:
        x: the point.
        loc: the lower end of the interval.
        scale: the length of the interval, positive.

    Returns:
        The log density, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logpdf(0.5)), 4)
    0.0
    """
    z, scale = standardize_arguments("uniform.logpdf", x, loc, scale)
    return fnp.where((z < 0) | (z > 1), -math.inf, z * 0 - fnp.log(scale))


def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the probability density of the uniform distribution.

    The density is `1 / scale` from `loc` to `loc + scale`; 0 elsewhere.

    Args:
        x: the point.
        loc: the lower end of the interval.
        scale: the length of the interval, positive.

    Returns:
        The density, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(pdf(0.5)), 4)
    1.0
    """
    return fnp.exp(logpdf(x, loc, scale))


def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the cumulative distribution function of the uniform distribution: the probability of at most `x`.

    Args:
        x: the point.
        loc: the lower end of the interval.
        scale: the length of the interval, positive.

    Returns:
        The probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(cdf(0.5)), 4)
    0.5
    """
    z, _ = standardize_arguments("uniform.cdf", x, loc, scale)
    return fnp.clip(z, 0.0, 1.0)


def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the quantile function of the uniform distribution, the inverse of `cdf`.

    Args:
        q: the probability; the result is NaN unless it is between 0 and 1.
        loc: the lower end of the interval.
        scale: the length of the interval, positive.

    Returns:
        The point that is not exceeded with this probability, an array of floats of the shape that the arguments
        broadcast to.

    >>> round(float(ppf(0.25)), 4)
    0.25
    """
    p, shift, scale = promote_real("uniform.ppf", q, loc, scale)
    return shift + nan_unless_positive(scale) * nan_unless_probability(p)
