"""Python callbacks of compiled programs, and how their exceptions reach the caller of the program."""

from __future__ import annotations

import functools
import itertools
import re
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias, final

import numpy as np

from tracefx.xla.runtime.bindings import AnyArray, ArraySpec

_HOST_CALLS: Final[Mapping[str, str]] = MappingProxyType({"cpu": "cpu", "cuda": "gpu", "rocm": "gpu"})
FfiCallback: TypeAlias = "Callable[..., Sequence[AnyArray | None]]"

_ERROR_MARK: Final = "exception number"


def host_call_target(platform: str, partitioned: bool = False) -> str:
    """Returns the target of the custom call that calls the program's Python function number `index : ui64`.

    Token operands are `None` for the function, and it must return `None` for token results. With `partitioned`, each
    device calls the function with its shards of the operands, however these are sharded; there are no results.

    >>> host_call_target("cpu")
    'xla_ffi_python_cpu_callback'
    """
    if platform not in _HOST_CALLS:
        raise NotImplementedError(
            f"programs for {platform!r} can't call Python functions, only programs for {', '.join(_HOST_CALLS)} can"
        )
    return f"xla_ffi{'_partitioned' * partitioned}_python_{_HOST_CALLS[platform]}_callback"


class CallbackError(RuntimeError):
    """Tells XLA that a function raised; the message has the number of the exception, since XLA keeps only the text."""


@final
class FfiCallbacks:
    """The Python functions that a program calls, and the exceptions that they raised."""

    __slots__ = ("__weakref__", "_errors", "_executions", "_functions", "_lock", "_numbers", "_results")

    def __init__(self, functions: Sequence[FfiCallback], results: Sequence[Sequence[ArraySpec]] | None = None) -> None:
        """Initializes with the functions, and with `results` for programs that must go on after an exception.

        Programs on several devices must: if one device stopped, the others would wait for it until XLA aborts the
        process. Functions that raise then return zeros of the types `results`.
        """
        self._functions = functions
        self._results = results
        self._errors: dict[int, BaseException] = {}
        self._numbers = itertools.count()
        self._executions = 0
        self._lock = threading.Lock()

    def entry_points(self) -> list[FfiCallback]:
        """Returns the functions that XLA calls in place of the Python functions.

        XLA keeps them long after the program is deleted, so they refer weakly to this object, which owns the Python
        functions and everything that these keep alive.
        """
        return [functools.partial(_call, weakref.ref(self), i) for i in range(len(self._functions))]

    def call(self, i: int, arrays: Sequence[AnyArray | None]) -> tuple[AnyArray | None, ...]:
        try:
            return tuple(self._functions[i](*map(_owned_copy, arrays)))
        except BaseException as error:
            number = next(self._numbers)
            self._errors[number] = error
        if self._results is not None:
            return tuple([np.zeros(spec.shape, spec.dtype) for spec in self._results[i]])
        raise CallbackError(
            f"{_ERROR_MARK} {number}"
        )  # outside of `except`, or XLA would show the exception as context

    def begin(self) -> None:
        """Registers the start of an execution."""
        with self._lock:
            self._executions += 1

    def end(self) -> None:
        """Registers the end of an execution. Exceptions that were not popped are dropped with the last execution."""
        with self._lock:
            self._executions -= 1
            if not self._executions:
                self._errors.clear()

    def pop_first_error(self) -> BaseException | None:
        """Returns and removes the first exception of an execution that went on after it; None if there is none."""
        if self._results is None:
            return None
        with self._lock:
            return self._errors.pop(min(self._errors), None) if self._errors else None

    def pop_error(self, text: str) -> BaseException | None:
        """Returns and removes the exception that ended an execution with this error text; None for other errors."""
        match = re.search(rf"CallbackError: {_ERROR_MARK} (\d+)", text)
        return None if match is None else self._errors.pop(int(match[1]), None)


def _call(functions: weakref.ref[FfiCallbacks], i: int, *arrays: AnyArray | None) -> tuple[AnyArray | None, ...]:
    callbacks = functions()
    assert callbacks is not None  # because its executable is running
    return callbacks.call(i, arrays)


def _owned_copy(array: AnyArray | None) -> AnyArray | None:
    """Copies an array that XLA owns: its memory is reused after the call. The copy is read-only."""
    if array is None or array.flags.owndata:
        return array
    copy = array.copy()
    copy.flags.writeable = False
    return copy
