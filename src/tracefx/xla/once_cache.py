"""Caches of compiled programs: bounded and thread-safe; each program is compiled once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future
from typing import Generic, TypeVar, final

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@final
class OnceCache(Generic[K, V]):
    """An LRU cache whose missing values are computed by one thread while others that request the same key wait.

    A failed computation is not cached: all waiting threads get the error, and the next request tries again. If it is
    interrupted (Ctrl-C interrupts one thread), a waiting thread computes instead.
    """

    __slots__ = ("_entries", "_lock", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[K, Future[V]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K, compute: Callable[[], V]) -> V:
        while True:
            entry, is_new = self._entry(key)
            if is_new:
                self._compute(key, entry, compute)
            try:
                return entry.result()
            except CancelledError:
                if not entry.cancelled():
                    raise

    def _entry(self, key: K) -> tuple[Future[V], bool]:
        """Returns the entry of a key, and whether this call created it."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
                return entry, False
            entry = self._entries[key] = Future()
            while len(self._entries) > self._size:
                self._entries.popitem(last=False)
            return entry, True

    def _compute(self, key: K, entry: Future[V], compute: Callable[[], V]) -> None:
        try:
            entry.set_result(compute())
        except BaseException as error:
            with self._lock:
                if self._entries.get(key) is entry:
                    del self._entries[key]
            if isinstance(error, Exception):
                entry.set_exception(error)
            else:
                entry.cancel()
            raise

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
