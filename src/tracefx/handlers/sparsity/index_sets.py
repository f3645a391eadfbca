"""`IndexSets`: numbered sets of inputs, shared by many elements of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias, final

import numpy as np

SetIds: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
"""The numbers of the sets of an array's elements."""

EMPTY_SET: Final = 0
"""The number of the empty set."""
MAX_UNION_ELEMENTS: Final = 20_000_000
"""The largest number of elements of unions that are formed at a time; larger ones become the set of all inputs."""


@final
class IndexSets:
    """The sets of one analysis. Set 0 is empty, sets 1 to `n` have one input each.

    All operations are vectorized over many sets; the members of all sets are stored in one array.
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
        """Returns the sets of an array whose elements are the inputs from number `first` on."""
        size = int(np.prod(shape, dtype=np.int64))
        return np.arange(first + 1, first + size + 1, dtype=np.int64).reshape(shape)

    @property
    def universe(self) -> int:
        """The number of the set of all inputs."""
        if self._universe is None:
            numbers = self._add(np.array([self.n], np.int64), np.arange(self.n, dtype=np.int64))
            self._universe = int(numbers[0]) if self.n else EMPTY_SET
        return self._universe

    def sizes(self, ids: SetIds) -> SetIds:
        """Returns the sizes of sets."""
        return self._sizes[ids]

    def members(self, ids: SetIds) -> tuple[SetIds, SetIds]:
        """Returns the members of a flat array of sets, each with the index of its set."""
        sizes = self._sizes[ids]
        ends = np.cumsum(sizes)
        total = int(ends[-1]) if len(ends) else 0
        owners = np.repeat(np.arange(len(ids), dtype=np.int64), sizes)
        within = np.arange(total, dtype=np.int64) - np.repeat(ends - sizes, sizes)
        return owners, self._members[np.repeat(self._starts[ids], sizes) + within]

    # -------------------------------------------------------------- unions

    def join(self, x: SetIds, y: SetIds) -> SetIds:
        """Returns elementwise unions; the arrays broadcast."""
        x, y = np.broadcast_arrays(x, y)
        out = np.where(x == EMPTY_SET, y, x)
        differ = (x != y) & (x != EMPTY_SET) & (y != EMPTY_SET)
        if differ.any():
            a, b = x[differ], y[differ]
            low, high = np.minimum(a, b), np.maximum(a, b)
            pairs, where = np.unique(low * self._count + high, return_inverse=True)
            first, second = np.divmod(pairs, self._count)
            groups = np.arange(len(pairs), dtype=np.int64)
            unions = self.union(np.concatenate([groups, groups]), np.concatenate([first, second]), len(pairs))
            out[differ] = unions[where.reshape(-1)]
        return out

    def union(self, groups: SetIds, ids: SetIds, count: int) -> SetIds:
        """Returns the union of each of `count` groups of sets: `ids[i]` belongs to group `groups[i]`."""
        out = np.zeros(count, np.int64)
        some = ids != EMPTY_SET
        groups, ids = np.divmod(np.unique(groups[some] * self._count + ids[some]), self._count)
        full = self._sizes[ids] == self.n
        if full.any():  # the set of all inputs cannot grow
            out[groups[full]] = ids[full]
            remaining = out[groups] == EMPTY_SET
            groups, ids = groups[remaining], ids[remaining]
        set_counts = np.bincount(groups, minlength=count)
        alone = set_counts[groups] == 1
        out[groups[alone]] = ids[alone]
        groups, ids = groups[~alone], ids[~alone]
        if not len(groups):
            return out
        ends = np.cumsum(self._sizes[ids])
        start = 0
        while start < len(groups):  # in parts, to bound the memory
            begun = ends[start - 1] if start else 0
            stop = int(np.searchsorted(ends, begun + MAX_UNION_ELEMENTS, "right"))
            if stop < len(groups):
                stop = int(np.searchsorted(groups, groups[stop], "left"))
            if stop <= start:  # a single group is too large
                stop = int(np.searchsorted(groups, groups[start], "right"))
                out[groups[start]] = self.universe
            else:
                self._union_groups(groups[start:stop], ids[start:stop], out)
            start = stop
        return out

    def _union_groups(self, groups: SetIds, ids: SetIds, out: SetIds) -> None:
        """Writes the unions of some groups to `out`."""
        set_indices, members = self.members(ids)
        names, local = np.unique(groups, return_inverse=True)
        owners, union_members = np.divmod(np.unique(local[set_indices] * self.n + members), max(self.n, 1))
        sizes = np.bincount(owners, minlength=len(names))
        # A union as large as one of its sets equals that set, so it keeps the number.
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
                made[new] = self._add(sizes[new], union_members[new[owners]])
        out[names] = made

    def _add(self, sizes: SetIds, members: SetIds) -> SetIds:
        """Adds sets and returns their numbers."""
        count, used = self._count + len(sizes), self._used + len(members)
        self._starts = _grow(self._starts, self._count, count)
        self._sizes = _grow(self._sizes, self._count, count)
        self._members = _grow(self._members, self._used, used)
        self._sizes[self._count : count] = sizes
        self._starts[self._count : count] = self._used + np.cumsum(sizes) - sizes
        self._members[self._used : used] = members
        numbers = np.arange(self._count, count, dtype=np.int64)
        self._count, self._used = count, used
        return numbers


def _grow(x: SetIds, used: int, wanted: int) -> SetIds:
    """Returns the array with capacity for `wanted` elements, at least doubling it."""
    if wanted <= len(x):
        return x
    longer = np.zeros(max(wanted, 2 * len(x)), np.int64)
    longer[:used] = x[:used]
    return longer
