"""The uniform distribution, on the interval from `loc` to `loc + scale`."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.core.array import Array, ArrayLike
from tracefx.scipy.stats.standardization import nan_unless_probability, promote_real, standardize_arguments, widths


def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the probability density.

    >>> round(float(logpdf(0.5)), 4)
    0.0
    """
    z, scale = standardize_arguments("uniform.logpdf", x, loc, scale)
    return fnp.where((z < 0) | (z > 1), -math.inf, z * 0 - fnp.log(scale))


def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability density.

    >>> round(float(pdf(0.5)), 4)
    1.0
    """
    return fnp.exp(logpdf(x, loc, scale))


def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability of at most `x`.

    >>> round(float(cdf(0.5)), 4)
    0.5
    """
    z, _ = standardize_arguments("uniform.cdf", x, loc, scale)
    return fnp.clip(z, 0.0, 1.0)


def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The number that is not exceeded with probability `q`.

    >>> round(float(ppf(0.25)), 4)
    0.25
    """
    p, shift, scale = promote_real("uniform.ppf", q, loc, scale)
    return shift + widths(scale) * nan_unless_probability(p)
