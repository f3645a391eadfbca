"""What arrays say of the memory that their numbers are in."""

from __future__ import annotations

from abc import abstractmethod

from tracefx.core.backend import BACKEND, Device
from tracefx.core.dtypes import NDArray
from tracefx.errors import ConcretizationError


class Resident:
    """Where numbers are, and whether they are there. A tracer has none: to ask it is a ConcretizationError."""

    __slots__ = ()

    @abstractmethod
    def concrete_or_error(self, error: type[ConcretizationError]) -> NDArray:
        """The numbers, or `error` where they aren't known."""

    @property
    def device(self) -> Device | None:
        """Where the numbers are; None if there are none yet, in whose place functions that make arrays take it."""
        return None

    def devices(self) -> set[Device]:
        """The devices that the numbers are on; none if there are none yet."""
        return set() if self.device is None else {self.device}

    def platform(self) -> str:
        """The kind of device that the numbers are or will be on, such as "cpu"."""
        return BACKEND.value.platform if self.device is None else self.device.platform

    def is_ready(self) -> bool:
        """Whether the numbers have been computed; `block_until_ready` waits for them."""
        self.concrete_or_error(ConcretizationError)
        return True

    def is_deleted(self) -> bool:
        """Whether the memory was given back by `delete`, or away by a function that it was donated to."""
        self.concrete_or_error(ConcretizationError)
        return False

    def delete(self) -> None:
        """Give the memory back now, as soon as nobody else looks at it. The numbers can't be asked for any more."""
        self.concrete_or_error(ConcretizationError)

    def on_device_size_in_bytes(self) -> int:
        """How much memory the numbers take."""
        return self.concrete_or_error(ConcretizationError).nbytes

    def copy_to_host_async(self) -> None:
        """Nothing: numbers on the host are there, and others are copied when they are asked for."""
        self.concrete_or_error(ConcretizationError)
