"""Laws that every handler must satisfy, and `check_handler`, which checks them for custom handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import Context, copy_context
from typing import Any, Final, TypeAlias, final

import numpy as np
from attrs import field, frozen
from typing_extensions import override

from tracefx import numpy as fnp
from tracefx.core import Value
from tracefx.core.handler import Handler, Tracer, current, handling
from tracefx.core.primitive import Primitive
from tracefx.errors import EscapedTracerError, HandlerStateError, MissingRuleError
from tracefx.filtered_tracebacks import api_boundary
from tracefx.pytrees.trees import PyTree
from tracefx.testing.checks import LawReport
from tracefx.testing.equivalence import TRANSFORMS, Outcome, describe_outcome_difference, display_name, message_label
from tracefx.testing.errors import Inapplicable, LawError, Reproducer
from tracefx.testing.generated_programs import AnyCallable, SourceFunction
from tracefx.testing.laws import LAWS, jvp_is_the_derivative, text_round_trips
from tracefx.testing.reproducer import import_of, indented_text, script, source_of
from tracefx.testing.subjects import Subject, staged
from tracefx.testing.tolerances import DERIVATIVE, EXACT, PROGRAM, Ulps, tolerance_or
from tracefx.testing.wrappers import CONTROL_FLOW_WRAPPERS

HandlerFactory: TypeAlias = Callable[[Handler], Handler]
"""A constructor: a function from the inner handler to the handler."""
Interpretation: TypeAlias = Callable[[AnyCallable], AnyCallable]
"""A function from a function to the function that runs it under a handler."""

# ------------------------------------------------------------------ test handlers


@final
@frozen(eq=False)
class FaultInjector(Handler):
    """A handler that raises `error` at operation number `fail_at` (never if negative) and forwards the others.

    >>> import tracefx.numpy as fnp
    >>> from tracefx import handle
    >>> handle(fnp.sin, lambda inner: FaultInjector(inner, ZeroDivisionError, 0))(1.0)
    Traceback (most recent call last):
        ...
    ZeroDivisionError
    """

    title = "fault injector"
    inner: Handler
    error: type[BaseException]
    fail_at: int
    seen: list[str] = field(factory=list, init=False)
    """The names of the primitives bound so far."""

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        self.seen.append(prim.name)
        if len(self.seen) - 1 == self.fail_at:
            raise self.error
        return self.inner.bind(prim, args)


@final
class InjectedError(Exception):
    """The exception that `FaultInjector` raises in checks."""


def _handled_by(make_handler: HandlerFactory) -> Interpretation:
    """Returns the interpretation that runs functions under a new handler over the current one."""

    def interpret(f: AnyCallable) -> AnyCallable:
        def handled(*args: PyTree) -> Any:
            with handling(make_handler(current())):
                return f(*args)

        return handled

    return interpret


# ------------------------------------------------------------------ cases and laws


@final
@frozen(eq=False)
class HandlerCase:
    """A handler, a function and arguments to check it with; `given` is the handler or interpretation under test."""

    check: str
    given: object
    handled: Interpretation
    f: AnyCallable
    args: tuple[PyTree, ...]
    meaning: Interpretation | None
    transparent: bool
    ulps: Ulps
    context: Context = field(factory=copy_context, init=False)
    """The context before the handler is run."""

    def expected(self, f: AnyCallable) -> AnyCallable | None:
        """Returns what the handler should make of a function; None if that is unknown."""
        return f if self.transparent else None if self.meaning is None else self.meaning(f)

    def require_same(
        self, what: str, got: AnyCallable, want: AnyCallable, names: tuple[str, str], ulps: Ulps | None = None
    ) -> None:
        """Raises LawError unless both functions have the same outcome at the arguments."""
        outcomes = [Outcome.of(g, self.args) for g in (got, want)]
        for outcome in outcomes:
            if isinstance(outcome.error, MissingRuleError | Inapplicable):
                raise outcome.error
        difference = describe_outcome_difference(outcomes[0], outcomes[1], names, self.ulps if ulps is None else ulps)
        if difference is not None:
            raise self.violation(what, difference, {names[0]: got, names[1]: want})
        if outcomes[0].error is not None:
            raise outcomes[0].error

    def violation(self, what: str, found: str, programs: Mapping[str, AnyCallable] | None = None) -> LawError:
        """Returns the error for a violation; `found` describes the results, and `programs` are what gave them."""
        call = f"{message_label(self.f)} of ({', '.join(map(source_of, self.args))})"
        error = LawError(f"{what}: violated by {message_label(self.given)} around {call}\n{found}")
        return error.with_reproducer(lambda: self.context.copy().run(self.reproducer, programs or {}))

    def reproducer(self, programs: Mapping[str, AnyCallable]) -> Reproducer | None:
        """Returns the differing programs, or that of the function, and Python code that reproduces the failure."""
        found = {name: _program_text(f, self.args) for name, f in programs.items()} or {
            "without the handler": _program_text(self.f, self.args)
        }
        texts = [f"the program {name}:\n{text}" for name, text in found.items() if text]
        if len(texts) > len(set(found.values())):
            both = f"both, {' and '.join(found)}, are traced to this program, so they differ in what is not traced: "
            cause = "Python code that inspects values, or state that the handler keeps"
            texts = [f"{both}{cause}:\n{next(iter(found.values()))}"]
        definitions = [import_of(self.given), import_of(self.f)]
        if None in definitions or self.meaning is not None:
            return Reproducer("\n".join(texts)) if texts else None
        call_args = [display_name(self.given), display_name(self.f), *map(source_of, self.args)]
        options = "" if self.transparent else "transparent=False"
        lines = "\n".join([d for d in definitions if d is not None])
        return Reproducer("\n".join(texts), script(lines, self.check, call_args, self.ulps, options))


def _program_text(f: AnyCallable, args: Sequence[PyTree]) -> str:
    """Returns the program of a function, indented; empty if the function cannot be traced."""
    try:
        subject = Subject.of(f, args)
        return indented_text(staged(subject.run, [a.aval for a in subject.args])[0])
    except Exception:
        return ""


@final
@frozen(eq=False)
class HandlerLaw:
    """A property that every handler must have, and the function that checks it.

    >>> from tracefx.testing import HANDLER_LAWS
    >>> [(law.name, law.statement) for law in HANDLER_LAWS][0]
    ('restores_context', 'a handler restores the context')
    """

    name: str
    statement: str
    check: Callable[[HandlerCase], None]

    @override
    def __repr__(self) -> str:
        return self.name


def _handler_law(statement: str) -> Callable[[Callable[[HandlerCase, str], None]], HandlerLaw]:
    def decorator(check: Callable[[HandlerCase, str], None]) -> HandlerLaw:
        return HandlerLaw(check.__name__, statement, lambda case: check(case, statement))

    return decorator


# ------------------------------------------------------------------ the context


@_handler_law("a handler restores the context")
def restores_context(case: HandlerCase, statement: str) -> None:
    """Checks that the current handler and its state are the same after a call as before."""
    before = current()
    outcome = Outcome.of(case.handled(case.f), case.args)
    _require_same_context(case, statement, before, "the call")
    if isinstance(outcome.error, HandlerStateError):
        raise case.violation(statement, f"  {outcome.error}")
    if outcome.error is not None:
        raise outcome.error


@_handler_law("a handler propagates exceptions and keeps no state of them")
def propagates_exceptions(case: HandlerCase, statement: str) -> None:
    """Checks that exceptions, raised at each operation of the function or of the inner handler, reach the caller.

    Afterwards the handler must behave as before.
    """
    outcome_before = Outcome.of(case.handled(case.f), case.args)
    for where, in_function in (("in the function", True), ("in the inner handler", False)):
        for fail_at, run in _faults(case, in_function):
            before = current()
            outcome = Outcome.of(run, case.args)
            if not isinstance(outcome.error, InjectedError):
                raise case.violation(
                    statement, f"  raised {where} at operation {fail_at}, it is not propagated: the call {outcome}"
                )
            _require_same_context(case, statement, before, f"an exception {where} at operation {fail_at}")
    outcome_after = Outcome.of(case.handled(case.f), case.args)
    difference = describe_outcome_difference(outcome_after, outcome_before, ("after exceptions", "before"), EXACT)
    if difference is not None:
        raise case.violation(statement, difference)


def _require_same_context(case: HandlerCase, statement: str, before: Handler, what: str) -> None:
    """Raises LawError unless `before` is still the current handler."""
    after = current()
    if after is not before:
        raise case.violation(statement, f"  after {what}, {after.title} is current instead of {before.title}")


def _faults(case: HandlerCase, in_function: bool) -> Iterator[tuple[int, AnyCallable]]:
    """Yields the handled function, raising at each of its own operations, or of those that the inner handler gets."""
    faulty = case.f if in_function else case.handled(case.f)

    def with_fault(fail_at: int, seen: list[str]) -> AnyCallable:
        def run(*args: PyTree) -> Any:
            with handling(FaultInjector(current(), InjectedError, fail_at)) as injector:
                try:
                    return faulty(*args)
                finally:
                    seen[:] = injector.seen

        return case.handled(run) if in_function else run

    seen: list[str] = []
    Outcome.of(with_fault(-1, seen), case.args)
    for fail_at in range(len(seen)):
        yield fail_at, with_fault(fail_at, [])


@_handler_law("a handler leaks no tracers")
def does_not_leak_tracers(case: HandlerCase, statement: str) -> None:
    """Checks that no result is a tracer of the handler, and that a function under the handler can be staged."""
    outcome = Outcome.of(case.handled(case.f), case.args)
    for i, x in enumerate(outcome.leaves):
        if isinstance(x, Tracer):
            raise case.violation(statement, f"  output {i} is {x!r}, a leaked tracer of {x.handler.title}")
    subject = Subject.of(case.handled(case.f), case.args)
    try:
        staged(subject.run, [a.aval for a in subject.args])
    except EscapedTracerError as error:
        raise case.violation(statement, f"  traced: {error}") from error


# ------------------------------------------------------------------ meaning


@_handler_law("a handler computes its meaning")
def matches_reference(case: HandlerCase, statement: str) -> None:
    """Checks that a function under the handler equals its meaning, or itself if the handler is transparent."""
    want = case.expected(case.f)
    if want is None:
        raise Inapplicable("its meaning is unknown: pass a meaning, or transparent=True")
    names = ("under it", "without it" if case.transparent else "as meant")
    case.require_same(statement, case.handled(case.f), want, names, EXACT if case.transparent else None)


@_handler_law("a handler treats operations inside loops, branches and calls as it does those outside")
def interprets_bodies(case: HandlerCase, statement: str) -> None:
    """Checks that the handler acts on a function inside control flow and calls as outside, eagerly and compiled."""
    want = case.handled(case.f)
    for name, wrapping in CONTROL_FLOW_WRAPPERS.items():
        inside = case.handled(wrapping(case.f))
        case.require_same(statement, inside, want, (f"inside {name}", "outside"))
        case.require_same(
            statement, CONTROL_FLOW_WRAPPERS["jit"](inside), want, (f"inside {name}, compiled", "outside")
        )


@_handler_law("a handler composes with transformations in either order")
def composes(case: HandlerCase, statement: str) -> None:
    """Checks that transformations of handled functions, and handled transformations, compute the meaning."""
    ulps = DERIVATIVE.widen_to(case.ulps)
    applied = 0
    for t in TRANSFORMS:
        want = case.expected(case.f)
        try:
            if want is not None:
                case.require_same(statement, t(case.handled(case.f)), t(want), (f"{t!r} of it", "as meant"), ulps)
            meant = case.expected(t(case.f))
            if meant is not None:
                case.require_same(statement, case.handled(t(case.f)), meant, (f"it around {t!r}", "as meant"), ulps)
                applied += 1
        except Inapplicable:
            continue
    if not applied:
        raise Inapplicable("its meaning is unknown: pass a meaning, or transparent=True")


@_handler_law("a function under a handler satisfies the laws of functions")
def satisfies_function_laws(case: HandlerCase, statement: str) -> None:
    """Checks the laws of functions for a function under the handler."""
    handled = Subject.of(case.handled(case.f), case.args, case.ulps)
    for law in LAWS:
        if law is text_round_trips or (law is jvp_is_the_derivative and not handled.differentiable_args):
            continue
        try:
            law.check(handled)
        except LawError as error:
            raise case.violation(f"{statement}: {law.statement}", error.message.split("\n", 1)[1]) from None
        except (MissingRuleError, Inapplicable):
            continue


HANDLER_LAWS: Final = (
    restores_context,
    propagates_exceptions,
    does_not_leak_tracers,
    matches_reference,
    interprets_bodies,
    composes,
    satisfies_function_laws,
)
"""All laws of handlers, the basic ones first."""

# ------------------------------------------------------------------ the check

_ONE_OPERATION: Final = SourceFunction.of("def one_operation(x):\n    return fnp.sin(x)", "one_operation", None, fnp)
_SEVERAL_OPERATIONS: Final = SourceFunction.of(
    "def several_operations(x):\n"
    "    y = fnp.sin(x) * 2.0\n"
    "    z = fnp.where(y > 0.5, y, x * x)\n"
    "    return {'a': fnp.exp(z - y) + fnp.cos(z), 'b': fnp.sum(z)}",
    "several_operations",
    None,
    fnp,
)


@api_boundary
def check_handler(
    make_handler: HandlerFactory,
    f: Callable[..., PyTree] | None = None,
    *args: PyTree,
    meaning: Interpretation | None = None,
    transparent: bool | None = None,
    laws: Sequence[HandlerLaw] = HANDLER_LAWS,
    ulps: Ulps | None = None,
) -> LawReport:
    """Checks the laws that every handler must satisfy.

    The handler restores the context, also after exceptions, which it propagates; it leaks no tracers; it acts inside
    the bodies of `jit`, `scan`, `cond`, `while_loop`, `checkpoint` and custom rules as it does outside, also compiled;
    it composes with `jit`, `vmap` and derivatives in both orders; and functions under it satisfy the laws of functions.

    Args:
        make_handler: an interpreter, or a function from the inner handler to the handler, usually its class.
        f: a function of trees of arrays to run under the handler; by default small functions of one array.
        *args: the arguments of `f`.
        meaning: a function from `f` to the function that should result.
        transparent: whether the handler should not change results; by default it should unless there is a `meaning`.
            With False and no `meaning`, laws that need to know the meaning are skipped.
        laws: the laws to check; all by default.
        ulps: the tolerance; by default that for programs of many operations.

    Returns:
        A report of the laws that hold, and of those skipped.

    Raises:
        LawError: for the first law that is violated.
        TypeError: if `make_handler` is not callable.
        ValueError: if `transparent` is True and there is a `meaning`.

    >>> from tracefx.testing import IdentityHandler
    >>> print(check_handler(IdentityHandler, lambda x: x * 2, 3.0))
    restores_context: holds
    propagates_exceptions: holds
    does_not_leak_tracers: holds
    matches_reference: holds
    interprets_bodies: holds
    composes: holds
    satisfies_function_laws: holds
    """
    if not callable(make_handler):
        raise TypeError(
            f"check_handler takes a function from the inner handler to a handler, e.g. its class, got {make_handler!r}"
        )
    handled = _handled_by(make_handler)
    return _check_laws("check_handler", make_handler, handled, f, args, meaning, transparent, laws, ulps)


@api_boundary
def check_interpretation(
    interpret: Interpretation,
    f: Callable[..., PyTree] | None = None,
    *args: PyTree,
    meaning: Interpretation | None = None,
    transparent: bool | None = None,
    laws: Sequence[HandlerLaw] = HANDLER_LAWS,
    ulps: Ulps | None = None,
) -> LawReport:
    """Checks the laws of `check_handler` for an interpretation: a function from functions to functions.

    Args:
        interpret: the interpretation. It may wrap arguments and unwrap results; `interpret(f)` takes the arguments of
            `f`.
        f: a function of trees of arrays; by default small functions of one array.
        *args: the arguments of `f`.
        meaning: a function from `f` to the function that should result.
        transparent: whether results should not change; by default they should not unless there is a `meaning`.
        laws: the laws to check; all by default.
        ulps: the tolerance; by default that for programs of many operations.

    Returns:
        A report of the laws that hold, and of those skipped.

    Raises:
        LawError: for the first law that is violated.
        TypeError: if `interpret` is not callable.
        ValueError: if `transparent` is True and there is a `meaning`.

    >>> import tracefx as fx
    >>> from tracefx.testing import IdentityHandler
    >>> report = check_interpretation(fx.Handle(IdentityHandler), lambda x: x * 2, 3.0)
    >>> len(report.passed)
    7
    """
    if not callable(interpret):
        raise TypeError(f"check_interpretation takes a function from functions to functions, got {interpret!r}")

    def handled(g: AnyCallable) -> AnyCallable:
        out: object = interpret(g)
        if not callable(out):
            raise TypeError(
                f"check_interpretation: {message_label(interpret)} must return a function for a function, got {out!r}; "
                "check_handler takes classes of handlers"
            )
        return out

    return _check_laws("check_interpretation", interpret, handled, f, args, meaning, transparent, laws, ulps)


def _check_laws(
    check: str,
    given: object,
    handled: Interpretation,
    f: Callable[..., PyTree] | None,
    args: tuple[PyTree, ...],
    meaning: Interpretation | None,
    transparent: bool | None,
    laws: Sequence[HandlerLaw],
    ulps: Ulps | None,
) -> LawReport:
    """Checks laws for all examples; a law is skipped if it doesn't apply."""
    is_transparent = meaning is None if transparent is None else transparent
    if is_transparent and meaning is not None:
        raise ValueError(f"{check}: a transparent handler has no other meaning; pass either transparent or meaning")
    x = np.array([0.5, -1.5, 2.0], np.float32)
    examples: list[tuple[AnyCallable, tuple[PyTree, ...]]] = (
        [(_ONE_OPERATION, (x,)), (_SEVERAL_OPERATIONS, (x,))] if f is None else [(f, args)]
    )
    tolerance = tolerance_or(ulps, PROGRAM)
    cases = [HandlerCase(check, given, handled, g, xs, meaning, is_transparent, tolerance) for g, xs in examples]
    passed: list[str] = []
    skipped: dict[str, str] = {}
    for law in laws:
        try:
            for case in cases:
                case.context.copy().run(
                    law.check, case
                )  # in a copy of the context, which discards what a handler leaves behind
            passed.append(law.name)
        except (Inapplicable, MissingRuleError) as error:
            skipped[law.name] = str(error)
    return LawReport(tuple(passed), skipped)
