"""What compiled programs send between devices."""

from __future__ import annotations

from typing import final

from attrs import frozen
from typing_extensions import override

from tracefx.core.avals import ShapedArray


@final
@frozen
class CompiledCollective:
    """An operation that devices do together, as it stands in a compiled program."""

    kind: str
    """As XLA calls it: `all-reduce`, `all-gather`, `reduce-scatter`, `all-to-all`, `collective-permute`, ..."""
    types: tuple[ShapedArray, ...]
    """What each device gets; of several types where the compiler joined several operations."""
    groups: tuple[tuple[int, ...], ...]
    """Which devices do it with each other, by their ids; for `collective-permute` pairs of sender and receiver."""
    execution_count: int | None
    """How often it is done in one run; None in a loop or a branch of which the compiler doesn't know how often."""
    name: str
    """The operation of the program that needs it."""

    @property
    def nbytes(self) -> int:
        """The bytes that each device gets."""
        return sum([aval.nbytes for aval in self.types])

    @property
    def bytes_sent(self) -> int:
        """The bytes that a device sends each time, at least: what goes round a ring of its group."""
        if self.kind in ("collective-permute", "collective-broadcast"):
            return self.nbytes
        n = max(map(len, self.groups), default=1)
        match self.kind:
            case "all-reduce":
                return 2 * self.nbytes * (n - 1) // n
            case "reduce-scatter":
                return self.nbytes * (n - 1)
            case _:
                return self.nbytes * (n - 1) // n

    @override
    def __str__(self) -> str:
        types = ", ".join(map(str, self.types))
        over = f"{len(self.groups)} group{'s' * (len(self.groups) != 1)} of {max(map(len, self.groups), default=0)}"
        if self.kind == "collective-permute":
            over = f"{len(self.groups)} pairs"
        often = (
            "unknown how often"
            if self.execution_count is None
            else "once"
            if self.execution_count == 1
            else f"{self.execution_count} times"
        )
        return f"{self.kind} {types} over {over}, {self.bytes_sent} bytes sent by each device, {often}: {self.name}"
