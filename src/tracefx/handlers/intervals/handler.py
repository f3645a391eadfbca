"""`bounds`, and `Intervals`, the handler whose values are intervals, with its table of rules."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, final

import numpy as np
from typing_extensions import override

from tracefx import ops
from tracefx.control.checkpoint import CheckpointName
from tracefx.control.cond import Cond
from tracefx.control.sow import Sow
from tracefx.core import ArrayLike, ShapedArray, Value, dtypes
from tracefx.core.handler import as_array
from tracefx.core.primitive import Primitive, missing_rule_error
from tracefx.handlers.intervals import array_rules
from tracefx.handlers.intervals import elementwise as each
from tracefx.handlers.intervals.interval import ComparisonInterval, Interval, IntervalOrValue, as_interval
from tracefx.interpreters.rules import Rules
from tracefx.transforms.arguments import flatten_values, fun_name
from tracefx.transforms.handle import handle_values


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
        ops.Exp,
        ops.Exp2,
        ops.Expm1,
        ops.Logistic,
        ops.Atan,
        ops.Sinh,
        ops.Tanh,
        ops.Asinh,
        ops.Cbrt,
        ops.Erf,
        ops.CumLogSumExp,
    ),
    each.increasing(0.0): (ops.Log, ops.Sqrt),
    each.increasing(-1.0): (ops.Log1p,),
    each.increasing(1.0): (ops.Acosh,),
    each.increasing(-1.0, 1.0): (ops.Asin, ops.Atanh, ops.ErfInv),
    each.decreasing(): (ops.Erfc,),
    each.decreasing(0.0): (ops.Rsqrt,),
    each.decreasing(-1.0, 1.0): (ops.Acos,),
    each.sinusoid(0.0): (ops.Cos,),
    each.sinusoid(np.pi / 2): (ops.Sin,),
    each.tan_interval: (ops.Tan,),
    each.cosh_interval: (ops.Cosh,),
    each.lgamma_interval: (ops.Lgamma,),
    each.digamma_interval: (ops.Digamma,),
    each.exact_monotone_interval: (
        ops.Floor,
        ops.Ceil,
        ops.Round,
        ops.Sign,
        ops.Max,
        ops.Min,
        ops.Clamp,
        ops.StopGradient,
        CheckpointName,
        ops.Reshape,
        ops.Transpose,
        ops.BroadcastInDim,
        ops.Slice,
        ops.Pad,
        ops.Rev,
        ops.Squeeze,
        ops.Tile,
        ops.Concatenate,
        ops.Stack,
        ops.ReduceMax,
        ops.ReduceMin,
        ops.ReduceAnd,
        ops.ReduceOr,
        ops.CumMax,
        ops.CumMin,
        ops.ReduceWindowMax,
        ops.ReduceWindowMin,
    ),
    each.neg_interval: (ops.Neg, ops.Not),
    each.convert_interval: (ops.ConvertElementType, ops.ReducePrecision),
    each.add_interval: (ops.Add,),
    each.sub_interval: (ops.Sub,),
    each.mul_interval: (ops.Mul,),
    each.div_interval: (ops.Div,),
    each.rem_interval: (ops.Rem,),
    each.square_interval: (ops.Square,),
    each.integer_pow_interval: (ops.IntegerPow,),
    each.pow_interval: (ops.Pow,),
    each.abs_interval: (ops.Abs,),
    each.atan2_interval: (ops.Atan2,),
    each.lt_interval: (ops.Lt, ops.Le),
    each.gt_interval: (ops.Gt, ops.Ge),
    each.eq_interval: (ops.Eq,),
    each.ne_interval: (ops.Ne,),
    each.is_finite_interval: (ops.IsFinite,),
    each.and_or_interval: (ops.And, ops.Or),
    each.xor_interval: (ops.Xor,),
    array_rules.gather_interval: (ops.Gather, ops.DynamicSlice),
    array_rules.dynamic_update_slice_interval: (ops.DynamicUpdateSlice,),
    array_rules.scatter_interval: (ops.Scatter, ops.ScatterMin, ops.ScatterMax),
    array_rules.scatter_add_interval: (ops.ScatterAdd,),
    array_rules.scatter_sub_interval: (ops.ScatterSub,),
    array_rules.multi_result_interval: (ops.Split, ops.Unstack, ops.OptimizationBarrier),
    array_rules.sum_interval: (ops.ReduceSum, ops.CumSum, ops.ReduceWindowSum),
    array_rules.reduce_prod_interval: (ops.ReduceProd,),
    array_rules.contraction_interval: (ops.DotGeneral, ops.ConvGeneralDilated),
    array_rules.argextremum_interval: (ops.ArgMax, ops.ArgMin),
    array_rules.sort_interval: (ops.Sort,),
    array_rules.top_k_interval: (ops.TopK, ops.ApproxTopK),
    array_rules.select_n_interval: (ops.SelectN,),
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


def around(x: ArrayLike, radius: ArrayLike) -> Interval:
    """Returns the interval from `x - radius` to `x + radius`.

    Args:
        x: the center, an array of floats.
        radius: the distance to both ends; it broadcasts with `x`.

    Returns:
        The interval.

    >>> around(1.0, 0.25)
    Interval(lo=Array(0.75, dtype=float32, weak_type=True), hi=Array(1.25, dtype=float32, weak_type=True))
    """
    middle = as_array(x)
    return Interval(middle - radius, middle + radius)


def bounds(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `fun` for interval arguments: its results contain those of `fun` for all values in the intervals.

    An `Interval` may replace an array anywhere in the pytrees of the arguments. A result that depends on an interval is
    an `Interval`; any other is an ordinary array. Bounds hold for the exact mathematical result and for the computed
    one, because all arithmetic is rounded outward. They do not cover arguments outside of the domain of `fun`, e.g. the
    logarithm of negative numbers, and may be wider than necessary where a value is used more than once.

    Args:
        fun: a function of real arrays.

    Returns:
        A function like `fun` that accepts and returns intervals.

    Raises:
        TypeError: if `fun` is not callable, an interval is complex or its ends differ in shape or dtype, or the number
            of iterations of a `while_loop` depends on an interval.

    >>> bounds(lambda x: x * x - 1.0)(Interval(-1.0, 2.0)).lo < -0.99
    Array(True, dtype=bool)
    """
    return handle_values(
        "bounds",
        fun,
        Intervals(),
        Interval,
        lambda x: _checked_interval(x, fun_name(fun)),
        lambda handler, x: _result(handler.unwrap(x)),
    )


def _result(x: IntervalOrValue) -> Interval | Value:
    return as_interval(x) if isinstance(x, ComparisonInterval) else x


def _checked_interval(x: Interval, name: str) -> Interval:
    values, _ = flatten_values(tuple(x), f"bounds of {name}: the ends of an interval")
    lo, hi = map(as_array, values)
    if lo.aval.shape != hi.aval.shape or lo.aval.dtype != hi.aval.dtype:
        raise TypeError(f"bounds of {name}: the ends of an interval must have one type, got {lo.aval} and {hi.aval}")
    if dtypes.is_complex(lo.aval.dtype):
        raise TypeError(f"bounds of {name}: complex numbers have no order, got an interval of {lo.aval}")
    return Interval(lo, hi)
