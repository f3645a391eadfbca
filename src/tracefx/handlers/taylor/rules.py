"""The tables of series rules, by primitive and by family."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

from tracefx import ops
from tracefx.core.primitive import Primitive
from tracefx.handlers.taylor import arithmetic, linear, transcendental
from tracefx.handlers.taylor.contraction import bilinear_taylor, dot_general_taylor
from tracefx.handlers.taylor.reductions import cumlogsumexp_taylor, cumprod_taylor, reduce_prod_taylor
from tracefx.handlers.taylor.series import Series
from tracefx.ops.collectives.collective import LinearCollective
from tracefx.ops.elementwise.arithmetic import BinaryExtremum
from tracefx.ops.elementwise.complex import LinearElementwise
from tracefx.ops.elementwise.elementwise import NonDifferentiable
from tracefx.ops.indexing.scatter import ScatterExtremum
from tracefx.ops.operation import LinearOperation
from tracefx.ops.reductions.reduction import ArgExtremum, ReduceExtremum

TaylorSeriesRule: TypeAlias = Callable[..., Sequence[Series] | None]
"""Called with a primitive and a series for each operand, at least one of which varies; returns the results' series.

It returns None if it does not cover these operands: then the JVP rule is used.
"""


def single_result(rule: Callable[..., Series | None]) -> TaylorSeriesRule:
    """Returns the rule of a primitive with one result."""

    def listed(prim: Primitive, *args: Series) -> Sequence[Series] | None:
        out = rule(prim, *args)
        return None if out is None else [out]

    return listed


TAYLOR_RULES: Final[Mapping[type[Primitive], TaylorSeriesRule]] = MappingProxyType(
    {
        ops.Neg: linear.linear_taylor,
        ops.Add: linear.add_taylor,
        ops.Sub: linear.sub_taylor,
        ops.Mul: single_result(arithmetic.mul_taylor),
        ops.Square: single_result(arithmetic.square_taylor),
        ops.Div: single_result(arithmetic.div_taylor),
        ops.IntegerPow: single_result(arithmetic.integer_pow_taylor),
        ops.Pow: single_result(arithmetic.pow_taylor),
        ops.Abs: arithmetic.abs_taylor,
        ops.Atan2: single_result(arithmetic.atan2_taylor),
        ops.Polygamma: single_result(arithmetic.polygamma_taylor),
        ops.DotGeneral: single_result(dot_general_taylor),
        ops.ConvGeneralDilated: single_result(bilinear_taylor),
        ops.RaggedDotGeneral: single_result(bilinear_taylor),
        **dict.fromkeys(
            (ops.SelectN, ops.ScatterAdd, ops.ScatterSub, ops.DynamicSlice, ops.DynamicUpdateSlice),
            linear.jointly_linear_taylor,
        ),
        ops.Gather: linear.gather_taylor,
        ops.ScatterMul: arithmetic.scatter_mul_taylor,
        ops.ReduceProd: single_result(reduce_prod_taylor),
        ops.CumProd: single_result(cumprod_taylor),
        ops.CumLogSumExp: single_result(cumlogsumexp_taylor),
        **dict.fromkeys((ops.ConvertElementType, ops.Split, ops.Unstack), linear.linear_taylor),
        **dict.fromkeys(
            (ops.Rem, ops.Clamp, ops.CumMax, ops.CumMin, ops.Scatter, ops.OptimizationBarrier),
            linear.locally_linear_taylor,
        ),
        **dict.fromkeys((ops.Sort, ops.TopK, ops.ApproxTopK), linear.locally_linear_taylor),
        ops.ReduceWindowSum: linear.linear_taylor,
        **dict.fromkeys(
            (ops.ReduceWindowMax, ops.ReduceWindowMin, ops.SelectAndGatherAdd, ops.SelectAndScatterAdd),
            linear.locally_linear_taylor,
        ),
        ops.BitcastConvertType: linear.zero_derivative_taylor,
        **dict.fromkeys(transcendental.TRANSCENDENTAL_SOLUTIONS, single_result(transcendental.transcendental_taylor)),
        **dict.fromkeys(transcendental.LOGARITHMIC_DIVISORS, single_result(transcendental.logarithmic_taylor)),
    }
)
TAYLOR_FAMILY_RULES: Final[Mapping[type, TaylorSeriesRule]] = MappingProxyType(
    {
        NonDifferentiable: linear.zero_derivative_taylor,
        ArgExtremum: linear.zero_derivative_taylor,
        LinearOperation: linear.jointly_linear_taylor,
        LinearElementwise: linear.jointly_linear_taylor,
        LinearCollective: linear.linear_taylor,
        BinaryExtremum: linear.locally_linear_taylor,
        ReduceExtremum: linear.locally_linear_taylor,
        ScatterExtremum: linear.locally_linear_taylor,
    }
)
