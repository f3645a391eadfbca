"""Strict equality of parameters: by type and value, recursively."""

from __future__ import annotations

import struct
from collections.abc import Hashable
from typing import Any, Final

import attrs

COMPARED_BY_VALUE: Final[frozenset[type]] = frozenset({int, bool, str, bytes, type(None)})
"""Types whose values `==` compares strictly, if both are of the same type."""


class StrictlyEqual:
    """Marks classes whose own `==` is already strict, so that `strict_key` compares them as they are."""

    __slots__ = ()


def strict_key(value: object) -> Hashable:
    """Returns a key for a parameter: two keys are equal if the types and the contents of the parameters agree.

    In Python `1 == 1.0 == True` and `0.0 == -0.0`, and a NaN differs from itself. Jaxprs that differ in such parameters
    are different programs, and a jaxpr that contains a NaN equals itself.

    >>> nan = float("nan")
    >>> strict_key((1,)) == strict_key((True,)), strict_key(0.0) == strict_key(-0.0), strict_key(nan) == strict_key(nan)
    (False, False, True)
    """
    kind = type(value)
    if kind in COMPARED_BY_VALUE:
        return (kind, value)
    if kind is float:
        return (float, struct.pack("<d", value))
    if type(value) is complex:
        return (complex, struct.pack("<dd", value.real, value.imag))
    if isinstance(value, tuple):
        return (kind, *map(strict_key, value))
    if isinstance(value, frozenset):
        return (kind, frozenset(map(strict_key, value)))
    fields = None if isinstance(value, StrictlyEqual) else getattr(kind, "__attrs_attrs__", None)
    if fields is None:
        return (kind, value)
    return (kind, *[strict_key(_eq_value(value, f)) for f in fields if f.eq])


def attrs_fields(kind: type) -> tuple[attrs.Attribute[object], ...]:
    """Returns the fields of an attrs class; raises TypeError for any other class."""
    if not attrs.has(kind):
        raise TypeError(f"{kind.__name__} is not an attrs class")
    fields: tuple[attrs.Attribute[object], ...] = attrs.fields(kind)
    return fields


def _eq_value(value: object, field: attrs.Attribute[Any]) -> object:
    """Returns what equality compares of a field: its value, or `eq(value)` if the field defines a key function."""
    content = getattr(value, field.name)
    key = field.eq_key  # type: ignore[attr-defined]  # missing in the stubs of attrs
    return content if key is None else key(content)
