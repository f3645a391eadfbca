"""Colourings of sparse matrices: the sum of the columns (or rows) of one colour determines their entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias, final

import numpy as np
from attrs import frozen

IndexVector: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
MAX_COLOURING_STEPS: Final = 5_000_000
"""The largest number of steps in the search for a star colouring."""
HUB_LIMIT: Final = 32
"""Columns with at most this many neighbours are not hubs; with more hubs than this, none is treated as one."""


@final
@frozen(eq=False)
class Colouring:
    """A colour for each column (or row), and the position of each entry in the compressed matrix.

    Entry `k` is `compressed[entry_colours[k], entry_lines[k]]`.

    Attributes:
        colours: the colour of each column, or row.
        count: the number of colours.
        by_rows: whether rows are coloured, not columns.
        entry_colours: the colour in which each entry is found.
        entry_lines: the position of each entry within its colour.
    """

    colours: IndexVector
    count: int
    by_rows: bool
    entry_colours: IndexVector
    entry_lines: IndexVector


def colour_matrix(rows: IndexVector, cols: IndexVector, shape: tuple[int, int]) -> Colouring:
    """Colours columns without common rows alike, or rows without common columns, whichever needs fewer colours."""
    m, n = shape
    across = int(np.bincount(rows, minlength=1).max()) if len(rows) else 0
    down = int(np.bincount(cols, minlength=1).max()) if len(cols) else 0
    first_rows = down < across  # these are lower bounds on the number of colours
    best: Colouring | None = None
    for by_rows in (first_rows, not first_rows):
        if best is not None and best.count <= (down if by_rows else across):
            break
        lines, others, count = (rows, cols, m) if by_rows else (cols, rows, n)
        colours, used = _greedy_colouring(lines, others, count)
        if best is None or used < best.count:
            best = Colouring(colours, used, by_rows, colours[lines], others)
    assert best is not None
    return best


def _greedy_colouring(lines: IndexVector, others: IndexVector, count: int) -> tuple[IndexVector, int]:
    """Colours lines greedily so that lines with a common entry differ; tries their own order and by decreasing size."""
    best, used = np.zeros(count, np.int64), -1
    by_line = _adjacency_lists(lines, others, count)
    orders: list[Sequence[int]] = [range(count)]
    sizes = np.bincount(lines, minlength=count)
    if len(sizes) and sizes.min() != sizes.max():
        orders.append(np.argsort(-sizes, kind="stable").tolist())
    for order in orders:
        colours = [0] * count
        met_colours: dict[int, int] = {}  # for each other line, a bit mask of the colours that meet it
        for line in order:
            forbidden = 0
            for other in by_line[line]:
                forbidden |= met_colours.get(other, 0)
            bit = ~forbidden & (forbidden + 1)
            colours[line] = bit.bit_length() - 1
            for other in by_line[line]:
                met_colours[other] = met_colours.get(other, 0) | bit
        number = max(colours, default=-1) + 1
        if used < 0 or number < used:
            best, used = np.array(colours, np.int64), number
    return best, used


def star_colour_matrix(rows: IndexVector, cols: IndexVector, n: int) -> Colouring:
    """Returns a star colouring of a symmetric matrix: each entry is recovered from its column or from its row.

    In a star colouring neighbours differ, and no path of four columns has only two colours. If the search would take
    too long, or needs more colours, the result is that of `colour_matrix`.
    """
    plain = colour_matrix(rows, cols, (n, n))
    degree = np.bincount(rows[rows != cols], minlength=n)
    hubs = np.flatnonzero(degree > max(HUB_LIMIT, 8 * degree.mean())) if n else degree
    if len(hubs) > HUB_LIMIT:
        hubs = hubs[:0]
    if plain.count <= 2:
        return plain
    # A column with many neighbours gets its own colour: then no path through it has two colours.
    among = np.ones(n, np.bool_)
    among[hubs] = False
    kept = (rows != cols) & among[rows] & among[cols]
    inner = np.bincount(rows[kept], minlength=n)
    if int(inner[cols[kept]].sum()) > MAX_COLOURING_STEPS:
        return plain
    colours = _star_colouring(_adjacency_lists(rows[kept], cols[kept], n), np.argsort(-inner, kind="stable").tolist())
    colours[hubs] = colours.max(initial=-1) + 1 + np.arange(len(hubs))
    count = int(colours.max(initial=-1)) + 1
    if count >= plain.count:
        return plain
    # Entry (i, j) is read where no other entry of its row, or of the mirrored row, has the colour.
    meets = np.bincount(rows * count + colours[cols], minlength=n * count)
    here = meets[rows * count + colours[cols]] == 1
    there = meets[cols * count + colours[rows]] == 1
    assert bool((here | there).all()), "a star colouring separates all entries"
    colour = np.where(here, colours[cols], colours[rows])
    return Colouring(colours, count, False, colour, np.where(here, rows, cols))


def _star_colouring(neighbours: Sequence[Sequence[int]], order: Sequence[int]) -> IndexVector:
    """Returns a greedy star colouring in a given order."""
    colours = [-1] * len(neighbours)
    for v in order:
        forbidden = set()
        for w in neighbours[v]:
            c = colours[w]
            if c >= 0:
                forbidden.add(c)
            for x in neighbours[w]:
                d = colours[x]
                if x == v or d < 0:
                    continue
                # v - w - x: if the ends have one colour, no other neighbour of x may have the colour of w.
                if c < 0 or any(y != w and colours[y] == c for y in neighbours[x]):
                    forbidden.add(d)
        colour = 0
        while colour in forbidden:
            colour += 1
        # Two neighbours of v with one colour make v the middle of a path, whose ends must not have v's colour.
        seen: dict[int, int] = {}
        for w in neighbours[v]:
            if colours[w] >= 0:
                seen[colours[w]] = seen.get(colours[w], 0) + 1
        double = [w for w in neighbours[v] if colours[w] >= 0 and seen[colours[w]] > 1]
        while colour in forbidden or any(colours[x] == colour for w in double for x in neighbours[w] if x != v):
            colour += 1
        colours[v] = colour
    return np.array(colours, np.int64)


def _adjacency_lists(lines: IndexVector, others: IndexVector, count: int) -> list[list[int]]:
    """Returns for each line the other lines in which it has entries."""
    order = np.argsort(lines, kind="stable")
    ends = np.cumsum(np.bincount(lines, minlength=count))
    values = others[order].tolist()
    return (
        [values[start:stop] for start, stop in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)]
        if count
        else []
    )
