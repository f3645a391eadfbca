"""Continuous distributions without shape parameters: every function depends on `(x - loc) / scale`."""

from __future__ import annotations

import math
from typing import final

import tracefx.numpy as fnp
from tracefx.core import Array, ArrayLike
from tracefx.scipy import special
from tracefx.scipy.stats.distributions import (
    Arguments,
    DistributionFunctions,
    complement_of,
    exp_of,
    log_of,
    quantile,
    standardized,
)
from tracefx.scipy.stats.standardization import nan_unless_probability


def _at_x(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Arguments:
    return x, loc, scale


def _at_q(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Arguments:
    return q, loc, scale


def _at_p(p: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Arguments:
    return p, loc, scale


def _cauchy_logpdf(z: Array, scale: Array) -> Array:
    size = fnp.abs(z)
    large = size > 1e4  # the square may overflow
    inner, outer = fnp.where(large, 0.0, z), fnp.where(large, size, 1.0)
    square = fnp.where(large, 2 * fnp.log(outer) + fnp.log1p((1 / outer) ** 2), fnp.log1p(inner * inner))
    return -(square + fnp.log(math.pi * scale))


def _cotangent(p: Array) -> Array:
    """Returns the cotangent of `pi * p`: infinite at 0 and 1, NaN outside."""
    low = p < 0.25
    high = p > 0.75
    ends = fnp.where(low, p, fnp.where(high, p - 1, 0.25))
    centre = fnp.where(low | high, 0.0, 0.5 - p)
    value = fnp.where(low | high, 1 / fnp.tan(math.pi * ends), fnp.tan(math.pi * centre))
    return fnp.where((p >= 0) & (p <= 1), fnp.where(p == 1, -math.inf, value), math.nan)


@final
class cauchy(DistributionFunctions):
    """The Cauchy distribution.

    The density is `1 / (pi * scale * (1 + z**2))` with `z = (x - loc) / scale`.

    Args:
        x: the point.
        loc: the location parameter.
        scale: the scale parameter, positive.

    >>> round(float(cauchy.logpdf(0.5)), 4)
    -1.3679
    >>> round(float(cauchy.pdf(0.5)), 4)
    0.2546
    >>> round(float(cauchy.cdf(0.5)), 4)
    0.6476
    >>> round(float(cauchy.logcdf(0.5)), 4)
    -0.4345
    >>> round(float(cauchy.sf(0.5)), 4)
    0.3524
    >>> round(float(cauchy.logsf(0.5)), 4)
    -1.0429
    >>> round(float(cauchy.ppf(0.25)), 4)
    -1.0
    >>> round(float(cauchy.isf(0.25)), 4)
    1.0
    """

    logpdf = standardized(_at_x, _cauchy_logpdf)
    pdf = exp_of(logpdf)
    cdf = standardized(_at_x, lambda z, scale: fnp.arctan2(fnp.ones_like(z), -z) / math.pi)
    logcdf = log_of(cdf)
    sf = standardized(_at_x, lambda z, scale: fnp.arctan2(fnp.ones_like(z), z) / math.pi)
    logsf = log_of(sf)
    ppf = quantile(_at_q, _cotangent, mirrored=True)
    isf = quantile(_at_q, _cotangent)


@final
class expon(DistributionFunctions):
    """The exponential distribution.

    The density is `exp(-z) / scale` with `z = (x - loc) / scale >= 0`; 0 elsewhere.

    Args:
        x: the point.
        loc: the location parameter.
        scale: the scale parameter, positive.

    >>> round(float(expon.logpdf(0.5)), 4)
    -0.5
    >>> round(float(expon.pdf(0.5)), 4)
    0.6065
    >>> round(float(expon.cdf(0.5)), 4)
    0.3935
    >>> round(float(expon.logcdf(0.5)), 4)
    -0.9328
    >>> round(float(expon.sf(0.5)), 4)
    0.6065
    >>> round(float(expon.logsf(0.5)), 4)
    -0.5
    >>> round(float(expon.ppf(0.25)), 4)
    0.2877
    """

    logpdf = standardized(_at_x, lambda z, scale: fnp.where(z < 0, -math.inf, -z - fnp.log(scale)))
    pdf = exp_of(logpdf)
    logsf = standardized(_at_x, lambda z, scale: fnp.where(z < 0, 0.0, -z))
    sf = exp_of(logsf)
    cdf = complement_of(logsf)
    logcdf = log_of(cdf)
    ppf = quantile(_at_q, lambda p: fnp.log1p(-nan_unless_probability(p)), mirrored=True)


@final
class gumbel_l(DistributionFunctions):
    """The left-skewed Gumbel distribution: the limit distribution of the minimum of many numbers.

    The density is `exp(z - exp(z)) / scale` with `z = (x - loc) / scale`.

    Args:
        x: the point.
        loc: the location parameter.
        scale: the scale parameter, positive.

    >>> round(float(gumbel_l.logpdf(0.5)), 4)
    -1.1487
    >>> round(float(gumbel_l.pdf(0.5)), 4)
    0.317
    >>> round(float(gumbel_l.cdf(0.5)), 4)
    0.8077
    >>> round(float(gumbel_l.logcdf(0.5)), 4)
    -0.2136
    >>> round(float(gumbel_l.sf(0.5)), 4)
    0.1923
    >>> round(float(gumbel_l.logsf(0.5)), 4)
    -1.6487
    >>> round(float(gumbel_l.ppf(0.25)), 4)
    -1.2459
    """

    logpdf = standardized(_at_x, lambda z, scale: z - fnp.exp(z) - fnp.log(scale))
    pdf = exp_of(logpdf)
    logsf = standardized(_at_x, lambda z, scale: -fnp.exp(z))
    sf = exp_of(logsf)
    cdf = complement_of(logsf)
    logcdf = log_of(cdf)
    ppf = quantile(_at_p, lambda p: fnp.log(-fnp.log1p(-nan_unless_probability(p))))


@final
class gumbel_r(DistributionFunctions):
    """The right-skewed Gumbel distribution: the limit distribution of the maximum of many numbers.

    The density is `exp(-z - exp(-z)) / scale` with `z = (x - loc) / scale`.

    Args:
        x: the point.
        loc: the location parameter.
        scale: the scale parameter, positive.

    >>> round(float(gumbel_r.logpdf(0.5)), 4)
    -1.1065
    >>> round(float(gumbel_r.pdf(0.5)), 4)
    0.3307
    >>> round(float(gumbel_r.cdf(0.5)), 4)
    0.5452
    >>> round(float(gumbel_r.logcdf(0.5)), 4)
    -0.6065
    >>> round(float(gumbel_r.sf(0.5)), 4)
    0.4548
    >>> round(float(gumbel_r.logsf(0.5)), 4)
    -0.788
    >>> round(float(gumbel_r.ppf(0.25)), 4)
    -0.3266
    """

    logpdf = standardized(_at_x, lambda z, scale: -z - fnp.exp(-z) - fnp.log(scale))
    pdf = exp_of(logpdf)
    logcdf = standardized(_at_x, lambda z, scale: -fnp.exp(-z))
    cdf = exp_of(logcdf)
    sf = complement_of(logcdf)
    logsf = log_of(sf)
    ppf = quantile(_at_p, lambda p: fnp.log(-fnp.log(nan_unless_probability(p))), mirrored=True)


def _laplace_cdf(z: Array, scale: Array) -> Array:
    below = z <= 0  # both halves are smooth; `abs` is not
    half = 0.5 * fnp.exp(fnp.where(below, z, -z))
    return fnp.where(below, half, 1 - half)


@final
class laplace(DistributionFunctions):
    """The Laplace distribution.

    The density is `exp(-abs(z)) / (2 * scale)` with `z = (x - loc) / scale`.

    Args:
        x: the point.
        loc: the location parameter.
        scale: the scale parameter, positive.

    >>> round(float(laplace.logpdf(0.5)), 4)
    -1.1931
    >>> round(float(laplace.pdf(0.5)), 4)
    0.3033
    >>> round(float(laplace.cdf(0.5)), 4)
    0.6967
    """

    logpdf = standardized(_at_x, lambda z, scale: -fnp.abs(z) - fnp.log(2 * scale))
    pdf = exp_of(logpdf)
    cdf = standardized(_at_x, _laplace_cdf)


@final
class logistic(DistributionFunctions):
    """The logistic distribution.

    The density is `exp(-z) / (scale * (1 + exp(-z))**2)` with `z = (x - loc) / scale`.

    Args:
        x: the point.
        loc: the location parameter.
        scale: the scale parameter, positive.

    >>> round(float(logistic.logpdf(0.5)), 4)
    -1.4482
    >>> round(float(logistic.pdf(0.5)), 4)
    0.235
    >>> round(float(logistic.cdf(0.5)), 4)
    0.6225
    >>> round(float(logistic.sf(0.5)), 4)
    0.3775
    >>> round(float(logistic.ppf(0.25)), 4)
    -1.0986
    >>> round(float(logistic.isf(0.25)), 4)
    1.0986
    """

    logpdf = standardized(_at_x, lambda z, scale: -2 * fnp.logaddexp(0.5 * z, -0.5 * z) - fnp.log(scale))
    pdf = exp_of(logpdf)
    cdf = standardized(_at_x, lambda z, scale: special.expit(z))
    sf = standardized(_at_x, lambda z, scale: special.expit(-z))
    ppf = quantile(_at_x, special.logit)
    isf = quantile(_at_x, special.logit, mirrored=True)


_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


@final
class norm(DistributionFunctions):
    """The normal distribution.

    The density is `exp(-z**2 / 2) / (scale * sqrt(2 * pi))` with `z = (x - loc) / scale`.

    Args:
        x: the point.
        loc: the mean.
        scale: the standard deviation, positive.

    >>> round(float(norm.logpdf(0.5)), 4)
    -1.0439
    >>> round(float(norm.pdf(0.5)), 4)
    0.3521
    >>> round(float(norm.cdf(0.5)), 4)
    0.6915
    >>> round(float(norm.logcdf(0.5)), 4)
    -0.3689
    >>> round(float(norm.sf(0.5)), 4)
    0.3085
    >>> round(float(norm.logsf(0.5)), 4)
    -1.1759
    >>> round(float(norm.ppf(0.25)), 4)
    -0.6745
    >>> round(float(norm.isf(0.25)), 4)
    0.6745
    """

    logpdf = standardized(_at_x, lambda z, scale: -0.5 * z * z - (fnp.log(scale) + _LOG_SQRT_2PI))
    pdf = exp_of(logpdf)
    cdf = standardized(_at_x, lambda z, scale: special.ndtr(z))
    logcdf = standardized(_at_x, lambda z, scale: special.log_ndtr(z))
    sf = standardized(_at_x, lambda z, scale: special.ndtr(-z))
    logsf = standardized(_at_x, lambda z, scale: special.log_ndtr(-z))
    ppf = quantile(_at_q, special.ndtri)
    isf = quantile(_at_q, special.ndtri, mirrored=True)


@final
class uniform(DistributionFunctions):
    """The uniform distribution on the interval from `loc` to `loc + scale`.

    The density is `1 / scale` from `loc` to `loc + scale`; 0 elsewhere.

    Args:
        x: the point.
        loc: the lower end of the interval.
        scale: the length of the interval, positive.

    >>> round(float(uniform.logpdf(0.5)), 4)
    0.0
    >>> round(float(uniform.pdf(0.5)), 4)
    1.0
    >>> round(float(uniform.cdf(0.5)), 4)
    0.5
    >>> round(float(uniform.ppf(0.25)), 4)
    0.25
    """

    logpdf = standardized(_at_x, lambda z, scale: fnp.where((z < 0) | (z > 1), -math.inf, z * 0 - fnp.log(scale)))
    pdf = exp_of(logpdf)
    cdf = standardized(_at_x, lambda z, scale: fnp.clip(z, 0.0, 1.0))
    ppf = quantile(_at_q, nan_unless_probability)
