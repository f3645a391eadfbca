"""All first-order operations, for those who go from names to operations: the parser, documentation, tests."""

from __future__ import annotations

from typing import Final

from tracefx.core.primitive import Primitive
from tracefx.ops.along_axis import Unstack
from tracefx.ops.arithmetic import Div, Max, Min, Mul, Neg, Rem, Sub
from tracefx.ops.barrier import OptimizationBarrier
from tracefx.ops.basis import BroadcastInDim, ConvertElementType, ReduceSum, Reshape, Transpose
from tracefx.ops.bit_generator import RngBitGenerator
from tracefx.ops.bitwise import And, Not, Or, ShiftLeft, ShiftRightArithmetic, ShiftRightLogical, Xor
from tracefx.ops.collective import AxisIndex, PMax, PMin, PSum
from tracefx.ops.comparison import Eq, Ge, Gt, Le, Lt, Ne
from tracefx.ops.complex import Complex, Conj, Imag, IsFinite, Real
from tracefx.ops.contraction import DotGeneral
from tracefx.ops.convolution import ConvGeneralDilated
from tracefx.ops.cumulative import CumLogSumExp, CumMax, CumMin, CumProd, CumSum
from tracefx.ops.cutting import Pad, Rev, Slice
from tracefx.ops.dynamic import DynamicSlice, DynamicUpdateSlice
from tracefx.ops.elementwise import Add
from tracefx.ops.exchange import AllGather, AllToAll, PPermute, ReduceScatter
from tracefx.ops.filling import Iota
from tracefx.ops.fourier import Fft
from tracefx.ops.greatest import ApproxTopK, TopK
from tracefx.ops.high_product import MulHi
from tracefx.ops.indexing import Gather, ScatterAdd
from tracefx.ops.keys import RandomBits, RandomClone, RandomFoldIn, RandomSeed, RandomSplit, RandomUnwrap, RandomWrap
from tracefx.ops.linalg.cholesky import Cholesky, CholeskyUpdate, SymmetricProduct
from tracefx.ops.linalg.eigen import Eig, Eigh
from tracefx.ops.linalg.lu import Lu, LuPivotsToPermutation
from tracefx.ops.linalg.qr import Geqp3, Geqrf, HouseholderProduct, Ormqr, Qr
from tracefx.ops.linalg.schur import Hessenberg, Schur, Tridiagonal
from tracefx.ops.linalg.svd import Svd
from tracefx.ops.linalg.triangular import TriangularSolve
from tracefx.ops.linalg.tridiagonal import TridiagonalSolve
from tracefx.ops.magnitude import Abs, Sign
from tracefx.ops.pairs import Atan2, NextAfter
from tracefx.ops.powers import IntegerPow, Pow, Square
from tracefx.ops.ragged import RaggedDotGeneral
from tracefx.ops.reduction import ArgMax, ArgMin, ReduceAnd, ReduceMax, ReduceMin, ReduceOr, ReduceProd, ReduceXor
from tracefx.ops.representation import BitcastConvertType, Clz, PopulationCount, ReducePrecision
from tracefx.ops.rounding import Ceil, Floor, Round
from tracefx.ops.scaled import ScaledDot
from tracefx.ops.scattering import Scatter, ScatterMax, ScatterMin, ScatterMul, ScatterSub
from tracefx.ops.selection import Clamp, SelectN, StopGradient
from tracefx.ops.shape import Concatenate, Split, Squeeze, Stack, Tile
from tracefx.ops.sharding import ShardingConstraint
from tracefx.ops.sorting import Sort
from tracefx.ops.special import Digamma, Erf, Erfc, ErfInv, Lgamma, Polygamma, Zeta
from tracefx.ops.threefry import Threefry2x32
from tracefx.ops.transcendental import (
    Acos,
    Acosh,
    Asin,
    Asinh,
    Atan,
    Atanh,
    Cbrt,
    Cos,
    Cosh,
    Exp,
    Exp2,
    Expm1,
    Log,
    Log1p,
    Logistic,
    Rsqrt,
    Sin,
    Sinh,
    Sqrt,
    Tan,
    Tanh,
)
from tracefx.ops.window_reduction import ReduceWindowMax, ReduceWindowMin, ReduceWindowSum
from tracefx.ops.window_selection import SelectAndGatherAdd, SelectAndScatterAdd

OPERATIONS: Final[tuple[type[Primitive], ...]] = (
    # basis
    ConvertElementType,
    Reshape,
    Transpose,
    BroadcastInDim,
    ReduceSum,
    # filling
    Iota,
    # elementwise
    Add,
    # arithmetic
    Neg,
    Sub,
    Mul,
    Div,
    Rem,
    Max,
    Min,
    # magnitude
    Abs,
    Sign,
    # powers
    Pow,
    IntegerPow,
    Square,
    # rounding
    Floor,
    Ceil,
    Round,
    # complex
    Real,
    Imag,
    Complex,
    Conj,
    IsFinite,
    # transcendental
    Exp,
    Exp2,
    Expm1,
    Log,
    Log1p,
    Logistic,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Tanh,
    Asinh,
    Acosh,
    Atanh,
    Sqrt,
    Rsqrt,
    Cbrt,
    # special
    Erf,
    Erfc,
    ErfInv,
    Lgamma,
    Digamma,
    Polygamma,
    Zeta,
    # pairs
    Atan2,
    NextAfter,
    # comparison
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    # bitwise
    And,
    Or,
    Xor,
    Not,
    ShiftLeft,
    ShiftRightLogical,
    ShiftRightArithmetic,
    # high product
    MulHi,
    # representation
    PopulationCount,
    Clz,
    BitcastConvertType,
    ReducePrecision,
    # selection
    SelectN,
    Clamp,
    StopGradient,
    # shape
    Squeeze,
    Concatenate,
    Stack,
    Split,
    Tile,
    Unstack,
    # cutting
    Slice,
    Pad,
    Rev,
    # contraction
    DotGeneral,
    ConvGeneralDilated,
    RaggedDotGeneral,
    ScaledDot,
    # reduction
    ReduceMax,
    ReduceMin,
    ReduceProd,
    ReduceAnd,
    ReduceOr,
    ReduceXor,
    ArgMax,
    ArgMin,
    # windows
    ReduceWindowSum,
    ReduceWindowMax,
    ReduceWindowMin,
    SelectAndGatherAdd,
    SelectAndScatterAdd,
    # cumulative
    CumSum,
    CumProd,
    CumMax,
    CumMin,
    CumLogSumExp,
    # fourier
    Fft,
    # indexing
    Gather,
    ScatterAdd,
    # scattering
    Scatter,
    ScatterSub,
    ScatterMul,
    ScatterMin,
    ScatterMax,
    # sorting
    Sort,
    TopK,
    ApproxTopK,
    # dynamic
    DynamicSlice,
    DynamicUpdateSlice,
    # random keys and bits
    Threefry2x32,
    RngBitGenerator,
    RandomSeed,
    RandomSplit,
    RandomFoldIn,
    RandomBits,
    RandomClone,
    RandomWrap,
    RandomUnwrap,
    # barrier
    OptimizationBarrier,
    # collective
    PSum,
    PMax,
    PMin,
    AxisIndex,
    # exchange
    AllGather,
    ReduceScatter,
    PPermute,
    AllToAll,
    # sharding
    ShardingConstraint,
    # linear algebra
    Cholesky,
    CholeskyUpdate,
    SymmetricProduct,
    TriangularSolve,
    Lu,
    LuPivotsToPermutation,
    Geqrf,
    Geqp3,
    HouseholderProduct,
    Ormqr,
    Qr,
    Eigh,
    Eig,
    Schur,
    Hessenberg,
    Tridiagonal,
    TridiagonalSolve,
    Svd,
)
