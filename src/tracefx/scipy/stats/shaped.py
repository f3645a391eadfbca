"""Continuous distributions with shape parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import final

import tracefx.numpy as fnp
from tracefx.control.special import incomplete_beta, incomplete_gamma
from tracefx.core import Array, ArrayLike
from tracefx.core.handler import bind1
from tracefx.scipy import special
from tracefx.scipy.stats.distributions import (
    Arguments,
    DistributionFunctions,
    complement_of,
    exp_of,
    log_of,
    promoted,
    quantile,
    standardized,
)
from tracefx.scipy.stats.location_scale import norm
from tracefx.scipy.stats.standardization import log_gamma_quotient, nan_unless_probability


def _point_a_b(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Arguments:
    return x, a, b, loc, scale


def _beta_logpdf(z: Array, a: Array, b: Array, scale: Array) -> Array:
    outside = (z < 0) | (z > 1)
    y = fnp.where(outside, 0.5, z)
    value = special.xlogy(a - 1, y) + special.xlog1py(b - 1, -y) - special.betaln(a, b) - fnp.log(scale)
    return fnp.where((a > 0) & (b > 0), fnp.where(outside, -math.inf, value), math.nan)


def _beta_pdf(z: Array, a: Array, b: Array, scale: Array) -> Array:
    outside = (z < 0) | (z > 1)
    value = bind1(incomplete_beta.BETA_DENSITY, a, b, fnp.where(outside, 0.5, z)) / scale
    return fnp.where((a > 0) & (b > 0), fnp.where(outside, 0.0, value), math.nan)


def _to_unit_interval(z: Array) -> Array:
    """Clips to [0, 1]; unlike that of `clip`, the gradient outside is 0 for infinite cotangents, too."""
    return fnp.where(z < 0, 0.0, fnp.where(z > 1, 1.0, z))


def _beta_logcdf(z: Array, a: Array, b: Array, scale: Array) -> Array:
    impossible = (z <= 0) & (a > 0) & (b > 0)
    return _log_unless(impossible, lambda y: special.betainc(a, b, _to_unit_interval(y)), z)


def _log_unless(impossible: Array, probability: Callable[[Array], Array], z: Array) -> Array:
    """Returns the logarithm of a probability at `z`; where it is impossible, -inf with derivatives that are 0."""
    return fnp.where(impossible, -math.inf, fnp.log(probability(fnp.where(impossible, 0.5, z))))


@final
class beta(DistributionFunctions):
    """The beta distribution.

    The density is `z**(a - 1) * (1 - z)**(b - 1) / (B(a, b) * scale)` with `z = (x - loc) / scale` from 0 to 1; 0
    elsewhere.

    Args:
        x: the point.
        a: the first shape parameter, positive.
        b: the second shape parameter, positive.
        loc: the location parameter.
        scale: the scale parameter, positive.

    >>> round(float(beta.logpdf(0.25, 1.5, 2.5)), 4)
    0.5032
    >>> round(float(beta.pdf(0.25, 1.5, 2.5)), 4)
    1.654
    >>> round(float(beta.cdf(0.25, 1.5, 2.5)), 4)
    0.3333
    >>> round(float(beta.logcdf(0.25, 1.5, 2.5)), 4)
    -1.0986
    >>> round(float(beta.sf(0.25, 1.5, 2.5)), 4)
    0.6667
    >>> round(float(beta.logsf(0.25, 1.5, 2.5)), 4)
    -0.4055
    """

    logpdf = standardized(_point_a_b, _beta_logpdf)
    pdf = standardized(_point_a_b, _beta_pdf)
    cdf = standardized(_point_a_b, lambda z, a, b, scale: special.betainc(a, b, _to_unit_interval(z)))
    logcdf = standardized(_point_a_b, _beta_logcdf)
    sf = standardized(_point_a_b, lambda z, a, b, scale: special.betainc(b, a, 1 - _to_unit_interval(z)))
    logsf = standardized(_point_a_b, lambda z, a, b, scale: _beta_logcdf(1 - z, b, a, scale))


def _point_a(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Arguments:
    return x, a, loc, scale


def _gamma_logpdf(z: Array, a: Array, scale: Array) -> Array:
    outside = z < 0
    y = fnp.where(outside, 1.0, z)
    return fnp.where(outside, -math.inf, special.xlogy(a - 1, y) - y - special.gammaln(a) - fnp.log(scale))


def _gamma_pdf(z: Array, a: Array, scale: Array) -> Array:
    outside = z < 0
    return fnp.where(outside, 0.0, incomplete_gamma.gamma_pdf(a, fnp.where(outside, 1.0, z)) / scale)


def _gamma_logcdf(z: Array, a: Array, scale: Array) -> Array:
    return _log_unless((z <= 0) & (a > 0), lambda y: special.gammainc(a, y), z)


@final
class gamma(DistributionFunctions):
    """The gamma distribution.

    The density is `z**(a - 1) * exp(-z) / (gamma(a) * scale)` with `z = (x - loc) / scale >= 0`; 0 elsewhere.

    Args:
        x: the point.
        a: the shape parameter, positive.
        loc: the location parameter.
        scale: the scale parameter, positive.

    >>> round(float(gamma.logpdf(2.5, 1.5)), 4)
    -1.9211
    >>> round(float(gamma.pdf(2.5, 1.5)), 4)
    0.1464
    >>> round(float(gamma.cdf(2.5, 1.5)), 4)
    0.8282
    >>> round(float(gamma.logcdf(2.5, 1.5)), 4)
    -0.1885
    >>> round(float(gamma.sf(2.5, 1.5)), 4)
    0.1718
    >>> round(float(gamma.logsf(2.5, 1.5)), 4)
    -1.7614
    """

    logpdf = standardized(_point_a, _gamma_logpdf)
    pdf = standardized(_point_a, _gamma_pdf)
    cdf = standardized(_point_a, lambda z, a, scale: special.gammainc(a, fnp.where(z < 0, 0.0, z)))
    logcdf = standardized(_point_a, _gamma_logcdf)
    sf = standardized(_point_a, lambda z, a, scale: special.gammaincc(a, fnp.where(z < 0, 0.0, z)))
    logsf = log_of(sf)


def _point_df(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Arguments:
    return x, df, loc, scale


@final
class chi2(DistributionFunctions):
    """The chi-squared distribution: the gamma distribution with shape `df / 2` and twice the scale.

    The density is `z**(df / 2 - 1) * exp(-z / 2) / (2**(df / 2) * gamma(df / 2) * scale)` with
    `z = (x - loc) / scale >= 0`; 0 elsewhere.

    Args:
        x: the point.
        df: the degrees of freedom, positive.
        loc: the location parameter.
        scale: the scale parameter, positive.

    >>> round(float(chi2.logpdf(2.5, 3.0)), 4)
    -1.7108
    >>> round(float(chi2.pdf(2.5, 3.0)), 4)
    0.1807
    >>> round(float(chi2.cdf(2.5, 3.0)), 4)
    0.5247
    >>> round(float(chi2.logcdf(2.5, 3.0)), 4)
    -0.6449
    >>> round(float(chi2.sf(2.5, 3.0)), 4)
    0.4753
    >>> round(float(chi2.logsf(2.5, 3.0)), 4)
    -0.7438
    """

    logpdf = promoted(_point_df, lambda x, df, loc, scale: gamma.logpdf(x, df / 2, loc, 2 * scale))
    pdf = promoted(_point_df, lambda x, df, loc, scale: gamma.pdf(x, df / 2, loc, 2 * scale))
    cdf = promoted(_point_df, lambda x, df, loc, scale: gamma.cdf(x, df / 2, loc, 2 * scale))
    logcdf = promoted(_point_df, lambda x, df, loc, scale: gamma.logcdf(x, df / 2, loc, 2 * scale))
    sf = promoted(_point_df, lambda x, df, loc, scale: gamma.sf(x, df / 2, loc, 2 * scale))
    logsf = promoted(_point_df, lambda x, df, loc, scale: gamma.logsf(x, df / 2, loc, 2 * scale))


def _point_beta(x: ArrayLike, beta: ArrayLike) -> Arguments:
    return x, beta


def _gennorm_cdf(x: Array, beta: Array) -> Array:
    tail = 0.5 * special.gammaincc(1 / beta, fnp.abs(x) ** beta)
    return fnp.where(x < 0, tail, 1 - tail)


@final
class gennorm(DistributionFunctions):
    """The generalized normal distribution.

    The density is `beta / (2 * gamma(1 / beta)) * exp(-abs(x)**beta)`.

    Args:
        x: the point.
        beta: the shape parameter, positive; 2 gives a normal, 1 a Laplace distribution.

    >>> round(float(gennorm.logpdf(0.5, 1.5)), 4)
    -0.9444
    >>> round(float(gennorm.pdf(0.5, 1.5)), 4)
    0.3889
    >>> round(float(gennorm.cdf(0.5, 1.5)), 4)
    0.7417
    """

    logpdf = promoted(_point_beta, lambda x, beta: fnp.log(0.5 * beta) - special.gammaln(1 / beta) - fnp.abs(x) ** beta)
    pdf = exp_of(logpdf)
    cdf = promoted(_point_beta, _gennorm_cdf)


def _point_b(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Arguments:
    return x, b, loc, scale


def _probability_b(q: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Arguments:
    return q, b, loc, scale


def _pareto_logpdf(z: Array, b: Array, scale: Array) -> Array:
    return fnp.where(z < 1, -math.inf, fnp.log(b) - fnp.log(scale) - (b + 1) * fnp.log(fnp.where(z < 1, 1.0, z)))


@final
class pareto(DistributionFunctions):
    """The Pareto distribution.

    The density is `b * z**-(b + 1) / scale` with `z = (x - loc) / scale >= 1`; 0 elsewhere.

    Args:
        x: the point.
        b: the shape parameter, positive.
        loc: the location parameter.
        scale: the scale parameter, positive.

    >>> round(float(pareto.logpdf(2.5, 1.5)), 4)
    -1.8853
    >>> round(float(pareto.pdf(2.5, 1.5)), 4)
    0.1518
    >>> round(float(pareto.cdf(2.5, 1.5)), 4)
    0.747
    >>> round(float(pareto.logcdf(2.5, 1.5)), 4)
    -0.2917
    >>> round(float(pareto.sf(2.5, 1.5)), 4)
    0.253
    >>> round(float(pareto.logsf(2.5, 1.5)), 4)
    -1.3744
    >>> round(float(pareto.ppf(0.25, 1.5)), 4)
    1.2114
    """

    logpdf = standardized(_point_b, _pareto_logpdf)
    pdf = exp_of(logpdf)
    logsf = standardized(_point_b, lambda z, b, scale: fnp.where(z < 1, 0.0, -b * fnp.log(fnp.where(z < 1, 1.0, z))))
    sf = exp_of(logsf)
    cdf = complement_of(logsf)
    logcdf = log_of(cdf)
    ppf = quantile(_probability_b, lambda p, b: fnp.exp(-fnp.log1p(-nan_unless_probability(p)) / b))


def _t_logpdf(z: Array, df: Array, scale: Array) -> Array:
    ratio = log_gamma_quotient(0.5 * df, 0.5) - 0.5 * fnp.log(math.pi * df)
    return ratio - fnp.log(scale) - 0.5 * (df + 1) * fnp.log1p(z * z / df)


@final
class t(DistributionFunctions):
    """Student's t distribution.

    The density is `gamma((df + 1) / 2) / (gamma(df / 2) * sqrt(pi * df) * scale) * (1 + z**2 / df)**(-(df + 1) / 2)`
    with `z = (x - loc) / scale`.

    Args:
        x: the point.
        df: the degrees of freedom, positive.
        loc: the location parameter.
        scale: the scale parameter, positive.

    >>> round(float(t.logpdf(0.5, 3.0)), 4)
    -1.161
    >>> round(float(t.pdf(0.5, 3.0)), 4)
    0.3132
    """

    logpdf = standardized(_point_df, _t_logpdf)
    pdf = exp_of(logpdf)


def _log_share(z: Array, a: Array, b: Array) -> Array:
    """Returns the logarithm of the probability of the interval from `a` to `z`, relative to that from `a` to `b`."""
    inside = (z > a) & (z < b)
    y = fnp.where(inside, z, 0.5 * (a + b))
    whole = log_mass(a, b)
    below, above = log_mass(a, y) - whole, log_mass(y, b) - whole
    near = below > -0.1  # the complement is more accurate
    value = fnp.where(near, fnp.log1p(-fnp.exp(fnp.where(near, above, -1.0))), below)
    value = fnp.where(inside, value, fnp.where(z >= b, 0.0, fnp.where(z <= a, -math.inf, math.nan)))
    return fnp.where(a < b, value, math.nan)


def log_mass(a: Array, b: Array) -> Array:
    """Computes the logarithm of the standard normal probability of the interval from `a` to `b`, for `a < b`.

    An interval on one side of 0 is a difference of tail probabilities of that side; otherwise both tails are subtracted
    from 1.
    """
    right = a > 0
    aside = right | (b <= 0)
    low, high = fnp.where(right, -b, a), fnp.where(right, -a, b)
    low, high = fnp.where(aside, low, -2.0), fnp.where(aside, high, -1.0)
    greater = special.log_ndtr(high)
    tail = greater + fnp.log(-fnp.expm1(special.log_ndtr(low) - greater))
    left, up = fnp.where(aside, -1.0, a), fnp.where(aside, 1.0, b)
    return fnp.where(aside, tail, fnp.log1p(-(special.ndtr(left) + special.ndtr(-up))))


def _truncnorm_logpdf(z: Array, a: Array, b: Array, scale: Array) -> Array:
    value = norm.logpdf(z) - fnp.log(scale) - log_mass(a, b)
    return fnp.where(a < b, fnp.where((z < a) | (z > b), -math.inf, value), math.nan)


@final
class truncnorm(DistributionFunctions):
    """The truncated normal distribution.

    The density is the normal density divided by the probability of the interval.

    Args:
        x: the point.
        a: the lower bound of `(x - loc) / scale`.
        b: the upper bound of `(x - loc) / scale`; the result is NaN unless `a < b`.
        loc: the mean of the distribution before truncation.
        scale: the standard deviation before truncation, positive.

    >>> round(float(truncnorm.logpdf(0.5, -1.0, 2.0)), 4)
    -0.8438
    >>> round(float(truncnorm.pdf(0.5, -1.0, 2.0)), 4)
    0.4301
    >>> round(float(truncnorm.cdf(0.5, -1.0, 2.0)), 4)
    0.6509
    >>> round(float(truncnorm.logcdf(0.5, -1.0, 2.0)), 4)
    -0.4294
    >>> round(float(truncnorm.sf(0.5, -1.0, 2.0)), 4)
    0.3491
    >>> round(float(truncnorm.logsf(0.5, -1.0, 2.0)), 4)
    -1.0523
    """

    logpdf = standardized(_point_a_b, _truncnorm_logpdf)
    pdf = exp_of(logpdf)
    logcdf = standardized(_point_a_b, lambda z, a, b, scale: _log_share(z, a, b))
    cdf = exp_of(logcdf)
    logsf = standardized(_point_a_b, lambda z, a, b, scale: _log_share(-z, -b, -a))
    sf = exp_of(logsf)


def _point_kappa(x: ArrayLike, kappa: ArrayLike) -> Arguments:
    return x, kappa


def _vonmises_logpdf(x: Array, kappa: Array) -> Array:
    positive = kappa > 0
    safe = fnp.where(positive, kappa, 1.0)
    half = fnp.sin(0.5 * x)
    value = -2 * safe * half * half - fnp.log(2 * math.pi * special.i0e(safe))
    return fnp.where(positive, value, math.nan)


@final
class vonmises(DistributionFunctions):
    """The von Mises distribution of angles.

    The density is `exp(kappa * cos(x)) / (2 * pi * i0(kappa))`.

    Args:
        x: the angle in radians.
        kappa: the concentration; the result is NaN unless it is positive.

    >>> round(float(vonmises.logpdf(0.5, 2.0)), 4)
    -0.9067
    >>> round(float(vonmises.pdf(0.5, 2.0)), 4)
    0.4039
    """

    logpdf = promoted(_point_kappa, _vonmises_logpdf)
    pdf = exp_of(logpdf)


def _point_c(x: ArrayLike, c: ArrayLike) -> Arguments:
    return x, c


def _wrapcauchy_logpdf(x: Array, c: Array) -> Array:
    half = fnp.sin(0.5 * x)
    value = fnp.log1p(-c * c) - math.log(2 * math.pi) - fnp.log((1 - c) ** 2 + 4 * c * half * half)
    value = fnp.where((x >= 0) & (x <= 2 * math.pi), value, fnp.where(x != x, math.nan, -math.inf))
    return fnp.where((c > 0) & (c < 1), value, math.nan)


@final
class wrapcauchy(DistributionFunctions):
    """The wrapped Cauchy distribution of angles from 0 to `2 * pi`.

    The density is `(1 - c**2) / (2 * pi * (1 + c**2 - 2 * c * cos(x)))` for angles from 0 to `2 * pi`; 0 elsewhere.

    Args:
        x: the angle in radians, from 0 to `2 * pi`.
        c: the concentration; the result is NaN unless `0 < c < 1`.

    >>> round(float(wrapcauchy.logpdf(0.5, 0.5)), 4)
    -1.1378
    >>> round(float(wrapcauchy.pdf(0.5, 0.5)), 4)
    0.3205
    """

    logpdf = promoted(_point_c, _wrapcauchy_logpdf)
    pdf = exp_of(logpdf)
