"""The names of `tracefx.lax` that are imported lazily, when they are first accessed, by module.

Names that most programs use are imported with the package. Type checkers see all names in `__init__.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_NAMES_BY_MODULE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "lax.linalg": "linalg",
        "lax.indexed_apply": "scatter_apply",
        "lax.collectives": (
            "all_gather all_to_all pbroadcast pcast pmax pmean pmin ppermute pshuffle psum psum_scatter pswapaxes"
        ),
        "control.dce_sink": "dce_sink",
        "control.special.bessel": "bessel_i0e bessel_i1e",
        "control.special.incomplete_beta": "betainc",
        "control.special.incomplete_gamma": "igamma igamma_grad_a igammac random_gamma_grad",
        "ops.indexing.along_axis": "index_in_dim index_take slice_in_dim unstack",
        "ops.annotations.optimization_barrier": "optimization_barrier",
        "ops.random.rng_bit_generator": "RandomAlgorithm rng_bit_generator",
        "ops.collectives.collective": "axis_index axis_size",
        "ops.contractions.convolution": "conv_general_dilated",
        "ops.contractions.convolution_variants": (
            "conv conv_general_dilated_local conv_general_dilated_patches conv_transpose conv_with_general_padding"
        ),
        "ops.contractions.conv_dimension_numbers": (
            "ConvDimensionNumbers ConvGeneralDilatedDimensionNumbers conv_dimension_numbers "
            "conv_general_permutations conv_general_shape_tuple conv_shape_tuple conv_transpose_shape_tuple"
        ),
        "ops.fourier": "FftType fft",
        "ops.indexing.top_k": "approx_max_k approx_min_k top_k",
        "ops.collectives.grouped": "ragged_all_to_all",
        "ops.elementwise.mulhi": "mulhi",
        "ops.reductions.sliding_windows": "reduce_window_shape_tuple",
        "ops.padding_types": "padtype_to_pads",
        "ops.contractions.ragged_dot": "RaggedDotDimensionNumbers ragged_dot ragged_dot_general",
        "ops.contractions.scaled_dot": "scaled_dot",
        "ops.shape.broadcasting": "broadcast_like broadcast_shapes broadcast_to_rank collapse empty shape_as_value",
        "ops.indexing.sorting": "sort sort_key_val",
        "ops.elementwise.special": "digamma erf erf_inv erfc lgamma polygamma zeta",
        "transforms.conditionals": "cond platform_dependent switch",
        "transforms.composites": "composite",
        "transforms.loops": "fori_loop while_loop",
        "transforms.associative_scan": "associative_scan",
        "transforms.reductions": "reduce reduce_window",
        "transforms.scans": "map scan",
        "transforms.solvers": "custom_linear_solve custom_root",
    }
)
LAZY_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {name: f"tracefx.{module}" for module, names in _NAMES_BY_MODULE.items() for name in names.split()}
)
"""The module of each lazy name."""
