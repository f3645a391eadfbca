"""Exported multi-device programs: loaded, called on other meshes of the same size, and deserialized by JAX."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import jax
import numpy as np
import pytest

import tracefx as fx
import tracefx.lax as fx_lax
import tracefx.numpy as fnp
from tests.cases import parametrize_functions
from tests.comparison import assert_near, assert_same
from tests.sharding.both import JAX, TRACEFX, Library
from tests.sharding.test_arrays import put
from tests.sharding.test_meshes import on
from tests.subprocesses import output_of
from tracefx import P
from tracefx.testing.tolerances import SUMMED
from tracefx.xla.runtime.portable import read_portable

X: Final = np.arange(64, dtype=np.float32).reshape(8, 8) / 64
W: Final = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
BACKWARD: Final = fx.Mesh(TRACEFX.mesh.devices[::-1], ("a", "b"))
FEW: Final = fx.Mesh(fx.devices()[:4], "z")


def constrained(library: Library) -> Any:
    def f(x: Any) -> Any:
        y = library.lax.with_sharding_constraint(library.np.sin(x), on(library, "y"))
        return y @ W, y

    return library.m.jit(f)


def shard_mapped(library: Library) -> Any:
    def f(x: Any) -> Any:
        return library.lax.psum(x, "x") + library.lax.axis_index("y")

    return library.m.jit(library.shard_map(f, library.P("x"), library.P("y")))


def with_shardings(library: Library) -> Any:
    return library.m.jit(
        lambda x: (x * 2, x + W), in_shardings=on(library, "x"), out_shardings=(on(library, "y"), None)
    )


def in_loops(library: Library) -> Any:
    over = library.shard_map(lambda x: library.lax.psum(x, "x") / 4, library.P("x"), library.P("x"))
    return library.m.jit(lambda x: library.lax.scan(lambda c, _: (over(c), c.sum()), x, None, length=3))


programs: Final = parametrize_functions(globals(), "library")


@programs
def test_loaded_function_matches_the_original(program: Any) -> None:
    f = program(TRACEFX)
    exported: fx.Exported[..., Any] = fx.export(f)(X)
    loaded = fx.load(exported.serialize())
    assert loaded.serialize() == exported.serialize()
    assert exported.nr_devices == loaded.nr_devices == 8
    assert (loaded.in_shardings, loaded.out_shardings) == (exported.in_shardings, exported.out_shardings)
    for call in (exported.call, loaded.call, fx.jit(loaded.call)):
        assert_same(call(X), f(X))
        assert_same(call(put(TRACEFX, "x", x=X)), f(X))


@programs
def test_jax_deserializes_and_runs_exported_programs(program: Any) -> None:
    want = program(JAX)(X)
    for platforms in (None, ["cpu", "tpu"]):
        deserialized = jax.export.deserialize(bytearray(fx.export(program(TRACEFX), platforms=platforms)(X).to_jax()))
        assert deserialized.nr_devices == 8
        for x in (put(JAX, "x", x=X), put(JAX, "y", "x", x=X)):
            got = deserialized.call(x)
            assert_near(got, want, SUMMED)
        with pytest.raises(ValueError, match="was exported for 8 devices and is called in a context with 1"):
            deserialized.call(X)


@programs
def test_exported_vjp_runs_on_all_devices(program: Any) -> None:
    exported: fx.Exported[..., Any] = fx.export(program(TRACEFX))(X)
    loaded, outs = fx.load(exported.serialize(vjp_order=1)), fx.tree.leaves(program(TRACEFX)(X))
    want = fx.vjp(lambda x: fx.tree.leaves(program(TRACEFX)(x)), X)[1](outs)
    assert loaded.vjp().nr_devices == 8
    assert_near(loaded.vjp().call(X, *outs), want, SUMMED)
    assert_near(fx.vjp(lambda x: fx.tree.leaves(loaded.call(x)), X)[1](outs), want, SUMMED)


def test_exported_shardings_match_jax() -> None:
    fx_exported: fx.Exported[..., Any] = fx.export(with_shardings(TRACEFX))(X)
    jax_exported = jax.export.export(with_shardings(JAX))(X)
    (fx_sharding,), (jax_sharding,) = fx_exported.in_shardings, jax_exported.in_shardings_jax(JAX.mesh)
    assert (fx_sharding, jax_sharding) == (on(TRACEFX, "x"), on(JAX, "x"))
    assert fx_exported.out_shardings == (on(TRACEFX, "y"), None)
    assert jax_exported.out_shardings_jax(JAX.mesh) == (on(JAX, "y"), None)
    assert fx_exported.nr_devices == jax_exported.nr_devices
    arrays = fx.export(fx.jit(lambda a, b: a + b))(put(TRACEFX, "x", x=X), X)
    assert arrays.in_shardings == (on(TRACEFX, "x"), None)
    types = fx.export(fx.jit(lambda a: a))(fx.ShapeDtypeStruct((8, 8), np.float32, sharding=on(TRACEFX, "y")))
    assert types.in_shardings == (on(TRACEFX, "y"),)
    single_device = fx.export(fx.jit(fnp.sin))(X)
    assert (single_device.nr_devices, single_device.in_shardings, single_device.out_shardings) == (1, (None,), (None,))


def test_arguments_are_resharded_to_the_exported_shardings() -> None:
    """As in JAX, arguments are resharded to the exported input shardings."""
    for library in (TRACEFX, JAX):
        export = library.m.export if library is TRACEFX else jax.export.export
        exported = export(with_shardings(library))(X)
        first, second = exported.call(put(library, "y", "x", x=X))
        assert first.sharding == on(library, "y")
        np.testing.assert_array_equal(first, X * 2)
        np.testing.assert_array_equal(second, X + W)


@programs
def test_call_on_another_mesh(program: Any) -> None:
    loaded = fx.load(fx.export(program(TRACEFX))(X).serialize())
    want = program(TRACEFX)(X)
    sharded = fx.device_put(X, fx.NamedSharding(BACKWARD, P("a")))
    got = loaded.call(sharded)
    assert_same(got, want)
    for x in fx.tree.leaves(got):
        assert x.sharding.devices == BACKWARD.flat
    with fx.set_mesh(BACKWARD):
        got = loaded.call(X)
    assert_same(got, want)
    assert {x.sharding.devices for x in fx.tree.leaves(got)} == {BACKWARD.flat}
    assert loaded.call(sharded)[0].sharding == loaded.call(sharded)[0].sharding


def test_serialized_bytes_do_not_depend_on_device_ids() -> None:
    """Exported programs refer to devices by their index in the mesh."""

    def serialized_for(mesh: Any) -> bytes:
        f = fx.shard_map(lambda x: fx_lax.psum(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P())
        return fx.export(fx.jit(f))(X).serialize()

    forward = fx.Mesh(fx.devices()[:4], "x")
    assert (
        serialized_for(fx.Mesh(fx.devices()[4:], "x"))
        == serialized_for(fx.Mesh(fx.devices()[:4][::-1], "x"))
        == serialized_for(forward)
    )


def test_call_with_another_number_of_devices_is_rejected() -> None:
    exported: fx.Exported[..., Any] = fx.export(shard_mapped(TRACEFX))(X)
    few = fx.device_put(X, fx.NamedSharding(FEW, P("z")))
    with pytest.raises(ValueError, match="was exported for 8 devices, but its arguments are on 4: call it with arrays"):
        exported.call(few)
    with fx.set_mesh(FEW), pytest.raises(ValueError, match="exported for 8 devices, but the mesh in use has 4"):
        exported.call(X)
    small = fx.export(fx.jit(lambda x: fx.lax.with_sharding_constraint(x, fx.NamedSharding(FEW, P("z")))))(X)
    assert small.nr_devices == 4
    assert small.call(few).sharding == few.sharding
    with pytest.raises(ValueError, match="was exported for 4 devices, but its arguments are on 8"):
        small.call(put(TRACEFX, "x", x=X))


def test_constraints_on_different_device_sets_are_rejected() -> None:
    def f(x: Any) -> Any:
        return fx.lax.with_sharding_constraint(
            fx.lax.with_sharding_constraint(x, on(TRACEFX, "x")), fx.NamedSharding(FEW, P())
        )

    with pytest.raises(ValueError, match="runs on one set of devices"):
        fx.export(fx.jit(f))(X)


def test_grad_and_vmap_of_loaded_functions() -> None:
    f = shard_mapped(TRACEFX)
    loaded = fx.load(fx.export(f)(X).serialize())
    assert_same(fx.grad(lambda x: (loaded.call(x) ** 2).sum())(X), fx.grad(lambda x: (f(x) ** 2).sum())(X))
    assert_same(fx.vmap(loaded.call)(np.stack([X, W])), fx.vmap(f)(np.stack([X, W])))


def test_mlir_module_has_shardings() -> None:
    exported: fx.Exported[..., Any] = fx.export(with_shardings(TRACEFX))(X)
    text = exported.mlir_module()
    assert "mhlo.num_partitions = 8 : i32" in text
    assert '%arg0: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}' in text
    assert read_portable(exported.mlir_module_serialized).operation.verify()


def test_closed_over_sharded_arrays_are_exported() -> None:
    whole = np.arange(64, dtype=np.float32).reshape(8, 8)
    sharded = put(TRACEFX, "x", x=whole)
    exported = fx.export(fx.jit(lambda x: x @ sharded, in_shardings=on(TRACEFX, "y")))(X)
    assert (exported.nr_devices, exported.in_shardings) == (8, (on(TRACEFX, "y"),))
    assert_same(fx.load(exported.serialize()).call(whole), whole @ whole)


ONE_DEVICE: Final = """
import sys, tracefx as fx
try:
    fx.load(open(sys.argv[1], "rb").read())
except fx.errors.ParseError as error:
    print(error)
"""


def test_load_with_too_few_devices_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "function"
    path.write_bytes(fx.export(shard_mapped(TRACEFX))(X).serialize())
    assert "the mesh is of 8 devices, but there are 1" in output_of(ONE_DEVICE, path, XLA_FLAGS=None)


def test_functions_of_one_device_take_arrays_with_shardings_in_types() -> None:
    sharded = fx.device_put(X, fx.NamedSharding(fx.make_mesh((8,), ("x",)), P("x")))
    assert str(fx.typeof(sharded)) == "f32[8@x,8]"
    by_jax = jax.export.export(jax.jit(lambda x: jax.numpy.sort(x @ W)))(X)
    for exported in (fx.export(fx.jit(lambda x: fnp.sort(x @ W)))(X), fx.load(bytes(by_jax.serialize(vjp_order=1)))):
        for call in (exported.call, fx.jit(exported.call)):
            got = call(sharded)
            assert str(fx.typeof(got)) == "f32[8,8]"
            assert_near(got, np.sort(X @ W), SUMMED)
        gradient = fx.grad(lambda x, call: fnp.sum(call(x) * X))
        assert_near(gradient(sharded, exported.call), gradient(X, exported.call), SUMMED)
