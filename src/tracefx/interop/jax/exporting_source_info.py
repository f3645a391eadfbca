"""Source locations of tracefx's equations for JAX, so that its messages and profiles show the user's lines."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import CodeType, FunctionType
from typing import Any, Final

from jax.extend import source_info_util

from tracefx.core.bounded_cache import memoize
from tracefx.core.source_location import LazySourceLocation, Provenance, SourceLocation

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
