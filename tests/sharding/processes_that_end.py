"""Parts of `processes.py` in which processes end otherwise than they should, and what starts any of the parts.

Apart from it since many of these are started, and what they import is most of what they take.
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
DONE: Final = "all is as it should be"


def initialize(i: int, n: int, port: str, **options: object) -> None:
    given: dict[str, Any] = {"initialization_timeout": 60, "heartbeat_timeout_seconds": 30, **options}
    fx.distributed.initialize(f"127.0.0.1:{port}", n, i, **given)


def dying(i: int, n: int, port: str) -> None:
    """Process DEAD is killed, the others wait for it in a program."""
    initialize(i, n, port, heartbeat_timeout_seconds=2)
    mesh = fx.make_mesh((fx.device_count(),), ("x",))
    x = fx.device_put(np.ones(8, np.float32), fx.NamedSharding(mesh, fx.P("x")))
    assert float(fx.jit(fnp.sum)(x)) == 8.0
    if i == int(os.environ["DEAD"]):
        os._exit(9)
    sys.stdout.write(f"{float(fx.jit(fnp.max)(x))} came although nobody was there\n")
    time.sleep(60)


def failing(i: int, n: int, port: str) -> None:
    """Process DEAD raises an error, the others do something else for long."""
    initialize(i, n, port, heartbeat_timeout_seconds=2)
    assert fx.process_count() == n
    if i == int(os.environ["DEAD"]):
        raise ValueError("this one went wrong")
    time.sleep(60)


def leaving(i: int, n: int, port: str) -> None:
    """Process 1 waits for the others, but not for long."""
    initialize(i, n, port, shutdown_timeout_seconds=1 if i == 1 else 60)
    assert fx.process_count() == n
    tired = Path(os.environ["TIRED"])
    while i == 0 and not tired.exists():
        time.sleep(0.05)
    said = ""
    try:
        fx.distributed.shutdown()
    except fx.distributed.DistributedError as error:
        said = str(error)
    assert f"shutdown: not all of {n} processes shut down" in said
    tired.touch()


PARTS: Final[dict[str, Part]] = {f.__name__: f for f in (dying, failing, leaving)}


def run(parts: Mapping[str, Part]) -> None:
    """One part, in one of the processes: as the command line says."""
    part, index, count, at = sys.argv[1:]
    parts[part](int(index), int(count), at)
    sys.stdout.write(f"{DONE}\n")


if __name__ == "__main__":
    run(PARTS)
