"""Detection of Ctrl-C while a compiled program runs.

Python raises KeyboardInterrupt in the main thread only after the program that it waits for has finished. The operating
system's signal is visible earlier: callbacks of the program can check for it, and their exception ends the program.
"""

from __future__ import annotations

import os
import signal
import threading
from types import TracebackType
from typing import final


@final
class Interrupts:
    """Detects Ctrl-C within a `with` block of the main thread; any thread may call `check`."""

    def __init__(self) -> None:
        self._pipe: tuple[int, int] | None = None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is not threading.main_thread():
            return self  # other threads receive no signals
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            return self  # the application handles the signal itself
        pipe = os.pipe()
        for end in pipe:
            os.set_blocking(end, False)
        before = signal.set_wakeup_fd(pipe[1], warn_on_full_buffer=False)
        if before == -1:
            self._pipe = pipe
        else:
            signal.set_wakeup_fd(before)
            _close(pipe)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pipe is not None:
            pipe, self._pipe = self._pipe, None
            signal.set_wakeup_fd(-1)
            _close(pipe)

    def check(self) -> None:
        """Raises KeyboardInterrupt if Ctrl-C was pressed."""
        pipe = self._pipe
        if pipe is None:
            return
        try:
            signals = os.read(pipe[0], 64)
        except OSError:  # there is nothing to read, or the block has ended
            return
        if signal.SIGINT in signals:
            raise KeyboardInterrupt


def _close(pipe: tuple[int, int]) -> None:
    for end in pipe:
        os.close(end)
