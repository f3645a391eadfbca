"""Distributions of several numbers at once."""

from __future__ import annotations

import math
from typing import final

import tracefx.numpy as fnp
from tracefx.core import Array, ArrayLike, dtypes
from tracefx.lax import linalg
from tracefx.numpy.operand_promotion import promote_dtypes, to_inexact
from tracefx.scipy import special
from tracefx.scipy.stats.distributions import DistributionFunctions


@final
class dirichlet(DistributionFunctions):
    """The Dirichlet distribution."""

    @staticmethod
    def logpdf(x: ArrayLike, alpha: ArrayLike) -> Array:
        """Computes the logarithm of the probability density of the Dirichlet distribution.

        Args:
            x: `f32[n, ...]`, the components along axis 0. The last component may be omitted, since they sum to 1.
            alpha: the concentration parameters, `f32[n]`, positive.

        Returns:
            The log density; minus infinity where the components are negative or do not sum to 1.

        Raises:
            ValueError: if shapes do not match.

        >>> round(float(dirichlet.logpdf(fnp.array([0.25, 0.75]), fnp.array([2.0, 3.0]))), 4)
        0.5232
        """
        components, weights = (
            fnp.asarray(to_inexact(v, "dirichlet")) for v in promote_dtypes("dirichlet.logpdf", x, alpha)
        )
        if weights.ndim != 1:
            raise ValueError(f"dirichlet: alpha must have one axis, got {weights.aval}")
        n = weights.shape[0]
        if components.ndim == 0 or components.shape[0] not in (n, n - 1):
            raise ValueError(f"dirichlet: x must have {n} or {n - 1} components along axis 0, got {components.aval}")
        if components.shape[0] != n:
            components = fnp.concatenate([components, 1 - fnp.sum(components, 0, keepdims=True)], 0)
        total = fnp.sum(special.gammaln(weights)) - special.gammaln(fnp.sum(weights))
        weights = weights.reshape((n, *[1] * (components.ndim - 1)))
        # The rounding error of a sum grows with the number of components.
        close = max(1e-6, 4 * n * float(dtypes.finfo(components.dtype).eps))
        inside = fnp.all(components >= 0, 0) & (fnp.abs(fnp.sum(components, 0) - 1) < close)
        value = fnp.sum(special.xlogy(weights - 1, fnp.maximum(components, 0.0)), 0) - total
        return fnp.where(inside, value, -math.inf)

    @staticmethod
    def pdf(x: ArrayLike, alpha: ArrayLike) -> Array:
        """Computes the probability density of the Dirichlet distribution.

        The density is `gamma(sum(alpha)) / prod(gamma(alpha)) * prod(x**(alpha - 1))`.

        Args:
            x: `f32[n, ...]`, the components along axis 0. The last component may be omitted, since they sum to 1.
            alpha: the concentration parameters, `f32[n]`, positive.

        Returns:
            The density; 0 where the components are negative or do not sum to 1.

        Raises:
            ValueError: if shapes do not match.

        >>> round(float(dirichlet.pdf(fnp.array([0.25, 0.75]), fnp.array([2.0, 3.0]))), 4)
        1.6875
        """
        return fnp.exp(dirichlet.logpdf(x, alpha))


@final
class multinomial(DistributionFunctions):
    """The multinomial distribution."""

    @staticmethod
    def logpmf(x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
        """Computes the logarithm of the probability mass function of the multinomial distribution.

        Args:
            x: the counts, `i32[..., k]`.
            n: the number of trials, integers.
            p: the probabilities of the classes, `f32[..., k]`.

        Returns:
            The log probability, `f32[...]`; minus infinity where the counts do not sum to `n`.

        Raises:
            TypeError: if `x` or `n` has no integer dtype.

        >>> round(float(multinomial.logpmf(fnp.array([1, 2]), 3, fnp.array([0.25, 0.75]))), 4)
        -0.863
        """
        chances = fnp.asarray(to_inexact(p, "multinomial: p"))
        counts, draws = (fnp.asarray(v) for v in promote_dtypes("multinomial.logpmf", x, n))
        if not dtypes.is_integer(counts.dtype):
            raise TypeError(f"multinomial: x and n must have integer dtypes, got {counts.aval} and {draws.aval}")
        fits = fnp.sum(counts, -1) == draws
        counts, draws = counts.astype(chances.dtype), draws.astype(chances.dtype)
        parts = special.xlogy(counts, chances) - special.gammaln(counts + 1)
        return fnp.where(fits, special.gammaln(draws + 1) + fnp.sum(parts, -1), -math.inf)

    @staticmethod
    def pmf(x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
        """Computes the probability mass function of the multinomial distribution.

        The probability is `n! / prod(x!) * prod(p**x)`.

        Args:
            x: the counts, `i32[..., k]`.
            n: the number of trials, integers.
            p: the probabilities of the classes, `f32[..., k]`.

        Returns:
            The probability, `f32[...]`; 0 where the counts do not sum to `n`.

        Raises:
            TypeError: if `x` or `n` has no integer dtype.

        >>> round(float(multinomial.pmf(fnp.array([1, 2]), 3, fnp.array([0.25, 0.75]))), 4)
        0.4219
        """
        return fnp.exp(multinomial.logpmf(x, n, p))


@final
class multivariate_normal(DistributionFunctions):
    """The multivariate normal distribution."""

    @staticmethod
    def logpdf(x: ArrayLike, mean: ArrayLike, cov: ArrayLike, allow_singular: None = None) -> Array:
        """Computes the logarithm of the probability density of the multivariate normal distribution.

        Args:
            x: `f32[..., n]`, the components along the last axis.
            mean: `f32[..., n]`.
            cov: the covariance: a positive definite matrix, `f32[..., n, n]`, or a scalar, the variance of every
                component.
            allow_singular: must be None.

        Returns:
            The log density, `f32[...]`.

        Raises:
            NotImplementedError: if `allow_singular` is given.
            ValueError: if shapes do not match.

        >>> round(float(multivariate_normal.logpdf(fnp.array([0.5, 1.0]), fnp.zeros(2), fnp.eye(2))), 4)
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

    @staticmethod
    def pdf(x: ArrayLike, mean: ArrayLike, cov: ArrayLike) -> Array:
        """Computes the probability density of the multivariate normal distribution.

        Args:
            x: `f32[..., n]`, the components along the last axis.
            mean: `f32[..., n]`.
            cov: the covariance: a positive definite matrix, `f32[..., n, n]`, or a scalar, the variance of every
                component.

        Returns:
            The density, `f32[...]`.

        Raises:
            ValueError: if shapes do not match.

        >>> round(float(multivariate_normal.pdf(fnp.array([0.5, 1.0]), fnp.zeros(2), fnp.eye(2))), 4)
        0.0852
        """
        return fnp.exp(multivariate_normal.logpdf(x, mean, cov))
