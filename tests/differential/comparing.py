"""How results are compared: with JAX's, and with those of other libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from tests.differential.records import Call, Library, is_inexact, to_library_array
from tracefx.core.array import Array
from tracefx.testing.tolerances import Ulps, ulp_distance

Mismatches: TypeAlias = list[str]
"""What differs: for each difference the aspect, the call, and what is here and what there."""


def leaves_of(out: Any) -> list[Any]:
    """The arrays of a result, in their order."""
    return [x for part in out for x in leaves_of(part)] if isinstance(out, list | tuple) else [out]


def structure(out: Any) -> object:
    """How sequences are nested in a result: whether they are lists or tuples too."""
    return (isinstance(out, list), list(map(structure, out))) if isinstance(out, list | tuple) else None


def compare(got: Any, want: Any, ulps: Ulps | None, *, typed: bool = True) -> str:
    """How two results differ, "" if they agree: in type only without a tolerance; `typed`: whether weak types count."""
    if structure(got) != structure(want):
        return f"{got!r} in place of {want!r}"
    for i, (g, w) in enumerate(zip(leaves_of(got), leaves_of(want), strict=True)):
        where = f"output {i}: " if isinstance(want, list | tuple) else ""
        if difference := _compare_one(g, w, ulps, typed):
            return where + difference
    return ""


def _compare_one(got: Any, want: Any, ulps: Ulps | None, typed: bool) -> str:
    if not isinstance(got, Array):
        return f"{got!r} is no array"
    if (got.shape, got.dtype) != (want.shape, np.dtype(want.dtype)):
        return f"{got.dtype}{list(got.shape)} in place of {want.dtype}{list(want.shape)}"
    # JAX's comparisons of weak operands are weak booleans, which promote as all booleans do; ours are never weak.
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
    """The result, or the error."""
    try:
        return thunk()
    except Exception as error:  # whatever it is, it is compared
        return error


def builtin_error_class(error: BaseException) -> type:
    """The built-in class that an error belongs to."""
    return next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")


def format_outcome(x: Any) -> str:
    """A result, or an error with the beginning of what it says."""
    return f"{type(x).__name__}: {str(x)[:120]}" if isinstance(x, Exception) else repr(x)


def arrays(library: Library, call: Call) -> list[Any]:
    return [to_library_array(library, x) for x in call.operands]


def compare_outcomes(got: Any, want: Any, ulps: Ulps | None, *, typed: bool = True) -> str:
    """How results differ, either of which may be an error."""
    if isinstance(want, Exception):
        return (
            ""
            if isinstance(got, builtin_error_class(want))
            else f"{format_outcome(got)} in place of {format_outcome(want)}"
        )
    return format_outcome(got) if isinstance(got, Exception) else compare(got, want, ulps, typed=typed)
