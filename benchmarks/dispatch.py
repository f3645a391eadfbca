"""Dispatch: the time of a call of a compiled function besides its computation."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tracefx as fx
import tracefx.numpy as fnp
from benchmarks.harness import Subject

GROUP = "dispatch"
LEAVES = 32


@fx.tree_util.register_dataclass
@jax.tree_util.register_dataclass
@dataclass
class Layer:
    weight: Any
    bias: Any
    scale: Any


def double(x: Any) -> Any:
    return x + x


def double_all(xs: dict[str, Any]) -> dict[str, Any]:
    return {name: x + x for name, x in xs.items()}


def scaled(x: Any, scale: Any) -> Any:
    return x * scale


def first(x: Any, unused: Any) -> Any:
    return x + x


def times(x: Any, n: int) -> Any:
    return x * n


def layer_sum(layer: Layer) -> Any:
    return layer.weight + layer.bias * layer.scale


def tree_sum(tree: Any) -> Any:
    (a, b), inner = tree
    return a + b + inner["c"] + inner["d"][0] + inner["d"][1] + inner["e"]["f"] + inner["e"]["g"]


def nested(x: Any) -> Any:
    return (x, x), {"c": x, "d": [x, x], "e": {"f": x, "g": x}}


def subjects() -> Iterator[Subject]:
    host = np.arange(8, dtype=np.float32)
    hosts = {f"w{i}": host + i for i in range(LEAVES)}
    x, y = fnp.asarray(host), jnp.asarray(host)

    ours, theirs = fx.jit(double), jax.jit(double)
    yield Subject(GROUP, "jit, one f32[8]", lambda: ours(x), lambda: theirs(y), 1.0)

    ours_scaled, theirs_scaled = fx.jit(scaled), jax.jit(scaled)
    others: list[tuple[str, Any, float]] = [
        ("a Python float", 0.1, 1.1),
        ("a np.float32", np.float32(0.5), 1.1),
        ("a NumPy array", host, 1.2),
    ]
    for name, z, bound in others:
        ours_z, theirs_z = partial(ours_scaled, x, z), partial(theirs_scaled, y, z)
        yield Subject(GROUP, f"jit, with {name}", ours_z, theirs_z, bound)
    ours_new, theirs_new, numbers = fx.jit(scaled), jax.jit(scaled), itertools.count(0.5)
    yield Subject(
        GROUP,
        "jit, with a new Python float each time",
        lambda: ours_new(x, next(numbers)),
        lambda: theirs_new(y, next(numbers)),
        1.1,
    )
    yield Subject(
        GROUP, "jit, keyword argument", lambda: ours_scaled(x, scale=x), lambda: theirs_scaled(y, scale=y), 1.1
    )

    ours_static, theirs_static = fx.jit(times, static_argnums=1), jax.jit(times, static_argnums=1)
    yield Subject(GROUP, "jit, static_argnums", lambda: ours_static(x, 3), lambda: theirs_static(y, 3), 1.1)
    ours_named, theirs_named = fx.jit(times, static_argnames="n"), jax.jit(times, static_argnames="n")
    yield Subject(GROUP, "jit, static_argnames", lambda: ours_named(x, n=3), lambda: theirs_named(y, n=3), 1.1)

    ours_layer, theirs_layer = fx.jit(layer_sum), jax.jit(layer_sum)
    our_layer, their_layer = Layer(x, x, x), Layer(y, y, y)
    yield Subject(GROUP, "jit, dataclass of 3", lambda: ours_layer(our_layer), lambda: theirs_layer(their_layer), 0.9)
    ours_tree, theirs_tree = fx.jit(tree_sum), jax.jit(tree_sum)
    our_tree, their_tree = nested(x), nested(y)
    yield Subject(GROUP, "jit, nested tree of 7", lambda: ours_tree(our_tree), lambda: theirs_tree(their_tree), 0.9)

    ours_all, theirs_all = fx.jit(double_all), jax.jit(double_all)
    xs = {name: fnp.asarray(a) for name, a in hosts.items()}
    ys = {name: jnp.asarray(a) for name, a in hosts.items()}
    yield Subject(GROUP, f"jit, dict of {LEAVES}", lambda: ours_all(xs), lambda: theirs_all(ys), 0.9)
    yield Subject(GROUP, f"jit, dict of {LEAVES} NumPy arrays", lambda: ours_all(hosts), lambda: theirs_all(hosts), 1.2)

    yield _donated(host)
    ours_compiled, theirs_compiled = fx.jit(double).lower(x).compile(), jax.jit(double).lower(y).compile()
    yield Subject(GROUP, "compiled ahead of time", lambda: ours_compiled(x), lambda: theirs_compiled(y), 1.0)
    x2, y2 = fnp.asarray(host[:4]), jnp.asarray(host[:4])
    yield Subject(GROUP, "jit, two shapes in turn", lambda: (ours(x), ours(x2)), lambda: (theirs(y), theirs(y2)), 1.0)
    ours_first, theirs_first = fx.jit(first), jax.jit(first)
    yield Subject(GROUP, "jit, unused argument", lambda: ours_first(x, x), lambda: theirs_first(y, y), 1.0)


def _donated(host: Any) -> Subject:
    """Returns a function whose calls donate the result of the previous call, as training steps do."""
    ours, theirs = fx.jit(double, donate_argnums=0), jax.jit(double, donate_argnums=0)
    state: dict[str, Any] = {"ours": ours(fnp.asarray(host)), "jax": theirs(jnp.asarray(host))}

    def call_ours() -> None:
        state["ours"] = ours(state["ours"])

    def call_theirs() -> None:
        state["jax"] = theirs(state["jax"])

    return Subject(GROUP, "jit, donated argument", call_ours, call_theirs, 1.0)
