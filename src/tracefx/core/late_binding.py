"""Late binding: objects that the core uses and a layer below it provides once, at import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, final

T = TypeVar("T")


@final
class LateBound(Generic[T]):
    """A slot for an object that another layer provides exactly once, as a function that is called at the first use.

    Args:
        what: The description in errors.
    """

    __slots__ = ("_load", "_what", "value")
    value: T

    def __init__(self, what: str) -> None:
        self._what = what
        self._load: Callable[[], T] | None = None

    def provide(self, load: Callable[[], T]) -> None:
        """Sets the function that loads the value. Raises RuntimeError at a second call."""
        if self._load is not None:
            raise RuntimeError(f"{self._what} is already provided; it is bound once, at import")
        self._load = load

    def __getattr__(self, name: str) -> T:
        """Loads the value. Python calls this only while the slot `value` is unset; later reads are slot accesses."""
        if name != "value" or self._load is None:
            raise AttributeError(f"{self._what} has no {name!r}; import tracefx, which provides it")
        self.value = self._load()
        return self.value
