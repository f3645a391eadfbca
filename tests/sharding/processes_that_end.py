"""Parts of `processes.py` in which a process ends abnormally, and the function that runs a part.

A separate module because the tests start many of these processes, whose time is mostly spent on imports.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

import tracefx as fx
import tracefx.numpy as fnp

Part: TypeAlias = Callable[[int, int, str], None]
DONE: Final = "all checks passed"


def initialize(i: int, n: int, port: str, **options: object) -> None:
    arguments: dict[str, Any] = {"initialization_timeout": 60, "heartbeat_timeout_seconds": 30, **options}
    fx.distributed.initialize(f"127.0.0.1:{port}", n, i, **arguments)


def killed(i: int, n: int, port: str) -> None:
    """Process DEAD is killed while the other one waits for it in a collective."""
    initialize(i, n, port, heartbeat_timeout_seconds=2)
    mesh = fx.make_mesh((fx.device_count(),), ("x",))
    x = fx.device_put(np.ones(8, np.float32), fx.NamedSharding(mesh, fx.P("x")))
    assert float(fx.jit(fnp.sum)(x)) == 8.0
    if i == int(os.environ["DEAD"]):
        os._exit(9)
    sys.stdout.write(f"{float(fx.jit(fnp.max)(x))} came although nobody was there\n")
    time.sleep(60)


def raising(i: int, n: int, port: str) -> None:
    """Process DEAD raises an error while the other one is busy for a long time."""
    initialize(i, n, port, heartbeat_timeout_seconds=2)
    assert fx.process_count() == n
    if i == int(os.environ["DEAD"]):
        raise ValueError("this one went wrong")
    time.sleep(60)


def timing_out(i: int, n: int, port: str) -> None:
    """Process 1 waits for the others at shutdown, with a short timeout."""
    initialize(i, n, port, shutdown_timeout_seconds=1 if i == 1 else 60)
    assert fx.process_count() == n
    gave_up = Path(os.environ["TIRED"])
    while i == 0 and not gave_up.exists():
        time.sleep(0.05)
    message = ""
    try:
        fx.distributed.shutdown()
    except fx.distributed.DistributedError as error:
        message = str(error)
    assert f"shutdown: not all of {n} processes shut down" in message
    gave_up.touch()


PARTS: Final[dict[str, Part]] = {f.__name__: f for f in (killed, raising, timing_out)}


def run(parts: Mapping[str, Part]) -> None:
    """Runs the part that the command line names, in this process."""
    part, index, count, port = sys.argv[1:]
    parts[part](int(index), int(count), port)
    sys.stdout.write(f"{DONE}\n")


if __name__ == "__main__":
    run(PARTS)
