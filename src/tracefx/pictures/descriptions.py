"""Descriptions of programs for display: equations with types, costs, memory, source locations, and nested bodies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, final

from attrs import frozen

from tracefx.control.checkpoint import CheckpointPrimitive
from tracefx.control.cond import Cond
from tracefx.control.linear_solve import LinearSolve
from tracefx.control.scan import Scan
from tracefx.control.while_loop import While
from tracefx.core import Literal, ShapedArray
from tracefx.core.jaxpr import Atom, ClosedJaxpr, Eqn, HasSubjaxprs, Jaxpr, Var
from tracefx.core.primitive import Primitive
from tracefx.handlers.cost_analysis.cost import Work
from tracefx.handlers.cost_analysis.equation_costs import EquationCosts, scale_work
from tracefx.handlers.cost_analysis.execution_counts import CostAssumptions, only_body
from tracefx.handlers.cost_analysis.peak_memory import user_location
from tracefx.handlers.cost_analysis.rules import COST_RULES
from tracefx.passes.dce import live_equations
from tracefx.pictures.operation_categories import OperationCategory, operation_category
from tracefx.source_location import SourceLocation
from tracefx.text.printer import format_eqn, scalar_text, variable_name


@final
@frozen
class VariableDescription:
    """A variable of a body. `key` is unique in the whole program."""

    key: str
    name: str
    aval: ShapedArray
    note: str = ""
    """The user's name of an input, such as `params['w']`."""


@final
@frozen
class ConstantDescription:
    """A literal in the program."""

    text: str
    aval: ShapedArray


@final
@frozen(eq=False)
class BodyDescription:
    """A program, or a body (sub-jaxpr) of an equation.

    `runs` is the total number of executions; None for the bodies of a loop without a known trip count. A body that an
    earlier equation shows already has no lines, and `same_as` is that equation's number.
    """

    label: str
    runs: int | None
    counted: bool
    """Whether its cost is included in its equation's; it is not for the cheaper branches of a `cond`."""
    constants: tuple[VariableDescription, ...]
    inputs: tuple[VariableDescription, ...]
    lines: tuple[EquationDescription, ...]
    outs: tuple[VariableDescription | ConstantDescription, ...]
    before: int
    """The live bytes before its first equation."""
    same_as: int | None = None
    given: tuple[VariableDescription | ConstantDescription, ...] = ()
    """The outer operands that its inputs correspond to, as far as known."""

    def all_lines(self) -> Iterator[EquationDescription]:
        """Yields its equations and those nested in them, in the order of the page."""
        for line in self.lines:
            yield line
            for body in line.bodies:
                yield from body.all_lines()


@final
@frozen(eq=False)
class EquationDescription:
    """An equation. `work` is the cost of all its executions with its bodies, `self_work` the cost without them."""

    number: int
    op: str
    params: str
    category: OperationCategory
    operands: tuple[VariableDescription | ConstantDescription, ...]
    results: tuple[VariableDescription, ...]
    runs: int
    work: Work
    self_work: Work
    during: int
    """The live bytes while it runs."""
    after: int
    location: SourceLocation | None
    scope: tuple[str, ...]
    bodies: tuple[BodyDescription, ...]
    is_dead: bool
    """Whether the compiler drops it, since nothing uses its results or those of the equation around it."""


@final
@frozen(eq=False)
class ProgramDescription:
    """A described program: all that a page shows about it."""

    body: BodyDescription
    total: Work
    peak: int
    argument_bytes: int
    constant_bytes: int
    output_bytes: int

    def lines(self) -> Iterator[EquationDescription]:
        """Yields all equations, including those in bodies."""
        return self.body.all_lines()

    @property
    def count(self) -> int:
        """The number of equations, including those in bodies."""
        return sum([1 for _ in self.lines()])


def describe_program(program: Jaxpr | ClosedJaxpr, names: Sequence[str] = ()) -> ProgramDescription:
    """Describes a program for display.

    Costs and peak memory are those of `tracefx.handlers.count_jaxpr`. `names` are the user's names of its inputs.

    >>> import tracefx as fx
    >>> x = fx.ShapeDtypeStruct((4,), "float32")
    >>> description = describe_program(fx.make_jaxpr(lambda x: fx.numpy.sin(x) * 2.0)(x), ["x"])
    >>> [(line.op, line.work.operations, line.during) for line in description.lines()]
    [('sin', 4, 32), ('mul', 4, 48)]
    """
    jaxpr = program.jaxpr if isinstance(program, ClosedJaxpr) else program
    return _ProgramDescriber().description(jaxpr, names)


_BODY: Final = r"\{ \.\.\. \}"
_BODIES: Final = re.compile(rf"[A-Za-z_]\w*=(?:{_BODY}|\((?:{_BODY},? ?)*\)) ?")
_NAME: Final = re.compile(r"\bname='[^']*' ?")


def params_text(prim: Primitive) -> str:
    """Formats a primitive's parameters without its bodies and the name of the callee."""
    text = format_eqn(Eqn(prim, (), ()))
    inside = text.partition("[")[2].removesuffix("]") if "[" in text else ""
    inside = _BODIES.sub("", inside)
    return (_NAME.sub("", inside) if isinstance(prim, HasSubjaxprs) else inside).strip()


def _short_literal(x: Literal) -> str:
    """Formats a literal as short as its dtype allows: the f32 value 0.1 is 0.10000000149011612 as a Python float."""
    exact = scalar_text(x.val)
    short = str(x.numpy())
    return short if len(short) < len(exact) else exact


def _labels(prim: Primitive, count: int) -> list[str]:
    """Names the bodies of a primitive."""
    if isinstance(prim, Scan):
        return ["step"]
    if isinstance(prim, While):
        return ["condition", "step"]
    if isinstance(prim, Cond):
        return ["if false", "if true"] if count == 2 else [f"branch {i}" for i in range(count)]
    if isinstance(prim, LinearSolve):
        return ["function", "transpose", "solve", "transpose solve"][:count]
    if isinstance(prim, CheckpointPrimitive):
        return ["recomputed in the backward pass"]
    return ["body"] if count == 1 else [f"body {i}" for i in range(count)]


@final
class _ProgramDescriber:
    """Describes a program in one traversal."""

    def __init__(self) -> None:
        self._costs = EquationCosts(CostAssumptions(COST_RULES))
        self._number = 0
        self._bodies = 0
        self._shown: dict[int, tuple[Jaxpr, int]] = {}
        """The bodies that were described, with the number of their equation."""

    def description(self, jaxpr: Jaxpr, names: Sequence[str]) -> ProgramDescription:
        closed = jaxpr.closed()
        sizes = [a.nbytes for a in closed.in_avals]
        constants = len(jaxpr.constvars)
        live_bytes = sum(sizes)
        dying = (False,) * len(sizes)
        peak = live_bytes + self._costs.memory.body_memory(closed, dying).peak.extra_bytes
        body = self._body("", closed, dying, live_bytes, 1, True, constants, names)
        return ProgramDescription(
            body,
            self._costs.program(closed),
            peak,
            sum(sizes[constants:]),
            sum(sizes[:constants]),
            sum([a.nbytes for a in jaxpr.out_avals]),
        )

    def _body(
        self,
        label: str,
        jaxpr: Jaxpr,
        dying: tuple[bool, ...],
        held: int,
        runs: int,
        counted: bool,
        constants: int = 0,
        names: Sequence[str] = (),
        unbounded: bool = False,
        given: tuple[VariableDescription | ConstantDescription, ...] = (),
        is_dead: bool = False,
    ) -> BodyDescription:
        """Describes a body. `held` counts the live bytes at its begin, its inputs included."""
        key, self._bodies = self._bodies, self._bodies + 1
        used = {x.index for eqn in jaxpr.eqns for x in eqn.inputs if type(x) is Var}
        used |= {x.index for x in jaxpr.outs if type(x) is Var}
        notes = dict(zip([v.index for v in jaxpr.invars[constants:]], names, strict=False))

        def variable(v: Var) -> VariableDescription:
            name = variable_name(v.index) if v.index in used else "_"
            return VariableDescription(f"{key}.{v.index}", name, v.aval, notes.get(v.index, ""))

        variables: dict[int, VariableDescription] = {v.index: variable(v) for v in jaxpr.invars}

        def operand(x: Atom) -> VariableDescription | ConstantDescription:
            return ConstantDescription(_short_literal(x), x.aval) if isinstance(x, Literal) else variables[x.index]

        inputs = tuple([variables[v.index] for v in jaxpr.invars])
        lines = []
        timeline = self._costs.memory.timeline(jaxpr, dying)
        for eqn, level, is_live in zip(jaxpr.eqns, timeline, live_equations(jaxpr), strict=True):
            drops = is_dead or not is_live
            operands = tuple([operand(x) for x in eqn.inputs])
            variables |= {v.index: variable(v) for v in eqn.outs}
            number, self._number = self._number, self._number + 1
            self_work = self._costs.self_work(eqn)
            lines.append(
                EquationDescription(
                    number,
                    eqn.prim.profile_name,
                    params_text(eqn.prim),
                    operation_category(eqn.prim, self_work),
                    operands,
                    tuple([variables[v.index] for v in eqn.outs]),
                    runs,
                    scale_work(runs, self._costs.equation(eqn)),
                    scale_work(runs, self_work),
                    held + level.during,
                    held + level.after,
                    user_location(eqn.source),
                    () if eqn.source is None else eqn.source.scope,
                    self._inside(eqn, operands, number, level.last, held + level.during, runs, counted, drops),
                    drops,
                )
            )
        outs = tuple([operand(x) for x in jaxpr.outs])
        return BodyDescription(
            label,
            None if unbounded else runs,
            counted,
            inputs[:constants],
            inputs[constants:],
            tuple(lines),
            outs,
            held,
            given=given,
        )

    def _inside(
        self,
        eqn: Eqn,
        operands: tuple[VariableDescription | ConstantDescription, ...],
        number: int,
        last: tuple[bool, ...],
        during: int,
        runs: int,
        counted: bool,
        is_dead: bool,
    ) -> tuple[BodyDescription, ...]:
        prim = eqn.prim
        jaxprs = prim.jaxprs() if isinstance(prim, HasSubjaxprs) else ()
        labels = _labels(prim, len(jaxprs))
        run_counts = {id(body): (body, count) for body, count in self._costs.executed_bodies(eqn)}
        masks = [_last_uses(prim, i, jaxpr, last) for i, jaxpr in enumerate(jaxprs)]
        peaks = [self._costs.memory.body_memory(j, m).peak.extra_bytes for j, m in zip(jaxprs, masks, strict=True)]
        # The equation's live memory peaks while the body with the largest peak runs.
        held = during - max(peaks, default=0)
        descriptions = []
        for i, (label, jaxpr, mask) in enumerate(zip(labels, jaxprs, masks, strict=True)):
            first_number = self._shown.setdefault(id(jaxpr), (jaxpr, number))[1]
            _, count = run_counts.get(id(jaxpr), (jaxpr, 1))
            if first_number != number:
                descriptions.append(BodyDescription(label, runs * count, counted, (), (), (), (), held, first_number))
                continue
            counts = counted and (not isinstance(prim, Cond) or id(jaxpr) in run_counts)
            unbounded = isinstance(prim, While) and prim.max_steps is None
            given = _outer_operands(prim, i, jaxpr, operands)
            descriptions.append(
                self._body(
                    label, jaxpr, mask, held, runs * count, counts, unbounded=unbounded, given=given, is_dead=is_dead
                )
            )
        return tuple(descriptions)


def _outer_operands(
    prim: Primitive, index: int, jaxpr: Jaxpr, operands: tuple[VariableDescription | ConstantDescription, ...]
) -> tuple[VariableDescription | ConstantDescription, ...]:
    """Returns the operands of the equation that a body's inputs are, are slices of, or have as initial values."""
    if isinstance(prim, While):
        m, n = prim.cond_nconsts, prim.body_nconsts
        return (*(operands[m : m + n] if index else operands[:m]), *operands[m + n :])
    if isinstance(prim, Cond):
        return operands[1:]
    matches = isinstance(prim, Scan) or only_body(prim) is jaxpr
    return operands if matches and len(operands) == len(jaxpr.invars) else ()


def _last_uses(prim: Primitive, index: int, jaxpr: Jaxpr, last: tuple[bool, ...]) -> tuple[bool, ...]:
    """Returns which inputs of a body are dead after it."""
    count = len(jaxpr.invars)
    if isinstance(prim, Scan):
        return (*(False,) * prim.num_consts, *(True,) * (count - prim.num_consts))
    if isinstance(prim, While) and index:
        return (*(False,) * prim.body_nconsts, *(True,) * (count - prim.body_nconsts))
    if isinstance(prim, Cond):
        return last[1:]
    return last if only_body(prim) is jaxpr and len(last) == count else (False,) * count
