"""Compiles for a GPU, which need not be there, what tracefx has: `python -m tests.gpu.compiling`.

One program for each public function, of all calls that its record has; one of its first call in every other dtype; one
of the gradients. Then the decompositions in each form, products and convolutions in each dtype, whole models, calls of
Python functions, and collectives over devices. What XLA refuses is compiled again call by call, and listed.

The exit status is 1 if something is refused that is not known to be.
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
    "calls LAPACK": "LAPACK has it, and no library of GPUs",
    "is not supported on": "no library of GPUs has this way",
    "Unsupported algorithm on the current device": "NVIDIA's GPUs have no such way to multiply",
}
"""What may be in a message that refuses a program, and why it is refused."""


# ------------------------------------------------------------------ a worker


def work(start: int, every: int, only: Sequence[str]) -> None:
    """Compiles one program after another, of some groups or of all; a line of JSON for each."""
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    os.environ["JAX_PLATFORMS"] = "cpu"
    offline, source = [importlib.import_module(f"tests.gpu.{name}") for name in ("offline", "programs")]
    compiler = offline.Compiler.of(count=DEVICES)

    def refusal(calls: Sequence[Any], over_devices: bool) -> str | None:
        """Why a program of these calls is refused, if it is."""
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
            except Exception as error:  # of calls in a dtype that the function doesn't take
                sys.stderr.write(f"{program.name} {label}: {error}\n")
        if not calls:
            continue
        began = time.monotonic()
        refused = {}
        why = refusal(list(calls.values()), program.over_devices)
        if why is not None:
            each = {label: refusal([made], program.over_devices) for label, made in calls.items()}
            refused = {label: text for label, text in each.items() if text is not None} or {"together": why}
        seconds = time.monotonic() - began
        _say(place=i, group=program.group, name=program.name, calls=len(calls), seconds=seconds, refused=refused)


def _say(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


# ------------------------------------------------------------------ the command


def run(every: int, only: Sequence[str]) -> Iterator[dict[str, Any]]:
    """What workers say of all programs. One that takes XLA down with it is refused, and the next worker goes on."""
    start = 0
    while True:
        command = [sys.executable, "-m", "tests.gpu.compiling", "--work", str(start), "--every", str(every)]
        command += ["--only", *only] if only else []
        last: dict[str, Any] = {}
        with tempfile.TemporaryFile("w+") as said:
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True) as worker:
                for line in worker.stdout or ():
                    last = json.loads(line)
                    if "calls" in last:
                        yield last
            if not worker.returncode:
                return
            if not last or "calls" in last:
                said.seek(0)
                raise SystemExit("".join(said.readlines()[-10:]))
        yield {**last, "calls": 1, "seconds": 0.0, "refused": {"": f"XLA ended the process: {worker.returncode}"}}
        start = last["place"] + 1


def reason(message: str) -> str | None:
    """Why something is refused, if that is known."""
    return next((why for words, why in KNOWN.items() if words in message), None)


def report(found: Sequence[Mapping[str, Any]]) -> str:
    groups: dict[str, list[Mapping[str, Any]]] = collections.defaultdict(list)
    for each in found:
        groups[each["group"]].append(each)
    lines = ["| | programs | calls in them | refused | seconds |", "|-|-:|-:|-:|-:|"]
    for group, those in groups.items():
        calls, refused = sum(e["calls"] for e in those), sum(len(e["refused"]) for e in those)
        lines.append(f"| {group} | {len(those)} | {calls} | {refused} | {sum(e['seconds'] for e in those):.0f} |")
    lines += ["", "Refused:", ""]
    for each in found:
        for label, message in each["refused"].items():
            why = reason(message) or " ".join(message.split())[:300]
            lines.append(f"- {each['group']}: {' '.join([each['name'], label]).strip()}: {why}")
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
    found = []
    with contextlib.suppress(KeyboardInterrupt):  # after which it reports on what it got to
        for each in run(options.every, options.only):
            found.append(each)
            if len(found) % 50 == 0:
                sys.stderr.write(f"{len(found)} programs, now {each['group']}: {each['name']}\n")
    text = report(found)
    sys.stdout.write(text)
    if options.out is not None:
        options.out.write_text(_heading() + text)
    if any(reason(message) is None for each in found for message in each["refused"].values()):
        raise SystemExit(1)


def _heading() -> str:
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("jaxlib", "jax-cuda12-plugin")]
    return f"""# What XLA compiles for a GPU

    python -m tests.gpu.compiling

{", ".join(versions)}. No GPU was there: an H200 (compute capability 9.0) was described to XLA, and nothing
ran. A program makes all calls of one function, or of one kind; XLA compiled it to the device's code, and those of
several devices to that of {DEVICES}. Seconds are of a machine that others used, too.

"""


if __name__ == "__main__":
    main()
