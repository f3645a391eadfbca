"""Two sequences beside each other: what stands in both, in one order, and as much of it as can be found fast."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

_MOST: Final = 400
"""How many elements may differ, of those between the first and the last difference, before the search gives up."""


def aligned(a: Sequence[int], b: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Places of equal elements, in increasing order of both: a longest common subsequence.

    Linear where the sequences agree, and of those that differ in `d` elements in about `d` times their length. Where
    more than a few hundred differ, only what both begin and end with is found.

    >>> list(aligned([1, 2, 3], [1, 3]))
    [(0, 0), (2, 1)]
    """
    start, last = 0, min(len(a), len(b))
    while start < last and a[start] == b[start]:
        yield start, start
        start += 1
    end = 0
    while end < last - start and a[-1 - end] == b[-1 - end]:
        end += 1
    for i, j in _between(a[start : len(a) - end], b[start : len(b) - end]):
        yield start + i, start + j
    for k in range(end, 0, -1):
        yield len(a) - k, len(b) - k


def _between(a: Sequence[int], b: Sequence[int]) -> list[tuple[int, int]]:
    """By walks through the grid of both sequences, of 0, 1, 2, ... elements taken from one alone (Myers)."""
    n, m = len(a), len(b)
    farthest = {1: 0}
    """On each diagonal `i - j`, how far in `a` a walk has come."""
    trace: list[dict[int, int]] = []
    for d in range(min(n + m, _MOST) + 1):
        trace.append(dict(farthest))
        for k in range(-d, d + 1, 2):
            down = k == -d or (k != d and farthest[k - 1] < farthest[k + 1])
            i = farthest[k + 1] if down else farthest[k - 1] + 1
            j = i - k
            while i < n and j < m and a[i] == b[j]:
                i, j = i + 1, j + 1
            farthest[k] = i
            if i >= n and j >= m:
                return _walked(trace, n, m)
    return []


def _walked(trace: Sequence[dict[int, int]], i: int, j: int) -> list[tuple[int, int]]:
    """The way back: the places where the walk went along a diagonal."""
    found = []
    for d in range(len(trace) - 1, -1, -1):
        farthest, k = trace[d], i - j
        down = k == -d or (k != d and farthest[k - 1] < farthest[k + 1])
        before = k + 1 if down else k - 1
        i0 = farthest[before]
        j0 = i0 - before
        while i > max(i0, 0) and j > max(j0, 0):
            i, j = i - 1, j - 1
            found.append((i, j))
        i, j = i0, j0
    found.reverse()
    return found
