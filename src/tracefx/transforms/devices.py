"""Arrays and the devices they are on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, overload

import numpy as np

from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import ShapedArray
from tracefx.core.backend import BACKEND
from tracefx.core.device import DEFAULT_DEVICE, Device, is_device
from tracefx.core.dtypes import NDArray, is_key
from tracefx.core.handler import Tracer, as_array
from tracefx.core.sharding import Sharding, single_device_sharding
from tracefx.core.values import ConcreteArray, Value, as_value
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree
from tracefx.shardings.meshes import PartitionSpec
from tracefx.shardings.named_sharding import as_sharding, require_shardable
from tracefx.shardings.sharded_array import ShardedArray
from tracefx.transforms.arguments import LEAF_TYPES, to_inputs
from tracefx.transforms.shardings import put_with_sharding, shard_host_array

T = TypeVar("T")


def devices(backend: str | None = None) -> list[Device]:
    """The devices programs can run on: of all processes, if several work together.

    `backend` is a platform: `"cpu"`, `"gpu"`, `"cuda"`, `"rocm"`, `"tpu"`, the name of any plug-in of XLA that jax
    finds. Without one it is the platform that programs run on when nothing says where: `TRACEFX_PLATFORM`, or the first
    of `JAX_PLATFORMS`, if one is set; a GPU or TPU, if there is a plug-in and one of these; else the CPU.

    Raises PlatformError for a platform that isn't there.

    >>> devices()[0].platform
    'cpu'
    """
    return BACKEND.value.devices(BACKEND.value.platform if backend is None else backend)


def local_devices(process_index: int | None = None, backend: str | None = None) -> list[Device]:
    """The devices of this process, or of another. ValueError if there is no such process.

    >>> local_devices() == devices()
    True
    """
    if process_index is None:
        return BACKEND.value.local_devices(BACKEND.value.platform if backend is None else backend)
    found = [device for device in devices(backend) if device.process_index == process_index]
    if not found:
        raise ValueError(f"local_devices: there is no process {process_index!r}, but {process_count(backend)} of them")
    return found


def device_count(backend: str | None = None) -> int:
    """How many devices programs can run on.

    >>> device_count() == len(devices())
    True
    """
    return len(devices(backend))


def local_device_count(backend: str | None = None) -> int:
    """How many devices this process has.

    >>> local_device_count() == device_count()
    True
    """
    return len(local_devices(backend=backend))


def process_index(backend: str | None = None) -> int:
    """Which of the processes that work together this one is; 0 if it is alone.

    >>> process_index()
    0
    """
    return local_devices(backend=backend)[0].process_index


def process_indices(backend: str | None = None) -> list[int]:
    """The numbers of the processes that work together.

    >>> process_indices()
    [0]
    """
    return sorted({device.process_index for device in devices(backend)})


def process_count(backend: str | None = None) -> int:
    """How many processes work together.

    >>> process_count()
    1
    """
    return len(process_indices(backend))


def default_backend() -> str:
    """The platform that programs run on, as its devices call it: `"gpu"` for those of every make.

    >>> default_backend()
    'cpu'
    """
    return devices()[0].platform


@contextmanager
def default_device(device: Device | str | None) -> Iterator[None]:
    """Inside of it programs run on `device`, a device of this process or a platform whose first one is meant.

    So do those of arrays that were put nowhere. Arrays that were put somewhere are computed with where they are, as are
    programs on several devices. What is computed here may be brought elsewhere later. None is the device that it is
    when nobody says.

    Where a function is traced it has no effect: where a program runs is decided when it runs.

    Raises TypeError for what is no device, ValueError for one of another process, PlatformError for a platform that
    isn't there.

    >>> with default_device(devices("cpu")[0]):
    ...     device_put(1.0).device == devices("cpu")[0]
    True
    """
    with DEFAULT_DEVICE.override(_device(device)):
        yield


def _device(given: Device | str | None) -> Device | None:
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
            f"default_device: device {given.id} is one of process {given.process_index}, where this one, "
            f"{BACKEND.value.process_index}, can't run programs: choose one of tracefx.local_devices()"
        )
    return given


@overload
def device_put(x: ArrayLike, device: PyTree = None) -> Array: ...
@overload
def device_put(x: PyTree, device: PyTree = None) -> Any: ...
def device_put(x: PyTree, device: PyTree = None) -> Any:
    """The arrays of a tree in the memory of `device`: a device, or a sharding over several.

    Without a device arrays that were put somewhere stay there, and others come to the default device.

    `device` may be a tree of these, or one for a whole branch of `x`; while a mesh is in use, a `PartitionSpec` too.
    An array that was put on other devices than the host's first stays there, and what is computed of it is computed
    there, wherever that is.
    Tracers are handed through a device; to a sharding they are constrained.

    Raises ValueError if an array can't be cut as a sharding says, TypeError for what is neither device nor sharding.

    >>> import numpy as np
    >>> device_put(np.arange(3, dtype=np.int32))
    Array([0, 1, 2], dtype=int32)
    """
    leaves, tree = trees.flatten_with_known_types(x, LEAF_TYPES)
    values, avals = to_inputs(leaves, x, "device_put: x")
    where = trees.broadcast_prefix(device, tree, none_is_leaf=True, what="device_put: device", of="x")
    return tree.unflatten([_put_leaf(v, aval, to) for v, aval, to in zip(values, avals, where, strict=True)])


def _put_leaf(given: Value | NDArray, aval: ShapedArray, to: object) -> Array:
    if isinstance(to, Sharding | PartitionSpec):
        sharding = as_sharding(to, "device_put")
        if type(given) is np.ndarray:
            require_shardable(aval, sharding, "device_put: the array")
            return shard_host_array(given, aval, sharding, copied=given.flags.writeable or given.base is not None)
        return put_with_sharding(as_array(as_value(given)), sharding, "device_put: the array")
    x = as_array(as_value(given))
    if to is not None and not is_device(to):
        raise TypeError(
            "device_put takes a device of tracefx.devices(), a sharding, or a PartitionSpec while a mesh is in use, "
            f"got {to!r} of type {type(to).__name__}"
        )
    if not isinstance(x, ConcreteArray) or (to is None and isinstance(x, ShardedArray)):
        return x
    backend = BACKEND.value
    default = backend.default_device
    device = default if to is None else to
    if device is not default or not backend.default_device_is_host:
        found = put_with_sharding(x, single_device_sharding(device), "device_put: the array")
        assert isinstance(found, ShardedArray)
        if found is x and not x.committed:
            return ShardedArray(x.aval, found.buffer, found.placed)
        found.committed = to is not None
        return found
    if x.buffer is not None and type(x) is ConcreteArray:
        return x
    return ConcreteArray(x.aval, None, backend.put(x.numpy(), None))


def device_get(x: PyTree) -> PyTree:
    """The arrays of a tree as NumPy arrays, which can't be written to; copy them to get ones that can.

    NumPy's scalars and arrays of other libraries become NumPy arrays as well. Python numbers and whatever is no array
    stay as they are, and so do random keys and what is traced.

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


def block_until_ready(x: T) -> T:
    """Wait for all arrays of a tree, which is given back; what went wrong in computing them is raised here.

    >>> block_until_ready(device_put(1.0))
    Array(1., dtype=float32, weak_type=True)
    """
    found = [v.buffer for v in trees.leaves(x) if isinstance(v, ConcreteArray) and v.buffer is not None]
    if found:
        BACKEND.value.wait(found)
    return x
