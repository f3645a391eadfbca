"""What operations that carry programs run: which of their programs, how often."""

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
from tracefx.core.avals import ShapedArray
from tracefx.core.jaxpr import Eqn, HasSubjaxprs, Jaxpr
from tracefx.core.primitive import Expandable, Primitive
from tracefx.core.source_location import EQN_LOCATION
from tracefx.handlers.cost_analysis.rules import CostRules, OperationCost
from tracefx.interpreters.stage import stage

BranchPolicy: TypeAlias = Literal["max", "min", "sum"]
BRANCH_POLICIES: Final[tuple[BranchPolicy, ...]] = ("max", "min", "sum")


@final
@frozen
class CostAssumptions:
    """What is counted where the program alone doesn't say: of which operations, branches and loops."""

    rules: CostRules
    branches: BranchPolicy = "max"
    while_steps: int = 1


class Expansions:
    """The programs of operations that are made of smaller ones."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, tuple[ShapedArray, ...]], tuple[Primitive, Jaxpr, int]] = {}

    def is_expanded(self, prim: Primitive, rules: CostRules) -> bool:
        """Whether an operation is counted by what it is made of."""
        return (
            isinstance(prim, Expandable) and not isinstance(prim, HasSubjaxprs) and rules.rule_for(type(prim)) is None
        )

    def of(self, eqn: Eqn) -> tuple[Jaxpr, int]:
        """The program, and how many constants it takes before the operands."""
        prim, avals = eqn.prim, tuple([a.aval for a in eqn.inputs])
        key = (id(prim), avals)
        found = self._known.get(key)
        if found is None:
            assert isinstance(prim, Expandable)
            token = EQN_LOCATION.set(eqn.source)
            try:
                jaxpr, consts = stage(prim.expand, avals)
            finally:
                EQN_LOCATION.reset(token)
            found = self._known[key] = prim, jaxpr.closed(), len(consts)
        return found[1], found[2]


def only_body(prim: Primitive) -> Jaxpr | None:
    """The program of an operation that does what its one program does."""
    if isinstance(prim, CallPrimitive):
        return prim.body
    if isinstance(prim, CustomRuleProgram):
        return prim.jaxpr
    return prim.solve if isinstance(prim, LinearSolve) else None


def assumed_trip_count(loop: While, assumed: CostAssumptions) -> int:
    """How many steps are counted."""
    return assumed.while_steps if loop.max_steps is None else loop.max_steps


def runs(eqn: Eqn, assumed: CostAssumptions, expansions: Expansions) -> Sequence[tuple[Jaxpr, int]]:
    """The programs that one application runs, with how often; those of a `Cond` are all of its branches, once."""
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
    """What a scan does itself: it takes slices of arrays and stacks results."""
    taken = sum(a.nbytes for a in loop.split_operands(loop.jaxpr.in_avals)[2])
    given = sum(a.nbytes for a in loop.jaxpr.out_avals[loop.num_carry :])
    moved = loop.length * (taken + given)
    return OperationCost(bytes_read=moved, bytes_written=moved)
