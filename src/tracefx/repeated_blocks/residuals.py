"""Reduces the bytes that equal blocks store for later equations, by recomputing cheap values where they are read.

XLA fuses cheap elementwise operations into each of their consumers, and so stores only their operands. A block that is
compiled on its own must return every value that is read outside of it. So, before blocks are shared, the values to
store are chosen by a minimum cut: the cheapest set from which cheap operations compute all values that later equations
read.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count, groupby, pairwise
from typing import Final, TypeAlias, final

from attrs import evolve, field, frozen
from typing_extensions import TypeIs

from tracefx.core.jaxpr import Atom, Eqn, Jaxpr, Var
from tracefx.ops.elementwise.accuracy import HasAccuracy
from tracefx.ops.elementwise.arithmetic import Div, Rem
from tracefx.ops.elementwise.elementwise import Elementwise
from tracefx.ops.elementwise.powers import Pow
from tracefx.ops.elementwise.selection import SelectN
from tracefx.ops.elementwise.transcendental import Cos, Sin
from tracefx.ops.indexing.dynamic_slicing import DynamicSlice
from tracefx.ops.operation import CompiledOperation
from tracefx.ops.shape.array_creation import Iota
from tracefx.ops.shape.shape import Squeeze
from tracefx.ops.shape.slicing import Slice
from tracefx.ops.structural import BroadcastInDim, ConvertElementType, Reshape
from tracefx.repeated_blocks.blocks import Repeat, Slot, Uses, has_equal_blocks

_Node: TypeAlias = tuple[int, int]
_Chains: TypeAlias = dict[int, tuple[int, ...]]
"""For each value, by index, the positions of the equations that recompute it."""

_CHEAP: Final = (Elementwise, SelectN, ConvertElementType, BroadcastInDim, Reshape, Squeeze, Iota, Slice, DynamicSlice)
_EXPENSIVE: Final = (HasAccuracy, CompiledOperation, Div, Rem, Pow)
_CHEAP_FOR_REALS: Final = (Sin, Cos)


LONGEST_RECOMPUTATION: Final = 32
"""How many equations recompute a value of equations that are in no run, at most."""


def is_cheap(e: Eqn, broadcasts: Collection[int] = ()) -> bool:
    """Whether XLA recomputes the result of an equation in each consumer, in place of storing it.

    A division by a number, or by the result of a broadcast, becomes a product with the reciprocal. `broadcasts` are the
    indices of such results; none by default.
    """
    if isinstance(e.prim, Div) and e.outs[0].aval.dtype.kind == "f":
        divisor = e.inputs[1]
        return not divisor.aval.shape or _is_in(divisor, broadcasts)
    if isinstance(e.prim, _CHEAP_FOR_REALS):
        return e.outs[0].aval.dtype.kind != "c"
    return isinstance(e.prim, _CHEAP) and not isinstance(e.prim, _EXPENSIVE)


@final
@frozen
class _Unit:
    """Equations that are rewritten together: a block of a run, or the equations between two runs."""

    start: int
    stop: int
    run: int | None = None
    """The index of the run."""


def recompute_residuals(jaxpr: Jaxpr, repeats: Sequence[Repeat], least_count: int = 2) -> tuple[Jaxpr, list[Repeat]]:
    """Recomputes cheap values of blocks where later equations read them, if that stores fewer bytes.

    Args:
        jaxpr: The program.
        repeats: Its runs of equal blocks, in order.
        least_count: The least number of blocks of a run. 2 by default.

    Returns:
        The program with the recomputations, and its runs of equal blocks; the same object if there are none. A run
        loses its first and last blocks if they recompute other values than the rest.
    """
    recomputation = _Recomputation(jaxpr, repeats)
    ways = [recomputation.ways(run) for run in range(len(repeats))]
    trimmed = [_trim(repeat, blocks, least_count) for repeat, blocks in zip(repeats, ways, strict=True)]
    if trimmed != list(repeats):
        return recompute_residuals(jaxpr, trimmed, least_count)
    units, prefixes = recomputation.units, recomputation.prefixes()
    while any(prefix.eqns for prefix in prefixes):
        new, new_repeats = _assemble(jaxpr, repeats, units, prefixes)
        uses = Uses.of(new)
        unequal = {i for i, repeat in enumerate(new_repeats) if not has_equal_blocks(uses, repeat)}
        if not unequal:
            return new, new_repeats
        # The blocks of these runs would recompute different values: they read the stored ones.
        prefixes = [_Prefix() if unit.run in unequal else prefix for unit, prefix in zip(units, prefixes, strict=True)]
    return jaxpr, list(repeats)


def _trim(repeat: Repeat, ways: Sequence[object], least_count: int) -> Repeat:
    """Returns the longest run of blocks that recompute values alike; the whole run if that is less than half."""
    start = 0
    first, most = 0, 0
    for _, group in groupby(ways):
        length = len(list(group))
        if length > most:
            first, most = start, length
        start += length
    if most == repeat.count or most < least_count or 2 * most < repeat.count:
        return repeat
    saved = repeat.saved // (repeat.count - 1) * (most - 1)
    return evolve(repeat, start=repeat.start + first * repeat.period, count=most, saved=saved)


def _assemble(
    jaxpr: Jaxpr, repeats: Sequence[Repeat], units: Sequence[_Unit], prefixes: Sequence[_Prefix]
) -> tuple[Jaxpr, list[Repeat]]:
    """Returns the program with the prefix of each unit before it, and its runs with the prefix of their first block."""
    eqns: list[Eqn] = []
    new_repeats: list[Repeat] = []
    for unit, prefix in zip(units, prefixes, strict=True):
        if unit.run is not None and unit.run == len(new_repeats):
            r, added = repeats[unit.run], len(prefix.eqns)
            separate = frozenset([q + added for q in r.separate])
            new_repeats.append(evolve(r, start=len(eqns), period=r.period + added, separate=separate))
        eqns += prefix.eqns
        for e in jaxpr.eqns[unit.start : unit.stop]:
            inputs = prefix.rename(e.inputs)
            eqns.append(e if inputs == e.inputs else Eqn(e.prim, inputs, e.outs, e.source))
    return Jaxpr(jaxpr.constvars, jaxpr.invars, tuple(eqns), jaxpr.outs), new_repeats


@final
@frozen(eq=False)
class _Prefix:
    """The equations that recompute values before a unit, and the variables that the unit reads in their place."""

    eqns: list[Eqn] = field(factory=list)
    renamed: dict[int, Var] = field(factory=dict)

    def add(self, eqns: Iterable[Eqn], fresh: Iterator[int]) -> None:
        """Adds the equations that are not there, with the next fresh variables."""
        for e in eqns:
            (old,) = e.outs
            if old.index not in self.renamed:
                new = Var(next(fresh), old.aval)
                self.eqns.append(Eqn(e.prim, self.rename(e.inputs), (new,), e.source))
                self.renamed[old.index] = new

    def rename(self, atoms: Sequence[Atom]) -> tuple[Atom, ...]:
        """Returns the atoms with recomputed values in place of stored ones."""
        return tuple([self.renamed.get(x.index, x) if type(x) is Var else x for x in atoms])


@final
class _Recomputation:
    """Which values the units of a program recompute, and the equations for it."""

    def __init__(self, jaxpr: Jaxpr, repeats: Sequence[Repeat]) -> None:
        self.jaxpr = jaxpr
        self.uses = Uses.of(jaxpr)
        self.units = list(_units(repeats, len(jaxpr.eqns)))
        self.runs = {i: unit.run for unit in self.units for i in range(unit.start, unit.stop)}
        """The run of each equation; None if it is in none."""
        self.chains: dict[int, tuple[int, ...]] = {}
        """For each value that is recomputed where it is read, by index, the equations for it; none if it is stored."""
        for r in repeats:
            for (q, o), chain in _choose(self.uses, jaxpr, r).items():
                for start in range(r.start, r.stop, r.period):
                    own = [start + p for p in chain if start + p >= r.start]  # the first block has none before it
                    self.chains[jaxpr.eqns[start + q].outs[o].index] = tuple(own)
        outside = [(i, e, True) for i, e in enumerate(jaxpr.eqns) if self.runs[i] is None]
        bound = {v.index for _, e, _ in outside for v in e.outs}
        read = {
            x.index: x
            for i, e in enumerate(jaxpr.eqns)
            if self.runs[i] is not None
            for x in e.inputs
            if type(x) is Var and x.index in bound
        }
        for index, chain in _recomputations(jaxpr, outside, list(read.values()))[0].items():
            if len(chain) <= LONGEST_RECOMPUTATION:
                self.chains[index] = chain

    def _columns(self, run: int | None, units: Iterable[_Unit]) -> list[tuple[tuple[int, ...], ...]]:
        """Returns, for each operand of the units' equations, the equations that recompute it, for each unit."""

        def chain(x: Atom) -> tuple[int, ...]:
            slot = self.uses.bound_from(x, 0)
            if type(x) is not Var or slot is None or self.runs[slot[0]] == run:
                return ()
            return self.chains.get(x.index, ())

        return list(
            zip(*[[chain(x) for e in self.jaxpr.eqns[u.start : u.stop] for x in e.inputs] for u in units], strict=True)
        )

    def _way(self, chain: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the primitives of some equations, as integers."""
        return tuple(self.uses.prims[list(chain)].tolist())

    def ways(self, run: int) -> list[tuple[tuple[int, ...], ...]]:
        """Returns, for each block of a run, how it recomputes the values that blocks read from other runs."""
        columns = self._columns(run, [unit for unit in self.units if unit.run == run])
        between = [column for column in columns if any(self.runs[chain[-1]] is not None for chain in column if chain)]
        return list(zip(*[map(self._way, column) for column in between], strict=True))

    def prefixes(self) -> list[_Prefix]:
        """Returns the recomputations of each unit. Blocks of a run recompute a value only if all do in the same way."""
        result: list[_Prefix] = []
        fresh = count(self.jaxpr.var_count)
        for run, group in groupby(self.units, lambda unit: unit.run):
            units = list(group)
            prefixes = [_Prefix() for _ in units]
            for column in self._columns(run, units):
                if len(set(map(self._way, column))) == 1:
                    for prefix, chain in zip(prefixes, column, strict=True):
                        prefix.add([self.jaxpr.eqns[i] for i in chain], fresh)
            result += prefixes
        return result


def _units(repeats: Sequence[Repeat], end: int) -> Iterator[_Unit]:
    done = 0
    for i, r in enumerate(repeats):
        yield _Unit(done, r.start)
        for b in range(r.count):
            yield _Unit(r.start + b * r.period, r.start + (b + 1) * r.period, i)
        done = r.stop
    yield _Unit(done, end)


def _choose(uses: Uses, jaxpr: Jaxpr, repeat: Repeat) -> dict[Slot, tuple[int, ...]]:
    """Chooses which values of a run to recompute where they are read after it.

    If each block stores a value from which it computes an operand of the next one by cheap operations, later equations
    can recompute the operand from that value. Three sets of such values are compared: none, the operands themselves,
    and those that blocks store if each is taken on its own.

    Returns:
        For each result of a block that is recomputed, the positions of the equations that recompute it; those of the
        block before are negative.
    """
    needed = [
        (q, o)
        for q in range(repeat.period)
        for o in range(len(uses.eqns[repeat.start + q].outs))
        if any(
            uses.read_from(uses.eqns[start + q].outs[o], repeat.stop)
            for start in range(repeat.start, repeat.stop, repeat.period)
        )
    ]
    first, second = [uses.eqns[start : start + repeat.period] for start in (repeat.start, repeat.start + repeat.period)]
    # The second block is divided, because the first may read other values as the one before it.
    eqns = [(q, e, q not in repeat.separate) for q, e in enumerate(second)]
    both = [(q - repeat.period, e, q not in repeat.separate) for q, e in enumerate(first)] + eqns

    values = [second[q].outs[o] for q, o in needed]
    same = {
        old.index: (old, new)
        for e, f in zip(first, second, strict=True)
        for old, new in zip(e.outs, f.outs, strict=True)
    }

    def choose(kept: Collection[int]) -> tuple[int, _Chains, Collection[int]]:
        stored = [v for index in kept for v in same[index]]
        chains, cut = _recomputations(jaxpr, both if kept else eqns, values, stored)
        return sum(cut.values()) + sum([2 * same[index][0].aval.nbytes for index in kept]), chains, cut

    alone = choose(())
    before = {index: old for index, (old, new) in same.items() if new.index in alone[2]}
    further, _ = _recomputations(jaxpr, both, values, list(before.values()))
    positions = {p for chain in further.values() for p in chain}
    kept = {x.index for p, e, _ in both if p in positions for x in e.inputs if _is_in(x, before)}
    operands = {x.index for e in second for x in e.inputs if _is_in(x, same)}
    _, chains, _ = min(alone, choose(operands), choose(kept), key=lambda choice: choice[0])
    return {(q, o): chains[v.index] for (q, o), v in zip(needed, values, strict=True)}


def _is_in(x: Atom, indices: Collection[int]) -> TypeIs[Var]:
    return type(x) is Var and x.index in indices


def _recomputations(
    jaxpr: Jaxpr, eqns: Iterable[tuple[int, Eqn, bool]], needed: Sequence[Var], stored: Collection[Var] = ()
) -> tuple[_Chains, Mapping[int, int]]:
    """Chooses which of the needed values to recompute, so that the fewest bytes are stored.

    Args:
        jaxpr: The program.
        eqns: The equations that bind the needed values, and those before them: the position of each, the equation,
            and whether it may be evaluated again.
        needed: The needed values.
        stored: Values that are stored in any case. None by default.

    Returns:
        For each needed value, by index, the positions of the equations that recompute it, none if it is stored; and the
        cost of each value that is stored for them, by index.
    """
    free = {v.index for v in (*jaxpr.invars, *stored)}
    cost: dict[int, int] = {}
    operands: dict[int, list[int]] = {}
    binders: dict[int, int] = {}
    broadcasts: set[int] = set()
    for q, e, is_repeatable in eqns:
        for x in e.inputs:
            if type(x) is Var:
                cost.setdefault(x.index, 0 if x.index in free else 2 * x.aval.nbytes)
        cheap = is_cheap(e, broadcasts) and is_repeatable
        if isinstance(e.prim, BroadcastInDim) and e.inputs[0].aval.size < e.outs[0].aval.size:
            broadcasts.add(e.outs[0].index)
        for v in e.outs:
            if v.index in free:
                cost[v.index] = 0
                continue
            # Of as many bytes, a value that is computed again is dearer: it takes a kernel to store it.
            cost[v.index] = 2 * v.aval.nbytes + cheap
            if cheap:
                operands[v.index] = [x.index for x in e.inputs if type(x) is Var]
                binders[v.index] = q
    cut = minimum_cut(cost, operands, [v.index for v in needed])
    result = {}
    for v in needed:
        chain: set[int] = set()
        pending = [v.index]
        while pending:
            index = pending.pop()
            if index not in cut and index in operands and binders[index] not in chain:
                chain.add(binders[index])
                pending += operands[index]
        result[v.index] = tuple(sorted(chain))
    return result, {index: cost[index] for index in cut}


def minimum_cut(
    cost: Mapping[int, int], operands: Mapping[int, Sequence[int]], needed: Collection[int]
) -> frozenset[int]:
    """Returns the cheapest set of values from which all needed values can be computed.

    This is a minimum vertex cut, found with blocking flows along shortest paths (Dinitz 1970); of several, the one
    nearest to the needed values, so that least is computed.

    Args:
        cost: What storing each value costs. Values that cost nothing are not in the result.
        operands: For each value that can be computed, the values that it is computed from.
        needed: The needed values.

    >>> sorted(minimum_cut({0: 4, 1: 8, 2: 8, 3: 8}, {1: [0], 2: [1], 3: [1, 0]}, [2, 3]))
    [0]
    """
    unlimited = 1 + sum(cost.values())
    source, sink = (-1, 0), (-1, 1)
    # A value has two nodes: (v, 0), where it is read, and (v, 1), where it is computed.
    residual: dict[_Node, dict[_Node, int]] = defaultdict(dict)
    residual[source] = {(v, 0): unlimited for v in needed}
    for v, bytes_ in cost.items():
        residual[v, 0][v, 1] = bytes_
        residual[v, 1] |= {(x, 0): unlimited for x in operands[v]} if v in operands else {sink: unlimited}
    while True:
        level = {source: 0}
        pending = deque([source])
        while pending:
            node = pending.popleft()
            for other, capacity in residual[node].items():
                if capacity > 0 and other not in level:
                    level[other] = level[node] + 1
                    pending.append(other)
        if sink not in level:
            return frozenset([v for v, c in cost.items() if c and (v, 0) in level and (v, 1) not in level])
        untried = {node: [x for x in residual[node] if level.get(x) == depth + 1] for node, depth in level.items()}
        path = [source]
        while path:
            rest = untried[path[-1]]
            while rest and not residual[path[-1]][rest[-1]]:
                rest.pop()
            if rest:
                path.append(rest[-1])
            else:  # a dead end
                path.pop()
                if path:
                    untried[path[-1]].pop()
            if path and path[-1] == sink:
                amount = min([residual[a][b] for a, b in pairwise(path)])
                for a, b in pairwise(path):
                    residual[a][b] -= amount
                    residual[b][a] = residual[b].get(a, 0) + amount
                path = path[:1]
