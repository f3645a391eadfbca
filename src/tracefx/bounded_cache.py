"""Caches of bounded size: `BoundedCache`, `Memo` for results derived from one object, and decorators that use them.

Only results that the cache key determines may be cached. A function that depends on a setting takes its value as an
argument.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator
from typing import Any, ClassVar, Concatenate, Final, Generic, Protocol, TypeVar, cast, final

from attrs import frozen
from typing_extensions import ParamSpec, override

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
P = ParamSpec("P")
R = TypeVar("R")
X = TypeVar("X")

_LOCK: Final = threading.Lock()
"""Guards the order of entries and the running computations of all caches; no computation runs while it is held."""
_MISSING: Final[Any] = object()


@final
class BoundedCache(Generic[K, V]):
    """A thread-safe cache that evicts the oldest eighth of its entries when it has more than `limit`.

    A lookup with `get` is a single `dict.get`, which is why eviction is by age rather than by last use: an evicted
    entry that is still in use is computed again at its next use. `compute_once` makes an entry the youngest again, so a
    cache that is used by it alone evicts the least recently used entries. Copies and pickles of a cache are empty.

    Args:
        limit: The maximal number of entries.

    >>> cache = BoundedCache[int, str](4)
    >>> for i in range(5):
    ...     name = cache.insert(i, str(i))
    >>> list(cache), cache.get(4), cache.get(0)
    ([1, 2, 3, 4], '4', None)
    """

    __slots__ = ("_computing", "_entries", "get", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._entries: dict[K, V] = {}
        self._computing: dict[K, threading.Lock] = {}
        self.get = self._entries.get
        """The `get` of the dict: takes a key and optionally a default, returns the cached value or the default."""

    def insert(self, key: K, value: V) -> V:
        """Inserts `value` under `key` unless another thread was first, and returns the value in the cache."""
        entries = self._entries
        result = entries.setdefault(key, value)
        if len(entries) > self.limit:
            for old in list(entries)[: max(1, self.limit // 8)]:  # `list` is atomic with respect to other threads
                entries.pop(old, None)
        return result

    def replace(self, key: K, value: V) -> None:
        """Inserts `value` under `key` in place of the value in the cache."""
        self._entries.pop(key, None)
        self.insert(key, value)

    def compute_once(self, key: K, compute: Callable[[], V]) -> V:
        """Returns the cached value; on a miss, one thread computes it while others that request the same key wait.

        If the computation fails or is interrupted (Ctrl-C interrupts one thread), a waiting thread tries again.
        """
        with _LOCK:
            if key in self._entries:
                value = self._entries[key] = self._entries.pop(key)
                return value
            lock = self._computing.setdefault(key, threading.Lock())
        with lock:
            try:
                value = self.get(key, _MISSING)
                return self.insert(key, compute()) if value is _MISSING else value
            finally:
                self._computing.pop(key, None)

    def clear(self) -> None:
        """Removes all entries."""
        self._entries.clear()

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[K]:
        """Iterates over the keys at this time, from the oldest to the youngest."""
        return iter(list(self._entries))

    @override
    def __reduce__(self) -> tuple[type[BoundedCache[K, V]], tuple[int]]:
        return BoundedCache, (self.limit,)


@final
class CachePerObject(Generic[X, K, V]):
    """A bounded cache for each object, usually a user's function, which the cache does not keep alive.

    Args:
        limit: The maximal number of entries for one object.
    """

    __slots__ = ("_caches", "_lock", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._caches: weakref.WeakKeyDictionary[X, BoundedCache[K, V]] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def of(self, x: X) -> BoundedCache[K, V]:
        """Returns the cache of an object; a new one at each call if the object cannot be a weak key."""
        try:
            with self._lock:
                cache = self._caches.get(x)
                if cache is None:
                    cache = self._caches[x] = BoundedCache(self.limit)
                return cache
        except TypeError:
            return BoundedCache(self.limit)


@final
@frozen(eq=False)
class MemoKey(Generic[R]):
    """The key of one kind of result in memos, of type `R`. Keys are compared by identity, so none collide.

    A key is declared once, next to the function that computes the result. Prefer `memoize_on_object`, which declares
    it, if the arguments of that function are the cache key.
    """

    name: str


@final
class Memo:
    """A cache of results derived from one immutable object, e.g. its transformed jaxprs. It is freed with the object.

    It is neither compared nor pickled. If two threads compute the same result, both get the one stored first. The
    number of entries is bounded, since a program batched over many axis sizes has a derived jaxpr for each.
    """

    __slots__ = ("known_equal", "results")
    LIMIT: ClassVar[int] = 512

    def __init__(self) -> None:
        self.known_equal: weakref.ref[object] | None = None
        """The object that last compared equal to the one that has this memo."""
        self.results: BoundedCache[tuple[MemoKey[Any], Hashable], Any] = BoundedCache(self.LIMIT)

    def get(self, key: MemoKey[R], arguments: Hashable, compute: Callable[[], R]) -> R:
        """Returns the cached result of `key` for these arguments; computes and stores it on a miss.

        Args:
            key: The kind of result.
            arguments: What the result depends on besides the object that has this memo.
            compute: Computes the result.
        """
        cache_key = key, arguments
        result: R = self.results.get(cache_key, _MISSING)
        return self.results.insert(cache_key, compute()) if result is _MISSING else result

    def get_once(self, key: MemoKey[R], arguments: Hashable, compute: Callable[[], R]) -> R:
        """Does the work of `get`, but on a miss one thread computes the result while others wait for it."""
        cache_key = key, arguments
        result: R = self.results.get(cache_key, _MISSING)
        return self.results.compute_once(cache_key, compute) if result is _MISSING else result

    @override
    def __reduce__(self) -> tuple[type[Memo], tuple[()]]:
        return Memo, ()


class HasMemo(Protocol):
    """An immutable object with a memo, e.g. a `Jaxpr` or a control-flow primitive."""

    @property
    def memo(self) -> Memo: ...


O = TypeVar("O", bound=HasMemo)  # noqa: E741


def memoize_on_object(function: Callable[Concatenate[O, P], R]) -> Callable[Concatenate[O, P], R]:
    """Decorates a pure function or method whose first argument has a memo: results are cached there, by the others.

    The results are freed with that object. The other arguments must be hashable.

    >>> from tracefx import make_jaxpr
    >>> @memoize_on_object
    ... def count_uses(jaxpr, index):
    ...     print("counting")
    ...     return sum(x.index == index for eqn in jaxpr.eqns for x in eqn.inputs)
    >>> jaxpr = make_jaxpr(lambda x: x * x)(1.0).jaxpr
    >>> count_uses(jaxpr, 0), count_uses(jaxpr, 0)
    counting
    (2, 2)
    """
    key = MemoKey[R](function.__qualname__)

    @functools.wraps(function, updated=())  # `function` may be a class
    def memoized(owner: O, /, *args: P.args, **kwargs: P.kwargs) -> R:
        results = owner.memo.results
        cache_key = key, (*args, *kwargs.items()) if kwargs else args
        result: R = results.get(cache_key, _MISSING)
        return results.insert(cache_key, function(owner, *args, **kwargs)) if result is _MISSING else result

    return memoized


def memoize(limit: int, *, typed: bool = False) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Returns a decorator that caches the results of a pure function for the `limit` most recently used arguments.

    Args:
        limit: The maximal number of results.
        typed: Whether equal arguments of different types, such as 1 and 1.0, have different results.

    >>> @memoize(2)
    ... def square(x: int) -> int:
    ...     print("computing")
    ...     return x * x
    >>> square(3), square(3)
    computing
    (9, 9)
    """
    return cast("Callable[[Callable[P, R]], Callable[P, R]]", functools.lru_cache(limit, typed))
