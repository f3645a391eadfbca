"""The series rules of products and log-sum-exps along axes, and the tables of all rules by primitive and family."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

from tracefx import ops
from tracefx.core import Array
from tracefx.core.handler import as_array, bind1
from tracefx.core.primitive import Primitive
from tracefx.handlers.taylor import arithmetic, linear, series, transcendental
from tracefx.handlers.taylor.contraction import bilinear_taylor, dot_general_taylor
from tracefx.handlers.taylor.series import Series
from tracefx.ops.collectives.collective import LinearCollective
from tracefx.ops.elementwise.arithmetic import BinaryExtremum, mul
from tracefx.ops.elementwise.complex import LinearElementwise
from tracefx.ops.elementwise.elementwise import NonDifferentiable, add
from tracefx.ops.indexing.scatter import ScatterExtremum
from tracefx.ops.operation import LinearOperation
from tracefx.ops.reductions.cumulative import CumLogSumExp, CumProd, logaddexp_with_weights
from tracefx.ops.reductions.reduction import ArgExtremum, ReduceExtremum, ReduceProd
from tracefx.ops.shape.slicing import pad, slice_axis
from tracefx.ops.structural import constant_like_aval, reshape
from tracefx.transforms.associative_scan import associative_scan


def instantiate_terms(x: series.Series) -> list[Array]:
    """Returns all coefficients as arrays: in products none stays zero for long."""
    return [as_array(series.instantiate_term(t, x.primal)) for t in x.terms]


def drop_zero_terms(terms: list[series.Coefficient]) -> list[Array]:
    return [as_array(t) for t in terms if t is not None]


# ------------------------------------------------------------------ products


def cumprod_taylor(prim: CumProd, x: series.Series) -> series.Series:
    terms = associative_scan(
        lambda a, b: drop_zero_terms(series.series_product(a, b)),
        instantiate_terms(x),
        reverse=prim.reverse,
        axis=prim.axis,
    )
    return series.cast_series(terms, bind1(prim, x.primal))


def reduce_prod_taylor(prim: ReduceProd, x: series.Series) -> series.Series:
    out = bind1(prim, x.primal)
    terms = [prim.flatten_axes(t) for t in instantiate_terms(x)]
    if not terms[0].shape[0]:
        return series.cast_series([out, *[None] * x.order], out)
    while (n := terms[0].shape[0]) > 1:
        half = (n + 1) // 2
        others = [_second_half(t, half, 0 if k else 1) for k, t in enumerate(terms)]
        terms = drop_zero_terms(series.series_product([slice_axis(t, 0, half, 0) for t in terms], others))
    return series.cast_series([reshape(t, out.shape) for t in terms], out)


def _second_half(x: Array, half: int, fill: int) -> Array:
    """Returns the second half of the rows, padded to the length of the first."""
    rows = slice_axis(x, half, x.shape[0], 0)
    missing = half - rows.shape[0]
    return pad(rows, fill, [(0, missing, 0), *[(0, 0, 0)] * (x.ndim - 1)]) if missing else rows


# ------------------------------------------------------------------ sums of exponentials


def cumlogsumexp_taylor(prim: CumLogSumExp, x: series.Series) -> series.Series:
    """Computes the series of the sum relative to the sum, a mean of relative terms, so that nothing overflows."""
    out = bind1(prim, x.primal)
    ones = constant_like_aval(x.primal.aval, 1)
    parts = [series.instantiate_term(t, x.primal) for t in series.series_exp(x.terms, ones)[1:]]

    def combine(a: list[Array], b: list[Array]) -> list[Array]:
        (u, *us), (v, *vs) = a, b
        total, share, rest = logaddexp_with_weights(u, v)
        return [as_array(total), *[add(mul(s, share), mul(t, rest)) for s, t in zip(us, vs, strict=True)]]

    elements = [as_array(t) for t in (x.primal, *parts)]
    _, *means = associative_scan(combine, elements, reverse=prim.reverse, axis=prim.axis)
    relative = [ones, *means]
    return series.cast_series(series.integrate_quotient(relative, relative, out), out)


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
