"""A capability of parameter values with a custom representation in the text and in the serialization of jaxprs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Self, TypeAlias

TextArgs: TypeAlias = tuple[tuple[object, ...], Mapping[str, object]]
"""The arguments in the text form: positional values, and values by keyword."""


class CustomText:
    """A capability: the value is written as `name(*values, name=value)` instead of by its fields, and so read back."""

    __slots__ = ()
    text_name: ClassVar[str]
    """The name before the parentheses."""
    arg_type: ClassVar[object] = object
    """The annotation of the arguments, which names the classes that they may have."""

    @abstractmethod
    def text_args(self) -> TextArgs:
        """Returns the arguments in the text form."""
        raise NotImplementedError

    @classmethod
    @abstractmethod
    def from_text_args(cls, values: tuple[object, ...], named: Mapping[str, object]) -> Self:
        """Returns the value with these arguments. Raises TypeError or ValueError for invalid ones."""
        raise NotImplementedError


def class_text_name(kind: type) -> str:
    """Returns the name by which values of a class are written."""
    return kind.text_name if issubclass(kind, CustomText) else kind.__name__
