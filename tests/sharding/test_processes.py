"""Several processes, on this machine: they compute together, and none waits for one that is gone."""

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
from tests.sharding import processes_that_end
from tests.sharding.processes_that_end import DONE
from tests.versions import LOG_OF_DEVICE_ORDERS
from tracefx.xla.runtime.rendezvous import DistributedError, ProcessInfo, host_rendezvous, join_rendezvous

PROJECT: Final = Path(__file__).parents[2]
PATIENCE: Final = 120
"""For how many seconds processes may run before they are said to hang: a machine may have much else to do."""


@frozen
class Ended:
    """How a process ended and what it said."""

    code: int | None
    """None if it had to be killed."""
    out: str
    err: str


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def together(part: str, count: int, devices: int, **variables: str) -> list[Ended]:
    """Runs a part of `processes.py` in so many processes with so many devices each, which are all over afterwards."""
    module = "processes_that_end" if part in processes_that_end.PARTS else "processes"
    port = str(free_port())
    said = os.environ.get("XLA_FLAGS", "").split()
    flags = [flag for flag in said if "device_count" not in flag]
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
    deadline = time.monotonic() + PATIENCE
    try:
        with ThreadPoolExecutor(count) as pool:  # so that none waits for its output to be read
            return list(pool.map(lambda p: _ended(p, deadline), processes))
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _ended(process: subprocess.Popen[str], deadline: float) -> Ended:
    try:
        out, err = process.communicate(timeout=max(deadline - time.monotonic(), 0.1))
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        return Ended(None, out, err)
    return Ended(process.returncode, out, err)


def told(ended: Sequence[Ended]) -> str:
    """Everything that processes said, for messages of failed tests."""
    return "\n".join(
        [f"--- process {i} ended with {e.code}\n{e.out}\n--- and said of errors\n{e.err}" for i, e in enumerate(ended)]
    )


@pytest.mark.parametrize(("count", "devices"), [(2, 2), (4, 1)])
def test_processes_compute_what_one_does_and_end_without_a_word(count: int, devices: int) -> None:
    ended = together("working_together", count, devices)
    assert [e.code for e in ended] == [0] * count, told(ended)
    assert all(DONE in e.out and not LOG_OF_DEVICE_ORDERS.sub("", e.err) for e in ended), told(ended)


def with_each_dead(part: str) -> list[tuple[Ended, Ended]]:
    """How two processes end if the first goes, and if the second does: the one that went, and the other."""
    with ThreadPoolExecutor(2) as pool:  # what they do most is to wait
        first, second = pool.map(lambda dead: together(part, 2, 1, DEAD=str(dead)), (0, 1))
    return [(first[0], first[1]), (second[1], second[0])]


def test_others_end_with_an_error_when_one_is_killed() -> None:
    for dead, other in with_each_dead("dying"):
        said = told([dead, other])
        assert dead.code == 9, said
        assert other.code not in (0, None), said
        assert "another task died" in other.err or "ExecutionError" in other.err, said
        assert "came although" not in other.out, said


def test_one_with_an_error_waits_for_none_and_others_learn_of_it() -> None:
    for dead, other in with_each_dead("failing"):
        said = told([dead, other])
        assert dead.code == 1, said
        assert dead.err.endswith("ValueError: this one went wrong\n"), said
        assert other.code not in (0, None), said
        assert "another task died" in other.err, said


def test_one_that_waited_for_long_enough_at_its_end_says_so(tmp_path: Path) -> None:
    ended = together("leaving", 2, 1, TIRED=str(tmp_path / "tired"))
    assert [e.code for e in ended] == [0, 0], told(ended)


def test_processes_share_the_programs_on_disk(tmp_path: Path) -> None:
    ended = together("caching", 2, 1, KEPT=str(tmp_path))
    assert [e.code for e in ended] == [0, 0], told(ended)
    assert list(tmp_path.iterdir())


# ------------------------------------------------------------------ how they find each other


@contextmanager
def gathering(count: int, *others: ProcessInfo, seconds: float = 10.0) -> Iterator[list[Future[str | None]]]:
    """Process 0 of `count`, and others, as threads."""
    address = f"127.0.0.1:{free_port()}"
    with ThreadPoolExecutor(len(others) + 1) as pool:
        first: Callable[[], str | None] = lambda: host_rendezvous(address, ProcessInfo(0, count, "v"), seconds)  # noqa: E731
        futures: list[Future[str | None]] = [pool.submit(first)]
        for hello in others:
            futures.append(pool.submit(join_rendezvous, address, hello, 10.0))
        yield futures


def test_all_learn_at_which_address_they_are_known() -> None:
    with gathering(3, ProcessInfo(2, 3, "v"), ProcessInfo(1, 3, "v")) as futures:
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
def test_what_does_not_fit_is_told_to_all(others: list[ProcessInfo], problem: str) -> None:
    with gathering(2, *others) as futures:
        for future in futures:
            with pytest.raises(DistributedError, match=problem):
                future.result()


def test_the_missing_are_told_to_those_who_came() -> None:
    with gathering(4, ProcessInfo(2, 4, "v"), seconds=1.0) as futures:
        for future in futures:
            with pytest.raises(DistributedError, match=r"of 4 processes these did not come .* within 1.0 s: \[1, 3\]"):
                future.result()


def test_one_that_cannot_be_reached_is_named() -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(DistributedError, match=rf"could not be reached at {address} within 0.3 s \(.*refused"):
        join_rendezvous(address, ProcessInfo(1, 2, "v"), 0.3)


def test_one_that_is_no_coordinator_is_told_from_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        future = pool.submit(join_rendezvous, address, ProcessInfo(1, 2, "v"), 5.0)
        connection, _ = server.accept()
        with connection:
            connection.recv(100)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with pytest.raises(DistributedError, match=f"what listens at {address} is no process 0"):
            future.result()


def test_one_that_talks_of_something_else_is_not_counted() -> None:
    port = free_port()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(host_rendezvous, f"[::]:{port}", ProcessInfo(0, 2, "v"), 20.0)
        with _connected(port) as stray:
            stray.sendall(b'{"index": "1"}\n')
        assert pool.submit(join_rendezvous, f"127.0.0.1:{port}", ProcessInfo(1, 2, "v"), 20.0).result() == "127.0.0.1"
        assert first.result() == "127.0.0.1"


def _connected(port: int) -> socket.socket:
    """A connection, as soon as somebody listens."""
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            time.sleep(0.05)


def test_a_port_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(DistributedError, match=f"process 0 can't listen at {address}.*choose another port"):
            host_rendezvous(address, ProcessInfo(0, 2, "v"), 1.0)


# ------------------------------------------------------------------ what is asked of initialize


@pytest.mark.parametrize(
    ("given", "error", "words"),
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
def test_what_is_missing_or_makes_no_sense_is_told(
    given: dict[str, Any], error: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "SLURM_NTASKS", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(error, match=words):
        fx.distributed.initialize(**given)


def test_the_environment_says_what_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("JAX_COORDINATOR_ADDRESS", "h:1"), ("SLURM_NTASKS", "2"), ("JAX_PROCESS_ID", "7")):
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="got process_id=7 and num_processes=2"):
        fx.distributed.initialize()
    monkeypatch.setenv("JAX_PROCESS_ID", "x")
    with pytest.raises(ValueError, match="taken from JAX_PROCESS_ID, which must be a number, got 'x'"):
        fx.distributed.initialize()


def test_it_is_too_late_after_the_first_program() -> None:
    np.testing.assert_array_equal(fx.jit(lambda x: x + 1)(np.ones(2)), [2, 2])
    with pytest.raises(RuntimeError, match="devices were asked for already, or a program ran.*call it first"):
        fx.distributed.initialize("127.0.0.1:1", 2, 1)
    assert not fx.distributed.is_initialized()


def test_one_process_alone_gathers_and_meets_itself() -> None:
    assert (fx.process_index(), fx.process_count(), fx.process_indices()) == (0, 1, [0])
    np.testing.assert_array_equal(fx.distributed.all_gather(np.arange(3)), [np.arange(3)])
    fx.distributed.barrier("here")
    fx.distributed.assert_equal([1, 2])
    fx.distributed.shutdown()
