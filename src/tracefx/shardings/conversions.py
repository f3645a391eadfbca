"""Conversion of tilings and arguments to shardings over the axes of a mesh."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from math import prod

import numpy as np

from tracefx.core import ShapedArray
from tracefx.core.meshes import AbstractMesh
from tracefx.core.named_sharding import NamedSharding
from tracefx.core.partition_spec import PartitionEntry, PartitionSpec
from tracefx.core.sharding import Sharding, Tiling
from tracefx.shardings.meshes import NO_MESH, Mesh, current_mesh


def to_named_sharding(tiling: Tiling, mesh: Mesh) -> NamedSharding:
    """Returns the named sharding with this tiling on a mesh; on a new mesh if its axes cannot express it."""
    if mesh.flat == tiling.devices:
        for parts in _axis_assignments(tiling.counts, dict(mesh.shape)):
            sharding = NamedSharding(mesh, PartitionSpec(*_strip_trailing_none(parts)))
            if sharding.tiling(len(tiling.counts)) == tiling:
                return sharding
    devices = np.empty(len(tiling.devices), object)
    devices[:] = [tiling.devices[i] for i in tiling.device_order]
    names = [f"axis{i}" for i in range(len(tiling.counts))]
    own = Mesh(devices.reshape((*tiling.counts, tiling.num_replicas)), [*names, "copies"])
    return NamedSharding(own, PartitionSpec(*names))


def _axis_assignments(counts: Sequence[int], sizes: dict[str, int]) -> Iterator[tuple[PartitionEntry, ...]]:
    """Iterates over all assignments of mesh axes to array axes with these numbers of tiles."""
    if not counts:
        yield ()
        return
    free = [name for name, size in sizes.items() if size > 1]
    for k in range(len(free) + 1):
        for names in permutations(free, k):
            if prod([sizes[name] for name in names]) == counts[0]:
                left = {name: size for name, size in sizes.items() if name not in names}
                for rest in _axis_assignments(counts[1:], left):
                    yield (names if k else None, *rest)


def _strip_trailing_none(parts: tuple[PartitionEntry, ...]) -> tuple[PartitionEntry, ...]:
    while parts and parts[-1] is None:
        parts = parts[:-1]
    return parts


def as_sharding(given: object, what: str) -> Sharding:
    """Returns a sharding. A partition spec, and a sharding over an abstract mesh, are on the current mesh."""
    if isinstance(given, Sharding) and not (isinstance(given, NamedSharding) and isinstance(given.mesh, AbstractMesh)):
        return given
    if not isinstance(given, PartitionSpec | NamedSharding):
        raise TypeError(f"{what} takes a sharding or a PartitionSpec, got {given!r} of type {type(given).__name__}")
    mesh = current_mesh()
    if isinstance(given, NamedSharding):
        if mesh.abstract_mesh != given.mesh:
            raise ValueError(
                f"{what}: {given} has no devices: call it inside of `with set_mesh(mesh):` with a mesh whose "
                "abstract_mesh is this one"
            )
        return given.update(mesh=mesh)
    if mesh is NO_MESH:
        raise ValueError(
            f"{what}: {given} names axes of a mesh, but no mesh is set: write NamedSharding(mesh, {given}), or call it "
            "inside of `with set_mesh(mesh):`"
        )
    return NamedSharding(mesh, given)


def on_mesh(sharding: Sharding) -> NamedSharding:
    """Returns a sharding over a mesh; that of a single device is one over a mesh of this device."""
    if isinstance(sharding, NamedSharding):
        return sharding
    return NamedSharding(Mesh(sharding.devices, "device"), PartitionSpec())


def require_shardable(aval: ShapedArray, sharding: Sharding, what: str) -> None:
    """Raises ValueError unless an array with this aval can have the sharding; `what` names the array."""
    try:
        sharding.shard_shape(aval.shape)
    except ValueError as error:
        raise ValueError(f"{what}, {aval}, can't have the sharding {sharding}: {error}") from None
