"""Arrays moved by their tiles: between shardings of the same devices, of others, and of some of them."""

# mypy: untyped-calls-exclude="jax"

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracefx as fx
from tests.sharding.both import JAX, OURS, Library
from tests.sharding.test_arrays import shards
from tracefx import P
from tracefx.core.sharding import Sharding, Tiling
from tracefx.sharding import SingleDeviceSharding
from tracefx.shardings.sharded_array import ShardedArray
from tracefx.xla import runtime
from tracefx.xla.resharding import Resharder, tile_copies

X: Final = np.arange(16 * 8, dtype=np.float32).reshape(16, 8)


def one(library: Library, i: int) -> Any:
    return library.m.sharding.SingleDeviceSharding(library.m.devices()[i])


def mesh(library: Library, ids: tuple[int, ...], names: tuple[str, ...], sizes: tuple[int, ...]) -> Any:
    devices = np.empty(len(ids), object)
    devices[:] = [library.m.devices()[i] for i in ids]
    return library.Mesh(devices.reshape(sizes), names)


FORWARD: Final = ((0, 1, 2, 3, 4, 5, 6, 7), ("x", "y"), (4, 2))
BACKWARD: Final = ((7, 6, 5, 4, 3, 2, 1, 0), ("x", "y"), (4, 2))
FEW: Final = ((2, 5), ("z",), (2,))

WAYS: Final[list[tuple[Any, Any]]] = [
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


def sharding(library: Library, said: Any) -> Any:
    if isinstance(said, int):
        return one(library, said)
    where, parts = said
    return library.m.sharding.NamedSharding(mesh(library, *where), library.P(*parts))


@pytest.mark.parametrize(("start", "end"), WAYS, ids=str)
def test_moved_as_jax_does(start: Any, end: Any) -> None:
    found = []
    for library in (OURS, JAX):
        there = library.m.device_put(library.m.device_put(X, sharding(library, start)), sharding(library, end))
        found.append(shards(there))
        np.testing.assert_array_equal(there, X)
        assert there.sharding == sharding(library, end)
    assert found[0] == found[1]


@pytest.mark.parametrize(("start", "end"), WAYS, ids=str)
def test_keys_and_arrays_without_elements_move_too(start: Any, end: Any) -> None:
    keys = fx.random.split(fx.random.key(1), (16, 8))
    there = fx.device_put(fx.device_put(keys, sharding(OURS, start)), sharding(OURS, end))
    np.testing.assert_array_equal(fx.random.key_data(there), fx.random.key_data(keys))
    empty = fx.device_put(fx.device_put(np.ones((16, 0), np.int8), sharding(OURS, start)), sharding(OURS, end))
    assert (empty.dtype, np.asarray(empty).shape) == (np.dtype(np.int8), (16, 0))


def test_what_is_computed_is_waited_for() -> None:
    slow = fx.jit(lambda x: fx.lax.fori_loop(0, 1000, lambda _, y: y + 1.0, x))
    x = slow(fx.device_put(X, sharding(OURS, (FORWARD, ("x",)))))
    np.testing.assert_array_equal(fx.device_put(x, sharding(OURS, (FORWARD, ("y",)))), X + 1000)


@pytest.mark.parametrize("end", [(FORWARD, ()), (FORWARD, ("x", "y")), (BACKWARD, ("x",)), 2], ids=str)
def test_the_array_that_was_moved_can_be_given_away(end: Any) -> None:
    """Whoever has the memory of both afterwards: neither is written to."""
    big = np.arange(512 * 512, dtype=np.float32).reshape(512, 512)
    negative = fx.jit(lambda x: -x, donate_argnums=0)
    x = fx.device_put(big, sharding(OURS, (FORWARD, ("x",)))) + 0.0
    moved = fx.device_put(x, sharding(OURS, end))
    np.testing.assert_array_equal(negative(x), -big)
    np.testing.assert_array_equal(moved, big)
    y = fx.device_put(big, sharding(OURS, (FORWARD, ("x",)))) + 0.0
    moved = fx.device_put(y, sharding(OURS, end))
    np.testing.assert_array_equal(negative(moved), -big)
    np.testing.assert_array_equal(y, big)


def test_what_was_given_away_cannot_be_moved() -> None:
    x = fx.device_put(X, sharding(OURS, (FORWARD, ("x",))))
    x.delete()
    with pytest.raises(runtime.DeletedBufferError, match="was deleted"):
        fx.device_put(x, sharding(OURS, (FORWARD, ("y",))))


def test_numpy_arrays_are_their_callers_again() -> None:
    for end in ((FORWARD, ("x",)), (FORWARD, ("x", "y")), (FORWARD, ()), 3):
        for mine in (X.copy(), np.ones((64, 1024), np.float32)):
            before = mine.copy()
            view = mine[:]
            view.flags.writeable = False
            put = fx.device_put({"a": mine, "b": view}, sharding(OURS, end))
            mine += 1
            np.testing.assert_array_equal(put["a"], before)
            np.testing.assert_array_equal(put["b"], before)


def test_a_tile_is_memory_of_the_old_one_or_put_together_once() -> None:
    big = np.arange(512 * 512, dtype=np.float32).reshape(512, 512)

    def where(x: Any) -> list[int]:
        return [np.asarray(s.data).__array_interface__["data"][0] for s in x.addressable_shards]

    whole = fx.device_put(fx.device_put(big, sharding(OURS, (FORWARD, ("x",)))), sharding(OURS, (FORWARD, ())))
    assert len(set(where(whole))) == 1
    cut = fx.device_put(whole, sharding(OURS, (FORWARD, ("x",))))
    assert sorted(set(where(cut))) == [where(whole)[0] + k * big.nbytes // 4 for k in range(4)]


# ------------------------------------------------------------------ the pieces


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
def test_pieces_make_each_tile(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.sampled_from([4, 8, 16, 24]), max_size=3).map(tuple))
    old, new = data.draw(tilings(shape)), data.draw(tilings(shape))
    whole = np.arange(int(np.prod(shape))).reshape(shape)
    tiles = [whole[index] for index in old.indices(shape)]
    wanted = dict(zip(new.tile_indices, new.indices(shape), strict=True))
    for number, made_of in enumerate(tile_copies(old, new, shape)):
        tile = np.full(new.tile_shape(shape), -1)
        for piece in made_of:
            assert (tile[piece.target_index] == -1).all()
            tile[piece.target_index] = tiles[piece.old][piece.source_index]
        np.testing.assert_array_equal(tile, whole[wanted[number]])


@pytest.mark.parametrize(
    ("start", "end"), [way for way in WAYS if way[0] == (FORWARD, ("x",)) and way[1] == (BACKWARD, ("x",))], ids=str
)
def test_whole_tiles_are_copied_between_devices(start: Any, end: Any) -> None:
    """As it is done where devices have memory of their own."""
    copied(sharding(OURS, start), sharding(OURS, end))
    copied(sharding(OURS, (FORWARD, ())), SingleDeviceSharding(fx.devices()[5]))
    copied(SingleDeviceSharding(fx.devices()[5]), fx.NamedSharding(OURS.mesh, P()))


def copied(start: Sharding, end: Sharding) -> None:
    x = fx.device_put(X, start)
    assert isinstance(x, ShardedArray)
    move = Resharder(x.aval, start.tiling(2), end)
    assert move.copies_whole_tiles
    (there,) = move.reshard_by_tile_copies([x])
    assert [s.device for s in there.addressable_shards] == list(end.devices)
    np.testing.assert_array_equal(there, X)
    np.testing.assert_array_equal(fx.jit(lambda a: a * 2)(there), X * 2)
