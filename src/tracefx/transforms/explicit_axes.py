"""Shardings in types: the functions that change them, and switch between automatic and explicit mesh axes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

from typing_extensions import ParamSpec

from tracefx.core import Array
from tracefx.core.handler import as_array
from tracefx.core.meshes import MESH, AbstractMesh, AxisType, BaseMesh
from tracefx.core.partition_spec import PartitionSpec
from tracefx.ops.annotations.reshard import reshard_value
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree
from tracefx.settings import Override
from tracefx.transforms.arguments import flatten_values, require_callable
from tracefx.transforms.shard_maps import Infer, ShardMap, shard_map
from tracefx.transforms.shardings import cast_to_auto, mesh_and_spec

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


def get_abstract_mesh() -> AbstractMesh:
    """Returns the mesh in use, without its devices.

    Returns:
        The mesh of the innermost `set_mesh` or `use_abstract_mesh`; one without axes if there is none.

    >>> get_abstract_mesh().empty
    True
    """
    return MESH.value.abstract_mesh


def use_abstract_mesh(mesh: AbstractMesh) -> Override[BaseMesh]:
    """Returns a context manager in which a mesh without devices is the mesh in use.

    Programs for it can be traced, not run.

    Args:
        mesh: The mesh.

    Returns:
        A context manager, whose value in `with ... as` is the mesh.

    Raises:
        TypeError: If `mesh` is not an `AbstractMesh`.

    >>> with use_abstract_mesh(AbstractMesh((8,), "x", AxisType.Explicit)):
    ...     get_abstract_mesh()
    AbstractMesh(x=8, axis_types=('Explicit',))
    """
    if not isinstance(mesh, AbstractMesh):
        raise TypeError(f"use_abstract_mesh takes an AbstractMesh, got {mesh!r}")
    return MESH.override(mesh)


def reshard(xs: T, out_shardings: PyTree) -> T:
    """Returns arrays with other shardings over the explicit axes of a mesh.

    The sharding becomes part of the type. Arrays move between devices as necessary.

    Args:
        xs: A pytree of arrays.
        out_shardings: A sharding, a `PartitionSpec` of the mesh in use, or a pytree of these that is a prefix of `xs`.

    Returns:
        A pytree of arrays with the same elements.

    Raises:
        TypeError: If `out_shardings` contains something else.
        ValueError: If a specification names a mesh axis that is not explicit, or no mesh is in use.
        ShardingTypeError: If an array cannot be divided evenly.

    >>> from tracefx import P, make_mesh, numpy, set_mesh, typeof
    >>> with set_mesh(make_mesh((1,), ("x",))):
    ...     typeof(reshard(numpy.ones((4, 2)), P("x")))
    f32[4@x,2]
    """
    values, tree = flatten_values(xs, "reshard: xs")
    targets = trees.broadcast_prefix(out_shardings, tree, what="reshard: out_shardings", of="xs")
    outs: list[Array] = []
    for x, target in zip(values, targets, strict=True):
        mesh, spec = mesh_and_spec(target, "reshard: out_shardings")
        wrong = [name for name in spec.names if name not in mesh.explicit_axes]
        if wrong:
            raise ValueError(
                f"reshard: {spec} names {', '.join(map(repr, wrong))}, which {mesh} does not have as an explicit axis: "
                "constrain values along automatic axes with with_sharding_constraint"
            )
        outs.append(as_array(reshard_value(as_array(x), mesh, spec)))
    out: T = tree.unflatten(outs)
    return out


def _axis_names(axes: str | Sequence[str] | None, mesh: BaseMesh) -> tuple[str, ...]:
    """Returns the names of mesh axes that an argument `axes` gives: all if it is None."""
    return mesh.axis_names if axes is None else (axes,) if isinstance(axes, str) else tuple(axes)


def _mesh_of(tree: PyTree) -> BaseMesh:
    """Returns the mesh in use; if there is none, that of the types of the values in a pytree."""
    if MESH.value.empty:
        for x in trees.leaves(tree):
            if isinstance(x, Array) and (sharding := x.aval.explicit_sharding) is not None:
                return sharding.mesh
    return MESH.value


@overload
def auto_axes(
    f: None = None, /, *, axes: str | Sequence[str] | None = None, out_sharding: PyTree = None
) -> Callable[[Callable[..., R]], Callable[..., R]]: ...
@overload
def auto_axes(
    f: Callable[..., R], /, *, axes: str | Sequence[str] | None = None, out_sharding: PyTree = None
) -> Callable[..., R]: ...
def auto_axes(
    f: Callable[..., Any] | None = None,
    /,
    *,
    axes: str | Sequence[str] | None = None,
    out_sharding: PyTree = None,
) -> Callable[..., Any]:
    """Returns a function in which explicit mesh axes are automatic: the compiler decides about shardings along them.

    Args:
        f: The function. None, the default, returns a decorator.
        axes: The names of the axes. None, the default, means all axes of the mesh in use.
        out_sharding: The shardings of the results, along these axes: a pytree that is a prefix of the output. None, the
            default, means that each call passes them as the argument `out_sharding`.

    Returns:
        The function, or a decorator.

    Raises:
        TypeError: If `f` is not callable, or a call has no `out_sharding`.

    >>> from tracefx import P, make_mesh, numpy, set_mesh, typeof
    >>> with set_mesh(make_mesh((1,), ("x",))):
    ...     x = reshard(numpy.ones((4, 2)), P("x"))
    ...     typeof(auto_axes(lambda x: x[0], out_sharding=P())(x))
    f32[2]
    """
    if f is None:
        return functools.partial(auto_axes, axes=axes, out_sharding=out_sharding)
    require_callable("auto_axes", f)
    function, default = f, out_sharding

    @functools.wraps(f)
    def call(*args: object, out_sharding: PyTree = None, **kwargs: object) -> object:
        sharding = default if out_sharding is None else out_sharding
        if sharding is None:
            raise TypeError("auto_axes: pass out_sharding, the shardings of the results, to auto_axes or to each call")
        mesh = _mesh_of((args, kwargs))
        names = tuple([name for name in _axis_names(axes, mesh) if name in mesh.explicit_axes])
        if not names:
            return function(*args, **kwargs)
        plain_args, plain_kwargs = cast_to_auto((args, kwargs), names)
        with MESH.override(mesh.update_axis_types(dict.fromkeys(names, AxisType.Auto))):
            out = function(*plain_args, **plain_kwargs)
        with MESH.override(mesh):
            return reshard(out, sharding)

    return call


@overload
def explicit_axes(
    f: None = None, /, *, axes: str | Sequence[str] | None = None, in_sharding: PyTree = None
) -> Callable[[Callable[..., R]], Callable[..., R]]: ...
@overload
def explicit_axes(
    f: Callable[..., R], /, *, axes: str | Sequence[str] | None = None, in_sharding: PyTree = None
) -> Callable[..., R]: ...
def explicit_axes(
    f: Callable[..., Any] | None = None,
    /,
    *,
    axes: str | Sequence[str] | None = None,
    in_sharding: PyTree = None,
) -> Callable[..., Any]:
    """Returns a function in which automatic mesh axes are explicit: types have shardings along them.

    Args:
        f: The function. None, the default, returns a decorator.
        axes: The names of the axes. None, the default, means all axes of the mesh in use.
        in_sharding: The shardings of the arguments, along these axes: a pytree that is a prefix of the tuple of
            positional arguments. None, the default, means that each call passes them as the argument `in_sharding`.

    Returns:
        The function, or a decorator. The types of its results have no shardings along these axes.

    Raises:
        TypeError: If `f` is not callable, or a call has no `in_sharding`.

    >>> from tracefx import P, make_mesh, numpy, set_mesh, typeof
    >>> with set_mesh(make_mesh((1,), ("x",), (AxisType.Auto,))):
    ...     y = explicit_axes(lambda x: print(typeof(x)) or x + 1.0, in_sharding=P("x"))(numpy.ones(4))
    f32[4@x]
    """
    if f is None:
        return functools.partial(explicit_axes, axes=axes, in_sharding=in_sharding)
    require_callable("explicit_axes", f)
    function, default = f, in_sharding

    @functools.wraps(f)
    def call(*args: object, in_sharding: PyTree = None, **kwargs: object) -> object:
        sharding = default if in_sharding is None else in_sharding
        if sharding is None:
            raise TypeError("explicit_axes: pass in_sharding, the shardings of the arguments, to it or to each call")
        mesh = MESH.value
        names = tuple([name for name in _axis_names(axes, mesh) if name not in mesh.explicit_axes])
        explicit = mesh.update_axis_types(dict.fromkeys(names, AxisType.Explicit))
        with MESH.override(explicit):
            out = function(*reshard(args, sharding), **kwargs)
        return cast_to_auto(out, names)

    return call


@overload
def smap(f: Callable[P, R], /, *, in_axes: PyTree = Infer, out_axes: PyTree, axis_name: str) -> Callable[P, R]: ...
@overload
def smap(f: None = None, /, *, in_axes: PyTree = Infer, out_axes: PyTree, axis_name: str) -> ShardMap: ...
def smap(f: Callable[..., Any] | None = None, /, *, in_axes: PyTree = Infer, out_axes: PyTree, axis_name: str) -> Any:
    """Maps a function over shards along one mesh axis, as `shard_map` does along several.

    Args:
        f: The function of shards. None, the default, returns the transformation with these options, for use as a
            decorator.
        in_axes: The axis of each argument that is divided: an integer, None for an argument that all devices get, or a
            tuple of these with one entry for each argument. `Infer`, the default, takes it from the types of the
            arguments.
        out_axes: The axis of the output along which shards are joined, likewise, as a prefix of the output.
        axis_name: The name of the mesh axis.

    Returns:
        A function that takes and returns whole arrays.

    >>> from tracefx import make_mesh, numpy, set_mesh
    >>> with set_mesh(make_mesh((1,), ("x",))):
    ...     smap(lambda a: a * 2.0, in_axes=0, out_axes=0, axis_name="x")(numpy.ones(4)).tolist()
    [2.0, 2.0, 2.0, 2.0]
    """

    def specs(axes: PyTree) -> PyTree:
        if axes is Infer:
            return axes
        return trees.map(
            lambda axis: PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, axis_name),
            axes,
            is_leaf=lambda axis: axis is None,
        )

    transform = shard_map(in_specs=specs(in_axes), out_specs=specs(out_axes), axis_names={axis_name})
    return transform if f is None else transform(f)
