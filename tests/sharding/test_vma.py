"""Derivatives taken inside of a checked `shard_map`: it counts which values differ from device to device."""

# mypy: untyped-calls-exclude="jax"

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracefx as fx
import tracefx.numpy as fnp
from tests.closeness import assert_near
from tests.sharding.both import OURS, Library, Program, agree, assert_refused
from tracefx import P, lax
from tracefx.core.dtypes import NDArray
from tracefx.testing.tolerances import DERIVATIVE

W: Final[NDArray] = np.linspace(-1, 1.5, 4, dtype=np.float32)
X: Final[NDArray] = np.arange(32, dtype=np.float32).reshape(8, 4) / 10
S: Final = np.float32(0.7)
Body: TypeAlias = Callable[[Library, Any, Any], Any]
"""A program of `w`, the same on all devices, and the part `x` that a device has of rows, four parts along `x`."""


def same(program: Program) -> None:
    """Both libraries find the same derivatives."""
    agree(program, DERIVATIVE)


def inside(lib: Library, body: Body, w: Any = W, out: Any = None, **options: Any) -> Any:
    specs = lib.P(), lib.P("x")
    return lib.over(lambda w, x: body(lib, w, x), specs, lib.P() if out is None else out, **options)(w, X)


def local(lib: Library, w: Any, x: Any) -> Any:
    return lib.np.sum(lib.np.sin(w * x))


def total(lib: Library, w: Any, x: Any) -> Any:
    return lib.lax.psum(local(lib, w, x), "x") ** 2


def mean(lib: Library, w: Any, x: Any) -> Any:
    return lib.lax.pmean(local(lib, w, x), "x")


def product(lib: Library) -> Any:
    """With a backward pass of its own, which sums what devices have of the cotangent of `w`."""
    f = lib.m.custom_vjp(lambda w, x: lib.np.sum(w * x, 1))

    def backward(kept: Any, ct: Any) -> Any:
        w, x = kept
        return lib.lax.psum(ct @ x, "x"), ct[:, None] * w

    f.defvjp(lambda w, x: (lib.np.sum(w * x, 1), (w, x)), backward)
    return f


def by_its_vjp(lib: Library) -> Any:
    """With a backward pass that takes a derivative."""

    def f(w: Any, x: Any) -> Any:
        return lib.np.sin(x @ w)

    ruled = lib.m.custom_vjp(f)
    ruled.defvjp(lambda w, x: (f(w, x), (w, x)), lambda kept, ct: lib.m.vjp(f, *kept)[1](ct))
    return ruled


def by_its_jvp(lib: Library) -> Any:
    """With a forward rule that takes a derivative."""

    def f(w: Any, x: Any) -> Any:
        return total(lib, w, x)

    ruled = lib.m.custom_jvp(f)
    ruled.defjvp(lambda xs, ts: (ruled(*xs), lib.np.vdot(lib.m.grad(f)(*xs), ts[0])), symbolic_zeros=False)
    return ruled


def clipped(lib: Library, w: Any) -> Any:
    """With a backward pass that isn't linear: it must see true cotangents."""
    f = lib.m.custom_vjp(lambda w: w)
    f.defvjp(lambda w: (w, None), lambda _, ct: (lib.np.clip(ct, -1.0, 1.0),))
    return f(w)


def repeated(f: Any) -> Body:
    """Three steps of `f`, whose results are carried."""
    return lambda lib, w, x: lib.lax.scan(lambda c, _: (f(lib, c, x), None), w, None, length=3)[0]


def slope(loss: Any) -> Body:
    return lambda lib, w, x: lib.m.grad(lambda w: loss(lib, w, x))(w)


LOSSES: Final[dict[str, Body]] = {
    "each its own": local,
    "psum": total,
    "pmean": mean,
    "of no device": lambda lib, w, x: lib.np.sum(w**3),
    "pmax": lambda lib, w, x: local(lib, w, x - lib.lax.pmax(x, "x")),
    "all_gather": lambda lib, w, x: local(lib, w, lib.lax.all_gather(x, "x", tiled=True)),
    "all_gather of it": lambda lib, w, x: lib.lax.pmean(lib.np.sum(lib.lax.all_gather(w * x, "x") ** 2), "x"),
    "psum_scatter": lambda lib, w, x: lib.np.sum(lib.lax.psum_scatter(w * x, "x", scatter_dimension=1) ** 2),
    "all_to_all": lambda lib, w, x: lib.np.sum(lib.lax.all_to_all(lib.np.sin(w * x), "x", 1, 0, tiled=True) * x[0, 0]),
    "ppermute": lambda lib, w, x: lib.np.sum(lib.lax.ppermute(w, "x", [(0, 1), (1, 2), (3, 3)]) * x),
    "psum of it": lambda lib, w, x: lib.np.sum(lib.lax.psum(w, "x") ** 2) + local(lib, w, x),
    "axis_index": lambda lib, w, x: lib.np.sum(w * lib.lax.axis_index("x")),
    "jit": lambda lib, w, x: lib.m.jit(lambda w: total(lib, w, x))(w),
    "jit of all": lambda lib, w, x: lib.m.jit(lambda w, x: mean(lib, w, x))(w, x),
    "checkpoint": lambda lib, w, x: lib.m.checkpoint(lambda w: total(lib, w, x))(w),
    "scan": lambda lib, w, x: lib.np.sum(repeated(lambda lib, w, x: lib.np.tanh(w + mean(lib, w, x)))(lib, w, x)),
    "scan over the rows": lambda lib, w, x: lib.lax.pmean(
        lib.lax.scan(lambda c, row: (lib.np.tanh(c + row @ w), None), lib.np.sum(x) * 0, x)[0], "x"
    ),
    "cond": lambda lib, w, x: lib.lax.cond(w[3] > 1, lambda w: total(lib, w, x), lambda w: lib.np.sum(w), w),
    "custom_vjp": lambda lib, w, x: lib.np.sum(product(lib)(w, x) ** 2),
    "custom_vjp in jit": lambda lib, w, x: lib.m.jit(lambda w: lib.lax.psum(lib.np.sum(product(lib)(w, x)), "x") ** 2)(
        w
    ),
    "custom_vjp by vjp": lambda lib, w, x: lib.np.sum(by_its_vjp(lib)(w, x) ** 2),
    "custom_vjp by vjp in scan": lambda lib, w, x: lib.np.sum(
        repeated(lambda lib, w, x: w * lib.lax.pmean(lib.np.sum(by_its_vjp(lib)(w, x)), "x"))(lib, w, x)
    ),
    "custom_jvp": lambda lib, w, x: by_its_jvp(lib)(w, x) ** 2,
    "custom_jvp in scan": lambda lib, w, x: lib.np.sum(
        repeated(lambda lib, w, x: w * by_its_jvp(lib)(w, x) / 9)(lib, w, x)
    ),
    "clipped before": lambda lib, w, x: lib.lax.psum(local(lib, clipped(lib, w), x), "x") * 9,
    "clipped behind": lambda lib, w, x: clipped(lib, total(lib, w, x)) * 9,
    "clipped alone": lambda lib, w, x: lib.np.sum(clipped(lib, w) * 9),
    "clipped in scan": lambda lib, w, x: lib.np.sum(
        repeated(lambda lib, w, x: w * lib.lax.psum(local(lib, clipped(lib, w), x), "x"))(lib, w, x)
    ),
    "pcast": lambda lib, w, x: lib.np.sum(lib.m.jit(lambda w: lib.lax.pcast(w, "x", to="varying"))(w) * 2),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_gradient_of_what_is_the_same(loss: str) -> None:
    same(lambda lib: inside(lib, slope(LOSSES[loss])))


DERIVATIVES: Final[dict[str, Body]] = {
    "value and slope": lambda lib, w, x: lib.m.value_and_grad(lambda w: total(lib, w, x))(w),
    "jacrev": lambda lib, w, x: lib.m.jacrev(lambda w: lib.lax.psum(lib.np.sin(w * x), "x"))(w),
    "jacfwd": lambda lib, w, x: lib.m.jacfwd(lambda w: lib.lax.psum(lib.np.sin(w * x), "x"))(w),
    "hessian": lambda lib, w, x: lib.m.hessian(lambda w: total(lib, w, x))(w),
    "slope of a slope": lambda lib, w, x: lib.m.grad(
        lambda w: lib.np.sum(lib.m.grad(lambda w: total(lib, w, x))(w) * w)
    )(w),
    "jvp of a slope": lambda lib, w, x: lib.m.jvp(lib.m.grad(lambda w: mean(lib, w, x) ** 2), (w,), (w,)),
    "linearize": lambda lib, w, x: lib.m.linearize(lambda w: total(lib, w, x), w)[1](w),
    "linear_transpose": lambda lib, w, x: lib.m.linear_transpose(lambda w: w * lib.np.sum(x, 0), w)(x[0])[0],
    "vjp": lambda lib, w, x: lib.m.vjp(lambda w: lib.lax.psum(lib.np.sin(w * x), "x"), w)[1](lib.np.ones((2, 4)))[0],
    "vjp by what varies": lambda lib, w, x: lib.m.vjp(lambda w: w * x, w)[1](x)[0],
    "vmap": lambda lib, w, x: lib.m.vmap(lib.m.grad(lambda w: mean(lib, w, x)))(w),
    "jit around": lambda lib, w, x: lib.m.jit(lambda w, x: slope(local)(lib, w, x))(w, x),
    "training": lambda lib, w, x: lib.lax.scan(lambda w, _: (w - slope(mean)(lib, w, x), mean(lib, w, x)), w, None, 4),
    "training in fori_loop": lambda lib, w, x: lib.lax.fori_loop(0, 3, lambda _, w: w - slope(local)(lib, w, x), w),
    "training in while_loop": lambda lib, w, x: lib.lax.while_loop(
        lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] - slope(local)(lib, c[1], x)), (0, w)
    )[1],
    "in a branch": lambda lib, w, x: lib.lax.cond(w[0] < 0, lambda: slope(local)(lib, w, x), lambda: w),
}


@pytest.mark.parametrize("derivative", DERIVATIVES)
def test_derivatives(derivative: str) -> None:
    same(lambda lib: inside(lib, DERIVATIVES[derivative]))


def test_of_what_differs() -> None:
    def both(lib: Library, w: Any, x: Any) -> Any:
        return lib.m.grad(lambda w, x: total(lib, w, x), (0, 1))(w, x)

    def of_each(lib: Library, w: Any, x: Any) -> Any:
        return slope(mean)(lib, lib.lax.pcast(w, "x", to="varying"), x)

    same(lambda lib: inside(lib, both, out=(lib.P(), lib.P("x"))))
    same(lambda lib: inside(lib, of_each, out=lib.P("x")))


def test_unchecked() -> None:
    def each(lib: Library, w: Any, x: Any) -> Any:
        return slope(local)(lib, w, x)[None]

    same(lambda lib: inside(lib, each, out=lib.P("x"), check_vma=False))


def test_two_axes() -> None:
    def loss(lib: Library, w: Any, x: Any) -> Any:
        return lib.lax.pmean(lib.np.sum(lib.np.sin(w * x)), "x")

    def of_parts(lib: Library, *along: str | None) -> Any:
        return lib.over(partial(slope(loss), lib), (lib.P(), lib.P(*along)), lib.P())(S, X)

    same(lambda lib: [of_parts(lib, "x", "y"), of_parts(lib, None, "y")])

    def mixed(lib: Library) -> Any:
        return lib.P("y"), lib.P("x")

    same(lambda lib: lib.over(partial(slope(loss), lib), mixed(lib), lib.P("y"))(np.tile(W, 2), X))


def test_along_one_axis_of_two() -> None:
    def program(lib: Library) -> Any:
        f = lib.over(partial(slope(mean), lib), (lib.P(), lib.P("x")), lib.P(), axis_names={"x"})
        return lib.m.jit(f)(W, X)

    same(program)


def test_layers_cut_along_two_axes() -> None:
    """The rows of a batch along one axis, the hidden units along the other: written by hand."""
    a, b = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6), np.linspace(0, 1, 24, dtype=np.float32).reshape(6, 4)

    def step(lib: Library, weights: Any, x: Any) -> Any:
        def loss(weights: Any) -> Any:
            a, b, c = weights
            y = lib.lax.psum(lib.np.tanh(x @ a) @ b, "y") + c
            return lib.lax.pmean(lib.np.mean(y**2), "x")

        return lib.m.value_and_grad(loss)(weights)

    def program(lib: Library) -> Any:
        specs = lib.P(None, "y"), lib.P("y"), lib.P()
        return lib.over(partial(step, lib), (specs, lib.P("x")), (lib.P(), specs))((a, b, W), X)

    same(program)


@pytest.mark.parametrize(
    "loss", ["psum", "clipped before", "custom_vjp", "custom_vjp by vjp in scan", "clipped in scan"]
)
def test_from_outside(loss: str) -> None:
    def program(lib: Library) -> Any:
        body = LOSSES[loss]
        f = lib.over(lambda w, x: lib.lax.psum(body(lib, w, x), "x") / 4, (lib.P(), lib.P("x")), lib.P())
        return lib.m.grad(f, (0, 1))(W, X)

    same(program)


def test_training_from_outside() -> None:
    same(lambda lib: lib.m.jacrev(lambda w: inside(lib, DERIVATIVES["training"], w)[0])(W))


def test_batches() -> None:
    same(lambda lib: lib.m.vmap(lambda w: inside(lib, slope(mean), w))(W))
    same(lambda lib: lib.m.vmap(lambda w: inside(lib, slope(LOSSES["custom_vjp"]), w))(W[:, None] * W))


def test_solutions_of_equations() -> None:
    # The solver's steps go on until it is near: all devices must see the same to do the same. JAX refuses such solvers.
    def solved(_: Library, w: Any, x: Any) -> Any:
        from_all = lax.psum(fnp.sum(x**2), "x")
        return lax.custom_linear_solve(
            lambda v: lax.psum(v * fnp.sum(x**2), "x") + v,
            w,
            lambda f, b: lax.while_loop(
                lambda v: fnp.max(fnp.abs(f(v) - b)) > 1e-5, lambda v: v - (f(v) - b) / (2 + from_all), b
            ),
            symmetric=True,
        )

    w = inside(OURS, lambda lib, w, x: fx.grad(lambda w: fnp.sum(solved(lib, w, x) ** 2))(w))
    scale = 1 + np.sum(X**2)
    assert_near(w, 2 * W / scale**2, DERIVATIVE)
    of_x = inside(OURS, lambda lib, w, x: fx.grad(lambda x: fnp.sum(solved(lib, w, x) ** 2))(x), out=P("x"))
    assert_near(of_x, -4 * X * np.sum(W**2) / scale**3, DERIVATIVE)


# ------------------------------------------------------------------ what is said of values


def test_types() -> None:
    seen: list[Any] = []

    def body(w: Any, x: Any) -> Any:
        seen.extend([fx.typeof(y) for y in (w, x, lax.psum(x, "x"), w * x, lax.pcast(w, ("x", "y"), to="varying"))])
        fx.jit(lambda y: seen.append(fx.typeof(y)))(x + 1)
        return x

    OURS.over(body, (P(), P("x")), P("x"))(W, X)
    assert [sorted(t.vma) for t in seen] == [[], ["x"], [], ["x"], ["x", "y"], ["x"]]
    assert [str(t) for t in seen[:2]] == ["f32[4]", "f32[2,4]{V:x}"]
    assert str(seen[4]) == "f32[4]{V:(x,y)}"
    assert fx.typeof(X).vma == frozenset()


def test_a_cotangent_that_differs_where_the_output_does_not() -> None:
    def body(lib: Library, w: Any, x: Any) -> Any:
        return lib.m.vjp(lambda w: w * 2, w)[1](x[0])[0]

    words = r"output 0 varies along 'x'.*f32\[4\]\{V:x\} was given, f32\[4\] is needed"
    assert_refused(lambda lib: inside(lib, body, out=lib.P("x")), TypeError, words, by_jax=ValueError)


def test_a_backward_pass_whose_cotangent_differs() -> None:
    def body(lib: Library, w: Any, x: Any) -> Any:
        f = lib.m.custom_vjp(partial(local, lib))
        f.defvjp(lambda w, x: (local(lib, w, x), x), lambda x, ct: (ct * x[0], ct * x))
        return lib.m.grad(f)(w, x)

    assert_refused(
        lambda lib: inside(lib, body), ValueError, "operand 0 that varies along 'x'.*sum it with psum along 'x'"
    )


def test_what_is_sent() -> None:
    """Nothing but the sums of the loss and of the gradient."""
    step = OURS.over(fx.value_and_grad(partial(mean, OURS)), (P(), P("x")), P())
    found = [str(each) for each in fx.jit(step).lower(W, X).compile().collectives()]
    assert len(found) == 1, found
    assert "f32[]" in found[0], found
    assert "f32[4]" in found[0], found


# ------------------------------------------------------------------ programs that nobody wrote


@st.composite
def programs(draw: st.DrawFn) -> Callable[[Any, Any], Any]:
    """Losses of `w: f32[4]`, the same on all devices, and `x: f32[2, 4]`, a part."""
    steps = [
        lambda v, w, x: fnp.sin(v),
        lambda v, w, x: v * w,
        lambda v, w, x: v + fnp.sum(x, 0),
        lambda v, w, x: lax.psum(v, "x"),
        lambda v, w, x: lax.pmean(v * w, "x"),
        lambda v, w, x: lax.all_gather(v, "x")[1],
        lambda v, w, x: lax.ppermute(v, "x", [(0, 1), (1, 2), (2, 0)]),
        lambda v, w, x: lax.psum_scatter(v, "x", tiled=True) * w,
        lambda v, w, x: fx.jit(lambda v: lax.psum(v * x[0], "x"))(v),
        lambda v, w, x: v * lax.axis_index("x"),
        lambda v, w, x: lax.scan(lambda c, r: (fnp.cos(c * r), None), v, x)[0],
        lambda v, w, x: clipped(OURS, v * 3),
    ]
    chosen = draw(st.lists(st.sampled_from(steps), min_size=1, max_size=4))

    def loss(w: Any, x: Any) -> Any:
        v = w
        for step in chosen:
            v = step(v, w, x)
        return fnp.sum(fnp.sin(v))

    return loss


@settings(max_examples=12, deadline=None)
@given(programs())
def test_inside_and_outside(loss: Callable[[Any, Any], Any]) -> None:
    """The slope of what one device has, and of the sum over all: inside as outside."""

    def whole(w: Any, x: Any) -> Any:
        return lax.psum(loss(w, x), "x")

    specs = P(), P("x")
    got = fx.jit(OURS.over(lambda w, x: fx.grad(whole, (0, 1))(w, x), specs, specs))(W, X)
    want = fx.jit(fx.grad(OURS.over(whole, specs, P()), (0, 1)))(W, X)
    for a, b in zip(got, want, strict=True):
        assert_near(a, b, DERIVATIVE)
