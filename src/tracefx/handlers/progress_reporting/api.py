"""`progress`: shows how far the loops of a program have come."""

from __future__ import annotations

import functools
import os
import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import ParamSpec, TypeVar, final, overload

from tracefx.core.handler import Handler, current, handling
from tracefx.errors import HandlerStateError
from tracefx.filtered_tracebacks import api_boundary
from tracefx.handlers.progress_reporting.loops import Progress
from tracefx.handlers.progress_reporting.plain_bars import PlainBars
from tracefx.handlers.progress_reporting.reports import Report, ReportCallback
from tracefx.handlers.progress_reporting.rich_bars import RichBars
from tracefx.transforms.arguments import require_callable


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


P = ParamSpec("P")
R = TypeVar("R")


@final
class ReportReceiver:
    """Calls `show` with each report, and raises KeyboardInterrupt after Ctrl-C. It is part of compiled programs."""

    def __init__(self, show: ReportCallback) -> None:
        self.show = show
        self.interrupts: tuple[Interrupts, ...] = ()
        """The interrupt detectors of all active `with` blocks, in any thread."""
        self._lock = threading.Lock()

    def __call__(self, report: Report) -> None:
        for interrupts in self.interrupts:
            interrupts.check()
        self.show(report)

    def add(self, interrupts: Interrupts) -> None:
        """Adds the interrupt detector of a block that is entered."""
        with self._lock:
            self.interrupts = (*self.interrupts, interrupts)

    def remove(self, interrupts: Interrupts) -> None:
        """Removes the interrupt detector of a block that is left."""
        with self._lock:
            self.interrupts = tuple([other for other in self.interrupts if other is not interrupts])


@final
class ProgressContext:
    """Reports the progress of loops that run in its `with` block, or in functions that it decorates.

    Several threads may be in blocks of one object.
    """

    def __init__(self, show: ReportReceiver, every: int | None, depth: int) -> None:
        self._show = show
        self._every = every
        self._depth = depth
        self._blocks: dict[Handler, ExitStack] = {}
        """The exit callbacks of each block, by the handler that the block installed."""

    def __enter__(self) -> ProgressContext:
        with ExitStack() as block:
            bars = self._show.show
            if isinstance(bars, RichBars):
                bars.acquire()
                block.callback(bars.release)
            elif isinstance(bars, PlainBars):
                block.callback(bars.close)
            interrupts = block.enter_context(Interrupts())
            self._show.add(interrupts)
            block.callback(self._show.remove, interrupts)
            handler = Progress(show=self._show, every=self._every, depth=self._depth).over(current())
            block.enter_context(handling(handler))
            self._blocks[handler] = block.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        now = current()
        block = self._blocks.pop(now, None)
        if block is None:
            raise HandlerStateError(
                f"leaving a block of progress while {now.title} is current: blocks must be left in the reverse order "
                "of entering them, by the thread that entered them"
            )
        block.close()

    def __call__(self, fun: Callable[P, R]) -> Callable[P, R]:
        require_callable("progress", fun)

        @api_boundary
        @functools.wraps(fun)
        def shown(*args: P.args, **kwargs: P.kwargs) -> R:
            with ProgressContext(self._show, self._every, self._depth):
                return fun(*args, **kwargs)

        return shown


@overload
def progress(*, every: int | None = None, depth: int = 2, show: ReportCallback | None = None) -> ProgressContext: ...
@overload
def progress(
    fun: Callable[P, R], *, every: int | None = None, depth: int = 2, show: ReportCallback | None = None
) -> Callable[P, R]: ...
def progress(
    fun: Callable[P, R] | None = None, *, every: int | None = None, depth: int = 2, show: ReportCallback | None = None
) -> ProgressContext | Callable[P, R]:
    """Reports how far the loops of `fun` have come while it runs, compiled or not.

    Covers `scan`, `fori_loop`, `while_loop` and `map`. A loop of known length reports about 100 times; one inside
    another loop about 10 times, if it has at least 100 iterations. A loop of unknown length reports from iteration 64
    on, each time the number of iterations has grown by about 3 %. Programs are cached by `show`, so call `progress`
    once and reuse the result.

    Args:
        fun: the function. Without it, the result is used as a context manager or decorator.
        every: report after this number of iterations instead.
        depth: how many levels of nested loops to report.
        show: called with each `Report`. With the default, None, progress bars are drawn by `rich` if it is installed,
            else by plain characters.

    Returns:
        A function like `fun`; without `fun`, a `ProgressContext`.

    Raises:
        TypeError: if `fun` or `show` is not callable.
        ValueError: if `every` or `depth` is not a positive integer.
    >>> from tracefx import lax
    >>> show = lambda report: print(report.done, "of", report.total)
    >>> f = progress(lambda x: lax.fori_loop(0, 50, lambda i, x: x * 2 % 7, x), every=25, show=show)
    >>> f(1)
    25 of 50
    50 of 50
    Array(4, dtype=int32, weak_type=True)
    """
    for name, number in (("every", every), ("depth", depth)):
        if number is not None and (type(number) is not int or number < 1):
            raise ValueError(f"progress: {name} must be a positive integer, got {number!r}")
    if show is not None:
        require_callable("progress: show", show)
    if fun is not None:
        require_callable("progress", fun)
    bars = ProgressContext(ReportReceiver(_default_bars() if show is None else show), every, depth)
    return bars if fun is None else bars(fun)


def _default_bars() -> ReportCallback:
    try:
        return RichBars()
    except ImportError:  # rich is not installed
        return PlainBars()
