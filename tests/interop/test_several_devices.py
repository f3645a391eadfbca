"""Programs over several devices from JAX and to JAX, and the meshes, shardings and arrays that they speak of."""

# mypy: untyped-calls-exclude="jax"

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax._src.sharding_impls import GSPMDSharding

import tracefx as fx
from tests.closeness import assert_near
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
from tracefx.sharding import SingleDeviceSharding
from tracefx.shardings.sharded_array import ShardedArray
from tracefx.testing.tolerances import SUMMED

X: Final = np.arange(32, dtype=np.float32).reshape(8, 4) / 16
MESH: Final = fx.make_mesh((4, 2), ("x", "y"))
JAXS: Final = jax.sharding.Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("x", "y"))
P: Final[Any] = jax.P


def on(*parts: Any) -> fx.NamedSharding:
    return fx.NamedSharding(MESH, fx.P(*parts))


def there(*parts: Any) -> Any:
    return jax.NamedSharding(JAXS, P(*parts))


def over(in_specs: Any, out_specs: Any, check: bool = True, **options: Any) -> Callable[[Any], Any]:
    return jax.shard_map(mesh=JAXS, in_specs=in_specs, out_specs=out_specs, check_vma=check, **options)


def near(ours: Any, theirs: Any) -> None:
    got, want = jax.tree.leaves(ours), jax.tree.leaves(theirs)
    assert len(got) == len(want) > 0
    for a, b in zip(got, want, strict=True):
        assert_near(a, np.asarray(b), SUMMED)


# ------------------------------------------------------------------ programs of JAX


def summed(check: bool) -> Any:
    @over(P("x", "y"), P(), check)
    def f(x: Any) -> Any:
        return lax.psum(jnp.sum(jnp.sin(x) * x), ("x", "y"))

    return f


def in_a_loop(check: bool) -> Any:
    @over(P("x"), P("x"), check)
    def f(x: Any) -> Any:
        def body(c: Any, _: Any) -> Any:
            total = lax.psum(c, "x")
            return c * 0.5 + total, total.sum()

        c, totals = lax.scan(body, x, None, length=3)
        return c * totals.mean() + lax.cond(totals[0] > 0, lambda c: c * 2, lambda c: c, c)

    return f


def with_a_rule(check: bool) -> Any:
    @jax.custom_vjp
    def scaled(x: Any) -> Any:
        return x * 3.0

    scaled.defvjp(lambda x: (scaled(x), None), lambda _, ct: (ct * 5.0,))

    @over(P("x"), P("x"), check)
    def f(x: Any) -> Any:
        return scaled(jnp.tanh(x)) * 2.0

    return f


def of_a_model(check: bool) -> Any:
    w = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)

    @over(P("x"), P(), check)
    def f(x: Any) -> Any:
        hidden = jax.nn.relu(x @ w)
        logits = jax.nn.log_softmax(hidden @ w.T) + jax.nn.relu(x.sum())
        return lax.pmean(jax.checkpoint(jnp.sin)(logits).mean(), "x")

    return f


def of_pmap(check: bool) -> Any:
    return jax.pmap(lambda x: x / lax.psum(x.sum(), "i"), axis_name="i")


PROGRAMS: Final = (summed, in_a_loop, with_a_rule, of_a_model, of_pmap)


@pytest.mark.parametrize("check", [True, False], ids=["checked", "unchecked"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_programs_for_each_device_are_imported(program: Any, check: bool) -> None:
    theirs = program(check)
    x = X + 0.25
    ours = from_jax(theirs)
    near(fx.jit(ours)(x), theirs(x))
    slope = jax.jit(jax.grad(lambda x: jnp.sum(jnp.cos(theirs(x)))))
    near(fx.jit(fx.grad(lambda x: fx.numpy.sum(fx.numpy.cos(ours(x)))))(x), slope(x))
    near(fx.jit(from_jax(slope))(x), slope(x))


@pytest.mark.parametrize("check", [True, False], ids=["checked", "unchecked"])
def test_collectives(check: bool) -> None:
    @over(P("x", "y"), (P("x", "y"),) * 4 + (P(None, "y"),), check)
    def theirs(x: Any) -> Any:
        rows = lax.all_gather(x, "x", tiled=True)
        moved = lax.ppermute(x, "x", [(0, 1), (1, 2), (3, 0)])
        scattered = lax.psum_scatter(jnp.concatenate([x] * 4), "x", tiled=True)
        exchanged = lax.all_to_all(x, "y", 1, 0, tiled=True).reshape(x.shape)
        highest = lax.pmax(x, "x") + lax.pmin(x, ("x",)) * 2.0
        return rows.sum() * moved, exchanged, scattered, lax.psum(x, "x") + lax.axis_index("x"), highest

    near(from_jax(theirs)(X), theirs(X))
    batch = np.stack([X, X * 2])
    near(fx.vmap(from_jax(theirs))(batch), jax.vmap(theirs)(batch))


def test_some_axes_are_the_compilers() -> None:
    @over(P("x"), P("x"), axis_names={"x"})
    def theirs(x: Any) -> Any:
        return x * lax.psum(x.sum(), "x")

    x = jax.device_put(X, there("x"))
    near(fx.jit(from_jax(jax.jit(theirs)))(X), jax.jit(theirs)(x))


def test_the_operation_is_ours() -> None:
    theirs = over(P("x"), P(None))(lambda x: lax.psum(x, "x"))
    (eqn,) = fx.make_jaxpr(from_jax(theirs))(X).eqns
    assert isinstance(eqn.prim, ShardMapPrimitive)
    assert eqn.prim.mesh == MESH
    assert (eqn.prim.in_specs, eqn.prim.out_specs) == ((fx.P("x"),), (fx.P(None),))
    assert [e.prim.name for e in eqn.prim.jaxpr.eqns] == ["psum"]


def test_the_mesh_in_use() -> None:
    using: Any = jax.set_mesh
    with using(JAXS):
        theirs: Any = jax.shard_map(lambda x: lax.psum(x, "x"), in_specs=P("x"), out_specs=P())
        near(from_jax(theirs)(X), theirs(X))
        want = np.asarray(theirs(X))

    using_types: Any = jax.sharding.use_abstract_mesh

    def bare(x: Any) -> Any:
        with using_types(JAXS.abstract_mesh):
            return jax.shard_map(lambda x: lax.psum(x, "x"), in_specs=P("x"), out_specs=P())(x)

    with fx.set_mesh(MESH):
        near(from_jax(bare)(X), want)
    with pytest.raises(ValueError, match=r"but no current mesh has these axes: call it"):
        from_jax(bare)(X)


# ------------------------------------------------------------------ where arrays lie


def test_shardings_of_imported_programs() -> None:
    theirs = jax.jit(lambda x: (x * 2, x.sum(0)), in_shardings=there("x"), out_shardings=(there("y"), None))
    first, second = fx.jit(from_jax(theirs))(X)
    assert first.sharding == on("y")
    near((first, second), theirs(X))

    @jax.jit
    def constrained(x: Any) -> Any:
        y = lax.with_sharding_constraint(x + 1, there("x", P.UNCONSTRAINED))
        return lax.with_sharding_constraint(y, there(None, "y")) * 2, jax.device_put(x, there("y"))

    found = [
        eqn.prim.sharding
        for eqn in fx.make_jaxpr(from_jax(constrained))(X).eqns[0].prim.jaxpr.eqns  # type: ignore[attr-defined]  # a call
        if isinstance(eqn.prim, ShardingConstraint)
    ]
    assert found == [on("x", fx.P.UNCONSTRAINED), on(None, "y"), on("y")]
    near(fx.jit(from_jax(constrained))(X), constrained(X))
    slope = fx.grad(lambda x: from_jax(constrained)(x)[0].sum())(X)
    near(slope, np.full(X.shape, 2, np.float32))


def test_explicit_meshes() -> None:
    explicit = jax.make_mesh((4, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    using: Any = jax.set_mesh
    with using(explicit):

        def theirs(x: Any) -> Any:
            return jax.sharding.reshard(x * 2, P(None, "y")) + 1

        near(from_jax(theirs)(X), theirs(jax.device_put(X, P("x"))))


def test_shardings_inside_of_a_program_for_each_device() -> None:
    @over(P("x"), P("x"), axis_names={"x"})
    def theirs(x: Any) -> Any:
        return lax.with_sharding_constraint(x * 2, P(None, "y"))

    near(fx.jit(from_jax(jax.jit(theirs)))(X), X * 2)


# ------------------------------------------------------------------ programs of ours


def ours_summed(x: Any) -> Any:
    return fx.lax.psum(fx.numpy.sum(fx.numpy.sin(x) * x), ("x", "y"))


@pytest.mark.parametrize("jitted", [False, True])
def test_programs_for_each_device_are_exported(jitted: bool) -> None:
    ours = fx.shard_map(ours_summed, mesh=MESH, in_specs=fx.P("x", "y"), out_specs=fx.P())
    theirs = to_jax(fx.jit(ours) if jitted else ours)
    near(theirs(X), ours(X))
    near(jax.jit(theirs)(jax.device_put(X, there("x"))), ours(X))
    near(jax.grad(theirs)(X), fx.grad(ours)(X))
    near(jax.vmap(theirs)(np.stack([X, X * 2])), fx.vmap(ours)(np.stack([X, X * 2])))
    assert "shard_map" in str(jax.make_jaxpr(theirs)(X))
    near(from_jax(theirs)(X), ours(X))


def test_constraints_are_exported() -> None:
    def ours(x: Any) -> Any:
        return fx.lax.with_sharding_constraint(x * 2, on("y"))

    theirs: Any = jax.jit(to_jax(ours))
    assert theirs(X).sharding == there("y")


# ------------------------------------------------------------------ meshes, shardings, arrays


def test_meshes_and_shardings_go_both_ways() -> None:
    backward = fx.Mesh(MESH.devices[::-1], ("a", "b"))
    for mesh in (MESH, backward, fx.Mesh(fx.devices()[2:6], "z")):
        theirs = mesh_to_jax(mesh)
        assert [d.id for d in theirs.devices.flat] == [d.id for d in mesh.flat]
        assert mesh_from_jax(theirs) == mesh
    assert mesh_to_jax(MESH) == JAXS
    for parts in ((), ("x",), (("y", "x"),), (None, "y"), ("x", fx.P.UNCONSTRAINED)):
        sharding = on(*parts)
        assert sharding_from_jax(sharding_to_jax(sharding)) == sharding
    assert sharding_to_jax(on(None, "y")) == there(None, "y")
    alone = SingleDeviceSharding(fx.devices()[3])
    assert sharding_to_jax(alone) == jax.sharding.SingleDeviceSharding(jax.devices()[3])
    assert sharding_from_jax(sharding_to_jax(alone)) == alone


def test_what_has_no_counterpart() -> None:
    explicit = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Explicit,))
    with pytest.raises(ValueError, match="unreduced"):
        sharding_from_jax(jax.NamedSharding(explicit, P(None, unreduced={"x"})))
    with pytest.raises(TypeError, match="has no counterpart in tracefx: use a NamedSharding"):
        sharding_from_jax(GSPMDSharding.get_replicated(tuple(jax.devices()[:2])))


@pytest.mark.parametrize("parts", [("x",), ("x", "y"), (), (None, "y")], ids=str)
def test_arrays_stay_where_they_lie(parts: Any) -> None:
    theirs = jax.device_put(X, there(*parts))
    ours = as_tracefx(theirs)
    assert isinstance(ours, ShardedArray)
    assert ours.sharding == on(*parts)
    np.testing.assert_array_equal(ours, X)
    np.testing.assert_array_equal(ours * 2, X * 2)
    back = as_jax(fx.device_put(X, on(*parts)))
    assert back.sharding == there(*parts)
    np.testing.assert_array_equal(back, X)
    ids = [s.device.id for s in back.addressable_shards]
    assert ids == [s.device.id for s in theirs.addressable_shards]


def test_dtypes_of_arrays_on_several_devices() -> None:
    for dtype in ("bfloat16", "int4", "float8_e4m3fn", "bool", "complex64"):
        x = fx.device_put(fx.numpy.asarray(X % 2).astype(dtype), on("x"))
        there_and_back = as_tracefx(as_jax(x))
        assert (there_and_back.dtype, there_and_back.sharding) == (x.dtype, on("x"))
        np.testing.assert_array_equal(np.asarray(there_and_back), np.asarray(x))
    weak = fx.device_put(fx.numpy.asarray(2.0), on())
    assert as_jax(weak).weak_type
    keys = fx.device_put(fx.random.split(fx.random.key(0), 8), on("x"))
    np.testing.assert_array_equal(jax.random.key_data(as_jax(keys)), fx.random.key_data(keys))
    assert as_tracefx(as_jax(keys)).dtype == keys.dtype


def test_imported_functions_take_arrays_of_both_where_they_lie() -> None:
    f: Callable[[Any], Any] = from_jax(lambda x: jnp.sin(x) * 2)
    assert f(fx.device_put(X, on("x"))).sharding == on("x")
    assert fx.jit(f)(fx.device_put(X, on("x"))).sharding == on("x")
    assert f(jax.device_put(X, there("y"))).sharding == on("y")
