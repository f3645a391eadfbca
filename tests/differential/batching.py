"""Batches of calls: which operands are mapped, along which axes, and what numbers a batch has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
from attrs import frozen

import tracefx as fx
from tests.differential.comparing import Mismatches, attempt, compare, format_outcome
from tests.differential.records import (
    OURS,
    Call,
    Function,
    Library,
    Record,
    is_inexact,
    operand_values,
    to_library_array,
    with_same_weak_type,
)
from tracefx.core.dtypes import NDArray
from tracefx.testing.laws import all_batch_axes
from tracefx.testing.tolerances import Ulps


@final
@frozen(eq=False)
class BatchedCall:
    """A call of a batch, in which some operands are mapped."""

    call: Call
    chosen: tuple[int, ...]

    @property
    def size(self) -> int:
        """A size that no axis has, so that none can be taken for the batch's."""
        return next(n for n in range(3, 9) if all(n not in operand_values(x).shape for x in self.call.operands))

    @property
    def all_batch_axes(self) -> list[tuple[int | None, ...]]:
        """The ways to lay out the batch, the one in front first."""
        ranks = [operand_values(x).ndim if i in self.chosen else -1 for i, x in enumerate(self.call.operands)]
        return [axes for axes in all_batch_axes(ranks, most=24) if all(axes[i] is not None for i in self.chosen)]

    @property
    def last(self) -> tuple[int | None, ...]:
        return tuple([-1 if i in self.chosen else None for i in range(len(self.call.operands))])

    def laid_out(self, library: Library, axes: Sequence[int | None]) -> list[Any]:
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
        """The operands of each element of the batch."""
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

    def mapped(self, library: Library, f: Function, axes: Sequence[int | None], out_axes: int = 0) -> Function:
        over: Function = library.root.vmap(lambda xs: self.call.of(f, xs), in_axes=(list(axes),), out_axes=out_axes)
        return over


def operand_subsets(call: Call) -> list[tuple[int, ...]]:
    """Which operands of a call are mapped: each alone, and all together."""
    count = len(call.operands)
    return [*([(i,) for i in range(count)] if count > 1 else []), *([tuple(range(count))] if count else [])]


def batch_mismatches(record: Record, b: BatchedCall, want: Any, ulps: Ulps, *, typed: bool = True) -> Mismatches:
    """How a batch differs from the results wanted, stacked in front, when it is laid out along any axes."""
    f = record.via(OURS)
    for axes in b.all_batch_axes:
        got = attempt(lambda axes=axes: b.mapped(OURS, f, axes)(b.laid_out(OURS, axes)))  # type: ignore[misc]
        difference = format_outcome(got) if isinstance(got, Exception) else compare(got, want, ulps, typed=typed)
        if difference:
            return [f"vmap {b.call} in {axes}: {difference}"]  # the others would differ in the same way
    moved = fx.tree.map(lambda w: np.moveaxis(np.asarray(w), 0, -1), want)
    got = b.mapped(OURS, f, b.last, -1)(b.laid_out(OURS, b.last))
    difference = compare(got, moved, ulps, typed=False)
    return [f"vmap {b.call} in and out {b.last}: {difference}"] if difference else []


def _is_in_order(x: NDArray) -> bool:
    """Whether these are different floats in order, which functions may need to be so: edges, knots."""
    if x.ndim != 1 or x.dtype.kind == "c" or not is_inexact(x):
        return False
    steps = np.diff(x.astype(np.float64))
    return bool(np.all(steps > 0) or np.all(steps < 0))


def _in_order(x: NDArray, k: int) -> NDArray:
    return np.asarray(x * x.dtype.type(1 - k / 16) + x.dtype.type(k / 32)).astype(x.dtype)


def vary_element(x: NDArray, k: int) -> NDArray:
    """Element `k` of a batch: numbers that stay where the function is defined as far as one can tell."""
    if x.size > 1:
        return _in_order(x, k) if _is_in_order(x) else np.roll(x, k)
    if k == 0 or not x.size:
        return x
    if x.dtype.kind == "b":
        return x ^ bool(k % 2)
    if x.dtype.kind in "iu":
        return x if int(x.ravel()[0]) < k else x - x.dtype.type(k)
    return np.asarray(x * x.dtype.type(1 - k / 8)).astype(x.dtype)
