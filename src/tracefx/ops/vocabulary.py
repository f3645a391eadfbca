"""`OPERATIONS`, the tuple of all first-order primitive classes: for the parser, the documentation and tests."""

from __future__ import annotations

from typing import Final

from tracefx.core.primitive import Primitive
from tracefx.ops.annotations.optimization_barrier import OptimizationBarrier
from tracefx.ops.annotations.sharding_constraint import ShardingConstraint
from tracefx.ops.collectives.collective import AxisIndex, PMax, PMin, PSum
from tracefx.ops.collectives.exchange import AllGather, AllToAll, PPermute, ReduceScatter
from tracefx.ops.contractions.contraction import DotGeneral
from tracefx.ops.contractions.convolution import ConvGeneralDilated
from tracefx.ops.contractions.ragged_dot import RaggedDotGeneral
from tracefx.ops.contractions.scaled_dot import ScaledDot
from tracefx.ops.elementwise.abs_sign import Abs, Sign
from tracefx.ops.elementwise.arithmetic import Div, Max, Min, Mul, Neg, Rem, Sub
from tracefx.ops.elementwise.atan2_nextafter import Atan2, NextAfter
from tracefx.ops.elementwise.bit_representation import BitcastConvertType, Clz, PopulationCount, ReducePrecision
from tracefx.ops.elementwise.bitwise import And, Not, Or, ShiftLeft, ShiftRightArithmetic, ShiftRightLogical, Xor
from tracefx.ops.elementwise.comparison import Eq, Ge, Gt, Le, Lt, Ne
from tracefx.ops.elementwise.complex import Complex, Conj, Imag, IsFinite, Real
from tracefx.ops.elementwise.elementwise import Add
from tracefx.ops.elementwise.mulhi import MulHi
from tracefx.ops.elementwise.powers import IntegerPow, Pow, Square
from tracefx.ops.elementwise.rounding import Ceil, Floor, Round
from tracefx.ops.elementwise.selection import Clamp, SelectN, StopGradient
from tracefx.ops.elementwise.special import Digamma, Erf, Erfc, ErfInv, Lgamma, Polygamma, Zeta
from tracefx.ops.elementwise.transcendental import (
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
from tracefx.ops.fourier import Fft
from tracefx.ops.indexing.along_axis import Unstack
from tracefx.ops.indexing.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from tracefx.ops.indexing.gather_scatter_add import Gather, ScatterAdd
from tracefx.ops.indexing.scatter import Scatter, ScatterMax, ScatterMin, ScatterMul, ScatterSub
from tracefx.ops.indexing.sorting import Sort
from tracefx.ops.indexing.top_k import ApproxTopK, TopK
from tracefx.ops.linalg.cholesky import Cholesky, CholeskyUpdate, SymmetricProduct
from tracefx.ops.linalg.eigen import Eig, Eigh
from tracefx.ops.linalg.lu import Lu, LuPivotsToPermutation
from tracefx.ops.linalg.qr import Geqp3, Geqrf, HouseholderProduct, Ormqr, Qr
from tracefx.ops.linalg.schur import Hessenberg, Schur, Tridiagonal
from tracefx.ops.linalg.svd import Svd
from tracefx.ops.linalg.triangular_solve import TriangularSolve
from tracefx.ops.linalg.tridiagonal_solve import TridiagonalSolve
from tracefx.ops.random.prng import (
    RandomBits,
    RandomClone,
    RandomFoldIn,
    RandomSeed,
    RandomSplit,
    RandomUnwrap,
    RandomWrap,
)
from tracefx.ops.random.rng_bit_generator import RngBitGenerator
from tracefx.ops.random.threefry import Threefry2x32
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
from tracefx.ops.reductions.select_and_scatter import SelectAndGatherAdd, SelectAndScatterAdd
from tracefx.ops.reductions.window_reduction import ReduceWindowMax, ReduceWindowMin, ReduceWindowSum
from tracefx.ops.shape.array_creation import Iota
from tracefx.ops.shape.shape import Concatenate, Split, Squeeze, Stack, Tile
from tracefx.ops.shape.slicing import Pad, Rev, Slice
from tracefx.ops.structural import BroadcastInDim, ConvertElementType, ReduceSum, Reshape, Transpose

OPERATIONS: Final[tuple[type[Primitive], ...]] = (
    # structural
    ConvertElementType,
    Reshape,
    Transpose,
    BroadcastInDim,
    ReduceSum,
    # array creation
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
    # absolute value and sign
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
    # two-operand functions
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
    # high bits of products
    MulHi,
    # bit representation
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
    # slicing and padding
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
    # other scatters
    Scatter,
    ScatterSub,
    ScatterMul,
    ScatterMin,
    ScatterMax,
    # sorting
    Sort,
    TopK,
    ApproxTopK,
    # dynamic slicing
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
    # reducing collectives
    PSum,
    PMax,
    PMin,
    AxisIndex,
    # data-exchanging collectives
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
