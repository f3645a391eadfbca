"""Programs over several processes on this machine, and what happens when one of the processes dies."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from attrs import frozen

import tracefx as fx
from tests.laws.examples import is_long_profile
from tests.sharding import processes_that_end
from tests.sharding.processes_that_end import DONE
from tests.versions import LOG_OF_DEVICE_ORDERS
from tracefx.errors import DistributedError
from tracefx.xla.runtime.rendezvous import ProcessInfo, host_rendezvous, join_rendezvous

PROJECT: Final = Path(__file__).parents[2]
TIMEOUT: Final = 120
"""Seconds after which processes count as hanging; long, because the machine may be busy."""


@frozen
class ProcessResult:
    """The exit code and the output of a process."""

    code: int | None
    """None if the process had to be killed."""
    out: str
    err: str


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def run_processes(part: str, count: int, devices: int, **variables: str) -> list[ProcessResult]:
    """Runs a part of `processes.py` in `count` processes with `devices` devices each; waits until all have ended."""
    module = "processes_that_end" if part in processes_that_end.PARTS else "processes"
    port = str(free_port())
    previous_flags = os.environ.get("XLA_FLAGS", "").split()
    flags = [flag for flag in previous_flags if "device_count" not in flag]
    flags.append(f"--xla_force_host_platform_device_count={devices}")
    paths = [str(PROJECT / "src"), str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "XLA_FLAGS": " ".join(flags), "PYTHONPATH": os.pathsep.join(paths), **variables}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", f"tests.sharding.{module}", part, str(i), str(count), port],
            cwd=PROJECT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(count)
    ]
    deadline = time.monotonic() + TIMEOUT
    try:
        with ThreadPoolExecutor(count) as pool:  # no process may block on a full output pipe
            return list(pool.map(lambda p: _wait_for(p, deadline), processes))
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _wait_for(process: subprocess.Popen[str], deadline: float) -> ProcessResult:
    try:
        out, err = process.communicate(timeout=max(deadline - time.monotonic(), 0.1))
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        return ProcessResult(None, out, err)
    return ProcessResult(process.returncode, out, err)


def format_output(ended: Sequence[ProcessResult]) -> str:
    """The output of all processes, for the messages of failed assertions."""
    return "\n".join(
        [f"--- process {i} ended with {e.code}\n{e.out}\n--- stderr\n{e.err}" for i, e in enumerate(ended)]
    )


starts_processes: Final = pytest.mark.skipif(not is_long_profile(), reason="`make slow` starts several processes")


@starts_processes
@pytest.mark.parametrize(("count", "devices"), [(2, 2), (4, 1)])
def test_programs_over_processes_match_one_process(count: int, devices: int) -> None:
    ended = run_processes("all_checks", count, devices)
    assert [e.code for e in ended] == [0] * count, format_output(ended)
    assert all(DONE in e.out and not LOG_OF_DEVICE_ORDERS.sub("", e.err) for e in ended), format_output(ended)


def run_with_each_dead(part: str) -> list[tuple[ProcessResult, ProcessResult]]:
    """Runs two processes twice: the first one dies, then the second. Returns pairs (dead process, other process)."""
    with ThreadPoolExecutor(2) as pool:  # the processes mostly wait
        first, second = pool.map(lambda dead: run_processes(part, 2, 1, DEAD=str(dead)), (0, 1))
    return [(first[0], first[1]), (second[1], second[0])]


@starts_processes
def test_killed_process_ends_the_other_with_an_error() -> None:
    for dead, other in run_with_each_dead("killed"):
        output = format_output([dead, other])
        assert dead.code == 9, output
        assert other.code not in (0, None), output
        assert "another task died" in other.err or "ExecutionError" in other.err, output
        assert "came although" not in other.out, output


@starts_processes
def test_error_in_one_process_ends_the_other_with_an_error() -> None:
    for dead, other in run_with_each_dead("raising"):
        output = format_output([dead, other])
        assert dead.code == 1, output
        assert dead.err.endswith("ValueError: this one went wrong\n"), output
        assert other.code not in (0, None), output
        assert "another task died" in other.err, output


@starts_processes
def test_shutdown_timeout_raises_an_error(tmp_path: Path) -> None:
    ended = run_processes("timing_out", 2, 1, TIRED=str(tmp_path / "tired"))
    assert [e.code for e in ended] == [0, 0], format_output(ended)


@starts_processes
def test_processes_share_the_compilation_cache(tmp_path: Path) -> None:
    ended = run_processes("shared_cache", 2, 1, KEPT=str(tmp_path))
    assert [e.code for e in ended] == [0, 0], format_output(ended)
    assert list(tmp_path.iterdir())


# ------------------------------------------------------------------ rendezvous


@contextmanager
def rendezvous(count: int, *others: ProcessInfo, seconds: float = 10.0) -> Iterator[list[Future[str | None]]]:
    """Runs the rendezvous of process 0 of `count`, and of `others`, in threads."""
    address = f"127.0.0.1:{free_port()}"
    with ThreadPoolExecutor(len(others) + 1) as pool:
        first: Callable[[], str | None] = lambda: host_rendezvous(address, ProcessInfo(0, count, "v"), seconds)  # noqa: E731
        futures: list[Future[str | None]] = [pool.submit(first)]
        for info in others:
            futures.append(pool.submit(join_rendezvous, address, info, 10.0))
        yield futures


def test_rendezvous_returns_the_address_of_each_process() -> None:
    with rendezvous(3, ProcessInfo(2, 3, "v"), ProcessInfo(1, 3, "v")) as futures:
        assert [future.result() for future in futures] == ["127.0.0.1"] * 3
    assert host_rendezvous(f"127.0.0.1:{free_port()}", ProcessInfo(0, 1, "v"), 1.0) is None


@pytest.mark.parametrize(
    ("others", "problem"),
    [
        ([ProcessInfo(1, 3, "v")], "process 1 says that there are 3 processes, process 0 that there are 2"),
        ([ProcessInfo(1, 2, "w")], "process 1 runs w, process 0 runs v"),
        ([ProcessInfo(0, 2, "v")], "two processes say that they are process 0"),
    ],
)
def test_inconsistent_process_infos_raise_in_all_processes(others: list[ProcessInfo], problem: str) -> None:
    with rendezvous(2, *others) as futures:
        for future in futures:
            with pytest.raises(DistributedError, match=problem):
                future.result()


def test_rendezvous_timeout_names_missing_processes() -> None:
    with rendezvous(4, ProcessInfo(2, 4, "v"), seconds=1.0) as futures:
        for future in futures:
            with pytest.raises(DistributedError, match=r"of 4 processes these did not come .* within 1.0 s: \[1, 3\]"):
                future.result()


def test_unreachable_coordinator_is_named() -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(DistributedError, match=rf"could not be reached at {address} within 0.3 s \(.*refused"):
        join_rendezvous(address, ProcessInfo(1, 2, "v"), 0.3)


def test_server_that_is_no_coordinator_is_detected() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        future = pool.submit(join_rendezvous, address, ProcessInfo(1, 2, "v"), 5.0)
        connection, _ = server.accept()
        with connection:
            connection.recv(100)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with pytest.raises(DistributedError, match=f"what listens at {address} is no process 0"):
            future.result()


def test_rendezvous_ignores_unrelated_connections() -> None:
    port = free_port()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(host_rendezvous, f"[::]:{port}", ProcessInfo(0, 2, "v"), 20.0)
        with _connected(port) as stray:
            stray.sendall(b'{"index": "1"}\n')
        assert pool.submit(join_rendezvous, f"127.0.0.1:{port}", ProcessInfo(1, 2, "v"), 20.0).result() == "127.0.0.1"
        assert first.result() == "127.0.0.1"


def _connected(port: int) -> socket.socket:
    """Connects to the port; retries until a server listens there."""
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            time.sleep(0.05)


def test_port_in_use_raises_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(DistributedError, match=f"process 0 can't listen at {address}.*choose another port"):
            host_rendezvous(address, ProcessInfo(0, 2, "v"), 1.0)


# ------------------------------------------------------------------ arguments of initialize


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, "there is no num_processes: pass it, or set JAX_NUM_PROCESSES"),
        ({"num_processes": 2}, ValueError, "there is no process_id"),
        ({"num_processes": 2, "process_id": 0}, ValueError, "there is no coordinator_address"),
        ({"num_processes": 2.0, "process_id": 0}, TypeError, "num_processes must be an int, got 2.0 of type float"),
        ({"coordinator_address": "h:1", "num_processes": 2, "process_id": 2}, ValueError, "got process_id=2"),
        ({"coordinator_address": "h", "num_processes": 2, "process_id": 0}, ValueError, "a host and a port.*got 'h'"),
        (
            {"coordinator_address": "h:1", "num_processes": 2, "process_id": 0, "heartbeat_timeout_seconds": 0},
            ValueError,
            "heartbeat_timeout_seconds must be a number of seconds",
        ),
        (
            {"coordinator_address": "h:1", "num_processes": 2, "process_id": 0, "local_device_ids": [0, 0]},
            ValueError,
            r"local_device_ids must be distinct non-negative integers, got \[0, 0\]",
        ),
    ],
)
def test_initialize_rejects_missing_or_invalid_arguments(
    arguments: dict[str, Any], error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "SLURM_NTASKS", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(error, match=message):
        fx.distributed.initialize(**arguments)


def test_initialize_reads_environment_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("JAX_COORDINATOR_ADDRESS", "h:1"), ("SLURM_NTASKS", "2"), ("JAX_PROCESS_ID", "7")):
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="got process_id=7 and num_processes=2"):
        fx.distributed.initialize()
    monkeypatch.setenv("JAX_PROCESS_ID", "x")
    with pytest.raises(ValueError, match="taken from JAX_PROCESS_ID, which must be a number, got 'x'"):
        fx.distributed.initialize()


def test_initialize_after_the_first_program_raises_an_error() -> None:
    np.testing.assert_array_equal(fx.jit(lambda x: x + 1)(np.ones(2)), [2, 2])
    with pytest.raises(RuntimeError, match="devices were asked for already, or a program ran.*call it first"):
        fx.distributed.initialize("127.0.0.1:1", 2, 1)
    assert not fx.distributed.is_initialized()


def test_helpers_in_a_single_process() -> None:
    assert (fx.process_index(), fx.process_count(), fx.process_indices()) == (0, 1, [0])
    np.testing.assert_array_equal(fx.distributed.all_gather(np.arange(3)), [np.arange(3)])
    fx.distributed.barrier("here")
    fx.distributed.assert_equal([1, 2])
    fx.distributed.shutdown()
