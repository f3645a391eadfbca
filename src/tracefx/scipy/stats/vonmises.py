"""Von Mises's distribution of angles."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.core.array import Array, ArrayLike
from tracefx.scipy import special
from tracefx.scipy.stats.standardization import promote_real


def logpdf(x: ArrayLike, kappa: ArrayLike) -> Array:
    """The logarithm of the probability density: NaN unless `kappa` is positive.

    >>> round(float(logpdf(0.5, 2.0)), 4)
    -0.9067
    """
    z, kappa = promote_real("vonmises.logpdf", x, kappa)
    positive = kappa > 0
    safe = fnp.where(positive, kappa, 1.0)
    half = fnp.sin(0.5 * z)
    value = -2 * safe * half * half - fnp.log(2 * math.pi * special.i0e(safe))
    return fnp.where(positive, value, math.nan)


def pdf(x: ArrayLike, kappa: ArrayLike) -> Array:
    """The probability density.

    >>> round(float(pdf(0.5, 2.0)), 4)
    0.4039
    """
    return fnp.exp(logpdf(x, kappa))
