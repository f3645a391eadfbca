"""Where equations of JAX were written: the user's lines, which JAX keeps with each equation."""

from __future__ import annotations

import functools
import os
import sysconfig
from enum import Enum, unique
from typing import Any, Final

import jax
from attrs import evolve

from tracefx.core.source_location import LazySourceLocation, Provenance

_JAX: Final = os.path.dirname(jax.__file__) + os.sep
_TRACEFX: Final = os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep
_INSTALLED: Final = tuple(
    [sysconfig.get_paths()[name] + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")]
)


@unique
class _FileOwner(Enum):
    """Whose a file is."""

    MACHINERY = "that of JAX or of tracefx, or made while running"
    LIBRARY = "that of an installed library"
    USERS = "the user's"


@functools.lru_cache(maxsize=4096)
def _file_owner(file: str) -> _FileOwner:
    if file.startswith((_JAX, _TRACEFX, "<frozen")):
        return _FileOwner.MACHINERY
    return _FileOwner.LIBRARY if file.startswith(_INSTALLED) or "site-packages" in file else _FileOwner.USERS


def equation_source(source_info: Any, around: Provenance | None) -> Provenance | None:
    """Where an equation was written, and the `named_scope`s there, which name the modules of Flax.

    The innermost line that is neither JAX's nor an installed library's; a library's, if there is none. JAX keeps no
    lines from outside of the function that it traces, so those of library functions have none at all: they have that
    of the equation `around` them, which calls the function.
    """
    scope = tuple([part for part in str(source_info.name_stack).split("/") if part])
    own = own_source(source_info, scope)
    if own is not None or around is None:
        return own
    if isinstance(around, LazySourceLocation):
        return LazySourceLocation(around.code, around.lasti, scope)
    return evolve(around, scope=scope)


def own_source(source_info: Any, scope: tuple[str, ...] = ()) -> LazySourceLocation | None:
    """The place that an equation has by itself."""
    traceback = source_info.traceback
    if traceback is None:
        return None
    codes, lasti = traceback.raw_frames()
    library = None
    for code, i in zip(codes, lasti, strict=True):
        kind = _file_owner(code.co_filename)
        if kind is _FileOwner.USERS:
            return LazySourceLocation(code, i, scope)
        if kind is _FileOwner.LIBRARY and library is None:
            library = LazySourceLocation(code, i, scope)
    return library
