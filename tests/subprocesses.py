"""Runs Python in new processes, which find the same modules as this one."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Set
from pathlib import Path

_REFUSE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in REFUSED:
            tried.append(name)
            raise ImportError(f"{name} must not be imported")

tried = []
sys.meta_path.insert(0, Refuse())
"""


def refusing(modules: Set[str]) -> str:
    """Returns code that makes imports of the modules fail, and records them in `tried`."""
    return f"REFUSED = {modules!r}\n{_REFUSE}\n"


def run_python(
    *arguments: str | Path, input: str | None = None, cwd: str | Path | None = None, **environment: str | None
) -> subprocess.CompletedProcess[str]:
    """Runs Python with these arguments.

    Args:
        *arguments: Command-line arguments.
        input: The text on standard input.
        cwd: The folder that the process runs in.
        **environment: Environment variables; None removes one.
    """
    path = os.pathsep.join(entry for entry in sys.path if entry)
    variables = {**os.environ, "PYTHONPATH": path, **environment}
    return subprocess.run(
        [sys.executable, *arguments],
        input=input,
        cwd=cwd,
        env={name: value for name, value in variables.items() if value is not None},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def output_of(program: str, *arguments: str | Path, input: str | None = None, **environment: str | None) -> str:
    """Runs the text of a program, which must succeed, and returns what it prints."""
    done = run_python("-c", textwrap.dedent(program), *arguments, input=input, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout
