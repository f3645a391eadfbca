"""The generalized normal distribution."""

from __future__ import annotations

import tracefx.numpy as fnp
from tracefx.core.array import Array, ArrayLike
from tracefx.scipy import special
from tracefx.scipy.stats.standardization import promote_real


def logpdf(x: ArrayLike, beta: ArrayLike) -> Array:
    """The logarithm of the probability density.

    >>> round(float(logpdf(0.5, 1.5)), 4)
    -0.9444
    """
    z, beta = promote_real("gennorm.logpdf", x, beta)
    return fnp.log(0.5 * beta) - special.gammaln(1 / beta) - fnp.abs(z) ** beta


def cdf(x: ArrayLike, beta: ArrayLike) -> Array:
    """The probability of at most `x`.

    >>> round(float(cdf(0.5, 1.5)), 4)
    0.7417
    """
    z, beta = promote_real("gennorm.cdf", x, beta)
    tail = 0.5 * special.gammaincc(1 / beta, fnp.abs(z) ** beta)
    return fnp.where(z < 0, tail, 1 - tail)


def pdf(x: ArrayLike, beta: ArrayLike) -> Array:
    """The probability density.

    >>> round(float(pdf(0.5, 1.5)), 4)
    0.3889
    """
    return fnp.exp(logpdf(x, beta))
