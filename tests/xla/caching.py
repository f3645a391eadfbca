"""Helpers for tests of the compilation cache on disk."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from tracefx.xla.runtime import executables, multi_device

SPY: Final = """
    import numpy as np
    import tracefx as fx, tracefx.numpy as fnp
    from tracefx.xla import backend, spmd
    from tracefx.xla.runtime import executables, multi_device

    done = []
    def spy(module, name):
        def spied(*args, _real=getattr(module, name), **kwargs):
            done.append(name)
            return _real(*args, **kwargs)
        setattr(module, name, spied)
"""
"""The beginning of a program: `spy` logs the calls of a function in `done`."""


def log_builds(monkeypatch: pytest.MonkeyPatch, module: ModuleType, lower: str, compile_: str) -> list[str]:
    """Returns a log of the calls of the function of a module that lowers, and of that of the runtime that compiles."""
    log: list[str] = []

    def logged(owner: ModuleType, name: str, word: str) -> None:
        function = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            log.append(word)
            return function(*args, **kwargs)

        monkeypatch.setattr(owner, name, call)

    logged(module, lower, "lowered")
    logged(next(owner for owner in (executables, multi_device) if hasattr(owner, compile_)), compile_, "compiled")
    return log


def files(path: Path) -> list[Path]:
    """Returns the files of the cached programs in a folder."""
    return sorted(path.glob("*.executable"))


def in_new_process(text: str, **environment: str) -> subprocess.Popen[str]:
    """Starts a program with some environment variables."""
    command = [sys.executable, "-c", textwrap.dedent(text)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
