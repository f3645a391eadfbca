"""Trains a small GPT on several devices: `python -m demo.parallel [--shard-map] [--processes N] [--steps N]`.

The text is this project's license. Eight devices are simulated on this machine, in a mesh of four along `data` and two
along `model`; with `--processes 2`, each of two processes has four of them. The losses equal those of one device.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

import tracefx as fx
from demo.parallel.model import Sizes, loss
from demo.parallel.training import mapped_loss, train
from tracefx.sharding import AxisType

DEVICES = 8


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m demo.parallel", description="Train a small GPT on several devices.")
    parser.add_argument("--shard-map", action="store_true", help="use shard_map instead of jit with shardings")
    parser.add_argument("--one-device", action="store_true", help="use one device")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--processes", type=int, default=1, help="a divisor of 8")
    parser.add_argument("--process", help="HOST:PORT/INDEX: coordinator and process index, set by the first process")
    options = parser.parse_args(arguments)

    if options.processes > 1 and options.process is None:
        start(options.processes, sys.argv[1:] if arguments is None else arguments)
        return
    flag = f"--xla_force_host_platform_device_count={DEVICES // options.processes}"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}"
    if options.process is not None:
        address, index = options.process.split("/")
        fx.distributed.initialize(address, options.processes, int(index))
    mesh = None if options.one_device else fx.make_mesh((DEVICES // 2, 2), ("data", "model"), (AxisType.Auto,) * 2)
    started = time.perf_counter()
    losses = train(
        Sizes(), 64, options.steps, mesh, mapped_loss(mesh) if options.shard_map and mesh is not None else loss
    )
    if fx.process_index() == 0:
        for i in range(0, options.steps, max(options.steps // 10, 1)):
            print(f"step {i:4}  loss {losses[i]:.5f}")
        print(f"step {options.steps - 1:4}  loss {losses[-1]:.5f}  {time.perf_counter() - started:.1f} s")
    fx.distributed.shutdown()


def start(processes: int, arguments: Sequence[str]) -> None:
    """Runs this program in several processes and waits for them."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "demo.parallel", *arguments, "--process"]
    running = [subprocess.Popen([*command, f"127.0.0.1:{port}/{i}"]) for i in range(processes)]
    codes = [process.wait() for process in running]
    if any(codes):
        sys.exit(1)


if __name__ == "__main__":
    main()
