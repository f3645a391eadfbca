"""CPU time of `import` and of the first lowering, each in a new process."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping

from benchmarks.harness import Subject, returned_value

GROUP = "import"
FIRST_LOWERING = "lowered = {module}.jit({module}.grad(lambda x: ({module}.numpy.sin(x) ** 2).sum())).lower(x)"


def cpu_seconds(setup: str, statement: str, environment: Mapping[str, str]) -> float:
    """Returns the CPU time of a statement in a new process, after `setup`."""
    program = f"{setup}\nimport time; start = time.process_time()\n{statement}\nprint(time.process_time() - start)"
    command = [sys.executable, "-c", program]
    return float(subprocess.run(command, capture_output=True, check=True, text=True, env=environment).stdout)


def import_seconds(module: str, environment: Mapping[str, str]) -> float:
    return cpu_seconds("", f"import {module}", environment)


def lowering_seconds(module: str, environment: Mapping[str, str]) -> float:
    """Returns the CPU time of the first lowering in a process, without imports."""
    setup = f"import numpy as np, {module}, {module}.numpy; x = np.ones(8, np.float32)"
    return cpu_seconds(setup, FIRST_LOWERING.format(module=module), environment)


def process_seconds(module: str, environment: Mapping[str, str]) -> float:
    """Returns the CPU time of the imports and the first lowering."""
    statement = f"import numpy as np, {module}, {module}.numpy; x = np.ones(8, np.float32)"
    return cpu_seconds("", f"{statement}\n{FIRST_LOWERING.format(module=module)}", environment)


def subjects() -> Iterator[Subject]:
    with tempfile.TemporaryDirectory() as cache:
        # Both libraries are imported from bytecode, which an editable installation may lack.
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache, "PYTHONDONTWRITEBYTECODE": ""}
        for module in ("tracefx", "jax"):
            import_seconds(module, environment)
        cases: list[tuple[str, Callable[[str, Mapping[str, str]], float], float]] = [
            ("import, CPU time", import_seconds, 0.4),
            ("first lowering, CPU time", lowering_seconds, 1.0),
            ("import and first lowering, CPU time", process_seconds, 1.0),
        ]
        for name, seconds, bound in cases:
            yield Subject(
                GROUP,
                name,
                functools.partial(seconds, "tracefx", environment),
                functools.partial(seconds, "jax", environment),
                bound,
                blocks=9,
                calls=1,
                clock=returned_value,
            )
