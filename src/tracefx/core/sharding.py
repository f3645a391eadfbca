"""Shardings: on which devices the tiles of an array are, and one of them: everything on one device."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from math import prod
from typing import TypeAlias, final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.core.avals import Shape
from tracefx.core.device import MEMORY, Device
from tracefx.core.dtypes import NDArray
from tracefx.core.host_memory import read_only_copy

ShardIndex: TypeAlias = tuple[slice, ...]


@final
@frozen
class Tiling:
    """An array cut into equal tiles, and which of them each device has; equal where the same parts lie on the same
    devices, however that was said."""

    devices: tuple[Device, ...]
    counts: tuple[int, ...]
    """Into how many pieces each axis of the array is cut."""
    tile_indices: tuple[int, ...]
    """For each device the number of its tile, the last axis running fastest."""

    @property
    def num_replicas(self) -> int:
        """On how many devices each tile lies."""
        return len(self.devices) // prod(self.counts)

    @property
    def device_order(self) -> tuple[int, ...]:
        """The devices' positions, tile after tile."""
        return tuple(int(i) for i in np.argsort(self.tile_indices, kind="stable"))

    def tile_shape(self, shape: Shape) -> Shape:
        """The shape of each tile of an array. ValueError if an axis can't be cut into equal pieces."""
        for axis, (n, count) in enumerate(zip(shape, self.counts, strict=True)):
            if n % count:
                raise ValueError(
                    f"an array of shape {tuple(shape)} can't be cut into {count} equal pieces along axis {axis}, whose "
                    f"size is {n}: pad it to a multiple of {count}, or split another axis"
                )
        return tuple([n // count for n, count in zip(shape, self.counts, strict=True)])

    def indices(self, shape: Shape) -> list[ShardIndex]:
        """For each device the part of an array that it has."""
        return list(_indices(self, shape))

    def _indices(self, shape: Shape) -> list[ShardIndex]:
        tile = self.tile_shape(shape)
        found = []
        for place in self.tile_indices:
            steps = np.unravel_index(place, self.counts) if self.counts else ()
            found.append(
                tuple(
                    [
                        slice(int(k) * n, (int(k) + 1) * n) if count > 1 else slice(None)
                        for k, n, count in zip(steps, tile, self.counts, strict=True)
                    ]
                )
            )
        return found

    def split_tiles(self, host: NDArray, here: Sequence[bool], copied: bool = False) -> list[NDArray]:
        """The tiles on some of the devices: views, or `copied`, in which case devices with the same tile share it.

        The array may have more axes than are cut, behind them.
        """
        indices = self.indices(host.shape[: len(self.counts)])
        parts: dict[int, NDArray] = {}
        found = []
        for place, index, is_here in zip(self.tile_indices, indices, here, strict=True):
            if is_here:
                if place not in parts:
                    part = host[index]
                    parts[place] = read_only_copy(part, host.dtype) if copied else np.asarray(part)
                found.append(parts[place])
        return found


@functools.lru_cache(maxsize=1024)
def _indices(tiling: Tiling, shape: Shape) -> list[ShardIndex]:
    return tiling._indices(shape)


class Sharding(ABC):
    """On which devices the parts of an array lie. Shardings are values: two that say the same are equal."""

    __slots__ = ()

    @property
    @abstractmethod
    def devices(self) -> tuple[Device, ...]:
        """All devices, in the order in which a program over them counts them."""

    @abstractmethod
    def tiling(self, ndim: int) -> Tiling:
        """How an array with so many axes is cut."""

    @property
    def device_set(self) -> set[Device]:
        return set(self.devices)

    @property
    def num_devices(self) -> int:
        return len(self.devices)

    @property
    def is_fully_addressable(self) -> bool:
        """Whether all devices are this process's."""
        mine = MEMORY.value.process_index
        return all(d.process_index == mine for d in self.devices)

    @property
    def addressable_devices(self) -> set[Device]:
        """The devices of this process."""
        mine = MEMORY.value.process_index
        return {d for d in self.devices if d.process_index == mine}

    @property
    @abstractmethod
    def is_fully_replicated(self) -> bool:
        """Whether every device has the whole array."""

    @property
    def memory_kind(self) -> str | None:
        """The kind of memory, where a device has several: none is named here."""
        return None

    def shard_shape(self, global_shape: Sequence[int]) -> Shape:
        """The shape of the part that each device has. ValueError if the array can't be cut into equal parts."""
        shape = tuple(global_shape)
        return self.tiling(len(shape)).tile_shape(shape)

    def devices_indices_map(self, global_shape: Sequence[int]) -> Mapping[Device, ShardIndex]:
        """For each device the part of the array that it has."""
        shape = tuple(global_shape)
        return dict(zip(self.devices, self.tiling(len(shape)).indices(shape), strict=True))

    def addressable_devices_indices_map(self, global_shape: Sequence[int]) -> Mapping[Device, ShardIndex]:
        """`devices_indices_map` for the devices of this process."""
        mine = self.addressable_devices
        return {d: index for d, index in self.devices_indices_map(global_shape).items() if d in mine}

    def is_equivalent_to(self, other: Sharding, ndim: int) -> bool:
        """Whether both put the same parts of an array with `ndim` axes on the same devices."""
        mine, others = self.tiling(ndim), other.tiling(ndim)
        if mine.counts != others.counts:
            return False
        return dict(zip(mine.devices, mine.tile_indices, strict=True)) == dict(
            zip(others.devices, others.tile_indices, strict=True)
        )


DeviceOrSharding: TypeAlias = Device | Sharding
"""Where an array may be put."""


@final
@frozen
class SingleDeviceSharding(Sharding):
    """The whole array on one device.

    >>> from tracefx import devices
    >>> SingleDeviceSharding(devices()[0]).shard_shape((4, 2))
    (4, 2)
    """

    device: Device

    @property
    @override
    def devices(self) -> tuple[Device, ...]:
        return (self.device,)

    @override
    def tiling(self, ndim: int) -> Tiling:
        return Tiling((self.device,), (1,) * ndim, (0,))

    @property
    @override
    def is_fully_replicated(self) -> bool:
        return True


def single_device_sharding(device: Device) -> SingleDeviceSharding:
    """The sharding of what lies on one device: always the same object, as calls look for that first."""
    return _single_device_sharding(device)  # type: ignore[arg-type]  # devices are hashable, which their protocol need not say


_single_device_sharding = functools.lru_cache(maxsize=4096)(SingleDeviceSharding)


@final
@frozen
class RequestedShardings:
    """Where the inputs and outputs of a program are to lie; `None` where nobody says."""

    inputs: tuple[Sharding | None, ...]
    outputs: tuple[Sharding | None, ...]
