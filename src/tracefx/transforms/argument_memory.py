"""Host memory for arguments: calls copy NumPy arrays and numbers to it, and compiled programs read it in place.

Making a buffer takes 5 to 8 µs, copying a small array to the memory of an existing buffer 0.3 µs. The memory can be
written to again when the program that read it has finished, which the call finds out from a result of the program.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol, cast, final

import numpy as np

from tracefx.core import NDArray
from tracefx.core.backend import HostProgram
from tracefx.core.device import MEMORY, Buffer
from tracefx.errors import DeletedArrayError

_MOST: Final = 2
"""How many calls of a program can be unfinished for the next one to have memory; further calls make buffers."""
_SMALL: Final = 1 << 16
"""The largest argument, in bytes, that is copied to memory."""
_NUMBERS: Final = frozenset("?bBhHiIlLqQfd")
"""The dtypes of which Python's memoryviews take numbers."""


class _Element(Protocol):
    """A memoryview of one element."""

    def __setitem__(self, key: tuple[()], value: complex, /) -> None: ...


@final
class ArgumentMemory:
    """The memory of the arguments of one call. That of an input is made when a call first needs it."""

    __slots__ = ("_arrays", "_numbers", "_program", "reader")
    reader: Buffer | None
    """A result of the last program that read the memory; None if the program has finished."""

    def __init__(self, program: HostProgram) -> None:
        self._program = program
        self._arrays: dict[int, tuple[NDArray, Buffer] | None] = {}
        self._numbers: dict[int, tuple[_Element, Buffer] | None] = {}
        self.reader = None

    def write_array(self, i: int, x: NDArray | np.generic) -> Buffer | None:
        """Copies a NumPy array of the type of input `i`, and returns the buffer; None if the input has no memory."""
        entry = self._arrays[i] if i in self._arrays else self._make(i)
        if entry is None:
            return None
        array, buffer = entry
        array[...] = x
        return buffer

    def write_number(self, i: int, x: complex) -> Buffer | None:
        """Does the work of `write_array` for a Python number. Returns None for numbers that the dtype lacks, too."""
        entry = self._numbers[i] if i in self._numbers else self._make_number(i)
        if entry is None:
            return None
        element, buffer = entry
        try:
            element[()] = x  # unlike assignment to an array, this never warns
        except (OverflowError, ValueError):
            return None
        return buffer

    def _make(self, i: int) -> tuple[NDArray, Buffer] | None:
        entry = self._arrays[i] = self._program.shared_memory(i, _SMALL)
        return entry

    def _make_number(self, i: int) -> tuple[_Element, Buffer] | None:
        entry = self._arrays[i] if i in self._arrays else self._make(i)
        number = None
        if entry is not None and entry[0].dtype.char in _NUMBERS:
            number = cast("_Element", entry[0].data), entry[1]
        self._numbers[i] = number
        return number


@final
class ArgumentMemories:
    """The memories of one program that no call uses."""

    __slots__ = ("_count", "_free")

    def __init__(self) -> None:
        self._free = deque[ArgumentMemory]()
        self._count = 0

    def take(self, program: HostProgram) -> ArgumentMemory | None:
        """Returns a memory for a call of the program, which no call reads; None if all are in use.

        The caller puts it back by `put_back` or, if that is impossible, calls `forget`.
        """
        try:
            memory = self._free.popleft()
        except IndexError:
            return self._new(program)
        if memory.reader is None:
            return memory
        try:
            finished = MEMORY.value.is_ready(memory.reader)
        except DeletedArrayError:  # the result was donated: nothing says whether the program has finished
            self.forget()
            return self._new(program)
        if finished:
            memory.reader = None
            return memory
        self._free.appendleft(memory)
        return self._new(program)

    def _new(self, program: HostProgram) -> ArgumentMemory | None:
        if self._count >= _MOST:
            return None
        self._count += 1
        return ArgumentMemory(program)

    def put_back(self, memory: ArgumentMemory) -> None:
        """Takes a memory back, whose `reader` has been set."""
        self._free.append(memory)

    def forget(self) -> None:
        """Makes room for another memory in place of one that isn't put back."""
        self._count -= 1
