"""Meshes, specifications and shardings, as JAX's are."""

# mypy: untyped-calls-exclude="jax"

from __future__ import annotations

import pickle
from typing import Any, Final

import jax
import numpy as np
import pytest

import tracefx as fx
from tests.sharding.both import JAX, OURS, Library
from tracefx import P
from tracefx.sharding import SingleDeviceSharding

SPECS: Final = (
    (),
    ("x",),
    ("y",),
    ("x", "y"),
    ("y", "x"),
    (None, "x"),
    (("x", "y"),),
    (("y", "x"),),
    (None, ("x", "y")),
)
SHAPE: Final = (8, 16)


def on(library: Library, *parts: Any) -> Any:
    sharding = library.m.sharding.NamedSharding
    return sharding(library.mesh, library.P(*parts))


def indices(sharding: Any, shape: tuple[int, ...]) -> dict[int, Any]:
    return {device.id: index for device, index in sharding.devices_indices_map(shape).items()}


# ------------------------------------------------------------------ meshes


def test_a_mesh_says_what_jaxs_does() -> None:
    ours, theirs = OURS.mesh, JAX.mesh
    assert dict(ours.shape) == dict(theirs.shape)
    assert ours.axis_names == theirs.axis_names
    assert ours.axis_sizes == theirs.axis_sizes
    assert ours.shape_tuple == theirs.shape_tuple
    assert (ours.size, ours.empty) == (theirs.size, theirs.empty)
    assert ours.device_ids.tolist() == theirs.device_ids.tolist()
    assert [d.id for d in ours.devices.flat] == [d.id for d in theirs.devices.flat]


def test_meshes_are_values() -> None:
    mesh = OURS.mesh
    assert mesh == fx.Mesh(mesh.devices, mesh.axis_names)
    assert hash(mesh) == hash(fx.Mesh(mesh.devices, mesh.axis_names))
    assert mesh != fx.Mesh(mesh.devices, ("y", "x"))
    assert mesh != fx.Mesh(mesh.devices.T, ("x", "y"))
    with pytest.raises(ValueError, match="read-only"):
        mesh.devices[0, 0] = None


def test_a_mesh_of_the_first_devices() -> None:
    mesh = fx.make_mesh((2, 3), ("a", "b"))
    assert mesh.device_ids.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert fx.make_mesh((2,), ("a",), devices=fx.devices()[4:]).device_ids.tolist() == [4, 5]
    assert fx.make_mesh((8,), ("a",)) == fx.Mesh(fx.devices(), "a")
    assert fx.get_mesh().empty


def test_meshes_that_are_refused() -> None:
    devices = fx.devices()
    with pytest.raises(ValueError, match=r"takes 16 devices, but there are 8; .*device_count=16"):
        fx.make_mesh((4, 4), ("x", "y"))
    with pytest.raises(ValueError, match=r"2 names \('x', 'y'\) were given for devices of shape \(8,\)"):
        fx.Mesh(devices, ("x", "y"))
    with pytest.raises(ValueError, match="must be different"):
        fx.Mesh(np.array(devices).reshape(4, 2), ("x", "x"))
    with pytest.raises(ValueError, match="a device occurs twice"):
        fx.Mesh([devices[0], devices[0]], "x")
    with pytest.raises(TypeError, match="axis names must be strings, got 3"):
        fx.Mesh(devices, (3,))  # type: ignore[arg-type]  # on purpose


def test_the_mesh_in_use_ends_with_its_block() -> None:
    mesh = OURS.mesh
    with fx.set_mesh(mesh) as used:
        assert fx.get_mesh() is used is mesh
        with pytest.raises(ZeroDivisionError), fx.set_mesh(fx.make_mesh((2,), ("z",))):
            1 // 0  # noqa: B018
        assert fx.get_mesh() is mesh
    assert fx.get_mesh().empty
    with pytest.raises(TypeError, match="set_mesh takes a Mesh, got 3"), fx.set_mesh(3):  # type: ignore[arg-type]  # on purpose
        pass


# ------------------------------------------------------------------ specifications


def test_specifications_are_values_like_jaxs() -> None:
    for F in (P, jax.sharding.PartitionSpec):
        assert F("x", None) != F("x")
        assert F(("x",)) == F("x")
        assert hash(F("x", ("y", "z"))) == hash(F("x", ("y", "z")))
        assert list(F("x", ("y", "z"), None)) == ["x", ("y", "z"), None]
        assert (len(F(None)), F("x")[0], F("x") + F("y")) == (1, "x", F("x", "y"))
        assert pickle.loads(pickle.dumps(F("x", None))) == F("x", None)
    assert repr(P("x", None, ("y", "z"))) == "P('x', None, ('y', 'z'))"
    assert P("x", P.UNCONSTRAINED)[1] is P.UNCONSTRAINED


def test_specifications_that_are_refused() -> None:
    with pytest.raises(ValueError, match="can split one axis of an array only"):
        P("x", "x")
    with pytest.raises(TypeError, match="for each axis of an array it takes None, the name of an axis .* got 3"):
        P(3)
    with pytest.raises(
        ValueError, match=r"P\('z'\) names the axis 'z', but the axes of Mesh\(x=4, y=2\) are \['x', 'y'\]"
    ):
        on(OURS, "z")
    with pytest.raises(ValueError, match="z"):
        on(JAX, "z")


# ------------------------------------------------------------------ shardings


@pytest.mark.parametrize("parts", SPECS, ids=str)
def test_each_device_has_the_part_that_jax_gives_it(parts: Any) -> None:
    ours, theirs = on(OURS, *parts), on(JAX, *parts)
    assert indices(ours, SHAPE) == indices(theirs, SHAPE)
    assert ours.shard_shape(SHAPE) == theirs.shard_shape(SHAPE)
    assert ours.is_fully_replicated == theirs.is_fully_replicated
    assert ours.is_fully_addressable == theirs.is_fully_addressable is True
    assert ours.num_devices == theirs.num_devices
    assert {d.id for d in ours.device_set} == {d.id for d in theirs.device_set}
    assert ours.addressable_devices == ours.device_set
    assert ours.addressable_devices_indices_map(SHAPE) == ours.devices_indices_map(SHAPE)


def test_what_is_equivalent_is_so_in_jax() -> None:
    for a in SPECS:
        for b in SPECS:
            ours = on(OURS, *a).is_equivalent_to(on(OURS, *b), 2)
            assert ours == on(JAX, *a).is_equivalent_to(on(JAX, *b), 2), (a, b)
    flat = fx.NamedSharding(fx.Mesh(fx.devices(), "all"), P("all"))
    assert flat.is_equivalent_to(on(OURS, ("x", "y")), 1)
    assert not fx.NamedSharding(fx.Mesh(fx.devices()[::-1], "all"), P("all")).is_equivalent_to(flat, 1)
    assert on(OURS, "x") != on(OURS, "x", None)  # as values, though they put everything in the same places


def test_one_device() -> None:
    ours, theirs = SingleDeviceSharding(fx.devices()[3]), jax.sharding.SingleDeviceSharding(jax.devices()[3])
    assert indices(ours, SHAPE) == indices(theirs, SHAPE) == {3: (slice(None), slice(None))}
    assert indices(ours, ()) == indices(theirs, ()) == {3: ()}
    assert ours.shard_shape(SHAPE) == SHAPE
    assert ours.is_fully_replicated
    assert ours.is_equivalent_to(fx.NamedSharding(fx.Mesh(fx.devices()[3:4], "x"), P("x")), 2)
    assert ours == SingleDeviceSharding(fx.devices()[3]) != SingleDeviceSharding(fx.devices()[2])


def test_arrays_that_cannot_be_cut() -> None:
    with pytest.raises(
        ValueError, match=r"shape \(6, 4\) can't be cut into 4 equal pieces along axis 0, whose size is 6"
    ):
        on(OURS, "x").shard_shape((6, 4))
    with pytest.raises(ValueError, match=r"P\('x', 'y'\) has 2 entries, but the array has 1 axes"):
        on(OURS, "x", "y").shard_shape((8,))
    with pytest.raises(ValueError, match="leaves it to the compiler"):
        on(OURS, P.UNCONSTRAINED).shard_shape((8,))
    with pytest.raises(TypeError, match="mesh"):
        fx.NamedSharding("mesh", P())  # type: ignore[arg-type]  # on purpose


@pytest.mark.filterwarnings("ignore:.*context manager has been deprecated:DeprecationWarning")
def test_a_mesh_is_a_context_manager() -> None:
    for library in (OURS, JAX):
        mesh = library.mesh

        def constrained(F: Library = library) -> Any:
            return F.m.jit(lambda x: F.lax.with_sharding_constraint(x, F.P("x")))(np.ones(8, np.float32)).sharding

        with mesh as entered:
            assert entered is mesh
            assert constrained().spec == library.P("x")
            with mesh, library.mesh_of((8,), ("x",)):
                assert constrained().mesh.shape["x"] == 8
            assert constrained().mesh == mesh
        with pytest.raises(KeyError), mesh:
            raise KeyError("leaves the mesh as well")
        with pytest.raises((ValueError, RuntimeError), match="mesh"):
            constrained()
