"""Where an array lies, as users ask it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tracefx.core.backend import BACKEND, Device
from tracefx.core.shardings import Shard, Sharding

if TYPE_CHECKING:
    from tracefx.core.array import Array


class Located:
    """Base of `Array`: the answers of an array that is traced, which lies nowhere yet."""

    __slots__ = ()

    @property
    def device(self) -> Device | None:
        """Where the numbers are; None if there are none yet, in whose place functions that make arrays take it."""
        return None

    @property
    def sharding(self) -> Sharding:
        """Where the parts of the numbers lie."""
        raise self._nowhere("sharding")

    @property
    def committed(self) -> bool:
        """Whether the numbers stay where they were put, and what is computed of them is computed there."""
        raise self._nowhere("commitment")

    @property
    def addressable_shards(self) -> Sequence[Shard]:
        """The parts that lie on devices of this process."""
        raise self._nowhere("addressable_shards")

    @property
    def global_shards(self) -> Sequence[Shard]:
        """The parts on all devices; those of other processes have no `data`."""
        raise self._nowhere("global_shards")

    def addressable_data(self, index: int) -> Array:
        """The part that lies on the device of this process with that position."""
        data = self.addressable_shards[index].data
        assert data is not None  # since it is this process's
        return data

    @property
    def is_fully_addressable(self) -> bool:
        """Whether all of it lies on devices of this process."""
        return self.sharding.is_fully_addressable

    @property
    def is_fully_replicated(self) -> bool:
        """Whether every device that it lies on has all of it."""
        return self.sharding.is_fully_replicated

    def devices(self) -> set[Device]:
        """The devices that the numbers are on; none if there are none yet."""
        return set() if self.device is None else {self.device}

    def platform(self) -> str:
        """The kind of device that the numbers are or will be on, such as "cpu"."""
        return BACKEND.value.platform if self.device is None else self.device.platform

    def is_ready(self) -> bool:
        """Whether the numbers are computed, so that reading them doesn't wait."""
        raise self._nowhere("numbers")

    def is_deleted(self) -> bool:
        """Whether the memory of the numbers was given back, or away to a program; they can't be read any more."""
        raise self._nowhere("numbers")

    def delete(self) -> None:
        """Give the memory of the numbers back now. Whoever reads them afterwards is told so by an error."""
        raise self._nowhere("numbers")

    def _nowhere(self, asked: str) -> AttributeError:
        return AttributeError(f"{self} has no {asked} while it is traced: where it lies is decided when it is computed")
