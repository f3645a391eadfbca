"""The cost of each equation of a program, by the rules of `tracefx.handlers.count`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from tracefx.control.cond import Cond
from tracefx.control.scan import Scan
from tracefx.core.jaxpr import Eqn, HasSubjaxprs, Jaxpr, Var
from tracefx.handlers.cost_analysis.cost import Work
from tracefx.handlers.cost_analysis.execution_counts import CostAssumptions, Expansions, executed_bodies, scan_overhead
from tracefx.handlers.cost_analysis.peak_memory import PeakMemoryAnalysis
from tracefx.handlers.cost_analysis.rules import COST_RULES, DATA_MOVEMENT_COST, OperationCost

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
class Costs:
    """Computes the costs of equations and programs, memoized. Of a `cond`, the most expensive branch counts."""

    def __init__(self) -> None:
        self.assumed: Final = CostAssumptions(COST_RULES)
        self._expansions = Expansions()
        self.memory: Final = PeakMemoryAnalysis(COST_RULES, self._expansions)
        self._programs: dict[int, tuple[Jaxpr, Work]] = {}

    def self_work(self, eqn: Eqn) -> Work:
        """Returns the cost of one execution of an equation, without its bodies."""
        cost = self._rule(eqn)
        if cost is None:
            return ZERO_WORK
        read, written = cost.bytes_read, cost.bytes_written
        if read is None:
            read = sum([x.aval.nbytes for x in eqn.inputs if type(x) is Var])
        if written is None:
            written = sum([v.aval.nbytes for v in eqn.outs])
        return Work(1, cost.flops, cost.transcendentals, cost.integer_ops, read, written)

    def _rule(self, eqn: Eqn) -> OperationCost | None:
        prim = eqn.prim
        rule = COST_RULES.rule_for(type(prim))
        if rule is not None:
            return rule(prim, [a.aval for a in eqn.inputs], [v.aval for v in eqn.outs])
        if isinstance(prim, Scan):
            return scan_overhead(prim)
        return (
            None
            if isinstance(prim, HasSubjaxprs) or self._expansions.is_expanded(prim, COST_RULES)
            else DATA_MOVEMENT_COST
        )

    def runs(self, eqn: Eqn) -> Sequence[tuple[Jaxpr, int]]:
        """Returns the bodies that count in one execution of an equation, with how often each runs."""
        prim = eqn.prim
        if COST_RULES.rule_for(type(prim)) is not None:
            return ()
        if isinstance(prim, Cond):
            return [(max(prim.branches, key=self._size), 1)]
        return executed_bodies(eqn, self.assumed, self._expansions)

    def _size(self, jaxpr: Jaxpr) -> tuple[int, int]:
        work = self.program(jaxpr)
        return work.operations, work.bytes_accessed

    def equation(self, eqn: Eqn) -> Work:
        """Returns the cost of one execution of an equation, with its bodies."""
        work = self.self_work(eqn)
        for body, count in self.runs(eqn):
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
