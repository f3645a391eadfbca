"""What every handler must keep, whatever it does: checked for handlers that others write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextvars import Context, copy_context
from typing import Any, Final, TypeAlias, final

import numpy as np
from attrs import field, frozen
from typing_extensions import override

from tracefx import numpy as fnp
from tracefx.core.handler import Handler, Tracer, current, handling
from tracefx.core.primitive import Primitive
from tracefx.core.values import Value
from tracefx.errors import EscapedTracerError, HandlerStateError, MissingRuleError
from tracefx.pytrees.trees import PyTree
from tracefx.testing.checks import LawReport
from tracefx.testing.equivalence import TRANSFORMS, Outcome, describe_outcome_difference, display_name
from tracefx.testing.errors import Inapplicable, LawError, Reproducer
from tracefx.testing.generated_programs import AnyCallable, SourceFunction
from tracefx.testing.laws import LAWS, jvp_is_the_derivative, text_round_trips
from tracefx.testing.reproducer import import_of, indented_text, script, source_of
from tracefx.testing.subjects import Subject, staged
from tracefx.testing.tolerances import DERIVATIVE, EXACT, PROGRAM, Ulps
from tracefx.testing.wrappers import CONTROL_FLOW_WRAPPERS

HandlerFactory: TypeAlias = Callable[[Handler], Handler]
"""Of the handler below, the handler: a constructor."""
Interpretation: TypeAlias = Callable[[AnyCallable], AnyCallable]
"""Of a function, the one that it is under a handler."""

# ------------------------------------------------------------------ handlers to check others with


@final
@frozen(eq=False)
class FaultInjector(Handler):
    """Raises `error` at the operation number `fuse`, and hands all others on; never, if that is negative."""

    title = "bomb"
    inner: Handler
    error: type[BaseException]
    fail_at: int
    seen: list[str] = field(factory=list, init=False)
    """The operations so far, by their names."""

    @property
    @override
    def below(self) -> Handler:
        return self.inner

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        self.seen.append(prim.name)
        if len(self.seen) - 1 == self.fail_at:
            raise self.error
        return self.inner.bind(prim, args)


@final
class InjectedError(Exception):
    """What is raised in functions to see what becomes of it."""


def _handled_by(make_handler: HandlerFactory) -> Interpretation:
    """Functions, run under a new handler over the one that is current."""

    def interpret(f: AnyCallable) -> AnyCallable:
        def handled(*args: PyTree) -> Any:
            with handling(make_handler(current())):
                return f(*args)

        return handled

    return interpret


# ------------------------------------------------------------------ what is checked


@final
@frozen(eq=False)
class HandlerCase:
    """A handler, a function, and arguments; `given` is the handler as the check was given it."""

    check: str
    given: object
    handled: Interpretation
    f: AnyCallable
    args: tuple[PyTree, ...]
    meaning: Interpretation | None
    transparent: bool
    ulps: Ulps
    context: Context = field(factory=copy_context, init=False)
    """What is in force before the handler is tried."""

    def expected(self, f: AnyCallable) -> AnyCallable | None:
        """What the handler has to make of a function, where that is known."""
        return f if self.transparent else None if self.meaning is None else self.meaning(f)

    def require_same(
        self, what: str, got: AnyCallable, want: AnyCallable, names: tuple[str, str], ulps: Ulps | None = None
    ) -> None:
        """`LawError` unless both functions give the same at the arguments."""
        outcomes = [Outcome.of(g, self.args) for g in (got, want)]
        for outcome in outcomes:
            if isinstance(outcome.error, MissingRuleError | Inapplicable):
                raise outcome.error
        found = describe_outcome_difference(outcomes[0], outcomes[1], names, self.ulps if ulps is None else ulps)
        if found is not None:
            raise self.violation(what, found, got)
        if outcomes[0].error is not None:
            raise outcomes[0].error

    def violation(self, what: str, found: str, program: AnyCallable | None = None) -> LawError:
        call = f"{display_name(self.f)}({', '.join(map(source_of, self.args))})"
        error = LawError(f"{what}, but not so for {display_name(self.given)} around {call}\n{found}")
        return error.with_reproducer(lambda: self.context.copy().run(self.reproducer, program))

    def reproducer(self, program: AnyCallable | None) -> Reproducer | None:
        """The function's program, what the handler made of it, and Python that fails so."""
        texts = [
            text
            for text in (_program_text("the program:", self.f, self.args), _handled_program_text(program, self.args))
            if text
        ]
        definitions = [import_of(self.given), import_of(self.f)]
        if None in definitions or self.meaning is not None:
            return Reproducer("\n".join(texts)) if texts else None
        given = [display_name(self.given), display_name(self.f), *map(source_of, self.args)]
        options = "" if self.transparent else "transparent=False"
        lines = "\n".join([d for d in definitions if d is not None])
        return Reproducer("\n".join(texts), script(lines, self.check, given, self.ulps, options))


def _program_text(heading: str, f: AnyCallable, args: Sequence[PyTree]) -> str:
    try:
        subject = Subject.of(f, args)
        return f"{heading}\n{indented_text(staged(subject.run, [a.aval for a in subject.args])[0])}"
    except Exception:  # it can't be traced
        return ""


def _handled_program_text(program: AnyCallable | None, args: Sequence[PyTree]) -> str:
    return "" if program is None else _program_text("under the handler, what differs is this program:", program, args)


Check: TypeAlias = Callable[[HandlerCase], None]


@final
@frozen(eq=False)
class HandlerLaw:
    """What has to be true of every handler, and how it is checked."""

    name: str
    statement: str
    check: Callable[[HandlerCase], None]

    @override
    def __repr__(self) -> str:
        return self.name


def _handler_law(statement: str) -> Callable[[Callable[[HandlerCase, str], None]], HandlerLaw]:
    def made(check: Callable[[HandlerCase, str], None]) -> HandlerLaw:
        return HandlerLaw(check.__name__, statement, lambda case: check(case, statement))

    return made


# ------------------------------------------------------------------ the context


@_handler_law("a handler leaves the context as it found it")
def restores_context(case: HandlerCase, statement: str) -> None:
    before = current()
    outcome = Outcome.of(case.handled(case.f), case.args)
    _require_same_context(case, statement, before, "it is done")
    if isinstance(outcome.error, HandlerStateError):
        raise case.violation(statement, f"  {outcome.error}")
    if outcome.error is not None:
        raise outcome.error


@_handler_law("an exception passes through a handler, and leaves things as they were")
def propagates_exceptions(case: HandlerCase, statement: str) -> None:
    want = Outcome.of(case.handled(case.f), case.args)
    for where, bombed in (("in the function", _faults_in_function), ("below the handler", _faults_in_inner_handler)):
        for fuse, run in bombed(case):
            before = current()
            outcome = Outcome.of(run, case.args)
            if not isinstance(outcome.error, InjectedError):
                raise case.violation(
                    statement, f"  raised {where}, at operation {fuse}, it does not come out: the call {outcome}"
                )
            _require_same_context(case, statement, before, f"an exception {where}, at operation {fuse}")
    again = Outcome.of(case.handled(case.f), case.args)
    found = describe_outcome_difference(again, want, ("after exceptions", "before"), EXACT)
    if found is not None:
        raise case.violation(statement, found)


def _require_same_context(case: HandlerCase, statement: str, before: Handler, what: str) -> None:
    after = current()
    if after is not before:
        raise case.violation(statement, f"  after {what}, {after.title} is current in place of {before.title}")


def _faults_in_function(case: HandlerCase) -> Iterator[tuple[int, AnyCallable]]:
    """The function, raising at each of its operations."""

    def exploding(fuse: int, seen: list[str]) -> AnyCallable:
        def f(*args: PyTree) -> Any:
            with handling(FaultInjector(current(), InjectedError, fuse)) as bomb:
                try:
                    return case.f(*args)
                finally:
                    seen[:] = bomb.seen

        return f

    seen: list[str] = []
    Outcome.of(case.handled(exploding(-1, seen)), case.args)
    for fuse in range(len(seen)):
        yield fuse, case.handled(exploding(fuse, []))


def _faults_in_inner_handler(case: HandlerCase) -> Iterator[tuple[int, AnyCallable]]:
    """The handler over one that raises at each operation that it gets."""

    def exploding(fuse: int, seen: list[str]) -> AnyCallable:
        def f(*args: PyTree) -> Any:
            with handling(FaultInjector(current(), InjectedError, fuse)) as bomb:
                try:
                    return case.handled(case.f)(*args)
                finally:
                    seen[:] = bomb.seen

        return f

    seen: list[str] = []
    Outcome.of(exploding(-1, seen), case.args)
    for fuse in range(len(seen)):
        yield fuse, exploding(fuse, [])


@_handler_law("no tracer of a handler comes out of it")
def does_not_leak_tracers(case: HandlerCase, statement: str) -> None:
    outcome = Outcome.of(case.handled(case.f), case.args)
    for i, x in enumerate(outcome.leaves):
        if isinstance(x, Tracer):
            raise case.violation(statement, f"  output {i} is {x!r}, which belongs to {x.handler.title}")
    subject = Subject.of(case.handled(case.f), case.args)
    try:
        staged(subject.run, [a.aval for a in subject.args])
    except EscapedTracerError as error:
        raise case.violation(statement, f"  traced: {error}") from error


# ------------------------------------------------------------------ what it does


@_handler_law("a handler does what it is meant to")
def matches_reference(case: HandlerCase, statement: str) -> None:
    want = case.expected(case.f)
    if want is None:
        raise Inapplicable("nothing says what it is meant to do: give a meaning, or transparent=True")
    names = ("under it", "without it" if case.transparent else "as meant")
    case.require_same(statement, case.handled(case.f), want, names, EXACT if case.transparent else None)


@_handler_law("a handler acts inside of loops, branches and calls as it does outside")
def interprets_bodies(case: HandlerCase, statement: str) -> None:
    want = case.handled(case.f)
    for name, wrapping in CONTROL_FLOW_WRAPPERS.items():
        inside = case.handled(wrapping(case.f))
        case.require_same(statement, inside, want, (f"inside {name}", "outside"))
        case.require_same(
            statement, CONTROL_FLOW_WRAPPERS["jit"](inside), want, (f"inside {name}, compiled", "outside")
        )


@_handler_law("a handler composes with transformations, in whichever order")
def composes(case: HandlerCase, statement: str) -> None:
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
        raise Inapplicable("nothing says what it is meant to do: give a meaning, or transparent=True")


@_handler_law("a function under a handler is a function like others")
def satisfies_function_laws(case: HandlerCase, statement: str) -> None:
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
"""All of them, those that the others rest on first."""

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


def check_handler(
    make_handler: HandlerFactory,
    f: Callable[..., PyTree] | None = None,
    *args: PyTree,
    meaning: Interpretation | None = None,
    transparent: bool | None = None,
    laws: Sequence[HandlerLaw] = HANDLER_LAWS,
    ulps: Ulps | None = None,
) -> LawReport:
    """Check what every handler must keep: the context is left as it was found, after exceptions too, which pass; no
    tracer comes out; it acts inside of `jit`, `scan`, `cond`, `while_loop`, `checkpoint` and custom rules as it does
    outside, compiled too; it composes with `jit`, `vmap` and derivatives in both orders; and functions under it keep
    the laws of functions.

    `make_handler` makes the handler, over the one below: mostly the class. It is put around `f` at arguments, by
    default around small functions of one array. A handler that is `transparent`, as one is without a `meaning`,
    changes nothing that functions give; for others `meaning` gives the function that one becomes. With neither
    (`transparent=False`) the laws that don't need to know are checked.

    The report says which laws hold, and which were left out because they say nothing about the handler.

    Raises `LawError` for the first law that is broken.

    >>> from tracefx.testing import Identity
    >>> print(check_handler(Identity, lambda x: x * 2, 3.0))
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
            f"check_handler takes what makes a handler of the one below, such as its class, got {make_handler!r}"
        )
    handled = _handled_by(make_handler)
    return _check_laws("check_handler", make_handler, handled, f, args, meaning, transparent, laws, ulps)


def check_interpretation(
    interpret: Interpretation,
    f: Callable[..., PyTree] | None = None,
    *args: PyTree,
    meaning: Interpretation | None = None,
    transparent: bool | None = None,
    laws: Sequence[HandlerLaw] = HANDLER_LAWS,
    ulps: Ulps | None = None,
) -> LawReport:
    """`check_handler` for a handler as users have it: `interpret(f)` is the function that `f` is under it.

    It may wrap arguments and unwrap results. The function under it takes what `f` takes.

    >>> import tracefx as fx
    >>> from tracefx.testing import Identity
    >>> report = check_interpretation(fx.Handle(Identity), lambda x: x * 2, 3.0)
    >>> len(report.passed)
    7
    """
    if not callable(interpret):
        raise TypeError(f"check_interpretation takes a function from functions to functions, got {interpret!r}")
    return _check_laws("check_interpretation", interpret, interpret, f, args, meaning, transparent, laws, ulps)


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
    is_transparent = meaning is None if transparent is None else transparent
    if is_transparent and meaning is not None:
        raise ValueError(f"{check}: a transparent handler has no other meaning; give transparent or meaning")
    x = np.array([0.5, -1.5, 2.0], np.float32)
    examples: list[tuple[AnyCallable, tuple[PyTree, ...]]] = (
        [(_ONE_OPERATION, (x,)), (_SEVERAL_OPERATIONS, (x,))] if f is None else [(f, args)]
    )
    tolerance = PROGRAM if ulps is None else ulps
    cases = [HandlerCase(check, given, handled, g, xs, meaning, is_transparent, tolerance) for g, xs in examples]
    held: list[str] = []
    left_out: dict[str, str] = {}
    for law in laws:
        try:
            for case in cases:
                case.context.copy().run(law.check, case)  # so that what a handler leaves behind is gone with it
            held.append(law.name)
        except (Inapplicable, MissingRuleError) as error:
            left_out[law.name] = str(error)
    return LawReport(tuple(held), left_out)
