"""Tests every public array function against JAX's function of the same name, and against NumPy or SciPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import pytest

from tests.compiling import default_compile_options
from tests.differential import harness
from tests.differential.differences import KNOWN_DIFFERENCES
from tests.differential.records import Mismatches, Record
from tests.differential.table import RECORDS
from tests.laws.examples import is_long_profile, sampled

COMPARED: Final = [record for record in RECORDS if not record.types_only]


def each_of(records: Sequence[Record], every: int = 1) -> pytest.MarkDecorator:
    """Makes a test of one of `every` records; `make slow` runs all of them."""
    return pytest.mark.parametrize("record", sampled(records, every), ids=lambda record: record.name)


def check_record(record: Record, aspects: tuple[str, ...], find: Callable[[Record], Mismatches]) -> None:
    """Asserts that the mismatches are the known differences. Mismatches are computed again with default XLA options."""
    applicable = [difference for difference in KNOWN_DIFFERENCES if difference.applies_to(record.name)]
    known, long_profile_only = [
        [prefix for prefixes in mismatches for prefix in prefixes if prefix.split()[0] in aspects]
        for mismatches in ([d.prefixes for d in applicable], [d.in_long_profile for d in applicable])
    ]
    unexpected, obsolete = split_by_known(known, long_profile_only, find(record))
    if unexpected or obsolete:
        with default_compile_options():
            unexpected, obsolete = split_by_known(known, long_profile_only, find(record))
    assert not unexpected, "\n".join([record.name, *unexpected])
    assert not obsolete, f"{record.name} differs from JAX no more: take {obsolete} out of differences.py"


def split_by_known(
    known: Sequence[str], long_profile_only: Sequence[str], mismatches: Mismatches
) -> tuple[Mismatches, list[str]]:
    """Returns the unexpected mismatches and the known differences that were not found."""
    allowed, expected = ([*known, *long_profile_only], long_profile_only) if is_long_profile() else (known, known)
    unexpected = [each for each in mismatches if not any(each.startswith(prefix) for prefix in allowed)]
    return unexpected, [prefix for prefix in expected if not any(each.startswith(prefix) for each in mismatches)]


@each_of(RECORDS, every=3)
def test_values_and_types(record: Record) -> None:
    check_record(record, ("value", "compiled", "dtype"), lambda record: harness.values(record) + harness.types(record))


@each_of(RECORDS)
def test_errors_and_names(record: Record) -> None:
    check_record(record, ("error", "name"), lambda record: harness.refusals(record) + harness.other_names(record))


@each_of([r for r in COMPARED if r.derivatives or r.reference], every=6)
def test_derivatives(record: Record) -> None:
    check_record(record, ("jvp", "grad", "second"), harness.derivatives)


@each_of([r for r in COMPARED if r.batched or r.reference], every=6)
def test_batches(record: Record) -> None:
    check_record(record, ("vmap",), harness.batches)
