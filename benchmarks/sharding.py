"""Programs on eight host devices: calling them, running a training step, tracing one that is written for each device.

`python -m benchmarks --only sharding` runs it with eight devices; the other groups have one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

import jax
import jax.numpy as jnp
import numpy as np

import tracefx as fx
import tracefx.numpy as fnp
from benchmarks.harness import Subject

GROUP: Final = "sharding"
DEVICES: Final = 8
LAYERS: Final = 4


def set_devices() -> None:
    """Have the host pretend to have so many devices: before the first program runs."""
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={DEVICES}"


def weights(width: int) -> list[np.ndarray[Any, np.dtype[np.float32]]]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=(width, width)).astype(np.float32) / np.float32(width**0.5) for _ in range(LAYERS)]


def _step(lib: Any, np_: Any) -> Any:
    def loss(ws: Any, x: Any) -> Any:
        for w in ws:
            x = np_.tanh(x @ w)
        return np_.mean(x**2)

    def step(ws: Any, x: Any) -> Any:
        value, slopes = lib.value_and_grad(loss)(ws, x)
        return value, [w - 0.1 * g for w, g in zip(ws, slopes, strict=True)]

    return step


def _by_hand(lib: Any, np_: Any, mesh: Any, spec: Any) -> Any:
    """The step with data in parallel, written for each device."""

    def loss(ws: Any, x: Any) -> Any:
        for w in ws:
            x = np_.tanh(x @ w)
        return lib.lax.pmean(np_.mean(x**2), "data")

    apart = lib.shard_map(loss, mesh=mesh, in_specs=(spec(), spec("data")), out_specs=spec())

    def step(ws: Any, x: Any) -> Any:
        value, slopes = lib.value_and_grad(apart)(ws, x)
        return value, [w - 0.1 * g for w, g in zip(ws, slopes, strict=True)]

    return step


MOVES: Final = (
    ("from the host", None, (0, "data")),
    ("from one device", "one", (0, "data")),
    ("to all devices", (0, "data"), (0,)),
    ("along another axis", (0, "data"), (0, None, "model")),
    ("to devices in another order", (0, "data"), (1, "data")),
)
"""What moves, from where and to where: along which axes of which of two meshes."""


def _moves(meshes: Sequence[fx.Mesh], theirs: Sequence[Any]) -> Iterator[Subject]:
    """`device_put`. Both may remember what they brought together on the host: the same array is moved each time."""
    peer = cast(Any, jax)

    def sharding(said: Any) -> tuple[Any, Any]:
        k, *axes = said
        return fx.NamedSharding(meshes[k], fx.P(*axes)), peer.NamedSharding(theirs[k], peer.P(*axes))

    for rows in (64, 2048):
        x = np.ones((rows, 1024), np.float32)
        for name, start, end in MOVES:
            a: Any = x
            b: Any = x
            if start is not None:
                old = (fx.devices()[0], jax.devices()[0]) if start == "one" else sharding(start)
                a, b = fx.device_put(x, old[0]), peer.device_put(x, old[1])
            ours, jaxs = sharding(end)
            yield Subject(
                GROUP,
                f"{x.nbytes >> 10} KiB moved {name}",
                partial(_moved, fx.device_put, a, ours),
                partial(_moved, jax.device_put, b, jaxs),
                1.2,
            )


def _moved(put: Any, x: Any, where: Any) -> None:
    put(x, where).block_until_ready()


def subjects() -> Iterator[Subject]:
    if len(fx.devices()) < DEVICES or len(jax.devices()) < DEVICES:
        raise RuntimeError(f"the group {GROUP} needs {DEVICES} devices: run it alone, by --only {GROUP}")
    mesh, peer = fx.make_mesh((4, 2), ("data", "model")), cast(Any, jax)
    theirs = peer.sharding.Mesh(np.array(jax.devices()[:DEVICES]).reshape(4, 2), ("data", "model"))
    x = np.ones((512, 256), np.float32)
    places: Mapping[str, tuple[Any, Any]] = {
        name: (fx.NamedSharding(mesh, fx.P(*axes)), peer.NamedSharding(theirs, peer.P(*axes)))
        for name, axes in {"rows": ("data",), "columns": (None, "model"), "both": ("data", "model")}.items()
    }

    small = np.ones((8, 8), np.float32)
    a, b = fx.device_put(small, places["both"][0]), peer.device_put(small, places["both"][1])
    ours, jaxs = fx.jit(lambda x: x + 1.0), jax.jit(lambda x: x + 1.0)
    yield Subject(
        GROUP, "call of a small program", lambda: ours(a).block_until_ready(), lambda: jaxs(b).block_until_ready(), 1.2
    )

    yield from _moves(
        (mesh, fx.Mesh(mesh.devices[::-1], mesh.axis_names)),
        (theirs, peer.sharding.Mesh(theirs.devices[::-1], theirs.axis_names)),
    )

    ws = weights(256)
    args = [
        ([put(w, place[1]) for w in ws], put(x, place[0]))
        for put, place in (
            (fx.device_put, (places["rows"][0], places["columns"][0])),
            (jax.device_put, (places["rows"][1], places["columns"][1])),
        )
    ]
    step, jax_step = fx.jit(_step(fx, fnp)), jax.jit(_step(jax, jnp))
    yield Subject(
        GROUP,
        "training step, data and tensors in parallel, compiled",
        lambda: fx.block_until_ready(step(*args[0])),
        lambda: peer.block_until_ready(jax_step(*args[1])),
        1.05,
    )

    yield Subject(
        GROUP,
        "shard_map of a training step, traced",
        lambda: fx.make_jaxpr(_by_hand(fx, fnp, mesh, fx.P))(ws, x),  # made anew, since traces are remembered
        lambda: jax.make_jaxpr(_by_hand(jax, jnp, theirs, jax.P))(ws, x),
        0.35,
    )
