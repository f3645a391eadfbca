"""Arrays moved from one sharding to another by copies of their tiles, without a program.

A host's own devices share its memory, so a tile of theirs that is part of another is that part as it lies, and one that
is made of several is put together once, for all devices that have it. Where devices have memory of their own, whole
tiles are copied between them; anything else there is a compiled program's work, which has the devices' links.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import product
from typing import cast, final

import numpy as np
from attrs import field, frozen

from tracefx.core.avals import Shape, ShapedArray
from tracefx.core.dtypes import NDArray
from tracefx.core.host_memory import aligned_empty
from tracefx.core.key_data import key_data_aval
from tracefx.core.sharding import ShardIndex, Sharding, Tiling
from tracefx.core.values import ConcreteArray, Value
from tracefx.shardings.sharded_array import ShardedArray
from tracefx.xla import runtime
from tracefx.xla.spmd import tiling_of_words


@final
@frozen
class TileCopy:
    """What a new tile has of an old one."""

    old: int
    """The position of a device that has the old tile."""
    source_index: ShardIndex
    """Of the old tile."""
    target_index: ShardIndex
    """In the new tile."""


@functools.lru_cache(maxsize=1024)
def tile_copies(old: Tiling, new: Tiling, shape: Shape) -> tuple[tuple[TileCopy, ...], ...]:
    """For each new tile, by its number, the old ones that it is made of. There are none in an array without elements.

    >>> from tracefx import devices
    >>> one = tuple(devices()[:1])
    >>> tile_copies(Tiling(one, (1,), (0,)), Tiling(one, (1,), (0,)), (4,))
    ((TileCopy(old=0, source_index=(slice(0, 4, None),), target_index=(slice(0, 4, None),)),),)
    """
    was, now = old.tile_shape(shape), new.tile_shape(shape)
    count = len(new.devices) // new.num_replicas
    if 0 in shape:
        return ((),) * count
    having: dict[int, int] = {}
    for position, number in enumerate(old.tile_indices):
        having.setdefault(number, position)
    return tuple([tuple(_copies(number, old, new, was, now, having)) for number in range(count)])


def _copies(number: int, old: Tiling, new: Tiling, was: Shape, now: Shape, having: dict[int, int]) -> list[TileCopy]:
    steps = np.unravel_index(number, new.counts) if new.counts else ()
    starts = [int(step) * n for step, n in zip(steps, now, strict=True)]
    reached = [range(start // a, -(-(start + b) // a)) for start, a, b in zip(starts, was, now, strict=True)]
    found = []
    for others in product(*reached):
        place, part = [], []
        for start, other, a, b in zip(starts, others, was, now, strict=True):
            low, high = max(start, other * a), min(start + b, (other + 1) * a)
            place.append(slice(low - start, high - start))
            part.append(slice(low - other * a, high - other * a))
        flat = int(np.ravel_multi_index(others, old.counts)) if others else 0
        found.append(TileCopy(having[flat], tuple(part), tuple(place)))
    return found


@final
@frozen(eq=False)
class Resharder:
    """Arrays of one type moved from one sharding, all of whose devices are this process's, to another such."""

    aval: ShapedArray
    old: Tiling
    sharding: Sharding
    new: Tiling = field(init=False)
    _spec: runtime.ArraySpec = field(init=False)
    _tile: Shape = field(init=False)
    _copies: tuple[tuple[TileCopy, ...], ...] = field(init=False)

    @new.default
    def _of_words(self) -> Tiling:
        return tiling_of_words(self.sharding.tiling(self.aval.ndim), key_data_aval(self.aval).ndim)

    @_spec.default
    def _type_of_words(self) -> runtime.ArraySpec:
        kind = key_data_aval(self.aval)
        return runtime.ArraySpec(kind.shape, kind.dtype)

    @_tile.default
    def _shape_of_tiles(self) -> Shape:
        return self.new.tile_shape(self._spec.shape)

    @_copies.default
    def _plan_copies(self) -> tuple[tuple[TileCopy, ...], ...]:
        return tile_copies(tiling_of_words(self.old, len(self._spec.shape)), self.new, self._spec.shape)

    @property
    def copies_whole_tiles(self) -> bool:
        """Whether each new tile is an old one."""
        return self.old.tile_shape(self.aval.shape) == self.sharding.shard_shape(self.aval.shape)

    def reshard_through_host(self, args: Sequence[Value]) -> list[ConcreteArray]:
        """The array, which is waited for, moved through the host's memory."""
        (x,) = args
        tiles = self._tiles_of(x)
        known: dict[int, NDArray] = {}
        made = [self._assemble_tile(made_of, tiles, known) for made_of in self._copies]
        given = [made[number] for number in self.new.tile_indices]
        return [ShardedArray(self.aval, runtime.put_tiles(self._spec, self.new, given), self.sharding)]

    def reshard_by_tile_copies(self, args: Sequence[Value]) -> list[ConcreteArray]:
        """The array, if it is moved by whole tiles, whose devices copy them to each other."""
        (x,) = args
        tiles = self._tiles_of(x)
        having = dict(zip(self.old.devices, tiles, strict=True))
        mine = dict(zip(self.old.devices, self.old.tile_indices, strict=True))
        # A device that has the tile already keeps it.
        given = [
            having[device] if mine.get(device) == number else tiles[self._copies[number][0].old]
            for device, number in zip(self.new.devices, self.new.tile_indices, strict=True)
        ]
        return [ShardedArray(self.aval, runtime.put_tiles(self._spec, self.new, given), self.sharding)]

    def _tiles_of(self, x: Value) -> list[runtime.Buffer]:
        assert isinstance(x, ShardedArray)
        return runtime.tiles_of(cast(runtime.Buffer, x.buffer))

    def _assemble_tile(
        self, made_of: Sequence[TileCopy], tiles: Sequence[runtime.Buffer], known: dict[int, NDArray]
    ) -> NDArray:
        for piece in made_of:
            if piece.old not in known:
                known[piece.old] = runtime.buffer_to_numpy(tiles[piece.old])
        if len(made_of) == 1:
            part = known[made_of[0].old][made_of[0].source_index]
            if part.flags.c_contiguous:
                return part
        whole = aligned_empty(self._tile, self._spec.dtype)
        for piece in made_of:
            whole[piece.target_index] = known[piece.old][piece.source_index]
        return whole


def tilewise_resharder(
    aval: ShapedArray, old: Sharding, new: Sharding
) -> Callable[[Sequence[Value]], list[ConcreteArray]] | None:
    """What moves arrays of a type so by their tiles; None if that takes a program on the devices of both."""
    if not (old.is_fully_addressable and new.is_fully_addressable):
        return None
    move = Resharder(aval, old.tiling(aval.ndim), new)
    if all(device.platform == "cpu" for device in (*old.devices, *new.devices)):
        return move.reshard_through_host
    if move.copies_whole_tiles:
        return move.reshard_by_tile_copies
    return None if set(old.devices) == set(new.devices) else move.reshard_through_host
