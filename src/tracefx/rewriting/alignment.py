"""Sequence alignment: a long common subsequence of two sequences, found fast (Myers' algorithm)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

_MAX_EDITS: Final = 64
"""The largest edit distance to search. Beyond it the path that has come farthest is taken greedily."""

IndexPairs: TypeAlias = list[tuple[int, int]]


def align_sequences(a: Sequence[int], b: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yields index pairs of equal elements, increasing in both: a longest common subsequence if few elements differ.

    Takes time linear in the length, and for each differing element proportional to the number of differences nearby.

    >>> list(align_sequences([1, 2, 3], [1, 3]))
    [(0, 0), (2, 1)]
    """
    i = j = 0
    while i < len(a) and j < len(b):
        pairs, i, j = _myers(a, b, i, j)
        yield from pairs


def _myers(a: Sequence[int], b: Sequence[int], i0: int, j0: int) -> tuple[IndexPairs, int, int]:
    """Searches edit paths from (i0, j0) with 0, 1, 2, ... skipped elements (Myers' greedy algorithm).

    Returns the matching pairs on the path, and the position at which it ends.
    """
    n, m = len(a) - i0, len(b) - j0
    reached: dict[int, int] = {1: 0}
    """For each diagonal `k = i - j` the largest `i` that a path has reached."""
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
    """Returns the matching pairs of a path: its diagonal steps, found by following `trace` backwards."""
    pairs: IndexPairs = []
    for d in range(len(trace) - 1, -1, -1):
        reached, k = trace[d], i - j
        down = k == -d or (k != d and reached[k - 1] < reached[k + 1])
        previous = k + 1 if down else k - 1
        i1 = reached[previous]
        j1 = i1 - previous
        while i > max(i1, 0) and j > max(j1, 0):
            i, j = i - 1, j - 1
            pairs.append((i0 + i, j0 + j))
        i, j = i1, j1
    pairs.reverse()
    return pairs
