"""Traceback filtering: removes the frames of this package from the tracebacks of errors that leave it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType, TracebackType
from typing import Any, Final, NoReturn, TypeVar, final

from typing_extensions import ParamSpec

from tracefx.bounded_cache import memoize
from tracefx.settings import TRACEBACK_FILTERING
from tracefx.source_location import is_internal_file

P = ParamSpec("P")
R = TypeVar("R")


@final
class InternalFramesHidden(Exception):
    """Raised for its traceback entry, which replaces those of internal frames; the source line is a note for users."""


def filter_traceback(error: Exception) -> None:
    """Removes internal frames from the tracebacks of an exception, its causes, contexts and members of its group.

    One entry at the beginning, where the frames were, says how to see them. Nothing else of the exceptions changes. The
    entry points of the package call it in an `except` clause that ends with `raise`, which adds no frame.

    Args:
        error: An exception that leaves the package. Unchanged if `traceback_filtering` is off.
    """
    if TRACEBACK_FILTERING.value == "off":
        return
    _filter_chain(error)
    note = _note()
    if note is not None:
        error.__traceback__ = TracebackType(error.__traceback__, note.tb_frame, note.tb_lasti, note.tb_lineno)
    # This frame lives as long as the traceback, as a caller of the note's frame. Its variables would make cycles.
    del error, note


def _filter_chain(error: BaseException) -> None:
    """Removes internal frames from the tracebacks of an exception and of those that it refers to."""
    pending: list[BaseException | None] = [error]
    filtered: set[int] = set()
    while pending:
        e = pending.pop()
        if e is None or id(e) in filtered:
            continue
        filtered.add(id(e))
        e.__traceback__ = _without_internal_frames(e.__traceback__)
        pending += (e.__cause__, e.__context__)
        if isinstance(e, BaseExceptionGroup):
            pending += e.exceptions


def _without_internal_frames(traceback: TracebackType | None) -> TracebackType | None:
    """Returns the traceback without the frames of this package; the same object if it has none."""
    entries: list[TracebackType] = []
    entry = traceback
    while entry is not None:
        entries.append(entry)
        entry = entry.tb_next
    kept = [entry for entry in entries if not is_internal_file(entry.tb_frame.f_code.co_filename)]
    if len(kept) == len(entries):
        return traceback
    rest: TracebackType | None = None
    for entry in reversed(kept):
        rest = TracebackType(rest, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return rest


def _note() -> TracebackType | None:
    """Returns the traceback entry that replaces those of internal frames."""
    try:
        _stand_for_internal_frames()
    except InternalFramesHidden as hidden:
        return hidden.__traceback__ and hidden.__traceback__.tb_next


def _stand_for_internal_frames() -> NoReturn:
    __tracebackhide__ = True  # for pytest and IPython, which show more of a frame than its line
    raise InternalFramesHidden("set TRACEFX_TRACEBACK_FILTERING=off to see them")


def api_boundary(f: Callable[P, R]) -> Callable[P, R]:
    """Decorates a public function that calls functions of the user: its errors have filtered tracebacks.

    Functions whose calls take only microseconds have the `except` clause in their own code instead.
    """

    without_keywords: Callable[..., R] = f

    @functools.wraps(f)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return f(*args, **kwargs) if kwargs else without_keywords(*args)  # saves 0.05 µs
        except Exception as error:
            filter_traceback(error)
            raise

    return call


_CALL_CODE: Final = api_boundary(filter_traceback).__code__


def without_boundary(f: object) -> object:
    """Returns the function that `api_boundary` has decorated, for comparisons; any other object is returned itself.

    Args:
        f: Any object.
    """
    return vars(f)["__wrapped__"] if isinstance(f, FunctionType) and f.__code__ is _CALL_CODE else f


@memoize(limit=2048)
def _decorated(f: FunctionType) -> Callable[..., object]:
    return api_boundary(f)


def as_entry_point(value: object, module: str) -> object:
    """Returns a public name's value, made an entry point with filtered tracebacks.

    Functions are decorated with `api_boundary`, unless they are entry points already. Of classes that attrs generates,
    the constructor is decorated in place if it validates its arguments; others raise no errors.

    Args:
        value: The value.
        module: The public module of the name, in which pickle looks a function up.
    """
    if type(value) is FunctionType and filter_traceback.__name__ not in value.__code__.co_names:
        value = _decorated(value)
        value.__module__ = module
    elif isinstance(value, type):
        owner: Any = next(c for c in value.__mro__ if "__init__" in vars(c))
        fields = vars(owner).get("__attrs_attrs__", ())
        validates = hasattr(owner, "__attrs_post_init__") or any(f.validator or f.converter for f in fields)
        if validates and fields and not hasattr(owner.__init__, "__wrapped__"):
            owner.__init__ = api_boundary(owner.__init__)
    return value


def make_entry_points(namespace: dict[str, Any]) -> None:
    """Makes the names in `__all__` that a module without a stub defines entry points.

    Args:
        namespace: The module's `globals()`.
    """
    for name in namespace.keys() & namespace["__all__"]:
        namespace[name] = as_entry_point(namespace[name], namespace["__name__"])
