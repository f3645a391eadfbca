"""Meshes in use, and arrays that are put on the devices of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, TypeVar, overload

import numpy as np

from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import ShapedArray
from tracefx.core.backend import BACKEND
from tracefx.core.device import Device
from tracefx.core.dtypes import DTypeLike, NDArray, as_dtype
from tracefx.core.handler import as_array
from tracefx.core.sharding import ShardIndex, Sharding
from tracefx.core.values import ConcreteArray, Value, as_value, get_aval
from tracefx.ops.annotations.sharding_constraint import sharding_constraint
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree
from tracefx.shardings.meshes import MESH, Mesh
from tracefx.shardings.named_sharding import NamedSharding, as_sharding, require_shardable
from tracefx.shardings.sharded_array import ShardedArray
from tracefx.transforms.arguments import flatten_values
from tracefx.transforms.shape_dtype_struct import ShapeDtypeStruct

T = TypeVar("T")


@contextmanager
def set_mesh(mesh: Mesh) -> Iterator[Mesh]:
    """Inside of it `mesh` is in use: where a sharding is asked for, a `PartitionSpec` alone will do.

    >>> from tracefx import P, device_put, make_mesh
    >>> with set_mesh(make_mesh((1,), ("data",))):
    ...     device_put(np.ones(4, np.float32), P("data")).sharding
    NamedSharding(Mesh(data=1), P('data'))
    """
    if not isinstance(mesh, Mesh):
        raise TypeError(f"set_mesh takes a Mesh, got {mesh!r}")
    with MESH.override(mesh):
        yield mesh


def get_mesh() -> Mesh:
    """The mesh in use; an empty one if there is none.

    >>> get_mesh().empty
    True
    """
    return MESH.value


def make_mesh(
    axis_shapes: Sequence[int], axis_names: Sequence[str], *, devices: Sequence[Device] | None = None
) -> Mesh:
    """A mesh of as many devices as its axes take: the first of those there are, if none are given.

    Raises ValueError if there are too few.

    >>> make_mesh((1, 1), ("data", "model"))
    Mesh(data=1, model=1)
    """
    shape, count = tuple(axis_shapes), prod(axis_shapes)
    found = list(BACKEND.value.devices(BACKEND.value.platform) if devices is None else devices)
    if len(found) < count:
        raise ValueError(
            f"make_mesh: a mesh of shape {shape} takes {count} devices, but there are {len(found)}; on the CPU, set "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={count} before the first program runs"
        )
    array = np.empty(count, object)
    array[:] = found[:count]
    return Mesh(array.reshape(shape), axis_names)


def shardings_for(given: PyTree, tree: trees.TreeDef, what: str, of: str) -> tuple[Sharding | None, ...]:
    """A sharding, or None, for each leaf of a tree, from one for it all or for some branches."""
    spread = trees.broadcast_prefix(given, tree, none_is_leaf=True, what=what, of=of)
    return tuple([None if leaf is None else as_sharding(leaf, what) for leaf in spread])  # type: ignore[arg-type]  # checked there


def with_sharding_constraint(x: T, shardings: PyTree) -> T:
    """The arrays of a tree, which are to lie as `shardings` say at this point of the program.

    `shardings` is a `NamedSharding` for all of them, or a tree of such, None for what may lie anywhere. While a mesh is
    in use, `PartitionSpec`s will do.

    Raises ValueError if an array can't be cut so.

    >>> from tracefx import P, jit, make_mesh
    >>> @jit
    ... def f(x):
    ...     return with_sharding_constraint(x * 2.0, NamedSharding(make_mesh((1,), ("data",)), P("data")))
    >>> f(np.ones(4, np.float32)).sharding.mesh
    Mesh(data=1)
    """
    values, tree = flatten_values(x, "with_sharding_constraint: x")
    outs: list[Array] = []
    for value, sharding in zip(values, shardings_for(shardings, tree, "with_sharding_constraint", "x"), strict=True):
        if sharding is not None and not isinstance(sharding, NamedSharding):
            raise TypeError(f"with_sharding_constraint takes shardings on meshes, got {sharding}")
        outs.append(as_array(value) if sharding is None else sharding_constraint(value, sharding))
    out: T = tree.unflatten(outs)
    return out


def committed_sharding(leaf: object) -> Sharding | None:
    """Where an argument was put, or is said to lie; None if it goes where it is needed."""
    if isinstance(leaf, ShardedArray):
        return leaf.placed if leaf.committed else None
    return leaf.sharding if isinstance(leaf, ShapeDtypeStruct) else None


def constrain_shardings(values: Sequence[Value], shardings: Sequence[Sharding | None]) -> list[Value]:
    """Values of a program that is traced, which are to lie as shardings say."""
    return [
        sharding_constraint(x, s) if isinstance(s, NamedSharding) else x for x, s in zip(values, shardings, strict=True)
    ]


# ------------------------------------------------------------------ arrays


def put_with_sharding(x: Array, sharding: Sharding, what: str) -> Array:
    """An array moved to where a sharding says."""
    if not isinstance(x, ConcreteArray):
        return sharding_constraint(x, sharding) if isinstance(sharding, NamedSharding) else x
    require_shardable(x.aval, sharding, what)
    if isinstance(x, ShardedArray):
        if x.placed == sharding:
            return x
        if x.placed.device_set == sharding.device_set or (
            x.placed.is_fully_addressable and sharding.is_fully_addressable
        ):
            return BACKEND.value.reshard(x, sharding)
    return shard_host_array(x.numpy(), x.aval, sharding)


def shard_host_array(host: NDArray, aval: ShapedArray, sharding: Sharding, copied: bool = False) -> ShardedArray:
    """Numbers on the host, cut into tiles where a sharding says; `copied` if anyone could write to them."""
    tiling, mine = sharding.tiling(aval.ndim), sharding.addressable_devices
    alone = (
        tiling.num_replicas == 1 and host.size > 0
    )  # or else devices share the copy of a tile; XLA copies no empty one
    tiles = tiling.split_tiles(host, [device in mine for device in tiling.devices], copied and not alone)
    return ShardedArray(aval, BACKEND.value.put_shards(aval, sharding, tiles, copied and alone), sharding)


def make_array_from_callback(
    shape: Sequence[int],
    sharding: Sharding,
    data_callback: Callable[[ShardIndex], object],
    dtype: DTypeLike | None = None,
) -> Array:
    """An array that lies as `sharding` says, of which `data_callback(index)` gives the part at `index`.

    It is asked for the parts of this process's devices alone, once for each part; its arrays are not to be written to
    afterwards. Raises ValueError for a part of another shape, TypeError for parts of different dtypes.

    >>> from tracefx import P, make_mesh
    >>> sharding = NamedSharding(make_mesh((1,), ("data",)), P("data"))
    >>> make_array_from_callback((4,), sharding, lambda index: np.arange(4, dtype=np.float32)[index])
    Array([0., 1., 2., 3.], dtype=float32)
    """
    whole = tuple(shape)
    tile = sharding.shard_shape(whole)
    known: dict[str, NDArray] = {}
    tiles = []
    for index in sharding.addressable_devices_indices_map(whole).values():
        key = repr(index)
        if key not in known:
            known[key] = _callback_shard(data_callback(index), tile, dtype, index)
        tiles.append(known[key])
    if len({part.dtype for part in tiles}) > 1:
        raise TypeError(
            f"make_array_from_callback: the parts have different dtypes, {sorted({str(part.dtype) for part in tiles})}"
        )
    aval = ShapedArray(whole, tiles[0].dtype)
    return ShardedArray(aval, BACKEND.value.put_shards(aval, sharding, tiles), sharding)


def _callback_shard(given: object, shape: tuple[int, ...], dtype: DTypeLike | None, index: ShardIndex) -> NDArray:
    value = as_array(as_value(given, "data_callback"))  # type: ignore[arg-type]  # checked there
    part = np.asarray(value if dtype is None else value.astype(as_dtype(dtype)), order="C")
    if part.shape != shape:
        raise ValueError(
            f"make_array_from_callback: the part at {index} has shape {part.shape}, where {shape} is asked"
        )
    return part


@overload
def make_array_from_process_local_data(
    sharding: Sharding, local_data: ArrayLike, global_shape: Sequence[int] | None = None
) -> Array: ...
@overload
def make_array_from_process_local_data(sharding: PyTree, local_data: PyTree, global_shape: PyTree = None) -> Any: ...
def make_array_from_process_local_data(sharding: PyTree, local_data: PyTree, global_shape: PyTree = None) -> Any:
    """An array that lies as `sharding` says, of which this process gives what lies on its devices: `local_data`.

    Without a `global_shape` the array has the parts of all processes one after the other, along the axes along which
    they have different ones. Raises ValueError for data of another shape.

    `local_data` may be a tree of arrays, and `sharding` and `global_shape` trees with a leaf for an array or for a
    whole branch of it.

    >>> from tracefx import P, make_mesh
    >>> make_array_from_process_local_data(NamedSharding(make_mesh((1,), ("data",)), P("data")), np.ones(4, np.float32))
    Array([1., 1., 1., 1.], dtype=float32)
    """
    what, of = "make_array_from_process_local_data", "local_data"
    leaves, tree = trees.flatten(local_data)
    shardings = trees.broadcast_prefix(sharding, tree, what=f"{what}: sharding", of=of)
    shapes = trees.broadcast_prefix(
        global_shape, tree, is_leaf=_is_shape, none_is_leaf=True, what=f"{what}: global_shape", of=of
    )
    return tree.unflatten(list(map(_make_from_local_data, shardings, leaves, shapes)))


def _is_shape(x: object) -> bool:
    return isinstance(x, tuple | list) and all(isinstance(n, int | np.integer) for n in x)


def _make_from_local_data(sharding: object, local_data: object, global_shape: object) -> Array:
    if not isinstance(sharding, Sharding):
        raise TypeError(f"make_array_from_process_local_data takes a Sharding, got {sharding!r}")
    assert global_shape is None or isinstance(global_shape, tuple | list)
    local = np.asarray(as_array(as_value(local_data, "local_data")))  # type: ignore[arg-type]  # checked there
    tiling = sharding.tiling(local.ndim)
    mine = [
        place for d, place in zip(tiling.devices, tiling.tile_indices, strict=True) if d in sharding.addressable_devices
    ]
    steps = np.array([np.unravel_index(place, tiling.counts) for place in mine]).reshape(len(mine), local.ndim)
    low, high = steps.min(axis=0), steps.max(axis=0) + 1
    counts = [int(n) for n in high - low]
    shape = tuple(
        [n * count // own for n, count, own in zip(local.shape, tiling.counts, counts, strict=True)]
        if global_shape is None
        else tuple(global_shape)
    )
    tile = sharding.shard_shape(shape)
    wanted = tuple([n * own for n, own in zip(tile, counts, strict=True)])
    if wanted != local.shape and local.shape != shape:
        raise ValueError(
            f"make_array_from_process_local_data: of an array of shape {shape} that lies as {sharding}, this process "
            f"has {wanted}, but the data have shape {local.shape}"
        )
    start = [int(k) * n for k, n in zip(low, tile, strict=True)] if local.shape != shape else [0] * local.ndim

    def part(index: ShardIndex) -> NDArray:
        moved = [
            slice(part.start - first, part.stop - first) if part.start is not None else part
            for part, first in zip(index, start, strict=True)
        ]
        return local[tuple(moved)]

    return make_array_from_callback(shape, sharding, part)


def make_array_from_single_device_arrays(shape: Sequence[int], sharding: Sharding, arrays: Sequence[Array]) -> Array:
    """An array that lies as `sharding` says, of the parts that lie on this process's devices already.

    `arrays` are one for each device, in any order. Raises ValueError if one is missing or has another shape.

    >>> from tracefx import P, device_put, devices, make_mesh
    >>> part = device_put(np.ones(4, np.float32), devices()[0])
    >>> make_array_from_single_device_arrays((4,), NamedSharding(make_mesh((1,), ("data",)), P("data")), [part])
    Array([1., 1., 1., 1.], dtype=float32)
    """
    whole = tuple(shape)
    tile = sharding.shard_shape(whole)
    by_device = {}
    for x in arrays:
        if not isinstance(x, ConcreteArray) or x.sharding.num_devices != 1:
            raise TypeError(f"make_array_from_single_device_arrays takes arrays on one device each, got {x!r}")
        if x.shape != tile:
            raise ValueError(f"make_array_from_single_device_arrays: {get_aval(x)} has not the shape {tile} of a part")
        by_device[x.device] = x
    local = list(sharding.addressable_devices_indices_map(whole))
    missing = [d.id for d in local if d not in by_device]
    if missing:
        raise ValueError(f"make_array_from_single_device_arrays: there is no part on device {missing[0]}")
    parts = [by_device[d] for d in local]
    aval = ShapedArray(whole, parts[0].aval.dtype)
    buffers = [BACKEND.value.put(x.numpy(), x.device) if x.buffer is None else x.buffer for x in parts]
    return ShardedArray(aval, BACKEND.value.assemble_shards(aval, sharding, buffers), sharding)
