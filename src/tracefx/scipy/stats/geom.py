"""The geometric distribution, of numbers from 1 on."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.core.array import Array, ArrayLike
from tracefx.scipy import special
from tracefx.scipy.stats.standardization import promote_real


def logpmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """The logarithm of the probability of `k`.

    >>> round(float(logpmf(2, 0.25)), 4)
    -1.674
    """
    number, p, shift = promote_real("geom.logpmf", k, p, loc)
    y = number - shift
    return fnp.where(y <= 0, -math.inf, special.xlog1py(y - 1, -p) + fnp.log(p))


def pmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """The probability of `k`.

    >>> round(float(pmf(2, 0.25)), 4)
    0.1875
    """
    return fnp.exp(logpmf(k, p, loc))
