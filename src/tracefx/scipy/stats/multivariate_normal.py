"""The multivariate normal distribution."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.core.array import Array, ArrayLike
from tracefx.lax import linalg
from tracefx.numpy.operand_promotion import promote_dtypes, to_inexact


def logpdf(x: ArrayLike, mean: ArrayLike, cov: ArrayLike, allow_singular: None = None) -> Array:
    """Computes the logarithm of the probability density of the multivariate normal distribution.

    Args:
        x: `f32[..., n]`, the components along the last axis.
        mean: `f32[..., n]`.
        cov: the covariance: a positive definite matrix, `f32[..., n, n]`, or a scalar, the variance of every component.
        allow_singular: must be None.

    Returns:
        The log density, `f32[...]`.

    Raises:
        NotImplementedError: if `allow_singular` is given.
        ValueError: if shapes do not match.

    >>> round(float(logpdf(fnp.array([0.5, 1.0]), fnp.zeros(2), fnp.eye(2))), 4)
    -2.4629
    """
    if allow_singular is not None:
        raise NotImplementedError("multivariate_normal: allow_singular is not supported; omit it")
    args = promote_dtypes("multivariate_normal.logpdf", x, mean, cov)
    point, center, covariance = (fnp.asarray(to_inexact(v, "multivariate_normal")) for v in args)
    if center.ndim == 0:
        return -0.5 * (fnp.square(point - center) / covariance + math.log(2 * math.pi) + fnp.log(covariance))
    n = center.shape[-1]
    if covariance.ndim == 0:
        squared_distance = fnp.sum(fnp.square(point - center), -1) / covariance
        return -0.5 * (squared_distance + n * (math.log(2 * math.pi) + fnp.log(covariance)))
    if covariance.ndim < 2 or covariance.shape[-2:] != (n, n):
        raise ValueError(f"multivariate_normal: cov must be a number or [..., {n}, {n}], got {covariance.aval}")
    root = linalg.cholesky(covariance)
    difference = (point - center)[..., None]
    batch = fnp.broadcast_shapes(root.shape[:-2], difference.shape[:-2])
    factors = fnp.broadcast_to(root, (*batch, n, n))
    whitened = linalg.triangular_solve(
        factors, fnp.broadcast_to(difference, (*batch, n, 1)), left_side=True, lower=True
    )
    logs = fnp.sum(fnp.log(fnp.diagonal(root, axis1=-2, axis2=-1)), -1)
    return -0.5 * (fnp.sum(fnp.square(whitened[..., 0]), -1) + n * math.log(2 * math.pi)) - logs


def pdf(x: ArrayLike, mean: ArrayLike, cov: ArrayLike) -> Array:
    """Computes the probability density of the multivariate normal distribution.

    Args:
        x: `f32[..., n]`, the components along the last axis.
        mean: `f32[..., n]`.
        cov: the covariance: a positive definite matrix, `f32[..., n, n]`, or a scalar, the variance of every component.

    Returns:
        The density, `f32[...]`.

    Raises:
        ValueError: if shapes do not match.

    >>> round(float(pdf(fnp.array([0.5, 1.0]), fnp.zeros(2), fnp.eye(2))), 4)
    0.0852
    """
    return fnp.exp(logpdf(x, mean, cov))
