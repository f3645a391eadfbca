"""Runs programs and test suites of libraries written for JAX on JAX and on tracefx, and compares the results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np

from benchmarks.ecosystem.suites import SUITES, row

HERE = Path(__file__).parent
RESULT = HERE.parent / "results" / "ecosystem.md"
TOLERANCE = 1e-3
"""Relative: training and sampling amplify the rounding of single precision."""


def numbers(*command: str) -> np.ndarray | str:
    """Returns the numbers that a program prints last, or the last line of its error."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        return done.stderr.strip().splitlines()[-1]
    return np.array(json.loads(done.stdout.splitlines()[-1]))


def difference(program: Path) -> str:
    """Returns the largest relative difference of the numbers, or why there are none."""
    theirs, ours = numbers(str(program)), numbers("-m", "tracefx.as_jax", str(program))
    if isinstance(theirs, str):
        return f"fails on JAX: {theirs}"
    if isinstance(ours, str):
        return f"fails on tracefx: {ours}"
    return f"{np.max(np.abs(ours - theirs) / np.maximum(np.abs(theirs), TOLERANCE)):.1e}"


def main() -> None:
    """Writes the results."""
    requirements = (HERE / "requirements.txt").read_text(encoding="utf-8").split()
    installed = ", ".join([f"{name} {version(name)}" for name in (line.partition("==")[0] for line in requirements)])
    lines = [
        "# Libraries for JAX on tracefx",
        "",
        f"`make ecosystem` with {installed}. The programs are in `benchmarks/ecosystem/samples`.",
        "",
        "| program | largest relative difference from JAX |",
        "| --- | --- |",
    ]
    for program in sorted((HERE / "samples").glob("*.py")):
        lines.append(f"| `{program.name}` | {difference(program)} |")
        print(lines[-1], flush=True)
    lines += [
        "",
        "## Test suites",
        "",
        "Tests of the libraries, from their source distributions on the registry: those of the files in",
        "`benchmarks/ecosystem/suites.py` that pass on JAX, and how many of them pass on tracefx.",
        "",
        "| library | version | pass on JAX | pass on tracefx | share | the rest |",
        "| --- | --- | ---: | ---: | ---: | --- |",
    ]
    for suite in SUITES:
        lines.append(row(suite))
        print(lines[-1], flush=True)
    lines += [
        "",
        "The suites of Equinox, Lineax, Optimistix, Diffrax, jaxopt and jaxtyping are not in source distributions.",
        "Clone their repositories, install the requirements of their tests, and run them by",
        "`python -m pytest -p tracefx.interop.as_jax.pytest_plugin tests`.",
    ]
    RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
