"""Typical `shard_map` programs, their gradients, and residuals of various kinds agree with JAX."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tests.cases import parametrize_functions
from tests.sharding.both import Library, Program, W, X, assert_agrees_with_jax, layer
from tracefx.testing.tolerances import DERIVATIVE, SUMMED

SQUARE: Final = np.eye(4, dtype=np.float32) / 2
WIDE: Final = np.ones((4, 6), np.float32) / 3


# ------------------------------------------------------------------ typical programs


def ring(lib: Library) -> Any:
    cycle = [(i, (i + 1) % 4) for i in range(4)]

    def f(x: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            total, block = carry
            return (total + block * block.mean(), lib.lax.ppermute(block, "x", cycle)), None

        return lib.lax.scan(step, (x * 0, x), None, length=4)[0][0]

    g = lib.shard_map(f, lib.P("x"), lib.P("x"))
    return g(X), lib.m.grad(lambda x: lib.np.sum(lib.np.sin(g(x))))(X)


def attention(lib: Library) -> Any:
    def f(q: Any, k: Any, v: Any) -> Any:
        scores = q @ lib.lax.all_gather(k, "x", tiled=True).T
        weights = lib.np.exp(scores - lib.np.max(lib.lax.stop_gradient(scores), -1, keepdims=True))
        return (weights / weights.sum(-1, keepdims=True)) @ lib.lax.all_gather(v, "x", tiled=True)

    g = lib.shard_map(f, (lib.P("x"),) * 3, lib.P("x"))
    return g(X, X, X), lib.m.grad(lambda k: lib.np.sum(g(X, k, X) ** 2))(X)


def expert_layers(lib: Library) -> Any:
    def f(x: Any, w: Any) -> Any:
        local = lib.np.tanh(lib.lax.all_to_all(x, "x", 1, 0, tiled=True) * w.sum())
        return lib.lax.all_to_all(local, "x", 0, 1, tiled=True)

    g, ws = lib.shard_map(f, (lib.P("x"), lib.P("x")), lib.P("x")), np.arange(4, dtype=np.float32)
    return g(X, ws), lib.m.grad(lambda w: lib.np.sum(g(X, w) ** 2))(ws)


def sharded_weights(lib: Library) -> Any:
    def f(x: Any, a: Any, b: Any) -> Any:
        return lib.lax.psum(lib.np.tanh(x @ a) @ b, "y")

    g = lib.shard_map(f, (lib.P("x"), lib.P(None, "y"), lib.P("y")), lib.P("x"))
    return lib.m.jit(lib.m.grad(lambda ws: lib.np.mean((g(X, *ws) - X) ** 2)))((WIDE, WIDE.T.copy()))


def gathered_weights(lib: Library) -> Any:
    def f(x: Any, a: Any) -> Any:
        return lib.lax.pmean(lib.np.mean(lib.np.tanh(x @ lib.lax.all_gather(a, "x", tiled=True)) ** 2), "x")

    g = lib.shard_map(f, (lib.P("x"), lib.P("x")), lib.P())
    return lib.m.jit(lib.m.grad(lambda a: g(X, a)))(WIDE)


def recurrence(lib: Library) -> Any:
    def f(w: Any, x: Any) -> Any:
        def step(c: Any, row: Any) -> Any:
            c = lib.np.tanh(c @ w + row)
            return c, lib.lax.pmean(c, "x")

        c, ys = lib.lax.scan(step, x[0] * 0, x)
        return lib.lax.psum(lib.np.sum(c), "x"), ys

    g = lib.shard_map(f, (lib.P(), lib.P("x")), (lib.P(), lib.P()))
    first = lib.m.grad(lambda w: g(w, X)[0])
    every = lib.m.jacrev(lambda w: g(w, X)[1].sum())
    return every(SQUARE), first(SQUARE), lib.m.jvp(first, (SQUARE,), (SQUARE,))


# ------------------------------------------------------------------ residuals, non-differentiable operands


def integer_argument(lib: Library) -> Any:
    f = lib.shard_map(lambda x, i: lib.lax.psum(x * i, "x"), (lib.P("x"), lib.P("x")), lib.P())
    return lib.m.grad(lambda x: lib.np.sum(f(x, np.arange(32, dtype=np.int32).reshape(8, 4))))(X)


def auxiliary_booleans(lib: Library) -> Any:
    specs = lib.P("x", "y"), (lib.P(), lib.P("x", "y"))
    return lib.m.value_and_grad(
        lib.shard_map(lambda x: (lib.lax.psum(x.sum(), ("x", "y")), x > 1), *specs), has_aux=True
    )(X)


def residuals_that_are_booleans(lib: Library) -> Any:
    f = lib.shard_map(lambda x, w: lib.np.where(x > 1, x @ w @ w.T, 0.0), (lib.P("x"), lib.P()), lib.P("x"))
    y, pull = lib.m.vjp(f, X, W)
    return y, pull(y)


def row_maxima(lib: Library) -> Any:
    f = lib.shard_map(lambda x: lib.np.max(x, 1), lib.P("x"), lib.P("x"))

    def loss(x: Any) -> Any:
        return lib.np.sum(f(x) ** 2)

    return lib.m.grad(loss)(X), lib.m.hessian(loss)(X[:4, :2])


def gathered_rows(lib: Library) -> Any:
    f = lib.shard_map(lambda x, i: x[i], (lib.P(None, "y"), lib.P("x")), lib.P("x", "y"))
    rows = np.array([0, 0, 1, 1])
    return f(X, np.arange(8)[::-1].copy()), lib.m.grad(lambda x: lib.np.sum(f(x, rows) ** 2))(X)


def closed_over_key(lib: Library) -> Any:
    key = lib.m.random.key(3)

    def f(x: Any) -> Any:
        return x * lib.m.random.uniform(lib.m.random.fold_in(key, lib.lax.axis_index("y")), x.shape)

    g = lib.shard_map(f, lib.P("x", "y"), lib.P("x", "y"))
    return g(X), lib.m.grad(lambda x: lib.np.sum(g(x)))(X)


def batch_of_random_keys(lib: Library) -> Any:
    keys = lib.m.random.split(lib.m.random.key(3), (3, 8))
    f = lib.shard_map(lib.m.vmap(lambda key: lib.m.random.uniform(key, (2,))), lib.P("x"), lib.P("x"))
    return lib.m.vmap(f)(keys)


# ------------------------------------------------------------------ inside other transformations


def batch_of_cond_around(lib: Library) -> Any:
    f = layer(lib)

    def either(p: Any, w: Any) -> Any:
        return lib.lax.cond(p, lambda w: f(X, w), lambda w: -f(X, w), w)

    return lib.m.vmap(either)(np.array([True, False]), np.stack([W, W + 1]))


def batch_of_scan_around(lib: Library) -> Any:
    f = layer(lib)

    def steps(w: Any) -> Any:
        return lib.lax.scan(lambda c, _: (lib.np.tanh(c + f(X, w)), None), lib.np.zeros((8, 3)), None, length=3)[0]

    return lib.m.vmap(steps)(np.stack([W, W + 1]))


def checkpoint_that_saves_everything(lib: Library) -> Any:
    saved = lib.m.checkpoint(lambda x: lib.np.sin(lib.np.sin(x)), policy=lib.m.checkpoint_policies.everything_saveable)
    f = lib.shard_map(lambda x: lib.lax.psum(saved(x), "x"), lib.P("x"), lib.P())
    return lib.m.grad(lambda x: lib.np.sum(f(x)))(X)


def loop_of_known_length(lib: Library) -> Any:
    def f(x: Any) -> Any:
        return lib.lax.fori_loop(0, 3, lambda i, c: lib.np.sin(c) + lib.lax.pmean(c, "x"), x)

    g = lib.shard_map(f, lib.P("x"), lib.P("x"))
    return lib.m.jvp(g, (X,), (X,)), lib.m.grad(lambda x: lib.np.sum(g(x)))(X)


@parametrize_functions(globals(), "lib")
def test_agrees_with_jax(program: Program) -> None:
    # Terms in the derivative of a softmax cancel, which loses precision.
    assert_agrees_with_jax(program, DERIVATIVE if program is attention else SUMMED)
