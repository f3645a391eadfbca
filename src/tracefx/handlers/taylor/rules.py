"""Which rule an operation, or the family it belongs to, has for series."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

from tracefx.core.primitive import Primitive
from tracefx.handlers.taylor.arithmetic import (
    absolute,
    angled,
    divided,
    integer_power,
    multiplied,
    polygamma_series,
    raised,
    scattered_product,
    squared_series,
)
from tracefx.handlers.taylor.contraction import bilinear, contracted
from tracefx.handlers.taylor.folding import multiplied_along, multiplied_over, summed_along
from tracefx.handlers.taylor.linear import added, gathered, jointly_linear, linear, locally_linear, still, subtracted
from tracefx.handlers.taylor.series import Series
from tracefx.handlers.taylor.transcendental import DIVISORS, SLOPES, logarithmic, transcendental
from tracefx.ops.along_axis import Unstack
from tracefx.ops.arithmetic import Div, Extreme, Mul, Neg, Rem, Sub
from tracefx.ops.barrier import OptimizationBarrier
from tracefx.ops.basis import ConvertElementType
from tracefx.ops.collective import LinearCollective
from tracefx.ops.complex import LinearElementwise
from tracefx.ops.contraction import DotGeneral
from tracefx.ops.convolution import ConvGeneralDilated
from tracefx.ops.cumulative import CumLogSumExp, CumMax, CumMin, CumProd
from tracefx.ops.dynamic import DynamicSlice, DynamicUpdateSlice
from tracefx.ops.elementwise import Add, NonDifferentiable
from tracefx.ops.greatest import ApproxTopK, TopK
from tracefx.ops.indexing import Gather, ScatterAdd
from tracefx.ops.linalg.cholesky import Cholesky
from tracefx.ops.linalg.eigen import Eig, Eigh
from tracefx.ops.linalg.lu import Lu
from tracefx.ops.linalg.qr import Qr
from tracefx.ops.linalg.svd import Svd
from tracefx.ops.linalg.triangular import TriangularSolve
from tracefx.ops.linalg.tridiagonal import TridiagonalSolve
from tracefx.ops.magnitude import Abs
from tracefx.ops.operation import LinearOperation
from tracefx.ops.pairs import Atan2
from tracefx.ops.powers import IntegerPow, Pow, Square
from tracefx.ops.ragged import RaggedDotGeneral
from tracefx.ops.reduction import ArgExtremum, Extremum, ReduceProd
from tracefx.ops.representation import BitcastConvertType
from tracefx.ops.scattering import Extremal, Scatter, ScatterMul, ScatterSub
from tracefx.ops.selection import Clamp, SelectN
from tracefx.ops.shape import Split
from tracefx.ops.sorting import Sort
from tracefx.ops.special import Polygamma, Zeta
from tracefx.ops.window_reduction import ReduceWindowMax, ReduceWindowMin, ReduceWindowSum
from tracefx.ops.window_selection import SelectAndGatherAdd, SelectAndScatterAdd

Rule: TypeAlias = Callable[..., Sequence[Series] | None]
"""From an operation and a series for each operand, one of which varies, to series of the results.

`None` where the rule is not for these operands: then the operation's derivative is taken.
"""


def alone(rule: Callable[..., Series | None]) -> Rule:
    """The rule of an operation with one result."""

    def listed(prim: Primitive, *args: Series) -> Sequence[Series] | None:
        out = rule(prim, *args)
        return None if out is None else [out]

    return listed


def derived(prim: Primitive, *args: Series) -> None:
    """The rule of an operation whose derivative is as good as any rule."""


OWN: Final[Mapping[type[Primitive], Rule]] = MappingProxyType(
    {
        Neg: linear,
        Add: added,
        Sub: subtracted,
        Mul: alone(multiplied),
        Square: alone(squared_series),
        Div: alone(divided),
        IntegerPow: alone(integer_power),
        Pow: alone(raised),
        Abs: absolute,
        Atan2: alone(angled),
        Polygamma: alone(polygamma_series),
        Zeta: derived,
        DotGeneral: alone(contracted),
        ConvGeneralDilated: alone(bilinear),
        RaggedDotGeneral: alone(bilinear),
        **dict.fromkeys((SelectN, ScatterAdd, ScatterSub, DynamicSlice, DynamicUpdateSlice), jointly_linear),
        Gather: gathered,
        ScatterMul: scattered_product,
        ReduceProd: alone(multiplied_over),
        CumProd: alone(multiplied_along),
        CumLogSumExp: alone(summed_along),
        **dict.fromkeys((ConvertElementType, Split, Unstack), linear),
        **dict.fromkeys((Rem, Clamp, CumMax, CumMin, Scatter, OptimizationBarrier), locally_linear),
        **dict.fromkeys((Sort, TopK, ApproxTopK), locally_linear),
        ReduceWindowSum: linear,
        **dict.fromkeys((ReduceWindowMax, ReduceWindowMin, SelectAndGatherAdd, SelectAndScatterAdd), locally_linear),
        **dict.fromkeys((Cholesky, TriangularSolve, TridiagonalSolve, Lu, Qr, Eigh, Eig, Svd), derived),
        BitcastConvertType: still,
        **dict.fromkeys(SLOPES, alone(transcendental)),
        **dict.fromkeys(DIVISORS, alone(logarithmic)),
    }
)
FAMILIES: Final[Mapping[type, Rule]] = MappingProxyType(
    {
        NonDifferentiable: still,
        ArgExtremum: still,
        LinearOperation: jointly_linear,
        LinearElementwise: jointly_linear,
        LinearCollective: linear,
        Extreme: locally_linear,
        Extremum: locally_linear,
        Extremal: locally_linear,
    }
)
