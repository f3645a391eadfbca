"""Collectives that exchange data: `all_gather`, `psum_scatter`, `ppermute`, `all_to_all`, and their variants."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import prod
from typing import Final, final

import numpy as np
from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.core import Array, ArrayLike, ShapedArray, Value, as_value
from tracefx.core.avals import MeshAxes
from tracefx.core.handler import as_array, bind1
from tracefx.core.named_sharding import Spec
from tracefx.core.primitive import MappedAxis
from tracefx.lowering import Attr, Builder, IrValue, MlirText
from tracefx.ops.collectives.collective import (
    NOT_IN_JAX,
    AxisName,
    AxisNameTuple,
    Collective,
    LinearCollective,
    ReplicaGroups,
    ShowsAxisIndexGroups,
    axis_index,
    psum,
    reducer_region,
    replica_group_attrs,
    resolve_axis_names,
    scalar_like,
)
from tracefx.ops.collectives.pvary import varying
from tracefx.ops.elementwise.arithmetic import mul
from tracefx.ops.elementwise.comparison import eq
from tracefx.ops.elementwise.elementwise import NUMBERS
from tracefx.ops.elementwise.selection import select_with_aval
from tracefx.ops.indexing.along_axis import index_in_dim
from tracefx.ops.indexing.gather_scatter_add import Gather, GatherDimensionNumbers
from tracefx.ops.indexing.indexed_windows import GatherScatterMode
from tracefx.ops.operation import DataMovement
from tracefx.ops.shape.shape import batch_at
from tracefx.ops.sharding_rules import require_unsharded, without_axes
from tracefx.ops.static_integers import canonicalize_axis, static_int
from tracefx.ops.structural import batch_first, reduce_sum, reshape, transpose
from tracefx.passes.varying import HasVmaRule

# ------------------------------------------------------------------ all_gather, psum_scatter


@final
@frozen(eq=False)
class AllGather(LinearCollective, DataMovement, ShowsAxisIndexGroups, HasVmaRule):
    """Gathers the operands of all members along a new axis, or along an existing one if `tiled`.

    All members get equal values. But unless it is `invarying`, their type is varying, as in JAX: their cotangents are
    each member's own.

    Args:
        all_gather_dimension: The position of the gathered axis in the result.
        axis_name: The names of the axes whose members are gathered.
        axis_size: The number of members.
        tiled: Whether the operands are concatenated along an existing axis.
        invarying: Whether the type of the result is replicated. False by default.

    `x: f32[n, ...] -> f32[axis_size, n, ...]`, if `tiled` `f32[n, ...] -> f32[axis_size * n, ...]`, with
    `all_gather_dimension=0`; any dtype. Bound by `lax.all_gather`.
    """

    name = "all_gather"
    all_gather_dimension: int
    axis_name: AxisNameTuple
    axis_size: int
    tiled: bool
    invarying: bool = field(default=False, metadata={**NOT_IN_JAX, "hide_default": True})

    @property
    @override
    def names(self) -> AxisNameTuple:
        return self.axis_name

    @override
    def vma(self, operands: MeshAxes) -> MeshAxes:
        return operands.difference(map(str, self.names)) if self.invarying else operands

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        (x,), axis = avals, self.all_gather_dimension
        return [x.spec if self.tiled else (*x.spec[:axis], None, *x.spec[axis:])]

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        (x,), axis = avals, self.all_gather_dimension
        if not 0 <= axis < x.ndim + (not self.tiled):
            raise ValueError(f"all_gather: axis {axis} is out of bounds for {x}, tiled={self.tiled}")
        if not self.tiled:
            return x.with_axis(self.axis_size, axis)
        return x.update(shape=(*x.shape[:axis], x.shape[axis] * self.axis_size, *x.shape[axis + 1 :]))

    @override
    def batch_over_axis(self, axis: MappedAxis, x: Value, dim: int | None) -> tuple[Value, int | None]:
        position = self.all_gather_dimension
        out = batch_at(x, dim, axis, position)
        if self.tiled:
            out = merge_axes(out, position)
        return out, None

    @override
    def emit_across_devices(
        self, builder: Builder, groups: ReplicaGroups, out: ShapedArray, *operands: IrValue
    ) -> IrValue:
        (x,) = operands
        position = self.all_gather_dimension
        if not self.tiled:
            (x,) = builder.emit("stablehlo.reshape", [x], [x.aval.with_axis(1, position)])
        attrs = {
            **replica_group_attrs(builder, groups),
            "all_gather_dim": position,
            "use_global_device_ids": MlirText("unit"),
        }
        return builder.emit("stablehlo.all_gather", [x], [out], attrs)[0]

    @override
    def batch_other_axis(self, x: Value, dim: int) -> tuple[Value, int | None]:
        position = self.all_gather_dimension
        if dim <= position:
            return bind1(evolve(self, all_gather_dimension=position + 1), x), dim
        return bind1(self, x), dim + (not self.tiled)

    @override
    def transposed(self) -> Collective:
        return ReduceScatter(self.all_gather_dimension, self.axis_name, self.axis_size, self.tiled)


@final
@frozen(eq=False)
class ReduceScatter(LinearCollective, ShowsAxisIndexGroups):
    """Sums the operands of all members, and returns to each member its part along an axis.

    Args:
        scatter_dimension: The axis that is divided among the members.
        axis_name: The names of the axes.
        axis_size: The number of members.
        tiled: Whether each member keeps a part of the axis; otherwise, the axis has the size `axis_size` and is
            removed.

    `x: f32[n, ...] -> f32[n // axis_size, ...]` if `tiled`, else `f32[axis_size, ...] -> f32[...]`, with
    `scatter_dimension=0`; numbers. Bound by `lax.psum_scatter`.
    """

    name = "reduce_scatter"
    scatter_dimension: int
    axis_name: AxisNameTuple
    axis_size: int
    tiled: bool

    @property
    @override
    def names(self) -> AxisNameTuple:
        return self.axis_name

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        (x,), axis = avals, self.scatter_dimension
        require_unsharded(self, x, (axis,))
        return [x.spec if self.tiled else without_axes(x.spec, (axis,))]

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        (x,), axis = avals, self.scatter_dimension
        NUMBERS.require("psum_scatter", x)
        if not 0 <= axis < x.ndim:
            raise ValueError(f"psum_scatter: scatter_dimension {axis} is out of bounds for {x}")
        if self.tiled:
            if x.shape[axis] % self.axis_size:
                raise ValueError(
                    f"psum_scatter: axis {axis} of {x} must have a size that is a multiple of {self.axis_size}"
                )
            return x.update(shape=(*x.shape[:axis], x.shape[axis] // self.axis_size, *x.shape[axis + 1 :]))
        if x.shape[axis] != self.axis_size:
            raise ValueError(f"psum_scatter: axis {axis} of {x} must have the size {self.axis_size} of the named axis")
        return x.without_axis(axis)

    @override
    def batch_over_axis(self, axis: MappedAxis, x: Value, dim: int | None) -> tuple[Value, int | None]:
        total = as_array(mul(x, scalar_like(axis.size, x.aval)) if dim is None else reduce_sum(x, (dim,)))
        if self.tiled:
            total = _split(total, self.scatter_dimension, axis.size)
        return total, self.scatter_dimension

    @override
    def emit_across_devices(
        self, builder: Builder, groups: ReplicaGroups, out: ShapedArray, *operands: IrValue
    ) -> IrValue:
        position = self.scatter_dimension
        part = out if self.tiled else out.with_axis(1, position)
        attrs = {
            **replica_group_attrs(builder, groups),
            "scatter_dimension": position,
            "use_global_device_ids": MlirText("unit"),
        }
        region = reducer_region(out, "stablehlo.add")
        (x,) = builder.emit("stablehlo.reduce_scatter", operands, [part], attrs, [region])
        return x if self.tiled else builder.emit("stablehlo.reshape", [x], [out])[0]

    @override
    def batch_other_axis(self, x: Value, dim: int) -> tuple[Value, int | None]:
        position = self.scatter_dimension
        if dim <= position:
            return bind1(evolve(self, scatter_dimension=position + 1), x), dim
        return bind1(self, x), dim - (not self.tiled)

    @override
    def transposed(self) -> Collective:
        return AllGather(self.scatter_dimension, self.axis_name, self.axis_size, self.tiled)


def merge_axes(x: Array, axis: int) -> Array:
    """Returns `x` with the axes `axis` and `axis + 1` merged."""
    shape = x.shape
    return reshape(x, (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]))


def _split(x: Array, axis: int, size: int) -> Array:
    """Returns `x` with an axis split in two, the first of the given size."""
    return reshape(x, (*x.shape[:axis], size, x.shape[axis] // size, *x.shape[axis + 1 :]))


def all_gather(
    x: ArrayLike, axis_name: AxisName, *, axis: int = 0, tiled: bool = False, invarying: bool = False
) -> Array:
    """Returns the values of `x` of all members of the named axis.

    Args:
        x: Array.
        axis_name: The name of the axis, or a tuple of names.
        axis: The position of the new axis, or of the axis to concatenate along. 0 by default.
        tiled: Whether to concatenate along an existing axis instead of stacking. False by default.
        invarying: Whether the type of the result is replicated. False by default.

    Returns:
        An array, equal for all members.

    Raises:
        NameError: The name is not bound.
        ValueError: There is no such axis.

    >>> from tracefx import vmap
    >>> vmap(lambda x: all_gather(x, "i"), axis_name="i")(np.array([1, 2])).tolist()
    [[1, 2], [1, 2]]
    """
    names, sizes = resolve_axis_names("all_gather", axis_name)
    out = as_array(varying(as_value(x, "x"), names))
    position = canonicalize_axis("all_gather", axis, out.ndim + (not tiled), "axis")
    for name, size in zip(reversed(names), reversed(sizes), strict=True):  # the first name is the major one
        out = bind1(AllGather(position, (name,), size, tiled, invarying), out)
        tiled = True
    return out


def psum_scatter(x: ArrayLike, axis_name: AxisName, *, scatter_dimension: int = 0, tiled: bool = False) -> Array:
    """Returns this member's part of the sum of `x` over the named axis.

    Args:
        x: Array of numbers.
        axis_name: The name of the axis, or a tuple of names.
        scatter_dimension: The axis that is distributed over the members. 0 by default.
        tiled: If False, the default, that axis must have the size of the named one, and the result does not have it. If
            True, its size must be a multiple of that, and each member gets a slice.

    Returns:
        An array of the dtype of `x`.

    Raises:
        NameError: The name is not bound.
        TypeError: `x` is boolean.
        ValueError: The axis has another size, or does not exist.

    >>> from tracefx import vmap
    >>> vmap(lambda x: psum_scatter(x, "i"), axis_name="i")(np.array([[1, 2], [10, 20]])).tolist()
    [11, 22]
    """
    names, sizes = resolve_axis_names("psum_scatter", axis_name)
    out = as_array(varying(as_value(x, "x"), names))
    position = canonicalize_axis("psum_scatter", scatter_dimension, out.ndim, "scatter_dimension")
    if len(names) == 1:
        return bind1(ReduceScatter(position, names, sizes[0], bool(tiled)), out)
    if not tiled and out.shape[position] != prod(sizes):
        raise ValueError(f"psum_scatter: axis {position} of {out.aval} must have the named axes' size {prod(sizes)}")
    for name, size in zip(names, sizes, strict=True):  # the first name is the major one
        out = bind1(ReduceScatter(position, (name,), size, True), out)
    return out if tiled else reshape(out, (*out.shape[:position], *out.shape[position + 1 :]))


# ------------------------------------------------------------------ ppermute


@final
@frozen(eq=False)
class PPermute(LinearCollective, DataMovement):
    """Sends operands between pairs of members. Members that receive nothing get zeros.

    Args:
        axis_name: The names of the axes.
        perm: The pairs `(source, destination)`; sources are distinct, and so are destinations.
        axis_size: The number of members.

    `x: f32[...] -> f32[...]`, any dtype. Bound by `lax.ppermute`, `lax.pshuffle` and `lax.pbroadcast`.
    """

    name = "ppermute"
    axis_name: AxisNameTuple
    perm: tuple[tuple[int, int], ...]
    axis_size: int = field(metadata=NOT_IN_JAX)

    @property
    @override
    def names(self) -> AxisNameTuple:
        return self.axis_name

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        for what, members in (("sources", [s for s, _ in self.perm]), ("destinations", [d for _, d in self.perm])):
            if len(set(members)) != len(members) or any(not 0 <= m < self.axis_size for m in members):
                raise ValueError(
                    f"ppermute: the {what} in perm {self.perm} must be distinct and between 0 and {self.axis_size - 1}"
                )
        return avals[0]

    @override
    def batch_over_axis(self, axis: MappedAxis, x: Value, dim: int | None) -> tuple[Value, int | None]:
        if len(self.names) > 1:
            raise ValueError(
                f"ppermute along {self.names} at once is supported only between devices; inside vmap(axis_name="
                f"{axis.name!r}) permute along one axis after the other"
            )
        if dim is None and len(self.perm) == axis.size:
            return x, None
        sources = [-1] * axis.size  # out of bounds, so filled with zeros
        for source, destination in self.perm:
            sources[destination] = source
        moved = batch_first(x, dim, axis)
        numbers = GatherDimensionNumbers(range(1, moved.ndim), (0,), (0,))
        whole = len(self.perm) == axis.size
        mode = GatherScatterMode.PROMISE_IN_BOUNDS if whole else GatherScatterMode.FILL_OR_DROP
        prim = Gather(numbers, (1, *moved.shape[1:]), False, whole, mode, None if whole else 0)
        return bind1(prim, moved, np.asarray(sources, np.int32)[:, None]), 0

    @override
    def emit_single_device(self, builder: Builder, out: ShapedArray, x: IrValue) -> IrValue:
        return x if self.perm else builder.constant(np.zeros(out.shape, out.dtype))

    @override
    def emit_across_devices(
        self, builder: Builder, groups: ReplicaGroups, out: ShapedArray, *operands: IrValue
    ) -> IrValue:
        pairs = [[group[s], group[d]] for group in groups for s, d in self.perm]
        attrs: dict[str, Attr] = {
            "source_target_pairs": MlirText(f"dense<{pairs if pairs else ''}> : tensor<{len(pairs)}x2xi64>"),
            "channel_handle": builder.channel_handle(),
        }
        return builder.emit("stablehlo.collective_permute", operands, [out], attrs)[0]

    @override
    def transposed(self) -> Collective:
        return evolve(self, perm=tuple([(d, s) for s, d in self.perm]))


def ppermute(x: ArrayLike, axis_name: AxisName, perm: Sequence[tuple[int, int]]) -> Array:
    """Returns the value of `x` that another member of the named axis sends to this one.

    Args:
        x: Array.
        axis_name: The name of the axis, or a tuple of names.
        perm: Pairs (source, destination) of members. Sources are distinct, and so are destinations.

    Returns:
        An array with the shape and dtype of `x`; zeros if this member is not a destination.

    Raises:
        NameError: The name is not bound.
        ValueError: A source or destination is repeated or out of range.

    >>> from tracefx import vmap
    >>> vmap(lambda x: ppermute(x, "i", [(0, 1), (1, 2), (2, 0)]), axis_name="i")(np.array([1, 2, 3]))
    Array([3, 1, 2], dtype=int32)
    """
    names, sizes = resolve_axis_names("ppermute", axis_name)
    pairs = tuple([(static_int("ppermute", s, "perm"), static_int("ppermute", d, "perm")) for s, d in perm])
    return bind1(PPermute(names, pairs, prod(sizes)), varying(as_value(x, "x"), names))


# ------------------------------------------------------------------ all_to_all


@final
@frozen(eq=False)
class AllToAll(LinearCollective, DataMovement, ShowsAxisIndexGroups):
    """Splits `split_axis` into one part per member; member `i` gets the `i`-th part of each member.

    The parts are concatenated along `concat_axis`.

    Args:
        axis_name: The name of the axis.
        split_axis: The axis of the operand that is split.
        concat_axis: The axis along which the received parts are concatenated.
        tiled: The `tiled` of the function that bound the primitive; it has no effect on the result.
        axis_size: The number of members.

    `x: f32[n, ...] -> f32[n, ...]` if both axes are 0, `f32[n, m] -> f32[n // axis_size, axis_size * m]` with
    `split_axis=0` and `concat_axis=1`; any dtype. Bound by `lax.all_to_all` and `lax.pswapaxes`.
    """

    name = "all_to_all"
    axis_name: Hashable
    split_axis: int
    concat_axis: int
    tiled: bool
    axis_size: int = field(metadata=NOT_IN_JAX)

    @property
    @override
    def names(self) -> AxisNameTuple:
        return (self.axis_name,)

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        (x,) = avals
        require_unsharded(self, x, (self.split_axis, self.concat_axis))
        return [x.spec]

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        (x,) = avals
        if not (0 <= self.split_axis < x.ndim and 0 <= self.concat_axis < x.ndim):
            raise ValueError(
                f"all_to_all: split_axis {self.split_axis} and concat_axis {self.concat_axis} must be axes of {x}"
            )
        sizes = list(x.shape)
        if sizes[self.split_axis] % self.axis_size:
            raise ValueError(
                f"all_to_all: split_axis {self.split_axis} of {x} must have a size that is a "
                f"multiple of {self.axis_size}"
            )
        sizes[self.split_axis] //= self.axis_size
        sizes[self.concat_axis] *= self.axis_size
        return x.update(shape=tuple(sizes))

    @override
    def batch_over_axis(self, axis: MappedAxis, x: Value, dim: int | None) -> tuple[Value, int | None]:
        cut = _split(batch_first(x, dim, axis), self.split_axis + 1, axis.size)
        # Axes of `cut`: senders, the axes before split_axis, receivers, the other axes.
        order = [i for i in range(1, cut.ndim) if i != self.split_axis + 1]
        order.insert(self.concat_axis, 0)
        sent = transpose(cut, [self.split_axis + 1, *order])
        return merge_axes(sent, self.concat_axis + 1), 0

    @override
    def emit_across_devices(
        self, builder: Builder, groups: ReplicaGroups, out: ShapedArray, *operands: IrValue
    ) -> IrValue:
        attrs = {
            **replica_group_attrs(builder, groups),
            "split_dimension": self.split_axis,
            "concat_dimension": self.concat_axis,
            "split_count": self.axis_size,
        }
        return builder.emit("stablehlo.all_to_all", operands, [out], attrs)[0]

    @override
    def batch_other_axis(self, x: Value, dim: int) -> tuple[Value, int | None]:
        split, concat = self.split_axis, self.concat_axis
        moved = evolve(self, split_axis=split + (dim <= split), concat_axis=concat + (dim <= concat))
        return bind1(moved, x), dim

    @override
    def transposed(self) -> Collective:
        return evolve(self, split_axis=self.concat_axis, concat_axis=self.split_axis)


def all_to_all(x: ArrayLike, axis_name: AxisName, split_axis: int, concat_axis: int, *, tiled: bool = False) -> Array:
    """Transposes an axis of `x` with the named axis: distributes `split_axis` and collects along `concat_axis`.

    Args:
        x: Array.
        axis_name: The name of the axis, or a tuple of names.
        split_axis: The axis that is distributed over the members.
        concat_axis: Where the received parts are collected.
        tiled: If False, the default, `split_axis` must have the size of the named axis and is removed, and
            `concat_axis` is a new axis. If True, `split_axis` is split into slices, which are concatenated along
            `concat_axis`.

    Returns:
        An array of the same size and dtype.

    Raises:
        NameError: The name is not bound.
        ValueError: `split_axis` has another size, or an axis does not exist.

    >>> from tracefx import vmap
    >>> vmap(lambda x: all_to_all(x, "i", 0, 0), axis_name="i")(np.array([[1, 2], [3, 4]])).tolist()
    [[1, 3], [2, 4]]
    """
    names, sizes = resolve_axis_names("all_to_all", axis_name)
    value = as_array(varying(as_value(x, "x"), names))
    split = canonicalize_axis("all_to_all", split_axis, value.ndim, "split_axis")
    concat = canonicalize_axis("all_to_all", concat_axis, value.ndim, "concat_axis")
    if len(names) != 1:
        return _all_to_all_along(names, sizes, value, split, concat, tiled)
    name, size = names[0], sizes[0]
    if tiled or split == concat:
        if not tiled and value.shape[split] != size:
            raise ValueError(_UNEVEN.format(split, value.aval, size))
        return bind1(AllToAll(name, split, concat, bool(tiled), size), value)
    if value.shape[split] != size:
        raise ValueError(_UNEVEN.format(split, value.aval, size))
    # Adds the new axis with size 1 before the tiled exchange, which leaves the old one with size 1.
    wide = split + (concat < split)
    concat += split < concat
    shape = list(value.shape)
    shape.insert(concat, 1)
    out = bind1(AllToAll(name, wide, concat, False, size), reshape(value, shape))
    return reshape(out, [n for i, n in enumerate(out.shape) if i != wide])


def pswapaxes(x: ArrayLike, axis_name: AxisName, axis: int) -> Array:
    """Exchanges the named axis with the axis `axis` of `x`, which must have the same size.

    >>> from tracefx import vmap
    >>> vmap(lambda x: pswapaxes(x, "i", 0), axis_name="i")(np.array([[1, 2], [3, 4]])).tolist()
    [[1, 3], [2, 4]]
    """
    return all_to_all(x, axis_name, axis, axis)


def pshuffle(x: ArrayLike, axis_name: AxisName, perm: Sequence[int]) -> Array:
    """Permutes the members of the named axis: member `i` gets the value of `x` of member `perm[i]`.

    `perm` is a permutation of all members; otherwise ValueError is raised.

    >>> from tracefx import vmap
    >>> vmap(lambda x: pshuffle(x, "i", [2, 0, 1]), axis_name="i")(np.array([1, 2, 3]))
    Array([3, 1, 2], dtype=int32)
    """
    sources = [static_int("pshuffle", source, "perm") for source in perm]
    size = prod(resolve_axis_names("pshuffle", axis_name)[1])
    if sorted(sources) != list(range(size)):
        raise ValueError(f"pshuffle: perm must contain every number from 0 to {size - 1} once, got {perm!r}")
    return ppermute(x, axis_name, list(zip(sources, range(size), strict=True)))


def pbroadcast(x: ArrayLike, axis_name: AxisName, source: int) -> Array:
    """Returns the value of `x` of the member `source` of the named axis; ValueError if there is no such member.

    >>> from tracefx import vmap
    >>> vmap(lambda x: pbroadcast(x, "i", 1), axis_name="i")(np.array([1, 2, 3]))
    Array([2, 2, 2], dtype=int32)
    """
    size = prod(resolve_axis_names("pbroadcast", axis_name)[1])
    member = static_int("pbroadcast", source, "source")
    if not 0 <= member < size:
        raise ValueError(f"pbroadcast: source {source} must be between 0 and {size - 1}")
    value = as_array(x)
    if not NUMBERS.takes(value.dtype):
        return index_in_dim(all_gather(value, axis_name), member, keepdims=False)
    is_source = eq(axis_index(axis_name), member)
    return as_array(psum(select_with_aval(is_source, value, 0, value.aval), axis_name))


def _all_to_all_along(
    names: AxisNameTuple, sizes: Sequence[int], x: Array, split: int, concat: int, tiled: bool
) -> Array:
    """Exchanges along several named axes, one after the other. Meanwhile, each has its own axis of the array."""
    size, n = prod(sizes), len(names)
    if x.shape[split] % size if tiled else x.shape[split] != size:
        raise ValueError(_UNEVEN.format(split, x.aval, size))
    left = [x.shape[split] // size] if tiled else []
    out = reshape(x, (*x.shape[:split], *sizes, *left, *x.shape[split + 1 :]))
    for i, (name, length) in enumerate(zip(names, sizes, strict=True), split):
        out = bind1(AllToAll(name, i, i, True, length), out)
    senders = range(split, split + n)
    order = [i for i in range(out.ndim) if i not in senders]
    order[concat:concat] = senders
    moved = transpose(out, order)
    merged = n + tiled
    joined = prod(moved.shape[concat : concat + merged])
    return reshape(moved, (*moved.shape[:concat], joined, *moved.shape[concat + merged :]))


_UNEVEN: Final = "all_to_all: split_axis {} of {} must have the size {} of the named axis, or a multiple of it if tiled"
