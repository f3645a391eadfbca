"""Where equations of JAX were written: the user's lines, which JAX keeps with each equation."""

from __future__ import annotations

import functools
import os
import sysconfig
from enum import Enum, unique
from typing import Any, Final

import jax
from attrs import evolve

from tracefx.core.source import Provenance, Source

_JAX: Final = os.path.dirname(jax.__file__) + os.sep
_OURS: Final = os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep
_INSTALLED: Final = tuple(
    [sysconfig.get_paths()[name] + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")]
)


@unique
class _Kind(Enum):
    """Whose a file is."""

    MACHINERY = "that of JAX or of tracefx, or made while running"
    LIBRARY = "that of an installed library"
    USERS = "the user's"


@functools.lru_cache(maxsize=4096)
def _kind(file: str) -> _Kind:
    if file.startswith((_JAX, _OURS, "<frozen")):
        return _Kind.MACHINERY
    return _Kind.LIBRARY if file.startswith(_INSTALLED) or "site-packages" in file else _Kind.USERS


def place_of(source_info: Any, around: Provenance | None) -> Provenance | None:
    """Where an equation was written, and the `named_scope`s there, which name the modules of Flax.

    The innermost line that is neither JAX's nor an installed library's; a library's, if there is none. JAX keeps no
    lines from outside of the function that it traces, so those of library functions have none at all: they have that
    of the equation `around` them, which calls the function.
    """
    scope = tuple([part for part in str(source_info.name_stack).split("/") if part])
    own = own_place(source_info, scope)
    if own is not None or around is None:
        return own
    if isinstance(around, Source):
        return Source(around.code, around.lasti, scope)
    return evolve(around, scope=scope)


def own_place(source_info: Any, scope: tuple[str, ...] = ()) -> Source | None:
    """The place that an equation has by itself."""
    traceback = source_info.traceback
    if traceback is None:
        return None
    codes, lasti = traceback.raw_frames()
    library = None
    for code, i in zip(codes, lasti, strict=True):
        kind = _kind(code.co_filename)
        if kind is _Kind.USERS:
            return Source(code, i, scope)
        if kind is _Kind.LIBRARY and library is None:
            library = Source(code, i, scope)
    return library
