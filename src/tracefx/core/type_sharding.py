"""Shardings that are part of types: along which explicit mesh axes a value is sharded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, final

from attrs import frozen

from tracefx.core.meshes import AbstractMesh
from tracefx.core.partition_spec import PartitionEntry, PartitionSpec, entry_axis_names

Spec: TypeAlias = tuple[PartitionEntry, ...]
"""The mesh axes over which each axis of an array is sharded."""


@final
@frozen
class TypeSharding:
    """The sharding that is part of a type, over the explicit axes of a mesh.

    Args:
        mesh: The mesh, without devices.
        spec: The mesh axes over which each axis of the array is sharded: one entry for each axis.

    >>> from tracefx.core.meshes import AxisType
    >>> TypeSharding(AbstractMesh((8,), "x", AxisType.Explicit), PartitionSpec("x", None))
    TypeSharding(mesh=AbstractMesh(('Explicit',), x=8), spec=P('x', None))
    """

    mesh: AbstractMesh
    spec: PartitionSpec
    memory_kind = "device"

    @property
    def is_fully_replicated(self) -> bool:
        """Whether every device has the whole array."""
        return self.mesh.size_of(self.spec.names) == 1

    def update(
        self, *, mesh: AbstractMesh | None = None, spec: PartitionSpec | Sequence[object] | None = None
    ) -> TypeSharding:
        """Returns a sharding with another mesh or specification.

        Args:
            mesh: The mesh. None, the default, means that of this sharding.
            spec: The specification, or its entries. None, the default, means that of this sharding.
        """
        new = self.spec if spec is None else PartitionSpec(*spec)
        return TypeSharding(self.mesh if mesh is None else mesh, new)

    def dimension_text(self, size: int, axis: int) -> str:
        """Returns the size of an axis as text, with the mesh axes over which it is sharded, e.g. `8@x` or `8@(x,y)`."""
        names = entry_axis_names(self.spec[axis])
        if not names:
            return str(size)
        return f"{size}@{names[0]}" if len(names) == 1 else f"{size}@({','.join(names)})"


def explicit_entry(entry: PartitionEntry, mesh: AbstractMesh) -> PartitionEntry:
    """Returns the explicit mesh axes of an entry."""
    explicit = mesh.explicit_axes
    names = tuple([name for name in entry_axis_names(entry) if name in explicit])
    return None if not names else names[0] if len(names) == 1 else names


def type_sharding(mesh: AbstractMesh, spec: Sequence[PartitionEntry], ndim: int) -> TypeSharding | None:
    """Returns the sharding of types over the explicit axes of a mesh; None for values that are not sharded over them.

    Args:
        mesh: The mesh.
        spec: The mesh axes, explicit ones or not, of the first axes.
        ndim: The number of axes.
    """
    entries = [explicit_entry(entry, mesh) for entry in spec]
    if not any(entries):
        return None
    return TypeSharding(mesh, PartitionSpec(*entries, *[None] * (ndim - len(entries))))
