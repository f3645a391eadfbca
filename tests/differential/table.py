"""The table of all records."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from tests.differential.records import Record

MODULES: Final = """
    elementwise numbers reductions order statistics shapes assembling creation editing polynomials
    samples_along_axes indexing index_tricks kinds linear decompositions methods lax_elementwise
    lax_arrays lax_convolution lax_indexing lax_forms lax_folding lax_order fourier scipy_fft
    scipy_linalg scipy_others scipy_special scipy_stats scipy_spectra scipy_transform segments signals
    images nn layers draws
"""
"""The modules with records, in this folder."""

RECORDS: Final[tuple[Record, ...]] = tuple(
    [record for name in MODULES.split() for record in import_module(f"tests.differential.{name}").RECORDS]
)
