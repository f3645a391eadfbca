"""Primitives as functions, with the names of `jax.lax`.

These functions promote no dtypes: the operands of one operation have one dtype, and a Python number takes the dtype of
the array next to it. Elementwise operations broadcast scalars and, between operands of equal rank, axes of size 1.
`tracefx.numpy` is built on them.

>>> from tracefx import lax
>>> lax.add(lax.iota("float32", 3), 1.0)
Array([1., 2., 3.], dtype=float32)
"""

from __future__ import annotations

import importlib as _importlib
from typing import TYPE_CHECKING, Any

from tracefx.lax.lazy_names import LAZY_NAMES as _LATE
from tracefx.ops.contractions.contraction import (
    DotDimensionNumbers,
    Precision,
    PrecisionLike,
    batch_matmul,
    dot,
    dot_general,
)
from tracefx.ops.contractions.dot_algorithms import DotAlgorithm, DotAlgorithmPreset
from tracefx.ops.elementwise import selection
from tracefx.ops.elementwise.abs_sign import abs, sign
from tracefx.ops.elementwise.accuracy import AccuracyMode, Tolerance
from tracefx.ops.elementwise.arithmetic import div, max, min, mul, neg, rem, sub
from tracefx.ops.elementwise.atan2_nextafter import atan2, nextafter
from tracefx.ops.elementwise.bit_representation import (
    bitcast_convert_type,
    clz,
    dtype,
    population_count,
    reduce_precision,
    stage,
)
from tracefx.ops.elementwise.bitwise import (
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    shift_left,
    shift_right_arithmetic,
    shift_right_logical,
)
from tracefx.ops.elementwise.comparison import eq, ge, gt, le, lt, ne
from tracefx.ops.elementwise.complex import complex, conj, imag, is_finite, real
from tracefx.ops.elementwise.elementwise import add
from tracefx.ops.elementwise.powers import integer_pow, pow, reciprocal, square
from tracefx.ops.elementwise.rounding import RoundingMethod, ceil, floor, round
from tracefx.ops.elementwise.selection import clamp, select, select_n
from tracefx.ops.elementwise.transcendental import (
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atanh,
    cbrt,
    cos,
    cosh,
    exp,
    exp2,
    expm1,
    log,
    log1p,
    logistic,
    rsqrt,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
)
from tracefx.ops.indexing.dynamic_slicing import (
    dynamic_index_in_dim,
    dynamic_slice,
    dynamic_slice_in_dim,
    dynamic_update_index_in_dim,
    dynamic_update_slice,
    dynamic_update_slice_in_dim,
)
from tracefx.ops.indexing.gather_scatter_add import (
    GatherDimensionNumbers,
    ScatterDimensionNumbers,
    gather,
    scatter_add,
)
from tracefx.ops.indexing.indexed_windows import GatherScatterMode
from tracefx.ops.indexing.scatter import scatter, scatter_max, scatter_min, scatter_mul, scatter_sub
from tracefx.ops.reductions.cumulative import cumlogsumexp, cummax, cummin, cumprod, cumsum
from tracefx.ops.reductions.reduction import (
    argmax,
    argmin,
    reduce_and,
    reduce_max,
    reduce_min,
    reduce_or,
    reduce_prod,
    reduce_xor,
)
from tracefx.ops.shape.array_creation import broadcasted_iota, full, full_like, iota
from tracefx.ops.shape.shape import broadcast, concatenate, expand_dims, split, squeeze, stack, tile
from tracefx.ops.shape.slicing import pad, rev, slice
from tracefx.ops.structural import broadcast_in_dim, convert_element_type, reduce_sum, reshape, transpose
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree
from tracefx.transforms.shardings import with_sharding_constraint

if TYPE_CHECKING:
    from tracefx.control.dce_sink import dce_sink
    from tracefx.control.special.bessel import bessel_i0e, bessel_i1e
    from tracefx.control.special.incomplete_beta import betainc
    from tracefx.control.special.incomplete_gamma import igamma, igamma_grad_a, igammac, random_gamma_grad
    from tracefx.lax import linalg as linalg
    from tracefx.lax.collectives import (
        all_gather,
        all_to_all,
        pbroadcast,
        pcast,
        pmax,
        pmean,
        pmin,
        ppermute,
        pshuffle,
        psum,
        psum_scatter,
        pswapaxes,
    )
    from tracefx.lax.indexed_apply import scatter_apply
    from tracefx.ops.annotations.optimization_barrier import optimization_barrier
    from tracefx.ops.collectives.collective import axis_index, axis_size
    from tracefx.ops.collectives.grouped import ragged_all_to_all
    from tracefx.ops.contractions.conv_dimension_numbers import (
        ConvDimensionNumbers,
        ConvGeneralDilatedDimensionNumbers,
        conv_dimension_numbers,
        conv_general_permutations,
        conv_general_shape_tuple,
        conv_shape_tuple,
        conv_transpose_shape_tuple,
    )
    from tracefx.ops.contractions.convolution import conv_general_dilated
    from tracefx.ops.contractions.convolution_variants import (
        conv,
        conv_general_dilated_local,
        conv_general_dilated_patches,
        conv_transpose,
        conv_with_general_padding,
    )
    from tracefx.ops.contractions.ragged_dot import RaggedDotDimensionNumbers, ragged_dot, ragged_dot_general
    from tracefx.ops.contractions.scaled_dot import scaled_dot
    from tracefx.ops.elementwise.mulhi import mulhi
    from tracefx.ops.elementwise.special import digamma, erf, erf_inv, erfc, lgamma, polygamma, zeta
    from tracefx.ops.fourier import FftType, fft
    from tracefx.ops.indexing.along_axis import index_in_dim, index_take, slice_in_dim, unstack
    from tracefx.ops.indexing.sorting import sort, sort_key_val
    from tracefx.ops.indexing.top_k import approx_max_k, approx_min_k, top_k
    from tracefx.ops.padding_types import padtype_to_pads
    from tracefx.ops.random.rng_bit_generator import RandomAlgorithm, rng_bit_generator
    from tracefx.ops.reductions.sliding_windows import reduce_window_shape_tuple
    from tracefx.ops.shape.broadcasting import (
        broadcast_like,
        broadcast_shapes,
        broadcast_to_rank,
        collapse,
        empty,
        shape_as_value,
    )
    from tracefx.transforms.associative_scan import associative_scan
    from tracefx.transforms.composites import composite
    from tracefx.transforms.conditionals import cond, platform_dependent, switch
    from tracefx.transforms.loops import fori_loop, while_loop
    from tracefx.transforms.reductions import reduce, reduce_window
    from tracefx.transforms.scans import map, scan
    from tracefx.transforms.solvers import custom_linear_solve, custom_root
else:  # hidden from type checkers, which would accept any name

    def __getattr__(name: str) -> object:
        module_name = _LATE.get(name)
        if module_name is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = _importlib.import_module(module_name)
        value: object = module if module_name == f"{__name__}.{name}" else getattr(module, name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATE})


__all__ = [
    # loops and branches
    "cond",
    "switch",
    "platform_dependent",
    "scan",
    "map",
    "fori_loop",
    "while_loop",
    "associative_scan",
    "custom_linear_solve",
    "custom_root",
    # arithmetic
    "neg",
    "add",
    "sub",
    "mul",
    "div",
    "rem",
    "max",
    "min",
    "abs",
    "sign",
    "pow",
    "integer_pow",
    "square",
    "reciprocal",
    "mulhi",
    "floor",
    "ceil",
    "round",
    "RandomAlgorithm",
    "RoundingMethod",
    "nextafter",
    # exponentials, trigonometry, roots
    "exp",
    "exp2",
    "expm1",
    "log",
    "log1p",
    "logistic",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "sqrt",
    "rng_bit_generator",
    "rsqrt",
    "cbrt",
    "AccuracyMode",
    "Tolerance",
    "atan2",
    "erf",
    "erfc",
    "erf_inv",
    "lgamma",
    "digamma",
    "polygamma",
    "zeta",
    "igamma",
    "igammac",
    "igamma_grad_a",
    "random_gamma_grad",
    "betainc",
    "bessel_i0e",
    "bessel_i1e",
    # complex numbers
    "real",
    "imag",
    "complex",
    "conj",
    "is_finite",
    # comparison, logic, choice
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "bitwise_not",
    "shift_left",
    "shift_right_logical",
    "shift_right_arithmetic",
    "population_count",
    "clz",
    "select",
    "select_n",
    "clamp",
    # dtypes
    "dtype",
    "convert_element_type",
    "bitcast_convert_type",
    "reduce_precision",
    # shapes
    "reshape",
    "transpose",
    "broadcast",
    "broadcast_in_dim",
    "broadcast_like",
    "broadcast_to_rank",
    "broadcast_shapes",
    "collapse",
    "shape_as_value",
    "squeeze",
    "expand_dims",
    "concatenate",
    "stack",
    "unstack",
    "split",
    "tile",
    "slice",
    "slice_in_dim",
    "index_in_dim",
    "index_take",
    "pad",
    "dynamic_slice",
    "dynamic_slice_in_dim",
    "dynamic_index_in_dim",
    "dynamic_update_slice",
    "dynamic_update_slice_in_dim",
    "dynamic_update_index_in_dim",
    "rev",
    # new arrays
    "full",
    "full_like",
    "empty",
    "iota",
    "broadcasted_iota",
    # reductions
    "reduce",
    "reduce_window",
    "reduce_window_shape_tuple",
    "reduce_sum",
    "reduce_prod",
    "reduce_max",
    "reduce_min",
    "reduce_and",
    "reduce_or",
    "reduce_xor",
    "argmax",
    "argmin",
    "cumsum",
    "cumprod",
    "cummax",
    "cummin",
    "cumlogsumexp",
    # order
    "sort",
    "sort_key_val",
    "top_k",
    "approx_max_k",
    "approx_min_k",
    # contractions
    "dot",
    "dot_general",
    "batch_matmul",
    "DotDimensionNumbers",
    "Precision",
    "PrecisionLike",
    "DotAlgorithm",
    "DotAlgorithmPreset",
    "ragged_dot",
    "ragged_dot_general",
    "RaggedDotDimensionNumbers",
    "scaled_dot",
    # convolutions
    "conv",
    "conv_general_dilated",
    "conv_general_dilated_local",
    "conv_general_dilated_patches",
    "conv_transpose",
    "conv_with_general_padding",
    "conv_dimension_numbers",
    "conv_general_permutations",
    "conv_general_shape_tuple",
    "conv_shape_tuple",
    "conv_transpose_shape_tuple",
    "padtype_to_pads",
    "ConvDimensionNumbers",
    "ConvGeneralDilatedDimensionNumbers",
    # Fourier transforms
    "fft",
    "FftType",
    # indexing
    "gather",
    "scatter",
    "scatter_add",
    "scatter_sub",
    "scatter_mul",
    "scatter_min",
    "scatter_max",
    "scatter_apply",
    "GatherDimensionNumbers",
    "ScatterDimensionNumbers",
    "GatherScatterMode",
    # named axes
    "psum",
    "pmean",
    "pmax",
    "pmin",
    "axis_index",
    "axis_size",
    "all_gather",
    "psum_scatter",
    "pswapaxes",
    "pshuffle",
    "pbroadcast",
    "pcast",
    "ragged_all_to_all",
    "ppermute",
    "all_to_all",
    "with_sharding_constraint",
    # differentiation
    "stop_gradient",
    # compilation
    "composite",
    "dce_sink",
    "stage",
    "optimization_barrier",
]


def stop_gradient(x: PyTree) -> Any:
    """Returns a tree with the same arrays, treated as constants by differentiation.

    Args:
        x: a tree of arrays.

    Returns:
        A tree of the same structure, whose arrays have zero tangents and pass no cotangents on.

    >>> from tracefx import grad
    >>> grad(lambda x: x * stop_gradient(x))(3.0)
    Array(3., dtype=float32, weak_type=True)
    """
    return trees.map(selection.stop_gradient, x)
