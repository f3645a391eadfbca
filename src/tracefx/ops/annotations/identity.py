"""Operations that give their operands as they are, and stand in a program for those who look for them."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import NDArray
from tracefx.core.values import Value
from tracefx.lowering import Builder, IrValue, Lowerable


class Identity(Lowerable):
    """A capability, to stand before `Primitive` among the bases: evaluated and compiled, the operation is nothing."""

    __slots__ = ()

    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return avals

    def impl(self, *args: NDArray) -> Sequence[NDArray]:
        return args

    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return args

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        return operands
