"""`CostAnalysis`: counts a program, looking at each sub-jaxpr once and multiplying by the number of its runs."""

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
from tracefx.handlers.cost_analysis.execution_counts import CostAssumptions, Expansions, executed_bodies, scan_overhead
from tracefx.handlers.cost_analysis.peak_memory import LiveBuffer, Peak, PeakMemoryAnalysis, user_location
from tracefx.handlers.cost_analysis.rules import DATA_MOVEMENT_COST, CostRule, OperationCost

K = TypeVar("K")
WorkSums: TypeAlias = list[int]
"""The fields of a `Work` while they are summed."""
ScopePath: TypeAlias = tuple[str, ...]
ScopePathCounts: TypeAlias = dict[ScopePath, int]
"""The number of runs of a body, by the path of `named_scope`s around it."""
MAX_SCOPE_PATHS: Final = 256
"""With more paths to a body only the outermost scope counts, since their number can grow exponentially."""


@final
class CostAnalysis:
    """Counts one program."""

    def __init__(self, assumed: CostAssumptions) -> None:
        self._assumed = assumed
        self._expansions = Expansions()
        self._leaves: dict[type[Primitive], CostRule | None] = {}
        """The cost rules of primitive classes; None for those that are counted by their sub-jaxprs."""
        self._branches: dict[int, tuple[Cond, Sequence[Jaxpr]]] = {}
        self._sizes: dict[int, tuple[Jaxpr, tuple[int, int]]] = {}
        self._by_operation: dict[str, WorkSums] = {}
        self._by_line: dict[object, WorkSums] = {}
        self._places: dict[object, Provenance | None] = {}
        self._unbounded: dict[SourceLocation | None, None] = {}

    def cost(self, jaxpr: Jaxpr, constants: int, donated: Sequence[int], name: str) -> Cost:
        """Returns the cost of a jaxpr whose first inputs are constants; inputs at `donated` may be freed early."""
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
            has_bodies = isinstance(prim, HasSubjaxprs) or self._expansions.is_expanded(prim, self._assumed.rules)
            self._leaves[kind] = rule or (None if has_bodies else _data_movement_rule)
        return self._leaves[kind]

    def _own_cost(self, eqn: Eqn) -> OperationCost | None:
        """Returns the cost of an equation without its sub-jaxprs, or None if it has none."""
        rule = self._rule(eqn.prim)
        if rule is not None:
            return rule(eqn.prim, [a.aval for a in eqn.inputs], [v.aval for v in eqn.outs])
        return scan_overhead(eqn.prim) if isinstance(eqn.prim, Scan) else None

    def _executed_bodies(self, eqn: Eqn) -> Sequence[tuple[Jaxpr, int]]:
        """Returns the sub-jaxprs of an equation that are counted, with their run counts."""
        prim = eqn.prim
        if self._rule(prim) is not None:
            return ()
        if isinstance(prim, Cond):
            return [(branch, 1) for branch in self._counted_branches(prim)]
        return executed_bodies(eqn, self._assumed, self._expansions)

    def _counted_branches(self, prim: Cond) -> Sequence[Jaxpr]:
        if self._assumed.branches == "sum":
            return prim.branches
        entry = self._branches.get(id(prim))
        if entry is None:
            choose = max if self._assumed.branches == "max" else min
            entry = self._branches[id(prim)] = prim, [choose(prim.branches, key=self._size)]
        return entry[1]

    def _size(self, jaxpr: Jaxpr) -> tuple[int, int]:
        """Returns the operations and the bytes accessed in a jaxpr, for comparing branches."""
        entry = self._sizes.get(id(jaxpr))
        if entry is None:
            operations = moved = 0
            for eqn in jaxpr.eqns:
                cost = self._own_cost(eqn)
                if cost is not None:
                    operations += cost.flops + cost.transcendentals + cost.integer_ops
                    moved += sum(_bytes_accessed(eqn, cost))
                for body, times in self._executed_bodies(eqn):
                    more, more_moved = self._size(body)
                    operations, moved = operations + times * more, moved + times * more_moved
            entry = self._sizes[id(jaxpr)] = jaxpr, (operations, moved)
        return entry[1]

    def _add(self, eqn: Eqn, cost: OperationCost, count: int, scope: WorkSums) -> None:
        """Adds an equation that runs `count` times to the totals, and one run of it to the sums of its scope."""
        read, written = _bytes_accessed(eqn, cost)
        source = eqn.source
        key = (id(source.code), source.lasti) if type(source) is LazySourceLocation else source
        line = self._by_line.get(key)
        if line is None:
            line = self._by_line[key] = [0] * 6
            self._places[key] = source  # keeps the code object alive, whose id is the key
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

    # -------------------------------------------------------------- the whole program

    def _topological_order(self, jaxpr: Jaxpr) -> list[Jaxpr]:
        """Returns the jaxpr and all counted sub-jaxprs, each once and before those that it runs."""
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
        donated_set = set(donated)
        dying = tuple([i in donated_set for i in range(len(jaxpr.invars))])
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
    """Returns the bytes read and written; literals are part of the program and not read."""
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
    """Adds the paths through one more equation to the paths that reach a body."""
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
    """Returns the rows sorted by decreasing operations, then bytes."""
    works = {key: Work(*each) for key, each in sums.items()}
    order = sorted(works.items(), key=lambda row: (-row[1].operations, -row[1].bytes_accessed, str(row[0])))
    return dict(order)
