"""Arrays and the devices they are on."""

from __future__ import annotations

from typing import Any, TypeVar, overload

import numpy as np

from tracefx.core import trees
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import ShapedArray
from tracefx.core.backend import BACKEND, Device, is_device
from tracefx.core.dtypes import NDArray
from tracefx.core.handler import Tracer, as_array
from tracefx.core.meshes import PartitionSpec
from tracefx.core.sharded import ShardedArray
from tracefx.core.shardings import Sharding, SingleDeviceSharding, as_sharding, require_cut
from tracefx.core.trees import PyTree
from tracefx.core.values import ConcreteArray, Value, as_value
from tracefx.transforms.arguments import LEAF_TYPES, to_inputs
from tracefx.transforms.shardings import cut_apart, placed

T = TypeVar("T")


def devices(backend: str = "cpu") -> list[Device]:
    """The devices programs can run on: of all processes, if several work together.

    >>> devices()[0].platform
    'cpu'
    """
    return BACKEND.value.devices(backend)


def local_devices(process_index: int | None = None, backend: str = "cpu") -> list[Device]:
    """The devices of this process, or of another. ValueError if there is no such process.

    >>> local_devices() == devices()
    True
    """
    if process_index is None:
        return BACKEND.value.local_devices(backend)
    found = [device for device in devices(backend) if device.process_index == process_index]
    if not found:
        raise ValueError(f"local_devices: there is no process {process_index!r}, but {process_count(backend)} of them")
    return found


def device_count(backend: str = "cpu") -> int:
    """How many devices programs can run on.

    >>> device_count() == len(devices())
    True
    """
    return len(devices(backend))


def local_device_count(backend: str = "cpu") -> int:
    """How many devices this process has.

    >>> local_device_count() == device_count()
    True
    """
    return len(local_devices(backend=backend))


def process_index(backend: str = "cpu") -> int:
    """Which of the processes that work together this one is; 0 if it is alone.

    >>> process_index()
    0
    """
    return local_devices(backend=backend)[0].process_index


def process_indices(backend: str = "cpu") -> list[int]:
    """The numbers of the processes that work together.

    >>> process_indices()
    [0]
    """
    return sorted({device.process_index for device in devices(backend)})


def process_count(backend: str = "cpu") -> int:
    """How many processes work together.

    >>> process_count()
    1
    """
    return len(process_indices(backend))


def default_backend() -> str:
    """The platform that programs run on.

    >>> default_backend()
    'cpu'
    """
    return BACKEND.value.platform


@overload
def device_put(x: ArrayLike, device: PyTree = None) -> Array: ...
@overload
def device_put(x: PyTree, device: PyTree = None) -> Any: ...
def device_put(x: PyTree, device: PyTree = None) -> Any:
    """The arrays of a tree in the memory of `device`: a device, or a sharding over several.

    Without a device arrays that were put somewhere stay there, and others come to the first device.

    `device` may be a tree of these, or one for a whole branch of `x`; while a mesh is in use, a `PartitionSpec` too.
    An array that was put on other devices than the first stays there, and what is computed of it is computed there.
    Tracers are handed through a device; to a sharding they are constrained.

    Raises ValueError if an array can't be cut as a sharding says, TypeError for what is neither device nor sharding.

    >>> import numpy as np
    >>> device_put(np.arange(3, dtype=np.int32))
    Array([0, 1, 2], dtype=int32)
    """
    leaves, tree = trees.flatten_leaves(x, LEAF_TYPES)
    values, avals = to_inputs(leaves, x, "device_put: x")
    where = trees.broadcast_prefix(device, tree, none_is_leaf=True, what="device_put: device", of="x")
    return tree.unflatten([_put(v, aval, to) for v, aval, to in zip(values, avals, where, strict=True)])


def _put(given: Value | NDArray, aval: ShapedArray, to: object) -> Array:
    if isinstance(to, Sharding | PartitionSpec):
        sharding = as_sharding(to, "device_put")
        if type(given) is np.ndarray:
            require_cut(aval, sharding, "device_put: the array")
            return cut_apart(given, aval, sharding, copied=given.flags.writeable or given.base is not None)
        return placed(as_array(as_value(given)), sharding, "device_put: the array")
    x = as_array(as_value(given))
    if to is not None and not is_device(to):
        raise TypeError(
            "device_put takes a device of tracefx.devices(), a sharding, or a PartitionSpec while a mesh is in use, "
            f"got {to!r} of type {type(to).__name__}"
        )
    if not isinstance(x, ConcreteArray) or (to is None and isinstance(x, ShardedArray)):
        return x
    backend = BACKEND.value
    first = backend.local_devices(backend.platform)[0]
    device = first if to is None else to
    if device is not first:
        return placed(x, SingleDeviceSharding(device), "device_put: the array")
    if x.buffer is not None and type(x) is ConcreteArray and backend.device_of(x.buffer) is device:
        return x
    return ConcreteArray(x.aval, None, backend.put(x.numpy(), first))


def device_get(x: PyTree) -> PyTree:
    """The arrays of a tree as NumPy arrays, which can't be written to; copy them to get ones that can.

    >>> device_get(device_put([1.0]))
    [array(1., dtype=float32)]
    """

    def get(leaf: object) -> object:
        if isinstance(leaf, Tracer):
            raise TypeError(f"device_get needs numbers, but {leaf} is traced: call it outside the transformed function")
        return leaf.__array__() if isinstance(leaf, ConcreteArray) else leaf

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
