"""The rewriting engine: applies rules to a jaxpr until none applies.

The engine visits operations in program order, operands first, and rewrites each to a fixed point: its operands are
final before it is visited, so a term that no rule replaces stays final, and the operations that a rule creates are
rewritten before they replace a term. So one walk over the program suffices. After dead code has been eliminated a
second walk either finds nothing to do or goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NoReturn, final

from tracefx.bounded_cache import MemoKey
from tracefx.core import Literal, Value, accepts, show_avals
from tracefx.core.handler import CURRENT
from tracefx.core.jaxpr import Atom, Eqn, Jaxpr, Var
from tracefx.core.primitive import Primitive
from tracefx.errors import RewriteError, RewriteLoopError, RewriteTypeError
from tracefx.passes.dce import dce
from tracefx.passes.rebuilding import map_subjaxprs
from tracefx.rewriting.closed_jaxprs import J, map_jaxpr
from tracefx.rewriting.rules import RewriteRule
from tracefx.rewriting.terms import Apply, InputTerm, OperationNode, RewriteHandler, Term, format_term
from tracefx.source_location import SOURCE, at_location

LIMIT: Final = 1000
_MAX_SHOWN: Final = 6


def rewrite(jaxpr: J, rules: Iterable[RewriteRule], *, limit: int = LIMIT) -> J:
    """Applies rules to a jaxpr and its sub-jaxprs until none applies any more.

    Where several rules apply to a term, the first in order wins. Dead code is eliminated afterwards (`dce`); equations
    with effects stay. New equations get the source location of the equation that they replace. Shapes, dtypes and
    weak types are preserved. Takes time linear in the length of the program and in the number of rule applications.

    Args:
        jaxpr: a `Jaxpr` or `ClosedJaxpr`.
        rules: the rules, in order of precedence.
        limit: how many times rules may apply while one equation, and what replaces it, is rewritten; also the
            maximal number of walks over a jaxpr.

    Returns:
        The rewritten program, of the same type as `jaxpr`; the same object if no rule applies.

    Raises:
        RewriteTypeError: a rule returns a value of another shape or dtype than the term that it replaces.
        RewriteLoopError: rules undo each other, or apply more than `limit` times.
        RewriteError: a rule adds array constants or effects.
        TypeError: `rules` is a single rule, or one of its elements is no `RewriteRule`.
        ValueError: `limit` is not positive.

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
    if isinstance(rules, RewriteRule):
        raise TypeError(f"rewrite takes a sequence of rules, got the rule {rules.name!r}: put it into a list")
    chosen = tuple(rules)
    for each in chosen:
        if not isinstance(each, RewriteRule):
            raise TypeError(f"rewrite takes rules, made by RewriteRule or the decorator rule, got {each!r}")
    if limit < 1:
        raise ValueError(f"rewrite: limit must be positive, got {limit}")
    try:
        return map_jaxpr(jaxpr, lambda j: _rewrite_memoized(j, chosen, limit, ()))
    except RecursionError as error:
        raise RewriteLoopError("jaxprs are nested without end: do rules insert one into another?") from error


_REWRITTEN: Final = MemoKey[Jaxpr]("rewritten by rules within a limit")


def _rewrite_memoized(jaxpr: Jaxpr, rules: tuple[RewriteRule, ...], limit: int, around: tuple[Jaxpr, ...]) -> Jaxpr:
    """Rewrites a jaxpr, memoized on it. `around` are rewritten jaxprs whose results contain this one as sub-jaxpr."""
    return jaxpr.memo.get(_REWRITTEN, (rules, limit), lambda: _rewrite_to_fixed_point(jaxpr, rules, limit, around))


def _rewrite_to_fixed_point(
    jaxpr: Jaxpr, rules: tuple[RewriteRule, ...], limit: int, around: tuple[Jaxpr, ...]
) -> Jaxpr:
    if jaxpr in around:
        raise RewriteLoopError(
            f"rules would go on forever: they rewrite a program to one that contains the same program, {jaxpr}"
        )
    first, fired = jaxpr, list[str]()
    for _ in range(limit + 1):  # the last walk finds nothing to do
        walk = _Walk(jaxpr, rules, limit, around if jaxpr is first else (*around, first))
        new = walk.run()
        if new is jaxpr:
            return jaxpr
        fired, jaxpr = walk.applied_rules, dce(new)
    raise RewriteLoopError(
        f"rules still apply after {limit} walks over the program, most recently "
        f"{_quoted_rule_names(fired[-_MAX_SHOWN:])}: dead-code elimination after each walk "
        "lets them apply again"
    )


@final
class _Frame:
    """An operation that is being rewritten: its replacement, and the new operations still to be rewritten."""

    __slots__ = ("application", "pending", "replacement", "rule")

    def __init__(self, application: OperationNode) -> None:
        self.application = application
        self.rule: RewriteRule | None = None
        self.replacement: Sequence[Term] = ()
        self.pending: list[OperationNode] = []


@final
class _Walk:
    """One walk over a jaxpr."""

    def __init__(self, jaxpr: Jaxpr, rules: tuple[RewriteRule, ...], limit: int, around: tuple[Jaxpr, ...]) -> None:
        self.jaxpr = jaxpr
        self.around = around
        self.rules = rules
        self.limit = limit
        self.handler = RewriteHandler()
        self.matches: dict[type, tuple[RewriteRule, ...]] = {}
        """The applicable rules, by class of primitive."""
        self.known: dict[object, OperationNode] = {}
        """Operations that rules created or replaced, by primitive and operands."""
        self.settled: list[OperationNode] = []
        """Final operations, which no rule replaces, in topological order."""
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
        token, origin = CURRENT.set(self.handler), SOURCE.set(None)
        try:
            for eqn in jaxpr.eqns:
                prim = map_subjaxprs(eqn.prim, self.body)
                changed |= prim is not eqn.prim
                operands = tuple([read(x) for x in eqn.inputs])
                application = OperationNode(self.handler, prim, operands, [v.aval for v in eqn.outs], eqn.source)
                for v, term in zip(eqn.outs, self.settle(application), strict=True):
                    env[v.index] = term
        finally:
            SOURCE.reset(origin)
            CURRENT.reset(token)
        if not changed and not self.applied_rules:
            return jaxpr
        return self.program(inputs, [read(x) for x in jaxpr.outs])

    def body(self, jaxpr: Jaxpr) -> Jaxpr:
        return _rewrite_memoized(jaxpr, self.rules, self.limit, self.around)

    # -------------------------------------------------------------- rewriting one operation to a fixed point

    def settle(self, application: OperationNode) -> Sequence[Term]:
        """Rewrites an operation with final operands to a fixed point; returns the final values of its outputs."""
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
        prim_class = type(prim)
        applicable = self.matches.get(prim_class)
        if applicable is None:
            applicable = self.matches[prim_class] = tuple([r for r in self.rules if r.matches(prim_class)])
        return applicable

    def finalize(self, application: OperationNode) -> Sequence[Term]:
        application.results = application.terms
        self.settled.append(application)
        return application.terms

    def push(self, stack: list[_Frame], created: OperationNode) -> None:
        """Pushes an operation that a rule created onto the stack, unless an equal operation is already final."""
        operands = tuple([self.resolved(x, stack) for x in created.operands])
        application = created
        if any(x is not y for x, y in zip(operands, created.operands, strict=True)):
            avals = [t.aval for t in created.terms]
            application = OperationNode(self.handler, created.prim, operands, avals, created.source)
        known = self.known.setdefault(application.key, application)
        if known is not created:
            created.alias = known
        if known is application:
            stack.append(_Frame(application))
        elif known.results is None:
            self.raise_cycle(stack, known)

    def resolved(self, x: Term, stack: list[_Frame]) -> Term:
        """Returns the final value of a term."""
        if not isinstance(x, Apply):
            return x
        application = x.application
        while application.alias is not None:
            application = application.alias
        if application.results is None:
            self.raise_cycle(stack, application)
        return application.results[x.out]

    def created_nodes(self, frame: _Frame, stack: list[_Frame]) -> list[OperationNode]:
        """Lists the operations that a rule created for its result in reverse topological order (for a stack)."""
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
            if application.source is None:  # equations that a rule evaluated from a jaxpr keep their own locations
                application.source = frame.application.source
            todo.append((application, True))
            todo += [(x.application, False) for x in reversed(application.operands) if isinstance(x, Apply)]
        order.reverse()
        return order

    # -------------------------------------------------------------- rules

    def apply_first_rule(self, frame: _Frame) -> bool:
        """Applies the first rule that changes the operation; returns whether there is one."""
        application = frame.application
        if not application.terms:
            return False
        term = application.terms[0]
        for each in self.rules_about(application.prim):
            try:
                result = each.function(term)
            except Exception as error:
                error.add_note(f"in the rule {each.name!r} about {format_term(term)}{at_location(application.source)}")
                raise
            if result is None:
                continue
            replacement = self.replacement(each, term, result)
            if not _is_same_operation(application, replacement):
                frame.rule, frame.replacement = each, replacement
                self.applied_rules.append(each.name)
                self.known.setdefault(application.key, application)
                return True
        return False

    def replacement(self, each: RewriteRule, term: Apply, result: Value | Sequence[Value]) -> Sequence[Term]:
        """Checks the result of a rule and returns it as terms."""
        outputs = term.outputs
        values: Sequence[Value] = result if isinstance(result, (tuple, list)) else (result,)
        if len(values) != len(outputs):
            raise RewriteTypeError(
                f"the rule {each.name!r} returned {len(values)} values for {term.prim.name}, which has {len(outputs)} "
                f"outputs ({show_avals([t.aval for t in outputs])}){at_location(term.origin)}: it must return one "
                "value for each output"
            )
        replacement = []
        for i, (old, new) in enumerate(zip(outputs, values, strict=True)):
            if not isinstance(new, Value):
                raise RewriteTypeError(
                    f"the rule {each.name!r} returned {new!r} for {format_term(old)}: it must return a term, an "
                    "array computed from terms, a literal or None"
                )
            if not accepts((old.aval,), (new.aval,)):
                which = f"output {i} of {term.prim.name}" if len(outputs) > 1 else format_term(old)
                raise RewriteTypeError(
                    f"the rule {each.name!r} changes the type of {which} from {old.aval!r} to "
                    f"{new.aval!r}{at_location(term.origin)}. Convert the replacement, or apply the rule only where "
                    "the types agree"
                )
            replacement.append(self.handler.term(new, f"the result of the rule {each.name!r}"))
        return replacement

    def require_pure(self, frame: _Frame, application: OperationNode) -> None:
        assert frame.rule is not None
        effects = application.prim.effects
        added = effects - self.jaxpr.effects if effects else ()
        if added:
            raise RewriteError(
                f"the rule {frame.rule.name!r} adds {application.prim.name} to the program, which has an effect "
                f"({', '.join(sorted(map(str, added)))}) that the program did not have"
                f"{at_location(frame.application.source)}"
            )

    # -------------------------------------------------------------- detecting loops

    def raise_cycle(self, stack: list[_Frame], application: OperationNode) -> NoReturn:
        positions = [i for i, f in enumerate(stack) if f.application is application]
        frames = stack[positions[0] :] if positions else stack
        steps = [f"{format_term(f.application.terms[0])} by {f.rule.name!r}" for f in frames if f.rule is not None]
        names = _quoted_rule_names([f.rule.name for f in frames if f.rule is not None])
        raise RewriteLoopError(
            f"{names} would go on forever: {'; then '.join(steps[:_MAX_SHOWN])} leads back to "
            f"{format_term(application.terms[0])}{at_location(application.source)}"
        )

    def raise_limit_exceeded(self, application: OperationNode, stack: list[_Frame]) -> NoReturn:
        last = self.applied_rules[-_MAX_SHOWN:]
        raise RewriteLoopError(
            f"rules applied more than {self.limit} times in rewriting {format_term(application.terms[0])}"
            f"{at_location(application.source)}, most recently {_quoted_rule_names(last)} to "
            f"{format_term(stack[-1].application.terms[0])}: if the rules "
            "terminate, pass rewrite a larger limit"
        )

    # -------------------------------------------------------------- building the result

    def program(self, inputs: Sequence[InputTerm], outs: Sequence[Term]) -> Jaxpr:
        binders = [Var(i, x.aval) for i, x in enumerate(inputs)]
        atoms: dict[int, Var] = {id(x): v for x, v in zip(inputs, binders, strict=True)}
        count = len(binders)
        eqns = []
        for application in self.settled:
            operands = tuple([x if isinstance(x, Literal) else atoms[id(x)] for x in application.operands])
            outputs = tuple([Var(count + i, t.aval) for i, t in enumerate(application.terms)])
            count += len(outputs)
            atoms.update(zip(map(id, application.terms), outputs, strict=True))
            eqns.append(Eqn(application.prim, operands, outputs, application.source))
        n = len(self.jaxpr.constvars)
        results = tuple([x if isinstance(x, Literal) else atoms[id(x)] for x in outs])
        return Jaxpr(tuple(binders[:n]), tuple(binders[n:]), tuple(eqns), results)


def _is_same_operation(application: OperationNode, replacement: Sequence[Term]) -> bool:
    """Whether a replacement is the same operation applied to the same operands."""
    for i, x in enumerate(replacement):
        if not isinstance(x, Apply) or x.out != i:
            return False
        if x.application is not application and x.application.key != application.key:
            return False
    return True


def _quoted_rule_names(names: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(names))
    return ("the rules " if len(distinct) > 1 else "the rule ") + ", ".join(map(repr, distinct))
