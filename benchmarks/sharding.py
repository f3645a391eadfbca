"""Programs on eight host devices: dispatch, `device_put`, a training step, and tracing of `shard_map`.

`python -m benchmarks --only sharding` runs it with eight devices; the other groups have one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

import jax
import jax.numpy as jnp
import numpy as np

import tracefx as fx
import tracefx.numpy as fnp
from benchmarks.harness import Subject, returned_value
from tracefx.sharding import AxisType

GROUP: Final = "sharding"
DEVICES: Final = 8
LAYERS: Final = 4


def set_devices() -> None:
    """Makes XLA simulate `DEVICES` devices on the host. Call it before the first program runs."""
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


def _shard_map_step(lib: Any, np_: Any, mesh: Any, spec: Any) -> Any:
    """Returns a data-parallel training step with `shard_map`."""

    def loss(ws: Any, x: Any) -> Any:
        for w in ws:
            x = np_.tanh(x @ w)
        return lib.lax.pmean(np_.mean(x**2), "data")

    mapped = lib.shard_map(loss, mesh=mesh, in_specs=(spec(), spec("data")), out_specs=spec())

    def step(ws: Any, x: Any) -> Any:
        value, slopes = lib.value_and_grad(mapped)(ws, x)
        return value, [w - 0.1 * g for w, g in zip(ws, slopes, strict=True)]

    return step


TRANSFERS: Final = (
    ("from the host", None, (0, "data")),
    ("from one device", "one", (0, "data")),
    ("to all devices", (0, "data"), (0,)),
    ("along another axis", (0, "data"), (0, None, "model")),
    ("to devices in another order", (0, "data"), (1, "data")),
)
"""Name, source and destination of a transfer: the index of a mesh and the entries of a partition spec."""


def _transfers(meshes: Sequence[fx.Mesh], theirs: Sequence[Any]) -> Iterator[Subject]:
    """Returns transfers by `device_put` of arrays that were not transferred or read before."""
    peer = cast(Any, jax)

    def sharding(description: Any) -> tuple[Any, Any]:
        k, *axes = description
        return fx.NamedSharding(meshes[k], fx.P(*axes)), peer.NamedSharding(theirs[k], peer.P(*axes))

    for rows in (64, 2048):
        # Unaligned memory, which JAX has to copy. It uses memory that is aligned to 64 bytes without a copy.
        x = np.ones(rows * 1024 + 1, np.float32)[1:].reshape(rows, 1024)
        for name, start, end in TRANSFERS:
            a: Any = x
            b: Any = x
            if start is not None:
                old = (fx.devices()[0], jax.devices()[0]) if start == "one" else sharding(start)
                a, b = fx.device_put(x, old[0]), peer.device_put(x, old[1])
            ours, jaxs = sharding(end)
            yield Subject(
                GROUP,
                f"{x.nbytes >> 10} KiB moved {name}",
                partial(_transfer_seconds, fx.device_put, partial(_identity, a), ours),
                partial(_transfer_seconds, jax.device_put, partial(_without_host_copy, b), jaxs),
                1.2,
                calls=4,
                clock=returned_value,
            )


def _transfer_seconds(put: Any, make: Callable[[], Any], sharding: Any) -> float:
    x = make()
    start = time.perf_counter()
    put(x, sharding).block_until_ready()
    return time.perf_counter() - start


def _identity(x: Any) -> Any:
    return x


def _without_host_copy(x: Any) -> Any:
    """Returns the array without the copy on the host that a JAX array caches."""
    if not isinstance(x, jax.Array):
        return x
    parts = [shard.data for shard in x.addressable_shards]
    return jax.make_array_from_single_device_arrays(x.shape, x.sharding, parts)


def subjects() -> Iterator[Subject]:
    if len(fx.devices()) < DEVICES or len(jax.devices()) < DEVICES:
        raise RuntimeError(f"the group {GROUP} needs {DEVICES} devices: run it alone, by --only {GROUP}")
    mesh, peer = fx.make_mesh((4, 2), ("data", "model"), (AxisType.Auto,) * 2), cast(Any, jax)
    theirs = peer.sharding.Mesh(np.array(jax.devices()[:DEVICES]).reshape(4, 2), ("data", "model"))
    x = np.ones((512, 256), np.float32)
    shardings: Mapping[str, tuple[Any, Any]] = {
        name: (fx.NamedSharding(mesh, fx.P(*axes)), peer.NamedSharding(theirs, peer.P(*axes)))
        for name, axes in {"rows": ("data",), "columns": (None, "model"), "both": ("data", "model")}.items()
    }

    small = np.ones((8, 8), np.float32)
    a, b = fx.device_put(small, shardings["both"][0]), peer.device_put(small, shardings["both"][1])
    ours, jaxs = fx.jit(lambda x: x + 1.0), jax.jit(lambda x: x + 1.0)
    yield Subject(
        GROUP, "call of a small program", lambda: ours(a).block_until_ready(), lambda: jaxs(b).block_until_ready(), 1.2
    )

    yield from _transfers(
        (mesh, fx.Mesh(mesh.devices[::-1], mesh.axis_names)),
        (theirs, peer.sharding.Mesh(theirs.devices[::-1], theirs.axis_names)),
    )

    ws = weights(256)
    args = [
        ([put(w, sharding[1]) for w in ws], put(x, sharding[0]))
        for put, sharding in (
            (fx.device_put, (shardings["rows"][0], shardings["columns"][0])),
            (jax.device_put, (shardings["rows"][1], shardings["columns"][1])),
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
        lambda: fx.make_jaxpr(_shard_map_step(fx, fnp, mesh, fx.P))(ws, x),  # a new function, because traces are cached
        lambda: jax.make_jaxpr(_shard_map_step(jax, jnp, theirs, jax.P))(ws, x),
        0.35,
    )
