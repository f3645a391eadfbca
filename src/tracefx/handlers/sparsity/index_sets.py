"""Sets of inputs, by number: one for each element of an array, many elements sharing one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias, final

import numpy as np

SetIds: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
"""For each element of an array the number of its set."""

EMPTY_SET: Final = 0
"""The number of the set without elements."""
MAX_UNION_ELEMENTS: Final = 20_000_000
"""How many elements the sets that are made at a time may have together, before all inputs stand for them."""


@final
class IndexSets:
    """The sets of one analysis. Set 0 is empty, sets 1 to `n` are those of one input each.

    All is done for many sets at once: they lie one behind the other in one array.
    """

    def __init__(self, n: int) -> None:
        self.n = n
        self._starts = np.arange(n + 1, dtype=np.int64) - 1
        self._starts[:1] = 0
        self._sizes = np.ones(n + 1, np.int64)
        self._sizes[EMPTY_SET] = 0
        self._members = np.arange(n, dtype=np.int64)
        self._count = n + 1
        self._used = n
        self._universe: int | None = None

    def singletons(self, shape: Sequence[int], first: int) -> SetIds:
        """An array of inputs, from number `first` on."""
        size = int(np.prod(shape, dtype=np.int64))
        return np.arange(first + 1, first + size + 1, dtype=np.int64).reshape(shape)

    @property
    def universe(self) -> int:
        """The set of all inputs."""
        if self._universe is None:
            found = self._add(np.array([self.n], np.int64), np.arange(self.n, dtype=np.int64))
            self._universe = int(found[0]) if self.n else EMPTY_SET
        return self._universe

    def sizes(self, ids: SetIds) -> SetIds:
        return self._sizes[ids]

    def members(self, ids: SetIds) -> tuple[SetIds, SetIds]:
        """For a flat array of sets: the place of each and its members, in order."""
        sizes = self._sizes[ids]
        ends = np.cumsum(sizes)
        total = int(ends[-1]) if len(ends) else 0
        places = np.repeat(np.arange(len(ids), dtype=np.int64), sizes)
        within = np.arange(total, dtype=np.int64) - np.repeat(ends - sizes, sizes)
        return places, self._members[np.repeat(self._starts[ids], sizes) + within]

    # -------------------------------------------------------------- unions

    def join(self, x: SetIds, y: SetIds) -> SetIds:
        """Unions element by element; one array may be broadcast to the other."""
        x, y = np.broadcast_arrays(x, y)
        out = np.where(x == EMPTY_SET, y, x)
        differ = (x != y) & (x != EMPTY_SET) & (y != EMPTY_SET)
        if differ.any():
            a, b = x[differ], y[differ]
            low, high = np.minimum(a, b), np.maximum(a, b)
            pairs, where = np.unique(low * self._count + high, return_inverse=True)
            first, second = np.divmod(pairs, self._count)
            groups = np.arange(len(pairs), dtype=np.int64)
            found = self.union(np.concatenate([groups, groups]), np.concatenate([first, second]), len(pairs))
            out[differ] = found[where.reshape(-1)]
        return out

    def union(self, groups: SetIds, ids: SetIds, count: int) -> SetIds:
        """For each of `count` groups the union of its sets: `ids[i]` belongs to group `groups[i]`."""
        out = np.zeros(count, np.int64)
        some = ids != EMPTY_SET
        groups, ids = np.divmod(np.unique(groups[some] * self._count + ids[some]), self._count)
        full = self._sizes[ids] == self.n
        if full.any():  # nothing is added to the set of all inputs
            out[groups[full]] = ids[full]
            rest = out[groups] == EMPTY_SET
            groups, ids = groups[rest], ids[rest]
        together = np.bincount(groups, minlength=count)
        alone = together[groups] == 1
        out[groups[alone]] = ids[alone]
        groups, ids = groups[~alone], ids[~alone]
        if not len(groups):
            return out
        ends = np.cumsum(self._sizes[ids])
        start = 0
        while start < len(groups):  # a part at a time, so that memory has a bound
            begun = ends[start - 1] if start else 0
            stop = int(np.searchsorted(ends, begun + MAX_UNION_ELEMENTS, "right"))
            if stop < len(groups):
                stop = int(np.searchsorted(groups, groups[stop], "left"))
            if stop <= start:  # one group is too large by itself
                stop = int(np.searchsorted(groups, groups[start], "right"))
                out[groups[start]] = self.universe
            else:
                self._union_groups(groups[start:stop], ids[start:stop], out)
            start = stop
        return out

    def _union_groups(self, groups: SetIds, ids: SetIds, out: SetIds) -> None:
        places, members = self.members(ids)
        names, local = np.unique(groups, return_inverse=True)
        owners, found = np.divmod(np.unique(local[places] * self.n + members), max(self.n, 1))
        sizes = np.bincount(owners, minlength=len(names))
        # A union as large as one of its sets is that set: so what doesn't grow keeps its number.
        order = np.lexsort((self._sizes[ids], local))
        last = np.append(np.flatnonzero(np.diff(local[order])), len(order) - 1)
        largest = ids[order[last]]
        known = self._sizes[largest] == sizes
        full = (sizes == self.n) & ~known
        made = np.where(known, largest, self.universe if full.any() else 0)
        new = ~known & ~full
        if new.any():
            if self._used + int(sizes[new].sum()) > 10 * MAX_UNION_ELEMENTS:
                made[new] = self.universe
            else:
                made[new] = self._add(sizes[new], found[new[owners]])
        out[names] = made

    def _add(self, sizes: SetIds, members: SetIds) -> SetIds:
        count, used = self._count + len(sizes), self._used + len(members)
        self._starts = _grow(self._starts, self._count, count)
        self._sizes = _grow(self._sizes, self._count, count)
        self._members = _grow(self._members, self._used, used)
        self._sizes[self._count : count] = sizes
        self._starts[self._count : count] = self._used + np.cumsum(sizes) - sizes
        self._members[self._used : used] = members
        found = np.arange(self._count, count, dtype=np.int64)
        self._count, self._used = count, used
        return found


def _grow(x: SetIds, used: int, wanted: int) -> SetIds:
    if wanted <= len(x):
        return x
    longer = np.zeros(max(wanted, 2 * len(x)), np.int64)
    longer[:used] = x[:used]
    return longer
