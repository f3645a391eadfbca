"""`RichBars`: progress bars in a terminal, drawn by `rich`."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, final

from tracefx.handlers.progress_reporting.plain_bars import REFRESH_SECONDS
from tracefx.handlers.progress_reporting.reports import LoopSite, Report

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID


@final
class RichBars:
    """Shows one bar for each loop.

    Bars are drawn when loops report, so no thread runs beside the program. Programs may call it from any thread. Bars
    are visible while a loop runs, and between `acquire` and `release`.

    Args:
        console: The console of `rich` to draw on. None, the default, means a new one on standard error.

    Raises:
        ImportError: If `rich` is not installed.
    """

    def __init__(self, console: Console | None = None) -> None:
        try:
            from rich import progress  # imported here because most programs do not need it
        except ImportError as error:
            raise ImportError(
                "RichBars draws with rich, which is not installed: pip install rich, or leave out show= for plain bars"
            ) from error
        self._rich = progress
        self._console = console
        self._lock = threading.RLock()
        self._live: Progress | None = None
        self._tasks: dict[LoopSite, TaskID] = {}
        self._running: set[LoopSite] = set()
        self._users = 0
        self._drawn = 0.0

    def __call__(self, report: Report) -> None:
        with self._lock:
            live, loop = self._open(), report.loop
            task = self._tasks.get(loop)
            if task is None:
                task = self._tasks[loop] = live.add_task("  " * loop.depth + loop.label, total=report.total)
            elif loop not in self._running:
                live.reset(task, total=report.total)
            total = report.done if report.finished else report.total
            live.update(task, completed=report.done, total=total)
            if report.finished:
                self._running.discard(loop)
            else:
                self._running.add(loop)
            now = time.monotonic()
            if report.finished or now - self._drawn > REFRESH_SECONDS:
                live.refresh()
                self._drawn = now
            if report.finished and not loop.depth and not self._users:
                self._close()

    def acquire(self) -> None:
        """Keeps the bars visible until `release` is called as often as `acquire`."""
        with self._lock:
            self._users += 1

    def release(self) -> None:
        """Allows the bars to disappear."""
        with self._lock:
            self._users -= 1
            if not self._users:
                self._close()

    def _open(self) -> Progress:
        if self._live is None:
            rich = self._rich
            columns = (
                rich.TextColumn("{task.description}"),
                rich.BarColumn(),
                rich.MofNCompleteColumn(),
                rich.TimeElapsedColumn(),
                rich.TimeRemainingColumn(),
            )
            self._live = rich.Progress(*columns, console=self._console, auto_refresh=False)
            self._live.start()
        return self._live

    def _close(self) -> None:
        if self._live is not None:
            self._live.stop()
        self._live = None
        self._tasks.clear()
        self._running.clear()
