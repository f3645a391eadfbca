"""Static types of functions imported from JAX and exported to JAX: they keep the signature."""

from __future__ import annotations

from typing import assert_type

import jax

import tracefx as fx
from tracefx.interop.jax import from_jax, to_jax


def scaled(x: jax.Array, by: float = 2.0) -> jax.Array:
    return x * by


def summed(x: fx.Array) -> fx.Array:
    return x.sum()


def imported(x: jax.Array) -> None:
    from_jax_scaled = from_jax(scaled)
    assert_type(from_jax_scaled(x), jax.Array)
    assert_type(from_jax_scaled(x, by=3.0), jax.Array)
    assert_type(fx.jit(from_jax_scaled)(x), jax.Array)
    from_jax_scaled(x, other=3.0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    from_jax(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def exported(x: fx.Array) -> None:
    assert_type(to_jax(summed)(x), fx.Array)
