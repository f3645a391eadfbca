"""Collectives in compiled programs: the communication between devices that the compiler inserted."""

from __future__ import annotations

from typing import final

from attrs import frozen
from typing_extensions import override

from tracefx.core.avals import ShapedArray


@final
@frozen
class CompiledCollective:
    """One collective instruction of a compiled program."""

    kind: str
    """XLA's name: `all-reduce`, `all-gather`, `reduce-scatter`, `all-to-all`, `collective-permute`, ..."""
    types: tuple[ShapedArray, ...]
    """The avals of the results on each device; several if the compiler combined several collectives."""
    groups: tuple[tuple[int, ...], ...]
    """The groups of communicating devices, by id; for `collective-permute` pairs of source and target."""
    execution_count: int | None
    """The number of executions per run; None inside a branch, or a loop whose trip count is unknown."""
    name: str
    """The primitive of the program that needs it."""

    @property
    def nbytes(self) -> int:
        """The size in bytes of the results on each device."""
        return sum([aval.nbytes for aval in self.types])

    @property
    def bytes_sent(self) -> int:
        """A lower bound of the bytes that each device sends per execution: the cost of a ring algorithm."""
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
