"""Runs programs and test suites of libraries written for JAX on JAX and on tracefx, and compares the results."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.ecosystem.models import MODELS, STAGES
from benchmarks.ecosystem.suites import (
    FILE_SHARE,
    FILES,
    FOLDER,
    KILL_SECONDS,
    SECONDS,
    SUITES,
    TEST_SECONDS,
    Side,
    Suite,
    read,
    run,
    test_files,
)

HERE: Final = Path(__file__).parent
PROJECT: Final = HERE.parents[1]
RESULT: Final = HERE.parent / "results" / "ecosystem.md"
PROGRAMS: Final = FOLDER / "programs.json"
TIMES: Final = FOLDER / "times.json"
TOLERANCE: Final = 1e-3
"""Relative: training and sampling amplify the rounding of single precision."""
PROGRAM_SECONDS: Final = 180
PROCESSES: Final = 3
"""How many processes measure the times of a model on each side."""
COMMANDS: Final[dict[Side, tuple[str, ...]]] = {"jax": (), "tracefx": ("-m", "tracefx.as_jax")}


def last_line(*command: str) -> Any:
    """Returns the value that a program prints last as JSON, or the last line of its error."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    options: Any = {"capture_output": True, "text": True, "check": False, "env": environment, "cwd": PROJECT}
    try:
        done = subprocess.run([sys.executable, *command], timeout=PROGRAM_SECONDS, **options)
    except subprocess.TimeoutExpired:
        return f"it takes longer than {PROGRAM_SECONDS} s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return json.loads(done.stdout.splitlines()[-1])


def difference(program: Path) -> str:
    """Returns the largest relative difference of the numbers, or why there are none."""
    theirs, ours = [last_line(*COMMANDS[side], str(program)) for side in COMMANDS]
    for side, numbers in (("JAX", theirs), ("tracefx", ours)):
        if isinstance(numbers, str):
            return f"fails on {side}: {numbers}"
    a, b = np.array(ours), np.array(theirs)
    return f"{np.max(np.abs(a - b) / np.maximum(np.abs(b), TOLERANCE)):.1e}"


def measure() -> None:
    """Measures the times of the models, in processes of both sides by turns, and writes them."""
    found: dict[str, dict[str, list[Any]]] = {}
    for name in MODELS:
        found[name] = {"jax": [], "tracefx": []}
        for _ in range(PROCESSES):
            for side, command in COMMANDS.items():
                found[name][side].append(last_line(*command, "-m", "benchmarks.ecosystem.models", name))
        print(name, found[name], flush=True)
    TIMES.write_text(json.dumps({"load": os.getloadavg()[1], "models": found}), encoding="utf-8")


def compare() -> None:
    """Runs the programs and writes the differences of their numbers."""
    differences = {}
    for program in sorted((HERE / "samples").glob("*.py")):
        differences[program.name] = difference(program)
        print(program.name, differences[program.name], flush=True)
    PROGRAMS.write_text(json.dumps(differences), encoding="utf-8")


def run_suites(libraries: Sequence[str], limit: float) -> None:
    """Runs the suites of libraries, one process at a time, with a limit of CPU time for each."""
    for suite in SUITES:
        for side in COMMANDS if suite.library in libraries else ():
            run(suite, side, limit)
            outcomes = read(suite, side)
            assert outcomes is not None
            print(suite.library, side, len(outcomes.passed), len(outcomes.failed), round(outcomes.seconds), flush=True)


# ------------------------------------------------------------------ the page


def page() -> Iterator[str]:
    """Yields the lines of the page."""
    requirements = (HERE / "requirements.txt").read_text(encoding="utf-8").split()
    names = [line.partition("==")[0] for line in requirements]
    yield "# Libraries for JAX on tracefx"
    yield ""
    yield from paragraph(
        f"`make ecosystem` has written this page, with Python {sys.version.split()[0]} and "
        + ", ".join([f"{name} {version(name)}" for name in names])
        + "."
    )
    yield "## Programs"
    yield ""
    yield "Each program of `benchmarks/ecosystem/samples` prints numbers, on JAX and on tracefx."
    yield ""
    yield "| program | largest relative difference from JAX |"
    yield "| --- | --- |"
    for name, outcome in json.loads(PROGRAMS.read_text(encoding="utf-8")).items():
        yield f"| `{name}` | {outcome} |"
    yield ""
    yield from times()
    yield ""
    yield from suites()


def times() -> Iterator[str]:
    """Yields the section of times."""
    measured = json.loads(TIMES.read_text(encoding="utf-8"))
    yield "## Times of tracing and compilation"
    yield ""
    yield from paragraph(
        "CPU seconds of a process in which a model is traced for the first time, medians of "
        f"{PROCESSES} processes, and their ratio to those of JAX. The processes of tracefx and of JAX take turns. The "
        f"models are in `benchmarks/ecosystem/models.py`. {load_sentence([measured['load']])}"
    )
    yield "| model | " + " | ".join([f"{stage}: JAX | tracefx | ratio" for stage in STAGES]) + " |"
    yield "| --- |" + " ---: |" * 9
    for name, sides in measured["models"].items():
        failed = [f"{side}: {each}" for side, found in sides.items() for each in found if isinstance(each, str)]
        if failed:
            yield f"| {name} | {failed[0]} |" + " |" * 8
            continue
        cells = [name]
        for stage in STAGES:
            theirs, ours = [statistics.median([each[stage] for each in sides[side]]) for side in COMMANDS]
            cells += [f"{theirs:.2f}", f"{ours:.2f}", f"{ours / theirs:.2f}"]
        yield f"| {' | '.join(cells)} |"


def paragraph(*items: str) -> Iterator[str]:
    """Yields the lines of a paragraph, or of the items of a list, and an empty one."""
    for item in items:
        yield from textwrap.wrap(item, 120, subsequent_indent="  " * item.startswith("- "), break_on_hyphens=False)
    yield ""


def load_sentence(loads: list[float]) -> str:
    """Returns a sentence about how busy the machine was."""
    low, high = f"{min(loads):.1f}", f"{max(loads):.1f}"
    between = low if low == high else f"between {low} and {high}"
    return f"The load average of the machine, which has {os.cpu_count()} cores, was {between}."


def suites() -> Iterator[str]:
    """Yields the section of the test suites."""
    yield "## Test suites"
    yield ""
    ran = [found for suite in SUITES for side in COMMANDS if (found := read(suite, side)) is not None]
    limit = max([found.limit for found in ran], default=0.0)
    yield from paragraph(
        "Tests of the libraries, from their source distributions on the registry, run on JAX and on tracefx in the "
        "same environment, one process at a time. " + load_sentence([found.load for found in ran] or [0.0])
    )
    yield from paragraph(
        "- Files: all files whose names are those of tests are ordered by the SHA-256 digests of their paths, and the "
        f"first {FILES} are run, in this order. So results have no influence on the choice.",
        f"- Limits, the same on both sides: a process starts no test after {limit:.0f} s of CPU time, without "
        f"imports, and a file none after {limit / FILE_SHARE:.0f} s; a test that takes {TEST_SECONDS} s fails; a "
        f"process is killed after {KILL_SECONDS} s of wall time.",
        "- XLA does not optimize, on both sides.",
        "- Counted are the tests that pass on JAX. Those that tracefx did not reach within the limits, or that have "
        "another name there, are not in the share.",
    )
    columns = "library", "version", "files", "tests in them", "pass on JAX", "reached on tracefx", "pass on tracefx"
    yield f"| {' | '.join(columns)} | share | seconds |"
    yield "| --- | --- |" + " ---: |" * 7
    explained: list[str] = []
    for suite in SUITES:
        line, failures = summary(suite)
        yield line
        explained += failures
    yield ""
    yield "Seconds are those of wall time, on JAX and on tracefx."
    yield ""
    yield "## Tests that pass on JAX only"
    yield ""
    yield "| library | tests | reason |"
    yield "| --- | ---: | --- |"
    yield from explained
    yield ""
    yield "## Suites that are not in source distributions"
    yield ""
    yield from paragraph(
        "Those of Equinox, Lineax, Optimistix, Diffrax, jaxopt and jaxtyping are not. Clone their repositories, "
        "install the requirements of their tests, and run"
    )
    yield "```console"
    yield "$ python -m pytest -p tracefx.interop.as_jax.pytest_plugin tests"
    yield "```"


def summary(suite: Suite) -> tuple[str, list[str]]:
    """Returns the line of a suite, and the lines that explain its failures."""
    theirs, ours = read(suite, "jax"), read(suite, "tracefx")
    if theirs is None or ours is None:
        return f"| {suite.library} | {version(suite.library)} | not run | | | | | | |", []
    files = test_files(suite)
    passed, failed = theirs.passed & ours.passed, theirs.passed & ours.failed.keys()
    reached = len(passed) + len(failed)
    cells = [
        suite.library,
        version(suite.library),
        f"{min(len(files), FILES)} of {len(files)}",
        str(theirs.collected),
        str(len(theirs.passed)),
        str(reached),
        str(len(passed)),
        f"{100 * len(passed) / reached:.1f} %" if reached else "no test was run: an error of the suite",
        f"{theirs.seconds:.0f}, {ours.seconds:.0f}",
    ]
    reasons = Counter(explanation(suite, name, ours.failed[name]) for name in sorted(failed))
    return f"| {' | '.join(cells)} |", [f"| {suite.library} | {n} | {reason} |" for reason, n in reasons.items()]


def explanation(suite: Suite, name: str, message: str) -> str:
    """Returns why a test fails: the known reason, or its name and its error."""
    cell = f"not explained: `{name}`: {message}".replace("|", "\\|")
    return suite.reason(f"{name} {message}") or cell


def main() -> None:
    """Runs all, or what is asked for, and writes the page."""
    parser = argparse.ArgumentParser("python -m benchmarks.ecosystem", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="the limit of CPU time for each suite")
    parts = ["programs", "times", *[suite.library for suite in SUITES]]
    parser.add_argument(
        "parts", nargs="*", help=f"what is run, all by default; the others keep their outcomes: {parts}"
    )
    arguments = parser.parse_args()
    start, chosen = time.monotonic(), arguments.parts or parts
    FOLDER.mkdir(parents=True, exist_ok=True)
    if "programs" in chosen:
        compare()
    if "times" in chosen:
        measure()
    run_suites(chosen, arguments.seconds)
    print(f"{(time.monotonic() - start) / 60:.0f} min")
    RESULT.write_text("\n".join(page()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
