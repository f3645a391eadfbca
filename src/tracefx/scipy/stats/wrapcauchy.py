"""The wrapped Cauchy distribution of angles from 0 to `2 * pi`."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.core.array import Array, ArrayLike
from tracefx.scipy.stats.standardization import promote_real


def logpdf(x: ArrayLike, c: ArrayLike) -> Array:
    """Computes the logarithm of the probability density of the wrapped Cauchy distribution.

    Args:
        x: the angle in radians, from 0 to `2 * pi`.
        c: the concentration; the result is NaN unless `0 < c < 1`.

    Returns:
        The log density, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(logpdf(0.5, 0.5)), 4)
    -1.1378
    """
    z, c = promote_real("wrapcauchy.logpdf", x, c)
    half = fnp.sin(0.5 * z)
    value = fnp.log1p(-c * c) - math.log(2 * math.pi) - fnp.log((1 - c) ** 2 + 4 * c * half * half)
    value = fnp.where((z >= 0) & (z <= 2 * math.pi), value, fnp.where(z != z, math.nan, -math.inf))
    return fnp.where((c > 0) & (c < 1), value, math.nan)


def pdf(x: ArrayLike, c: ArrayLike) -> Array:
    """Computes the probability density of the wrapped Cauchy distribution.

    The density is `(1 - c**2) / (2 * pi * (1 + c**2 - 2 * c * cos(x)))` for angles from 0 to `2 * pi`; 0 elsewhere.

    Args:
        x: the angle in radians, from 0 to `2 * pi`.
        c: the concentration; the result is NaN unless `0 < c < 1`.

    Returns:
        The density, an array of floats of the shape that the arguments broadcast to.

    >>> round(float(pdf(0.5, 0.5)), 4)
    0.3205
    """
    return fnp.exp(logpdf(x, c))
