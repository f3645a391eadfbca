"""Source locations: the user's line from which an equation comes. Recorded cheaply, resolved when first needed."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable
from contextlib import ContextDecorator
from contextvars import ContextVar
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Final, TypeAlias, final

from attrs import evolve, frozen
from typing_extensions import override

from tracefx.settings import Setting

_PACKAGE_DIR: Final = os.path.dirname(os.path.dirname(__file__)) + os.sep
_GENERATED_METHODS: Final = re.compile(rf"<attrs generated \w+ {__name__.partition('.')[0]}\.")


@final
@frozen
class SourceLocation:
    """A line of user code.

    Attributes:
        file: The name of the file; empty if the line is unknown.
        line: The line number, from 1; 0 if the line is unknown.
        function: The qualified name of the function.
        scope: The names of the `named_scope`s around it, outermost first.
    """

    file: str
    line: int
    function: str
    scope: tuple[str, ...] = ()

    def resolve(self) -> SourceLocation:
        """Returns this location."""
        return self

    @override
    def __str__(self) -> str:
        return f"{self.file}:{self.line} ({self.function})" if self.file else "an unknown line"


@final
class LazySourceLocation:
    """An unresolved location: a code object and the offset of the last executed instruction.

    A plain class rather than an attrs class, since tracing constructs one per equation.
    """

    __slots__ = ("code", "lasti", "scope")

    def __init__(self, code: CodeType, lasti: int, scope: tuple[str, ...]) -> None:
        self.code = code
        self.lasti = lasti
        self.scope = scope

    def resolve(self) -> SourceLocation:
        """Returns the location with file, line and qualified function name."""
        return SourceLocation(
            self.code.co_filename, _line_number(self.code, self.lasti), self.code.co_qualname, self.scope
        )

    @override
    def __reduce__(self) -> tuple[type[SourceLocation], tuple[str, int, str, tuple[str, ...]]]:
        location = self.resolve()
        return SourceLocation, (location.file, location.line, location.function, location.scope)

    @override
    def __str__(self) -> str:
        return str(self.resolve())


Provenance = LazySourceLocation | SourceLocation


def with_scope(source: Provenance | None, scope: tuple[str, ...]) -> Provenance | None:
    """Returns a location with the given scopes in place of its own; its line stays unknown if it is."""
    if isinstance(source, LazySourceLocation):
        return LazySourceLocation(source.code, source.lasti, scope)
    if source is None:
        return SourceLocation("", 0, "", scope) if scope else None
    return evolve(source, scope=scope)


def _line_number(code: CodeType, lasti: int) -> int:
    """Returns the line of an instruction."""
    for start, end, line in code.co_lines():
        if start <= lasti < end and line is not None:
            return line
    return code.co_firstlineno


_INTERNAL_FILES: Final[set[str]] = set()
"""A cache of file names inside this package: a set lookup is much faster than comparing path prefixes."""


NamedScopes: TypeAlias = tuple[str, ...]
"""The names of the active `named_scope`s, outermost first."""

SOURCE: Final[ContextVar[Provenance | NamedScopes | None]] = ContextVar("tracefx_source", default=None)
"""What the equations that are recorded now come from.

While an equation is interpreted (differentiated, batched, transposed), its location. While a user's function runs, the
scopes inside that function, `None` for none; the function's frame is the location. This is no setting: it changes with
every equation, and no result depends on it.
"""


ENCLOSING_SCOPES: Final = Setting[NamedScopes]("enclosing_scopes", ())
"""The scopes around the sub-jaxpr that an interpreter interprets, outermost first. Its equations do not have them."""


def equation_location() -> Provenance | None:
    """Returns the location of the equation that is being interpreted; `None` while a user's function runs."""
    source = SOURCE.get()
    return None if isinstance(source, tuple) else source


def current_scopes() -> NamedScopes:
    """Returns the scopes of the equation that is being interpreted, or those inside the user's function."""
    source = SOURCE.get()
    return source if isinstance(source, tuple) else () if source is None else source.scope


def full_scopes() -> NamedScopes:
    """Returns the current scopes, preceded by those around the sub-jaxprs that are being interpreted."""
    return (*ENCLOSING_SCOPES.value, *current_scopes())


def current_provenance(ours: int = 0) -> Provenance | None:
    """Returns the location of the primitive being bound: the equation's, or else the innermost frame outside tracefx.

    Args:
        ours: The number of innermost frames to skip without a check, starting with the caller's.
    """
    source = SOURCE.get()
    if source is not None and not isinstance(source, tuple):
        return source
    frame: FrameType | None = sys._getframe(1 + ours)
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        if file not in _INTERNAL_FILES:
            if not file.startswith(_PACKAGE_DIR):
                return LazySourceLocation(code, frame.f_lasti, source or ())
            _INTERNAL_FILES.add(file)
        frame = frame.f_back
    return None


def here() -> SourceLocation:
    """Returns the line of the user's program that a rule of a handler is applied to, and the scopes around it.

    In the body of a loop, branch or call, the scopes around that operation precede those of the body; a body that is
    derived for an outer transformation has its own alone. A program without source locations has the file `""` and the
    line 0.

    Returns:
        The location; its `scope` holds the names of the scopes.

    >>> import tracefx as fx
    >>> from tracefx import lax, ops
    >>> from tracefx.extend import Interpreter, Value, bind1, here, rule
    >>> class ShowScope(Interpreter):
    ...     @rule(ops.Sin)
    ...     def sin(self, op: ops.Sin, x: Value) -> Value:
    ...         print(here().scope)
    ...         return bind1(op, x)
    >>> def step(i, x):
    ...     with fx.named_scope("step"):
    ...         return lax.sin(x)
    >>> def f(x):
    ...     with fx.named_scope("loop"):
    ...         return lax.fori_loop(0, 2, step, x)
    >>> y = fx.handle(f, ShowScope())(1.0)
    ('loop', 'step')
    """
    source = current_provenance()
    if source is None:
        return SourceLocation("", 0, "", full_scopes())
    location = source.resolve()
    enclosing = ENCLOSING_SCOPES.value
    return evolve(location, scope=(*enclosing, *location.scope)) if enclosing else location


def is_internal_file(file: str) -> bool:
    """Whether code with this file name is part of tracefx; attrs gives the methods that it generates special names."""
    return file in _INTERNAL_FILES or file.startswith(_PACKAGE_DIR) or _GENERATED_METHODS.match(file) is not None


def library_call_location(f: Callable[..., object]) -> SourceLocation | None:
    """Returns the current location if `f` is a function of tracefx, whose equations are attributed to the user's call.

    Returns `None` for other functions, whose equations have locations of their own.
    """
    while isinstance(f, functools.partial):
        f = f.func
    module = str(f.__module__ if isinstance(f, FunctionType) else type(f).__module__)
    if module.partition(".")[0] != __name__.partition(".")[0]:
        return None
    source = current_provenance()
    return None if source is None else source.resolve()


def at_location(source: Provenance | None) -> str:
    """Returns ` at file:line (function)` to append to a phrase; the empty string for an unknown location."""
    return "" if source is None else f" at {source}"


@final
class named_scope(ContextDecorator):
    """A context manager and decorator that adds a name to the source locations of the equations traced inside.

    The names appear in error messages, profiles and the metadata of compiled programs.

    Args:
        name: The name of the scope.

    Raises:
        TypeError: If `name` is not a string.

    >>> with named_scope("encoder"):
    ...     pass
    >>> @named_scope("layer")
    ... def double(x):
    ...     return 2 * x
    >>> double(3)
    6
    """

    __slots__ = ("_name",)  # stateless: one scope can be nested in itself and shared by threads

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"named_scope needs a string, got {name!r}")
        self._name = name

    def __enter__(self) -> None:
        source = SOURCE.get()
        if source is None or isinstance(source, tuple):  # else equations get the location of the interpreted one
            SOURCE.set((*(source or ()), self._name))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        source = SOURCE.get()
        if isinstance(source, tuple):
            SOURCE.set(source[:-1] or None)
