"""Student's t distribution."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.core.array import Array, ArrayLike
from tracefx.scipy.stats.standardization import log_gamma_quotient, standardize_arguments


def logpdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the logarithm of the probability density of Student's t distribution.

    Args:
        x: the point.
        df: the degrees of freedom, positive.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The log density, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logpdf(0.5, 3.0)), 4)
    -1.161
    """
    z, df, scale = standardize_arguments("t.logpdf", x, loc, scale, df)
    ratio = log_gamma_quotient(0.5 * df, 0.5) - 0.5 * fnp.log(math.pi * df)
    return ratio - fnp.log(scale) - 0.5 * (df + 1) * fnp.log1p(z * z / df)


def pdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Computes the probability density of Student's t distribution.

    The density is `gamma((df + 1) / 2) / (gamma(df / 2) * sqrt(pi * df) * scale) * (1 + z**2 / df)**(-(df + 1) / 2)`
    with `z = (x - loc) / scale`.

    Args:
        x: the point.
        df: the degrees of freedom, positive.
        loc: the location parameter.
        scale: the scale parameter, positive.

    Returns:
        The density, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(pdf(0.5, 3.0)), 4)
    0.3132
    """
    return fnp.exp(logpdf(x, df, loc, scale))
