"""Arrays on several devices: their shards and attributes agree with JAX's."""

from __future__ import annotations

import copy
import pickle
from typing import Any, Final

import jax
import ml_dtypes
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.sharding.both import JAX, TRACEFX, Library
from tests.sharding.test_meshes import SPECS, on
from tracefx import P
from tracefx.core import NDArray
from tracefx.errors import ConcretizationError, DeletedArrayError
from tracefx.sharding import SingleDeviceSharding
from tracefx.shardings.sharded_array import ShardedArray
from tracefx.xla.backend import XlaBackend

X: Final = np.arange(64, dtype=np.float32).reshape(8, 8)
DTYPES: Final = (
    *("bool", "int8", "uint16", "int32", "float16", "float32", "complex64", "bfloat16", "float8_e4m3fn", "int4"),
)


def put(library: Library, *parts: Any, x: Any = X) -> Any:
    return library.m.device_put(x, on(library, *parts))


def shards(x: Any) -> list[tuple[int, Any, int, list[Any]]]:
    return [(s.device.id, s.index, s.replica_id, np.asarray(s.data).tolist()) for s in x.addressable_shards]


@pytest.mark.parametrize("parts", SPECS, ids=str)
def test_shards_match_jax(parts: Any) -> None:
    actual, expected = put(TRACEFX, *parts), put(JAX, *parts)
    assert shards(actual) == shards(expected)
    assert [s.replica_id for s in actual.global_shards] == [s.replica_id for s in expected.global_shards]
    np.testing.assert_array_equal(actual, X)
    for k in (0, 5):
        np.testing.assert_array_equal(actual.addressable_data(k), expected.addressable_data(k))
    assert actual.committed
    assert expected.committed
    assert actual.is_fully_addressable
    assert actual.is_fully_replicated == expected.is_fully_replicated
    assert {d.id for d in actual.devices()} == {d.id for d in expected.devices()}


def test_shards_are_single_device_arrays() -> None:
    for shard in put(TRACEFX, "x").addressable_shards:
        assert shard.data.sharding == SingleDeviceSharding(shard.device)
        assert (shard.data * 2).sharding == SingleDeviceSharding(shard.device)


def test_uncommitted_arrays() -> None:
    for library in (TRACEFX, JAX):
        for x in (library.np.ones((2, 3)), library.np.ones((2, 3)) * 2):
            (shard,) = x.addressable_shards
            assert (shard.device.id, shard.index, shard.replica_id) == (0, (slice(None), slice(None)), 0)
            assert x.is_fully_replicated
            assert x.is_fully_addressable
            assert not x.committed
            assert x.sharding.device_set == {library.m.devices()[0]}
    assert fnp.ones(3).sharding == SingleDeviceSharding(fx.devices()[0])


PLACEMENTS: Final[dict[str, Any]] = {
    "NumPy array": lambda F: X,
    "number": lambda F: np.float32(1.0),
    "uncommitted": lambda F: F.np.ones(3),
    "uncommitted, put": lambda F: F.m.device_put(X),
    "on the first device": lambda F: F.m.device_put(X, F.m.devices()[0]),
    "on the second device": lambda F: F.m.device_put(X, F.m.devices()[1]),
    "on a mesh": lambda F: put(F, "x"),
}
TARGETS: Final[dict[str, Any]] = {
    "none": lambda F: None,
    "the first device": lambda F: F.m.devices()[0],
    "the second device": lambda F: F.m.devices()[1],
    "a sharding": lambda F: F.m.device_put(X, F.m.devices()[0]).sharding,
    "a mesh": lambda F: on(F),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", PLACEMENTS)
def test_device_put_commits_the_same_arrays_as_jax(source: str, target: str) -> None:
    def placements(F: Any) -> list[tuple[bool, list[int]]]:
        x = F.m.device_put([PLACEMENTS[source](F)], TARGETS[target](F))[0]
        results = [x, x + 1, F.np.sin(x), F.m.jit(lambda x: x * 2)(x), x.copy(), F.np.asarray(x), F.np.zeros_like(x)]
        with F.m.default_device(F.m.devices()[2]):
            results += [F.np.cos(x), F.m.jit(lambda x: x / 2)(x)] if x.committed else []
        return [(y.committed, sorted(d.id for d in y.devices())) for y in results]

    assert placements(TRACEFX) == placements(JAX)


@pytest.mark.parametrize("name", ["eager", "jit", "stack"])
@pytest.mark.parametrize("second", ["on the second device", "on a mesh"])
def test_operands_committed_to_different_devices_are_rejected(second: str, name: str) -> None:
    def add(F: Any) -> None:
        x, y = PLACEMENTS["on the first device"](F), PLACEMENTS[second](F)
        {"eager": F.np.add, "jit": F.m.jit(lambda x, y: x + y), "stack": lambda *xs: F.np.stack(xs)}[name](x, y)

    with pytest.raises(ValueError, match="incompatible devices"):
        add(JAX)
    x, y = ("the argument `x` of <lambda>", "the argument `y` of <lambda>") if name == "jit" else ("input 0", "input 1")
    with pytest.raises(ValueError, match=f"can't run: {x} is on device 0, but {y} is on devices? "):
        add(TRACEFX)


def test_operations_on_the_first_device_are_evaluated_without_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    x = fx.device_put(X, fx.devices()[0])
    monkeypatch.setattr(XlaBackend, "_dispatcher", None)
    y = fnp.sum(x * 2.0)
    assert y.committed
    assert float(y) == X.sum() * 2.0


def test_traced_arrays_have_no_sharding() -> None:
    for attribute in ("sharding", "addressable_shards", "global_shards", "committed", "is_fully_replicated"):
        with pytest.raises(AttributeError, match="it is traced, and its placement is decided at run time"):
            fx.jit(lambda x, attribute=attribute: getattr(x, attribute))(X)
    for attribute in ("delete", "is_deleted", "is_ready"):
        with pytest.raises(ConcretizationError, match="only its shape and dtype"):
            fx.jit(lambda x, attribute=attribute: getattr(x, attribute)())(X)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(dtype: str) -> None:
    host = (X % 7).astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
    x = put(TRACEFX, "x", "y", x=host)
    back = np.asarray(x)
    assert (x.dtype, back.dtype) == (host.dtype, host.dtype)
    np.testing.assert_array_equal(back.astype(complex), host.astype(complex))
    np.testing.assert_array_equal(np.asarray(x.addressable_data(3)).astype(complex), host[2:4, 4:].astype(complex))
    moved = fx.device_put(x, on(TRACEFX, "y"))
    np.testing.assert_array_equal(np.asarray(moved).astype(complex), host.astype(complex))


def test_random_keys() -> None:
    keys = fx.random.split(fx.random.key(3), 8)
    x = put(TRACEFX, "x", x=keys)
    assert (x.dtype, x.shape, x.sharding) == (keys.dtype, (8,), on(TRACEFX, "x"))
    assert x.addressable_shards[2].data.shape == (2,)
    np.testing.assert_array_equal(fx.random.key_data(x), fx.random.key_data(keys))
    np.testing.assert_array_equal(fx.random.key_data(fx.device_put(x, on(TRACEFX, "y"))), fx.random.key_data(keys))
    assert repr(x) == repr(keys)


@pytest.mark.parametrize("host", [np.float32(3), np.ones((0, 4), np.float32)], ids=["no axes", "no elements"])
def test_small_arrays(host: NDArray) -> None:
    for library in (TRACEFX, JAX):
        x = library.m.device_put(host, on(library, *(("x",) if host.ndim else ())))
        np.testing.assert_array_equal(np.asarray(x), host)
        assert x.shape == host.shape
        assert (x + 1).shape == host.shape
        assert x.addressable_data(5).shape == host.shape


def test_conversion_to_numpy_and_python() -> None:
    x = put(TRACEFX, "x", "y")
    assert x.tolist() == X.tolist()
    assert repr(x) == repr(fnp.asarray(X))
    assert str(x) == str(X)
    assert float(x[3, 4]) == X[3, 4]
    assert [float(row.sum()) for row in x] == X.sum(axis=1).tolist()
    assert len(x) == 8
    assert not np.asarray(x).flags.writeable
    assert (x == put(TRACEFX, "y")).all()
    np.testing.assert_array_equal(np.add(x, 1), X + 1)


def test_copies_keep_shardings_and_pickles_do_not() -> None:
    for library in (TRACEFX, JAX):
        x = put(library, "x")
        assert copy.copy(x).sharding == copy.deepcopy(x).sharding == x.copy().sharding == x.sharding
        back = pickle.loads(pickle.dumps(x))
        assert back.sharding.device_set == {library.m.devices()[0]}
        np.testing.assert_array_equal(back, X)


def test_dlpack_requires_a_single_buffer() -> None:
    with pytest.raises(BufferError, match="is on 8 devices, so it is not one buffer"):
        np.from_dlpack(put(TRACEFX, "x"))
    np.testing.assert_array_equal(np.from_dlpack(put(TRACEFX, "x").addressable_shards[2].data), X[2:4])
    np.testing.assert_array_equal(np.from_dlpack(put(TRACEFX, "x"), copy=True), X)


# ------------------------------------------------------------------ device_put


@pytest.mark.parametrize("start", [("x",), ("y", "x"), ()], ids=str)
@pytest.mark.parametrize("end", [("y",), (None, ("x", "y")), ()], ids=str)
def test_device_put_between_shardings(start: Any, end: Any) -> None:
    actual, expected = (library.m.device_put(put(library, *start), on(library, *end)) for library in (TRACEFX, JAX))
    assert shards(actual) == shards(expected)
    assert actual.sharding == on(TRACEFX, *end)


def test_resharding_on_the_same_devices_avoids_host_transfers(monkeypatch: pytest.MonkeyPatch) -> None:
    x = put(TRACEFX, "x")
    monkeypatch.setattr(ShardedArray, "numpy", lambda self: pytest.fail("the numbers were read"))
    y = fx.device_put(x, on(TRACEFX, "y"))
    backwards = fx.NamedSharding(fx.Mesh(fx.devices()[::-1], "all"), P("all"))
    z = fx.device_put(y, backwards)
    assert fx.device_put(z, backwards) is z
    monkeypatch.undo()
    assert z.sharding == backwards
    assert [s.device.id for s in z.addressable_shards] == [7, 6, 5, 4, 3, 2, 1, 0]
    np.testing.assert_array_equal(z, X)
    np.testing.assert_array_equal(z.addressable_shards[0].data, X[:1])


def test_device_put_between_device_and_mesh() -> None:
    for library in (TRACEFX, JAX):
        on_device = library.m.device_put(put(library, "x"), library.m.devices()[3])
        assert on_device.devices() == {library.m.devices()[3]}
        assert (on_device * 2).devices() == {library.m.devices()[3]}
        few = library.mesh_of((2,), ("z",))
        on_mesh = library.m.device_put(on_device, library.m.sharding.NamedSharding(few, library.P("z")))
        assert [s.device.id for s in on_mesh.addressable_shards] == [0, 1]
        np.testing.assert_array_equal(on_mesh + 1, X + 1)
        assert library.m.device_put(on_mesh, library.m.devices()[0]).devices() == {library.m.devices()[0]}


def test_device_put_with_trees_of_shardings() -> None:
    for library in (TRACEFX, JAX):
        shardings = {"a": on(library, "x"), "b": library.m.devices()[2]}
        a, b, c = jax.tree.leaves(library.m.device_put({"a": X, "b": [X, X]}, shardings))
        assert a.sharding == shardings["a"]
        assert b.devices() == c.devices() == {library.m.devices()[2]}
        x = put(library, "x")
        uncommitted, sharded = library.m.device_put([X, x], None)
        assert uncommitted.devices() == {library.m.devices()[0]}
        assert sharded.sharding == x.sharding
    with pytest.raises(ValueError, match="device_put: device"):
        fx.device_put({"a": X}, {"b": on(TRACEFX, "x")})


def test_partition_specs_need_a_mesh() -> None:
    with pytest.raises(ValueError, match=r"device_put: P\('x'\) names axes of a mesh, but no mesh is set"):
        fx.device_put(X, P("x"))
    with pytest.raises(ValueError, match="ShapeDtypeStruct: .* no mesh is set"):
        fx.ShapeDtypeStruct((8,), "float32", sharding=P("x"))
    with fx.set_mesh(TRACEFX.mesh):
        assert fx.device_put(X, P("x")).sharding == on(TRACEFX, "x")
        assert fx.ShapeDtypeStruct((8,), "float32", sharding=P("x")).sharding == on(TRACEFX, "x")


def test_invalid_device_put_targets_are_rejected() -> None:
    with pytest.raises(
        ValueError, match=r"device_put: the array, f32\[6,8\], can't have the sharding .* 4 equal pieces"
    ):
        put(TRACEFX, "x", x=X[:6])
    with pytest.raises(ValueError, match=r"P\('x', 'y'\) has 2 entries, but the array has 1 axes"):
        put(TRACEFX, "x", "y", x=X[0])
    with pytest.raises(TypeError, match=r"takes a device of tracefx.devices\(\), a sharding, .* got 'cpu' of type str"):
        fx.device_put(X, "cpu")


def test_creation_functions_accept_device_and_sharding() -> None:
    for target in (fx.devices()[3], on(TRACEFX, "x"), on(TRACEFX)):
        arrays: tuple[Any, ...] = (
            fnp.zeros(8, device=target),
            fnp.full_like(put(TRACEFX, "y"), 3.0, device=target),
            fnp.arange(8, device=target),
            fnp.asarray(X, device=target),
            put(TRACEFX, "y").to_device(target),
            put(TRACEFX, "y").astype("int32", device=target),
        )
        sharding = target if target is not fx.devices()[3] else SingleDeviceSharding(target)
        for x in arrays:
            assert x.sharding == sharding
            assert (x + 1).sharding == sharding
    moved = put(TRACEFX, "x").to_device(fx.devices()[0])
    assert moved.devices() == {fx.devices()[0]}
    np.testing.assert_array_equal(moved, X)
    f = fx.jit(lambda x: x + fnp.ones(8, device=on(TRACEFX, "x")))
    np.testing.assert_array_equal(f(X), X + 1)


def test_device_put_of_traced_arrays_constrains_sharding() -> None:
    f = fx.jit(lambda x: fx.device_put(x, on(TRACEFX, "y")) * 2)
    assert f(X).sharding == on(TRACEFX, "y")
    g = fx.grad(lambda x: fnp.sum(fx.device_put(x, on(TRACEFX, "x")) ** 2))(X)
    np.testing.assert_array_equal(g, 2 * X)


# ------------------------------------------------------------------ memory


def test_use_of_deleted_arrays_raises_an_error() -> None:
    for library in (TRACEFX, JAX):
        for x in (put(library, "x"), library.np.ones(3) + 1, library.np.asarray(X)):
            assert not x.is_deleted()
            x.delete()
            assert x.is_deleted()
            for use in (np.asarray, lambda x: x + 1, repr, library.m.jit(lambda x: x * 2)):
                with pytest.raises(RuntimeError, match="deleted"):
                    use(x)
    x = put(TRACEFX, "x")
    x.delete()
    for use_deleted in (lambda x: x.addressable_shards, lambda x: fx.device_put(x, on(TRACEFX, "y"))):
        with pytest.raises(DeletedArrayError, match=r"f32\[8,8\] is used after it was deleted"):
            use_deleted(x)


def test_block_until_ready() -> None:
    x = put(TRACEFX, "x") * 2
    assert x.block_until_ready() is x
    assert x.is_ready()
    tree = {"a": x, "b": 3}
    assert fx.block_until_ready(tree) is tree
    assert fnp.ones(3).is_ready()


# ------------------------------------------------------------------ arrays made from shards


@pytest.mark.parametrize("parts", SPECS, ids=str)
def test_make_array_from_callback(parts: Any) -> None:
    indices: list[str] = []

    def part(index: Any) -> Any:
        indices.append(repr(index))
        return X[index]

    actual = fx.make_array_from_callback(X.shape, on(TRACEFX, *parts), part)
    assert shards(actual) == shards(jax.make_array_from_callback(X.shape, on(JAX, *parts), lambda index: X[index]))
    assert len(indices) == len(set(indices))


def test_invalid_callbacks_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"has shape \(8, 8\), expected \(2, 8\)"):
        fx.make_array_from_callback(X.shape, on(TRACEFX, "x"), lambda index: X)
    with pytest.raises(TypeError, match="the shards have different dtypes"):
        fx.make_array_from_callback(
            (8,), on(TRACEFX, "x"), lambda index: np.ones(2, np.float32 if index[0].start else np.int32)
        )
    assert float(fx.make_array_from_callback((), on(TRACEFX), lambda index: np.float32(2))) == 2
    for library in (TRACEFX, JAX):
        with pytest.raises(ValueError, match="dtype"):
            library.m.make_array_from_callback(X.shape, on(library, "x"), lambda index: X[index], dtype=np.int32)


def test_callbacks_return_random_keys() -> None:
    keys = fx.random.split(fx.random.key(0), 8)
    made = fx.make_array_from_callback((8,), on(TRACEFX, "x"), lambda index: keys[index])
    assert made.sharding == on(TRACEFX, "x")
    np.testing.assert_array_equal(fx.random.key_data(made), fx.random.key_data(keys))


@pytest.mark.parametrize("parts", SPECS, ids=str)
def test_size_on_devices_includes_replicas_as_in_jax(parts: Any) -> None:
    sizes = [put(library, *parts).on_device_size_in_bytes() for library in (TRACEFX, JAX)]
    assert sizes[0] == sizes[1]


def test_make_array_from_process_local_data() -> None:
    for parts in SPECS:
        actual, expected = (
            library.m.make_array_from_process_local_data(on(library, *parts), X) for library in (TRACEFX, JAX)
        )
        assert shards(actual) == shards(expected)
    with pytest.raises(ValueError, match=r"this process has the shape \(16, 8\), but local_data has \(8, 8\)"):
        fx.make_array_from_process_local_data(on(TRACEFX, "x"), X, (16, 8))


def test_make_array_from_single_device_arrays() -> None:
    parts = [s.data for s in put(TRACEFX, "x").addressable_shards]
    for arrays in (parts, parts[::-1]):
        whole = fx.make_array_from_single_device_arrays(X.shape, on(TRACEFX, "x"), arrays)
        np.testing.assert_array_equal(whole, X)
        assert whole.sharding == on(TRACEFX, "x")
    with pytest.raises(ValueError, match="there is no shard on device 3"):
        fx.make_array_from_single_device_arrays(X.shape, on(TRACEFX, "x"), parts[:3])
    with pytest.raises(ValueError, match=r"must have the dtype int8, got f32\[2,8\]"):
        fx.make_array_from_single_device_arrays(X.shape, on(TRACEFX, "x"), parts, dtype=np.int8)
    with pytest.raises(ValueError, match=r"f32\[2,8\] does not have the shape \(4, 8\) of a shard"):
        fx.make_array_from_single_device_arrays(X.shape, on(TRACEFX, "y"), parts)
    other = fx.device_put(np.zeros(parts[0].shape, np.int32), parts[0].device)
    with pytest.raises(ValueError, match=r"the shards must have the dtype int32, got f32\[2,8\]"):
        fx.make_array_from_single_device_arrays(X.shape, on(TRACEFX, "x"), [other, *parts[1:]])
    with pytest.raises(ValueError, match=r"takes 8 arrays, one for each device of .*, got 9"):
        fx.make_array_from_single_device_arrays(X.shape, on(TRACEFX, "x"), [*parts, parts[0]])
    with pytest.raises(TypeError, match="takes arrays on one device each"):
        fx.make_array_from_single_device_arrays(X.shape, on(TRACEFX, "x"), [X] * 8)  # type: ignore[list-item]  # on purpose


LIKE_FUNCTIONS: Final[dict[str, Any]] = {
    "zeros_like": lambda F, x: F.np.zeros_like(x),
    "ones_like": lambda F, x: F.np.ones_like(x),
    "full_like": lambda F, x: F.np.full_like(x, 3),
    "empty_like": lambda F, x: F.np.empty_like(x),
    "another dtype": lambda F, x: F.np.zeros_like(x, dtype="int32"),
    "another shape": lambda F, x: F.np.zeros_like(x, shape=(4, 4)),
    "the same shape": lambda F, x: F.np.zeros_like(x, shape=x.shape),
    "an array of numbers": lambda F, x: F.np.full_like(x, F.np.arange(8.0)),
    "another device": lambda F, x: F.np.zeros_like(x, device=F.m.devices()[1]),
    "another sharding": lambda F, x: F.np.zeros_like(x, device=on(F, "y")),
    "a type": lambda F, x: F.np.zeros_like(F.m.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)),
    "one device": lambda F, x: F.np.zeros_like(F.m.device_put(X, F.m.devices()[2])),
    "no device": lambda F, x: F.np.zeros_like(F.np.asarray(X)),
    "replicated, another shape": lambda F, x: F.np.zeros_like(put(F), shape=(3,)),
    "lax": lambda F, x: F.lax.full_like(x, 2.0),
    "lax, another dtype": lambda F, x: F.lax.full_like(x, 2.0, dtype="int32"),
    "lax, another shape": lambda F, x: F.lax.full_like(x, 2.0, shape=(4, 4)),
    "lax, replicated, another shape": lambda F, x: F.lax.full_like(put(F), 2.0, shape=(3,)),
    "lax, another sharding": lambda F, x: F.lax.full_like(x, 2.0, sharding=on(F, "y")),
    "lax, one device": lambda F, x: F.lax.full_like(F.m.device_put(X, F.m.devices()[2]), 1),
    "lax, a type": lambda F, x: F.lax.full_like(F.m.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), 1),
    "lax, a number": lambda F, x: F.lax.full_like(2.0, 1, shape=(3,)),
    "lax.full": lambda F, x: F.lax.full((8,), 1.0, sharding=on(F, "x")),
    "lax.full on one device": lambda F, x: F.lax.full((8,), 1.0, sharding=F.m.device_put(X, F.m.devices()[0]).sharding),
}


@pytest.mark.parametrize("name", LIKE_FUNCTIONS)
def test_like_functions_keep_the_sharding(name: str) -> None:
    results = [LIKE_FUNCTIONS[name](library, put(library, "x", "y")) for library in (TRACEFX, JAX)]
    assert shards(results[0]) == shards(results[1])
    assert results[0].committed == results[1].committed


@pytest.mark.parametrize(
    "make",
    [
        lambda put, a, b: put(a, {"x": X, "y": (X * 2,)}),
        lambda put, a, b: put({"x": a, "y": b}, {"x": X, "y": X * 2}),
        lambda put, a, b: put((a, b), (X, {"x": X, "y": X})),
        lambda put, a, b: put(a, {"x": X}, {"x": (8, 8)}),
        lambda put, a, b: put(a, {"x": X, "y": X}, (8, 8)),
        lambda put, a, b: put(b, np.float32(3)),
    ],
)
def test_make_array_from_process_local_data_with_trees(make: Any) -> None:
    actual, expected = [make(F.m.make_array_from_process_local_data, on(F, "x", "y"), on(F)) for F in (TRACEFX, JAX)]
    assert fx.tree.structure(actual) == jax.tree.structure(expected)
    assert list(map(shards, fx.tree.leaves(actual))) == list(map(shards, jax.tree.leaves(expected)))


def test_copies_survive_donation_of_the_original() -> None:
    for library in (TRACEFX, JAX):
        x = put(library, "x", "y")
        copies = [x.copy(), library.np.array(x), library.np.copy(x)]
        if library is TRACEFX:
            copies += [copy.copy(x), copy.deepcopy(x)]
        library.m.jit(lambda x: x + 1, donate_argnums=0)(x)
        assert x.is_deleted() or library is JAX  # JAX's array shares its memory with NumPy
        for y in copies:
            np.testing.assert_array_equal(y, X)
            assert y.sharding == on(library, "x", "y")
