"""The repeated blocks of a program, as lowering found them."""

from __future__ import annotations

from typing import final

from attrs import frozen
from typing_extensions import override

from tracefx.source_location import Provenance


@final
@frozen
class SharedRun:
    """A run of equal blocks that share one body, which is compiled once.

    Args:
        count: The number of blocks.
        equations: The number of equations of a block, without those of its sub-jaxprs.
        saved: The number of equations, those of sub-jaxprs included, that need not be compiled.
        source: The source location of the first equation; None if it is unknown.

    >>> print(SharedRun(12, 129, 1419, None))
    12 equal blocks of 129 equations are compiled once: 1,419 equations fewer
    """

    count: int
    equations: int
    saved: int
    source: Provenance | None

    @override
    def __str__(self) -> str:
        at = _from(self.source)
        return (
            f"{self.count} equal blocks of {self.equations} equations{at} are compiled once: "
            f"{self.saved:,} equations fewer"
        )


@final
@frozen
class DeclinedRun:
    """Equations that repeat but do not share a body.

    Args:
        count: How often they repeat.
        equations: The number of equations of a repetition.
        source: The source location of the first equation; None if it is unknown.
        reason: Why they do not share a body.

    >>> print(DeclinedRun(4, 200, None, "they have effects (debug_callback)"))
    200 equations repeat 4 times and are compiled each time: they have effects (debug_callback)
    """

    count: int
    equations: int
    source: Provenance | None
    reason: str

    @override
    def __str__(self) -> str:
        at = _from(self.source)
        return f"{self.equations} equations{at} repeat {self.count} times and are compiled each time: {self.reason}"


@final
@frozen
class RepeatedBlocks:
    """The repeated blocks of a program: which are compiled once, and which are not and why. `print` shows it as text.

    Args:
        shared: The runs of equal blocks that share a body.
        declined: What repeats but is compiled each time.
        reason: Why nothing is shared, if that is decided for the whole program; empty otherwise.

    >>> print(RepeatedBlocks((SharedRun(12, 129, 1419, None),)))
    12 equal blocks of 129 equations are compiled once: 1,419 equations fewer
    >>> print(RepeatedBlocks())
    no repeated blocks of enough equations
    """

    shared: tuple[SharedRun, ...] = ()
    declined: tuple[DeclinedRun, ...] = ()
    reason: str = ""

    @override
    def __str__(self) -> str:
        lines = [*map(str, self.shared), *map(str, self.declined)]
        return "\n".join(lines) or self.reason or "no repeated blocks of enough equations"


def _from(source: Provenance | None) -> str:
    return "" if source is None else f" from {source} on"
