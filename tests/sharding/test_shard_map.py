"""`shard_map`: values, derivatives and batching agree with JAX on the same devices."""

from __future__ import annotations

import itertools
from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.cases import parametrize_functions
from tests.comparison import assert_near
from tests.errors import untyped
from tests.laws.examples import sampled
from tests.sharding.both import (
    JAX,
    TRACEFX,
    Library,
    Program,
    V,
    W,
    X,
    assert_agrees_with_jax,
    assert_both_raise,
    layer,
    loss,
)
from tracefx import P, lax
from tracefx.testing import check_grads


def product(lib: Library) -> Any:
    return layer(lib)(X, W)


def gradient(lib: Library) -> Any:
    return lib.m.grad(loss(lib), (0, 1))(W, X)


def gradient_compiled(lib: Library) -> Any:
    return lib.m.jit(lib.m.grad(loss(lib), (0, 1)))(W, X)


def forward_over_reverse(lib: Library) -> Any:
    return lib.m.jvp(lambda w: lib.m.grad(loss(lib))(w, X), (W,), (W,))


def reverse_over_reverse(lib: Library) -> Any:
    return lib.m.grad(lambda w: lib.np.sum(lib.m.grad(loss(lib))(w, X) ** 2))(W)


def forward(lib: Library) -> Any:
    return lib.m.jvp(lambda x: layer(lib)(x, W), (X,), (X,))


def jacobian_forward(lib: Library) -> Any:
    return lib.m.jacfwd(lambda v: lib.shard_map(lambda v: v * lib.lax.psum(v, "x"), lib.P("x"), lib.P("x"))(v))(V)


def jacobian_reverse(lib: Library) -> Any:
    return lib.m.jacrev(lambda v: lib.shard_map(lambda v: v * lib.lax.psum(v, "x"), lib.P("x"), lib.P("x"))(v))(V)


def batch_of_rows(lib: Library) -> Any:
    return lib.m.vmap(layer(lib), in_axes=(0, None))(np.stack([X, X + 1]), W)


def batch_axes_other_than_zero(lib: Library) -> Any:
    return lib.m.vmap(layer(lib), in_axes=(1, 2), out_axes=2)(np.stack([X, X + 1], 1), np.stack([W, W + 1], 2))


def batch_of_weights(lib: Library) -> Any:
    return lib.m.vmap(layer(lib), in_axes=(None, 0))(X, np.stack([W, W + 1]))


def batch_with_spmd_axis_name(lib: Library) -> Any:
    f = lib.shard_map(lambda x: x + lib.lax.psum(x, "y"), lib.P("y"), lib.P("y"))
    return lib.m.vmap(f, spmd_axis_name="x")(np.stack([X, X + 1, X + 2, X + 3]))


def batch_of_gradients(lib: Library) -> Any:
    return lib.m.vmap(lib.m.grad(loss(lib)), in_axes=(None, 0))(W, np.stack([X, X + 1]))


def gradient_of_batch(lib: Library) -> Any:
    return lib.m.grad(lambda w: lib.np.sum(lib.m.vmap(layer(lib), in_axes=(0, None))(np.stack([X, X + 1]), w)))(W)


def reductions_along_two_axes(lib: Library) -> Any:
    return lib.shard_map(
        lambda x: (
            lib.lax.psum(x, ("x", "y")),
            lib.lax.pmean(x, ("y", "x")),
            lib.lax.pmax(lib.lax.stop_gradient(x), ("x", "y")),
            lib.lax.axis_index(("x", "y"))[None],
        ),
        lib.P("x", "y"),
        (lib.P(), lib.P(), lib.P(), lib.P(("x", "y"))),
    )(X)


def all_gather_along_two_axes(lib: Library) -> Any:
    return lib.shard_map(
        lambda x: (lib.lax.all_gather(x, ("x", "y")), lib.lax.all_gather(x, ("y", "x"), tiled=True, axis=1)),
        lib.P("x", "y"),
        lib.P("x", "y"),
    )(X)


def psum_scatter_along_two_axes_tiled(lib: Library) -> Any:
    return lib.shard_map(
        lambda x: lib.lax.psum_scatter(x, ("x", "y"), tiled=True), lib.P(None, ("x", "y")), lib.P(("x", "y"))
    )(np.tile(X, (1, 2)))


def psum_scatter_along_two_axes(lib: Library) -> Any:
    return lib.shard_map(lambda x: lib.lax.psum_scatter(x, ("x", "y")), lib.P(None, ("x", "y")), lib.P(("x", "y")))(
        np.tile(X, (1, 2))
    )


def all_to_all_along_two_axes(lib: Library) -> Any:
    return lib.shard_map(
        lambda x: lib.lax.all_to_all(x, ("x", "y"), 0, 1, tiled=True), lib.P(None, ("x", "y")), lib.P(("x", "y"))
    )(np.tile(X, (1, 2)))


def ppermute_along_two_axes(lib: Library) -> Any:
    return lib.shard_map(
        lambda x: lib.lax.ppermute(x, ("x", "y"), [(i, (i + 3) % 8) for i in range(8)]),
        lib.P(("x", "y")),
        lib.P(("x", "y")),
    )(X)


def trees_of_specifications(lib: Library) -> Any:
    return lib.shard_map(
        lambda d, s: {"a": lib.lax.psum(d["x"], "x"), "b": d["y"] * s},
        ({"x": lib.P("x"), "y": lib.P(None, "y")}, lib.P()),
        {"a": lib.P(), "b": lib.P(None, "y")},
    )({"x": X, "y": X}, 2.0)


def psum_of_trees(lib: Library) -> Any:
    return lib.shard_map(lambda d: lib.lax.psum(d, "x"), lib.P("x"), lib.P())({"x": X, "y": (X, X)})


def reductions_of_trees(lib: Library) -> Any:
    f = lib.shard_map(
        lambda d: [lib.lax.pmean(d, "x"), lib.lax.pmax(d, "x"), lib.lax.pmin(d, "x")], lib.P("x"), lib.P()
    )
    return f({"x": X, "y": (X, X)})


def data_movement_of_trees(lib: Library) -> Any:
    return lib.shard_map(
        lambda d: (
            lib.lax.all_gather(d, "x"),
            lib.lax.ppermute(d, "x", [(0, 1)]),
            lib.lax.psum_scatter(d, "x", tiled=True, scatter_dimension=1),
            lib.lax.all_to_all(d, "x", 1, 0, tiled=True),
        ),
        lib.P("x"),
        lib.P("x"),
    )({"x": X, "y": (X, X)})


def argument_none(lib: Library) -> Any:
    return lib.shard_map(lambda x, n: x * 2, (lib.P("x"), None), lib.P("x"))(X, None)


def replicated_argument(lib: Library) -> Any:
    return lib.shard_map(lambda x, w: x @ w, (lib.P("x"), lib.P()), lib.P("x"))(X, W)


def constant_output(lib: Library) -> Any:
    return lib.shard_map(lambda x: lib.np.ones(3), (lib.P("x"),), lib.P())(X)


def constant_sharded_output(lib: Library) -> Any:
    return lib.shard_map(lambda x: lib.np.ones(3), (lib.P("x"),), lib.P("x"))(X)


def axis_of_size_one(lib: Library) -> Any:
    mesh = lib.Mesh(np.array(lib.m.devices()[:4], dtype=object).reshape(4, 1), ("x", "y"))
    f = lib.m.shard_map(lambda x: lib.lax.psum(x, ("x", "y")), mesh=mesh, in_specs=lib.P("x", "y"), out_specs=lib.P())
    return f(X), lib.m.grad(lambda x: lib.np.sum(lib.np.sin(f(x))))(X)


def bfloat16(lib: Library) -> Any:
    x = lib.np.asarray(X).astype("bfloat16")
    return lib.shard_map(lambda x: lib.lax.psum(x, "x").astype("float32"), lib.P("x"), lib.P())(x)


def integers(lib: Library) -> Any:
    x = np.arange(8, dtype=np.int8)
    return lib.shard_map(
        lambda x: (lib.lax.psum(x, "x"), lib.lax.pmax(x, "x"), lib.lax.all_gather(x, "x", tiled=True)),
        lib.P("x"),
        (lib.P(), lib.P(), lib.P("x")),
    )(x)


def booleans(lib: Library) -> Any:
    x = np.arange(8) % 3 == 0
    return lib.shard_map(
        lambda x: (
            lib.lax.pmax(x, "x"),
            lib.lax.pmin(x, "x"),
            lib.lax.all_gather(x, "x", tiled=True),
            lib.lax.psum(x, "x"),
        ),
        lib.P("x"),
        (lib.P(), lib.P(), lib.P("x"), lib.P()),
    )(x)


def complex_numbers(lib: Library) -> Any:
    x = (X + 1j * X[::-1]).astype(np.complex64)
    f = lib.shard_map(lambda x: lib.lax.psum(x * x, "x"), lib.P("x"), lib.P())
    return f(x), lib.m.grad(lambda x: lib.np.sum(lib.np.abs(f(x))))(x)


def random_keys(lib: Library) -> Any:
    k = lib.m.random.split(lib.m.random.key(0), 8)
    return lib.shard_map(lambda k: lib.m.vmap(lambda k: lib.m.random.normal(k, (3,)))(k), lib.P("x"), lib.P("x"))(k)


def gathered_keys(lib: Library) -> Any:
    k = lib.m.random.split(lib.m.random.key(0), 8)
    return lib.shard_map(
        lambda k: lib.m.random.key_data(lib.lax.all_gather(k, "x", tiled=True)), lib.P("x"), lib.P("x")
    )(k)


def random_numbers_per_device(lib: Library) -> Any:
    return lib.shard_map(
        lambda x: lib.m.random.normal(lib.m.random.fold_in(lib.m.random.key(0), lib.lax.axis_index("x")), (2,))[None],
        lib.P("x"),
        lib.P("x"),
    )(X)


def gradients_of_replicated_weights(lib: Library) -> Any:
    f = lib.shard_map(
        lambda w, x: lib.lax.pmean(lib.np.mean(lib.np.tanh(x @ w) ** 2), ("x", "y")),
        (lib.P(), lib.P(("x", "y"))),
        lib.P(),
    )
    return lib.m.grad(f)(W, X), lib.m.grad(f, 1)(W, X)


@parametrize_functions(globals(), "lib")
def test_agrees_with_jax(program: Program) -> None:
    assert_agrees_with_jax(program)


# ------------------------------------------------------------------ calls and errors


def test_as_a_decorator() -> None:
    @fx.shard_map(mesh=TRACEFX.mesh, in_specs=P("x"), out_specs=P("x"))
    def twice(x: Any) -> Any:
        return x * 2

    assert np.array_equal(twice(X), X * 2)


def test_shard_map_uses_the_current_mesh() -> None:
    f = fx.shard_map(lambda x: lax.psum(x, "x"), in_specs=P("x"), out_specs=P())
    with fx.set_mesh(TRACEFX.mesh):
        assert_near(f(X), X.reshape(4, 2, 4).sum(0))
    with pytest.raises(ValueError, match="there is no mesh; pass mesh="):
        f(X)


def test_keyword_arguments_are_refused() -> None:
    def scaled(x: fx.Array, scale: float) -> fx.Array:
        return x * scale

    mapped: Any = fx.shard_map(scaled, mesh=TRACEFX.mesh, in_specs=(P("x"), P()), out_specs=P("x"))
    with pytest.raises(TypeError, match="in_specs are for positional arguments, so pass `scale` by position"):
        mapped(np.ones(8, np.float32), scale=2.0)


def test_result_shardings_follow_out_specs() -> None:
    got, total = TRACEFX.shard_map(lambda x: (x, lax.psum(x, "x")), P("x"), (P("x"), P()))(X)
    assert got.sharding == fx.NamedSharding(TRACEFX.mesh, P("x"))
    assert {shard.data.shape for shard in got.addressable_shards} == {(2, 4)}
    assert total.is_fully_replicated


def test_traces_are_per_mesh() -> None:
    def size(x: Any) -> Any:
        return x * lax.psum(1, "x")

    for n in (2, 4):
        f = fx.shard_map(size, mesh=TRACEFX.mesh_of((n,), ("x",)), in_specs=P(), out_specs=P())
        assert f(np.float32(1)) == n


def test_function_is_traced_once() -> None:
    traced = 0

    def f(x: fx.Array) -> fx.Array:
        nonlocal traced
        traced += 1
        return x * 2

    mapped = TRACEFX.shard_map(f, P("x"), P("x"))
    mapped(X)
    mapped(X + 1)
    assert traced == 1


INVALID: Final[dict[type[Exception], dict[str, Program]]] = {
    ValueError: {
        "axis 0 has size 6, and 'x'": lambda lib: lib.shard_map(first_argument, lib.P("x"), lib.P("x"))(X[:6]),
        "has 2 axes, but .* is for 3": lambda lib: lib.shard_map(first_argument, lib.P("x", None, "y"), lib.P("x"))(X),
        "for an output of type .*, which has 0 axes": lambda lib: lib.shard_map(
            lambda x: lib.lax.psum(x.sum(), "x"), lib.P("x"), lib.P("x")
        )(X),
        "in_specs: .* names 'z'": lambda lib: lib.shard_map(first_argument, lib.P("z"), lib.P("x"))(X),
        "out_specs: .* names 'z'": lambda lib: lib.shard_map(first_argument, lib.P("x"), lib.P("z"))(X),
        r"axis_names \['q'\] are not axes of": lambda lib: lib.shard_map(
            first_argument, lib.P("x"), lib.P("x"), axis_names={"q"}
        )(X),
        r"names 'y', but the manual axes are \['x'\]": lambda lib: lib.shard_map(
            first_argument, lib.P("y"), lib.P("y"), axis_names={"x"}
        )(X),
        "structure of the arg": lambda lib: lib.shard_map(first_argument, (lib.P("x"),), lib.P("x"))(X, X),
        "structure of the output": lambda lib: lib.shard_map(lambda x: (x, x), lib.P("x"), (lib.P("x"),))(X),
        "there is no mesh": lambda lib: lib.m.shard_map(first_argument, in_specs=lib.P("x"), out_specs=lib.P("x"))(X),
        "an enclosing shard_map has the manual axes": lambda lib: lib.shard_map(
            lib.shard_map(first_argument, lib.P("x"), lib.P("x")), lib.P("x"), lib.P("x")
        )(X),
        "its mesh is Mesh\\(z=2\\), but that of the enclosing shard_map is Mesh\\(x=4, y=2": lambda lib: lib.shard_map(
            lib.m.shard_map(
                first_argument,
                mesh=lib.mesh_of((2,), ("z",)),
                in_specs=lib.P("z"),
                out_specs=lib.P("z"),
                check_vma=False,
            ),
            lib.P("x"),
            lib.P("x"),
        )(X),
        "a batch of 3 cannot be partitioned over": lambda lib: lib.m.vmap(
            lib.shard_map(first_argument, lib.P("y"), lib.P("y")), spmd_axis_name="x"
        )(np.stack([X] * 3)),
        r"specs already use \['y'\]": lambda lib: lib.m.vmap(
            lib.shard_map(first_argument, lib.P("y"), lib.P("y")), spmd_axis_name="y"
        )(np.stack([X] * 2)),
    },
    TypeError: {
        "must be a PartitionSpec or a": lambda lib: lib.shard_map(first_argument, "x", lib.P("x"))(X),
        "takes a function, got 3": lambda lib: lib.shard_map(3, lib.P("x"), lib.P("x"))(X),
    },
}
"""Programs by their errors."""


def first_argument(x: Any, *_: Any) -> Any:
    return x


@pytest.mark.parametrize(("error", "message"), [(error, text) for error in INVALID for text in INVALID[error]])
def test_invalid_arguments_are_rejected(error: type[Exception], message: str) -> None:
    assert_both_raise(INVALID[error][message], error, message)


def test_unbound_axis() -> None:
    with pytest.raises(NameError, match="psum: unbound axis name 'z'; in scope are axis 'x', axis 'y'"):
        TRACEFX.shard_map(lambda x: lax.psum(x, "z"), P("x"), P())(X)


def test_axis_name_of_a_partitioned_batch_is_rejected() -> None:
    f = TRACEFX.shard_map(lambda x: lax.psum(x, "i"), P("y"), P("y"))
    with pytest.raises(ValueError, match="would see only the batch elements on their own device"):
        fx.vmap(f, axis_name="i", spmd_axis_name="x")(np.stack([X] * 4))
    assert np.array_equal(fx.vmap(f, axis_name="i")(np.stack([X] * 4))[1], X * 4)


@pytest.mark.parametrize("name", [3, ("x", 3)])
def test_invalid_spmd_axis_name_is_rejected(name: object) -> None:
    with pytest.raises(TypeError, match="spmd_axis_name must be the name of an axis of a mesh"):
        untyped(fx.vmap)(first_argument, spmd_axis_name=name)


def test_numeric_derivatives() -> None:
    check_grads(layer(TRACEFX), X, W)


def test_sharding_constraints_under_vmap_with_spmd_axis_name() -> None:
    sharding = fx.NamedSharding(TRACEFX.mesh, P(None, "y"))

    def f(x: Any) -> Any:
        return lax.fori_loop(0, 2, lambda i, c: lax.with_sharding_constraint(c * 2, sharding), x)

    batch = np.stack([X] * 4)
    text = str(fx.make_jaxpr(fx.vmap(f, spmd_axis_name="x"))(batch))
    assert "spec=P('x', None, 'y')" in text
    assert "spec=P(UNCONSTRAINED(), None, 'y')" in str(fx.make_jaxpr(fx.vmap(f))(batch))
    got = fx.jit(fx.vmap(f, spmd_axis_name="x"))(batch)
    assert np.array_equal(got, batch * 4)
    assert got.sharding.shard_shape(got.shape) == (1, 8, 2)


DERIVATIVES: Final[dict[str, Any]] = {
    "grad": lambda lib, f, x: lib.m.grad(lambda x: lib.np.sum(f(x)))(x),
    "value_and_grad": lambda lib, f, x: lib.m.value_and_grad(lambda x: lib.np.sum(f(x)))(x),
    "vjp": lambda lib, f, x: lib.m.vjp(f, x)[1](lib.np.ones(2)),
    "jvp": lambda lib, f, x: lib.m.jvp(f, (x,), (x,)),
    "grad of grad": lambda lib, f, x: lib.m.grad(lambda x: lib.np.sum(lib.m.grad(lambda x: lib.np.sum(f(x) ** 2))(x)))(
        x
    ),
}


BODIES: Final[dict[str, Any]] = {
    "": lambda lib, f: f,
    "jit": lambda lib, f: lib.m.jit(f),
    "checkpoint": lambda lib, f: lib.m.checkpoint(lib.m.jit(f)),
    "scan": lambda lib, f: lambda x: lib.lax.scan(lambda c, _: (c * lib.np.sum(f(x)), f(c * x)), 2.0, None, 2)[1][1],
    "cond": lambda lib, f: lambda x: lib.lax.cond(x[0] > 5.0, f, lambda x: f(lib.np.sin(x)), x),
}


@pytest.mark.parametrize(("name", "body", "jitted"), sampled(itertools.product(DERIVATIVES, BODIES, (False, True)), 3))
def test_derivatives_under_vmap_with_spmd_axis_name(name: str, body: str, jitted: bool) -> None:
    def program(lib: Library) -> Any:
        mesh = lib.mesh_of((4, 2), ("v", "i"))
        shard_mapped = lib.m.shard_map(
            lambda x: lib.np.sum(x**2) * lib.np.ones(1), mesh=mesh, in_specs=lib.P("i"), out_specs=lib.P("i")
        )
        f = BODIES[body](lib, shard_mapped)
        mapped = lib.m.vmap(lambda x: DERIVATIVES[name](lib, f, x), spmd_axis_name="v")
        return (lib.m.jit(mapped) if jitted else mapped)(np.arange(16, dtype=np.float32).reshape(4, 4))

    assert_agrees_with_jax(program)


def test_weight_gradients_under_vmap_with_spmd_axis_name() -> None:
    def program(lib: Library) -> Any:
        mesh, spec = lib.mesh_of((4, 2), ("v", "i")), lib.P("i")
        f = lib.m.shard_map(
            lambda x, w: lib.lax.psum(lib.np.sum(x * w), "i"), mesh=mesh, in_specs=(spec, spec), out_specs=lib.P()
        )
        gradients = lib.m.vmap(lib.m.grad(f, (0, 1)), in_axes=(0, None), spmd_axis_name="v")
        return gradients(np.arange(16, dtype=np.float32).reshape(4, 4), np.arange(4, dtype=np.float32))

    assert_agrees_with_jax(program)


@pytest.mark.parametrize("outer", [True, False])
def test_traces_under_spmd_axis_name_are_not_reused_elsewhere(outer: bool) -> None:
    mesh = TRACEFX.mesh_of((4, 2), ("v", "i"))

    def f(x: Any) -> Any:
        return (fnp.sin(x * (lax.axis_index("v") + 1.0)) * x).sum()[None]

    def loss(x: Any) -> Any:
        return fx.shard_map(f, mesh=mesh, in_specs=P("i"), out_specs=P(("v", "i")))(x).sum()

    x = np.arange(4, dtype=np.float32) / 7
    want = fx.grad(loss)(x)
    g = fx.jit(fx.grad(loss)) if outer else fx.grad(fx.jit(loss))
    with pytest.raises(ValueError, match="cannot partition the batch over"):
        fx.vmap(g, spmd_axis_name="v")(np.stack([x] * 4))
    assert_near(g(x), want)


def test_objects_without_specifications_are_passed_as_they_are() -> None:
    """As in JAX, whatever is not an array may have None in `in_specs`, also if it cannot be hashed."""

    class Unhashable:
        __hash__ = None  # type: ignore[assignment]  # on purpose

    given = Unhashable()

    def program(lib: Library) -> Any:
        def f(options: Any, x: Any, n: Any, w: Any) -> Any:
            assert options[0] is given
            return w * lib.np.ones(options[1:]) * x[:n, :1] + n

        specs = (None, lib.P("x"), None, None)
        mapped = lib.shard_map(f, specs, lib.P("x"))
        slope = lib.m.grad(lambda w: mapped((given, 2, 4), X, 2, w).sum())
        return mapped((given, 2, 4), X, 2, W[0, 0]), slope(W[0, 0])

    assert_agrees_with_jax(program)


@pytest.mark.parametrize("axis_names", [{"x"}, {"x", "y"}])
def test_constraints_along_manual_axes_are_rejected(axis_names: set[str]) -> None:
    def program(lib: Library) -> Any:
        sharding = lib.m.sharding.NamedSharding(lib.mesh, lib.P(None, "x"))
        return lib.m.jit(
            lib.shard_map(
                lambda x: lib.lax.with_sharding_constraint(x, sharding), lib.P("x"), lib.P("x"), axis_names=axis_names
            )
        )(X)

    with pytest.raises(ValueError, match=r"with_sharding_constraint: P\(None, 'x'\) names 'x', a manual axis of the"):
        program(TRACEFX)
    with pytest.raises(ValueError, match="manual"):
        program(JAX)
