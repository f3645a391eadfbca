"""Devices, buffers in their memory, and the protocol of whoever manages that memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, TypeGuard

from typing_extensions import CapsuleType

from tracefx.core.dtypes import NDArray
from tracefx.core.late_binding import LateBound
from tracefx.core.settings import Setting


class Buffer(Protocol):
    """Memory on a device, as the backend that made it knows it; opaque to everyone else."""


class SupportsDLPack(Protocol):
    """Another library's array, as DLPack's Python protocol has it."""

    def __dlpack__(self) -> CapsuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...


class Device(Protocol):
    """Where programs run."""

    @property
    def id(self) -> int: ...
    @property
    def platform(self) -> str: ...
    @property
    def device_kind(self) -> str: ...
    @property
    def process_index(self) -> int: ...


def is_device(x: object) -> TypeGuard[Device]:
    """Whether it has what devices have: their classes are their runtimes'."""
    return hasattr(x, "process_index") and hasattr(x, "platform")


class Memory(Protocol):
    """The devices, and the buffers in their memory. The compiler's backend provides it."""

    @property
    def platform(self) -> str:
        """The name of the platform on whose first device programs run that nobody put anywhere, e.g. `cpu`."""
        ...

    @property
    def default_device(self) -> Device:
        """The device that runs them here: `DEFAULT_DEVICE`, or the first of the platform."""
        ...

    @property
    def default_device_is_host(self) -> bool:
        """Whether that is the host's first, whose arrays are told from those that lie where they were put."""
        ...

    @property
    def process_index(self) -> int:
        """Which of the processes that work together this one is."""
        ...

    def devices(self, platform: str) -> list[Device]:
        """The devices of a platform, in all processes; `ValueError` for one that isn't there."""
        ...

    def local_devices(self, platform: str) -> list[Device]:
        """Those of this process. What nobody put anywhere runs on the first of them."""
        ...

    def put(self, host: NDArray, device: Device | None) -> Buffer:
        """Host memory that nobody writes to any more on a device, the host's first one by default."""
        ...

    def device_of(self, buffer: Buffer) -> Device: ...

    def to_dlpack(self, buffer: Buffer, stream: int | None = None) -> CapsuleType:
        """A DLPack capsule of the buffer; `BufferError` for dtypes that DLPack doesn't have.

        The consumer's `stream` of a GPU waits for the numbers; where there is none, they are waited for here.
        """
        ...

    def dlpack_device(self, device: Device) -> tuple[int, int]:
        """DLPack's numbers for the kind of a device, and for which it is."""
        ...

    def from_dlpack(self, external: SupportsDLPack, device: Device | None, copy: bool | None) -> Buffer:
        """A buffer of another library's array, shared unless `copy` is true; `BufferError` where that can't be.

        Without a device it is on the one where the array lies.
        """
        ...

    def view_dlpack(self, external: SupportsDLPack) -> NDArray:
        """Another library's array in host memory as it lies there; `BufferError` if it is elsewhere."""
        ...

    def read(self, buffer: Buffer) -> NDArray:
        """The numbers, without a copy where the device's memory is the host's. Waits for them."""
        ...

    def is_ready(self, buffer: Buffer) -> bool:
        """Whether the numbers are there."""
        ...

    def is_deleted(self, buffer: Buffer) -> bool:
        """Whether the memory was given back, or away."""
        ...

    def delete(self, buffer: Buffer) -> None:
        """Give the memory back, as soon as no running program and no view of it needs it."""
        ...

    def wait(self, buffers: Sequence[Buffer]) -> None:
        """Return when the numbers of all are there; raise what went wrong in making them."""
        ...


MEMORY: Final[LateBound[Memory]] = LateBound("the backend that manages device memory")

DEFAULT_DEVICE: Final[Setting[Device | None]] = Setting("default_device", None)
"""The device that runs programs of uncommitted arrays, inside `default_device`; None elsewhere."""
