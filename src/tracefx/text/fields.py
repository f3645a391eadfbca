"""The fields of primitives and records, and the visitor of their values.

The printer, the encoder and the executable key traverse the parameters of a primitive by one dispatch, `FieldVisitor`.
They differ in the fields that matter to each: `text_fields`, `constructor_fields` and `compared_fields`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Generic, NamedTuple, TypeAlias, TypeVar, cast

import attrs
import numpy as np

from tracefx.bounded_cache import memoize
from tracefx.core import DType, Literal, ShapedArray
from tracefx.core.custom_text import CustomText
from tracefx.core.equality import attrs_fields, strict_key
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.primitive import Primitive
from tracefx.dimensions.symbolic_dimensions import SymbolicDimension
from tracefx.pytrees.registry import NODE_REGISTRY, TreeDef

R = TypeVar("R")

PlainValue: TypeAlias = bool | int | float | complex | str | bytes | None
_PLAIN_TYPES = (bool, int, float, complex, str, bytes, type(None))


class FieldVisitor(Generic[R]):
    """Dispatches on the kind of a parameter value. Subclasses define a method for each kind that they support."""

    def value(self, value: object) -> R:
        """Visits a value by the method of its kind."""
        kind = type(value)
        if kind in _PLAIN_TYPES:
            return self.plain(cast(PlainValue, value))
        if kind is SymbolicDimension:
            return self.dimension(cast(SymbolicDimension, value))
        if isinstance(value, np.dtype):
            return self.dtype(value)
        if isinstance(value, Enum):
            return self.member(value)
        if isinstance(value, Jaxpr):
            return self.jaxpr(value)
        if isinstance(value, ShapedArray):
            return self.aval(value)
        if isinstance(value, Literal):
            return self.literal(value)
        if isinstance(value, Primitive):
            return self.primitive(value)
        if isinstance(value, CustomText):
            return self.custom(value)
        if isinstance(value, tuple):
            return self.record(value) if is_named_tuple(kind) else self.elements(value)
        if isinstance(value, frozenset) and kind is frozenset:
            return self.set_elements(value)
        if callable(value):
            return self.function(value)
        if attrs.has(kind):
            return self.record(value)
        if NODE_REGISTRY.native is not None and NODE_REGISTRY.native.is_treedef(value):
            return self.tree(value)
        return self.other(value)

    def plain(self, value: PlainValue) -> R:
        """Visits None, a number, a string or bytes, exactly of these types."""
        return self.other(value)

    def dimension(self, value: SymbolicDimension) -> R:
        """Visits a symbolic dimension."""
        return self.other(value)

    def dtype(self, value: DType) -> R:
        """Visits a dtype."""
        return self.other(value)

    def member(self, value: Enum) -> R:
        """Visits a member of an enum, or a combination of flags."""
        return self.other(value)

    def jaxpr(self, value: Jaxpr) -> R:
        """Visits a sub-jaxpr."""
        return self.other(value)

    def aval(self, value: ShapedArray) -> R:
        """Visits an aval."""
        return self.other(value)

    def literal(self, value: Literal) -> R:
        """Visits a literal."""
        return self.other(value)

    def primitive(self, value: Primitive) -> R:
        """Visits a primitive that is a parameter of another one."""
        return self.other(value)

    def elements(self, value: tuple[object, ...]) -> R:
        """Visits a tuple that is not a named tuple."""
        return self.other(value)

    def set_elements(self, value: frozenset[object]) -> R:
        """Visits a frozenset."""
        return self.other(value)

    def custom(self, value: CustomText) -> R:
        """Visits a value with a custom text form."""
        return self.other(value)

    def record(self, value: object) -> R:
        """Visits an instance of an attrs class, or a named tuple."""
        return self.other(value)

    def function(self, value: object) -> R:
        """Visits a callable, which may be an instance of an attrs class."""
        return self.other(value)

    def tree(self, value: TreeDef) -> R:
        """Visits a pytree structure."""
        return self.other(value)

    def other(self, value: object) -> R:
        """Visits a value of a kind that has no method."""
        raise NotImplementedError


# ------------------------------------------------------------------ fields


class FieldInfo(NamedTuple):
    """A field of an attrs class or named tuple: its attribute, its constructor argument, and its default."""

    attribute: str
    argument: str
    default: object = attrs.NOTHING

    @property
    def required(self) -> bool:
        """Whether the field has no default."""
        return self.default is attrs.NOTHING


def is_named_tuple(kind: type) -> bool:
    """Whether a class is a named tuple."""
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def compared_fields(kind: type) -> list[str]:
    """Returns the attributes of an attrs class that determine what a program computes."""
    return [f.name for f in attrs_fields(kind) if f.eq and not f.metadata.get("erased")]


def constructor_fields(kind: type) -> dict[str, FieldInfo]:
    """Returns the fields of an attrs class or named tuple that its constructor takes, by their names in the text."""
    if attrs.has(kind):
        return {
            field_text_name(f): FieldInfo(f.name, f.alias or f.name, f.default) for f in attrs_fields(kind) if f.init
        }
    defaults = getattr(kind, "_field_defaults", {})
    return {name: FieldInfo(name, name, defaults.get(name, attrs.NOTHING)) for name in getattr(kind, "_fields", ())}


@memoize(4096)
def text_fields(kind: type) -> Sequence[attrs.Attribute[object]]:
    """Returns the fields of an attrs class that appear in its text."""
    return [f for f in attrs_fields(kind) if f.init and (f.eq or f.repr)]


def text_values(value: object) -> list[tuple[str, object]]:
    """Returns the values of an attrs class or named tuple that appear in its text, by name."""
    if isinstance(value, tuple):
        return [(name, getattr(value, name)) for name in getattr(value, "_fields", ())]
    return [(field_text_name(f), getattr(value, f.name)) for f in text_fields(type(value))]


def field_text_name(field: attrs.Attribute[object]) -> str:
    """Returns the name of a field in the text."""
    name = field.metadata.get("print", field.alias)
    assert isinstance(name, str)
    return name


def is_default(value: object, default: object) -> bool:
    """Whether a value is a field's default, compared strictly. `attrs.NOTHING` stands for a field without default."""
    return default is not attrs.NOTHING and strict_key(value) == strict_key(default)


def subjaxprs_in(value: object, hidden: bool = False) -> Iterator[Jaxpr]:
    """Iterates over the direct sub-jaxprs in a parameter value, or in a primitive's fields.

    Args:
        value: The value.
        hidden: Whether to include fields that do not appear in the text.
    """
    if type(value) in _PLAIN_TYPES:
        return
    if isinstance(value, Jaxpr):
        yield value
    elif isinstance(value, (tuple, frozenset)):
        for v in value:
            yield from subjaxprs_in(v, hidden)
    elif attrs.has(kind := type(value)):
        for f in [f for f in attrs_fields(kind) if f.init] if hidden else text_fields(kind):
            yield from subjaxprs_in(getattr(value, f.name), hidden)
