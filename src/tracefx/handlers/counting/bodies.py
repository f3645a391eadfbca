"""What operations that carry programs run: which of their programs, how often."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias, final

from attrs import frozen

from tracefx.control.call import Application
from tracefx.control.cond import Cond
from tracefx.control.linear_solve import LinearSolve
from tracefx.control.ruled import RuledProgram
from tracefx.control.scan import Scan
from tracefx.control.while_loop import While
from tracefx.core.avals import ShapedArray
from tracefx.core.jaxpr import CarriesJaxprs, Eqn, Jaxpr
from tracefx.core.primitive import Expandable, Primitive
from tracefx.core.source import ORIGIN
from tracefx.handlers.counting.rules import CostRules, OperationCost
from tracefx.interpreters.stage import stage

Branches: TypeAlias = Literal["max", "min", "sum"]
BRANCHES: Final[tuple[Branches, ...]] = ("max", "min", "sum")


@final
@frozen
class Assumptions:
    """What is counted where the program alone doesn't say: of which operations, branches and loops."""

    rules: CostRules
    branches: Branches = "max"
    while_steps: int = 1


class Expansions:
    """The programs of operations that are made of smaller ones."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, tuple[ShapedArray, ...]], tuple[Primitive, Jaxpr, int]] = {}

    def needed(self, prim: Primitive, rules: CostRules) -> bool:
        """Whether an operation is counted by what it is made of."""
        return (
            isinstance(prim, Expandable) and not isinstance(prim, CarriesJaxprs) and rules.rule_for(type(prim)) is None
        )

    def of(self, eqn: Eqn) -> tuple[Jaxpr, int]:
        """The program, and how many constants it takes before the operands."""
        prim, avals = eqn.prim, tuple([a.aval for a in eqn.inputs])
        key = (id(prim), avals)
        found = self._known.get(key)
        if found is None:
            assert isinstance(prim, Expandable)
            token = ORIGIN.set(eqn.source)
            try:
                jaxpr, consts = stage(prim.expand, avals)
            finally:
                ORIGIN.reset(token)
            found = self._known[key] = prim, jaxpr.closed(), len(consts)
        return found[1], found[2]


def one_program(prim: Primitive) -> Jaxpr | None:
    """The program of an operation that does what its one program does."""
    if isinstance(prim, Application):
        return prim.body
    if isinstance(prim, RuledProgram):
        return prim.jaxpr
    return prim.solve if isinstance(prim, LinearSolve) else None


def steps_of(loop: While, assumed: Assumptions) -> int:
    """How many steps are counted."""
    return assumed.while_steps if loop.max_steps is None else loop.max_steps


def runs(eqn: Eqn, assumed: Assumptions, expansions: Expansions) -> Sequence[tuple[Jaxpr, int]]:
    """The programs that one application runs, with how often; those of a `Cond` are all of its branches, once."""
    prim = eqn.prim
    alone = one_program(prim)
    if alone is not None:
        return [(alone, 1)]
    if isinstance(prim, Scan):
        return [(prim.jaxpr, prim.length)]
    if isinstance(prim, While):
        steps = steps_of(prim, assumed)
        return [(prim.cond_jaxpr, steps + 1), (prim.body_jaxpr, steps)]
    if isinstance(prim, Cond):
        return [(branch, 1) for branch in prim.branches]
    if isinstance(prim, Expandable):
        return [(expansions.of(eqn)[0], 1)]
    return [(body, 1) for body in prim.jaxprs()] if isinstance(prim, CarriesJaxprs) else []


def loop_cost(loop: Scan) -> OperationCost:
    """What a scan does itself: it takes slices of arrays and stacks results."""
    taken = sum(a.nbytes for a in loop.parts(loop.jaxpr.in_avals)[2])
    given = sum(a.nbytes for a in loop.jaxpr.out_avals[loop.num_carry :])
    moved = loop.length * (taken + given)
    return OperationCost(bytes_read=moved, bytes_written=moved)
