"""The Bernoulli distribution on 0 and 1."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.core.array import Array, ArrayLike
from tracefx.scipy import special
from tracefx.scipy.stats.standardization import promote_real


def logpmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Computes the logarithm of the probability mass function of the Bernoulli distribution.

    Args:
        k: the outcome, 0 or 1.
        p: the probability of 1.
        loc: the offset of the support.

    Returns:
        The log probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logpmf(1, 0.25)), 4)
    -1.3863
    """
    number, p, shift = promote_real("bernoulli.logpmf", k, p, loc)
    y = number - shift
    value = special.xlogy(y, p) + special.xlog1py(1 - y, -p)
    return fnp.where((y == 0) | (y == 1) | (y != y), value, -math.inf)


def pmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Computes the probability mass function of the Bernoulli distribution.

    The probability is `p` at 1 and `1 - p` at 0; 0 elsewhere.

    Args:
        k: the outcome, 0 or 1.
        p: the probability of 1.
        loc: the offset of the support.

    Returns:
        The probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(pmf(1, 0.25)), 4)
    0.25
    """
    return fnp.exp(logpmf(k, p, loc))


def cdf(k: ArrayLike, p: ArrayLike) -> Array:
    """Computes the cumulative distribution function of the Bernoulli distribution: the probability of at most `k`.

    Args:
        k: the outcome, 0 or 1.
        p: the probability of 1.

    Returns:
        The probability, an array of floats of the shape that the arguments broadcast to.

    >>> float(cdf(0, 0.25))
    0.75
    """
    number, p = promote_real("bernoulli.cdf", k, p)
    value = fnp.where(number < 0, 0.0, fnp.where(number < 1, 1 - p, 1.0))
    return fnp.where((p >= 0) & (p <= 1) & (number == number), value, math.nan)


def ppf(q: ArrayLike, p: ArrayLike) -> Array:
    """Computes the quantile function of the Bernoulli distribution, the inverse of `cdf`.

    Args:
        q: the probability; the result is NaN unless it is between 0 and 1.
        p: the probability of 1.

    Returns:
        The point that is not exceeded with this probability, an array of floats of the shape that the arguments
        broadcast to.

    >>> float(ppf(0.9, 0.25))
    1.0
    """
    share, p = promote_real("bernoulli.ppf", q, p)
    valid = (p >= 0) & (p <= 1) & (share >= 0) & (share <= 1)
    return fnp.where(valid, (share > 1 - p).astype(p.dtype), math.nan)
