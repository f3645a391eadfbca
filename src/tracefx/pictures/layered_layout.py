"""Layered layout: nodes in bands, edges from band to band, few crossings, no overlaps.

The three steps of the usual method: bands (`assign_layers`), the order within each (`order_layers`), and the places
(`spread`), each a function of plain numbers.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from typing import Final, TypeAlias

Edges: TypeAlias = Sequence[tuple[int, int]]
"""From a node to a node that comes later in the order of the program."""

EdgeEnds: TypeAlias = Sequence[tuple[float, float]]
"""Where each edge begins and ends on its nodes: -0.5 is the left end of a node, 0.5 the right."""

_ORDER_SWEEPS: Final = 8
_COORDINATE_SWEEPS: Final = 10


def assign_layers(count: int, edges: Edges, is_input: Sequence[bool]) -> list[int]:
    """The band of each of `count` nodes, which are in an order of the program: every edge goes to a later band.

    Inputs, what depends on none, and what is made of inputs that nothing else reads, stand right above what reads
    them.

    >>> assign_layers(4, [(0, 1), (1, 3), (2, 3)], [True, False, True, False])
    [0, 1, 1, 2]
    """
    before: list[list[int]] = [[] for _ in range(count)]
    after: list[list[int]] = [[] for _ in range(count)]
    for a, b in edges:
        before[b].append(a)
        after[a].append(b)
    bands = [0] * count
    free, constant = [False] * count, [False] * count
    for n in range(count):
        bands[n] = max([bands[m] + 1 for m in before[n]], default=0)
        constant[n] = not is_input[n] and all(constant[m] for m in before[n])
        free[n] = is_input[n] or constant[n] or all(free[m] and len(set(after[m])) == 1 for m in before[n])
    for n in reversed(range(count)):
        if free[n] and after[n]:
            bands[n] = min([bands[m] for m in after[n]]) - 1
    numbers = {band: i for i, band in enumerate(sorted(set(bands)))}
    return [numbers[band] for band in bands]


def order_layers(bands: Sequence[int], edges: Edges, ends: EdgeEnds) -> list[list[int]]:
    """The nodes of each band from left to right. Edges go from one band to the next; few of them cross."""
    rows: list[list[int]] = [[] for _ in range(max(bands, default=-1) + 1)]
    for n, band in enumerate(bands):
        rows[band].append(n)
    before: list[list[tuple[int, float]]] = [[] for _ in bands]
    after: list[list[tuple[int, float]]] = [[] for _ in bands]
    for (a, b), (start, end) in zip(edges, ends, strict=True):
        before[b].append((a, start))
        after[a].append((b, end))
    best, fewest = rows, count_crossings(rows, edges, ends)
    place = [0.0] * len(bands)
    for sweep in range(_ORDER_SWEEPS):
        if not fewest:
            break
        down = sweep % 2 == 0
        sides = before if down else after
        rows = [list(row) for row in rows]
        for row in rows if down else reversed(rows):
            for i, n in enumerate(row):
                place[n] = i
            wanted = {n: _mean_position([place[m] + end for m, end in sides[n]], place[n]) for n in row}
            row.sort(key=wanted.__getitem__)
            for i, n in enumerate(row):
                place[n] = i
        found = count_crossings(rows, edges, ends)
        if found < fewest:
            best, fewest = rows, found
    return best


def _mean_position(places: Sequence[float], default: float) -> float:
    return sum(places) / len(places) if places else default


def count_crossings(rows: Sequence[Sequence[int]], edges: Edges, ends: EdgeEnds) -> int:
    """How many pairs of edges cross.

    >>> count_crossings([[0, 1], [2, 3]], [(0, 3), (1, 2)], [(0.0, 0.0), (0.0, 0.0)])
    1
    """
    place = {n: i for row in rows for i, n in enumerate(row)}
    band = {n: i for i, row in enumerate(rows) for n in row}
    below: list[list[tuple[float, float]]] = [[] for _ in rows]
    for (a, b), (start, end) in zip(edges, ends, strict=True):
        below[band[a]].append((place[a] + start, place[b] + end))
    count = 0
    for each in below:
        each.sort()  # those that begin together come in the order of their ends, and don't cross
        passed: list[float] = []
        for _, end in each:
            count += len(passed) - bisect_right(passed, end)
            insort(passed, end)
    return count


def assign_coordinates(
    rows: Sequence[Sequence[int]], widths: Sequence[float], gap: float, edges: Edges, thin: Sequence[bool]
) -> list[float]:
    """Where the middle of each node is: neighbours in a row are `gap` apart, edges as upright as can be.

    The nodes that are `thin`, of which long edges are made, want it most.

    >>> assign_coordinates([[0], [1, 2]], [10, 10, 10], 5.0, [(0, 1), (0, 2)], [False, False, False])
    [7.5, 0.0, 15.0]
    """
    before: list[list[int]] = [[] for _ in widths]
    after: list[list[int]] = [[] for _ in widths]
    for a, b in edges:
        before[b].append(a)
        after[a].append(b)
    xs = [0.0] * len(widths)
    apart: list[list[float]] = []
    for row in rows:
        offsets, at = [], 0.0
        for i, n in enumerate(row):
            at += (widths[row[i - 1]] + widths[n]) / 2 + gap if i else 0.0
            offsets.append(at)
        apart.append(offsets)
        for n, offset in zip(row, offsets, strict=True):
            xs[n] = offset - at / 2
    for turn in range(_COORDINATE_SWEEPS + 1):
        down, both = turn % 2 == 0, turn == _COORDINATE_SWEEPS
        order = range(len(rows)) if down else reversed(range(len(rows)))
        for i in order:
            row = rows[i]
            wanted, weights = [], []
            for n in row:
                near = before[n] + after[n] if both else (before if down else after)[n]
                wanted.append(_mean_position([xs[m] for m in near], xs[n]))
                upright = thin[n] and any(thin[m] for m in near)
                weights.append((8.0 if upright else 2.0 if thin[n] else 1.0) if near else 0.1)
            placed = _isotonic_regression([w - o for w, o in zip(wanted, apart[i], strict=True)], weights)
            for n, x, offset in zip(row, placed, apart[i], strict=True):
                xs[n] = x + offset
    left = min([xs[row[0]] for row in rows], default=0.0)
    return [round(x - left, 1) for x in xs]


def _isotonic_regression(wanted: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The numbers nearest to those wanted, by weighted squares, that never fall: neighbours that would are pooled."""
    pools: list[tuple[float, float, int]] = []
    for each, weight in zip(wanted, weights, strict=True):
        mean, total, count = each, weight, 1
        while pools and pools[-1][0] > mean:
            other, more, n = pools.pop()
            mean = (mean * total + other * more) / (total + more)
            total, count = total + more, count + n
        pools.append((mean, total, count))
    return [mean for mean, _, count in pools for _ in range(count)]
