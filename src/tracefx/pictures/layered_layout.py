"""Layered graph layout (Sugiyama's method): few edge crossings, no overlapping nodes.

Its three steps are functions of plain numbers: layers (`assign_layers`), the order within each layer (`order_layers`),
and coordinates (`assign_coordinates`).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from typing import Final, TypeAlias

Edges: TypeAlias = Sequence[tuple[int, int]]
"""Pairs of nodes; each edge goes to a later node in topological order."""

EdgeEnds: TypeAlias = Sequence[tuple[float, float]]
"""Where edges start and end on their nodes, horizontally: -0.5 is the left end of a node, 0.5 the right."""

_ORDER_SWEEPS: Final = 8
_COORDINATE_SWEEPS: Final = 10


def assign_layers(count: int, edges: Edges, is_input: Sequence[bool]) -> list[int]:
    """Assigns a layer to each of `count` topologically sorted nodes; every edge goes to a later layer.

    Inputs, nodes that depend on no input, and nodes whose operands are such and have no other reader are placed
    directly above their first reader.

    >>> assign_layers(4, [(0, 1), (1, 3), (2, 3)], [True, False, True, False])
    [0, 1, 1, 2]
    """
    predecessors: list[list[int]] = [[] for _ in range(count)]
    successors: list[list[int]] = [[] for _ in range(count)]
    for a, b in edges:
        predecessors[b].append(a)
        successors[a].append(b)
    layers = [0] * count
    free, constant = [False] * count, [False] * count
    for n in range(count):
        layers[n] = max([layers[m] + 1 for m in predecessors[n]], default=0)
        constant[n] = not is_input[n] and all(constant[m] for m in predecessors[n])
        free[n] = is_input[n] or constant[n] or all(free[m] and len(set(successors[m])) == 1 for m in predecessors[n])
    for n in reversed(range(count)):
        if free[n] and successors[n]:
            layers[n] = min([layers[m] for m in successors[n]]) - 1
    numbers = {layer: i for i, layer in enumerate(sorted(set(layers)))}
    return [numbers[layer] for layer in layers]


def order_layers(layers: Sequence[int], edges: Edges, ends: EdgeEnds) -> list[list[int]]:
    """Orders the nodes of each layer from left to right with few crossings; edges join adjacent layers."""
    rows: list[list[int]] = [[] for _ in range(max(layers, default=-1) + 1)]
    for n, layer in enumerate(layers):
        rows[layer].append(n)
    predecessors: list[list[tuple[int, float]]] = [[] for _ in layers]
    successors: list[list[tuple[int, float]]] = [[] for _ in layers]
    for (a, b), (start, end) in zip(edges, ends, strict=True):
        predecessors[b].append((a, start))
        successors[a].append((b, end))
    best, fewest = rows, count_crossings(rows, edges, ends)
    position = [0.0] * len(layers)
    for sweep in range(_ORDER_SWEEPS):
        if not fewest:
            break
        down = sweep % 2 == 0
        neighbours = predecessors if down else successors
        rows = [list(row) for row in rows]
        for row in rows if down else reversed(rows):
            for i, n in enumerate(row):
                position[n] = i
            targets = {n: _mean_position([position[m] + end for m, end in neighbours[n]], position[n]) for n in row}
            row.sort(key=targets.__getitem__)
            for i, n in enumerate(row):
                position[n] = i
        crossings = count_crossings(rows, edges, ends)
        if crossings < fewest:
            best, fewest = rows, crossings
    return best


def _mean_position(positions: Sequence[float], default: float) -> float:
    return sum(positions) / len(positions) if positions else default


def count_crossings(rows: Sequence[Sequence[int]], edges: Edges, ends: EdgeEnds) -> int:
    """Counts the pairs of edges that cross.

    >>> count_crossings([[0, 1], [2, 3]], [(0, 3), (1, 2)], [(0.0, 0.0), (0.0, 0.0)])
    1
    """
    position = {n: i for row in rows for i, n in enumerate(row)}
    layer = {n: i for i, row in enumerate(rows) for n in row}
    edges_from: list[list[tuple[float, float]]] = [[] for _ in rows]
    for (a, b), (start, end) in zip(edges, ends, strict=True):
        edges_from[layer[a]].append((position[a] + start, position[b] + end))
    count = 0
    for layer_edges in edges_from:
        layer_edges.sort()  # edges with the same start are ordered by their ends, so they do not cross
        previous_ends: list[float] = []
        for _, end in layer_edges:
            count += len(previous_ends) - bisect_right(previous_ends, end)
            insort(previous_ends, end)
    return count


def assign_coordinates(
    rows: Sequence[Sequence[int]], widths: Sequence[float], gap: float, edges: Edges, thin: Sequence[bool]
) -> list[float]:
    """Returns the center of each node: adjacent nodes of a row are `gap` apart, edges as vertical as possible.

    Nodes that are `thin`, the bends of long edges, have the largest weight.

    >>> assign_coordinates([[0], [1, 2]], [10, 10, 10], 5.0, [(0, 1), (0, 2)], [False, False, False])
    [7.5, 0.0, 15.0]
    """
    predecessors: list[list[int]] = [[] for _ in widths]
    successors: list[list[int]] = [[] for _ in widths]
    for a, b in edges:
        predecessors[b].append(a)
        successors[a].append(b)
    xs = [0.0] * len(widths)
    row_offsets: list[list[float]] = []
    for row in rows:
        offsets, at = [], 0.0
        for i, n in enumerate(row):
            at += (widths[row[i - 1]] + widths[n]) / 2 + gap if i else 0.0
            offsets.append(at)
        row_offsets.append(offsets)
        for n, offset in zip(row, offsets, strict=True):
            xs[n] = offset - at / 2
    for sweep in range(_COORDINATE_SWEEPS + 1):
        down, both = sweep % 2 == 0, sweep == _COORDINATE_SWEEPS
        order = range(len(rows)) if down else reversed(range(len(rows)))
        for i in order:
            row = rows[i]
            targets, weights = [], []
            for n in row:
                neighbours = predecessors[n] + successors[n] if both else (predecessors if down else successors)[n]
                targets.append(_mean_position([xs[m] for m in neighbours], xs[n]))
                is_straight = thin[n] and any(thin[m] for m in neighbours)
                weights.append((8.0 if is_straight else 2.0 if thin[n] else 1.0) if neighbours else 0.1)
            placed = _isotonic_regression([w - o for w, o in zip(targets, row_offsets[i], strict=True)], weights)
            for n, x, offset in zip(row, placed, row_offsets[i], strict=True):
                xs[n] = x + offset
    left = min([xs[row[0]] for row in rows], default=0.0)
    return [round(x - left, 1) for x in xs]


def _isotonic_regression(targets: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Returns the nondecreasing numbers nearest to `targets` by weighted squares (pool adjacent violators)."""
    pools: list[tuple[float, float, int]] = []
    for target, weight in zip(targets, weights, strict=True):
        mean, total, count = target, weight, 1
        while pools and pools[-1][0] > mean:
            other, other_total, n = pools.pop()
            mean = (mean * total + other * other_total) / (total + other_total)
            total, count = total + other_total, count + n
        pools.append((mean, total, count))
    return [mean for mean, _, count in pools for _ in range(count)]
