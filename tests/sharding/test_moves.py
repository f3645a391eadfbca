"""Resharding by tile copies: between shardings on the same devices, on other devices and on subsets."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracefx as fx
from tests.sharding.both import JAX, TRACEFX, Library
from tests.sharding.test_arrays import shards
from tracefx import P
from tracefx.core.sharding import Sharding, Tiling
from tracefx.errors import DeletedArrayError
from tracefx.sharding import SingleDeviceSharding
from tracefx.shardings.sharded_array import ShardedArray
from tracefx.xla.resharding import Resharder, tile_copies

X: Final = np.arange(16 * 8, dtype=np.float32).reshape(16, 8)


def single_device_sharding(library: Library, i: int) -> Any:
    return library.m.sharding.SingleDeviceSharding(library.m.devices()[i])


def mesh(library: Library, ids: tuple[int, ...], names: tuple[str, ...], sizes: tuple[int, ...]) -> Any:
    devices = np.empty(len(ids), object)
    devices[:] = [library.m.devices()[i] for i in ids]
    return library.Mesh(devices.reshape(sizes), names)


FORWARD: Final = ((0, 1, 2, 3, 4, 5, 6, 7), ("x", "y"), (4, 2))
BACKWARD: Final = ((7, 6, 5, 4, 3, 2, 1, 0), ("x", "y"), (4, 2))
FEW: Final = ((2, 5), ("z",), (2,))

RESHARDINGS: Final[list[tuple[Any, Any]]] = [
    ((FORWARD, ("x",)), (FORWARD, ("y",))),
    ((FORWARD, ("x",)), (FORWARD, (None, "y"))),
    ((FORWARD, ("x", "y")), (FORWARD, ())),
    ((FORWARD, ()), (FORWARD, ("y", "x"))),
    ((FORWARD, (("x", "y"),)), (FORWARD, (None, ("y", "x")))),
    ((FORWARD, ("x",)), (BACKWARD, ("x",))),
    ((FORWARD, ("x", "y")), (BACKWARD, ("x", "y"))),
    ((FORWARD, ("x",)), (FEW, ("z",))),
    ((FEW, (None, "z")), (FORWARD, ("x", "y"))),
    ((FEW, ("z",)), (FEW, ())),
    ((FORWARD, ("y",)), 3),
    ((FORWARD, ()), 6),
    (4, (FORWARD, ("x", "y"))),
    (0, (FORWARD, ("x",))),
    (0, 1),
]


def sharding(library: Library, spec: Any) -> Any:
    if isinstance(spec, int):
        return single_device_sharding(library, spec)
    mesh_spec, parts = spec
    return library.m.sharding.NamedSharding(mesh(library, *mesh_spec), library.P(*parts))


@pytest.mark.parametrize(("start", "end"), RESHARDINGS, ids=str)
def test_resharding_matches_jax(start: Any, end: Any) -> None:
    results = []
    for library in (TRACEFX, JAX):
        moved = library.m.device_put(library.m.device_put(X, sharding(library, start)), sharding(library, end))
        results.append(shards(moved))
        np.testing.assert_array_equal(moved, X)
        assert moved.sharding == sharding(library, end)
    assert results[0] == results[1]


@pytest.mark.parametrize(("start", "end"), RESHARDINGS, ids=str)
def test_resharding_keys_and_empty_arrays(start: Any, end: Any) -> None:
    keys = fx.random.split(fx.random.key(1), (16, 8))
    moved = fx.device_put(fx.device_put(keys, sharding(TRACEFX, start)), sharding(TRACEFX, end))
    np.testing.assert_array_equal(fx.random.key_data(moved), fx.random.key_data(keys))
    empty = fx.device_put(fx.device_put(np.ones((16, 0), np.int8), sharding(TRACEFX, start)), sharding(TRACEFX, end))
    assert (empty.dtype, np.asarray(empty).shape) == (np.dtype(np.int8), (16, 0))


def test_resharding_waits_for_pending_computations() -> None:
    slow = fx.jit(lambda x: fx.lax.fori_loop(0, 1000, lambda _, y: y + 1.0, x))
    x = slow(fx.device_put(X, sharding(TRACEFX, (FORWARD, ("x",)))))
    np.testing.assert_array_equal(fx.device_put(x, sharding(TRACEFX, (FORWARD, ("y",)))), X + 1000)


@pytest.mark.parametrize("end", [(FORWARD, ()), (FORWARD, ("x", "y")), (BACKWARD, ("x",)), 2], ids=str)
def test_donation_after_resharding(end: Any) -> None:
    """Donating the source or the result does not change the other, even if they share buffers."""
    big = np.arange(512 * 512, dtype=np.float32).reshape(512, 512)
    negative = fx.jit(lambda x: -x, donate_argnums=0)
    x = fx.device_put(big, sharding(TRACEFX, (FORWARD, ("x",)))) + 0.0
    moved = fx.device_put(x, sharding(TRACEFX, end))
    np.testing.assert_array_equal(negative(x), -big)
    np.testing.assert_array_equal(moved, big)
    y = fx.device_put(big, sharding(TRACEFX, (FORWARD, ("x",)))) + 0.0
    moved = fx.device_put(y, sharding(TRACEFX, end))
    np.testing.assert_array_equal(negative(moved), -big)
    np.testing.assert_array_equal(y, big)


def test_resharding_a_deleted_array_raises_an_error() -> None:
    x = fx.device_put(X, sharding(TRACEFX, (FORWARD, ("x",))))
    x.delete()
    with pytest.raises(DeletedArrayError, match="was deleted"):
        fx.device_put(x, sharding(TRACEFX, (FORWARD, ("y",))))


def test_numpy_arrays_may_be_modified_after_device_put() -> None:
    for end in ((FORWARD, ("x",)), (FORWARD, ("x", "y")), (FORWARD, ()), 3):
        for host in (X.copy(), np.ones((64, 1024), np.float32)):
            before = host.copy()
            view = host[:]
            view.flags.writeable = False
            moved = fx.device_put({"a": host, "b": view}, sharding(TRACEFX, end))
            host += 1
            np.testing.assert_array_equal(moved["a"], before)
            np.testing.assert_array_equal(moved["b"], before)


def test_tiles_share_buffers_where_possible() -> None:
    big = np.arange(512 * 512, dtype=np.float32).reshape(512, 512)

    def addresses(x: Any) -> list[int]:
        return [np.asarray(s.data).__array_interface__["data"][0] for s in x.addressable_shards]

    whole = fx.device_put(fx.device_put(big, sharding(TRACEFX, (FORWARD, ("x",)))), sharding(TRACEFX, (FORWARD, ())))
    assert len(set(addresses(whole))) == 1
    sharded = fx.device_put(whole, sharding(TRACEFX, (FORWARD, ("x",))))
    assert sorted(set(addresses(sharded))) == [addresses(whole)[0] + k * big.nbytes // 4 for k in range(4)]


# ------------------------------------------------------------------ tile copies


@st.composite
def tilings(draw: st.DrawFn, shape: tuple[int, ...]) -> Tiling:
    count = draw(st.sampled_from([1, 2, 4, 8]))
    counts, left = [], count
    for n in shape:
        choices = [k for k in (1, 2, 4, 8) if n % k == 0 and left % k == 0]
        counts.append(draw(st.sampled_from(choices)))
        left //= counts[-1]
    numbers = [k for k in range(count // left) for _ in range(left)]
    return Tiling(tuple(fx.devices()[:count]), tuple(counts), tuple(draw(st.permutations(numbers))))


@given(st.data())
def test_tile_copies_fill_each_tile(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.sampled_from([4, 8, 16, 24]), max_size=3).map(tuple))
    old, new = data.draw(tilings(shape)), data.draw(tilings(shape))
    whole = np.arange(int(np.prod(shape))).reshape(shape)
    tiles = [whole[index] for index in old.indices(shape)]
    indices = dict(zip(new.tile_indices, new.indices(shape), strict=True))
    for number, copies in enumerate(tile_copies(old, new, shape)):
        tile = np.full(new.tile_shape(shape), -1)
        for copy in copies:
            assert (tile[copy.target_index] == -1).all()
            tile[copy.target_index] = tiles[copy.old][copy.source_index]
        np.testing.assert_array_equal(tile, whole[indices[number]])


@pytest.mark.parametrize(
    ("start", "end"),
    [way for way in RESHARDINGS if way[0] == (FORWARD, ("x",)) and way[1] == (BACKWARD, ("x",))],
    ids=str,
)
def test_whole_tiles_are_copied_between_devices(start: Any, end: Any) -> None:
    """The path for devices that have their own memory."""
    check_tile_copies(sharding(TRACEFX, start), sharding(TRACEFX, end))
    check_tile_copies(sharding(TRACEFX, (FORWARD, ())), SingleDeviceSharding(fx.devices()[5]))
    check_tile_copies(SingleDeviceSharding(fx.devices()[5]), fx.NamedSharding(TRACEFX.mesh, P()))


def check_tile_copies(start: Sharding, end: Sharding) -> None:
    x = fx.device_put(X, start)
    assert isinstance(x, ShardedArray)
    resharder = Resharder(x.aval, start.tiling(2), end)
    assert resharder.copies_whole_tiles
    (moved,) = resharder.reshard_by_tile_copies([x])
    assert [s.device for s in moved.addressable_shards] == list(end.devices)
    np.testing.assert_array_equal(moved, X)
    np.testing.assert_array_equal(fx.jit(lambda a: a * 2)(moved), X * 2)
