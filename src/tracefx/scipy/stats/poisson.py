"""Poisson's distribution."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.control.special import incomplete_gamma
from tracefx.core.array import Array, ArrayLike
from tracefx.scipy import special
from tracefx.scipy.stats.standardization import promote_real


def logpmf(k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """The logarithm of the probability of `k`.

    >>> round(float(logpmf(2, 1.5)), 4)
    -1.3822
    """
    number, mu, shift = promote_real("poisson.logpmf", k, mu, loc)
    y = number - shift
    inside = (y >= 0) & (y == fnp.round(y))
    z = fnp.where(inside, y, 0.0)
    return fnp.where(inside | (y != y), special.xlogy(z, mu) - special.gammaln(z + 1) - mu, -math.inf)


def pmf(k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """The probability of `k`.

    >>> round(float(pmf(2, 1.5)), 4)
    0.251
    """
    number, mu, shift = promote_real("poisson.pmf", k, mu, loc)
    y = number - shift
    inside = (y >= 0) & (y == fnp.round(y))
    value = incomplete_gamma.gamma_pdf(fnp.where(inside, y, 0.0) + 1, mu)
    return fnp.where(inside | (y != y), value, 0.0)


def cdf(k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """The probability of at most `k`.

    >>> round(float(cdf(2, 1.5)), 4)
    0.8088
    """
    number, mu, shift = promote_real("poisson.cdf", k, mu, loc)
    y = number - shift
    return fnp.where(y < 0, 0.0, special.gammaincc(fnp.floor(fnp.where(y < 0, 0.0, y)) + 1, mu))


def entropy(mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """The entropy; that of 0 is 0, NaN below.

    >>> round(float(entropy(1.5)), 4)
    1.5394
    """
    mean, _ = promote_real("poisson.entropy", mu, loc)
    wide = mean > _MOST
    small = fnp.where(wide | ~(mean > 0), 1.0, mean)
    k = fnp.arange(_TERMS, dtype=small.dtype).reshape((_TERMS, *[1] * small.ndim))
    shares = pmf(k, small)
    told = fnp.where(shares > 0, shares, 1.0)  # where the slope of `entr` is finite
    total = fnp.where(mean > 0, fnp.sum(special.entr(told), 0), 0.0)
    large = fnp.where(wide, mean, 1.0)
    inverse = 1 / large
    # Evans and Boersma 1988
    rest = inverse * (1 / 12 + inverse * (1 / 24 + inverse * (19 / 360 + inverse * (9 / 80 + inverse * 863 / 2520))))
    value = fnp.where(wide, 0.5 * fnp.log(2 * math.pi * math.e * large) - rest, total)
    return fnp.where(mean >= 0, value, math.nan)


_MOST = 100.0
_TERMS = 256
