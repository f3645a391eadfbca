"""Where an array lies, as users ask it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tracefx.core.array_placement import Resident
from tracefx.shardings.named_sharding import Shard, Sharding

if TYPE_CHECKING:
    from tracefx.core.array import Array


class Located(Resident):
    """Base of `Array`: the answers of an array that is traced, which lies nowhere yet."""

    __slots__ = ()

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

    def _nowhere(self, asked: str) -> AttributeError:
        return AttributeError(f"{self} has no {asked} while it is traced: where it lies is decided when it is computed")
