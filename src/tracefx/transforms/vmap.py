"""`vmap`: turns a function of one example into a function of a batch."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar, TypeVar, final

import numpy as np
from attrs import Attribute, field, frozen
from typing_extensions import ParamSpec, override

from tracefx.bounded_cache import memoize
from tracefx.core import Value, as_value, float0, show_avals
from tracefx.core.handler import CURRENT, Handler, as_array
from tracefx.core.primitive import BatchDims, MappedAxis
from tracefx.core.type_sharding import TypeSharding, type_sharding
from tracefx.errors import ShardingTypeError
from tracefx.interpreters.batch import Batch
from tracefx.interpreters.refs import Ref, lent, read_refs, ref_arguments
from tracefx.ops.annotations.reshard import any_sharded, with_type_of
from tracefx.ops.structural import broadcast_in_dim, move_axis
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree, TreeDef
from tracefx.transforms.arguments import (
    LEAF_TYPES,
    ArgumentNames,
    flatten_values,
    fun_label,
    output_label,
    require_callable,
    to_arrays,
    to_values,
)
from tracefx.transforms.transform import HandlerTransform, HashableTree, Preserving, Transform, to_hashable_tree
from tracefx.transforms.transformed_function import wrap_transformed

P = ParamSpec("P")
R = TypeVar("R")


def vmap(
    fun: Callable[P, R],
    in_axes: PyTree = 0,
    out_axes: PyTree = 0,
    axis_name: Hashable = None,
    axis_size: int | None = None,
    spmd_axis_name: str | tuple[str, ...] | None = None,
) -> Callable[P, R]:
    """Returns a function that applies `fun` to all elements of a batch at once.

    It computes the same as this loop for the default axes, but without a loop:

        def vmap(fun):
            def batched(xs):
                return np.stack([fun(x) for x in xs])
            return batched

    `fun` is evaluated once. Its arguments have the shapes of one element, without the batch axis, and each operation on
    them is replaced by its batched version: a product of a matrix and a vector becomes a product of two matrices.
    Operations that involve no mapped argument are evaluated once for the whole batch.

    Inside `fun`, the value of a mapped argument differs between elements, so Python control flow must not depend on it.
    A `tracefx.lax.cond` whose predicate is batched evaluates both branches and selects from the results, and a
    `tracefx.lax.while_loop` whose condition is batched runs until the last element is done. A random key that is shared
    by all elements (`in_axes=None`) gives all of them the same numbers: split it first.

    `vmap` can be nested, to map over several axes, and combined with `jit` and `grad` in any order.

    Args:
        fun: The function of one element. It takes and returns pytrees of arrays.
        in_axes: The batch axis of each argument: an integer, None for an argument that is shared by all elements (it
            need not be an array), or a tuple with one entry per positional argument, where an entry may be a pytree
            that is a prefix of the argument. Negative axes count from the end. The default is axis 0 of every argument.
            Keyword arguments are always mapped along axis 0.
        out_axes: The position of the batch axis in the outputs: an integer, or a pytree that is a prefix of the output.
            None requires that an output is the same for all elements, and returns it without a batch axis. The default
            is axis 0.
        axis_name: A hashable name of the batch axis, for collectives in `fun` such as `tracefx.lax.psum`. None, the
            default, names no axis.
        axis_size: The size of the batch. None, the default, takes it from the mapped arguments; it is needed if no
            argument is mapped.
        spmd_axis_name: The mesh axis, or a tuple of mesh axes, along which the batch axis is sharded wherever `fun`
            declares a sharding (`shard_map`, `with_sharding_constraint`). None, the default, leaves it unsharded.

    Returns:
        A function with the signature of `fun` whose mapped arguments and outputs have one more axis.

    Raises:
        TypeError: If `fun` is not callable, an option has a wrong type, or a mapped argument is not a pytree of arrays.
        ValueError: When the result is called: if `in_axes` or `out_axes` does not fit the arguments or outputs, the
            mapped axes differ in size, or `out_axes` is None for an output that differs between elements.

    >>> import tracefx.numpy as fnp
    >>> vmap(lambda x, y: x * y, in_axes=(0, None))(fnp.arange(3.0), 2.0)
    Array([0., 2., 4.], dtype=float32)

    Nested: all products of two vectors, `f32[2]` and `f32[3]`, as an array `f32[2, 3]`:

    >>> table = vmap(vmap(lambda x, y: x * y, in_axes=(None, 0)), in_axes=(0, None))
    >>> table(fnp.array([1.0, 10.0]), fnp.arange(3.0)).tolist()
    [[0.0, 1.0, 2.0], [0.0, 10.0, 20.0]]

    A pytree of axes, where the parameters are shared and each example has its own weight; and a collective over the
    batch:

    >>> loss = lambda params, example: params["w"] * example["x"] * example["weight"]
    >>> batch = {"x": fnp.arange(3.0), "weight": fnp.array([1.0, 1.0, 2.0])}
    >>> vmap(loss, in_axes=(None, {"x": 0, "weight": 0}))({"w": 3.0}, batch)
    Array([ 0.,  3., 12.], dtype=float32)
    >>> from tracefx import lax
    >>> vmap(lambda x: x / lax.psum(x, "batch"), axis_name="batch")(fnp.array([1.0, 3.0]))
    Array([0.25, 0.75], dtype=float32)
    """
    return Vmap(in_axes, out_axes, axis_name, axis_size, spmd_axis_name)(fun)


def _to_in_axes(axes: PyTree) -> HashableTree:
    return to_hashable_tree(tuple(axes) if isinstance(axes, list) else axes)


def require_axes(transform: Transform, option: Attribute[HashableTree], axes: HashableTree) -> None:
    """Raises TypeError unless the leaves of `in_axes` or `out_axes` are integers and None."""
    for entry in axes.leaves:
        if entry is not None and (isinstance(entry, bool) or not isinstance(entry, int)):
            raise TypeError(f"{transform.title}: {option.alias} must consist of integers and None, got {entry!r}")


def _check_name(transform: Vmap, option: Attribute[Hashable], name: Hashable) -> None:
    try:
        hash(name)
    except TypeError as error:
        raise TypeError(f"vmap: axis_name must be hashable, got {name!r}") from error


def _check_size(transform: Vmap, option: Attribute[int | None], size: object) -> None:
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 0):
        raise TypeError(f"vmap: axis_size must be a non-negative integer or None, got {size!r}")


def _check_spmd_name(transform: Vmap, option: Attribute[str | tuple[str, ...] | None], name: object) -> None:
    names = name if isinstance(name, tuple) else () if name is None else (name,)
    if not all(isinstance(n, str) for n in names):
        raise TypeError(f"vmap: spmd_axis_name must be the name of an axis of a mesh, or a tuple of them, got {name!r}")


class HasBatchAxes:
    """A capability of pytree nodes whose arrays can be mapped along some axes only."""

    __slots__ = ()

    @classmethod
    def check_mapped_axes(cls, where: str, ranks: Sequence[int], axes: Sequence[int | None]) -> None:
        """Raises ValueError if the arrays of a node cannot be mapped along these axes.

        Args:
            where: The transformation, for messages.
            ranks: The numbers of axes of the arrays, including the mapped ones.
            axes: The mapped axis of each array; None if it is not mapped.
        """
        raise NotImplementedError


@memoize(1024)
def _nodes_with_batch_axes(tree: TreeDef) -> tuple[tuple[type[HasBatchAxes], int, int], ...]:
    """Returns the classes of the nodes with this capability, with the range of each node's leaves."""
    found: list[tuple[type[HasBatchAxes], int, int]] = []

    def visit(node: TreeDef, start: int) -> None:
        data = node.node_data()
        if data is not None and issubclass(data[0], HasBatchAxes):
            found.append((data[0], start, start + node.num_leaves))
            return
        for child in node.children():
            visit(child, start)
            start += child.num_leaves

    visit(tree, 0)
    return tuple(found)


def _check_nodes(where: str, tree: TreeDef, ranks: Sequence[int], axes: Sequence[Any]) -> None:
    for cls, start, stop in _nodes_with_batch_axes(tree):
        cls.check_mapped_axes(where, ranks[start:stop], axes[start:stop])


@final
@frozen(eq=False, repr=False)
class Vmap(HandlerTransform[Preserving]):
    """`vmap` with its options, as a transformation value. The options are described at `vmap`.

    >>> Vmap(in_axes=({"scale": None, "shift": 0}, 0))
    Vmap(in_axes=({'scale': None, 'shift': 0}, 0))
    """

    title: ClassVar[str] = "vmap"
    _in_axes: HashableTree = field(
        alias="in_axes", default=to_hashable_tree(0), converter=_to_in_axes, validator=require_axes
    )
    _out_axes: HashableTree = field(
        alias="out_axes", default=to_hashable_tree(0), converter=to_hashable_tree, validator=require_axes
    )
    axis_name: Hashable = field(default=None, validator=_check_name)
    axis_size: int | None = field(default=None, validator=_check_size)
    spmd_axis_name: str | tuple[str, ...] | None = field(default=None, validator=_check_spmd_name)

    @property
    def in_axes(self) -> PyTree:
        """The batch axes of the arguments, as given."""
        return self._in_axes.tree

    @property
    def out_axes(self) -> PyTree:
        """The batch axes of the outputs, as given."""
        return self._out_axes.tree

    @override
    def over(self, handler: Handler, /) -> Batch:
        """Returns the batching handler, for a batch of `axis_size`, over `handler`."""
        if self.axis_size is None:
            raise ValueError(f"{self!r}: the batching handler needs the size of the batch; pass axis_size")
        return Batch(handler, MappedAxis(self.axis_size, self.axis_name, self.spmd_axis_name))

    @override
    def transformed(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        require_callable("vmap", fun)
        in_axes, out_axes, axis_name, axis_size = self.in_axes, self.out_axes, self.axis_name, self.axis_size

        @wrap_transformed(self, fun)
        def batched(*args: Any, **kwargs: Any) -> Any:
            where = f"vmap of {fun_label(fun)}"
            if isinstance(in_axes, tuple) and len(in_axes) != len(args):
                raise ValueError(
                    f"{where}: in_axes {in_axes} has {len(in_axes)} entries, but there are {len(args)} positional "
                    "arguments; pass one entry per argument, or one integer for all"
                )
            leaves, in_tree = trees.flatten_with_known_types((args, kwargs), LEAF_TYPES)
            args_tree, kwargs_tree = in_tree.children()
            entries = (
                trees.broadcast_prefix(
                    in_axes, args_tree, none_is_leaf=True, what=f"{where}: in_axes", of="the arguments"
                )
                + [0] * kwargs_tree.num_leaves
            )
            # Unmapped arguments are passed on unchanged: they may be functions, strings or the integers of a shape.
            unmapped = {i: leaf for i, (leaf, entry) in enumerate(zip(leaves, entries, strict=True)) if entry is None}
            arrays = [0 if i in unmapped else leaf for i, leaf in enumerate(leaves)] if unmapped else leaves
            names = ArgumentNames(fun, args, kwargs, range(len(args)))
            refs = ref_arguments(where, arrays)
            values = to_values(read_refs(arrays, refs), (args, kwargs), lambda i: f"{where}: {names[i]}")
            dims = [
                mapped_input_axis(where, e, v, names, i) for i, (e, v) in enumerate(zip(entries, values, strict=True))
            ]
            _check_nodes(where, in_tree, [v.aval.ndim for v in values], dims)
            size = mapped_axis_size(where, values, dims, axis_size, names)
            axis = MappedAxis(size, axis_name, self.spmd_axis_name, _batch_sharding(where, values, dims))
            handler = Batch(CURRENT.get(), axis)
            mapped = [handler.wrap(v, d) for v, d in zip(values, dims, strict=True)]
            given: list[object] = list(to_arrays(mapped))
            for i, leaf in unmapped.items():
                given[i] = leaf
            with lent(refs.values(), where):
                token = CURRENT.set(handler)
                try:
                    for i in refs:
                        given[i] = Ref(as_array(mapped[i]), names[i])
                    call_args, call_kwargs = in_tree.unflatten(given)
                    outs, out_tree = flatten_values(fun(*call_args, **call_kwargs), output_label(fun))
                    contents = [handler.unwrap(ref[...]) for i in refs if isinstance(ref := given[i], Ref)]
                finally:
                    CURRENT.reset(token)
            for i, (x, d) in zip(refs, contents, strict=True):
                if x is not values[i]:
                    refs[i][...] = _move_out_axis(where, axis, x, d, dims[i])
            out_entries = trees.broadcast_prefix(
                out_axes, out_tree, none_is_leaf=True, what=f"{where}: out_axes", of="the output"
            )
            _check_nodes(where, out_tree, [o.aval.ndim + 1 for o in outs], out_entries)
            pairs = [handler.unwrap(o) for o in outs]
            results = [
                _move_out_axis(where, axis, x, d, entry) for (x, d), entry in zip(pairs, out_entries, strict=True)
            ]
            return out_tree.unflatten(results)

        return batched


def _batch_sharding(where: str, values: Sequence[Value], dims: BatchDims) -> TypeSharding | None:
    """Returns the sharding of the batch axis that the types of the arguments have, which must be the same for all."""
    if not any_sharded(values):
        return None
    along = {x.aval.spec[dim]: x.aval for x, dim in zip(values, dims, strict=True) if dim is not None}
    if len(along) > 1:
        raise ShardingTypeError(
            f"{where}: the axes that are mapped over must be sharded over the same mesh axes, got "
            f"{show_avals(along.values())}: reshard an argument with tracefx.sharding.reshard"
        )
    for entry, aval in along.items():
        if aval.explicit_sharding is not None:
            return type_sharding(aval.explicit_sharding.mesh, (entry,), 1)
    return None


def mapped_input_axis(where: str, entry: object, x: Value, names: ArgumentNames, leaf: int) -> int | None:
    """Returns the axis of an argument that an entry of `in_axes` names, as a non-negative integer, or None."""
    if not isinstance(entry, int):  # None: the transformation has checked its axes
        return None
    ndim = x.aval.ndim
    if not -ndim <= entry < ndim:
        is_keyword = leaf >= len(trees.leaves(names.args))
        raise ValueError(
            f"{where}: {names[leaf]}, {x.aval}, has no axis {entry} to map over. "
            + (
                "Keyword arguments are mapped over axis 0; bind one that is the same for all elements of the batch by "
                "functools.partial, or pass it by position, with None in in_axes"
                if is_keyword
                else "For an argument that is the same for all elements of the batch, pass None in in_axes"
            )
        )
    return entry % ndim


def mapped_output_axis(where: str, entry: object, ndim: int) -> int | None:
    """Returns the axis that an entry of `out_axes` names, as a non-negative integer, or None."""
    if not isinstance(entry, int):  # None: the transformation has checked its axes
        return None
    if not -ndim <= entry < ndim:
        raise ValueError(f"{where}: out_axes names axis {entry} of an output with {ndim} axes, the batch axis included")
    return entry % ndim


def mapped_axis_size(
    where: str, values: Sequence[Value], dims: Sequence[int | None], given: int | None, names: ArgumentNames
) -> int:
    """Returns the size of the batch: the common size of the mapped axes, or the size that was given."""
    sizes = [(i, v.aval.shape[d]) for i, (v, d) in enumerate(zip(values, dims, strict=True)) if d is not None]
    if not sizes:
        if given is None:
            raise ValueError(f"{where}: no argument is mapped, so the size of the batch is unknown; pass axis_size")
        return given
    size = sizes[0][1] if given is None else given
    if any(n != size for _, n in sizes):
        lines = [f"  axis {dims[i]} of {names[i]} has size {n}" for i, n in sizes]
        lines += [] if given is None else [f"  axis_size is {given}"]
        raise ValueError("\n".join([f"{where}: the mapped axes must have the same size, but", *lines]))
    return size


def _move_out_axis(where: str, axis: MappedAxis, x: Value, dim: int | None, entry: object) -> Value:
    """Returns an output with its batch axis at the position given by `out_axes`."""
    if entry is None:
        if dim is not None:
            raise ValueError(
                f"{where}: out_axes is None for an output that differs between batch elements; pass an axis"
            )
        return as_array(x)
    rank = x.aval.ndim + (dim is None)
    target = mapped_output_axis(where, entry, rank)
    assert target is not None
    if dim is None:
        shape = (*x.aval.shape[:target], axis.size, *x.aval.shape[target:])
        if x.aval.dtype == float0:  # programs do not compute with float0: its zeros are made by NumPy
            return as_array(as_value(np.zeros(shape, float0)))
        out = broadcast_in_dim(x, shape, [i for i in range(rank) if i != target])
        return out if axis.explicit is None else with_type_of(out, axis.add_to(x.aval, target))
    return move_axis(x, dim, target)
