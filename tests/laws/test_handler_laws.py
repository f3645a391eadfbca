"""What every handler keeps: the check passes handlers that are right, and names what is wrong with others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, final

import numpy as np
import pytest
from attrs import field, frozen
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from tests.laws.test_reports import broken, fails_again, python_of
from tracefx.core.handler import CURRENT
from tracefx.extend import (
    Handler,
    Interpreter,
    Primitive,
    Rules,
    ShapedArray,
    Tracer,
    Value,
    as_array,
    bind1,
    current,
    handling,
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
class HandsOn(Handler):
    """The base of handlers without a base."""

    inner: Handler

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        return self.inner.bind(prim, args)


# ------------------------------------------------------------------ right ones


@final
@frozen(eq=False)
class Watching(Interpreter):
    """Remembers the names of operations; sees them inside of programs too."""

    handles_all: ClassVar[bool] = True
    seen: list[str] = field(factory=list)

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        self.seen.append(prim.name)
        return super().bind(prim, args)


def turned(handler: Turning, op: Sin, x: Value) -> list[Value]:
    return [bind1(Cos(), x)]


TURNING: Final = Rules["Turning", Value]().on(Sin, turned)


@final
@frozen(eq=False)
class Turning(Interpreter):
    """Cosines in the place of sines."""

    handles_all: ClassVar[bool] = True
    cache_key: ClassVar[str] = "turning"

    @property
    @override
    def rules(self) -> Rules[Turning, Value]:
        return TURNING


def waves(x: Any) -> Any:
    return fnp.sin(x) * 2 + fnp.sin(x * x)


def as_meant(f: Callable[..., Any]) -> Callable[..., Any]:
    """Of `waves`, and of what transformations make of it, what `Turning` has to make."""

    def run(*args: Any) -> Any:
        closed = fx.make_jaxpr(f)(*args)
        turned = fx.parse_jaxpr(str(closed.jaxpr).replace("= sin ", "= cos "))
        return fx.jaxpr_as_fun(fx.ClosedJaxpr(turned, closed.consts))(*fx.tree.leaves(args))

    return run


def test_handlers_that_change_nothing() -> None:
    for make in (IdentityHandler, HandsOn, Watching, lambda inner: IdentityHandler(IdentityHandler(inner))):
        report = check_handler(make)
        assert report.passed == NAMES
        assert not report.skipped


@pytest.mark.parametrize("x", [3.0, array([1, 2], "int32"), array([0.5], "bfloat16"), array([1j, 2], "complex64")])
def test_functions_of_any_type(x: Any) -> None:
    assert {"restores_context", "interprets_bodies"} <= set(check_handler(IdentityHandler, lambda x: x * x, x).passed)


def test_a_handler_that_changes_what_operations_are() -> None:
    report = check_handler(Turning, transparent=False)
    assert report.passed == (
        "restores_context",
        "propagates_exceptions",
        "does_not_leak_tracers",
        "interprets_bodies",
        "satisfies_function_laws",
    )
    assert set(report.skipped) == {"matches_reference", "composes"}
    assert "pass a meaning" in str(report)

    def list_of_waves(x: Any) -> list[Any]:
        return [waves(x)]

    assert check_handler(Turning, list_of_waves, X, meaning=as_meant).passed == NAMES


def test_a_handler_with_values_of_its_own() -> None:
    def forward(f: Callable[..., Any]) -> Callable[..., Any]:
        def run(x: Any) -> Any:
            with handling(JVP(current())) as handler:
                out = f(as_array(handler.wrap(as_array(x), fnp.ones_like(x))))
            return handler.unwrap(out)

        return run

    def meaning(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: fx.jvp(f, (x,), (fnp.ones_like(x),))

    laws = [law for law in HANDLER_LAWS if law.name != composes.name]  # it is put around functions to one array only
    report = check_interpretation(forward, waves, X, meaning=meaning, laws=laws)
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
def test_handlers_of_the_gallery_that_change_nothing(interpret: Callable[[Any], Any]) -> None:
    report = check_interpretation(interpret, waves, X)
    assert report.passed == NAMES


# ------------------------------------------------------------------ wrong ones


class Unentered(HandsOn):
    """As `Turning`, but not inside of programs."""

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        return self.inner.bind(Cos() if isinstance(prim, Sin) else prim, args)


class Entered(HandsOn):
    """Enters calls, and nothing else that carries programs."""

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        if prim.name == "jit":
            (body,) = prim.jaxprs()  # type: ignore[attr-defined]  # a call has one
            with handling(self):
                return fx.eval_jaxpr(body, (), args)
        return self.inner.bind(Cos() if isinstance(prim, Sin) else prim, args)


class Forgetful(HandsOn):
    """Leaves the handler below it in force."""

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        CURRENT.set(self.inner)
        return self.inner.bind(prim, args)


class ForgetfulOnce(HandsOn):
    """Leaves the handler below it in force if that raises."""

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        token = CURRENT.set(self.inner)
        outs = self.inner.bind(prim, args)
        CURRENT.reset(token)
        return outs


class Silent(HandsOn):
    """What goes wrong, it takes for nothing."""

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        try:
            return self.inner.bind(prim, args)
        except Exception:
            return args[:1]


@frozen(eq=False)
class Grudging(HandsOn):
    """Once something went wrong anywhere, it does otherwise."""

    offended: ClassVar[list[str]] = []

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        try:
            return self.inner.bind(Cos() if self.offended and isinstance(prim, Sin) else prim, args)
        except Exception:
            self.offended.append(prim.name)
            raise


class Mine(Tracer):
    __slots__ = ("aval", "handler", "origin", "x")

    def __init__(self, handler: Handler, x: Value) -> None:
        self.handler, self.x, self.aval, self.origin = handler, x, x.aval, None

    aval: ShapedArray
    handler: Handler
    origin: None


class Leaking(HandsOn):
    """Gives tracers of its own, which nobody unwraps."""

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        bare = [a.x if isinstance(a, Mine) else a for a in args]
        return [Mine(self, out) for out in self.inner.bind(prim, bare)]


class Rounding(HandsOn):
    """Is off by a last digit."""

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        outs = self.inner.bind(prim, args)
        with handling(self.inner):
            return [fnp.multiply(as_array(o), np.float32(1 + 2.0**-23)) for o in outs]


class Peeking(HandsOn):
    """Does otherwise where it is over another handler than evaluation."""

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        return self.inner.bind(Cos() if self.inner.inner is not None and isinstance(prim, Sin) else prim, args)


@pytest.mark.parametrize(
    ("make", "law", "transparent", "says"),
    [
        (Unentered, interprets_bodies, False, "  inside jit: "),
        (Entered, interprets_bodies, False, "  inside checkpoint: "),
        (Forgetful, restores_context, True, "leaving the `with` block of Forgetful, but evaluation is current"),
        (ForgetfulOnce, propagates_exceptions, True, "is not propagated: the call raises HandlerStateError"),
        (Silent, propagates_exceptions, True, "raised in the inner handler at operation 0, it is not propagated"),
        (Grudging, propagates_exceptions, True, "  after exceptions: "),
        (Leaking, does_not_leak_tracers, True, "output 0 is Mine(f32[3]), a leaked tracer of Leaking"),
        (Unentered, matches_reference, True, "  without it: "),
        (Rounding, matches_reference, True, "must be equal"),
        (Peeking, composes, True, "COMPILED of it"),
        (Peeking, satisfies_function_laws, False, "staged"),
    ],
)
def test_a_handler_that_is_wrong(make: HandlerFactory, law: HandlerLaw, transparent: bool, says: str) -> None:
    before = current()
    error = broken(lambda: check_handler(make, transparent=transparent, laws=[law]))
    assert current() is before
    assert error.message.startswith(f"{law.statement}")
    assert says in error.message
    Grudging.offended.clear()


def test_composition_is_checked_in_both_orders() -> None:
    def f(x: Any) -> Any:
        return fnp.sin(x)

    error = broken(lambda: check_handler(Peeking, f, X, laws=[composes]))
    assert error.message.startswith(composes.statement)
    assert "COMPILED of it" in error.message


def test_the_report_runs() -> None:
    error = broken(lambda: check_handler(Unentered, transparent=False))
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
    assert error.reproducer.programs.splitlines()[:3] == [
        "the program:",
        "  { lambda ; a:f32[3]. let b:f32[3] = sin a in (b,) }",
        "the differing program, under the handler:",
    ]
    fails_again(error)


def test_meaning_and_transparence_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="a transparent handler has no other meaning"):
        check_handler(IdentityHandler, meaning=lambda f: f, transparent=True)


def test_what_is_no_handler() -> None:
    with pytest.raises(TypeError, match="check_handler takes a function from the inner handler"):
        check_handler(IdentityHandler(fx.current()))  # type: ignore[arg-type]  # the error is the point
    with pytest.raises(TypeError, match="check_interpretation takes a function"):
        check_interpretation(3)  # type: ignore[arg-type]  # the error is the point


def test_a_function_that_raises_is_no_function_to_check_with() -> None:
    def f(x: Any) -> Any:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        check_handler(IdentityHandler, f, X)


def test_bombs_count_operations() -> None:
    x = fnp.asarray(X)
    with handling(FaultInjector(current(), RuntimeError, -1)) as bomb:
        waves(x)
    assert bomb.seen == ["sin", "mul", "mul", "sin", "add"]
    with handling(FaultInjector(current(), RuntimeError, 3)) as bomb, pytest.raises(RuntimeError):
        waves(x)
    assert bomb.seen == ["sin", "mul", "mul", "sin"]
