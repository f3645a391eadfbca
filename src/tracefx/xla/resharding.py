"""Resharding by copies of tiles, without a compiled program.

Host devices share memory. So a new tile that is part of an old one is a view of it, and one that consists of several is
assembled once, for all devices that have it. Between devices with memory of their own only whole tiles are copied;
anything else is left to a compiled program, which uses the links between the devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import final

import numpy as np
from attrs import field, frozen

from tracefx.bounded_cache import memoize
from tracefx.core import ConcreteArray, NDArray, Shape, ShapedArray, Value
from tracefx.core.host_memory import aligned_empty
from tracefx.core.key_data import key_data_aval
from tracefx.core.sharding import ShardIndex, Sharding, Tiling
from tracefx.shardings.sharded_array import ShardedArray
from tracefx.xla.runtime import bindings, buffers, multi_device
from tracefx.xla.spmd import tiling_of_words


@final
@frozen
class TileCopy:
    """A part of an old tile that is copied to a new tile."""

    old: int
    """The position of a device that has the old tile."""
    source_index: ShardIndex
    """The part in the old tile."""
    target_index: ShardIndex
    """The part in the new tile."""


@memoize(1024)
def tile_copies(old: Tiling, new: Tiling, shape: Shape) -> tuple[tuple[TileCopy, ...], ...]:
    """Returns, for each new tile, the copies that it is assembled from; none for an array without elements.

    >>> from tracefx import devices
    >>> one = tuple(devices()[:1])
    >>> tile_copies(Tiling(one, (1,), (0,)), Tiling(one, (1,), (0,)), (4,))
    ((TileCopy(old=0, source_index=(slice(0, 4, None),), target_index=(slice(0, 4, None),)),),)
    """
    old_shape, new_shape = old.tile_shape(shape), new.tile_shape(shape)
    num_tiles = len(new.devices) // new.num_replicas
    if 0 in shape:
        return ((),) * num_tiles
    position_of: dict[int, int] = {}
    for position, number in enumerate(old.tile_indices):
        position_of.setdefault(number, position)
    return tuple([tuple(_copies(number, old, new, old_shape, new_shape, position_of)) for number in range(num_tiles)])


def _copies(
    number: int, old: Tiling, new: Tiling, old_shape: Shape, new_shape: Shape, position_of: dict[int, int]
) -> list[TileCopy]:
    steps = np.unravel_index(number, new.counts) if new.counts else ()
    starts = [int(step) * n for step, n in zip(steps, new_shape, strict=True)]
    overlapping = [
        range(start // a, -(-(start + b) // a)) for start, a, b in zip(starts, old_shape, new_shape, strict=True)
    ]
    copies = []
    for old_indices in product(*overlapping):
        target, source = [], []
        for start, old_index, a, b in zip(starts, old_indices, old_shape, new_shape, strict=True):
            low, high = max(start, old_index * a), min(start + b, (old_index + 1) * a)
            target.append(slice(low - start, high - start))
            source.append(slice(low - old_index * a, high - old_index * a))
        flat = int(np.ravel_multi_index(old_indices, old.counts)) if old_indices else 0
        copies.append(TileCopy(position_of[flat], tuple(source), tuple(target)))
    return copies


@final
@frozen(eq=False)
class Resharder:
    """Moves arrays of one type from one sharding to another; all devices of both belong to this process."""

    aval: ShapedArray
    old: Tiling
    sharding: Sharding
    new: Tiling = field(init=False)
    _spec: bindings.ArraySpec = field(init=False)
    _tile: Shape = field(init=False)
    _copies: tuple[tuple[TileCopy, ...], ...] = field(init=False)

    @new.default
    def _of_words(self) -> Tiling:
        return tiling_of_words(self.sharding.tiling(self.aval.ndim), key_data_aval(self.aval).ndim)

    @_spec.default
    def _type_of_words(self) -> bindings.ArraySpec:
        words_aval = key_data_aval(self.aval)
        return bindings.ArraySpec(words_aval.shape, words_aval.dtype)

    @_tile.default
    def _shape_of_tiles(self) -> Shape:
        return self.new.tile_shape(self._spec.shape)

    @_copies.default
    def _plan_copies(self) -> tuple[tuple[TileCopy, ...], ...]:
        return tile_copies(tiling_of_words(self.old, len(self._spec.shape)), self.new, self._spec.shape)

    @property
    def copies_whole_tiles(self) -> bool:
        """Whether each new tile is one of the old tiles."""
        return self.old.tile_shape(self.aval.shape) == self.sharding.shard_shape(self.aval.shape)

    def reshard_through_host(self, args: Sequence[Value]) -> list[ConcreteArray]:
        """Moves an array through host memory; waits until its values are computed."""
        (x,) = args
        tiles = self._tiles_of(x)
        host_tiles: dict[int, NDArray] = {}
        new_tiles = [self._assemble_tile(copies, tiles, host_tiles) for copies in self._copies]
        tiles_per_device = [new_tiles[number] for number in self.new.tile_indices]
        return [ShardedArray(self.aval, multi_device.put_tiles(self._spec, self.new, tiles_per_device), self.sharding)]

    def reshard_by_tile_copies(self, args: Sequence[Value]) -> list[ConcreteArray]:
        """Moves an array whose new tiles are old tiles, by copies between devices."""
        (x,) = args
        tiles = self._tiles_of(x)
        tile_on = dict(zip(self.old.devices, tiles, strict=True))
        tile_index_on = dict(zip(self.old.devices, self.old.tile_indices, strict=True))
        # A device that has the tile already keeps it.
        tiles_per_device = [
            tile_on[device] if tile_index_on.get(device) == number else tiles[self._copies[number][0].old]
            for device, number in zip(self.new.devices, self.new.tile_indices, strict=True)
        ]
        return [ShardedArray(self.aval, multi_device.put_tiles(self._spec, self.new, tiles_per_device), self.sharding)]

    def _tiles_of(self, x: Value) -> list[bindings.Buffer]:
        assert isinstance(x, ShardedArray)
        return multi_device.tiles_of(bindings.native_buffer(x.buffer))

    def _assemble_tile(
        self, copies: Sequence[TileCopy], tiles: Sequence[bindings.Buffer], host_tiles: dict[int, NDArray]
    ) -> NDArray:
        for piece in copies:
            if piece.old not in host_tiles:
                host_tiles[piece.old] = buffers.buffer_to_numpy(tiles[piece.old])
        if len(copies) == 1:
            view = host_tiles[copies[0].old][copies[0].source_index]
            if view.flags.c_contiguous:
                return view
        tile = aligned_empty(self._tile, self._spec.dtype)
        for piece in copies:
            tile[piece.target_index] = host_tiles[piece.old][piece.source_index]
        return tile


def tilewise_resharder(
    aval: ShapedArray, old: Sharding, new: Sharding
) -> Callable[[Sequence[Value]], list[ConcreteArray]] | None:
    """Returns a function that moves arrays of a type by tiles, or None if that takes a program on the devices."""
    if not (old.is_fully_addressable and new.is_fully_addressable):
        return None
    resharder = Resharder(aval, old.tiling(aval.ndim), new)
    if all(device.platform == "cpu" for device in (*old.devices, *new.devices)):
        return resharder.reshard_through_host
    if resharder.copies_whole_tiles:
        return resharder.reshard_by_tile_copies
    return None if set(old.devices) == set(new.devices) else resharder.reshard_through_host
