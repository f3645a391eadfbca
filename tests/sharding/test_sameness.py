"""Which outputs `shard_map` takes for the same on all devices, and what is said of the others."""

# mypy: untyped-calls-exclude="jax"

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.closeness import assert_near
from tests.sharding.both import JAX, OURS, Library, agree
from tracefx import P, lax
from tracefx.core.dtypes import NDArray

X: Final[NDArray] = np.arange(32, dtype=np.float32).reshape(8, 4) / 10
Body: TypeAlias = Callable[[Library, Any], Any]
"""A program of a part `f32[2, 4]` along `x`, whose outputs are to be the same on all devices."""


def with_its_own_derivative(lib: Library, x: Any) -> Any:
    f = lib.m.custom_vjp(lambda x: lib.lax.psum(x, "x"))
    f.defvjp(lambda x: (lib.lax.psum(x, "x"), None), lambda _, ct: (ct,))
    return f(x)


def with_its_own_tangent(lib: Library, x: Any) -> Any:
    f = lib.m.custom_jvp(lambda x: lib.lax.psum(x, "x"))
    f.defjvp(lambda x, t: (f(x[0]), f(t[0])))
    return f(x)


SAME: Final[dict[str, Body]] = {
    "psum": lambda lib, x: lib.lax.psum(x, "x"),
    "pmean, pmax, pmin": lambda lib, x: (lib.lax.pmean(x, "x"), lib.lax.pmax(x, "x"), lib.lax.pmin(x, "x")),
    "of sums alone": lambda lib, x: lib.np.sin(lib.lax.psum(x, "x")) + lib.lax.psum(1, "x"),
    "nothing": lambda lib, x: lib.np.ones(3),
    "cond": lambda lib, x: lib.lax.cond(lib.lax.psum(x.sum(), "x") > 3, lambda: 1.0, lambda: 2.0),
    "loop": lambda lib, x: lib.lax.fori_loop(0, 3, lambda i, c: c + lib.lax.psum(x, "x"), lib.np.zeros((2, 4))),
    "while": lambda lib, x: lib.lax.while_loop(lambda c: c.sum() < 99, lambda c: 2 * c, lib.lax.psum(x, "x")),
    "map": lambda lib, x: lib.lax.map(lambda row: lib.lax.psum(row, "x"), x),
    "vmap": lambda lib, x: lib.m.vmap(lambda row: lib.lax.psum(row, "x"))(x),
    "jit": lambda lib, x: lib.m.jit(lambda x: lib.lax.psum(x, "x"))(x),
    "checkpoint": lambda lib, x: lib.m.checkpoint(lambda x: lib.lax.psum(x, "x"))(x),
    "custom_vjp": with_its_own_derivative,
    "custom_jvp": with_its_own_tangent,
}
DIFFERENT: Final[dict[str, Body]] = {
    "itself": lambda lib, x: x,
    "axis_index": lambda lib, x: lib.lax.axis_index("x"),
    "ppermute of a sum": lambda lib, x: lib.lax.ppermute(lib.lax.psum(x, "x"), "x", [(0, 1)]),
    "psum_scatter": lambda lib, x: lib.lax.psum_scatter(x, "x", scatter_dimension=1, tiled=True),
    "times zero": lambda lib, x: x[0, 0] * 0,
    "jit": lambda lib, x: lib.m.jit(lambda x: x + 1)(x),
    "checkpoint": lambda lib, x: lib.m.checkpoint(lambda x: x + 1)(x),
    "carry": lambda lib, x: lib.lax.scan(lambda c, row: (c + row, None), lib.np.zeros(4), x)[0],
    "one of two": lambda lib, x: (lib.lax.psum(x, "x"), x),
}
# What is the same in each branch, or each round, isn't where devices choose apart. JAX lets these pass.
CHOSEN_APART: Final[dict[str, Body]] = {
    "cond": lambda lib, x: lib.lax.cond(x.sum() > 3, lambda: 1.0, lambda: 2.0),
    "switch": lambda lib, x: lib.lax.switch(lib.lax.axis_index("x"), [lambda: 1.0, lambda: 2.0]),
    "while": lambda lib, x: lib.lax.while_loop(
        lambda c: c[0] < x.sum(), lambda c: (c[0] + 1, c[1] + 1), (np.float32(0), np.float32(0))
    )[1],
}


def whole(lib: Library, body: Body) -> Any:
    return lib.over(lambda x: body(lib, x), lib.P("x"), lib.P())(X)


@pytest.mark.parametrize("what", SAME)
def test_the_same(what: str) -> None:
    agree(lambda lib: whole(lib, SAME[what]))


@pytest.mark.parametrize("what", DIFFERENT)
def test_different(what: str) -> None:
    with pytest.raises(ValueError, match=r"must be replicated along 'x', but it may vary there"):
        whole(OURS, DIFFERENT[what])
    with pytest.raises((ValueError, TypeError)):
        whole(JAX, DIFFERENT[what])


@pytest.mark.parametrize("what", CHOSEN_APART)
def test_chosen_apart(what: str) -> None:
    with pytest.raises(ValueError, match=r"must be replicated along 'x', but it may vary there"):
        whole(OURS, CHOSEN_APART[what])
    whole(JAX, CHOSEN_APART[what])


def test_the_output_that_differs_is_named() -> None:
    with pytest.raises(ValueError, match=r"has P\(\) for output\['b'\]\[1\]"):
        whole(OURS, lambda _, x: {"a": lax.psum(x, "x"), "b": (1.0, x)})


def test_what_all_have_gathered_is_the_same() -> None:
    # JAX takes it for different.
    got = whole(OURS, lambda _, x: lax.all_gather(x, "x", tiled=True))
    assert np.array_equal(got, X)


def test_each_axis_for_itself() -> None:
    def total(x: fx.Array) -> Any:
        return lax.psum(x, "x")

    got = OURS.over(total, P("x", "y"), P(None, "y"))(X)
    assert_near(got, X.reshape(4, 2, 4).sum(0))
    with pytest.raises(ValueError, match="must be replicated along 'y'"):
        OURS.over(total, P("x", "y"), P())(X)


def test_solutions_of_equations() -> None:
    def solved(x: fx.Array) -> Any:
        scale = lax.psum(x, "x").sum()
        return lax.custom_linear_solve(lambda v: scale * v, fnp.ones(3), lambda _, b: b / scale)

    assert_near(OURS.over(solved, P("x"), P())(X), np.ones(3) / X.sum())


def test_unchecked() -> None:
    got = OURS.over(lambda x: x, P("x"), P(), check_vma=False)(X)
    assert got.shape == (2, 4)


def test_differentiated_inside() -> None:
    # What each device computes is differentiated, and a weight that is the same for all has a gradient that is too.
    w = np.float32(2)

    def gradient(w: Any, x: Any) -> Any:
        return fx.grad(lambda w: fnp.sum(fnp.tanh(x * w)))(w)

    got = OURS.over(gradient, (P(), P("x")), P())(w, X)
    assert_near(got, fx.grad(lambda w: fnp.sum(fnp.tanh(X * w)))(w))
    with pytest.raises(ValueError, match="must be replicated along 'x'"):  # of what differs, it differs
        OURS.over(lambda w, x: fx.grad(lambda x: fnp.sum(fnp.tanh(x * w)))(x), (P(), P("x")), P())(w, X)
