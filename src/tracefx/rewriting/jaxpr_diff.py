"""What two programs differ in, as a value and as text."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final, final

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.core.avals import show_avals
from tracefx.core.jaxpr import Atom, ClosedJaxpr, Eqn, HasSubjaxprs, Jaxpr, Var
from tracefx.core.literal import Literal
from tracefx.core.source_location import SourceLocation
from tracefx.core.values import ConcreteArray, Value
from tracefx.passes.dce import renumber
from tracefx.rewriting.alignment import align_sequences
from tracefx.text.printer import format_eqn, scalar_text, variable_name

_CONTEXT: Final = 2
"""How many equal equations are shown before and after what differs."""


@final
class ChangeKind(Enum):
    """How an equation of one program stands to the other program."""

    REMOVED = "-"
    ADDED = "+"
    CHANGED = "!"
    MOVED = "~"


@final
@frozen
class Change:
    """An equation that differs. Variables of the second program have the names of their counterparts in the first.

    `before` is what the first program has, `after` what the second has; of one that moved they are the same but for
    their places `at` and `to`. `bodies` are the differences of the programs it carries.
    """

    kind: ChangeKind
    before: Eqn | None
    after: Eqn | None
    old_index: int | None
    """The place of the equation in the first program."""
    new_index: int | None
    """Its place in the second."""
    bodies: tuple[JaxprDiff, ...] = ()


@final
@frozen(repr=False)
class JaxprDiff:
    """The differences of two programs: false if there are none, and text to read.

    A line that begins with `-` is of the first program alone, one with `+` of the second alone; `~` marks an equation
    that both have, in another place.
    """

    changes: tuple[Change, ...]
    interface: tuple[tuple[str, str], ...] = ()
    """Inputs, outputs and constants that differ: in the first program, and in the second."""
    lines: tuple[str, ...] = field(default=(), eq=False)

    def __bool__(self) -> bool:
        return bool(self.changes or self.interface)

    @override
    def __str__(self) -> str:
        return "\n".join(self.lines) if self else "no difference"

    @override
    def __repr__(self) -> str:
        return str(self)


def diff_jaxprs(a: Jaxpr | ClosedJaxpr, b: Jaxpr | ClosedJaxpr) -> JaxprDiff:
    """What two programs differ in; of no account are the names of variables and where equations were written.

    Equations are paired in their order, those that stand elsewhere are marked as moved, and of those that carry
    programs the bodies are compared. Lines of the text tell where an equation was written, where the two differ in it.
    Constants of `ClosedJaxpr`s count by their types and bits. The result is false exactly if the programs are equal
    but for names. Linear in the length of programs that differ in a few places.

    >>> from tracefx.programs import parse_jaxpr
    >>> a = parse_jaxpr("{ lambda ; x:f32[]. let y:f32[] = sin x; z:f32[] = mul y 2.0:f32[] in (z,) }")
    >>> b = parse_jaxpr("{ lambda ; x:f32[]. let y:f32[] = sin x; z:f32[] = mul y 3.0:f32[] in (z,) }")
    >>> print(diff_jaxprs(a, b))
      b:f32[] = sin a
    - c:f32[] = mul b 2.0:f32[]
    + c:f32[] = mul b 3.0:f32[]
    >>> bool(diff_jaxprs(a, a))
    False
    """
    for each in (a, b):
        if not isinstance(each, (Jaxpr, ClosedJaxpr)):
            raise TypeError(f"diff_jaxprs compares jaxprs, got {each!r}")
    first, second = [x.jaxpr if isinstance(x, ClosedJaxpr) else x for x in (a, b)]
    found = _diff(first, second)
    if isinstance(a, ClosedJaxpr) and isinstance(b, ClosedJaxpr):
        constants = tuple(_constants(a.consts, b.consts))
        lines = [line for x, y in constants for line in (f"- {x}", f"+ {y}")]
        found = evolve(found, interface=(*constants, *found.interface), lines=(*lines, *found.lines))
    return found


def _constants(a: Sequence[Value], b: Sequence[Value]) -> Iterator[tuple[str, str]]:
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x.aval == y.aval and x is not y and _bits(x) != _bits(y):
            yield f"constant {i}: {_format_constant(x)}", f"constant {i}: {_format_constant(y)}"


def _bits(x: Value) -> object:
    return x.numpy().tobytes() if isinstance(x, (ConcreteArray, Literal)) else id(x)


def _format_constant(x: Value) -> str:
    return str(x) if isinstance(x, Literal) or x.aval.size > 12 else f"{x.aval!r} {x}"


# ------------------------------------------------------------------ pairing equations


def _diff(a: Jaxpr, b: Jaxpr) -> JaxprDiff:
    a, b = renumber(a), renumber(b)
    return JaxprDiff(()) if a == b else _JaxprComparison(a, b).run()


@final
class _JaxprComparison:
    """Two programs that are not equal, their variables numbered in the order of their binding."""

    def __init__(self, a: Jaxpr, b: Jaxpr) -> None:
        self.a = a
        self.b = b
        self.names: dict[int, Var] = {}
        """The variables of the second program by their counterparts in the first; those without one get new names."""
        self.fresh = itertools.count(a.var_count)
        self.pairs: dict[int, int] = {}
        """The counterparts of equations of the first program in the second."""

    def run(self) -> JaxprDiff:
        self.pair_inputs()
        self.pairs = dict(self.pair_in_order())
        moved = dict(self.pair_moved())
        for i, j in (self.pairs | moved).items():
            for v, w in zip(self.a.eqns[i].outs, self.b.eqns[j].outs, strict=False):
                self.name(w, v)
        changes: dict[int, Change] = {}
        for i, j in self.pairs.items():
            change = self.compared(i, j)
            if change is not None:
                changes[i] = change
        lines: list[_DiffLine] = []
        came = {j: i for i, j in moved.items()}
        j = 0
        for i, eqn in enumerate(self.a.eqns):
            if i in self.pairs:
                lines += [_DiffLine(self.added(k, came.get(k))) for k in range(j, self.pairs[i])]
                lines.append(_DiffLine(changes.get(i), eqn))
                j = self.pairs[i] + 1
            elif i not in moved:
                lines.append(_DiffLine(Change(ChangeKind.REMOVED, eqn, None, i, None)))
        lines += [_DiffLine(self.added(k, came.get(k))) for k in range(j, len(self.b.eqns))]
        interface = tuple(self.interface())
        found = tuple([line.change for line in lines if line.change is not None])
        return JaxprDiff(found, interface, tuple(_text(lines, interface)))

    def name(self, theirs: Var, ours: Var) -> None:
        self.names.setdefault(theirs.index, Var(ours.index, theirs.aval))

    def pair_inputs(self) -> None:
        for ours, theirs in ((self.a.constvars, self.b.constvars), (self.a.invars, self.b.invars)):
            for v, w in zip(ours, theirs, strict=False):
                self.name(w, v)

    def pair_in_order(self) -> Iterator[tuple[int, int]]:
        """Equations that stand in both programs in one order: equal ones but for operands, and between those, ones of
        the same operation."""
        numbers: dict[object, int] = {}

        def local(eqn: Eqn) -> int:
            key = (
                eqn.prim,
                tuple([x if isinstance(x, Literal) else x.aval for x in eqn.inputs]),
                tuple([v.aval for v in eqn.outs]),
            )
            return numbers.setdefault(key, len(numbers))

        a, b = self.a.eqns, self.b.eqns
        before_i = before_j = 0
        for i, j in [*align_sequences(list(map(local, a)), list(map(local, b))), (len(a), len(b))]:
            if before_i < i and before_j < j:
                yield from self.pair_same_operation(range(before_i, i), range(before_j, j), numbers)
            if i < len(a):
                yield i, j
            before_i, before_j = i + 1, j + 1

    def pair_same_operation(self, ours: range, theirs: range, numbers: dict[object, int]) -> Iterator[tuple[int, int]]:
        """Between equal equations, those that apply one operation with other parameters or to other types; and as many
        as stand between such in both programs, one by one."""
        kinds = [
            [numbers.setdefault(type(eqns[k].prim), len(numbers)) for k in places]
            for eqns, places in ((self.a.eqns, ours), (self.b.eqns, theirs))
        ]
        before_i = before_j = 0
        for i, j in [*align_sequences(*kinds), (len(ours), len(theirs))]:
            if i - before_i == j - before_j:
                yield from zip(ours[before_i:i], theirs[before_j:j], strict=True)
            if i < len(ours):
                yield ours[i], theirs[j]
            before_i, before_j = i + 1, j + 1

    def pair_moved(self) -> Iterator[tuple[int, int]]:
        """Equations without a counterpart so far that compute the same."""
        theirs: dict[int, list[int]] = {}
        taken = set(self.pairs.values())
        left = [i for i in range(len(self.a.eqns)) if i not in self.pairs]
        if not left or len(taken) == len(self.b.eqns):
            return
        values: dict[object, int] = {}
        ours, others = _value_numbers(self.a, values), _value_numbers(self.b, values)
        for j, value in enumerate(others):
            if j not in taken:
                theirs.setdefault(value, []).append(j)
        for i in left:
            places = theirs.get(ours[i])
            if places:
                yield i, places.pop(0)

    # -------------------------------------------------------------- comparing

    def renamed(self, eqn: Eqn) -> Eqn:
        """An equation of the second program in names of the first."""
        return Eqn(eqn.prim, tuple(map(self.read, eqn.inputs)), tuple(map(self.variable, eqn.outs)), eqn.source)

    def read(self, x: Atom) -> Atom:
        return x if isinstance(x, Literal) else self.variable(x)

    def variable(self, v: Var) -> Var:
        found = self.names.get(v.index)
        if found is None:
            found = self.names[v.index] = Var(next(self.fresh), v.aval)
        return found

    def compared(self, i: int, j: int) -> Change | None:
        before, after = self.a.eqns[i], self.renamed(self.b.eqns[j])
        if before == after:
            return None
        bodies: tuple[JaxprDiff, ...] = ()
        if isinstance(before.prim, HasSubjaxprs) and isinstance(after.prim, HasSubjaxprs):
            ours, theirs = before.prim.jaxprs(), after.prim.jaxprs()
            if len(ours) == len(theirs):
                bodies = tuple([_diff(x, y) for x, y in zip(ours, theirs, strict=True)])
        return Change(ChangeKind.CHANGED, before, after, i, j, bodies)

    def added(self, j: int, i: int | None) -> Change:
        after = self.renamed(self.b.eqns[j])
        if i is None:
            return Change(ChangeKind.ADDED, None, after, None, j)
        return Change(ChangeKind.MOVED, self.a.eqns[i], after, i, j)

    def interface(self) -> Iterator[tuple[str, str]]:
        for what, vs, ws in (
            ("constants", self.a.constvars, self.b.constvars),
            ("inputs", self.a.invars, self.b.invars),
        ):
            if [v.aval for v in vs] != [w.aval for w in ws]:
                yield f"{what} {_binders(vs)}", f"{what} {_binders([self.variable(w) for w in ws])}"
        ours, theirs = _outputs(self.a.outs), _outputs(tuple(map(self.read, self.b.outs)))
        if ours != theirs:  # a variable of another type is told where it is bound
            yield ours, theirs


# ------------------------------------------------------------------ telling


@final
@frozen(eq=False)
class _DiffLine:
    """What stands for an equation in the text."""

    change: Change | None
    eqn: Eqn | None = None


def _text(lines: Sequence[_DiffLine], interface: Sequence[tuple[str, str]]) -> Iterator[str]:
    heads = [x for x in interface if not x[0].startswith("in (")]
    for before, after in heads:
        yield from (f"- {before}", f"+ {after}")
    marks = [k for k, line in enumerate(lines) if line.change is not None]
    near = {n for k in marks for n in range(k - _CONTEXT, k + _CONTEXT + 1)}
    if len(heads) < len(interface):
        near |= set(range(len(lines) - _CONTEXT, len(lines)))
    skipped = False
    for k, line in enumerate(lines):
        if line.change is not None:
            yield from _change_lines(line.change)
        elif k not in near:
            if not skipped:
                yield "  ..."
        elif line.eqn is not None:
            yield f"  {format_eqn(line.eqn)}"
        skipped = line.change is None and k not in near
    for before, after in interface[len(heads) :]:
        yield from (f"- {before}", f"+ {after}")


def _change_lines(change: Change) -> Iterator[str]:
    before, after = [None if eqn is None else format_eqn(eqn) for eqn in (change.before, change.after)]
    first, second = _location_text(change.before), _location_text(change.after)
    if first == second:
        first = ""
    if change.kind is ChangeKind.MOVED:
        yield f"~ {after}{second}"
    elif before == after:  # but for the bodies
        yield f"  {after}{second}"
    else:
        if before is not None:
            yield f"- {before}{first}"
        if after is not None:
            yield f"+ {after}{second}"
    for k, body in enumerate(change.bodies):
        if body:
            yield f"      in body {k}:" if len(change.bodies) > 1 else "      in its body:"
            yield from ["      " + line for line in body.lines]


def _value_numbers(jaxpr: Jaxpr, values: dict[object, int]) -> list[int]:
    """Of each equation a number, the same for all that compute the same from the same inputs, in both programs."""
    of: dict[int, object] = {v.index: ("constant", i, v.aval) for i, v in enumerate(jaxpr.constvars)}
    of |= {v.index: ("input", i, v.aval) for i, v in enumerate(jaxpr.invars)}
    numbers = []
    for eqn in jaxpr.eqns:
        key = (eqn.prim, tuple([x if isinstance(x, Literal) else of[x.index] for x in eqn.inputs]))
        number = values.setdefault(key, len(values))
        numbers.append(number)
        for i, v in enumerate(eqn.outs):
            of[v.index] = (number, i)
    return numbers


def _location_text(eqn: Eqn | None) -> str:
    if eqn is None or eqn.source is None:
        return ""
    place: SourceLocation = eqn.source.resolve()
    return f"  # {place.file}:{place.line}"


def _binders(vs: Sequence[Var]) -> str:
    return " ".join([f"{variable_name(v.index)}:{v.aval!r}" for v in vs]) or show_avals([])


def _outputs(xs: Sequence[Atom]) -> str:
    names = [f"{scalar_text(x.val)}:{x.aval!r}" if isinstance(x, Literal) else variable_name(x.index) for x in xs]
    return f"in ({', '.join(names)}{',' if len(names) == 1 else ''})"
