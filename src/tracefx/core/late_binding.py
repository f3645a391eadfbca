"""What the core needs from the layers below it, given once at import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, final

T = TypeVar("T")


@final
class LateBound(Generic[T]):
    """A value that a lower layer gives exactly once, as a function that loads it when it is first needed."""

    __slots__ = ("_load", "_what", "value")
    value: T

    def __init__(self, what: str) -> None:
        self._what = what
        self._load: Callable[[], T] | None = None

    def provide(self, load: Callable[[], T]) -> None:
        if self._load is not None:
            raise RuntimeError(f"{self._what} was given already; it is bound once, at import")
        self._load = load

    def __getattr__(self, name: str) -> T:
        """Called only while the slot `value` is empty: afterwards reading it costs what a slot costs."""
        if name != "value" or self._load is None:
            raise AttributeError(f"{self._what} has no {name!r}; import tracefx, which gives it")
        self.value = self._load()
        return self.value
