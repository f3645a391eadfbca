"""Samples of convolutions, ragged dot products and scaled dot products."""

# Some JAX functions called here are not annotated.
# mypy: untyped-calls-exclude=jax

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np
from jax import lax

from tests.laws.samples.making import Function, Sample, grid, i32, make_sample
from tracefx.core import dtypes
from tracefx.ops.contractions.conv_dimension_numbers import ConvDimensionNumbers
from tracefx.ops.contractions.convolution import ConvGeneralDilated
from tracefx.ops.contractions.ragged_dot import RaggedDotDimensionNumbers, RaggedDotGeneral
from tracefx.ops.contractions.scaled_dot import ScaledDot

CHANNELS_LAST: Final = ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
PLAIN: Final = ConvDimensionNumbers((0, 1, 2), (0, 1, 2), (0, 1, 2))


def _convolution(p: ConvGeneralDilated) -> Function:
    return lambda x, y: lax.conv_general_dilated(
        x,
        y,
        p.window_strides,
        p.padding,
        p.lhs_dilation,
        p.rhs_dilation,
        lax.ConvDimensionNumbers(*p.dimension_numbers),
        p.feature_group_count,
        p.batch_group_count,
        preferred_element_type=p.preferred_element_type,
    )


def _ragged(p: RaggedDotGeneral) -> Function:
    n = p.ragged_dot_dimension_numbers
    numbers = lax.RaggedDotDimensionNumbers(n.dot_dimension_numbers, n.lhs_ragged_dimensions, n.rhs_group_dimensions)
    return partial(lax.ragged_dot_general, ragged_dot_dimension_numbers=numbers)


def _scaled(p: ScaledDot) -> Function:
    return lambda x, y, s, t: lax.scaled_dot(
        x,
        y,
        lhs_scale=s,
        rhs_scale=t,
        dimension_numbers=p.dimension_numbers,
        preferred_element_type=p.preferred_element_type,
    )


SAMPLES: Final[tuple[Sample, ...]] = (
    make_sample(
        ConvGeneralDilated((1, 2), ((1, 0), (1, 1)), (1, 1), (2, 1), CHANNELS_LAST, feature_group_count=2),
        (grid(2, 4, 5, 2), grid(2, 3, 1, 4)),
        reference=_convolution,
    ),
    make_sample(
        ConvGeneralDilated((2,), ((-1, 2),), (2,), (1,), PLAIN, batch_group_count=2),
        (grid(2, 3, 4), grid(4, 3, 2)),
        (grid(2, 3, 4, dtype=np.complex64) * (1 + 2j), grid(4, 3, 2, dtype=np.complex64) * (2 - 1j)),
    ),
    make_sample(
        RaggedDotGeneral(RaggedDotDimensionNumbers((((2,), (1,)), ((), ())), (1,), (0,))),
        (grid(2, 4, 3), grid(2, 3, 2), i32([1, 2], [3, 1])),
        reference=_ragged,
    ),
    make_sample(
        RaggedDotGeneral(RaggedDotDimensionNumbers((((1,), (0,)), ((), ())), (1,), ())),
        (grid(2, 4), grid(4, 3), i32(2, 1)),
    ),
    make_sample(
        ScaledDot((((1,), (0,)), ((), ())), dtypes.float32),
        # Integers: the spacing of bfloat16 is too large for finite differences.
        (i32([1, 2, 3, 4], [-2, 0, 5, 1]), i32([1], [-3], [2], [0]), i32([1, 2], [3, 4]), i32([2])),
        reference=_scaled,
    ),
)
