"""The rendezvous of the processes of a group, before XLA's coordinator starts.

XLA aborts a process if another one does not come, with a cryptic message. So the processes first meet over plain
sockets: the first process listens at the coordinator's address, the others connect and introduce themselves, and once
all are there, or one is missing or does not match, the first process tells all of them.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from typing import Final, final

from attrs import asdict, frozen

from tracefx.errors import DistributedError

MAX_LINE_BYTES: Final = 4096
CONNECTION_TIMEOUT: Final = 5.0
"""How many seconds to wait for data on a connection before it is closed."""


@final
@frozen
class ProcessInfo:
    """The introduction of a process: number `index` of `count`, running these `versions`."""

    index: int
    count: int
    versions: str

    @classmethod
    def read(cls, line: bytes) -> ProcessInfo | None:
        """Parses an introduction; returns None if it is none."""
        with suppress(ValueError):
            match json.loads(line):
                case {"index": int(index), "count": int(count), "versions": str(versions)}:
                    return cls(index, count, versions)
                case _:
                    pass
        return None


def parse_address(address: str) -> tuple[str, int]:
    """Splits `host:port` into host and port; raises `ValueError` for anything else."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"an address is a host and a port, such as 10.0.0.1:1234, got {address!r}")
    return host.strip("[]"), int(port)


def host_rendezvous(address: str, mine: ProcessInfo, seconds: float) -> str | None:
    """Runs the rendezvous in the first process; returns when all others have come.

    Args:
        address: where to listen, as `host:port`.
        mine: the introduction of this process.
        seconds: how long to wait.

    Returns:
        The address at which the other processes reach this one, or None if there are no others.

    Raises:
        DistributedError: if the address is in use, or a process is missing or does not match.
    """
    deadline = time.monotonic() + seconds
    with ExitStack() as stack:
        try:
            server = stack.enter_context(_listen(*parse_address(address)))
        except OSError as error:
            raise DistributedError(
                f"initialize: process 0 can't listen at {address}: {error}; choose another port, in all processes"
            ) from error
        connections: dict[int, socket.socket] = {}
        problem = None
        while len(connections) < mine.count - 1 and problem is None:
            server.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                connection, _ = server.accept()
            except TimeoutError:
                missing = [i for i in range(1, mine.count) if i not in connections]
                problem = f"of {mine.count} processes these did not come to {address} within {seconds} s: {missing}"
                break
            stack.enter_context(connection)
            hello = ProcessInfo.read(
                _read_line(connection, min(CONNECTION_TIMEOUT, max(deadline - time.monotonic(), 0.001)))
            )
            if hello is not None:
                problem = _mismatch(hello, mine, connections)
                connections.setdefault(hello.index, connection)
        _send_verdict(connections.values(), problem)
        if problem is not None:
            raise DistributedError(f"initialize: {problem}")
        for connection in connections.values():
            return _local_address(connection)
    return None


def _mismatch(hello: ProcessInfo, mine: ProcessInfo, known: Iterable[int]) -> str | None:
    if hello.count != mine.count:
        return (
            f"process {hello.index} says that there are {hello.count} processes, process 0 that there are {mine.count}"
        )
    if hello.versions != mine.versions:
        return f"process {hello.index} runs {hello.versions}, process 0 runs {mine.versions}: run the same everywhere"
    if hello.index in known or not 0 < hello.index < mine.count:
        return f"two processes say that they are process {hello.index}: give each its own process_id"
    return None


def _send_verdict(connections: Iterable[socket.socket], problem: str | None) -> None:
    for connection in connections:
        with suppress(OSError):  # a lost connection causes an error later anyway
            connection.sendall(json.dumps({"problem": problem}).encode() + b"\n")


def join_rendezvous(address: str, mine: ProcessInfo, seconds: float) -> str:
    """Runs the rendezvous in another process; returns when all processes have come.

    Args:
        address: the address of the first process, as `host:port`.
        mine: the introduction of this process.
        seconds: how long to wait.

    Returns:
        The address at which the other processes reach this one.

    Raises:
        DistributedError: if the first process cannot be reached, or a process is missing or does not match.
    """
    host, port = parse_address(address)
    deadline = time.monotonic() + seconds
    with _connect(host, port, deadline, seconds) as connection:
        connection.sendall(json.dumps(asdict(mine)).encode() + b"\n")
        # Process 0 may have started to wait later than this process; its message says which processes are missing.
        answer = _read_line(connection, seconds + CONNECTION_TIMEOUT)
        with suppress(ValueError):
            match json.loads(answer):
                case {"problem": None}:
                    return _local_address(connection)
                case {"problem": str(problem)}:
                    raise DistributedError(f"initialize: {problem}")
                case _:
                    pass
        raise DistributedError(
            f"initialize: what listens at {address} is no process 0 that waits for others: it has ended, the "
            "processes are connected already, or another program uses the port"
        )


def _connect(host: str, port: int, deadline: float, seconds: float) -> socket.socket:
    while True:
        remaining = deadline - time.monotonic()
        try:
            return socket.create_connection((host, port), timeout=max(remaining, 0.001))
        except OSError as error:
            if time.monotonic() + 0.1 > deadline:
                raise DistributedError(
                    f"initialize: process 0 could not be reached at {host}:{port} within {seconds} s ({error}): is "
                    "it running, and is the address right?"
                ) from error
        time.sleep(0.1)


def _listen(host: str, port: int) -> socket.socket:
    if host not in ("", "::"):
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def _read_line(connection: socket.socket, seconds: float) -> bytes:
    """Reads a line; returns b"" if it is too long or does not arrive in time."""
    connection.settimeout(seconds)
    line = b""
    with suppress(OSError):
        while not line.endswith(b"\n") and len(line) < MAX_LINE_BYTES:
            data = connection.recv(MAX_LINE_BYTES)
            if not data:
                break
            line += data
    return line if line.endswith(b"\n") else b""


def _local_address(connection: socket.socket) -> str:
    """Returns this machine's address as the other end of a connection sees it."""
    address: str = connection.getsockname()[0]
    return address.removeprefix("::ffff:")
