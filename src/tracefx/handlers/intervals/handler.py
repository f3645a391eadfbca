"""The handler whose values are intervals, and its table of rules."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from typing import ClassVar, Final, final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.control.checkpoint import Name
from tracefx.control.cond import Cond
from tracefx.control.sowing import Sow
from tracefx.core import dtypes
from tracefx.core.avals import ShapedArray
from tracefx.core.primitive import Primitive, missing
from tracefx.core.values import Value
from tracefx.handlers.intervals import elementwise as each
from tracefx.handlers.intervals import structural as all_of
from tracefx.handlers.intervals.interval import Compared, Held, Interval, lifted
from tracefx.interpreters.interpreter import Interpreter
from tracefx.interpreters.rules import Rules
from tracefx.ops import (
    along_axis,
    arithmetic,
    barrier,
    basis,
    bitwise,
    comparison,
    complex,
    contraction,
    convolution,
    cumulative,
    cutting,
    dynamic,
    elementwise,
    indexing,
    magnitude,
    pairs,
    powers,
    reduction,
    representation,
    rounding,
    scattering,
    selection,
    shape,
    sorting,
    special,
    transcendental,
    window_reduction,
)
from tracefx.ops.greatest import ApproxTopK, TopK


class BoundsRule:
    """A capability: the operation knows bounds of its results.

    Without it, and without a rule in the table, only an operation that is `Expandable` has bounds: those of its parts.
    """

    __slots__ = ()

    @abstractmethod
    def interval(self, *operands: Interval) -> Sequence[Interval]:
        """Intervals that contain the results for all operands within the given ones, rounding errors included."""
        raise missing(self, "interval", "define interval(self, *operands)")


@final
@frozen(eq=False)
class Intervals(Interpreter[Interval | Compared]):
    """Values are intervals that contain what the program computes, for all arguments in those it is given."""

    title: ClassVar[str] = "bounds"
    key: ClassVar[Hashable] = ()

    @property
    @override
    def rules(self) -> Rules[Intervals, Held]:
        return RULES

    @override
    def aval_of(self, value: Interval | Compared) -> ShapedArray:
        return value.lo.aval

    @override
    def lift(self, x: Value) -> Interval:
        if dtypes.is_complex(x.aval.dtype):
            raise TypeError(f"bounds: complex numbers have no order, but {x.aval} is to be an interval")
        return lifted(x)

    @override
    def unite(self, x: Interval | Compared, y: Interval | Compared) -> tuple[Interval, Interval]:
        """What was compared is forgotten where branches and loops bring comparisons together with others."""
        return lifted(x), lifted(y)

    @override
    def bared(self, value: Interval | Compared) -> Value:
        raise TypeError(
            "bounds: the program goes a way that depends on a number of which only bounds are known. lax.cond and "
            "where take all ways that are possible; for a while_loop use fori_loop or scan, with a number of steps "
            "that is none of the intervals"
        )

    @override
    def displayed(self, value: Interval | Compared) -> Value:
        return lifted(value).lo if dtypes.is_bool(value.lo.aval.dtype) else lifted(value).mid


_FUNCTIONS: Final[dict[each.Rule, tuple[type[Primitive], ...]]] = {
    each.growing(): (
        transcendental.Exp,
        transcendental.Exp2,
        transcendental.Expm1,
        transcendental.Logistic,
        transcendental.Atan,
        transcendental.Sinh,
        transcendental.Tanh,
        transcendental.Asinh,
        transcendental.Cbrt,
        special.Erf,
        cumulative.CumLogSumExp,
    ),
    each.growing(0.0): (transcendental.Log, transcendental.Sqrt),
    each.growing(-1.0): (transcendental.Log1p,),
    each.growing(1.0): (transcendental.Acosh,),
    each.growing(-1.0, 1.0): (transcendental.Asin, transcendental.Atanh, special.ErfInv),
    each.falling(): (special.Erfc,),
    each.falling(0.0): (transcendental.Rsqrt,),
    each.falling(-1.0, 1.0): (transcendental.Acos,),
    each.wave(0.0): (transcendental.Cos,),
    each.wave(np.pi / 2): (transcendental.Sin,),
    each.tangent: (transcendental.Tan,),
    each.cosh: (transcendental.Cosh,),
    each.lgamma: (special.Lgamma,),
    each.digamma: (special.Digamma,),
    each.exact: (
        rounding.Floor,
        rounding.Ceil,
        rounding.Round,
        magnitude.Sign,
        arithmetic.Max,
        arithmetic.Min,
        selection.Clamp,
        selection.StopGradient,
        Name,
        basis.Reshape,
        basis.Transpose,
        basis.BroadcastInDim,
        cutting.Slice,
        cutting.Pad,
        cutting.Rev,
        shape.Squeeze,
        shape.Tile,
        shape.Concatenate,
        shape.Stack,
        reduction.ReduceMax,
        reduction.ReduceMin,
        reduction.ReduceAnd,
        reduction.ReduceOr,
        cumulative.CumMax,
        cumulative.CumMin,
        window_reduction.ReduceWindowMax,
        window_reduction.ReduceWindowMin,
    ),
    each.negated: (arithmetic.Neg, bitwise.Not),
    each.converted: (basis.ConvertElementType, representation.ReducePrecision),
    each.added: (elementwise.Add,),
    each.subtracted: (arithmetic.Sub,),
    each.multiplied: (arithmetic.Mul,),
    each.divided: (arithmetic.Div,),
    each.remainder: (arithmetic.Rem,),
    each.squared: (powers.Square,),
    each.integer_power: (powers.IntegerPow,),
    each.power: (powers.Pow,),
    each.absolute: (magnitude.Abs,),
    each.angle: (pairs.Atan2,),
    each.less: (comparison.Lt, comparison.Le),
    each.greater: (comparison.Gt, comparison.Ge),
    each.equal: (comparison.Eq,),
    each.unequal: (comparison.Ne,),
    each.finite: (complex.IsFinite,),
    each.logical: (bitwise.And, bitwise.Or),
    each.exclusive: (bitwise.Xor,),
    all_of.moved: (indexing.Gather, dynamic.DynamicSlice),
    all_of.written: (dynamic.DynamicUpdateSlice,),
    all_of.scattered: (scattering.Scatter, scattering.ScatterMin, scattering.ScatterMax),
    all_of.scatter_added: (indexing.ScatterAdd,),
    all_of.scatter_subtracted: (scattering.ScatterSub,),
    all_of.several: (shape.Split, along_axis.Unstack, barrier.OptimizationBarrier),
    all_of.summed: (basis.ReduceSum, cumulative.CumSum, window_reduction.ReduceWindowSum),
    all_of.multiplied_up: (reduction.ReduceProd,),
    all_of.contracted: (contraction.DotGeneral, convolution.ConvGeneralDilated),
    all_of.found: (reduction.ArgMax, reduction.ArgMin),
    all_of.ordered: (sorting.Sort,),
    all_of.greatest: (TopK, ApproxTopK),
    all_of.chosen: (selection.SelectN,),
    all_of.branched: (Cond,),
    all_of.sown: (Sow,),
}


def _by_itself(handler: Intervals, op: BoundsRule, *operands: Held) -> Sequence[Held]:
    return op.interval(*map(lifted, operands))


def _table() -> Rules[Intervals, Held]:
    rules = Rules[Intervals, Held]().capable(BoundsRule, _by_itself)
    for rule, operations in _FUNCTIONS.items():
        for operation in operations:
            rules = rules.on(operation, rule)
    return rules


RULES: Final = _table()
