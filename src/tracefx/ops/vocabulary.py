"""`OPERATIONS`, the tuple of all first-order primitive classes: for the parser, the documentation and tests."""

from __future__ import annotations

from types import ModuleType
from typing import Final

from tracefx import ops
from tracefx.core.primitive import Primitive
from tracefx.lazy_stubs import exports


def exported_primitives(package: ModuleType) -> tuple[type[Primitive], ...]:
    """Returns the primitive classes that a package with a stub exports, in the order of the stub."""
    members: list[object] = [getattr(package, name) for name in exports(package.__name__)]
    return tuple([member for member in members if isinstance(member, type) and issubclass(member, Primitive)])


OPERATIONS: Final[tuple[type[Primitive], ...]] = exported_primitives(ops)
"""The primitives that `tracefx.ops` exports."""
