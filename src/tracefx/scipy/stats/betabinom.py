"""The beta-binomial distribution: a binomial distribution whose probability is beta distributed."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.core.array import Array, ArrayLike
from tracefx.scipy import special
from tracefx.scipy.stats.standardization import promote_real


def logpmf(k: ArrayLike, n: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Computes the logarithm of the probability mass function of the beta-binomial distribution.

    Args:
        k: the number of successes.
        n: the number of trials.
        a: the first shape parameter of the beta distribution, positive.
        b: the second shape parameter of the beta distribution, positive.
        loc: the offset of the support.

    Returns:
        The log probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logpmf(2, 5, 1.5, 2.5)), 4)
    -1.5154
    """
    number, n, a, b, shift = promote_real("betabinom.logpmf", k, n, a, b, loc)
    y = fnp.floor(number) - shift
    inside = (y >= 0) & (y <= n)
    z = fnp.where(inside, y, 0.0)
    ways = -special.betaln(n - z + 1, z + 1) - fnp.log1p(n)
    value = ways + special.betaln(z + a, n - z + b) - special.betaln(a, b)
    value = fnp.where(inside, fnp.where(n == 0, 0.0, value), -math.inf)
    return fnp.where((n >= 0) & (a > 0) & (b > 0), value, math.nan)


def pmf(k: ArrayLike, n: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Computes the probability mass function of the beta-binomial distribution.

    The probability is `comb(n, k) * B(k + a, n - k + b) / B(a, b)` for `k` from 0 to `n`; 0 elsewhere.

    Args:
        k: the number of successes.
        n: the number of trials.
        a: the first shape parameter of the beta distribution, positive.
        b: the second shape parameter of the beta distribution, positive.
        loc: the offset of the support.

    Returns:
        The probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(pmf(2, 5, 1.5, 2.5)), 4)
    0.2197
    """
    return fnp.exp(logpmf(k, n, a, b, loc))
