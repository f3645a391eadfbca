"""Caches of compiled programs: bounded, safe for threads, each program compiled once."""

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
    """Results by key, the least recently used dropped first. Threads that ask for one key at once wait for one result.

    A computation that fails is not kept: the error goes to everyone who waits, and the next to ask tries again. One
    that is interrupted (Ctrl-C, which one thread is told) leaves the others to try.
    """

    __slots__ = ("_entries", "_lock", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[K, Future[V]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K, compute: Callable[[], V]) -> V:
        while True:
            entry, mine = self._entry(key)
            if mine:
                self._compute(key, entry, compute)
            try:
                return entry.result()
            except CancelledError:
                if not entry.cancelled():
                    raise

    def _entry(self, key: K) -> tuple[Future[V], bool]:
        """The entry of a key, and whether it was made just now."""
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
