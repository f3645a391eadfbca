"""Conversion of meshes, partition specs, shardings and sharded arrays between JAX and tracefx.

Devices have the same ids in both, and share memory on the CPU.
"""

from __future__ import annotations

from typing import Any, overload

import jax
import numpy as np
from jax.sharding import AbstractMesh as JaxAbstractMesh
from jax.sharding import AxisType as JaxAxisType
from jax.sharding import Mesh as JaxMesh
from jax.sharding import NamedSharding as JaxNamedSharding
from jax.sharding import PartitionSpec as JaxPartitionSpec

from tracefx.core import NDArray, ShapedArray
from tracefx.core.backend import BACKEND
from tracefx.core.meshes import AbstractMesh, AxisType, BaseMesh
from tracefx.core.named_sharding import NamedSharding, type_sharding
from tracefx.core.partition_spec import UNCONSTRAINED, PartitionSpec
from tracefx.core.sharding import Sharding, SingleDeviceSharding
from tracefx.shardings.meshes import Mesh, current_mesh
from tracefx.shardings.sharded_array import ShardedArray


@overload
def mesh_to_jax(mesh: Mesh) -> JaxMesh: ...
@overload
def mesh_to_jax(mesh: BaseMesh) -> JaxMesh | JaxAbstractMesh: ...
def mesh_to_jax(mesh: BaseMesh) -> JaxMesh | JaxAbstractMesh:
    """Converts a mesh to JAX: the devices with the same ids, under the same axis names and of the same axis types.

    Args:
        mesh: A mesh of tracefx, with devices or without.

    Returns:
        A `jax.sharding.Mesh`, or a `jax.sharding.AbstractMesh` for a mesh without devices.

    Raises:
        ValueError: JAX does not have one of the devices.

    >>> import tracefx as fx
    >>> mesh_to_jax(fx.make_mesh((1,), ("data",))).axis_names
    ('data',)
    """
    types = tuple([JaxAxisType[each.name] for each in mesh.axis_types])
    if not isinstance(mesh, Mesh):
        devices = jax.devices()[: mesh.size]
        if len(devices) < mesh.size:
            return JaxAbstractMesh(mesh.axis_sizes, mesh.axis_names, types)
        # JAX's abstract meshes know the kind of the devices.
        abstract: JaxAbstractMesh = JaxMesh(
            np.array(devices).reshape(mesh.axis_sizes), mesh.axis_names, types
        ).abstract_mesh
        return abstract
    return JaxMesh(_devices_by_id(jax.devices(), mesh.device_ids, "JAX"), mesh.axis_names, types)


def mesh_from_jax(mesh: JaxMesh | JaxAbstractMesh) -> Mesh:
    """Converts a mesh of JAX: the devices with the same ids, under the same axis names and of the same axis types.

    Args:
        mesh: a mesh of JAX. An abstract mesh, as in programs that were traced for the current mesh, stands for the
            current mesh of tracefx or of JAX.

    Returns:
        A `tracefx.Mesh`.

    Raises:
        ValueError: there is no such device, or `mesh` is abstract and no current mesh has its axes.

    >>> mesh_from_jax(jax.make_mesh((1,), ("data",)))
    Mesh(data=1, axis_types=('Explicit',))
    """
    if isinstance(mesh, JaxMesh):
        ids = np.array([d.id for d in mesh.devices.flat], np.int64).reshape(mesh.devices.shape)
        devices = _devices_by_id(BACKEND.value.devices(BACKEND.value.platform), ids, "tracefx")
        return Mesh(devices, tuple(mesh.axis_names), [AxisType[each.name] for each in mesh.axis_types])
    in_use = current_mesh()
    if (in_use.axis_names, in_use.axis_sizes) == (tuple(mesh.axis_names), tuple(mesh.axis_sizes)):
        return in_use
    jax_mesh: Any = jax.sharding.get_mesh()
    if (jax_mesh.axis_names, jax_mesh.axis_sizes) == (mesh.axis_names, mesh.axis_sizes):
        return mesh_from_jax(jax_mesh)
    raise ValueError(
        f"JAX's program is for the current mesh, {mesh}, but no current mesh has these axes: call it inside "
        "`with tracefx.set_mesh(mesh):`, or pass the mesh itself to JAX's functions"
    )


def _devices_by_id(available: list[Any], ids: NDArray, library: str) -> NDArray:
    by_id = {device.id: device for device in available}
    missing = sorted({*map(int, ids.flat)} - {*by_id})
    if missing:
        raise ValueError(f"the mesh has the devices {missing}, but the devices of {library} here are {sorted(by_id)}")
    devices = np.empty(ids.size, object)
    devices[:] = [by_id[int(i)] for i in ids.flat]
    return devices.reshape(ids.shape)


def spec_to_jax(spec: PartitionSpec) -> JaxPartitionSpec:
    """Converts a partition spec to JAX."""
    return JaxPartitionSpec(*[JaxPartitionSpec.UNCONSTRAINED if part is UNCONSTRAINED else part for part in spec])


def spec_from_jax(spec: JaxPartitionSpec) -> PartitionSpec:
    """Converts a partition spec of JAX; raises `ValueError` for unreduced axes, which tracefx does not have."""
    if spec.unreduced or spec.reduced:
        raise ValueError(f"{spec} has unreduced or reduced axes: tracefx has no such arrays")
    parts = [None if part == () else part for part in spec]
    return PartitionSpec(*[UNCONSTRAINED if part is JaxPartitionSpec.UNCONSTRAINED else part for part in parts])


def sharding_to_jax(sharding: Sharding) -> jax.sharding.Sharding:
    """Converts a sharding to JAX.

    Args:
        sharding: A sharding of tracefx.

    Returns:
        The sharding of JAX for the devices with the same ids.

    >>> import tracefx as fx
    >>> sharding_to_jax(fx.NamedSharding(fx.make_mesh((1,), ("data",)), fx.P("data"))).spec
    P('data',)
    """
    if isinstance(sharding, NamedSharding):
        return JaxNamedSharding(mesh_to_jax(sharding.mesh), spec_to_jax(sharding.spec))
    (device,) = sharding.devices
    return jax.sharding.SingleDeviceSharding(_devices_by_id(jax.devices(), np.array([device.id]), "JAX")[0])


def type_sharding_from_jax(aval: jax.core.ShapedArray) -> NamedSharding | None:
    """Returns the sharding over explicit mesh axes in a type of JAX."""
    sharding = aval.sharding
    types = [AxisType[each.name] for each in sharding.mesh.axis_types]
    mesh = AbstractMesh(sharding.mesh.axis_sizes, sharding.mesh.axis_names, types)
    return type_sharding(mesh, spec_from_jax(sharding.spec).partitions, len(aval.shape))


def sharding_from_jax(sharding: jax.sharding.Sharding) -> Sharding:
    """Converts a sharding of JAX.

    Args:
        sharding: A `NamedSharding` or `SingleDeviceSharding` of JAX.

    Returns:
        The sharding of tracefx for the devices with the same ids.

    Raises:
        TypeError: If it is a sharding of another class.

    >>> mesh = jax.make_mesh((1,), ("data",))
    >>> sharding_from_jax(jax.NamedSharding(mesh, jax.P("data")))
    NamedSharding(Mesh(data=1, axis_types=('Explicit',)), P('data'))
    """
    if isinstance(sharding, JaxNamedSharding):
        return NamedSharding(mesh_from_jax(sharding.mesh), spec_from_jax(sharding.spec))
    if isinstance(sharding, jax.sharding.SingleDeviceSharding):
        (device,) = _devices(sharding)
        devices = BACKEND.value.devices(BACKEND.value.platform)
        return SingleDeviceSharding(_devices_by_id(devices, np.array([device.id]), "tracefx")[0])
    raise TypeError(f"JAX's sharding {sharding} has no counterpart in tracefx: use a NamedSharding")


def _devices(sharding: jax.sharding.Sharding) -> list[Any]:
    return list(sharding.device_set)


# ------------------------------------------------------------------ arrays


def is_cpu_sharded(x: jax.Array) -> bool:
    """Whether an array of JAX is sharded over several CPU devices of a mesh, all of them in this process."""
    sharding = x.sharding
    return (
        isinstance(sharding, JaxNamedSharding)
        and sharding.num_devices > 1
        and x.is_fully_addressable
        and _devices(sharding)[0].platform == "cpu"
    )


def sharded_array_from_jax(x: jax.Array, aval: ShapedArray) -> ShardedArray:
    """Converts a sharded array of JAX in place; memory is shared."""
    sharding = sharding_from_jax(x.sharding)
    by_id = {shard.device.id: shard.data for shard in x.addressable_shards}
    tiles = [np.asarray(by_id[device.id]) for device in sharding.devices]
    return ShardedArray(aval, BACKEND.value.put_shards(aval, sharding, tiles), sharding)


def sharded_array_to_jax(x: ShardedArray) -> jax.Array:
    """Converts a sharded array to JAX, in place."""
    sharding: Any = sharding_to_jax(x.placed)
    by_id = {device.id: device for device in sharding.device_set}
    parts = [jax.device_put(np.asarray(shard.data), by_id[shard.device.id]) for shard in x.addressable_shards]
    array: jax.Array = jax.make_array_from_single_device_arrays(x.aval.shape, sharding, parts)
    return array
