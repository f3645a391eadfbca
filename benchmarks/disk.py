"""The first call of a training step whose executable is in the compilation cache on disk."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import tracefx as fx
import tracefx.numpy as fnp
from benchmarks.harness import Subject, returned_value
from benchmarks.training import batch, parameters, step_of

GROUP = "disk"


def first_call(library: str) -> float:
    """Returns the seconds of the first call in this process."""
    if library == "tracefx":
        return seconds(fx.jit(step_of(fnp, fx.value_and_grad, 0.1)), fx.device_put, fx.block_until_ready)
    return seconds(jax.jit(step_of(jnp, jax.value_and_grad, 0.1)), jax.device_put, jax.block_until_ready)


def seconds(step: Callable[..., object], put: Callable[[Any], Any], wait: Callable[[Any], Any]) -> float:
    x = wait(put((parameters(), *batch())))  # loads XLA
    gc.collect()
    gc.disable()  # as in the harness
    start = time.perf_counter()
    wait(step(*x))
    return time.perf_counter() - start


def in_new_process(library: str, environment: Mapping[str, str]) -> float:
    command = [sys.executable, "-m", "benchmarks.disk", library]
    root = Path(__file__).parent.parent
    return float(subprocess.run(command, capture_output=True, check=True, text=True, env=environment, cwd=root).stdout)


def subjects() -> Iterator[Subject]:
    with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as theirs:
        environment = {
            **os.environ,
            "TRACEFX_COMPILATION_CACHE_DIR": ours,
            "JAX_COMPILATION_CACHE_DIR": theirs,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",  # otherwise JAX does not store such small programs
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }

        def run(library: str) -> Callable[[], float]:
            in_new_process(library, environment)  # fills the cache
            return lambda: in_new_process(library, environment)

        yield Subject(
            GROUP,
            "first call of an MLP step, executable on disk",
            run("tracefx"),
            run("jax"),
            0.8,
            blocks=9,
            calls=1,
            clock=returned_value,
        )


if __name__ == "__main__":
    print(first_call(sys.argv[1]))
