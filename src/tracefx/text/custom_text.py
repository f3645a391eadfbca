"""Values that are written otherwise than as their fields: in the text of programs, and in their bytes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Self, TypeAlias

TextArgs: TypeAlias = tuple[tuple[object, ...], Mapping[str, object]]
"""What stands between the brackets: values by their place, and values by name."""


class CustomText:
    """A capability: the value is written `name(values, name=value)`, from which it is made again."""

    __slots__ = ()
    text_name: ClassVar[str]
    """The name."""
    arg_type: ClassVar[object] = object
    """The annotation of the values between the brackets: the classes that they may be of."""

    @abstractmethod
    def text_args(self) -> TextArgs:
        raise NotImplementedError

    @classmethod
    @abstractmethod
    def from_text_args(cls, values: tuple[object, ...], named: Mapping[str, object]) -> Self:
        """The value that is written so. `TypeError` or `ValueError` if there is none."""
        raise NotImplementedError


def class_text_name(kind: type) -> str:
    """What a class is called where its values are written."""
    return kind.text_name if issubclass(kind, CustomText) else kind.__name__
