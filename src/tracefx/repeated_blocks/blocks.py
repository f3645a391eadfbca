"""Divides stretches that repeat into equal blocks: which equations form a block, and what it takes and gives."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final, TypeAlias, final

import numpy as np
from attrs import frozen

from tracefx.core import Literal, NDArray
from tracefx.core.jaxpr import Atom, Eqn, HasSubjaxprs, Jaxpr, Var
from tracefx.repeated_blocks.runs import Stretch, stretches, weight

BORDERS_TRIED: Final = 4
"""How many positions of the first block's border are tried in a stretch, those that fewest bytes cross first."""

Slot: TypeAlias = tuple[int, int]
"""An operand or a result of a block's equations: the position of the equation in the block, and its index."""


@final
@frozen
class Repeat:
    """A run of equal blocks: `count` times `period` equations from equation `start` on.

    Args:
        start: The index of the first equation.
        period: The number of equations of a block.
        count: The number of blocks.
        separate: Positions of equations that differ between the blocks in their parameters. Their operands come from
            outside of the block, so they can be evaluated before it.
        saved: The number of equations, those of sub-jaxprs included, that need not be compiled.
    """

    start: int
    period: int
    count: int
    separate: frozenset[int]
    saved: int

    @property
    def stop(self) -> int:
        """The index after the last equation."""
        return self.start + self.count * self.period


@final
@frozen
class Declined:
    """A stretch that repeats but is not divided into equal blocks, and the reason.

    Args:
        stretch: The stretch.
        reason: The reason, in words.
    """

    stretch: Stretch
    reason: str


@final
@frozen(eq=False)
class Uses:
    """Where the variables of a jaxpr are bound and read.

    Args:
        eqns: The equations.
        binders: For each variable that an equation binds, by index, the equation's index and the result's.
        readers: For each variable, by index, the indices of the equations that read it, in order. The outputs count as
            an equation after the last.
    """

    eqns: Sequence[Eqn]
    binders: Mapping[int, Slot]
    readers: Mapping[int, Sequence[int]]

    @classmethod
    def of(cls, jaxpr: Jaxpr) -> Uses:
        """Returns the uses in a jaxpr."""
        binders, readers = {}, defaultdict[int, list[int]](list)
        for i, e in enumerate(jaxpr.eqns):
            for o, v in enumerate(e.outs):
                binders[v.index] = i, o
            for x in e.inputs:
                if type(x) is Var:
                    readers[x.index].append(i)
        for x in jaxpr.outs:
            if type(x) is Var:
                readers[x.index].append(len(jaxpr.eqns))
        return cls(jaxpr.eqns, binders, dict(readers))

    def bound_from(self, x: Atom, start: int) -> Slot | None:
        """Returns the equation and result that bind an atom, if that equation is not before `start`."""
        slot = self.binders.get(x.index) if type(x) is Var else None
        return None if slot is None or slot[0] < start else slot

    def read_from(self, v: Var, start: int) -> bool:
        """Whether an equation from index `start` on, or the program's outputs, read a variable."""
        readers = self.readers.get(v.index)
        return readers is not None and readers[-1] >= start


def find_repeats(jaxpr: Jaxpr, least_count: int, least_saved: int) -> tuple[list[Repeat], list[Declined]]:
    """Finds runs of equal blocks among the equations of a jaxpr; sub-jaxprs are not entered.

    Args:
        jaxpr: The program.
        least_count: The least number of blocks, at least 2.
        least_saved: The least number of equations that a run must save.

    Returns:
        Runs that do not overlap, in order, and the stretches that were declined.
    """
    uses = Uses.of(jaxpr)
    found: list[Repeat] = []
    declined: list[Declined] = []
    free = np.ones(len(jaxpr.eqns), bool)
    for stretch in stretches(jaxpr.eqns, least_count, least_saved):
        rest = _longest_free(stretch, free)
        if rest.stop - rest.start < least_count * rest.period:
            continue
        result = _divide(uses, rest, least_count, least_saved)
        if isinstance(result, Repeat):
            found.append(result)
            free[result.start : result.stop] = False
        else:
            declined.append(Declined(rest, result))
    return sorted(found, key=lambda r: r.start), declined


def _longest_free(stretch: Stretch, free: NDArray) -> Stretch:
    """Returns the longest part of a stretch of which no equation is taken."""
    start, best = stretch.start, (stretch.start, stretch.start)
    for is_free, group in groupby(free[stretch.start : stretch.stop].tolist()):
        stop = start + len(list(group))
        if is_free and stop - start > best[1] - best[0]:
            best = start, stop
        start = stop
    return Stretch(*best, stretch.period, stretch.saved)


def _divide(uses: Uses, stretch: Stretch, least_count: int, least_saved: int) -> Repeat | str:
    """Divides a stretch into equal blocks, or returns the reason why not."""
    period = stretch.period
    block = uses.eqns[stretch.start : stretch.start + period]
    effects = {e.prim.name for e in block if any(effect.observable for effect in e.prim.effects)}
    if effects:
        return f"they have effects ({', '.join(sorted(effects))})"
    best_count, best_saved = 1, 0
    most = (stretch.stop - stretch.start) // period
    options: list[tuple[float, Repeat]] = []
    for count in range(most, max(most - 2, least_count - 1), -1):
        room = stretch.stop - stretch.start - count * period
        crossing = _bytes_across_borders(uses, stretch.start, period, room)
        for shift in np.argsort(crossing, kind="stable")[:BORDERS_TRIED].tolist():
            repeat = _equal_blocks(uses, stretch.start + shift, period, count)
            best_count, best_saved = max(best_count, repeat.count), max(best_saved, repeat.saved)
            if repeat.count < least_count or repeat.saved < least_saved:
                continue
            cost = (1.0 + float(crossing[shift])) * (1 + 0.15 * (most - repeat.count))
            options.append((cost, repeat))
            break
    if options:
        return min(options, key=lambda option: option[0])[1]
    if best_count < least_count:
        return "they refer to each other in different ways"
    return f"sharing the {best_count} equal ones saves {best_saved} equations, fewer than {least_saved}"


def join_small_blocks(uses: Uses, repeat: Repeat, least_count: int, least_equations: int) -> Repeat:
    """Joins neighbouring blocks of few equations, because the compiler does not fuse across the borders of blocks.

    Args:
        uses: The uses of the program's variables.
        repeat: The run.
        least_count: The least number of joined blocks.
        least_equations: The number of equations that a joined block should have at least.

    Returns:
        The run of joined blocks. The last blocks are left out if the count has no such divisor. The run itself if
        joined blocks are not equal, because a block may read another one than that before it.
    """
    factor = min(-(-least_equations // repeat.period), repeat.count // least_count)
    if factor < 2:
        return repeat
    separate = frozenset([q + i * repeat.period for i in range(factor) for q in repeat.separate])
    count = repeat.count // factor
    saved = repeat.saved // (repeat.count - 1) * factor * (count - 1)
    joined = Repeat(repeat.start, repeat.period * factor, count, separate, saved)
    return joined if has_equal_blocks(uses, joined) else repeat


def _bytes_across_borders(uses: Uses, start: int, period: int, room: int) -> NDArray:
    """Returns, for each border `start + period + r` with `0 <= r <= room`, the bytes that go from block to block."""
    change = np.zeros(room + 2, np.int64)
    first = start + period
    for i in range(start, min(first + room, len(uses.eqns))):
        for v in uses.eqns[i].outs:
            later = [u for u in uses.readers.get(v.index, ()) if u < i + 2 * period]
            low, high = max(i + 1, first), min(max(later, default=i), i + period, first + room)
            if low <= high:
                change[low - first] += v.aval.nbytes
                change[high - first + 1] -= v.aval.nbytes
    return np.cumsum(change)[:-1]


def _equal_blocks(uses: Uses, start: int, period: int, count: int) -> Repeat:
    """Returns the longest run of equal blocks among `count` blocks from `start` on."""
    signatures = [_signature(uses, start + b * period, period) for b in range(count)]
    best, b = (0, 1), 0
    for _, group in groupby(signatures):
        length = len(list(group))
        if length > best[1]:
            best = b, length
        b += length
    first = start + best[0] * period
    block = uses.eqns[first : first + period]
    separate = frozenset(
        [
            q
            for q in range(period)
            if any(uses.eqns[first + b * period + q].prim != block[q].prim for b in range(1, best[1]))
        ]
    )
    body = sum([weight(e) for q, e in enumerate(block) if q not in separate])
    return Repeat(first, period, best[1], separate, (best[1] - 1) * body)


def has_equal_blocks(uses: Uses, repeat: Repeat) -> bool:
    """Whether the blocks of a run are equal, apart from the equations in `repeat.separate`."""
    blocks = [uses.eqns[start : start + repeat.period] for start in range(repeat.start, repeat.stop, repeat.period)]
    signatures = {_signature(uses, repeat.start + b * repeat.period, repeat.period) for b in range(repeat.count)}
    return len(signatures) == 1 and all(
        block[q].prim == first.prim
        for block in blocks
        for q, first in enumerate(blocks[0])
        if q < len(block) and q not in repeat.separate
    )


def _signature(uses: Uses, start: int, period: int) -> tuple[object, ...]:
    """Returns what must be equal between blocks: operand types, where operands come from, and some parameters.

    The parameters of an equation can differ if all its operands come from outside of the block.
    """
    signature: list[object] = []
    for e in uses.eqns[start : start + period]:
        slots = [uses.bound_from(x, start) for x in e.inputs]
        signature += [None if slot is None else (slot[0] - start, slot[1]) for slot in slots]
        signature += [(type(x) is Literal, x.aval) for x in e.inputs]
        if any(slot is not None for slot in slots) or isinstance(e.prim, HasSubjaxprs):
            signature.append(e.prim)
    return tuple(signature)
