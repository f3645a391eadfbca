"""Types of the rules of primitives that tests define, and a base class of these primitives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from typing_extensions import override

from tracefx.core import ShapedArray, Value
from tracefx.core.primitive import Primitive, Tangent

Values: TypeAlias = Sequence[Value]
Tangents: TypeAlias = Sequence[Tangent]
BatchAxes: TypeAlias = Sequence[int | None]


class SameTypes(Primitive):
    """A primitive whose outputs have the types of its operands."""

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return avals
