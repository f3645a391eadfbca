"""Eager operations and transformations, without `jit`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tracefx as fx
import tracefx.numpy as fnp
from benchmarks.harness import Subject

GROUP = "eager"


def subjects() -> Iterator[Subject]:
    host = np.linspace(0, 1, 8, dtype=np.float32)
    x, y = fnp.asarray(host), jnp.asarray(host)
    yield Subject(GROUP, "x + x, f32[8]", lambda: x + x, lambda: y + y, 0.30)
    yield Subject(GROUP, "sin(x), f32[8]", lambda: fnp.sin(x), lambda: jnp.sin(y), 0.30)
    ours_large, jax_large = fnp.ones((1000, 1000)), jnp.ones((1000, 1000))
    yield Subject(
        GROUP,
        "x + x, f32[1000,1000]",
        lambda: ours_large + ours_large,
        lambda: (jax_large + jax_large).block_until_ready(),
        1.0,
    )

    yield Subject(GROUP, "x[0], f32[8]", lambda: x[0], lambda: y[0], 0.10)
    ours_table, jax_table = fnp.ones((8, 8)), jnp.ones((8, 8))
    yield Subject(GROUP, "m[0, 1], f32[8,8]", lambda: ours_table[0, 1], lambda: jax_table[0, 1], 0.10)
    ours_rows, jax_rows = fnp.asarray([1, 2, 3]), jnp.asarray([1, 2, 3])
    yield Subject(GROUP, "m[i], i32[3] of f32[8,8]", lambda: ours_table[ours_rows], lambda: jax_table[jax_rows], 0.10)
    ours_high, jax_high = x > 0.5, y > 0.5
    # np.where alone takes 0.7 µs, 0.15 of JAX's time for the first row.
    yield Subject(GROUP, "where(c, x, x)", lambda: fnp.where(ours_high, x, x), lambda: jnp.where(jax_high, y, y), 0.15)
    yield Subject(
        GROUP, "where(c, x, 0.0)", lambda: fnp.where(ours_high, x, 0.0), lambda: jnp.where(jax_high, y, 0.0), 0.15
    )
    yield Subject(
        GROUP, "where(x > 0.5, x, 0.0)", lambda: fnp.where(x > 0.5, x, 0.0), lambda: jnp.where(y > 0.5, y, 0.0), 0.15
    )
    yield Subject(
        GROUP,
        "sum(reshape(x) @ reshape(x)), f32[8]",
        lambda: fnp.sum(fnp.reshape(x, (1, 8)) @ fnp.reshape(x, (8, 1))),
        lambda: jnp.sum(jnp.reshape(y, (1, 8)) @ jnp.reshape(y, (8, 1))),
        0.30,
    )

    our_slope = fx.grad(lambda x: fnp.sin(x) ** 2)
    jax_slope = jax.grad(lambda x: jnp.sin(x) ** 2)
    yield Subject(GROUP, "grad of sin(x)**2", lambda: our_slope(1.0), lambda: jax_slope(1.0), 0.05)
    if (their_slope := _slope_by_autograd()) is not None:
        yield Subject(
            GROUP, "grad of sin(x)**2, beside HIPS autograd", lambda: our_slope(1.0), lambda: their_slope(1.0), 2.0
        )

    def our_score(x: Any) -> Any:
        return fnp.sum(fnp.sin(x) * x)

    def jax_score(x: Any) -> Any:
        return jnp.sum(jnp.sin(x) * x)

    our_gradient, jax_gradient = fx.grad(fx.jit(our_score)), jax.grad(jax.jit(jax_score))
    yield Subject(GROUP, "grad of jit, f32[8]", lambda: our_gradient(x), lambda: jax_gradient(y), 0.30)

    our_sums, jax_sums = fx.vmap(fnp.add), jax.vmap(jnp.add)
    yield Subject(GROUP, "vmap of add, f32[8]", lambda: our_sums(x, x), lambda: jax_sums(y, y), 0.15)

    our_batch, jax_batch = fx.vmap(fx.jit(fnp.sin)), jax.vmap(jax.jit(jnp.sin))
    yield Subject(GROUP, "vmap of jit, f32[8]", lambda: our_batch(x), lambda: jax_batch(y), 0.30)


def _slope_by_autograd() -> Any:
    """Returns the gradient of `sin(x)**2` by HIPS autograd, or None if it is not installed."""
    try:
        autograd, anp = [importlib.import_module(name) for name in ("autograd", "autograd.numpy")]
    except ImportError:
        print("autograd is not installed: its row is omitted (pip install '.[bench]')", file=sys.stderr)
        return None
    return autograd.grad(lambda x: anp.sin(x) ** 2)
