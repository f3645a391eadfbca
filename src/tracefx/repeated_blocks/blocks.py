"""Divides stretches that repeat into equal blocks: which equations form a block, and what it takes and gives."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final, TypeAlias, final

import numpy as np
from attrs import frozen

from tracefx.bounded_cache import memoize_on_object
from tracefx.core import NDArray
from tracefx.core.jaxpr import Atom, Eqn, Jaxpr, Var
from tracefx.ops.elementwise.elementwise import Elementwise
from tracefx.ops.elementwise.selection import SelectN
from tracefx.ops.structural import BroadcastInDim, ConvertElementType, Reshape
from tracefx.repeated_blocks.runs import Stretch, codes_of, primitive_codes_of, stretches, weight

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
    """Where the variables of a jaxpr are bound and read, and which of its equations are alike.

    Args:
        eqns: The equations.
        binders: For each variable that an equation binds, by index, the equation's index and the result's.
        readers: For each variable, by index, the indices of the equations that read it, in order. The outputs count as
            an equation after the last.
        codes: An integer per equation; equations are alike if theirs are equal (see `codes_of`): `int64[n]`.
        prims: An integer per equation; primitives are equal if theirs are equal: `int64[n]`.
        operands: The index of the first operand of each equation in `slots`, and the number of all operands:
            `int64[n + 1]`.
        slots: For each operand of all equations, the equation that binds it, or -1, and the result's index:
            `int64[m, 2]`.
    """

    eqns: Sequence[Eqn]
    binders: Mapping[int, Slot]
    readers: Mapping[int, Sequence[int]]
    codes: NDArray
    prims: NDArray
    operands: NDArray
    slots: NDArray

    @staticmethod
    @memoize_on_object
    def of(jaxpr: Jaxpr) -> Uses:
        """Returns the uses in a jaxpr."""
        binders, readers = dict[int, Slot](), defaultdict[int, list[int]](list)
        operands, slots, outside = [0], list[Slot](), (-1, 0)
        for i, e in enumerate(jaxpr.eqns):
            for x in e.inputs:
                if type(x) is Var:
                    readers[x.index].append(i)
                    slots.append(binders.get(x.index, outside))
                else:
                    slots.append(outside)
            operands.append(len(slots))
            for o, v in enumerate(e.outs):
                binders[v.index] = i, o
        for x in jaxpr.outs:
            if type(x) is Var:
                readers[x.index].append(len(jaxpr.eqns))
        return Uses(
            jaxpr.eqns,
            binders,
            dict(readers),
            codes_of(jaxpr.eqns),
            primitive_codes_of(jaxpr.eqns),
            np.array(operands, np.int64),
            np.array(slots, np.int64).reshape(-1, 2),
        )

    def bound_from(self, x: Atom, start: int) -> Slot | None:
        """Returns the equation and result that bind an atom, if that equation is not before `start`."""
        slot = self.binders.get(x.index) if type(x) is Var else None
        return None if slot is None or slot[0] < start else slot

    def read_from(self, v: Var, start: int) -> bool:
        """Whether an equation from index `start` on, or the program's outputs, read a variable."""
        readers = self.readers.get(v.index)
        return readers is not None and readers[-1] >= start


def find_repeats(
    jaxpr: Jaxpr, least_count: int, least_saved: int, least_in_run: int | None = None
) -> tuple[list[Repeat], list[Declined]]:
    """Finds runs of equal blocks among the equations of a jaxpr; sub-jaxprs are not entered.

    Args:
        jaxpr: The program.
        least_count: The least number of blocks, at least 2.
        least_saved: The least number of equations that all runs together must save.
        least_in_run: The least number of equations that each run must save. `least_saved` by default.

    Returns:
        Runs that do not overlap, in order, and the stretches that save `least_saved` equations but were declined.
    """
    uses = Uses.of(jaxpr)
    found: list[Repeat] = []
    declined: list[Declined] = []
    free = np.ones(len(jaxpr.eqns), bool)
    least_in_run = least_in_run or least_saved
    for least in sorted({least_saved, least_in_run}, reverse=True):  # the large runs first
        for stretch in stretches(jaxpr.eqns, uses.codes, least_count, least):
            rest = _longest_free(stretch, free)
            if rest.stop - rest.start < least_count * rest.period:
                continue
            result = _divide(uses, rest, least_count, least)
            if isinstance(result, Repeat) and _is_update(uses, result):
                result = _UPDATE
            if isinstance(result, Repeat):
                found.append(result)
                free[result.start : result.stop] = False
            elif least == least_in_run and stretch.saved >= least_saved:
                declined.append(Declined(rest, result))
    if sum(r.saved for r in found) < least_saved:
        found = []
    return sorted(found, key=lambda r: r.start), declined


_UPDATE: Final = "they are elementwise and independent, and the compiler makes one kernel of all equal ones"


def _is_update(uses: Uses, repeat: Repeat) -> bool:
    """Whether blocks are elementwise and read nothing from each other, as updates of parameters by an optimizer."""
    block = uses.eqns[repeat.start : repeat.start + repeat.period]
    if not all(isinstance(e.prim, (Elementwise, SelectN, ConvertElementType, BroadcastInDim, Reshape)) for e in block):
        return False
    binders = uses.slots[uses.operands[repeat.start] : uses.operands[repeat.stop], 0]
    of = np.repeat(np.arange(repeat.start, repeat.stop), np.diff(uses.operands[repeat.start : repeat.stop + 1]))
    inside = binders >= repeat.start
    return bool(((binders - repeat.start) // repeat.period == (of - repeat.start) // repeat.period)[inside].all())


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
    best = Repeat(stretch.start, period, 1, frozenset(), 0)
    best_start = stretch.start
    most = (stretch.stop - stretch.start) // period
    options: list[tuple[float, Repeat]] = []
    for count in range(most, max(most - 2, least_count - 1), -1):
        room = stretch.stop - stretch.start - count * period
        crossing = _bytes_across_borders(uses, stretch.start, period, room)
        for shift in np.argsort(crossing, kind="stable")[:BORDERS_TRIED].tolist():
            repeat = _equal_blocks(uses, stretch.start + shift, period, count)
            if repeat.count > best.count:
                best, best_start = repeat, stretch.start + shift % period
            if repeat.count < least_count or repeat.saved < least_saved:
                continue
            cost = (1.0 + float(crossing[shift])) * (1 + 0.15 * (most - repeat.count))
            options.append((cost, repeat))
            break
    if options:
        return min(options, key=lambda option: option[0])[1]
    difference = _first_difference(uses, best_start, period, (stretch.stop - best_start) // period)
    if best.count < least_count:
        return difference
    reason = f"sharing the {best.count} equal ones saves {best.saved} equations, fewer than {least_saved}"
    return f"{reason}; {difference}" if difference else reason


def join_small_blocks(uses: Uses, repeat: Repeat, least_count: int, least_equations: int) -> Repeat:
    """Joins neighbouring blocks of few equations, because the compiler does not fuse across the borders of blocks.

    Args:
        uses: The uses of the program's variables.
        repeat: The run.
        least_count: The least number of joined blocks.
        least_equations: The number of equations that a joined block should have at least.

    Returns:
        The run of joined blocks. The last blocks are left out if the count has no such divisor, and the first ones if
        that makes the joined blocks equal. The run itself if they are not, because a block may read another one than
        that before it.
    """
    factor = min(-(-least_equations // repeat.period), repeat.count // least_count)
    separate = frozenset([q + i * repeat.period for i in range(factor) for q in repeat.separate])
    for left_out in range(factor if factor > 1 else 0):
        start, count = repeat.start + left_out * repeat.period, (repeat.count - left_out) // factor
        saved = repeat.saved // (repeat.count - 1) * factor * (count - 1)
        joined = Repeat(start, repeat.period * factor, count, separate, saved)
        if count >= least_count and has_equal_blocks(uses, joined):
            return joined
    return repeat


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
    """Returns the longest run of equal blocks among `count` blocks from `start` on, of alike equations."""
    signatures = _signatures(uses, start, period, count)
    differs = np.flatnonzero((signatures[1:] != signatures[:-1]).any(1)) + 1
    borders = np.concatenate([[0], differs, [count]])
    lengths = np.diff(borders)
    best = int(lengths.argmax())  # the first of several
    first, length = start + int(borders[best]) * period, int(lengths[best])
    prims = uses.prims[first : first + length * period].reshape(length, period)
    separate = frozenset(np.flatnonzero((prims != prims[0]).any(0)).tolist())
    body = sum([weight(e) for q, e in enumerate(uses.eqns[first : first + period]) if q not in separate])
    return Repeat(first, period, length, separate, (length - 1) * body)


def _first_difference(uses: Uses, start: int, period: int, count: int) -> str:
    """Describes the first difference between neighbouring blocks, of `count` blocks with the same primitives.

    Returns an empty text if all are equal.
    """
    signatures = _signatures(uses, start, period, count)
    differs = signatures[1:] != signatures[:-1]
    if not differs.any():
        return ""
    before = int(differs.any(1).argmax())
    blocks = [start + (before + b) * period for b in (1, 0)]
    offsets = uses.operands[blocks[0] : blocks[0] + period + 1] - uses.operands[blocks[0]]
    operands = differs[before, period:].reshape(2, -1).any(0)  # by their binders or the index of the result
    operand = int(operands.argmax()) if operands.any() else len(operands)
    q = int(np.searchsorted(offsets, operand, "right")) - 1
    other = int(differs[before, :period].argmax())
    if differs[before, other] and other < q:
        return f"{_named(uses, blocks[0] + other)} has other parameters in block {before + 2} than in the one before"

    def origin(block: int) -> str:
        binder, result = uses.slots[uses.operands[block] + operand].tolist()
        if binder < block:
            return "a value from outside of the block"
        which = "the result" if len(uses.eqns[binder].outs) == 1 else f"result {result}"
        return f"{which} of {_named(uses, binder)}"

    new, old = map(origin, blocks)
    at = f"operand {operand - int(offsets[q])} of {_named(uses, blocks[0] + q)}"
    return f"{at} is {new} in block {before + 2}, and {old} in the one before"


def _named(uses: Uses, i: int) -> str:
    """Returns the name of an equation's primitive, and its line."""
    e = uses.eqns[i]
    return f"`{e.prim.name}`" if e.source is None else f"`{e.prim.name}` at {e.source}"


def has_equal_blocks(uses: Uses, repeat: Repeat) -> bool:
    """Whether the blocks of a run are equal, apart from the equations in `repeat.separate`."""
    if repeat.stop > len(uses.eqns):
        return False
    codes = uses.codes[repeat.start : repeat.stop].reshape(repeat.count, repeat.period)
    if (codes != codes[0]).any():
        return False
    signatures = _signatures(uses, repeat.start, repeat.period, repeat.count)
    prims = uses.prims[repeat.start : repeat.stop].reshape(repeat.count, repeat.period)
    differs = np.flatnonzero((prims != prims[0]).any(0)).tolist()
    return not (signatures != signatures[0]).any() and repeat.separate.issuperset(differs)


def _signatures(uses: Uses, start: int, period: int, count: int) -> NDArray:
    """Returns what must be equal between `count` blocks of alike equations, a row for each: `int64[count, k]`.

    These are, for each operand, which result of the block it is, or that it comes from outside; and the primitives of
    equations that read results of the block. The parameters of the others can differ.
    """
    stop = start + count * period
    starts = np.repeat(np.arange(start, stop, period), period)
    sizes = np.diff(uses.operands[start : stop + 1])
    binders, results = uses.slots[uses.operands[start] : uses.operands[stop]].T
    origin = np.repeat(starts, sizes)
    is_inside = binders >= origin
    reads_inside = np.zeros(count * period, bool)
    reads_inside[np.repeat(np.arange(count * period), sizes)[is_inside]] = True
    prims = np.where(reads_inside, uses.prims[start:stop], -1)
    binders, results = np.where(is_inside, [binders - origin, results], -1)
    return np.concatenate([x.reshape(count, -1) for x in (prims, binders, results)], axis=1)
