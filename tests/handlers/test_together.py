"""Handlers of the gallery on one another, in both orders: a program gives what it gives without them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.closeness import assert_near
from tracefx import handlers as h
from tracefx import lax

Function: TypeAlias = Callable[[Any], Any]


@fx.custom_jvp
def bent(x: Any) -> Any:
    return fnp.sin(x)


bent.defjvp(lambda primals, tangents: (bent(*primals), tangents[0] * fnp.cos(primals[0])))


def program(x: Any) -> Any:
    def step(c: Any, w: Any) -> tuple[Any, Any]:
        return bent(c * w), None

    c, _ = lax.scan(step, x, fnp.array([0.5, 1.5]))
    c = h.sow(c, name="c")
    return lax.cond(c.sum() > 0.0, lambda c: fx.jit(fnp.square)(c).sum(), lambda c: c.sum(), c)


def jet(f: Function) -> Function:
    return lambda x: h.jet(f, (x,), ([fnp.ones_like(x), fnp.zeros_like(x)],))[0]


def middle(f: Function) -> Function:
    def g(x: Any) -> Any:
        out = h.bounds(f)(h.around(x, 0.0))
        return (out.lo + out.hi) / 2

    return g


ALIKE: Final[Mapping[str, Callable[[Function], Function]]] = MappingProxyType(
    {
        "bounds": middle,
        "checkify": lambda f: lambda x: h.checkify(f, h.float_checks)(x)[1],
        "count": lambda f: lambda x: (h.count(f)(x), f(x))[1],
        "explain": lambda f: lambda x: h.explain(f)(x).out,
        "jet": jet,
        "laplacian": lambda f: lambda x: h.value_and_laplacian(f)(x)[0],
        "log": lambda f: h.log(f, sink=lambda line: None),
        "plant": lambda f: lambda x: h.plant(f)({}, x),
        "progress": lambda f: h.progress(f, show=lambda report: None),
        "reap": lambda f: lambda x: h.reap(f)(x)[0],
        "seed": lambda f: h.seed(f, 0),
        "sparsity": lambda f: lambda x: (h.jacobian_sparsity(lambda x: f(x).reshape(1))(x), f(x))[1],
        "trace": lambda f: lambda x: h.trace(f)(x)[0],
    }
)
TWICE_TOO_WIDE: Final = frozenset({("bounds", "bounds")})
"""What rounds outwards is a choice by the number that is rounded, of which bounds know little: both are infinite."""


@pytest.mark.parametrize("outer", ALIKE)
def test_each_on_every_other(outer: str) -> None:
    x = fnp.array([0.3, 0.7])
    want = program(x)
    for inner in ALIKE:
        if (outer, inner) not in TWICE_TOO_WIDE:
            got = ALIKE[outer](ALIKE[inner](program))(x)
            assert_near(got, want, what=f"{outer} of {inner}")


@pytest.mark.parametrize("outer", ALIKE)
def test_under_transformations(outer: str) -> None:
    x = fnp.array([0.3, 0.7])
    f = ALIKE[outer](program)
    assert_near(fx.jit(f)(x), program(x))
    assert_near(fx.vmap(f)(fnp.stack([x, -x])), fx.vmap(program)(fnp.stack([x, -x])))
    if outer != "explain":  # which is a function of types alone where values are traced
        assert_near(fx.grad(f)(x), fx.grad(program)(x))
    assert_near(ALIKE[outer](lambda x: fx.grad(program)(x).sum())(x), fx.grad(program)(x).sum())


@fx.custom_jvp
def steep(x: Any) -> Any:
    return fnp.sin(x)


steep.defjvp(lambda primals, tangents: (fnp.sin(primals[0]), 7.0 * tangents[0]))


@pytest.mark.parametrize("outer", ["checkify", "count", "log", "plant", "progress", "reap", "seed", "trace"])
@pytest.mark.parametrize("wrap", [lambda f: f, fx.jit])
def test_rules_of_functions_hold_around_handlers_without_values_of_their_own(
    outer: str, wrap: Callable[[Function], Function]
) -> None:
    assert fx.grad(ALIKE[outer](wrap(lambda x: h.sow(steep(x), name="y"))))(0.5) == 7.0


def test_bounds_of_bounds_hold() -> None:
    x = fnp.array([0.3, 0.7])

    def lowest(x: Any) -> Any:
        return h.bounds(program)(h.around(x, 0.0)).lo

    found = h.bounds(lowest)(h.around(x, 0.0))
    assert found.lo <= lowest(x) <= found.hi
