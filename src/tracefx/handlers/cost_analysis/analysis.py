"""Counting a program: every body is looked at once, with the number of times it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias, TypeVar, final

from tracefx.control.cond import Cond
from tracefx.control.scan import Scan
from tracefx.control.while_loop import While
from tracefx.core.avals import ShapedArray
from tracefx.core.jaxpr import Eqn, HasSubjaxprs, Jaxpr, Var
from tracefx.core.primitive import Primitive
from tracefx.core.source_location import LazySourceLocation, Provenance, SourceLocation
from tracefx.handlers.cost_analysis.cost import Cost, Work
from tracefx.handlers.cost_analysis.execution_counts import CostAssumptions, Expansions, runs, scan_overhead
from tracefx.handlers.cost_analysis.peak_memory import LiveBuffer, Peak, PeakMemoryAnalysis, user_location
from tracefx.handlers.cost_analysis.rules import DATA_MOVEMENT_COST, CostRule, OperationCost

K = TypeVar("K")
WorkSums: TypeAlias = list[int]
"""The fields of a `Work`, in the making."""
ScopePath: TypeAlias = tuple[str, ...]
ScopePathCounts: TypeAlias = dict[ScopePath, int]
"""How often a body runs, by the `named_scope`s around it."""
MAX_SCOPE_PATHS: Final = 256
"""A body that is reached by more paths is known by the outermost scopes alone, or there could be exponentially many."""


@final
class CostAnalysis:
    """One program counted."""

    def __init__(self, assumed: CostAssumptions) -> None:
        self._assumed = assumed
        self._expansions = Expansions()
        self._leaves: dict[type[Primitive], CostRule | None] = {}
        """The rules of operations that are counted as they are; None for those that run programs."""
        self._branches: dict[int, tuple[Cond, Sequence[Jaxpr]]] = {}
        self._sizes: dict[int, tuple[Jaxpr, tuple[int, int]]] = {}
        self._by_operation: dict[str, WorkSums] = {}
        self._by_line: dict[object, WorkSums] = {}
        self._places: dict[object, Provenance | None] = {}
        self._unbounded: dict[SourceLocation | None, None] = {}

    def cost(self, jaxpr: Jaxpr, constants: int, donated: Sequence[int], name: str) -> Cost:
        """The cost of a program whose first inputs are constants; the inputs at `donated` may be let go of."""
        paths: dict[int, ScopePathCounts] = {id(jaxpr): {(): 1}}
        by_scope: dict[str, WorkSums] = {}
        for body in self._topological_order(jaxpr):
            reached = paths[id(body)]
            count = sum(reached.values())
            if not count:
                continue
            within: dict[ScopePath, WorkSums] = {}
            for eqn in body.eqns:
                scope = () if eqn.source is None else eqn.source.scope
                cost = self._own_cost(eqn)
                if cost is not None:
                    self._add(eqn, cost, count, within.setdefault(scope, [0] * 6))
                for inner, repeated in self._executed_bodies(eqn):
                    paths[id(inner)] = _merge_scope_paths(paths.get(id(inner), {}), reached, scope, repeated)
                if type(eqn.prim) is While and eqn.prim.max_steps is None:
                    self._unbounded[user_location(eqn.source)] = None
            for path, times in reached.items():
                for scope, sums in within.items():
                    names = (*path, *scope)
                    for depth in range(len(names)):
                        _accumulate(by_scope.setdefault("/".join(names[: depth + 1]), [0] * 6), sums, times)
        by_line: dict[SourceLocation | None, WorkSums] = {}
        for key, sums in self._by_line.items():
            line = user_location(self._places[key])
            _accumulate(by_line.setdefault(line, [0] * 6), sums)
        total = [0] * 6
        for sums in self._by_operation.values():
            _accumulate(total, sums)
        sizes = [a.nbytes for a in jaxpr.in_avals]
        return Cost(
            name,
            Work(*total),
            _sort_by_cost(self._by_operation),
            _sort_by_cost(by_line),
            _sort_by_cost(by_scope),
            self._peak(jaxpr, constants, donated),
            sum(sizes[constants:]),
            sum(sizes[:constants]),
            sum(a.nbytes for a in jaxpr.out_avals),
            tuple(self._unbounded),
            self._assumed.while_steps,
        )

    # -------------------------------------------------------------- one equation

    def _rule(self, prim: Primitive) -> CostRule | None:
        kind = type(prim)
        if kind not in self._leaves:
            rule = self._assumed.rules.rule_for(kind)
            inside = isinstance(prim, HasSubjaxprs) or self._expansions.is_expanded(prim, self._assumed.rules)
            self._leaves[kind] = rule or (None if inside else _data_movement_rule)
        return self._leaves[kind]

    def _own_cost(self, eqn: Eqn) -> OperationCost | None:
        """What an application costs beside the programs it runs."""
        rule = self._rule(eqn.prim)
        if rule is not None:
            return rule(eqn.prim, [a.aval for a in eqn.inputs], [v.aval for v in eqn.outs])
        return scan_overhead(eqn.prim) if isinstance(eqn.prim, Scan) else None

    def _executed_bodies(self, eqn: Eqn) -> Sequence[tuple[Jaxpr, int]]:
        """The programs that are counted for one application, with how often."""
        prim = eqn.prim
        if self._rule(prim) is not None:
            return ()
        if isinstance(prim, Cond):
            return [(branch, 1) for branch in self._counted_branches(prim)]
        return runs(eqn, self._assumed, self._expansions)

    def _counted_branches(self, prim: Cond) -> Sequence[Jaxpr]:
        if self._assumed.branches == "sum":
            return prim.branches
        found = self._branches.get(id(prim))
        if found is None:
            choose = max if self._assumed.branches == "max" else min
            found = self._branches[id(prim)] = prim, [choose(prim.branches, key=self._size)]
        return found[1]

    def _size(self, jaxpr: Jaxpr) -> tuple[int, int]:
        """How much a program does: operations, then bytes."""
        found = self._sizes.get(id(jaxpr))
        if found is None:
            operations = moved = 0
            for eqn in jaxpr.eqns:
                cost = self._own_cost(eqn)
                if cost is not None:
                    operations += cost.flops + cost.transcendentals + cost.integer_ops
                    moved += sum(_bytes_accessed(eqn, cost))
                for body, times in self._executed_bodies(eqn):
                    more, traffic = self._size(body)
                    operations, moved = operations + times * more, moved + times * traffic
            found = self._sizes[id(jaxpr)] = jaxpr, (operations, moved)
        return found[1]

    def _add(self, eqn: Eqn, cost: OperationCost, count: int, scope: WorkSums) -> None:
        """Add an equation that runs so often, and once to what its scope does in one run."""
        read, written = _bytes_accessed(eqn, cost)
        source = eqn.source
        key = (id(source.code), source.lasti) if type(source) is LazySourceLocation else source
        line = self._by_line.get(key)
        if line is None:
            line = self._by_line[key] = [0] * 6
            self._places[key] = source  # which keeps its code, whose number is the key
        name = eqn.prim.name
        operation = self._by_operation.get(name)
        if operation is None:
            operation = self._by_operation[name] = [0] * 6
        for sums, times in ((operation, count), (line, count), (scope, 1)):
            sums[0] += times
            sums[1] += times * cost.flops
            sums[2] += times * cost.transcendentals
            sums[3] += times * cost.integer_ops
            sums[4] += times * read
            sums[5] += times * written

    # -------------------------------------------------------------- the whole

    def _topological_order(self, jaxpr: Jaxpr) -> list[Jaxpr]:
        """The program and the programs in it that are counted, each once and before those it runs."""
        order: list[Jaxpr] = []
        seen: set[int] = set()

        def visit(body: Jaxpr) -> None:
            seen.add(id(body))
            for eqn in body.eqns:
                for inner, _ in self._executed_bodies(eqn):
                    if id(inner) not in seen:
                        visit(inner)
            order.append(body)

        visit(jaxpr)
        order.reverse()
        return order

    def _peak(self, jaxpr: Jaxpr, constants: int, donated: Sequence[int]) -> Peak:
        given = set(donated)
        dying = tuple([i in given for i in range(len(jaxpr.invars))])
        peak = PeakMemoryAnalysis(self._assumed.rules, self._expansions).body_memory(jaxpr, dying).peak
        inputs = [
            LiveBuffer(v.aval, "constant" if i < constants else "argument", None)
            for i, v in enumerate(jaxpr.invars)
            if i not in peak.freed_inputs
        ]
        held = sorted([*inputs, *peak.buffers], key=lambda h: -h.nbytes)
        operation, line = peak.at or (None, None)
        return Peak(sum(a.nbytes for a in jaxpr.in_avals) + peak.extra_bytes, operation, line, tuple(held))


def _data_movement_rule(prim: Primitive, ins: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> OperationCost:
    return DATA_MOVEMENT_COST


def _bytes_accessed(eqn: Eqn, cost: OperationCost) -> tuple[int, int]:
    """Bytes read and written; literals are part of the program."""
    read, written = cost.bytes_read, cost.bytes_written
    if read is None:
        read = 0
        for x in eqn.inputs:
            if type(x) is Var:
                read += x.aval.nbytes
    if written is None:
        written = 0
        for v in eqn.outs:
            written += v.aval.nbytes
    return read, written


def _accumulate(sums: WorkSums, more: WorkSums, times: int = 1) -> None:
    for i, n in enumerate(more):
        sums[i] += times * n


def _merge_scope_paths(
    known: ScopePathCounts, outside: ScopePathCounts, scope: ScopePath, repeated: int
) -> ScopePathCounts:
    """The paths by which a body is reached, with those through one more equation."""
    for path, times in outside.items():
        inside = (*path, *scope)
        known[inside] = known.get(inside, 0) + times * repeated
    if len(known) <= MAX_SCOPE_PATHS:
        return known
    shorter: ScopePathCounts = {}
    for path, times in known.items():
        shorter[path[:1]] = shorter.get(path[:1], 0) + times
    return shorter


def _sort_by_cost(sums: dict[K, WorkSums]) -> dict[K, Work]:
    """What costs most first: by operations, then by bytes."""
    works = {key: Work(*each) for key, each in sums.items()}
    order = sorted(works.items(), key=lambda row: (-row[1].operations, -row[1].bytes_accessed, str(row[0])))
    return dict(order)
