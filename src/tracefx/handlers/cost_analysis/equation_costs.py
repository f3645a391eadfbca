"""The cost of each equation and sub-jaxpr of a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from tracefx.control.cond import Cond
from tracefx.control.scan import Scan
from tracefx.core import ShapedArray
from tracefx.core.jaxpr import Eqn, HasSubjaxprs, Jaxpr, Var
from tracefx.core.primitive import Primitive
from tracefx.handlers.cost_analysis.cost import Work
from tracefx.handlers.cost_analysis.execution_counts import CostAssumptions, Expansions, executed_bodies, scan_overhead
from tracefx.handlers.cost_analysis.peak_memory import PeakMemoryAnalysis
from tracefx.handlers.cost_analysis.rules import DATA_MOVEMENT_COST, CostRule, OperationCost

ZERO_WORK: Final = Work(0, 0, 0, 0, 0, 0)


def add_work(a: Work, b: Work) -> Work:
    """Returns the sum of two costs.

    >>> add_work(Work(1, 2, 0, 0, 8, 4), Work(1, 3, 0, 0, 8, 4)).flops
    5
    """
    return Work(
        a.runs + b.runs,
        a.flops + b.flops,
        a.transcendentals + b.transcendentals,
        a.integer_ops + b.integer_ops,
        a.bytes_read + b.bytes_read,
        a.bytes_written + b.bytes_written,
    )


def scale_work(n: int, a: Work) -> Work:
    """Returns the cost of `n` executions."""
    if n == 1:
        return a
    return Work(
        n * a.runs, n * a.flops, n * a.transcendentals, n * a.integer_ops, n * a.bytes_read, n * a.bytes_written
    )


@final
class EquationCosts:
    """Computes the costs of equations and programs, memoized."""

    def __init__(self, assumed: CostAssumptions) -> None:
        self._assumed = assumed
        self._expansions = Expansions()
        self.memory: Final = PeakMemoryAnalysis(assumed.rules, self._expansions)
        self._leaves: dict[type[Primitive], CostRule | None] = {}
        """The cost rules of primitive classes; None for those that are counted by their sub-jaxprs."""
        self._branches: dict[int, tuple[Cond, Sequence[Jaxpr]]] = {}
        self._programs: dict[int, tuple[Jaxpr, Work]] = {}

    def _rule(self, prim: Primitive) -> CostRule | None:
        kind = type(prim)
        if kind not in self._leaves:
            rule = self._assumed.rules.rule_for(kind)
            has_bodies = isinstance(prim, HasSubjaxprs) or self._expansions.is_expanded(prim, self._assumed.rules)
            self._leaves[kind] = rule or (None if has_bodies else _data_movement_rule)
        return self._leaves[kind]

    def self_work(self, eqn: Eqn) -> Work:
        """Returns the cost of one execution of an equation, without its sub-jaxprs."""
        prim, rule = eqn.prim, self._rule(eqn.prim)
        if rule is not None:
            cost = rule(prim, [a.aval for a in eqn.inputs], [v.aval for v in eqn.outs])
        elif isinstance(prim, Scan):
            cost = scan_overhead(prim)
        else:
            return ZERO_WORK
        read, written = cost.bytes_read, cost.bytes_written
        if read is None:  # literals are part of the program and not read
            read = sum([x.aval.nbytes for x in eqn.inputs if type(x) is Var])
        if written is None:
            written = sum([v.aval.nbytes for v in eqn.outs])
        return Work(1, cost.flops, cost.transcendentals, cost.integer_ops, read, written)

    def executed_bodies(self, eqn: Eqn) -> Sequence[tuple[Jaxpr, int]]:
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
        work = self.program(jaxpr)
        return work.operations, work.bytes_accessed

    def equation(self, eqn: Eqn) -> Work:
        """Returns the cost of one execution of an equation, with its sub-jaxprs."""
        work = self.self_work(eqn)
        for body, count in self.executed_bodies(eqn):
            work = add_work(work, scale_work(count, self.program(body)))
        return work

    def program(self, jaxpr: Jaxpr) -> Work:
        """Returns the cost of one execution of a program."""
        cached = self._programs.get(id(jaxpr))
        if cached is None:
            work = ZERO_WORK
            for eqn in jaxpr.eqns:
                work = add_work(work, self.equation(eqn))
            cached = self._programs[id(jaxpr)] = jaxpr, work
        return cached[1]


def _data_movement_rule(prim: Primitive, ins: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> OperationCost:
    return DATA_MOVEMENT_COST
