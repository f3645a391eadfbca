"""Dictionaries of bounded size, used as caches."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def insert_bounded(cache: dict[K, V], key: K, value: V, limit: int) -> V:
    """Inserts `value` under `key` unless another thread was first, and returns the value in the cache.

    A cache with more than `limit` entries evicts its oldest eighth. Lookups stay a single `dict.get`, which is why
    eviction is by age rather than by last use: an evicted entry that is still in use is computed again at its next use.

    >>> cache = {i: str(i) for i in range(4)}
    >>> insert_bounded(cache, 4, "four", 4), list(cache)
    ('four', [1, 2, 3, 4])
    """
    result = cache.setdefault(key, value)
    if len(cache) > limit:
        for old in list(cache)[: max(1, limit // 8)]:  # `list` is atomic with respect to other threads
            cache.pop(old, None)
    return result
