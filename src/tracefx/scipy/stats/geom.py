"""The geometric distribution on 1, 2, ...: the number of trials up to the first success."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.core.array import Array, ArrayLike
from tracefx.scipy import special
from tracefx.scipy.stats.standardization import promote_real


def logpmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Computes the logarithm of the probability mass function of the geometric distribution.

    Args:
        k: the number of trials.
        p: the probability of success.
        loc: the offset of the support.

    Returns:
        The log probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logpmf(2, 0.25)), 4)
    -1.674
    """
    number, p, shift = promote_real("geom.logpmf", k, p, loc)
    y = number - shift
    return fnp.where(y <= 0, -math.inf, special.xlog1py(y - 1, -p) + fnp.log(p))


def pmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Computes the probability mass function of the geometric distribution.

    The probability is `p * (1 - p)**(k - 1)` for `k` from 1 on; 0 elsewhere.

    Args:
        k: the number of trials.
        p: the probability of success.
        loc: the offset of the support.

    Returns:
        The probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(pmf(2, 0.25)), 4)
    0.1875
    """
    return fnp.exp(logpmf(k, p, loc))
