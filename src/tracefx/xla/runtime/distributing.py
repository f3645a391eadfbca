"""Several processes that work together: how they begin, wait for each other, and part.

The first of them runs XLA's coordinator, with which all keep a connection: by it they learn of each other's devices
when their clients start, and that one is gone. What their devices send to each other does not go through it.
"""

from __future__ import annotations

import atexit
import ctypes
import sys

from tracefx.xla.runtime.bindings import (
    JAXLIB_VERSION,
    STARTING,
    JaxRuntimeError,
    Place,
    new_coordinator,
    new_link,
    starting,
)
from tracefx.xla.runtime.gathering import Hello, ProcessesError, await_others, report, split


def is_joined() -> bool:
    """Whether this process works with others."""
    return STARTING.place is not None


def join(
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
        ProcessesError: if the first process can't be reached, or not all come.
    """
    with starting:
        if STARTING.place is not None:
            raise RuntimeError(
                f"initialize: this process is number {STARTING.place.index} of {STARTING.place.count} already: call it "
                "once"
            )
        if STARTING.started:
            raise RuntimeError(
                "initialize: devices were asked for already, or a program ran, and what was started for that knows of "
                "no other processes: call it first"
            )
        mine = Hello(index, count, f"jaxlib {JAXLIB_VERSION}")
        coordinator = None
        try:
            if index == 0:
                host = await_others(bind_address, mine, connect_seconds) or split(address)[0]
                coordinator = new_coordinator(
                    bind_address,
                    count,
                    heartbeat_timeout=heartbeat_seconds,
                    cluster_register_timeout=connect_seconds,
                    shutdown_timeout=shutdown_seconds,
                )
            else:
                host = report(address, mine, connect_seconds)
            link = new_link(
                address,
                index,
                init_timeout=connect_seconds,
                shutdown_timeout=shutdown_seconds,
                heartbeat_timeout=heartbeat_seconds,
                use_compression=True,
            )
            link.connect()
        except JaxRuntimeError as error:
            raise ProcessesError(f"initialize: process {index} of {count} at {address}: {error}") from error
        STARTING.place = Place(link, coordinator, index, count, host, local_ids, shutdown_seconds)
        atexit.register(_leave_at_exit)


def leave() -> None:
    """Waits until all processes leave, and leaves with them. Nothing happens in a process that is alone.

    Raises:
        ProcessesError: if one did not come within the time that was said, or is gone.
    """
    with starting:
        place, STARTING.place = STARTING.place, None
    if place is None:
        return
    atexit.unregister(_leave_at_exit)
    try:
        place.link.wait_at_barrier("tracefx/leave", place.patience * 1000)
    except JaxRuntimeError as error:
        _never_close(place)
        raise ProcessesError(
            f"shutdown: not all of {place.count} processes came to their end within {place.patience} s, the "
            f"shutdown_timeout_seconds of initialize: {error}"
        ) from error
    place.link.shutdown()
    if place.coordinator is not None:
        place.coordinator.shutdown()


def _leave_at_exit() -> None:
    # After an error that nobody caught the others may be waiting for what this process will never send: it goes without
    # waiting for them, and they learn of it when its connections close.
    if getattr(sys, "last_value", None) is None:
        leave()
    else:
        _never_close(STARTING.place)


def _never_close(place: Place | None) -> None:
    """Leaves the connection to the end of the process: to close it waits for the others, and aborts without them."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(place))


def meet(name: str, seconds: float) -> None:
    """Returns when all processes called it with this name. ProcessesError if not all did in time."""
    place = _joined()
    _meet(place, f"{next(place.turns)}/{name}", name, seconds)


def exchange(name: str, mine: bytes, seconds: float) -> list[bytes]:
    """What each of the processes gave, which is to be small, as it goes through the coordinator.

    Raises:
        ProcessesError: if not all gave something, in time.
    """
    place = _joined()
    where = f"tracefx/{next(place.turns)}/{name}"
    place.link.key_value_set_bytes(f"{where}/{place.index}", mine)
    found = []
    for i in range(place.count):
        try:
            found.append(place.link.blocking_key_value_get_bytes(f"{where}/{i}", int(seconds * 1000)))
        except JaxRuntimeError as error:
            raise ProcessesError(f"{name}: process {i} gave nothing within {seconds} s: {error}") from error
    _meet(place, f"{where}/read", name, seconds)
    place.link.key_value_delete(f"{where}/{place.index}")
    return found


def _joined() -> Place:
    place = STARTING.place
    if place is None:
        raise RuntimeError("this process works alone: call tracefx.distributed.initialize first")
    return place


def _meet(place: Place, key: str, name: str, seconds: float) -> None:
    try:
        place.link.wait_at_barrier(f"tracefx/{key}", int(seconds * 1000))
    except JaxRuntimeError as error:
        raise ProcessesError(
            f"{name}: not all of {place.count} processes came within {seconds} s; all have to call the same functions "
            f"in the same order: {error}"
        ) from error
