"""A program described for showing: its lines with types, costs and memory, bodies inside of lines, and where all of
it was written."""

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
from tracefx.core.avals import ShapedArray
from tracefx.core.jaxpr import Atom, ClosedJaxpr, Eqn, HasSubjaxprs, Jaxpr, Var
from tracefx.core.literal import Literal
from tracefx.core.primitive import Primitive
from tracefx.core.source_location import SourceLocation
from tracefx.handlers.cost_analysis.cost import Work
from tracefx.handlers.cost_analysis.execution_counts import only_body
from tracefx.handlers.cost_analysis.peak_memory import user_location
from tracefx.pictures.costs import Costs, scale_work
from tracefx.pictures.operation_categories import OperationCategory, operation_category
from tracefx.text.printer import format_eqn, scalar_text, variable_name


@final
@frozen
class VariableDescription:
    """A variable of a body: its key is its own in the whole program."""

    key: str
    name: str
    aval: ShapedArray
    note: str = ""
    """What the user calls it, such as `params['w']`."""


@final
@frozen
class ConstantDescription:
    """A number in the program."""

    text: str
    aval: ShapedArray


@final
@frozen(eq=False)
class BodyDescription:
    """A program, or one inside of an equation.

    `runs` says how often it runs in all, `None` of the steps of a loop that may be of any number. A body that was
    shown in an equation before has no lines, and `same_as` is that equation's number.
    """

    label: str
    runs: int | None
    counted: bool
    """Whether its costs are part of its equation's; those of branches that cost less than another are not."""
    constants: tuple[VariableDescription, ...]
    inputs: tuple[VariableDescription, ...]
    lines: tuple[EquationDescription, ...]
    outs: tuple[VariableDescription | ConstantDescription, ...]
    before: int
    """The bytes held where it begins."""
    same_as: int | None = None
    given: tuple[VariableDescription | ConstantDescription, ...] = ()
    """What its inputs are outside, as many as are known."""

    def all_lines(self) -> Iterator[EquationDescription]:
        """Its lines and those inside of them, in the order of the page."""
        for line in self.lines:
            yield line
            for body in line.bodies:
                yield from body.all_lines()


@final
@frozen(eq=False)
class EquationDescription:
    """An equation. `work` is what it costs in all its runs, with its bodies; `own` without these."""

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
    """The bytes that are held while it runs."""
    after: int
    location: SourceLocation | None
    scope: tuple[str, ...]
    bodies: tuple[BodyDescription, ...]


@final
@frozen(eq=False)
class ProgramDescription:
    """A program described: all that a page shows of it."""

    body: BodyDescription
    total: Work
    peak: int
    argument_bytes: int
    constant_bytes: int
    output_bytes: int

    def lines(self) -> Iterator[EquationDescription]:
        """All equations, those in bodies too."""
        return self.body.all_lines()

    @property
    def count(self) -> int:
        """How many equations are shown."""
        return sum([1 for _ in self.lines()])


def describe_program(program: Jaxpr | ClosedJaxpr, names: Sequence[str] = ()) -> ProgramDescription:
    """The description of a program; `names` are what the user calls its inputs.

    Costs are those that `tracefx.handlers.count_jaxpr` gives, memory is what it says of the peak.

    >>> import tracefx as fx
    >>> x = fx.ShapeDtypeStruct((4,), "float32")
    >>> found = describe_program(fx.make_jaxpr(lambda x: fx.numpy.sin(x) * 2.0)(x), ["x"])
    >>> [(line.op, line.work.operations, line.during) for line in found.lines()]
    [('sin', 4, 32), ('mul', 4, 48)]
    """
    jaxpr = program.jaxpr if isinstance(program, ClosedJaxpr) else program
    return _ProgramDescriber().description(jaxpr, names)


_BODY: Final = r"\{ \.\.\. \}"
_BODIES: Final = re.compile(rf"[A-Za-z_]\w*=(?:{_BODY}|\((?:{_BODY},? ?)*\)) ?")
_NAME: Final = re.compile(r"\bname='[^']*' ?")


def params_text(prim: Primitive) -> str:
    """An operation's parameters as they are printed, without its bodies and the name of what it calls."""
    text = format_eqn(Eqn(prim, (), ()))
    inside = text.partition("[")[2].removesuffix("]") if "[" in text else ""
    inside = _BODIES.sub("", inside)
    return (_NAME.sub("", inside) if isinstance(prim, HasSubjaxprs) else inside).strip()


def _short_literal(x: Literal) -> str:
    """A number as short as its dtype allows: 0.1 of f32 is 0.10000000149011612 as Python has it."""
    exact = scalar_text(x.val)
    short = str(x.numpy())
    return short if len(short) < len(exact) else exact


def _labels(prim: Primitive, count: int) -> list[str]:
    """What the bodies of an operation are to it."""
    if isinstance(prim, Scan):
        return ["step"]
    if isinstance(prim, While):
        return ["condition", "step"]
    if isinstance(prim, Cond):
        return ["if false", "if true"] if count == 2 else [f"branch {i}" for i in range(count)]
    if isinstance(prim, LinearSolve):
        return ["the function", "its transpose", "solving", "solving the transpose"][:count]
    if isinstance(prim, CheckpointPrimitive):
        return ["computed again where it is needed"]
    return ["body"] if count == 1 else [f"body {i}" for i in range(count)]


@final
class _ProgramDescriber:
    """Goes through a program once, body by body."""

    def __init__(self) -> None:
        self._costs = Costs()
        self._number = 0
        self._bodies = 0
        self._shown: dict[int, tuple[Jaxpr, int]] = {}
        """The bodies that were shown, with the number of their equation."""

    def description(self, jaxpr: Jaxpr, names: Sequence[str]) -> ProgramDescription:
        whole = jaxpr.closed()
        sizes = [a.nbytes for a in whole.in_avals]
        constants = len(jaxpr.constvars)
        held = sum(sizes)
        dying = (False,) * len(sizes)
        peak = held + self._costs.memory.body_memory(whole, dying).peak.extra_bytes
        body = self._body("", whole, dying, held, 1, True, constants, names)
        return ProgramDescription(
            body,
            self._costs.program(whole),
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
    ) -> BodyDescription:
        """`held` is what is held beside what the program makes, its inputs included."""
        key, self._bodies = self._bodies, self._bodies + 1
        used = {x.index for eqn in jaxpr.eqns for x in eqn.inputs if type(x) is Var}
        used |= {x.index for x in jaxpr.outs if type(x) is Var}
        notes = dict(zip([v.index for v in jaxpr.invars[constants:]], names, strict=False))

        def variable(v: Var) -> VariableDescription:
            name = variable_name(v.index) if v.index in used else "_"
            return VariableDescription(f"{key}.{v.index}", name, v.aval, notes.get(v.index, ""))

        known: dict[int, VariableDescription] = {v.index: variable(v) for v in jaxpr.invars}

        def operand(x: Atom) -> VariableDescription | ConstantDescription:
            return ConstantDescription(_short_literal(x), x.aval) if isinstance(x, Literal) else known[x.index]

        inputs = tuple([known[v.index] for v in jaxpr.invars])
        lines = []
        for eqn, level in zip(jaxpr.eqns, self._costs.memory.timeline(jaxpr, dying), strict=True):
            operands = tuple([operand(x) for x in eqn.inputs])
            known |= {v.index: variable(v) for v in eqn.outs}
            number, self._number = self._number, self._number + 1
            own = self._costs.self_work(eqn)
            lines.append(
                EquationDescription(
                    number,
                    eqn.prim.profile_name,
                    params_text(eqn.prim),
                    operation_category(eqn.prim, own),
                    operands,
                    tuple([known[v.index] for v in eqn.outs]),
                    runs,
                    scale_work(runs, self._costs.equation(eqn)),
                    scale_work(runs, own),
                    held + level.during,
                    held + level.after,
                    user_location(eqn.source),
                    () if eqn.source is None else eqn.source.scope,
                    self._inside(eqn, operands, number, level.last, held + level.during, runs, counted),
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
    ) -> tuple[BodyDescription, ...]:
        prim = eqn.prim
        jaxprs = prim.jaxprs() if isinstance(prim, HasSubjaxprs) else ()
        labels = _labels(prim, len(jaxprs))
        often = {id(body): (body, count) for body, count in self._costs.runs(eqn)}
        masks = [_last_uses(prim, i, jaxpr, last) for i, jaxpr in enumerate(jaxprs)]
        peaks = [self._costs.memory.body_memory(j, m).peak.extra_bytes for j, m in zip(jaxprs, masks, strict=True)]
        # The equation holds most where the body that takes most does.
        held = during - max(peaks, default=0)
        found = []
        for i, (label, jaxpr, mask) in enumerate(zip(labels, jaxprs, masks, strict=True)):
            shown = self._shown.setdefault(id(jaxpr), (jaxpr, number))[1]
            _, count = often.get(id(jaxpr), (jaxpr, 1))
            if shown != number:
                found.append(BodyDescription(label, runs * count, counted, (), (), (), (), held, shown))
                continue
            counts = counted and (not isinstance(prim, Cond) or id(jaxpr) in often)
            unbounded = isinstance(prim, While) and prim.max_steps is None
            given = _outer_operands(prim, i, jaxpr, operands)
            found.append(self._body(label, jaxpr, mask, held, runs * count, counts, unbounded=unbounded, given=given))
        return tuple(found)


def _outer_operands(
    prim: Primitive, which: int, jaxpr: Jaxpr, operands: tuple[VariableDescription | ConstantDescription, ...]
) -> tuple[VariableDescription | ConstantDescription, ...]:
    """The operands that a body's inputs are, or are slices of, or begin with."""
    if isinstance(prim, While):
        m, n = prim.cond_nconsts, prim.body_nconsts
        return (*(operands[m : m + n] if which else operands[:m]), *operands[m + n :])
    if isinstance(prim, Cond):
        return operands[1:]
    alone = isinstance(prim, Scan) or only_body(prim) is jaxpr
    return operands if alone and len(operands) == len(jaxpr.invars) else ()


def _last_uses(prim: Primitive, which: int, jaxpr: Jaxpr, last: tuple[bool, ...]) -> tuple[bool, ...]:
    """Which inputs of an operation's body nobody needs after it."""
    count = len(jaxpr.invars)
    if isinstance(prim, Scan):
        return (*(False,) * prim.num_consts, *(True,) * (count - prim.num_consts))
    if isinstance(prim, While) and which:
        return (*(False,) * prim.body_nconsts, *(True,) * (count - prim.body_nconsts))
    if isinstance(prim, Cond):
        return last[1:]
    return last if only_body(prim) is jaxpr and len(last) == count else (False,) * count
