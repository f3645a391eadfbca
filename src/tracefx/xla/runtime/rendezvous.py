"""How processes that are to work together find each other.

XLA ends a process whose companions don't come, with its own words. So they come together before XLA hears of them: the
first process listens where XLA's coordinator will, the others tell it who they are, and when all are there, or one is
wrong or missing, it tells them so.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from typing import Final, final

from attrs import asdict, frozen

MAX_LINE_BYTES: Final = 4096
CONNECTION_TIMEOUT: Final = 5.0
"""For how many seconds a connection may say nothing before it is given up."""


class DistributedError(RuntimeError):
    """Processes that are to work together did not find each other, or did not all come to the same point."""


@final
@frozen
class ProcessInfo:
    """What a process says of itself: it is number `index` of `count`, and runs these versions."""

    index: int
    count: int
    versions: str

    @classmethod
    def read(cls, line: bytes) -> ProcessInfo | None:
        """None for what no process says."""
        with suppress(ValueError):
            match json.loads(line):
                case {"index": int(index), "count": int(count), "versions": str(versions)}:
                    return cls(index, count, versions)
                case _:
                    pass
        return None


def parse_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port`. ValueError for anything else."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"an address is a host and a port, such as 10.0.0.1:1234, got {address!r}")
    return host.strip("[]"), int(port)


def host_rendezvous(address: str, mine: ProcessInfo, seconds: float) -> str | None:
    """In the first process: returns when all others are there, with the address at which they reach this one.

    It is None if there are no others. Raises DistributedError if the address is taken, or not all come, or one is
    wrong.
    """
    deadline = time.monotonic() + seconds
    with ExitStack() as stack:
        try:
            server = stack.enter_context(_listen(*parse_address(address)))
        except OSError as error:
            raise DistributedError(
                f"initialize: process 0 can't listen at {address}: {error}; choose another port, in all processes"
            ) from error
        there: dict[int, socket.socket] = {}
        problem = None
        while len(there) < mine.count - 1 and problem is None:
            server.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                connection, _ = server.accept()
            except TimeoutError:
                missing = [i for i in range(1, mine.count) if i not in there]
                problem = f"of {mine.count} processes these did not come to {address} within {seconds} s: {missing}"
                break
            stack.enter_context(connection)
            hello = ProcessInfo.read(
                _read_line(connection, min(CONNECTION_TIMEOUT, max(deadline - time.monotonic(), 0.001)))
            )
            if hello is not None:
                problem = _mismatch(hello, mine, there)
                there.setdefault(hello.index, connection)
        _send_verdict(there.values(), problem)
        if problem is not None:
            raise DistributedError(f"initialize: {problem}")
        for connection in there.values():
            return _local_address(connection)
    return None


def _mismatch(hello: ProcessInfo, mine: ProcessInfo, there: Iterable[int]) -> str | None:
    if hello.count != mine.count:
        return (
            f"process {hello.index} says that there are {hello.count} processes, process 0 that there are {mine.count}"
        )
    if hello.versions != mine.versions:
        return f"process {hello.index} runs {hello.versions}, process 0 runs {mine.versions}: run the same everywhere"
    if hello.index in there or not 0 < hello.index < mine.count:
        return f"two processes say that they are process {hello.index}: give each its own process_id"
    return None


def _send_verdict(connections: Iterable[socket.socket], problem: str | None) -> None:
    for connection in connections:
        with suppress(OSError):  # one that is gone by now is missed soon enough
            connection.sendall(json.dumps({"problem": problem}).encode() + b"\n")


def join_rendezvous(address: str, mine: ProcessInfo, seconds: float) -> str:
    """In the other processes: returns when all are there, with the address at which they reach this one.

    Raises DistributedError if the first one can't be reached, or says that one is wrong or missing.
    """
    host, port = parse_address(address)
    deadline = time.monotonic() + seconds
    with _connect(host, port, deadline, seconds) as connection:
        connection.sendall(json.dumps(asdict(mine)).encode() + b"\n")
        # Process 0 may have begun to wait later than this one, and is to be the one who says who is missing.
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
            f"initialize: what listens at {address} is no process 0 that waits for others: it is gone, they are "
            "together already, or the port is another program's"
        )


def _connect(host: str, port: int, deadline: float, seconds: float) -> socket.socket:
    while True:
        left = deadline - time.monotonic()
        try:
            return socket.create_connection((host, port), timeout=max(left, 0.001))
        except OSError as error:
            if time.monotonic() + 0.1 > deadline:
                raise DistributedError(
                    f"initialize: process 0 could not be reached at {host}:{port} within {seconds} s ({error}): does "
                    "it run, and is the address the right one?"
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
    """What comes until the end of a line; nothing of what is too long, or doesn't come in time."""
    connection.settimeout(seconds)
    found = b""
    with suppress(OSError):
        while not found.endswith(b"\n") and len(found) < MAX_LINE_BYTES:
            more = connection.recv(MAX_LINE_BYTES)
            if not more:
                break
            found += more
    return found if found.endswith(b"\n") else b""


def _local_address(connection: socket.socket) -> str:
    """This machine's address as the other end of a connection knows it."""
    address: str = connection.getsockname()[0]
    return address.removeprefix("::ffff:")
