"""Dirichlet's distribution."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.numpy.operand_promotion import promote_dtypes, to_inexact
from tracefx.scipy import special


def logpdf(x: ArrayLike, alpha: ArrayLike) -> Array:
    """The logarithm of the probability density at `x`, `f32[n, ...]`, with parameters `alpha`, `f32[n]`.

    The last component of `x`, what is left to 1, may be missing. Minus infinity where the components are no shares of
    1. ValueError for shapes that don't fit.

    >>> round(float(logpdf(fnp.array([0.25, 0.75]), fnp.array([2.0, 3.0]))), 4)
    0.5232
    """
    shares, weights = (fnp.asarray(to_inexact(v, "dirichlet")) for v in promote_dtypes("dirichlet.logpdf", x, alpha))
    if weights.ndim != 1:
        raise ValueError(f"dirichlet: alpha must have one axis, got {weights.aval}")
    n = weights.shape[0]
    if shares.ndim == 0 or shares.shape[0] not in (n, n - 1):
        raise ValueError(f"dirichlet: x must have {n} or {n - 1} components along axis 0, got {shares.aval}")
    if shares.shape[0] != n:
        shares = fnp.concatenate([shares, 1 - fnp.sum(shares, 0, keepdims=True)], 0)
    total = fnp.sum(special.gammaln(weights)) - special.gammaln(fnp.sum(weights))
    weights = weights.reshape((n, *[1] * (shares.ndim - 1)))
    # Sums of many shares are off by more than one is of 1.
    close = max(1e-6, 4 * n * float(dtypes.finfo(shares.dtype).eps))
    inside = fnp.all(shares >= 0, 0) & (fnp.abs(fnp.sum(shares, 0) - 1) < close)
    value = fnp.sum(special.xlogy(weights - 1, fnp.maximum(shares, 0.0)), 0) - total
    return fnp.where(inside, value, -math.inf)


def pdf(x: ArrayLike, alpha: ArrayLike) -> Array:
    """The probability density; 0 where the components of `x` are no shares of 1.

    >>> round(float(pdf(fnp.array([0.25, 0.75]), fnp.array([2.0, 3.0]))), 4)
    1.6875
    """
    return fnp.exp(logpdf(x, alpha))
