"""Arrays that are committed, sharded, or on devices other than the first host device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self, TypeVar, final

import numpy as np
from typing_extensions import CapsuleType, override

from tracefx.core import ConcreteArray, NDArray, ShapedArray
from tracefx.core.array import Shard
from tracefx.core.backend import BACKEND
from tracefx.core.device import Buffer, Device
from tracefx.core.key_data import from_key_data
from tracefx.core.meshes import AxisType
from tracefx.core.named_sharding import NamedSharding
from tracefx.core.sharding import Sharding, SingleDeviceSharding
from tracefx.shardings.conversions import require_shardable

A = TypeVar("A")


@final
class ShardedArray(ConcreteArray):
    """An array with an explicit sharding.

    Computations with a `committed` array run on its devices. Uncommitted ones were computed on one device that was the
    default then, and move to the devices of committed operands.

    Args:
        aval: The abstract value.
        buffer: The device buffer, of several shards perhaps.
        placed: The sharding.
        committed: Whether computations must run on its devices.
    """

    __slots__ = ("committed", "placed")
    committed: bool
    placed: Sharding
    buffer: Buffer

    def __init__(self, aval: ShapedArray, buffer: Buffer, placed: Sharding, committed: bool = True) -> None:
        self.aval = aval.with_sharding(placed)  # inlines super().__init__, which would double the cost
        self.host = None
        self.buffer = buffer
        self.device_copy = None
        self.shares_buffer = False
        self.placed = placed
        self.committed = committed

    @classmethod
    def on_host(cls, x: ConcreteArray, placed: Sharding, committed: bool) -> Self:
        """Returns an uncommitted array as one with an explicit sharding, which is on the first host device.

        Args:
            x: The array, a result of NumPy or of a program on that device.
            placed: The sharding.
            committed: Whether computations must run on its device.
        """
        if x.buffer is not None:
            return cls(x.aval, x.buffer, placed, committed)
        result = cls.__new__(cls)
        result.aval = x.aval
        result.host = x.host
        result.device_copy = None
        result.shares_buffer = False
        result.placed = placed
        result.committed = committed
        return result

    if not TYPE_CHECKING:  # else every attribute would exist for type checkers

        def __getattr__(self, name: str) -> Buffer:
            """Makes the buffer of an array of `on_host` at the first use. Python calls this while the slot is unset."""
            if name != "buffer":
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            self.buffer = BACKEND.value.put(self.host, None)
            return self.buffer

    @property
    @override
    def sharding(self) -> Sharding:
        return self.placed

    @override
    def devices(self) -> set[Device]:
        return set(self.placed.devices)

    @property
    @override
    def device(self) -> Device:
        """The first device of the sharding."""
        return self.placed.devices[0]

    @override
    def on_device_size_in_bytes(self) -> int:
        """Returns the size of all shards, those of other processes and copies included."""
        return super().on_device_size_in_bytes() * self.placed.tiling(self.aval.ndim).num_replicas

    @override
    def numpy(self) -> NDArray:
        """Returns the elements of all shards as one NumPy array."""
        host = self.host
        if host is None:
            if not self._is_readable:
                raise RuntimeError(
                    f"{self.aval!r} is on devices of several processes, so its elements can't be read here: look at "
                    "x.addressable_shards, or replicate it first with device_put(x, NamedSharding(mesh, P())) in all "
                    "processes"
                )
            if self.is_deleted():
                raise self.deleted_error()
            host = self.host = self._joined()
        return host

    @override
    def alias(self) -> ShardedArray:
        self.shares_buffer = True
        result = ShardedArray(self.aval, self.buffer, self.placed, self.committed)
        result.shares_buffer = True
        return result

    @override
    def prepare_donation(self) -> None:
        if self.shares_buffer:
            self.buffer = self.__copy__().buffer
            self.shares_buffer = False
        _ = self.buffer  # which may have to be made from the host's memory
        self.host = None

    @override
    def delete(self) -> None:
        self.prepare_donation()
        BACKEND.value.delete(self.buffer)

    @override
    def _drop_memory(self) -> None:
        self.delete()

    def _joined(self) -> NDArray:
        """Gathers the shards into one NumPy array."""
        tiles = [BACKEND.value.read(tile) for tile in BACKEND.value.disassemble(self.buffer)]
        local = list(self.placed.addressable_devices_indices_map(self.aval.shape).values())
        if tiles[0].shape[: self.aval.ndim] == self.aval.shape:
            return from_key_data(tiles[0], self.aval.dtype)
        words = tiles[0].shape[self.aval.ndim :]
        whole = np.empty((*self.aval.shape, *words), tiles[0].dtype)
        for index, tile in zip(local, tiles, strict=True):
            whole[index] = tile
        whole.flags.writeable = False
        return from_key_data(whole, self.aval.dtype)

    @property
    def _is_readable(self) -> bool:
        """Whether this process has all elements."""
        return self.placed.is_fully_addressable or self.placed.is_fully_replicated

    @override
    def __repr__(self) -> str:
        return super().__repr__() if self._is_readable else f"Array({self.aval}, sharding={self.placed})"

    @override
    def __str__(self) -> str:
        return super().__str__() if self._is_readable else repr(self)

    @override
    def __format__(self, spec: str) -> str:
        return super().__format__(spec) if self._is_readable else format(repr(self), spec)

    @override
    def __copy__(self) -> ShardedArray:
        backend = BACKEND.value
        tiles = [np.array(backend.read(tile)) for tile in backend.disassemble(self.buffer)]
        return ShardedArray(self.aval, backend.put_shards(self.aval, self.placed, tiles), self.placed, self.committed)

    @override
    def attach_buffer(self, buffer: Buffer) -> None:
        raise AssertionError("a sharded array always has a buffer")

    @property
    @override
    def addressable_shards(self) -> Sequence[Shard]:
        return [shard for shard in self.global_shards if shard.data is not None]

    @property
    @override
    def global_shards(self) -> Sequence[Shard]:
        tiling = self.placed.tiling(self.aval.ndim)
        aval = self.aval.update(shape=tiling.tile_shape(self.aval.shape))
        if self.is_deleted():
            raise self.deleted_error()
        addressable = self.placed.addressable_devices
        tiles = iter(BACKEND.value.disassemble(self.buffer))
        replica_ids: dict[int, int] = {}
        shards = []
        for device, tile_index, index in zip(
            tiling.devices, tiling.tile_indices, tiling.indices(self.aval.shape), strict=True
        ):
            replica_ids[tile_index] = replica_ids.get(tile_index, -1) + 1
            data = self._tile(aval, next(tiles), device) if device in addressable else None
            shards.append(Shard(device, index, replica_ids[tile_index], data))
        return shards

    @staticmethod
    def _tile(aval: ShapedArray, buffer: Buffer, device: Device) -> ConcreteArray:
        return ShardedArray(aval, buffer, SingleDeviceSharding(device))

    @override
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType:
        if self.placed.num_devices > 1 and not copy:
            raise BufferError(
                f"{self.aval!r} is on {self.placed.num_devices} devices, so it is not one buffer: export "
                "one of x.addressable_shards, or pass copy=True"
            )
        if self.device.platform != "cpu" and not copy and (dl_device is None or dl_device == self.__dlpack_device__()):
            return BACKEND.value.to_dlpack(self.buffer, stream)
        return ConcreteArray(self.aval, self.numpy()).__dlpack__(
            stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )

    @override
    def __dlpack_device__(self) -> tuple[int, int]:
        return BACKEND.value.dlpack_device(self.device)


def without_placement(args: Sequence[A], sharding: Sharding) -> tuple[list[A | ConcreteArray], bool] | None:
    """Returns arguments without the placement on the first host device, for evaluation with NumPy.

    Args:
        args: The arguments, arrays or not.
        sharding: The sharding of that device.

    Returns:
        The arguments, with uncommitted arrays in place of those that have the sharding, and whether one of these is
        committed; None if an array has another sharding.
    """
    plain: list[A | ConcreteArray] = []
    committed = False
    for x in args:
        if not isinstance(x, ShardedArray):
            plain.append(x)
            continue
        if x.placed is not sharding and x.placed != sharding:
            return None
        committed = committed or x.committed
        plain.append(ConcreteArray(x.aval, x.numpy()))
    return plain, committed


def put_concrete(x: ConcreteArray, sharding: Sharding, what: str) -> ConcreteArray:
    """Returns a concrete array with the given sharding; `what` names it in messages."""
    require_shardable(x.aval, sharding, what)
    if isinstance(x, ShardedArray):
        if x.is_deleted():
            raise x.deleted_error()
        if x.placed == sharding:
            return x
        if x.placed.device_set == sharding.device_set or (
            x.placed.is_fully_addressable and sharding.is_fully_addressable
        ):
            return BACKEND.value.reshard(x, sharding)
    return shard_host_array(x.numpy(), x.aval, sharding)


def shard_host_array(host: NDArray, aval: ShapedArray, sharding: Sharding, copied: bool = False) -> ShardedArray:
    """Returns an array on the host as a sharded array. `copied` says that the memory may be written to by others."""
    tiling, own_devices = sharding.tiling(aval.ndim), sharding.addressable_devices
    is_unreplicated = (
        tiling.num_replicas == 1 and host.size > 0
    )  # otherwise devices share the copy of a tile; XLA does not copy empty tiles
    tiles = tiling.split_tiles(
        host, [device in own_devices for device in tiling.devices], copied and not is_unreplicated
    )
    return ShardedArray(aval, BACKEND.value.put_shards(aval, sharding, tiles, copied and is_unreplicated), sharding)


def with_mesh_type(x: ShardedArray, axes: Sequence[str], axis_type: AxisType) -> ShardedArray:
    """Returns an array, in the same memory, whose mesh has axes of another type."""
    placed = x.placed
    if not isinstance(placed, NamedSharding):
        return x
    types = {name: axis_type for name in axes if name in placed.mesh.axis_names}
    result = ShardedArray(
        x.aval, x.alias().buffer, placed.update(mesh=placed.mesh.update_axis_types(types)), x.committed
    )
    result.shares_buffer = True
    return result
