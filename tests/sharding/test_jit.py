"""`jit` on arrays that lie on several devices: the numbers and the places are JAX's."""

# mypy: untyped-calls-exclude="jax"

from __future__ import annotations

from typing import Any, Final

import jax
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.closeness import assert_near
from tests.sharding.both import JAX, OURS, Library, parametrize_programs
from tests.sharding.test_arrays import put
from tests.sharding.test_meshes import on
from tracefx import P
from tracefx.sharding import SingleDeviceSharding
from tracefx.xla import runtime

X: Final = np.arange(32, dtype=np.float32).reshape(8, 4) / 10
W: Final = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)


def lies(x: Any) -> dict[int, Any]:
    return {device.id: index for device, index in x.sharding.devices_indices_map(x.shape).items()}


def agree(program: Any, places: bool = True) -> None:
    """The numbers are JAX's, and they lie where JAX puts them."""
    ours, theirs = (jax.tree.leaves(program(library)) for library in (OURS, JAX))
    assert len(ours) == len(theirs) > 0
    for got, want in zip(ours, theirs, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        assert_near(got, want)
        if places:
            assert lies(got) == lies(want), f"{got.sharding} where JAX has {want.sharding}"


# ------------------------------------------------------------------ where inputs and outputs lie


def layer(q: Library) -> Any:
    return lambda x, w: q.np.tanh(x @ w)


def what_arguments_say(q: Library) -> Any:
    return q.m.jit(layer(q))(put(q, "x", x=X), put(q, None, "y", x=W))


def one_for_each_argument(q: Library) -> Any:
    return q.m.jit(layer(q), in_shardings=(on(q, "x"), on(q, None, "y")))(X, W)


def one_for_all_arguments(q: Library) -> Any:
    return q.m.jit(layer(q), in_shardings=on(q))(X, W)


def none_for_an_argument(q: Library) -> Any:
    return q.m.jit(layer(q), in_shardings=(on(q, "x"), None))(X, W)


def trees_of_arguments(q: Library) -> Any:
    f = q.m.jit(lambda d, w: d["a"] @ w + d["b"], in_shardings=({"a": on(q, "x"), "b": on(q, "y")}, None))
    return f({"a": X, "b": X[:, :1]}, W)


def for_a_whole_branch(q: Library) -> Any:
    return q.m.jit(lambda d, w: (d["a"] @ w, d["b"]), in_shardings=(on(q, "x"), None))({"a": X, "b": X}, W)


def an_argument_that_lies_so_already(q: Library) -> Any:
    return q.m.jit(lambda x: x * 2, in_shardings=on(q, "x"))(put(q, "x", x=X))


def outputs(q: Library) -> Any:
    where = {"a": on(q, "x"), "b": on(q, "y")}
    return q.m.jit(lambda x: {"a": x * 2, "b": (x - 1, x + 1)}, out_shardings=where)(X)


def one_value_in_two_places(q: Library) -> Any:
    def f(x: Any) -> Any:
        y = x * 2
        return y, y, y

    return q.m.jit(f, out_shardings=(on(q, "x"), on(q, "y"), on(q, "x")))(X)


def inputs_handed_through(q: Library) -> Any:
    f = q.m.jit(lambda x: (x, x, x + 1), out_shardings=(on(q, "y"), on(q, "x"), on(q)))
    return f(put(q, "x", x=X)), f(X)


def constants(q: Library) -> Any:
    return q.m.jit(lambda x: (q.np.ones((8, 4)), 3.0), out_shardings=(on(q, "y"), on(q)))(put(q, "x", x=X))


def static_arguments(q: Library) -> Any:
    f = q.m.jit(lambda x, n, w: x @ w * n, in_shardings=(on(q, "x"), None), static_argnums=1)
    return f(X, 3, W), f(X, 4, W)


def specifications(q: Library) -> Any:
    with q.m.set_mesh(q.mesh):
        f = q.m.jit(lambda x: (x * 2, x - 1), in_shardings=q.P("x"), out_shardings=(q.P("y"), q.P()))
        return f(X)


def on_some_of_the_devices(q: Library) -> Any:
    mesh = q.Mesh(np.array(q.m.devices()[4:6]), ("z",))
    return q.m.jit(lambda x: x * 2)(q.m.device_put(X, q.m.sharding.NamedSharding(mesh, q.P("z"))))


def on_one_device(q: Library) -> Any:
    return q.m.jit(layer(q))(q.m.device_put(X, q.m.devices()[3]), W)


def of_two_meshes(q: Library) -> Any:
    flat = q.m.sharding.NamedSharding(q.mesh_of((8,), ("z",)), q.P("z"))
    return q.m.jit(lambda x, y: x + y)(put(q, "x", x=X), q.m.device_put(X, flat))


@parametrize_programs(
    [
        *(what_arguments_say, one_for_each_argument, one_for_all_arguments, none_for_an_argument, trees_of_arguments),
        *(for_a_whole_branch, an_argument_that_lies_so_already, outputs, one_value_in_two_places),
        *(inputs_handed_through, constants, static_arguments, specifications, on_some_of_the_devices, on_one_device),
        *(of_two_meshes,),
    ]
)
def test_places(program: Any) -> None:
    agree(program)


def test_arguments_by_name_lie_anywhere() -> None:
    y = fx.jit(lambda x, *, w: x @ w, in_shardings=on(OURS, "x"))(X, w=W)
    assert_near(y, X @ W)
    assert y.sharding == on(OURS, "x")


def test_a_sharding_may_count_the_devices_in_any_order() -> None:
    backwards = fx.NamedSharding(fx.Mesh(fx.devices()[::-1], "all"), P("all"))
    x = put(OURS, "x", x=X)
    y = fx.jit(lambda x: x * 2, out_shardings=backwards)(x)
    assert y.sharding == backwards
    assert [s.device.id for s in y.addressable_shards] == [7, 6, 5, 4, 3, 2, 1, 0]
    np.testing.assert_array_equal(y.addressable_shards[0].data, X[:1] * 2)
    np.testing.assert_array_equal(y, X * 2)
    np.testing.assert_array_equal(x + y, X * 3)
    np.testing.assert_array_equal(fx.jit(lambda y: y + 1, in_shardings=backwards)(y), X * 2 + 1)


def test_the_mesh_in_use_says_what_a_specification_means() -> None:
    f = fx.jit(lambda x: x * 2, out_shardings=P("x"))
    one, two = fx.make_mesh((4, 2), ("x", "y")), fx.make_mesh((2, 4), ("x", "y"))
    for mesh in (one, two, one):
        for x in (X, fnp.asarray(X), fx.device_put(X, fx.NamedSharding(mesh, P("x")))):
            with fx.set_mesh(mesh):
                assert f(x).sharding == fx.NamedSharding(mesh, P("x"))
    with pytest.raises(ValueError, match=r"out_shardings: P\('x'\) names axes of a mesh, but no mesh is set"):
        f(X)


def test_one_function_follows_its_arguments() -> None:
    f = fx.jit(lambda x: x * 2)
    here = SingleDeviceSharding(fx.devices()[0])
    for parts in (None, ("x",), None, ("y",), ("x",), None):
        for x, lies in (
            ((X, here), (fnp.asarray(X), here)) if parts is None else ((put(OURS, *parts, x=X), on(OURS, *parts)),)
        ):
            y = f(x)
            np.testing.assert_array_equal(y, X * 2)
            assert y.sharding == lies


# ------------------------------------------------------------------ constraints, transformations, control flow


def constraint(q: Library) -> Any:
    return q.m.jit(lambda x: q.lax.with_sharding_constraint(x * 2, on(q, "y")))(X)


def constraint_of_some_axes(q: Library) -> Any:
    spec = on(q, q.P.UNCONSTRAINED, "y")
    return q.m.jit(lambda x: q.lax.with_sharding_constraint(x * 2, spec))(put(q, "x", x=X))


def constraint_at_once(q: Library) -> Any:
    return q.lax.with_sharding_constraint(put(q, "x", x=X), on(q, "y")), q.lax.with_sharding_constraint(X, on(q, "y"))


def constraint_in_a_batch(q: Library) -> Any:
    return q.m.jit(q.m.vmap(lambda x: q.lax.with_sharding_constraint(x * x, on(q, "y"))))(X)


def gradient_of_a_constraint(q: Library) -> Any:
    return q.m.grad(lambda x: q.np.sum(q.lax.with_sharding_constraint(x * x, on(q, "y"))))(X)


def within_another(q: Library) -> Any:
    return q.m.jit(lambda x: q.m.jit(lambda y: y + 1, out_shardings=on(q, "y"))(x) * 2)(put(q, "x", x=X))


def within_another_by_its_inputs(q: Library) -> Any:
    return q.m.jit(lambda x: q.m.jit(lambda y: y + 1, in_shardings=on(q, "y"))(x) * 2)(X)


def gradient_of_a_jitted(q: Library) -> Any:
    f = q.m.jit(layer(q), in_shardings=(on(q, "x"), on(q, None, "y")))
    return q.m.grad(lambda w: q.np.sum(f(X, w)))(W)


def batch_of_a_jitted(q: Library) -> Any:
    return q.m.vmap(q.m.jit(lambda x: x * 2, in_shardings=on(q, "x"), out_shardings=on(q, "y")))(X)


def jitted_gradient(q: Library) -> Any:
    grad = q.m.grad(lambda w: q.np.sum(q.np.tanh(X @ w)))
    return q.m.jit(grad, in_shardings=on(q, None, "y"), out_shardings=on(q, "x"))(W)


def scan(q: Library) -> Any:
    return q.m.jit(lambda x: q.lax.scan(lambda c, r: (c + r, c * 2), q.np.zeros(4), x))(put(q, "x", x=X))


def loop(q: Library) -> Any:
    return q.m.jit(lambda x: q.lax.fori_loop(0, 3, lambda i, c: c * 2 + i, x))(put(q, "x", x=X))


def loop_at_once(q: Library) -> Any:
    return q.lax.while_loop(lambda c: q.np.sum(c) < 1000, lambda c: c * 2, put(q, "x", x=X))


def branch_at_once(q: Library) -> Any:
    x = put(q, "x", x=X)
    return q.lax.cond(q.np.sum(x) > 0, lambda c: c * 2, lambda c: c, x)


def checkpoint(q: Library) -> Any:
    f = q.m.checkpoint(lambda y: q.np.sin(q.np.sin(y)))
    return q.m.grad(lambda x: q.np.sum(f(x)))(put(q, "x", x=X))


def custom_rule(q: Library) -> Any:
    f = q.m.custom_vjp(q.np.sin)
    f.defvjp(lambda x: (q.np.sin(x), x), lambda x, ct: (3 * ct * q.np.cos(x),))
    return q.m.grad(lambda x: q.np.sum(f(x)))(put(q, "x", x=X))


def decomposition(q: Library) -> Any:
    return q.m.jit(lambda x: q.np.linalg.cholesky(x @ x.T + 10 * q.np.eye(8)))(put(q, "x", x=X))


def batch_of_decompositions(q: Library) -> Any:
    def f(x: Any) -> Any:
        m = x[:, None] * x[:, :, None] + 10 * q.np.eye(4)
        return q.np.linalg.inv(m), q.np.linalg.cholesky(m), q.np.linalg.eigvalsh(m), q.np.linalg.qr(m)[1]

    return q.m.jit(f)(put(q, "x", x=X))


def sorting(q: Library) -> Any:
    return q.m.jit(lambda x: (q.np.sort(-x, 0), q.np.cumsum(x, 0)))(put(q, "x", x=X))


def random_numbers(q: Library) -> Any:
    return q.m.jit(lambda key: q.m.random.normal(key, (8, 4)), out_shardings=on(q, "x"))(q.m.random.key(3))


def nothing_at_all(q: Library) -> Any:
    return q.m.jit(lambda x: x + 1)(put(q, "x", x=X[:0]))


@parametrize_programs(
    [
        *(constraint, constraint_of_some_axes, constraint_at_once, constraint_in_a_batch, gradient_of_a_constraint),
        *(within_another, within_another_by_its_inputs, gradient_of_a_jitted, batch_of_a_jitted, jitted_gradient),
        *(
            scan,
            loop,
            loop_at_once,
            branch_at_once,
            checkpoint,
            custom_rule,
            decomposition,
            batch_of_decompositions,
            sorting,
            random_numbers,
        ),
        *(nothing_at_all,),
    ]
)
def test_programs(program: Any) -> None:
    agree(program)


def closed_over(q: Library) -> Any:
    x = put(q, "x", x=X)
    return q.m.jit(lambda y: x + y)(X), q.m.jit(lambda y: x + y)(put(q, "y", x=X))


def test_what_is_closed_over_is_a_part_of_the_program() -> None:
    agree(closed_over, places=False)  # JAX puts it elsewhere


def test_what_is_closed_over_says_where_a_program_runs() -> None:
    x = put(OURS, "x", x=X)
    assert fx.jit(lambda y: x + y)(X).sharding == on(OURS, "x")
    compiled = fx.jit(lambda y: (x * y).sum()).lower(X).compile()
    assert [c.kind for c in compiled.collectives()] == ["all-reduce"]
    assert_near(compiled(X), (X * X).sum())


def test_decompositions_of_a_batch_send_nothing() -> None:
    x = put(OURS, "x", x=X[:, None] * X[:, :, None] + 10 * np.eye(4, dtype=np.float32))
    for f in (fnp.linalg.cholesky, fnp.linalg.eigh, fnp.linalg.qr, fnp.linalg.svd):
        assert fx.jit(f).lower(x).compile().collectives() == ()


# ------------------------------------------------------------------ memory given away


def test_shards_give_their_memory_away() -> None:
    x = put(OURS, "x", x=X) * 1  # whose memory is no longer NumPy's
    where = [np.asarray(s.data).__array_interface__["data"][0] for s in x.addressable_shards]
    double = fx.jit(lambda x: x * 2, donate_argnums=0)
    memory = double.lower(x).compile().memory_analysis()
    assert memory.alias_bytes == memory.argument_bytes == X.nbytes // 4
    y = double(x)
    assert [np.asarray(s.data).__array_interface__["data"][0] for s in y.addressable_shards] == where
    np.testing.assert_array_equal(y, X * 2)
    assert x.is_deleted()
    with pytest.raises(RuntimeError, match="was deleted, or donated to a program"):
        np.asarray(x)
    with pytest.raises(RuntimeError, match="was deleted, or donated to a program"):
        double(x)


def test_an_array_is_given_away_once() -> None:
    f = fx.jit(_named("f", lambda x, y: x + y), donate_argnums=0)
    x = put(OURS, "x", x=X)
    with pytest.raises(ValueError, match=r"f was given one array, .*, as parameters 0 and 1"):
        f(x, x)
    np.testing.assert_array_equal(f(x, put(OURS, "x", x=X)), X * 2)


def test_the_callers_numbers_are_not_given_away() -> None:
    host = X.copy()
    double = fx.jit(lambda x: x * 2, donate_argnums=0, in_shardings=on(OURS, "x"))
    for given in (host, fnp.asarray(host)):
        np.testing.assert_array_equal(double(given), X * 2)
    np.testing.assert_array_equal(host, X)


@pytest.mark.parametrize("parts", [("x",), ("x", "y"), ()], ids=str)
def test_numpys_arrays_are_their_callers_again(parts: Any) -> None:
    host = np.ones((1024, 64), np.float32)
    same, more = fx.jit(lambda x: (x, x + 1), in_shardings=on(OURS, *parts))(host)
    host[:] = 5
    np.testing.assert_array_equal(same, np.ones_like(host))
    np.testing.assert_array_equal(more, np.full_like(host, 2))


# ------------------------------------------------------------------ functions of the host


def test_callbacks_see_whole_arrays(capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[tuple[int, ...]] = []

    def double(a: Any) -> Any:
        seen.append(a.shape)
        return np.asarray(a) * 2

    @fx.jit
    def f(x: Any) -> Any:
        fx.debug.print("the sum is {}", x.sum())
        return fx.pure_callback(double, fx.ShapeDtypeStruct(X.shape, "float32"), x) + 1

    np.testing.assert_array_equal(f(put(OURS, "x", x=X)), X * 2 + 1)
    assert seen == [X.shape]
    assert capfd.readouterr().out.startswith("the sum is 49.6")
    keys = put(OURS, "x", x=fx.random.split(fx.random.key(0), 8))
    same = fx.jit(lambda k: fx.pure_callback(lambda k: k, fx.ShapeDtypeStruct(k.shape, k.dtype), k))(keys)
    np.testing.assert_array_equal(fx.random.key_data(same), fx.random.key_data(keys))


def test_each_device_calls_for_its_part_where_they_run_apart() -> None:
    def f(x: Any) -> Any:
        return fx.pure_callback(lambda a: np.asarray(a) + len(a), fx.ShapeDtypeStruct(x.shape, "float32"), x)

    g = fx.shard_map(f, mesh=OURS.mesh, in_specs=P("x"), out_specs=P("x"))
    np.testing.assert_array_equal(fx.jit(g)(X), X + 2)


def test_what_a_callback_raises_ends_the_program_on_all_devices() -> None:
    error = KeyError("no such thing")

    def fail(a: Any) -> Any:
        raise error

    @fx.jit
    def f(x: Any) -> Any:
        return fx.pure_callback(fail, fx.ShapeDtypeStruct(X.shape, "float32"), x) @ W

    for _ in range(2):
        with pytest.raises(KeyError) as caught:
            f(put(OURS, "x", x=X))
        assert caught.value is error


# ------------------------------------------------------------------ errors


def test_arrays_on_other_devices() -> None:
    x: Any = put(OURS, "x", x=X)
    y, z = (fx.device_put(X, fx.devices()[k]) for k in (3, 1))
    where = "input 0 is on devices 0, 1, 2, 3, 4, 5, 6, 7, but input 1 is on device 3"
    with pytest.raises(ValueError, match=f"add can't run: {where}. .* move arrays with device_put"):
        x + y
    with pytest.raises(ValueError, match=f"f can't run: {where}"):
        fx.jit(_named("f", lambda x, y: x + y))(x, y)
    with pytest.raises(ValueError, match="input 0 is on device 1, but input 1 is on device 3"):
        z + y
    with pytest.raises(
        ValueError, match=r"f can't run: input 0 is on devices 0, .*, but output 0 is requested on device 1"
    ):
        fx.jit(_named("f", lambda x: x * 2), out_shardings=SingleDeviceSharding(fx.devices()[1]))(x)


def _named(name: str, f: Any) -> Any:
    f.__name__ = name
    return f


def test_shardings_that_do_not_fit() -> None:
    x_wise = on(OURS, "x")
    with pytest.raises(
        ValueError, match=r"input 0, f32\[8,4\], has sharding .*, but in_shardings requests .*P\('x'\)\): move"
    ):
        fx.jit(lambda x: x, in_shardings=x_wise)(put(OURS, "y", x=X))
    with pytest.raises(
        ValueError, match=r"input 0 of f, f32\[6,4\], can't have the sharding .* 4 equal pieces along axis 0"
    ):
        fx.jit(_named("f", lambda x: x), in_shardings=x_wise)(X[:6])
    with pytest.raises(
        ValueError, match=r"input 0 of f, f32\[4\], .* P\('x', 'y'\) has 2 entries, but the array has 1 axes"
    ):
        fx.jit(_named("f", lambda x: x), in_shardings=on(OURS, "x", "y"))(X[0])
    with pytest.raises(ValueError, match=r"output 0 of f, f32\[3,4\], can't have the sharding"):
        fx.jit(_named("f", lambda x: x[:3]), out_shardings=x_wise)(X)
    with pytest.raises(
        ValueError, match=r"the operand of with_sharding_constraint, f32\[3,4\], can't have the sharding"
    ):
        fx.jit(lambda x: fx.lax.with_sharding_constraint(x[:3], x_wise))(X)
    with pytest.raises(TypeError, match="with_sharding_constraint takes shardings of meshes, got SingleDeviceSharding"):
        fx.lax.with_sharding_constraint(X, SingleDeviceSharding(fx.devices()[0]))
    with pytest.raises(TypeError, match="in_shardings takes a sharding or a PartitionSpec, got 3 of type int"):
        fx.jit(lambda x: x, in_shardings=3)(X)
    with pytest.raises(ValueError, match="in_shardings must have the structure of the arguments"):
        fx.jit(lambda x, y: x, in_shardings=(x_wise,))(X, X)
    with pytest.raises(ValueError, match="out_shardings must have the structure of the output"):
        fx.jit(lambda x: (x, x), out_shardings=(x_wise,))(X)


# ------------------------------------------------------------------ stages


def test_a_compiled_program_says_how_its_arrays_lie() -> None:
    for library in (OURS, JAX):
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


def test_lowered_for_what_shapes_say() -> None:
    sharding = on(OURS, "x")
    compiled = fx.jit(lambda x: x * 2).lower(fx.ShapeDtypeStruct(X.shape, "float32", sharding=sharding)).compile()
    for given in (put(OURS, "x", x=X), X):
        assert compiled(given).sharding == sharding
    with pytest.raises(
        ValueError, match=r"takes input 0, f32\[8,4\], with sharding .*P\('x'\)\), but the argument has .*P\('y'\)\)"
    ):
        compiled(put(OURS, "y", x=X))
    lowered = fx.jit(lambda x: x * 2, out_shardings=sharding).lower(X)
    assert lowered.out_info == fx.ShapeDtypeStruct(X.shape, "float32", sharding=sharding)
    assert "sdy.sharding" in lowered.as_text()
    assert "ENTRY" in lowered.compile().as_text()
    assert lowered.compile().cost_analysis()["flops"] > 0
    assert lowered.compile().memory_analysis().output_bytes == X.nbytes // 4


def test_a_program_for_several_devices_is_compiled_for_them_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "compile_module", lambda *args, **kwargs: pytest.fail("compiled for one device"))
    np.testing.assert_array_equal(fx.jit(lambda x: x * 7)(put(OURS, "x", x=X)), X * 7)


def test_another_mesh_is_another_program() -> None:
    @fx.jit
    def f(x: fx.Array) -> fx.Array:
        return fx.lax.with_sharding_constraint(x * 2.0, P("i"))

    x = fnp.ones((8, 8))
    for _ in range(2):
        for shape, names in (((4, 2), ("i", "j")), ((2, 4), ("i", "j")), ((8,), ("i",))):
            with fx.set_mesh(fx.make_mesh(shape, names)):
                assert f(x).sharding.shard_shape((8, 8)) == (8 // shape[0], 8)
                assert f(x).sharding.shard_shape((8, 8)) == (8 // shape[0], 8)
    assert "the mesh in use was" in f.explain_retrace(x)
