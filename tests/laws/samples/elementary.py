"""Samples of the elementary operations: those on elements, shapes, indices and named axes."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

import tracefx as fx
from tests.laws.samples.making import Sample, along, f32, flat, grid, i32, of, one, two
from tracefx import NamedSharding, P, make_mesh
from tracefx.core import dtypes
from tracefx.core.primitive import Primitive
from tracefx.ops import arithmetic, bitwise, comparison, magnitude, pairs, powers, rounding, special, transcendental
from tracefx.ops.barrier import OptimizationBarrier
from tracefx.ops.basis import BroadcastInDim, ConvertElementType, ReduceSum, Reshape, Transpose
from tracefx.ops.collective import AxisIndex, PMax, PMin, PSum
from tracefx.ops.complex import Complex, Conj, Imag, IsFinite, Real
from tracefx.ops.contraction import DotGeneral
from tracefx.ops.cumulative import CumLogSumExp, CumMax, CumMin, CumProd, CumSum
from tracefx.ops.cutting import Pad, Rev, Slice
from tracefx.ops.dynamic import DynamicSlice, DynamicUpdateSlice
from tracefx.ops.elementwise import Add
from tracefx.ops.exchange import AllGather, AllToAll, PPermute, ReduceScatter
from tracefx.ops.filling import Iota
from tracefx.ops.indexing import Gather, GatherDimensionNumbers, ScatterAdd, ScatterDimensionNumbers
from tracefx.ops.reduction import ArgMax, ArgMin, ReduceAnd, ReduceMax, ReduceMin, ReduceOr, ReduceProd, ReduceXor
from tracefx.ops.representation import BitcastConvertType, Clz, PopulationCount, ReducePrecision
from tracefx.ops.scattering import Scatter, ScatterMax, ScatterMin, ScatterMul
from tracefx.ops.selection import Clamp, SelectN, StopGradient
from tracefx.ops.shape import Concatenate, Split, Squeeze, Stack, Tile
from tracefx.ops.sharding import ShardingConstraint
from tracefx.ops.windows import GatherScatterMode

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
    unique = kind is ScatterMul  # which has derivatives only then
    return of(
        fields(INTO_ROWS, False, unique, mode), (grid(3, 4), PLACES[0], updates), (grid(3, 4), PLACES[1], updates)
    )


SAMPLES: Final[tuple[Sample, ...]] = (
    # basis and filling
    of(ConvertElementType(dtypes.float64), (f32([0.5, -2.0]),), (i32(1, -3),)),
    of(ConvertElementType(dtypes.int8), (f32([0.5, -2.0]),), (i32(1, 300),)),
    of(ConvertElementType(dtypes.float32, weak_type=True), (f32([0.5, -2.0]),)),
    of(Reshape((3, 2)), (grid(2, 3),), (i32([1, 2], [3, 4], [5, 6]),)),
    of(Transpose((1, 2, 0)), (grid(2, 3, 1),)),
    of(BroadcastInDim((2, 3, 2), (0, 2)), (grid(2, 2),), (grid(1, 2),)),
    of(BroadcastInDim((2,), ()), (0.5,)),
    of(ReduceSum((0, 2)), (grid(2, 3, 2),), (i32([[1, 2]], [[3, 4]]),)),
    of(Iota(dtypes.int32, (2, 3), 1), ()),
    # element by element
    two(Add(), [0.5, -1.25, 3.0], [2.0, 0.75, -1.0]),
    one(arithmetic.Neg(), 0.5, -1.25, 3.0),
    two(arithmetic.Sub(), [0.5, -1.25, 3.0], [2.0, 0.75, -1.0]),
    two(arithmetic.Mul(), [0.5, -1.25, 3.0], [2.0, 0.75, -1.0]),
    two(arithmetic.Div(), [0.5, -1.25, 3.0], [2.0, 0.75, -1.0]),
    two(arithmetic.Rem(), [5.5, -4.25, 3.0], [2.0, 0.75, -1.25]),
    two(arithmetic.Max(), [0.5, -1.25, 3.0], [2.0, 0.75, -1.0]),
    two(arithmetic.Min(), [0.5, -1.25, 3.0], [2.0, 0.75, -1.0]),
    one(magnitude.Abs(), 0.5, -1.25, 3.0),
    of(magnitude.Abs(), (np.array([3 - 4j, 1j], np.complex64),)),
    one(magnitude.Sign(), 0.5, -1.25, 3.0),
    two(powers.Pow(), [0.5, 1.25, 3.0], [2.0, 0.75, -1.0]),
    one(powers.IntegerPow(3), 0.5, -1.25, 3.0),
    one(powers.IntegerPow(-2), 0.5, -1.25, 3.0),
    one(powers.Square(), 0.5, -1.25, 3.0),
    one(rounding.Floor(), 0.5, -1.25, 3.25),
    one(rounding.Ceil(), 0.5, -1.25, 3.25),
    one(rounding.Round(rounding.RoundingMethod.AWAY_FROM_ZERO), 0.25, -1.25, 3.75),
    one(rounding.Round(rounding.RoundingMethod.TO_NEAREST_EVEN), 0.25, -1.25, 3.75),
    of(Real(), (np.array([3 - 4j, 1j], np.complex64),)),
    of(Imag(), (np.array([3 - 4j, 1j], np.complex64),)),
    two(Complex(), [0.5, -1.25, 3.0], [2.0, 0.75, -1.0]),
    of(Conj(dtypes.complex64), (np.array([3 - 4j, 1j], np.complex64),)),
    of(Conj(dtypes.float32), (f32(0.5, -2.0),)),
    one(IsFinite(), 0.5, np.inf, np.nan),
    one(transcendental.Exp(), 0.5, -1.25, 3.0),
    of(transcendental.Exp(), (np.array([0.5 - 1j, 1j], np.complex64),)),
    one(transcendental.Exp2(), 0.5, -1.25, 3.0),
    one(transcendental.Expm1(), 0.5, -1.25, 3.0),
    one(transcendental.Log(), 0.5, 1.25, 3.0),
    one(transcendental.Log1p(), 0.5, -0.25, 3.0),
    one(transcendental.Logistic(), 0.5, -1.25, 3.0),
    one(transcendental.Sin(), 0.5, -1.25, 3.0),
    one(transcendental.Cos(), 0.5, -1.25, 3.0),
    one(transcendental.Tan(), 0.5, -1.25, 0.25),
    one(transcendental.Asin(), 0.5, -0.25, 0.75),
    one(transcendental.Acos(), 0.5, -0.25, 0.75),
    one(transcendental.Atan(), 0.5, -1.25, 3.0),
    one(transcendental.Sinh(), 0.5, -1.25, 3.0),
    one(transcendental.Cosh(), 0.5, -1.25, 3.0),
    one(transcendental.Tanh(), 0.5, -1.25, 2.0),
    one(transcendental.Asinh(), 0.5, -1.25, 3.0),
    one(transcendental.Acosh(), 1.5, 2.25, 3.0),
    one(transcendental.Atanh(), 0.5, -0.25, 0.75),
    one(transcendental.Sqrt(), 0.5, 1.25, 3.0),
    one(transcendental.Rsqrt(), 0.5, 1.25, 3.0),
    one(transcendental.Cbrt(), 0.5, -1.25, 3.0),
    one(special.Erf(), 0.5, -1.25, 0.25),
    one(special.Erfc(), 0.5, -1.25, 0.25),
    one(special.ErfInv(), 0.5, -0.75, 0.25),
    one(special.Lgamma(), 0.5, 1.25, 3.0),
    one(special.Digamma(), 0.5, 1.25, 3.0),
    Sample(special.Polygamma(), ((f32(0.5, 1.25, 3.0),),), trigamma),
    Sample(special.Zeta(), ((f32(0.5, 1.25, 3.0),),), zeta_of_three),
    two(pairs.Atan2(), [0.5, -1.25, 3.0], [2.0, 0.75, -1.0]),
    flat(two(pairs.NextAfter(), [0.5, -1.25, 3.0], [2.0, 0.75, -1.0])),
    *[two(prim, [0.5, -1.25, 3.0], [0.5, 0.75, -1.0]) for prim in (comparison.Eq(), comparison.Ne(), comparison.Lt())],
    *[two(prim, [0.5, -1.25, 3.0], [0.5, 0.75, -1.0]) for prim in (comparison.Le(), comparison.Gt(), comparison.Ge())],
    *[of(prim, BITS, TRUTHS, (BITS[0], 3)) for prim in (bitwise.And(), bitwise.Or(), bitwise.Xor())],
    of(bitwise.Not(), (BITS[0],), (TRUTHS[0],)),
    of(bitwise.ShiftLeft(), BITS, (BITS[0], 3)),
    of(bitwise.ShiftRightLogical(), BITS, (BITS[0], 3)),
    of(bitwise.ShiftRightArithmetic(), BITS, (BITS[0], 3)),
    of(PopulationCount(), (BITS[0],)),
    of(Clz(), (BITS[1],)),
    of(BitcastConvertType(dtypes.int32), (f32(0.5, -2.0),)),
    flat(of(ReducePrecision(5, 10), (f32(0.5, -2.25),))),
    of(SelectN(), (TRUTHS[0], grid(2, 2), grid(2, 2) + 3), (i32(2, 0), f32(1, 2), f32(3, 4), f32(5, 6))),
    of(Clamp(), (f32(0, -1), f32(0.5, 3.0), f32(1.0, 2.0)), (-1.0, f32(0.5, 3.0), 2.0)),
    flat(one(StopGradient(), 0.5, -1.25, 3.0)),
    # shapes
    of(Squeeze((0, 2)), (grid(1, 3, 1),)),
    of(Concatenate(1), (grid(2, 2), grid(2, 1) + 3, grid(2, 3) - 3), (grid(2, 0), grid(2, 1))),
    of(Stack(1), (grid(2, 2), grid(2, 2) + 3)),
    of(Split((1, 2), 1), (grid(2, 3),)),
    of(Tile((2, 1, 3)), (grid(1, 2, 2),)),
    of(Slice((0, 1), (2, 5), (1, 2)), (grid(2, 6),)),
    of(Slice((0, 1), (2, 5), None), (grid(2, 6),)),
    of(Pad(((1, 0, 2), (-1, 2, 0))), (grid(2, 3), 0.5)),
    of(Rev((0, 1)), (grid(2, 3),)),
    # contraction, reduction, scans
    of(DotGeneral((((1,), (0,)), ((), ()))), (grid(2, 3), grid(3, 2) + 0.5)),
    of(DotGeneral((((2,), (1,)), ((0,), (2,)))), (grid(2, 1, 3), grid(2, 3, 2) + 0.5)),
    of(ReduceMax((1,)), (grid(2, 3),), (i32([1, 2, 2]),)),
    of(ReduceMin((0, 1)), (grid(2, 3),)),
    of(ReduceProd((1,)), (grid(2, 3),), (i32([1, 2, 2]),)),
    *[of(kind((1,)), (TRUTHS[0],), (i32([3, 5], [6, -1]),)) for kind in (ReduceAnd, ReduceOr, ReduceXor)],
    of(ArgMax((1,), dtypes.int32), (grid(2, 3),)),
    of(ArgMin((0,), dtypes.int8), (grid(2, 3),)),
    of(CumSum(1, False), (grid(2, 3),)),
    of(CumProd(0, True), (grid(2, 3),)),
    of(CumMax(1, False), (grid(2, 3),)),
    of(CumMin(1, True), (grid(2, 3),)),
    of(CumLogSumExp(1, False), (grid(2, 3),)),
    # indexing
    of(Gather(ROWS, (1, 4), False, False, CLIP, None), (grid(3, 4), PLACES[0]), (grid(3, 4), PLACES[1])),
    of(Gather(ROWS, (1, 4), False, False, DROP, -1.0), (grid(3, 4), PLACES[1])),
    scattered(ScatterAdd, CLIP),
    scattered(ScatterAdd, DROP),
    scattered(Scatter, DROP),
    scattered(ScatterMul, CLIP),
    scattered(ScatterMin, DROP),
    scattered(ScatterMax, CLIP),
    of(DynamicSlice((1, 2)), (grid(2, 4), np.int32(1), np.int32(3))),
    of(DynamicUpdateSlice(), (grid(2, 4), grid(1, 2) + 3, np.int32(1), np.int32(3))),
    of(OptimizationBarrier(), (grid(2, 3), i32(1, 2))),
    # named axes
    along(PSum(("i",), (2,)), (grid(2, 3),)),
    along(PMax(("i",), (2,)), (grid(2, 3),)),
    along(PMin(("i",), (2,)), (grid(2, 3),)),
    along(AxisIndex("i", 2), ()),
    along(AllGather(0, ("i",), 2, False), (grid(2, 3),)),
    along(ReduceScatter(0, ("i",), 2, True), (grid(2, 4),)),
    along(PPermute(("i",), ((0, 1), (1, 0)), 2), (grid(2, 3),)),
    along(AllToAll("i", 0, 0, False, 2), (grid(2, 2, 3),)),
    # devices
    of(ShardingConstraint(NamedSharding(make_mesh((2, 2), ("x", "y")), P(None, "y"))), (grid(2, 4),), (grid(3, 2),)),
)
