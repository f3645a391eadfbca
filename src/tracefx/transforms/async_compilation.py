"""Asynchronous compilation: calls are interpreted while another thread compiles the program."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from typing import Final, final

from attrs import frozen

from tracefx.core import ConcreteArray, NDArray, Value
from tracefx.core.backend import InterpretedProgram, Runnable
from tracefx.transforms.fast_path import note_donations

HEAD_START: Final = 1.0
"""For how many seconds the first call may run before the compilation starts: they would compete for the processor."""
THREAD_NAME: Final = "tracefx compilation"


@final
class PendingProgram:
    """A program that a thread compiles, and that is interpreted until it is compiled.

    The compilation starts after the first call, or `HEAD_START` after its beginning. The process does not exit before
    the compilation ends, because XLA cannot be interrupted.

    Args:
        compile_program: Compiles the program. It runs in the context of the constructor's caller.
        interpreted: The program to run meanwhile.
        donated: The names of the donated inputs.
    """

    on_host: None = None
    uncommitted_run: None = None

    def __init__(
        self, compile_program: Callable[[], Runnable], interpreted: InterpretedProgram, donated: Mapping[int, str]
    ) -> None:
        self._interpreted = interpreted
        self._donated = donated
        self._future = Future[Runnable]()
        self._may_compile = threading.Event()
        compilation = _Compilation(compile_program, self._future, self._may_compile)
        try:
            threading.Thread(target=copy_context().run, args=(compilation,), name=THREAD_NAME).start()
        except RuntimeError:  # the interpreter is shutting down, or there are too many threads
            self._may_compile.set()
            compilation()

    def compiled(self) -> Runnable | None:
        """Returns the compiled program, or None if the compilation has not ended; raises its error if it failed."""
        return self._future.result() if self._future.done() else None

    def __call__(self, args: Sequence[Value | NDArray]) -> list[ConcreteArray]:
        program = self.compiled()
        if program is None:
            try:
                outs = self._interpreted(args, self._future.done)
            finally:
                self._may_compile.set()
            if outs is not None:
                note_donations(self._donated, args)
                return outs
            program = self._future.result()
        return program(args)


@final
@frozen(eq=False)
class _Compilation:
    """A compilation, which a thread runs. It does not refer to the `PendingProgram`."""

    compile_program: Callable[[], Runnable]
    future: Future[Runnable]
    may_compile: threading.Event

    def __call__(self) -> None:
        self.may_compile.wait(HEAD_START)
        try:
            self.future.set_result(self.compile_program())
        except BaseException as error:  # calls raise it
            self.future.set_exception(error)
