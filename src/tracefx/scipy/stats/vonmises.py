"""The von Mises distribution of angles."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.core.array import Array, ArrayLike
from tracefx.scipy import special
from tracefx.scipy.stats.standardization import promote_real


def logpdf(x: ArrayLike, kappa: ArrayLike) -> Array:
    """Computes the logarithm of the probability density of the von Mises distribution.

    Args:
        x: the angle in radians.
        kappa: the concentration; the result is NaN unless it is positive.

    Returns:
        The log density, an array of floats of the shape that the arguments broadcast to.

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
    """Computes the probability density of the von Mises distribution.

    The density is `exp(kappa * cos(x)) / (2 * pi * i0(kappa))`.

    Args:
        x: the angle in radians.
        kappa: the concentration; the result is NaN unless it is positive.

    Returns:
        The density, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(pdf(0.5, 2.0)), 4)
    0.4039
    """
    return fnp.exp(logpdf(x, kappa))
