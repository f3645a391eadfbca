"""Bounded dictionaries: what a cache does when it is full."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def insert_bounded(cache: dict[K, V], key: K, value: V, limit: int) -> V:
    """Put `value` under `key` unless another thread was first, and give what is there then.

    A cache with more than `limit` entries loses its oldest eighth. Looking an entry up stays one `dict.get`, which is
    why age counts here and not use: what goes though it is used comes back at the next use.

    >>> cache = {i: str(i) for i in range(4)}
    >>> insert_bounded(cache, 4, "four", 4), list(cache)
    ('four', [1, 2, 3, 4])
    """
    kept = cache.setdefault(key, value)
    if len(cache) > limit:
        for old in list(cache)[: max(1, limit // 8)]:  # the list is made at once, whatever other threads do
            cache.pop(old, None)
    return kept
