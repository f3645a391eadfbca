"""Python functions that programs call on the host, and the way of what they raise to whoever waits for the program."""

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
    """The target of the custom call that calls function number `index : ui64` of its program.

    A token among its operands is `None` for the function, and one among its results has to be given as `None`. If it is
    `partitioned`, each device calls with its parts of the operands, as these happen to be cut; there are no results.

    >>> host_call_target("cpu")
    'xla_ffi_python_cpu_callback'
    """
    if platform not in _HOST_CALLS:
        raise NotImplementedError(
            f"programs for {platform!r} can't call Python functions, which those for {', '.join(_HOST_CALLS)} can"
        )
    return f"xla_ffi{'_partitioned' * partitioned}_python_{_HOST_CALLS[platform]}_callback"


class CallbackError(RuntimeError):
    """Tells XLA that a function raised, and by a number which exception it was: XLA keeps no more than the text."""


@final
class FfiCallbacks:
    """The functions that one program calls, and what they raised, until the execution that it ended asks for it."""

    __slots__ = ("__weakref__", "_errors", "_executions", "_functions", "_lock", "_numbers", "_results")

    def __init__(self, functions: Sequence[FfiCallback], results: Sequence[Sequence[ArraySpec]] | None = None) -> None:
        """`results` are the types of what each function gives, if the program goes on where one raises.

        So it must on several devices: the others would wait for one that ends early until XLA ends the process.
        """
        self._functions = functions
        self._results = results
        self._errors: dict[int, BaseException] = {}
        self._numbers = itertools.count()
        self._executions = 0
        self._lock = threading.Lock()

    def entry_points(self) -> list[FfiCallback]:
        """What XLA calls in place of the functions.

        XLA lets go of it long after the program is gone, so the functions, which may hold on to much, are no part of
        it: they live as long as this object.
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
        raise CallbackError(f"{_ERROR_MARK} {number}")  # without the exception as its context, which XLA would show

    def begin(self) -> None:
        """An execution begins."""
        with self._lock:
            self._executions += 1

    def end(self) -> None:
        """An execution has ended. What nobody asked for, as more than one function raised, goes with the last one."""
        with self._lock:
            self._executions -= 1
            if not self._executions:
                self._errors.clear()

    def pop_first_error(self) -> BaseException | None:
        """The first exception of an execution that went on all the same."""
        if self._results is None:
            return None
        with self._lock:
            return self._errors.pop(min(self._errors), None) if self._errors else None

    def pop_error(self, text: str) -> BaseException | None:
        """The exception that ended an execution with this text, if it was one of ours."""
        found = re.search(rf"CallbackError: {_ERROR_MARK} (\d+)", text)
        return None if found is None else self._errors.pop(int(found[1]), None)


def _call(functions: weakref.ref[FfiCallbacks], i: int, *arrays: AnyArray | None) -> tuple[AnyArray | None, ...]:
    living = functions()
    assert living is not None  # since its executable is running
    return living.call(i, arrays)


def _owned_copy(array: AnyArray | None) -> AnyArray | None:
    """An array that nobody writes to any more: XLA's own memory is its again after the call."""
    if array is None or array.flags.owndata:
        return array
    copy = array.copy()
    copy.flags.writeable = False
    return copy
