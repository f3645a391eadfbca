"""`gaussian_kde`: kernel density estimation with Gaussian kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn, TypeAlias, final

from attrs import frozen

import tracefx.numpy as fnp
from tracefx import random
from tracefx.core import Array, ArrayLike, dtypes
from tracefx.filtered_tracebacks import api_boundary
from tracefx.lax import linalg
from tracefx.numpy.operand_promotion import promote_dtypes, to_inexact
from tracefx.pytrees import trees
from tracefx.scipy import special

Bandwidth: TypeAlias = "str | ArrayLike | Callable[[gaussian_kde], ArrayLike] | None"
"""The bandwidth of a kernel density estimate: the name of a rule, a factor, or a function of the estimate."""


@final
@frozen(eq=False, init=False)
class gaussian_kde:
    """A Gaussian kernel density estimate of the distribution that samples were drawn from. It is a pytree.

    Args:
        dataset: `f32[n]` or `f32[d, n]`: `n` samples of `d` components.
        bw_method: the factor between the covariance of the samples and that of the kernels, as a standard deviation:
            `"scott"` (the default), `"silverman"`, a number, or a function of the estimate, which may use its `neff`,
            `dataset` and `weights`.
        weights: `f32[n]`, the weights of the samples; equal by default.

    Raises:
        NotImplementedError: if `dataset` is complex.
        ValueError: if shapes do not match, or `bw_method` is unknown.

    >>> kde = gaussian_kde(fnp.array([0.0, 1.0, 3.0]))
    >>> round(float(kde(1.0)[0]), 4)
    0.2149
    """

    neff: Array
    """The effective number of samples, `1 / sum(weights**2)`."""
    dataset: Array
    """The samples, `f32[d, n]`."""
    weights: Array
    """The normalized weights, `f32[n]`."""
    covariance: Array
    """The covariance of the kernels, `f32[d, d]`."""
    inv_cov: Array
    """The inverse of `covariance`."""

    @api_boundary
    def __init__(self, dataset: ArrayLike, bw_method: Bandwidth = None, weights: ArrayLike | None = None) -> None:
        data = fnp.atleast_2d(fnp.asarray(to_inexact(dataset, "gaussian_kde: dataset")))
        if dtypes.is_complex(data.dtype):
            raise NotImplementedError(f"gaussian_kde: dataset must be real, got {data.aval}")
        if data.size < 2:
            raise ValueError(f"gaussian_kde: dataset must have several elements, got {data.aval}")
        d, n = data.shape
        if weights is None:
            normalized_weights = fnp.full((n,), 1 / n, data.dtype)
        else:
            data, normalized_weights = (
                fnp.asarray(v) for v in promote_dtypes("gaussian_kde", data, fnp.atleast_1d(weights))
            )
            if normalized_weights.shape != (n,):
                raise ValueError(
                    f"gaussian_kde: weights must be [{n}], one for each sample, got {normalized_weights.aval}"
                )
            normalized_weights = normalized_weights / fnp.sum(normalized_weights)
        _set_fields(
            self, neff=1 / fnp.sum(normalized_weights * normalized_weights), dataset=data, weights=normalized_weights
        )
        factor = fnp.asarray(self._factor(bw_method, d)).astype(data.dtype)
        sample_covariance = fnp.atleast_2d(fnp.cov(data, rowvar=True, bias=False, aweights=normalized_weights))
        _set_fields(
            self, covariance=sample_covariance * factor**2, inv_cov=fnp.linalg.inv(sample_covariance) / factor**2
        )

    def _factor(self, bw_method: Bandwidth, d: int) -> ArrayLike:
        """Returns the bandwidth factor."""
        if bw_method is None or (isinstance(bw_method, str) and bw_method == "scott"):
            return self.neff ** (-1.0 / (d + 4))
        if isinstance(bw_method, str):
            if bw_method == "silverman":
                return (self.neff * (d + 2) / 4.0) ** (-1.0 / (d + 4))
        elif callable(bw_method):
            return bw_method(self)
        elif fnp.ndim(bw_method) == 0:
            return bw_method
        raise ValueError(
            f"gaussian_kde: bw_method must be 'scott', 'silverman', a number or a function, got {bw_method!r}"
        )

    @property
    def d(self) -> int:
        """The number of components of a sample."""
        return self.dataset.shape[0]

    @property
    def n(self) -> int:
        """The number of samples."""
        return self.dataset.shape[1]

    # -------------------------------------------------------------- density

    def evaluate(self, points: ArrayLike) -> Array:
        """Evaluates the density at points.

        Args:
            points: `f32[m]` or `f32[d, m]`: `m` points.

        Returns:
            The densities, `f32[m]`.

        Raises:
            ValueError: if points don't have `d` components.
        """
        return fnp.sum(self.weights * fnp.exp(self._exponents(points)), -1)

    def __call__(self, points: ArrayLike) -> Array:
        return self.evaluate(points)

    def pdf(self, x: ArrayLike) -> Array:
        """Evaluates the density at points; the same as `evaluate`.

        Args:
            x: `f32[m]` or `f32[d, m]`: `m` points.

        Returns:
            The densities, `f32[m]`.

        Raises:
            ValueError: if points don't have `d` components.
        """
        return self.evaluate(x)

    def logpdf(self, x: ArrayLike) -> Array:
        """Computes the logarithm of the density at points.

        Args:
            x: `f32[m]` or `f32[d, m]`: `m` points.

        Returns:
            The logarithms, `f32[m]`.

        Raises:
            ValueError: if points don't have `d` components.
        """
        return special.logsumexp(self._exponents(x), axis=-1, b=self.weights)

    def _exponents(self, points: ArrayLike) -> Array:
        """Returns the log density of the kernel of each sample at each point, `f32[m, n]`."""
        point_array = self._as_points(points)
        root = linalg.cholesky(self.covariance)
        whitened_points, whitened_samples = (
            linalg.triangular_solve(root, v, left_side=True, lower=True) for v in (point_array, self.dataset)
        )
        squared_distance = fnp.zeros((whitened_points.shape[1], whitened_samples.shape[1]), whitened_points.dtype)
        for row, center in zip(whitened_points, whitened_samples, strict=True):
            squared_distance = squared_distance + fnp.square(row[:, None] - center)
        return -0.5 * (squared_distance + self.d * math.log(2 * math.pi)) - fnp.sum(fnp.log(fnp.diagonal(root)))

    def _as_points(self, points: ArrayLike) -> Array:
        """Converts points to an array `f32[d, m]`."""
        promoted, _ = promote_dtypes(
            "gaussian_kde", fnp.atleast_2d(fnp.asarray(to_inexact(points, "points"))), self.dataset
        )
        value = fnp.asarray(promoted)
        if dtypes.is_complex(value.dtype):
            raise NotImplementedError(f"gaussian_kde: points must be real, got {value.aval}")
        if value.shape[0] == self.d:
            return value
        if value.shape == (1, self.d):
            return value.reshape((self.d, 1))
        raise ValueError(f"gaussian_kde: points must have {self.d} components, got {value.aval}")

    # -------------------------------------------------------------- integrals

    def integrate_gaussian(self, mean: ArrayLike, cov: ArrayLike) -> Array:
        """Integrates the density times that of a normal distribution.

        Args:
            mean: the mean of the normal distribution, `f32[d]`.
            cov: its covariance, `f32[d, d]`.

        Returns:
            The integral, `f32[]`.

        Raises:
            ValueError: if shapes do not match.
        """
        center, covariance = fnp.atleast_1d(fnp.squeeze(fnp.asarray(mean))), fnp.atleast_2d(cov)
        if center.shape != (self.d,):
            raise ValueError(f"integrate_gaussian: mean must have {self.d} components, got {center.aval}")
        if covariance.shape != (self.d, self.d):
            raise ValueError(f"integrate_gaussian: cov must be [{self.d}, {self.d}], got {covariance.aval}")
        return self._overlap(self.covariance + covariance, center[:, None])[0]

    def _overlap(self, cov: Array, positions: Array) -> Array:
        """Returns the weighted sums over the samples of normal densities with covariance `cov` at `f32[d, m]`."""
        root = linalg.cholesky(cov)
        whitened_points, whitened_samples = (
            linalg.triangular_solve(root, v, left_side=True, lower=True) for v in (positions, self.dataset)
        )
        squared_distance = fnp.sum(fnp.square(whitened_points[:, :, None] - whitened_samples[:, None, :]), 0)
        norm = fnp.prod(fnp.diagonal(root)) * math.pow(2 * math.pi, self.d / 2)
        return fnp.sum(self.weights * fnp.exp(-0.5 * squared_distance), -1) / norm

    def integrate_box_1d(self, low: ArrayLike, high: ArrayLike) -> Array:
        """Computes the probability of an interval, for samples of one component.

        Args:
            low: the lower end, a scalar.
            high: the upper end, a scalar.

        Returns:
            The probability, `f32[]`.

        Raises:
            ValueError: if samples have several components, or a bound is not a scalar.
        """
        if self.d != 1:
            raise ValueError(f"integrate_box_1d: samples must have one component, got {self.d}")
        if fnp.ndim(low) != 0 or fnp.ndim(high) != 0:
            raise ValueError("integrate_box_1d: low and high must be scalars")
        width = fnp.sqrt(self.covariance[0, 0])
        left, right = ((fnp.asarray(v) - self.dataset[0]) / width for v in (low, high))
        return fnp.sum(self.weights * (special.ndtr(right) - special.ndtr(left)))

    def integrate_kde(self, other: gaussian_kde) -> Array:
        """Integrates the product of this density and another estimate.

        Args:
            other: an estimate of samples with the same number of components.

        Returns:
            The integral, `f32[]`.

        Raises:
            ValueError: if the numbers of components differ.
        """
        if other.d != self.d:
            raise ValueError(f"integrate_kde: both must have the same number of components, got {self.d} and {other.d}")
        return fnp.sum(other.weights * self._overlap(self.covariance + other.covariance, other.dataset))

    def integrate_box(self, low_bounds: object, high_bounds: object, maxpts: object = None) -> NoReturn:
        """Raises NotImplementedError. For one component there is `integrate_box_1d`.

        Args:
            low_bounds: ignored.
            high_bounds: ignored.
            maxpts: ignored.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("integrate_box: only intervals are supported; use integrate_box_1d")

    def set_bandwidth(self, bw_method: object = None) -> None:
        """Raises NotImplementedError, since estimates are immutable.

        Args:
            bw_method: ignored.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("set_bandwidth: estimates are immutable; create one with another bw_method")

    # -------------------------------------------------------------- samples

    def resample(self, key: ArrayLike, shape: Sequence[int] = ()) -> Array:
        """Draws new samples from the estimated distribution.

        Args:
            key: a random key.
            shape: the shape of the array of samples.

        Returns:
            `f32[d, *shape]`.
        """
        index_key, noise_key = random.split(key)
        indices = random.choice(index_key, self.n, shape=shape, p=self.weights)
        zeros = fnp.zeros(self.d, self.covariance.dtype)
        noise = random.multivariate_normal(noise_key, zeros, self.covariance, tuple(shape), self.dataset.dtype)
        return self.dataset[:, indices] + fnp.moveaxis(noise, -1, 0)


def _set_fields(kde: gaussian_kde, **fields: Array) -> None:
    for name, value in fields.items():
        object.__setattr__(kde, name, value)


_FIELDS: Final = ("neff", "dataset", "weights", "covariance", "inv_cov")


def _unflatten(_: object, fields: Sequence[Any]) -> gaussian_kde:
    kde = gaussian_kde.__new__(gaussian_kde)
    _set_fields(kde, **dict(zip(_FIELDS, fields, strict=True)))
    return kde


trees.register_pytree_node(gaussian_kde, lambda kde: ([getattr(kde, name) for name in _FIELDS], None), _unflatten)
