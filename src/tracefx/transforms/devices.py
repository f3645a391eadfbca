"""Devices, and arrays placed on them: `devices`, `device_put`, `device_get`, `default_device` and related functions."""

from __future__ import annotations

import gc
from typing import Any, TypeVar, overload

import numpy as np

from tracefx.core import Array, ArrayLike, ConcreteArray, NDArray, ShapedArray, Value, as_value, float0
from tracefx.core.backend import BACKEND
from tracefx.core.device import DEFAULT_DEVICE, Device, is_device
from tracefx.core.dtypes import is_key
from tracefx.core.handler import Tracer, as_array, current
from tracefx.core.layouts import without_layout
from tracefx.core.partition_spec import PartitionSpec
from tracefx.core.sharding import Sharding, single_device_sharding
from tracefx.interpreters.stage import Stage
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree
from tracefx.settings import Override
from tracefx.shardings.conversions import as_sharding, require_shardable
from tracefx.shardings.sharded_array import ShardedArray, shard_host_array
from tracefx.transforms.arguments import LEAF_TYPES, to_inputs
from tracefx.transforms.shardings import put_with_sharding

T = TypeVar("T")


def devices(backend: str | None = None) -> list[Device]:
    """Returns the devices on which programs can run, in a system of several processes those of all processes.

    Args:
        backend: A platform: `"cpu"`, `"gpu"`, `"cuda"`, `"rocm"`, `"tpu"`, or the name of an XLA plug-in that jax
            finds. None, the default, means the default platform: that of `TRACEFX_PLATFORM`, or the first of
            `JAX_PLATFORMS`, if set; otherwise a GPU or TPU, if there is a plug-in and a device; otherwise the CPU.

    Returns:
        A list of `Device`.

    Raises:
        PlatformError: If the platform has no devices.

    >>> devices()[0].platform
    'cpu'
    """
    return BACKEND.value.devices(BACKEND.value.platform if backend is None else backend)


def local_devices(
    process_index: int | None = None, backend: str | None = None, host_id: int | None = None
) -> list[Device]:
    """Returns the devices of one process.

    Args:
        process_index: The index of the process. None, the default, means this process.
        backend: A platform, as for `devices`. None, the default, means the default platform.
        host_id: An older name of `process_index`. None by default.

    Returns:
        A list of `Device`. A process reads and writes the memory of its own devices only.

    Raises:
        ValueError: If there is no such process.
        PlatformError: If the platform has no devices.

    >>> local_devices() == devices()
    True
    """
    if process_index is None and (process_index := host_id) is None:
        return BACKEND.value.local_devices(BACKEND.value.platform if backend is None else backend)
    result = [device for device in devices(backend) if device.process_index == process_index]
    if not result:
        raise ValueError(
            f"local_devices: there is no process {process_index!r}: the number of processes is {process_count(backend)}"
        )
    return result


def device_count(backend: str | None = None) -> int:
    """Returns the number of devices, of all processes.

    Args:
        backend: A platform, as for `devices`. None, the default, means the default platform.

    Returns:
        A positive integer.

    Raises:
        PlatformError: If the platform has no devices.

    >>> device_count() == len(devices())
    True
    """
    return len(devices(backend))


def local_device_count(backend: str | None = None) -> int:
    """Returns the number of devices of this process.

    Args:
        backend: A platform, as for `devices`. None, the default, means the default platform.

    Returns:
        A positive integer.

    Raises:
        PlatformError: If the platform has no devices.

    >>> local_device_count() == device_count()
    True
    """
    return len(local_devices(backend=backend))


def process_index(backend: str | None = None) -> int:
    """Returns the index of this process in a system of several processes; 0 if there is only one.

    Args:
        backend: A platform, as for `devices`. None, the default, means the default platform.

    Returns:
        An integer from 0 to `process_count() - 1`.

    Raises:
        PlatformError: If the platform has no devices.

    >>> process_index()
    0
    """
    return local_devices(backend=backend)[0].process_index


def process_indices(backend: str | None = None) -> list[int]:
    """Returns the indices of all processes of the system.

    Args:
        backend: A platform, as for `devices`. None, the default, means the default platform.

    Returns:
        The sorted list of the indices.

    Raises:
        PlatformError: If the platform has no devices.

    >>> process_indices()
    [0]
    """
    return sorted({device.process_index for device in devices(backend)})


def process_count(backend: str | None = None) -> int:
    """Returns the number of processes of the system.

    Args:
        backend: A platform, as for `devices`. None, the default, means the default platform.

    Returns:
        A positive integer; 1 without `tracefx.distributed.initialize`.

    Raises:
        PlatformError: If the platform has no devices.

    >>> process_count()
    1
    """
    return len(process_indices(backend))


def default_backend() -> str:
    """Returns the default platform, as the devices name it: `"gpu"` for GPUs of any vendor.

    Returns:
        The name, such as `"cpu"`, `"gpu"` or `"tpu"`.

    >>> default_backend()
    'cpu'
    """
    return devices()[0].platform


def default_device(device: Device | str | None) -> Override[Device | None]:
    """Returns a context manager that sets the device on which programs run.

    It applies to programs without arrays or with uncommitted arrays only. Programs of committed arrays (see
    `device_put`) run on the devices of these. It has no effect while a function is traced: the device is chosen when a
    program runs. Results are uncommitted.

    Args:
        device: A device of this process, or the name of a platform, which means its first device. None means the usual
            default.

    Returns:
        A context manager, whose value in `with ... as` is the device.

    Raises:
        TypeError: If `device` is not a device or a string.
        ValueError: If it is a device of another process.
        PlatformError: If the platform has no devices.

    >>> with default_device(devices("cpu")[0]):
    ...     device_put(1.0).device == devices("cpu")[0]
    True
    """
    return DEFAULT_DEVICE.override(_device(device))


def _device(given: Device | str | None) -> Device | None:
    """Returns the device that `default_device` was called with; None for the usual default."""
    if given is None:
        return None
    if isinstance(given, str):
        return BACKEND.value.local_devices(given)[0]
    if not is_device(given):
        raise TypeError(
            f"default_device takes a device of tracefx.devices() or the name of a platform, got {given!r} of type "
            f"{type(given).__name__}"
        )
    if given.process_index != BACKEND.value.process_index:
        raise ValueError(
            f"default_device: device {given.id} belongs to process {given.process_index}, and this is process "
            f"{BACKEND.value.process_index}: choose one of tracefx.local_devices()"
        )
    return given


@overload
def device_put(
    x: ArrayLike,
    device: PyTree = None,
    *,
    src: PyTree = None,
    donate: PyTree = False,
    may_alias: PyTree = None,
) -> Array: ...
@overload
def device_put(
    x: PyTree,
    device: PyTree = None,
    *,
    src: PyTree = None,
    donate: PyTree = False,
    may_alias: PyTree = None,
) -> Any: ...
def device_put(
    x: PyTree,
    device: PyTree = None,
    *,
    src: PyTree = None,
    donate: PyTree = False,
    may_alias: PyTree = None,
) -> Any:
    """Returns the arrays of a pytree in the memory of a device, or sharded over several devices.

    The arrays are then committed: computations with them run on these devices. Tracers get a sharding constraint; for a
    device, not while a function is traced by `jit`, whose caller chooses the device.

    Args:
        x: A pytree of arrays or numbers.
        device: A device, a `Sharding`, a `Format`, a `PartitionSpec` of the mesh in use, or a pytree of these that is
            a prefix of `x`. None, the default, leaves committed arrays where they are, and puts others on the default
            device, uncommitted.
        src: Where the arrays are: a hint, which has no effect, since arrays know it. None by default.
        donate: Whether the arrays of `x` are deleted, so that the results may take over their memory: a bool, or a
            pytree of bools that is a prefix of `x`. False by default. Arrays of other libraries are never deleted.
        may_alias: Whether the results may share memory with the arrays of `x`, as a bool or a prefix pytree. False
            copies those that are on the device already. None, the default, means True.

    Returns:
        A pytree of arrays with the same values.

    Raises:
        TypeError: If `device` contains something else, or a leaf of `x` is not an array.
        ValueError: If an array cannot be divided as a sharding requires, or `donate` and `may_alias` are both true.

    >>> import numpy as np
    >>> device_put(np.arange(3, dtype=np.int32))
    Array([0, 1, 2], dtype=int32)
    >>> from tracefx import NamedSharding, P, devices, make_mesh
    >>> mesh = make_mesh((1,), ("data",))
    >>> batch = device_put({"x": np.ones((4, 2)), "y": np.ones(4)}, NamedSharding(mesh, P("data")))
    >>> batch["x"].sharding
    NamedSharding(Mesh(data=1, axis_types=('Explicit',)), P('data'))
    >>> device_put(1.0, devices()[0]).devices() == {devices()[0]}
    True
    """
    leaves, tree = trees.flatten_with_known_types(x, LEAF_TYPES)
    values, avals = to_inputs(leaves, x, "device_put: x")
    where = trees.broadcast_prefix(device, tree, none_is_leaf=True, what="device_put: device", of="x")
    if donate is False and may_alias is None:
        return tree.unflatten([_put_leaf(v, aval, to) for v, aval, to in zip(values, avals, where, strict=True)])
    donated = trees.broadcast_prefix(donate, tree, what="device_put: donate", of="x")
    aliased = trees.broadcast_prefix(may_alias, tree, none_is_leaf=True, what="device_put: may_alias", of="x")
    if any(d and a for d, a in zip(donated, aliased, strict=True)):
        raise ValueError("device_put: donate and may_alias are both true for an array: pass one of them")
    sources = [_source(v, bool(d), a is not False) for v, d, a in zip(values, donated, aliased, strict=True)]
    results = [_put_leaf(v, aval, to) for v, aval, to in zip(sources, avals, where, strict=True)]
    for v, d in zip(values, donated, strict=True):
        if d and isinstance(v, ConcreteArray):
            v.delete_donated("an argument of device_put")
    return tree.unflatten(results)


def _source(x: Value | NDArray, donated: bool, may_alias: bool) -> Value | NDArray:
    """Returns the array to put in place of `x`: another array with its memory if it is donated, or else a copy."""
    if not isinstance(x, ConcreteArray):
        return x if may_alias or isinstance(x, Array) else np.array(x)
    return x.alias() if donated else x if may_alias else x.__copy__()


def _put_leaf(given: Value | NDArray, aval: ShapedArray, to: object) -> Array:
    to = without_layout(to, "device_put: device", aval.ndim)
    if isinstance(to, Sharding | PartitionSpec):
        sharding = as_sharding(to, "device_put")
        if type(given) is np.ndarray:
            require_shardable(aval, sharding, "device_put: the array")
            return shard_host_array(given, aval, sharding, copied=given.flags.writeable or given.base is not None)
        return put_with_sharding(as_array(as_value(given)), sharding, "device_put: the array")
    x = as_array(as_value(given))
    if aval.dtype == float0:  # no memory
        return x
    if to is not None and not is_device(to):
        raise TypeError(
            "device_put takes a device of tracefx.devices(), a sharding, or a PartitionSpec while a mesh is in use, "
            f"got {to!r} of type {type(to).__name__}"
        )
    if to is not None and any(isinstance(handler, Stage) for handler in current().chain()):
        return x  # the device of a traced program is chosen when it runs
    if not isinstance(x, ConcreteArray):
        return x if to is None else put_with_sharding(x, single_device_sharding(to), "device_put: the array")
    if to is None and isinstance(x, ShardedArray):
        return x
    backend = BACKEND.value
    if to is None and backend.default_device_is_host:
        return x if x.buffer is not None else ConcreteArray(x.aval, None, backend.put(x.numpy(), None))
    device = backend.default_device if to is None else to
    result = put_with_sharding(x, single_device_sharding(device), "device_put: the array")
    assert isinstance(result, ShardedArray)
    if result is x and not x.committed:
        return ShardedArray(x.aval, result.buffer, result.placed)
    result.committed = to is not None
    return result


def device_get(x: PyTree) -> PyTree:
    """Returns the arrays of a pytree as read-only NumPy arrays.

    Args:
        x: A pytree. NumPy scalars and arrays of other libraries become NumPy arrays as well. Python numbers, random
            keys, tracers and leaves that are not arrays are returned unchanged.

    Returns:
        A pytree of the same structure.

    >>> device_get(device_put([1.0]))
    [array(1., dtype=float32)]
    """

    def get(leaf: object) -> object:
        if isinstance(leaf, ConcreteArray):
            return leaf if is_key(leaf.aval.dtype) else leaf.__array__()
        if isinstance(leaf, Tracer) or not hasattr(leaf, "__array__"):
            return leaf
        return np.asarray(leaf)

    return trees.map(get, x)


def live_arrays(platform: str | None = None) -> list[Array]:
    """Returns the arrays of a platform that exist, to find those that keep memory occupied.

    It searches the objects that Python's garbage collector knows, since there is no list of arrays: a call takes
    milliseconds, and an array on the way to be collected may be in the result. Arrays that programs or caches hold are
    included; deleting these breaks later calls.

    Args:
        platform: A platform, as for `devices`. None, the default, means the default platform.

    Returns:
        A list of arrays, without deleted ones.

    Raises:
        PlatformError: If the platform has no devices.

    >>> x = device_put(1.0)
    >>> any(array is x for array in live_arrays())
    True
    """
    wanted = set(devices(platform))
    arrays = [x for x in gc.get_objects() if issubclass(type(x), ConcreteArray)]
    return [x for x in arrays if not x.is_deleted() and wanted & x.devices()]


def block_until_ready(x: T) -> T:
    """Waits until all arrays of a pytree are computed, and returns the pytree.

    Calls of compiled programs may return before the program has run. To measure the time of a program, wait for its
    results. Errors of the computations are raised here.

    Args:
        x: A pytree; leaves that are not arrays are ignored.

    Returns:
        `x` itself.

    >>> block_until_ready(device_put(1.0))
    Array(1., dtype=float32, weak_type=True)
    """
    result = [v.buffer for v in trees.leaves(x) if isinstance(v, ConcreteArray) and v.buffer is not None]
    if result:
        BACKEND.value.wait(result)
    return x
