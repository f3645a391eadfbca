"""What the core needs from the layers below it, given once at import."""

from __future__ import annotations

from typing import Generic, TypeVar, final

T = TypeVar("T")


@final
class Injected(Generic[T]):
    """A value that a lower layer gives exactly once."""

    __slots__ = ("_what", "value")
    value: T

    def __init__(self, what: str) -> None:
        self._what = what

    def provide(self, value: T) -> None:
        if hasattr(self, "value"):
            raise RuntimeError(f"{self._what} was given already; it is bound once, at import")
        self.value = value
