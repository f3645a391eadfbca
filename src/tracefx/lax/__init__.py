"""The operations themselves, as functions with the names of `jax.lax`.

They don't promote dtypes and broadcast only arrays without axes, so a program does nothing that isn't written in it;
`tracefx.numpy` is made of them. Operands of one operation have one dtype, where a Python number takes that of the
array beside it.

>>> from tracefx import lax
>>> lax.add(lax.iota("float32", 3), 1.0)
Array([1., 2., 3.], dtype=float32)
"""

from __future__ import annotations

import importlib as _importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracefx.core import trees
from tracefx.core.handler import as_array, bind
from tracefx.core.trees import PyTree
from tracefx.lax.rooms import LATE as _LATE
from tracefx.ops import collective, exchange, groups, selection, varying
from tracefx.ops.accuracy import AccuracyMode, Tolerance
from tracefx.ops.along_axis import index_in_dim, index_take, slice_in_dim, unstack
from tracefx.ops.arithmetic import div, max, min, mul, neg, rem, sub
from tracefx.ops.barrier import OPTIMIZATION_BARRIER
from tracefx.ops.basis import broadcast_in_dim, convert_element_type, reduce_sum, reshape, transpose
from tracefx.ops.bitwise import (
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    shift_left,
    shift_right_arithmetic,
    shift_right_logical,
)
from tracefx.ops.collective import AxisName, axis_index, axis_size
from tracefx.ops.comparison import eq, ge, gt, le, lt, ne
from tracefx.ops.complex import complex, conj, imag, is_finite, real
from tracefx.ops.contraction import DotDimensionNumbers, Precision, PrecisionLike, batch_matmul, dot, dot_general
from tracefx.ops.cumulative import cumlogsumexp, cummax, cummin, cumprod, cumsum
from tracefx.ops.cutting import pad, rev, slice
from tracefx.ops.dot_algorithms import DotAlgorithm, DotAlgorithmPreset
from tracefx.ops.dynamic import (
    dynamic_index_in_dim,
    dynamic_slice,
    dynamic_slice_in_dim,
    dynamic_update_index_in_dim,
    dynamic_update_slice,
    dynamic_update_slice_in_dim,
)
from tracefx.ops.elementwise import add
from tracefx.ops.filling import broadcasted_iota, full, full_like, iota
from tracefx.ops.groups import AxisIndexGroups, ragged_all_to_all
from tracefx.ops.indexing import GatherDimensionNumbers, ScatterDimensionNumbers, gather, scatter_add
from tracefx.ops.magnitude import abs, sign
from tracefx.ops.pairs import atan2, nextafter
from tracefx.ops.powers import integer_pow, pow, reciprocal, square
from tracefx.ops.reduction import (
    argmax,
    argmin,
    reduce_and,
    reduce_max,
    reduce_min,
    reduce_or,
    reduce_prod,
    reduce_xor,
)
from tracefx.ops.representation import bitcast_convert_type, clz, dtype, population_count, reduce_precision, stage
from tracefx.ops.rounding import RoundingMethod, ceil, floor, round
from tracefx.ops.scattering import scatter, scatter_max, scatter_min, scatter_mul, scatter_sub
from tracefx.ops.selection import clamp, select, select_n
from tracefx.ops.shape import broadcast, concatenate, expand_dims, split, squeeze, stack, tile
from tracefx.ops.shaping import broadcast_like, broadcast_shapes, broadcast_to_rank, collapse, empty, shape_as_value
from tracefx.ops.special import digamma, erf, erf_inv, erfc, lgamma, polygamma, zeta
from tracefx.ops.transcendental import (
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
from tracefx.ops.windows import GatherScatterMode
from tracefx.transforms.branches import cond, platform_dependent, switch
from tracefx.transforms.loops import fori_loop, while_loop
from tracefx.transforms.prefixes import associative_scan
from tracefx.transforms.scans import map, scan
from tracefx.transforms.shardings import with_sharding_constraint
from tracefx.transforms.solvers import custom_linear_solve, custom_root

if TYPE_CHECKING:
    from tracefx.control.sinking import dce_sink
    from tracefx.control.special.bessel import bessel_i0e, bessel_i1e
    from tracefx.control.special.incomplete_beta import betainc
    from tracefx.control.special.incomplete_gamma import igamma, igamma_grad_a, igammac, random_gamma_grad
    from tracefx.lax import linalg as linalg
    from tracefx.ops.bit_generator import RandomAlgorithm, rng_bit_generator
    from tracefx.ops.convolution import conv_general_dilated
    from tracefx.ops.convolution_forms import (
        conv,
        conv_general_dilated_local,
        conv_general_dilated_patches,
        conv_transpose,
        conv_with_general_padding,
    )
    from tracefx.ops.convolution_numbers import (
        ConvDimensionNumbers,
        ConvGeneralDilatedDimensionNumbers,
        conv_dimension_numbers,
        conv_general_permutations,
        conv_general_shape_tuple,
        conv_shape_tuple,
        conv_transpose_shape_tuple,
    )
    from tracefx.ops.fourier import FftType, fft
    from tracefx.ops.greatest import approx_max_k, approx_min_k, top_k
    from tracefx.ops.high_product import mulhi
    from tracefx.ops.moving_windows import reduce_window_shape_tuple
    from tracefx.ops.padding_types import padtype_to_pads
    from tracefx.ops.ragged import RaggedDotDimensionNumbers, ragged_dot, ragged_dot_general
    from tracefx.ops.scaled import scaled_dot
    from tracefx.ops.sorting import sort, sort_key_val
    from tracefx.transforms.composites import composite
    from tracefx.transforms.reductions import reduce, reduce_window
    from tracefx.transforms.scatter_apply import scatter_apply
else:  # type checkers would take it to have any name

    def __getattr__(name: str) -> object:
        where = _LATE.get(name)
        if where is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = _importlib.import_module(where)
        found: object = module if where == f"{__name__}.{name}" else getattr(module, name)
        globals()[name] = found
        return found


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
    """The arrays of a tree, as constants to differentiation.

    >>> from tracefx import grad
    >>> grad(lambda x: x * stop_gradient(x))(3.0)
    Array(3., dtype=float32, weak_type=True)
    """
    return trees.map(selection.stop_gradient, x)


def optimization_barrier(operand: PyTree, /) -> Any:
    """The arrays of a tree, none of which is used before all are computed, nor computed in another way for its use.

    >>> optimization_barrier((1.0, 2))
    (Array(1., dtype=float32, weak_type=True), Array(2, dtype=int32, weak_type=True))
    """
    leaves, structure = trees.flatten(operand)
    outs = bind(OPTIMIZATION_BARRIER, *leaves) if leaves else []
    return trees.unflatten(structure, [as_array(x) for x in outs])


def psum(x: PyTree, axis_name: AxisName, *, axis_index_groups: AxisIndexGroups | None = None) -> Any:
    """The sum of each array of a tree along the named axis.

    The sum of a Python number is known at once: it times the axis's size. Members that are in one of the
    `axis_index_groups`, which are of one size, sum among themselves. Raises NameError for a name that no
    `vmap(..., axis_name=...)`, `shard_map` or `pmap` around the call binds.

    >>> from tracefx import vmap
    >>> vmap(lambda x: x / psum(x, "batch"), axis_name="batch")(full((4,), 3.0))
    Array([0.25, 0.25, 0.25, 0.25], dtype=float32, weak_type=True)
    """
    if axis_index_groups is None:
        return trees.map(lambda leaf: collective.psum(leaf, axis_name), x)
    return trees.map(lambda leaf: groups.summed(leaf, axis_name, axis_index_groups), x)


def pmean(x: PyTree, axis_name: AxisName, *, axis_index_groups: AxisIndexGroups | None = None) -> Any:
    """The mean of each array of a tree along the named axis, or within a group of its members.

    >>> from tracefx import vmap
    >>> vmap(lambda x: x - pmean(x, "batch"), axis_name="batch")(iota("float32", 3))
    Array([-1.,  0.,  1.], dtype=float32)
    """
    if axis_index_groups is None:
        return trees.map(lambda leaf: collective.pmean(leaf, axis_name), x)
    return trees.map(lambda leaf: groups.averaged(leaf, axis_name, axis_index_groups), x)


def pmax(x: PyTree, axis_name: AxisName, *, axis_index_groups: AxisIndexGroups | None = None) -> Any:
    """The greatest value of each array of a tree along the named axis, or within a group of its members.

    >>> from tracefx import vmap
    >>> vmap(lambda x: x - pmax(x, "batch"), axis_name="batch")(iota("float32", 3))
    Array([-2., -1.,  0.], dtype=float32)
    """
    if axis_index_groups is None:
        return trees.map(lambda leaf: collective.pmax(leaf, axis_name), x)
    return trees.map(lambda leaf: groups.folded("pmax", reduce_max, leaf, axis_name, axis_index_groups), x)


def pmin(x: PyTree, axis_name: AxisName, *, axis_index_groups: AxisIndexGroups | None = None) -> Any:
    """The least value of each array of a tree along the named axis, or within a group of its members.

    >>> from tracefx import vmap
    >>> vmap(lambda x: pmin(x, "batch"), axis_name="batch", out_axes=None)(iota("float32", 3))
    Array(0., dtype=float32)
    """
    if axis_index_groups is None:
        return trees.map(lambda leaf: collective.pmin(leaf, axis_name), x)
    return trees.map(lambda leaf: groups.folded("pmin", reduce_min, leaf, axis_name, axis_index_groups), x)


def all_gather(
    x: PyTree,
    axis_name: AxisName,
    *,
    axis_index_groups: AxisIndexGroups | None = None,
    axis: int = 0,
    tiled: bool = False,
) -> Any:
    """Each array of a tree, gathered along the named axis: as a new axis, or `tiled`, one behind another along `axis`.

    With `axis_index_groups`, within a group of its members.

    >>> from tracefx import vmap
    >>> vmap(lambda x: all_gather(x, "batch"), axis_name="batch", out_axes=None)(iota("int32", 3))
    Array([0, 1, 2], dtype=int32)
    """
    if axis_index_groups is None:
        return trees.map(lambda leaf: exchange.all_gather(leaf, axis_name, axis=axis, tiled=tiled), x)
    return trees.map(lambda leaf: groups.gathered(leaf, axis_name, axis_index_groups, axis, tiled), x)


def psum_scatter(
    x: PyTree,
    axis_name: AxisName,
    *,
    scatter_dimension: int = 0,
    axis_index_groups: AxisIndexGroups | None = None,
    tiled: bool = False,
) -> Any:
    """The sum of each array of a tree along the named axis, dealt out along `scatter_dimension`.

    Without `tiled`, that axis has the named axis's size, and is gone in the result. With `axis_index_groups`, members
    sum and deal out within their group.

    >>> from tracefx import vmap
    >>> vmap(lambda x: psum_scatter(x, "batch"), axis_name="batch")(full((2, 2), 1))
    Array([2, 2], dtype=int32, weak_type=True)
    """
    if axis_index_groups is not None:
        return trees.map(lambda leaf: groups.scattered(leaf, axis_name, axis_index_groups, scatter_dimension, tiled), x)
    return trees.map(
        lambda leaf: exchange.psum_scatter(leaf, axis_name, scatter_dimension=scatter_dimension, tiled=tiled), x
    )


def ppermute(x: PyTree, axis_name: AxisName, perm: Sequence[tuple[int, int]]) -> Any:
    """Each array of a tree, sent along the named axis from the first to the second member of every pair of `perm`.

    >>> from tracefx import vmap
    >>> vmap(lambda x: ppermute(x, "batch", [(0, 1), (1, 2), (2, 0)]), axis_name="batch")(iota("int32", 3))
    Array([2, 0, 1], dtype=int32)
    """
    pairs = tuple([(source, destination) for source, destination in perm])
    return trees.map(lambda leaf: exchange.ppermute(leaf, axis_name, pairs), x)


def all_to_all(
    x: PyTree,
    axis_name: AxisName,
    split_axis: int,
    concat_axis: int,
    *,
    axis_index_groups: AxisIndexGroups | None = None,
    tiled: bool = False,
) -> Any:
    """Each array of a tree with `split_axis` dealt out along the named axis, which is collected at `concat_axis`.

    With `axis_index_groups`, within a group of its members.

    >>> from tracefx import vmap
    >>> vmap(lambda x: all_to_all(x, "batch", 0, 0), axis_name="batch")(broadcasted_iota("int32", (2, 2), 0)).tolist()
    [[0, 1], [0, 1]]
    """
    if axis_index_groups is not None:
        return trees.map(
            lambda leaf: groups.dealt_out(leaf, axis_name, axis_index_groups, split_axis, concat_axis, tiled), x
        )
    return trees.map(lambda leaf: exchange.all_to_all(leaf, axis_name, split_axis, concat_axis, tiled=tiled), x)


def pswapaxes(x: PyTree, axis_name: AxisName, axis: int, *, axis_index_groups: AxisIndexGroups | None = None) -> Any:
    """Each array of a tree with the named axis and its axis `axis`, which must be as long, in each other's place.

    With `axis_index_groups`, within a group of its members.

    >>> from tracefx import vmap
    >>> vmap(lambda x: pswapaxes(x, "batch", 0), axis_name="batch")(broadcasted_iota("int32", (2, 2), 0)).tolist()
    [[0, 1], [0, 1]]
    """
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)


def pshuffle(x: PyTree, axis_name: AxisName, perm: Sequence[int]) -> Any:
    """Each array of a tree, along the named axis: the `i`-th member gets that of the member `perm[i]`.

    >>> from tracefx import vmap
    >>> vmap(lambda x: pshuffle(x, "batch", [2, 0, 1]), axis_name="batch")(iota("int32", 3))
    Array([2, 0, 1], dtype=int32)
    """
    sources = tuple(perm)
    return trees.map(lambda leaf: exchange.pshuffle(leaf, axis_name, sources), x)


def pbroadcast(x: PyTree, axis_name: AxisName, source: int) -> Any:
    """Each array of a tree, of the member `source` along the named axis, at every member.

    >>> from tracefx import vmap
    >>> vmap(lambda x: pbroadcast(x, "batch", 2), axis_name="batch")(iota("int32", 3))
    Array([2, 2, 2], dtype=int32)
    """
    return trees.map(lambda leaf: exchange.pbroadcast(leaf, axis_name, source), x)


def pcast(x: PyTree, axis_name: AxisName, *, to: str) -> Any:
    """The arrays of a tree as they are, from here on ones that may differ along the named axis (`to="varying"`).

    Inside of `shard_map` a derivative with respect to an array that is the same on all devices is the sum of what they
    have of it; with respect to one that varies, each has its own. Where such arrays meet nothing has to be said.
    ValueError for another `to`.

    >>> from tracefx import vmap
    >>> vmap(lambda x: x + pcast(1, "batch", to="varying"), axis_name="batch")(iota("int32", 3))
    Array([1, 2, 3], dtype=int32)
    """
    if to != "varying":
        raise ValueError(f"pcast: to must be 'varying', got {to!r}")
    names, _ = collective.axes_in_scope("pcast", axis_name)
    return trees.map(lambda leaf: as_array(varying.varying(as_array(leaf), names)), x)
