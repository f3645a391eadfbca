"""Every public function of arrays against the one of the same name in JAX, and against NumPy's or SciPy's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import pytest

from tests.compiling import default_compile_options
from tests.differential import harness
from tests.differential.comparing import Mismatches
from tests.differential.differences import KNOWN_DIFFERENCES
from tests.differential.records import Record
from tests.differential.table import RECORDS
from tests.laws.examples import is_long_profile

each_record: Final = pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)


def check(record: Record, aspects: tuple[str, ...], find: Callable[[Record], Mismatches]) -> None:
    """What is found is what is known, no more and no less. Programs are cheap ones, unless that makes a difference."""
    concerned = [difference for difference in KNOWN_DIFFERENCES if difference.concerns(record.name)]
    known, more = [
        [beginning for beginnings in found for beginning in beginnings if beginning.split()[0] in aspects]
        for found in ([d.beginnings for d in concerned], [d.at_length for d in concerned])
    ]
    new, gone = against(known, more, find(record))
    if new or gone:
        with default_compile_options():
            new, gone = against(known, more, find(record))
    assert not new, "\n".join([record.name, *new])
    assert not gone, f"{record.name} differs from JAX no more: take {gone} out of differences.py"


def against(known: Sequence[str], more: Sequence[str], found: Mismatches) -> tuple[Mismatches, list[str]]:
    """What is found but not known, and what is known but not found. At length, some is found under another name."""
    allowed, expected = ([*known, *more], more) if is_long_profile() else (known, known)
    new = [each for each in found if not any(each.startswith(beginning) for beginning in allowed)]
    return new, [beginning for beginning in expected if not any(each.startswith(beginning) for each in found)]


@each_record
def test_values_and_types(record: Record) -> None:
    check(record, ("value", "compiled", "dtype"), lambda record: harness.values(record) + harness.types(record))


@each_record
def test_errors_and_names(record: Record) -> None:
    check(record, ("error", "name"), lambda record: harness.refusals(record) + harness.other_names(record))


@pytest.mark.parametrize("record", [r for r in RECORDS if r.derivatives or r.reference], ids=lambda record: record.name)
def test_derivatives(record: Record) -> None:
    check(record, ("jvp", "grad", "second"), harness.derivatives)


@pytest.mark.parametrize("record", [r for r in RECORDS if r.batched or r.reference], ids=lambda record: record.name)
def test_batches(record: Record) -> None:
    check(record, ("vmap",), harness.batches)
