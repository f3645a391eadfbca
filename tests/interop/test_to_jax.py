"""`to_jax`: tracefx functions under JAX transformations, their arguments and results, and their errors."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final, assert_type

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.extend import source_info_util

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near, assert_same
from tracefx.errors import EscapedTracerError
from tracefx.interop import jax as interop
from tracefx.interop.jax import as_jax, as_tracefx, from_jax
from tracefx.testing.tolerances import SUMMED

X: Final[Any] = np.array([0.5, 1.5, -2.0], np.float32)
untyped_lax: Any = fx.lax  # typed as Any for use in lambdas
to_jax: Any = (
    interop.to_jax
)  # typed as Any: the functions get JAX arrays, although they are annotated with tracefx arrays


def loss(x: fx.Array) -> fx.Array:
    return fnp.sum(fnp.sin(x) * x)


# ------------------------------------------------------------------ transformations


def test_values_match_tracefx() -> None:
    assert_same(to_jax(loss)(X), loss(X), SUMMED)
    assert_same(jax.jit(to_jax(loss))(X), loss(X), SUMMED)


def test_derivatives_match_tracefx() -> None:
    f = to_jax(loss)
    assert_same(jax.grad(f)(X), fx.grad(loss)(X), SUMMED)
    assert_same(jax.jit(jax.grad(f))(X), fx.grad(loss)(X), SUMMED)
    assert_same(jax.jvp(f, (X,), (X,)), fx.jvp(loss, (X,), (X,)), SUMMED)
    assert_same(jax.linearize(f, X)[1](X), fx.jvp(loss, (X,), (X,))[1], SUMMED)
    assert_same(jax.hessian(f)(X), fx.hessian(loss)(X), SUMMED)
    assert_same(jax.checkpoint(jax.grad(f))(X), fx.grad(loss)(X), SUMMED)


def test_vmap_matches_tracefx() -> None:
    xs: Any = np.stack([X, 2 * X])
    assert_same(jax.vmap(to_jax(loss))(xs), fx.vmap(loss)(xs), SUMMED)
    assert_same(jax.vmap(jax.grad(to_jax(loss)))(xs), fx.vmap(fx.grad(loss))(xs), SUMMED)


def test_tracefx_transformations_inside_to_jax() -> None:
    gradient: Any = fx.grad(loss)
    assert_same(to_jax(gradient)(X), gradient(X), SUMMED)
    assert_same(jax.grad(lambda x: to_jax(gradient)(x).sum())(X), fx.grad(lambda x: gradient(x).sum())(X), SUMMED)


def test_to_jax_inside_jax_control_flow() -> None:
    f = to_jax(lambda c, x: (c * x, c + x))
    carry, outs = jax.lax.scan(f, jnp.float32(2), X)
    assert_same((carry, outs), fx.lax.scan(lambda c, x: (c * x, c + x), np.float32(2), X), SUMMED)
    assert_same(jax.lax.cond(True, to_jax(fnp.sin), to_jax(fnp.cos), X), fnp.sin(X), SUMMED)


def test_exported_jaxpr_matches_jax() -> None:
    def jax_fn(x: Any, n: Any) -> Any:
        return jax.lax.sin(x * 2) + n, jax.lax.reduce_sum(x, axes=(0,))

    def fx_fn(x: Any, n: Any) -> Any:
        return fx.lax.sin(x * 2) + n, fx.lax.reduce_sum(x, axes=(0,))

    for n in (1, 1.0, np.float32(1)):
        assert str(jax.make_jaxpr(to_jax(fx_fn))(X, n)) == str(jax.make_jaxpr(jax_fn)(X, n))


def test_jitted_functions_keep_their_names() -> None:
    @fx.jit
    def inner(x: fx.Array) -> fx.Array:
        return fnp.sin(x)

    (eqn,) = jax.make_jaxpr(to_jax(inner))(X).eqns
    assert (eqn.primitive.name, eqn.params["name"]) == ("jit", "inner")


def test_source_locations_and_name_scopes_are_kept() -> None:
    def f(x: fx.Array) -> fx.Array:
        with fx.named_scope("layer"):
            return fnp.sin(x)

    (eqn,) = jax.make_jaxpr(to_jax(f))(X).eqns
    line = f.__code__.co_firstlineno + 2
    assert source_info_util.summarize(eqn.source_info).startswith(f"{__file__}:{line}")
    assert str(eqn.source_info.name_stack) == "layer"
    (back,) = fx.make_jaxpr(from_jax(to_jax(f)))(X).eqns
    assert back.source is not None
    assert (back.source.resolve().line, back.source.scope) == (line, ("layer",))


def test_jax_errors_have_source_locations_of_the_function() -> None:
    def f(x: fx.Array) -> fx.Array:
        out: fx.Array = untyped_lax.while_loop(lambda c: fnp.sum(c) < 9.0, lambda c: c * 2, x)
        return out

    with pytest.raises(ValueError, match="Reverse-mode") as caught:
        jax.jit(jax.grad(lambda x: to_jax(f)(x).sum()))(abs(X))
    cause = caught.value.__cause__
    assert cause is not None
    lines = []
    frame = cause.__traceback__
    while frame is not None:
        lines.append((frame.tb_frame.f_code.co_filename, frame.tb_lineno))
        frame = frame.tb_next
    assert (__file__, f.__code__.co_firstlineno + 1) in lines


def test_function_is_traced_once_per_argument_type() -> None:
    calls: list[object] = []

    def f(x: fx.Array) -> fx.Array:
        calls.append(x.aval)
        return fnp.sin(x)

    g = to_jax(f)
    for _ in range(2):
        g(X)
        jax.jit(lambda x: g(x) + 1)(X)
        jax.grad(lambda x: g(x).sum())(X)
    assert len(calls) == 1
    g(1.0)
    g(np.float32(1))
    g(1)
    assert list(map(repr, calls)) == ["f32[3]", "f32[]*", "f32[]", "i32[]*"]


def test_eager_calls_are_compiled_once() -> None:
    exported_prims: list[str] = []

    def sine(prim: fx.extend.Primitive, x: jax.Array) -> jax.Array:
        exported_prims.append(prim.name)
        return jnp.sin(x)

    f = to_jax(lambda x: fnp.sin(x) + 1, rules={"sin": sine})
    for _ in range(3):
        assert_same(f(X), fnp.sin(X) + 1, SUMMED)
    assert exported_prims == ["sin"]


# ------------------------------------------------------------------ arguments and results


def test_pytrees_of_arguments_and_results() -> None:
    def f(tree: dict[str, Any], *, scale: Any) -> Any:
        return {"out": (tree["a"] * scale, None), "n": [tree["b"][0]]}

    got = to_jax(f)({"a": X, "b": [jnp.ones(2)]}, scale=2.0)
    assert jax.tree.map(jnp.shape, got) == {"out": ((3,), None), "n": [(2,)]}
    np.testing.assert_array_equal(got["out"][0], 2 * X)


def test_static_arguments() -> None:
    def f(x: Any, n: int, how: str) -> Any:
        return x**n if how == "power" else x * n

    for g in (
        to_jax(f, static_argnums=(1, 2)),
        to_jax(f, static_argnames=("n", "how")),
        to_jax(f, static_argnums=(1, 2), static_argnames="how"),
    ):
        np.testing.assert_array_equal(g(X, 2, "power"), X**2)
        np.testing.assert_array_equal(jax.vmap(lambda x, g=g: g(x, 3, how="times"))(X), X * 3)
    with pytest.raises(TypeError, match=r"to_jax of f: arguments\[0\]\[2\] must be an array or a number, got 'power'"):
        to_jax(f)(X, 2, "power")


def test_weak_types_are_kept() -> None:
    f = to_jax(lambda x: x * 2)
    assert jax.make_jaxpr(f)(1.0).out_avals[0].weak_type
    assert not jax.make_jaxpr(f)(np.float32(1)).out_avals[0].weak_type
    assert f(1.0).weak_type
    half = to_jax(lambda x: x + np.float16(1) * 2.0)
    assert half(np.float16(1)).dtype == np.float16


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_random_keys_as_arguments_and_results(impl: str) -> None:
    def f(key: fx.Array) -> Any:
        first, second = fx.random.split(key)
        return fx.random.uniform(first, (3,)), fx.random.fold_in(second, 7)

    key = jax.random.key(3, impl=impl)
    want, want_key = fx.jit(f)(as_tracefx(key))
    got, got_key = to_jax(f)(key)
    np.testing.assert_array_equal(got, want)
    assert got_key.dtype == key.dtype
    np.testing.assert_array_equal(jax.random.key_data(got_key), fx.random.key_data(want_key))
    keys = jax.random.split(key, 2)
    np.testing.assert_array_equal(jax.vmap(to_jax(f))(keys)[0], fx.vmap(f)(as_tracefx(keys))[0])


def test_tracefx_arrays_are_accepted() -> None:
    assert_same(to_jax(loss)(fnp.asarray(X)), loss(X), SUMMED)
    with pytest.raises(TypeError, match=r"traces, but this is a function for JAX: call the function that to_jax was"):
        fx.grad(to_jax(loss))(fnp.asarray(X))


def test_collectives_use_named_axes_of_jax() -> None:
    def f(x: fx.Array) -> Any:
        return fx.lax.psum(x, "i"), x + fx.lax.axis_index("i"), fx.lax.all_gather(x, "i")

    got = jax.vmap(to_jax(f), axis_name="i")(X)
    assert_same(got, fx.vmap(f, axis_name="i")(X), SUMMED)
    with pytest.raises(NameError, match="i"):
        to_jax(f)(X)


# ------------------------------------------------------------------ 64-bit dtypes, default dtypes and precision


def test_default_dtypes_match_jax() -> None:
    def f(x: Any) -> Any:
        return fnp.arange(3), x * fnp.ones(3)

    assert [y.dtype for y in to_jax(f)(1.0)] == [np.int32, np.float32]
    with jax.enable_x64(True):
        assert [y.dtype for y in to_jax(f)(1.0)] == [np.int64, np.float64]
        assert_same(jax.grad(to_jax(lambda x: fnp.sum(x * x)))(np.ones(3)), np.full(3, 2.0), SUMMED)


def test_64_bit_dtypes_inside_functions_are_kept() -> None:
    def f(x: fx.Array) -> fx.Array:
        def step(c: fx.Array, _: None) -> Any:
            return c * 2 + 1e-12, None

        wide, _ = fx.lax.scan(step, x.astype("float64"), None, length=2)
        return fnp.sum(wide * fnp.float64(3) - 12 * wide[0]).astype("float32")

    for got in (to_jax(f)(X), jax.jit(to_jax(f))(X)):
        assert_same(got, fx.jit(f)(X), SUMMED)
    assert_same(jax.grad(to_jax(f))(X), fx.grad(f)(X), SUMMED)
    xs: Any = np.stack([X, X])
    assert_same(jax.vmap(to_jax(f))(xs), fx.vmap(f)(xs), SUMMED)


def test_default_matmul_precision_matches_jax() -> None:
    def fx_fn(x: Any) -> Any:
        once, _ = fx.lax.scan(lambda c, _: (c @ x, None), x, None, length=1)
        return once, fx.lax.conv(x[None, None], x[None, None], (1, 1), "VALID")

    def jax_fn(x: Any) -> Any:
        once, _ = jax.lax.scan(lambda c, _: (c @ x, None), x, None, length=1)
        return once, jax.lax.conv(x[None, None], x[None, None], (1, 1), "VALID")

    x = np.ones((2, 2), np.float32)
    f = to_jax(fx_fn)
    for precision in (None, "float32", "BF16_BF16_F32", "highest"):
        with jax.default_matmul_precision(precision):
            actual, expected = str(jax.make_jaxpr(f)(x)), str(jax.make_jaxpr(lambda x: jax_fn(x))(x))
        for line in ("precision=None", "HIGHEST", "BF16_BF16_F32"):
            assert actual.count(line) == expected.count(line)


# ------------------------------------------------------------------ closed-over values


def test_closed_over_arrays_share_memory() -> None:
    weights: Any = fx.jit(fnp.arange, static_argnums=0)(1000.0)
    f = to_jax(lambda x: x * weights)
    program = jax.make_jaxpr(f)(1.0)
    (const,) = program.consts
    assert const.unsafe_buffer_pointer() == as_jax(weights).unsafe_buffer_pointer()
    assert jax.make_jaxpr(f)(2.0).consts[0] is const
    assert_same(jax.jit(f)(2.0), 2.0 * weights, SUMMED)
    assert_same(jax.jit(lambda x: f(x) + 1)(3.0), 3 * weights + 1, SUMMED)


def test_closed_over_tracefx_tracer_is_rejected() -> None:
    def outer(y: Any) -> Any:
        return as_tracefx(to_jax(lambda x: x * y)(2.0))

    with pytest.raises(EscapedTracerError, match=r"to_jax: the function closes over .*from_jax is given"):
        fx.make_jaxpr(outer)(1.0)


def test_closed_over_jax_tracer_is_rejected() -> None:
    with pytest.raises(
        TypeError, match=r"multiply: .* got JitTracer.*under a JAX transformation, convert it with .*to_jax"
    ):
        jax.jit(lambda w: to_jax(lambda x: fnp.multiply(x, w))(X))(2.0)
    assert_same(jax.jit(lambda w: to_jax(fnp.multiply)(X, w))(2.0), 2 * X, SUMMED)


# ------------------------------------------------------------------ user-defined rules


@fx.custom_jvp
def with_custom_jvp(x: fx.Array) -> fx.Array:
    return fnp.sin(x)


@with_custom_jvp.defjvp
def _(primals: Sequence[fx.Array], tangents: Sequence[fx.Array]) -> tuple[fx.Array, fx.Array]:
    return with_custom_jvp(*primals), 2 * tangents[0]


@fx.custom_vjp
def with_custom_vjp(x: fx.Array, n: Any) -> Any:
    return x * n


with_custom_vjp.defvjp(
    lambda x, n: (x * n, (x, n)), lambda residuals, ct: (fnp.clip(ct * residuals[1], -1.0, 1.0), 7 * fnp.sum(ct))
)


@fx.custom_batching.custom_vmap
def with_custom_vmap(x: fx.Array) -> fx.Array:
    return x * 2


@with_custom_vmap.def_vmap
def _(size: int, batched: list[bool], x: fx.Array) -> tuple[fx.Array, bool]:
    return x * 3, True


def test_custom_jvp_is_kept() -> None:
    assert_same(to_jax(with_custom_jvp)(X), fnp.sin(X), SUMMED)
    for transformed in (lambda f: f, jax.jit, jax.checkpoint):
        f = transformed(to_jax(with_custom_jvp))
        assert_same(jax.vmap(jax.grad(f))(X), np.full(3, 2, np.float32), SUMMED)
        assert_same(jax.grad(lambda x, f=f: jax.vmap(f)(x).sum())(X), np.full(3, 2, np.float32), SUMMED)
        assert_same(jax.jvp(f, (X,), (X,))[1], 2 * X, SUMMED)


def test_custom_vjp_is_kept() -> None:
    n = np.float32(3)
    for transformed in (lambda f: f, jax.jit, jax.checkpoint):
        f = transformed(to_jax(with_custom_vjp))
        assert_same(f(X, n), X * n, SUMMED)
        assert_same(jax.grad(lambda x, f=f: f(x, n).sum())(X), np.ones(3, np.float32), SUMMED)
        assert_same(
            jax.vmap(jax.grad(f, (0, 1)), (0, None))(X, n), (np.ones(3, np.float32), np.full(3, 7, np.float32)), SUMMED
        )
    # Forward mode transposes the backward pass, which isn't linear.
    with pytest.raises(TypeError, match="linear"):
        jax.jvp(lambda x: to_jax(with_custom_vjp)(x, n), (X,), (X,))


def test_checkpoint_policies_of_jax_apply() -> None:
    for policy in (jax.checkpoint_policies.dots_saveable, jax.checkpoint_policies.nothing_saveable):
        f = jax.checkpoint(lambda x: to_jax(with_custom_jvp)(x).sum(), policy=policy)
        assert_same(jax.grad(f)(X), np.full(3, 2, np.float32), SUMMED)


def test_integers_have_no_derivatives() -> None:
    assert_same(jax.grad(lambda x, n: to_jax(with_custom_vjp)(x, n).sum())(X, 3), np.ones(3, np.float32), SUMMED)
    _, n_gradient = jax.grad(lambda x, n: to_jax(with_custom_vjp)(x, n).sum(), (0, 1), allow_int=True)(X, 3)
    assert n_gradient.dtype == fx.dtypes.float0


def test_custom_jvp_that_closes_over_a_differentiated_value_is_rejected() -> None:
    def f(w: Any, x: Any) -> Any:
        @fx.custom_jvp
        def inner(x: fx.Array) -> Any:
            return w * x

        inner.defjvp(lambda primals, tangents: (inner(*primals), tangents[0]))
        return inner(x)

    assert_same(jax.grad(to_jax(f), 1)(2.0, 3.0), fx.grad(f, 1)(2.0, 3.0), SUMMED)
    with pytest.raises(Exception, match="closes over"):
        fx.grad(f)(2.0, 3.0)
    with pytest.raises(Exception, match="closes over"):
        jax.grad(to_jax(f))(2.0, 3.0)


def test_custom_vmap_is_kept() -> None:
    f = to_jax(with_custom_vmap)
    assert_same(f(X), 2 * X, SUMMED)
    assert_same(jax.vmap(f)(X), 3 * X, SUMMED)
    assert_same(jax.vmap(jax.grad(f))(X), np.full(3, 3, np.float32), SUMMED)
    assert_same(jax.grad(lambda x: jax.vmap(f)(x).sum())(X), np.full(3, 3, np.float32), SUMMED)


def test_user_defined_rules_roundtrip() -> None:
    for f in (with_custom_jvp, with_custom_vmap, lambda x: with_custom_vjp(x, x)):
        assert fx.make_jaxpr(from_jax(to_jax(f)))(X) == fx.make_jaxpr(f)(X)


def test_checkpoint_policies_are_kept() -> None:
    def f(x: fx.Array) -> fx.Array:
        y = fx.checkpoint_name(fnp.sin(x), "kept")
        return fnp.sum(fnp.sin(fnp.exp(y) * 2))

    def count_residuals(policy: Any) -> int:
        g = to_jax(fx.checkpoint(f, policy=policy))
        _, pull = jax.vjp(g, X)
        return len(jax.tree.leaves(pull))

    assert_same(jax.grad(to_jax(fx.checkpoint(f)))(X), fx.grad(f)(X), SUMMED)
    policies = fx.checkpoint_policies
    assert count_residuals(policies.nothing_saveable) == 1
    assert count_residuals(policies.save_only_these_names("kept")) == 2
    assert count_residuals(policies.everything_saveable) > 2
    assert count_residuals(lambda prim, *avals: prim.name == "exp" and avals[0].shape == (3,)) == 2


def test_reverse_mode_of_bounded_loops() -> None:
    def f(x: fx.Array) -> Any:
        return untyped_lax.while_loop(lambda c: fnp.all(abs(c) < 50), lambda c: c * 2, x, max_steps=12)

    assert_same(to_jax(f)(X), fx.jit(f)(X), SUMMED)
    assert_same(jax.grad(lambda x: to_jax(f)(x).sum())(X), fx.grad(lambda x: f(x).sum())(X), SUMMED)

    def g(x: fx.Array) -> Any:
        return untyped_lax.scan(lambda c, a: (c * a, c), np.float32(1), x, checkpoint=2)[0]

    assert_same(jax.grad(to_jax(g))(X), fx.grad(g)(X), SUMMED)


# ------------------------------------------------------------------ callbacks


def test_callbacks_are_called() -> None:
    def f(x: fx.Array) -> Any:
        def host(y: Any) -> Any:
            assert isinstance(y, fx.Array)
            return np.asarray(y) * 2

        return fx.pure_callback(host, fx.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method="sequential")

    assert_same(jax.jit(to_jax(f))(X), 2 * X, SUMMED)
    assert_same(jax.vmap(to_jax(f))(X), 2 * X, SUMMED)
    with pytest.raises(ValueError, match="pure_callback of .* cannot be differentiated"):
        jax.grad(lambda x: to_jax(f)(x).sum())(X)


def test_ordered_effects_run_in_order() -> None:
    seen: list[float] = []

    def f(x: fx.Array) -> Any:
        def host(v: fx.Array) -> fx.Array:
            seen.append(float(v))
            return v

        y = fx.io_callback(host, fx.ShapeDtypeStruct((), x.dtype), x, ordered=True)
        fx.debug.callback(lambda v: seen.append(-float(v)), y, ordered=True)
        return y

    jax.jit(lambda x: jax.lax.map(to_jax(f), x))(X).block_until_ready()
    jax.effects_barrier()
    assert seen == [0.5, -0.5, 1.5, -1.5, -2.0, 2.0]


def test_debug_print(capfd: pytest.CaptureFixture[str]) -> None:
    def f(x: fx.Array) -> fx.Array:
        fx.debug.print("x is {x}", x=x)
        return x

    jax.grad(to_jax(f))(1.5)
    jax.effects_barrier()
    assert capfd.readouterr().out == "x is 1.5\n"


# ------------------------------------------------------------------ libraries that use JAX


def test_training_a_tracefx_model_with_optax() -> None:
    def model_loss(params: Any, x: Any, y: Any) -> Any:
        hidden = fx.nn.relu(x @ params["in"] + params["bias"])
        return fnp.mean((hidden @ params["out"] - y) ** 2)

    draw = np.random.default_rng(0)
    params = {name: draw.normal(size=size).astype(np.float32) for name, size in (("in", (3, 8)), ("out", (8, 1)))}
    params["bias"] = np.zeros(8, np.float32)
    x, y = draw.normal(size=(16, 3)).astype(np.float32), draw.normal(size=(16, 1)).astype(np.float32)
    optimizer = optax.sgd(0.1)

    @jax.jit
    def step(params: Any, state: Any) -> Any:
        value, gradients = jax.value_and_grad(to_jax(model_loss))(params, x, y)
        updates, state = optimizer.update(gradients, state)
        return optax.apply_updates(params, updates), state, value

    @fx.jit
    def fx_step(params: Any) -> Any:
        value, gradients = fx.value_and_grad(model_loss)(params, x, y)
        return fx.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value

    jax_params, state, fx_params, values = params, optimizer.init(params), params, []
    for _ in range(3):
        jax_params, state, value = step(jax_params, state)
        fx_params, expected = fx_step(fx_params)
        assert_near(value, expected)
        values.append(value)
    assert values[-1] < values[0]


# ------------------------------------------------------------------ exported functions as objects


@interop.to_jax
def decorated(x: fx.Array) -> fx.Array:
    return fnp.sin(x)


def test_exported_functions_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    again = pickle.loads(pickle.dumps(to_jax(scaled, static_argnums=1)))
    assert_same(again(X, 3), X * 3, SUMMED)


def scaled(x: Any, n: int) -> Any:
    assert type(n) is int
    return x * n


def test_to_jax_of_methods() -> None:
    class Scaled:
        by = 3.0

        def __call__(self, x: Any) -> Any:
            return to_jax(self._scaled)(x)

        def _scaled(self, x: Any) -> Any:
            return self.by * x

    assert_same(jax.jit(Scaled())(X), 3 * X, SUMMED)
    assert_same(jax.vmap(to_jax(Scaled()._scaled))(X), 3 * X, SUMMED)


def test_caches_are_freed_with_the_function() -> None:
    def f(x: fx.Array) -> fx.Array:
        return fnp.sin(x) * 2

    alive = weakref.ref(f)
    exported = to_jax(f)
    jax.vmap(jax.jit(jax.grad(exported)))(X)
    exported(X)
    del exported, f
    jax.clear_caches()
    gc.collect()
    assert alive() is None


# ------------------------------------------------------------------ invalid arguments, static types


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(TypeError, match="to_jax takes a function, got 3"):
        to_jax(3)
    with pytest.raises(
        TypeError,
        match=r"to_jax of loss: arguments\[0\]\[0\] must be an array or a number, got an object of type object",
    ):
        to_jax(loss)(object())
    with pytest.raises(ValueError, match="names argument 3, but the function takes 1"):
        to_jax(loss, static_argnums=3)


def test_static_types_are_kept() -> None:
    f: Callable[[fx.Array, int], fx.Array] = fnp.repeat
    assert_type(interop.to_jax(f), Callable[[fx.Array, int], fx.Array])
