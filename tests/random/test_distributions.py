"""Every distribution draws what JAX draws from the same key, to rounding."""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude="jax"

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType, ModuleType
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.ops.harness import host_of
from tracefx import random
from tracefx.core.values import as_value, to_numpy

jax.config.update("jax_explicit_x64_dtypes", "allow")

Draw = Callable[[ModuleType, Any, Any], Any]
"""Draws with a library, its `numpy`, and a key."""

COVARIANCE: Final = np.array([[2.0, 0.5], [0.5, 1.0]], np.float32)
LOGITS: Final = np.array([[0.1, 2.0, -1.0], [1.0, 0.0, 0.5]], np.float32)
SHAPES: Final = np.array([0.05, 0.7, 1.0, 3.0, 40.0], np.float32)

DRAWS: Final[Mapping[str, tuple[Draw, ...]]] = MappingProxyType(
    {
        "bits": (
            lambda r, n, k: r.bits(k),
            lambda r, n, k: r.bits(k, (2, 3), np.uint8),
            lambda r, n, k: r.bits(k, (5,), np.uint64),
        ),
        "uniform": (
            lambda r, n, k: r.uniform(k, (2, 3)),
            lambda r, n, k: r.uniform(k, (4,), "bfloat16", -1.0, 2.0),
            lambda r, n, k: r.uniform(k, (4,), np.float16),
            lambda r, n, k: r.uniform(k, (4,), np.float64),
            lambda r, n, k: r.uniform(k, (2, 3), minval=n.arange(3.0), maxval=n.arange(3.0) + 1),
            lambda r, n, k: r.uniform(k, (0, 3)),
        ),
        "randint": (
            lambda r, n, k: r.randint(k, (3, 2), -5, 10),
            lambda r, n, k: r.randint(k, (5,), 0, 256, np.uint8),
            lambda r, n, k: r.randint(k, (5,), -1000, 1000, np.int8),
            lambda r, n, k: r.randint(k, (2, 3), n.arange(3), n.array([1, 0, 50])),
            lambda r, n, k: r.randint(k, (4,), 0, 1 << 30, np.uint32),
        ),
        "bernoulli": (
            lambda r, n, k: r.bernoulli(k),
            lambda r, n, k: r.bernoulli(k, n.array([0.1, 0.9]), (3, 2)),
            lambda r, n, k: r.bernoulli(k, 0.4, (9,), "high"),
        ),
        "rademacher": (lambda r, n, k: r.rademacher(k, (5,)), lambda r, n, k: r.rademacher(k, (5,), np.float32)),
        "normal": (
            lambda r, n, k: r.normal(k, (2, 3)),
            lambda r, n, k: r.normal(k, (3,), "bfloat16"),
            lambda r, n, k: r.normal(k, (3,), np.complex64),
        ),
        "truncated_normal": (
            lambda r, n, k: r.truncated_normal(k, -1.0, 2.0, (3,)),
            lambda r, n, k: r.truncated_normal(k, n.array([-0.5, 0.5]), 1.0),
        ),
        "lognormal": (lambda r, n, k: r.lognormal(k, n.array([0.5, 1.0])), lambda r, n, k: r.lognormal(k, shape=(2,))),
        "maxwell": (lambda r, n, k: r.maxwell(k, (3,)),),
        "double_sided_maxwell": (lambda r, n, k: r.double_sided_maxwell(k, 1.0, n.array([1.0, 2.0]), (3,)),),
        "exponential": (lambda r, n, k: r.exponential(k, (3,)),),
        "pareto": (lambda r, n, k: r.pareto(k, n.array([1.0, 2.0]), (3, 2)),),
        "cauchy": (lambda r, n, k: r.cauchy(k, (3,)),),
        "laplace": (lambda r, n, k: r.laplace(k, (3,)),),
        "logistic": (lambda r, n, k: r.logistic(k, (3,)),),
        "weibull_min": (lambda r, n, k: r.weibull_min(k, 2.0, n.array([1.5, 3.0]), (3, 2)),),
        "rayleigh": (lambda r, n, k: r.rayleigh(k, n.array([1.5, 3.0]), (3, 2)),),
        "triangular": (lambda r, n, k: r.triangular(k, 0.0, n.array([1.0, 2.0]), 4.0, (3, 2)),),
        "wald": (lambda r, n, k: r.wald(k, n.array([1.0, 2.0]), (3, 2)),),
        "gumbel": (
            lambda r, n, k: r.gumbel(k, (3,)),
            lambda r, n, k: r.gumbel(k, (3,), mode="high"),
            lambda r, n, k: r.gumbel(k, (3,), mode="highest"),
        ),
        "gamma": (lambda r, n, k: r.gamma(k, n.asarray(SHAPES)), lambda r, n, k: r.gamma(k, 2.0, (2, 3))),
        "loggamma": (lambda r, n, k: r.loggamma(k, n.asarray(SHAPES)),),
        "beta": (lambda r, n, k: r.beta(k, n.array([0.5, 2.0]), 3.0, (3, 2)),),
        "dirichlet": (lambda r, n, k: r.dirichlet(k, n.array([0.5, 2.0, 3.0]), (2,)),),
        "chisquare": (lambda r, n, k: r.chisquare(k, n.array([1.0, 5.0])),),
        "f": (lambda r, n, k: r.f(k, 3.0, n.array([1.0, 5.0])),),
        "t": (lambda r, n, k: r.t(k, n.array([1.0, 5.0])),),
        "generalized_normal": (lambda r, n, k: r.generalized_normal(k, 1.5, (3,)),),
        "ball": (lambda r, n, k: r.ball(k, 3, 2, (2,)),),
        "permutation": (
            lambda r, n, k: r.permutation(k, 7),
            lambda r, n, k: r.permutation(k, n.arange(12).reshape(3, 4)),
            lambda r, n, k: r.permutation(k, n.arange(12).reshape(3, 4), 1, True),
        ),
        "choice": (
            lambda r, n, k: r.choice(k, 9, (3,)),
            lambda r, n, k: r.choice(k, n.arange(9.0), (2, 2), False),
            lambda r, n, k: r.choice(k, n.arange(12).reshape(3, 4), (2,), axis=1),
            lambda r, n, k: r.choice(k, 3, (5,), p=n.array([0.2, 0.3, 0.5])),
            lambda r, n, k: r.choice(k, 3, (2,), False, n.array([0.2, 0.3, 0.5])),
        ),
        "categorical": (
            lambda r, n, k: r.categorical(k, n.asarray(LOGITS)),
            lambda r, n, k: r.categorical(k, n.asarray(LOGITS), 0, (4, 3)),
            lambda r, n, k: r.categorical(k, n.asarray(LOGITS), shape=(2, 2), replace=False),
        ),
        "geometric": (lambda r, n, k: r.geometric(k, n.array([0.1, 0.9]), (3, 2)),),
        "poisson": (lambda r, n, k: r.poisson(k, n.array([0.0, 0.5, 9.0, 11.0, 1e4, np.nan])),),
        "binomial": (
            lambda r, n, k: r.binomial(k, n.array([5.0, 100.0, 1e4, -1.0, np.inf]), 0.3),
            lambda r, n, k: r.binomial(k, 1000, n.array([0.0, 0.7, 1.0, np.nan])),
        ),
        "multinomial": (lambda r, n, k: r.multinomial(k, 20.0, n.array([0.2, 0.3, 0.5])),),
        "multivariate_normal": (
            lambda r, n, k: r.multivariate_normal(k, n.array([1.0, 2.0]), n.asarray(COVARIANCE), (3,)),
            lambda r, n, k: r.multivariate_normal(k, n.zeros(2), n.asarray(COVARIANCE), method="eigh"),
            lambda r, n, k: r.multivariate_normal(k, n.zeros(2), n.asarray(COVARIANCE), method="svd"),
        ),
        "orthogonal": (
            lambda r, n, k: r.orthogonal(k, 3),
            lambda r, n, k: r.orthogonal(k, 2, (2,), m=3),
            lambda r, n, k: r.orthogonal(k, 2, dtype=np.complex64),
        ),
    }
)
"""Programs of several draws, each from a key of its own."""

KEYS: Final = {"PRNGKey", "clone", "fold_in", "key", "key_data", "key_dtype", "key_impl", "split", "wrap_key_data"}


def test_every_distribution_is_drawn() -> None:
    public = {name for name, found in vars(random).items() if inspect.isfunction(found)}
    assert public == set(DRAWS) | KEYS


def test_draws_of_64_bits_are_jaxs() -> None:
    def draw(r: ModuleType, key: Any) -> list[Any]:
        return [
            r.normal(key, (3,)),
            r.normal(key, (2,), np.complex128),
            r.randint(key, (3,), -(1 << 40), 1 << 40),
            r.gamma(key, 2.5),
            r.poisson(key, 20.0),
            r.bits(key, (2,)),
            r.gumbel(key, (2,)),
        ]

    with fx.enable_x64():
        ours = fx.jit(lambda key: draw(random, key))(random.key(-3))
    with jax.enable_x64(True):
        theirs = jax.jit(lambda key: draw(jax.random, key))(jax.random.key(-3))
    for got, want in zip(ours, theirs, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-12)


@pytest.mark.parametrize("name", DRAWS)
def test_draws_are_jaxs(name: str) -> None:
    def draw(r: ModuleType, n: ModuleType, key: Any) -> list[Any]:
        return [f(r, n, r.fold_in(key, i)) for i, f in enumerate(DRAWS[name])]

    ours = fx.jit(lambda key: draw(random, fnp, key))(random.key(3))
    theirs = jax.jit(lambda key: draw(jax.random, jnp, key))(jax.random.key(3))
    for got, want in zip(ours, theirs, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        # Functions of XLA that JAX calls in other combinations differ in their last digits.
        tolerance = 0.02 if want.dtype == "bfloat16" else 2e-5
        np.testing.assert_allclose(
            np.asarray(to_numpy(as_value(got)), np.complex128),
            np.asarray(host_of(want), np.complex128),
            rtol=tolerance,
            atol=tolerance / 10,
        )
