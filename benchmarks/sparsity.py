"""The Jacobian of a banded system: sparse and dense."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

import tracefx as fx
from benchmarks.harness import Subject
from benchmarks.libraries import JAX, OURS, Library
from tracefx.handlers import sparse_jacobian

GROUP = "sparsity"
SIZE: Final = 10_000  # a dense Jacobian has 400 MB


def reaction(library: Library) -> Callable[[Any], Any]:
    """Returns a reaction-diffusion equation on a line, whose Jacobian has three entries per row."""
    numpy = library.numpy

    def f(u: Any) -> Any:
        v = numpy.pad(u, (1, 1))
        return (v[2:] - 2 * u + v[:-2]) * 100.0 + u * numpy.exp(-u * u) * v[2:]

    return f


def subjects() -> Iterator[Subject]:
    u = np.linspace(0, 1, SIZE, dtype=np.float32)
    ours, theirs = fx.jit(sparse_jacobian(reaction(OURS))), jax.jit(jax.jacfwd(reaction(JAX)))
    x, y = fx.device_put(u), jnp.asarray(u)
    yield Subject(
        GROUP,
        f"Jacobian of a banded system of {SIZE:,}",
        lambda: ours(x).data.block_until_ready(),
        lambda: theirs(y).block_until_ready(),
        0.01,
        5,
    )
