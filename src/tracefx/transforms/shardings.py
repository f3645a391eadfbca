"""The mesh in use, sharding constraints, and construction of sharded arrays."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeVar, cast, overload

import numpy as np

from tracefx.core import (
    Array,
    ArrayLike,
    ConcreteArray,
    DTypeLike,
    NDArray,
    ShapedArray,
    Value,
    as_value,
    get_aval,
    is_arraylike,
)
from tracefx.core.backend import BACKEND
from tracefx.core.device import Device
from tracefx.core.dtypes import as_dtype
from tracefx.core.handler import as_array
from tracefx.core.layouts import Format, without_layout
from tracefx.core.meshes import MESH, AbstractMesh, AxisType, BaseMesh
from tracefx.core.named_sharding import NamedSharding, type_sharding
from tracefx.core.partition_spec import PartitionSpec
from tracefx.core.sharding import ShardIndex, Sharding
from tracefx.errors import ShardingTypeError
from tracefx.ops.annotations.reshard import mesh_cast, reshard_value
from tracefx.ops.annotations.sharding_constraint import sharding_constraint
from tracefx.ops.static_integers import static_ints
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree
from tracefx.settings import Override
from tracefx.shardings.conversions import as_sharding, on_mesh
from tracefx.shardings.meshes import Mesh, current_mesh
from tracefx.shardings.sharded_array import ShardedArray, put_concrete
from tracefx.transforms.arguments import flatten_values
from tracefx.transforms.shape_dtype_struct import ShapeDtypeStruct

T = TypeVar("T")
R = TypeVar("R")


def set_mesh(mesh: Mesh) -> Override[Mesh]:
    """Returns a context manager in which `mesh` is the mesh in use.

    Inside, a `PartitionSpec` may be passed wherever a sharding is expected.

    Args:
        mesh: The mesh.

    Returns:
        A context manager, whose value in `with ... as` is the mesh.

    Raises:
        TypeError: If `mesh` is not a `Mesh`.

    >>> from tracefx import P, device_put, make_mesh
    >>> with set_mesh(make_mesh((1,), ("data",))):
    ...     device_put(np.ones(4, np.float32), P("data")).sharding
    NamedSharding(Mesh(data=1, axis_types=('Explicit',)), P('data'))
    """
    if not isinstance(mesh, Mesh):
        raise TypeError(f"set_mesh takes a Mesh, got {mesh!r}")
    return cast("Override[Mesh]", MESH.override(mesh))  # its value is `mesh`


def get_mesh() -> Mesh:
    """Returns the mesh in use; an empty mesh if there is none.

    Returns:
        The `Mesh` of the innermost `set_mesh`. `Mesh.empty` says whether there is none.

    >>> get_mesh().empty
    True
    """
    return current_mesh()


def make_mesh(
    axis_sizes: Sequence[int],
    axis_names: Sequence[str],
    axis_types: Sequence[AxisType] | None = None,
    *,
    devices: Sequence[Device] | None = None,
) -> Mesh:
    """Returns a mesh of devices.

    A mesh is an array of devices with a name for each axis; shardings and `shard_map` refer to the names.

    Args:
        axis_sizes: The sizes of the axes.
        axis_names: The names of the axes.
        axis_types: The type of each axis. None, the default, means `AxisType.Explicit`; the default of `Mesh` is
            `AxisType.Auto`.
        devices: The devices, of which the first are used, in order. None, the default, means all devices of the default
            platform.

    Returns:
        A `Mesh` with the given axes.

    Raises:
        TypeError: If the sizes are not integers.
        ValueError: If there are too few devices.

    >>> make_mesh((1, 1), ("data", "model"))
    Mesh(data=1, model=1, axis_types=('Explicit', 'Explicit'))
    """
    shape = static_ints("make_mesh", axis_sizes, "axis_sizes")
    count = prod(shape)
    available = list(BACKEND.value.devices(BACKEND.value.platform) if devices is None else devices)
    if len(available) < count:
        raise ValueError(
            f"make_mesh: a mesh of shape {shape} needs {count} devices, but there are {len(available)}; on the CPU, "
            f"set XLA_FLAGS=--xla_force_host_platform_device_count={count} before the first program runs"
        )
    array = np.empty(count, object)
    array[:] = available[:count]
    return Mesh(array.reshape(shape), axis_names, AxisType.Explicit if axis_types is None else axis_types)


def shardings_for(given: PyTree, tree: trees.TreeDef, what: str, of: str) -> tuple[Sharding | None, ...]:
    """Returns a sharding or None for each leaf of a structure, given a pytree that is a prefix of it."""
    prefix = trees.broadcast_prefix(given, tree, none_is_leaf=True, what=what, of=of)
    spread = [without_layout(leaf, what) for leaf in prefix]
    return tuple([None if leaf is None else as_sharding(leaf, what) for leaf in spread])


def explicit_inputs(leaves: list[object], given: PyTree, in_tree: trees.TreeDef) -> list[object]:
    """Returns arguments with those shardings of `in_shardings` that are part of types, unless their types have others.

    Args:
        leaves: The leaves of the positional and keyword arguments.
        given: The shardings of the positional arguments; None for no shardings.
        in_tree: The structure of the arguments.
    """
    if given is None:
        return leaves
    positional, _ = in_tree.children()
    shardings = shardings_for(given, positional, "jit: in_shardings", "the arguments")
    return [
        put_with_sharding(as_array(x), sharding, "jit: the argument")
        if isinstance(sharding, NamedSharding)
        and sharding.mesh.explicit_axes
        and is_arraylike(x)
        and get_aval(x).explicit_sharding is None
        else x
        for x, sharding in itertools.zip_longest(leaves, shardings)
    ]


def with_sharding_constraint(x: T, shardings: PyTree) -> T:
    """Constrains the shardings of the arrays of a pytree, at this point of a program.

    Args:
        x: A pytree of arrays.
        shardings: A sharding, a `PartitionSpec` of the mesh in use, or a pytree of these that is a prefix of `x`. None
            as a leaf adds no constraint.

    Returns:
        A pytree of the same values.

    Raises:
        TypeError: If `shardings` contains something else.
        ValueError: If an array cannot be divided evenly.

    >>> from tracefx import P, jit, make_mesh
    >>> @jit
    ... def f(x):
    ...     mesh = make_mesh((1,), ("data",), (AxisType.Auto,))
    ...     return with_sharding_constraint(x * 2.0, NamedSharding(mesh, P("data")))
    >>> f(np.ones(4, np.float32)).sharding.mesh
    Mesh(data=1)
    """
    values, tree = flatten_values(x, "with_sharding_constraint: x")
    outs: list[Array] = []
    for value, sharding in zip(values, shardings_for(shardings, tree, "with_sharding_constraint", "x"), strict=True):
        outs.append(as_array(value) if sharding is None else _constrained(value, on_mesh(sharding)))
    out: T = tree.unflatten(outs)
    return out


def _constrained(x: Value, sharding: NamedSharding) -> Array:
    """Returns a value with a constraint; along explicit mesh axes, checks that its type has the sharding."""
    mesh = sharding.mesh
    if mesh.explicit_axes:
        expected = type_sharding(mesh, sharding.spec.partitions, x.aval.ndim)
        if x.aval.explicit_sharding != expected:
            raise ShardingTypeError(
                f"with_sharding_constraint: along explicit mesh axes it checks the sharding of the type, but {x.aval} "
                f"does not have {sharding.spec}: reshard it with tracefx.sharding.reshard"
            )
    return sharding_constraint(x, sharding) if mesh.auto_axes or not mesh.explicit_axes else as_array(x)


def constrain_result(out: T, out_sharding: object, function: str) -> T:
    """Returns the result of a function with the sharding of its argument `out_sharding`.

    It is a constraint along automatic mesh axes, and part of the type of the result along explicit ones.

    Raises:
        TypeError: If it is neither a sharding over a mesh nor a `PartitionSpec`.
        ValueError: If it does not fit the mesh in use or the result.
    """
    what = f"{function}: out_sharding"
    mesh, spec = mesh_and_spec(out_sharding, what)
    if isinstance(mesh, Mesh):
        sharding = NamedSharding(mesh, spec)
        result: T = trees.map(lambda x: put_with_sharding(x, sharding, what), out)
    elif not mesh.explicit_axes:  # the sharding of the type of a value that is on no mesh
        return out
    else:
        result = trees.map(lambda x: as_array(reshard_value(x, mesh, spec)), out)
    return result


def call_with_out_sharding(out_sharding: object, f: Callable[..., R], *args: object, **kwargs: object) -> R:
    """Calls a function whose result gets the sharding of its argument `out_sharding`.

    Along the explicit axes of the mesh, the compiler decides about the shardings of intermediate values.

    Args:
        out_sharding: The sharding.
        f: The function.
        *args: Its positional arguments.
        **kwargs: Its keyword arguments.

    Returns:
        The result.
    """
    name = getattr(f, "__name__", repr(f))
    mesh, _ = mesh_and_spec(out_sharding, f"{name}: out_sharding")
    if mesh.explicit_axes:
        args, kwargs = cast_to_auto((args, kwargs), mesh.explicit_axes)
        with MESH.override(mesh.update_axis_types(dict.fromkeys(mesh.explicit_axes, AxisType.Auto))):
            out = f(*args, **kwargs)
    else:
        out = f(*args, **kwargs)
    return constrain_result(out, out_sharding, name)


def cast_to_auto(tree: T, axes: Sequence[str]) -> T:
    """Returns a pytree of values whose types say nothing of some mesh axes."""
    result: T = trees.map(lambda x: as_array(mesh_cast(x, axes)) if isinstance(x, Array) else x, tree)
    return result


def mesh_and_spec(sharding: object, what: str) -> tuple[BaseMesh, PartitionSpec]:
    """Returns the mesh and the specification of a sharding; those of a specification are over the mesh in use.

    Raises:
        TypeError: If it is neither a sharding over a mesh nor a `PartitionSpec`.
        ValueError: If no mesh is in use.
    """
    if isinstance(sharding, NamedSharding):
        return sharding.mesh, sharding.spec
    if isinstance(sharding, PartitionSpec) and not isinstance(MESH.value, Mesh) and not MESH.value.empty:
        return MESH.value, sharding
    if isinstance(sharding, PartitionSpec):
        named = as_sharding(sharding, what)
        assert isinstance(named, NamedSharding)
        return named.mesh, sharding
    raise TypeError(f"{what} must be a NamedSharding, a PartitionSpec or None, got {sharding!r}")


def committed_sharding(leaf: object) -> Sharding | None:
    """Returns the sharding of a committed argument or of a `ShapeDtypeStruct`; None if there is none."""
    if isinstance(leaf, ShardedArray):
        return leaf.placed if leaf.committed else None
    sharding = leaf.sharding if isinstance(leaf, ShapeDtypeStruct) else None
    if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, AbstractMesh):  # that of a type
        mesh = current_mesh()
        return sharding.update(mesh=mesh) if mesh.abstract_mesh == sharding.mesh else None
    return sharding


def constrain_shardings(values: Sequence[Value], shardings: Sequence[Sharding | None]) -> list[Value]:
    """Returns traced values with sharding constraints."""
    return [x if s is None else sharding_constraint(x, on_mesh(s)) for x, s in zip(values, shardings, strict=True)]


# ------------------------------------------------------------------ arrays


def put_with_sharding(x: Array, sharding: Sharding, what: str) -> Array:
    """Returns an array with the given sharding; a tracer with a constraint, or with another sharding in its type."""
    if isinstance(x, ConcreteArray):
        return put_concrete(x, sharding, what)
    named = on_mesh(sharding)
    out = reshard_value(x, named.mesh, named.spec) if named.mesh.explicit_axes else x
    return sharding_constraint(out, named) if named.mesh.auto_axes or not named.mesh.explicit_axes else as_array(out)


def make_array_from_callback(
    shape: Sequence[int],
    sharding: Sharding | Format,
    data_callback: Callable[[ShardIndex], object],
    dtype: DTypeLike | None = None,
) -> Array:
    """Returns a sharded array whose shards are computed by a function.

    Args:
        shape: The shape of the whole array.
        sharding: Its sharding, or a `Format`.
        data_callback: A function from the index of a shard, a tuple of slices, to its data. It is called once for each
            shard of the devices of this process. The data must not be modified afterwards.
        dtype: The dtype of the array, which must be that of the data. None, the default, takes it from the data.

    Returns:
        An array of this shape, with the given sharding.

    Raises:
        ValueError: If a shard has another shape or dtype, or the array cannot be divided evenly.
        TypeError: If the shards have different dtypes, or `sharding` is not a sharding.

    >>> from tracefx import P, make_mesh
    >>> sharding = NamedSharding(make_mesh((1,), ("data",)), P("data"))
    >>> make_array_from_callback((4,), sharding, lambda index: np.arange(4, dtype=np.float32)[index])
    Array([0., 1., 2., 3.], dtype=float32)
    """
    whole = tuple(shape)
    sharding = _require_sharding(
        without_layout(sharding, "make_array_from_callback: sharding", len(whole)), "make_array_from_callback"
    )
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
            f"make_array_from_callback: the shards have different dtypes, {sorted({str(part.dtype) for part in tiles})}"
        )
    aval = ShapedArray(whole, tiles[0].dtype)
    return ShardedArray(aval, BACKEND.value.put_shards(aval, sharding, tiles), sharding)


def _require_sharding(given: object, function: str) -> Sharding:
    """Returns `given`; raises TypeError unless it is a sharding."""
    if not isinstance(given, Sharding):
        raise TypeError(f"{function} takes a Sharding, got {given!r}")
    return given


def _callback_shard(given: object, shape: tuple[int, ...], dtype: DTypeLike | None, index: ShardIndex) -> NDArray:
    """Returns the data of a shard as a NumPy array, checked."""
    value = as_array(as_value(given, "data_callback"))
    part = np.asarray(value.numpy() if isinstance(value, ConcreteArray) else value, order="C")
    if dtype is not None and part.dtype != as_dtype(dtype):
        raise ValueError(
            f"make_array_from_callback: the shard at {index} has dtype {part.dtype}, but dtype is {as_dtype(dtype)}"
        )
    if part.shape != shape:
        raise ValueError(f"make_array_from_callback: the shard at {index} has shape {part.shape}, expected {shape}")
    return part


@overload
def make_array_from_process_local_data(
    sharding: Sharding, local_data: ArrayLike, global_shape: Sequence[int] | None = None
) -> Array: ...
@overload
def make_array_from_process_local_data(sharding: PyTree, local_data: PyTree, global_shape: PyTree = None) -> Any: ...
def make_array_from_process_local_data(sharding: PyTree, local_data: PyTree, global_shape: PyTree = None) -> Any:
    """Returns a sharded array of which every process provides the data of its own devices.

    Args:
        sharding: The sharding, or a pytree of shardings that is a prefix of `local_data`.
        local_data: The data of this process, an array or a pytree of arrays.
        global_shape: The shape of the whole array, or a pytree of shapes that is a prefix of `local_data`. None, the
            default, means that the data of all processes are concatenated along the axes that are divided between
            processes.

    Returns:
        An array, or a pytree of arrays.

    Raises:
        ValueError: If the data have another shape than the sharding requires.
        TypeError: If `sharding` contains anything but shardings.

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
    sharding = _require_sharding(sharding, "make_array_from_process_local_data")
    assert global_shape is None or isinstance(global_shape, tuple | list)
    local = np.asarray(as_array(as_value(local_data, "local_data")))
    tiling = sharding.tiling(local.ndim)
    own_devices = [
        tile_index
        for d, tile_index in zip(tiling.devices, tiling.tile_indices, strict=True)
        if d in sharding.addressable_devices
    ]
    tile_positions = np.array([np.unravel_index(tile_index, tiling.counts) for tile_index in own_devices]).reshape(
        len(own_devices), local.ndim
    )
    low, high = tile_positions.min(axis=0), tile_positions.max(axis=0) + 1
    counts = [int(n) for n in high - low]
    shape = tuple(
        [n * count // own for n, count, own in zip(local.shape, tiling.counts, counts, strict=True)]
        if global_shape is None
        else tuple(global_shape)
    )
    tile = sharding.shard_shape(shape)
    local_shape = tuple([n * own for n, own in zip(tile, counts, strict=True)])
    if local_shape != local.shape and local.shape != shape:
        raise ValueError(
            f"make_array_from_process_local_data: of an array of shape {shape} with the sharding {sharding}, this "
            f"process has the shape {local_shape}, but local_data has {local.shape}"
        )
    start = [int(k) * n for k, n in zip(low, tile, strict=True)] if local.shape != shape else [0] * local.ndim

    def part(index: ShardIndex) -> NDArray:
        local_index = [
            slice(part.start - first, part.stop - first) if part.start is not None else part
            for part, first in zip(index, start, strict=True)
        ]
        return local[tuple(local_index)]

    return make_array_from_callback(shape, sharding, part)


def make_array_from_single_device_arrays(
    shape: Sequence[int], sharding: Sharding, arrays: Sequence[Array], *, dtype: DTypeLike | None = None
) -> Array:
    """Returns a sharded array made of arrays on single devices.

    Args:
        shape: The shape of the whole array.
        sharding: Its sharding.
        arrays: The shards: one array on each device of this process, in any order.
        dtype: The dtype, which must be that of the arrays. None, the default, means that of the arrays.

    Returns:
        An array of this shape, whose shards are the given arrays, without copies.

    Raises:
        TypeError: If an array is on several devices or traced.
        ValueError: If a shard is missing, superfluous or has another shape or dtype.

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
            raise ValueError(
                f"make_array_from_single_device_arrays: {get_aval(x)} does not have the shape {tile} of a shard"
            )
        by_device[x.device] = x
    local = list(sharding.addressable_devices_indices_map(whole))
    missing = [d.id for d in local if d not in by_device]
    if missing:
        raise ValueError(f"make_array_from_single_device_arrays: there is no shard on device {missing[0]}")
    if len(arrays) != len(local):
        raise ValueError(
            f"make_array_from_single_device_arrays takes {len(local)} arrays, one for each device of {sharding}, got "
            f"{len(arrays)}"
        )
    parts = [by_device[d] for d in local]
    aval = ShapedArray(whole, parts[0].aval.dtype if dtype is None else as_dtype(dtype))
    for x in parts:
        if x.dtype != aval.dtype:
            raise ValueError(
                f"make_array_from_single_device_arrays: the shards must have the dtype {aval.dtype}, got {get_aval(x)}"
            )
    buffers = [BACKEND.value.put(x.numpy(), x.device) if x.buffer is None else x.buffer for x in parts]
    return ShardedArray(aval, BACKEND.value.assemble_shards(aval, sharding, buffers), sharding)
