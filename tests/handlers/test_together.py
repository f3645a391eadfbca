"""Pairs of gallery handlers in both orders: results are the same as without handlers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.laws.examples import sampled
from tracefx import handlers as h
from tracefx import lax

Function: TypeAlias = Callable[[Any], Any]


@fx.custom_jvp
def with_custom_jvp(x: Any) -> Any:
    return fnp.sin(x)


with_custom_jvp.defjvp(lambda primals, tangents: (with_custom_jvp(*primals), tangents[0] * fnp.cos(primals[0])))


def program(x: Any) -> Any:
    c, _ = lax.scan(lambda c, w: (with_custom_jvp(c * w), None), x, fnp.array([0.5, 1.5]))
    c = h.sow(c, name="c")
    return lax.cond(c.sum() > 0.0, lambda c: fx.jit(fnp.square)(c).sum(), lambda c: c.sum(), c)


def jet(f: Function) -> Function:
    return lambda x: h.jet(f, (x,), ([fnp.ones_like(x), fnp.zeros_like(x)],))[0]


def midpoint_of_bounds(f: Function) -> Function:
    def g(x: Any) -> Any:
        out = h.bounds(f)(h.around(x, 0.0))
        return (out.lo + out.hi) / 2

    return g


TRANSPARENT: Final[Mapping[str, Callable[[Function], Function]]] = MappingProxyType(
    {
        "bounds": midpoint_of_bounds,
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
UNINFORMATIVE: Final = frozenset({("bounds", "bounds")})
"""A data-dependent choice of rounding has uninformative bounds: both ends are infinite."""


@pytest.mark.parametrize("outer", sampled(TRANSPARENT, 2))
def test_every_pair_of_handlers_gives_the_plain_result(outer: str) -> None:
    x = fnp.array([0.3, 0.7])
    want = program(x)
    for inner in TRANSPARENT:
        if (outer, inner) not in UNINFORMATIVE:
            got = TRANSPARENT[outer](TRANSPARENT[inner](program))(x)
            assert_near(got, want, what=f"{outer} of {inner}")


@pytest.mark.parametrize("outer", TRANSPARENT)
def test_handlers_under_transformations_give_the_plain_result(outer: str) -> None:
    x = fnp.array([0.3, 0.7])
    f = TRANSPARENT[outer](program)
    assert_near(fx.jit(f)(x), program(x))
    assert_near(fx.vmap(f)(fnp.stack([x, -x])), fx.vmap(program)(fnp.stack([x, -x])))
    if outer != "explain":  # traced values give only types
        assert_near(fx.grad(f)(x), fx.grad(program)(x))
    assert_near(TRANSPARENT[outer](lambda x: fx.grad(program)(x).sum())(x), fx.grad(program)(x).sum())


@fx.custom_jvp
def with_false_custom_jvp(x: Any) -> Any:
    return fnp.sin(x)


with_false_custom_jvp.defjvp(lambda primals, tangents: (fnp.sin(primals[0]), 7.0 * tangents[0]))


@pytest.mark.parametrize("outer", ["checkify", "count", "log", "plant", "progress", "reap", "seed", "trace"])
@pytest.mark.parametrize("wrap", [lambda f: f, fx.jit])
def test_custom_rules_stay_in_force_around_transparent_handlers(
    outer: str, wrap: Callable[[Function], Function]
) -> None:
    assert fx.grad(TRANSPARENT[outer](wrap(lambda x: h.sow(with_false_custom_jvp(x), name="y"))))(0.5) == 7.0


def test_nested_intervals_are_bounds() -> None:
    x = fnp.array([0.3, 0.7])

    def lower_bound(x: Any) -> Any:
        return h.bounds(program)(h.around(x, 0.0)).lo

    result = h.bounds(lower_bound)(h.around(x, 0.0))
    assert result.lo <= lower_bound(x) <= result.hi
