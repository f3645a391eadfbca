"""64-bit random draws match those of JAX with x64 enabled."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import jax
import numpy as np

import tracefx as fx
from tracefx import random
from tracefx.testing.tolerances import ulp_distance

jax.config.update("jax_explicit_x64_dtypes", "allow")


def test_64_bit_draws_match_jax() -> None:
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
        draws = fx.jit(lambda key: draw(random, key))(random.key(-3))
    with jax.enable_x64(True):
        jax_draws = jax.jit(lambda key: draw(jax.random, key))(jax.random.key(-3))
    for got, want in zip(draws, jax_draws, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        assert np.max(ulp_distance(np.asarray(got), np.asarray(want), 0.25)) <= 64


def test_poisson_with_int64_dtype_without_x64() -> None:
    """JAX returns -1 in this case."""
    assert (
        random.poisson(random.key(0), 20.0, (3,), "int64").tolist()
        == random.poisson(random.key(0), 20.0, (3,)).tolist()
    )
