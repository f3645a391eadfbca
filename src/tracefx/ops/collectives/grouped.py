"""Collectives within groups of an axis's members (`axis_index_groups`), and `ragged_all_to_all`.

Each gathers the values of the group and computes its result from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias, final

import numpy as np
from attrs import frozen

from tracefx.core import Array, ArrayLike, NDArray
from tracefx.core.dtypes import default_float, int32, is_bool, is_inexact, is_integer
from tracefx.core.handler import as_array, bind1
from tracefx.ops.collectives.collective import AxisName, axis_index, resolve_axis_names
from tracefx.ops.collectives.exchange import all_gather, merge_axes
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
"""A partition of the members of an axis into groups of equal size."""


@final
@frozen(eq=False)
class AxisIndexGroup:
    """The values of a member's group, `f32[members, ...]` in the order of the group, and the member's index in it."""

    gathered_values: Array
    index_in_group: Array

    @property
    def size(self) -> int:
        return self.gathered_values.shape[0]

    @staticmethod
    def of(name: str, x: ArrayLike, axis_name: AxisName, groups: AxisIndexGroups) -> AxisIndexGroup:
        """Gathers the values of the group; raises ValueError unless the groups are a partition into equal sizes."""
        size = prod(resolve_axis_names(name, axis_name)[1])
        rows = [[static_int(name, member, "axis_index_groups") for member in group] for group in groups]
        if sorted([member for row in rows for member in row]) != list(range(size)):
            raise ValueError(f"{name}: axis_index_groups must contain each of 0 to {size - 1} once, got {groups}")
        if len({len(row) for row in rows}) != 1:
            raise ValueError(f"{name}: axis_index_groups must have equal sizes, got {groups}")
        group_of = np.empty((size, len(rows[0])), np.int32)
        positions = np.empty(size, np.int32)
        for row in rows:
            for position, member in enumerate(row):
                group_of[member], positions[member] = row, position
        here = axis_index(axis_name)
        gathered = all_gather(x, axis_name)
        return AxisIndexGroup(_take_rows(gathered, _table_row(group_of, here)), _table_row(positions, here))


def _table_row(table: NDArray, index: Array) -> Array:
    """Returns the row of a table at a traced index."""
    starts: list[ArrayLike] = [index, *[np.int32(0)] * (table.ndim - 1)]
    return reshape(dynamic_slice(table, starts, (1, *table.shape[1:])), table.shape[1:])


def _take_rows(x: Array, indices: Array) -> Array:
    """Returns the rows of `x` at the given indices, which are in bounds."""
    numbers = GatherDimensionNumbers(range(1, x.ndim), (0,), (0,))
    prim = Gather(numbers, (1, *x.shape[1:]), False, True, GatherScatterMode.PROMISE_IN_BOUNDS, None)
    return bind1(prim, x, reshape(indices, (*indices.shape, 1)))


def grouped_psum(x: ArrayLike, axis_name: AxisName, groups: AxisIndexGroups) -> Array:
    """Returns the `psum` within the group."""
    value = as_array(x)
    if is_bool(value.dtype):
        value = convert(value, int32)
    return as_array(reduce_sum(AxisIndexGroup.of("psum", value, axis_name, groups).gathered_values, (0,)))


def grouped_pmean(x: ArrayLike, axis_name: AxisName, groups: AxisIndexGroups) -> Array:
    """Returns the `pmean` within the group."""
    total = grouped_psum(x, axis_name, groups)
    return div(total if is_inexact(total.dtype) else convert(total, default_float()), len(groups[0]))


def grouped_reduce(
    name: str, fold: Callable[[Array, Sequence[int]], Array], x: ArrayLike, axis_name: AxisName, groups: AxisIndexGroups
) -> Array:
    """Returns the `pmax` or `pmin` within the group; `fold` reduces over axes."""
    return fold(AxisIndexGroup.of(name, x, axis_name, groups).gathered_values, (0,))


def grouped_all_gather(x: ArrayLike, axis_name: AxisName, groups: AxisIndexGroups, axis: int, tiled: bool) -> Array:
    """Returns the `all_gather` within the group."""
    group = AxisIndexGroup.of("all_gather", x, axis_name, groups)
    rank = group.gathered_values.ndim - tiled
    position = canonicalize_axis("all_gather", axis, rank, "axis")
    out = as_array(move_axis(group.gathered_values, 0, position))
    return merge_axes(out, position) if tiled else out


def grouped_psum_scatter(
    x: ArrayLike, axis_name: AxisName, groups: AxisIndexGroups, dimension: int, tiled: bool
) -> Array:
    """Returns the `psum_scatter` within the group."""
    NUMBERS.require("psum_scatter", as_array(x).aval)
    group = AxisIndexGroup.of("psum_scatter", x, axis_name, groups)
    total = as_array(reduce_sum(group.gathered_values, (0,)))
    position = canonicalize_axis("psum_scatter", dimension, total.ndim, "scatter_dimension")
    piece = _piece("psum_scatter", total, position, group, tiled)
    return piece if tiled else reshape(piece, (*piece.shape[:position], *piece.shape[position + 1 :]))


def grouped_all_to_all(
    x: ArrayLike, axis_name: AxisName, groups: AxisIndexGroups, split_axis: int, concat_axis: int, tiled: bool
) -> Array:
    """Returns the `all_to_all` within the group."""
    rank = as_array(x).ndim
    split = canonicalize_axis("all_to_all", split_axis, rank, "split_axis")
    concat = canonicalize_axis("all_to_all", concat_axis, rank, "concat_axis")
    group = AxisIndexGroup.of("all_to_all", x, axis_name, groups)
    pieces = _piece("all_to_all", group.gathered_values, split + 1, group, tiled)
    if not tiled:
        pieces = reshape(pieces, (*pieces.shape[: split + 1], *pieces.shape[split + 2 :]))
    out = as_array(move_axis(pieces, 0, concat))
    return merge_axes(out, concat) if tiled else out


def _piece(name: str, x: Array, axis: int, group: AxisIndexGroup, tiled: bool) -> Array:
    """Returns the part of `x` along an axis that belongs to this member of the group."""
    n = x.shape[axis]
    if n % group.size if tiled else n != group.size:
        expected = f"a multiple of {group.size}" if tiled else f"{group.size}"
        raise ValueError(
            f"{name}: the size of the axis that is split in groups of {group.size} must be {expected}, got {n}"
        )
    size = n // group.size
    starts: list[ArrayLike] = [np.int32(0)] * x.ndim
    starts[axis] = group.index_in_group * size
    return dynamic_slice(x, starts, [size if i == axis else k for i, k in enumerate(x.shape)])


# ------------------------------------------------------------------ ragged_all_to_all


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
    """Returns `output` with rows that all members of the axis send to this one written into it.

    To each member `i`, this member sends the `send_sizes[i]` rows of `operand` from `input_offsets[i]` on; they are
    written at `output_offsets[i]` of that member's output.

    Args:
        operand: The rows to send, `f32[n, ...]`.
        output: The array to write into, `f32[m, ...]`; rows that are not received keep their values.
        input_offsets: `i32[members]`, where the rows for each member start in `operand`.
        send_sizes: `i32[members]`, the number of rows for each member.
        output_offsets: `i32[members]`, where the rows go in each member's output. Written ranges must not overlap.
        recv_sizes: `i32[members]`, the number of rows from each member.
        axis_name: The name of the axis, or a tuple of names.
        axis_index_groups: A partition of the members into groups of equal size, within which rows are exchanged. None,
            the default, means all members.

    Returns:
        An array with the shape and dtype of `output`.

    Raises:
        NameError: The axis name is not bound.
        TypeError: The operands don't fit.

    >>> from tracefx import vmap
    >>> def f(x, sizes):
    ...     out, zeros = np.zeros(3, np.float32), np.zeros(2, np.int32)
    ...     return ragged_all_to_all(x, out, zeros, sizes, axis_index("i") * 2 + zeros, sizes, axis_name="i")
    >>> vmap(f, axis_name="i")(np.array([[1.0, 2.0], [5.0, 6.0]]), np.array([[2, 1], [1, 1]])).tolist()
    [[1.0, 2.0, 5.0], [1.0, 0.0, 5.0]]
    """
    x, into = as_array(operand), as_array(output)
    if x.ndim == 0 or into.ndim == 0 or x.shape[1:] != into.shape[1:] or x.dtype != into.dtype:
        raise TypeError(
            f"ragged_all_to_all: operand {x.aval} and output {into.aval} must have rows of one shape and dtype"
        )
    positions = [as_array(a) for a in (input_offsets, send_sizes, output_offsets, recv_sizes)]
    if axis_index_groups is None:
        members, sizes = resolve_axis_names("ragged_all_to_all", axis_name)
        here, count = axis_index(members), prod(sizes)
        gathered_operands = [all_gather(a, members) for a in (x, *positions[:3])]
    else:
        groups = [AxisIndexGroup.of("ragged_all_to_all", a, axis_name, axis_index_groups) for a in (x, *positions[:3])]
        here, count = groups[0].index_in_group, groups[0].size
        gathered_operands = [group.gathered_values for group in groups]
    for name, a in zip(("input_offsets", "send_sizes", "output_offsets", "recv_sizes"), positions, strict=True):
        if a.shape != (count,) or not is_integer(a.dtype):
            raise TypeError(
                f"ragged_all_to_all: {name} must have one integer for each of {count} members, got {a.aval}"
            )
    rows, *tables = gathered_operands
    starts, lengths, begins = [_column(convert(a, int32), here) for a in tables]
    row = iota(int32, into.shape[0])
    within = (row >= begins) & (row < begins + lengths)
    source = member_indices(count) * x.shape[0] + starts + row - begins
    is_received = as_array(reduce_sum(select_with_aval(within, 1, 0, source.aval), (0,))) > 0
    source_rows = as_array(reduce_sum(select_with_aval(within, source, 0, source.aval), (0,)))
    received = _take_rows(reshape(rows, (count * x.shape[0], *x.shape[1:])), source_rows)
    mask = broadcast_in_dim(is_received, into.shape, (0,))
    return select_with_aval(mask, received, into, into.aval)


def member_indices(count: int) -> Array:
    """Returns the indices of the members as a column, `i32[count, 1]`."""
    return reshape(iota(int32, count), (count, 1))


def _column(table: Array, index: Array) -> Array:
    """Returns the column of a table at a traced index, `i32[n, 1]`."""
    n = table.shape[0]
    return dynamic_slice(table, [np.int32(0), index], (n, 1))
