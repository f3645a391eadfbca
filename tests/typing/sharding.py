"""Static types of sharded arrays. Checked by mypy and pyright; the functions are never called.

Both report an `ignore` that is not needed, so an invalid call that is no longer rejected fails the check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_type

import numpy as np

import tracefx as fx
import tracefx.numpy as fnp
from tracefx import Array, Mesh, NamedSharding, P
from tracefx.core.array import Shard
from tracefx.core.compiled_collectives import CompiledCollective
from tracefx.core.device import Device
from tracefx.core.sharding import ShardIndex, Sharding
from tracefx.sharding import SingleDeviceSharding

Params = dict[str, Array]


def double(x: Array) -> Array:
    return x * 2


def meshes(devices: list[Device]) -> None:
    mesh = fx.make_mesh((4, 2), ("x", "y"))
    assert_type(mesh, Mesh)
    assert_type(mesh.shape, Mapping[str, int])
    assert_type(Mesh(devices, "x").size, int)
    with fx.set_mesh(mesh) as used:
        assert_type(used, Mesh)
    fx.make_mesh(4, ("x",))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fx.set_mesh("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def shardings(mesh: Mesh) -> None:
    sharding = NamedSharding(mesh, P("x", None))
    assert_type(sharding.spec, P)
    assert_type(sharding.shard_shape((8, 4)), tuple[int, ...])
    assert_type(sharding.devices_indices_map((8, 4)), Mapping[Device, ShardIndex])
    assert_type(sharding.is_equivalent_to(SingleDeviceSharding(fx.devices()[0]), 2), bool)
    NamedSharding(P("x"), mesh)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def arrays(sharding: Sharding, x: Array) -> None:
    assert_type(fx.device_put(x, sharding), Array)
    assert_type(fx.device_put(np.ones(3), fx.devices()[0]), Array)
    assert_type(fx.device_put(3.0), Array)
    assert_type(fnp.zeros(8, device=sharding), Array)
    assert_type(fnp.asarray([1.0], device=fx.devices()[0]), Array)
    assert_type(x.astype("float16", device=sharding), Array)
    assert_type(fnp.matmul(x, x, out_sharding=P("x")), Array)
    assert_type(fx.lax.reshape(x, (4, 2), out_sharding=None), Array)
    assert_type(fx.random.normal(fx.random.key(0), (8,), out_sharding=P("x")), Array)
    fnp.zeros(8, out_sharding="x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(x.sharding, Sharding)
    assert_type(x.addressable_shards, Sequence[Shard])
    assert_type(x.addressable_data(0), Array)
    assert_type(x.is_fully_replicated, bool)
    assert_type(x.is_deleted(), bool)
    assert_type(fx.make_array_from_callback((8,), sharding, lambda index: np.ones(8)[index]), Array)
    fx.make_array_from_callback((8,), sharding, np.ones(8))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fx.debug.visualize_array_sharding(x, scale=2.0)
    fx.debug.visualize_array_sharding(x, size=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def programs(sharding: Sharding, x: Array, params: Params) -> None:
    assert_type(fx.jit(double, in_shardings=sharding, out_shardings=P("x"))(x), Array)
    compiled = fx.jit(double).lower(x).compile()
    assert_type(compiled.collectives(), tuple[CompiledCollective, ...])
    assert_type([c.bytes_sent for c in compiled.collectives()], list[int])
    assert_type(fx.lax.with_sharding_constraint(x, sharding), Array)
    assert_type(fx.lax.with_sharding_constraint(params, {"w": sharding}), Params)
