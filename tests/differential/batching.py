"""Batched calls: which operands are mapped, along which axes, and with which elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
from attrs import frozen

import tracefx as fx
from tests.comparison import attempt, difference
from tests.differential.records import (
    TRACEFX,
    Call,
    Function,
    Library,
    Mismatches,
    Record,
    is_inexact,
    operand_values,
    to_library_array,
    with_same_weak_type,
)
from tests.laws.examples import is_long_profile
from tracefx.core import NDArray
from tracefx.testing.laws import all_batch_axes
from tracefx.testing.tolerances import Ulps


@final
@frozen(eq=False)
class BatchedCall:
    """A call with batched operands: those with indices in `chosen`."""

    call: Call
    chosen: tuple[int, ...]

    @property
    def size(self) -> int:
        """The batch size, different from all axis sizes, so that confusing axes changes shapes."""
        return next(n for n in range(3, 9) if all(n not in operand_values(x).shape for x in self.call.operands))

    @property
    def all_batch_axes(self) -> list[tuple[int | None, ...]]:
        """The combinations of batch axes; the leading axes come first.

        For several batched operands these are only the leading axes, and in the long profile all combinations.
        """
        if len(self.chosen) > 1 and not is_long_profile():
            return [tuple([0 if i in self.chosen else None for i in range(len(self.call.operands))])]
        ranks = [operand_values(x).ndim if i in self.chosen else -1 for i, x in enumerate(self.call.operands)]
        return [axes for axes in all_batch_axes(ranks, most=24) if all(axes[i] is not None for i in self.chosen)]

    @property
    def last_axes(self) -> tuple[int | None, ...]:
        return tuple([-1 if i in self.chosen else None for i in range(len(self.call.operands))])

    def batched_operands(self, library: Library, axes: Sequence[int | None]) -> list[Any]:
        return [
            to_library_array(library, x)
            if axis is None
            else to_library_array(
                library,
                with_same_weak_type(x, np.stack([vary_element(operand_values(x), k) for k in range(self.size)], axis)),
            )
            for x, axis in zip(self.call.operands, axes, strict=True)
        ]

    def elements(self, library: Library) -> list[list[Any]]:
        """Returns the operands for each element of the batch."""
        operands = list(enumerate(self.call.operands))
        return [
            [
                to_library_array(
                    library, with_same_weak_type(x, vary_element(operand_values(x), k)) if i in self.chosen else x
                )
                for i, x in operands
            ]
            for k in range(self.size)
        ]

    def evaluate_elements(self, f: Function) -> list[Any]:
        """Returns tracefx's result for each element of the batch."""
        return [self.call.of(f, xs) for xs in self.elements(TRACEFX)]

    def vmapped(self, library: Library, f: Function, axes: Sequence[int | None], out_axes: int = 0) -> Function:
        vmapped_f: Function = library.root.vmap(
            lambda xs: self.call.of(f, xs), in_axes=(list(axes),), out_axes=out_axes
        )
        return vmapped_f


def operand_subsets(call: Call) -> list[tuple[int, ...]]:
    """Returns sets of operands to map: each alone, and all together."""
    count = len(call.operands)
    return [*([(i,) for i in range(count)] if count > 1 else []), *([tuple(range(count))] if count else [])]


def batch_mismatches(record: Record, b: BatchedCall, want: Any, ulps: Ulps, *, typed: bool = True) -> Mismatches:
    """Compares a batch along all combinations of axes with the expected results, stacked along axis 0."""
    f = record.via(TRACEFX)
    for axes in b.all_batch_axes:
        got = attempt(b.vmapped(TRACEFX, f, axes), b.batched_operands(TRACEFX, axes))
        if found := difference(got, want, ulps, weak=typed):
            return [f"vmap {b.call} in {axes}: {found}"]  # other axes would give similar mismatches
    expected_last = fx.tree.map(lambda w: np.moveaxis(np.asarray(w), 0, -1), want)
    got = b.vmapped(TRACEFX, f, b.last_axes, -1)(b.batched_operands(TRACEFX, b.last_axes))
    found = difference(got, expected_last, ulps, weak=False)
    return [f"vmap {b.call} in and out {b.last_axes}: {found}"] if found else []


def _is_monotonic(x: NDArray) -> bool:
    """Returns whether `x` is a strictly monotonic float vector, as some functions require (bin edges, knots)."""
    if x.ndim != 1 or x.dtype.kind == "c" or not is_inexact(x):
        return False
    steps = np.diff(x.astype(np.float64))
    return bool(np.all(steps > 0) or np.all(steps < 0))


def _vary_monotonic(x: NDArray, k: int) -> NDArray:
    return np.asarray(x * x.dtype.type(1 - k / 16) + x.dtype.type(k / 32)).astype(x.dtype)


def vary_element(x: NDArray, k: int) -> NDArray:
    """Returns element `k` of a batch: a variation of `x` that tries to stay inside the function's domain."""
    if x.size > 1:
        return _vary_monotonic(x, k) if _is_monotonic(x) else np.roll(x, k)
    if k == 0 or not x.size:
        return x
    if x.dtype.kind == "b":
        return x ^ bool(k % 2)
    if x.dtype.kind in "iu":
        return x if int(x.ravel()[0]) < k else x - x.dtype.type(k)
    return np.asarray(x * x.dtype.type(1 - k / 8)).astype(x.dtype)
