"""Where equations of ours were written, for JAX: its messages and profiles tell the user's lines."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import CodeType, FunctionType
from typing import Any, Final

from jax.extend import source_info_util

from tracefx.core.source import Place, Provenance, Source

source_info_util.register_exclusion(os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep)

_traceback: Final = lambda: source_info_util.current().traceback  # noqa: E731  # one line, which others are put in place of


def written_at(source: Provenance | None) -> AbstractContextManager[Any]:
    """Inside, JAX takes what is bound for written there."""
    if source is None:
        return nullcontext()
    find = _in_code(source.code, source.lasti) if isinstance(source, Source) else _in_file(source)
    return source_info_util.user_context(find())


@functools.lru_cache(maxsize=4096)
def _in_code(code: CodeType, lasti: int) -> Callable[[], Any]:
    return _in_file(Source(code, lasti, ()).place())


@functools.lru_cache(maxsize=4096)
def _in_file(place: Place) -> Callable[[], Any]:
    """A function that gives a traceback of JAX's whose innermost frame is at the place: a frame is made by a call."""
    code = _traceback.__code__.replace(
        co_filename=place.file, co_name=place.function, co_qualname=place.function, co_firstlineno=place.line
    )
    return FunctionType(code, globals())
