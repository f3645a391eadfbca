"""`PlainBars`: progress bars of plain characters, for terminals and notebooks without `rich`."""

from __future__ import annotations

import sys
import threading
import time
from typing import Final, final

from tracefx.handlers.progress_reporting.reports import LoopSite, Report

REFRESH_SECONDS: Final = 0.1
"""The least time between two redrawings."""
_WIDTH: Final = 20


@final
class PlainBars:
    """Shows the running loops on one line of standard error, the outermost first, which is redrawn.

    Programs may call it from any thread. The line ends when the outermost loop ends.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[LoopSite, tuple[str, float]] = {}
        """The bar of each running loop, and the time of its first report."""
        self._drawn = 0.0
        self._width = 0

    def __call__(self, report: Report) -> None:
        with self._lock:
            now = time.monotonic()
            loop = report.loop
            start = self._running[loop][1] if loop in self._running else now
            self._running[loop] = _bar(report, now - start), start
            if (report.finished and not loop.depth) or now - self._drawn > REFRESH_SECONDS:
                self._draw(now)
            if report.finished:
                del self._running[loop]
                if not loop.depth:
                    self._end_line()

    def close(self) -> None:
        """Ends the line, if an exception has ended the loops that it shows."""
        with self._lock:
            self._end_line()

    def _end_line(self) -> None:
        self._running.clear()
        if self._width:
            sys.stderr.write("\n")
            sys.stderr.flush()
        self._drawn, self._width = 0.0, 0

    def _draw(self, now: float) -> None:
        running = sorted(self._running.items(), key=lambda item: item[0].depth)
        line = "   ".join([bar for _, (bar, _) in running])
        sys.stderr.write("\r" + line.ljust(self._width))
        sys.stderr.flush()
        self._drawn, self._width = now, len(line)


def _bar(report: Report, seconds: float) -> str:
    """Draws one bar.

    >>> from tracefx.source_location import SourceLocation
    >>> loop = LoopSite("scan", SourceLocation("train.py", 7, "train"), 0)
    >>> _bar(Report(loop, 50, 200, False), 61.0), _bar(Report(loop, 128, None, False), 0.5)
    ('scan train.py:7 [#####---------------] 50/200 0:01:01', 'scan train.py:7 128 0:00:00')
    """
    elapsed = f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02}:{int(seconds) % 60:02}"
    total = report.done if report.finished else report.total
    if total is None:
        return f"{report.loop.label} {report.done} {elapsed}"
    filled = _WIDTH * report.done // max(total, 1)
    return f"{report.loop.label} [{'#' * filled}{'-' * (_WIDTH - filled)}] {report.done}/{total} {elapsed}"
