"""How often an equation runs its sub-jaxprs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias, final

from attrs import frozen

from tracefx.control.call import CallPrimitive
from tracefx.control.cond import Cond
from tracefx.control.custom_rules import CustomRuleProgram
from tracefx.control.linear_solve import LinearSolve
from tracefx.control.scan import Scan
from tracefx.control.while_loop import While
from tracefx.core import ShapedArray
from tracefx.core.jaxpr import Eqn, HasSubjaxprs, Jaxpr
from tracefx.core.primitive import Expandable, Primitive
from tracefx.handlers.cost_analysis.rules import CostRules, OperationCost
from tracefx.interpreters.stage import stage
from tracefx.source_location import SOURCE

BranchPolicy: TypeAlias = Literal["max", "min", "sum"]
BRANCH_POLICIES: Final[tuple[BranchPolicy, ...]] = ("max", "min", "sum")


@final
@frozen
class CostAssumptions:
    """The assumptions of `count`: costs of primitives, and branches and numbers of iterations that depend on values."""

    rules: CostRules
    branches: BranchPolicy = "max"
    while_steps: int = 1


class Expansions:
    """A cache of the jaxprs of expandable primitives, by primitive and operand types."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, tuple[ShapedArray, ...]], tuple[Primitive, Jaxpr, int]] = {}

    def is_expanded(self, prim: Primitive, rules: CostRules) -> bool:
        """Returns whether an operation is counted by its expansion."""
        return (
            isinstance(prim, Expandable) and not isinstance(prim, HasSubjaxprs) and rules.rule_for(type(prim)) is None
        )

    def of(self, eqn: Eqn) -> tuple[Jaxpr, int]:
        """Returns the expansion of an equation and the number of constants that precede its operands."""
        prim, avals = eqn.prim, tuple([a.aval for a in eqn.inputs])
        key = (id(prim), avals)
        entry = self._known.get(key)
        if entry is None:
            assert isinstance(prim, Expandable)
            token = SOURCE.set(eqn.source)
            try:
                jaxpr, consts = stage(prim.expand, avals)
            finally:
                SOURCE.reset(token)
            entry = self._known[key] = prim, jaxpr.closed(), len(consts)
        return entry[1], entry[2]


def only_body(prim: Primitive) -> Jaxpr | None:
    """Returns the single body of an operation that runs exactly this one, once; otherwise None."""
    if isinstance(prim, CallPrimitive | CustomRuleProgram):
        return prim.jaxpr
    return prim.solve if isinstance(prim, LinearSolve) else None


def assumed_trip_count(loop: While, assumed: CostAssumptions) -> int:
    """Returns the number of iterations that is counted for a `while_loop`."""
    return assumed.while_steps if loop.max_steps is None else loop.max_steps


def executed_bodies(eqn: Eqn, assumed: CostAssumptions, expansions: Expansions) -> Sequence[tuple[Jaxpr, int]]:
    """Returns the sub-jaxprs that an equation runs, with their run counts; for a `Cond` all branches, once each."""
    prim = eqn.prim
    alone = only_body(prim)
    if alone is not None:
        return [(alone, 1)]
    if isinstance(prim, Scan):
        return [(prim.jaxpr, prim.length)]
    if isinstance(prim, While):
        steps = assumed_trip_count(prim, assumed)
        return [(prim.cond_jaxpr, steps + 1), (prim.body_jaxpr, steps)]
    if isinstance(prim, Cond):
        return [(branch, 1) for branch in prim.branches]
    if isinstance(prim, Expandable):
        return [(expansions.of(eqn)[0], 1)]
    return [(body, 1) for body in prim.jaxprs()] if isinstance(prim, HasSubjaxprs) else []


def scan_overhead(loop: Scan) -> OperationCost:
    """Returns the cost of a scan besides its body: slicing its inputs and stacking its outputs."""
    sliced = sum(a.nbytes for a in loop.split_operands(loop.jaxpr.in_avals)[2])
    stacked = sum(a.nbytes for a in loop.jaxpr.out_avals[loop.num_carry :])
    moved = loop.length * (sliced + stacked)
    return OperationCost(bytes_read=moved, bytes_written=moved)
