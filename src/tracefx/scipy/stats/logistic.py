"""The logistic distribution."""

from __future__ import annotations

import tracefx.numpy as fnp
from tracefx.core.array import Array, ArrayLike
from tracefx.scipy import special
from tracefx.scipy.stats.standardization import promote_real, standardize_arguments, widths


def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the probability density.

    >>> round(float(logpdf(0.5)), 4)
    -1.4482
    """
    z, scale = standardize_arguments("logistic.logpdf", x, loc, scale)
    return -2 * fnp.logaddexp(0.5 * z, -0.5 * z) - fnp.log(scale)


def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability density.

    >>> round(float(pdf(0.5)), 4)
    0.235
    """
    return fnp.exp(logpdf(x, loc, scale))


def ppf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The number that is not exceeded with probability `x`.

    >>> round(float(ppf(0.25)), 4)
    -1.0986
    """
    p, shift, scale = promote_real("logistic.ppf", x, loc, scale)
    return special.logit(p) * widths(scale) + shift


def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability of more than `x`.

    >>> round(float(sf(0.5)), 4)
    0.3775
    """
    return special.expit(-standardize_arguments("logistic.sf", x, loc, scale)[0])


def isf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The number that is exceeded with probability `x`.

    >>> round(float(isf(0.25)), 4)
    1.0986
    """
    p, shift, scale = promote_real("logistic.isf", x, loc, scale)
    return -special.logit(p) * widths(scale) + shift


def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability of at most `x`.

    >>> round(float(cdf(0.5)), 4)
    0.6225
    """
    return special.expit(standardize_arguments("logistic.cdf", x, loc, scale)[0])
