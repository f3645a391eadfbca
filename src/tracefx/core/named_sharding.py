"""Shardings over the axes of a mesh. Those over explicit axes of a mesh without devices are part of types."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TypeAlias, cast, final

import numpy as np
from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.bounded_cache import memoize
from tracefx.core.device import Device
from tracefx.core.meshes import AbstractMesh, BaseMesh
from tracefx.core.partition_spec import PartitionEntry, PartitionSpec, Unconstrained, entry_axis_names
from tracefx.core.sharding import Sharding, Tiling, check_memory_kind

Spec: TypeAlias = tuple[PartitionEntry, ...]
"""The mesh axes over which each axis of an array is sharded."""


@final
@frozen(repr=False)
class NamedSharding(Sharding):
    """A sharding given by a mesh and a partition spec.

    Args:
        mesh: The mesh: a `Mesh`, or an `AbstractMesh` in the shardings of types, which have no devices.
        spec: For each array axis, the mesh axes over which it is sharded.
        memory_kind: None, the default, or "device": devices have one memory.

    Raises:
        TypeError: If `mesh` is not a mesh or `spec` not a `PartitionSpec`.
        ValueError: If the spec names an axis that the mesh does not have, or `memory_kind` is another one.

    >>> from tracefx import Mesh, devices
    >>> NamedSharding(Mesh(devices()[:1], "data"), PartitionSpec("data"))
    NamedSharding(Mesh(data=1), P('data'))
    """

    mesh: BaseMesh
    spec: PartitionSpec
    memory_kind: str | None = field(default=None, kw_only=True, eq=False, repr=False, validator=check_memory_kind)

    def __attrs_post_init__(self) -> None:
        mesh, spec = cast(object, self.mesh), cast(object, self.spec)
        if not isinstance(mesh, BaseMesh):
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

    @property
    @override
    def explicit_axes(self) -> tuple[str, ...]:
        return self.mesh.explicit_axes

    @property
    @override
    def devices(self) -> tuple[Device, ...]:
        if isinstance(self.mesh, AbstractMesh):
            raise ValueError(f"{self} has no devices, since its mesh is abstract: use the sharding over a Mesh")
        return self.mesh.flat

    @property
    @override
    def num_devices(self) -> int:
        return self.mesh.size

    @property
    @override
    def is_fully_replicated(self) -> bool:
        return self.mesh.size_of(self.spec.names) == 1

    @property
    def replicated_axes(self) -> frozenset[str]:
        """The mesh axes that the specification does not name."""
        return frozenset(self.mesh.axis_names).difference(self.spec.names)

    def update(
        self, *, mesh: BaseMesh | None = None, spec: PartitionSpec | Sequence[object] | None = None
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


OutSharding: TypeAlias = NamedSharding | PartitionSpec | None
"""The argument `out_sharding`: a sharding, a partition specification for the mesh in use, or None for no constraint.

A public function of a package with a stub only declares it; `lazy_stubs.attach` interprets it.
"""


@memoize(1024)
def _tiling(sharding: NamedSharding, ndim: int) -> Tiling:
    return sharding._tiling(ndim)


def explicit_entry(entry: PartitionEntry, mesh: BaseMesh) -> PartitionEntry:
    """Returns the explicit mesh axes of an entry."""
    explicit = mesh.explicit_axes
    names = tuple([name for name in entry_axis_names(entry) if name in explicit])
    return None if not names else names[0] if len(names) == 1 else names


def type_sharding(mesh: BaseMesh, spec: Sequence[PartitionEntry], ndim: int) -> NamedSharding | None:
    """Returns the sharding of types over the explicit axes of a mesh; None for values that are not sharded over them.

    Args:
        mesh: The mesh, of which the types have the abstract mesh.
        spec: The mesh axes, explicit ones or not, of the first axes.
        ndim: The number of axes.
    """
    entries = [explicit_entry(entry, mesh) for entry in spec]
    if not any(entries):
        return None
    return NamedSharding(mesh.abstract_mesh, PartitionSpec(*entries, *[None] * (ndim - len(entries))))


def dimension_text(size: int, entry: PartitionEntry) -> str:
    """Returns the size of an axis as text, with the mesh axes over which it is sharded, e.g. `8@x` or `8@(x,y)`."""
    names = entry_axis_names(entry)
    if not names:
        return str(size)
    return f"{size}@{names[0]}" if len(names) == 1 else f"{size}@({','.join(names)})"
