"""A barrier for the compiler: what stands before it is computed before it, and not merged with what stands behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

from typing_extensions import override

from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import NDArray
from tracefx.core.handler import as_array, bind
from tracefx.core.primitive import (
    Batchable,
    Differentiable,
    MappedAxis,
    Primitive,
    Tangent,
    Transposable,
    UndefinedPrimal,
    Zero,
)
from tracefx.core.values import Value
from tracefx.lowering import Builder, IrValue, Lowerable
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree


@final
class OptimizationBarrier(Primitive, Differentiable, Transposable, Batchable, Lowerable):
    """Any number of operands, each of them an output."""

    __slots__ = ()
    name = "optimization_barrier"

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return avals

    @override
    def impl(self, *args: NDArray) -> Sequence[NDArray]:
        return args

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return args

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        return bind(self, *primals), self.bind_nonzero(tangents)

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        wanted = [ct if isinstance(x, UndefinedPrimal) else Zero(x.aval) for ct, x in zip(cts, args, strict=True)]
        passed = self.bind_nonzero(wanted)
        return [ct if isinstance(x, UndefinedPrimal) else None for ct, x in zip(passed, args, strict=True)]

    def bind_nonzero(self, tangents: Sequence[Tangent]) -> list[Tangent]:
        """A barrier for those that are no `Zero`."""
        given = [t for t in tangents if not isinstance(t, Zero)]
        passed = iter(bind(self, *given) if given else ())
        return [t if isinstance(t, Zero) else next(passed) for t in tangents]

    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        return bind(self, *args), dims

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        return builder.emit("stablehlo.optimization_barrier", operands, [x.aval for x in operands])


OPTIMIZATION_BARRIER: Final = OptimizationBarrier()


def optimization_barrier(operand: PyTree, /) -> Any:
    """The arrays of a tree, none of which is used before all are computed, nor computed in another way for its use.

    >>> optimization_barrier((1.0, 2))
    (Array(1., dtype=float32, weak_type=True), Array(2, dtype=int32, weak_type=True))
    """
    leaves, structure = trees.flatten(operand)
    outs = bind(OPTIMIZATION_BARRIER, *leaves) if leaves else []
    return trees.unflatten(structure, [as_array(x) for x in outs])
