"""The cache of the root handler: how calls of library functions on concrete arrays are evaluated.

What such a function checks, promotes and binds depends on the types of its arrays and on its other arguments, not on
the elements. So a plan that is made for one call evaluates all calls with the same cache key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, final

from tracefx.bounded_cache import BoundedCache

CacheKey: TypeAlias = tuple[object, ...]
"""The function, the x64 setting, the types of its arrays, and its other arguments with their types."""
Plan: TypeAlias = Callable[..., Any]
"""Evaluates a call: takes its operands (concrete arrays, and Python numbers in place of some), returns its result."""

RecentCall: TypeAlias = tuple[Plan, object, object]
"""The plan of a call, the values of the settings, and the cache key: it refers to what the ids of the call identify."""

_MAX_PLANS: Final = 1 << 14


@final
class EagerCache:
    """A bounded cache of plans. It also stores for which keys there is no plan.

    >>> cache = EagerCache()
    >>> key = (abs, False)
    >>> cache.find_or_make(key, lambda: abs, immediately=False), cache.get(key)
    (None, None)
    >>> cache.find_or_make(key, lambda: abs, immediately=False) is cache.get(key) is abs
    True
    """

    __slots__ = ("_plans", "_recent", "_seen_once", "get", "get_recent", "remember")

    get: Callable[[CacheKey], Plan | None]
    """Returns the plan for a key, or None if none has been made."""
    get_recent: Callable[[CacheKey], RecentCall | None]
    """Returns a recent call by the function and the ids of its arguments' types and values; None if it isn't there."""
    remember: Callable[[CacheKey, RecentCall], None]
    """Makes a call a recent one."""

    def __init__(self) -> None:
        self._plans = BoundedCache[CacheKey, Plan | None](_MAX_PLANS)
        self._seen_once = BoundedCache[CacheKey, bool](_MAX_PLANS)
        self._recent = BoundedCache[CacheKey, RecentCall](_MAX_PLANS)
        self.get = self._plans.get
        self.get_recent, self.remember = self._recent.get, self._recent.replace

    def find_or_make(self, key: CacheKey, make: Callable[[], Plan | None], immediately: bool) -> Plan | None:
        """Returns the plan for a key, or None if there is none.

        Args:
            key: The cache key.
            make: Makes the plan, or returns None if there can be none.
            immediately: Whether to make a plan at the first request for a key. If False, it is made at the second
                request: many keys occur once, and making a plan takes as long as 100 calls.
        """
        if key in self._plans:
            return self._plans.get(key)
        if not immediately and key not in self._seen_once:
            self._seen_once.insert(key, True)
            return None
        return self._plans.insert(key, make())

    def clear(self) -> None:
        """Removes all plans."""
        self._plans.clear()
        self._recent.clear()
        self._seen_once.clear()
