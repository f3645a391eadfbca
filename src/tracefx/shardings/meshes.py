"""Meshes: devices in rows and columns whose axes have names; and which axes of an array lie along which of a mesh."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from types import MappingProxyType, TracebackType
from typing import Any, ClassVar, Final, Self, TypeAlias, final

import numpy as np
from attrs import field, frozen
from typing_extensions import override

from tracefx.core.device import MEMORY, Device
from tracefx.core.dtypes import NDArray
from tracefx.core.effects import Effect
from tracefx.core.settings import Setting
from tracefx.text.custom_text import CustomText, TextArgs


@final
@frozen(init=False, repr=False)
class Mesh(CustomText):
    """Devices as an array with named axes, such as 4 x 2 along "data" and "model".

    `devices` is an array of devices, or nested sequences of them; `axis_names` has a string for each of its axes.

    Raises TypeError for names that are no strings, ValueError if there are too many or too few, or one is there twice,
    or a device is.

    As a context manager it is the current mesh, as inside of `set_mesh`.

    >>> from tracefx import devices
    >>> Mesh(devices()[:1], "data")
    Mesh(data=1)
    """

    text_name: ClassVar[str] = "Mesh"
    flat: tuple[Device, ...]
    """All devices, the last axis running fastest: what a program over them calls partition 0, 1, ..."""
    axis_sizes: tuple[int, ...]
    axis_names: tuple[str, ...]

    def __init__(self, devices: NDArray | Sequence[Any], axis_names: str | Sequence[str]) -> None:
        array = np.asarray(devices, dtype=object)
        names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        for name in names:
            if not isinstance(name, str):
                raise TypeError(f"Mesh: names of axes are strings, got {name!r} in {names!r}")
        if len(names) != array.ndim:
            raise ValueError(f"Mesh: {len(names)} names {names!r} were given for devices of shape {array.shape}")
        if len(set(names)) != len(names):
            raise ValueError(f"Mesh: the names of the axes must be different, got {names!r}")
        flat = tuple(array.flat)
        if len(set(flat)) != len(flat):
            raise ValueError("Mesh: a device is there twice")
        object.__setattr__(self, "flat", flat)
        object.__setattr__(self, "axis_sizes", array.shape)
        object.__setattr__(self, "axis_names", names)

    @property
    def devices(self) -> NDArray:
        """The devices in their shape."""
        array = np.empty(len(self.flat), object)
        array[:] = self.flat
        array = array.reshape(self.axis_sizes)
        array.flags.writeable = False
        return array

    @property
    def shape(self) -> Mapping[str, int]:
        """The size of each axis by its name."""
        return MappingProxyType(dict(zip(self.axis_names, self.axis_sizes, strict=True)))

    @property
    def shape_tuple(self) -> tuple[tuple[str, int], ...]:
        """The names of the axes with their sizes."""
        return tuple(zip(self.axis_names, self.axis_sizes, strict=True))

    @property
    def size(self) -> int:
        """How many devices there are."""
        return len(self.flat)

    @property
    def jax_repr(self) -> str:
        """What JAX shows."""
        axes = ", ".join([f"{name!r}: {size}" for name, size in self.shape.items()])
        kinds = ", ".join(["Auto"] * len(self.axis_names))
        return f"Mesh({axes}, axis_types=({kinds}{',' if len(self.axis_names) == 1 else ''}))"

    @property
    def empty(self) -> bool:
        """Whether there is none."""
        return not self.flat

    @property
    def device_ids(self) -> NDArray:
        """The devices' numbers, in their shape."""
        return np.array([d.id for d in self.flat], np.int64).reshape(self.axis_sizes)

    def size_of(self, names: Sequence[str]) -> int:
        """The product of the sizes of some axes."""
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
            raise RuntimeError(f"{self} is not in force in this context")
        override.__exit__(kind, error, traceback)

    @override
    def text_args(self) -> TextArgs:
        """The sizes by name; the devices' numbers first, unless these are the first that there are."""
        ids = tuple([device.id for device in self.flat])
        return ((ids,) if ids != tuple(range(len(ids))) else ()), self.shape

    @classmethod
    @override
    def from_text_args(cls, values: tuple[object, ...], named: Mapping[str, object]) -> Mesh:
        sizes = [size for size in named.values() if type(size) is int and size >= 0]
        if len(sizes) != len(named):
            raise ValueError(f"the axes of a mesh have sizes, not {dict(named)}")
        there = {device.id: device for device in MEMORY.value.devices(MEMORY.value.platform)}
        count = prod(sizes)
        if count > len(there):
            raise ValueError(f"the mesh is of {count} devices, but there are {len(there)}")
        ids: object = values[0] if values else tuple(range(count))
        if len(values) > 1 or not isinstance(ids, tuple) or len(ids) != count:
            raise ValueError(f"a mesh of {count} devices can't be made of {values}")
        missing = [i for i in ids if i not in there]
        if missing:
            raise ValueError(f"the mesh is of devices that aren't here: {missing}; here are {len(there)}")
        found = np.empty(len(ids), object)
        found[:] = [there[i] for i in ids]
        return cls(found.reshape(sizes), tuple(named))

    @override
    def __repr__(self) -> str:
        return f"Mesh({', '.join([f'{name}={size}' for name, size in self.shape.items()])})"


NO_MESH: Final = Mesh(np.empty(0, object), "nothing")
"""What is in use where none is."""
MESH: Final[Setting[Mesh]] = Setting("mesh", NO_MESH)


# ------------------------------------------------------------------ specifications


@final
class Unconstrained(CustomText):
    """Stands in a `PartitionSpec` for an axis of an array that may lie as the compiler likes."""

    __slots__ = ()
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
"""Along what one axis of an array lies: nothing, an axis of the mesh, several of them, the first running slowest."""


def _as_entry(given: object) -> PartitionEntry:
    match given:
        case None | str() | Unconstrained():
            return given
        case tuple() | list() if all(isinstance(name, str) for name in given):
            return None if not given else given[0] if len(given) == 1 else tuple(given)
        case _:
            raise TypeError(
                "PartitionSpec: for each axis of an array it takes None, the name of an axis of the mesh, or a tuple "
                f"of names, got {given!r}"
            )


@final
@frozen(init=False, repr=False)
class PartitionSpec(CustomText):
    """Which axes of an array lie along which axes of a mesh: `P("data", None)` splits the rows of a matrix.

    Axes of the array beyond those that are named are not split. A tuple of names splits one axis along several.

    >>> PartitionSpec("data", None, ("x", "y"))
    P('data', None, ('x', 'y'))
    """

    UNCONSTRAINED: ClassVar[Unconstrained] = UNCONSTRAINED
    text_name: ClassVar[str] = "P"
    arg_type: ClassVar[object] = PartitionEntry
    entries: tuple[PartitionEntry, ...] = field()

    def __init__(self, *parts: object) -> None:
        found = tuple(map(_as_entry, parts))
        named = [name for part in found for name in entry_axis_names(part)]
        if len(set(named)) != len(named):
            raise ValueError(f"PartitionSpec: an axis of the mesh can split one axis of an array only, got {parts!r}")
        object.__setattr__(self, "entries", found)

    def __iter__(self) -> Iterator[PartitionEntry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, i: int) -> PartitionEntry:
        return self.entries[i]

    def __add__(self, other: PartitionSpec) -> PartitionSpec:
        return PartitionSpec(*self.entries, *other.entries)

    @override
    def text_args(self) -> TextArgs:
        return self.entries, {}

    @classmethod
    @override
    def from_text_args(cls, values: tuple[object, ...], named: Mapping[str, object]) -> PartitionSpec:
        if named:
            raise ValueError(f"P takes parts by their place, not {list(named)}")
        return cls(*values)

    @property
    def jax_repr(self) -> str:
        """What JAX shows: as a tuple would be."""
        return f"P({', '.join(map(repr, self.entries))}{',' if len(self.entries) == 1 else ''})"

    @property
    def names(self) -> tuple[str, ...]:
        """The axes of the mesh that occur."""
        return tuple([name for part in self.entries for name in entry_axis_names(part)])

    def of_rank(self, ndim: int) -> tuple[PartitionEntry, ...]:
        """A part for each axis of an array. ValueError if the array has fewer axes than there are parts."""
        if len(self.entries) > ndim:
            raise ValueError(f"{self} has {len(self.entries)} entries, but the array has {ndim} axes")
        return self.entries + (None,) * (ndim - len(self.entries))

    @override
    def __repr__(self) -> str:
        return f"P({', '.join(map(repr, self.entries))})"


def entry_axis_names(part: PartitionEntry) -> tuple[str, ...]:
    """The axes of the mesh that one axis of an array lies along."""
    if part is None or isinstance(part, Unconstrained):
        return ()
    return (part,) if isinstance(part, str) else part


@final
@frozen
class MeshEffect(Effect):
    """The program runs on the devices of a mesh."""

    observable = False
    mesh: Mesh

    @override
    def __str__(self) -> str:
        return f"over {self.mesh}"
