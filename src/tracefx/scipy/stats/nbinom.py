"""The negative binomial distribution: the number of failures before the `n`-th success."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.core.array import Array, ArrayLike
from tracefx.scipy import special
from tracefx.scipy.stats.standardization import promote_real


def logpmf(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Computes the logarithm of the probability mass function of the negative binomial distribution.

    Args:
        k: the number of failures.
        n: the number of successes, positive.
        p: the probability of success.
        loc: the offset of the support.

    Returns:
        The log probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logpmf(2, 5, 0.25)), 4)
    -4.7988
    """
    number, n, p, shift = promote_real("nbinom.logpmf", k, n, p, loc)
    y = number - shift
    inside = y >= 0
    z = fnp.where(inside, y, 0.0)
    ways = -special.betaln(n, z + 1) - fnp.log(n + z)
    return fnp.where(inside | (y != y), ways + special.xlogy(n, p) + special.xlog1py(z, -p), -math.inf)


def pmf(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Computes the probability mass function of the negative binomial distribution.

    The probability is `comb(n + k - 1, k) * p**n * (1 - p)**k` for `k` from 0 on; 0 elsewhere.

    Args:
        k: the number of failures.
        n: the number of successes, positive.
        p: the probability of success.
        loc: the offset of the support.

    Returns:
        The probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(pmf(2, 5, 0.25)), 4)
    0.0082
    """
    return fnp.exp(logpmf(k, n, p, loc))
