"""Source locations of equations, converted to JAX's and back, so that messages and profiles show the user's lines."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from enum import Enum, unique
from types import CodeType, FunctionType
from typing import Any, Final

import jax
from attrs import evolve
from jax.extend import source_info_util

from tracefx.bounded_cache import memoize
from tracefx.source_location import LazySourceLocation, Provenance, SourceLocation

source_info_util.register_exclusion(os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep)

_traceback: Final = lambda: source_info_util.current().traceback  # noqa: E731  # one line: its location gets replaced


def jax_user_context(source: Provenance | None) -> AbstractContextManager[Any]:
    """Returns a context in which JAX records `source` as the location of the equations it binds."""
    if source is None:
        return nullcontext()
    make_traceback = (
        _code_traceback(source.code, source.lasti)
        if isinstance(source, LazySourceLocation)
        else _file_traceback(source)
    )
    return source_info_util.user_context(make_traceback())


@memoize(4096)
def _code_traceback(code: CodeType, lasti: int) -> Callable[[], Any]:
    return _file_traceback(LazySourceLocation(code, lasti, ()).resolve())


@memoize(4096)
def _file_traceback(location: SourceLocation) -> Callable[[], Any]:
    """Returns a function that makes a JAX traceback with innermost frame `location`, by running code located there."""
    code = _traceback.__code__.replace(
        co_filename=location.file,
        co_name=location.function,
        co_qualname=location.function,
        co_firstlineno=location.line,
    )
    return FunctionType(code, globals())


_JAX: Final = os.path.dirname(jax.__file__) + os.sep
_TRACEFX: Final = os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep
_INSTALLED: Final = tuple(
    [sysconfig.get_paths()[name] + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")]
)


@unique
class _FileOwner(Enum):
    """The owner of a source file."""

    MACHINERY = "JAX, tracefx, or generated code"
    LIBRARY = "an installed library"
    USERS = "the user"


def _file_owner(file: str) -> _FileOwner:
    if file.startswith((_JAX, _TRACEFX, "<frozen")):
        return _FileOwner.MACHINERY
    return _FileOwner.LIBRARY if file.startswith(_INSTALLED) or "site-packages" in file else _FileOwner.USERS


def equation_source(source_info: Any, around: Provenance | None) -> Provenance | None:
    """Returns the source location of an equation, with its `named_scope`s (which name the modules of Flax).

    It is the innermost frame that is neither JAX's nor an installed library's, else the innermost frame of a library.
    JAX keeps no frames from outside of the traced function, so equations of JAX's own library functions have none;
    these get the location `around` of the equation that calls the function.
    """
    scope = tuple([part for part in str(source_info.name_stack).split("/") if part])
    own = own_source(source_info, scope)
    if own is not None or around is None:
        return own
    if isinstance(around, LazySourceLocation):
        return LazySourceLocation(around.code, around.lasti, scope)
    return evolve(around, scope=scope)


def own_source(source_info: Any, scope: tuple[str, ...] = ()) -> LazySourceLocation | None:
    """Returns the location from the equation's own traceback, or None if it has no frame of the user or a library."""
    traceback = source_info.traceback
    if traceback is None:
        return None
    codes, lasti = traceback.raw_frames()
    library = None
    for code, i in zip(codes, lasti, strict=True):
        owner = _file_owner(code.co_filename)
        if owner is _FileOwner.USERS:
            return LazySourceLocation(code, i, scope)
        if owner is _FileOwner.LIBRARY and library is None:
            library = LazySourceLocation(code, i, scope)
    return library
