"""Exported programs over several devices: loaded, called on other meshes of as many devices, read by JAX."""

# mypy: untyped-calls-exclude="jax"

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np
import pytest

import tracefx as fx
import tracefx.lax as fx_lax
import tracefx.numpy as fnp
from tests.closeness import assert_near
from tests.sharding.both import JAX, OURS, Library, parametrize_programs
from tests.sharding.test_arrays import put
from tests.sharding.test_meshes import on
from tracefx import P
from tracefx.testing.tolerances import SUMMED
from tracefx.xla.runtime import read_portable

X: Final = np.arange(64, dtype=np.float32).reshape(8, 8) / 64
W: Final = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
BACKWARD: Final = fx.Mesh(OURS.mesh.devices[::-1], ("a", "b"))
FEW: Final = fx.Mesh(fx.devices()[:4], "z")


def constrained(library: Library) -> Any:
    def f(x: Any) -> Any:
        y = library.lax.with_sharding_constraint(library.np.sin(x), on(library, "y"))
        return y @ W, y

    return library.m.jit(f)


def by_hand(library: Library) -> Any:
    def f(x: Any) -> Any:
        return library.lax.psum(x, "x") + library.lax.axis_index("y")

    return library.m.jit(library.over(f, library.P("x"), library.P("y")))


def said(library: Library) -> Any:
    return library.m.jit(
        lambda x: (x * 2, x + W), in_shardings=on(library, "x"), out_shardings=(on(library, "y"), None)
    )


def in_loops(library: Library) -> Any:
    over = library.over(lambda x: library.lax.psum(x, "x") / 4, library.P("x"), library.P("x"))
    return library.m.jit(lambda x: library.lax.scan(lambda c, _: (over(c), c.sum()), x, None, length=3))


PROGRAMS: Final = (constrained, by_hand, said, in_loops)


def same(got: Any, want: Any) -> None:
    assert fx.tree.structure(got) == fx.tree.structure(want)
    for a, b in zip(fx.tree.leaves(got), fx.tree.leaves(want), strict=True):
        np.testing.assert_array_equal(a, b)


@parametrize_programs(PROGRAMS)
def test_what_is_loaded_is_the_function(program: Any) -> None:
    f = program(OURS)
    it: fx.Exported[..., Any] = fx.export(f)(X)
    loaded = fx.load(it.serialize())
    assert loaded.serialize() == it.serialize()
    assert it.nr_devices == loaded.nr_devices == 8
    assert (loaded.in_shardings, loaded.out_shardings) == (it.in_shardings, it.out_shardings)
    for call in (it.call, loaded.call, fx.jit(loaded.call)):
        same(call(X), f(X))
        same(call(put(OURS, "x", x=X)), f(X))


@parametrize_programs(PROGRAMS)
def test_jax_reads_and_runs_it(program: Any) -> None:
    want = program(JAX)(X)
    for platforms in (None, ["cpu", "tpu"]):
        theirs = jax.export.deserialize(bytearray(fx.export(program(OURS), platforms=platforms)(X).to_jax()))
        assert theirs.nr_devices == 8
        for given in (put(JAX, "x", x=X), put(JAX, "y", "x", x=X)):
            got = theirs.call(given)
            for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
                assert_near(a, np.asarray(b), SUMMED)
        with pytest.raises(ValueError, match="was exported for 8 devices and is called in a context with 1"):
            theirs.call(X)


def test_shardings_are_those_that_jax_exports() -> None:
    ours: fx.Exported[..., Any] = fx.export(said(OURS))(X)
    theirs = jax.export.export(said(JAX))(X)
    (mine,), (jaxs,) = ours.in_shardings, theirs.in_shardings_jax(JAX.mesh)
    assert (mine, jaxs) == (on(OURS, "x"), on(JAX, "x"))
    assert ours.out_shardings == (on(OURS, "y"), None)
    assert theirs.out_shardings_jax(JAX.mesh) == (on(JAX, "y"), None)
    assert ours.nr_devices == theirs.nr_devices
    arrays = fx.export(fx.jit(lambda a, b: a + b))(put(OURS, "x", x=X), X)
    assert arrays.in_shardings == (on(OURS, "x"), None)
    types = fx.export(fx.jit(lambda a: a))(fx.ShapeDtypeStruct((8, 8), np.float32, sharding=on(OURS, "y")))
    assert types.in_shardings == (on(OURS, "y"),)
    alone = fx.export(fx.jit(fnp.sin))(X)
    assert (alone.nr_devices, alone.in_shardings, alone.out_shardings) == (1, (None,), (None,))


def test_arguments_come_to_where_they_were_when_it_was_exported() -> None:
    """As in JAX."""
    for library in (OURS, JAX):
        export = library.m.export if library is OURS else jax.export.export
        it = export(said(library))(X)
        first, second = it.call(put(library, "y", "x", x=X))
        assert first.sharding == on(library, "y")
        np.testing.assert_array_equal(first, X * 2)
        np.testing.assert_array_equal(second, X + W)


@parametrize_programs(PROGRAMS)
def test_called_on_another_mesh(program: Any) -> None:
    loaded = fx.load(fx.export(program(OURS))(X).serialize())
    want = program(OURS)(X)
    there = fx.device_put(X, fx.NamedSharding(BACKWARD, P("a")))
    got = loaded.call(there)
    same(got, want)
    for x in fx.tree.leaves(got):
        assert x.sharding.devices == BACKWARD.flat
    with fx.set_mesh(BACKWARD):
        got = loaded.call(X)
    same(got, want)
    assert {x.sharding.devices for x in fx.tree.leaves(got)} == {BACKWARD.flat}
    assert loaded.call(there)[0].sharding == loaded.call(there)[0].sharding


def test_bytes_do_not_depend_on_the_devices() -> None:
    """They are counted in the order in which the program has them."""

    def of(mesh: Any) -> bytes:
        f = fx.shard_map(lambda x: fx_lax.psum(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P())
        return fx.export(fx.jit(f))(X).serialize()

    forward = fx.Mesh(fx.devices()[:4], "x")
    assert of(fx.Mesh(fx.devices()[4:], "x")) == of(fx.Mesh(fx.devices()[:4][::-1], "x")) == of(forward)


def test_another_number_of_devices_is_refused() -> None:
    it: fx.Exported[..., Any] = fx.export(by_hand(OURS))(X)
    few = fx.device_put(X, fx.NamedSharding(FEW, P("z")))
    with pytest.raises(ValueError, match="was exported for 8 devices, but its arguments are on 4: call it with arrays"):
        it.call(few)
    with fx.set_mesh(FEW), pytest.raises(ValueError, match="exported for 8 devices, but the mesh in use has 4"):
        it.call(X)
    small = fx.export(fx.jit(lambda x: fx.lax.with_sharding_constraint(x, fx.NamedSharding(FEW, P("z")))))(X)
    assert small.nr_devices == 4
    assert small.call(few).sharding == few.sharding
    with pytest.raises(ValueError, match="was exported for 4 devices, but its arguments are on 8"):
        small.call(put(OURS, "x", x=X))


def test_meshes_of_different_devices_are_refused() -> None:
    def f(x: Any) -> Any:
        return fx.lax.with_sharding_constraint(
            fx.lax.with_sharding_constraint(x, on(OURS, "x")), fx.NamedSharding(FEW, P())
        )

    with pytest.raises(ValueError, match="runs on one set of devices"):
        fx.export(fx.jit(f))(X)


def test_what_is_loaded_is_transformed() -> None:
    f = by_hand(OURS)
    loaded = fx.load(fx.export(f)(X).serialize())
    same(fx.grad(lambda x: (loaded.call(x) ** 2).sum())(X), fx.grad(lambda x: (f(x) ** 2).sum())(X))
    same(fx.vmap(loaded.call)(np.stack([X, W])), fx.vmap(f)(np.stack([X, W])))


def test_the_module_says_it() -> None:
    it: fx.Exported[..., Any] = fx.export(said(OURS))(X)
    text = it.mlir_module()
    assert "mhlo.num_partitions = 8 : i32" in text
    assert '%arg0: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}' in text
    assert read_portable(it.mlir_module_serialized).operation.verify()


def test_closed_over_arrays_are_part_of_it() -> None:
    whole = np.arange(64, dtype=np.float32).reshape(8, 8)
    spread = put(OURS, "x", x=whole)
    it = fx.export(fx.jit(lambda x: x @ spread, in_shardings=on(OURS, "y")))(X)
    assert (it.nr_devices, it.in_shardings) == (8, (on(OURS, "y"),))
    same(fx.load(it.serialize()).call(whole), whole @ whole)


ONE_DEVICE: Final = """
import sys, tracefx as fx
try:
    fx.load(open(sys.argv[1], "rb").read())
except fx.errors.ParseError as error:
    print(error)
"""


def test_it_takes_as_many_devices_to_load(tmp_path: Path) -> None:
    path = tmp_path / "function"
    path.write_bytes(fx.export(by_hand(OURS))(X).serialize())
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    told = subprocess.run(
        [sys.executable, "-c", ONE_DEVICE, str(path)], stdout=subprocess.PIPE, text=True, env=environment, check=True
    )
    assert "the mesh is of 8 devices, but there are 1" in told.stdout
