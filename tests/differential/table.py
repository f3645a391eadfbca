"""The table: every record."""

from __future__ import annotations

from typing import Final

from tests.differential import (
    assembling,
    creation,
    editing,
    elementwise,
    fourier,
    images,
    index_tricks,
    indexing,
    kinds,
    lax_arrays,
    lax_convolution,
    lax_elementwise,
    lax_folding,
    lax_forms,
    lax_indexing,
    lax_order,
    linear,
    methods,
    nn,
    numbers,
    reductions,
    samples_along_axes,
    scipy_fft,
    segments,
    shapes,
    signals,
)
from tests.differential.records import Record

RECORDS: Final[tuple[Record, ...]] = (
    *elementwise.RECORDS,
    *numbers.RECORDS,
    *reductions.RECORDS,
    *shapes.RECORDS,
    *assembling.RECORDS,
    *creation.RECORDS,
    *editing.RECORDS,
    *samples_along_axes.RECORDS,
    *indexing.RECORDS,
    *index_tricks.RECORDS,
    *kinds.RECORDS,
    *linear.RECORDS,
    *methods.RECORDS,
    *lax_elementwise.RECORDS,
    *lax_arrays.RECORDS,
    *lax_convolution.RECORDS,
    *lax_indexing.RECORDS,
    *lax_forms.RECORDS,
    *lax_folding.RECORDS,
    *lax_order.RECORDS,
    *fourier.RECORDS,
    *scipy_fft.RECORDS,
    *segments.RECORDS,
    *signals.RECORDS,
    *images.RECORDS,
    *nn.RECORDS,
)
