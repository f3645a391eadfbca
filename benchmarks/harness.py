"""Measurements of tracefx beside JAX.

Both run in one process, in alternating blocks of calls, so that other load on the machine affects both. A block takes
about a millisecond. The result is the ratio of the medians of the blocks, with the interquartile range of the ratios of
neighbouring blocks.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias, final

from attrs import frozen

Run: TypeAlias = Callable[[], object]
Unit: TypeAlias = Literal["s", "B"]
"""The unit of a figure: seconds or bytes."""
Clock: TypeAlias = Callable[[Run, int], float]
"""Returns what a number of calls takes, in the unit of the subject."""

BLOCK: Final = 0.001  # seconds: shorter than what a busy machine gives to other processes at a time
BLOCKS: Final = 201


@final
@frozen
class Subject:
    """A function of each library to measure, and the target of their ratio.

    Args:
        group: The group of benchmarks that it belongs to.
        name: The name of its row.
        ours: A call of tracefx.
        jax: The same call of JAX.
        bound: The target of the ratio tracefx / JAX. None, the default, means that there is none.
        blocks: The number of blocks of each library.
        calls: The number of calls in a block. None, the default, means as many as take a millisecond.
        clock: Measures a block. None, the default, means by the wall time.
        unit: The unit of the measurements.
    """

    group: str
    name: str
    ours: Run
    jax: Run
    bound: float | None = None
    blocks: int = BLOCKS
    calls: int | None = None
    clock: Clock | None = None
    unit: Unit = "s"


@final
@frozen
class Figure:
    """The result for one subject, per call."""

    group: str
    name: str
    ours: float
    jax: float
    low: float  # of the ratio: a quarter of the pairs of blocks lie below
    high: float
    bound: float | None
    unit: Unit = "s"

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


def returned_value(run: Run, calls: int) -> float:
    """Returns the sum of the results of the calls, which measure themselves, in another process for example."""
    return sum(_number(run()) for _ in range(calls))


def _number(result: object) -> float:
    assert isinstance(result, float)
    return result


def measure(subject: Subject) -> Figure:
    """Measures a subject."""
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
    medians = statistics.median(ours), statistics.median(theirs)
    return Figure(subject.group, subject.name, *medians, low, high, subject.bound, subject.unit)


def _calls(run: Run) -> int:
    """Returns the number of calls in a block, after two calls, which compile."""
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
