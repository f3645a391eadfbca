"""The tables of series rules, by primitive and by family."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

from tracefx.core.primitive import Primitive
from tracefx.handlers.taylor.arithmetic import (
    abs_taylor,
    atan2_taylor,
    div_taylor,
    integer_pow_taylor,
    mul_taylor,
    polygamma_taylor,
    pow_taylor,
    scatter_mul_taylor,
    square_taylor,
)
from tracefx.handlers.taylor.contraction import bilinear_taylor, dot_general_taylor
from tracefx.handlers.taylor.linear import (
    add_taylor,
    gather_taylor,
    jointly_linear_taylor,
    linear_taylor,
    locally_linear_taylor,
    sub_taylor,
    zero_derivative_taylor,
)
from tracefx.handlers.taylor.reductions import cumlogsumexp_taylor, cumprod_taylor, reduce_prod_taylor
from tracefx.handlers.taylor.series import Series
from tracefx.handlers.taylor.transcendental import (
    LOGARITHMIC_DIVISORS,
    TRANSCENDENTAL_SOLUTIONS,
    logarithmic_taylor,
    transcendental_taylor,
)
from tracefx.ops.annotations.optimization_barrier import OptimizationBarrier
from tracefx.ops.collectives.collective import LinearCollective
from tracefx.ops.contractions.contraction import DotGeneral
from tracefx.ops.contractions.convolution import ConvGeneralDilated
from tracefx.ops.contractions.ragged_dot import RaggedDotGeneral
from tracefx.ops.elementwise.abs_sign import Abs
from tracefx.ops.elementwise.arithmetic import BinaryExtremum, Div, Mul, Neg, Rem, Sub
from tracefx.ops.elementwise.atan2_nextafter import Atan2
from tracefx.ops.elementwise.bit_representation import BitcastConvertType
from tracefx.ops.elementwise.complex import LinearElementwise
from tracefx.ops.elementwise.elementwise import Add, NonDifferentiable
from tracefx.ops.elementwise.powers import IntegerPow, Pow, Square
from tracefx.ops.elementwise.selection import Clamp, SelectN
from tracefx.ops.elementwise.special import Polygamma
from tracefx.ops.indexing.along_axis import Unstack
from tracefx.ops.indexing.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from tracefx.ops.indexing.gather_scatter_add import Gather, ScatterAdd
from tracefx.ops.indexing.scatter import Scatter, ScatterExtremum, ScatterMul, ScatterSub
from tracefx.ops.indexing.sorting import Sort
from tracefx.ops.indexing.top_k import ApproxTopK, TopK
from tracefx.ops.operation import LinearOperation
from tracefx.ops.reductions.cumulative import CumLogSumExp, CumMax, CumMin, CumProd
from tracefx.ops.reductions.reduction import ArgExtremum, ReduceExtremum, ReduceProd
from tracefx.ops.reductions.select_and_scatter import SelectAndGatherAdd, SelectAndScatterAdd
from tracefx.ops.reductions.window_reduction import ReduceWindowMax, ReduceWindowMin, ReduceWindowSum
from tracefx.ops.shape.shape import Split
from tracefx.ops.structural import ConvertElementType

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
        Neg: linear_taylor,
        Add: add_taylor,
        Sub: sub_taylor,
        Mul: single_result(mul_taylor),
        Square: single_result(square_taylor),
        Div: single_result(div_taylor),
        IntegerPow: single_result(integer_pow_taylor),
        Pow: single_result(pow_taylor),
        Abs: abs_taylor,
        Atan2: single_result(atan2_taylor),
        Polygamma: single_result(polygamma_taylor),
        DotGeneral: single_result(dot_general_taylor),
        ConvGeneralDilated: single_result(bilinear_taylor),
        RaggedDotGeneral: single_result(bilinear_taylor),
        **dict.fromkeys((SelectN, ScatterAdd, ScatterSub, DynamicSlice, DynamicUpdateSlice), jointly_linear_taylor),
        Gather: gather_taylor,
        ScatterMul: scatter_mul_taylor,
        ReduceProd: single_result(reduce_prod_taylor),
        CumProd: single_result(cumprod_taylor),
        CumLogSumExp: single_result(cumlogsumexp_taylor),
        **dict.fromkeys((ConvertElementType, Split, Unstack), linear_taylor),
        **dict.fromkeys((Rem, Clamp, CumMax, CumMin, Scatter, OptimizationBarrier), locally_linear_taylor),
        **dict.fromkeys((Sort, TopK, ApproxTopK), locally_linear_taylor),
        ReduceWindowSum: linear_taylor,
        **dict.fromkeys(
            (ReduceWindowMax, ReduceWindowMin, SelectAndGatherAdd, SelectAndScatterAdd), locally_linear_taylor
        ),
        BitcastConvertType: zero_derivative_taylor,
        **dict.fromkeys(TRANSCENDENTAL_SOLUTIONS, single_result(transcendental_taylor)),
        **dict.fromkeys(LOGARITHMIC_DIVISORS, single_result(logarithmic_taylor)),
    }
)
TAYLOR_FAMILY_RULES: Final[Mapping[type, TaylorSeriesRule]] = MappingProxyType(
    {
        NonDifferentiable: zero_derivative_taylor,
        ArgExtremum: zero_derivative_taylor,
        LinearOperation: jointly_linear_taylor,
        LinearElementwise: jointly_linear_taylor,
        LinearCollective: linear_taylor,
        BinaryExtremum: locally_linear_taylor,
        ReduceExtremum: locally_linear_taylor,
        ScatterExtremum: locally_linear_taylor,
    }
)
