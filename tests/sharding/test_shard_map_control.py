"""`shard_map` with control flow and transformations inside and around it agrees with JAX on the same devices."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cases import parametrize_functions
from tests.sharding.both import Library, Program, V, W, X, assert_agrees_with_jax, layer


def _sine(lib: Library) -> Any:
    """A sine with a custom VJP that is 3 times the true derivative."""
    f = lib.m.custom_vjp(lambda x: lib.np.sin(x))
    f.defvjp(lambda x: (lib.np.sin(x), x), lambda x, ct: (3 * ct * lib.np.cos(x),))
    return f


def second_derivatives(lib: Library) -> Any:
    return lib.m.hessian(
        lambda v: lib.np.sum(lib.shard_map(lambda v: v * v * lib.lax.psum(v, "x"), lib.P("x"), lib.P("x"))(v))
    )(V)


def jit_inside(lib: Library) -> Any:
    return lib.shard_map(lib.m.jit(lambda x: lib.lax.psum(lib.np.sin(x), "x")), lib.P("x"), lib.P())(X)


def scan_inside(lib: Library) -> Any:
    def f(x: Any) -> Any:
        return lib.lax.scan(lambda c, r: (c + lib.lax.psum(r, "x"), c), lib.np.zeros(4), x)

    return lib.shard_map(f, lib.P("x"), (lib.P(), lib.P()))(X)


def gradient_of_scan_inside(lib: Library) -> Any:
    def f(x: Any) -> Any:
        c, _ = lib.lax.scan(lambda c, r: (c * lib.np.cos(c) + lib.lax.psum(r * r, "x"), None), lib.np.ones(4), x)
        return c

    return lib.m.grad(lambda x: lib.np.sum(lib.shard_map(f, lib.P("x"), lib.P())(x)))(X)


def varying_carry(lib: Library) -> Any:
    def f(x: Any) -> Any:
        return lib.lax.scan(
            lambda c, r: (c + r, c),
            lib.lax.pcast(lib.np.zeros(4), ("x",), to="varying") if hasattr(lib.lax, "pcast") else lib.np.zeros(4),
            x,
        )

    return lib.shard_map(f, lib.P("x"), (lib.P("x"), lib.P("x")))(X)


def scan_around(lib: Library) -> Any:
    f = layer(lib)
    return lib.lax.scan(lambda c, w: (c + f(X, w), lib.np.sum(c)), lib.np.zeros((8, 3)), np.stack([W, W, W + 1]))


def gradient_of_scan_around(lib: Library) -> Any:
    f = layer(lib)
    return lib.m.grad(
        lambda ws: lib.np.sum(lib.lax.scan(lambda c, w: (lib.np.sin(c) + f(X, w), None), lib.np.zeros((8, 3)), ws)[0])
    )(np.stack([W, W, W + 1]))


def cond_inside(lib: Library) -> Any:
    def f(x: Any) -> Any:
        return lib.lax.cond(
            lib.lax.psum(x.sum(), "x") > 3, lambda x: lib.lax.psum(x, "x"), lambda x: lib.lax.psum(-x, "x"), x
        )

    return lib.shard_map(f, lib.P("x"), lib.P())(X)


def gradient_of_cond_inside(lib: Library) -> Any:
    def f(x: Any) -> Any:
        return lib.lax.cond(
            lib.lax.psum(x.sum(), "x") > 3,
            lambda x: lib.np.sin(lib.lax.psum(x, "x")),
            lambda x: lib.lax.psum(-x, "x"),
            x,
        )

    return lib.m.grad(lambda x: lib.np.sum(lib.shard_map(f, lib.P("x"), lib.P())(x)))(X)


def cond_around(lib: Library) -> Any:
    f = layer(lib)
    return lib.lax.cond(True, lambda w: f(X, w), lambda w: -f(X, w), W)


def while_inside(lib: Library) -> Any:
    def f(x: Any) -> Any:
        return lib.lax.while_loop(lambda c: lib.lax.psum(c.sum(), "x") < 100.0, lambda c: c * 2, x)

    return lib.shard_map(f, lib.P("x"), lib.P("x"), check_vma=False)(X)


def while_of_replicated_carry(lib: Library) -> Any:
    def f(x: Any) -> Any:
        return lib.lax.while_loop(lambda c: c.sum() < 1000.0, lambda c: c * 2, lib.lax.psum(x, "x"))

    return lib.shard_map(f, lib.P("x"), lib.P())(X)


def while_around(lib: Library) -> Any:
    f = layer(lib)
    return lib.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, f(X, W) + c[1]), (0, lib.np.zeros((8, 3))))


def checkpoint_inside(lib: Library) -> Any:
    f = lib.m.checkpoint(lambda x: lib.np.sin(lib.lax.psum(lib.np.sin(x), "x")))
    return lib.m.grad(lambda x: lib.np.sum(lib.shard_map(f, lib.P("x"), lib.P())(x)))(X)


def checkpoint_around(lib: Library) -> Any:
    return lib.m.grad(lambda w: lib.np.sum(lib.m.checkpoint(lambda w: lib.np.sin(layer(lib)(X, w)))(w)))(W)


def custom_vjp_inside(lib: Library) -> Any:
    h = _sine(lib)
    return lib.m.grad(lambda x: lib.np.sum(lib.shard_map(lambda x: lib.lax.psum(h(x), "x"), lib.P("x"), lib.P())(x)))(X)


def custom_vjp_undifferentiated(lib: Library) -> Any:
    h = _sine(lib)
    return lib.shard_map(lambda x: h(lib.lax.psum(x, "x")), lib.P("x"), lib.P())(X)


def custom_vjp_around(lib: Library) -> Any:
    f = lib.shard_map(lambda x: lib.lax.psum(lib.np.sin(x), "x"), lib.P("x"), lib.P())

    @lib.m.custom_vjp  # type: ignore[untyped-decorator]  # either library's
    def h(x: Any) -> Any:
        return f(x)

    h.defvjp(lambda x: (f(x), x), lambda r, ct: (3 * lib.np.tile(ct, (4, 1)) * lib.np.cos(r),))
    return lib.m.grad(lambda x: lib.np.sum(h(x)))(X)


def custom_jvp_inside(lib: Library) -> Any:
    @lib.m.custom_jvp  # type: ignore[untyped-decorator]  # either library's
    def h(x: Any) -> Any:
        return lib.np.sin(x)

    h.defjvp(lambda p, t: (h(p[0]), 2 * t[0]))
    return lib.m.jvp(lib.shard_map(lambda x: lib.lax.psum(h(x), "x"), lib.P("x"), lib.P()), (X,), (X,)), lib.m.grad(
        lambda x: lib.np.sum(lib.shard_map(lambda x: lib.lax.psum(h(x), "x"), lib.P("x"), lib.P())(x))
    )(X)


def nested(lib: Library) -> Any:
    def inner(x: Any) -> Any:
        return lib.m.shard_map(
            lambda x: lib.lax.psum(x, "y"), in_specs=lib.P(None, "y"), out_specs=lib.P(), axis_names={"y"}
        )(x)

    f = lib.m.shard_map(
        lambda x: lib.np.sin(inner(x)), mesh=lib.mesh, in_specs=lib.P("x"), out_specs=lib.P("x"), axis_names={"x"}
    )
    return lib.m.jit(f)(X)


def partial_manual_axes(lib: Library) -> Any:
    f = lib.shard_map(lambda x: lib.lax.psum(x, "x"), lib.P("x"), lib.P(), axis_names={"x"})
    return lib.m.jit(f)(X), lib.m.grad(lambda x: lib.np.sum(lib.np.sin(lib.m.jit(f)(x))))(X)


def partial_manual_axes_eager(lib: Library) -> Any:
    f = lib.shard_map(lambda x: lib.lax.psum(x, "x"), lib.P("x"), lib.P(), axis_names={"x"})
    return f(X)


def axis_index_with_partial_manual_axes(lib: Library) -> Any:
    f = lib.shard_map(lambda x: x + lib.lax.axis_index("x"), lib.P("x"), lib.P("x"), axis_names={"x"})
    return lib.m.jit(f)(X)


def closed_over_array(lib: Library) -> Any:
    c = lib.np.arange(4.0)
    return lib.shard_map(lambda x: x * c, lib.P("x"), lib.P("x"))(X)


def closed_over_tracer_of_grad(lib: Library) -> Any:
    return lib.m.grad(lambda w: lib.np.sum(lib.shard_map(lambda x: lib.np.sin(x @ w), lib.P("x"), lib.P("x"))(X)))(W)


def closed_over_tracers_of_jit_and_vmap(lib: Library) -> Any:
    return lib.m.jit(lambda w: lib.shard_map(lambda x: lib.np.sin(x @ w), lib.P("x"), lib.P("x"))(X))(W), lib.m.vmap(
        lambda w: lib.shard_map(lambda x: lib.np.sin(x @ w), lib.P("x"), lib.P("x"))(X)
    )(np.stack([W, W + 1]))


def gradient_inside(lib: Library) -> Any:
    f = lib.shard_map(
        lambda w, x: lib.lax.psum(lib.m.grad(lambda w: lib.np.sum(lib.np.tanh(x @ w) ** 2))(w), "x"),
        (lib.P(), lib.P("x")),
        lib.P(),
        check_vma=False,
    )
    return f(W, X)


def gradient_inside_of_the_shard(lib: Library) -> Any:
    f = lib.shard_map(
        lambda w, x: lib.m.grad(lambda x: lib.np.sum(lib.np.tanh(x @ w) ** 2))(x), (lib.P(), lib.P("x")), lib.P("x")
    )
    return f(W, X)


def forward_inside(lib: Library) -> Any:
    f = lib.shard_map(
        lambda w, x: lib.m.jvp(lambda w: lib.lax.psum(lib.np.tanh(x @ w), "x"), (w,), (w,)),
        (lib.P(), lib.P("x")),
        lib.P(),
    )
    return f(W, X)


@parametrize_functions(globals(), "lib")
def test_agrees_with_jax(program: Program) -> None:
    assert_agrees_with_jax(program)
