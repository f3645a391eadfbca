"""The replication check of `shard_map`: which outputs it accepts as replicated, and its errors for the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.sharding.both import JAX, TRACEFX, Library, assert_agrees_with_jax
from tracefx import P, lax
from tracefx.core import NDArray

X: Final[NDArray] = np.arange(32, dtype=np.float32).reshape(8, 4) / 10
Body: TypeAlias = Callable[[Library, Any], Any]
"""A body that gets a shard `f32[2, 4]` along `x`; its outputs must be replicated."""


def with_custom_vjp(lib: Library, x: Any) -> Any:
    f = lib.m.custom_vjp(lambda x: lib.lax.psum(x, "x"))
    f.defvjp(lambda x: (lib.lax.psum(x, "x"), None), lambda _, ct: (ct,))
    return f(x)


def with_custom_jvp(lib: Library, x: Any) -> Any:
    f = lib.m.custom_jvp(lambda x: lib.lax.psum(x, "x"))
    f.defjvp(lambda x, t: (f(x[0]), f(t[0])))
    return f(x)


REPLICATED: Final[dict[str, Body]] = {
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
    "custom_vjp": with_custom_vjp,
    "custom_jvp": with_custom_jvp,
}
VARYING: Final[dict[str, Body]] = {
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
# Each branch or iteration gives replicated values, but the predicate varies over devices. JAX accepts these.
DIVERGENT: Final[dict[str, Body]] = {
    "cond": lambda lib, x: lib.lax.cond(x.sum() > 3, lambda: 1.0, lambda: 2.0),
    "switch": lambda lib, x: lib.lax.switch(lib.lax.axis_index("x"), [lambda: 1.0, lambda: 2.0]),
    "while": lambda lib, x: lib.lax.while_loop(
        lambda c: c[0] < x.sum(), lambda c: (c[0] + 1, c[1] + 1), (np.float32(0), np.float32(0))
    )[1],
}


def replicated_output(lib: Library, body: Body) -> Any:
    return lib.shard_map(lambda x: body(lib, x), lib.P("x"), lib.P())(X)


@pytest.mark.parametrize("name", REPLICATED)
def test_replicated_outputs_are_accepted(name: str) -> None:
    assert_agrees_with_jax(lambda lib: replicated_output(lib, REPLICATED[name]))


@pytest.mark.parametrize("name", VARYING)
def test_varying_outputs_are_rejected(name: str) -> None:
    with pytest.raises(ValueError, match=r"must be replicated along 'x', but it may vary there"):
        replicated_output(TRACEFX, VARYING[name])
    with pytest.raises((ValueError, TypeError)):
        replicated_output(JAX, VARYING[name])


@pytest.mark.parametrize("name", DIVERGENT)
def test_outputs_that_depend_on_varying_predicates_are_rejected(name: str) -> None:
    with pytest.raises(ValueError, match=r"must be replicated along 'x', but it may vary there"):
        replicated_output(TRACEFX, DIVERGENT[name])
    replicated_output(JAX, DIVERGENT[name])


def test_error_names_the_varying_output() -> None:
    with pytest.raises(ValueError, match=r"has P\(\) for output\['b'\]\[1\]"):
        replicated_output(TRACEFX, lambda _, x: {"a": lax.psum(x, "x"), "b": (1.0, x)})


def test_all_gather_is_replicated() -> None:
    # JAX treats it as varying.
    got = replicated_output(TRACEFX, lambda _, x: lax.all_gather(x, "x", tiled=True))
    assert np.array_equal(got, X)


def test_replication_is_checked_per_axis() -> None:
    def total(x: fx.Array) -> Any:
        return lax.psum(x, "x")

    got = TRACEFX.shard_map(total, P("x", "y"), P(None, "y"))(X)
    assert_near(got, X.reshape(4, 2, 4).sum(0))
    with pytest.raises(ValueError, match="must be replicated along 'y'"):
        TRACEFX.shard_map(total, P("x", "y"), P())(X)


def test_custom_linear_solve_is_replicated() -> None:
    def solved(x: fx.Array) -> Any:
        scale = lax.psum(x, "x").sum()
        return lax.custom_linear_solve(lambda v: scale * v, fnp.ones(3), lambda _, b: b / scale)

    assert_near(TRACEFX.shard_map(solved, P("x"), P())(X), np.ones(3) / X.sum())


def test_check_vma_false_disables_the_check() -> None:
    got = TRACEFX.shard_map(lambda x: x, P("x"), P(), check_vma=False)(X)
    assert got.shape == (2, 4)


def test_gradient_inside_shard_map() -> None:
    # The gradient with respect to a replicated weight is replicated.
    w = np.float32(2)

    def gradient(w: Any, x: Any) -> Any:
        return fx.grad(lambda w: fnp.sum(fnp.tanh(x * w)))(w)

    got = TRACEFX.shard_map(gradient, (P(), P("x")), P())(w, X)
    assert_near(got, fx.grad(lambda w: fnp.sum(fnp.tanh(X * w)))(w))
    with pytest.raises(ValueError, match="must be replicated along 'x'"):  # the gradient of a varying argument varies
        TRACEFX.shard_map(lambda w, x: fx.grad(lambda x: fnp.sum(fnp.tanh(x * w)))(x), (P(), P("x")), P())(w, X)
