"""The platform that a program runs on as a primitive: its value is known when the program is compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.control.cond import INDEX_AVAL
from tracefx.core import ConcreteArray, ShapedArray, Value
from tracefx.core.backend import BACKEND
from tracefx.core.primitive import Primitive
from tracefx.lowering import Builder, IrValue, Lowerable


@final
@frozen(eq=False)
class PlatformIndex(Primitive, Lowerable):
    """Returns the index of the platform in `platforms`, or `len(platforms)` for others if there is a default.

    Args:
        platforms: The names of platforms.
        has_default: Whether other platforms have an index.
    """

    name = "platform_index"
    platforms: tuple[str, ...]
    has_default: bool

    def platform_index(self, platform: str) -> int:
        """Returns the index for a platform; raises `NotImplementedError` if it has none and there is no default."""
        if platform in self.platforms:
            return self.platforms.index(platform)
        if self.has_default:
            return len(self.platforms)
        raise NotImplementedError(
            f"platform_dependent: the program runs on {platform}, but there are functions for "
            f"{', '.join(self.platforms)} only; give one for {platform}, or a default"
        )

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return [INDEX_AVAL]

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return [ConcreteArray(INDEX_AVAL, np.asarray(self.platform_index(BACKEND.value.platform), INDEX_AVAL.dtype))]

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        return [builder.platform_index(self.platform_index)]
