"""Comparison of results with those of JAX and of reference libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from tests.differential.records import Call, Library, is_inexact, to_library_array
from tracefx.core.array import Array
from tracefx.testing.tolerances import Ulps, ulp_distance

Mismatches: TypeAlias = list[str]
"""Descriptions of mismatches: the aspect, the call, the result and the expected result."""


def leaves_of(out: Any) -> list[Any]:
    """Returns the arrays of a nested result in order."""
    return [x for part in out for x in leaves_of(part)] if isinstance(out, list | tuple) else [out]


def structure(out: Any) -> object:
    """Returns the nesting of lists and tuples in a result."""
    return (isinstance(out, list), list(map(structure, out))) if isinstance(out, list | tuple) else None


def compare(got: Any, want: Any, ulps: Ulps | None, *, typed: bool = True) -> str:
    """Describes how two results differ ("" if they agree). Without `ulps` only types; `typed`: also weak types."""
    if structure(got) != structure(want):
        return f"{got!r} in place of {want!r}"
    for i, (g, w) in enumerate(zip(leaves_of(got), leaves_of(want), strict=True)):
        prefix = f"output {i}: " if isinstance(want, list | tuple) else ""
        if difference := _compare_leaf(g, w, ulps, typed):
            return prefix + difference
    return ""


def _compare_leaf(got: Any, want: Any, ulps: Ulps | None, typed: bool) -> str:
    if not isinstance(got, Array):
        return f"{got!r} is no array"
    if (got.shape, got.dtype) != (want.shape, np.dtype(want.dtype)):
        return f"{got.dtype}{list(got.shape)} in place of {want.dtype}{list(want.shape)}"
    # JAX's comparisons of weak operands return weak bools, which promote as other bools do; tracefx's are never weak.
    if typed and got.dtype != np.bool_ and got.weak_type != want.weak_type:
        return f"weak_type {got.weak_type}"
    if ulps is None:
        return ""
    g, w = np.asarray(got), np.asarray(want)
    allowed = ulps.for_array(w)
    distance = ulp_distance(g, w, allowed.least)
    if not distance.size:
        return ""
    limit = allowed.of(g.dtype) if is_inexact(g) else 0
    worst = int(np.argmax(distance))
    if distance.flat[worst] <= limit:
        return ""
    return (
        f"{g.flat[worst]} in place of {w.flat[worst]} at {worst}: {distance.flat[worst]:.4g} ulps, allowed {limit:.4g}"
    )


def attempt(thunk: Callable[[], Any]) -> Any:
    """Returns the result, or the exception raised."""
    try:
        return thunk()
    except Exception as error:  # errors are compared too
        return error


def builtin_error_class(error: BaseException) -> type:
    """Returns the built-in base class of an error."""
    return next(base for base in type(error).__mro__ if base.__module__ == "builtins")


def format_outcome(x: Any) -> str:
    """Formats a result, or an error with the beginning of its message."""
    return f"{type(x).__name__}: {str(x)[:120]}" if isinstance(x, Exception) else repr(x)


def arrays(library: Library, call: Call) -> list[Any]:
    return [to_library_array(library, x) for x in call.operands]


def compare_outcomes(got: Any, want: Any, ulps: Ulps | None, *, typed: bool = True) -> str:
    """Describes how two results or errors differ."""
    if isinstance(want, Exception):
        return (
            ""
            if isinstance(got, builtin_error_class(want))
            else f"{format_outcome(got)} in place of {format_outcome(want)}"
        )
    return format_outcome(got) if isinstance(got, Exception) else compare(got, want, ulps, typed=typed)
