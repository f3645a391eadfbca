"""The primitives of tracefx by the names that jaxprs are printed with."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tracefx import control
from tracefx.core.primitive import Primitive
from tracefx.ops.collectives.pvary import PVary
from tracefx.ops.vocabulary import OPERATIONS, exported_primitives

_PRIMITIVES: Final[tuple[type[Primitive], ...]] = (*OPERATIONS, PVary, *exported_primitives(control))
VOCABULARY: Final[Mapping[str, type[Primitive]]] = MappingProxyType({prim.name: prim for prim in _PRIMITIVES})
"""The primitives of tracefx, by name."""


def vocabulary(more: tuple[type[Primitive], ...]) -> Mapping[str, type[Primitive]]:
    """Returns the primitives of tracefx and additional ones, by name; the additional ones take precedence.

    Raises:
        TypeError: If an additional one is not a primitive class.
    """
    given: tuple[object, ...] = more
    for prim in given:
        if not (isinstance(prim, type) and issubclass(prim, Primitive)):
            raise TypeError(f"custom primitives are given by their classes, such as MyPrimitive, got {prim!r}")
    return {**VOCABULARY, **{prim.name: prim for prim in more}} if more else VOCABULARY
