"""Staging a program of 2,000 operations. Each repetition traces a new function, since traces are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tracefx as fx
import tracefx.numpy as fnp
from benchmarks.harness import Subject
from tracefx import lax

GROUP = "tracing"
ROUNDS = 500


def chain(sin: Any, multiply: Any, add: Any, negative: Any) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        for _ in range(ROUNDS):
            x = add(sin(x), negative(multiply(x, x)))
        return x

    return f


def subjects() -> Iterator[Subject]:
    x = np.zeros(8, np.float32)
    yield Subject(
        GROUP,
        "make_jaxpr, 2,000 operations, lax",
        lambda: fx.make_jaxpr(chain(lax.sin, lax.mul, lax.add, lax.neg))(x),
        lambda: jax.make_jaxpr(chain(jax.lax.sin, jax.lax.mul, jax.lax.add, jax.lax.neg))(x),
        0.25,
        blocks=25,
    )
    yield Subject(
        GROUP,
        "make_jaxpr, 2,000 operations, numpy",
        lambda: fx.make_jaxpr(chain(fnp.sin, fnp.multiply, fnp.add, fnp.negative))(x),
        lambda: jax.make_jaxpr(chain(jnp.sin, jnp.multiply, jnp.add, jnp.negative))(x),
        0.15,
        blocks=25,
    )
