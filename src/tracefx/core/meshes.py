"""Meshes without devices: the names, sizes and types of the axes, of which the types of values know."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum
from math import prod
from types import MappingProxyType
from typing import ClassVar, Final, Self, final

from attrs import field, frozen
from typing_extensions import override

from tracefx.core.custom_text import CustomText, TextArgs
from tracefx.core.device import Device
from tracefx.filtered_tracebacks import api_boundary
from tracefx.settings import Setting


class AxisType(Enum):
    """The type of a mesh axis: who decides about the sharding of values along it.

    Along axes of the type `Auto` the compiler decides, within the constraints of `with_sharding_constraint`,
    `out_sharding` and so on. Along `Explicit` axes the types of values have shardings, which each operation determines
    from those of its operands. Inside a `shard_map` its axes are `Manual`: the program decides.
    """

    Auto = 1
    Explicit = 2
    Manual = 3


@frozen(init=False, repr=False)
class BaseMesh(CustomText):
    """Named axes with sizes and types; base class of `Mesh` and `AbstractMesh`."""

    axis_sizes: tuple[int, ...]
    axis_names: tuple[str, ...]
    axis_types: tuple[AxisType, ...]
    explicit_axes: tuple[str, ...] = field(eq=False)
    """The names of the axes of the type `Explicit`."""
    flat: tuple[Device, ...]
    """All devices in row-major order: the device assignment of SPMD programs on the mesh. An abstract mesh has none."""

    def _set_axes(
        self,
        sizes: tuple[int, ...],
        axis_names: str | Sequence[str],
        axis_types: AxisType | Sequence[AxisType] | None,
        flat: tuple[Device, ...] = (),
    ) -> None:
        """Sets the fields. Raises TypeError or ValueError for names and types that do not fit the sizes."""
        what = type(self).__name__
        names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        for name in names:
            if not isinstance(name, str):
                raise TypeError(f"{what}: axis names must be strings, got {name!r} in {names!r}")
        if len(names) != len(sizes):
            raise ValueError(f"{what}: {len(names)} names {names!r} were given for devices of shape {sizes}")
        if len(set(names)) != len(names):
            raise ValueError(f"{what}: the names of the axes must be different, got {names!r}")
        given = AxisType.Auto if axis_types is None else axis_types
        types = (given,) * len(sizes) if isinstance(given, AxisType) else tuple(given)
        if len(types) != len(sizes):
            raise ValueError(f"{what}: {len(types)} axis_types {types!r} were given for devices of shape {sizes}")
        for axis_type in types:
            if not isinstance(axis_type, AxisType):
                raise TypeError(f"{what}: axis_types must be of type AxisType, got {axis_type!r}")
        object.__setattr__(self, "axis_sizes", sizes)
        object.__setattr__(self, "axis_names", names)
        object.__setattr__(self, "axis_types", types)
        object.__setattr__(self, "explicit_axes", self.axes_of_type(AxisType.Explicit))
        object.__setattr__(self, "flat", flat)

    @property
    def shape(self) -> Mapping[str, int]:
        """The axis sizes by name."""
        return MappingProxyType(dict(self.shape_tuple))

    @property
    def shape_tuple(self) -> tuple[tuple[str, int], ...]:
        """The pairs of axis name and axis size."""
        return tuple(zip(self.axis_names, self.axis_sizes, strict=True))

    def axes_of_type(self, *types: AxisType) -> tuple[str, ...]:
        """Returns the names of the axes of some types.

        Args:
            types: The types.
        """
        return tuple([name for name, each in zip(self.axis_names, self.axis_types, strict=True) if each in types])

    @property
    def auto_axes(self) -> tuple[str, ...]:
        """The names of the axes of the type `Auto`."""
        return self.axes_of_type(AxisType.Auto)

    @property
    def manual_axes(self) -> tuple[str, ...]:
        """The names of the axes of the type `Manual`."""
        return self.axes_of_type(AxisType.Manual)

    def _are_all(self, *types: AxisType) -> bool:
        return bool(self.axis_names) and all(each in types for each in self.axis_types)

    @property
    def are_all_axes_auto(self) -> bool:
        """Whether the mesh has axes, all of the type `Auto`."""
        return self._are_all(AxisType.Auto)

    @property
    def are_all_axes_explicit(self) -> bool:
        """Whether the mesh has axes, all of the type `Explicit`."""
        return self._are_all(AxisType.Explicit)

    @property
    def are_all_axes_manual(self) -> bool:
        """Whether the mesh has axes, all of the type `Manual`."""
        return self._are_all(AxisType.Manual)

    @property
    def are_all_axes_explicit_or_manual(self) -> bool:
        """Whether the mesh has axes, none of the type `Auto`."""
        return self._are_all(AxisType.Explicit, AxisType.Manual)

    @property
    def size(self) -> int:
        """The number of devices."""
        return prod(self.axis_sizes)

    @property
    def empty(self) -> bool:
        """Whether the mesh has no devices."""
        return 0 in self.axis_sizes or not self.axis_names

    def size_of(self, names: Sequence[str]) -> int:
        """Returns the product of the sizes of some axes.

        Args:
            names: Names of axes of the mesh.

        Returns:
            The number of devices along these axes together; 1 for no axes.
        """
        sizes = self.shape
        return prod([sizes[name] for name in names])

    def update_axis_types(self, types: Mapping[str, AxisType]) -> Self:
        """Returns the mesh with other types of some axes.

        Args:
            types: The new types by name; the other axes keep theirs.
        """
        pairs = zip(self.axis_names, self.axis_types, strict=True)
        new = tuple([types.get(name, old) for name, old in pairs])
        return self if new == self.axis_types else self._with_axis_types(new)

    @abstractmethod
    def _with_axis_types(self, types: tuple[AxisType, ...]) -> Self:
        raise NotImplementedError

    @property
    @abstractmethod
    def abstract_mesh(self) -> AbstractMesh:
        """The mesh without its devices."""
        raise NotImplementedError

    @property
    def jax_repr(self) -> str:
        """The `repr` of the equivalent JAX mesh."""
        axes = ", ".join([f"{name!r}: {size}" for name, size in self.shape_tuple])
        types = ", ".join([each.name for each in self.axis_types])
        return f"{type(self).__name__}({axes}, axis_types=({types}{',' if len(self.axis_types) == 1 else ''}))"

    def _text_types(self) -> tuple[object, ...]:
        """Returns the names of the axis types as an argument in the text form; none if all are `Auto`."""
        is_plain = all(each is AxisType.Auto for each in self.axis_types)
        return () if is_plain else (tuple([each.name for each in self.axis_types]),)

    @override
    def __repr__(self) -> str:
        types = [f"axis_types={each!r}" for each in self._text_types()]
        return f"{type(self).__name__}({', '.join([*[f'{n}={size}' for n, size in self.shape_tuple], *types])})"


def named_sizes(named: Mapping[str, object]) -> tuple[int, ...]:
    """Returns the axis sizes of a mesh in the text form. Raises ValueError for invalid ones."""
    sizes = [size for size in named.values() if type(size) is int and size >= 0]
    if len(sizes) != len(named):
        raise ValueError(f"the axes of a mesh have sizes, not {dict(named)}")
    return tuple(sizes)


def named_types(names: object) -> list[AxisType]:
    """Returns the axis types with the given names. Raises ValueError for other names."""
    known = AxisType.__members__
    if not isinstance(names, tuple) or any(name not in known for name in names):
        raise ValueError(f"the types of mesh axes are {list(known)}, not {names}")
    return [known[name] for name in names]


@final
@frozen(init=False, repr=False)
class AbstractMesh(BaseMesh):
    """A mesh without devices: it describes shardings of types and of programs that are not run yet.

    Args:
        axis_sizes: The size of each axis.
        axis_names: The name of each axis; a string for a single axis.
        axis_types: The type of each axis, or one for all. None, the default, means `AxisType.Auto`.

    Raises:
        TypeError: If a name is not a string or a type not an `AxisType`.
        ValueError: If the numbers of sizes, names and types differ, or a name occurs twice.

    >>> AbstractMesh((4, 2), ("data", "model"))
    AbstractMesh(data=4, model=2)
    """

    text_name: ClassVar[str] = "AbstractMesh"

    @api_boundary
    def __init__(
        self,
        axis_sizes: Sequence[int],
        axis_names: str | Sequence[str],
        axis_types: AxisType | Sequence[AxisType] | None = None,
    ) -> None:
        self._set_axes(tuple(axis_sizes), axis_names, axis_types)

    @property
    @override
    def abstract_mesh(self) -> AbstractMesh:
        """The mesh itself."""
        return self

    @override
    def _with_axis_types(self, types: tuple[AxisType, ...]) -> AbstractMesh:
        return AbstractMesh(self.axis_sizes, self.axis_names, types)

    @override
    def text_args(self) -> TextArgs:
        return self._text_types(), self.shape

    @classmethod
    @override
    def from_text_args(cls, values: tuple[object, ...], named: Mapping[str, object]) -> AbstractMesh:
        if len(values) > 1:
            raise ValueError(f"an AbstractMesh can't be made of {values}")
        return cls(named_sizes(named), tuple(named), named_types(values[0]) if values else None)


EMPTY_MESH: Final = AbstractMesh((), ())
"""The mesh without axes, which is in use where no mesh is set."""
MESH: Final[Setting[BaseMesh]] = Setting("set_mesh", EMPTY_MESH)
"""The mesh in use: a `Mesh`, or an `AbstractMesh` without devices."""
