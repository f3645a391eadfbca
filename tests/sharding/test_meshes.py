"""Meshes, partition specs and shardings agree with JAX's."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any, Final

import jax
import numpy as np
import pytest

import tracefx as fx
from tests.errors import assert_errors, untyped
from tests.sharding.both import JAX, TRACEFX, Library
from tracefx import P
from tracefx.sharding import AxisType, SingleDeviceSharding

SPECS: Final = (
    *((), ("x",), ("y",), ("x", "y"), ("y", "x"), (None, "x"), (("x", "y"),), (("y", "x"),), (None, ("x", "y"))),
)
SHAPE: Final = (8, 16)


def on(library: Library, *parts: Any) -> Any:
    sharding = library.m.sharding.NamedSharding
    return sharding(library.mesh, library.P(*parts))


def indices(sharding: Any, shape: tuple[int, ...]) -> dict[int, Any]:
    return {device.id: index for device, index in sharding.devices_indices_map(shape).items()}


# ------------------------------------------------------------------ meshes


def test_mesh_attributes_match_jax() -> None:
    actual, expected = TRACEFX.mesh, JAX.mesh
    assert dict(actual.shape) == dict(expected.shape)
    assert actual.axis_names == expected.axis_names
    assert actual.axis_sizes == expected.axis_sizes
    assert actual.shape_tuple == expected.shape_tuple
    assert (actual.size, actual.empty) == (expected.size, expected.empty)
    assert actual.device_ids.tolist() == expected.device_ids.tolist()
    assert [d.id for d in actual.devices.flat] == [d.id for d in expected.devices.flat]


@pytest.mark.parametrize("name", [name for name in dir(JAX.mesh) if not name.startswith("_")])
def test_mesh_has_the_attributes_of_jax(name: str) -> None:
    """All public ones but those of meshes without devices."""
    if name not in ("abstract_mesh", "update", "axis_types", "is_scalar", "shape"):
        actual, expected = getattr(TRACEFX.mesh, name), getattr(JAX.mesh, name)
        if name in ("devices", "local_devices"):
            actual, expected = [d.id for d in np.ravel(actual)], [d.id for d in np.ravel(expected)]
        assert str(actual) == str(expected) or name == "local_mesh"


def test_local_mesh_of_one_process_is_the_mesh() -> None:
    mesh = TRACEFX.mesh
    assert mesh.local_mesh == mesh
    assert not mesh.is_multi_process
    assert fx.Mesh([], "x").local_mesh.empty


def test_mesh_as_decorator() -> None:
    mesh = TRACEFX.mesh
    assert mesh(fx.get_mesh)() == mesh
    assert fx.get_mesh().empty


def test_mesh_equality_and_hash() -> None:
    mesh = TRACEFX.mesh
    assert mesh == fx.Mesh(mesh.devices, mesh.axis_names)
    assert hash(mesh) == hash(fx.Mesh(mesh.devices, mesh.axis_names))
    assert mesh != fx.Mesh(mesh.devices, ("y", "x"))
    assert mesh != fx.Mesh(mesh.devices.T, ("x", "y"))
    with pytest.raises(ValueError, match="read-only"):
        mesh.devices[0, 0] = None


def test_make_mesh() -> None:
    mesh = fx.make_mesh((2, 3), ("a", "b"))
    assert mesh.device_ids.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert fx.make_mesh((2,), ("a",), devices=fx.devices()[4:]).device_ids.tolist() == [4, 5]
    assert fx.make_mesh((8,), ("a",)) == fx.Mesh(fx.devices(), "a", AxisType.Explicit)
    assert fx.get_mesh().empty


def test_invalid_meshes_are_rejected() -> None:
    devices = fx.devices()
    with pytest.raises(ValueError, match=r"needs 16 devices, but there are 8; .*device_count=16"):
        fx.make_mesh((4, 4), ("x", "y"))
    with pytest.raises(ValueError, match=r"2 names \('x', 'y'\) were given for devices of shape \(8,\)"):
        fx.Mesh(devices, ("x", "y"))
    assert_errors(
        (lambda: fx.Mesh(np.array(devices).reshape(4, 2), ("x", "x")), ValueError, "must be different"),
        (lambda: fx.Mesh([devices[0], devices[0]], "x"), ValueError, "a device occurs twice"),
        (lambda: untyped(fx.Mesh)(devices, (3,)), TypeError, "axis names must be strings, got 3"),
        (
            lambda: untyped(fx.make_mesh)(8, "x"),
            TypeError,
            "make_mesh: axis_sizes must be a sequence of integers, got 8",
        ),
    )


def test_set_mesh_restores_the_previous_mesh() -> None:
    mesh = TRACEFX.mesh
    with fx.set_mesh(mesh) as current:
        assert fx.get_mesh() is current is mesh
        with pytest.raises(ZeroDivisionError), fx.set_mesh(fx.make_mesh((2,), ("z",))):
            1 // 0  # noqa: B018
        assert fx.get_mesh() is mesh
    assert fx.get_mesh().empty
    with pytest.raises(TypeError, match="set_mesh takes a Mesh, got 3"), untyped(fx.set_mesh)(3):
        pass


# ------------------------------------------------------------------ partition specs


def test_partition_spec_equality_matches_jax() -> None:
    for Spec in (P, jax.sharding.PartitionSpec):
        assert Spec("x", None) != Spec("x")
        assert Spec(("x",)) == Spec("x")
        assert hash(Spec("x", ("y", "z"))) == hash(Spec("x", ("y", "z")))
        assert list(Spec("x", ("y", "z"), None)) == ["x", ("y", "z"), None]
        assert (len(Spec(None)), Spec("x")[0], Spec("x") + Spec("y")) == (1, "x", Spec("x", "y"))
        assert pickle.loads(pickle.dumps(Spec("x", None))) == Spec("x", None)
    assert repr(P("x", None, ("y", "z"))) == "P('x', None, ('y', 'z'))"
    assert P("x", P.UNCONSTRAINED)[1] is P.UNCONSTRAINED


def test_partition_specs_behave_as_sequences() -> None:
    for Spec in (P, jax.sharding.PartitionSpec):
        spec = Spec("x", None, ("y", "z"))
        assert (spec.index("x"), spec.index(("y", "z")), spec.count(None), "x" in spec) == (0, 2, 1, True)
        assert (spec.partitions, spec[1:]) == (("x", None, ("y", "z")), (None, ("y", "z")))
        assert Spec("x") + ("y",) == ("x",) + Spec("y") == Spec("x", "y")  # noqa: RUF005
        assert spec.update(partitions=("y",)) == Spec("y")
        with pytest.raises(ValueError, match="not in tuple"):
            spec.index("y")


def test_invalid_partition_specs_are_rejected() -> None:
    with pytest.raises(ValueError, match="can split one axis of an array only"):
        P("x", "x")
    with pytest.raises(TypeError, match="for each axis of an array it takes None, the name of an axis .* got 3"):
        P(3)
    with pytest.raises(
        ValueError, match=r"P\('z'\) names the axis 'z', but the axes of Mesh\(x=4, y=2\) are \['x', 'y'\]"
    ):
        on(TRACEFX, "z")
    with pytest.raises(ValueError, match="z"):
        on(JAX, "z")


# ------------------------------------------------------------------ shardings


@pytest.mark.parametrize("parts", SPECS, ids=str)
def test_shard_indices_match_jax(parts: Any) -> None:
    actual, expected = on(TRACEFX, *parts), on(JAX, *parts)
    assert indices(actual, SHAPE) == indices(expected, SHAPE)
    assert actual.shard_shape(SHAPE) == expected.shard_shape(SHAPE)
    assert actual.is_fully_replicated == expected.is_fully_replicated
    assert actual.is_fully_addressable == expected.is_fully_addressable is True
    assert actual.num_devices == expected.num_devices
    assert {d.id for d in actual.device_set} == {d.id for d in expected.device_set}
    assert actual.addressable_devices == actual.device_set
    assert actual.addressable_devices_indices_map(SHAPE) == actual.devices_indices_map(SHAPE)


def test_sharding_attributes_match_jax() -> None:
    for library in (TRACEFX, JAX):
        sharding = on(library, "x")
        assert (sharding.has_addressable_devices, sharding.replicated_axes) == (True, {"y"})
        assert sharding.update(spec=library.P("y")) == on(library, "y")
        assert sharding.update(spec=("y",), mesh=library.mesh) == on(library, "y")
        sharding.check_compatible_aval((4, 3))
        library.m.sharding.SingleDeviceSharding(library.m.devices()[0]).check_compatible_aval(())
        with pytest.raises(ValueError, match="rank|axes"):
            sharding.check_compatible_aval(())


def test_is_equivalent_to_matches_jax() -> None:
    for a in SPECS:
        for b in SPECS:
            actual = on(TRACEFX, *a).is_equivalent_to(on(TRACEFX, *b), 2)
            assert actual == on(JAX, *a).is_equivalent_to(on(JAX, *b), 2), (a, b)
    flat = fx.NamedSharding(fx.Mesh(fx.devices(), "all"), P("all"))
    assert flat.is_equivalent_to(on(TRACEFX, ("x", "y")), 1)
    assert not fx.NamedSharding(fx.Mesh(fx.devices()[::-1], "all"), P("all")).is_equivalent_to(flat, 1)
    assert on(TRACEFX, "x") != on(TRACEFX, "x", None)  # unequal, although they are equivalent


def test_single_device_sharding() -> None:
    actual, expected = SingleDeviceSharding(fx.devices()[3]), jax.sharding.SingleDeviceSharding(jax.devices()[3])
    assert indices(actual, SHAPE) == indices(expected, SHAPE) == {3: (slice(None), slice(None))}
    assert indices(actual, ()) == indices(expected, ()) == {3: ()}
    assert actual.shard_shape(SHAPE) == SHAPE
    assert actual.is_fully_replicated
    assert actual.is_equivalent_to(fx.NamedSharding(fx.Mesh(fx.devices()[3:4], "x"), P("x")), 2)
    assert actual == SingleDeviceSharding(fx.devices()[3]) != SingleDeviceSharding(fx.devices()[2])


def test_invalid_shapes_for_shardings_are_rejected() -> None:
    with pytest.raises(
        ValueError, match=r"shape \(6, 4\) can't be cut into 4 equal pieces along axis 0, whose size is 6"
    ):
        on(TRACEFX, "x").shard_shape((6, 4))
    with pytest.raises(ValueError, match=r"P\('x', 'y'\) has 2 entries, but the array has 1 axes"):
        on(TRACEFX, "x", "y").shard_shape((8,))
    with pytest.raises(ValueError, match="leaves it to the compiler"):
        on(TRACEFX, P.UNCONSTRAINED).shard_shape((8,))
    named: Any = fx.NamedSharding
    mesh = TRACEFX.mesh
    assert_errors(
        (
            lambda: named("mesh", P()),
            TypeError,
            "^NamedSharding: mesh must be a Mesh, .*, got 'mesh'$",
        ),
        (
            lambda: named(mesh, "x"),
            TypeError,
            r"NamedSharding: spec must be a PartitionSpec, got 'x': write P\('x'\)$",
        ),
        (lambda: named(mesh, ("x", None)), TypeError, r"got \('x', None\): write P\('x', None\)$"),
        (lambda: named(mesh, 3), TypeError, "got 3$"),
    )


@pytest.mark.filterwarnings("ignore:.*context manager has been deprecated:DeprecationWarning")
def test_mesh_as_context_manager() -> None:
    for library in (TRACEFX, JAX):
        mesh = library.mesh

        def constrained(lib: Library = library) -> Any:
            return lib.m.jit(lambda x: lib.lax.with_sharding_constraint(x, lib.P("x")))(np.ones(8, np.float32)).sharding

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


def test_memory_of_shardings() -> None:
    device, mesh = fx.devices()[0], fx.make_mesh((1,), ("a",))
    makers: tuple[Any, ...] = partial(SingleDeviceSharding, device), partial(fx.NamedSharding, mesh, P("a"))
    for make in makers:
        assert make(memory_kind="device") == make(memory_kind=None) == make()
        assert hash(make(memory_kind="device")) == hash(make())
        with pytest.raises(ValueError, match=r"memory_kind must be 'device', .* got 'pinned_host'"):
            make(memory_kind="pinned_host")


def test_pending_sums_are_refused() -> None:
    assert P("x", unreduced=frozenset(), reduced=()) == P("x")
    assert P("x").unreduced == P("x").reduced == jax.P("x").unreduced == frozenset()
    with pytest.raises(NotImplementedError, match=r"unreduced=\{'y'\}: tracefx has no arrays whose sum .* is pending"):
        P("x", unreduced={"y"})
    with pytest.raises(NotImplementedError, match="PartitionSpec: reduced="):
        P("x", reduced={"y"})
