"""`Cost`, the cost of a program, and its report as text."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Final, TypeVar, final

from attrs import astuple, field, frozen
from typing_extensions import override

from tracefx.handlers.cost_analysis.peak_memory import Peak
from tracefx.source_location import SourceLocation

K = TypeVar("K", bound=Hashable)
DEFAULT_ROWS: Final = 12
"""The default number of rows in each table of a report."""


@final
@frozen
class Work:
    """The work of some part of a program in one call: the number of executions and their total cost.

    Attributes:
        runs: the number of executed operations.
        flops: floating-point and complex operations.
        transcendentals: transcendental functions.
        integer_ops: operations on integers and booleans.
        bytes_read: bytes of operands read.
        bytes_written: bytes of results written.

    >>> import tracefx.numpy as fnp
    >>> from tracefx.handlers import count
    >>> count(fnp.sin)(fnp.ones(5)).total
    Work(runs=1, flops=0, transcendentals=5, integer_ops=0, bytes_read=20, bytes_written=20)
    """

    runs: int
    flops: int
    transcendentals: int
    integer_ops: int
    bytes_read: int
    bytes_written: int

    @property
    def operations(self) -> int:
        """The sum of flops, transcendentals and integer operations."""
        return self.flops + self.transcendentals + self.integer_ops

    @property
    def bytes_accessed(self) -> int:
        """The bytes read and written."""
        return self.bytes_read + self.bytes_written


def _freeze_by_name(rows: Mapping[str, Work]) -> Mapping[str, Work]:
    return MappingProxyType(dict(rows))


def _freeze_by_line(rows: Mapping[SourceLocation | None, Work]) -> Mapping[SourceLocation | None, Work]:
    return MappingProxyType(dict(rows))


@final
@frozen(repr=False)
class Cost:
    """The cost of one call of a program, computed by `count`; displayed as the tables of `report`.

    Attributes:
        name: the name of the program.
        total: the work of the whole program.
        by_operation: the work of each primitive by name; this and the next two are sorted by decreasing cost.
        by_line: the work of each line of user code; None for equations without one.
        by_scope: the work in each `named_scope`, by its path `encoder/attention`; nested scopes are included.
        peak: the point of highest live memory.
        argument_bytes: the size of the arguments.
        constant_bytes: the size of the constants.
        output_bytes: the size of the results.
        unbounded: the lines of loops with an unknown number of iterations.
        while_steps: the number of iterations that is assumed for these.

    >>> import tracefx.numpy as fnp
    >>> from tracefx.handlers import count
    >>> cost = count(lambda a, b: a @ b)(fnp.ones((2, 3)), fnp.ones((3, 4)))
    >>> cost.total.flops, list(cost.by_operation), cost.argument_bytes, cost.output_bytes
    (48, ['dot_general'], 72, 32)
    """

    name: str = field(eq=False)
    total: Work
    by_operation: Mapping[str, Work] = field(converter=_freeze_by_name)
    by_line: Mapping[SourceLocation | None, Work] = field(converter=_freeze_by_line)
    by_scope: Mapping[str, Work] = field(converter=_freeze_by_name)
    peak: Peak
    argument_bytes: int
    constant_bytes: int
    output_bytes: int
    unbounded: tuple[SourceLocation | None, ...]
    while_steps: int

    @property
    def flops(self) -> int:
        """The number of arithmetic operations, comparisons, selections and conversions of floats or complex numbers."""
        return self.total.flops

    @property
    def transcendentals(self) -> int:
        """The number of exponentials, logarithms, roots, sines and similar functions."""
        return self.total.transcendentals

    @property
    def integer_ops(self) -> int:
        """The number of the same operations as in `flops` on integers and booleans."""
        return self.total.integer_ops

    @property
    def bytes_read(self) -> int:
        """The bytes of operands read."""
        return self.total.bytes_read

    @property
    def bytes_written(self) -> int:
        """The bytes of results written."""
        return self.total.bytes_written

    @property
    def bytes_accessed(self) -> int:
        """The bytes read and written."""
        return self.total.bytes_accessed

    @property
    def peak_bytes(self) -> int:
        """The peak of live memory in bytes, including the arguments."""
        return self.peak.nbytes

    @property
    def intensity(self) -> float:
        """The arithmetic intensity: flops per byte read or written; 0 if no memory is accessed."""
        return self.flops / self.bytes_accessed if self.bytes_accessed else 0.0

    def report(self, listed: int = DEFAULT_ROWS) -> str:
        """Returns the cost as tables of the most expensive operations, lines and scopes.

        Args:
            listed: the number of rows in each table; the remaining ones are summed in one row.

        Raises:
            ValueError: if `listed` is not a number of rows.
        """
        if type(listed) is not int or listed < 0:
            raise ValueError(f"report: listed must be a number of rows, got {listed!r}")
        return "\n".join(_report(self, listed))

    @override
    def __repr__(self) -> str:
        return self.report()

    @override
    def __reduce__(self) -> tuple[type[Cost], tuple[object, ...]]:
        """Pickles mapping proxies as dicts, because they can't be pickled themselves."""
        return Cost, tuple([dict(x) if isinstance(x, MappingProxyType) else x for x in astuple(self, recurse=False)])


# ------------------------------------------------------------------ text


def format_si(n: float, unit: str = "") -> str:
    """Returns a number with three or four digits and an SI prefix.

    >>> format_si(0), format_si(999), format_si(1000), format_si(123456), format_si(2.5e9, "B"), format_si(999_999)
    ('0', '999', '1.00 k', '123 k', '2.50 GB', '1.00 M')
    """
    size = float(n)
    for prefix in ("", "k", "M", "G", "T", "P"):
        digits = 0 if not prefix else 2 if size < 9.995 else 1 if size < 99.95 else 0
        if round(size, digits) < 1000:
            break
        size /= 1000
    else:
        prefix, digits = "E", 2
    end = f" {prefix}{unit}" if prefix or unit else ""
    return f"{size:.{digits}f}{end}"


COLUMN_NAMES: Final = ("runs", "flops", "share", "transcend.", "int ops", "read", "written", "at peak")


def _report(cost: Cost, listed: int) -> Iterator[str]:
    work = (
        f"{format_si(cost.flops, 'flop')}, {format_si(cost.transcendentals)} transcendentals, "
        f"{format_si(cost.integer_ops)} integer ops"
    )
    yield f"{cost.name}: {work}"
    moved = f"{format_si(cost.bytes_read, 'B')} read, {format_si(cost.bytes_written, 'B')} written"
    yield f"{moved}: {cost.intensity:.3g} flop/B"
    where = "" if cost.peak.operation is None else f" in {cost.peak.operation}"
    line = "" if cost.peak.line is None else f" at {_format_line(cost.peak.line)}"
    held = f"arguments {format_si(cost.argument_bytes, 'B')}, constants {format_si(cost.constant_bytes, 'B')}"
    yield (
        f"{format_si(cost.peak_bytes, 'B')} at the peak{where}{line}: {held}, results "
        f"{format_si(cost.output_bytes, 'B')}"
    )
    for location in cost.unbounded:
        steps = f"{cost.while_steps} step{'' if cost.while_steps == 1 else 's'}"
        yield f"the loop at {_format_line(location)} runs an unknown number of times and is counted with {steps}"
    rows = [("operation", *COLUMN_NAMES), *_rows(cost.by_operation, cost.peak.by_operation, str, cost.flops, listed)]
    locations = _line_labels({*cost.by_line, *cost.peak.by_line})
    lines = [
        ("line", *COLUMN_NAMES),
        *_rows(cost.by_line, cost.peak.by_line, locations.__getitem__, cost.flops, listed),
    ]
    scopes = [("scope", *COLUMN_NAMES), *_rows(cost.by_scope, {}, str, cost.flops, listed)] if cost.by_scope else []
    tables = [table for table in (rows, lines, scopes) if table]
    widths = [max(map(len, column)) for column in zip(*rows, *lines, *scopes, strict=True)]
    for table in tables:
        yield ""
        for row in table:
            first, *others = row
            cells = [first.ljust(widths[0]), *[c.rjust(w) for c, w in zip(others, widths[1:], strict=True)]]
            yield "  ".join(cells).rstrip()


def _format_line(location: SourceLocation | None) -> str:
    if location is None:
        return "(no line)"
    return f"{os.path.basename(location.file)}:{location.line} ({location.function})"


def _line_labels(locations: Set[SourceLocation | None]) -> Mapping[SourceLocation | None, str]:
    """Returns a label for each line, with the base name of the file where that is unambiguous."""
    count = Counter(map(_format_line, locations))
    return {
        location: _format_line(location) if count[_format_line(location)] == 1 else str(location)
        for location in locations
    }


def _rows(
    works: Mapping[K, Work], held: Mapping[K, int], label: Callable[[K], str], flops: int, listed: int
) -> Iterator[tuple[str, ...]]:
    keys = [*works, *[key for key in held if key not in works]]
    for key in keys[:listed]:
        yield label(key), *_cells([works[key]] if key in works else [], held.get(key, 0), flops)
    remaining = keys[listed:]
    if remaining:
        others = [works[key] for key in remaining if key in works]
        yield f"({len(remaining)} more)", *_cells(others, sum(held.get(key, 0) for key in remaining), flops)


def _cells(works: Sequence[Work], held: int, flops: int) -> tuple[str, ...]:
    if not works:
        return (*[""] * (len(COLUMN_NAMES) - 1), format_si(held, "B"))
    flop = sum(w.flops for w in works)
    return (
        format_si(sum(w.runs for w in works)),
        format_si(flop),
        f"{100 * flop / flops:.1f} %" if flops else "",
        format_si(sum(w.transcendentals for w in works)),
        format_si(sum(w.integer_ops for w in works)),
        format_si(sum(w.bytes_read for w in works), "B"),
        format_si(sum(w.bytes_written for w in works), "B"),
        format_si(held, "B") if held else "",
    )
