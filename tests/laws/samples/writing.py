"""Samples of scatter_sub, scatter_mul, mulhi and unstack."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import attrs
import numpy as np
from jax import lax

from tests.laws.samples.making import Function, Sample, grid, i32, make_sample
from tracefx.ops.elementwise.mulhi import MulHi
from tracefx.ops.indexing.along_axis import Unstack
from tracefx.ops.indexing.gather_scatter_add import ScatterDimensionNumbers
from tracefx.ops.indexing.indexed_windows import GatherScatterMode
from tracefx.ops.indexing.scatter import ScatterMul, ScatterSub


def _scatter_sub(p: Any) -> Function:
    fields = attrs.asdict(p.dimension_numbers)
    return partial(
        lax.scatter_sub,
        dimension_numbers=lax.ScatterDimensionNumbers(**fields),
        indices_are_sorted=p.indices_are_sorted,
        unique_indices=p.unique_indices,
        mode=lax.GatherScatterMode[p.mode.name],
    )


INTO_ROWS: Final = ScatterDimensionNumbers((1,), (0,), (0,))
TWICE: Final = np.array([[2], [2], [7]], np.int32)
LARGE: Final = i32(2**30, -(2**31), 7), i32(12, 2**31 - 1, -1)

SAMPLES: Final[tuple[Sample, ...]] = (
    make_sample(
        ScatterSub(INTO_ROWS, False, False, GatherScatterMode.FILL_OR_DROP),
        (grid(3, 4), TWICE, grid(3, 4) / 3),
        reference=_scatter_sub,
    ),
    make_sample(ScatterSub(INTO_ROWS, True, False, GatherScatterMode.CLIP), (grid(3, 4), TWICE, grid(3, 4) / 3)),
    make_sample(
        ScatterMul(INTO_ROWS, False, False, GatherScatterMode.FILL_OR_DROP), (grid(3, 4), TWICE, grid(3, 4) + 1.5)
    ),
    make_sample(MulHi(), LARGE, (LARGE[0], 2**20)),
    make_sample(
        Unstack(1), (grid(2, 3),), (i32([1, 2], [3, 4]),), reference=lambda p: lambda x: lax.unstack(x, p.axis)
    ),
    make_sample(Unstack(0), (grid(2, 1, 2),)),
)
