"""Multi-device programs through `from_jax` and `to_jax`; conversion of meshes, shardings and sharded arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, final

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attrs import frozen
from jax import lax
from jax._src.sharding_impls import GSPMDSharding

import tracefx as fx
from tests.comparison import assert_near
from tracefx.control.shard_map import ShardMapPrimitive
from tracefx.interop.jax import (
    as_jax,
    as_tracefx,
    from_jax,
    mesh_from_jax,
    mesh_to_jax,
    sharding_from_jax,
    sharding_to_jax,
    to_jax,
)
from tracefx.ops.annotations.sharding_constraint import ShardingConstraint
from tracefx.sharding import AxisType, SingleDeviceSharding
from tracefx.shardings.sharded_array import ShardedArray

X: Final = np.arange(32, dtype=np.float32).reshape(8, 4) / 16
MESH: Final = fx.make_mesh((4, 2), ("x", "y"), (AxisType.Auto,) * 2)
JAX_MESH: Final = jax.sharding.Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("x", "y"))
P: Final[Any] = jax.P


def fx_sharding_of(*parts: Any) -> fx.NamedSharding:
    return fx.NamedSharding(MESH, fx.P(*parts))


def jax_sharding_of(*parts: Any) -> Any:
    return jax.NamedSharding(JAX_MESH, P(*parts))


def jax_shard_map(in_specs: Any, out_specs: Any, check: bool = True, **options: Any) -> Callable[[Any], Any]:
    return jax.shard_map(mesh=JAX_MESH, in_specs=in_specs, out_specs=out_specs, check_vma=check, **options)


# ------------------------------------------------------------------ imported programs


def summed(check: bool) -> Any:
    @jax_shard_map(P("x", "y"), P(), check)
    def f(x: Any) -> Any:
        return lax.psum(jnp.sum(jnp.sin(x) * x), ("x", "y"))

    return f


def with_loop(check: bool) -> Any:
    @jax_shard_map(P("x"), P("x"), check)
    def f(x: Any) -> Any:
        def body(c: Any, _: Any) -> Any:
            total = lax.psum(c, "x")
            return c * 0.5 + total, total.sum()

        c, totals = lax.scan(body, x, None, length=3)
        return c * totals.mean() + lax.cond(totals[0] > 0, lambda c: c * 2, lambda c: c, c)

    return f


def with_custom_vjp(check: bool) -> Any:
    @jax.custom_vjp
    def scaled(x: Any) -> Any:
        return x * 3.0

    scaled.defvjp(lambda x: (scaled(x), None), lambda _, ct: (ct * 5.0,))

    @jax_shard_map(P("x"), P("x"), check)
    def f(x: Any) -> Any:
        return scaled(jnp.tanh(x)) * 2.0

    return f


def model(check: bool) -> Any:
    w = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)

    @jax_shard_map(P("x"), P(), check)
    def f(x: Any) -> Any:
        hidden = jax.nn.relu(x @ w)
        logits = jax.nn.log_softmax(hidden @ w.T) + jax.nn.relu(x.sum())
        return lax.pmean(jax.checkpoint(jnp.sin)(logits).mean(), "x")

    return f


def pmapped(check: bool) -> Any:
    return jax.pmap(lambda x: x / lax.psum(x.sum(), "i"), axis_name="i")


PROGRAMS: Final = (summed, with_loop, with_custom_vjp, model, pmapped)


@pytest.mark.parametrize("check", [True, False], ids=["checked", "unchecked"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_shard_map_is_imported(program: Any, check: bool) -> None:
    jax_fn = program(check)
    x = X + 0.25
    fx_fn = from_jax(jax_fn)
    assert_near(fx.jit(fx_fn)(x), jax_fn(x))
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(jnp.cos(jax_fn(x)))))
    assert_near(fx.jit(fx.grad(lambda x: fx.numpy.sum(fx.numpy.cos(fx_fn(x)))))(x), gradient(x))
    assert_near(fx.jit(from_jax(gradient))(x), gradient(x))


@pytest.mark.parametrize("check", [True, False], ids=["checked", "unchecked"])
def test_collectives(check: bool) -> None:
    @jax_shard_map(P("x", "y"), (P("x", "y"),) * 4 + (P(None, "y"),), check)
    def jax_fn(x: Any) -> Any:
        rows = lax.all_gather(x, "x", tiled=True)
        moved = lax.ppermute(x, "x", [(0, 1), (1, 2), (3, 0)])
        scattered = lax.psum_scatter(jnp.concatenate([x] * 4), "x", tiled=True)
        exchanged = lax.all_to_all(x, "y", 1, 0, tiled=True).reshape(x.shape)
        highest = lax.pmax(x, "x") + lax.pmin(x, ("x",)) * 2.0
        return rows.sum() * moved, exchanged, scattered, lax.psum(x, "x") + lax.axis_index("x"), highest

    assert_near(from_jax(jax_fn)(X), jax_fn(X))
    batch = np.stack([X, X * 2])
    assert_near(fx.vmap(from_jax(jax_fn))(batch), jax.vmap(jax_fn)(batch))


def test_partial_manual_axes_are_imported() -> None:
    @jax_shard_map(P("x"), P("x"), axis_names={"x"})
    def jax_fn(x: Any) -> Any:
        return x * lax.psum(x.sum(), "x")

    x = jax.device_put(X, jax_sharding_of("x"))
    assert_near(fx.jit(from_jax(jax.jit(jax_fn)))(X), jax.jit(jax_fn)(x))


def test_imported_primitive_is_shard_map() -> None:
    jax_fn = jax_shard_map(P("x"), P(None))(lambda x: lax.psum(x, "x"))
    (eqn,) = fx.make_jaxpr(from_jax(jax_fn))(X).eqns
    assert isinstance(eqn.prim, ShardMapPrimitive)
    assert eqn.prim.mesh == MESH
    assert (eqn.prim.in_specs, eqn.prim.out_specs) == ((fx.P("x"),), (fx.P(None),))
    assert [e.prim.name for e in eqn.prim.jaxpr.eqns] == ["psum"]


def test_imported_shard_map_uses_the_current_mesh() -> None:
    set_mesh: Any = jax.set_mesh
    with set_mesh(JAX_MESH):
        jax_fn: Any = jax.shard_map(lambda x: lax.psum(x, "x"), in_specs=P("x"), out_specs=P())
        assert_near(from_jax(jax_fn)(X), jax_fn(X))
        want = np.asarray(jax_fn(X))

    use_abstract_mesh: Any = jax.sharding.use_abstract_mesh

    def with_abstract_mesh(x: Any) -> Any:
        with use_abstract_mesh(JAX_MESH.abstract_mesh):
            return jax.shard_map(lambda x: lax.psum(x, "x"), in_specs=P("x"), out_specs=P())(x)

    with fx.set_mesh(MESH):
        assert_near(from_jax(with_abstract_mesh)(X), want)
    with pytest.raises(ValueError, match=r"but no current mesh has these axes: call it"):
        from_jax(with_abstract_mesh)(X)


# ------------------------------------------------------------------ shardings


def test_shardings_of_imported_programs() -> None:
    jax_fn = jax.jit(
        lambda x: (x * 2, x.sum(0)), in_shardings=jax_sharding_of("x"), out_shardings=(jax_sharding_of("y"), None)
    )
    first, second = fx.jit(from_jax(jax_fn))(X)
    assert first.sharding == fx_sharding_of("y")
    assert_near((first, second), jax_fn(X))

    @jax.jit
    def constrained(x: Any) -> Any:
        y = lax.with_sharding_constraint(x + 1, jax_sharding_of("x", P.UNCONSTRAINED))
        return lax.with_sharding_constraint(y, jax_sharding_of(None, "y")) * 2, jax.device_put(x, jax_sharding_of("y"))

    shardings = [
        eqn.prim.sharding
        for eqn in fx.make_jaxpr(from_jax(constrained))(X).eqns[0].prim.jaxpr.eqns  # type: ignore[attr-defined]  # a call
        if isinstance(eqn.prim, ShardingConstraint)
    ]
    assert shardings == [fx_sharding_of("x", fx.P.UNCONSTRAINED), fx_sharding_of(None, "y"), fx_sharding_of("y")]
    assert_near(fx.jit(from_jax(constrained))(X), constrained(X))
    gradient = fx.grad(lambda x: from_jax(constrained)(x)[0].sum())(X)
    assert_near(gradient, np.full(X.shape, 2, np.float32))


def test_explicit_meshes() -> None:
    explicit = jax.make_mesh((4, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    set_mesh: Any = jax.set_mesh
    with set_mesh(explicit):

        def jax_fn(x: Any) -> Any:
            return jax.sharding.reshard(x * 2, P(None, "y")) + 1

        assert_near(from_jax(jax_fn)(X), jax_fn(jax.device_put(X, P("x"))))


def test_sharding_constraints_inside_shard_map() -> None:
    @jax_shard_map(P("x"), P("x"), axis_names={"x"})
    def jax_fn(x: Any) -> Any:
        return lax.with_sharding_constraint(x * 2, P(None, "y"))

    assert_near(fx.jit(from_jax(jax.jit(jax_fn)))(X), X * 2)


# ------------------------------------------------------------------ exported programs


def fx_summed(x: Any) -> Any:
    return fx.lax.psum(fx.numpy.sum(fx.numpy.sin(x) * x), ("x", "y"))


@pytest.mark.parametrize("jitted", [False, True])
def test_shard_map_is_exported(jitted: bool) -> None:
    fx_fn = fx.shard_map(fx_summed, mesh=MESH, in_specs=fx.P("x", "y"), out_specs=fx.P())
    jax_fn = to_jax(fx.jit(fx_fn) if jitted else fx_fn)
    assert_near(jax_fn(X), fx_fn(X))
    assert_near(jax.jit(jax_fn)(jax.device_put(X, jax_sharding_of("x"))), fx_fn(X))
    assert_near(jax.grad(jax_fn)(X), fx.grad(fx_fn)(X))
    assert_near(jax.vmap(jax_fn)(np.stack([X, X * 2])), fx.vmap(fx_fn)(np.stack([X, X * 2])))
    assert "shard_map" in str(jax.make_jaxpr(jax_fn)(X))
    assert_near(from_jax(jax_fn)(X), fx_fn(X))


def test_sharding_constraints_are_exported() -> None:
    def fx_fn(x: Any) -> Any:
        return fx.lax.with_sharding_constraint(x * 2, fx_sharding_of("y"))

    jax_fn: Any = jax.jit(to_jax(fx_fn))
    assert jax_fn(X).sharding == jax_sharding_of("y")


# ------------------------------------------------------------------ meshes, shardings, arrays


def test_meshes_and_shardings_roundtrip() -> None:
    backward = fx.Mesh(MESH.devices[::-1], ("a", "b"))
    for mesh in (MESH, backward, fx.Mesh(fx.devices()[2:6], "z")):
        jax_mesh = mesh_to_jax(mesh)
        assert [d.id for d in jax_mesh.devices.flat] == [d.id for d in mesh.flat]
        assert mesh_from_jax(jax_mesh) == mesh
    assert mesh_to_jax(MESH) == JAX_MESH
    for parts in ((), ("x",), (("y", "x"),), (None, "y"), ("x", fx.P.UNCONSTRAINED)):
        sharding = fx_sharding_of(*parts)
        assert sharding_from_jax(sharding_to_jax(sharding)) == sharding
    assert sharding_to_jax(fx_sharding_of(None, "y")) == jax_sharding_of(None, "y")
    single = SingleDeviceSharding(fx.devices()[3])
    assert sharding_to_jax(single) == jax.sharding.SingleDeviceSharding(jax.devices()[3])
    assert sharding_from_jax(sharding_to_jax(single)) == single


def test_unsupported_shardings_are_rejected() -> None:
    explicit = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Explicit,))
    with pytest.raises(ValueError, match="unreduced"):
        sharding_from_jax(jax.NamedSharding(explicit, P(None, unreduced={"x"})))
    with pytest.raises(TypeError, match="has no counterpart in tracefx: use a NamedSharding"):
        sharding_from_jax(GSPMDSharding.get_replicated(tuple(jax.devices()[:2])))


@pytest.mark.parametrize("parts", [("x",), ("x", "y"), (), (None, "y")], ids=str)
def test_sharded_arrays_keep_their_shardings(parts: Any) -> None:
    jax_array = jax.device_put(X, jax_sharding_of(*parts))
    fx_array = as_tracefx(jax_array)
    assert isinstance(fx_array, ShardedArray)
    assert fx_array.sharding == fx_sharding_of(*parts)
    np.testing.assert_array_equal(fx_array, X)
    np.testing.assert_array_equal(fx_array * 2, X * 2)
    back = as_jax(fx.device_put(X, fx_sharding_of(*parts)))
    assert back.sharding == jax_sharding_of(*parts)
    np.testing.assert_array_equal(back, X)
    ids = [s.device.id for s in back.addressable_shards]
    assert ids == [s.device.id for s in jax_array.addressable_shards]


def test_dtypes_of_sharded_arrays_roundtrip() -> None:
    for dtype in ("bfloat16", "int4", "float8_e4m3fn", "bool", "complex64"):
        x = fx.device_put(fx.numpy.asarray(X % 2).astype(dtype), fx_sharding_of("x"))
        restored = as_tracefx(as_jax(x))
        assert (restored.dtype, restored.sharding) == (x.dtype, fx_sharding_of("x"))
        np.testing.assert_array_equal(np.asarray(restored), np.asarray(x))
    weak = fx.device_put(fx.numpy.asarray(2.0), fx_sharding_of())
    assert as_jax(weak).weak_type
    keys = fx.device_put(fx.random.split(fx.random.key(0), 8), fx_sharding_of("x"))
    np.testing.assert_array_equal(jax.random.key_data(as_jax(keys)), fx.random.key_data(keys))
    assert as_tracefx(as_jax(keys)).dtype == keys.dtype


def test_imported_functions_keep_shardings_of_arguments() -> None:
    f: Callable[[Any], Any] = from_jax(lambda x: jnp.sin(x) * 2)
    assert f(fx.device_put(X, fx_sharding_of("x"))).sharding == fx_sharding_of("x")
    assert fx.jit(f)(fx.device_put(X, fx_sharding_of("x"))).sharding == fx_sharding_of("x")
    assert f(jax.device_put(X, jax_sharding_of("y"))).sharding == fx_sharding_of("y")


def test_committed_arrays_stay_committed_in_jax() -> None:
    x, y = [as_jax(fx.device_put(np.arange(3.0, dtype=np.float32), fx.devices()[index])) for index in (0, 3)]
    assert (x.committed, x.devices()) == (True, {jax.devices()[0]})
    assert (y.committed, y.devices()) == (True, {jax.devices()[3]})
    assert not as_jax(fx.numpy.arange(3.0)).committed
    with pytest.raises(ValueError, match="incompatible devices"):
        _ = x + y


# ------------------------------------------------------------------ explicit mesh axes

EXPLICIT: Final = fx.make_mesh((2, 4), ("x", "y"))


@final
@frozen
class Modules:
    """The modules of one library."""

    np: Any
    lax: Any
    sharding: Any
    P: Any


TRACEFX: Final = Modules(fx.numpy, fx.lax, fx.sharding, fx.P)
JAX: Final = Modules(jnp, lax, jax.sharding, jax.P)

EXPLICIT_PROGRAMS: Final[dict[str, Callable[[Modules, Any], Any]]] = {
    "elementwise": lambda m, x: m.np.sin(x) * 2,
    "contraction": lambda m, x: m.np.matmul(x.T, x, out_sharding=m.P("y")),
    "reshard": lambda m, x: m.sharding.reshard(x * 2, m.P(None, "y")) + 1,
    "auto_axes": lambda m, x: m.sharding.auto_axes(lambda a: a[:3] * 2, out_sharding=m.P())(x),
    "gather": lambda m, x: x.at[m.np.array([0, 1])].get(out_sharding=m.P()),
    "constraint": lambda m, x: m.lax.with_sharding_constraint(x * 2, m.P("x")),
    "creation": lambda m, x: x + m.np.zeros(X.shape, "float32", out_sharding=m.P("x")),
    "scan": lambda m, x: m.lax.scan(lambda c, _: (m.np.tanh(c), c.sum()), x, None, length=3),
}
"""Programs of an array f32[8@x,4]."""


def typed(out: Any) -> list[tuple[str, Any]]:
    """Returns the types of results as text, and their values."""
    return [
        (
            (fx.typeof(x) if isinstance(x, fx.Array) else jax.typeof(x)).str_short(short_dtypes=True).partition("(")[0],
            np.asarray(x),
        )
        for x in jax.tree.leaves(out)
    ]


@pytest.mark.parametrize("name", EXPLICIT_PROGRAMS)
def test_programs_over_explicit_axes(name: str) -> None:
    program = EXPLICIT_PROGRAMS[name]
    jax_mesh = mesh_to_jax(EXPLICIT)
    fx_x = fx.device_put(X, fx.NamedSharding(EXPLICIT, fx.P("x")))
    jax_x = jax.device_put(X, jax.NamedSharding(jax_mesh, jax.P("x")))
    set_mesh: Any = jax.set_mesh
    with fx.set_mesh(EXPLICIT), set_mesh(jax_mesh):
        fx_fn, jax_fn = functools.partial(program, TRACEFX), functools.partial(program, JAX)
        want = typed(jax_fn(jax_x))
        imported, exported = from_jax(jax_fn), to_jax(fx_fn)
        results = imported(fx_x), fx.jit(imported)(fx_x), exported(jax_x), jax.jit(exported)(jax_x)
        for out in results:
            got = typed(out)
            assert [each for each, _ in got] == [each for each, _ in want]
            for (_, a), (_, b) in zip(got, want, strict=True):
                assert_near(a, b)


def test_gradients_over_explicit_axes() -> None:
    jax_mesh = mesh_to_jax(EXPLICIT)
    fx_x = fx.device_put(X, fx.NamedSharding(EXPLICIT, fx.P("x")))
    jax_x = jax.device_put(X, jax.NamedSharding(jax_mesh, jax.P("x")))

    def jax_fn(x: Any) -> Any:
        return jnp.sin(x).sum()

    def fx_fn(x: fx.Array) -> fx.Array:
        return fx.numpy.sin(x).sum()

    set_mesh: Any = jax.set_mesh
    imported = fx.grad(from_jax(jax_fn))(fx_x)
    with set_mesh(jax_mesh):
        exported = jax.grad(to_jax(fx_fn))(jax_x)
    assert [t for t, _ in typed([imported, exported])] == ["f32[8@x,4]", "f32[8@x,4]"]
    assert_near(imported, np.cos(X))
    assert_near(exported, np.cos(X))


def test_shard_map_over_explicit_axes_is_exported() -> None:
    @fx.shard_map(mesh=EXPLICIT, in_specs=fx.P("x"), out_specs=fx.P())
    def fx_fn(a: fx.Array) -> Any:
        return fx.lax.psum(a, "x")

    jax_x = jax.device_put(X, jax.NamedSharding(mesh_to_jax(EXPLICIT), jax.P("x")))
    assert_near(jax.jit(to_jax(fx_fn))(jax_x), X[:4] + X[4:])
