"""Test suites of libraries for JAX, from their source distributions, on JAX and on tracefx."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final, Literal, TypeAlias

from attrs import field, frozen

FOLDER: Final = (Path("build") / "ecosystem").absolute()
"""The folder of source distributions and outcomes."""
FILES: Final = 24
"""The largest number of test files of a library."""
SECONDS: Final = 60.0
"""By default, a process skips its other tests after so many seconds of CPU time, without imports."""
FILE_SHARE: Final = 5
"""The other tests of a file are skipped after this share of the CPU time of a process."""
TEST_SECONDS: Final = 20
"""A test that takes more CPU time fails."""
KILL_SECONDS: Final = 240
"""A process that takes more wall time is killed; the test that runs has then failed."""

XLA_FLAGS: Final = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
"""Disables optimizations for both libraries, because nearly every program of a test runs once."""

Side: TypeAlias = Literal["jax", "tracefx"]
PLUGINS: Final[Mapping[Side, tuple[str, ...]]] = {"jax": (), "tracefx": ("tracefx.interop.as_jax.pytest_plugin",)}


@frozen
class Suite:
    """The tests of a library.

    Args:
        library: The name of its distribution.
        folder: The folder of its source distribution that has the test files.
        reasons: Why tests that pass on JAX fail on tracefx: a regular expression for the name of a test and the first
            line of its error, which are separated by a space, and the reason.
    """

    library: str
    folder: str
    reasons: Mapping[str, str] = field(factory=dict)

    def reason(self, failure: str) -> str:
        """Returns the reason of a failure, which is the name of a test and its error; "" if none is known."""
        return next((reason for pattern, reason in self.reasons.items() if re.search(pattern, failure)), "")


SUITES: Final = (
    Suite("optax", "optax"),
    Suite(
        "chex",
        "chex",
        {
            r"test_checkify_errors .* does not match": "words of messages",
            r"test_is_traceable__with_jit|test_incorrect_ordering": (
                "chex recognizes jitted functions by the text of their type"
            ),
            r"test_not_less_than\d .* does not match": "words of messages",
            r"test_log_abs_fn_\w+ .*at batch index": "messages of checks name the index that failed",
        },
    ),
    Suite("flax", "tests"),
    Suite(
        "numpyro",
        "test",
        {
            r"test_biject_to_cat_constraint": "3e-8 in place of 0, which `allclose` does not accept: rounding",
            r"test_reshape_transform_invalid .*Regex pattern did not match": "words of messages",
        },
    ),
    Suite("blackjax", "tests", {r"test_non_symmetric_proposal": "a relative difference of 1.5e-7: rounding"}),
    Suite("distrax", "distrax"),
    Suite(
        "dm-haiku",
        "haiku",
        {
            r"jaxpr_info_test": "the operations that programs consist of, which differ from JAX's",
            r"test_cond_branch_structure_error .* does not match": "words of messages",
        },
    ),
    Suite("mctx", "mctx"),
    Suite("einops", "einops"),
)


def source(library: str) -> Path:
    """Returns the folder of the source distribution of the installed version, which is downloaded once."""
    name = f"{library.replace('-', '_')}-{version(library)}"
    if not (FOLDER / name).exists():
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-binary", ":all:", "--no-deps"]
        subprocess.run([*pip, "--dest", str(FOLDER), f"{library}=={version(library)}"], check=True)
        with tarfile.open(FOLDER / f"{name}.tar.gz") as archive:
            archive.extractall(FOLDER, filter="data")
    return FOLDER / name


def test_files(suite: Suite) -> list[str]:
    """Returns the paths of all test files of a library, ordered by the SHA-256 digests of the paths."""
    root = source(suite.library)
    found = [path.relative_to(root).as_posix() for path in (root / suite.folder).rglob("*.py")]
    tests = [path for path in found if re.search(r"/test_[^/]*$|_test\.py$", path)]
    return sorted(tests, key=lambda path: hashlib.sha256(path.encode()).hexdigest())


@frozen
class Outcomes:
    """The outcomes of the tests of one process.

    Args:
        collected: The number of tests in its files.
        passed: The names of the tests that passed.
        failed: The errors of the tests that failed, by their names.
        seconds: The wall time.
        limit: The limit of CPU time, in seconds.
        load: The load average of the machine at the end, over 5 minutes.
    """

    collected: int
    passed: frozenset[str]
    failed: Mapping[str, str]
    seconds: float
    limit: float
    load: float


def outcomes_file(suite: Suite, side: Side) -> Path:
    """Returns the file that the outcomes of a suite are written to."""
    return FOLDER / f"{suite.library}-{side}.jsonl"


def run(suite: Suite, side: Side, limit: float) -> None:
    """Runs the files of a suite in one process and writes the outcomes.

    Args:
        suite: The suite.
        side: The library that it runs on.
        limit: The limit of CPU time, in seconds.
    """
    file = outcomes_file(suite, side)
    file.unlink(missing_ok=True)
    limits = [f"--seconds={limit}", f"--file-seconds={limit / FILE_SHARE}", f"--test-seconds={TEST_SECONDS}"]
    plugins = [option for plugin in (*PLUGINS[side], "record_outcomes") for option in ("-p", plugin)]
    settings = ["-W", "ignore", "-c", os.devnull, f"--rootdir={source(suite.library)}", "-p", "no:cacheprovider"]
    options = ["-q", "--continue-on-collection-errors", f"--outcomes={file}", *limits, *settings]
    command = [sys.executable, "-m", "pytest", *plugins, *options, *test_files(suite)[:FILES]]
    path = os.pathsep.join([str(Path(__file__).parent / "plugins"), os.environ.get("PYTHONPATH", "")])
    fast = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": XLA_FLAGS, "EINOPS_TEST_BACKENDS": "numpy,jax"}
    environment = {**os.environ, **fast, "PYTHONPATH": path.rstrip(os.pathsep)}
    start = time.monotonic()
    with file.with_suffix(".log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(command, cwd=source(suite.library), env=environment, stdout=log, stderr=log)
        try:
            process.wait(KILL_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    ended = {"event": "ended", "seconds": time.monotonic() - start, "limit": limit, "load": os.getloadavg()[1]}
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(ended) + "\n")


def read(suite: Suite, side: Side) -> Outcomes | None:
    """Returns the outcomes of a suite, without addresses in names; None if it has not been run."""
    file = outcomes_file(suite, side)
    if not file.exists():
        return None
    collected, seconds, limit, load = 0, 0.0, 0.0, 0.0
    last: dict[str, tuple[str, str]] = {}
    for event in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
        if event["event"] == "collected":
            collected = int(event["test"])
        elif event["event"] == "ended":
            seconds, limit, load = event["seconds"], event["limit"], event["load"]
        else:
            name = re.sub(r"0x[0-9a-f]+", "0x", event["test"])
            if last.get(name, ("",))[0] != "failed":
                last[name] = event["event"], event["message"]
    passed = frozenset(name for name, (event, _) in last.items() if event == "passed")
    failed = {name: message for name, (event, message) in last.items() if event == "failed"}
    stopped = {name: "the process was killed" for name, (event, _) in last.items() if event == "started"}
    return Outcomes(collected, passed, {**failed, **stopped}, seconds, limit, load)
