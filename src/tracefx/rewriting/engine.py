"""Rewriting: rules applied to a program until none applies any more.

Terms are settled from the inputs on. The operands of a term are settled before it, so a term that no rule replaces
stays as it is for good, and what a rule makes is settled before it takes the place of a term. One walk through the
program is all it takes; a second one, after what nobody uses has gone, finds nothing to do, or goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NoReturn, final

from tracefx.core.avals import show_avals
from tracefx.core.handler import CURRENT
from tracefx.core.jaxpr import Atom, Eqn, Jaxpr, Var
from tracefx.core.literal import Literal
from tracefx.core.primitive import Primitive
from tracefx.core.source_location import EQN_LOCATION, at_location
from tracefx.core.values import Value
from tracefx.passes.dce import dce, map_subjaxprs
from tracefx.rewriting.closed_jaxprs import J, map_jaxpr
from tracefx.rewriting.errors import RewriteError, RewriteLoopError, RewriteTypeError
from tracefx.rewriting.rules import RewriteRule
from tracefx.rewriting.terms import Apply, InputTerm, OperationNode, RewriteHandler, Term, format_term

LIMIT: Final = 1000
_MAX_SHOWN: Final = 6


def rewrite(jaxpr: J, rules: Iterable[RewriteRule], *, limit: int = LIMIT) -> J:
    """The program with rules applied, in its bodies too, until none applies any more.

    Where several rules apply, the first does. What nobody uses afterwards is dropped (`dce`), what has effects stays.
    New equations tell the line of the one they stand for. Types are kept, weak types too. Where no rule applies, the
    result is the very same object. Linear in the length of the program, and in the number of times rules apply.

    Raises `RewriteTypeError` if a rule gives a value of another type, `RewriteLoopError` if rules undo each other or
    apply more than `limit` times to what became of one equation, `RewriteError` if a rule brings in arrays or effects.

    >>> import tracefx as fx
    >>> from tracefx.rewriting import Apply, rule
    >>> from tracefx.ops.elementwise.arithmetic import Mul
    >>> @rule(Mul)
    ... def square(term):
    ...     x, y = term.operands
    ...     return fx.lax.square(x) if x is y else None
    >>> rewrite(fx.make_jaxpr(lambda x: fx.lax.sin(x * x))(1.0), [square])
    { lambda ; a:f32[]*. let b:f32[]* = square a; c:f32[]* = sin b in (c,) }
    """
    chosen = tuple(rules)
    for each in chosen:
        if not isinstance(each, RewriteRule):
            raise TypeError(f"rewrite takes rules, made by Rule or the decorator rule, got {each!r}")
    if limit < 1:
        raise ValueError(f"rewrite: limit must be positive, got {limit}")
    try:
        return map_jaxpr(jaxpr, lambda j: _rewrite_memoized(j, chosen, limit, ()))
    except RecursionError as error:
        raise RewriteLoopError("programs nest in programs without end: do rules put them there?") from error


def _rewrite_memoized(jaxpr: Jaxpr, rules: tuple[RewriteRule, ...], limit: int, around: tuple[Jaxpr, ...]) -> Jaxpr:
    """`around` are programs that rules applied to, and in what came of which this one is a body."""
    key = ("rewrite", rules, limit)
    return jaxpr.memo.get(key, lambda: _rewrite_to_fixed_point(jaxpr, rules, limit, around))


def _rewrite_to_fixed_point(
    jaxpr: Jaxpr, rules: tuple[RewriteRule, ...], limit: int, around: tuple[Jaxpr, ...]
) -> Jaxpr:
    if jaxpr in around:
        raise RewriteLoopError(
            f"rules would go on forever: of a program they make one that carries the same program, {jaxpr}"
        )
    first, fired = jaxpr, list[str]()
    for _ in range(limit + 1):  # the last one to find nothing to do
        walk = _Walk(jaxpr, rules, limit, around if jaxpr is first else (*around, first))
        new = walk.run()
        if new is jaxpr:
            return jaxpr
        fired, jaxpr = walk.applied_rules, dce(new)
    raise RewriteLoopError(
        f"rules still apply after {limit} walks through the program, at last "
        f"{_quoted_rule_names(fired[-_MAX_SHOWN:])}: each walk "
        "drops what nobody uses, and so lets them apply again"
    )


@final
class _Frame:
    """An application being settled: what a rule put in its place, and of that what is not settled yet."""

    __slots__ = ("application", "pending", "replacement", "rule")

    def __init__(self, application: OperationNode) -> None:
        self.application = application
        self.rule: RewriteRule | None = None
        self.replacement: Sequence[Term] = ()
        self.pending: list[OperationNode] = []


@final
class _Walk:
    """One walk through a program."""

    def __init__(self, jaxpr: Jaxpr, rules: tuple[RewriteRule, ...], limit: int, around: tuple[Jaxpr, ...]) -> None:
        self.jaxpr = jaxpr
        self.around = around
        self.rules = rules
        self.limit = limit
        self.handler = RewriteHandler()
        self.matches: dict[type, tuple[RewriteRule, ...]] = {}
        """The rules about a class of operations."""
        self.known: dict[object, OperationNode] = {}
        """What rules made, and what they replaced, by operation and operands."""
        self.settled: list[OperationNode] = []
        """What no rule replaces, operands first."""
        self.applied_rules: list[str] = []

    def run(self) -> Jaxpr:
        jaxpr = self.jaxpr
        inputs = [InputTerm(self.handler, v) for v in jaxpr.constvars + jaxpr.invars]
        env: list[Term | None] = [None] * jaxpr.var_count
        for x in inputs:
            env[x.binder.index] = x

        def read(atom: Atom) -> Term:
            if type(atom) is Literal:
                return atom
            assert type(atom) is Var
            term = env[atom.index]
            assert term is not None, atom
            return term

        changed = False
        token, origin = CURRENT.set(self.handler), EQN_LOCATION.set(None)
        try:
            for eqn in jaxpr.eqns:
                prim = map_subjaxprs(eqn.prim, self.body)
                changed |= prim is not eqn.prim
                operands = tuple([read(x) for x in eqn.inputs])
                application = OperationNode(self.handler, prim, operands, [v.aval for v in eqn.outs], eqn.source)
                for v, term in zip(eqn.outs, self.settle(application), strict=True):
                    env[v.index] = term
        finally:
            EQN_LOCATION.reset(origin)
            CURRENT.reset(token)
        if not changed and not self.applied_rules:
            return jaxpr
        return self.program(inputs, [read(x) for x in jaxpr.outs])

    def body(self, jaxpr: Jaxpr) -> Jaxpr:
        return _rewrite_memoized(jaxpr, self.rules, self.limit, self.around)

    # -------------------------------------------------------------- settling

    def settle(self, application: OperationNode) -> Sequence[Term]:
        """What stands for the outputs of an application, whose operands are settled, in the end."""
        if not self.rules_about(application.prim):
            return self.finalize(application)
        stack = [_Frame(application)]
        count = 0
        while stack:
            frame = stack[-1]
            if frame.pending:
                self.push(stack, frame.pending.pop())
            elif frame.rule is not None:
                frame.application.results = [self.resolved(x, stack) for x in frame.replacement]
                stack.pop()
            elif self.apply_first_rule(frame):
                count += 1
                if count > self.limit:
                    self.raise_limit_exceeded(application, stack)
                frame.pending = self.created_nodes(frame, stack)
            else:
                self.finalize(frame.application)
                stack.pop()
        assert application.results is not None
        return application.results

    def rules_about(self, prim: Primitive) -> tuple[RewriteRule, ...]:
        kind = type(prim)
        found = self.matches.get(kind)
        if found is None:
            found = self.matches[kind] = tuple([r for r in self.rules if r.matches(kind)])
        return found

    def finalize(self, application: OperationNode) -> Sequence[Term]:
        application.results = application.terms
        self.settled.append(application)
        return application.terms

    def push(self, stack: list[_Frame], made: OperationNode) -> None:
        """Settle next what a rule made, unless an equal application is settled already."""
        operands = tuple([self.resolved(x, stack) for x in made.operands])
        application = made
        if any(x is not y for x, y in zip(operands, made.operands, strict=True)):
            avals = [t.aval for t in made.terms]
            application = OperationNode(self.handler, made.prim, operands, avals, made.source)
        known = self.known.setdefault(application.key, application)
        if known is not made:
            made.alias = known
        if known is application:
            stack.append(_Frame(application))
        elif known.results is None:
            self.raise_cycle(stack, known)

    def resolved(self, x: Term, stack: list[_Frame]) -> Term:
        """What stands for a term in the end."""
        if not isinstance(x, Apply):
            return x
        application = x.application
        while application.alias is not None:
            application = application.alias
        if application.results is None:
            self.raise_cycle(stack, application)
        return application.results[x.out]

    def created_nodes(self, frame: _Frame, stack: list[_Frame]) -> list[OperationNode]:
        """The applications that a rule made for its result, the last first: operands come after what takes them."""
        order: list[OperationNode] = []
        seen: set[int] = set()
        todo: list[tuple[OperationNode, bool]] = [
            (x.application, False) for x in reversed(frame.replacement) if isinstance(x, Apply)
        ]
        while todo:
            application, is_done = todo.pop()
            if is_done:
                order.append(application)
                continue
            if id(application) in seen or application.results is not None or application.alias is not None:
                continue
            if any(f.application is application for f in stack):
                self.raise_cycle(stack, application)
            seen.add(id(application))
            self.require_pure(frame, application)
            if application.source is None:  # unless a rule runs a program, whose equations have lines of their own
                application.source = frame.application.source
            todo.append((application, True))
            todo += [(x.application, False) for x in reversed(application.operands) if isinstance(x, Apply)]
        order.reverse()
        return order

    # -------------------------------------------------------------- rules

    def apply_first_rule(self, frame: _Frame) -> bool:
        """Apply the first rule that changes anything."""
        application = frame.application
        if not application.terms:
            return False
        term = application.terms[0]
        for each in self.rules_about(application.prim):
            try:
                given = each.function(term)
            except Exception as error:
                error.add_note(f"in the rule {each.name!r} about {format_term(term)}{at_location(application.source)}")
                raise
            if given is None:
                continue
            replacement = self.replacement(each, term, given)
            if not _is_same_operation(application, replacement):
                frame.rule, frame.replacement = each, replacement
                self.applied_rules.append(each.name)
                self.known.setdefault(application.key, application)
                return True
        return False

    def replacement(self, each: RewriteRule, term: Apply, given: Value | Sequence[Value]) -> Sequence[Term]:
        """What a rule gave, checked."""
        outputs = term.outputs
        values: Sequence[Value] = given if isinstance(given, (tuple, list)) else (given,)
        if len(values) != len(outputs):
            raise RewriteTypeError(
                f"the rule {each.name!r} gave {len(values)} values for {term.prim.name}, which has {len(outputs)} "
                f"outputs ({show_avals([t.aval for t in outputs])}){at_location(term.origin)}: it must give one for "
                "each"
            )
        replacement = []
        for i, (old, new) in enumerate(zip(outputs, values, strict=True)):
            if not isinstance(new, Value):
                raise RewriteTypeError(
                    f"the rule {each.name!r} gave {new!r} for {format_term(old)}: it must give a term, an array "
                    "made of "
                    "terms, a literal or None"
                )
            if new.aval != old.aval:
                which = f"output {i} of {term.prim.name}" if len(outputs) > 1 else format_term(old)
                raise RewriteTypeError(
                    f"the rule {each.name!r} changes a type: {which} is {old.aval!r}, what stands in its place is "
                    f"{new.aval!r}{at_location(term.origin)}. Convert it, or let the rule apply where the types agree"
                )
            replacement.append(self.handler.term(new, f"what the rule {each.name!r} gave"))
        return replacement

    def require_pure(self, frame: _Frame, application: OperationNode) -> None:
        assert frame.rule is not None
        effects = application.prim.effects
        added = effects - self.jaxpr.effects if effects else ()
        if added:
            raise RewriteError(
                f"the rule {frame.rule.name!r} brings {application.prim.name} into the program, which has an effect "
                f"({', '.join(sorted(map(str, added)))}) that was not there{at_location(frame.application.source)}"
            )

    # -------------------------------------------------------------- loops

    def raise_cycle(self, stack: list[_Frame], application: OperationNode) -> NoReturn:
        places = [i for i, f in enumerate(stack) if f.application is application]
        frames = stack[places[0] :] if places else stack
        steps = [f"{format_term(f.application.terms[0])} by {f.rule.name!r}" for f in frames if f.rule is not None]
        names = _quoted_rule_names([f.rule.name for f in frames if f.rule is not None])
        raise RewriteLoopError(
            f"{names} would go on forever: from {'; then '.join(steps[:_MAX_SHOWN])} comes "
            f"{format_term(application.terms[0])} again{at_location(application.source)}"
        )

    def raise_limit_exceeded(self, application: OperationNode, stack: list[_Frame]) -> NoReturn:
        last = self.applied_rules[-_MAX_SHOWN:]
        raise RewriteLoopError(
            f"rules applied more than {self.limit} times to what became of {format_term(application.terms[0])}"
            f"{at_location(application.source)}, at last {_quoted_rule_names(last)} to "
            f"{format_term(stack[-1].application.terms[0])}: if they come "
            "to an end, give rewrite a larger limit"
        )

    # -------------------------------------------------------------- the program again

    def program(self, inputs: Sequence[InputTerm], outs: Sequence[Term]) -> Jaxpr:
        binders = [Var(i, x.aval) for i, x in enumerate(inputs)]
        atoms: dict[int, Var] = {id(x): v for x, v in zip(inputs, binders, strict=True)}
        count = len(binders)
        eqns = []
        for application in self.settled:
            taken = tuple([x if isinstance(x, Literal) else atoms[id(x)] for x in application.operands])
            made = tuple([Var(count + i, t.aval) for i, t in enumerate(application.terms)])
            count += len(made)
            atoms.update(zip(map(id, application.terms), made, strict=True))
            eqns.append(Eqn(application.prim, taken, made, application.source))
        n = len(self.jaxpr.constvars)
        results = tuple([x if isinstance(x, Literal) else atoms[id(x)] for x in outs])
        return Jaxpr(tuple(binders[:n]), tuple(binders[n:]), tuple(eqns), results)


def _is_same_operation(application: OperationNode, replacement: Sequence[Term]) -> bool:
    """Whether a replacement is the same operation on the same operands."""
    for i, x in enumerate(replacement):
        if not isinstance(x, Apply) or x.out != i:
            return False
        if x.application is not application and x.application.key != application.key:
            return False
    return True


def _quoted_rule_names(names: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(names))
    return ("the rules " if len(distinct) > 1 else "the rule ") + ", ".join(map(repr, distinct))
