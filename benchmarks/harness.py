"""How tracefx and JAX are timed against each other.

Both run in one process, in blocks that take turns, so that whatever slows the machine down for a while slows down
both. A block is as many calls as fill a millisecond. Compared are the medians of the blocks; the spread of a ratio
is the middle half of the ratios of neighbouring blocks.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias, final

from attrs import frozen

Run: TypeAlias = Callable[[], object]
Clock: TypeAlias = Callable[[Run, int], float]
"""The seconds that so many calls take."""

BLOCK: Final = 0.001  # seconds: shorter than what a busy machine gives to other processes at a time
BLOCKS: Final = 201


@final
@frozen
class Subject:
    """One thing to compare: what each side calls, and the ratio that is wanted.

    `blocks` is how often a block of each side runs; `calls` how many calls one block has, where they must not be
    chosen by the time they take.
    """

    group: str
    name: str
    ours: Run
    jax: Run
    bound: float | None = None
    blocks: int = BLOCKS
    calls: int | None = None
    clock: Clock | None = None


@final
@frozen
class Figure:
    """The outcome for one subject, in seconds a call."""

    group: str
    name: str
    ours: float
    jax: float
    low: float  # of the ratio: a quarter of the pairs of blocks lie below
    high: float
    bound: float | None

    @property
    def ratio(self) -> float:
        return self.ours / self.jax

    @property
    def verdict(self) -> Literal["", "ok", "over"]:
        return "" if self.bound is None else "ok" if self.ratio <= self.bound else "over"


def wall_clock(run: Run, calls: int) -> float:
    repeats = range(calls)
    start = time.perf_counter()
    for _ in repeats:
        run()
    return time.perf_counter() - start


def returned_seconds(run: Run, calls: int) -> float:
    """For what takes place in another process, and tells how long it took."""
    return sum(_seconds(run()) for _ in range(calls))


def _seconds(told: object) -> float:
    assert isinstance(told, float)
    return told


def measure(subject: Subject) -> Figure:
    """Time both sides of a subject, in turns."""
    clock = subject.clock or wall_clock
    if subject.calls is None:
        counts = _calls(subject.ours), _calls(subject.jax)
    else:
        counts = subject.calls, subject.calls
    ours: list[float] = []
    theirs: list[float] = []
    gc.collect()
    gc.disable()
    try:
        for i in range(subject.blocks):
            sides = [(ours, subject.ours, counts[0]), (theirs, subject.jax, counts[1])]
            for times, run, calls in sides if i % 2 else reversed(sides):
                times.append(clock(run, calls) / calls)
    finally:
        gc.enable()
    low, high = _quartiles([a / b for a, b in zip(ours, theirs, strict=True)])
    return Figure(
        subject.group, subject.name, statistics.median(ours), statistics.median(theirs), low, high, subject.bound
    )


def _calls(run: Run) -> int:
    """How many calls fill a block; the first ones, which compile, don't count."""
    run()
    run()
    calls = 1
    while (seconds := min(wall_clock(run, calls) for _ in range(3))) < BLOCK / 4:
        calls *= 4
    return max(1, round(calls * BLOCK / seconds))


def _quartiles(values: Sequence[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4)
    return low, high
