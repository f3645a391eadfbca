"""Several processes that work together: each runs the same program, and their devices make one system.

Call `initialize` in each of them before anything else. From then on `devices()` are those of all processes, meshes can
be made of them, and a program on arrays that lie on such a mesh runs in all processes at once. All have to run the same
programs in the same order.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final

import numpy as np

from tracefx.core.backend import BACKEND
from tracefx.core.dtypes import NDArray
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree
from tracefx.shardings.meshes import Mesh, PartitionSpec
from tracefx.shardings.named_sharding import NamedSharding
from tracefx.transforms.devices import device_put, local_devices, process_count, process_indices
from tracefx.transforms.shardings import make_array_from_process_local_data
from tracefx.xla.runtime import process_group
from tracefx.xla.runtime.rendezvous import DistributedError as DistributedError
from tracefx.xla.runtime.rendezvous import parse_address

_DEFAULT_TIMEOUT: Final = 300
"""For how many seconds processes wait for each other if nothing else is said."""


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
    """Make this process number `process_id` of `num_processes`; returns when all have called it.

    Args:
        coordinator_address: a host and a port at which all others reach process 0, such as `"10.0.0.1:1234"`; the
            environment variable `JAX_COORDINATOR_ADDRESS`, if it is not given.
        num_processes: as `JAX_NUM_PROCESSES`, or what Slurm or Open MPI say, if it is not given.
        process_id: as `JAX_PROCESS_ID`, or what they say.
        local_device_ids: which devices of the machine this process takes; on the CPU, where all are alike, as many as
            there are numbers. `JAX_LOCAL_DEVICE_IDS`, such as `0,1`, if it is not given.
        initialization_timeout: for how many seconds it waits for the others.
        heartbeat_timeout_seconds: after how many seconds a process of which nothing is heard counts as dead. The others
            end then.
        shutdown_timeout_seconds: for how many seconds a process that ends waits for the others to end.
        coordinator_bind_address: where process 0 listens; everywhere, at the port of `coordinator_address`, if neither
            this nor `JAX_COORDINATOR_BIND_ADDRESS` says.

    At its end a process waits for the others; after an error that nobody caught it doesn't, so that they learn of it.

    Raises ValueError or TypeError for what is missing or makes no sense, RuntimeError if it was called already, or too
    late, after devices were asked for or a program ran, DistributedError if the processes don't find each other.
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
            f"initialize: process_id counts from 0 to below num_processes, got process_id={index} and "
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


def _int_option(given: int | None, what: str, variables: Sequence[str]) -> int:
    if given is not None:
        if type(given) is not int:
            raise TypeError(f"initialize: {what} is an int, got {given!r} of type {type(given).__name__}")
        return given
    for variable in variables:
        said = os.environ.get(variable)
        if said is not None:
            if not said.isdecimal():
                raise ValueError(f"initialize: {what} is what {variable} says, which is no number: {said!r}")
            return int(said)
    raise ValueError(f"initialize: there is no {what}: pass it, or set {variables[0]}")


def _check_seconds(given: int, what: str) -> int:
    if type(given) is not int or given < 1:
        raise ValueError(f"initialize: {what} is a number of seconds, 1 or more, got {given!r}")
    return given


def _local_ids(given: int | Sequence[int] | None) -> tuple[int, ...] | None:
    said = os.environ.get("JAX_LOCAL_DEVICE_IDS")
    if given is None and said:
        if not all(part.strip().isdecimal() for part in said.split(",")):
            raise ValueError(f"initialize: JAX_LOCAL_DEVICE_IDS has numbers with commas between them, got {said!r}")
        given = [int(part) for part in said.split(",")]
    if given is None:
        return None
    ids = [given] if isinstance(given, int) else list(given)
    if not ids or len(set(ids)) != len(ids) or any(type(i) is not int or i < 0 for i in ids):
        raise ValueError(f"initialize: local_device_ids are different numbers from 0 on, got {given!r}")
    return tuple(ids)


def is_initialized() -> bool:
    """Whether this process works with others.

    >>> is_initialized()
    False
    """
    return process_group.is_distributed()


def shutdown() -> None:
    """Wait until all processes call it, or end, and part from them. In a process that works alone nothing happens.

    Programs over several processes can't run any more. A process that ends does this on its own.

    Raises DistributedError if one doesn't come within the `shutdown_timeout_seconds` of `initialize`.

    >>> shutdown()
    """
    process_group.leave_process_group()


def barrier(name: str, timeout_seconds: float = _DEFAULT_TIMEOUT) -> None:
    """Wait until all processes come here. `name` says which place that is.

    Raises DistributedError if one doesn't come in time, or comes to a place of another name.

    >>> barrier("saved")
    """
    if process_count() > 1:
        process_group.barrier(name, timeout_seconds)


def assert_equal(tree: PyTree, name: str = "assert_equal", timeout_seconds: float = _DEFAULT_TIMEOUT) -> None:
    """ValueError, in all processes, unless the arrays of `tree` are the same in all: in structure, types and numbers.

    What programs over several processes take from the host has to be. Only digests of it are sent.

    >>> assert_equal({"step": 3, "seed": np.array([1, 2])})
    """
    if process_count() == 1:
        return
    digests = process_group.all_gather_bytes(name, _digest(tree), timeout_seconds)
    other = [i for i, digest in enumerate(digests) if digest != digests[0]]
    if other:
        raise ValueError(
            f"{name}: it is not the same in all processes: in {other} it is another than in process 0; in this one, "
            f"{BACKEND.value.process_index}, it is {trees.structure(tree)}"
        )


def _digest(tree: PyTree) -> bytes:
    leaves, structure = trees.flatten(tree)
    digest = blake2b(digest_size=16)
    digest.update(repr(structure).encode())
    for leaf in leaves:
        array = np.asarray(leaf)
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.digest()


def all_gather(tree: PyTree) -> Any:
    """The arrays of all processes: each leaf as a NumPy array with a new first axis, along which the processes are.

    All processes call it with trees of the same structure whose arrays have the same types.

    >>> all_gather({"loss": np.float32(0.5)})
    {'loss': array([0.5], dtype=float32)}
    """
    processes = process_indices()
    found = np.empty(len(processes), object)
    found[:] = [local_devices(i)[0] for i in processes]
    mesh = Mesh(found, "processes")

    def gathered(leaf: object) -> NDArray:
        apart = make_array_from_process_local_data(
            NamedSharding(mesh, PartitionSpec("processes")), np.asarray(leaf)[None]
        )
        return np.asarray(device_put(apart, NamedSharding(mesh, PartitionSpec())))

    return trees.map(gathered, tree)
