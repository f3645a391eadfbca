"""`check_handler` and `check_interpretation`: correct handlers pass every law, faulty handlers break a named law."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, final

import numpy as np
import pytest
from attrs import field, frozen
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from tests.errors import untyped
from tests.laws.test_reports import fails_again, law_error, python_of
from tracefx.core.handler import CURRENT
from tracefx.extend import (
    Handler,
    Interpreter,
    Primitive,
    ShapedArray,
    Tracer,
    Value,
    as_array,
    bind1,
    current,
    handling,
    rule,
)
from tracefx.interpreters.jvp import JVP
from tracefx.ops.elementwise.transcendental import Cos, Sin
from tracefx.testing import (
    HANDLER_LAWS,
    FaultInjector,
    HandlerLaw,
    IdentityHandler,
    array,
    check_handler,
    check_interpretation,
)
from tracefx.testing.handler_laws import (
    HandlerFactory,
    composes,
    does_not_leak_tracers,
    interprets_bodies,
    matches_reference,
    propagates_exceptions,
    restores_context,
    satisfies_function_laws,
)

X: Final = np.array([0.5, -1.5, 2.0], np.float32)
NAMES: Final = tuple([law.name for law in HANDLER_LAWS])


@frozen(eq=False)
class PassThrough(Handler):
    """A minimal handler that passes every primitive on to its inner handler."""

    inner: Handler

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        return self.inner.bind(prim, args)


# ------------------------------------------------------------------ correct handlers


@final
class Recording(Interpreter):
    """Records the names of primitives, including those in sub-jaxprs."""

    seen: list[str] = field(factory=list)

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        self.seen.append(prim.name)
        return super().bind(prim, args)


@final
class Turning(Interpreter):
    """Replaces sine with cosine."""

    @rule(Sin)
    def sin_to_cos(self, op: Sin, x: Value) -> Value:
        return bind1(Cos(), x)


def sum_of_sines(x: Any) -> Any:
    return fnp.sin(x) * 2 + fnp.sin(x * x)


def sin_replaced_by_cos(f: Callable[..., Any]) -> Callable[..., Any]:
    """The expected result of `Turning`: the traced program of `f` with `sin` replaced by `cos`."""

    def run(*args: Any) -> Any:
        closed = fx.make_jaxpr(f)(*args)
        sin_to_cos = fx.parse_jaxpr(str(closed.jaxpr).replace("= sin ", "= cos "))
        return fx.jaxpr_as_fun(fx.ClosedJaxpr(sin_to_cos, closed.consts))(*fx.tree.leaves(args))

    return run


def test_transparent_handlers_pass_all_laws() -> None:
    for make in (IdentityHandler, PassThrough, Recording(), lambda inner: IdentityHandler(IdentityHandler(inner))):
        report = check_handler(make)
        assert report.passed == NAMES
        assert not report.skipped


@pytest.mark.parametrize("x", [3.0, array([1, 2], "int32"), array([0.5], "bfloat16"), array([1j, 2], "complex64")])
def test_check_handler_accepts_arguments_of_any_dtype(x: Any) -> None:
    assert {"restores_context", "interprets_bodies"} <= set(check_handler(IdentityHandler, lambda x: x * x, x).passed)


def test_non_transparent_handler_needs_a_meaning_for_all_laws() -> None:
    report = check_handler(Turning(), transparent=False)
    assert report.passed == (
        "restores_context",
        "propagates_exceptions",
        "does_not_leak_tracers",
        "interprets_bodies",
        "satisfies_function_laws",
    )
    assert set(report.skipped) == {"matches_reference", "composes"}
    assert "pass a meaning" in str(report)

    def list_of_sines(x: Any) -> list[Any]:
        return [sum_of_sines(x)]

    assert check_handler(Turning(), list_of_sines, X, meaning=sin_replaced_by_cos).passed == NAMES


def test_check_interpretation_of_a_handler_with_its_own_tracers() -> None:
    def forward(f: Callable[..., Any]) -> Callable[..., Any]:
        def run(x: Any) -> Any:
            with handling(JVP(current())) as handler:
                out = f(as_array(handler.wrap(as_array(x), fnp.ones_like(x))))
            return handler.unwrap(out)

        return run

    def meaning(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: fx.jvp(f, (x,), (fnp.ones_like(x),))

    laws = [law for law in HANDLER_LAWS if law.name != composes.name]  # composes needs one array
    report = check_interpretation(forward, sum_of_sines, X, meaning=meaning, laws=laws)
    assert report.passed == tuple([law.name for law in laws])


@pytest.mark.parametrize(
    "interpret",
    [
        lambda f: lambda *xs: fx.handlers.checkify(f)(*xs)[1],
        lambda f: lambda *xs: fx.handlers.reap(f)(*xs)[0],
        lambda f: lambda *xs: fx.handlers.plant(f)({}, *xs),
        lambda f: fx.handlers.log(f, sink=lambda line: None),
        lambda f: fx.handlers.autocast(f, fx.handlers.Policy(compute=np.dtype(np.float32))),
        lambda f: fx.handlers.seed(f, fnp.zeros(2, "uint32")),
    ],
    ids=["checkify", "reap", "plant", "log", "autocast", "seed"],
)
def test_transparent_gallery_handlers_pass_all_laws(interpret: Callable[[Any], Any]) -> None:
    report = check_interpretation(interpret, sum_of_sines, X)
    assert report.passed == NAMES


# ------------------------------------------------------------------ faulty handlers


class Unentered(PassThrough):
    """Replaces sine with cosine, like `Turning`, but not in sub-jaxprs."""

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        return self.inner.bind(Cos() if isinstance(prim, Sin) else prim, args)


class InterpretsJitOnly(PassThrough):
    """Interprets the bodies of `jit` and of no other higher-order primitive."""

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        if prim.name == "jit":
            (body,) = prim.jaxprs()  # type: ignore[attr-defined]  # a call has one
            with handling(self):
                return fx.eval_jaxpr(body, (), args)
        return self.inner.bind(Cos() if isinstance(prim, Sin) else prim, args)


class Forgetful(PassThrough):
    """Sets the inner handler as the current one and never restores the state."""

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        CURRENT.set(self.inner)
        return self.inner.bind(prim, args)


class ForgetfulAfterException(PassThrough):
    """Does not restore the current handler if the inner handler raises."""

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        token = CURRENT.set(self.inner)
        outs = self.inner.bind(prim, args)
        CURRENT.reset(token)
        return outs


class SwallowsExceptions(PassThrough):
    """Swallows exceptions of the inner handler."""

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        try:
            return self.inner.bind(prim, args)
        except Exception:
            return args[:1]


@frozen(eq=False)
class ChangedByExceptions(PassThrough):
    """Changes its behaviour after an exception."""

    failed: ClassVar[list[str]] = []

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        try:
            return self.inner.bind(Cos() if self.failed and isinstance(prim, Sin) else prim, args)
        except Exception:
            self.failed.append(prim.name)
            raise


class Mine(Tracer):
    __slots__ = ("aval", "handler", "origin", "x")

    def __init__(self, handler: Handler, x: Value) -> None:
        self.handler, self.x, self.aval, self.origin = handler, x, x.aval, None

    aval: ShapedArray
    handler: Handler
    origin: None


class Leaking(PassThrough):
    """Returns tracers that nobody unwraps."""

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        bare = [a.x if isinstance(a, Mine) else a for a in args]
        return [Mine(self, out) for out in self.inner.bind(prim, bare)]


class Rounding(PassThrough):
    """Is off by one ulp."""

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        outs = self.inner.bind(prim, args)
        with handling(self.inner):
            return [fnp.multiply(as_array(o), np.float32(1 + 2.0**-23)) for o in outs]


class DependsOnInnerHandler(PassThrough):
    """Changes its behaviour if its inner handler is not the evaluating handler."""

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        return self.inner.bind(Cos() if self.inner.inner is not None and isinstance(prim, Sin) else prim, args)


@pytest.mark.parametrize(
    ("make", "law", "transparent", "message"),
    [
        (Unentered, interprets_bodies, False, "  inside jit: "),
        (InterpretsJitOnly, interprets_bodies, False, "  inside checkpoint: "),
        (Forgetful, restores_context, True, "leaving the `with` block of Forgetful, but evaluation is current"),
        (ForgetfulAfterException, propagates_exceptions, True, "is not propagated: the call raises HandlerStateError"),
        (
            SwallowsExceptions,
            propagates_exceptions,
            True,
            "raised in the inner handler at operation 0, it is not propagated",
        ),
        (ChangedByExceptions, propagates_exceptions, True, "  after exceptions: "),
        (Leaking, does_not_leak_tracers, True, "output 0 is Mine(f32[3]), a leaked tracer of Leaking"),
        (Unentered, matches_reference, True, "  without it: "),
        (Rounding, matches_reference, True, "must be equal"),
        (DependsOnInnerHandler, composes, True, "COMPILED of it"),
        (DependsOnInnerHandler, satisfies_function_laws, False, "staged"),
    ],
)
def test_faulty_handler_breaks_its_law(make: HandlerFactory, law: HandlerLaw, transparent: bool, message: str) -> None:
    before = current()
    error = law_error(lambda: check_handler(make, transparent=transparent, laws=[law]))
    assert current() is before
    assert error.message.startswith(f"{law.statement}")
    assert message in error.message
    ChangedByExceptions.failed.clear()


def test_composes_law_checks_both_orders() -> None:
    def f(x: Any) -> Any:
        return fnp.sin(x)

    error = law_error(lambda: check_handler(DependsOnInnerHandler, f, X, laws=[composes]))
    assert error.message.startswith(composes.statement)
    assert "COMPILED of it" in error.message


def test_reproducer_of_a_broken_handler_law_runs() -> None:
    error = law_error(lambda: check_handler(Unentered, transparent=False))
    assert python_of(error) == [
        "import tracefx.numpy as fnp",
        "from tracefx.testing import array, check_handler",
        "",
        "from tests.laws.test_handler_laws import Unentered",
        "def one_operation(x):",
        "    return fnp.sin(x)",
        "",
        "check_handler(Unentered, one_operation, array([0.5, -1.5, 2.0], 'float32'), transparent=False)",
    ]
    assert error.reproducer is not None
    programs = error.reproducer.programs
    assert programs.startswith("the program inside ")
    assert "\nthe program outside:\n  { lambda ; a:f32[3]. let" in programs
    fails_again(error)


def test_report_shows_both_programs_or_says_that_they_are_equal() -> None:
    keeps = lambda f: lambda x: f(x)  # noqa: E731
    doubles = lambda f: lambda x: 2.0 * f(x)  # noqa: E731
    error = law_error(lambda: check_interpretation(keeps, lambda x: fnp.sin(x), 0.5, meaning=doubles))
    assert f"violated by <lambda> at {__file__}:" in error.message
    assert str(error.reproducer) == (
        "the program under it:\n  { lambda ; a:f32[]*. let b:f32[]* = sin a in (b,) }\n"
        "the program as meant:\n  { lambda ; a:f32[]*. let b:f32[]* = sin a; c:f32[]* = mul 2.0:f32[]* b in (c,) }"
    )

    def inspects_values(f: Any) -> Any:
        return lambda x: f(x) if isinstance(fnp.asarray(x), Tracer) else f(x) + 1.0

    error = law_error(lambda: check_interpretation(inspects_values, lambda x: fnp.sin(x), 0.5))
    assert error.reproducer is not None
    assert error.reproducer.programs.startswith("both, under it and without it, are traced to this program, so they")
    assert error.reproducer.programs.count("lambda ;") == 1


def test_meaning_and_transparent_are_mutually_exclusive() -> None:
    with pytest.raises(ValueError, match="a transparent handler has no other meaning"):
        check_handler(IdentityHandler, meaning=lambda f: f, transparent=True)


def test_check_handler_refuses_arguments_that_are_not_callables() -> None:
    with pytest.raises(TypeError, match="check_handler takes a function from the inner handler"):
        untyped(check_handler)(IdentityHandler(fx.current()))
    with pytest.raises(TypeError, match="must return a function for a function, got 3; check_handler takes classes"):
        check_interpretation(lambda f: 3)  # type: ignore[arg-type,return-value]  # the error is the point
    with pytest.raises(TypeError, match="check_interpretation takes a function"):
        untyped(check_interpretation)(3)


def test_exceptions_of_the_checked_function_are_propagated() -> None:
    def f(x: Any) -> Any:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        check_handler(IdentityHandler, f, X)


def test_fault_injector_records_primitives_up_to_the_fault() -> None:
    x = fnp.asarray(X)
    with handling(FaultInjector(current(), RuntimeError, -1)) as injector:
        sum_of_sines(x)
    assert injector.seen == ["sin", "mul", "mul", "sin", "add"]
    with handling(FaultInjector(current(), RuntimeError, 3)) as injector, pytest.raises(RuntimeError):
        sum_of_sines(x)
    assert injector.seen == ["sin", "mul", "mul", "sin"]
