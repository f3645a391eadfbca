"""What a call of a compiled function costs beside the computation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tracefx as fx
import tracefx.numpy as fnp
from benchmarks.harness import Subject

GROUP = "dispatch"
LEAVES = 32


def double(x: Any) -> Any:
    return x + x


def double_all(xs: dict[str, Any]) -> dict[str, Any]:
    return {name: x + x for name, x in xs.items()}


def subjects() -> Iterator[Subject]:
    host = np.arange(8, dtype=np.float32)
    hosts = {f"w{i}": host + i for i in range(LEAVES)}

    ours, theirs = fx.jit(double), jax.jit(double)
    x, y = fnp.asarray(host), jnp.asarray(host)
    yield Subject(GROUP, "jit, one f32[8]", lambda: ours(x), lambda: theirs(y), 1.2)

    ours_all, theirs_all = fx.jit(double_all), jax.jit(double_all)
    xs = {name: fnp.asarray(a) for name, a in hosts.items()}
    ys = {name: jnp.asarray(a) for name, a in hosts.items()}
    yield Subject(GROUP, f"jit, dict of {LEAVES}", lambda: ours_all(xs), lambda: theirs_all(ys), 1.25)
    yield Subject(
        GROUP, f"jit, dict of {LEAVES} NumPy arrays", lambda: ours_all(hosts), lambda: theirs_all(hosts), 1.85
    )
