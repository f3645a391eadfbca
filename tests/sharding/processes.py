"""Programs for the processes of `test_processes.py`: `python -m tests.sharding.processes <part> <i> <n> <port>`.

All processes run the same part at the same time. A process in which a check fails exits with an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.sharding.processes_that_end import DONE as DONE
from tests.sharding.processes_that_end import initialize, run
from tracefx import NamedSharding, P, lax, random
from tracefx.core import Array, NDArray
from tracefx.sharding import AxisType
from tracefx.testing.tolerances import DERIVATIVE, ulps_of


def on_mesh(x: NDArray, mesh: fx.Mesh, *axes: str | tuple[str, ...] | None) -> Array:
    return fx.device_put(x, NamedSharding(mesh, P(*axes)))


def read_everywhere(x: Array) -> NDArray:
    """The values of an array whose shards are spread over several processes."""
    sharding = x.sharding
    assert isinstance(sharding, NamedSharding)
    return np.asarray(fx.device_put(x, NamedSharding(sharding.mesh, P())))


def check_own_shards(x: Array, whole: NDArray) -> None:
    """Checks that each shard of this process holds the elements that its index selects."""
    assert {shard.device for shard in x.addressable_shards} == set(fx.local_devices())
    for shard in x.addressable_shards:
        np.testing.assert_array_equal(shard.data, whole[shard.index])


def all_checks(i: int, n: int, port: str) -> None:
    assert not fx.distributed.is_initialized()
    initialize(i, n, port)
    assert fx.distributed.is_initialized()
    check_devices(i, n)
    mesh = fx.make_mesh((n, fx.device_count() // n), ("process", "here"), (AxisType.Auto, AxisType.Auto))
    check_arrays(i, n, mesh)
    check_shard_map(mesh)
    check_distributed_helpers(i, n)
    if n == 2:  # more processes would only take longer
        check_programs(mesh)
        check_device_orders(mesh)
        check_local_programs(i, mesh)
    with pytest.raises(RuntimeError, match=f"is number {i} of {n} already"):
        initialize(i, n, port)
    if i == 0:  # the other processes shut down when they exit
        fx.distributed.shutdown()
        assert not fx.distributed.is_initialized()
        assert float(fnp.sum(fnp.ones(3) * 2.0)) == 6.0


def check_devices(i: int, n: int) -> None:
    assert (fx.process_index(), fx.process_count(), fx.process_indices()) == (i, n, list(range(n)))
    assert fx.device_count() == n * fx.local_device_count()
    assert [d.process_index for d in fx.devices()] == sorted([*range(n)] * fx.local_device_count())
    assert fx.local_devices() == fx.local_devices(i) == [d for d in fx.devices() if d.process_index == i]
    with pytest.raises(ValueError, match=f"no process {n}: the number of processes is {n}"):
        fx.local_devices(n)
    # Uncommitted arrays are on a device of this process.
    assert fnp.ones(3).devices() == {fx.local_devices()[0]}
    np.testing.assert_array_equal(fx.jit(lambda x: x + i)(np.arange(3.0)), np.arange(3.0) + i)


def check_arrays(i: int, n: int, mesh: fx.Mesh) -> None:
    host = np.arange(8 * n, dtype=np.float32).reshape(4 * n, 2)
    x = on_mesh(host, mesh, ("process", "here"))
    assert (x.is_fully_addressable, x.is_fully_replicated) == (False, False)
    check_own_shards(x, host)
    assert repr(x) == str(x) == f"{x}" == f"Array(f32[{4 * n},2], sharding={x.sharding})"
    for read in (np.asarray, fx.device_get, lambda x: x.tolist()):
        with pytest.raises(RuntimeError, match="is on devices of several processes.*x.addressable_shards"):
            read(x)
    np.testing.assert_array_equal(read_everywhere(x), host)
    by_process = fx.device_put(x, NamedSharding(mesh, P("process")))
    check_own_shards(by_process, host)

    whole = on_mesh(host, mesh)
    assert (whole.is_fully_addressable, whole.is_fully_replicated) == (False, True)
    np.testing.assert_array_equal(whole, host)
    assert len(whole.addressable_shards) == fx.local_device_count()
    assert len(whole.global_shards) == fx.device_count()

    rows = NamedSharding(mesh, P("process"))
    own_rows = host[4 * i : 4 * (i + 1)]
    check_own_shards(fx.make_array_from_process_local_data(rows, own_rows), host)
    check_own_shards(fx.make_array_from_callback(host.shape, rows, lambda index: host[index]), host)
    pieces = [fx.device_put(own_rows, device) for device in fx.local_devices()]
    check_own_shards(fx.make_array_from_single_device_arrays(host.shape, rows, pieces), host)


def loss(w: Array, x: Array, y: Array) -> Array:
    return fnp.mean((fnp.tanh(x @ w) - y) ** 2)


def check_programs(mesh: fx.Mesh) -> None:
    """Programs over all processes give the same results as in one process."""
    rng = np.random.default_rng(0)
    x, y, w = (rng.normal(size=shape).astype(np.float32) for shape in ((16, 8), (16, 4), (8, 4)))
    sharded = on_mesh(x, mesh, ("process", "here")), on_mesh(y, mesh, ("process", "here"))
    step = fx.jit(lambda w, x, y: w - 0.1 * fx.grad(loss)(w, x, y))
    replicated, single = on_mesh(w, mesh), fnp.asarray(w)
    for _ in range(3):
        replicated, single = step(replicated, *sharded), step(single, x, y)
    assert_near(read_everywhere(replicated), single, DERIVATIVE)
    # eagerly, one operation at a time
    assert_near(read_everywhere(sharded[0] * 2.0 + 1.0), x * 2 + 1)
    u, v = np.round(4 * x), np.round(4 * w)  # integers, whose sums are exact in any order
    assert float(fnp.sum(on_mesh(u, mesh, ("process", "here")))) == u.sum()
    columns = NamedSharding(mesh, P(None, "process"))
    product = fx.jit(lambda u, v: u @ v, out_shardings=columns)(on_mesh(u, mesh, "here", "process"), v)
    assert product.sharding == columns
    check_own_shards(product, u @ v)


def check_device_orders(mesh: fx.Mesh) -> None:
    """Random keys, and a mesh with the devices in reverse order."""
    host = np.arange(8, dtype=np.float32)
    keys = random.split(random.key(0), fx.device_count())
    sharded = fx.device_put(keys, NamedSharding(mesh, P(("process", "here"))))
    np.testing.assert_array_equal(read_everywhere(fx.jit(fx.vmap(random.bits))(sharded)), fx.vmap(random.bits)(keys))

    reversed_mesh = fx.Mesh(fx.devices()[::-1], "x")  # the devices of the last process come first
    z = fx.jit(lambda z: z * 2.0)(on_mesh(host, reversed_mesh, "x"))
    check_own_shards(z, 2 * host)
    check_own_shards(fx.device_put(z, NamedSharding(mesh, P(("process", "here")))), 2 * host)


def check_shard_map(mesh: fx.Mesh) -> None:
    x = np.arange(16, dtype=np.float32)

    @fx.jit
    @fx.shard_map(mesh=mesh, in_specs=P(("process", "here")), out_specs=(P(), P("process"), P(("process", "here"))))
    def f(x: Array) -> tuple[Array, Array, Array]:
        total = lax.psum(fnp.sum(x**2), ("process", "here"))
        row = lax.psum(fnp.sum(x), "here")
        return total, row[None], x + lax.axis_index("process")

    total, rows, shifted = f(on_mesh(x, mesh, ("process", "here")))
    n = mesh.shape["process"]
    assert float(total) == (x**2).sum()
    check_own_shards(rows, x.reshape(n, -1).sum(axis=1))
    check_own_shards(shifted, x + np.repeat(np.arange(n), 16 // n))
    gradient = fx.grad(lambda x: f(x)[0])(on_mesh(x, mesh, ("process", "here")))
    check_own_shards(gradient, 2 * x)


def check_local_programs(i: int, mesh: fx.Mesh) -> None:
    """Programs on the devices of one process run independently of the other processes."""
    own_mesh = fx.Mesh(fx.local_devices(), "here")
    host = np.arange(8, dtype=np.float32)
    for k in range(i + 1):  # a different number of runs in each process
        out = fx.jit(lambda x, k=k: x * (k + 1))(on_mesh(host, own_mesh, "here"))
        np.testing.assert_array_equal(out, host * (k + 1))
    other_mesh = fx.Mesh(fx.local_devices((i + 1) % fx.process_count()), "there")
    with pytest.raises(ValueError, match=f"none of the devices .* is one of process {i}"):
        on_mesh(host, other_mesh, "there")


def check_distributed_helpers(i: int, n: int) -> None:
    gathered = fx.distributed.all_gather({"i": np.int32(i), "row": np.full(3, i, np.float32)})
    np.testing.assert_array_equal(gathered["i"], np.arange(n))
    np.testing.assert_array_equal(gathered["row"], np.arange(n)[:, None] * np.ones(3))
    fx.distributed.assert_equal({"step": 3, "seeds": np.arange(4)})
    with pytest.raises(ValueError, match=rf"^seeds: .* in {list(range(1, n))!r}"[:40].replace("[", r"\[")):
        fx.distributed.assert_equal({"seed": i}, "seeds")
    fx.distributed.barrier("here")
    with pytest.raises(fx.distributed.DistributedError, match=f"place {i % 2}: not all of {n} processes came"):
        fx.distributed.barrier(f"place {i % 2}", timeout_seconds=0.5)
    fx.distributed.barrier("here again")


def shared_cache(i: int, n: int, port: str) -> None:
    """All processes share one compilation cache."""
    initialize(i, n, port, local_device_ids=[0, 1])
    assert fx.local_device_count() == 2
    with fx.compilation_cache(Path(os.environ["KEPT"])):
        for _ in range(2):
            fx.distributed.barrier("begin")
            if i == 0:
                f = fx.jit(lambda x: fnp.sin(x) * 3.0)
                assert_near(f(np.ones(4)), np.sin(np.ones(4)) * 3, ulps_of("sin"))
            fx.distributed.barrier("process 0 has kept it")
            f = fx.jit(lambda x: fnp.sin(x) * 3.0)
            out = f(np.ones(4))
            assert out.devices() == {fx.local_devices()[0]}
            assert_near(out, np.sin(np.ones(4)) * 3, ulps_of("sin"))


PARTS: Final[dict[str, Callable[[int, int, str], None]]] = {f.__name__: f for f in (all_checks, shared_cache)}

if __name__ == "__main__":
    run(PARTS)
