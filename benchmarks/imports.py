"""`import tracefx` in a new process, by the time of the processor that the import takes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from benchmarks.harness import Subject, returned_seconds

GROUP = "import"


def import_seconds(module: str) -> float:
    program = f"import time; start = time.process_time(); import {module}; print(time.process_time() - start)"
    return float(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True).stdout)


def subjects() -> Iterator[Subject]:
    yield Subject(
        GROUP,
        "import, CPU time",
        lambda: import_seconds("tracefx"),
        lambda: import_seconds("jax"),
        0.5,
        blocks=9,
        calls=1,
        clock=returned_seconds,
    )
