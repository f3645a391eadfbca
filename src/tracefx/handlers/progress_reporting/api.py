"""`progress`: how far the loops of a program are."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import ParamSpec, TypeVar, final, overload

from tracefx.core.handler import Handler, current, handling
from tracefx.errors import HandlerStateError
from tracefx.handlers.progress_reporting.interrupts import Interrupts
from tracefx.handlers.progress_reporting.loops import Progress
from tracefx.handlers.progress_reporting.reports import Report, ReportCallback
from tracefx.handlers.progress_reporting.rich_bars import RichBars
from tracefx.transforms.arguments import require_callable

P = ParamSpec("P")
R = TypeVar("R")


@final
class ReportReceiver:
    """Receives the reports, and raises KeyboardInterrupt after Ctrl-C. Compiled programs hold it."""

    def __init__(self, show: ReportCallback) -> None:
        self.show = show
        self.interrupts: tuple[Interrupts, ...] = ()
        """The interrupts of all blocks that are entered, in any thread."""
        self._lock = threading.Lock()

    def __call__(self, report: Report) -> None:
        for interrupts in self.interrupts:
            interrupts.check()
        self.show(report)

    def add(self, interrupts: Interrupts) -> None:
        with self._lock:
            self.interrupts = (*self.interrupts, interrupts)

    def remove(self, interrupts: Interrupts) -> None:
        with self._lock:
            self.interrupts = tuple([other for other in self.interrupts if other is not interrupts])


@final
class ProgressContext:
    """Shows how far loops are: those run in a `with` block, or by functions that it decorates.

    Several threads may be in blocks of one object.
    """

    def __init__(self, show: ReportReceiver, every: int | None, depth: int) -> None:
        self._show = show
        self._every = every
        self._depth = depth
        self._blocks: dict[Handler, ExitStack] = {}
        """What to undo when the block is left that made the handler current."""

    def __enter__(self) -> ProgressContext:
        with ExitStack() as block:
            bars = self._show.show
            if isinstance(bars, RichBars):
                bars.acquire()
                block.callback(bars.release)
            interrupts = block.enter_context(Interrupts())
            self._show.add(interrupts)
            block.callback(self._show.remove, interrupts)
            handler = Progress(current(), show=self._show, every=self._every, depth=self._depth)
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
                f"leaving a block of progress, but {now.title} is current: blocks must be left in the reverse order of "
                "entering them, by the thread that entered them"
            )
        block.close()

    def __call__(self, fun: Callable[P, R]) -> Callable[P, R]:
        require_callable("progress", fun)

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
    """`fun`, showing how far its loops are while it runs, compiled loops too: `scan`, `fori_loop`, `while_loop`, `map`.

    Without `fun` it returns an object that does so in a `with` block, and for functions that it decorates. `rich`
    (`pip install rich`) draws bars, or `show` is called with a `Report` each time. It is the same function as long as
    `progress` is called once, and compiled programs are cached with it.

    A loop of known length tells of itself about 100 times, one inside of another loop about 10 times and if it has at
    least 100 steps; other loops each time that they have about 3% more steps than before, from 64 steps on. `every`
    says after how many steps instead. Loops in more than `depth` loops are not shown.

    Raises TypeError if `fun` or `show` is no function, ValueError if `every` or `depth` is no positive integer,
    ImportError without `rich`.

    >>> from tracefx import lax
    >>> show = lambda report: print(report.done, "of", report.total)
    >>> f = progress(lambda x: lax.fori_loop(0, 50, lambda i, x: x * 2 % 7, x), every=25, show=show)
    >>> f(1)
    25 of 50
    50 of 50
    Array(4, dtype=int32, weak_type=True)
    """
    for name, given in (("every", every), ("depth", depth)):
        if given is not None and (type(given) is not int or given < 1):
            raise ValueError(f"progress: {name} must be a positive integer, got {given!r}")
    if show is not None:
        require_callable("progress: show", show)
    if fun is not None:
        require_callable("progress", fun)
    bars = ProgressContext(ReportReceiver(RichBars() if show is None else show), every, depth)
    return bars if fun is None else bars(fun)
