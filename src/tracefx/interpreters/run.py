"""`Run`: the changing part of one run of an interpreter."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Final, Generic, TypeVar, final

from tracefx.core.handler import Handler, checked_axes

S = TypeVar("S")
N = TypeVar("N", bound=Hashable)


@final
class Run(Generic[S, N]):
    """One run of an `Interpreter`.

    Attributes:
        inner: The inner handler.
        state: The state at the current point of the program; None before it is set.
        collected: The values collected so far, by name.
        notes: What rules remember during the run that is no array of the program: a counter or a memo, for example.
        checks_vma: Whether it runs inside a checked `shard_map`, so that own values have varying mesh axes.
        thread: The identifier of the thread that started the run.
    """

    __slots__ = ("checks_vma", "collected", "inner", "notes", "state", "thread")

    def __init__(self, inner: Handler, state: S | None = None) -> None:
        self.inner: Final = inner
        self.state = state
        self.collected: dict[N, object] = {}
        self.notes: dict[Hashable, object] = {}
        self.checks_vma: Final = bool(checked_axes(inner.axes))
        self.thread: Final = threading.get_ident()
