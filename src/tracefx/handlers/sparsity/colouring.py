"""Colourings: which columns, or rows, of a sparse matrix can be computed together and told apart afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias, final

import numpy as np
from attrs import frozen

IndexVector: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
MAX_COLOURING_STEPS: Final = 5_000_000
"""The steps that looking for a symmetric colouring may take."""
HUB_LIMIT: Final = 32
"""What may have that many neighbours is no hub, and more hubs than that aren't taken for such."""


@final
@frozen(eq=False)
class Colouring:
    """A colour for each column (or row), and where in the compressed matrix each entry is found.

    Entry `k` is `compressed[colour[k], place[k]]`.
    """

    colours: IndexVector
    count: int
    by_rows: bool
    entry_colours: IndexVector
    entry_lines: IndexVector


def colour_matrix(rows: IndexVector, cols: IndexVector, shape: tuple[int, int]) -> Colouring:
    """Columns without a common row get one colour, or rows without a common column: what needs fewer colours."""
    m, n = shape
    across = int(np.bincount(rows, minlength=1).max()) if len(rows) else 0
    down = int(np.bincount(cols, minlength=1).max()) if len(cols) else 0
    first_rows = down < across  # so many colours it takes at least
    found: Colouring | None = None
    for by_rows in (first_rows, not first_rows):
        if found is not None and found.count <= (down if by_rows else across):
            break
        lines, others, count = (rows, cols, m) if by_rows else (cols, rows, n)
        colours, used = _greedy_colouring(lines, others, count)
        if found is None or used < found.count:
            found = Colouring(colours, used, by_rows, colours[lines], others)
    assert found is not None
    return found


def _greedy_colouring(lines: IndexVector, others: IndexVector, count: int) -> tuple[IndexVector, int]:
    """Colours of lines, no two of which have one colour if they meet; in their own order and from large to small."""
    best, used = np.zeros(count, np.int64), -1
    by_line = _adjacency_lists(lines, others, count)
    orders: list[Sequence[int]] = [range(count)]
    sizes = np.bincount(lines, minlength=count)
    if len(sizes) and sizes.min() != sizes.max():
        orders.append(np.argsort(-sizes, kind="stable").tolist())
    for order in orders:
        colours = [0] * count
        taken: dict[int, int] = {}  # of each other line, the colours that meet it, as bits
        for line in order:
            forbidden = 0
            for other in by_line[line]:
                forbidden |= taken.get(other, 0)
            bit = ~forbidden & (forbidden + 1)
            colours[line] = bit.bit_length() - 1
            for other in by_line[line]:
                taken[other] = taken.get(other, 0) | bit
        number = max(colours, default=-1) + 1
        if used < 0 or number < used:
            best, used = np.array(colours, np.int64), number
    return best, used


def star_colour_matrix(rows: IndexVector, cols: IndexVector, n: int) -> Colouring:
    """For a symmetric matrix, of which each entry need be found in one of its two places: a star colouring.

    Neighbours differ, and no path of four columns has only two colours. Where that takes longer than it can be worth,
    or more colours, it is as for other matrices.
    """
    plain = colour_matrix(rows, cols, (n, n))
    degree = np.bincount(rows[rows != cols], minlength=n)
    hubs = np.flatnonzero(degree > max(HUB_LIMIT, 8 * degree.mean())) if n else degree
    if len(hubs) > HUB_LIMIT:
        hubs = hubs[:0]
    if plain.count <= 2:
        return plain
    # What has many neighbours gets a colour of its own: then no path through it has two colours, and it is out.
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
    # Entry (i, j) is found where no other entry of its row, or of the mirrored one, has the colour.
    meets = np.bincount(rows * count + colours[cols], minlength=n * count)
    here = meets[rows * count + colours[cols]] == 1
    there = meets[cols * count + colours[rows]] == 1
    assert bool((here | there).all()), "a star colouring tells all entries apart"
    colour = np.where(here, colours[cols], colours[rows])
    return Colouring(colours, count, False, colour, np.where(here, rows, cols))


def _star_colouring(neighbours: Sequence[Sequence[int]], order: Sequence[int]) -> IndexVector:
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
                # v - w - x: with one colour at both ends, w must be the only one of its colour beside x.
                if c < 0 or any(y != w and colours[y] == c for y in neighbours[x]):
                    forbidden.add(d)
        colour = 0
        while colour in forbidden:
            colour += 1
        # Two neighbours of v of one colour make v the middle of a path: then neither may have another of v's colour.
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
    """For each line what it meets."""
    order = np.argsort(lines, kind="stable")
    ends = np.cumsum(np.bincount(lines, minlength=count))
    values = others[order].tolist()
    return (
        [values[start:stop] for start, stop in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)]
        if count
        else []
    )
