"""Several processes that work together: how they begin, wait for each other, and part.

The first of them runs XLA's coordinator, with which all keep a connection: by it they learn of each other's devices
when their clients start, and that one is gone. What their devices send to each other does not go through it.
"""

from __future__ import annotations

import atexit
import ctypes
import sys

from tracefx.xla.runtime.bindings import (
    CLIENT_STATE,
    JAXLIB_VERSION,
    JaxRuntimeError,
    ProcessGroup,
    client_lock,
    new_distributed_client,
    new_distributed_service,
)
from tracefx.xla.runtime.rendezvous import (
    DistributedError,
    ProcessInfo,
    host_rendezvous,
    join_rendezvous,
    parse_address,
)


def is_distributed() -> bool:
    """Whether this process works with others."""
    return CLIENT_STATE.process_group is not None


def join_process_group(
    address: str,
    index: int,
    count: int,
    *,
    bind_address: str,
    local_ids: tuple[int, ...] | None,
    connect_seconds: int,
    heartbeat_seconds: int,
    shutdown_seconds: int,
) -> None:
    """Makes this process number `index` of `count`; returns when all are there.

    Raises:
        RuntimeError: if it is one already, or the client was started without the others.
        DistributedError: if the first process can't be reached, or not all come.
    """
    with client_lock:
        if CLIENT_STATE.process_group is not None:
            raise RuntimeError(
                f"initialize: this process is number {CLIENT_STATE.process_group.index} of "
                f"{CLIENT_STATE.process_group.count} already: call it "
                "once"
            )
        if CLIENT_STATE.started:
            raise RuntimeError(
                "initialize: devices were asked for already, or a program ran, and what was started for that knows of "
                "no other processes: call it first"
            )
        mine = ProcessInfo(index, count, f"jaxlib {JAXLIB_VERSION}")
        coordinator = None
        try:
            if index == 0:
                host = host_rendezvous(bind_address, mine, connect_seconds) or parse_address(address)[0]
                coordinator = new_distributed_service(
                    bind_address,
                    count,
                    heartbeat_timeout=heartbeat_seconds,
                    cluster_register_timeout=connect_seconds,
                    shutdown_timeout=shutdown_seconds,
                )
            else:
                host = join_rendezvous(address, mine, connect_seconds)
            link = new_distributed_client(
                address,
                index,
                init_timeout=connect_seconds,
                shutdown_timeout=shutdown_seconds,
                heartbeat_timeout=heartbeat_seconds,
                use_compression=True,
            )
            link.connect()
        except JaxRuntimeError as error:
            raise DistributedError(f"initialize: process {index} of {count} at {address}: {error}") from error
        CLIENT_STATE.process_group = ProcessGroup(link, coordinator, index, count, host, local_ids, shutdown_seconds)
        atexit.register(_leave_at_exit)


def leave_process_group() -> None:
    """Waits until all processes leave, and leaves with them. Nothing happens in a process that is alone.

    Raises:
        DistributedError: if one did not come within the time that was said, or is gone.
    """
    with client_lock:
        place, CLIENT_STATE.process_group = CLIENT_STATE.process_group, None
    if place is None:
        return
    atexit.unregister(_leave_at_exit)
    try:
        place.distributed_client.wait_at_barrier("tracefx/leave", place.shutdown_seconds * 1000)
    except JaxRuntimeError as error:
        _leak_connection(place)
        raise DistributedError(
            f"shutdown: not all of {place.count} processes came to their end within {place.shutdown_seconds} s, the "
            f"shutdown_timeout_seconds of initialize: {error}"
        ) from error
    place.distributed_client.shutdown()
    if place.coordinator is not None:
        place.coordinator.shutdown()


def _leave_at_exit() -> None:
    # After an error that nobody caught the others may be waiting for what this process will never send: it goes without
    # waiting for them, and they learn of it when its connections close.
    if getattr(sys, "last_value", None) is None:
        leave_process_group()
    else:
        _leak_connection(CLIENT_STATE.process_group)


def _leak_connection(place: ProcessGroup | None) -> None:
    """Leaves the connection to the end of the process: to close it waits for the others, and aborts without them."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(place))


def barrier(name: str, seconds: float) -> None:
    """Returns when all processes called it with this name. DistributedError if not all did in time."""
    place = _require_process_group()
    _barrier(place, f"{next(place.barrier_ids)}/{name}", name, seconds)


def all_gather_bytes(name: str, mine: bytes, seconds: float) -> list[bytes]:
    """What each of the processes gave, which is to be small, as it goes through the coordinator.

    Raises:
        DistributedError: if not all gave something, in time.
    """
    place = _require_process_group()
    where = f"tracefx/{next(place.barrier_ids)}/{name}"
    place.distributed_client.key_value_set_bytes(f"{where}/{place.index}", mine)
    found = []
    for i in range(place.count):
        try:
            found.append(place.distributed_client.blocking_key_value_get_bytes(f"{where}/{i}", int(seconds * 1000)))
        except JaxRuntimeError as error:
            raise DistributedError(f"{name}: process {i} gave nothing within {seconds} s: {error}") from error
    _barrier(place, f"{where}/read", name, seconds)
    place.distributed_client.key_value_delete(f"{where}/{place.index}")
    return found


def _require_process_group() -> ProcessGroup:
    place = CLIENT_STATE.process_group
    if place is None:
        raise RuntimeError("this process works alone: call tracefx.distributed.initialize first")
    return place


def _barrier(place: ProcessGroup, key: str, name: str, seconds: float) -> None:
    try:
        place.distributed_client.wait_at_barrier(f"tracefx/{key}", int(seconds * 1000))
    except JaxRuntimeError as error:
        raise DistributedError(
            f"{name}: not all of {place.count} processes came within {seconds} s; all have to call the same functions "
            f"in the same order: {error}"
        ) from error
