"""The comparison of a record's function with its reference, a function of NumPy's or SciPy's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, final

import jax
import numpy as np
from attrs import frozen

import tracefx as fx
import tracefx.numpy as fnp
from tests.differential.batching import BatchedCall, batch_mismatches, operand_subsets, vary_element
from tests.differential.comparing import Mismatches, arrays, attempt, compare_outcomes
from tests.differential.records import OURS, Call, Record, Reference, is_inexact, operand_values
from tracefx.core.dtypes import NDArray
from tracefx.testing.tolerances import FINITE_DIFFERENCES, Ulps


@final
@frozen(eq=False)
class ExpectedResult:
    """A call and what it is to give."""

    label: str
    call: Call
    want: Any
    ulps: Ulps
    typed: bool
    """Whether weak types count."""
    staged: bool
    """Whether it is compiled too."""


def expected_results(reference: Reference) -> Iterator[ExpectedResult]:
    """Calls in 64 and 32 bits, and what the reference has for these numbers."""
    for bits in ("float64", "float32"):
        for each in reference.values:
            given = _call_in_bits(each, bits)
            want = _in_bits(reference_result(reference, given), bits)
            yield ExpectedResult(f"of reference {bits} {each}", given, want, reference.ulps, False, True)


def reference_result(reference: Reference, call: Call) -> Any:
    """What the reference gives for the numbers of a call, in 64 bits."""
    with np.errstate(all="ignore"):
        return call.of(reference.of, [_in_bits(operand_values(x), "float64") for x in call.operands])


def _call_in_bits(call: Call, bits: str) -> Call:
    return call.at([_in_bits(operand_values(x), bits) for x in call.operands])


def _in_bits(x: Any, bits: str) -> Any:
    """Floats as `bits` says, complex numbers with such parts; integers as they are; also in lists and tuples."""
    if isinstance(x, list | tuple):
        return type(x)([_in_bits(each, bits) for each in x])
    numbers = np.asarray(x)
    if not is_inexact(numbers):
        return numbers
    with np.errstate(all="ignore"):
        return numbers.astype(np.result_type(bits, np.complex64) if numbers.dtype.kind == "c" else bits)


def slopes(record: Record, reference: Reference) -> Mismatches:
    """Tangents along each operand of the calls of a reference beside differences of its values, in 64 bits."""
    found: Mismatches = []
    for each in reference.calls:
        wide = _call_in_bits(each, "float64")
        xs = arrays(OURS, wide)
        for i in each.differentiable_operands if reference.slopes is None else reference.slopes:

            def along(x: Any, i: int = i, wide: Call = wide, xs: Sequence[Any] = xs) -> Any:
                return wide.of(record.via(OURS), [*xs[:i], x, *xs[i + 1 :]])

            direction = np.clip(np.abs(operand_values(wide.operands[i])), 2.0**-10, 1.0)
            tangent = fnp.array(direction, dtype=xs[i].dtype)
            got = attempt(lambda i=i, xs=xs, f=along, t=tangent: fx.jvp(f, (xs[i],), (t,))[1])  # type: ignore[misc]
            want = _difference(reference, wide, i, direction)
            if difference := compare_outcomes(got, want, FINITE_DIFFERENCES, typed=False):
                found.append(f"jvp of reference {each} at {i}: {difference}")
    return found


STEP: Final = 2.0**-12


def _difference(reference: Reference, call: Call, i: int, direction: NDArray) -> Any:
    """The derivative along an operand in a direction, from values at four places around."""
    step = STEP * direction

    def moved(by: float) -> Any:
        return reference_result(
            reference, call.at([operand_values(x) + by * step if j == i else x for j, x in enumerate(call.operands)])
        )

    def slope(a: Any, b: Any, c: Any, d: Any) -> Any:
        if isinstance(a, list | tuple):
            return type(a)([slope(*each) for each in zip(a, b, c, d, strict=True)])
        return np.asarray((a - 8 * b + 8 * c - d) / (12 * STEP))

    return slope(*[moved(k) for k in (-2, -1, 1, 2)])


def batches(record: Record, reference: Reference) -> Mismatches:
    """The calls of a reference in batches of 64 bits, over each operand and over all, beside one after the other."""
    found: Mismatches = []
    for each in reference.calls:
        wide = _call_in_bits(each, "float64")
        for chosen in operand_subsets(wide) if reference.mapped is None else reference.mapped:
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
            found += batch_mismatches(record, b, want, reference.ulps, typed=False)
    return found
