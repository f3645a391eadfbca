"""Provenance: which line of the user's code an operation comes from. Captured cheaply, resolved late."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from contextvars import ContextVar
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Final, final

from attrs import frozen
from typing_extensions import override

_PACKAGE_DIR: Final = os.path.dirname(os.path.dirname(__file__)) + os.sep
NAMED_SCOPES: ContextVar[tuple[str, ...]] = ContextVar("tracefx_named_scope", default=())
"""The `named_scope`s around the operation at hand, within the function that is traced."""


@final
@frozen
class SourceLocation:
    """A place in the user's code, and the `named_scope`s around it."""

    file: str
    line: int
    function: str
    scope: tuple[str, ...] = ()

    def resolve(self) -> SourceLocation:
        return self

    @override
    def __str__(self) -> str:
        return f"{self.file}:{self.line} ({self.function})"


@final
class LazySourceLocation:
    """A place not yet resolved: a code object and how far into it the frame had come.

    A plain class, since every operation that is traced makes one.
    """

    __slots__ = ("code", "lasti", "scope")

    def __init__(self, code: CodeType, lasti: int, scope: tuple[str, ...]) -> None:
        self.code = code
        self.lasti = lasti
        self.scope = scope

    def resolve(self) -> SourceLocation:
        return SourceLocation(
            self.code.co_filename, _line_number(self.code, self.lasti), self.code.co_qualname, self.scope
        )

    @override
    def __reduce__(self) -> tuple[type[SourceLocation], tuple[str, int, str, tuple[str, ...]]]:
        place = self.resolve()
        return SourceLocation, (place.file, place.line, place.function, place.scope)

    @override
    def __str__(self) -> str:
        return str(self.resolve())


Provenance = LazySourceLocation | SourceLocation


def _line_number(code: CodeType, lasti: int) -> int:
    for start, end, line in code.co_lines():
        if start <= lasti < end and line is not None:
            return line
    return code.co_firstlineno


_INTERNAL_FILES: Final[set[str]] = set()
"""Those of our files that `here` has met: looking one up is much faster than comparing paths."""


EQN_LOCATION: Final[ContextVar[Provenance | None]] = ContextVar("tracefx_origin", default=None)
"""While a program is run again (differentiated, batched, transposed): where the equation at hand was written. While a
user's function runs: None, which stands for its own frame."""


def current_provenance(ours: int = 0) -> Provenance | None:
    """Where the operation at hand was written: by `EQN_LOCATION`, or in the innermost frame outside tracefx.

    `ours` says how many frames, from the caller's own on, need not be looked at.
    """
    origin = EQN_LOCATION.get()
    if origin is not None:
        return origin
    frame: FrameType | None = sys._getframe(1 + ours)
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        if file not in _INTERNAL_FILES:
            if not file.startswith(_PACKAGE_DIR):
                return LazySourceLocation(code, frame.f_lasti, NAMED_SCOPES.get())
            _INTERNAL_FILES.add(file)
        frame = frame.f_back
    return None


def library_call_location(f: Callable[..., object]) -> SourceLocation | None:
    """Where `f` is used, if it is a function of tracefx: its operations come from that line. None for other functions,
    whose operations have lines of their own."""
    while isinstance(f, functools.partial):
        f = f.func
    module = str(f.__module__ if isinstance(f, FunctionType) else type(f).__module__)
    if module.partition(".")[0] != __name__.partition(".")[0]:
        return None
    source = current_provenance()
    return None if source is None else source.resolve()


def at_location(source: Provenance | None) -> str:
    """` at file:line (function)`, or nothing where the place is unknown: to end a sentence with."""
    return "" if source is None else f" at {source}"


@final
class named_scope:
    """Name the operations bound inside: the name reaches error messages and the compiled program's metadata.

    >>> with named_scope("encoder"):
    ...     pass
    """

    __slots__ = ("_name",)  # no state: one scope may be entered again inside itself, and in several threads

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"named_scope needs a string, got {name!r}")
        self._name = name

    def __enter__(self) -> None:
        NAMED_SCOPES.set((*NAMED_SCOPES.get(), self._name))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        NAMED_SCOPES.set(NAMED_SCOPES.get()[:-1])
