"""Discrete distributions of one number."""

from __future__ import annotations

import math
from typing import final

import tracefx.numpy as fnp
from tracefx.control.special import incomplete_beta, incomplete_gamma
from tracefx.core import Array, ArrayLike
from tracefx.core.handler import bind1
from tracefx.scipy import special
from tracefx.scipy.stats.distributions import Arguments, DistributionFunctions, exp_of, promoted, shifted
from tracefx.scipy.stats.standardization import promote_real


def _count_p(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Arguments:
    return k, p, loc


def _count_p_unshifted(k: ArrayLike, p: ArrayLike) -> Arguments:
    return k, p


def _probability_p(q: ArrayLike, p: ArrayLike) -> Arguments:
    return q, p


def _bernoulli_logpmf(y: Array, p: Array) -> Array:
    value = special.xlogy(y, p) + special.xlog1py(1 - y, -p)
    return fnp.where((y == 0) | (y == 1) | (y != y), value, -math.inf)


def _bernoulli_cdf(k: Array, p: Array) -> Array:
    value = fnp.where(k < 0, 0.0, fnp.where(k < 1, 1 - p, 1.0))
    return fnp.where((p >= 0) & (p <= 1) & (k == k), value, math.nan)


def _bernoulli_ppf(q: Array, p: Array) -> Array:
    valid = (p >= 0) & (p <= 1) & (q >= 0) & (q <= 1)
    return fnp.where(valid, fnp.where(q > 1 - p, fnp.ones_like(p), 0), math.nan)


@final
class bernoulli(DistributionFunctions):
    """The Bernoulli distribution on 0 and 1.

    The probability is `p` at 1 and `1 - p` at 0; 0 elsewhere.

    Args:
        k: the outcome, 0 or 1.
        p: the probability of 1.
        loc: the offset of the support.

    >>> round(float(bernoulli.logpmf(1, 0.25)), 4)
    -1.3863
    >>> round(float(bernoulli.pmf(1, 0.25)), 4)
    0.25
    >>> float(bernoulli.cdf(0, 0.25))
    0.75
    >>> float(bernoulli.ppf(0.9, 0.25))
    1.0
    """

    logpmf = shifted(_count_p, _bernoulli_logpmf)
    pmf = exp_of(logpmf)
    cdf = promoted(_count_p_unshifted, _bernoulli_cdf)
    ppf = promoted(_probability_p, _bernoulli_ppf)


def _count_n_a_b(k: ArrayLike, n: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0) -> Arguments:
    return k, n, a, b, loc


def _betabinom_logpmf(k: Array, n: Array, a: Array, b: Array, loc: Array) -> Array:
    y = fnp.floor(k) - loc
    outside = (y < 0) | (y > n)
    z = fnp.where(outside, 0.0, y)
    ways = -special.betaln(n - z + 1, z + 1) - fnp.log1p(n)
    value = ways + special.betaln(z + a, n - z + b) - special.betaln(a, b)
    value = fnp.where(outside, -math.inf, fnp.where((n == 0) & (y == y), 0.0, value))
    return fnp.where((n >= 0) & (a > 0) & (b > 0), value, math.nan)


@final
class betabinom(DistributionFunctions):
    """The beta-binomial distribution: a binomial distribution whose probability is beta distributed.

    The probability is `comb(n, k) * B(k + a, n - k + b) / B(a, b)` for `k` from 0 to `n`; 0 elsewhere.

    Args:
        k: the number of successes.
        n: the number of trials.
        a: the first shape parameter of the beta distribution, positive.
        b: the second shape parameter of the beta distribution, positive.
        loc: the offset of the support.

    >>> round(float(betabinom.logpmf(2, 5, 1.5, 2.5)), 4)
    -1.5154
    >>> round(float(betabinom.pmf(2, 5, 1.5, 2.5)), 4)
    0.2197
    """

    logpmf = promoted(_count_n_a_b, _betabinom_logpmf)
    pmf = exp_of(logpmf)


def _count_n_p(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Arguments:
    return k, n, p, loc


def _binom_support(y: Array, n: Array) -> tuple[Array, Array]:
    """Returns the number of successes, 0 outside of the support, and whether it is in the support or NaN."""
    inside = (y >= 0) & (y <= n) & (y == fnp.floor(y)) | (y != y)
    return fnp.where(inside, y, 0.0), inside


def _binom_logpmf(y: Array, n: Array, p: Array) -> Array:
    count, inside = _binom_support(y, n)
    ways = -special.betaln(n - count + 1, count + 1) - fnp.log1p(n)
    value = ways + special.xlogy(count, p) + special.xlog1py(n - count, -p)
    return fnp.where(inside, fnp.where((n == 0) & (y == y), 0.0, value), -math.inf)


def _binom_pmf(y: Array, n: Array, p: Array) -> Array:
    count, inside = _binom_support(y, n)
    return fnp.where(inside, bind1(incomplete_beta.BETA_DENSITY, count + 1, n - count + 1, p) / (n + 1), 0.0)


@final
class binom(DistributionFunctions):
    """The binomial distribution.

    The probability is `comb(n, k) * p**k * (1 - p)**(n - k)` for `k` from 0 to `n`; 0 elsewhere.

    Args:
        k: the number of successes.
        n: the number of trials.
        p: the probability of success.
        loc: the offset of the support.

    >>> round(float(binom.logpmf(2, 5, 0.25)), 4)
    -1.333
    >>> round(float(binom.pmf(2, 5, 0.25)), 4)
    0.2637
    """

    logpmf = shifted(_count_n_p, _binom_logpmf)
    pmf = shifted(_count_n_p, _binom_pmf)


@final
class geom(DistributionFunctions):
    """The geometric distribution on 1, 2, ...: the number of trials up to the first success.

    The probability is `p * (1 - p)**(k - 1)` for `k` from 1 on; 0 elsewhere.

    Args:
        k: the number of trials.
        p: the probability of success.
        loc: the offset of the support.

    >>> round(float(geom.logpmf(2, 0.25)), 4)
    -1.674
    >>> round(float(geom.pmf(2, 0.25)), 4)
    0.1875
    """

    logpmf = shifted(_count_p, lambda y, p: fnp.where(y <= 0, -math.inf, special.xlog1py(y - 1, -p) + fnp.log(p)))
    pmf = exp_of(logpmf)


def _nbinom_logpmf(y: Array, n: Array, p: Array) -> Array:
    inside = (y >= 0) | (y != y)
    z = fnp.where(inside, y, 0.0)
    ways = -special.betaln(n, z + 1) - fnp.log(n + z)
    return fnp.where(inside, ways + special.xlogy(n, p) + special.xlog1py(z, -p), -math.inf)


@final
class nbinom(DistributionFunctions):
    """The negative binomial distribution: the number of failures before the `n`-th success.

    The probability is `comb(n + k - 1, k) * p**n * (1 - p)**k` for `k` from 0 on; 0 elsewhere.

    Args:
        k: the number of failures.
        n: the number of successes, positive.
        p: the probability of success.
        loc: the offset of the support.

    >>> round(float(nbinom.logpmf(2, 5, 0.25)), 4)
    -4.7988
    >>> round(float(nbinom.pmf(2, 5, 0.25)), 4)
    0.0082
    """

    logpmf = shifted(_count_n_p, _nbinom_logpmf)
    pmf = exp_of(logpmf)


def _count_mu(k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0) -> Arguments:
    return k, mu, loc


def _poisson_support(y: Array) -> Array:
    """Returns where a number is in the support or NaN."""
    return (y >= 0) & (y == fnp.round(y)) | (y != y)


def _poisson_logpmf(y: Array, mu: Array) -> Array:
    inside = _poisson_support(y)
    z = fnp.where(inside, y, 0.0)
    return fnp.where(inside, special.xlogy(z, mu) - special.gammaln(z + 1) - mu, -math.inf)


def _poisson_pmf(y: Array, mu: Array) -> Array:
    inside = _poisson_support(y)
    value = incomplete_gamma.gamma_pdf(fnp.where(inside, y, 0.0) + 1, mu)
    return fnp.where(inside, value, 0.0)


def _poisson_cdf(y: Array, mu: Array) -> Array:
    return fnp.where(y < 0, 0.0, special.gammaincc(fnp.floor(fnp.where(y < 0, 0.0, y)) + 1, mu))


_LARGEST_SUMMED_MEAN = 100.0
"""Larger means use the asymptotic expansion of the entropy."""
_ENTROPY_TERMS = 256
"""The number of terms of the sum for smaller means."""


@final
class poisson(DistributionFunctions):
    """The Poisson distribution.

    The probability is `mu**k * exp(-mu) / k!` for `k` from 0 on; 0 elsewhere.

    Args:
        k: the number of events.
        mu: the mean, not negative.
        loc: the offset of the support.

    >>> round(float(poisson.logpmf(2, 1.5)), 4)
    -1.3822
    >>> round(float(poisson.pmf(2, 1.5)), 4)
    0.251
    >>> round(float(poisson.cdf(2, 1.5)), 4)
    0.8088
    """

    logpmf = shifted(_count_mu, _poisson_logpmf)
    pmf = shifted(_count_mu, _poisson_pmf)
    cdf = shifted(_count_mu, _poisson_cdf)

    @staticmethod
    def entropy(mu: ArrayLike, loc: ArrayLike = 0) -> Array:
        """Computes the entropy of the Poisson distribution, in nats.

        Args:
            mu: the mean; the result is 0 where it is 0 and NaN where it is negative.
            loc: without effect.

        Returns:
            The entropy, an array of floats of the shape that the arguments broadcast to.

        >>> round(float(poisson.entropy(1.5)), 4)
        1.5394
        """
        mean, _ = promote_real("poisson.entropy", mu, loc)
        is_large = mean > _LARGEST_SUMMED_MEAN
        safe_small = fnp.where(is_large | ~(mean > 0), 1.0, mean)
        k = fnp.arange(_ENTROPY_TERMS, dtype=safe_small.dtype).reshape((_ENTROPY_TERMS, *[1] * safe_small.ndim))
        probabilities = poisson.pmf(k, safe_small)
        safe_probabilities = fnp.where(
            probabilities > 0, probabilities, 1.0
        )  # where the derivative of `entr` is finite
        total = fnp.where(mean > 0, fnp.sum(special.entr(safe_probabilities), 0), 0.0)
        safe_large = fnp.where(is_large, mean, 1.0)
        inverse = 1 / safe_large
        # The asymptotic expansion of Evans and Boersma, The entropy of a Poisson distribution (1988).
        correction = inverse * (
            1 / 12 + inverse * (1 / 24 + inverse * (19 / 360 + inverse * (9 / 80 + inverse * 863 / 2520)))
        )
        value = fnp.where(is_large, 0.5 * fnp.log(2 * math.pi * math.e * safe_large) - correction, total)
        return fnp.where(mean >= 0, value, math.nan)
