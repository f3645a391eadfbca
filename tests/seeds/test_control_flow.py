"""Branches under every transformation, and tracers as arguments of control-flow bodies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tracefx.errors import TracerBoolConversionError
from tracefx.extend import check_jaxpr
from tracefx.testing.tolerances import ELEMENTARY

lax = fx.lax

# ------------------------------------------------------------------ cond with jvp, vmap, grad and jit


def test_cond_selects_a_branch() -> None:
    assert int(lax.cond(True, lambda: 3, lambda: 4)) == 3
    assert int(lax.cond(False, lambda: 1, lambda: 2)) == 2


def branching(x: Any) -> Any:
    """The predicate depends on the transformed argument; the branches close over their operands."""
    return lax.cond(x < 5.0, lambda: fnp.sin(x) * 2.0, lambda: fnp.cos(x) + x * x)


def expected(x: float) -> tuple[float, float]:
    return (np.sin(x) * 2, np.cos(x) * 2) if x < 5 else (np.cos(x) + x * x, -np.sin(x) + 2 * x)


@pytest.mark.parametrize("x", [3.0, 7.0])
@pytest.mark.parametrize("compiled", [False, True])
def test_derivatives_of_the_selected_branch(x: float, compiled: bool) -> None:
    f: Callable[[Any], Any] = fx.jit(branching) if compiled else branching
    value, slope = expected(x)
    out, tangent = fx.jvp(f, (x,), (1.0,))
    assert_near([out, tangent], [value, slope], ELEMENTARY)
    assert_near(fx.grad(f)(x), slope, ELEMENTARY)
    assert_near(fx.jit(fx.grad(f))(x), slope, ELEMENTARY)
    out, push = fx.linearize(f, x)
    assert_near([out, push(1.0)], [value, slope], ELEMENTARY)


def test_vmap_with_batched_predicate() -> None:
    xs = np.array([1.0, 4.0, 6.0], np.float32)
    wanted = [expected(x)[0] for x in xs], [expected(x)[1] for x in xs]
    assert_near(fx.vmap(branching)(xs), wanted[0], ELEMENTARY)
    assert_near(fx.vmap(fx.grad(branching))(xs), wanted[1], ELEMENTARY)
    assert_near(fx.grad(lambda x: fx.vmap(branching)(x).sum())(xs), wanted[1], ELEMENTARY)


def test_vmap_with_unbatched_predicate_keeps_the_cond() -> None:
    jaxpr = fx.make_jaxpr(fx.vmap(lambda p, x: lax.cond(p, fnp.sin, fnp.cos, x), in_axes=(None, 0)))(True, np.ones(3))
    check_jaxpr(jaxpr)
    assert [eqn.prim.name for eqn in jaxpr.eqns] == ["convert_element_type", "cond"]


def test_partial_evaluation_splits_the_branches() -> None:
    """The gradient has two conds: the forward pass, which saves residuals, and the backward pass."""
    jaxpr = fx.make_jaxpr(fx.grad(branching))(3.0)
    check_jaxpr(jaxpr)
    assert [eqn.prim.name for eqn in jaxpr.eqns if eqn.prim.name == "cond"] == ["cond", "cond"]


# ------------------------------------------------------------------ arguments of bodies

BODIES: dict[str, Callable[[Callable[[Any], Any]], Any]] = {
    "cond": lambda look: lax.cond(True, look, look, 1.0),
    "switch": lambda look: lax.switch(1, [look, look, look], 1.0),
    "scan": lambda look: lax.scan(lambda c, x: (look(c), x), 1.0, None, length=2),
    "map": lambda look: lax.map(look, np.ones(2, np.float32)),
    "fori_loop": lambda look: lax.fori_loop(0, 2, lambda i, x: look(x), 1.0),
    "while_loop": lambda look: lax.while_loop(lambda x: x < 3.0, lambda x: look(x) + 1.0, 1.0),
    "checkpoint": lambda look: fx.checkpoint(look)(1.0),
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("transform", ["none", "jit", "grad"])
def test_arguments_of_bodies_are_traced(name: str, transform: str) -> None:
    """With or without an enclosing transformation, although `grad` of plain Python code would know the values."""
    calls = 0

    def check(x: Any) -> Any:
        nonlocal calls
        calls += 1
        with pytest.raises(TracerBoolConversionError, match="only its shape and dtype"):
            bool(x > 0)
        return x * 1.0

    def run(x: Any) -> Any:
        BODIES[name](check)
        return x

    runs: dict[str, Callable[[Any], Any]] = {"none": run, "jit": fx.jit(run), "grad": fx.grad(run)}
    runs[transform](1.0)
    assert calls


@pytest.mark.parametrize("name", BODIES)
def test_with_jit_disabled_arguments_of_bodies_are_concrete(name: str) -> None:
    def check(x: Any) -> Any:
        assert bool(x > 0)
        return x * 1.0

    with fx.disable_jit():
        BODIES[name](check)
