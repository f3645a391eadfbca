"""Values that are written otherwise than as their fields: in the text of programs, and in their bytes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Self, TypeAlias

Parts: TypeAlias = tuple[tuple[object, ...], Mapping[str, object]]
"""What stands between the brackets: values by their place, and values by name."""


class Shown:
    """A capability: the value is written `name(values, name=value)`, from which it is made again."""

    __slots__ = ()
    shown_as: ClassVar[str]
    """The name."""
    part: ClassVar[object] = object
    """The annotation of the values between the brackets: the classes that they may be of."""

    @abstractmethod
    def shown_parts(self) -> Parts:
        raise NotImplementedError

    @classmethod
    @abstractmethod
    def of_parts(cls, values: tuple[object, ...], named: Mapping[str, object]) -> Self:
        """The value that is written so. `TypeError` or `ValueError` if there is none."""
        raise NotImplementedError


def written_name(kind: type) -> str:
    """What a class is called where its values are written."""
    return kind.shown_as if issubclass(kind, Shown) else kind.__name__
