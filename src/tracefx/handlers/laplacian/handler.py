"""The handler whose values carry their derivatives by all inputs, and their Laplacian."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from typing import Final, final

from attrs import evolve, frozen
from typing_extensions import override

from tracefx.control.custom_jvp import CustomJVP, CustomJVPCall
from tracefx.control.custom_vjp import CustomVJP, CustomVJPCall
from tracefx.control.linear_solve import LinearSolve
from tracefx.control.scan import Scan
from tracefx.core.avals import ShapedArray
from tracefx.core.entering import Form
from tracefx.core.primitive import Differentiable, missing
from tracefx.core.values import Value
from tracefx.handlers.laplacian.contraction import contracted
from tracefx.handlers.laplacian.curved import Curved, Held, at_the_end, constant, dense, in_front
from tracefx.handlers.laplacian.rules import (
    added,
    converted,
    divided,
    elementwise,
    in_order,
    locally_linear,
    multiplied,
    placewise,
    second_order,
    still,
    subtracted,
    summed,
)
from tracefx.interpreters.interpreter import Interpreter
from tracefx.interpreters.rules import Rules
from tracefx.ops.along_axis import Unstack
from tracefx.ops.arithmetic import Div, Extreme, Mul, Neg, Rem, Sub
from tracefx.ops.barrier import OptimizationBarrier
from tracefx.ops.basis import ConvertElementType, ReduceSum, Reshape, filled
from tracefx.ops.collective import LinearCollective
from tracefx.ops.complex import LinearElementwise
from tracefx.ops.contraction import DotGeneral
from tracefx.ops.cumulative import CumMax, CumMin
from tracefx.ops.cutting import Pad
from tracefx.ops.dynamic import DynamicSlice, DynamicUpdateSlice
from tracefx.ops.elementwise import Add, NonDifferentiable, Smooth
from tracefx.ops.greatest import ApproxTopK, TopK
from tracefx.ops.indexing import Gather, ScatterAdd
from tracefx.ops.operation import LinearOperation
from tracefx.ops.reduction import ArgExtremum, Extremum
from tracefx.ops.representation import BitcastConvertType
from tracefx.ops.scattering import Extremal, Scatter, ScatterSub
from tracefx.ops.selection import Clamp, SelectN
from tracefx.ops.shape import Split
from tracefx.ops.sorting import Sort
from tracefx.ops.window_reduction import ReduceWindowMax, ReduceWindowMin, ReduceWindowSum
from tracefx.ops.window_selection import SelectAndGatherAdd, SelectAndScatterAdd


class LaplacianRule:
    """A capability: the operation knows what becomes of derivatives and Laplacians.

    Without it an operation's derivative is differentiated again, in the direction of each input at once.
    """

    __slots__ = ()

    @abstractmethod
    def laplacian(self, *operands: Curved | Value) -> Sequence[Curved | Value]:
        """The results: plain values, or as `Curved` those that vary. At least one operand varies.

        Jacobians have the inputs behind the axes of the value.
        """
        raise missing(self, "laplacian", "define laplacian(self, *operands)")


@final
@frozen(eq=False)
class ForwardLaplacian(Interpreter[Curved]):
    """Values carry their derivatives by `size` inputs, and the sum of their second derivatives."""

    size: int
    looped: bool = False
    """Whether programs are entered that slice their inputs."""

    @property
    @override
    def title(self) -> str:
        return "laplacian"

    @property
    @override
    def key(self) -> Hashable:
        return self.size, self.looped

    @property
    @override
    def rules(self) -> Rules[ForwardLaplacian, Held]:
        return RULES

    @override
    def wrap(self, value: Held) -> Value:
        return super().wrap(in_front(value) if isinstance(value, Curved) else value)

    @override
    def form(self, x: Value) -> Form:
        if self.looped and isinstance(value := self.unwrap(x), Curved):
            return super().form(super().wrap(at_the_end(value)))
        return super().form(x)

    @override
    def aval_of(self, value: Curved) -> ShapedArray:
        return value.value.aval

    @override
    def lift(self, x: Value) -> Curved:
        return constant(x, self.size)

    @override
    def unite(self, x: Curved, y: Curved) -> tuple[Curved, Curved]:
        """All derivatives are written out, and the Laplacian too where one has one."""
        if x.behind != y.behind:
            x, y = at_the_end(x), at_the_end(y)
        elif x.form != y.form:
            x, y = dense(x), dense(y)
        bent = x.laplacian is not None or y.laplacian is not None
        return _with_laplacian(x, bent), _with_laplacian(y, bent)

    @override
    def bared(self, value: Curved) -> Value:
        return value.value


def _with_laplacian(x: Curved, wanted: bool) -> Curved:
    if not wanted or x.laplacian is not None:
        return x
    return evolve(x, laplacian=filled(x.value.aval, 0))


def by_its_rule(handler: ForwardLaplacian, prim: LaplacianRule, *operands: Held) -> Sequence[Held]:
    return prim.laplacian(*[dense(x) if isinstance(x, Curved) else x for x in operands])


def scanned(handler: ForwardLaplacian, prim: Scan, *operands: Held) -> Sequence[Held]:
    """A step takes slices along the first axis, which the derivatives must have, too."""
    entry = evolve(handler, looped=True)
    return [entry.unwrap(out) for out in prim.entered(entry, [entry.wrap(x) for x in operands])]


def _table() -> Rules[ForwardLaplacian, Held]:
    return (
        Rules[ForwardLaplacian, Held]()
        .on(Add, added)
        .on(Sub, subtracted)
        .on(Neg, in_order, Reshape)
        .on(Mul, multiplied)
        .on(Div, divided)
        .on(DotGeneral, contracted)
        .on(ConvertElementType, converted)
        .on(ReduceSum, summed)
        .on(BitcastConvertType, still)
        .on(Scan, scanned)
        .on(CustomJVP, second_order, CustomJVPCall, CustomVJP, CustomVJPCall, LinearSolve)
        .on(SelectN, placewise, Clamp, Rem)
        .on(Pad, locally_linear, Split, Unstack, CumMax, CumMin, OptimizationBarrier)
        .on(Sort, locally_linear, TopK, ApproxTopK)
        .on(Gather, locally_linear, ScatterAdd, ScatterSub, Scatter, DynamicSlice, DynamicUpdateSlice)
        .on(ReduceWindowSum, locally_linear, ReduceWindowMax, ReduceWindowMin, SelectAndGatherAdd, SelectAndScatterAdd)
        .capable(LaplacianRule, by_its_rule)
        .family(NonDifferentiable, still)
        .family(ArgExtremum, still)
        .family(LinearOperation, locally_linear)
        .family(LinearElementwise, placewise)
        .family(LinearCollective, locally_linear)
        .family(Extreme, placewise)
        .family(Extremum, locally_linear)
        .family(Extremal, locally_linear)
        .family(Smooth, elementwise)
        .family(Differentiable, second_order)
    )


RULES: Final = _table()
