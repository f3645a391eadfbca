"""Process groups: how several processes connect, synchronize and disconnect.

The first process runs XLA's coordinator, and all stay connected to it: through it they learn of each other's devices
when their clients start, and of processes that end. Data between devices does not pass through it.
"""

from __future__ import annotations

import atexit
import ctypes
import sys

from tracefx.errors import DistributedError
from tracefx.xla.runtime import bindings
from tracefx.xla.runtime.rendezvous import ProcessInfo, host_rendezvous, join_rendezvous, parse_address


def is_distributed() -> bool:
    """Whether this process is part of a process group."""
    return bindings.CLIENT_STATE.process_group is not None


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
    """Joins the process group as number `index` of `count`; returns when all processes have joined.

    Args:
        address: the address of the coordinator, as `host:port`.
        index: the number of this process.
        count: the number of processes.
        bind_address: where the coordinator listens, in the first process.
        local_ids: which local devices belong to this process; None for all.
        connect_seconds: how long to wait for the other processes.
        heartbeat_seconds: how long a process may be silent before it counts as ended.
        shutdown_seconds: how long to wait for the others when leaving.

    Raises:
        RuntimeError: if this process has joined already, or devices have been used.
        DistributedError: if the first process can't be reached, or not all processes come.
    """
    with bindings.client_lock:
        if bindings.CLIENT_STATE.process_group is not None:
            raise RuntimeError(
                f"initialize: this process is number {bindings.CLIENT_STATE.process_group.index} of "
                f"{bindings.CLIENT_STATE.process_group.count} already: call it "
                "once"
            )
        if bindings.CLIENT_STATE.started:
            raise RuntimeError(
                "initialize: devices were asked for already, or a program ran, and the client that was started for "
                "that knows no other processes: call it first"
            )
        info = ProcessInfo(index, count, f"jaxlib {bindings.JAXLIB_VERSION}")
        coordinator = None
        try:
            if index == 0:
                host = host_rendezvous(bind_address, info, connect_seconds) or parse_address(address)[0]
                coordinator = bindings.new_distributed_service(
                    bind_address,
                    count,
                    heartbeat_timeout=heartbeat_seconds,
                    cluster_register_timeout=connect_seconds,
                    shutdown_timeout=shutdown_seconds,
                )
            else:
                host = join_rendezvous(address, info, connect_seconds)
            client = bindings.new_distributed_client(
                address,
                index,
                init_timeout=connect_seconds,
                shutdown_timeout=shutdown_seconds,
                heartbeat_timeout=heartbeat_seconds,
                use_compression=True,
            )
            client.connect()
        except bindings.JaxRuntimeError as error:
            raise DistributedError(f"initialize: process {index} of {count} at {address}: {error}") from error
        bindings.CLIENT_STATE.process_group = bindings.ProcessGroup(
            client, coordinator, index, count, host, local_ids, shutdown_seconds
        )
        atexit.register(_leave_at_exit)


def leave_process_group() -> None:
    """Leaves the process group once all processes leave it. Does nothing without a group.

    Raises:
        DistributedError: if a process has ended, or does not leave within the shutdown timeout.
    """
    with bindings.client_lock:
        group, bindings.CLIENT_STATE.process_group = bindings.CLIENT_STATE.process_group, None
    if group is None:
        return
    atexit.unregister(_leave_at_exit)
    try:
        group.distributed_client.wait_at_barrier("tracefx/leave", group.shutdown_seconds * 1000)
    except bindings.JaxRuntimeError as error:
        _leak_connection(group)
        raise DistributedError(
            f"shutdown: not all of {group.count} processes shut down within {group.shutdown_seconds} s, the "
            f"shutdown_timeout_seconds of initialize: {error}"
        ) from error
    group.distributed_client.shutdown()
    if group.coordinator is not None:
        group.coordinator.shutdown()


def _leave_at_exit() -> None:
    # After an uncaught error other processes may wait for data that this process will never send: it does not wait for
    # them, and they notice when its connections close.
    if getattr(sys, "last_value", None) is None:
        leave_process_group()
    else:
        _leak_connection(bindings.CLIENT_STATE.process_group)


def _leak_connection(group: bindings.ProcessGroup | None) -> None:
    """Keeps the connection open until the process ends: closing it waits for the others and aborts if they are gone."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))


def barrier(name: str, seconds: float) -> None:
    """Waits until all processes have called it with this name; raises `DistributedError` after `seconds` seconds."""
    group = _require_process_group()
    _barrier(group, f"{next(group.barrier_ids)}/{name}", name, seconds)


def all_gather_bytes(name: str, mine: bytes, seconds: float) -> list[bytes]:
    """Returns the bytes that each process passes, which should be few: they go through the coordinator.

    Raises:
        DistributedError: if a process passes nothing in time.
    """
    group = _require_process_group()
    key = f"tracefx/{next(group.barrier_ids)}/{name}"
    group.distributed_client.key_value_set_bytes(f"{key}/{group.index}", mine)
    values = []
    for i in range(group.count):
        try:
            values.append(group.distributed_client.blocking_key_value_get_bytes(f"{key}/{i}", int(seconds * 1000)))
        except bindings.JaxRuntimeError as error:
            raise DistributedError(f"{name}: process {i} sent nothing within {seconds} s: {error}") from error
    _barrier(group, f"{key}/read", name, seconds)
    group.distributed_client.key_value_delete(f"{key}/{group.index}")
    return values


def _require_process_group() -> bindings.ProcessGroup:
    group = bindings.CLIENT_STATE.process_group
    if group is None:
        raise RuntimeError("this process is in no process group: call tracefx.distributed.initialize first")
    return group


def _barrier(group: bindings.ProcessGroup, key: str, name: str, seconds: float) -> None:
    try:
        group.distributed_client.wait_at_barrier(f"tracefx/{key}", int(seconds * 1000))
    except bindings.JaxRuntimeError as error:
        raise DistributedError(
            f"{name}: not all of {group.count} processes came within {seconds} s; all have to call the same functions "
            f"in the same order: {error}"
        ) from error
