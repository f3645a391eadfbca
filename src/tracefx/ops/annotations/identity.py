"""`Identity`, the base of primitives that return their operands and only mark a position in a program."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from tracefx.core import NDArray, ShapedArray, Value
from tracefx.core.named_sharding import Spec
from tracefx.lowering import Builder, IrValue, Lowerable


class Identity(Lowerable):
    """Capability of primitives that return their operands: evaluation and lowering do nothing.

    List it before `Primitive` among the bases.
    """

    __slots__ = ()

    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return avals

    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        return [aval.spec for aval in avals]

    def impl(self, *args: NDArray) -> Sequence[NDArray]:
        return args

    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return args

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        return operands
