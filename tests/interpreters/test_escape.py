"""Tracers that escape their transformation, and the error messages."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Generator
from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.interpreters.stacks import CountingHandler
from tracefx.core.handler import ROOT, current, handling
from tracefx.errors import EscapedTracerError
from tracefx.testing import IdentityHandler
from tracefx.testing.tolerances import ELEMENTARY

X: Final = np.array([0.5, -1.5, 2.0], np.float32)


def of_jvp(f: Any) -> Any:
    return lambda x: fx.jvp(f, (x,), (x,))


def of_vjp(f: Any) -> Any:
    return lambda x: fx.vjp(f, x)


def of_linearize(f: Any) -> Any:
    return lambda x: fx.linearize(f, x)


def of_grad(f: Any) -> Any:
    return fx.grad(lambda x: fnp.sum(f(x)))


MAKERS: Final[dict[str, tuple[Callable[[Any], Any], str]]] = {
    "jit": (fx.jit, "jit"),
    "vmap": (fx.vmap, "vmap"),
    "grad": (of_grad, "differentiation"),
    "jvp": (of_jvp, "differentiation"),
    "vjp": (of_vjp, "differentiation"),
    "linearize": (of_linearize, "differentiation"),
    "make_jaxpr": (fx.make_jaxpr, "jit"),
    "jit of grad": (lambda f: fx.jit(of_grad(f)), "differentiation"),
    "vmap of grad": (lambda f: fx.vmap(fx.grad(f)), "differentiation"),
    "grad of vmap": (lambda f: fx.grad(lambda x: fnp.sum(fx.vmap(f)(x))), "vmap"),
}
USES: Final[dict[str, Callable[[Any], object]]] = {
    "an operation": lambda t: fnp.sin(t),
    "an operator": lambda t: t + 1,
    "an operand of jit": lambda t: fx.jit(lambda x: x * 2)(t),
    "closed over by jit": lambda t: fx.jit(lambda x: x * t)(2.0),
    "closed over by vmap": lambda t: fx.vmap(lambda x: x * t)(X),
    "closed over by grad": lambda t: fx.grad(lambda x: fnp.sum(x * t))(2.0),
    "an operand of jit, not used": lambda t: fx.jit(lambda x: 1.0)(t),
    "an operand of make_jaxpr": lambda t: fx.make_jaxpr(lambda x: 1.0)(t),
    "a tangent": lambda t: fx.jvp(lambda x: x, (np.ones(t.shape, np.float32),), (t,)),
    "returned by grad": lambda t: fx.grad(lambda x: t)(1.0),
    "an operand of grad": lambda t: fx.grad(lambda x: fnp.sum(x))(t),
    "an operand of vmap": lambda t: fx.vmap(lambda x: x * 2, in_axes=None, axis_size=2)(t),
    "closed over by make_jaxpr": lambda t: fx.make_jaxpr(lambda x: x * t)(2.0),
    "returned by jit": lambda t: fx.jit(lambda x: (x, t))(2.0),
    "returned by vmap": lambda t: fx.vmap(lambda x: (x, t))(X),
    "returned by vmap, out_axes None": lambda t: fx.vmap(lambda x: (x, t), out_axes=(0, None))(X),
    "returned by jvp": lambda t: fx.jvp(lambda x: (x, t), (1.0,), (1.0,)),
    "returned by vjp": lambda t: fx.vjp(lambda x: (x, t), 1.0),
}


def store(transform: Callable[[Callable[[Any], Any]], Any], into: list[Any]) -> int:
    """Transforms a function that stores one of its tracers; returns the number of the line that made the tracer."""

    def leaks(x: Any) -> Any:
        into.append(fnp.sin(x) * 2.0)  # THE LINE
        return into[-1]

    transform(leaks)(X)
    return leaks.__code__.co_firstlineno + 1


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("maker", MAKERS)
def test_stored_tracer_is_rejected_at_its_first_use(maker: str, use: str) -> None:
    transform, title = MAKERS[maker]
    stored: list[Any] = []
    line = store(transform, stored)
    with pytest.raises(EscapedTracerError) as caught:
        USES[use](stored[0])
    message = str(caught.value)
    assert f"was made by {title} at {__file__}:{line} (" in message, message
    assert "return it from the function instead of storing it" in message
    assert current() is ROOT


@pytest.mark.parametrize("maker", MAKERS)
def test_stored_argument_is_rejected(maker: str) -> None:
    transform, title = MAKERS[maker]
    stored: list[Any] = []

    def leaks(x: Any) -> Any:
        stored.append(x)
        return x * 2.0

    transform(leaks)(X)
    with pytest.raises(EscapedTracerError, match=f"was made by {title}"):
        stored[0] + 1


def test_error_names_the_stored_argument() -> None:
    stored: list[Any] = []

    def loss(weights: Any) -> Any:
        stored.append(weights["w"])
        return fnp.sum(weights["w"])

    fx.jit(loss)({"w": X})
    with pytest.raises(EscapedTracerError, match=r"the argument `weights\['w'\]` of loss"):
        fnp.sin(stored[0])


class Holder:
    attribute: Any = None


GLOBAL: list[Any] = []


def test_escape_through_a_global_and_an_attribute() -> None:
    def leaks(x: Any) -> Any:
        GLOBAL.append(x * 2)
        Holder.attribute = x * 3
        return x

    fx.jit(leaks)(X)
    for tracer in (GLOBAL.pop(), Holder.attribute):
        with pytest.raises(EscapedTracerError, match="was made by jit at"):
            fnp.cos(tracer)


def test_escape_through_a_generator() -> None:
    def steps() -> Generator[Any, Any, None]:
        x = yield
        while True:
            x = yield fnp.sin(x)

    run = steps()
    next(run)
    fx.jit(run.send)(X)  # the generator keeps no tracer: it yielded the sine and waits for the next value
    assert_near(np.asarray(run.send(X)), np.sin(X), ELEMENTARY)

    def keeps() -> Generator[Any, Any, None]:
        x = yield
        yield x
        yield fnp.sin(x)

    run = keeps()
    next(run)
    fx.jit(run.send)(X)
    with pytest.raises(EscapedTracerError, match="was made by jit"):
        next(run)


def test_escape_from_an_inner_transformation_into_the_outer_one() -> None:
    """A tracer of the inner transformation is used in the outer one, which still runs."""
    stored: list[Any] = []

    def outer(x: Any) -> Any:
        fx.vmap(lambda y: stored.append(y * x))(X)
        return stored[-1] * 2

    for transformed in (fx.jit(outer), fx.vmap(outer), fx.grad(outer)):
        with pytest.raises(EscapedTracerError, match="was made by vmap at"):
            transformed(X)


def test_escape_from_an_inner_jit_into_an_outer_one() -> None:
    stored: list[Any] = []

    def outer(x: Any) -> Any:
        fx.jit(lambda y: stored.append(y * 2))(x)
        return stored[-1] + x

    with pytest.raises(EscapedTracerError, match="was made by jit at"):
        fx.jit(outer)(X)
    stored.clear()
    with pytest.raises(EscapedTracerError, match="was made by jit at"):
        fx.grad(outer)(2.0)


def test_closures_over_outer_tracers_are_allowed() -> None:
    """Tracers of outer transformations can be used in inner ones."""

    def f(x: Any) -> Any:
        return fx.vmap(lambda y: fx.jit(lambda z: x * y * z)(2.0))(fnp.asarray(X)).sum()

    assert_near(float(fx.grad(f)(3.0)), 2 * X.sum(), ELEMENTARY)
    assert_near(float(fx.jit(fx.grad(f))(3.0)), 2 * X.sum(), ELEMENTARY)


# ------------------------------------------------------------------ threads


def in_thread(work: Callable[[], object]) -> BaseException | None:
    """Runs `work` in a new thread with a new context; returns the exception that it raised, if any."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=lambda: contextvars.Context().run(run))
    thread.start()
    thread.join()
    return raised[0] if raised else None


@pytest.mark.parametrize("maker", ["jit", "vmap", "grad", "jvp", "make_jaxpr"])
def test_error_in_a_new_thread_explains_how_to_pass_the_context(maker: str) -> None:
    transform, title = MAKERS[maker]
    errors: list[BaseException | None] = []

    def f(x: Any) -> Any:
        errors.append(in_thread(lambda: fnp.sin(x)))
        return x * 2.0

    transform(f)(X)
    (error,) = errors
    assert isinstance(error, EscapedTracerError)
    assert f"was made by {title}" in str(error)
    assert "another thread" in str(error)
    assert "contextvars.copy_context().run" in str(error)


@pytest.mark.parametrize("maker", ["jit", "vmap", "grad", "jvp"])
def test_thread_with_copied_context_can_use_tracers(maker: str) -> None:
    transform, _ = MAKERS[maker]

    def f(x: Any) -> Any:
        results: list[Any] = []
        context = contextvars.copy_context()
        thread = threading.Thread(target=lambda: context.run(lambda: results.append(fnp.sin(x))))
        thread.start()
        thread.join()
        return results[0]

    expected, got = transform(fnp.sin)(X), transform(f)(X)
    assert_near(expected, got, ELEMENTARY)


def test_concurrent_threads_have_separate_handlers() -> None:
    """Two threads run inside transformations at the same time, synchronized by a barrier."""
    meet = threading.Barrier(2, timeout=30)
    results: dict[str, Any] = {}
    titles: dict[str, list[str]] = {}

    def f(name: str) -> Callable[[Any], Any]:
        def body(x: Any) -> Any:
            meet.wait()
            titles[name] = [h.title for h in current().chain()]
            y = fnp.sin(x)
            meet.wait()
            return fnp.sum(y * x)

        return body

    def first() -> None:
        results["vmap"] = np.asarray(fx.vmap(f("vmap"))(X))

    def second() -> None:
        results["jit"] = np.asarray(fx.jit(fx.grad(f("jit")))(2.0))

    threads = [threading.Thread(target=t) for t in (first, second)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert titles["vmap"] == ["vmap", "evaluation"]
    assert "vmap" not in titles["jit"]
    assert_near(results["vmap"], np.sin(X) * X, ELEMENTARY)
    assert_near(results["jit"], np.sin(2.0) + 2 * np.cos(2.0))
    assert current() is ROOT


def test_concurrent_tasks_have_separate_handlers() -> None:
    """Two asyncio tasks alternate, each suspended inside its own handler."""

    async def work(handler: CountingHandler | IdentityHandler, turns: list[str]) -> tuple[list[str], Any]:
        with handling(handler):
            for _ in range(3):
                turns.append(handler.title)
                await asyncio.sleep(0)
                assert current() is handler
                fnp.sin(X)
            out = fx.vmap(fx.grad(fnp.sin))(X)
            chain = [h.title for h in current().chain()]
        assert current() is ROOT
        return chain, np.asarray(out)

    async def both() -> None:
        turns: list[str] = []
        count, identity = CountingHandler(ROOT), IdentityHandler(ROOT)
        a, b = await asyncio.gather(work(count, turns), work(identity, turns))
        assert turns == ["counting", "identity"] * 3, "they took turns"
        assert (a[0], b[0]) == (["counting", "evaluation"], ["identity", "evaluation"])
        np.testing.assert_array_equal(a[1], b[1])
        assert count.seen["sin"] == 3 + 1

    asyncio.run(both())
    assert current() is ROOT


# ------------------------------------------------------------------ staging of all operations


def test_operations_on_closed_over_arrays_are_staged() -> None:
    jaxpr = fx.make_jaxpr(lambda x: fnp.sin(fnp.asarray(X)) + x)(1.0)
    assert jaxpr.eqns[0].prim.name == "sin"
    assert len(jaxpr.consts) == 1


def test_closed_over_tracers_are_hoisted_once() -> None:
    programs: list[Any] = []

    def outer(x: Any) -> Any:
        programs.append(fx.make_jaxpr(lambda y: x * y + x)(2.0))
        return x

    fx.vmap(outer)(X)
    (program,) = programs
    assert len(program.jaxpr.constvars) == len(program.consts) == 1
    assert program.consts[0].aval.shape == ()


def test_jit_evaluates_nothing_while_tracing() -> None:
    """This includes operations that depend on no argument: the outer handler never sees them."""

    def f(x: Any) -> Any:
        assert type(fnp.sin(fnp.asarray(X))).__name__ == "StageTracer"
        return x

    fx.jit(f)(X)
