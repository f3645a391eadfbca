"""Devices, buffers in their memory, and the protocol of the backend that manages device memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, TypeGuard, runtime_checkable

from typing_extensions import CapsuleType

from tracefx.core.dtypes import NDArray
from tracefx.core.late_binding import LateBound
from tracefx.settings import Setting


class Buffer(Protocol):
    """A device buffer. Its contents are known only to the backend that made it."""


class SupportsDLPack(Protocol):
    """An array of another library that supports the DLPack protocol."""

    def __dlpack__(self) -> CapsuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...


@runtime_checkable
class Device(Protocol):
    """A device on which programs run, e.g. a CPU or a GPU.

    `devices` and `local_devices` return all there are.

    >>> from tracefx import devices
    >>> device = devices()[0]
    >>> device.id, device.platform, device.process_index
    (0, 'cpu', 0)
    """

    @property
    def id(self) -> int:
        """The number of the device, unique among all devices of the platform."""

    @property
    def platform(self) -> str:
        """The name of the platform, e.g. `cpu`."""

    @property
    def device_kind(self) -> str:
        """The model of the device."""

    @property
    def process_index(self) -> int:
        """The index of the process to which the device belongs."""


def is_device(x: object) -> TypeGuard[Device]:
    """Whether an object has the attributes of a device. Device classes belong to the runtime, so this is structural."""
    return hasattr(x, "process_index") and hasattr(x, "platform")


class Memory(Protocol):
    """The devices and the buffers in their memory. The compiler backend provides it."""

    @property
    def platform(self) -> str:
        """The default platform, e.g. `cpu`: programs with uncommitted arguments run on its first device."""

    @property
    def default_device(self) -> Device:
        """The current default device: `DEFAULT_DEVICE`, or the first device of the default platform."""

    @property
    def default_device_is_host(self) -> bool:
        """Whether the default device is the first host device, whose arrays are plain `ConcreteArray`s."""

    @property
    def process_index(self) -> int:
        """The index of this process among those of a distributed program."""

    def devices(self, platform: str) -> list[Device]:
        """Returns the devices of a platform in all processes. Raises ValueError for an unknown platform."""

    def local_devices(self, platform: str) -> list[Device]:
        """Returns the devices of a platform in this process. Uncommitted computations run on the first one."""

    def put(self, host: NDArray, device: Device | None) -> Buffer:
        """Copies or wraps host memory, which must not change afterwards, as a buffer on a device.

        Without a device it is the first host device.
        """

    def device_of(self, buffer: Buffer) -> Device:
        """Returns the device of a buffer."""

    def to_dlpack(self, buffer: Buffer, stream: int | None = None) -> CapsuleType:
        """Returns a DLPack capsule of the buffer. Raises BufferError for dtypes that DLPack lacks.

        With the consumer's GPU `stream`, the stream waits for the value; without, this call waits.
        """

    def dlpack_device(self, device: Device) -> tuple[int, int]:
        """Returns DLPack's device type and device id."""

    def from_dlpack(self, external: SupportsDLPack, device: Device | None, copy: bool | None) -> Buffer:
        """Returns a buffer of another library's array. Raises BufferError if that is impossible.

        Without a device it is on the device of the array. The memory is shared unless `copy` is true.
        """

    def view_dlpack(self, external: SupportsDLPack) -> NDArray:
        """Returns a view of another library's array in host memory. Raises BufferError if it is elsewhere."""

    def read(self, buffer: Buffer) -> NDArray:
        """Waits for the value and returns it, without a copy if the device memory is host memory."""

    def is_ready(self, buffer: Buffer) -> bool:
        """Whether the value has been computed. Raises DeletedArrayError if the buffer was deleted or donated."""

    def is_deleted(self, buffer: Buffer) -> bool:
        """Whether the buffer was deleted or donated."""

    def delete(self, buffer: Buffer) -> None:
        """Frees the buffer as soon as no running program and no view uses it."""

    def wait(self, awaited: Sequence[Buffer]) -> None:
        """Waits until all values have been computed. Raises the errors of their computation."""


MEMORY: Final[LateBound[Memory]] = LateBound("the backend that manages device memory")

DEFAULT_DEVICE: Final[Setting[Device | None]] = Setting("default_device", None)
"""The device for programs with uncommitted arguments, inside a `default_device` block; None outside."""
