"""`here()`: the line of the program that a rule is applied to, and the named scopes around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Never

import numpy as np
import pytest
from attrs import field

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tracefx import lax, ops
from tracefx.extend import (
    Interpreter,
    SourceLocation,
    Value,
    bind1,
    here,
    rule,
)
from tracefx.testing.tolerances import ELEMENTARY


class Lines(Interpreter[Never, None, Any]):
    """Records where sines are applied while the program is traced."""

    seen: list[SourceLocation] = field(factory=list)

    @rule(ops.Sin)
    def sin(self, op: ops.Sin, x: Value) -> Value:
        self.seen.append(here())
        return bind1(op, x)


def scoped(x: Any) -> Any:
    def step(c: Any, _: Any) -> Any:
        with fx.named_scope("step"):
            c = lax.cond(c > 0, lambda c: inner(c), lambda c: c, c)
        return c, None

    def inner(c: Any) -> Any:
        with fx.named_scope("branch"):
            return fnp.sin(c)

    with fx.named_scope("first"):
        x = fnp.sin(x)
    with fx.named_scope("loop"):
        x, _ = lax.scan(step, x, None, length=2)
    return fnp.sin(x)


@pytest.mark.parametrize("inside", [lambda f: f, fx.jit, fx.checkpoint], ids=["", "jit", "checkpoint"])
@pytest.mark.parametrize("outside", [lambda f: f, fx.jit, fx.grad], ids=["", "jit outside", "grad outside"])
def test_here_is_the_line_with_all_scopes(inside: Callable[..., Any], outside: Callable[..., Any]) -> None:
    lines = Lines()

    def f(x: Any) -> Any:
        with fx.named_scope("model"):
            return inside(scoped)(x)

    outside(fx.handle(f, lines))(0.5)
    scopes = [location.scope for location in lines.seen]
    assert scopes == [("model", "first"), ("model", "loop", "step", "branch"), ("model",)]
    first = scoped.__code__.co_firstlineno
    assert [location.file for location in lines.seen] == [__file__] * 3
    assert [location.line - first for location in lines.seen] == [11, 8, 14]
    assert [location.function.rpartition(".")[2] for location in lines.seen] == ["scoped", "inner", "scoped"]


def with_jvp(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    g = fx.custom_jvp(f)
    g.defjvps(lambda t, ans, x: t)
    return g


def with_vjp(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    g = fx.custom_vjp(f)
    g.defvjp(lambda x: (f(x), None), lambda _, ct: (ct,))
    return g


@pytest.mark.parametrize("custom", [with_jvp, with_vjp])
@pytest.mark.parametrize(
    ("outside", "inside"),
    [(lambda f: f, fx.jit), (fx.jit, fx.jit), (fx.jit, lambda f: f), (fx.jit, fx.checkpoint)],
    ids=["jit inside", "jit inside and outside", "jit outside", "jit outside of checkpoint"],
)
def test_here_in_functions_with_custom_rules(
    custom: Callable[..., Any], outside: Callable[..., Any], inside: Callable[..., Any]
) -> None:
    lines, g = Lines(), custom(scoped)

    def f(x: Any) -> Any:
        with fx.named_scope("model"):
            return inside(lambda x: g(x))(x)

    outside(fx.handle(f, lines))(0.5)
    scopes = [location.scope for location in lines.seen]
    assert scopes == [("model", "first"), ("model", "loop", "step", "branch"), ("model",)]


@pytest.mark.parametrize("custom", [with_jvp, with_vjp])
@pytest.mark.parametrize(
    "outside",
    [fx.grad, lambda f: fx.grad(fx.grad(f)), lambda f: fx.jit(fx.grad(f)), lambda f: fx.grad(fx.jit(f))],
    ids=["grad", "grad of grad", "jit of grad", "grad of jit"],
)
def test_here_in_custom_rules_that_an_outer_derivative_runs_later(
    custom: Callable[..., Any], outside: Callable[..., Any]
) -> None:
    lines, g = Lines(), custom(scoped)

    def f(x: Any) -> Any:
        with fx.named_scope("model"):
            return fx.jit(lambda x: g(x))(x)

    outside(fx.handle(f, lines))(0.5)
    scopes = {location.scope for location in lines.seen}
    assert scopes == {("model", "first"), ("model", "loop", "step", "branch"), ("model",)}


class ByScope(Interpreter):
    """Scales sines by the number of scopes around them."""

    @rule(ops.Sin)
    def sin(self, op: ops.Sin, x: Value) -> Value:
        return bind1(op, x) * float(len(here().scope))


def test_cached_bodies_are_separate_for_each_scope() -> None:
    compiled = fx.jit(fnp.sin)

    def f(x: Any) -> Any:
        with fx.named_scope("a"):
            y = compiled(x)
            with fx.named_scope("b"):
                return y, compiled(x), compiled(x)

    assert_near(fx.handle(f, ByScope())(0.5), np.sin(0.5) * np.array([1, 2, 2]), ELEMENTARY)


def with_batching(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    g = fx.custom_batching.custom_vmap(f)
    g.def_vmap(lambda size, batched, x: (f(x), batched[0]))
    return g


def values_under_jvp(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: fx.jvp(f, (x,), (1.0,))[0]


@pytest.mark.parametrize("custom", [with_jvp, with_vjp, with_batching])
@pytest.mark.parametrize(
    "outside",
    [fx.jit, lambda f: fx.jit(values_under_jvp(f)), lambda f: values_under_jvp(fx.jit(f))],
    ids=["jit", "jit of jvp", "jvp of jit"],
)
def test_custom_functions_staged_in_different_scopes(custom: Callable[..., Any], outside: Callable[..., Any]) -> None:
    g = custom(fnp.sin)

    def f(x: Any) -> Any:
        with fx.named_scope("a"):
            y = g(x)
            with fx.named_scope("b"):
                return y, g(x), g(x)

    assert_near(outside(fx.handle(f, ByScope()))(0.5), np.sin(0.5) * np.array([1, 2, 2]), ELEMENTARY)


def test_here_outside_of_rules_is_the_line_of_the_call() -> None:
    with fx.named_scope("a"):
        location = here()
    assert location.scope == ("a",)
    assert (location.file, location.line) == (
        __file__,
        test_here_outside_of_rules_is_the_line_of_the_call.__code__.co_firstlineno + 2,
    )
    assert str(SourceLocation("", 0, "")) == "an unknown line"
