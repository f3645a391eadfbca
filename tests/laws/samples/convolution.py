"""Samples of convolutions and of contractions in groups."""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude=jax

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from jax import lax

from tests.laws.samples.making import Function, Sample, grid, of
from tracefx.ops.convolution import ConvGeneralDilated
from tracefx.ops.convolution_numbers import ConvDimensionNumbers

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


SAMPLES: Final[tuple[Sample, ...]] = (
    of(
        ConvGeneralDilated((1, 2), ((1, 0), (1, 1)), (1, 1), (2, 1), CHANNELS_LAST, feature_group_count=2),
        (grid(2, 4, 5, 2), grid(2, 3, 1, 4)),
    ),
    of(
        ConvGeneralDilated((2,), ((-1, 2),), (2,), (1,), PLAIN, batch_group_count=2),
        (grid(2, 3, 4), grid(4, 3, 2)),
        (grid(2, 3, 4, dtype=np.complex64) * (1 + 2j), grid(4, 3, 2, dtype=np.complex64) * (2 - 1j)),
    ),
)

REFERENCES: Final[Mapping[str, Callable[[Any], Function]]] = {"conv_general_dilated": _convolution}
