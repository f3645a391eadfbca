"""Arrays that lie on several devices, as JAX's do on the same."""

# mypy: untyped-calls-exclude="jax"

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
from tests.sharding.both import JAX, OURS, Library
from tests.sharding.test_meshes import SPECS, on
from tracefx import P
from tracefx.core.dtypes import NDArray
from tracefx.errors import ConcretizationError
from tracefx.sharding import SingleDeviceSharding
from tracefx.shardings.sharded_array import ShardedArray
from tracefx.xla.runtime import DeletedBufferError

X: Final = np.arange(64, dtype=np.float32).reshape(8, 8)
DTYPES: Final = (
    "bool",
    "int8",
    "uint16",
    "int32",
    "float16",
    "float32",
    "complex64",
    "bfloat16",
    "float8_e4m3fn",
    "int4",
)


def put(library: Library, *parts: Any, x: Any = X) -> Any:
    return library.m.device_put(x, on(library, *parts))


def shards(x: Any) -> list[tuple[int, Any, int, list[Any]]]:
    return [(s.device.id, s.index, s.replica_id, np.asarray(s.data).tolist()) for s in x.addressable_shards]


@pytest.mark.parametrize("parts", SPECS, ids=str)
def test_shards_are_jaxs(parts: Any) -> None:
    ours, theirs = put(OURS, *parts), put(JAX, *parts)
    assert shards(ours) == shards(theirs)
    assert [s.replica_id for s in ours.global_shards] == [s.replica_id for s in theirs.global_shards]
    np.testing.assert_array_equal(ours, X)
    for k in (0, 5):
        np.testing.assert_array_equal(ours.addressable_data(k), theirs.addressable_data(k))
    assert ours.committed
    assert theirs.committed
    assert ours.is_fully_addressable
    assert ours.is_fully_replicated == theirs.is_fully_replicated
    assert {d.id for d in ours.devices()} == {d.id for d in theirs.devices()}


def test_shards_stay_where_they_are() -> None:
    for shard in put(OURS, "x").addressable_shards:
        assert shard.data.sharding == SingleDeviceSharding(shard.device)
        assert (shard.data * 2).sharding == SingleDeviceSharding(shard.device)


def test_arrays_that_nobody_put_somewhere() -> None:
    for library in (OURS, JAX):
        for x in (library.np.ones((2, 3)), library.np.ones((2, 3)) * 2):
            (shard,) = x.addressable_shards
            assert (shard.device.id, shard.index, shard.replica_id) == (0, (slice(None), slice(None)), 0)
            assert x.is_fully_replicated
            assert x.is_fully_addressable
            assert not x.committed
            assert x.sharding.device_set == {library.m.devices()[0]}
    assert fnp.ones(3).sharding == SingleDeviceSharding(fx.devices()[0])


def test_a_traced_array_lies_nowhere() -> None:
    for asked in ("sharding", "addressable_shards", "global_shards", "committed", "is_fully_replicated"):
        with pytest.raises(AttributeError, match="it is traced, and its placement is decided at run time"):
            fx.jit(lambda x, asked=asked: getattr(x, asked))(X)
    for asked in ("delete", "is_deleted", "is_ready"):
        with pytest.raises(ConcretizationError, match="only its shape and dtype are known"):
            fx.jit(lambda x, asked=asked: getattr(x, asked)())(X)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(dtype: str) -> None:
    host = (X % 7).astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
    x = put(OURS, "x", "y", x=host)
    back = np.asarray(x)
    assert (x.dtype, back.dtype) == (host.dtype, host.dtype)
    np.testing.assert_array_equal(back.astype(complex), host.astype(complex))
    np.testing.assert_array_equal(np.asarray(x.addressable_data(3)).astype(complex), host[2:4, 4:].astype(complex))
    moved = fx.device_put(x, on(OURS, "y"))
    np.testing.assert_array_equal(np.asarray(moved).astype(complex), host.astype(complex))


def test_random_keys() -> None:
    keys = fx.random.split(fx.random.key(3), 8)
    x = put(OURS, "x", x=keys)
    assert (x.dtype, x.shape, x.sharding) == (keys.dtype, (8,), on(OURS, "x"))
    assert x.addressable_shards[2].data.shape == (2,)
    np.testing.assert_array_equal(fx.random.key_data(x), fx.random.key_data(keys))
    np.testing.assert_array_equal(fx.random.key_data(fx.device_put(x, on(OURS, "y"))), fx.random.key_data(keys))
    assert repr(x) == repr(keys)


@pytest.mark.parametrize("host", [np.float32(3), np.ones((0, 4), np.float32)], ids=["no axes", "no elements"])
def test_small_arrays(host: NDArray) -> None:
    for library in (OURS, JAX):
        x = library.m.device_put(host, on(library, *(("x",) if host.ndim else ())))
        np.testing.assert_array_equal(np.asarray(x), host)
        assert x.shape == host.shape
        assert (x + 1).shape == host.shape
        assert x.addressable_data(5).shape == host.shape


def test_what_numpy_and_python_see() -> None:
    x = put(OURS, "x", "y")
    assert x.tolist() == X.tolist()
    assert repr(x) == repr(fnp.asarray(X))
    assert str(x) == str(X)
    assert float(x[3, 4]) == X[3, 4]
    assert [float(row.sum()) for row in x] == X.sum(axis=1).tolist()
    assert len(x) == 8
    assert not np.asarray(x).flags.writeable
    assert (x == put(OURS, "y")).all()
    np.testing.assert_array_equal(np.add(x, 1), X + 1)


def test_copies_stay_and_pickles_do_not() -> None:
    for library in (OURS, JAX):
        x = put(library, "x")
        assert copy.copy(x).sharding == copy.deepcopy(x).sharding == x.copy().sharding == x.sharding
        back = pickle.loads(pickle.dumps(x))
        assert back.sharding.device_set == {library.m.devices()[0]}
        np.testing.assert_array_equal(back, X)


def test_dlpack_takes_one_piece_of_memory() -> None:
    with pytest.raises(BufferError, match="lies on 8 devices, so it is not one piece of memory"):
        np.from_dlpack(put(OURS, "x"))
    np.testing.assert_array_equal(np.from_dlpack(put(OURS, "x").addressable_shards[2].data), X[2:4])
    np.testing.assert_array_equal(np.from_dlpack(put(OURS, "x"), copy=True), X)


# ------------------------------------------------------------------ device_put


@pytest.mark.parametrize("start", [("x",), ("y", "x"), ()], ids=str)
@pytest.mark.parametrize("end", [("y",), (None, ("x", "y")), ()], ids=str)
def test_from_one_sharding_to_another(start: Any, end: Any) -> None:
    ours, theirs = (library.m.device_put(put(library, *start), on(library, *end)) for library in (OURS, JAX))
    assert shards(ours) == shards(theirs)
    assert ours.sharding == on(OURS, *end)


def test_moving_on_the_same_devices_does_not_pass_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    x = put(OURS, "x")
    monkeypatch.setattr(ShardedArray, "numpy", lambda self: pytest.fail("the numbers were read"))
    y = fx.device_put(x, on(OURS, "y"))
    backwards = fx.NamedSharding(fx.Mesh(fx.devices()[::-1], "all"), P("all"))
    z = fx.device_put(y, backwards)
    assert fx.device_put(z, backwards) is z
    monkeypatch.undo()
    assert z.sharding == backwards
    assert [s.device.id for s in z.addressable_shards] == [7, 6, 5, 4, 3, 2, 1, 0]
    np.testing.assert_array_equal(z, X)
    np.testing.assert_array_equal(z.addressable_shards[0].data, X[:1])


def test_between_devices() -> None:
    for library in (OURS, JAX):
        there = library.m.device_put(put(library, "x"), library.m.devices()[3])
        assert there.devices() == {library.m.devices()[3]}
        assert (there * 2).devices() == {library.m.devices()[3]}
        few = library.mesh_of((2,), ("z",))
        back = library.m.device_put(there, library.m.sharding.NamedSharding(few, library.P("z")))
        assert [s.device.id for s in back.addressable_shards] == [0, 1]
        np.testing.assert_array_equal(back + 1, X + 1)
        assert library.m.device_put(back, library.m.devices()[0]).devices() == {library.m.devices()[0]}


def test_trees_of_shardings() -> None:
    for library in (OURS, JAX):
        where = {"a": on(library, "x"), "b": library.m.devices()[2]}
        a, b, c = jax.tree.leaves(library.m.device_put({"a": X, "b": [X, X]}, where))
        assert a.sharding == where["a"]
        assert b.devices() == c.devices() == {library.m.devices()[2]}
        x = put(library, "x")
        plain, kept = library.m.device_put([X, x], None)
        assert plain.devices() == {library.m.devices()[0]}
        assert kept.sharding == x.sharding
    with pytest.raises(ValueError, match="device_put: device"):
        fx.device_put({"a": X}, {"b": on(OURS, "x")})


def test_specifications_need_a_mesh() -> None:
    with pytest.raises(ValueError, match=r"device_put: P\('x'\) names axes of a mesh, but no mesh is set"):
        fx.device_put(X, P("x"))
    with pytest.raises(ValueError, match="ShapeDtypeStruct: .* no mesh is set"):
        fx.ShapeDtypeStruct((8,), "float32", sharding=P("x"))
    with fx.set_mesh(OURS.mesh):
        assert fx.device_put(X, P("x")).sharding == on(OURS, "x")
        assert fx.ShapeDtypeStruct((8,), "float32", sharding=P("x")).sharding == on(OURS, "x")


def test_places_that_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"device_put: the array, f32\[6,8\], can't have the sharding .* 4 equal pieces"
    ):
        put(OURS, "x", x=X[:6])
    with pytest.raises(ValueError, match=r"P\('x', 'y'\) has 2 entries, but the array has 1 axes"):
        put(OURS, "x", "y", x=X[0])
    with pytest.raises(TypeError, match=r"takes a device of tracefx.devices\(\), a sharding, .* got 'cpu' of type str"):
        fx.device_put(X, "cpu")


def test_functions_that_make_arrays_take_places() -> None:
    for where in (fx.devices()[3], on(OURS, "x"), on(OURS)):
        made: tuple[Any, ...] = (
            fnp.zeros(8, device=where),
            fnp.full_like(put(OURS, "y"), 3.0, device=where),
            fnp.arange(8, device=where),
            fnp.asarray(X, device=where),
            put(OURS, "y").to_device(where),
            put(OURS, "y").astype("int32", device=where),
        )
        lies = where if where is not fx.devices()[3] else SingleDeviceSharding(where)
        for x in made:
            assert x.sharding == lies
            assert (x + 1).sharding == lies
    back = put(OURS, "x").to_device(fx.devices()[0])
    assert back.devices() == {fx.devices()[0]}
    np.testing.assert_array_equal(back, X)
    f = fx.jit(lambda x: x + fnp.ones(8, device=on(OURS, "x")))
    np.testing.assert_array_equal(f(X), X + 1)


def test_traced_arrays_are_constrained() -> None:
    f = fx.jit(lambda x: fx.device_put(x, on(OURS, "y")) * 2)
    assert f(X).sharding == on(OURS, "y")
    g = fx.grad(lambda x: fnp.sum(fx.device_put(x, on(OURS, "x")) ** 2))(X)
    np.testing.assert_array_equal(g, 2 * X)


# ------------------------------------------------------------------ memory


def test_deleted_arrays_say_so() -> None:
    for library in (OURS, JAX):
        for x in (put(library, "x"), library.np.ones(3) + 1, library.np.asarray(X)):
            assert not x.is_deleted()
            x.delete()
            assert x.is_deleted()
            for use in (np.asarray, lambda x: x + 1, repr, library.m.jit(lambda x: x * 2)):
                with pytest.raises(RuntimeError, match="deleted"):
                    use(x)
    x = put(OURS, "x")
    x.delete()
    for again in (lambda x: x.addressable_shards, lambda x: fx.device_put(x, on(OURS, "y"))):
        with pytest.raises(DeletedBufferError, match=r"float32\[8, 8\] was deleted, or donated to a program"):
            again(x)


def test_waiting() -> None:
    x = put(OURS, "x") * 2
    assert x.block_until_ready() is x
    assert x.is_ready()
    tree = {"a": x, "b": 3}
    assert fx.block_until_ready(tree) is tree
    assert fnp.ones(3).is_ready()


# ------------------------------------------------------------------ arrays made of parts


@pytest.mark.parametrize("parts", SPECS, ids=str)
def test_made_from_callbacks(parts: Any) -> None:
    asked: list[str] = []

    def part(index: Any) -> Any:
        asked.append(repr(index))
        return X[index]

    ours = fx.make_array_from_callback(X.shape, on(OURS, *parts), part)
    assert shards(ours) == shards(jax.make_array_from_callback(X.shape, on(JAX, *parts), lambda index: X[index]))
    assert len(asked) == len(set(asked))


def test_callbacks_that_are_refused() -> None:
    with pytest.raises(ValueError, match=r"has shape \(8, 8\), expected \(2, 8\)"):
        fx.make_array_from_callback(X.shape, on(OURS, "x"), lambda index: X)
    with pytest.raises(TypeError, match="the shards have different dtypes"):
        fx.make_array_from_callback(
            (8,), on(OURS, "x"), lambda index: np.ones(2, np.float32 if index[0].start else np.int32)
        )
    assert float(fx.make_array_from_callback((), on(OURS), lambda index: np.float32(2))) == 2


def test_made_from_the_data_of_this_process() -> None:
    for parts in SPECS:
        ours, theirs = (library.m.make_array_from_process_local_data(on(library, *parts), X) for library in (OURS, JAX))
        assert shards(ours) == shards(theirs)
    with pytest.raises(ValueError, match=r"this process has the shape \(16, 8\), but local_data has \(8, 8\)"):
        fx.make_array_from_process_local_data(on(OURS, "x"), X, (16, 8))


def test_made_from_arrays_on_single_devices() -> None:
    parts = [s.data for s in put(OURS, "x").addressable_shards]
    for given in (parts, parts[::-1]):
        whole = fx.make_array_from_single_device_arrays(X.shape, on(OURS, "x"), given)
        np.testing.assert_array_equal(whole, X)
        assert whole.sharding == on(OURS, "x")
    with pytest.raises(ValueError, match="there is no shard on device 3"):
        fx.make_array_from_single_device_arrays(X.shape, on(OURS, "x"), parts[:3])
    with pytest.raises(ValueError, match=r"f32\[2,8\] does not have the shape \(4, 8\) of a shard"):
        fx.make_array_from_single_device_arrays(X.shape, on(OURS, "y"), parts)
    with pytest.raises(TypeError, match="takes arrays on one device each"):
        fx.make_array_from_single_device_arrays(X.shape, on(OURS, "x"), [X] * 8)  # type: ignore[list-item]  # on purpose


LIKE: Final[dict[str, Any]] = {
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
}


@pytest.mark.parametrize("name", LIKE)
def test_arrays_like_another_have_its_sharding(name: str) -> None:
    made = [LIKE[name](library, put(library, "x", "y")) for library in (OURS, JAX)]
    assert shards(made[0]) == shards(made[1])
    assert made[0].committed == made[1].committed


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
def test_trees_of_this_processs_data(make: Any) -> None:
    ours, theirs = [make(F.m.make_array_from_process_local_data, on(F, "x", "y"), on(F)) for F in (OURS, JAX)]
    assert fx.tree.structure(ours) == jax.tree.structure(theirs)
    assert list(map(shards, fx.tree.leaves(ours))) == list(map(shards, jax.tree.leaves(theirs)))


def test_copies_of_arrays_on_devices_are_arrays_of_their_own() -> None:
    for library in (OURS, JAX):
        x = put(library, "x", "y")
        copies = [x.copy(), library.np.array(x), library.np.copy(x)]
        if library is OURS:
            copies += [copy.copy(x), copy.deepcopy(x)]
        library.m.jit(lambda x: x + 1, donate_argnums=0)(x)
        assert x.is_deleted() or library is JAX  # whose array shares its memory with NumPy's
        for y in copies:
            np.testing.assert_array_equal(y, X)
            assert y.sharding == on(library, "x", "y")
