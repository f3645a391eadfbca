"""A progress bar on the terminal."""

from __future__ import annotations

import shutil
import sys
from types import TracebackType
from typing import Final, Self, TextIO, final

WIDTH: Final = 28
PLAIN_LINES: Final = 8
"""The number of lines written to a file or pipe."""


@final
class Progress:
    """A bar that is redrawn on a terminal; plain lines elsewhere.

    with Progress("training", steps=40) as progress:
        progress.show(3, "loss 0.12")
    """

    def __init__(self, title: str, steps: int, stream: TextIO | None = None) -> None:
        self._title = title
        self._steps = steps
        self._stream = sys.stdout if stream is None else stream
        self._live = self._stream.isatty()
        self._every = max(1, steps // PLAIN_LINES)
        self._drawn = 0  # the length of the line on the terminal

    def show(self, done: int, text: str) -> None:
        """Shows the number of finished steps, and a text."""
        if self._live:
            line = f"{self._title} {self._bar(done)} {done}/{self._steps}  {text}"
            line = line[: shutil.get_terminal_size().columns - 1]  # a wrapped line cannot be overwritten
            self._write("\r" + line.ljust(self._drawn))
            self._drawn = len(line)
        elif done % self._every == 0 or done == self._steps:
            self._write(f"{self._title} {done}/{self._steps}  {text}\n")

    def _bar(self, done: int) -> str:
        full = WIDTH * done // self._steps
        full_mark, empty_mark = "━", "─"
        try:
            full_mark.encode(self._stream.encoding or "ascii")
        except UnicodeEncodeError:
            full_mark, empty_mark = "#", "-"
        return full_mark * full + empty_mark * (WIDTH - full)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._drawn:
            self._write("\n")  # an error message starts on a new line
