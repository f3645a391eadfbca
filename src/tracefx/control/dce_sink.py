"""`dce_sink`: marks a value as used, so that dead-code elimination keeps its computation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from attrs import frozen
from typing_extensions import override

from tracefx.core import ShapedArray, Value, as_value
from tracefx.core.effects import DebugEffect, Effects
from tracefx.core.handler import bind
from tracefx.core.primitive import Batchable, BatchDims, Differentiable, MappedAxis, Primitive, Tangent
from tracefx.lowering import Builder, IrValue, Lowerable
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree

_USED: Final[Effects] = frozenset({DebugEffect()})


@final
@frozen(eq=False)
class DceSink(Primitive, Differentiable, Batchable, Lowerable):
    """Takes one operand and has no outputs, so that no pass over jaxprs removes the computation of the operand.

    Args:
        prevent_mlir_dce: Whether XLA keeps the operand, too.
    """

    name = "dce_sink"
    prevent_mlir_dce: bool

    effects = _USED

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return ()

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return ()

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        return bind(self, *primals), ()

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        return bind(self, *args), ()

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        if self.prevent_mlir_dce:
            builder.custom_call("dce_sink", operands, (), {}, True)
        return ()


def dce_sink(val: PyTree, *, prevent_mlir_dce: bool = False) -> None:
    """Marks the arrays of a pytree as used, so that no pass removes their computation.

    Args:
        val: a pytree of arrays.
        prevent_mlir_dce: whether the compiled program must compute them too; false by default.

    >>> dce_sink((1.0, 2.0))
    """
    leaves, _ = trees.flatten(val)
    for leaf in leaves:
        bind(DceSink(bool(prevent_mlir_dce)), as_value(leaf, "dce_sink: val"))
