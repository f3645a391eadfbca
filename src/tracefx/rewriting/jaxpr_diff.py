"""Differences of two programs, as a value and as text."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from enum import Enum
from typing import Final, final

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.core import ConcreteArray, Literal, Value, show_avals
from tracefx.core.jaxpr import Atom, ClosedJaxpr, Eqn, HasSubjaxprs, Jaxpr, Var
from tracefx.passes.rebuilding import renumber
from tracefx.rewriting.alignment import align_sequences
from tracefx.source_location import SourceLocation
from tracefx.text.printer import format_eqn, scalar_text, variable_name

_CONTEXT: Final = 2
"""How many equal equations the text shows before and after a difference."""


@final
class ChangeKind(Enum):
    """How an equation differs between two programs; the value is its mark in the text.

    >>> [(kind.name, kind.value) for kind in ChangeKind]
    [('REMOVED', '-'), ('ADDED', '+'), ('CHANGED', '!'), ('MOVED', '~')]
    """

    REMOVED = "-"
    ADDED = "+"
    CHANGED = "!"
    MOVED = "~"


@final
@frozen
class Change:
    """An equation that differs between two programs.

    `before` is the equation in the first program and `after` the one in the second, with variables renamed to their
    counterparts in the first; either is None if there is no such equation. For a moved equation the two differ only in
    `old_index` and `new_index`. `bodies` has the differences of the sub-jaxprs.

    >>> from tracefx.programs import parse_jaxpr
    >>> before = parse_jaxpr("{ lambda ; x:f32[]. let y:f32[] = sin x in (y,) }")
    >>> after = parse_jaxpr("{ lambda ; x:f32[]. let y:f32[] = cos x in (y,) }")
    >>> (change,) = diff_jaxprs(before, after).changes
    >>> change.kind.name, change.before.prim.name, change.after.prim.name
    ('CHANGED', 'sin', 'cos')
    """

    kind: ChangeKind
    before: Eqn | None
    after: Eqn | None
    old_index: int | None
    """The index of the equation in the first program, or None."""
    new_index: int | None
    """The index of the equation in the second program, or None."""
    bodies: tuple[JaxprDiff, ...] = ()


@final
@frozen(repr=False)
class JaxprDiff:
    """The differences of two programs: false if there are none; `str` shows them as text.

    In the text a line that begins with `-` stands in the first program only, one with `+` in the second only; `~` marks
    an equation of both programs that has moved.

    >>> from tracefx.programs import parse_jaxpr
    >>> before = parse_jaxpr("{ lambda ; x:f32[]. let y:f32[] = sin x in (y,) }")
    >>> after = parse_jaxpr("{ lambda ; x:f32[]. let y:f32[] = cos x in (y,) }")
    >>> difference = diff_jaxprs(before, after)
    >>> print(difference)
    - b:f32[] = sin a
    + b:f32[] = cos a
    >>> [change.kind for change in difference.changes]
    [<ChangeKind.CHANGED: '!'>]
    """

    changes: tuple[Change, ...]
    interface: tuple[tuple[str, str], ...] = ()
    """Differing inputs, outputs and constants, as pairs of texts: in the first program and in the second."""
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
    """Compares two programs, ignoring names of variables and source locations.

    Equations are aligned in order; equal equations elsewhere are marked as moved, and the sub-jaxprs of paired
    equations are compared. The text shows source locations where they differ. Takes linear time for programs that
    differ in few equations.

    Args:
        a: a `Jaxpr` or `ClosedJaxpr`.
        b: the program to compare with. Constants of two `ClosedJaxpr`s are compared by shape, dtype and bits.

    Returns:
        A `JaxprDiff`, false exactly if the programs are equal up to variable names.

    Raises:
        TypeError: `a` or `b` is no jaxpr.

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
    result = _diff(first, second)
    if isinstance(a, ClosedJaxpr) and isinstance(b, ClosedJaxpr):
        constants = tuple(_constants(a.consts, b.consts))
        lines = [line for x, y in constants for line in (f"- {x}", f"+ {y}")]
        result = evolve(result, interface=(*constants, *result.interface), lines=(*lines, *result.lines))
    return result


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
    """Compares two unequal jaxprs whose variables are numbered in binding order."""

    def __init__(self, a: Jaxpr, b: Jaxpr) -> None:
        self.a = a
        self.b = b
        self.names: dict[int, Var] = {}
        """Variables of the first program by index of their counterparts in the second; others get new names."""
        self.fresh = itertools.count(a.var_count)
        self.pairs: dict[int, int] = {}
        """Index pairs of matching equations: first program to second."""
        numbers: dict[object, int] = {}
        self.values = (_value_numbers(a, numbers), _value_numbers(b, numbers))
        """The value number of each equation of both programs."""

    def run(self) -> JaxprDiff:
        self.pair_inputs()
        self.pairs = dict(sorted(self.pair_in_order()))
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
        moved_from = {j: i for i, j in moved.items()}
        j = 0
        for i, eqn in enumerate(self.a.eqns):
            if i in self.pairs:
                lines += [_DiffLine(self.added(k, moved_from.get(k))) for k in range(j, self.pairs[i])]
                lines.append(_DiffLine(changes.get(i), eqn))
                j = self.pairs[i] + 1
            elif i not in moved:
                lines.append(_DiffLine(Change(ChangeKind.REMOVED, eqn, None, i, None)))
        lines += [_DiffLine(self.added(k, moved_from.get(k))) for k in range(j, len(self.b.eqns))]
        interface = tuple(self.interface())
        changes_in_order = tuple([line.change for line in lines if line.change is not None])
        return JaxprDiff(changes_in_order, interface, tuple(_text(lines, interface)))

    def name(self, second: Var, first: Var) -> None:
        self.names.setdefault(second.index, Var(first.index, second.aval))

    def pair_inputs(self) -> None:
        for first, second in ((self.a.constvars, self.b.constvars), (self.a.invars, self.b.invars)):
            for v, w in zip(first, second, strict=False):
                self.name(w, v)

    def pair_in_order(self) -> Iterator[tuple[int, int]]:
        """Pairs equations in order, by ever weaker keys: each pairs equations between those paired before.

        The first keys are the value of an equation, and its primitive with what is known of its operands, if exactly
        one equation of each program has the key. The others are the primitive with the types of its operands, and the
        class of the primitive.
        """
        numbers: dict[object, int] = {}
        a, b = self.a.eqns, self.b.eqns
        local = [[numbers.setdefault(_local_key(eqn), len(numbers)) for eqn in eqns] for eqns in (a, b)]
        shared = set(self.values[0]) & set(self.values[1])
        by_operands, by_inputs = [
            [
                [numbers.setdefault(key, len(numbers)) for key in _operand_keys(jaxpr, own, values, known)]
                for jaxpr, own, values in zip((self.a, self.b), local, self.values, strict=True)
            ]
            for known in (shared, set[int]())
        ]
        pairs: list[tuple[int, int]] = []
        for keys in (self.values, by_operands, by_inputs, local):
            counts = [Counter(each) for each in keys]
            chosen = [
                [n for n in indices if keys is local or counts[0][each[n]] == counts[1][each[n]] == 1]
                for indices, each in zip((range(len(a)), range(len(b))), keys, strict=True)
            ]
            pairs = sorted([*pairs, *_pairs_in_gaps(pairs, keys, chosen)])
        yield from pairs
        for first, second in _gaps(pairs, len(a), len(b)):
            if first and second:
                yield from self.pair_same_operation(first, second, numbers)

    def pair_same_operation(self, first: range, second: range, numbers: dict[object, int]) -> Iterator[tuple[int, int]]:
        """Pairs equations of the same primitive class within a gap between equal equations; between such pairs, where
        both programs have equally many equations, pairs these one by one."""
        kinds = [
            [numbers.setdefault(type(eqns[k].prim), len(numbers)) for k in indices]
            for eqns, indices in ((self.a.eqns, first), (self.b.eqns, second))
        ]
        next_i = next_j = 0
        for i, j in [*align_sequences(*kinds), (len(first), len(second))]:
            if i - next_i == j - next_j:
                yield from zip(first[next_i:i], second[next_j:j], strict=True)
            if i < len(first):
                yield first[i], second[j]
            next_i, next_j = i + 1, j + 1

    def pair_moved(self) -> Iterator[tuple[int, int]]:
        """Pairs unmatched equations that compute the same value."""
        candidates: dict[int, list[int]] = {}
        matched = set(self.pairs.values())
        unmatched = [i for i in range(len(self.a.eqns)) if i not in self.pairs]
        if not unmatched or len(matched) == len(self.b.eqns):
            return
        first_values, second_values = self.values
        for j, value in enumerate(second_values):
            if j not in matched:
                candidates.setdefault(value, []).append(j)
        for i in unmatched:
            matches = candidates.get(first_values[i])
            if matches:
                yield i, matches.pop(0)

    # -------------------------------------------------------------- comparing

    def renamed(self, eqn: Eqn) -> Eqn:
        """Renames the variables of an equation of the second program to their counterparts in the first."""
        return Eqn(eqn.prim, tuple(map(self.read, eqn.inputs)), tuple(map(self.variable, eqn.outs)), eqn.source)

    def read(self, x: Atom) -> Atom:
        return x if isinstance(x, Literal) else self.variable(x)

    def variable(self, v: Var) -> Var:
        renamed = self.names.get(v.index)
        if renamed is None:
            renamed = self.names[v.index] = Var(next(self.fresh), v.aval)
        return renamed

    def compared(self, i: int, j: int) -> Change | None:
        before, after = self.a.eqns[i], self.renamed(self.b.eqns[j])
        if before == after:
            return None
        bodies: tuple[JaxprDiff, ...] = ()
        if isinstance(before.prim, HasSubjaxprs) and isinstance(after.prim, HasSubjaxprs):
            first, second = before.prim.jaxprs(), after.prim.jaxprs()
            if len(first) == len(second):
                bodies = tuple([_diff(x, y) for x, y in zip(first, second, strict=True)])
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
        first, second = _outputs(self.a.outs), _outputs(tuple(map(self.read, self.b.outs)))
        if first != second:  # variables of another type are reported where they are bound
            yield first, second


# ------------------------------------------------------------------ text


@final
@frozen(eq=False)
class _DiffLine:
    """An equation in the text, changed or unchanged."""

    change: Change | None
    eqn: Eqn | None = None


def _text(lines: Sequence[_DiffLine], interface: Sequence[tuple[str, str]]) -> Iterator[str]:
    headers = [x for x in interface if not x[0].startswith("in (")]
    for before, after in headers:
        yield from (f"- {before}", f"+ {after}")
    marks = [k for k, line in enumerate(lines) if line.change is not None]
    near = {n for k in marks for n in range(k - _CONTEXT, k + _CONTEXT + 1)}
    if len(headers) < len(interface):
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
    for before, after in interface[len(headers) :]:
        yield from (f"- {before}", f"+ {after}")


def _change_lines(change: Change) -> Iterator[str]:
    before, after = [None if eqn is None else format_eqn(eqn) for eqn in (change.before, change.after)]
    first, second = _location_text(change.before), _location_text(change.after)
    if first == second:
        first = ""
    if change.kind is ChangeKind.MOVED:
        yield f"~ {after}{second}"
    elif before == after:  # only the bodies differ
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


def _local_key(eqn: Eqn) -> object:
    """Returns the primitive of an equation with the types of its operands and results, and literal operands."""
    operands = tuple([x if isinstance(x, Literal) else x.aval for x in eqn.inputs])
    return eqn.prim, operands, tuple([v.aval for v in eqn.outs])


def _operand_keys(
    jaxpr: Jaxpr, local: Sequence[int], values: Sequence[int], known: Set[int]
) -> Iterator[tuple[object, ...]]:
    """Yields for each equation its local number and what is known of the operands, whatever the names of variables.

    That is the input, the value if it is one of the `known`, or else the local number of the equation that computes it.
    """
    origins: dict[int, object] = {v.index: ("constant", i) for i, v in enumerate(jaxpr.constvars)}
    origins |= {v.index: ("input", i) for i, v in enumerate(jaxpr.invars)}
    for eqn, number, value in zip(jaxpr.eqns, local, values, strict=True):
        yield number, *[origins[x.index] for x in eqn.inputs if isinstance(x, Var)]
        source = ("value", value) if value in known else ("equation", number)
        origins |= {v.index: (*source, i) for i, v in enumerate(eqn.outs)}


def _pairs_in_gaps(
    pairs: Sequence[tuple[int, int]], keys: Sequence[Sequence[int]], chosen: Sequence[Sequence[int]]
) -> Iterator[tuple[int, int]]:
    """Yields more pairs of equations of equal keys, between those paired already, among the chosen equations."""
    for gap in _gaps(pairs, len(keys[0]), len(keys[1])):
        first, second = [
            indices[bisect_left(indices, part.start) : bisect_left(indices, part.stop)]
            for indices, part in zip(chosen, gap, strict=True)
        ]
        for i, j in align_sequences([keys[0][n] for n in first], [keys[1][n] for n in second]):
            yield first[i], second[j]


def _gaps(pairs: Sequence[tuple[int, int]], n: int, m: int) -> Iterator[tuple[range, range]]:
    """Yields the index ranges between paired equations of programs with `n` and `m` equations."""
    next_i = next_j = 0
    for i, j in [*pairs, (n, m)]:
        yield range(next_i, i), range(next_j, j)
        next_i, next_j = i + 1, j + 1


def _value_numbers(jaxpr: Jaxpr, values: dict[object, int]) -> list[int]:
    """Numbers equations by value: equal numbers mean the same computation on the same inputs, in both programs."""
    value_keys: dict[int, object] = {v.index: ("constant", i, v.aval) for i, v in enumerate(jaxpr.constvars)}
    value_keys |= {v.index: ("input", i, v.aval) for i, v in enumerate(jaxpr.invars)}
    numbers = []
    for eqn in jaxpr.eqns:
        key = (eqn.prim, tuple([x if isinstance(x, Literal) else value_keys[x.index] for x in eqn.inputs]))
        number = values.setdefault(key, len(values))
        numbers.append(number)
        for i, v in enumerate(eqn.outs):
            value_keys[v.index] = (number, i)
    return numbers


def _location_text(eqn: Eqn | None) -> str:
    if eqn is None or eqn.source is None:
        return ""
    location: SourceLocation = eqn.source.resolve()
    return f"  # {location.file}:{location.line}"


def _binders(vs: Sequence[Var]) -> str:
    return " ".join([f"{variable_name(v.index)}:{v.aval!r}" for v in vs]) or show_avals([])


def _outputs(xs: Sequence[Atom]) -> str:
    names = [f"{scalar_text(x.val)}:{x.aval!r}" if isinstance(x, Literal) else variable_name(x.index) for x in xs]
    return f"in ({', '.join(names)}{',' if len(names) == 1 else ''})"
