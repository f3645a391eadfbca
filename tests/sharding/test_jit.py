"""`jit` on sharded arrays: values and shardings agree with JAX's."""

from __future__ import annotations

from typing import Any, Final

import jax
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.cases import parametrize_functions
from tests.comparison import assert_near
from tests.errors import assert_errors
from tests.sharding.both import JAX, TRACEFX, Library
from tests.sharding.test_arrays import put
from tests.sharding.test_meshes import on
from tracefx import P
from tracefx.sharding import AxisType, SingleDeviceSharding
from tracefx.xla.runtime import executables

X: Final = np.arange(32, dtype=np.float32).reshape(8, 4) / 10
W: Final = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)


def device_indices(x: Any) -> dict[int, Any]:
    return {device.id: index for device, index in x.sharding.devices_indices_map(x.shape).items()}


def assert_agrees_with_jax(program: Any, check_shardings: bool = True) -> None:
    """Values agree with JAX's, and by default the shardings too."""
    actual, expected = (jax.tree.leaves(program(library)) for library in (TRACEFX, JAX))
    assert len(actual) == len(expected) > 0
    for got, want in zip(actual, expected, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        assert_near(got, want)
        if check_shardings:
            assert device_indices(got) == device_indices(want), f"{got.sharding} where JAX has {want.sharding}"


# ------------------------------------------------------------------ input and output shardings


def _layer(lib: Library) -> Any:
    return lambda x, w: lib.np.tanh(x @ w)


def sharded_arguments(lib: Library) -> Any:
    return lib.m.jit(_layer(lib))(put(lib, "x", x=X), put(lib, None, "y", x=W))


def in_shardings_per_argument(lib: Library) -> Any:
    return lib.m.jit(_layer(lib), in_shardings=(on(lib, "x"), on(lib, None, "y")))(X, W)


def gradients_of_integers(lib: Library) -> Any:
    """They have no elements, so no device has them."""
    slope = lib.m.grad(lambda x, n: lib.np.sum(x * n), (0, 1), allow_int=True)
    f = lib.m.jit(slope, in_shardings=(on(lib, "x"), on(lib)), out_shardings=on(lib))
    x, n = f(X, np.arange(4, dtype=np.int32))
    assert (n.shape, n.dtype) == ((4,), fx.dtypes.float0)
    return x


def constraints_along_automatic_axes_of_a_shard_map(lib: Library) -> Any:
    def body(x: Any) -> Any:
        return lib.lax.with_sharding_constraint(x, lib.P(None, "y")) * 2

    with lib.m.set_mesh(lib.mesh):
        return lib.m.jit(lib.shard_map(body, lib.P("x"), lib.P("x"), axis_names={"x"}))(X)


def one_in_sharding(lib: Library) -> Any:
    return lib.m.jit(_layer(lib), in_shardings=on(lib))(X, W)


def in_sharding_none(lib: Library) -> Any:
    return lib.m.jit(_layer(lib), in_shardings=(on(lib, "x"), None))(X, W)


def in_shardings_tree(lib: Library) -> Any:
    f = lib.m.jit(lambda d, w: d["a"] @ w + d["b"], in_shardings=({"a": on(lib, "x"), "b": on(lib, "y")}, None))
    return f({"a": X, "b": X[:, :1]}, W)


def in_shardings_tree_prefix(lib: Library) -> Any:
    return lib.m.jit(lambda d, w: (d["a"] @ w, d["b"]), in_shardings=(on(lib, "x"), None))({"a": X, "b": X}, W)


def in_sharding_of_the_argument(lib: Library) -> Any:
    return lib.m.jit(lambda x: x * 2, in_shardings=on(lib, "x"))(put(lib, "x", x=X))


def out_shardings_tree(lib: Library) -> Any:
    shardings = {"a": on(lib, "x"), "b": on(lib, "y")}
    return lib.m.jit(lambda x: {"a": x * 2, "b": (x - 1, x + 1)}, out_shardings=shardings)(X)


def one_value_with_two_out_shardings(lib: Library) -> Any:
    def f(x: Any) -> Any:
        y = x * 2
        return y, y, y

    return lib.m.jit(f, out_shardings=(on(lib, "x"), on(lib, "y"), on(lib, "x")))(X)


def forwarded_inputs(lib: Library) -> Any:
    f = lib.m.jit(lambda x: (x, x, x + 1), out_shardings=(on(lib, "y"), on(lib, "x"), on(lib)))
    return f(put(lib, "x", x=X)), f(X)


def constants(lib: Library) -> Any:
    return lib.m.jit(lambda x: (lib.np.ones((8, 4)), 3.0), out_shardings=(on(lib, "y"), on(lib)))(put(lib, "x", x=X))


def static_arguments(lib: Library) -> Any:
    f = lib.m.jit(lambda x, n, w: x @ w * n, in_shardings=(on(lib, "x"), None), static_argnums=1)
    return f(X, 3, W), f(X, 4, W)


def partition_specs(lib: Library) -> Any:
    with lib.m.set_mesh(lib.mesh):
        f = lib.m.jit(lambda x: (x * 2, x - 1), in_shardings=lib.P("x"), out_shardings=(lib.P("y"), lib.P()))
        return f(X)


def subset_of_the_devices(lib: Library) -> Any:
    mesh = lib.Mesh(np.array(lib.m.devices()[4:6]), ("z",))
    return lib.m.jit(lambda x: x * 2)(lib.m.device_put(X, lib.m.sharding.NamedSharding(mesh, lib.P("z"))))


def single_device(lib: Library) -> Any:
    return lib.m.jit(_layer(lib))(lib.m.device_put(X, lib.m.devices()[3]), W)


def two_meshes(lib: Library) -> Any:
    flat = lib.m.sharding.NamedSharding(lib.mesh_of((8,), ("z",)), lib.P("z"))
    return lib.m.jit(lambda x, y: x + y)(put(lib, "x", x=X), lib.m.device_put(X, flat))


def test_device_put_has_no_effect_while_a_function_is_traced() -> None:
    def placements(library: Library) -> list[tuple[bool, set[int]]]:
        first, second = library.m.devices()[1:3]

        def f(x: Any) -> Any:
            return x + library.m.device_put(1.0, first)

        x = library.m.device_put(X, second)
        loop = library.lax.scan(lambda c, _: (f(c), None), 1.0, None, length=2)[0]
        outs = [library.m.jit(f)(X), library.m.jit(f)(x), loop, f(X)]
        return [(out.committed, {d.id for d in out.devices()}) for out in outs]

    assert placements(TRACEFX) == placements(JAX) == [(False, {0}), (True, {2}), (False, {0}), (True, {1})]


def _constrained_to_a_device(lib: Library) -> list[Any]:
    """Functions that compute on one device: by a constraint, the device of `jit`, and shardings of `jit`."""
    device = lib.m.devices()[3]
    sharding = lib.m.sharding.SingleDeviceSharding(device)
    return [
        lambda x: lib.lax.with_sharding_constraint(lib.np.sin(x), sharding),
        lambda x: lib.m.device_put(lib.np.sin(x), sharding),
        lib.m.jit(lib.np.sin, in_shardings=sharding),
        lib.m.jit(lib.np.sin, out_shardings=sharding),
    ]


@pytest.mark.parametrize("case", range(4))
def test_functions_constrained_to_a_device_are_under_transformations(case: int) -> None:
    def program(lib: Library) -> Any:
        f = _constrained_to_a_device(lib)[case]
        slope = lib.m.grad(lambda x: (f(x) ** 2).sum())
        return [f(X), lib.m.jit(f)(X), lib.m.vmap(f)(X), lib.m.jvp(f, (X,), (X,)), lib.m.jit(slope)(X)]

    assert_agrees_with_jax(program)


def test_device_put_of_the_tracers_of_eager_transformations() -> None:
    def program(lib: Library) -> Any:
        def f(x: Any) -> Any:
            return lib.m.device_put(x, lib.m.devices()[2]) * 2

        return [lib.m.vmap(f)(X), lib.m.jvp(f, (X,), (X,)), lib.m.grad(lambda x: f(x).sum())(X)]

    assert_agrees_with_jax(program)
    x = fx.device_put(X, fx.devices()[1])
    with pytest.raises(ValueError, match="input 0 is on device 1, but it refers to .* with device 2"):
        fx.vmap(lambda x: fx.device_put(x, fx.devices()[2]))(x)


@pytest.mark.parametrize("f", [lambda x: x, lambda x: x * 2])
def test_compiled_functions_check_the_shardings_of_their_arguments(f: Any) -> None:
    for lib in (TRACEFX, JAX):
        compiled = lib.m.jit(f, in_shardings=on(lib, "x", "y")).lower(X).compile()
        assert compiled(put(lib, "x", "y", x=X)).sharding == on(lib, "x", "y")
        with pytest.raises(ValueError, match="sharding"):
            compiled(put(lib, "x", x=X))


def test_results_have_the_sharding_of_an_input_with_the_same_tiles() -> None:
    def sharding(lib: Library, x: Any) -> Any:
        return lib.m.sharding.NamedSharding(lib.mesh_of((1, 8, 1), ("x", "y", "z")), lib.P("x", "y", x))

    for lib in (TRACEFX, JAX):
        for given in (sharding(lib, "z"), sharding(lib, None)):
            x = lib.m.device_put(X[:, :1].reshape(1, 8, 1), given)
            assert (x + 1).sharding == given == lib.m.jit(lambda x: x.sum() * x)(x).sharding


def test_eval_shape_has_the_requested_shardings() -> None:
    for library in (TRACEFX, JAX):
        f = library.m.jit(lambda x: (x, x), out_shardings=(on(library, "x"), None))
        assert [out.sharding for out in library.m.eval_shape(f, X)] == [on(library, "x"), None]


def test_in_shardings_do_not_apply_to_keyword_arguments() -> None:
    y = fx.jit(lambda x, *, w: x @ w, in_shardings=on(TRACEFX, "x"))(X, w=W)
    assert_near(y, X @ W)
    assert y.sharding == on(TRACEFX, "x")


def test_sharding_with_devices_in_reverse_order() -> None:
    backwards = fx.NamedSharding(fx.Mesh(fx.devices()[::-1], "all"), P("all"))
    x = put(TRACEFX, "x", x=X)
    y = fx.jit(lambda x: x * 2, out_shardings=backwards)(x)
    assert y.sharding == backwards
    assert [s.device.id for s in y.addressable_shards] == [7, 6, 5, 4, 3, 2, 1, 0]
    np.testing.assert_array_equal(y.addressable_shards[0].data, X[:1] * 2)
    np.testing.assert_array_equal(y, X * 2)
    np.testing.assert_array_equal(x + y, X * 3)
    np.testing.assert_array_equal(fx.jit(lambda y: y + 1, in_shardings=backwards)(y), X * 2 + 1)


def test_partition_specs_use_the_current_mesh() -> None:
    f = fx.jit(lambda x: x * 2, out_shardings=P("x"))
    one, two = fx.make_mesh((4, 2), ("x", "y")), fx.make_mesh((2, 4), ("x", "y"))
    for mesh in (one, two, one):
        for x in (X, fnp.asarray(X), fx.device_put(X, fx.NamedSharding(mesh, P("x")))):
            with fx.set_mesh(mesh):
                assert f(x).sharding == fx.NamedSharding(mesh, P("x"))
    with pytest.raises(ValueError, match=r"out_shardings: P\('x'\) names axes of a mesh, but no mesh is set"):
        f(X)


def test_jit_follows_the_shardings_of_its_arguments() -> None:
    f = fx.jit(lambda x: x * 2)
    first_device = SingleDeviceSharding(fx.devices()[0])
    for parts in (None, ("x",), None, ("y",), ("x",), None):
        for x, sharding in (
            ((X, first_device), (fnp.asarray(X), first_device))
            if parts is None
            else ((put(TRACEFX, *parts, x=X), on(TRACEFX, *parts)),)
        ):
            y = f(x)
            np.testing.assert_array_equal(y, X * 2)
            assert y.sharding == sharding


# ------------------------------------------------------------------ constraints, transformations, control flow


def constraint(lib: Library) -> Any:
    return lib.m.jit(lambda x: lib.lax.with_sharding_constraint(x * 2, on(lib, "y")))(X)


def constraint_of_some_axes(lib: Library) -> Any:
    spec = on(lib, lib.P.UNCONSTRAINED, "y")
    return lib.m.jit(lambda x: lib.lax.with_sharding_constraint(x * 2, spec))(put(lib, "x", x=X))


def eager_constraint(lib: Library) -> Any:
    return lib.lax.with_sharding_constraint(put(lib, "x", x=X), on(lib, "y")), lib.lax.with_sharding_constraint(
        X, on(lib, "y")
    )


def constraint_in_a_batch(lib: Library) -> Any:
    return lib.m.jit(lib.m.vmap(lambda x: lib.lax.with_sharding_constraint(x * x, on(lib, "y"))))(X)


def gradient_of_a_constraint(lib: Library) -> Any:
    return lib.m.grad(lambda x: lib.np.sum(lib.lax.with_sharding_constraint(x * x, on(lib, "y"))))(X)


def nested_out_shardings(lib: Library) -> Any:
    return lib.m.jit(lambda x: lib.m.jit(lambda y: y + 1, out_shardings=on(lib, "y"))(x) * 2)(put(lib, "x", x=X))


def nested_in_shardings(lib: Library) -> Any:
    return lib.m.jit(lambda x: lib.m.jit(lambda y: y + 1, in_shardings=on(lib, "y"))(x) * 2)(X)


def gradient_of_jit(lib: Library) -> Any:
    f = lib.m.jit(_layer(lib), in_shardings=(on(lib, "x"), on(lib, None, "y")))
    return lib.m.grad(lambda w: lib.np.sum(f(X, w)))(W)


def batch_of_jit(lib: Library) -> Any:
    return lib.m.vmap(lib.m.jit(lambda x: x * 2, in_shardings=on(lib, "x"), out_shardings=on(lib, "y")))(X)


def jit_of_gradient(lib: Library) -> Any:
    grad = lib.m.grad(lambda w: lib.np.sum(lib.np.tanh(X @ w)))
    return lib.m.jit(grad, in_shardings=on(lib, None, "y"), out_shardings=on(lib, "x"))(W)


def scan(lib: Library) -> Any:
    return lib.m.jit(lambda x: lib.lax.scan(lambda c, r: (c + r, c * 2), lib.np.zeros(4), x))(put(lib, "x", x=X))


def loop(lib: Library) -> Any:
    return lib.m.jit(lambda x: lib.lax.fori_loop(0, 3, lambda i, c: c * 2 + i, x))(put(lib, "x", x=X))


def eager_loop(lib: Library) -> Any:
    return lib.lax.while_loop(lambda c: lib.np.sum(c) < 1000, lambda c: c * 2, put(lib, "x", x=X))


def eager_branch(lib: Library) -> Any:
    x = put(lib, "x", x=X)
    return lib.lax.cond(lib.np.sum(x) > 0, lambda c: c * 2, lambda c: c, x)


def checkpoint(lib: Library) -> Any:
    f = lib.m.checkpoint(lambda y: lib.np.sin(lib.np.sin(y)))
    return lib.m.grad(lambda x: lib.np.sum(f(x)))(put(lib, "x", x=X))


def custom_rule(lib: Library) -> Any:
    f = lib.m.custom_vjp(lib.np.sin)
    f.defvjp(lambda x: (lib.np.sin(x), x), lambda x, ct: (3 * ct * lib.np.cos(x),))
    return lib.m.grad(lambda x: lib.np.sum(f(x)))(put(lib, "x", x=X))


def decomposition(lib: Library) -> Any:
    return lib.m.jit(lambda x: lib.np.linalg.cholesky(x @ x.T + 10 * lib.np.eye(8)))(put(lib, "x", x=X))


def batch_of_decompositions(lib: Library) -> Any:
    def f(x: Any) -> Any:
        m = x[:, None] * x[:, :, None] + 10 * lib.np.eye(4)
        return lib.np.linalg.inv(m), lib.np.linalg.cholesky(m), lib.np.linalg.eigvalsh(m), lib.np.linalg.qr(m)[1]

    return lib.m.jit(f)(put(lib, "x", x=X))


def sorting(lib: Library) -> Any:
    return lib.m.jit(lambda x: (lib.np.sort(-x, 0), lib.np.cumsum(x, 0)))(put(lib, "x", x=X))


def random_numbers(lib: Library) -> Any:
    return lib.m.jit(lambda key: lib.m.random.normal(key, (8, 4)), out_shardings=on(lib, "x"))(lib.m.random.key(3))


def empty_array(lib: Library) -> Any:
    return lib.m.jit(lambda x: x + 1)(put(lib, "x", x=X[:0]))


@parametrize_functions(globals(), "lib")
def test_values_and_shardings_agree_with_jax(program: Any) -> None:
    assert_agrees_with_jax(program)


def closed_over(lib: Library) -> Any:
    x = put(lib, "x", x=X)
    return lib.m.jit(lambda y: x + y)(X), lib.m.jit(lambda y: x + y)(put(lib, "y", x=X))


def test_closed_over_sharded_arrays() -> None:
    assert_agrees_with_jax(closed_over, check_shardings=False)  # JAX chooses another sharding


def test_closed_over_arrays_determine_the_devices() -> None:
    x = put(TRACEFX, "x", x=X)
    assert fx.jit(lambda y: x + y)(X).sharding == on(TRACEFX, "x")
    compiled = fx.jit(lambda y: (x * y).sum()).lower(X).compile()
    assert [c.kind for c in compiled.collectives()] == ["all-reduce"]
    assert_near(compiled(X), (X * X).sum())


def test_batched_decompositions_need_no_collectives() -> None:
    x = put(TRACEFX, "x", x=X[:, None] * X[:, :, None] + 10 * np.eye(4, dtype=np.float32))
    for f in (fnp.linalg.cholesky, fnp.linalg.eigh, fnp.linalg.qr, fnp.linalg.svd):
        assert fx.jit(f).lower(x).compile().collectives() == ()


# ------------------------------------------------------------------ donation


def test_donation_reuses_shard_buffers() -> None:
    x = put(TRACEFX, "x", x=X) * 1  # a new buffer, not shared with NumPy
    addresses = [np.asarray(s.data).__array_interface__["data"][0] for s in x.addressable_shards]
    double = fx.jit(lambda x: x * 2, donate_argnums=0)
    memory = double.lower(x).compile().memory_analysis()
    assert memory.alias_bytes == memory.argument_bytes == X.nbytes // 4
    y = double(x)
    assert [np.asarray(s.data).__array_interface__["data"][0] for s in y.addressable_shards] == addresses
    np.testing.assert_array_equal(y, X * 2)
    assert x.is_deleted()
    with pytest.raises(RuntimeError, match="was donated as the argument `x` of <lambda>: use the output"):
        np.asarray(x)
    with pytest.raises(RuntimeError, match="was donated as the argument `x` of <lambda>: use the output"):
        double(x)


def test_donated_array_as_second_argument_is_rejected() -> None:
    f = fx.jit(_named("f", lambda x, y: x + y), donate_argnums=0)
    x = put(TRACEFX, "x", x=X)
    with pytest.raises(ValueError, match=r"f was given one array, .*, as parameters 0 and 1"):
        f(x, x)
    np.testing.assert_array_equal(f(x, put(TRACEFX, "x", x=X)), X * 2)


def test_donation_does_not_modify_host_arrays() -> None:
    host = X.copy()
    double = fx.jit(lambda x: x * 2, donate_argnums=0, in_shardings=on(TRACEFX, "x"))
    for x in (host, fnp.asarray(host)):
        np.testing.assert_array_equal(double(x), X * 2)
    np.testing.assert_array_equal(host, X)


@pytest.mark.parametrize("parts", [("x",), ("x", "y"), ()], ids=str)
def test_numpy_arguments_may_be_modified_after_the_call(parts: Any) -> None:
    host = np.ones((1024, 64), np.float32)
    same, more = fx.jit(lambda x: (x, x + 1), in_shardings=on(TRACEFX, *parts))(host)
    host[:] = 5
    np.testing.assert_array_equal(same, np.ones_like(host))
    np.testing.assert_array_equal(more, np.full_like(host, 2))


# ------------------------------------------------------------------ callbacks


def test_callbacks_see_whole_arrays(capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[tuple[int, ...]] = []

    def double(a: Any) -> Any:
        seen.append(a.shape)
        return np.asarray(a) * 2

    @fx.jit
    def f(x: Any) -> Any:
        fx.debug.print("the sum is {}", x.sum())
        return fx.pure_callback(double, fx.ShapeDtypeStruct(X.shape, "float32"), x) + 1

    np.testing.assert_array_equal(f(put(TRACEFX, "x", x=X)), X * 2 + 1)
    assert seen == [X.shape]
    assert capfd.readouterr().out.startswith("the sum is 49.6")
    keys = put(TRACEFX, "x", x=fx.random.split(fx.random.key(0), 8))
    same = fx.jit(lambda k: fx.pure_callback(lambda k: k, fx.ShapeDtypeStruct(k.shape, k.dtype), k))(keys)
    np.testing.assert_array_equal(fx.random.key_data(same), fx.random.key_data(keys))


def test_callbacks_in_shard_map_see_shards() -> None:
    def f(x: Any) -> Any:
        return fx.pure_callback(lambda a: np.asarray(a) + len(a), fx.ShapeDtypeStruct(x.shape, "float32"), x)

    g = fx.shard_map(f, mesh=TRACEFX.mesh, in_specs=P("x"), out_specs=P("x"))
    np.testing.assert_array_equal(fx.jit(g)(X), X + 2)


def test_error_in_a_callback_ends_the_program_on_all_devices() -> None:
    error = KeyError("no such thing")

    def fail(a: Any) -> Any:
        raise error

    @fx.jit
    def f(x: Any) -> Any:
        return fx.pure_callback(fail, fx.ShapeDtypeStruct(X.shape, "float32"), x) @ W

    for _ in range(2):
        with pytest.raises(KeyError) as caught:
            f(put(TRACEFX, "x", x=X))
        assert caught.value is error


# ------------------------------------------------------------------ errors


def test_arguments_on_different_devices_are_rejected() -> None:
    x: Any = put(TRACEFX, "x", x=X)
    y, z = (fx.device_put(X, fx.devices()[k]) for k in (3, 1))
    placement = "input 0 is on devices 0, 1, 2, 3, 4, 5, 6, 7, but input 1 is on device 3"
    named = "the argument `x` of f is on devices 0, 1, 2, 3, 4, 5, 6, 7, but the argument `y` of f is on device 3"
    assert_errors(
        (lambda: x + y, ValueError, f"add can't run: {placement}. .* move arrays with device_put"),
        (lambda: fx.jit(_named("f", lambda x, y: x + y))(x, y), ValueError, f"f can't run: {named}"),
        (lambda: z + y, ValueError, "input 0 is on device 1, but input 1 is on device 3"),
    )
    with pytest.raises(
        ValueError,
        match=r"f can't run: the argument `x` of f is on devices 0, .* but output 0 is requested on device 1",
    ):
        fx.jit(_named("f", lambda x: x * 2), out_shardings=SingleDeviceSharding(fx.devices()[1]))(x)


def _named(name: str, f: Any) -> Any:
    f.__name__ = name
    return f


def test_invalid_shardings_are_rejected() -> None:
    x_wise = on(TRACEFX, "x")
    with pytest.raises(
        ValueError, match=r"input 0, f32\[8,4\], has sharding .*, but in_shardings requests .*P\('x'\)\): move"
    ):
        fx.jit(lambda x: x, in_shardings=x_wise)(put(TRACEFX, "y", x=X))
    with pytest.raises(
        ValueError, match=r"input 0 of f, f32\[6,4\], can't have the sharding .* 4 equal pieces along axis 0"
    ):
        fx.jit(_named("f", lambda x: x), in_shardings=x_wise)(X[:6])
    with pytest.raises(
        ValueError, match=r"input 0 of f, f32\[4\], .* P\('x', 'y'\) has 2 entries, but the array has 1 axes"
    ):
        fx.jit(_named("f", lambda x: x), in_shardings=on(TRACEFX, "x", "y"))(X[0])
    with pytest.raises(ValueError, match=r"output 0 of f, f32\[3,4\], can't have the sharding"):
        fx.jit(_named("f", lambda x: x[:3]), out_shardings=x_wise)(X)
    with pytest.raises(
        ValueError, match=r"the operand of with_sharding_constraint, f32\[3,4\], can't have the sharding"
    ):
        fx.jit(lambda x: fx.lax.with_sharding_constraint(x[:3], x_wise))(X)
    with pytest.raises(TypeError, match="in_shardings takes a sharding or a PartitionSpec, got 3 of type int"):
        fx.jit(lambda x: x, in_shardings=3)(X)
    with pytest.raises(ValueError, match="in_shardings must have the structure of the arguments"):
        fx.jit(lambda x, y: x, in_shardings=(x_wise,))(X, X)
    with pytest.raises(ValueError, match="out_shardings must have the structure of the output"):
        fx.jit(lambda x: (x, x), out_shardings=(x_wise,))(X)


# ------------------------------------------------------------------ stages


def test_shardings_of_compiled_programs() -> None:
    for library in (TRACEFX, JAX):
        f = library.m.jit(lambda x, w: x @ w, in_shardings=(on(library, "x"), None))
        compiled = f.lower(X, W).compile()
        (args, kwargs), out = compiled.input_shardings, compiled.output_shardings
        assert (args, kwargs) == ((on(library, "x"), on(library)), {})
        assert out == on(library, "x")
        (args, _), out = (
            (c := library.m.jit(lambda x, w: x @ w).lower(X, W).compile()).input_shardings,
            c.output_shardings,
        )
        assert all(s.device_set == {library.m.devices()[0]} for s in (*args, out))


def test_lowering_with_shardings_of_shape_dtype_structs() -> None:
    sharding = on(TRACEFX, "x")
    compiled = fx.jit(lambda x: x * 2).lower(fx.ShapeDtypeStruct(X.shape, "float32", sharding=sharding)).compile()
    for x in (put(TRACEFX, "x", x=X), X):
        assert compiled(x).sharding == sharding
    with pytest.raises(
        ValueError, match=r"takes input 0, f32\[8,4\], with sharding .*P\('x'\)\), but the argument has .*P\('y'\)\)"
    ):
        compiled(put(TRACEFX, "y", x=X))
    lowered = fx.jit(lambda x: x * 2, out_shardings=sharding).lower(X)
    assert lowered.out_info == fx.ShapeDtypeStruct(X.shape, "float32", sharding=sharding)
    assert "sdy.sharding" in lowered.as_text()
    assert "ENTRY" in lowered.compile().as_text()
    assert lowered.compile().cost_analysis()["flops"] > 0
    assert lowered.compile().memory_analysis().output_bytes == X.nbytes // 4


def test_spmd_programs_are_not_compiled_for_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executables, "compile_module", lambda *args, **kwargs: pytest.fail("compiled for one device"))
    np.testing.assert_array_equal(fx.jit(lambda x: x * 7)(put(TRACEFX, "x", x=X)), X * 7)


def test_another_current_mesh_retraces() -> None:
    @fx.jit
    def f(x: fx.Array) -> fx.Array:
        return fx.lax.with_sharding_constraint(x * 2.0, P("i"))

    x = fnp.ones((8, 8))
    for _ in range(2):
        for shape, names in (((4, 2), ("i", "j")), ((2, 4), ("i", "j")), ((8,), ("i",))):
            with fx.set_mesh(fx.make_mesh(shape, names, (AxisType.Auto,) * len(names))):
                assert f(x).sharding.shard_shape((8, 8)) == (8 // shape[0], 8)
                assert f(x).sharding.shard_shape((8, 8)) == (8 // shape[0], 8)
    assert "the mesh in use was" in f.explain_retrace(x)
