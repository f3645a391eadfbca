"""Collectives among groups of an axis's members, and of uneven pieces: each works on what its group has gathered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias, final

import numpy as np
from attrs import frozen

from tracefx.core.array import Array, ArrayLike
from tracefx.core.dtypes import NDArray, default_float, int32, is_bool, is_inexact, is_integer
from tracefx.core.handler import as_array, bind1
from tracefx.ops.collectives.collective import AxisName, axis_index, resolve_axis_names
from tracefx.ops.collectives.exchange import all_gather
from tracefx.ops.elementwise.arithmetic import div
from tracefx.ops.elementwise.elementwise import NUMBERS
from tracefx.ops.elementwise.selection import select_with_aval
from tracefx.ops.indexing.dynamic_slicing import dynamic_slice
from tracefx.ops.indexing.gather_scatter_add import Gather, GatherDimensionNumbers
from tracefx.ops.indexing.indexed_windows import GatherScatterMode
from tracefx.ops.shape.shape import iota
from tracefx.ops.static_integers import canonicalize_axis, static_int
from tracefx.ops.structural import broadcast_in_dim, convert, move_axis, reduce_sum, reshape

AxisIndexGroups: TypeAlias = Sequence[Sequence[int]]
"""Which members work together: groups of one size, in which each member is once."""


@final
@frozen(eq=False)
class AxisIndexGroup:
    """What a member's group has: `f32[members, ...]`, in the group's order, and the member's place in it."""

    gathered_values: Array
    index_in_group: Array

    @property
    def size(self) -> int:
        return self.gathered_values.shape[0]

    @staticmethod
    def of(name: str, x: ArrayLike, axis_name: AxisName, groups: AxisIndexGroups) -> AxisIndexGroup:
        """ValueError if the groups don't have each member once, or are of different sizes."""
        names, sizes = resolve_axis_names(name, axis_name)
        if len(names) != 1:
            raise ValueError(f"{name}: axis_index_groups are groups of one axis's members, got axis_name {axis_name!r}")
        rows = [[static_int(name, member, "axis_index_groups") for member in group] for group in groups]
        if sorted([member for row in rows for member in row]) != list(range(sizes[0])):
            raise ValueError(f"{name}: axis_index_groups must have each of 0 to {sizes[0] - 1} once, got {groups}")
        if len({len(row) for row in rows}) != 1:
            raise ValueError(f"{name}: axis_index_groups must be of one size, got {groups}")
        mine = np.empty((sizes[0], len(rows[0])), np.int32)
        places = np.empty(sizes[0], np.int32)
        for row in rows:
            for place, member in enumerate(row):
                mine[member], places[member] = row, place
        here = axis_index(names[0])
        everything = all_gather(x, names[0])
        return AxisIndexGroup(_take_rows(everything, _table_row(mine, here)), _table_row(places, here))


def _table_row(table: NDArray, index: Array) -> Array:
    """The row of a table at an index."""
    starts: list[ArrayLike] = [index, *[np.int32(0)] * (table.ndim - 1)]
    return reshape(dynamic_slice(table, starts, (1, *table.shape[1:])), table.shape[1:])


def _take_rows(x: Array, indices: Array) -> Array:
    numbers = GatherDimensionNumbers(range(1, x.ndim), (0,), (0,))
    prim = Gather(numbers, (1, *x.shape[1:]), False, True, GatherScatterMode.PROMISE_IN_BOUNDS, None)
    return bind1(prim, x, reshape(indices, (*indices.shape, 1)))


def grouped_psum(x: ArrayLike, axis_name: AxisName, groups: AxisIndexGroups) -> Array:
    """`psum` within the group."""
    value = as_array(x)
    if is_bool(value.dtype):
        value = convert(value, int32)
    return as_array(reduce_sum(AxisIndexGroup.of("psum", value, axis_name, groups).gathered_values, (0,)))


def grouped_pmean(x: ArrayLike, axis_name: AxisName, groups: AxisIndexGroups) -> Array:
    """`pmean` within the group."""
    total = grouped_psum(x, axis_name, groups)
    return div(total if is_inexact(total.dtype) else convert(total, default_float()), len(groups[0]))


def grouped_reduce(
    name: str, fold: Callable[[Array, Sequence[int]], Array], x: ArrayLike, axis_name: AxisName, groups: AxisIndexGroups
) -> Array:
    """`pmax` or `pmin` within the group."""
    return fold(AxisIndexGroup.of(name, x, axis_name, groups).gathered_values, (0,))


def grouped_all_gather(x: ArrayLike, axis_name: AxisName, groups: AxisIndexGroups, axis: int, tiled: bool) -> Array:
    """`all_gather` within the group."""
    group = AxisIndexGroup.of("all_gather", x, axis_name, groups)
    rank = group.gathered_values.ndim - tiled
    place = canonicalize_axis("all_gather", axis, rank, "axis")
    out = as_array(move_axis(group.gathered_values, 0, place))
    return _merged(out, place) if tiled else out


def grouped_psum_scatter(
    x: ArrayLike, axis_name: AxisName, groups: AxisIndexGroups, dimension: int, tiled: bool
) -> Array:
    """`psum_scatter` within the group."""
    NUMBERS.require("psum_scatter", as_array(x).aval)
    group = AxisIndexGroup.of("psum_scatter", x, axis_name, groups)
    total = as_array(reduce_sum(group.gathered_values, (0,)))
    place = canonicalize_axis("psum_scatter", dimension, total.ndim, "scatter_dimension")
    piece = _piece("psum_scatter", total, place, group, tiled)
    return piece if tiled else reshape(piece, (*piece.shape[:place], *piece.shape[place + 1 :]))


def grouped_all_to_all(
    x: ArrayLike, axis_name: AxisName, groups: AxisIndexGroups, split_axis: int, concat_axis: int, tiled: bool
) -> Array:
    """`all_to_all` within the group."""
    rank = as_array(x).ndim
    split = canonicalize_axis("all_to_all", split_axis, rank, "split_axis")
    concat = canonicalize_axis("all_to_all", concat_axis, rank, "concat_axis")
    group = AxisIndexGroup.of("all_to_all", x, axis_name, groups)
    pieces = _piece("all_to_all", group.gathered_values, split + 1, group, tiled)
    if not tiled:
        pieces = reshape(pieces, (*pieces.shape[: split + 1], *pieces.shape[split + 2 :]))
    out = as_array(move_axis(pieces, 0, concat))
    return _merged(out, concat) if tiled else out


def _piece(name: str, x: Array, axis: int, group: AxisIndexGroup, tiled: bool) -> Array:
    """The member's piece along an axis."""
    n = x.shape[axis]
    if n % group.size if tiled else n != group.size:
        wanted = f"a multiple of {group.size}" if tiled else f"{group.size}"
        raise ValueError(f"{name}: the axis to be dealt out in groups of {group.size} must be {wanted} long, not {n}")
    size = n // group.size
    starts: list[ArrayLike] = [np.int32(0)] * x.ndim
    starts[axis] = group.index_in_group * size
    return dynamic_slice(x, starts, [size if i == axis else k for i, k in enumerate(x.shape)])


def _merged(x: Array, axis: int) -> Array:
    """Two neighbouring axes as one."""
    shape = x.shape
    return reshape(x, (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]))


# ------------------------------------------------------------------ pieces of different lengths


def ragged_all_to_all(
    operand: ArrayLike,
    output: ArrayLike,
    input_offsets: ArrayLike,
    send_sizes: ArrayLike,
    output_offsets: ArrayLike,
    recv_sizes: ArrayLike,
    *,
    axis_name: AxisName,
    axis_index_groups: AxisIndexGroups | None = None,
) -> Array:
    """`output` with rows of all members' operands written into it: each sends to each some of its rows.

    To member `i` go the `send_sizes[i]` rows of `operand` from `input_offsets[i]` on, and there they begin at
    `output_offsets[i]`; `recv_sizes[i]` says how many come from member `i`. Pieces that overlap are not allowed.

    >>> from tracefx import vmap
    >>> def f(x, sizes):
    ...     out, zeros = np.zeros(3, np.float32), np.zeros(2, np.int32)
    ...     return ragged_all_to_all(x, out, zeros, sizes, axis_index("i") * 2 + zeros, sizes, axis_name="i")
    >>> vmap(f, axis_name="i")(np.array([[1.0, 2.0], [5.0, 6.0]]), np.array([[2, 1], [1, 1]])).tolist()
    [[1.0, 2.0, 5.0], [1.0, 0.0, 5.0]]
    """
    x, into = as_array(operand), as_array(output)
    if x.ndim == 0 or into.ndim == 0 or x.shape[1:] != into.shape[1:] or x.dtype != into.dtype:
        raise TypeError(f"ragged_all_to_all: operand {x.aval} and output {into.aval} must be rows of one type")
    places = [as_array(a) for a in (input_offsets, send_sizes, output_offsets, recv_sizes)]
    if axis_index_groups is None:
        members, sizes = resolve_axis_names("ragged_all_to_all", axis_name)
        here, count = axis_index(members), prod(sizes)
        everyone = [all_gather(a, members) for a in (x, *places[:3])]
    else:
        groups = [AxisIndexGroup.of("ragged_all_to_all", a, axis_name, axis_index_groups) for a in (x, *places[:3])]
        here, count = groups[0].index_in_group, groups[0].size
        everyone = [group.gathered_values for group in groups]
    for name, a in zip(("input_offsets", "send_sizes", "output_offsets", "recv_sizes"), places, strict=True):
        if a.shape != (count,) or not is_integer(a.dtype):
            raise TypeError(f"ragged_all_to_all: {name} must have an integer for each of {count} members, got {a.aval}")
    rows, *given = everyone
    starts, lengths, begins = [_column(convert(a, int32), here) for a in given]
    row = iota(int32, into.shape[0])
    within = (row >= begins) & (row < begins + lengths)
    source = member_indices(count) * x.shape[0] + starts + row - begins
    some = as_array(reduce_sum(select_with_aval(within, 1, 0, source.aval), (0,))) > 0
    chosen = as_array(reduce_sum(select_with_aval(within, source, 0, source.aval), (0,)))
    taken = _take_rows(reshape(rows, (count * x.shape[0], *x.shape[1:])), chosen)
    mask = broadcast_in_dim(some, into.shape, (0,))
    return select_with_aval(mask, taken, into, into.aval)


def member_indices(count: int) -> Array:
    """The numbers of the members, one below the other."""
    return reshape(iota(int32, count), (count, 1))


def _column(table: Array, index: Array) -> Array:
    """`i32[n, 1]`: what each member says of the one at an index."""
    n = table.shape[0]
    return dynamic_slice(table, [np.int32(0), index], (n, 1))
