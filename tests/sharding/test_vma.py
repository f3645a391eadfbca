"""Derivatives inside a `shard_map` with `check_vma=True`, which tracks the varying mesh axes of all values."""

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
from tests.cases import parametrize_functions
from tests.comparison import assert_near
from tests.errors import assert_errors
from tests.sharding.both import TRACEFX, Library, Program, assert_agrees_with_jax, assert_both_raise
from tracefx import P, lax
from tracefx.core import NDArray
from tracefx.core.jaxpr import HasSubjaxprs
from tracefx.programs import deserialize, parse_jaxpr, serialize
from tracefx.testing.tolerances import DERIVATIVE

W: Final[NDArray] = np.linspace(-1, 1.5, 4, dtype=np.float32)
X: Final[NDArray] = np.arange(32, dtype=np.float32).reshape(8, 4) / 10
S: Final = np.float32(0.7)
Body: TypeAlias = Callable[[Library, Any, Any], Any]
"""A body that gets a replicated `w` and a shard `x` of the rows, which are sharded four ways along the axis `x`."""


def assert_same_derivatives(program: Program) -> None:
    """The derivatives agree with JAX's."""
    assert_agrees_with_jax(program, DERIVATIVE)


def run_shard_map(lib: Library, body: Body, w: Any = W, out: Any = None, **options: Any) -> Any:
    specs = lib.P(), lib.P("x")
    return lib.shard_map(lambda w, x: body(lib, w, x), specs, lib.P() if out is None else out, **options)(w, X)


def local_loss(lib: Library, w: Any, x: Any) -> Any:
    return lib.np.sum(lib.np.sin(w * x))


def psum_loss(lib: Library, w: Any, x: Any) -> Any:
    return lib.lax.psum(local_loss(lib, w, x), "x") ** 2


def pmean_loss(lib: Library, w: Any, x: Any) -> Any:
    return lib.lax.pmean(local_loss(lib, w, x), "x")


def _product(lib: Library) -> Any:
    """A function with a custom backward pass, which sums the cotangent of `w` over devices."""
    f = lib.m.custom_vjp(lambda w, x: lib.np.sum(w * x, 1))

    def backward(residuals: Any, ct: Any) -> Any:
        w, x = residuals
        return lib.lax.psum(ct @ x, "x"), ct[:, None] * w

    f.defvjp(lambda w, x: (lib.np.sum(w * x, 1), (w, x)), backward)
    return f


def _with_vjp_in_backward_pass(lib: Library) -> Any:
    """A function whose custom backward pass calls `vjp`."""

    def f(w: Any, x: Any) -> Any:
        return lib.np.sin(x @ w)

    custom = lib.m.custom_vjp(f)
    custom.defvjp(lambda w, x: (f(w, x), (w, x)), lambda residuals, ct: lib.m.vjp(f, *residuals)[1](ct))
    return custom


def _with_grad_in_jvp_rule(lib: Library) -> Any:
    """A function whose custom JVP rule calls `grad`."""

    def f(w: Any, x: Any) -> Any:
        return psum_loss(lib, w, x)

    custom = lib.m.custom_jvp(f)
    custom.defjvp(lambda xs, ts: (custom(*xs), lib.np.vdot(lib.m.grad(f)(*xs), ts[0])), symbolic_zeros=False)
    return custom


def clipped(lib: Library, w: Any) -> Any:
    """A function with a nonlinear backward pass: it must get the true cotangents, not partial sums."""
    f = lib.m.custom_vjp(lambda w: w)
    f.defvjp(lambda w: (w, None), lambda _, ct: (lib.np.clip(ct, -1.0, 1.0),))
    return f(w)


def scan_three_steps(f: Any) -> Body:
    """A scan of three steps that carries the results of `f`."""
    return lambda lib, w, x: lib.lax.scan(lambda c, _: (f(lib, c, x), None), w, None, length=3)[0]


def gradient_of(loss: Any) -> Body:
    return lambda lib, w, x: lib.m.grad(lambda w: loss(lib, w, x))(w)


LOSSES: Final[dict[str, Body]] = {
    "each its own": local_loss,
    "psum": psum_loss,
    "pmean": pmean_loss,
    "of no device": lambda lib, w, x: lib.np.sum(w**3),
    "pmax": lambda lib, w, x: local_loss(lib, w, x - lib.lax.pmax(x, "x")),
    "all_gather": lambda lib, w, x: local_loss(lib, w, lib.lax.all_gather(x, "x", tiled=True)),
    "all_gather of it": lambda lib, w, x: lib.lax.pmean(lib.np.sum(lib.lax.all_gather(w * x, "x") ** 2), "x"),
    "all_gather, invarying": lambda lib, w, x: local_loss(
        lib, w, lib.lax.all_gather(x, "x", tiled=True, to="invarying")
    ),
    "invarying all_gather of it": lambda lib, w, x: lib.np.sum(
        lib.lax.all_gather(w * x, "x", axis=1, to="invarying") ** 2
    ),
    "psum_scatter": lambda lib, w, x: lib.np.sum(lib.lax.psum_scatter(w * x, "x", scatter_dimension=1) ** 2),
    "all_to_all": lambda lib, w, x: lib.np.sum(lib.lax.all_to_all(lib.np.sin(w * x), "x", 1, 0, tiled=True) * x[0, 0]),
    "ppermute": lambda lib, w, x: lib.np.sum(lib.lax.ppermute(w, "x", [(0, 1), (1, 2), (3, 3)]) * x),
    "psum of it": lambda lib, w, x: lib.np.sum(lib.lax.psum(w, "x") ** 2) + local_loss(lib, w, x),
    "axis_index": lambda lib, w, x: lib.np.sum(w * lib.lax.axis_index("x")),
    "jit": lambda lib, w, x: lib.m.jit(lambda w: psum_loss(lib, w, x))(w),
    "jit of all": lambda lib, w, x: lib.m.jit(lambda w, x: pmean_loss(lib, w, x))(w, x),
    "checkpoint": lambda lib, w, x: lib.m.checkpoint(lambda w: psum_loss(lib, w, x))(w),
    "scan": lambda lib, w, x: lib.np.sum(
        scan_three_steps(lambda lib, w, x: lib.np.tanh(w + pmean_loss(lib, w, x)))(lib, w, x)
    ),
    "scan over the rows": lambda lib, w, x: lib.lax.pmean(
        lib.lax.scan(lambda c, row: (lib.np.tanh(c + row @ w), None), lib.np.sum(x) * 0, x)[0], "x"
    ),
    "cond": lambda lib, w, x: lib.lax.cond(w[3] > 1, lambda w: psum_loss(lib, w, x), lambda w: lib.np.sum(w), w),
    "custom_vjp": lambda lib, w, x: lib.np.sum(_product(lib)(w, x) ** 2),
    "custom_vjp in jit": lambda lib, w, x: lib.m.jit(lambda w: lib.lax.psum(lib.np.sum(_product(lib)(w, x)), "x") ** 2)(
        w
    ),
    "custom_vjp by vjp": lambda lib, w, x: lib.np.sum(_with_vjp_in_backward_pass(lib)(w, x) ** 2),
    "custom_vjp by vjp in scan": lambda lib, w, x: lib.np.sum(
        scan_three_steps(lambda lib, w, x: w * lib.lax.pmean(lib.np.sum(_with_vjp_in_backward_pass(lib)(w, x)), "x"))(
            lib, w, x
        )
    ),
    "custom_jvp": lambda lib, w, x: _with_grad_in_jvp_rule(lib)(w, x) ** 2,
    "custom_jvp in scan": lambda lib, w, x: lib.np.sum(
        scan_three_steps(lambda lib, w, x: w * _with_grad_in_jvp_rule(lib)(w, x) / 9)(lib, w, x)
    ),
    "clipped before": lambda lib, w, x: lib.lax.psum(local_loss(lib, clipped(lib, w), x), "x") * 9,
    "clipped behind": lambda lib, w, x: clipped(lib, psum_loss(lib, w, x)) * 9,
    "clipped alone": lambda lib, w, x: lib.np.sum(clipped(lib, w) * 9),
    "clipped in scan": lambda lib, w, x: lib.np.sum(
        scan_three_steps(lambda lib, w, x: w * lib.lax.psum(local_loss(lib, clipped(lib, w), x), "x"))(lib, w, x)
    ),
    "pcast": lambda lib, w, x: lib.np.sum(lib.m.jit(lambda w: lib.lax.pcast(w, "x", to="varying"))(w) * 2),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_gradient_with_respect_to_replicated_weights(loss: str) -> None:
    assert_same_derivatives(lambda lib: run_shard_map(lib, gradient_of(LOSSES[loss])))


DERIVATIVES: Final[dict[str, Body]] = {
    "value and slope": lambda lib, w, x: lib.m.value_and_grad(lambda w: psum_loss(lib, w, x))(w),
    "jacrev": lambda lib, w, x: lib.m.jacrev(lambda w: lib.lax.psum(lib.np.sin(w * x), "x"))(w),
    "jacfwd": lambda lib, w, x: lib.m.jacfwd(lambda w: lib.lax.psum(lib.np.sin(w * x), "x"))(w),
    "hessian": lambda lib, w, x: lib.m.hessian(lambda w: psum_loss(lib, w, x))(w),
    "slope of a slope": lambda lib, w, x: lib.m.grad(
        lambda w: lib.np.sum(lib.m.grad(lambda w: psum_loss(lib, w, x))(w) * w)
    )(w),
    "jvp of a slope": lambda lib, w, x: lib.m.jvp(lib.m.grad(lambda w: pmean_loss(lib, w, x) ** 2), (w,), (w,)),
    "linearize": lambda lib, w, x: lib.m.linearize(lambda w: psum_loss(lib, w, x), w)[1](w),
    "linear_transpose": lambda lib, w, x: lib.m.linear_transpose(lambda w: w * lib.np.sum(x, 0), w)(x[0])[0],
    "vjp": lambda lib, w, x: lib.m.vjp(lambda w: lib.lax.psum(lib.np.sin(w * x), "x"), w)[1](lib.np.ones((2, 4)))[0],
    "vjp by what varies": lambda lib, w, x: lib.m.vjp(lambda w: w * x, w)[1](x)[0],
    "vmap": lambda lib, w, x: lib.m.vmap(lib.m.grad(lambda w: pmean_loss(lib, w, x)))(w),
    "jit around": lambda lib, w, x: lib.m.jit(lambda w, x: gradient_of(local_loss)(lib, w, x))(w, x),
    "training": lambda lib, w, x: lib.lax.scan(
        lambda w, _: (w - gradient_of(pmean_loss)(lib, w, x), pmean_loss(lib, w, x)), w, None, 4
    ),
    "training in fori_loop": lambda lib, w, x: lib.lax.fori_loop(
        0, 3, lambda _, w: w - gradient_of(local_loss)(lib, w, x), w
    ),
    "training in while_loop": lambda lib, w, x: lib.lax.while_loop(
        lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] - gradient_of(local_loss)(lib, c[1], x)), (0, w)
    )[1],
    "in a branch": lambda lib, w, x: lib.lax.cond(w[0] < 0, lambda: gradient_of(local_loss)(lib, w, x), lambda: w),
}


@pytest.mark.parametrize("derivative", DERIVATIVES)
def test_derivatives(derivative: str) -> None:
    assert_same_derivatives(lambda lib: run_shard_map(lib, DERIVATIVES[derivative]))


def gradient_with_respect_to_varying_values(lib: Library) -> Any:
    def both(lib: Library, w: Any, x: Any) -> Any:
        return lib.m.grad(lambda w, x: psum_loss(lib, w, x), (0, 1))(w, x)

    def per_device(lib: Library, w: Any, x: Any) -> Any:
        return gradient_of(pmean_loss)(lib, lib.lax.pcast(w, "x", to="varying"), x)

    return run_shard_map(lib, both, out=(lib.P(), lib.P("x"))), run_shard_map(lib, per_device, out=lib.P("x"))


def gradient_without_vma_check(lib: Library) -> Any:
    def per_device(lib: Library, w: Any, x: Any) -> Any:
        return gradient_of(local_loss)(lib, w, x)[None]

    return run_shard_map(lib, per_device, out=lib.P("x"), check_vma=False)


def gradient_over_two_mesh_axes(lib: Library) -> Any:
    gradient = partial(gradient_of(pmean_loss), lib)
    sharded = [lib.shard_map(gradient, (lib.P(), lib.P(*parts)), lib.P())(S, X) for parts in (("x", "y"), (None, "y"))]
    return sharded, lib.shard_map(gradient, (lib.P("y"), lib.P("x")), lib.P("y"))(np.tile(W, 2), X)


def gradient_with_partial_manual_axes(lib: Library) -> Any:
    f = lib.shard_map(partial(gradient_of(pmean_loss), lib), (lib.P(), lib.P("x")), lib.P(), axis_names={"x"})
    return lib.m.jit(f)(W, X)


def data_and_model_parallel_layers(lib: Library) -> Any:
    """A batch sharded along one axis and hidden units along the other, with explicit collectives."""
    a, b = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6), np.linspace(0, 1, 24, dtype=np.float32).reshape(6, 4)

    def loss(weights: Any, x: Any) -> Any:
        a, b, c = weights
        y = lib.lax.psum(lib.np.tanh(x @ a) @ b, "y") + c
        return lib.lax.pmean(lib.np.mean(y**2), "x")

    specs = lib.P(None, "y"), lib.P("y"), lib.P()
    return lib.shard_map(lib.m.value_and_grad(loss), (specs, lib.P("x")), (lib.P(), specs))((a, b, W), X)


def jacobian_of_training_outside_shard_map(lib: Library) -> Any:
    return lib.m.jacrev(lambda w: run_shard_map(lib, DERIVATIVES["training"], w)[0])(W)


def vmap_of_gradients(lib: Library) -> Any:
    return (
        lib.m.vmap(lambda w: run_shard_map(lib, gradient_of(pmean_loss), w))(W),
        lib.m.vmap(lambda w: run_shard_map(lib, gradient_of(LOSSES["custom_vjp"]), w))(W[:, None] * W),
    )


@parametrize_functions(globals(), "lib")
def test_derivatives_agree_with_jax(program: Program) -> None:
    assert_same_derivatives(program)


@pytest.mark.parametrize(
    "loss", ["psum", "clipped before", "custom_vjp", "custom_vjp by vjp in scan", "clipped in scan"]
)
def test_gradient_outside_shard_map(loss: str) -> None:
    def program(lib: Library) -> Any:
        body = LOSSES[loss]
        f = lib.shard_map(lambda w, x: lib.lax.psum(body(lib, w, x), "x") / 4, (lib.P(), lib.P("x")), lib.P())
        return lib.m.grad(f, (0, 1))(W, X)

    assert_same_derivatives(program)


def test_gradient_of_custom_linear_solve() -> None:
    # The solver iterates until it converges, so all devices must see the same values. JAX rejects such solvers.
    def solved(_: Library, w: Any, x: Any) -> Any:
        total = lax.psum(fnp.sum(x**2), "x")
        return lax.custom_linear_solve(
            lambda v: lax.psum(v * fnp.sum(x**2), "x") + v,
            w,
            lambda f, b: lax.while_loop(
                lambda v: fnp.max(fnp.abs(f(v) - b)) > 1e-5, lambda v: v - (f(v) - b) / (2 + total), b
            ),
            symmetric=True,
        )

    w = run_shard_map(TRACEFX, lambda lib, w, x: fx.grad(lambda w: fnp.sum(solved(lib, w, x) ** 2))(w))
    scale = 1 + np.sum(X**2)
    assert_near(w, 2 * W / scale**2, DERIVATIVE)
    x_gradient = run_shard_map(
        TRACEFX, lambda lib, w, x: fx.grad(lambda x: fnp.sum(solved(lib, w, x) ** 2))(x), out=P("x")
    )
    assert_near(x_gradient, -4 * X * np.sum(W**2) / scale**3, DERIVATIVE)


# ------------------------------------------------------------------ types and errors


def test_types_have_varying_axes() -> None:
    seen: list[Any] = []

    def body(w: Any, x: Any) -> Any:
        seen.extend([fx.typeof(y) for y in (w, x, lax.psum(x, "x"), w * x, lax.pcast(w, ("x", "y"), to="varying"))])
        fx.jit(lambda y: seen.append(fx.typeof(y)))(x + 1)
        return x

    TRACEFX.shard_map(body, (P(), P("x")), P("x"))(W, X)
    assert [sorted(t.vma) for t in seen] == [[], ["x"], [], ["x"], ["x", "y"], ["x"]]
    assert [str(t) for t in seen[:2]] == ["f32[4]", "f32[2,4]{V:x}"]
    assert str(seen[4]) == "f32[4]{V:(x,y)}"
    assert fx.typeof(X).vma == frozenset()


def test_an_invarying_all_gather_is_replicated() -> None:
    gathered: list[Any] = []

    def body(x: Any) -> Any:
        gathered.extend([lax.all_gather(x, "x", to=to) for to in ("varying", "invarying")])
        gathered.append(lax.all_gather(x, ("x", "y"), to="invarying"))
        return x

    fx.jit(TRACEFX.shard_map(body, P("x"), P("x")))(X)
    assert [sorted(fx.typeof(y).vma) for y in gathered] == [["x"], [], []]
    assert_errors(
        (lambda: lax.all_gather(X, "x", to="reduced"), ValueError, "to must be 'varying' or, .* got 'reduced'"),
        (
            lambda: lax.all_gather(X, "x", to="invarying", axis_index_groups=[[0]]),
            ValueError,
            "all_gather: to must be 'varying' or, without axis_index_groups, 'invarying'",
        ),
    )


def test_programs_have_varying_axes_inside_shard_map_only() -> None:
    def body(w: Any, x: Any) -> Any:
        return fx.jit(lambda w: lax.psum(fnp.sum(w * x), "x"))(w)

    specs = (P(), P("x")), P()
    closed = fx.make_jaxpr(TRACEFX.shard_map(body, *specs))(W, X)
    (eqn,) = closed.eqns
    assert [a.vma for a in (*closed.in_avals, *closed.out_avals)] == [frozenset()] * 3
    assert isinstance(eqn.prim, HasSubjaxprs)
    (inside,) = eqn.prim.jaxprs()
    assert [str(a) for a in (*inside.in_avals, *inside.out_avals)] == ["f32[4]", "f32[2,4]{V:x}", "f32[]"]
    assert parse_jaxpr(str(closed.jaxpr)) == closed.jaxpr
    assert deserialize(serialize(closed)).jaxpr == closed.jaxpr
    assert "{V:" not in closed.jaxpr.text("jax")
    unchecked = fx.make_jaxpr(TRACEFX.shard_map(lambda w, x: body(w, x), *specs, check_vma=False))(W, X)
    assert "{V:" not in str(unchecked)


def test_functions_are_traced_for_each_type() -> None:
    traced: list[str] = []

    @fx.jit
    def f(x: Any) -> Any:
        traced.append(str(fx.typeof(x)))
        return x * 2

    def body(w: Any, x: Any) -> Any:
        return f(w) + f(x) + f(w + 1), f(x[:, :2])

    TRACEFX.shard_map(body, (P(), P("x")), P("x"))(W[None], np.ones((4, 4), np.float32))
    assert traced == ["f32[1,4]", "f32[1,4]{V:x}", "f32[1,2]{V:x}"]


def test_carries_vary_wherever_the_number_of_steps_does() -> None:
    seen: list[str] = []

    def body(w: Any, x: Any) -> Any:
        outs = lax.while_loop(lambda c: c[0] < x[0, 0], lambda c: (c[0] + 1, c[1], c[2] + 1), (w[0], w, w[1]))
        seen.extend([str(fx.typeof(out)) for out in outs])
        return x

    TRACEFX.shard_map(body, (P(), P("x")), P("x"))(W, X)
    assert seen == ["f32[]{V:x}", "f32[4]{V:x}", "f32[]{V:x}"]


@pytest.mark.parametrize("transform", [lambda f: f, lambda f: lambda w: fx.vmap(f)(w[None])[0]], ids=["", "vmap"])
def test_varying_tangent_of_a_replicated_value(transform: Callable[[Any], Any]) -> None:
    """The value and its gradients are those of a replicated value; the tangents on the devices are summed."""

    def derivative(w: Any, x: Any) -> Any:
        def f(w: Any) -> Any:
            return fx.grad(lambda v: fnp.sum(lax.psum(v**3, "x")))(w)

        out, tangent = fx.jvp(transform(f), (w,), (x[0],))
        return out, tangent[None]

    out, tangent = TRACEFX.shard_map(derivative, (P(), P("x")), (P(), P("x")))(W, X)
    assert_near(out, 12 * W**2, DERIVATIVE)
    assert_near(tangent, np.tile(6 * W * X[::2].sum(0), (4, 1)), DERIVATIVE)


def test_varying_cotangent_of_a_replicated_output_is_rejected() -> None:
    def body(lib: Library, w: Any, x: Any) -> Any:
        return lib.m.vjp(lambda w: w * 2, w)[1](x[0])[0]

    message = r"output 0 varies along 'x'.*got f32\[4\]\{V:x\}, expected f32\[4\]"
    assert_both_raise(
        lambda lib: run_shard_map(lib, body, out=lib.P("x")), TypeError, message, jax_exception=ValueError
    )


def test_varying_cotangent_from_a_custom_backward_pass_is_rejected() -> None:
    def body(lib: Library, w: Any, x: Any) -> Any:
        f = lib.m.custom_vjp(partial(local_loss, lib))
        f.defvjp(lambda w, x: (local_loss(lib, w, x), x), lambda x, ct: (ct * x[0], ct * x))
        return lib.m.grad(f)(w, x)

    assert_both_raise(
        lambda lib: run_shard_map(lib, body), ValueError, "operand 0 that varies along 'x'.*sum it with psum along 'x'"
    )


def test_collectives_of_a_training_step() -> None:
    """The only collective sums the loss and the gradient."""
    step = TRACEFX.shard_map(fx.value_and_grad(partial(pmean_loss, TRACEFX)), (P(), P("x")), P())
    collectives = [str(c) for c in fx.jit(step).lower(W, X).compile().collectives()]
    assert len(collectives) == 1, collectives
    assert "f32[]" in collectives[0], collectives
    assert "f32[4]" in collectives[0], collectives


# ------------------------------------------------------------------ generated programs


@st.composite
def programs(draw: st.DrawFn) -> Callable[[Any, Any], Any]:
    """Losses of a replicated `w: f32[4]` and a shard `x: f32[2, 4]`."""
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
        lambda v, w, x: clipped(TRACEFX, v * 3),
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
def test_gradient_inside_matches_gradient_outside(loss: Callable[[Any, Any], Any]) -> None:
    """`grad` inside `shard_map` agrees with `grad` outside."""
    check_gradient_inside(loss)


@pytest.mark.parametrize(
    "exchange",
    [
        lambda v: lax.all_gather(v, "x")[1],
        lambda v: lax.ppermute(v, "x", [(0, 1), (1, 2), (2, 0)]),
        lambda v: lax.all_to_all(fnp.stack([v] * 4), "x", 0, 0)[1],
    ],
    ids=["all_gather", "ppermute", "all_to_all"],
)
def test_gradient_of_an_exchange_whose_cotangent_is_replicated(exchange: Callable[[Any], Any]) -> None:
    """The transposed exchange returns different values on different devices, so they must be summed."""
    check_gradient_inside(lambda w, x: fnp.sum(fnp.sin(lax.psum(exchange(w), "x"))))


def check_gradient_inside(loss: Callable[[Any, Any], Any]) -> None:
    def whole(w: Any, x: Any) -> Any:
        return lax.psum(loss(w, x), "x")

    specs = P(), P("x")
    got = fx.jit(TRACEFX.shard_map(lambda w, x: fx.grad(whole, (0, 1))(w, x), specs, specs))(W, X)
    want = fx.jit(fx.grad(TRACEFX.shard_map(whole, specs, P()), (0, 1)))(W, X)
    assert_near(got, want, DERIVATIVE)


@pytest.mark.parametrize("name", ["zeros_like", "ones_like", "full_like", "empty_like"])
def test_arrays_like_a_varying_one_vary(name: str) -> None:
    def f(x: Any) -> Any:
        fill = [3.0] if name == "full_like" else []
        like = getattr(fnp, name)(x, *fill)
        assert fx.typeof(like).vma == fx.typeof(x).vma == {"x"}
        accumulator = fx.new_ref(like)
        accumulator[...] = x
        return accumulator[...]

    np.testing.assert_array_equal(TRACEFX.shard_map(f, P("x"), P("x"))(X), X)
