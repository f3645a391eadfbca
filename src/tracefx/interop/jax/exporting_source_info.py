"""Where equations of ours were written, for JAX: its messages and profiles tell the user's lines."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import CodeType, FunctionType
from typing import Any, Final

from jax.extend import source_info_util

from tracefx.core.source_location import LazySourceLocation, Provenance, SourceLocation

source_info_util.register_exclusion(os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep)

_traceback: Final = lambda: source_info_util.current().traceback  # noqa: E731  # one line, which others are put in place of


def jax_user_context(source: Provenance | None) -> AbstractContextManager[Any]:
    """Inside, JAX takes what is bound for written there."""
    if source is None:
        return nullcontext()
    find = (
        _code_traceback(source.code, source.lasti)
        if isinstance(source, LazySourceLocation)
        else _file_traceback(source)
    )
    return source_info_util.user_context(find())


@functools.lru_cache(maxsize=4096)
def _code_traceback(code: CodeType, lasti: int) -> Callable[[], Any]:
    return _file_traceback(LazySourceLocation(code, lasti, ()).resolve())


@functools.lru_cache(maxsize=4096)
def _file_traceback(place: SourceLocation) -> Callable[[], Any]:
    """A function that gives a traceback of JAX's whose innermost frame is at the place: a frame is made by a call."""
    code = _traceback.__code__.replace(
        co_filename=place.file, co_name=place.function, co_qualname=place.function, co_firstlineno=place.line
    )
    return FunctionType(code, globals())
