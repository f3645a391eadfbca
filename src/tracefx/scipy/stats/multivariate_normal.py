"""The normal distribution of vectors."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.core.array import Array, ArrayLike
from tracefx.lax import linalg
from tracefx.numpy.operand_promotion import promote_dtypes, to_inexact


def logpdf(x: ArrayLike, mean: ArrayLike, cov: ArrayLike, allow_singular: None = None) -> Array:
    """The logarithm of the probability density at `x`, `f32[..., n]`, with mean `f32[..., n]`.

    `cov` is a positive definite matrix, `f32[..., n, n]`, or a number, the variance of every component. ValueError for
    shapes that don't fit, NotImplementedError for `allow_singular`.

    >>> round(float(logpdf(fnp.array([0.5, 1.0]), fnp.zeros(2), fnp.eye(2))), 4)
    -2.4629
    """
    if allow_singular is not None:
        raise NotImplementedError("multivariate_normal: allow_singular is not supported; leave it out")
    args = promote_dtypes("multivariate_normal.logpdf", x, mean, cov)
    place, middle, spread = (fnp.asarray(to_inexact(v, "multivariate_normal")) for v in args)
    if middle.ndim == 0:
        return -0.5 * (fnp.square(place - middle) / spread + math.log(2 * math.pi) + fnp.log(spread))
    n = middle.shape[-1]
    if spread.ndim == 0:
        apart = fnp.sum(fnp.square(place - middle), -1) / spread
        return -0.5 * (apart + n * (math.log(2 * math.pi) + fnp.log(spread)))
    if spread.ndim < 2 or spread.shape[-2:] != (n, n):
        raise ValueError(f"multivariate_normal: cov must be a number or [..., {n}, {n}], got {spread.aval}")
    root = linalg.cholesky(spread)
    away = (place - middle)[..., None]
    batch = fnp.broadcast_shapes(root.shape[:-2], away.shape[:-2])
    factors = fnp.broadcast_to(root, (*batch, n, n))
    solved = linalg.triangular_solve(factors, fnp.broadcast_to(away, (*batch, n, 1)), left_side=True, lower=True)
    logs = fnp.sum(fnp.log(fnp.diagonal(root, axis1=-2, axis2=-1)), -1)
    return -0.5 * (fnp.sum(fnp.square(solved[..., 0]), -1) + n * math.log(2 * math.pi)) - logs


def pdf(x: ArrayLike, mean: ArrayLike, cov: ArrayLike) -> Array:
    """The probability density.

    >>> round(float(pdf(fnp.array([0.5, 1.0]), fnp.zeros(2), fnp.eye(2))), 4)
    0.0852
    """
    return fnp.exp(logpdf(x, mean, cov))
