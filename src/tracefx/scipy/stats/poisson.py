"""The Poisson distribution."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.control.special import incomplete_gamma
from tracefx.core.array import Array, ArrayLike
from tracefx.scipy import special
from tracefx.scipy.stats.standardization import promote_real


def logpmf(k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Computes the logarithm of the probability mass function of the Poisson distribution.

    Args:
        k: the number of events.
        mu: the mean, not negative.
        loc: the offset of the support.

    Returns:
        The log probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logpmf(2, 1.5)), 4)
    -1.3822
    """
    number, mu, shift = promote_real("poisson.logpmf", k, mu, loc)
    y = number - shift
    inside = (y >= 0) & (y == fnp.round(y))
    z = fnp.where(inside, y, 0.0)
    return fnp.where(inside | (y != y), special.xlogy(z, mu) - special.gammaln(z + 1) - mu, -math.inf)


def pmf(k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Computes the probability mass function of the Poisson distribution.

    The probability is `mu**k * exp(-mu) / k!` for `k` from 0 on; 0 elsewhere.

    Args:
        k: the number of events.
        mu: the mean, not negative.
        loc: the offset of the support.

    Returns:
        The probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(pmf(2, 1.5)), 4)
    0.251
    """
    number, mu, shift = promote_real("poisson.pmf", k, mu, loc)
    y = number - shift
    inside = (y >= 0) & (y == fnp.round(y))
    value = incomplete_gamma.gamma_pdf(fnp.where(inside, y, 0.0) + 1, mu)
    return fnp.where(inside | (y != y), value, 0.0)


def cdf(k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Computes the cumulative distribution function of the Poisson distribution: the probability of at most `k`.

    Args:
        k: the number of events.
        mu: the mean, not negative.
        loc: the offset of the support.

    Returns:
        The probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(cdf(2, 1.5)), 4)
    0.8088
    """
    number, mu, shift = promote_real("poisson.cdf", k, mu, loc)
    y = number - shift
    return fnp.where(y < 0, 0.0, special.gammaincc(fnp.floor(fnp.where(y < 0, 0.0, y)) + 1, mu))


def entropy(mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Computes the entropy of the Poisson distribution, in nats.

    Args:
        mu: the mean; the result is 0 where it is 0 and NaN where it is negative.
        loc: without effect.

    Returns:
        The entropy, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(entropy(1.5)), 4)
    1.5394
    """
    mean, _ = promote_real("poisson.entropy", mu, loc)
    is_large = mean > _MOST
    safe_small = fnp.where(is_large | ~(mean > 0), 1.0, mean)
    k = fnp.arange(_TERMS, dtype=safe_small.dtype).reshape((_TERMS, *[1] * safe_small.ndim))
    probabilities = pmf(k, safe_small)
    safe_probabilities = fnp.where(probabilities > 0, probabilities, 1.0)  # where the derivative of `entr` is finite
    total = fnp.where(mean > 0, fnp.sum(special.entr(safe_probabilities), 0), 0.0)
    safe_large = fnp.where(is_large, mean, 1.0)
    inverse = 1 / safe_large
    # The asymptotic expansion of Evans and Boersma, The entropy of a Poisson distribution (1988).
    correction = inverse * (
        1 / 12 + inverse * (1 / 24 + inverse * (19 / 360 + inverse * (9 / 80 + inverse * 863 / 2520)))
    )
    value = fnp.where(is_large, 0.5 * fnp.log(2 * math.pi * math.e * safe_large) - correction, total)
    return fnp.where(mean >= 0, value, math.nan)


_MOST = 100.0
"""Larger means use the asymptotic expansion of the entropy."""
_TERMS = 256
"""The number of terms of the sum for smaller means."""
