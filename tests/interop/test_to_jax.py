"""Functions of tracefx are functions that JAX traces: all of its transformations apply to them."""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude="jax"

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
from tests.closeness import assert_near
from tracefx.errors import EscapedTracerError
from tracefx.interop import jax as interop
from tracefx.interop.jax import as_jax, as_tracefx, from_jax

X: Final[Any] = np.array([0.5, 1.5, -2.0], np.float32)
free: Any = fx.lax  # for lambdas, which have no types
to_jax: Any = interop.to_jax  # whose results take arrays of JAX, though their types say ours


def loss(x: fx.Array) -> fx.Array:
    return fnp.sum(fnp.sin(x) * x)


def near(got: Any, want: Any) -> None:
    got, want = jax.tree.leaves(got), fx.tree.leaves(want)
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert isinstance(a, jax.Array)
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert_near(a, b)


# ------------------------------------------------------------------ transformations


def test_it_runs() -> None:
    near(to_jax(loss)(X), loss(X))
    near(jax.jit(to_jax(loss))(X), loss(X))


def test_derivatives_are_those_of_tracefx() -> None:
    f = to_jax(loss)
    near(jax.grad(f)(X), fx.grad(loss)(X))
    near(jax.jit(jax.grad(f))(X), fx.grad(loss)(X))
    near(jax.jvp(f, (X,), (X,)), fx.jvp(loss, (X,), (X,)))
    near(jax.linearize(f, X)[1](X), fx.jvp(loss, (X,), (X,))[1])
    near(jax.hessian(f)(X), fx.hessian(loss)(X))
    near(jax.checkpoint(jax.grad(f))(X), fx.grad(loss)(X))


def test_batches_are_those_of_tracefx() -> None:
    xs: Any = np.stack([X, 2 * X])
    near(jax.vmap(to_jax(loss))(xs), fx.vmap(loss)(xs))
    near(jax.vmap(jax.grad(to_jax(loss)))(xs), fx.vmap(fx.grad(loss))(xs))


def test_transformations_of_tracefx_inside() -> None:
    gradient: Any = fx.grad(loss)
    near(to_jax(gradient)(X), gradient(X))
    near(jax.grad(lambda x: to_jax(gradient)(x).sum())(X), fx.grad(lambda x: gradient(x).sum())(X))


def test_inside_of_loops_and_branches_of_jax() -> None:
    f = to_jax(lambda c, x: (c * x, c + x))
    carry, outs = jax.lax.scan(f, jnp.float32(2), X)
    near((carry, outs), fx.lax.scan(lambda c, x: (c * x, c + x), np.float32(2), X))
    near(jax.lax.cond(True, to_jax(fnp.sin), to_jax(fnp.cos), X), fnp.sin(X))


def test_the_program_is_as_if_it_had_been_written_in_jax() -> None:
    def theirs(x: Any, n: Any) -> Any:
        return jax.lax.sin(x * 2) + n, jax.lax.reduce_sum(x, axes=(0,))

    def ours(x: Any, n: Any) -> Any:
        return fx.lax.sin(x * 2) + n, fx.lax.reduce_sum(x, axes=(0,))

    for n in (1, 1.0, np.float32(1)):
        assert str(jax.make_jaxpr(to_jax(ours))(X, n)) == str(jax.make_jaxpr(theirs)(X, n))


def test_jitted_functions_keep_their_names() -> None:
    @fx.jit
    def inner(x: fx.Array) -> fx.Array:
        return fnp.sin(x)

    (eqn,) = jax.make_jaxpr(to_jax(inner))(X).eqns
    assert (eqn.primitive.name, eqn.params["name"]) == ("jit", "inner")


def test_lines_and_scopes_are_those_of_the_function() -> None:
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


def test_errors_of_jax_tell_the_lines_of_the_function() -> None:
    def f(x: fx.Array) -> fx.Array:
        out: fx.Array = free.while_loop(lambda c: fnp.sum(c) < 9.0, lambda c: c * 2, x)
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


def test_a_function_is_traced_once_for_each_kind_of_arguments() -> None:
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


def test_what_runs_is_compiled_once() -> None:
    asked: list[str] = []

    def sine(prim: fx.extend.Primitive, x: jax.Array) -> jax.Array:
        asked.append(prim.name)
        return jnp.sin(x)

    f = to_jax(lambda x: fnp.sin(x) + 1, rules={"sin": sine})
    for _ in range(3):
        near(f(X), fnp.sin(X) + 1)
    assert asked == ["sin"]


# ------------------------------------------------------------------ arguments and results


def test_trees_go_in_and_come_out() -> None:
    def f(tree: dict[str, Any], *, scale: Any) -> Any:
        return {"out": (tree["a"] * scale, None), "n": [tree["b"][0]]}

    got = to_jax(f)({"a": X, "b": [jnp.ones(2)]}, scale=2.0)
    assert jax.tree.map(jnp.shape, got) == {"out": ((3,), None), "n": [(2,)]}
    np.testing.assert_array_equal(got["out"][0], 2 * X)


def test_static_arguments_are_handed_on() -> None:
    def f(x: Any, n: int, how: str) -> Any:
        return x**n if how == "power" else x * n

    for g in (
        to_jax(f, static_argnums=(1, 2)),
        to_jax(f, static_argnames=("n", "how")),
        to_jax(f, static_argnums=1, static_argnames="how"),
    ):
        np.testing.assert_array_equal(g(X, 2, "power"), X**2)
        np.testing.assert_array_equal(jax.vmap(lambda x, g=g: g(x, 3, how="times"))(X), X * 3)
    with pytest.raises(TypeError, match=r"to_jax of f: arguments\[0\]\[2\] must be an array or a number, got 'power'"):
        to_jax(f)(X, 2, "power")


def test_weak_types_stay() -> None:
    f = to_jax(lambda x: x * 2)
    assert jax.make_jaxpr(f)(1.0).out_avals[0].weak_type
    assert not jax.make_jaxpr(f)(np.float32(1)).out_avals[0].weak_type
    assert f(1.0).weak_type
    half = to_jax(lambda x: x + np.float16(1) * 2.0)
    assert half(np.float16(1)).dtype == np.float16


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_random_keys_are_keys(impl: str) -> None:
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


def test_arrays_of_tracefx_are_taken() -> None:
    near(to_jax(loss)(fnp.asarray(X)), loss(X))
    with pytest.raises(TypeError, match=r"traces, but this is a function for JAX: call the function that to_jax was"):
        fx.grad(to_jax(loss))(fnp.asarray(X))


def test_named_axes_are_those_of_jax() -> None:
    def f(x: fx.Array) -> Any:
        return fx.lax.psum(x, "i"), x + fx.lax.axis_index("i"), fx.lax.all_gather(x, "i")

    got = jax.vmap(to_jax(f), axis_name="i")(X)
    near(got, fx.vmap(f, axis_name="i")(X))
    with pytest.raises(NameError, match="i"):
        to_jax(f)(X)


# ------------------------------------------------------------------ numbers of 64 bits


def test_default_numbers_are_jaxs() -> None:
    def f(x: Any) -> Any:
        return fnp.arange(3), x * fnp.ones(3)

    assert [y.dtype for y in to_jax(f)(1.0)] == [np.int32, np.float32]
    with jax.enable_x64(True):
        assert [y.dtype for y in to_jax(f)(1.0)] == [np.int64, np.float64]
        near(jax.grad(to_jax(lambda x: fnp.sum(x * x)))(np.ones(3)), np.full(3, 2.0))


def test_wide_numbers_are_kept_where_jax_narrows() -> None:
    def f(x: fx.Array) -> fx.Array:
        def step(c: fx.Array, _: None) -> Any:
            return c * 2 + 1e-12, None

        wide, _ = fx.lax.scan(step, x.astype("float64"), None, length=2)
        return fnp.sum(wide * fnp.float64(3) - 12 * wide[0]).astype("float32")

    for got in (to_jax(f)(X), jax.jit(to_jax(f))(X)):
        near(got, fx.jit(f)(X))
    near(jax.grad(to_jax(f))(X), fx.grad(f)(X))
    xs: Any = np.stack([X, X])
    near(jax.vmap(to_jax(f))(xs), fx.vmap(f)(xs))


def test_default_precision_is_jaxs() -> None:
    def ours(x: Any) -> Any:
        once, _ = fx.lax.scan(lambda c, _: (c @ x, None), x, None, length=1)
        return once, fx.lax.conv(x[None, None], x[None, None], (1, 1), "VALID")

    def theirs(x: Any) -> Any:
        once, _ = jax.lax.scan(lambda c, _: (c @ x, None), x, None, length=1)
        return once, jax.lax.conv(x[None, None], x[None, None], (1, 1), "VALID")

    x = np.ones((2, 2), np.float32)
    f = to_jax(ours)
    for precision in (None, "float32", "BF16_BF16_F32", "highest"):
        with jax.default_matmul_precision(precision):
            found, wanted = str(jax.make_jaxpr(f)(x)), str(jax.make_jaxpr(lambda x: theirs(x))(x))
        for line in ("precision=None", "HIGHEST", "BF16_BF16_F32"):
            assert found.count(line) == wanted.count(line)


# ------------------------------------------------------------------ what functions close over


def test_arrays_closed_over_are_shared() -> None:
    weights: Any = fx.jit(fnp.arange, static_argnums=0)(1000.0)
    f = to_jax(lambda x: x * weights)
    program = jax.make_jaxpr(f)(1.0)
    (held,) = program.consts
    assert held.unsafe_buffer_pointer() == as_jax(weights).unsafe_buffer_pointer()
    assert jax.make_jaxpr(f)(2.0).consts[0] is held
    near(jax.jit(f)(2.0), 2.0 * weights)
    near(jax.jit(lambda x: f(x) + 1)(3.0), 3 * weights + 1)


def test_a_tracer_closed_over_is_refused() -> None:
    def outer(y: Any) -> Any:
        return as_tracefx(to_jax(lambda x: x * y)(2.0))

    with pytest.raises(EscapedTracerError, match=r"to_jax: the function closes over .*from_jax is given"):
        fx.make_jaxpr(outer)(1.0)


def test_what_jax_traces_must_be_an_argument() -> None:
    with pytest.raises(
        TypeError, match=r"multiply: .* got JitTracer.*under a JAX transformation, convert it with .*to_jax"
    ):
        jax.jit(lambda w: to_jax(lambda x: fnp.multiply(x, w))(X))(2.0)
    near(jax.jit(lambda w: to_jax(fnp.multiply)(X, w))(2.0), 2 * X)


# ------------------------------------------------------------------ rules of functions


@fx.custom_jvp
def doubly(x: fx.Array) -> fx.Array:
    return fnp.sin(x)


@doubly.defjvp
def _(primals: Sequence[fx.Array], tangents: Sequence[fx.Array]) -> tuple[fx.Array, fx.Array]:
    return doubly(*primals), 2 * tangents[0]


@fx.custom_vjp
def clipped(x: fx.Array, n: Any) -> Any:
    return x * n


clipped.defvjp(lambda x, n: (x * n, (x, n)), lambda kept, ct: (fnp.clip(ct * kept[1], -1.0, 1.0), 7 * fnp.sum(ct)))


@fx.custom_batching.custom_vmap
def tripled(x: fx.Array) -> fx.Array:
    return x * 2


@tripled.def_vmap
def _(size: int, batched: list[bool], x: fx.Array) -> tuple[fx.Array, bool]:
    return x * 3, True


def test_a_derivative_of_its_own_is_kept() -> None:
    near(to_jax(doubly)(X), fnp.sin(X))
    for transformed in (lambda f: f, jax.jit, jax.checkpoint):
        f = transformed(to_jax(doubly))
        near(jax.vmap(jax.grad(f))(X), np.full(3, 2, np.float32))
        near(jax.grad(lambda x, f=f: jax.vmap(f)(x).sum())(X), np.full(3, 2, np.float32))
        near(jax.jvp(f, (X,), (X,))[1], 2 * X)


def test_a_backward_pass_of_its_own_is_kept() -> None:
    n = np.float32(3)
    for transformed in (lambda f: f, jax.jit, jax.checkpoint):
        f = transformed(to_jax(clipped))
        near(f(X, n), X * n)
        near(jax.grad(lambda x, f=f: f(x, n).sum())(X), np.ones(3, np.float32))
        near(jax.vmap(jax.grad(f, (0, 1)), (0, None))(X, n), (np.ones(3, np.float32), np.full(3, 7, np.float32)))
    # Forward mode transposes the backward pass, which isn't linear.
    with pytest.raises(TypeError, match="linear"):
        jax.jvp(lambda x: to_jax(clipped)(x, n), (X,), (X,))


def test_policies_of_jax_see_what_was_handed_over() -> None:
    for policy in (jax.checkpoint_policies.dots_saveable, jax.checkpoint_policies.nothing_saveable):
        f = jax.checkpoint(lambda x: to_jax(doubly)(x).sum(), policy=policy)
        near(jax.grad(f)(X), np.full(3, 2, np.float32))


def test_integers_have_no_derivatives() -> None:
    near(jax.grad(lambda x, n: to_jax(clipped)(x, n).sum())(X, 3), np.ones(3, np.float32))
    _, of_n = jax.grad(lambda x, n: to_jax(clipped)(x, n).sum(), (0, 1), allow_int=True)(X, 3)
    assert of_n.dtype == fx.dtypes.float0


def test_what_a_function_closes_over_has_no_derivative_as_in_tracefx() -> None:
    def f(w: Any, x: Any) -> Any:
        @fx.custom_jvp
        def inner(x: fx.Array) -> Any:
            return w * x

        inner.defjvp(lambda primals, tangents: (inner(*primals), tangents[0]))
        return inner(x)

    near(jax.grad(to_jax(f), 1)(2.0, 3.0), fx.grad(f, 1)(2.0, 3.0))
    with pytest.raises(Exception, match="closes over"):
        fx.grad(f)(2.0, 3.0)
    with pytest.raises(Exception, match="closes over"):
        jax.grad(to_jax(f))(2.0, 3.0)


def test_a_batch_of_its_own_is_kept() -> None:
    f = to_jax(tripled)
    near(f(X), 2 * X)
    near(jax.vmap(f)(X), 3 * X)
    near(jax.vmap(jax.grad(f))(X), np.full(3, 3, np.float32))
    near(jax.grad(lambda x: jax.vmap(f)(x).sum())(X), np.full(3, 3, np.float32))


def test_rules_come_back() -> None:
    for f in (doubly, tripled, lambda x: clipped(x, x)):
        assert fx.make_jaxpr(from_jax(to_jax(f)))(X) == fx.make_jaxpr(f)(X)


def test_checkpoints_keep_what_their_policy_says() -> None:
    def f(x: fx.Array) -> fx.Array:
        y = fx.checkpoint_name(fnp.sin(x), "kept")
        return fnp.sum(fnp.sin(fnp.exp(y) * 2))

    def saved(policy: Any) -> int:
        g = to_jax(fx.checkpoint(f, policy=policy))
        _, pull = jax.vjp(g, X)
        return len(jax.tree.leaves(pull))

    near(jax.grad(to_jax(fx.checkpoint(f)))(X), fx.grad(f)(X))
    policies = fx.checkpoint_policies
    assert saved(policies.nothing_saveable) == 1
    assert saved(policies.save_only_these_names("kept")) == 2
    assert saved(policies.everything_saveable) > 2
    assert saved(lambda prim, *avals: prim.name == "exp" and avals[0].shape == (3,)) == 2


def test_bounded_loops_go_back() -> None:
    def f(x: fx.Array) -> Any:
        return free.while_loop(lambda c: fnp.all(abs(c) < 50), lambda c: c * 2, x, max_steps=12)

    near(to_jax(f)(X), fx.jit(f)(X))
    near(jax.grad(lambda x: to_jax(f)(x).sum())(X), fx.grad(lambda x: f(x).sum())(X))

    def g(x: fx.Array) -> Any:
        return free.scan(lambda c, a: (c * a, c), np.float32(1), x, checkpoint=2)[0]

    near(jax.grad(to_jax(g))(X), fx.grad(g)(X))


# ------------------------------------------------------------------ the host


def test_callbacks_are_called() -> None:
    def f(x: fx.Array) -> Any:
        def host(y: Any) -> Any:
            assert isinstance(y, fx.Array)
            return np.asarray(y) * 2

        return fx.pure_callback(host, fx.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method="sequential")

    near(jax.jit(to_jax(f))(X), 2 * X)
    near(jax.vmap(to_jax(f))(X), 2 * X)
    with pytest.raises(ValueError, match="pure_callback of .* cannot be differentiated"):
        jax.grad(lambda x: to_jax(f)(x).sum())(X)


def test_effects_happen() -> None:
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


def test_prints_are_printed(capfd: pytest.CaptureFixture[str]) -> None:
    def f(x: fx.Array) -> fx.Array:
        fx.debug.print("x is {x}", x=x)
        return x

    jax.grad(to_jax(f))(1.5)
    jax.effects_barrier()
    assert capfd.readouterr().out == "x is 1.5\n"


# ------------------------------------------------------------------ libraries of JAX


def test_optax_trains_a_model_of_tracefx() -> None:
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
        value, slopes = jax.value_and_grad(to_jax(model_loss))(params, x, y)
        updates, state = optimizer.update(slopes, state)
        return optax.apply_updates(params, updates), state, value

    @fx.jit
    def ours(params: Any) -> Any:
        value, slopes = fx.value_and_grad(model_loss)(params, x, y)
        return fx.tree.map(lambda p, g: p - 0.1 * g, params, slopes), value

    theirs, state, mine, values = params, optimizer.init(params), params, []
    for _ in range(3):
        theirs, state, value = step(theirs, state)
        mine, wanted = ours(mine)
        assert_near(value, wanted)
        values.append(value)
    assert values[-1] < values[0]


# ------------------------------------------------------------------ as functions


@interop.to_jax
def decorated(x: fx.Array) -> fx.Array:
    return fnp.sin(x)


def test_they_are_pickled() -> None:
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    again = pickle.loads(pickle.dumps(to_jax(weighed, static_argnums=1)))
    near(again(X, 3), X * 3)


def weighed(x: Any, n: int) -> Any:
    assert type(n) is int
    return x * n


def test_methods_may_be_decorated() -> None:
    class Scaled:
        by = 3.0

        def __call__(self, x: Any) -> Any:
            return to_jax(self._scaled)(x)

        def _scaled(self, x: Any) -> Any:
            return self.by * x

    near(jax.jit(Scaled())(X), 3 * X)
    near(jax.vmap(to_jax(Scaled()._scaled))(X), 3 * X)


def test_what_was_made_goes_with_the_function() -> None:
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


# ------------------------------------------------------------------ bad input


def test_bad_input_is_refused() -> None:
    with pytest.raises(TypeError, match="to_jax takes a function, got 3"):
        to_jax(3)
    with pytest.raises(
        TypeError, match=r"to_jax of loss: arguments\[0\]\[0\] must be an array or a number, got <object"
    ):
        to_jax(loss)(object())
    with pytest.raises(ValueError, match="names argument 3, but the function takes 1"):
        to_jax(loss, static_argnums=3)


def test_types_are_kept() -> None:
    f: Callable[[fx.Array, int], fx.Array] = fnp.repeat
    assert_type(interop.to_jax(f), Callable[[fx.Array, int], fx.Array])
