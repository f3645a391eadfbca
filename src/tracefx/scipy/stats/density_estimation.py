"""A probability density from samples: a sum of normal distributions around them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, final

from attrs import frozen

import tracefx.numpy as fnp
from tracefx import random
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.lax import linalg
from tracefx.numpy.operand_promotion import promote_dtypes, to_inexact
from tracefx.pytrees import trees
from tracefx.scipy import special

Bandwidth: TypeAlias = "str | ArrayLike | Callable[[gaussian_kde], ArrayLike] | None"


@final
@frozen(eq=False, init=False)
class gaussian_kde:
    """An estimate of the density that samples were drawn from.

    `dataset` is `f32[n]` or `f32[d, n]`, `n` samples of `d` components, with `weights`, `f32[n]`. The width of the
    normal distributions is that of the samples times a factor: by Scott's rule, by Silverman's for `"silverman"`, a
    number, or what a function gives of the estimate, of which it sees `neff`, `dataset` and `weights`. It is a tree.

    ValueError for shapes that don't fit, and for another `bw_method`.

    >>> kde = gaussian_kde(fnp.array([0.0, 1.0, 3.0]))
    >>> round(float(kde(1.0)[0]), 4)
    0.2149
    """

    neff: Array
    dataset: Array
    weights: Array
    covariance: Array
    inv_cov: Array

    def __init__(self, dataset: ArrayLike, bw_method: Bandwidth = None, weights: ArrayLike | None = None) -> None:
        data = fnp.atleast_2d(fnp.asarray(to_inexact(dataset, "gaussian_kde: dataset")))
        if dtypes.is_complex(data.dtype):
            raise NotImplementedError(f"gaussian_kde: dataset must be real, got {data.aval}")
        if data.size < 2:
            raise ValueError(f"gaussian_kde: dataset must have several elements, got {data.aval}")
        d, n = data.shape
        if weights is None:
            shares = fnp.full((n,), 1 / n, data.dtype)
        else:
            data, shares = (fnp.asarray(v) for v in promote_dtypes("gaussian_kde", data, fnp.atleast_1d(weights)))
            if shares.shape != (n,):
                raise ValueError(f"gaussian_kde: weights must be [{n}], one for each sample, got {shares.aval}")
            shares = shares / fnp.sum(shares)
        _set_fields(self, neff=1 / fnp.sum(shares * shares), dataset=data, weights=shares)
        factor = fnp.asarray(self._factor(bw_method, d)).astype(data.dtype)
        spread = fnp.atleast_2d(fnp.cov(data, rowvar=True, bias=False, aweights=shares))
        _set_fields(self, covariance=spread * factor**2, inv_cov=fnp.linalg.inv(spread) / factor**2)

    def _factor(self, bw_method: Bandwidth, d: int) -> ArrayLike:
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
        return self.dataset.shape[0]

    @property
    def n(self) -> int:
        return self.dataset.shape[1]

    # -------------------------------------------------------------- the density

    def evaluate(self, points: ArrayLike) -> Array:
        """The density at `points`, `f32[m]` or `f32[d, m]`: `f32[m]`."""
        return fnp.sum(self.weights * fnp.exp(self._exponents(points)), -1)

    def __call__(self, points: ArrayLike) -> Array:
        return self.evaluate(points)

    def pdf(self, x: ArrayLike) -> Array:
        """The same as `evaluate`."""
        return self.evaluate(x)

    def logpdf(self, x: ArrayLike) -> Array:
        """The logarithm of the density."""
        return special.logsumexp(self._exponents(x), axis=-1, b=self.weights)

    def _exponents(self, points: ArrayLike) -> Array:
        """The logarithm of each sample's normal distribution, `f32[m, n]`."""
        places = self._as_points(points)
        root = linalg.cholesky(self.covariance)
        at, around = (linalg.triangular_solve(root, v, left_side=True, lower=True) for v in (places, self.dataset))
        apart = fnp.zeros((at.shape[1], around.shape[1]), at.dtype)
        for row, center in zip(at, around, strict=True):
            apart = apart + fnp.square(row[:, None] - center)
        return -0.5 * (apart + self.d * math.log(2 * math.pi)) - fnp.sum(fnp.log(fnp.diagonal(root)))

    def _as_points(self, points: ArrayLike) -> Array:
        places, _ = promote_dtypes(
            "gaussian_kde", fnp.atleast_2d(fnp.asarray(to_inexact(points, "points"))), self.dataset
        )
        value = fnp.asarray(places)
        if dtypes.is_complex(value.dtype):
            raise NotImplementedError(f"gaussian_kde: points must be real, got {value.aval}")
        if value.shape[0] == self.d:
            return value
        if value.shape == (1, self.d):
            return value.reshape((self.d, 1))
        raise ValueError(f"gaussian_kde: points must have {self.d} components, got {value.aval}")

    # -------------------------------------------------------------- integrals

    def integrate_gaussian(self, mean: ArrayLike, cov: ArrayLike) -> Array:
        """The integral of the density times that of a normal distribution."""
        middle, spread = fnp.atleast_1d(fnp.squeeze(fnp.asarray(mean))), fnp.atleast_2d(cov)
        if middle.shape != (self.d,):
            raise ValueError(f"integrate_gaussian: mean must have {self.d} components, got {middle.aval}")
        if spread.shape != (self.d, self.d):
            raise ValueError(f"integrate_gaussian: cov must be [{self.d}, {self.d}], got {spread.aval}")
        return self._overlap(self.covariance + spread, middle[:, None])[0]

    def _overlap(self, cov: Array, places: Array) -> Array:
        """The weighted sums of normal densities of the distances of all samples from places, `f32[d, m]`."""
        root = linalg.cholesky(cov)
        at, around = (linalg.triangular_solve(root, v, left_side=True, lower=True) for v in (places, self.dataset))
        apart = fnp.sum(fnp.square(at[:, :, None] - around[:, None, :]), 0)
        norm = fnp.prod(fnp.diagonal(root)) * math.pow(2 * math.pi, self.d / 2)
        return fnp.sum(self.weights * fnp.exp(-0.5 * apart), -1) / norm

    def integrate_box_1d(self, low: ArrayLike, high: ArrayLike) -> Array:
        """The probability of the interval from `low` to `high`. ValueError unless samples are numbers."""
        if self.d != 1:
            raise ValueError(f"integrate_box_1d: samples must have one component, got {self.d}")
        if fnp.ndim(low) != 0 or fnp.ndim(high) != 0:
            raise ValueError("integrate_box_1d: low and high must be numbers")
        width = fnp.sqrt(self.covariance[0, 0])
        left, right = ((fnp.asarray(v) - self.dataset[0]) / width for v in (low, high))
        return fnp.sum(self.weights * (special.ndtr(right) - special.ndtr(left)))

    def integrate_kde(self, other: gaussian_kde) -> Array:
        """The integral of the product of two densities."""
        if other.d != self.d:
            raise ValueError(f"integrate_kde: both must have the same number of components, got {self.d} and {other.d}")
        return fnp.sum(other.weights * self._overlap(self.covariance + other.covariance, other.dataset))

    def integrate_box(self, low_bounds: object, high_bounds: object, maxpts: object = None) -> Array:
        """Not supported: `integrate_box_1d` is."""
        raise NotImplementedError("integrate_box: only boxes of one axis are supported; use integrate_box_1d")

    def set_bandwidth(self, bw_method: object = None) -> None:
        """Not supported: estimates don't change."""
        raise NotImplementedError("set_bandwidth: estimates don't change; make one with another bw_method")

    # -------------------------------------------------------------- samples

    def resample(self, key: ArrayLike, shape: Sequence[int] = ()) -> Array:
        """New samples, `f32[d, *shape]`."""
        which, around = random.split(key)
        places = random.choice(which, self.n, shape=shape, p=self.weights)
        middle = fnp.zeros(self.d, self.covariance.dtype)
        away = random.multivariate_normal(around, middle, self.covariance, tuple(shape), self.dataset.dtype)
        return self.dataset[:, places] + fnp.moveaxis(away, -1, 0)


def _set_fields(kde: gaussian_kde, **fields: Array) -> None:
    for name, value in fields.items():
        object.__setattr__(kde, name, value)


_FIELDS: Final = ("neff", "dataset", "weights", "covariance", "inv_cov")


def _unflatten(_: object, fields: Sequence[Any]) -> gaussian_kde:
    kde = gaussian_kde.__new__(gaussian_kde)
    _set_fields(kde, **dict(zip(_FIELDS, fields, strict=True)))
    return kde


trees.register_pytree_node(gaussian_kde, lambda kde: ([getattr(kde, name) for name in _FIELDS], None), _unflatten)
