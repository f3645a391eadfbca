"""Two sequences beside each other: what stands in both, in one order, and as much of it as can be found fast."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

_MAX_EDITS: Final = 64
"""How many differences are weighed against each other. Beyond that the way that has come farthest is taken."""

IndexPairs: TypeAlias = list[tuple[int, int]]


def align_sequences(a: Sequence[int], b: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Places of equal elements, in increasing order of both: a longest common subsequence if few elements differ.

    Linear in the length, and for each element that differs as long again as there are differences near it.

    >>> list(align_sequences([1, 2, 3], [1, 3]))
    [(0, 0), (2, 1)]
    """
    i = j = 0
    while i < len(a) and j < len(b):
        found, i, j = _myers(a, b, i, j)
        yield from found


def _myers(a: Sequence[int], b: Sequence[int], i0: int, j0: int) -> tuple[IndexPairs, int, int]:
    """Walks through the grid of both sequences from one place on, which leave out 0, 1, 2, ... elements (Myers).

    Gives the pairs on the way, and where it ends.
    """
    n, m = len(a) - i0, len(b) - j0
    reached: dict[int, int] = {1: 0}
    """On each diagonal `i - j`, how far in `a` a walk has come."""
    trace: list[dict[int, int]] = []
    for d in range(_MAX_EDITS + 1):
        trace.append(dict(reached))
        for k in range(-d, d + 1, 2):
            down = k == -d or (k != d and reached[k - 1] < reached[k + 1])
            i = reached[k + 1] if down else reached[k - 1] + 1
            j = i - k
            while i < n and j < m and a[i0 + i] == b[j0 + j]:
                i, j = i + 1, j + 1
            reached[k] = i
            if i >= n and j >= m:
                return _backtrack(trace, n, m, i0, j0), len(a), len(b)
    inside = [(2 * i - k, i, i - k) for k, i in reached.items() if i <= n and i - k <= m and (k + _MAX_EDITS) % 2 == 0]
    _, i, j = max(inside)
    return _backtrack(trace, i, j, i0, j0), i0 + i, j0 + j


def _backtrack(trace: Sequence[dict[int, int]], i: int, j: int, i0: int, j0: int) -> IndexPairs:
    """The way back: the places where the walk went along a diagonal."""
    found: IndexPairs = []
    for d in range(len(trace) - 1, -1, -1):
        reached, k = trace[d], i - j
        down = k == -d or (k != d and reached[k - 1] < reached[k + 1])
        before = k + 1 if down else k - 1
        i1 = reached[before]
        j1 = i1 - before
        while i > max(i1, 0) and j > max(j1, 0):
            i, j = i - 1, j - 1
            found.append((i0 + i, j0 + j))
        i, j = i1, j1
    found.reverse()
    return found
