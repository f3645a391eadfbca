"""`shard_map` and `pmap`: a function mapped over the shards of its arguments (SPMD)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Final, TypeVar, final, overload

import numpy as np
from attrs import evolve, field, frozen
from typing_extensions import ParamSpec, override

from tracefx.control.shard_map import REPLICATED
from tracefx.control.shard_map import ShardMapPrimitive as Operation
from tracefx.core import ShapedArray, Value
from tracefx.core.avals import MeshAxes
from tracefx.core.backend import BACKEND
from tracefx.core.device import Device
from tracefx.core.effects import NamedAxisEffect
from tracefx.core.handler import CURRENT, AxisEnvironment, Handler, NamedAxis, as_array, bind, current
from tracefx.core.jaxpr import HasSubjaxprs, Jaxpr
from tracefx.core.meshes import MESH, AxisType
from tracefx.core.named_sharding import explicit_entry
from tracefx.core.partition_spec import PartitionSpec, Unconstrained, entry_axis_names
from tracefx.core.primitive import Primitive
from tracefx.errors import ShardingTypeError
from tracefx.interpreters.batch import spmd_axes
from tracefx.interpreters.named_axes import NamedAxes
from tracefx.ops.annotations.reshard import reshard_value
from tracefx.ops.collectives.collective import AllReduce, Collective, from_unreduced, to_unreduced
from tracefx.ops.collectives.exchange import AllGather
from tracefx.ops.shape.shape import expand_dims, squeeze
from tracefx.ops.structural import move_axis
from tracefx.passes.varying import VmaInference
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree
from tracefx.shardings.meshes import Mesh, current_mesh
from tracefx.transforms.arguments import (
    ArgumentNames,
    argument_names,
    flatten_values,
    fun_label,
    fun_name,
    output_label,
    require_callable,
    to_arrays,
)
from tracefx.transforms.jit import Jit
from tracefx.transforms.linearization import COTANGENT_COLLECTIVES, CotangentCollectives
from tracefx.transforms.tracing import TRACES, cache_trace, trace, trace_key
from tracefx.transforms.transform import (
    HashableTree,
    Preserving,
    TransformOf,
    to_hashable_tree,
    to_positions,
    validate_argnums,
    validate_flag,
)
from tracefx.transforms.transformed_function import wrap_transformed
from tracefx.transforms.vmap import mapped_axis_size, mapped_input_axis, mapped_output_axis, require_axes

P = ParamSpec("P")
R = TypeVar("R")


COTANGENT_COLLECTIVES.provide(lambda: CotangentCollectives(to_unreduced, from_unreduced))


def _to_axis_names(given: Iterable[str]) -> frozenset[str]:
    return frozenset([given] if isinstance(given, str) else given)


@final
class InferFromArgs:
    """The type of `Infer`: the specifications of arguments are those of their types."""

    @override
    def __repr__(self) -> str:
        return "Infer"


Infer: Final = InferFromArgs()
"""Stands for specifications or axes that are taken from the types of the arguments."""


@final
@frozen(eq=False)
class ManualAxes(NamedAxes):
    """Handler of the manual axes of a `shard_map`: the mesh axes along which devices run on their own shards."""


def _actual_vma(prim: Primitive, operands: MeshAxes) -> MeshAxes:
    """Returns the mesh axes over which the results of a primitive may differ, whatever their types declare.

    A replicated value that `pcast` made varying is replicated nevertheless, and so is the result of `all_gather`.
    """
    if not isinstance(prim, Collective | HasSubjaxprs):
        return operands
    names = [str(e.name) for e in prim.effects if isinstance(e, NamedAxisEffect)]
    return operands.difference(names) if isinstance(prim, AllReduce | AllGather) else operands.union(names)


_ACTUAL: Final = VmaInference(_actual_vma)


def _enclosing_manual_axes(handler: Handler) -> frozenset[str]:
    """Returns the manual axes of all enclosing `shard_map`s."""
    names: frozenset[str] = frozenset()
    at: Handler | None = handler
    while at is not None:
        if isinstance(at, ManualAxes):
            names |= frozenset(map(str, at.names))
        at = at.inner
    return names


@final
@frozen(eq=False, repr=False, kw_only=True)
class ShardMap(TransformOf[Preserving]):
    """`shard_map` with its options, as a transformation value. The options are described at `shard_map`.

    >>> from tracefx import P
    >>> ShardMap(in_specs=P("data"), out_specs=P())
    ShardMap(in_specs=P('data'), out_specs=P())
    """

    title: ClassVar[str] = "shard_map"
    mesh: Mesh | None = None
    _in_specs: HashableTree = field(alias="in_specs", default=to_hashable_tree(Infer), converter=to_hashable_tree)
    _out_specs: HashableTree = field(alias="out_specs", converter=to_hashable_tree)
    axis_names: frozenset[str] = field(default=frozenset(), converter=_to_axis_names)
    check_vma: bool = field(default=True, validator=validate_flag)

    @property
    def in_specs(self) -> PyTree:
        """The partition specifications of the arguments, as given."""
        return self._in_specs.tree

    @property
    def out_specs(self) -> PyTree:
        """The partition specifications of the outputs, as given."""
        return self._out_specs.tree

    @override
    def transformed(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        require_callable("shard_map", fun)

        @wrap_transformed(self, fun)
        def mapped(*args: Any, **kwargs: Any) -> Any:
            if kwargs:
                raise TypeError(
                    f"shard_map of {fun_name(fun)}: in_specs are for positional arguments, so pass "
                    f"{', '.join([f'`{name}`' for name in kwargs])} by position"
                )
            if None in self._in_specs.leaves:
                return self._call_with_static_leaves(fun, args)
            return self._call(fun, args)

        return mapped

    def _call_with_static_leaves(self, fun: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Passes leaves that are not arrays to `fun` as they are, if their specification is None."""
        leaves, tree = trees.flatten(args)
        what = f"shard_map of {fun_name(fun)}: in_specs"
        specs = trees.broadcast_prefix(self.in_specs, tree, none_is_leaf=True, what=what, of="the arguments")
        traced = [i for i, (x, s) in enumerate(zip(leaves, specs, strict=True)) if s is not None or hasattr(x, "shape")]
        if len(traced) == len(leaves):
            return self._call(fun, args)

        def of_traced(*given: Any) -> Any:
            values = iter(given)
            return fun(*tree.unflatten([next(values) if i in traced else x for i, x in enumerate(leaves)]))

        of_traced.__name__ = fun_name(fun)
        transform = evolve(self, in_specs=tuple([specs[i] for i in traced]))
        return transform._call(of_traced, tuple([leaves[i] for i in traced]))

    def _call(self, fun: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Traces `fun` for the types of the shards, and binds the `shard_map` primitive."""
        name = fun_name(fun)
        mesh, axes = self._mesh(name)
        positions = range(len(args))
        values, tree = flatten_values(
            (args, {}), lambda i: f"shard_map of {name}: {ArgumentNames(fun, args, {}, positions)[i]}"
        )
        if self.in_specs is Infer:
            specs = tuple([_spec_of_type(x.aval, axes) for x in values])
        else:
            specs = self._specs(
                self.in_specs, trees.structure(args), axes, f"shard_map of {name}: in_specs", "the arguments"
            )
        batch_axes = tuple([axis for axis in spmd_axes(CURRENT.get()) if axis in axes])
        op = Operation(Jaxpr((), (), (), ()), mesh, specs, (), axes, name, batch_axes)
        names = argument_names(fun, name, args, {}, positions)
        if mesh.explicit_axes:
            values = [
                _with_spec(v, s, op, f"shard_map of {name}: {called}")
                for v, s, called in zip(values, specs, names, strict=True)
            ]
        parts = [op.shard_aval(v.aval, s, called) for v, s, called in zip(values, specs, names, strict=True)]
        if self.check_vma:
            parts = [aval.with_vma(aval.vma.union(s.names)) for aval, s in zip(parts, specs, strict=True)]
        named: AxisEnvironment = {axis: NamedAxis(mesh.shape[axis], self.check_vma) for axis in axes}
        token = CURRENT.set(ManualAxes(CURRENT.get(), named))
        mesh_override = MESH.override(mesh.update_axis_types(dict.fromkeys(axes, AxisType.Manual)))
        mesh_override.__enter__()
        try:
            key = trace_key(tree, tuple(parts), ())
            traces = TRACES.of(fun)
            traced = traces.get((key, mesh))
            if traced is None:
                new = trace(fun, tree, tuple(parts), names, name, "shard_map")
                traced = cache_trace(traces, (key, mesh), new)
        finally:
            mesh_override.__exit__(None, None, None)
            CURRENT.reset(token)
        what = f"shard_map of {name}: out_specs"
        out_specs = self._specs(self.out_specs, traced.out_tree, axes, what, "the output")
        body, const_specs = traced.jaxpr, (REPLICATED,) * len(traced.consts)
        for const in traced.consts:
            if _spec_of_type(const.aval, axes).names:
                raise ShardingTypeError(
                    f"shard_map of {name} closes over a value of type {const.aval}, which is sharded over manual axes: "
                    "pass it as an argument"
                )
        for aval, spec in zip(body.out_avals, out_specs, strict=True):
            if len(spec) > aval.ndim:
                raise ValueError(f"{what} has {spec} for an output of type {aval}, which has {aval.ndim} axes")
        full = op.with_body(body, const_specs + specs, out_specs)
        if self.check_vma:
            self._require_replicated(full, traced.out_tree)
        outs = bind(full, *traced.consts, *values)
        return traced.out_tree.unflatten(to_arrays(outs))

    def _mesh(self, name: str) -> tuple[Mesh, tuple[str, ...]]:
        """Returns the mesh and the manual axes of a call."""
        mesh = self.mesh or current_mesh()
        if mesh.empty:
            raise ValueError(
                f"shard_map of {name}: there is no mesh; pass mesh=, or call it inside `with set_mesh(...):`"
            )
        unknown = self.axis_names - {*mesh.axis_names}
        if unknown:
            raise ValueError(f"shard_map of {name}: axis_names {sorted(unknown)} are not axes of {mesh}")
        enclosing_axes = _enclosing_manual_axes(current())
        if enclosing_axes:
            outer = current_mesh()
            if (mesh.shape_tuple, mesh.flat) != (outer.shape_tuple, outer.flat):
                raise ValueError(
                    f"shard_map of {name}: its mesh is {mesh}, but that of the enclosing shard_map is {outer}: use the "
                    "same mesh"
                )
            mesh = outer  # whose axes are manual already
        manual_axes = self.axis_names or {axis for axis in mesh.axis_names if axis not in enclosing_axes}
        repeated = sorted(enclosing_axes & manual_axes)
        if repeated or not manual_axes:
            raise ValueError(
                f"shard_map of {name}: an enclosing shard_map has the manual axes "
                f"{sorted(repeated or enclosing_axes)}; pass other axis_names"
            )
        return mesh, tuple([axis for axis in mesh.axis_names if axis in manual_axes])

    def _specs(
        self, given: PyTree, tree: trees.TreeDef, axes: tuple[str, ...], what: str, of: str
    ) -> tuple[PartitionSpec, ...]:
        """Returns one partition specification per leaf, checked."""
        result = []
        for spec in trees.broadcast_prefix(given, tree, none_is_leaf=True, what=what, of=of):
            if spec is None:
                spec = REPLICATED
            if not isinstance(spec, PartitionSpec):
                raise TypeError(f"{what} must be a PartitionSpec or a pytree of them, got {spec!r}")
            if any(isinstance(part, Unconstrained) for part in spec):
                raise ValueError(f"{what}: {spec} has unconstrained axes, which shard_map does not support")
            for axis in spec.names:
                if axis not in axes:
                    raise ValueError(f"{what}: {spec} names {axis!r}, but the manual axes are {list(axes)}")
            result.append(spec)
        return tuple(result)

    def _require_replicated(self, op: Operation, out_tree: trees.TreeDef) -> None:
        """Raises ValueError if an output may vary along an axis that its specification does not contain."""
        body = op.jaxpr
        inputs = [a.with_vma(frozenset(s.names)) for a, s in zip(body.in_avals, op.in_specs, strict=True)]
        outs = [aval.vma for aval in _ACTUAL.retype(body, inputs).out_avals]
        paths = [trees.keystr(path) for path, _ in trees.flatten_with_path(out_tree.unflatten(range(len(outs))))[0]]
        for result, spec, path in zip(outs, op.out_specs, paths, strict=True):
            wrong = sorted(result - {*spec.names})
            if wrong:
                raise ValueError(
                    f"shard_map of {op.label}: out_specs has {spec} for output{path}, so it must be replicated along "
                    f"{', '.join(map(repr, wrong))}, but it may vary there. Add the axis to out_specs; or replicate "
                    f"the output by psum, pmax or all_gather along {wrong[0]!r}; or, if you know that it is "
                    "replicated, pass check_vma=False"
                )


def _spec_of_type(aval: ShapedArray, axes: Sequence[str]) -> PartitionSpec:
    """Returns the given mesh axes over which a value is sharded according to its type."""
    entries = map(entry_axis_names, aval.spec)
    return PartitionSpec(*[tuple([name for name in names if name in axes]) for names in entries])


def _with_spec(x: Value, spec: PartitionSpec, op: Operation, what: str) -> Value:
    """Returns an argument whose type has the sharding of its specification; it must, or have none over these axes."""
    expected = PartitionSpec(*spec.of_rank(x.aval.ndim))
    explicit = [name for name in op.axis_names if name in op.mesh.explicit_axes]
    actual = _spec_of_type(x.aval, explicit)
    wanted = PartitionSpec(*[explicit_entry(entry, op.mesh) for entry in expected])
    if actual == wanted:
        return x
    if actual.names:
        raise ShardingTypeError(
            f"{what}, {x.aval}, has the specification {spec}, which is not the sharding of its type along explicit "
            "axes: reshard it with tracefx.sharding.reshard, or leave out in_specs"
        )
    pairs = zip(wanted, x.aval.spec, strict=True)
    joined = [(*entry_axis_names(outer), *entry_axis_names(inner)) for outer, inner in pairs]
    return reshard_value(x, op.mesh, PartitionSpec(*joined))


@overload
def shard_map(
    f: Callable[P, R],
    /,
    *,
    mesh: Mesh | None = None,
    in_specs: PyTree = Infer,
    out_specs: PyTree,
    axis_names: Iterable[str] = frozenset(),
    check_vma: bool = True,
) -> Callable[P, R]: ...
@overload
def shard_map(
    *,
    mesh: Mesh | None = None,
    in_specs: PyTree = Infer,
    out_specs: PyTree,
    axis_names: Iterable[str] = frozenset(),
    check_vma: bool = True,
) -> ShardMap: ...
def shard_map(
    f: Callable[P, R] | None = None,
    /,
    *,
    mesh: Mesh | None = None,
    in_specs: PyTree = Infer,
    out_specs: PyTree,
    axis_names: Iterable[str] = frozenset(),
    check_vma: bool = True,
) -> Callable[P, R] | ShardMap:
    """Maps a function over the shards of its arguments: every device of a mesh calls it with its shards (SPMD).

    It computes the same as this loop over a mesh with one axis, except that all devices work at the same time and
    collectives can exchange values between them:

        def shard_map(f, mesh, in_specs=P("data"), out_specs=P("data")):
            def mapped(x):
                shards = np.split(x, mesh.size)
                return np.concatenate([f(shard) for shard in shards])
            return mapped

    A specification says how an array is divided: `P("data", None)` divides the first axis into as many parts as the
    mesh axis "data" has devices, and not the second; `P(("data", "model"))` divides one axis along two mesh axes; `P()`
    replicates the array on all devices. Each divided axis is a multiple of the number of its parts. In `out_specs` it
    says how the shards that the devices return are joined: along mesh axes that it names they are concatenated, and
    along the others all devices must have returned the same array, of which one is taken.

    Inside `f`, arrays have the shapes of shards, and collectives such as `tracefx.lax.psum` communicate along the
    manual axes; `tracefx.lax.axis_index` says which shard the device has. Whether an array may vary along a manual axis
    is tracked (`typeof(x).vma`): arguments vary along the axes of their specification, a `psum` does not vary along its
    axis. `tracefx.lax.pcast` declares a replicated array as varying, for example the first carry of a `scan` whose body
    makes it varying. Without `f`, it returns the transformation with these options, for use as a decorator.

    A derivative taken inside `f` is that of the whole computation on all devices: the cotangent of a replicated array
    is summed over the devices, and a replicated output counts once. The backward rule of a `custom_vjp` takes and
    returns such cotangents.

    Args:
        f: The function of shards. It takes positional arguments only, and returns a pytree of shards.
        mesh: The mesh. None, the default, means the mesh in use (`set_mesh`).
        in_specs: A `PartitionSpec`, or a pytree of them that is a prefix of the tuple of arguments: the mesh axes along
            which each axis of an argument is divided. None as a leaf means replicated; objects that are not arrays,
            Python numbers too, are then passed to `f` as they are. `Infer`, the default, takes the specifications from
            the types of the arguments, along explicit axes.
        out_specs: A `PartitionSpec`, or a pytree of them that is a prefix of the output: the mesh axes along which the
            shards of an output are joined. Along axes that it does not contain, an output must be replicated.
        axis_names: The manual axes. Empty, the default, means all axes of the mesh that are not manual already. Along
            the other axes the compiler partitions the program.
        check_vma: Whether varying-ness is tracked and outputs are checked to be replicated. If False, a derivative
            taken inside `f` is that of the computation on one device. True by default.

    Returns:
        A function that takes and returns whole arrays; without `f` a `ShardMap`.

    Raises:
        TypeError: If `f` is not callable or a specification is not a `PartitionSpec`.
        ValueError: When the result is called: if there is no mesh, a specification does not fit the mesh or an array,
            an argument cannot be divided evenly, or an output may vary along an axis that its specification does not
            contain.

    >>> from tracefx import P, lax, make_mesh
    >>> def normalized(x):
    ...     return x / lax.psum(x.sum(), "data")
    >>> mesh = make_mesh((1,), ("data",))
    >>> shard_map(normalized, mesh=mesh, in_specs=P("data"), out_specs=P("data"))(np.array([1.0, 3.0]))
    Array([0.25, 0.75], dtype=float32)

    The product of matrices `f32[n, k]` and `f32[k, m]`, both divided along `k`. Every device multiplies its parts, and
    `psum` adds the products, so the result is replicated:

    >>> @shard_map(mesh=mesh, in_specs=(P(None, "data"), P("data", None)), out_specs=P())
    ... def matmul(a, b):
    ...     return lax.psum(a @ b, "data")
    >>> matmul(np.eye(2), np.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    transform = ShardMap(
        mesh=mesh, in_specs=in_specs, out_specs=out_specs, axis_names=_to_axis_names(axis_names), check_vma=check_vma
    )
    return transform if f is None else transform(f)


# ------------------------------------------------------------------ pmap


@final
@frozen(eq=False, repr=False)
class Pmap(TransformOf[Preserving]):
    """`pmap` with its options, as a transformation value. The options are described at `pmap`.

    >>> Pmap("i", in_axes=(0, None))
    Pmap(axis_name='i', in_axes=(0, None))
    """

    title: ClassVar[str] = "pmap"
    axis_name: str | None = None
    _in_axes: HashableTree = field(
        alias="in_axes", default=to_hashable_tree(0), converter=to_hashable_tree, validator=require_axes, kw_only=True
    )
    _out_axes: HashableTree = field(
        alias="out_axes", default=to_hashable_tree(0), converter=to_hashable_tree, validator=require_axes, kw_only=True
    )
    static_broadcasted_argnums: tuple[int, ...] = field(
        default=(), converter=to_positions, validator=validate_argnums, kw_only=True
    )
    devices: tuple[Device, ...] | None = field(default=None, kw_only=True)
    axis_size: int | None = field(default=None, kw_only=True)
    donate_argnums: tuple[int, ...] = field(
        default=(), converter=to_positions, validator=validate_argnums, kw_only=True
    )

    @property
    def in_axes(self) -> PyTree:
        """The batch axes of the arguments, as given."""
        return self._in_axes.tree

    @property
    def out_axes(self) -> PyTree:
        """The batch axes of the outputs, as given."""
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
        where = f"pmap of {fun_label(fun)}"
        positions = [i for i in range(len(args)) if i not in self.static_broadcasted_argnums]
        dynamic = tuple([args[i] for i in positions]), kwargs
        values, tree = flatten_values(dynamic, f"{where}: arguments")
        in_axes = self.in_axes
        if isinstance(in_axes, tuple | list):
            if len(in_axes) != len(args):
                raise ValueError(
                    f"{where}: in_axes {in_axes} has {len(in_axes)} entries, but there are {len(args)} positional "
                    "arguments; pass one entry per argument, or one integer for all"
                )
            in_axes = tuple([in_axes[i] for i in positions])
        args_tree, kwargs_tree = tree.children()
        entries = (
            trees.broadcast_prefix(in_axes, args_tree, none_is_leaf=True, what=f"{where}: in_axes", of="the arguments")
            + [0] * kwargs_tree.num_leaves
        )
        names = ArgumentNames(fun, *dynamic, positions)
        dims = [mapped_input_axis(where, e, v, names, i) for i, (e, v) in enumerate(zip(entries, values, strict=True))]
        mesh = self._mesh(where, axis, mapped_axis_size(where, values, dims, self.axis_size, names))

        def each(*parts: Any) -> Any:
            leaves = trees.leaves(parts)
            element_args = tree.unflatten(
                [x if d is None else squeeze(x, (d,)) for x, d in zip(leaves, dims, strict=True)]
            )
            positional, named = element_args
            given: dict[int, Any] = dict(zip(positions, positional, strict=True))
            outs, out_tree = flatten_values(
                fun(*[given.get(i, arg) for i, arg in enumerate(args)], **named), output_label(fun)
            )
            entries = trees.broadcast_prefix(
                self.out_axes, out_tree, none_is_leaf=True, what=f"{where}: out_axes", of="the output"
            )
            leaf_axes = [(e, mapped_output_axis(where, e, x.aval.ndim + 1)) for e, x in zip(entries, outs, strict=True)]
            return out_tree.unflatten(
                [
                    as_array(x) if d is None else expand_dims(x, (d if e == d else 0,))
                    for x, (e, d) in zip(outs, leaf_axes, strict=True)
                ]
            )

        each.__name__ = fun_name(fun)
        in_specs = tree.unflatten([_batch_axis_spec(axis, d) for d in dims])
        # The rank of an output, which a negative axis is counted from, is not known yet: its batch axis is first.
        out_specs = trees.map(
            lambda d: _batch_axis_spec(axis, None if d is None else max(d, 0)), self.out_axes, is_leaf=_is_none
        )
        out = ShardMap(mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)(each)(*dynamic)
        return trees.map(
            lambda d, part: part if d is None or d >= 0 else trees.map(lambda x: move_axis(x, 0, d % x.ndim), part),
            self.out_axes,
            out,
            is_leaf=_is_none,
        )

    def _mesh(self, where: str, axis: str, size: int) -> Mesh:
        outer_axes = sorted(_enclosing_manual_axes(current()))
        if outer_axes:
            raise ValueError(
                f"{where}: it is inside a shard_map or pmap with the manual axes {outer_axes}: use vmap here, or one "
                "shard_map over a mesh with two axes"
            )
        backend = BACKEND.value
        devices = backend.devices(backend.platform) if self.devices is None else self.devices
        if size > len(devices):
            raise ValueError(
                f"{where}: the mapped axis has size {size}, but there are {len(devices)} devices: pmap needs one "
                "device per element; use vmap for more elements"
            )
        result = np.empty(size, object)
        result[:] = devices[:size]
        return Mesh(result, axis)


def _is_none(x: object) -> bool:
    return x is None


def _batch_axis_spec(axis: str, dim: int | None) -> PartitionSpec:
    """Returns the partition specification of an array with one batch axis, along the only axis of the mesh."""
    return REPLICATED if dim is None else PartitionSpec(*[None] * dim, axis)


def pmap(
    fun: Callable[P, R],
    axis_name: str | None = None,
    *,
    in_axes: PyTree = 0,
    out_axes: PyTree = 0,
    static_broadcasted_argnums: int | Sequence[int] = (),
    devices: Sequence[Device] | None = None,
    backend: str | None = None,
    axis_size: int | None = None,
    donate_argnums: int | Sequence[int] = (),
) -> Callable[P, R]:
    """Returns a compiled function that applies `fun` to all elements of a batch, each on its own device.

    It is `jit` of a `shard_map` over a mesh with one axis; use these in new programs. For a batch on one device, use
    `vmap`.

    Args:
        fun: The function of one element. It takes and returns pytrees of arrays.
        axis_name: A name of the batch axis, for collectives in `fun`. None by default.
        in_axes: The batch axis of each argument, as for `vmap`. The default is axis 0; keyword arguments are always
            mapped along axis 0.
        out_axes: The position of the batch axis in the outputs, as for `vmap`. The default is axis 0.
        static_broadcasted_argnums: Positions of static arguments, as for `jit`. Empty by default.
        devices: The devices to use, in order. None, the default, means all devices of the default platform.
        backend: The platform whose devices are used, if `devices` is None. None means the default platform.
        axis_size: The size of the batch. None, the default, takes it from the mapped arguments.
        donate_argnums: Positions of donated arguments, as for `jit`. Empty by default.

    Returns:
        A function with the signature of `fun` whose mapped arguments and outputs have one more axis.

    Raises:
        TypeError: If `fun` is not callable, or, when the result is called, if a mapped argument is not a pytree of
            arrays.
        ValueError: When the result is called: if the batch has more elements than there are devices, if `in_axes` or
            `out_axes` does not fit, or inside a `shard_map`.

    >>> from tracefx import lax
    >>> pmap(lambda x: x / lax.psum(x, "i"), "i")(np.array([2.0]))
    Array([1.], dtype=float32)
    """
    if devices is None and backend is not None:
        devices = BACKEND.value.devices(backend)
    return Pmap(
        axis_name,
        in_axes=in_axes,
        out_axes=out_axes,
        static_broadcasted_argnums=static_broadcasted_argnums,
        devices=None if devices is None else tuple(devices),
        axis_size=axis_size,
        donate_argnums=donate_argnums,
    )(fun)
