"""Meshes, arrays of devices with named axes, and partition specs, which map array axes to mesh axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ContextDecorator
from enum import Enum
from math import prod
from types import MappingProxyType, TracebackType
from typing import Any, ClassVar, Final, Self, TypeAlias, final, overload

import numpy as np
from attrs import field, frozen
from typing_extensions import override

from tracefx.core import NDArray
from tracefx.core.device import MEMORY, Device
from tracefx.core.effects import Effect
from tracefx.core.traceback_filtering import api_boundary
from tracefx.settings import Setting
from tracefx.text.custom_text import CustomText, TextArgs


class AxisType(Enum):
    """The type of a mesh axis: who decides about the sharding of values along it.

    Meshes have axes of the type `Auto`: the compiler decides, within the constraints of `with_sharding_constraint`,
    `out_sharding` and so on. Inside a `shard_map` its axes are `Manual`: the program decides. `Explicit` axes, along
    which types of values have shardings, are not supported.
    """

    Auto = 1
    Explicit = 2
    Manual = 3


@final
@frozen(init=False, repr=False)
class Mesh(CustomText, ContextDecorator):
    """An array of devices with named axes, e.g. 4 x 2 devices with the axes "data" and "model".

    As a context manager and as a decorator it sets the current mesh, as `set_mesh` does.

    Args:
        devices: An array of devices, or nested sequences of them.
        axis_names: The name of each axis of that array; a string for a single axis.
        axis_types: The type of each axis, or one for all, which must be `AxisType.Auto`. None, the default, means this.

    Raises:
        TypeError: If a name is not a string.
        NotImplementedError: If an axis has another type.
        ValueError: If the number of names is not the number of axes, or a name or device occurs twice.

    >>> from tracefx import devices
    >>> Mesh(devices()[:1], "data")
    Mesh(data=1)
    """

    text_name: ClassVar[str] = "Mesh"
    flat: tuple[Device, ...]
    """All devices in row-major order: the device assignment of SPMD programs on the mesh."""
    axis_sizes: tuple[int, ...]
    axis_names: tuple[str, ...]

    @api_boundary
    def __init__(
        self,
        devices: NDArray | Sequence[Any],
        axis_names: str | Sequence[str],
        axis_types: AxisType | Sequence[AxisType] | None = None,
    ) -> None:
        array = np.asarray(devices, dtype=object)
        names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        for name in names:
            if not isinstance(name, str):
                raise TypeError(f"Mesh: axis names must be strings, got {name!r} in {names!r}")
        if len(names) != array.ndim:
            raise ValueError(f"Mesh: {len(names)} names {names!r} were given for devices of shape {array.shape}")
        if len(set(names)) != len(names):
            raise ValueError(f"Mesh: the names of the axes must be different, got {names!r}")
        types = (axis_types,) * array.ndim if isinstance(axis_types, AxisType) else tuple(axis_types or names)
        if len(types) != array.ndim:
            raise ValueError(f"Mesh: {len(types)} axis_types {types!r} were given for devices of shape {array.shape}")
        if axis_types is not None and any(axis_type is not AxisType.Auto for axis_type in types):
            raise NotImplementedError(
                f"Mesh: axis_types must be AxisType.Auto, got {axis_types!r}: types of values have no shardings; "
                "with_sharding_constraint and out_sharding constrain them, and shard_map has manual axes"
            )
        flat = tuple(array.flat)
        if len(set(flat)) != len(flat):
            raise ValueError("Mesh: a device occurs twice")
        object.__setattr__(self, "flat", flat)
        object.__setattr__(self, "axis_sizes", array.shape)
        object.__setattr__(self, "axis_names", names)

    @property
    def devices(self) -> NDArray:
        """The devices as an array with one axis per mesh axis."""
        array = np.empty(len(self.flat), object)
        array[:] = self.flat
        array = array.reshape(self.axis_sizes)
        array.flags.writeable = False
        return array

    @property
    def shape(self) -> Mapping[str, int]:
        """The axis sizes by name."""
        return MappingProxyType(dict(zip(self.axis_names, self.axis_sizes, strict=True)))

    @property
    def shape_tuple(self) -> tuple[tuple[str, int], ...]:
        """The pairs of axis name and axis size."""
        return tuple(zip(self.axis_names, self.axis_sizes, strict=True))

    @property
    def axis_types(self) -> tuple[AxisType, ...]:
        """The type of each axis: `AxisType.Auto`."""
        return (AxisType.Auto,) * len(self.axis_names)

    @property
    def auto_axes(self) -> tuple[str, ...]:
        """The names of the axes of the type `Auto`: all of them."""
        return self.axis_names

    @property
    def explicit_axes(self) -> tuple[str, ...]:
        """The names of the axes of the type `Explicit`: none."""
        return ()

    @property
    def manual_axes(self) -> tuple[str, ...]:
        """The names of the axes of the type `Manual`: none; axes are manual inside of a `shard_map`."""
        return ()

    @property
    def are_all_axes_auto(self) -> bool:
        """Whether the mesh has axes, all of the type `Auto`."""
        return bool(self.auto_axes)

    @property
    def are_all_axes_explicit(self) -> bool:
        """Whether the mesh has axes, all of the type `Explicit`: False."""
        return bool(self.explicit_axes)

    @property
    def are_all_axes_manual(self) -> bool:
        """Whether the mesh has axes, all of the type `Manual`: False."""
        return bool(self.manual_axes)

    @property
    def are_all_axes_explicit_or_manual(self) -> bool:
        """Whether the mesh has axes, none of the type `Auto`: False."""
        return bool(self.axis_names) and not self.auto_axes

    @property
    def size(self) -> int:
        """The number of devices."""
        return len(self.flat)

    @property
    def local_devices(self) -> list[Device]:
        """The devices that belong to this process, in row-major order."""
        return [d for d in self.flat if d.process_index == MEMORY.value.process_index]

    @property
    def is_multi_process(self) -> bool:
        """Whether devices belong to other processes."""
        return len(self.local_devices) < len(self.flat)

    @property
    def local_mesh(self) -> Mesh:
        """The mesh of the devices that belong to this process.

        Raises ValueError if these are not a block of adjacent devices along each axis.
        """
        if not self.is_multi_process:
            return self
        devices = self.devices
        is_local = np.array([d in self.local_devices for d in self.flat]).reshape(self.axis_sizes)
        where = np.argwhere(is_local)
        block = tuple([slice(int(low), int(high) + 1) for low, high in zip(where.min(0), where.max(0), strict=True)])
        if not is_local[block].all():
            raise ValueError(f"the devices of {self} that belong to this process are not a block of adjacent devices")
        return Mesh(devices[block], self.axis_names)

    @property
    def jax_repr(self) -> str:
        """The `repr` of the equivalent JAX mesh."""
        axes = ", ".join([f"{name!r}: {size}" for name, size in self.shape.items()])
        kinds = ", ".join(["Auto"] * len(self.axis_names))
        return f"Mesh({axes}, axis_types=({kinds}{',' if len(self.axis_names) == 1 else ''}))"

    @property
    def empty(self) -> bool:
        """Whether the mesh has no devices."""
        return not self.flat

    @property
    def device_ids(self) -> NDArray:
        """The device ids as an array with one axis per mesh axis."""
        return np.array([d.id for d in self.flat], np.int64).reshape(self.axis_sizes)

    def size_of(self, names: Sequence[str]) -> int:
        """Returns the product of the sizes of some axes.

        Args:
            names: Names of axes of the mesh.

        Returns:
            The number of devices along these axes together; 1 for no axes.
        """
        return prod([self.shape[name] for name in names])

    def __enter__(self) -> Self:
        """Makes the mesh the current one, as `set_mesh` does, until `__exit__`."""
        MESH.override(self).__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        override = MESH.innermost_override(self)
        if override is None:
            raise RuntimeError(f"{self} is not the mesh of an active `with` block in this context")
        override.__exit__(kind, error, traceback)

    @override
    def text_args(self) -> TextArgs:
        """Returns the axis sizes by name, preceded by the device ids unless these are the first devices."""
        ids = tuple([device.id for device in self.flat])
        return ((ids,) if ids != tuple(range(len(ids))) else ()), self.shape

    @classmethod
    @override
    def from_text_args(cls, values: tuple[object, ...], named: Mapping[str, object]) -> Mesh:
        sizes = [size for size in named.values() if type(size) is int and size >= 0]
        if len(sizes) != len(named):
            raise ValueError(f"the axes of a mesh have sizes, not {dict(named)}")
        devices_by_id = {device.id: device for device in MEMORY.value.devices(MEMORY.value.platform)}
        count = prod(sizes)
        if count > len(devices_by_id):
            raise ValueError(f"the mesh is of {count} devices, but there are {len(devices_by_id)}")
        ids: object = values[0] if values else tuple(range(count))
        if len(values) > 1 or not isinstance(ids, tuple) or len(ids) != count:
            raise ValueError(f"a mesh of {count} devices can't be made of {values}")
        missing = [i for i in ids if i not in devices_by_id]
        if missing:
            raise ValueError(f"the mesh has devices that do not exist: {missing}; there are {len(devices_by_id)}")
        devices = np.empty(len(ids), object)
        devices[:] = [devices_by_id[i] for i in ids]
        return cls(devices.reshape(sizes), tuple(named))

    @override
    def __repr__(self) -> str:
        return f"Mesh({', '.join([f'{name}={size}' for name, size in self.shape.items()])})"


NO_MESH: Final = Mesh(np.empty(0, object), "nothing")
"""The value of `MESH` where no mesh is set."""
MESH: Final[Setting[Mesh]] = Setting("set_mesh", NO_MESH)


# ------------------------------------------------------------------ partition specs


@final
class Unconstrained(CustomText):
    """An entry of a `PartitionSpec` for an array axis whose sharding the compiler chooses."""

    text_name: ClassVar[str] = "UNCONSTRAINED"

    @override
    def text_args(self) -> TextArgs:
        return (), {}

    @classmethod
    @override
    def from_text_args(cls, values: tuple[object, ...], named: Mapping[str, object]) -> Unconstrained:
        if values or named:
            raise ValueError("UNCONSTRAINED takes nothing")
        return UNCONSTRAINED

    @override
    def __repr__(self) -> str:
        return "UNCONSTRAINED"


UNCONSTRAINED: Final = Unconstrained()
PartitionEntry: TypeAlias = str | tuple[str, ...] | Unconstrained | None
"""The mesh axes over which one array axis is sharded: none, one, or several (major to minor)."""


def _as_entry(entry: object) -> PartitionEntry:
    """Normalizes an entry of a partition spec; raises TypeError for an invalid one."""
    match entry:
        case None | str() | Unconstrained():
            return entry
        case tuple() | list() if all(isinstance(name, str) for name in entry):
            return None if not entry else entry[0] if len(entry) == 1 else tuple(entry)
        case _:
            raise TypeError(
                "PartitionSpec: for each axis of an array it takes None, the name of an axis of the mesh, or a tuple "
                f"of names, got {entry!r}"
            )


@final
@frozen(init=False, repr=False)
class PartitionSpec(CustomText):
    """The mesh axes over which each array axis is sharded: `P("data", None)` shards the rows of a matrix.

    Axes of the array beyond the entries are not sharded.

    Args:
        parts: For each array axis: `None`, a mesh axis, a tuple of mesh axes (major to minor), or `UNCONSTRAINED`.

    Raises:
        TypeError: If an entry is something else.
        ValueError: If a mesh axis occurs twice.

    >>> PartitionSpec("data", None, ("x", "y"))
    P('data', None, ('x', 'y'))
    """

    UNCONSTRAINED: ClassVar[Unconstrained] = UNCONSTRAINED
    text_name: ClassVar[str] = "P"
    arg_type: ClassVar[object] = PartitionEntry
    partitions: tuple[PartitionEntry, ...] = field()

    @api_boundary
    def __init__(self, *parts: object) -> None:
        entries = tuple(map(_as_entry, parts))
        axis_names = [name for part in entries for name in entry_axis_names(part)]
        if len(set(axis_names)) != len(axis_names):
            raise ValueError(f"PartitionSpec: an axis of the mesh can split one axis of an array only, got {parts!r}")
        object.__setattr__(self, "partitions", entries)

    def __iter__(self) -> Iterator[PartitionEntry]:
        return iter(self.partitions)

    def __len__(self) -> int:
        return len(self.partitions)

    @overload
    def __getitem__(self, i: int) -> PartitionEntry: ...
    @overload
    def __getitem__(self, i: slice) -> tuple[PartitionEntry, ...]: ...
    def __getitem__(self, i: int | slice) -> PartitionEntry | tuple[PartitionEntry, ...]:
        return self.partitions[i]

    def __add__(self, other: PartitionSpec | tuple[object, ...]) -> PartitionSpec:
        return PartitionSpec(*self, *other)

    def __radd__(self, other: tuple[object, ...]) -> PartitionSpec:
        return PartitionSpec(*other, *self)

    def index(self, entry: object) -> int:
        """Returns the first array axis that has an entry.

        Args:
            entry: The entry, as the specification contains it.

        Raises:
            ValueError: If no array axis has it.
        """
        return self.partitions.index(_as_entry(entry))

    def count(self, entry: object) -> int:
        """Returns the number of array axes that have an entry.

        Args:
            entry: The entry, as the specification contains it.
        """
        return self.partitions.count(_as_entry(entry))

    def update(self, *, partitions: Sequence[object]) -> PartitionSpec:
        """Returns a specification with other entries.

        Args:
            partitions: The entries.
        """
        return PartitionSpec(*partitions)

    @override
    def text_args(self) -> TextArgs:
        return self.partitions, {}

    @classmethod
    @override
    def from_text_args(cls, values: tuple[object, ...], named: Mapping[str, object]) -> PartitionSpec:
        if named:
            raise ValueError(f"P takes positional entries, not the keywords {list(named)}")
        return cls(*values)

    @property
    def jax_repr(self) -> str:
        """The `repr` of the equivalent JAX spec."""
        return f"P({', '.join(map(repr, self.partitions))}{',' if len(self.partitions) == 1 else ''})"

    @property
    def names(self) -> tuple[str, ...]:
        """The mesh axes that occur in the spec."""
        return tuple([name for part in self.partitions for name in entry_axis_names(part)])

    def of_rank(self, ndim: int) -> tuple[PartitionEntry, ...]:
        """Returns one entry per axis of an array.

        Args:
            ndim: The number of axes.

        Returns:
            The entries, padded with None.

        Raises:
            ValueError: If the specification has more than `ndim` entries.
        """
        if len(self.partitions) > ndim:
            raise ValueError(f"{self} has {len(self.partitions)} entries, but the array has {ndim} axes")
        return self.partitions + (None,) * (ndim - len(self.partitions))

    @override
    def __repr__(self) -> str:
        return f"P({', '.join(map(repr, self.partitions))})"


P = PartitionSpec


def entry_axis_names(part: PartitionEntry) -> tuple[str, ...]:
    """Returns the mesh axes of an entry."""
    if part is None or isinstance(part, Unconstrained):
        return ()
    return (part,) if isinstance(part, str) else part


@final
@frozen
class MeshEffect(Effect):
    """The program contains computations on the devices of a mesh."""

    observable = False
    mesh: Mesh

    @override
    def __str__(self) -> str:
        return f"over {self.mesh}"
