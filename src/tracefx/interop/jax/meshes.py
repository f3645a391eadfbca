"""Meshes, specifications and shardings, and arrays that lie on several devices, from JAX and to JAX.

Devices have the same numbers in both, and on the CPU the same memory.
"""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude="jax"

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh as JaxAbstractMesh
from jax.sharding import Mesh as JaxMesh
from jax.sharding import NamedSharding as JaxNamedSharding
from jax.sharding import PartitionSpec as JaxPartitionSpec

from tracefx.core.avals import ShapedArray
from tracefx.core.backend import BACKEND
from tracefx.core.dtypes import NDArray
from tracefx.core.sharding import Sharding, SingleDeviceSharding
from tracefx.shardings.meshes import MESH, UNCONSTRAINED, Mesh, PartitionSpec
from tracefx.shardings.named_sharding import NamedSharding
from tracefx.shardings.sharded_array import ShardedArray


def mesh_to_jax(mesh: Mesh) -> JaxMesh:
    """The mesh of JAX's devices with these numbers, under the same names. ValueError if JAX has no such device.

    >>> import tracefx as fx
    >>> mesh_to_jax(fx.make_mesh((1,), ("data",))).axis_names
    ('data',)
    """
    return JaxMesh(_devices_by_id(jax.devices(), mesh.device_ids, "JAX"), mesh.axis_names)


def mesh_from_jax(mesh: JaxMesh | JaxAbstractMesh) -> Mesh:
    """The mesh of our devices with these numbers, under the same names.

    One that names no devices, as a program has it that was traced for the mesh in use, is that in use here or in JAX.

    Raises ValueError if there is no such device, or no mesh in use that has these axes.

    >>> mesh_from_jax(jax.make_mesh((1,), ("data",)))
    Mesh(data=1)
    """
    if isinstance(mesh, JaxMesh):
        ids = np.array([d.id for d in mesh.devices.flat], np.int64).reshape(mesh.devices.shape)
        return Mesh(
            _devices_by_id(BACKEND.value.devices(BACKEND.value.platform), ids, "tracefx"), tuple(mesh.axis_names)
        )
    mine = MESH.value
    if (mine.axis_names, mine.axis_sizes) == (tuple(mesh.axis_names), tuple(mesh.axis_sizes)):
        return mine
    theirs: Any = jax.sharding.get_mesh()
    if (theirs.axis_names, theirs.axis_sizes) == (mesh.axis_names, mesh.axis_sizes):
        return mesh_from_jax(theirs)
    raise ValueError(
        f"JAX's program is for the mesh in use, {mesh}, but none with these axes is: call it inside of "
        "`with tracefx.set_mesh(mesh):`, or give JAX's functions the mesh itself"
    )


def _devices_by_id(there: list[Any], ids: NDArray, whose: str) -> NDArray:
    by_id = {device.id: device for device in there}
    missing = sorted({*map(int, ids.flat)} - {*by_id})
    if missing:
        raise ValueError(f"the mesh has the devices {missing}, but of {whose} there are {sorted(by_id)} here")
    devices = np.empty(ids.size, object)
    devices[:] = [by_id[int(i)] for i in ids.flat]
    return devices.reshape(ids.shape)


def spec_to_jax(spec: PartitionSpec) -> JaxPartitionSpec:
    """The same specification."""
    return JaxPartitionSpec(*[JaxPartitionSpec.UNCONSTRAINED if part is UNCONSTRAINED else part for part in spec])


def spec_from_jax(spec: JaxPartitionSpec) -> PartitionSpec:
    """The same specification. ValueError for one that says of which axes an array is a sum, which there is not here."""
    if spec.unreduced or spec.reduced:
        raise ValueError(f"{spec} speaks of sums that are still to be made: there are no such arrays here")
    parts = [None if part == () else part for part in spec]
    return PartitionSpec(*[UNCONSTRAINED if part is JaxPartitionSpec.UNCONSTRAINED else part for part in parts])


def sharding_to_jax(sharding: Sharding) -> jax.sharding.Sharding:
    """The same sharding, on JAX's devices.

    >>> import tracefx as fx
    >>> sharding_to_jax(fx.NamedSharding(fx.make_mesh((1,), ("data",)), fx.P("data"))).spec
    P('data',)
    """
    if isinstance(sharding, NamedSharding):
        return JaxNamedSharding(mesh_to_jax(sharding.mesh), spec_to_jax(sharding.spec))
    (device,) = sharding.devices
    return jax.sharding.SingleDeviceSharding(_devices_by_id(jax.devices(), np.array([device.id]), "JAX")[0])


def sharding_from_jax(sharding: jax.sharding.Sharding) -> Sharding:
    """The same sharding, on our devices. TypeError for kinds of JAX's that say it otherwise than by a mesh.

    >>> mesh = jax.make_mesh((1,), ("data",))
    >>> sharding_from_jax(jax.NamedSharding(mesh, jax.P("data")))
    NamedSharding(Mesh(data=1), P('data'))
    """
    if isinstance(sharding, JaxNamedSharding):
        return NamedSharding(mesh_from_jax(sharding.mesh), spec_from_jax(sharding.spec))
    if isinstance(sharding, jax.sharding.SingleDeviceSharding):
        (device,) = _devices(sharding)
        ours = BACKEND.value.devices(BACKEND.value.platform)
        return SingleDeviceSharding(_devices_by_id(ours, np.array([device.id]), "tracefx")[0])
    raise TypeError(f"JAX's sharding {sharding} has no counterpart here: use one on a mesh, a NamedSharding")


def _devices(sharding: jax.sharding.Sharding) -> list[Any]:
    return list(sharding.device_set)


# ------------------------------------------------------------------ arrays


def is_cpu_sharded(x: jax.Array) -> bool:
    """Whether an array of JAX lies on several devices of a mesh of CPUs, all of them this process's."""
    sharding = x.sharding
    return (
        isinstance(sharding, JaxNamedSharding)
        and sharding.num_devices > 1
        and x.is_fully_addressable
        and _devices(sharding)[0].platform == "cpu"
    )


def sharded_array_from_jax(x: jax.Array, aval: ShapedArray) -> ShardedArray:
    """The array where it lies, whose memory is shared."""
    sharding = sharding_from_jax(x.sharding)
    by_id = {shard.device.id: shard.data for shard in x.addressable_shards}
    tiles = [np.asarray(by_id[device.id]) for device in sharding.devices]
    return ShardedArray(aval, BACKEND.value.put_shards(aval, sharding, tiles), sharding)


def sharded_array_to_jax(x: ShardedArray) -> jax.Array:
    """The array where it lies."""
    sharding: Any = sharding_to_jax(x.placed)
    by_id = {device.id: device for device in sharding.device_set}
    parts = [jax.device_put(np.asarray(shard.data), by_id[shard.device.id]) for shard in x.addressable_shards]
    found: jax.Array = jax.make_array_from_single_device_arrays(x.aval.shape, sharding, parts)
    return found
