"""Samples of elementwise, shape, indexing and collective primitives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import attrs
import jax
import numpy as np
from jax import lax
from jax._src.lax import lax as jax_lax
from jax.sharding import NamedSharding as JaxNamedSharding

import tracefx as fx
from tests.laws.samples.making import (
    Function,
    Reference,
    Sample,
    binary_sample,
    collective_sample,
    f32,
    function_sample,
    grid,
    i32,
    make_sample,
    unary_sample,
    with_false_derivative,
)
from tracefx import NamedSharding, P, make_mesh
from tracefx.core import ShapedArray, dtypes
from tracefx.core.meshes import AbstractMesh, AxisType
from tracefx.core.primitive import Primitive
from tracefx.interop.jax.meshes import mesh_to_jax, spec_to_jax
from tracefx.ops.annotations.optimization_barrier import OptimizationBarrier
from tracefx.ops.annotations.reshard import MeshCast, Reshard
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
    hyperbolic,
    inverse_trigonometric,
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
from tracefx.ops.shape.dimension_value import DimensionValue
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


def _indexing(kind: type, dimension_numbers: Any) -> Any:
    fields: dict[str, Any] = attrs.asdict(dimension_numbers)
    return kind(**fields)


def _scatter(function: Function) -> Callable[[Any], Function]:
    def make(p: Any) -> Function:
        return partial(
            function,
            dimension_numbers=_indexing(lax.ScatterDimensionNumbers, p.dimension_numbers),
            indices_are_sorted=p.indices_are_sorted,
            unique_indices=p.unique_indices,
            mode=lax.GatherScatterMode[p.mode.name],
        )

    return make


def _gather(p: Any) -> Function:
    return partial(
        lax.gather,
        dimension_numbers=_indexing(lax.GatherDimensionNumbers, p.dimension_numbers),
        slice_sizes=p.slice_sizes,
        indices_are_sorted=p.indices_are_sorted,
        unique_indices=p.unique_indices,
        mode=lax.GatherScatterMode[p.mode.name],
        fill_value=p.fill_value,
    )


def _collective(function: Function) -> Callable[[Any], Function]:
    """A collective, called inside a `vmap` over the first axis of its operands."""

    def make(p: Any) -> Function:
        return lambda *xs: jax.vmap(lambda *each: function(p, *each), axis_name="i", axis_size=2)(*xs)

    return make


def _with_fields(function: Function, *fields: str) -> Callable[[Any], Function]:
    """A function whose trailing arguments are the named fields of the primitive."""
    return lambda p: lambda *xs: function(*xs, *[getattr(p, name) for name in fields])


def _reduction(function: Function) -> Callable[[Any], Function]:
    return lambda p: lambda x: function(x, axes=p.axes)


def _argminmax(function: Function) -> Callable[[Any], Function]:
    return lambda p: lambda x: function(x, p.axes[0], p.index_dtype)


def _cumulative(function: Function) -> Callable[[Any], Function]:
    return lambda p: lambda x: function(x, axis=p.axis, reverse=p.reverse)


def trigamma(x: Any) -> Any:
    """There is no derivative with respect to the order."""
    return special.polygamma(fx.lax.stop_gradient(x * 0 + 1), x)


def zeta_of_three(x: Any) -> Any:
    """There is no derivative with respect to the exponent."""
    return special.zeta(fx.lax.stop_gradient(x * 0 + 3), x)


def scattered(kind: type[Primitive], mode: GatherScatterMode, reference: Reference | None = None) -> Sample:
    fields: Any = kind
    updates = grid(2, 4) / 3
    unique = kind is ScatterMul  # the only mode with derivatives
    return make_sample(
        fields(INTO_ROWS, False, unique, mode),
        (grid(3, 4), PLACES[0], updates),
        (grid(3, 4), PLACES[1], updates),
        reference=reference,
    )


WINDOWS: Final[tuple[tuple[tuple[tuple[int, ...], ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]], ...]] = (
    (((0,), (1,), (1,)), (3, 4), (2, 2, 1), (3, 1)),
    (((), (0, 1), (1, 0)), (3, 4), (5, 2), (1, 1)),
    (((0,), (0,), (0,)), (4, 3), (1,), (1, 3)),
    (((0, 2), (), (0,)), (4, 3), (5, 1), (2, 2)),
    (((), (1,), (1,), (0,), (0,)), (2, 4), (2, 3, 1), (1, 1)),
    (((1,), (0,), (0,), (1,), (1,)), (4, 2, 3), (3, 2, 1), (1, 1, 2)),
)
"""Dimension numbers of gathers and scatters with the shapes of operand, indices and windows: columns, elements with
swapped axes, one row, overlapping windows, batch axes in front and behind."""


def windows() -> Iterator[Sample]:
    """Yields gathers and scatters of all `WINDOWS`, at indices of which some repeat and some are out of bounds."""
    for i, (numbers, shape, index_shape, sizes) in enumerate(WINDOWS):
        mode = (CLIP, DROP)[i % 2]
        indices = np.asarray(np.arange(np.prod(index_shape)) * 5 % 7 - 2).astype(np.int32).reshape(index_shape)
        gather = Gather(GatherDimensionNumbers(*numbers), sizes, False, False, mode, (None, -1.0)[i % 2])
        yield make_sample(gather, (grid(*shape), indices))
        (part,) = gather.abstract_eval(ShapedArray(shape, dtypes.float32), ShapedArray(index_shape, dtypes.int32))
        for kind in (ScatterAdd, (Scatter, ScatterMul, ScatterMin, ScatterMax)[i % 4]):
            scatter = kind(ScatterDimensionNumbers(*numbers), False, False, mode)
            yield make_sample(scatter, (grid(*shape), indices, grid(*part.shape) / 3))


SAMPLES: Final[tuple[Sample, ...]] = (
    # structural primitives and iota
    make_sample(
        ConvertElementType(dtypes.float64),
        (f32([0.5, -2.0]),),
        (i32(1, -3),),
        reference=lambda p: lambda x: jax_lax._convert_element_type(x, p.new_dtype, p.weak_type),
    ),
    make_sample(ConvertElementType(dtypes.int8), (f32([0.5, -2.0]),), (i32(1, 300),)),
    make_sample(ConvertElementType(dtypes.float32, weak_type=True), (f32([0.5, -2.0]),)),
    make_sample(
        Reshape((3, 2)), (grid(2, 3),), (i32([1, 2], [3, 4], [5, 6]),), reference=_with_fields(lax.reshape, "new_sizes")
    ),
    make_sample(Transpose((1, 2, 0)), (grid(2, 3, 1),), reference=_with_fields(lax.transpose, "permutation")),
    make_sample(
        BroadcastInDim((2, 3, 2), (0, 2)),
        (grid(2, 2),),
        (grid(1, 2),),
        reference=_with_fields(lax.broadcast_in_dim, "shape", "broadcast_dimensions"),
    ),
    make_sample(BroadcastInDim((2,), ()), (0.5,)),
    make_sample(ReduceSum((0, 2)), (grid(2, 3, 2),), (i32([[1, 2]], [[3, 4]]),), reference=_reduction(lax.reduce_sum)),
    make_sample(
        Iota(dtypes.int32, (2, 3), 1),
        (),
        reference=lambda p: lambda: lax.broadcasted_iota(p.dtype, p.shape, p.dimension),
    ),
    make_sample(DimensionValue(3, dtypes.int32), (), reference=lambda p: lambda: jax.numpy.asarray(p.size)),
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
    unary_sample(powers.IntegerPow(3), 0.5, -1.25, 3.0, reference=_with_fields(lax.integer_pow, "y")),
    unary_sample(powers.IntegerPow(-2), 0.5, -1.25, 3.0),
    unary_sample(powers.Square(), 0.5, -1.25, 3.0),
    unary_sample(rounding.Floor(), 0.5, -1.25, 3.25),
    unary_sample(rounding.Ceil(), 0.5, -1.25, 3.25),
    unary_sample(
        rounding.Round(rounding.RoundingMethod.AWAY_FROM_ZERO),
        0.25,
        -1.25,
        3.75,
        reference=lambda p: lambda x: lax.round(x, lax.RoundingMethod[p.rounding_method.name]),
    ),
    unary_sample(rounding.Round(rounding.RoundingMethod.TO_NEAREST_EVEN), 0.25, -1.25, 3.75),
    make_sample(Real(), (np.array([3 - 4j, 1j], np.complex64),)),
    make_sample(Imag(), (np.array([3 - 4j, 1j], np.complex64),)),
    binary_sample(Complex(), [0.5, -1.25, 3.0], [2.0, 0.75, -1.0]),
    make_sample(Conj(dtypes.complex64), (np.array([3 - 4j, 1j], np.complex64),)),
    make_sample(Conj(dtypes.float32), (f32(0.5, -2.0),)),
    unary_sample(IsFinite(), 0.5, np.inf, np.nan),
    function_sample(transcendental.Exp(), -2, 2),
    make_sample(transcendental.Exp(), (np.array([0.5 - 1j, 1j], np.complex64),)),
    function_sample(transcendental.Exp2(), -2, 2),
    function_sample(transcendental.Expm1(), -2, 2),
    function_sample(transcendental.Log(), 0.1, 3),
    function_sample(transcendental.Log1p(), -0.5, 3),
    function_sample(transcendental.Logistic(), -2, 2),
    function_sample(transcendental.Sin(), -4, 4),
    function_sample(transcendental.Cos(), -4, 4),
    function_sample(transcendental.Tan(), -1, 1),
    function_sample(inverse_trigonometric.Asin(), -0.8, 0.8),
    function_sample(inverse_trigonometric.Acos(), -0.8, 0.8),
    function_sample(inverse_trigonometric.Atan(), -0.8, 0.8),
    function_sample(hyperbolic.Sinh(), -2, 2),
    function_sample(hyperbolic.Cosh(), -2, 2),
    function_sample(hyperbolic.Tanh(), -2, 2),
    function_sample(hyperbolic.Asinh(), -2, 2),
    function_sample(hyperbolic.Acosh(), 1.2, 3),
    function_sample(hyperbolic.Atanh(), -0.8, 0.8),
    function_sample(transcendental.Sqrt(), 0.1, 3),
    function_sample(transcendental.Rsqrt(), 0.1, 3),
    function_sample(transcendental.Cbrt(), 0.1, 3),
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
    *[
        make_sample(prim, BITS, TRUTHS, (BITS[0], 3), reference=reference)
        for prim, reference in (
            (bitwise.And(), lambda p: lax.bitwise_and),
            (bitwise.Or(), lambda p: lax.bitwise_or),
            (bitwise.Xor(), lambda p: lax.bitwise_xor),
        )
    ],
    make_sample(bitwise.Not(), (BITS[0],), (TRUTHS[0],), reference=lambda p: lax.bitwise_not),
    make_sample(bitwise.ShiftLeft(), BITS, (BITS[0], 3)),
    make_sample(bitwise.ShiftRightLogical(), BITS, (BITS[0], 3)),
    make_sample(bitwise.ShiftRightArithmetic(), BITS, (BITS[0], 3)),
    make_sample(PopulationCount(), (BITS[0],)),
    make_sample(Clz(), (BITS[1],)),
    make_sample(
        BitcastConvertType(dtypes.int32),
        (f32(0.5, -2.0),),
        reference=_with_fields(lax.bitcast_convert_type, "new_dtype"),
    ),
    with_false_derivative(
        make_sample(
            ReducePrecision(5, 10),
            (f32(0.5, -2.25),),
            reference=_with_fields(lax.reduce_precision, "exponent_bits", "mantissa_bits"),
        )
    ),
    make_sample(SelectN(), (TRUTHS[0], grid(2, 2), grid(2, 2) + 3), (i32(2, 0), f32(1, 2), f32(3, 4), f32(5, 6))),
    make_sample(Clamp(), (f32(0, -1), f32(0.5, 3.0), f32(1.0, 2.0)), (-1.0, f32(0.5, 3.0), 2.0)),
    with_false_derivative(unary_sample(StopGradient(), 0.5, -1.25, 3.0)),
    # shapes
    make_sample(Squeeze((0, 2)), (grid(1, 3, 1),), reference=_with_fields(lax.squeeze, "dimensions")),
    make_sample(
        Concatenate(1),
        (grid(2, 2), grid(2, 1) + 3, grid(2, 3) - 3),
        (grid(2, 0), grid(2, 1)),
        reference=lambda p: lambda *xs: lax.concatenate(xs, p.dimension),
    ),
    make_sample(Stack(1), (grid(2, 2), grid(2, 2) + 3), reference=lambda p: lambda *xs: lax.stack(xs, p.axis)),
    make_sample(Split((1, 2), 1), (grid(2, 3),), reference=_with_fields(lax.split, "sizes", "axis")),
    make_sample(Tile((2, 1, 3)), (grid(1, 2, 2),), reference=_with_fields(lax.tile, "reps")),
    make_sample(
        Slice((0, 1), (2, 5), (1, 2)),
        (grid(2, 6),),
        reference=_with_fields(lax.slice, "start_indices", "limit_indices", "strides"),
    ),
    make_sample(Slice((0, 1), (2, 5), None), (grid(2, 6),)),
    make_sample(Pad(((1, 0, 2), (-1, 2, 0))), (grid(2, 3), 0.5), reference=_with_fields(lax.pad, "padding_config")),
    make_sample(Rev((0, 1)), (grid(2, 3),), reference=_with_fields(lax.rev, "dimensions")),
    # contraction, reduction, scans
    make_sample(
        DotGeneral((((1,), (0,)), ((), ()))),
        (grid(2, 3), grid(3, 2) + 0.5),
        reference=_with_fields(lax.dot_general, "dimension_numbers", "precision", "preferred_element_type"),
    ),
    make_sample(DotGeneral((((2,), (1,)), ((0,), (2,)))), (grid(2, 1, 3), grid(2, 3, 2) + 0.5)),
    make_sample(DotGeneral((((0,), (2,)), ((1,), (1,)))), (grid(3, 2), grid(1, 2, 3) + 0.5)),
    make_sample(DotGeneral((((0, 2), (1, 0)), ((), ()))), (grid(2, 1, 3), grid(3, 2) + 0.5)),
    make_sample(DotGeneral((((1,), (1,)), ((), ()))), (grid(2, 3), grid(4, 3, 2) + 0.5)),
    make_sample(DotGeneral((((), ()), ((0,), (0,)))), (grid(2), grid(2) + 0.5)),
    make_sample(DotGeneral((((), ()), ((), ()))), (grid(2), grid(3) + 0.5), (grid(), grid() + 0.5)),
    make_sample(ReduceMax((1,)), (grid(2, 3),), (i32([1, 2, 2]),), reference=_reduction(lax.reduce_max)),
    make_sample(ReduceMin((0, 1)), (grid(2, 3),), reference=_reduction(lax.reduce_min)),
    make_sample(ReduceProd((1,)), (grid(2, 3),), (i32([1, 2, 2]),), reference=_reduction(lax.reduce_prod)),
    *[
        make_sample(kind((1,)), (TRUTHS[0],), (i32([3, 5], [6, -1]),), reference=_reduction(function))
        for kind, function in ((ReduceAnd, lax.reduce_and), (ReduceOr, lax.reduce_or), (ReduceXor, lax.reduce_xor))
    ],
    make_sample(ArgMax((1,), dtypes.int32), (grid(2, 3),), reference=_argminmax(lax.argmax)),
    make_sample(ArgMin((0,), dtypes.int8), (grid(2, 3),), reference=_argminmax(lax.argmin)),
    make_sample(CumSum(1, False), (grid(2, 3),), reference=_cumulative(lax.cumsum)),
    make_sample(CumProd(0, True), (grid(2, 3),), reference=_cumulative(lax.cumprod)),
    make_sample(CumMax(1, False), (grid(2, 3),), reference=_cumulative(lax.cummax)),
    make_sample(CumMin(1, True), (grid(2, 3),), reference=_cumulative(lax.cummin)),
    make_sample(CumLogSumExp(1, False), (grid(2, 3),), reference=_cumulative(lax.cumlogsumexp)),
    # indexing
    make_sample(
        Gather(ROWS, (1, 4), False, False, CLIP, None),
        (grid(3, 4), PLACES[0]),
        (grid(3, 4), PLACES[1]),
        reference=_gather,
    ),
    make_sample(Gather(ROWS, (1, 4), False, False, DROP, -1.0), (grid(3, 4), PLACES[1])),
    scattered(ScatterAdd, CLIP, reference=_scatter(lax.scatter_add)),
    scattered(ScatterAdd, DROP),
    scattered(Scatter, DROP, reference=_scatter(lax.scatter)),
    scattered(ScatterMul, CLIP, reference=_scatter(lax.scatter_mul)),
    scattered(ScatterMin, DROP, reference=_scatter(lax.scatter_min)),
    scattered(ScatterMax, CLIP, reference=_scatter(lax.scatter_max)),
    *windows(),
    make_sample(
        DynamicSlice((1, 2)),
        (grid(2, 4), np.int32(1), np.int32(3)),
        reference=lambda p: lambda x, *starts: lax.dynamic_slice(x, starts, p.slice_sizes),
    ),
    make_sample(
        DynamicUpdateSlice(),
        (grid(2, 4), grid(1, 2) + 3, np.int32(1), np.int32(3)),
        reference=lambda p: lambda x, update, *starts: lax.dynamic_update_slice(x, update, starts),
    ),
    make_sample(
        OptimizationBarrier(), (grid(2, 3), i32(1, 2)), reference=lambda p: lambda *xs: lax.optimization_barrier(xs)
    ),
    # named axes
    collective_sample(PSum(("i",), (2,)), (grid(2, 3),), reference=_collective(lambda p, x: lax.psum(x, "i"))),
    collective_sample(PMax(("i",), (2,)), (grid(2, 3),), reference=_collective(lambda p, x: lax.pmax(x, "i"))),
    collective_sample(PMin(("i",), (2,)), (grid(2, 3),), reference=_collective(lambda p, x: lax.pmin(x, "i"))),
    collective_sample(AxisIndex("i", 2), (), reference=_collective(lambda p: lax.axis_index("i"))),
    collective_sample(
        AllGather(0, ("i",), 2, False),
        (grid(2, 3),),
        reference=_collective(lambda p, x: lax.all_gather(x, "i", axis=p.all_gather_dimension, tiled=p.tiled)),
    ),
    collective_sample(
        ReduceScatter(0, ("i",), 2, True),
        (grid(2, 4),),
        reference=_collective(
            lambda p, x: lax.psum_scatter(x, "i", scatter_dimension=p.scatter_dimension, tiled=p.tiled)
        ),
    ),
    collective_sample(
        PPermute(("i",), ((0, 1), (1, 0)), 2),
        (grid(2, 3),),
        reference=_collective(lambda p, x: lax.ppermute(x, "i", p.perm)),
    ),
    collective_sample(
        AllToAll("i", 0, 0, False, 2),
        (grid(2, 2, 3),),
        reference=_collective(lambda p, x: lax.all_to_all(x, "i", p.split_axis, p.concat_axis, tiled=p.tiled)),
    ),
    # shardings in types; the text of a type with a sharding needs a mesh in use
    make_sample(MeshCast(("x",)), (grid(2, 4),), reference=lambda p: lambda x: x),
    make_sample(
        Reshard(AbstractMesh((1,), "x", AxisType.Explicit), P()), (grid(2, 4),), reference=lambda p: lambda x: x
    ),
    # devices; the tests on plug-ins import this module too, and have two
    *[
        make_sample(
            ShardingConstraint(NamedSharding(mesh, P(None, "y"))),
            (grid(2, 4),),
            (grid(3, 2),),
            reference=lambda p: (
                lambda x: lax.with_sharding_constraint(
                    x, JaxNamedSharding(mesh_to_jax(p.sharding.mesh), spec_to_jax(p.sharding.spec))
                )
            ),
        )
        for devices in [fx.devices()]
        if len(devices) >= 4
        for mesh in [make_mesh((2, 2), ("x", "y"), (AxisType.Auto,) * 2, devices=devices[:4])]
    ],
)
