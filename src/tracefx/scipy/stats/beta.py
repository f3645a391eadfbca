"""The beta distribution."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.control.special import incomplete_beta
from tracefx.core.array import Array, ArrayLike
from tracefx.core.handler import bind1
from tracefx.scipy import special
from tracefx.scipy.stats.standardization import standardize_arguments


def logpdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the logarithm of the probability density of the beta distribution.

    Args:
        x: the point.
        a: the first shape parameter, positive.
        b: the second shape parameter, positive.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The log density, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logpdf(0.25, 1.5, 2.5)), 4)
    0.5032
    """
    z, a, b, scale = standardize_arguments("beta.logpdf", x, loc, scale, a, b)
    inside = (z >= 0) & (z <= 1)
    y = fnp.where(inside, z, 0.5)
    value = special.xlogy(a - 1, y) + special.xlog1py(b - 1, -y) - special.betaln(a, b) - fnp.log(scale)
    return fnp.where((a > 0) & (b > 0), fnp.where(inside | (z != z), value, -math.inf), math.nan)


def pdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the probability density of the beta distribution.

    The density is `z**(a - 1) * (1 - z)**(b - 1) / (B(a, b) * scale)` with `z = (x - loc) / scale` from 0 to 1; 0
    elsewhere.

    Args:
        x: the point.
        a: the first shape parameter, positive.
        b: the second shape parameter, positive.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The density, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(pdf(0.25, 1.5, 2.5)), 4)
    1.654
    """
    z, a, b, scale = standardize_arguments("beta.pdf", x, loc, scale, a, b)
    inside = (z >= 0) & (z <= 1)
    value = bind1(incomplete_beta.BETA_DENSITY, a, b, fnp.where(inside, z, 0.5)) / scale
    return fnp.where((a > 0) & (b > 0), fnp.where(inside | (z != z), value, 0.0), math.nan)


def cdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the cumulative distribution function of the beta distribution: the probability of at most `x`.

    Args:
        x: the point.
        a: the first shape parameter, positive.
        b: the second shape parameter, positive.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(cdf(0.25, 1.5, 2.5)), 4)
    0.3333
    """
    z, a, b, _ = standardize_arguments("beta.cdf", x, loc, scale, a, b)
    return special.betainc(a, b, fnp.clip(z, 0.0, 1.0))


def logcdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the logarithm of the cumulative distribution function of the beta distribution.

    Args:
        x: the point.
        a: the first shape parameter, positive.
        b: the second shape parameter, positive.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The log probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logcdf(0.25, 1.5, 2.5)), 4)
    -1.0986
    """
    return fnp.log(cdf(x, a, b, loc, scale))


def sf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the survival function of the beta distribution: the probability of more than `x`.

    Args:
        x: the point.
        a: the first shape parameter, positive.
        b: the second shape parameter, positive.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(sf(0.25, 1.5, 2.5)), 4)
    0.6667
    """
    z, a, b, _ = standardize_arguments("beta.sf", x, loc, scale, a, b)
    return special.betainc(b, a, 1 - fnp.clip(z, 0.0, 1.0))


def logsf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the logarithm of the survival function of the beta distribution.

    Args:
        x: the point.
        a: the first shape parameter, positive.
        b: the second shape parameter, positive.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The log probability, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logsf(0.25, 1.5, 2.5)), 4)
    -0.4055
    """
    return fnp.log(sf(x, a, b, loc, scale))
