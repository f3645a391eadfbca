"""Student's distribution."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.core.array import Array, ArrayLike
from tracefx.scipy.stats.standardization import log_gamma_quotient, standardize_arguments


def logpdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the probability density.

    >>> round(float(logpdf(0.5, 3.0)), 4)
    -1.161
    """
    z, df, scale = standardize_arguments("t.logpdf", x, loc, scale, df)
    ratio = log_gamma_quotient(0.5 * df, 0.5) - 0.5 * fnp.log(math.pi * df)
    return ratio - fnp.log(scale) - 0.5 * (df + 1) * fnp.log1p(z * z / df)


def pdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability density.

    >>> round(float(pdf(0.5, 3.0)), 4)
    0.3132
    """
    return fnp.exp(logpdf(x, df, loc, scale))
