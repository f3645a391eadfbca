"""A plug-in of pytest: writes the outcome of each test when it ends, and skips tests after time limits.

It is loaded by a name of its own, because libraries may have a package `benchmarks`, too. Outcomes are written one by
one, so that those of a process that is stopped are kept.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Generator
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn, final

import pytest

OPTIONS: Final = ("outcomes", "seconds", "file-seconds", "test-seconds")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declares the options: the file of outcomes, and the limits in seconds of CPU time."""
    for name in OPTIONS:
        parser.addoption(f"--{name}")


def pytest_configure(config: pytest.Config) -> None:
    """Starts to record."""
    config.pluginmanager.register(Recorder(config))


@final
class Recorder:
    """Records the outcomes of one process.

    Args:
        config: The options.
    """

    def __init__(self, config: pytest.Config) -> None:
        outcomes, *limits = [config.getoption(name.replace("-", "_")) for name in OPTIONS]
        self.file = Path(outcomes)
        self.seconds, self.file_seconds, self.test_seconds = map(float, limits)
        self.start = time.process_time()
        self.file_starts: dict[Path, float] = {}

    def write(self, event: str, test: str, message: str = "") -> None:
        """Appends an event to the file."""
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"event": event, "test": test, "message": message}) + "\n")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Records the number of tests, and starts the time."""
        self.start = time.process_time()
        self.write("collected", str(len(session.items)))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Records that a test starts: it did not end if nothing else is recorded."""
        self.write("started", nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skips a test if the time for its file or for all files is over."""
        now = time.process_time()
        file_start = self.file_starts.setdefault(item.path, now)
        if now - self.start > self.seconds or now - file_start > self.file_seconds:
            pytest.skip("time limit")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        """Stops a test that takes too long."""
        signal.signal(signal.SIGPROF, _stop)
        signal.setitimer(signal.ITIMER_PROF, self.test_seconds)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Records that a test passed, failed or was skipped."""
        if report.outcome != "passed" or report.when == "call":
            self.write(report.outcome, report.nodeid, _message(report))


def _stop(signum: int, frame: FrameType | None) -> NoReturn:
    raise TimeoutError("the time limit of a test")


def _message(report: pytest.TestReport) -> str:
    """Returns the first line of the error of a test."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return "" if crash is None else next(iter(str(crash.message).splitlines()), "")
