"""`import tracefx` in a new process, by the time of the processor that the import takes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping

from benchmarks.harness import Subject, returned_seconds

GROUP = "import"


def import_seconds(module: str, environment: Mapping[str, str]) -> float:
    program = f"import time; start = time.process_time(); import {module}; print(time.process_time() - start)"
    command = [sys.executable, "-c", program]
    return float(subprocess.run(command, capture_output=True, check=True, text=True, env=environment).stdout)


def subjects() -> Iterator[Subject]:
    with tempfile.TemporaryDirectory() as cache:
        # Both sides from bytecode, which an installed package has and an editable one may not have yet.
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache, "PYTHONDONTWRITEBYTECODE": ""}
        for module in ("tracefx", "jax"):
            import_seconds(module, environment)
        yield Subject(
            GROUP,
            "import, CPU time",
            lambda: import_seconds("tracefx", environment),
            lambda: import_seconds("jax", environment),
            0.4,
            blocks=9,
            calls=1,
            clock=returned_seconds,
        )
