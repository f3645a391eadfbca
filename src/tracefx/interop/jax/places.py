"""Where equations of JAX were written: the user's lines, which JAX keeps with each equation."""

from __future__ import annotations

import functools
import os
import sysconfig
from enum import Enum, unique
from typing import Any, Final

import jax

from tracefx.core.source import Source

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


def place_of(source_info: Any) -> Source | None:
    """Where an equation was written, and the `named_scope`s there, which name the modules of Flax.

    The innermost line that is neither JAX's nor an installed library's; a library's, if there is none.
    """
    traceback = source_info.traceback
    if traceback is None:
        return None
    codes, lasti = traceback.raw_frames()
    scope = tuple([part for part in str(source_info.name_stack).split("/") if part])
    library = None
    for code, i in zip(codes, lasti, strict=True):
        kind = _kind(code.co_filename)
        if kind is _Kind.USERS:
            return Source(code, i, scope)
        if kind is _Kind.LIBRARY and library is None:
            library = Source(code, i, scope)
    return library
