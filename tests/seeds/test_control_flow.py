"""Branches under every transformation, and what a function sees of its arguments in a loop's or branch's body."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.closeness import assert_near
from tracefx.errors import TracerBoolConversionError
from tracefx.extend import check_jaxpr
from tracefx.testing.tolerances import ELEMENTARY

lax = fx.lax

# ------------------------------------------------------------------ cond with jvp, vmap, grad and jit


def test_a_branch_is_chosen() -> None:
    assert int(lax.cond(True, lambda: 3, lambda: 4)) == 3
    assert int(lax.cond(False, lambda: 1, lambda: 2)) == 2


def chosen(x: Any) -> Any:
    """A branch by a value that is differentiated, batched, compiled; the operands are closed over."""
    return lax.cond(x < 5.0, lambda: fnp.sin(x) * 2.0, lambda: fnp.cos(x) + x * x)


def by_hand(x: float) -> tuple[float, float]:
    return (np.sin(x) * 2, np.cos(x) * 2) if x < 5 else (np.cos(x) + x * x, -np.sin(x) + 2 * x)


@pytest.mark.parametrize("x", [3.0, 7.0])
@pytest.mark.parametrize("compiled", [False, True])
def test_derivatives_are_those_of_the_branch(x: float, compiled: bool) -> None:
    f: Callable[[Any], Any] = fx.jit(chosen) if compiled else chosen
    value, slope = by_hand(x)
    out, tangent = fx.jvp(f, (x,), (1.0,))
    assert_near([out, tangent], [value, slope], ELEMENTARY)
    assert_near(fx.grad(f)(x), slope, ELEMENTARY)
    assert_near(fx.jit(fx.grad(f))(x), slope, ELEMENTARY)
    out, push = fx.linearize(f, x)
    assert_near([out, push(1.0)], [value, slope], ELEMENTARY)


def test_a_batch_of_predicates() -> None:
    xs = np.array([1.0, 4.0, 6.0], np.float32)
    wanted = [by_hand(x)[0] for x in xs], [by_hand(x)[1] for x in xs]
    assert_near(fx.vmap(chosen)(xs), wanted[0], ELEMENTARY)
    assert_near(fx.vmap(fx.grad(chosen))(xs), wanted[1], ELEMENTARY)
    assert_near(fx.grad(lambda x: fx.vmap(chosen)(x).sum())(xs), wanted[1], ELEMENTARY)


def test_one_predicate_for_a_batch_stays_a_branch() -> None:
    jaxpr = fx.make_jaxpr(fx.vmap(lambda p, x: lax.cond(p, fnp.sin, fnp.cos, x), in_axes=(None, 0)))(True, np.ones(3))
    check_jaxpr(jaxpr)
    assert [eqn.prim.name for eqn in jaxpr.eqns] == ["convert_element_type", "cond"]


def test_partial_evaluation_splits_the_branches() -> None:
    """The gradient has two branches: one for the value and what it leaves, one backwards."""
    jaxpr = fx.make_jaxpr(fx.grad(chosen))(3.0)
    check_jaxpr(jaxpr)
    assert [eqn.prim.name for eqn in jaxpr.eqns if eqn.prim.name == "cond"] == ["cond", "cond"]


# ------------------------------------------------------------------ what bodies see

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
def test_arguments_of_bodies_have_no_numbers(name: str, transform: str) -> None:
    """Whether a transformation is under way or not, and though `grad` of plain code would know them."""
    looks = 0

    def look(x: Any) -> Any:
        nonlocal looks
        looks += 1
        with pytest.raises(TracerBoolConversionError, match="only its shape and dtype are known"):
            bool(x > 0)
        return x * 1.0

    def run(x: Any) -> Any:
        BODIES[name](look)
        return x

    runs: dict[str, Callable[[Any], Any]] = {"none": run, "jit": fx.jit(run), "grad": fx.grad(run)}
    runs[transform](1.0)
    assert looks


@pytest.mark.parametrize("name", BODIES)
def test_without_jit_they_are_numbers(name: str) -> None:
    def look(x: Any) -> Any:
        assert bool(x > 0)
        return x * 1.0

    with fx.disable_jit():
        BODIES[name](look)
