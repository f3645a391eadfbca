"""Samples of elementwise, shape, indexing and collective primitives."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

import tracefx as fx
from tests.laws.samples.making import (
    Sample,
    binary_sample,
    collective_sample,
    f32,
    grid,
    i32,
    make_sample,
    unary_sample,
    with_false_derivative,
)
from tracefx import NamedSharding, P, make_mesh
from tracefx.core import dtypes
from tracefx.core.primitive import Primitive
from tracefx.ops.annotations.optimization_barrier import OptimizationBarrier
from tracefx.ops.annotations.sharding_constraint import ShardingConstraint
from tracefx.ops.collectives.collective import AxisIndex, PMax, PMin, PSum
from tracefx.ops.collectives.exchange import AllGather, AllToAll, PPermute, ReduceScatter
from tracefx.ops.contractions.contraction import DotGeneral
from tracefx.ops.elementwise import (
    abs_sign,
    arithmetic,
    atan2_nextafter,
    bitwise,
    comparison,
    powers,
    rounding,
    special,
    transcendental,
)
from tracefx.ops.elementwise.bit_representation import BitcastConvertType, Clz, PopulationCount, ReducePrecision
from tracefx.ops.elementwise.complex import Complex, Conj, Imag, IsFinite, Real
from tracefx.ops.elementwise.elementwise import Add
from tracefx.ops.elementwise.selection import Clamp, SelectN, StopGradient
from tracefx.ops.indexing.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from tracefx.ops.indexing.gather_scatter_add import Gather, GatherDimensionNumbers, ScatterAdd, ScatterDimensionNumbers
from tracefx.ops.indexing.indexed_windows import GatherScatterMode
from tracefx.ops.indexing.scatter import Scatter, ScatterMax, ScatterMin, ScatterMul
from tracefx.ops.reductions.cumulative import CumLogSumExp, CumMax, CumMin, CumProd, CumSum
from tracefx.ops.reductions.reduction import (
    ArgMax,
    ArgMin,
    ReduceAnd,
    ReduceMax,
    ReduceMin,
    ReduceOr,
    ReduceProd,
    ReduceXor,
)
from tracefx.ops.shape.array_creation import Iota
from tracefx.ops.shape.shape import Concatenate, Split, Squeeze, Stack, Tile
from tracefx.ops.shape.slicing import Pad, Rev, Slice
from tracefx.ops.structural import BroadcastInDim, ConvertElementType, ReduceSum, Reshape, Transpose

BITS: Final = np.array([0b1100, 0b1010, -1], np.int32), np.array([0b0110, -2, 3], np.int32)
TRUTHS: Final = np.array([[True, False], [True, True]]), np.array([[False, False], [True, True]])
PLACES: Final = (np.array([[2], [0]], np.int32), np.array([[1], [7]], np.int32))
ROWS: Final = GatherDimensionNumbers((1,), (0,), (0,))
INTO_ROWS: Final = ScatterDimensionNumbers((1,), (0,), (0,))
CLIP: Final = GatherScatterMode.CLIP
DROP: Final = GatherScatterMode.FILL_OR_DROP


def trigamma(x: Any) -> Any:
    """There is no derivative with respect to the order."""
    return special.polygamma(fx.lax.stop_gradient(x * 0 + 1), x)


def zeta_of_three(x: Any) -> Any:
    """There is no derivative with respect to the exponent."""
    return special.zeta(fx.lax.stop_gradient(x * 0 + 3), x)


def scattered(kind: type[Primitive], mode: GatherScatterMode) -> Sample:
    fields: Any = kind
    updates = grid(2, 4) / 3
    unique = kind is ScatterMul  # the only mode with derivatives
    return make_sample(
        fields(INTO_ROWS, False, unique, mode), (grid(3, 4), PLACES[0], updates), (grid(3, 4), PLACES[1], updates)
    )


SAMPLES: Final[tuple[Sample, ...]] = (
    # structural primitives and iota
    make_sample(ConvertElementType(dtypes.float64), (f32([0.5, -2.0]),), (i32(1, -3),)),
    make_sample(ConvertElementType(dtypes.int8), (f32([0.5, -2.0]),), (i32(1, 300),)),
    make_sample(ConvertElementType(dtypes.float32, weak_type=True), (f32([0.5, -2.0]),)),
    make_sample(Reshape((3, 2)), (grid(2, 3),), (i32([1, 2], [3, 4], [5, 6]),)),
    make_sample(Transpose((1, 2, 0)), (grid(2, 3, 1),)),
    make_sample(BroadcastInDim((2, 3, 2), (0, 2)), (grid(2, 2),), (grid(1, 2),)),
    make_sample(BroadcastInDim((2,), ()), (0.5,)),
    make_sample(ReduceSum((0, 2)), (grid(2, 3, 2),), (i32([[1, 2]], [[3, 4]]),)),
    make_sample(Iota(dtypes.int32, (2, 3), 1), ()),
    # elementwise
    binary_sample(Add(), [0.5, -1.25, 3.0], [2.0, 0.75, -1.0]),
    unary_sample(arithmetic.Neg(), 0.5, -1.25, 3.0),
    binary_sample(arithmetic.Sub(), [0.5, -1.25, 3.0], [2.0, 0.75, -1.0]),
    binary_sample(arithmetic.Mul(), [0.5, -1.25, 3.0], [2.0, 0.75, -1.0]),
    binary_sample(arithmetic.Div(), [0.5, -1.25, 3.0], [2.0, 0.75, -1.0]),
    binary_sample(arithmetic.Rem(), [5.5, -4.25, 3.0], [2.0, 0.75, -1.25]),
    binary_sample(arithmetic.Max(), [0.5, -1.25, 3.0], [2.0, 0.75, -1.0]),
    binary_sample(arithmetic.Min(), [0.5, -1.25, 3.0], [2.0, 0.75, -1.0]),
    unary_sample(abs_sign.Abs(), 0.5, -1.25, 3.0),
    make_sample(abs_sign.Abs(), (np.array([3 - 4j, 1j], np.complex64),)),
    unary_sample(abs_sign.Sign(), 0.5, -1.25, 3.0),
    binary_sample(powers.Pow(), [0.5, 1.25, 3.0], [2.0, 0.75, -1.0]),
    unary_sample(powers.IntegerPow(3), 0.5, -1.25, 3.0),
    unary_sample(powers.IntegerPow(-2), 0.5, -1.25, 3.0),
    unary_sample(powers.Square(), 0.5, -1.25, 3.0),
    unary_sample(rounding.Floor(), 0.5, -1.25, 3.25),
    unary_sample(rounding.Ceil(), 0.5, -1.25, 3.25),
    unary_sample(rounding.Round(rounding.RoundingMethod.AWAY_FROM_ZERO), 0.25, -1.25, 3.75),
    unary_sample(rounding.Round(rounding.RoundingMethod.TO_NEAREST_EVEN), 0.25, -1.25, 3.75),
    make_sample(Real(), (np.array([3 - 4j, 1j], np.complex64),)),
    make_sample(Imag(), (np.array([3 - 4j, 1j], np.complex64),)),
    binary_sample(Complex(), [0.5, -1.25, 3.0], [2.0, 0.75, -1.0]),
    make_sample(Conj(dtypes.complex64), (np.array([3 - 4j, 1j], np.complex64),)),
    make_sample(Conj(dtypes.float32), (f32(0.5, -2.0),)),
    unary_sample(IsFinite(), 0.5, np.inf, np.nan),
    unary_sample(transcendental.Exp(), 0.5, -1.25, 3.0),
    make_sample(transcendental.Exp(), (np.array([0.5 - 1j, 1j], np.complex64),)),
    unary_sample(transcendental.Exp2(), 0.5, -1.25, 3.0),
    unary_sample(transcendental.Expm1(), 0.5, -1.25, 3.0),
    unary_sample(transcendental.Log(), 0.5, 1.25, 3.0),
    unary_sample(transcendental.Log1p(), 0.5, -0.25, 3.0),
    unary_sample(transcendental.Logistic(), 0.5, -1.25, 3.0),
    unary_sample(transcendental.Sin(), 0.5, -1.25, 3.0),
    unary_sample(transcendental.Cos(), 0.5, -1.25, 3.0),
    unary_sample(transcendental.Tan(), 0.5, -1.25, 0.25),
    unary_sample(transcendental.Asin(), 0.5, -0.25, 0.75),
    unary_sample(transcendental.Acos(), 0.5, -0.25, 0.75),
    unary_sample(transcendental.Atan(), 0.5, -1.25, 3.0),
    unary_sample(transcendental.Sinh(), 0.5, -1.25, 3.0),
    unary_sample(transcendental.Cosh(), 0.5, -1.25, 3.0),
    unary_sample(transcendental.Tanh(), 0.5, -1.25, 2.0),
    unary_sample(transcendental.Asinh(), 0.5, -1.25, 3.0),
    unary_sample(transcendental.Acosh(), 1.5, 2.25, 3.0),
    unary_sample(transcendental.Atanh(), 0.5, -0.25, 0.75),
    unary_sample(transcendental.Sqrt(), 0.5, 1.25, 3.0),
    unary_sample(transcendental.Rsqrt(), 0.5, 1.25, 3.0),
    unary_sample(transcendental.Cbrt(), 0.5, -1.25, 3.0),
    unary_sample(special.Erf(), 0.5, -1.25, 0.25),
    unary_sample(special.Erfc(), 0.5, -1.25, 0.25),
    unary_sample(special.ErfInv(), 0.5, -0.75, 0.25),
    unary_sample(special.Lgamma(), 0.5, 1.25, 3.0),
    unary_sample(special.Digamma(), 0.5, 1.25, 3.0),
    Sample(special.Polygamma(), ((f32(0.5, 1.25, 3.0),),), trigamma),
    Sample(special.Zeta(), ((f32(0.5, 1.25, 3.0),),), zeta_of_three),
    binary_sample(atan2_nextafter.Atan2(), [0.5, -1.25, 3.0], [2.0, 0.75, -1.0]),
    with_false_derivative(binary_sample(atan2_nextafter.NextAfter(), [0.5, -1.25, 3.0], [2.0, 0.75, -1.0])),
    *[
        binary_sample(prim, [0.5, -1.25, 3.0], [0.5, 0.75, -1.0])
        for prim in (comparison.Eq(), comparison.Ne(), comparison.Lt())
    ],
    *[
        binary_sample(prim, [0.5, -1.25, 3.0], [0.5, 0.75, -1.0])
        for prim in (comparison.Le(), comparison.Gt(), comparison.Ge())
    ],
    *[make_sample(prim, BITS, TRUTHS, (BITS[0], 3)) for prim in (bitwise.And(), bitwise.Or(), bitwise.Xor())],
    make_sample(bitwise.Not(), (BITS[0],), (TRUTHS[0],)),
    make_sample(bitwise.ShiftLeft(), BITS, (BITS[0], 3)),
    make_sample(bitwise.ShiftRightLogical(), BITS, (BITS[0], 3)),
    make_sample(bitwise.ShiftRightArithmetic(), BITS, (BITS[0], 3)),
    make_sample(PopulationCount(), (BITS[0],)),
    make_sample(Clz(), (BITS[1],)),
    make_sample(BitcastConvertType(dtypes.int32), (f32(0.5, -2.0),)),
    with_false_derivative(make_sample(ReducePrecision(5, 10), (f32(0.5, -2.25),))),
    make_sample(SelectN(), (TRUTHS[0], grid(2, 2), grid(2, 2) + 3), (i32(2, 0), f32(1, 2), f32(3, 4), f32(5, 6))),
    make_sample(Clamp(), (f32(0, -1), f32(0.5, 3.0), f32(1.0, 2.0)), (-1.0, f32(0.5, 3.0), 2.0)),
    with_false_derivative(unary_sample(StopGradient(), 0.5, -1.25, 3.0)),
    # shapes
    make_sample(Squeeze((0, 2)), (grid(1, 3, 1),)),
    make_sample(Concatenate(1), (grid(2, 2), grid(2, 1) + 3, grid(2, 3) - 3), (grid(2, 0), grid(2, 1))),
    make_sample(Stack(1), (grid(2, 2), grid(2, 2) + 3)),
    make_sample(Split((1, 2), 1), (grid(2, 3),)),
    make_sample(Tile((2, 1, 3)), (grid(1, 2, 2),)),
    make_sample(Slice((0, 1), (2, 5), (1, 2)), (grid(2, 6),)),
    make_sample(Slice((0, 1), (2, 5), None), (grid(2, 6),)),
    make_sample(Pad(((1, 0, 2), (-1, 2, 0))), (grid(2, 3), 0.5)),
    make_sample(Rev((0, 1)), (grid(2, 3),)),
    # contraction, reduction, scans
    make_sample(DotGeneral((((1,), (0,)), ((), ()))), (grid(2, 3), grid(3, 2) + 0.5)),
    make_sample(DotGeneral((((2,), (1,)), ((0,), (2,)))), (grid(2, 1, 3), grid(2, 3, 2) + 0.5)),
    make_sample(ReduceMax((1,)), (grid(2, 3),), (i32([1, 2, 2]),)),
    make_sample(ReduceMin((0, 1)), (grid(2, 3),)),
    make_sample(ReduceProd((1,)), (grid(2, 3),), (i32([1, 2, 2]),)),
    *[make_sample(kind((1,)), (TRUTHS[0],), (i32([3, 5], [6, -1]),)) for kind in (ReduceAnd, ReduceOr, ReduceXor)],
    make_sample(ArgMax((1,), dtypes.int32), (grid(2, 3),)),
    make_sample(ArgMin((0,), dtypes.int8), (grid(2, 3),)),
    make_sample(CumSum(1, False), (grid(2, 3),)),
    make_sample(CumProd(0, True), (grid(2, 3),)),
    make_sample(CumMax(1, False), (grid(2, 3),)),
    make_sample(CumMin(1, True), (grid(2, 3),)),
    make_sample(CumLogSumExp(1, False), (grid(2, 3),)),
    # indexing
    make_sample(Gather(ROWS, (1, 4), False, False, CLIP, None), (grid(3, 4), PLACES[0]), (grid(3, 4), PLACES[1])),
    make_sample(Gather(ROWS, (1, 4), False, False, DROP, -1.0), (grid(3, 4), PLACES[1])),
    scattered(ScatterAdd, CLIP),
    scattered(ScatterAdd, DROP),
    scattered(Scatter, DROP),
    scattered(ScatterMul, CLIP),
    scattered(ScatterMin, DROP),
    scattered(ScatterMax, CLIP),
    make_sample(DynamicSlice((1, 2)), (grid(2, 4), np.int32(1), np.int32(3))),
    make_sample(DynamicUpdateSlice(), (grid(2, 4), grid(1, 2) + 3, np.int32(1), np.int32(3))),
    make_sample(OptimizationBarrier(), (grid(2, 3), i32(1, 2))),
    # named axes
    collective_sample(PSum(("i",), (2,)), (grid(2, 3),)),
    collective_sample(PMax(("i",), (2,)), (grid(2, 3),)),
    collective_sample(PMin(("i",), (2,)), (grid(2, 3),)),
    collective_sample(AxisIndex("i", 2), ()),
    collective_sample(AllGather(0, ("i",), 2, False), (grid(2, 3),)),
    collective_sample(ReduceScatter(0, ("i",), 2, True), (grid(2, 4),)),
    collective_sample(PPermute(("i",), ((0, 1), (1, 0)), 2), (grid(2, 3),)),
    collective_sample(AllToAll("i", 0, 0, False, 2), (grid(2, 2, 3),)),
    # devices
    make_sample(
        ShardingConstraint(NamedSharding(make_mesh((2, 2), ("x", "y")), P(None, "y"))), (grid(2, 4),), (grid(3, 2),)
    ),
)
