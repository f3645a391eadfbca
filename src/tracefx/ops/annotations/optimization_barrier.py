"""`optimization_barrier`: keeps the compiler from moving or merging computations across a point of the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

from typing_extensions import override

from tracefx.core import Value
from tracefx.core.handler import as_array, bind
from tracefx.core.primitive import (
    Batchable,
    BatchDims,
    Differentiable,
    MappedAxis,
    Primitive,
    Tangent,
    Transposable,
    UndefinedPrimal,
    Zero,
)
from tracefx.lowering import Builder, IrValue
from tracefx.ops.annotations.identity import Identity
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree


@final
class OptimizationBarrier(Identity, Primitive, Differentiable, Transposable, Batchable):
    """Returns its operands, any number of them, all of which are computed before any of them is used.

    `x: f32[n, m], y: i32[k], ... -> f32[n, m], i32[k], ...`, of any types. Bound by `lax.optimization_barrier`.

    >>> from tracefx import bind, ops
    >>> bind(ops.OptimizationBarrier(), 1.0, 2)
    [Literal(val=1.0, aval=f32[]*), Literal(val=2, aval=i32[]*)]
    """

    name = "optimization_barrier"
    multiple_results = True

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        return bind(self, *primals), self.bind_nonzero(tangents)

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        operand_cts = [ct if isinstance(x, UndefinedPrimal) else Zero(x.aval) for ct, x in zip(cts, args, strict=True)]
        results = self.bind_nonzero(operand_cts)
        return [ct if isinstance(x, UndefinedPrimal) else None for ct, x in zip(results, args, strict=True)]

    def bind_nonzero(self, tangents: Sequence[Tangent]) -> list[Tangent]:
        """Returns the tangents after one barrier for all that are not `Zero`.

        Args:
            tangents: The tangents of the operands.

        Returns:
            The tangents of the results.
        """
        nonzero = [t for t in tangents if not isinstance(t, Zero)]
        results = iter(bind(self, *nonzero) if nonzero else ())
        return [t if isinstance(t, Zero) else next(results) for t in tangents]

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        return bind(self, *args), dims

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        return builder.emit("stablehlo.optimization_barrier", operands, [x.aval for x in operands])


OPTIMIZATION_BARRIER: Final = OptimizationBarrier()


def optimization_barrier(operand: PyTree, /) -> Any:
    """Returns a pytree of arrays unchanged, as a barrier for compiler optimizations.

    No array of the result is used before all of them are computed, and the compiler does not merge computations across
    the barrier (for example by CSE, or by fusing a producer into its consumer).

    Args:
        operand: A pytree of arrays and numbers.

    Returns:
        A pytree of the same structure, with arrays as leaves.

    >>> optimization_barrier((1.0, 2))
    (Array(1., dtype=float32, weak_type=True), Array(2, dtype=int32, weak_type=True))
    """
    leaves, structure = trees.flatten(operand)
    outs = bind(OPTIMIZATION_BARRIER, *leaves) if leaves else []
    return trees.unflatten(structure, [as_array(x) for x in outs])
