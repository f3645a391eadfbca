"""The negative binomial distribution."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.core.array import Array, ArrayLike
from tracefx.scipy import special
from tracefx.scipy.stats.standardization import promote_real


def logpmf(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """The logarithm of the probability of `k`.

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
    """The probability of `k`.

    >>> round(float(pmf(2, 5, 0.25)), 4)
    0.0082
    """
    return fnp.exp(logpmf(k, n, p, loc))
