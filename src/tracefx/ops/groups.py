"""Collectives among groups of the members of an axis: each works on what its own group has gathered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, final

import numpy as np
from attrs import frozen

from tracefx.core.array import Array, ArrayLike
from tracefx.core.dtypes import NDArray, default_float, int32, is_bool, is_inexact
from tracefx.core.handler import as_array, bind1
from tracefx.ops.arithmetic import div
from tracefx.ops.basis import convert, move_axis, reduce_sum, reshape
from tracefx.ops.collective import AxisName, axes_in_scope, axis_index
from tracefx.ops.dynamic import dynamic_slice
from tracefx.ops.elementwise import NUMBERS
from tracefx.ops.exchange import all_gather
from tracefx.ops.indexing import Gather, GatherDimensionNumbers
from tracefx.ops.static import axis_of, static_int
from tracefx.ops.windows import GatherScatterMode

AxisIndexGroups: TypeAlias = Sequence[Sequence[int]]
"""Which members work together: groups of one size, in which each member is once."""


@final
@frozen(eq=False)
class Group:
    """What a member's group has: `f32[members, ...]`, in the group's order, and the member's place in it."""

    gathered: Array
    place: Array

    @property
    def size(self) -> int:
        return self.gathered.shape[0]

    @staticmethod
    def of(name: str, x: ArrayLike, axis_name: AxisName, groups: AxisIndexGroups) -> Group:
        """ValueError if the groups don't have each member once, or are of different sizes."""
        names, sizes = axes_in_scope(name, axis_name)
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
        return Group(_rows(everything, _at(mine, here)), _at(places, here))


def _at(table: NDArray, index: Array) -> Array:
    """The row of a table at an index."""
    starts: list[ArrayLike] = [index, *[np.int32(0)] * (table.ndim - 1)]
    return reshape(dynamic_slice(table, starts, (1, *table.shape[1:])), table.shape[1:])


def _rows(x: Array, indices: Array) -> Array:
    numbers = GatherDimensionNumbers(range(1, x.ndim), (0,), (0,))
    prim = Gather(numbers, (1, *x.shape[1:]), False, True, GatherScatterMode.PROMISE_IN_BOUNDS, None)
    return bind1(prim, x, reshape(indices, (*indices.shape, 1)))


def summed(x: ArrayLike, axis_name: AxisName, groups: AxisIndexGroups) -> Array:
    """`psum` within the group."""
    value = as_array(x)
    if is_bool(value.dtype):
        value = convert(value, int32)
    return as_array(reduce_sum(Group.of("psum", value, axis_name, groups).gathered, (0,)))


def averaged(x: ArrayLike, axis_name: AxisName, groups: AxisIndexGroups) -> Array:
    """`pmean` within the group."""
    total = summed(x, axis_name, groups)
    return div(total if is_inexact(total.dtype) else convert(total, default_float()), len(groups[0]))


def folded(
    name: str, fold: Callable[[Array, Sequence[int]], Array], x: ArrayLike, axis_name: AxisName, groups: AxisIndexGroups
) -> Array:
    """`pmax` or `pmin` within the group."""
    return fold(Group.of(name, x, axis_name, groups).gathered, (0,))


def gathered(x: ArrayLike, axis_name: AxisName, groups: AxisIndexGroups, axis: int, tiled: bool) -> Array:
    """`all_gather` within the group."""
    group = Group.of("all_gather", x, axis_name, groups)
    rank = group.gathered.ndim - tiled
    place = axis_of("all_gather", axis, rank, "axis")
    out = as_array(move_axis(group.gathered, 0, place))
    return _merged(out, place) if tiled else out


def scattered(x: ArrayLike, axis_name: AxisName, groups: AxisIndexGroups, dimension: int, tiled: bool) -> Array:
    """`psum_scatter` within the group."""
    NUMBERS.require("psum_scatter", as_array(x).aval)
    group = Group.of("psum_scatter", x, axis_name, groups)
    total = as_array(reduce_sum(group.gathered, (0,)))
    place = axis_of("psum_scatter", dimension, total.ndim, "scatter_dimension")
    piece = _piece("psum_scatter", total, place, group, tiled)
    return piece if tiled else reshape(piece, (*piece.shape[:place], *piece.shape[place + 1 :]))


def dealt_out(
    x: ArrayLike, axis_name: AxisName, groups: AxisIndexGroups, split_axis: int, concat_axis: int, tiled: bool
) -> Array:
    """`all_to_all` within the group."""
    rank = as_array(x).ndim
    split = axis_of("all_to_all", split_axis, rank, "split_axis")
    concat = axis_of("all_to_all", concat_axis, rank, "concat_axis")
    group = Group.of("all_to_all", x, axis_name, groups)
    pieces = _piece("all_to_all", group.gathered, split + 1, group, tiled)
    if not tiled:
        pieces = reshape(pieces, (*pieces.shape[: split + 1], *pieces.shape[split + 2 :]))
    out = as_array(move_axis(pieces, 0, concat))
    return _merged(out, concat) if tiled else out


def _piece(name: str, x: Array, axis: int, group: Group, tiled: bool) -> Array:
    """The member's piece along an axis."""
    n = x.shape[axis]
    if n % group.size if tiled else n != group.size:
        wanted = f"a multiple of {group.size}" if tiled else f"{group.size}"
        raise ValueError(f"{name}: the axis to be dealt out in groups of {group.size} must be {wanted} long, not {n}")
    size = n // group.size
    starts: list[ArrayLike] = [np.int32(0)] * x.ndim
    starts[axis] = group.place * size
    return dynamic_slice(x, starts, [size if i == axis else k for i, k in enumerate(x.shape)])


def _merged(x: Array, axis: int) -> Array:
    """Two neighbouring axes as one."""
    shape = x.shape
    return reshape(x, (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]))
