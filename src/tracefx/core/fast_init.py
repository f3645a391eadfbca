"""Constructors of frozen classes of which a program has very many.

The constructor that `@frozen` makes sets fields by name, past the class's own `__setattr__`. A slot's setter does the
same in half the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def slot_setter(cls: type, name: str) -> Callable[[Any, Any], None]:
    """What sets the slot `name` of an instance of `cls`, even of a frozen one: for its `__init__` alone."""
    set_slot: Callable[[Any, Any], None] = cls.__dict__[name].__set__
    return set_slot
