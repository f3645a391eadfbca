"""Programs over several processes, which form one system of devices, under the names of `jax.distributed`.

Every process calls `initialize` before anything else. Then `devices()` returns the devices of all processes, meshes may
be made of them, and a program on arrays sharded over such a mesh runs in all processes at once. All processes must run
the same programs in the same order.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final

import numpy as np

from tracefx.core import NDArray
from tracefx.core.backend import BACKEND
from tracefx.core.named_sharding import NamedSharding
from tracefx.core.partition_spec import PartitionSpec
from tracefx.errors import DistributedError as DistributedError
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree
from tracefx.shardings.meshes import Mesh
from tracefx.transforms.devices import device_put, local_devices, process_count, process_indices
from tracefx.transforms.shardings import make_array_from_process_local_data
from tracefx.xla.runtime import process_group
from tracefx.xla.runtime.rendezvous import parse_address

_DEFAULT_TIMEOUT: Final = 300
"""How many seconds processes wait for each other by default."""


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    local_device_ids: int | Sequence[int] | None = None,
    initialization_timeout: int = _DEFAULT_TIMEOUT,
    heartbeat_timeout_seconds: int = 100,
    shutdown_timeout_seconds: int = _DEFAULT_TIMEOUT,
    coordinator_bind_address: str | None = None,
) -> None:
    """Joins this process to a system of several processes; returns when all of them have called it.

    At its exit a process waits for the others; after an uncaught exception it does not, so that they notice the
    failure.

    Args:
        coordinator_address: Host and port at which the others reach process 0, such as `"10.0.0.1:1234"`. None, the
            default, means the environment variable `JAX_COORDINATOR_ADDRESS`.
        num_processes: The number of processes. None, the default, means `JAX_NUM_PROCESSES`, or that of Open MPI or
            Slurm.
        process_id: The index of this process, from 0. None, the default, means `JAX_PROCESS_ID`, or that of Open MPI or
            Slurm.
        local_device_ids: The devices of the machine that this process uses; on the CPU, only their number counts. None,
            the default, means those of `JAX_LOCAL_DEVICE_IDS` (such as `0,1`) if set, otherwise all.
        initialization_timeout: How many seconds to wait for the other processes. The default is 300.
        heartbeat_timeout_seconds: After how many seconds without a heartbeat a process counts as dead; the others then
            exit. The default is 100.
        shutdown_timeout_seconds: How many seconds to wait for the others at exit. The default is 300.
        coordinator_bind_address: The address on which process 0 listens. None, the default, means
            `JAX_COORDINATOR_BIND_ADDRESS`, or all interfaces at the port of `coordinator_address`.

    Raises:
        ValueError: If a value is missing or out of range.
        TypeError: If an argument has a wrong type.
        RuntimeError: If it was called before, or after devices were used.
        DistributedError: If the processes do not find each other.

    >>> initialize("localhost:1234", num_processes=2, process_id=2)
    Traceback (most recent call last):
        ...
    ValueError: initialize: process_id must be from 0 to num_processes - 1, got process_id=2 and num_processes=2
    """
    address = coordinator_address or os.environ.get("JAX_COORDINATOR_ADDRESS")
    count = _int_option(num_processes, "num_processes", ("JAX_NUM_PROCESSES", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"))
    index = _int_option(process_id, "process_id", ("JAX_PROCESS_ID", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"))
    if address is None:
        raise ValueError(
            "initialize: there is no coordinator_address: pass host and port of process 0, such as '10.0.0.1:1234', or "
            "set JAX_COORDINATOR_ADDRESS"
        )
    _, port = parse_address(address)
    if count < 1 or not 0 <= index < count:
        raise ValueError(
            f"initialize: process_id must be from 0 to num_processes - 1, got process_id={index} and "
            f"num_processes={count}"
        )
    bind = coordinator_bind_address or os.environ.get("JAX_COORDINATOR_BIND_ADDRESS") or f"[::]:{port}"
    process_group.join_process_group(
        address,
        index,
        count,
        bind_address=bind,
        local_ids=_local_ids(local_device_ids),
        connect_seconds=_check_seconds(initialization_timeout, "initialization_timeout"),
        heartbeat_seconds=_check_seconds(heartbeat_timeout_seconds, "heartbeat_timeout_seconds"),
        shutdown_seconds=_check_seconds(shutdown_timeout_seconds, "shutdown_timeout_seconds"),
    )


def _int_option(value: int | None, what: str, variables: Sequence[str]) -> int:
    """Returns an integer option of `initialize`, by default from the first environment variable that is set."""
    if value is not None:
        if type(value) is not int:
            raise TypeError(f"initialize: {what} must be an int, got {value!r} of type {type(value).__name__}")
        return value
    for variable in variables:
        text = os.environ.get(variable)
        if text is not None:
            if not text.isdecimal():
                raise ValueError(f"initialize: {what} is taken from {variable}, which must be a number, got {text!r}")
            return int(text)
    raise ValueError(f"initialize: there is no {what}: pass it, or set {variables[0]}")


def _check_seconds(value: int, what: str) -> int:
    """Returns a timeout; raises ValueError unless it is a positive integer."""
    if type(value) is not int or value < 1:
        raise ValueError(f"initialize: {what} must be a number of seconds, 1 or more, got {value!r}")
    return value


def _local_ids(value: int | Sequence[int] | None) -> tuple[int, ...] | None:
    """Returns the ids of the devices of this process; None for all."""
    text = os.environ.get("JAX_LOCAL_DEVICE_IDS")
    if value is None and text:
        if not all(part.strip().isdecimal() for part in text.split(",")):
            raise ValueError(f"initialize: JAX_LOCAL_DEVICE_IDS must be numbers separated by commas, got {text!r}")
        value = [int(part) for part in text.split(",")]
    if value is None:
        return None
    ids = [value] if isinstance(value, int) else list(value)
    if not ids or len(set(ids)) != len(ids) or any(type(i) is not int or i < 0 for i in ids):
        raise ValueError(f"initialize: local_device_ids must be distinct non-negative integers, got {value!r}")
    return tuple(ids)


def is_initialized() -> bool:
    """Returns whether this process has joined others by `initialize`.

    Returns:
        A Python bool.

    >>> is_initialized()
    False
    """
    return process_group.is_distributed()


def shutdown() -> None:
    """Waits until all processes call it or exit, and then leaves the system. Does nothing without `initialize`.

    Programs over several processes cannot run afterwards. It is called automatically at exit.

    Raises:
        DistributedError: If a process does not arrive within the `shutdown_timeout_seconds` of `initialize`.

    >>> shutdown()
    """
    process_group.leave_process_group()


def barrier(name: str, timeout_seconds: float = _DEFAULT_TIMEOUT) -> None:
    """Waits until all processes have called it.

    Args:
        name: A name of this point of the program, the same in all processes.
        timeout_seconds: How many seconds to wait. The default is 300.

    Raises:
        DistributedError: If a process does not arrive in time, or arrives at a barrier of another name.

    >>> barrier("saved")
    """
    if process_count() > 1:
        process_group.barrier(name, timeout_seconds)


def assert_equal(tree: PyTree, name: str = "assert_equal", timeout_seconds: float = _DEFAULT_TIMEOUT) -> None:
    """Checks that the arrays of a pytree are equal in all processes: in structure, types and values.

    Host values that programs over several processes use must be equal. Only digests are communicated.

    Args:
        tree: The pytree.
        name: A name of the check, for messages.
        timeout_seconds: How many seconds to wait for the other processes. The default is 300.

    Raises:
        ValueError: In all processes, if the pytrees are not equal.
        DistributedError: If a process does not arrive in time.

    >>> assert_equal({"step": 3, "seed": np.array([1, 2])})
    """
    if process_count() == 1:
        return
    digests = process_group.all_gather_bytes(name, _digest(tree), timeout_seconds)
    other = [i for i, digest in enumerate(digests) if digest != digests[0]]
    if other:
        raise ValueError(
            f"{name}: the values differ between processes: those in {other} are not equal to those in process 0; in "
            f"this process, {BACKEND.value.process_index}, the structure is {trees.structure(tree)}"
        )


def _digest(tree: PyTree) -> bytes:
    """Returns a digest of the structure, types and values of a pytree."""
    leaves, structure = trees.flatten(tree)
    digest = blake2b(digest_size=16)
    digest.update(repr(structure).encode())
    for leaf in leaves:
        array = np.asarray(leaf)
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.digest()


def all_gather(tree: PyTree) -> Any:
    """Returns the arrays of all processes, stacked along a new first axis, as NumPy arrays.

    Args:
        tree: A pytree of arrays or numbers. Structure, shapes and dtypes are the same in all processes, all of which
            call this.

    Returns:
        A pytree of the same structure; entry `i` of each array is that of process `i`.

    >>> all_gather({"loss": np.float32(0.5)})
    {'loss': array([0.5], dtype=float32)}
    """
    processes = process_indices()
    first_devices = np.empty(len(processes), object)
    first_devices[:] = [local_devices(i)[0] for i in processes]
    mesh = Mesh(first_devices, "processes")

    def gathered(leaf: object) -> NDArray:
        sharded = make_array_from_process_local_data(
            NamedSharding(mesh, PartitionSpec("processes")), np.asarray(leaf)[None]
        )
        return np.asarray(device_put(sharded, NamedSharding(mesh, PartitionSpec())))

    return trees.map(gathered, tree)
