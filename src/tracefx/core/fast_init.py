"""Fast constructors for frozen classes with very many instances.

The constructor that `@frozen` generates sets fields by name through `object.__setattr__`; calling the descriptor of a
slot takes half the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def slot_setter(cls: type, name: str) -> Callable[[Any, Any], None]:
    """Returns a function that sets slot `name` of instances of `cls`, even frozen ones. Only for `__init__`."""
    set_slot: Callable[[Any, Any], None] = cls.__dict__[name].__set__
    return set_slot
