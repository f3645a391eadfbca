"""Python functions that programs call on the host, and the way of what they raise to whoever waits for the program."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, final

from tracefx.xla.runtime.bindings import AnyArray

HOST_CALL: Final = "xla_ffi_python_cpu_callback"
"""The target of the custom call that calls function number `index : ui64` of its program.

A token among its operands is `None` for the function, and one among its results has to be given as `None`.
"""
HostFunction: TypeAlias = "Callable[..., Sequence[AnyArray | None]]"

_MARK: Final = "exception number"


class CallbackError(RuntimeError):
    """Tells XLA that a function raised, and by a number which exception it was: XLA keeps no more than the text."""


@final
class Raised:
    """The exceptions of one program's functions, kept until the execution that they ended asks for them."""

    __slots__ = ("_errors", "_executions", "_lock", "_numbers")

    def __init__(self) -> None:
        self._errors: dict[int, BaseException] = {}
        self._numbers = itertools.count()
        self._executions = 0
        self._lock = threading.Lock()

    def entry(self, function: HostFunction) -> HostFunction:
        """What XLA calls in place of the function."""

        def call(*arrays: AnyArray | None) -> tuple[AnyArray | None, ...]:
            try:
                return tuple(function(*map(_own, arrays)))
            except BaseException as error:
                number = next(self._numbers)
                self._errors[number] = error
            raise CallbackError(f"{_MARK} {number}")  # without the exception as its context, which XLA would show

        return call

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

    def take(self, text: str) -> BaseException | None:
        """The exception that ended an execution with this text, if it was one of ours."""
        found = re.search(rf"CallbackError: {_MARK} (\d+)", text)
        return None if found is None else self._errors.pop(int(found[1]), None)


def _own(array: AnyArray | None) -> AnyArray | None:
    """An array that nobody writes to any more: XLA's own memory is its again after the call."""
    if array is None or array.flags.owndata:
        return array
    copy = array.copy()
    copy.flags.writeable = False
    return copy
