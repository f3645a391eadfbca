"""Operations and transformations that run at once, with nothing compiled."""

from __future__ import annotations

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

    yield Subject(GROUP, "x[0], f32[8]", lambda: x[0], lambda: y[0], 0.10)
    ours_high, jax_high = x > 0.5, y > 0.5
    yield Subject(GROUP, "where, f32[8]", lambda: fnp.where(ours_high, x, x), lambda: jnp.where(jax_high, y, y), 0.15)
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
