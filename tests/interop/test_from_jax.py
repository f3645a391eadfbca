"""`from_jax`: imported JAX functions under transformations, their arguments and results, and their errors."""

from __future__ import annotations

import gc
import pickle
import re
import weakref
from functools import partial
from typing import Any, NamedTuple, assert_type

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tracefx as fx
from tests.comparison import assert_near, assert_same
from tests.errors import untyped
from tracefx.control.call import Call
from tracefx.control.scan import Scan
from tracefx.core.jaxpr import Jaxpr
from tracefx.errors import ClosedOverTracerError
from tracefx.interop.jax import as_jax, from_jax
from tracefx.testing.tolerances import DERIVATIVE, ELEMENTARY, SECOND_DERIVATIVE, SUMMED

X = np.array([0.5, -1.0, 2.0], np.float32)


def loss(w: Any, x: Any) -> jax.Array:
    hidden = jax.nn.relu(x * w)
    return jnp.sum(jax.nn.softmax(hidden) * hidden)


# ------------------------------------------------------------------ transformations


def test_transformations_of_imported_functions() -> None:
    imported, w = from_jax(loss), X + 1
    assert_same(imported(w, X), loss(jnp.asarray(w), jnp.asarray(X)), SUMMED)
    gradients = jax.jit(jax.grad(loss, argnums=(0, 1)))(w, X)
    assert_same(fx.grad(imported)(w, X), gradients[0], SUMMED)
    assert_same(fx.jit(fx.grad(imported, argnums=(0, 1)))(w, X), gradients, SUMMED)
    assert_same(fx.grad(fx.checkpoint(imported))(w, X), gradients[0], SUMMED)
    batch = np.stack([w, 2 * w, -w])
    want = jax.jit(jax.vmap(jax.grad(loss), in_axes=(0, None)))(batch, X)
    assert_same(fx.vmap(fx.grad(imported), in_axes=(0, None))(batch, X), want, SUMMED)
    assert_same(fx.jit(fx.hessian(imported))(w, X), jax.jit(jax.hessian(loss))(w, X), SECOND_DERIVATIVE)
    assert_same(fx.jvp(partial(imported, w), (X,), (w,)), jax.jvp(partial(loss, jnp.asarray(w)), (X,), (w,)), SUMMED)


def test_jaxpr_matches_jax() -> None:
    def f(x: Any) -> Any:
        return jnp.where(x > 0, jnp.sin(x), 0.0).astype(jnp.int8)

    actual = str(fx.make_jaxpr(from_jax(f))(X).text("jax"))
    expected = str(jax.make_jaxpr(f)(X))
    assert " ".join(actual.split()) == " ".join(expected.split())


def test_traces_are_cached() -> None:
    traced = []

    @from_jax
    def f(x: Any, n: int = 2) -> Any:
        traced.append((x.shape, str(x.dtype), n))
        return x * n

    f(X), f(X + 1), f(jnp.asarray(X)), f(fx.numpy.asarray(X)), fx.grad(lambda x: f(x).sum())(X)
    assert traced == [((3,), "float32", 2)]
    f(X[:2]), f(X, n=3), f(X, 3), f(X.astype(np.int32))
    assert [n for _, _, n in traced] == [2, 2, 3, 3, 2]
    with jax.default_matmul_precision("highest"):
        f(X)
    assert len(traced) == 6


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("jax_allow_f16_reductions", False),
        ("jax_check_static_indices", True),
        ("jax_default_prng_impl", "rbg"),
        ("jax_enable_custom_prng", True),
        ("jax_numpy_dtype_promotion", "strict"),
        ("jax_numpy_rank_promotion", "raise"),
        ("jax_random_seed_offset", 7),
        ("jax_softmax_custom_jvp", True),
        ("jax_threefry_partitionable", False),
    ],
)
def test_traces_depend_on_jax_settings(setting: str, value: object) -> None:
    traced = []

    @from_jax
    def f(x: Any) -> Any:
        traced.append(getattr(jax.config, setting))
        return jax.random.key_data(jax.random.key(3)), x

    before = getattr(jax.config, setting)
    first, _ = f(X)
    jax.config.update(setting, value)
    try:
        second, _ = f(X)
        assert_same(second, jax.random.key_data(jax.random.key(3)), SUMMED)
    finally:
        jax.config.update(setting, before)
    assert_same(f(X)[0], first, SUMMED)
    assert len(traced) == 2
    assert traced[0] == before != traced[1]


def test_custom_derivatives_are_kept() -> None:
    @jax.custom_jvp
    def f(x: Any, n: Any) -> Any:
        return x * n, n

    @f.defjvp
    def f_jvp(primals: Any, tangents: Any) -> Any:
        (x, n), (t, _) = primals, tangents
        return f(x, n), (100 * t, np.zeros((), jax.dtypes.float0))

    @jax.custom_vjp
    def g(x: Any, scale: Any, n: int) -> Any:
        return jnp.sin(x) * scale, x.sum() > n

    g.defvjp(
        lambda x, scale, n: (g(x, scale, n), (x, scale)),
        lambda res, cts: (7 * cts[0], (cts[0] * res[0]).sum() * res[1], None),
    )

    def total(x: Any, scale: Any) -> Any:
        return f(x, 3)[0].sum() + (g(x, scale, 2)[0] * x).sum()

    assert_same(fx.grad(from_jax(total), argnums=(0, 1))(X, X[0]), jax.grad(total, argnums=(0, 1))(X, X[0]), SUMMED)
    assert_same(fx.jit(fx.grad(from_jax(total)))(X, X[0]), jax.grad(total)(X, X[0]), SUMMED)
    rows = np.stack([X, 2 * X])
    want = jax.vmap(jax.grad(total), in_axes=(0, None))(rows, X[1])
    assert_same(fx.vmap(fx.grad(from_jax(total)), in_axes=(0, None))(rows, X[1]), want, SUMMED)

    # Inside loops and calls too.
    def looped(x: Any, s: Any) -> Any:
        return lax.scan(lambda c, _: (total(c, s) * x, c), x, None, length=2)[0].sum()

    assert_same(fx.grad(from_jax(looped))(X, X[0]), jax.grad(looped)(X, X[0]), DERIVATIVE)


def test_second_derivative_of_custom_vjp() -> None:
    @jax.custom_vjp
    def cube(x: Any) -> Any:
        return x**3

    cube.defvjp(lambda x: (cube(x), x), lambda x, ct: (3 * cube(x) / x * ct,))
    second = fx.grad(fx.grad(from_jax(lambda x: cube(x))))(2.0)
    assert_same(second, jax.grad(jax.grad(cube))(2.0), SUMMED)


def test_custom_jvp_that_closes_over_a_differentiated_value_is_rejected() -> None:
    def f(x: Any) -> Any:
        @jax.custom_jvp
        def inner(y: Any) -> Any:
            return x * y

        inner.defjvp(lambda ps, ts: (inner(*ps), ts[0]))
        return inner(2.0)

    with pytest.raises(ClosedOverTracerError, match="inner is differentiated"):
        fx.grad(from_jax(f))(3.0)


def test_checkpoint_policies_are_kept() -> None:
    def body(x: Any) -> Any:
        return jnp.sin(jnp.cos(x) @ jnp.ones((3, 3))).sum()

    def count_products(policy: Any) -> int:
        program = fx.make_jaxpr(fx.grad(from_jax(jax.checkpoint(body, policy=policy))))(X)
        return str(program).count("dot_general")

    assert count_products(None) == count_products(jax.checkpoint_policies.save_only_these_names("other"))
    assert count_products(jax.checkpoint_policies.dots_saveable) == count_products(None) - 1
    assert count_products(lambda prim, *_, **params: prim.name == "dot_general") == count_products(None) - 1


def test_batching_rules_are_kept() -> None:
    @jax.custom_batching.custom_vmap
    def f(x: Any, y: Any) -> Any:
        return x * y

    @f.def_vmap
    def rule(axis_size: int, in_batched: list[bool], x: Any, y: Any) -> Any:
        assert (axis_size, in_batched) == (3, [True, False])
        return x * y * 10, True

    imported = from_jax(lambda x, y: f(x, y))
    assert imported(2.0, 3.0).tolist() == 6.0
    assert fx.vmap(imported, in_axes=(0, None))(X, 2.0).tolist() == (X * 20).tolist()


def test_collectives_use_named_axes_of_vmap() -> None:
    f = from_jax(lambda x: x / lax.psum(x, "i") + lax.axis_index("i"))
    want = jax.vmap(lambda x: x / lax.psum(x, "i") + lax.axis_index("i"), axis_name="i")(X)
    assert_same(fx.vmap(f, axis_name="i")(X), want, SUMMED)
    with pytest.raises(NameError, match="unbound axis name"):
        f(X)


def test_batched_while_loop_runs_until_all_elements_finish() -> None:
    def halved(x: Any, least: Any) -> Any:
        return lax.while_loop(lambda c: c[0] > least, lambda c: (c[0] / 2, c[1] + 1), (x, 0))

    batched = jax.vmap(halved, in_axes=(0, None))
    xs = np.array([1, 8, 0.25, 100], np.float32)
    assert_same(from_jax(batched)(xs, np.float32(0.5)), batched(xs, np.float32(0.5)), SUMMED)
    both = jax.vmap(jax.vmap(halved, in_axes=(0, None)), in_axes=(0, 0))
    rows, leasts = np.stack([xs, xs + 1]), np.array([0.5, 2], np.float32)
    assert_same(fx.jit(from_jax(both))(rows, leasts), both(rows, leasts), SUMMED)


def test_callbacks_are_called(capsys: pytest.CaptureFixture[str]) -> None:
    seen = []

    @from_jax
    def f(x: Any) -> Any:
        jax.debug.print("x = {x:.1f} and {}", "so on", x=x, ordered=True)
        jax.debug.callback(lambda x: seen.append(x), x)
        return jax.pure_callback(lambda x: np.asarray(2 * x), jax.ShapeDtypeStruct((), jnp.float32), x)

    assert float(fx.jit(f)(np.float32(3))) == 6.0
    assert capsys.readouterr().out == "x = 3.0 and so on\n"
    assert [type(x).__module__.split(".")[0] for x in seen] == ["jaxlib"]


# ------------------------------------------------------------------ arguments and results


class Pair(NamedTuple):
    x: Any
    name: Any


def test_pytrees_of_arguments_and_results() -> None:
    @from_jax
    def f(pair: Pair, extra: dict[str, Any]) -> Any:
        assert pair.name == "first"
        return Pair(pair.x + extra["y"], "second"), [None, extra["y"], 3], {"k": np.float32(2)}

    out = f(Pair(X, "first"), {"y": jnp.ones(3)})
    assert type(out[0]) is Pair
    assert out[0].name == "second"
    assert out[0].x.tolist() == (X + 1).tolist()
    assert out[1][0] is None
    assert out[1][2] == 3
    assert isinstance(out[2]["k"], fx.Array)


def test_python_scalars_are_static() -> None:
    """Python scalars are passed as they are; only transformations of tracefx trace them."""
    sizes = from_jax(lambda n, x: jnp.zeros(n) + x)
    assert sizes(2, 1.5).tolist() == [1.5, 1.5]
    assert from_jax(jnp.sum)(np.ones((2, 3), np.float32), axis=0).tolist() == [2.0, 2.0, 2.0]
    power = from_jax(lambda x, n: x**n)
    assert str(fx.make_jaxpr(lambda x: power(x, 2))(X)).count("integer_pow[y=2]") == 1
    assert power(X, True).dtype == power(X, 1).dtype == np.float32
    assert float(fx.grad(from_jax(lambda x: jnp.sin(x)))(0.0)) == 1.0
    weak = from_jax(lambda x: x * 2)(fx.numpy.asarray(3))
    assert weak.weak_type


def test_unhashable_static_argument_is_rejected() -> None:
    class Holder:
        __hash__ = None  # type: ignore[assignment]  # which makes it unhashable

    f = from_jax(lambda x, *, options: x)
    with pytest.raises(TypeError, match=r"keyword arguments of <lambda>, .*options.*not hashable.*Holder"):
        f(X, options=Holder())
    with pytest.raises(TypeError, match="from_jax takes a function, got 3"):
        untyped(from_jax)(3)


def test_closed_over_tracefx_array_is_rejected() -> None:
    w = fx.numpy.arange(3.0)

    def scaled(x: Any) -> Any:
        return x * w

    def dot(x: jax.Array, y: Any) -> jax.Array:
        return from_jax(lambda x: jnp.dot(x, y))(x)

    message = (
        r"from_jax: {0} closes over {1}, a tracefx array f32\[3\], which JAX cannot trace: pass {1} to the function"
    )
    remedy = " as an argument, or let it close over tracefx.interop.jax.as_jax"
    with pytest.raises(TypeError, match=message.format("scaled", "w") + remedy):
        from_jax(scaled)(X)
    with pytest.raises(TypeError, match=message.format("<lambda>", "w") + remedy):  # in a function that it calls
        fx.jit(from_jax(lambda x: jnp.sum(scaled(x))))(X)
    with pytest.raises(TypeError, match=message.format("<lambda>", "y") + " as an argument$"):  # y is a tracer
        fx.grad(dot, argnums=1)(X, w)
    with pytest.raises(TypeError, match="unsupported operand"):  # an unrelated error is not changed
        from_jax(lambda x: (w, x + None))(X)
    jax_w = as_jax(w)
    assert from_jax(lambda x: x * jax_w)(X).tolist() == [0, -1, 4]


def test_pytree_nodes_not_registered_with_jax_are_rejected() -> None:
    @fx.tree.register_pytree_node_class
    class Box:
        def __init__(self, inside: Any) -> None:
            self.inside = inside

        def tree_flatten(self) -> Any:
            return (self.inside,), None

        @classmethod
        def tree_unflatten(cls, _: None, children: Any) -> Any:
            return cls(*children)

    with pytest.raises(
        TypeError, match="has a .*Box, which is registered as a pytree node with tracefx but not with JAX"
    ):
        from_jax(lambda box: box.inside + 1)(Box(X))


def test_random_keys_as_arguments_and_results() -> None:
    @from_jax
    def f(key: jax.Array) -> Any:
        one, two = jax.random.split(key)
        return jax.random.normal(one, (3,)), two, jax.random.key_data(two)

    numbers, key, words = untyped(f)(fx.random.key(5))
    want_one, want_two = jax.random.split(jax.random.key(5))
    assert_same(numbers, jax.random.normal(want_one, (3,)), SUMMED)
    assert key.dtype == fx.random.key(0).dtype
    assert words.tolist() == jax.random.key_data(want_two).tolist()
    assert_same(fx.vmap(lambda k: f(k)[0])(fx.random.split(fx.random.key(1))), jax.vmap(lambda k: jax.random.normal(jax.random.split(k)[0], (3,)))(jax.random.split(jax.random.key(1))), SUMMED)  # fmt: skip  # noqa: E501
    assert f(jax.random.key(5))[2].tolist() == words.tolist()


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_batched_random_keys_match_jax(impl: str) -> None:
    """JAX's `vmap` draws differently from tracefx's `vmap` for all implementations but Threefry."""

    def f(seed: Any) -> Any:
        def draw(key: Any) -> Any:
            one, two = jax.random.split(key)
            return jax.random.bits(one, (3,)), jax.random.key_data(jax.random.split(two, 2))

        keys = jax.random.split(jax.random.key(seed, impl=impl), 6).reshape(2, 3)
        return jax.vmap(jax.vmap(draw))(keys)

    assert_same(from_jax(f)(3), jax.jit(f)(3), SUMMED)

    def folded(seed: Any, data: Any) -> Any:
        keys = jax.random.split(jax.random.key(seed, impl=impl), 3)
        return jax.random.key_data(jax.vmap(jax.random.fold_in, (0, None if data.ndim == 0 else 0))(keys, data))

    for data in (np.uint32(7), np.arange(3, dtype=np.uint32)):
        assert from_jax(folded)(3, data).tolist() == jax.jit(folded)(3, data).tolist()


def test_operands_are_broadcast_as_in_jax() -> None:
    f = from_jax(lambda x, y: lax.atan2(x, y) * lax.max(y, x))
    assert f(X, X[:1]).shape == (3,)
    assert_same(f(X, X[:1]), lax.atan2(X, X[:1]) * lax.max(X[:1], X), SUMMED)


def test_closed_over_arrays_share_memory() -> None:
    big = jnp.arange(1 << 16, dtype=jnp.float32)
    program = fx.make_jaxpr(from_jax(lambda x: x * big + big))(np.float32(2))
    (const,) = program.consts
    assert np.asarray(const).ctypes.data == big.unsafe_buffer_pointer()


def test_64_bits() -> None:
    wide = np.array([1.0, 2.0])
    with fx.enable_x64():
        out = from_jax(lambda x: jnp.sin(x) * jnp.arange(2))(wide)
        assert out.dtype == np.float64
        assert_near(out, np.sin(wide) * [0, 1], ELEMENTARY)
        assert fx.grad(from_jax(lambda x: jnp.sum(x**2)))(wide).dtype == np.float64
    assert from_jax(lambda x: jnp.sin(x))(wide).dtype == np.float32
    explicit = fx.numpy.array(wide, dtype="float64")
    before = jax.config.jax_explicit_x64_dtypes  # type: ignore[attr-defined]  # JAX defines these attributes dynamically
    try:
        jax.config.update("jax_explicit_x64_dtypes", "allow")
        assert from_jax(lambda x: x + 1)(explicit).dtype == np.float64
        jax.config.update("jax_explicit_x64_dtypes", "warn")
        with pytest.raises(TypeError, match="enable_x64"):
            from_jax(lambda x: x + 1)(explicit)
    finally:
        jax.config.update("jax_explicit_x64_dtypes", before.name.lower())


# ------------------------------------------------------------------ calls, source locations, caches


def test_repeated_jit_calls_share_one_body() -> None:
    @jax.jit
    def layer(x: Any) -> Any:
        return jnp.tanh(x) * 2

    program = fx.make_jaxpr(from_jax(lambda x: layer(layer(layer(x)))))(X)
    calls = [eqn.prim for eqn in program.eqns]
    assert all(isinstance(call, Call) and call.label == "layer" for call in calls)
    bodies = {id(body) for call in calls if isinstance(call, Call) for body in call.jaxprs()}
    assert (len(calls), len(bodies)) == (3, 1)


def names_and_lines(jaxpr: Jaxpr) -> list[str]:
    return [f"{eqn.prim.name} {eqn.source.resolve().line}" for eqn in jaxpr.eqns if eqn.source is not None]


def test_source_locations_are_those_of_the_jax_code() -> None:
    def step(c: Any, x: Any) -> Any:
        c = jnp.sin(c)
        return c * x, c

    def f(x: Any) -> Any:
        with jax.named_scope("outer"):
            x = jax.nn.relu(x)
        return lax.scan(step, x, jnp.ones((2, 3)))[0]

    first, start = f.__code__.co_firstlineno, step.__code__.co_firstlineno
    program = fx.make_jaxpr(from_jax(f))(X)
    relu, _, scan = program.eqns
    assert relu.source is not None
    location = relu.source.resolve()
    assert (location.file, location.line, location.scope) == (__file__, first + 2, ("outer",))
    # Equations of library functions have the location of the call in user code.
    (body,) = relu.prim.jaxprs()  # type: ignore[attr-defined]  # a call, which has a sub-jaxpr
    assert names_and_lines(body) == [f"jit {first + 2}"]
    assert isinstance(scan.prim, Scan)
    assert names_and_lines(scan.prim.jaxpr) == [f"sin {start + 1}", f"mul {start + 2}"]
    error, _ = fx.handlers.checkify(from_jax(lambda x: jnp.log(x)), fx.handlers.nan_checks)(-X)
    message = error.get()
    assert message is not None
    assert re.search(r"test_from_jax.py:\d+", message)


def test_jax_errors_name_the_function_and_its_argument() -> None:
    def branching(params: Any, n: int) -> Any:
        return params["w"] if params["w"] > n else n

    with pytest.raises(jax.errors.TracerBoolConversionError, match=r"branching at .*test_from_jax.py:\d+") as caught:
        from_jax(branching)({"v": X, "w": X[0]}, 2)
    assert "the argument params['w']" in str(caught.value)


def test_function_type_and_name_are_kept() -> None:
    def halved(x: jax.Array, by: float = 2.0) -> jax.Array:
        return x / by

    imported = from_jax(halved)
    assert_type(imported(jnp.ones(3), by=4.0), jax.Array)
    assert_type(fx.jit(imported)(jnp.ones(3)), jax.Array)
    assert imported.__name__ == "halved"
    assert repr(imported) == "from_jax(halved)"
    with pytest.raises(TypeError):
        untyped(imported)(jnp.ones(3), other=4.0)


def test_import_cache_is_weakly_keyed_by_function() -> None:
    traced = []

    def f(x: Any) -> Any:
        traced.append(x)
        return x * 2

    assert from_jax(f)(X).tolist() == from_jax(f)(X).tolist()
    assert len(traced) == 1
    from_jax(f, rules={"mul": lambda x, y, out_dtype: x})(X)
    assert len(traced) == 2
    traced.clear()
    alive = weakref.ref(f)
    del f
    gc.collect()
    assert alive() is None


@from_jax
def decorated(x: Any) -> Any:
    return jnp.sin(x)


def test_imported_functions_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    again = pickle.loads(pickle.dumps(from_jax(loss)))
    assert again(X, X).tolist() == from_jax(loss)(X, X).tolist()


class Model:
    @from_jax
    def double(self, x: Any) -> Any:
        return 2 * x


def test_from_jax_as_method_decorator() -> None:
    model = Model()
    assert model.double(X).tolist() == (2 * X).tolist()
    assert fx.jit(model.double)(X).tolist() == (2 * X).tolist()
