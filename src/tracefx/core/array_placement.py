"""The placement of arrays: device, sharding, and the state of their memory."""

from __future__ import annotations

from abc import abstractmethod

from tracefx.core.device import MEMORY, Device
from tracefx.core.dtypes import NDArray
from tracefx.core.layouts import Format
from tracefx.core.sharding import Sharding
from tracefx.errors import ConcretizationError


class ArrayPlacement:
    """The attributes of `Array` that describe its placement.

    The methods here are those of tracers, which have no memory, so most of them raise. Concrete arrays override them.
    """

    __slots__ = ()

    @abstractmethod
    def concrete_or_error(self, error: type[ConcretizationError], use: str = "") -> NDArray:
        """Returns the concrete value; raises an error for a tracer.

        Args:
            error: The class of the error.
            use: What needs the value, for the message.
        """

    @property
    def device(self) -> Device | None:
        """The device of the array; None for a tracer, so that functions which create arrays use the default device."""
        return None

    def devices(self) -> set[Device]:
        """Returns the devices that hold a shard of the array; the empty set for a tracer."""
        return set() if self.device is None else {self.device}

    def platform(self) -> str:
        """Returns the platform of the device, e.g. "cpu"; for a tracer, the default platform."""
        return MEMORY.value.platform if self.device is None else self.device.platform

    def is_ready(self) -> bool:
        """Returns whether the value has been computed; `block_until_ready` waits for it."""
        self.concrete_or_error(ConcretizationError)
        return True

    def is_deleted(self) -> bool:
        """Returns whether the memory was freed by `delete` or donated to a compiled function."""
        self.concrete_or_error(ConcretizationError)
        return False

    def delete(self) -> None:
        """Frees the memory as soon as no view uses it. The value cannot be read afterwards."""
        self.concrete_or_error(ConcretizationError)

    def on_device_size_in_bytes(self) -> int:
        """Returns the size of the value in device memory, in bytes."""
        return self.concrete_or_error(ConcretizationError).nbytes

    def copy_to_host_async(self) -> None:
        """Does nothing: arrays in host memory need no copy, and others are copied when they are read."""
        self.concrete_or_error(ConcretizationError)

    @property
    def sharding(self) -> Sharding:
        """How the array is distributed over devices. Raises AttributeError for a tracer."""
        raise self._no_placement("sharding")

    @property
    def format(self) -> Format:
        """The layout in memory, which is row-major, and the sharding. Raises AttributeError for a tracer."""
        raise self._no_placement("format")

    @property
    def committed(self) -> bool:
        """Whether computations on the array must run on its devices. Raises AttributeError for a tracer."""
        raise self._no_placement("commitment")

    @property
    def is_fully_addressable(self) -> bool:
        """Whether all its devices belong to this process."""
        return self.sharding.is_fully_addressable

    @property
    def is_fully_replicated(self) -> bool:
        """Whether each of its devices has the whole array."""
        return self.sharding.is_fully_replicated

    def _no_placement(self, attribute: str) -> AttributeError:
        return AttributeError(f"{self} has no {attribute}: it is traced, and its placement is decided at run time")
