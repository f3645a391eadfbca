"""Memory of the process: what closed-over constants and asynchronous calls add to it, in bytes.

Each figure is measured in a new process by the resident set size, which Linux gives.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.harness import Subject, returned_value

GROUP = "memory"
STEPS: Final = 20_000

_SETUP: Final = """
import pathlib
import numpy as np
import {name} as library
import {name}.numpy as numpy

def memory():
    status = pathlib.Path("/proc/self/status").read_text().splitlines()
    sizes = {{line.partition(":")[0]: line.split()[1] for line in status if line.endswith(" kB")}}
    return 1024 * int(sizes["{field}"])
"""
_CONSTANT: Final = """
constant = np.arange(25_000_000, dtype=np.float32)
function = library.jit(lambda x: (constant * x).sum() + (constant + x).max() + (constant - x).min())
library.jit(lambda x: x + 1)(1.0).block_until_ready()
before = memory()
function(2.0).block_until_ready()
print(memory() - before)
"""
_STEPS: Final = """
step = library.jit(lambda x: x + 1)
def run(x, steps):
    for _ in range(steps):
        x = step(x)
    x.block_until_ready()
x = numpy.zeros(16)
run(x, 2_000)
before = memory()
run(x, {steps})
print((memory() - before) / {steps})
"""


def added_bytes(name: str, program: str, field: str) -> float:
    """Runs a program with one of the libraries in a new process; returns the bytes that it prints, at least 1.

    Args:
        name: The name of the library.
        program: The program, which follows `_SETUP`.
        field: The field of /proc/self/status: `VmRSS` for the memory in use, `VmHWM` for its maximum.
    """
    text = (_SETUP + program).format(name=name, field=field, steps=STEPS)
    root = Path(__file__).parent.parent
    command = [sys.executable, "-c", text]
    run = subprocess.run(command, capture_output=True, check=True, text=True, env=os.environ, cwd=root)
    return max(1.0, float(run.stdout))


def subjects() -> Iterator[Subject]:
    for name, program, field in (
        ("a constant of 100 MB, used three times", _CONSTANT, "VmHWM"),
        (f"each of {STEPS:,} asynchronous calls", _STEPS, "VmRSS"),
    ):
        ours, theirs = (functools.partial(added_bytes, n, program, field) for n in ("tracefx", "jax"))
        yield Subject(GROUP, name, ours, theirs, 1.0, blocks=5, calls=1, clock=returned_value, unit="B")
