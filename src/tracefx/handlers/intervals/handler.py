"""`Intervals`, the handler whose values are intervals, and its table of rules."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final, final

import numpy as np
from typing_extensions import override

from tracefx.control.checkpoint import CheckpointName
from tracefx.control.cond import Cond
from tracefx.control.sow import Sow
from tracefx.core import dtypes
from tracefx.core.avals import ShapedArray
from tracefx.core.primitive import Primitive, missing_rule_error
from tracefx.core.values import Value
from tracefx.handlers.intervals import array_rules
from tracefx.handlers.intervals import elementwise as each
from tracefx.handlers.intervals.interval import ComparisonInterval, Interval, IntervalOrValue, as_interval
from tracefx.interpreters.rules import Rules
from tracefx.ops import structural
from tracefx.ops.annotations import optimization_barrier
from tracefx.ops.contractions import contraction, convolution
from tracefx.ops.elementwise import (
    abs_sign,
    arithmetic,
    atan2_nextafter,
    bit_representation,
    bitwise,
    comparison,
    complex,
    elementwise,
    hyperbolic,
    inverse_trigonometric,
    powers,
    rounding,
    selection,
    special,
    transcendental,
)
from tracefx.ops.indexing import along_axis, dynamic_slicing, gather_scatter_add, scatter, sorting
from tracefx.ops.indexing.top_k import ApproxTopK, TopK
from tracefx.ops.reductions import cumulative, reduction, window_reduction
from tracefx.ops.shape import shape, slicing


class BoundsRule:
    """A capability of primitives: they compute bounds of their results.

    A primitive without it and without a rule in the table must be `Expandable`; its expansion is bounded then.
    """

    __slots__ = ()

    @abstractmethod
    def interval(self, *operands: Interval) -> Sequence[Interval]:
        """Returns intervals that contain the results for all operands in `operands`, including rounding errors.

        Args:
            *operands: One interval for each operand.

        Returns:
            One interval for each result.

        Raises:
            MissingRuleError: The class does not define the method.
        """
        raise missing_rule_error(self, "interval", "define interval(self, *operands)")


@final
class Intervals(array_rules.IntervalInterpreter):
    """Values are intervals that contain the program's values for all arguments in the argument intervals."""

    title: ClassVar[str] = "bounds"

    @property
    @override
    def rules(self) -> Rules[Intervals, IntervalOrValue]:
        return RULES

    @override
    def aval_of(self, value: Interval | ComparisonInterval) -> ShapedArray:
        return value.lo.aval

    @override
    def lift(self, x: Value) -> Interval:
        if dtypes.is_complex(x.aval.dtype):
            raise TypeError(f"bounds: complex numbers have no order, got {x.aval} where an interval is needed")
        return as_interval(x)

    @override
    def unify(self, x: Interval | ComparisonInterval, y: Interval | ComparisonInterval) -> tuple[Interval, Interval]:
        """Returns plain intervals: where branches or loop carries meet, the operands of a comparison are dropped."""
        return as_interval(x), as_interval(y)

    @override
    def strip(self, value: Interval | ComparisonInterval) -> Value:
        raise TypeError(
            "bounds: the control flow depends on a value of which only bounds are known. lax.cond and where combine "
            "all possible cases; instead of a while_loop use fori_loop or scan, with a number of steps that does not "
            "depend on an interval"
        )

    @override
    def debug_value(self, value: Interval | ComparisonInterval) -> Value:
        return as_interval(value).lo if dtypes.is_bool(value.lo.aval.dtype) else as_interval(value).mid


_PRIMITIVES_BY_RULE: Final[dict[each.IntervalRule, tuple[type[Primitive], ...]]] = {
    each.increasing(): (
        transcendental.Exp,
        transcendental.Exp2,
        transcendental.Expm1,
        transcendental.Logistic,
        inverse_trigonometric.Atan,
        hyperbolic.Sinh,
        hyperbolic.Tanh,
        hyperbolic.Asinh,
        transcendental.Cbrt,
        special.Erf,
        cumulative.CumLogSumExp,
    ),
    each.increasing(0.0): (transcendental.Log, transcendental.Sqrt),
    each.increasing(-1.0): (transcendental.Log1p,),
    each.increasing(1.0): (hyperbolic.Acosh,),
    each.increasing(-1.0, 1.0): (inverse_trigonometric.Asin, hyperbolic.Atanh, special.ErfInv),
    each.decreasing(): (special.Erfc,),
    each.decreasing(0.0): (transcendental.Rsqrt,),
    each.decreasing(-1.0, 1.0): (inverse_trigonometric.Acos,),
    each.sinusoid(0.0): (transcendental.Cos,),
    each.sinusoid(np.pi / 2): (transcendental.Sin,),
    each.tan_interval: (transcendental.Tan,),
    each.cosh_interval: (hyperbolic.Cosh,),
    each.lgamma_interval: (special.Lgamma,),
    each.digamma_interval: (special.Digamma,),
    each.exact_monotone_interval: (
        rounding.Floor,
        rounding.Ceil,
        rounding.Round,
        abs_sign.Sign,
        arithmetic.Max,
        arithmetic.Min,
        selection.Clamp,
        selection.StopGradient,
        CheckpointName,
        structural.Reshape,
        structural.Transpose,
        structural.BroadcastInDim,
        slicing.Slice,
        slicing.Pad,
        slicing.Rev,
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
    each.neg_interval: (arithmetic.Neg, bitwise.Not),
    each.convert_interval: (structural.ConvertElementType, bit_representation.ReducePrecision),
    each.add_interval: (elementwise.Add,),
    each.sub_interval: (arithmetic.Sub,),
    each.mul_interval: (arithmetic.Mul,),
    each.div_interval: (arithmetic.Div,),
    each.rem_interval: (arithmetic.Rem,),
    each.square_interval: (powers.Square,),
    each.integer_pow_interval: (powers.IntegerPow,),
    each.pow_interval: (powers.Pow,),
    each.abs_interval: (abs_sign.Abs,),
    each.atan2_interval: (atan2_nextafter.Atan2,),
    each.lt_interval: (comparison.Lt, comparison.Le),
    each.gt_interval: (comparison.Gt, comparison.Ge),
    each.eq_interval: (comparison.Eq,),
    each.ne_interval: (comparison.Ne,),
    each.is_finite_interval: (complex.IsFinite,),
    each.and_or_interval: (bitwise.And, bitwise.Or),
    each.xor_interval: (bitwise.Xor,),
    array_rules.gather_interval: (gather_scatter_add.Gather, dynamic_slicing.DynamicSlice),
    array_rules.dynamic_update_slice_interval: (dynamic_slicing.DynamicUpdateSlice,),
    array_rules.scatter_interval: (scatter.Scatter, scatter.ScatterMin, scatter.ScatterMax),
    array_rules.scatter_add_interval: (gather_scatter_add.ScatterAdd,),
    array_rules.scatter_sub_interval: (scatter.ScatterSub,),
    array_rules.multi_result_interval: (shape.Split, along_axis.Unstack, optimization_barrier.OptimizationBarrier),
    array_rules.sum_interval: (structural.ReduceSum, cumulative.CumSum, window_reduction.ReduceWindowSum),
    array_rules.reduce_prod_interval: (reduction.ReduceProd,),
    array_rules.contraction_interval: (contraction.DotGeneral, convolution.ConvGeneralDilated),
    array_rules.argextremum_interval: (reduction.ArgMax, reduction.ArgMin),
    array_rules.sort_interval: (sorting.Sort,),
    array_rules.top_k_interval: (TopK, ApproxTopK),
    array_rules.select_n_interval: (selection.SelectN,),
    array_rules.cond_interval: (Cond,),
    array_rules.sow_interval: (Sow,),
}


def _own_rule(handler: Intervals, op: BoundsRule, *operands: IntervalOrValue) -> Sequence[IntervalOrValue]:
    return op.interval(*map(as_interval, operands))


def _build_rules() -> Rules[Intervals, IntervalOrValue]:
    rules = Rules[Intervals, IntervalOrValue]().capable(BoundsRule, _own_rule)
    for rule, operations in _PRIMITIVES_BY_RULE.items():
        for operation in operations:
            rules = rules.on(operation, rule)
    return rules


RULES: Final = _build_rules()
