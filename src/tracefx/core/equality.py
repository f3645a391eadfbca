"""Equality as programs need it: by type and value all the way down."""

from __future__ import annotations

import struct
from collections.abc import Hashable
from typing import Any

import attrs


class StrictlyEqual:
    """Marks a class whose own `==` is strict already, so that `strict` need not look inside."""

    __slots__ = ()


def strict_key(value: object) -> Hashable:
    """A stand-in for a parameter that equals another's only if type and content agree.

    Python holds `1 == 1.0 == True` and `0.0 == -0.0`, and a NaN unequal to itself; programs that differ in these are
    different programs, and a program that holds a NaN equals itself.

    >>> nan = float("nan")
    >>> strict_key((1,)) == strict_key((True,)), strict_key(0.0) == strict_key(-0.0), strict_key(nan) == strict_key(nan)
    (False, False, True)
    """
    kind = type(value)
    if kind is float:
        return (float, struct.pack("<d", value))
    if kind is complex:
        assert isinstance(value, complex)
        return (complex, struct.pack("<dd", value.real, value.imag))
    if isinstance(value, tuple):
        return (kind, *map(strict_key, value))
    if isinstance(value, frozenset):
        return (kind, frozenset(map(strict_key, value)))
    if isinstance(value, StrictlyEqual) or not attrs.has(kind):
        return (kind, value)
    return (kind, *[strict_key(_eq_value(value, f)) for f in attrs.fields(kind) if f.eq])


def _eq_value(value: object, field: attrs.Attribute[Any]) -> object:
    """What of a field is compared: what it is, or what its `eq` makes of it."""
    found = getattr(value, field.name)
    key = field.eq_key  # type: ignore[attr-defined]  # which the stubs of attrs leave out
    return found if key is None else key(found)
