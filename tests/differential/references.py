"""Compares a record's function with its reference, a function of NumPy or SciPy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, final

import jax
import numpy as np
from attrs import frozen

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import attempt, difference
from tests.differential.batching import BatchedCall, batch_mismatches, operand_subsets, vary_element
from tests.differential.records import (
    TRACEFX,
    Call,
    Function,
    Mismatches,
    Record,
    Reference,
    arrays,
    is_inexact,
    operand_values,
)
from tests.laws.examples import is_long_profile
from tracefx.core import NDArray
from tracefx.testing.tolerances import FINITE_DIFFERENCES, Ulps


@final
@frozen(eq=False)
class ExpectedResult:
    """A call and its expected result."""

    label: str
    call: Call
    want: Any
    ulps: Ulps
    typed: bool
    """Whether weak types are compared."""
    staged: bool
    """Whether the compiled result is compared also outside the long profile, unless eager evaluation compiles it."""


def expected_results(reference: Reference) -> Iterator[ExpectedResult]:
    """Yields the reference's calls in 64 and 32 bits with the expected results.

    Compiled results are compared in 64 bits, and in the long profile also in 32 bits.
    """
    for bits in ("float64", "float32"):
        for each in reference.values:
            reference_call = _call_in_bits(each, bits)
            want = _in_bits(reference_result(reference, reference_call), bits)
            label, staged = f"of reference {bits} {each}", bits == "float64"
            yield ExpectedResult(label, reference_call, want, reference.ulps, False, staged)


def reference_result(reference: Reference, call: Call) -> Any:
    """Evaluates the reference in 64 bits."""
    with np.errstate(all="ignore"):
        return call.of(reference.of, [_in_bits(operand_values(x), "float64") for x in call.operands])


def _call_in_bits(call: Call, bits: str) -> Call:
    return call.at([_in_bits(operand_values(x), bits) for x in call.operands])


def _in_bits(x: Any, bits: str) -> Any:
    """Casts floats to the dtype `bits` and complex numbers to the matching complex dtype, also in lists and tuples."""
    if isinstance(x, list | tuple):
        return type(x)([_in_bits(each, bits) for each in x])
    numbers = np.asarray(x)
    if not is_inexact(numbers):
        return numbers
    with np.errstate(all="ignore"):
        return numbers.astype(np.result_type(bits, np.complex64) if numbers.dtype.kind == "c" else bits)


def slopes(record: Record, reference: Reference) -> Mismatches:
    """Compares JVPs in each operand with finite differences of the reference, in 64 bits."""
    mismatches: Mismatches = []
    for each in reference.calls:
        wide = _call_in_bits(each, "float64")
        xs = arrays(TRACEFX, wide)
        for i in each.differentiable_operands if reference.slopes is None else reference.slopes:

            def along(x: Any, i: int = i, wide: Call = wide, xs: Sequence[Any] = xs) -> Any:
                return wide.of(record.via(TRACEFX), [*xs[:i], x, *xs[i + 1 :]])

            direction = np.clip(np.abs(operand_values(wide.operands[i])), 2.0**-10, 1.0)
            tangent = fnp.array(direction, dtype=xs[i].dtype)
            got = attempt(_tangent, along, xs[i], tangent)
            want = _quotient(reference, wide, i, direction)
            if found := difference(got, want, FINITE_DIFFERENCES, weak=False):
                mismatches.append(f"jvp of reference {each} at {i}: {found}")
    return mismatches


STEP: Final = 2.0**-12


def _tangent(f: Function, x: Any, t: Any) -> Any:
    return fx.jvp(f, (x,), (t,))[1]


def _quotient(reference: Reference, call: Call, i: int, direction: NDArray) -> Any:
    """Returns the directional derivative in an operand, by a central difference of four values."""
    step = STEP * direction

    def value_at(offset: float) -> Any:
        return reference_result(
            reference,
            call.at([operand_values(x) + offset * step if j == i else x for j, x in enumerate(call.operands)]),
        )

    def slope(a: Any, b: Any, c: Any, d: Any) -> Any:
        if isinstance(a, list | tuple):
            return type(a)([slope(*each) for each in zip(a, b, c, d, strict=True)])
        return np.asarray((a - 8 * b + 8 * c - d) / (12 * STEP))

    return slope(*[value_at(k) for k in (-2, -1, 1, 2)])


def batches(record: Record, reference: Reference) -> Mismatches:
    """Compares batches of the reference's calls in 64 bits with the reference evaluated element by element.

    All operands are batched together, and in the long profile also each alone.
    """
    mismatches: Mismatches = []
    for each in reference.calls:
        wide = _call_in_bits(each, "float64")
        subsets = operand_subsets(wide) if reference.mapped is None else reference.mapped
        for chosen in subsets if is_long_profile() else subsets[-1:]:
            b = BatchedCall(wide, chosen)
            rows = [
                reference_result(
                    reference,
                    wide.at(
                        [vary_element(operand_values(x), k) if i in chosen else x for i, x in enumerate(wide.operands)]
                    ),
                )
                for k in range(b.size)
            ]
            want = jax.tree.map(lambda *parts: np.stack(parts), *rows)
            mismatches += batch_mismatches(record, b, want, reference.ulps, typed=False)
    return mismatches
