"""Compiles tracefx's functions for a GPU, without needing one: `python -m tests.gpu.compiling`.

For each public function it compiles one program with all calls of the function's test record, one with its first call
in every other dtype, and one with its gradients. It also compiles the decompositions with each set of options, matrix
products and convolutions in each dtype, whole models, callbacks to Python and collectives. If XLA rejects a program,
each of its calls is compiled separately and the rejected ones are listed.

The exit status is 1 if a rejection is not listed in `KNOWN`.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

DEVICES: Final = 4
KNOWN: Final[Mapping[str, str]] = {
    "calls LAPACK": "LAPACK has it, GPU libraries do not",
    "is not supported on": "GPU libraries do not have this variant",
    "Unsupported algorithm on the current device": "NVIDIA's GPUs have no such multiplication",
}
"""Known rejections: a part of the error message, mapped to the reason."""


# ------------------------------------------------------------------ worker process


def work(start: int, every: int, only: Sequence[str]) -> None:
    """Compiles the selected programs one after another and prints a line of JSON for each."""
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    os.environ["JAX_PLATFORMS"] = "cpu"
    offline, source = [importlib.import_module(f"tests.gpu.{name}") for name in ("offline", "programs")]
    compiler = offline.Compiler.of(count=DEVICES)

    def refusal(calls: Sequence[Any], over_devices: bool) -> str | None:
        """Returns XLA's error for a program of these calls, or None if it compiles."""
        try:
            lowered = source.lowered(calls, over_devices)
            compiler.compile(lowered.module)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return None

    for i, program in enumerate(source.programs()):
        if i < start or i % every or (only and program.group not in only):
            continue
        _say(place=i, group=program.group, name=program.name)
        calls = {}
        for label, make in program.calls:
            try:
                calls[label] = make()
            except Exception as error:  # e.g. a dtype that the function does not accept
                sys.stderr.write(f"{program.name} {label}: {error}\n")
        if not calls:
            continue
        began = time.monotonic()
        refused = {}
        why = refusal(list(calls.values()), program.over_devices)
        if why is not None:
            each = {label: refusal([call], program.over_devices) for label, call in calls.items()}
            refused = {label: text for label, text in each.items() if text is not None} or {"together": why}
        seconds = time.monotonic() - began
        _say(place=i, group=program.group, name=program.name, calls=len(calls), seconds=seconds, refused=refused)


def _say(**fields: Any) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


# ------------------------------------------------------------------ the command


def run(every: int, only: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yields the reports of the workers. A program that crashes its worker is rejected; a new worker continues."""
    start = 0
    while True:
        command = [sys.executable, "-m", "tests.gpu.compiling", "--work", str(start), "--every", str(every)]
        command += ["--only", *only] if only else []
        last: dict[str, Any] = {}
        with tempfile.TemporaryFile("w+") as stderr:
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as worker:
                for line in worker.stdout or ():
                    last = json.loads(line)
                    if "calls" in last:
                        yield last
            if not worker.returncode:
                return
            if not last or "calls" in last:
                stderr.seek(0)
                raise SystemExit("".join(stderr.readlines()[-10:]))
        yield {**last, "calls": 1, "seconds": 0.0, "refused": {"": f"XLA ended the process: {worker.returncode}"}}
        start = last["place"] + 1


def reason(message: str) -> str | None:
    """Returns the known reason for a rejection, or None."""
    return next((why for pattern, why in KNOWN.items() if pattern in message), None)


def report(results: Sequence[Mapping[str, Any]]) -> str:
    groups: dict[str, list[Mapping[str, Any]]] = collections.defaultdict(list)
    for each in results:
        groups[each["group"]].append(each)
    lines = ["| | programs | calls in them | rejected | seconds |", "|-|-:|-:|-:|-:|"]
    for group, entries in groups.items():
        calls, refused = sum(e["calls"] for e in entries), sum(len(e["refused"]) for e in entries)
        lines.append(f"| {group} | {len(entries)} | {calls} | {refused} | {sum(e['seconds'] for e in entries):.0f} |")
    rejected = [
        f"- {each['group']}: {' '.join([each['name'], label]).strip()}: "
        f"{reason(message) or ' '.join(message.split())[:300]}"
        for each in results
        for label, message in each["refused"].items()
    ]
    lines += ["", "The rejected calls, with the reasons:", "", "<details markdown>"]
    lines += [f"<summary>{len(rejected)} calls</summary>", "", *rejected, "", "</details>"]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.gpu.compiling", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one program of N")
    parser.add_argument("--only", nargs="+", default=[], metavar="GROUP", help="some groups of programs")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where the report is written, too")
    parser.add_argument("--work", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work is not None:
        work(options.work, options.every, options.only)
        return
    results = []
    with contextlib.suppress(KeyboardInterrupt):  # then it reports the programs compiled so far
        for each in run(options.every, options.only):
            results.append(each)
            if len(results) % 50 == 0:
                sys.stderr.write(f"{len(results)} programs, now {each['group']}: {each['name']}\n")
    text = report(results)
    sys.stdout.write(text)
    if options.out is not None:
        options.out.write_text(_heading() + text)
    if any(reason(message) is None for each in results for message in each["refused"].values()):
        raise SystemExit(1)


def _heading() -> str:
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("jaxlib", "jax-cuda12-plugin")]
    return f"""# What XLA compiles for a GPU

    python -m tests.gpu.compiling

{", ".join(versions)}. Compiled without a GPU, for the description of an H200 (compute capability 9.0); nothing
ran. A program makes all calls of one function, or of one kind; XLA compiled it to device code, and programs over
several devices for {DEVICES} devices. The machine was shared, so seconds are approximate.

"""


if __name__ == "__main__":
    main()
