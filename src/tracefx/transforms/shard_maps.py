"""`shard_map` and `pmap`: a function that every device runs on its own part of the arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar, final, overload

import numpy as np
from attrs import field, frozen
from typing_extensions import ParamSpec, override

from tracefx.control.shard_map import REPLICATED
from tracefx.control.shard_map import ShardMapPrimitive as Operation
from tracefx.core.avals import NOWHERE
from tracefx.core.backend import BACKEND
from tracefx.core.device import Device
from tracefx.core.handler import CURRENT, Handler, as_array, bind, current, varies
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.varying import ACTUAL
from tracefx.interpreters.named_axes import NamedAxes
from tracefx.ops.collectives.collective import from_unreduced, to_unreduced
from tracefx.ops.shape.shape import expand_dims, squeeze
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree
from tracefx.shardings.meshes import MESH, Mesh, PartitionSpec, Unconstrained
from tracefx.transforms.arguments import argument_names, flatten_values, fun_name, require_callable, to_arrays
from tracefx.transforms.jit import Jit
from tracefx.transforms.linearization import COTANGENT_COLLECTIVES, CotangentCollectives
from tracefx.transforms.tracing import TRACES, is_cacheable, trace, trace_key
from tracefx.transforms.transform import HashableTree, Preserving, TransformOf, to_hashable_tree, validate_flag
from tracefx.transforms.transformed_function import wrap_transformed
from tracefx.transforms.vmap import mapped_axis_size, mapped_dim

P = ParamSpec("P")
R = TypeVar("R")


COTANGENT_COLLECTIVES.provide(lambda: CotangentCollectives(to_unreduced, from_unreduced))


def _to_axis_names(given: Iterable[str]) -> frozenset[str]:
    return frozenset([given] if isinstance(given, str) else given)


def _to_argnums(given: int | Sequence[int]) -> tuple[int, ...]:
    return (given,) if isinstance(given, int) else tuple(given)


@final
@frozen(eq=False)
class ManualAxes(NamedAxes):
    """The axes of a mesh along which devices run a program apart."""

    check_vma: bool
    """Whether it is noted of values along which they may differ."""

    @property
    @override
    def checked(self) -> Mapping[str, int]:
        names = {str(name): size for name, size in self.names.items()} if self.check_vma else {}
        return MappingProxyType({**self.inner.checked, **names})


def _enclosing_manual_axes(handler: Handler) -> frozenset[str]:
    """The axes along which programs run apart already."""
    names: frozenset[str] = frozenset()
    at: Handler | None = handler
    while at is not None:
        if isinstance(at, ManualAxes):
            names |= frozenset(map(str, at.names))
        at = at.below
    return names


@final
@frozen(eq=False, repr=False, kw_only=True)
class ShardMap(TransformOf[Preserving]):
    """`shard_map` and its options, as a value; what they mean is said at `shard_map`.

    >>> from tracefx import P
    >>> ShardMap(in_specs=P("data"), out_specs=P())
    ShardMap(in_specs=P('data'), out_specs=P())
    """

    title: ClassVar[str] = "shard_map"
    mesh: Mesh | None = None
    _in_specs: HashableTree = field(alias="in_specs", converter=to_hashable_tree)
    _out_specs: HashableTree = field(alias="out_specs", converter=to_hashable_tree)
    axis_names: frozenset[str] = field(default=frozenset(), converter=_to_axis_names)
    check_vma: bool = field(default=True, validator=validate_flag)

    @property
    def in_specs(self) -> PyTree:
        return self._in_specs.tree

    @property
    def out_specs(self) -> PyTree:
        return self._out_specs.tree

    @override
    def transformed(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        require_callable("shard_map", fun)

        @wrap_transformed(self, fun)
        def mapped(*args: Any) -> Any:
            return self._call(fun, args)

        return mapped

    def _call(self, fun: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        name = fun_name(fun)
        mesh, axes = self._mesh(name)
        values, tree = flatten_values((args, {}), f"shard_map of {name}: arguments")
        specs = self._specs(
            self.in_specs, trees.structure(args), axes, f"shard_map of {name}: in_specs", "the arguments"
        )
        op = Operation(Jaxpr((), (), (), ()), mesh, specs, (), axes, name)
        names = argument_names(fun, name, args, {}, range(len(args)))
        parts = [op.shard_aval(v.aval, s, called) for v, s, called in zip(values, specs, names, strict=True)]
        token = CURRENT.set(ManualAxes(CURRENT.get(), {axis: mesh.shape[axis] for axis in axes}, self.check_vma))
        inside = MESH.override(mesh)
        inside.__enter__()
        try:
            own = [NOWHERE.union(s.names) if self.check_vma else NOWHERE for s in specs]
            along = tuple([varies(v) | names for v, names in zip(values, own, strict=True)])
            key = trace_key(tree, tuple(parts), (), lambda: along)
            known = TRACES.traces(fun)
            traced = known.get((key, mesh))
            if traced is None:
                traced = trace(fun, tree, tuple(parts), names, name, "shard_map", key.along)
                if is_cacheable(traced):
                    known[key, mesh] = traced
        finally:
            inside.__exit__(None, None, None)
            CURRENT.reset(token)
        what = f"shard_map of {name}: out_specs"
        out_specs = self._specs(self.out_specs, traced.out_tree, axes, what, "the output")
        body, whole = traced.jaxpr, (REPLICATED,) * len(traced.consts)
        for aval, spec in zip(body.out_avals, out_specs, strict=True):
            if len(spec) > aval.ndim:
                raise ValueError(f"{what} has {spec} for an output of type {aval}, which has {aval.ndim} axes")
        full = op.with_body(body, whole + specs, out_specs)
        if self.check_vma:
            self._require_replicated(full, traced.out_tree)
        outs = bind(full, *traced.consts, *values)
        return traced.out_tree.unflatten(to_arrays(outs))

    def _mesh(self, name: str) -> tuple[Mesh, tuple[str, ...]]:
        mesh = self.mesh or MESH.value
        if mesh.empty:
            raise ValueError(
                f"shard_map of {name}: there is no mesh; pass mesh=, or call it inside of `with set_mesh(...):`"
            )
        unknown = self.axis_names - {*mesh.axis_names}
        if unknown:
            raise ValueError(f"shard_map of {name}: axis_names {sorted(unknown)} are no axes of {mesh}")
        taken = _enclosing_manual_axes(current())
        if taken and mesh != MESH.value:
            raise ValueError(
                f"shard_map of {name}: it is over {mesh}, inside of one over {MESH.value}: use that here too"
            )
        wanted = self.axis_names or {axis for axis in mesh.axis_names if axis not in taken}
        twice = sorted(taken & wanted)
        if twice or not wanted:
            raise ValueError(
                f"shard_map of {name}: a shard_map around it runs along {sorted(twice or taken)} already; give "
                "axis_names that are left"
            )
        return mesh, tuple([axis for axis in mesh.axis_names if axis in wanted])

    def _specs(
        self, given: PyTree, tree: trees.TreeDef, axes: tuple[str, ...], what: str, of: str
    ) -> tuple[PartitionSpec, ...]:
        found = []
        for spec in trees.broadcast_prefix(given, tree, none_is_leaf=True, what=what, of=of):
            if spec is None:
                spec = REPLICATED
            if not isinstance(spec, PartitionSpec):
                raise TypeError(f"{what} is a PartitionSpec or a tree of them, got {spec!r}")
            if any(isinstance(part, Unconstrained) for part in spec):
                raise ValueError(f"{what}: {spec} leaves open where an array lies, but every device must know its part")
            for axis in spec.names:
                if axis not in axes:
                    raise ValueError(f"{what}: {spec} names {axis!r}, but the axes that it runs along are {list(axes)}")
            found.append(spec)
        return tuple(found)

    def _require_replicated(self, op: Operation, out_tree: trees.TreeDef) -> None:
        """ValueError if an output may differ along an axis that its specification doesn't name."""
        outs = ACTUAL.through(op.jaxpr, [frozenset(spec.names) for spec in op.in_specs])
        paths = [trees.keystr(path) for path, _ in trees.flatten_with_path(out_tree.unflatten(range(len(outs))))[0]]
        for found, spec, path in zip(outs, op.out_specs, paths, strict=True):
            wrong = sorted(found - {*spec.names})
            if wrong:
                raise ValueError(
                    f"shard_map of {op.label}: out_specs says {spec} of output{path}, so it must be the same along "
                    f"{', '.join(map(repr, wrong))}, but it may differ there from device to device. Name the axis in "
                    f"out_specs; or make it the same by psum, pmax or all_gather along {wrong[0]!r}; or, if you know "
                    "that it is, pass check_vma=False"
                )


@overload
def shard_map(
    f: Callable[P, R],
    /,
    *,
    mesh: Mesh | None = None,
    in_specs: PyTree,
    out_specs: PyTree,
    axis_names: Iterable[str] = frozenset(),
    check_vma: bool = True,
) -> Callable[P, R]: ...
@overload
def shard_map(
    *,
    mesh: Mesh | None = None,
    in_specs: PyTree,
    out_specs: PyTree,
    axis_names: Iterable[str] = frozenset(),
    check_vma: bool = True,
) -> ShardMap: ...
def shard_map(
    f: Callable[P, R] | None = None,
    /,
    *,
    mesh: Mesh | None = None,
    in_specs: PyTree,
    out_specs: PyTree,
    axis_names: Iterable[str] = frozenset(),
    check_vma: bool = True,
) -> Callable[P, R] | ShardMap:
    """`f`, run by every device of a mesh on its own part of the arguments; the results are the parts of the output.

    `in_specs` and `out_specs` are `PartitionSpec`s, one for all or a tree of them: along which axes of the mesh arrays
    are cut. Inside of `f`, collectives (`tracefx.lax.psum` and the others) work along these axes. Without a `mesh` it
    is the one in use. With `axis_names`, `f` runs apart along these axes alone. Without `f` it is what makes such
    functions, as a decorator does.

    A derivative that is taken inside of `f` is that of the whole: with respect to an array that is the same on all
    devices it is the sum of what they have of it, and of an output that is the same everywhere it is counted once. It
    is noted of arrays along which axes they may differ (`typeof(x).vma`); `tracefx.lax.pcast` makes one each device's
    own. A backward pass of `custom_vjp` is given such cotangents, and gives such ones.

    Raises ValueError for arrays that can't be cut so, and for an output that may differ along an axis that its
    specification doesn't name. With `check_vma=False` nothing is noted nor checked, and a derivative that is taken
    inside is that of what one device computes.

    >>> from tracefx import P, lax, make_mesh
    >>> def normalized(x):
    ...     return x / lax.psum(x.sum(), "data")
    >>> mesh = make_mesh((1,), ("data",))
    >>> shard_map(normalized, mesh=mesh, in_specs=P("data"), out_specs=P("data"))(np.array([1.0, 3.0]))
    Array([0.25, 0.75], dtype=float32)
    """
    transform = ShardMap(
        mesh=mesh, in_specs=in_specs, out_specs=out_specs, axis_names=_to_axis_names(axis_names), check_vma=check_vma
    )
    return transform if f is None else transform(f)


# ------------------------------------------------------------------ pmap


@final
@frozen(eq=False, repr=False)
class Pmap(TransformOf[Preserving]):
    """`pmap` and its options, as a value; what they mean is said at `pmap`.

    >>> Pmap("i", in_axes=(0, None))
    Pmap(axis_name='i', in_axes=(0, None))
    """

    title: ClassVar[str] = "pmap"
    axis_name: str | None = None
    _in_axes: HashableTree = field(
        alias="in_axes", default=to_hashable_tree(0), converter=to_hashable_tree, kw_only=True
    )
    _out_axes: HashableTree = field(
        alias="out_axes", default=to_hashable_tree(0), converter=to_hashable_tree, kw_only=True
    )
    static_broadcasted_argnums: tuple[int, ...] = field(default=(), converter=_to_argnums, kw_only=True)
    devices: tuple[Device, ...] | None = field(default=None, kw_only=True)
    axis_size: int | None = field(default=None, kw_only=True)
    donate_argnums: tuple[int, ...] = field(default=(), converter=_to_argnums, kw_only=True)

    @property
    def in_axes(self) -> PyTree:
        return self._in_axes.tree

    @property
    def out_axes(self) -> PyTree:
        return self._out_axes.tree

    @override
    def transformed(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        require_callable("pmap", fun)
        axis = self.axis_name or "devices"

        @functools.wraps(fun)
        def over_devices(*args: Any, **kwargs: Any) -> Any:
            return self._run(fun, axis, args, kwargs)

        return Jit(static_argnums=self.static_broadcasted_argnums, donate_argnums=self.donate_argnums).transformed(
            over_devices
        )

    def _run(self, fun: Callable[..., Any], axis: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        where = f"pmap of {fun_name(fun)}"
        places = [i for i in range(len(args)) if i not in self.static_broadcasted_argnums]
        dynamic = tuple([args[i] for i in places]), kwargs
        values, tree = flatten_values(dynamic, f"{where}: arguments")
        in_axes = self.in_axes
        if isinstance(in_axes, tuple | list):
            if len(in_axes) != len(args):
                raise ValueError(
                    f"{where}: in_axes {in_axes} has {len(in_axes)} entries, but there are {len(args)} positional "
                    "arguments; give one entry for each, or one integer for all"
                )
            in_axes = tuple([in_axes[i] for i in places])
        entries = trees.broadcast_prefix(
            (in_axes, 0), tree, none_is_leaf=True, what=f"{where}: in_axes", of="the arguments"
        )
        dims = [mapped_dim(where, "in_axes", entry, v.aval.ndim) for entry, v in zip(entries, values, strict=True)]
        mesh = self._mesh(where, axis, mapped_axis_size(where, values, dims, self.axis_size, dynamic))

        def each(*parts: Any) -> Any:
            leaves = trees.leaves(parts)
            alone = tree.unflatten([x if d is None else squeeze(x, (d,)) for x, d in zip(leaves, dims, strict=True)])
            positional, by_name = alone
            given: dict[int, Any] = dict(zip(places, positional, strict=True))
            outs, out_tree = flatten_values(
                fun(*[given.get(i, arg) for i, arg in enumerate(args)], **by_name), f"the output of {fun_name(fun)}"
            )
            entries = trees.broadcast_prefix(
                self.out_axes, out_tree, none_is_leaf=True, what=f"{where}: out_axes", of="the output"
            )
            out_dims = [mapped_dim(where, "out_axes", e, x.aval.ndim + 1) for e, x in zip(entries, outs, strict=True)]
            return out_tree.unflatten(
                [as_array(x) if d is None else expand_dims(x, (d,)) for x, d in zip(outs, out_dims, strict=True)]
            )

        each.__name__ = fun_name(fun)
        in_specs = tree.unflatten([_batch_axis_spec(axis, d) for d in dims])
        out_specs = trees.map(lambda d: _batch_axis_spec(axis, d), self.out_axes, is_leaf=lambda x: x is None)
        return ShardMap(mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)(each)(*dynamic)

    def _mesh(self, where: str, axis: str, size: int) -> Mesh:
        around = sorted(_enclosing_manual_axes(current()))
        if around:
            raise ValueError(
                f"{where}: it is inside of a program that devices run apart already, along {around}: use vmap here, or "
                "shard_map over a mesh with an axis for each of the two"
            )
        backend = BACKEND.value
        devices = backend.devices(backend.platform) if self.devices is None else self.devices
        if size > len(devices):
            raise ValueError(
                f"{where}: the mapped axis has size {size}, but there are {len(devices)} devices: pmap runs each "
                "element on a device of its own; use vmap for more"
            )
        found = np.empty(size, object)
        found[:] = devices[:size]
        return Mesh(found, axis)


def _batch_axis_spec(axis: str, dim: int | None) -> PartitionSpec:
    if dim is not None and dim < 0:
        raise ValueError(f"pmap: axes of the output are counted from 0, got out_axes {dim}")
    return REPLICATED if dim is None else PartitionSpec(*[None] * dim, axis)


def pmap(
    fun: Callable[P, R],
    axis_name: str | None = None,
    *,
    in_axes: PyTree = 0,
    out_axes: PyTree = 0,
    static_broadcasted_argnums: int | Sequence[int] = (),
    devices: Sequence[Device] | None = None,
    axis_size: int | None = None,
    donate_argnums: int | Sequence[int] = (),
) -> Callable[P, R]:
    """`fun` applied along an axis of its arguments, each element on a device of its own, compiled.

    As `vmap` of which every device has one element: `in_axes` and `out_axes` mean the same (keyword arguments are
    mapped along axis 0), and collectives work along `axis_name`. It is `jit` of `shard_map` over a mesh with one axis;
    new programs use these.

    Raises ValueError if there are fewer devices than elements.

    >>> from tracefx import lax
    >>> pmap(lambda x: x / lax.psum(x, "i"), "i")(np.array([2.0]))
    Array([1.], dtype=float32)
    """
    return Pmap(
        axis_name,
        in_axes=in_axes,
        out_axes=out_axes,
        static_broadcasted_argnums=static_broadcasted_argnums,
        devices=None if devices is None else tuple(devices),
        axis_size=axis_size,
        donate_argnums=donate_argnums,
    )(fun)
