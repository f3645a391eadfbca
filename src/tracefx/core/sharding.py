"""Shardings: how arrays are distributed over devices. `SingleDeviceSharding` is the simplest one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from math import prod
from typing import TypeAlias, final

import numpy as np
from attrs import field, frozen
from typing_extensions import override

from tracefx.bounded_cache import memoize
from tracefx.core.avals import Shape, ShapedArray
from tracefx.core.device import MEMORY, Device
from tracefx.core.dtypes import NDArray
from tracefx.core.host_memory import read_only_copy

ShardIndex: TypeAlias = tuple[slice, ...]


@final
@frozen
class Tiling:
    """An array cut into equal tiles, and the tile of each device.

    Two shardings that put the same parts of an array on the same devices have equal tilings.
    """

    devices: tuple[Device, ...]
    counts: tuple[int, ...]
    """The number of tiles along each axis of the array."""
    tile_indices: tuple[int, ...]
    """For each device the row-major index of its tile."""

    @property
    def num_replicas(self) -> int:
        """The number of devices that have the same tile."""
        return len(self.devices) // prod(self.counts)

    @property
    def device_order(self) -> tuple[int, ...]:
        """The positions of the devices in `devices`, ordered by tile."""
        return tuple(int(i) for i in np.argsort(self.tile_indices, kind="stable"))

    def tile_shape(self, shape: Shape) -> Shape:
        """Returns the shape of the tiles of an array. Raises ValueError if an axis cannot be cut into equal tiles."""
        for axis, (n, count) in enumerate(zip(shape, self.counts, strict=True)):
            if n % count:
                raise ValueError(
                    f"an array of shape {tuple(shape)} can't be cut into {count} equal pieces along axis {axis}, whose "
                    f"size is {n}: pad it to a multiple of {count}, or shard another axis"
                )
        return tuple([n // count for n, count in zip(shape, self.counts, strict=True)])

    def indices(self, shape: Shape) -> list[ShardIndex]:
        """Returns for each device the index of its part of the array. The result is cached."""
        return list(_indices(self, shape))

    def _indices(self, shape: Shape) -> list[ShardIndex]:
        tile = self.tile_shape(shape)
        result = []
        for tile_index in self.tile_indices:
            steps = np.unravel_index(tile_index, self.counts) if self.counts else ()
            result.append(
                tuple(
                    [
                        slice(int(k) * n, (int(k) + 1) * n) if count > 1 else slice(None)
                        for k, n, count in zip(steps, tile, self.counts, strict=True)
                    ]
                )
            )
        return result

    def split_tiles(self, host: NDArray, here: Sequence[bool], copied: bool = False) -> list[NDArray]:
        """Returns the tiles of the devices for which `here` is true.

        They are views, or read-only copies if `copied`; devices with the same tile share the copy. The array may have
        more trailing axes, which are not cut.

        Args:
            host: The whole array.
            here: For each device, whether its tile is returned.
            copied: Whether tiles are copied.
        """
        indices = self.indices(host.shape[: len(self.counts)])
        parts: dict[int, NDArray] = {}
        tiles = []
        for tile_index, index, is_here in zip(self.tile_indices, indices, here, strict=True):
            if is_here:
                if tile_index not in parts:
                    part = host[index]
                    parts[tile_index] = read_only_copy(part, host.dtype) if copied else np.asarray(part)
                tiles.append(parts[tile_index])
        return tiles


@memoize(1024)
def _indices(tiling: Tiling, shape: Shape) -> list[ShardIndex]:
    return tiling._indices(shape)


class Sharding(ABC):
    """How an array is distributed over devices. Shardings are immutable and compared by value.

    >>> from tracefx import NamedSharding, P, make_mesh
    >>> sharding = NamedSharding(make_mesh((1,), ("data",)), P("data"))
    >>> isinstance(sharding, Sharding), sharding.num_devices, sharding.shard_shape((4, 2))
    (True, 1, (4, 2))
    """

    __slots__ = ()

    @property
    @abstractmethod
    def devices(self) -> tuple[Device, ...]:
        """All devices, in the order of the device assignment of an SPMD program."""

    @abstractmethod
    def tiling(self, ndim: int) -> Tiling:
        """Returns the tiling of an array with `ndim` axes.

        Args:
            ndim: The number of axes.

        Returns:
            The tiling: how many parts each axis has, and which part each device has.
        """

    def type_of(self, aval: ShapedArray) -> ShapedArray:
        """Returns the type of an array with this sharding.

        Args:
            aval: The type, with any sharding.
        """
        return aval if aval.explicit_sharding is None else aval.with_explicit_sharding(None)

    @property
    def device_set(self) -> set[Device]:
        """The set of all devices."""
        return set(self.devices)

    @property
    def num_devices(self) -> int:
        """The number of devices."""
        return len(self.devices)

    @property
    def is_fully_addressable(self) -> bool:
        """Whether all devices belong to this process."""
        process_index = MEMORY.value.process_index
        return all(d.process_index == process_index for d in self.devices)

    @property
    def has_addressable_devices(self) -> bool:
        """Whether any device belongs to this process."""
        return bool(self.addressable_devices)

    @property
    def addressable_devices(self) -> set[Device]:
        """The devices that belong to this process."""
        process_index = MEMORY.value.process_index
        return {d for d in self.devices if d.process_index == process_index}

    @property
    def _addressable_device_assignment(self) -> set[Device]:
        """The devices of this process, under the name by which Orbax reads them."""
        return self.addressable_devices

    @property
    @abstractmethod
    def is_fully_replicated(self) -> bool:
        """Whether every device has the whole array."""

    @property
    def memory_kind(self) -> str | None:
        """The kind of memory on devices that have several kinds; always `None`, the default memory."""
        return None

    def check_compatible_aval(self, aval_shape: Sequence[int]) -> None:
        """Raises ValueError if an array has too few axes for the sharding.

        Args:
            aval_shape: The shape of the array.
        """
        self.tiling(len(aval_shape))

    def shard_shape(self, global_shape: Sequence[int]) -> Shape:
        """Returns the shape of each shard.

        Args:
            global_shape: The shape of the array.

        Raises:
            ValueError: If the array cannot be cut into equal shards.
        """
        shape = tuple(global_shape)
        return self.tiling(len(shape)).tile_shape(shape)

    def devices_indices_map(self, global_shape: Sequence[int]) -> Mapping[Device, ShardIndex]:
        """Returns for each device the index of its shard.

        Args:
            global_shape: The shape of the array.
        """
        shape = tuple(global_shape)
        return dict(zip(self.devices, self.tiling(len(shape)).indices(shape), strict=True))

    def addressable_devices_indices_map(self, global_shape: Sequence[int]) -> Mapping[Device, ShardIndex]:
        """Returns `devices_indices_map` for the devices of this process.

        Args:
            global_shape: The shape of the array.
        """
        addressable = self.addressable_devices
        return {d: index for d, index in self.devices_indices_map(global_shape).items() if d in addressable}

    def is_equivalent_to(self, other: Sharding, ndim: int) -> bool:
        """Returns whether both shardings put the same parts of an array on the same devices.

        Args:
            other: The other sharding.
            ndim: The number of axes of the array.

        Returns:
            A Python bool.
        """
        tiling, other_tiling = self.tiling(ndim), other.tiling(ndim)
        if tiling.counts != other_tiling.counts:
            return False
        return dict(zip(tiling.devices, tiling.tile_indices, strict=True)) == dict(
            zip(other_tiling.devices, other_tiling.tile_indices, strict=True)
        )


DeviceOrSharding: TypeAlias = Device | Sharding
"""A device or a sharding: the target of `device_put`, say."""


def check_memory_kind(sharding: object, attribute: object, kind: str | None) -> None:
    """Raises ValueError if the memory of a sharding is not the only one that devices have."""
    if kind not in (None, "device"):
        raise ValueError(f"memory_kind must be 'device', the only memory of a device, or None, got {kind!r}")


@final
@frozen
class SingleDeviceSharding(Sharding):
    """A sharding that places the whole array on one device.

    Args:
        device: The device.
        memory_kind: None, the default, or "device": devices have one memory.

    Raises:
        ValueError: If `memory_kind` is another one.

    >>> from tracefx import devices
    >>> SingleDeviceSharding(devices()[0]).shard_shape((4, 2))
    (4, 2)
    """

    device: Device
    memory_kind: str | None = field(default=None, kw_only=True, eq=False, repr=False, validator=check_memory_kind)

    @property
    @override
    def devices(self) -> tuple[Device, ...]:
        return (self.device,)

    @override
    def tiling(self, ndim: int) -> Tiling:
        return Tiling((self.device,), (1,) * ndim, (0,))

    is_fully_replicated = True


@memoize(4096)
def single_device_sharding(device: Device) -> SingleDeviceSharding:
    """Returns the cached sharding for one device. It is always the same object, so calls can compare it by identity."""
    return SingleDeviceSharding(device)


@final
@frozen
class RequestedShardings:
    """The shardings that the user requests for the inputs and outputs of a program; `None` for an unspecified one."""

    inputs: tuple[Sharding | None, ...]
    outputs: tuple[Sharding | None, ...]
