"""The binomial distribution."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.control.special import incomplete_beta
from tracefx.core.array import Array, ArrayLike
from tracefx.core.handler import bind1
from tracefx.scipy import special
from tracefx.scipy.stats.standardization import promote_real


def logpmf(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Computes the logarithm of the probability mass function of the binomial distribution.

    Args:
        k: the number of successes.
        n: the number of trials.
        p: the probability of success.
        loc: the offset of the support.

    Returns:
        The log probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logpmf(2, 5, 0.25)), 4)
    -1.333
    """
    y, n, p, inside = _counts_and_support("binom.logpmf", k, n, p, loc)
    ways = -special.betaln(n - y + 1, y + 1) - fnp.log1p(n)
    value = ways + special.xlogy(y, p) + special.xlog1py(n - y, -p)
    return fnp.where(inside, fnp.where(n == 0, 0.0, value), -math.inf)


def pmf(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Computes the probability mass function of the binomial distribution.

    The probability is `comb(n, k) * p**k * (1 - p)**(n - k)` for `k` from 0 to `n`; 0 elsewhere.

    Args:
        k: the number of successes.
        n: the number of trials.
        p: the probability of success.
        loc: the offset of the support.

    Returns:
        The probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(pmf(2, 5, 0.25)), 4)
    0.2637
    """
    y, n, p, inside = _counts_and_support("binom.pmf", k, n, p, loc)
    return fnp.where(inside, bind1(incomplete_beta.BETA_DENSITY, y + 1, n - y + 1, p) / (n + 1), 0.0)


def _counts_and_support(
    name: str, k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike
) -> tuple[Array, Array, Array, Array]:
    """Returns the number of successes, `n`, `p`, and whether the number is in the support; it is 0 elsewhere."""
    number, n, p, shift = promote_real(name, k, n, p, loc)
    y = number - shift
    inside = (y >= 0) & (y <= n) & (y == fnp.floor(y))
    return fnp.where(inside, y, 0.0), n, p, inside | (y != y)
