"""`OPERATIONS`, the tuple of all first-order primitive classes: for the parser, the documentation and tests."""

from __future__ import annotations

from typing import Final

from tracefx import ops
from tracefx.core.primitive import Primitive
from tracefx.lazy_stubs import exports

OPERATIONS: Final[tuple[type[Primitive], ...]] = tuple(
    [
        member
        for member in [getattr(ops, name) for name in exports("tracefx.ops")]
        if isinstance(member, type) and issubclass(member, Primitive)
    ]
)
"""The primitives that `tracefx.ops` exports."""
