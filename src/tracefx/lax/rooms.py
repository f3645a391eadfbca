"""The operations that are loaded when a name of theirs is first asked for: what most programs do without.

Importing `tracefx.lax` costs what the others need; type checkers see all of it in `__init__.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_ROOMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "lax.linalg": "linalg",
        "control.sinking": "dce_sink",
        "control.special.bessel": "bessel_i0e bessel_i1e",
        "control.special.incomplete_beta": "betainc",
        "control.special.incomplete_gamma": "igamma igamma_grad_a igammac random_gamma_grad",
        "ops.bit_generator": "RandomAlgorithm rng_bit_generator",
        "ops.convolution": "conv_general_dilated",
        "ops.convolution_forms": (
            "conv conv_general_dilated_local conv_general_dilated_patches conv_transpose conv_with_general_padding"
        ),
        "ops.convolution_numbers": (
            "ConvDimensionNumbers ConvGeneralDilatedDimensionNumbers conv_dimension_numbers "
            "conv_general_permutations conv_general_shape_tuple conv_shape_tuple conv_transpose_shape_tuple"
        ),
        "ops.fourier": "FftType fft",
        "ops.greatest": "approx_max_k approx_min_k top_k",
        "ops.high_product": "mulhi",
        "ops.moving_windows": "reduce_window_shape_tuple",
        "ops.padding_types": "padtype_to_pads",
        "ops.ragged": "RaggedDotDimensionNumbers ragged_dot ragged_dot_general",
        "ops.scaled": "scaled_dot",
        "ops.sorting": "sort sort_key_val",
        "transforms.composites": "composite",
        "transforms.reductions": "reduce reduce_window",
        "transforms.scatter_apply": "scatter_apply",
    }
)
LATE: Final[Mapping[str, str]] = MappingProxyType(
    {name: f"tracefx.{room}" for room, names in _ROOMS.items() for name in names.split()}
)
"""The modules of names."""
