"""Shardings over the axes of a mesh."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from math import prod
from typing import cast, final

import numpy as np
from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.bounded_cache import memoize
from tracefx.core import ShapedArray
from tracefx.core.avals import intern_aval
from tracefx.core.device import Device
from tracefx.core.partition_spec import PartitionEntry, PartitionSpec, Unconstrained, entry_axis_names
from tracefx.core.sharding import Sharding, Tiling, check_memory_kind
from tracefx.core.type_sharding import type_sharding
from tracefx.shardings.meshes import NO_MESH, Mesh, current_mesh


@final
@frozen(repr=False)
class NamedSharding(Sharding):
    """A sharding given by a mesh and a partition spec.

    Args:
        mesh: The mesh.
        spec: For each array axis, the mesh axes over which it is sharded.
        memory_kind: None, the default, or "device": devices have one memory.

    Raises:
        TypeError: If `mesh` is not a `Mesh` or `spec` not a `PartitionSpec`.
        ValueError: If the spec names an axis that the mesh does not have, or `memory_kind` is another one.

    >>> from tracefx import devices
    >>> NamedSharding(Mesh(devices()[:1], "data"), PartitionSpec("data"))
    NamedSharding(Mesh(data=1), P('data'))
    """

    mesh: Mesh
    spec: PartitionSpec
    memory_kind: str | None = field(default=None, kw_only=True, eq=False, repr=False, validator=check_memory_kind)

    def __attrs_post_init__(self) -> None:
        mesh, spec = cast(object, self.mesh), cast(object, self.spec)
        if not isinstance(mesh, Mesh):
            raise TypeError(f"NamedSharding: mesh must be a Mesh, as make_mesh returns, got {mesh!r}")
        if not isinstance(spec, PartitionSpec):
            parts = spec if isinstance(spec, tuple | list) else (spec,)
            written = f": write P({', '.join(map(repr, parts))})" if isinstance(spec, str | tuple | list) else ""
            raise TypeError(f"NamedSharding: spec must be a PartitionSpec, got {spec!r}{written}")
        for name in self.spec.names:
            if name not in self.mesh.axis_names:
                raise ValueError(
                    f"{self.spec} names the axis {name!r}, but the axes of {self.mesh} are {list(self.mesh.axis_names)}"
                )

    @override
    def type_of(self, aval: ShapedArray) -> ShapedArray:
        """Returns the type of an array with this sharding: it has the sharding over explicit mesh axes.

        Args:
            aval: The type, with any sharding.
        """
        if self.mesh.explicit_axes:
            return _type_of(self, aval)
        return aval if aval.explicit_sharding is None else aval.with_explicit_sharding(None)

    @property
    @override
    def devices(self) -> tuple[Device, ...]:
        return self.mesh.flat

    @property
    @override
    def is_fully_replicated(self) -> bool:
        return self.mesh.size_of(self.spec.names) == 1

    @property
    def replicated_axes(self) -> frozenset[str]:
        """The mesh axes that the specification does not name."""
        return frozenset(self.mesh.axis_names).difference(self.spec.names)

    def update(
        self, *, mesh: Mesh | None = None, spec: PartitionSpec | Sequence[object] | None = None
    ) -> NamedSharding:
        """Returns a sharding with another mesh or specification.

        Args:
            mesh: The mesh. None, the default, means that of this sharding.
            spec: The specification, or its entries. None, the default, means that of this sharding.
        """
        return evolve(
            self, mesh=self.mesh if mesh is None else mesh, spec=self.spec if spec is None else PartitionSpec(*spec)
        )

    @override
    def check_compatible_aval(self, aval_shape: Sequence[int]) -> None:
        self.spec.of_rank(len(aval_shape))

    @override
    def tiling(self, ndim: int) -> Tiling:
        return _tiling(self, ndim)

    def _tiling(self, ndim: int) -> Tiling:
        parts = self.spec.of_rank(ndim)
        if any(isinstance(part, Unconstrained) for part in parts):
            raise ValueError(
                f"{self.spec} leaves it to the compiler how an array is sharded, so it has no sharding outside of one"
            )
        axis_names = [entry_axis_names(part) for part in parts]
        counts = tuple([self.mesh.size_of(names) for names in axis_names])
        order = [name for names in axis_names for name in names]
        unused = [name for name in self.mesh.axis_names if name not in order]
        tiles = np.arange(prod(counts)).reshape([self.mesh.shape[name] for name in order] + [1] * len(unused))
        tiles_by_device = np.broadcast_to(tiles, [self.mesh.shape[name] for name in [*order, *unused]])
        to_mesh_order = [[*order, *unused].index(name) for name in self.mesh.axis_names]
        return Tiling(self.mesh.flat, counts, tuple(int(i) for i in tiles_by_device.transpose(to_mesh_order).flat))

    @override
    def __repr__(self) -> str:
        return f"NamedSharding({self.mesh!r}, {self.spec!r})"


@memoize(4096)
def _type_of(sharding: NamedSharding, aval: ShapedArray) -> ShapedArray:
    explicit = type_sharding(sharding.mesh.abstract_mesh, sharding.spec.partitions, aval.ndim)
    return intern_aval(aval.with_explicit_sharding(explicit))


@memoize(1024)
def _tiling(sharding: NamedSharding, ndim: int) -> Tiling:
    return sharding._tiling(ndim)


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


@final
@frozen
class ShardingAssignment:
    """The devices of a program and the shardings of its inputs and outputs; `None` where the compiler chooses."""

    devices: tuple[Device, ...]
    inputs: tuple[Sharding | None, ...]
    outputs: tuple[Sharding | None, ...]


def as_sharding(given: object, what: str) -> Sharding:
    """Converts a partition spec to a sharding on the current mesh; returns a sharding unchanged."""
    if isinstance(given, Sharding):
        return given
    if not isinstance(given, PartitionSpec):
        raise TypeError(f"{what} takes a sharding or a PartitionSpec, got {given!r} of type {type(given).__name__}")
    mesh = current_mesh()
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
