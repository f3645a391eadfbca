"""Partition specs, which map the axes of an array to mesh axes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import ClassVar, Final, TypeAlias, final, overload

from attrs import field, frozen
from typing_extensions import override

from tracefx.core.custom_text import CustomText, TextArgs
from tracefx.filtered_tracebacks import api_boundary


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
        unreduced: Must be empty, the default: arrays whose sum over mesh axes is pending are not supported.
        reduced: Must be empty, the default, likewise.

    Raises:
        TypeError: If an entry is something else.
        ValueError: If a mesh axis occurs twice.
        NotImplementedError: If `unreduced` or `reduced` contains a mesh axis.

    >>> PartitionSpec("data", None, ("x", "y"))
    P('data', None, ('x', 'y'))
    """

    UNCONSTRAINED: ClassVar[Unconstrained] = UNCONSTRAINED
    text_name: ClassVar[str] = "P"
    arg_type: ClassVar[object] = PartitionEntry
    partitions: tuple[PartitionEntry, ...] = field()

    @api_boundary
    def __init__(
        self, *parts: object, unreduced: Collection[str] = frozenset(), reduced: Collection[str] = frozenset()
    ) -> None:
        for name, axes in (("unreduced", unreduced), ("reduced", reduced)):
            if axes:
                raise NotImplementedError(
                    f"PartitionSpec: {name}={axes!r}: tracefx has no arrays whose sum over mesh axes is pending; leave "
                    f"{name} out, and the sum is computed at once"
                )
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
    def unreduced(self) -> frozenset[str]:
        """The mesh axes over which a sum is pending: always none."""
        return frozenset()

    @property
    def reduced(self) -> frozenset[str]:
        """The mesh axes over which the sum of the cotangent is pending: always none."""
        return frozenset()

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
