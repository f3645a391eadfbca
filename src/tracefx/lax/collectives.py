"""Collectives along named axes, mapped over the arrays of a tree: reductions, gathers and exchanges."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TypeVar

from tracefx.core import Array
from tracefx.core.handler import as_array
from tracefx.ops.collectives import collective, exchange, grouped
from tracefx.ops.collectives.collective import AxisName
from tracefx.ops.collectives.grouped import AxisIndexGroups
from tracefx.ops.collectives.pvary import varying
from tracefx.ops.reductions.reduction import reduce_max, reduce_min
from tracefx.pytrees import trees

T = TypeVar("T")


def _map(f: Callable[[Array], object], x: T) -> T:
    result: T = trees.map(f, x)
    return result


def psum(x: T, axis_name: AxisName, *, axis_index_groups: AxisIndexGroups | None = None) -> T:
    """Sums each array of a tree over a named axis.

    The sum of a Python number is computed at once, as the number times the axis size.

    Args:
        x: a tree of arrays.
        axis_name: the name of a mapped axis, or a tuple of names, bound by `vmap(..., axis_name=...)`, `shard_map` or
            `pmap`. An integer to which no name is equal is an axis of each array, which is summed and removed.
        axis_index_groups: a partition of the axis indices into groups of equal size, e.g. `[[0, 1], [2, 3]]`; the
            collective runs within each group. By default all indices form one group.

    Returns:
        A tree of the same structure, replicated over the axis (or over each group).

    Raises:
        NameError: if no transformation around the call binds `axis_name`.
        ValueError: if `axis_index_groups` doesn't contain each axis index exactly once, or its groups differ in size.

    >>> from tracefx import lax, vmap
    >>> vmap(lambda x: x / psum(x, "batch"), axis_name="batch")(lax.full((4,), 3.0))
    Array([0.25, 0.25, 0.25, 0.25], dtype=float32, weak_type=True)
    """
    if axis_index_groups is None:
        return _map(lambda leaf: collective.psum(leaf, axis_name), x)
    return _map(lambda leaf: grouped.grouped_psum(leaf, axis_name, axis_index_groups), x)


def pmean(x: T, axis_name: AxisName, *, axis_index_groups: AxisIndexGroups | None = None) -> T:
    """Averages each array of a tree over a named axis.

    Args:
        x: a tree of arrays.
        axis_name: the name of a mapped axis, or a tuple of names, bound by `vmap(..., axis_name=...)`, `shard_map` or
            `pmap`. An integer to which no name is equal is an axis of each array, which is averaged and removed.
        axis_index_groups: a partition of the axis indices into groups of equal size, e.g. `[[0, 1], [2, 3]]`; the
            collective runs within each group. By default all indices form one group.

    Returns:
        A tree of the same structure, replicated over the axis (or over each group).

    Raises:
        NameError: if no transformation around the call binds `axis_name`.
        ValueError: if `axis_index_groups` doesn't contain each axis index exactly once, or its groups differ in size.

    >>> from tracefx import lax, vmap
    >>> vmap(lambda x: x - pmean(x, "batch"), axis_name="batch")(lax.iota("float32", 3))
    Array([-1.,  0.,  1.], dtype=float32)
    """
    if axis_index_groups is None:
        return _map(lambda leaf: collective.pmean(leaf, axis_name), x)
    return _map(lambda leaf: grouped.grouped_pmean(leaf, axis_name, axis_index_groups), x)


def pmax(x: T, axis_name: AxisName, *, axis_index_groups: AxisIndexGroups | None = None) -> T:
    """Computes the maximum of each array of a tree over a named axis.

    Args:
        x: a tree of arrays.
        axis_name: the name of a mapped axis, or a tuple of names, bound by `vmap(..., axis_name=...)`, `shard_map` or
            `pmap`. An integer to which no name is equal is an axis of each array, which is reduced and removed.
        axis_index_groups: a partition of the axis indices into groups of equal size, e.g. `[[0, 1], [2, 3]]`; the
            collective runs within each group. By default all indices form one group.

    Returns:
        A tree of the same structure, replicated over the axis (or over each group).

    Raises:
        NameError: if no transformation around the call binds `axis_name`.
        ValueError: if `axis_index_groups` doesn't contain each axis index exactly once, or its groups differ in size.

    >>> from tracefx import lax, vmap
    >>> vmap(lambda x: x - pmax(x, "batch"), axis_name="batch")(lax.iota("float32", 3))
    Array([-2., -1.,  0.], dtype=float32)
    """
    if axis_index_groups is None:
        return _map(lambda leaf: collective.pmax(leaf, axis_name), x)
    return _map(lambda leaf: grouped.grouped_reduce("pmax", reduce_max, leaf, axis_name, axis_index_groups), x)


def pmin(x: T, axis_name: AxisName, *, axis_index_groups: AxisIndexGroups | None = None) -> T:
    """Computes the minimum of each array of a tree over a named axis.

    Args:
        x: a tree of arrays.
        axis_name: the name of a mapped axis, or a tuple of names, bound by `vmap(..., axis_name=...)`, `shard_map` or
            `pmap`. An integer to which no name is equal is an axis of each array, which is reduced and removed.
        axis_index_groups: a partition of the axis indices into groups of equal size, e.g. `[[0, 1], [2, 3]]`; the
            collective runs within each group. By default all indices form one group.

    Returns:
        A tree of the same structure, replicated over the axis (or over each group).

    Raises:
        NameError: if no transformation around the call binds `axis_name`.
        ValueError: if `axis_index_groups` doesn't contain each axis index exactly once, or its groups differ in size.

    >>> from tracefx import lax, vmap
    >>> vmap(lambda x: pmin(x, "batch"), axis_name="batch", out_axes=None)(lax.iota("float32", 3))
    Array(0., dtype=float32)
    """
    if axis_index_groups is None:
        return _map(lambda leaf: collective.pmin(leaf, axis_name), x)
    return _map(lambda leaf: grouped.grouped_reduce("pmin", reduce_min, leaf, axis_name, axis_index_groups), x)


def all_gather(
    x: T,
    axis_name: AxisName,
    *,
    axis_index_groups: AxisIndexGroups | None = None,
    axis: int = 0,
    tiled: bool = False,
    to: str = "varying",
) -> T:
    """Gathers each array of a tree over a named axis, so that every member has the values of all.

    Args:
        x: a tree of arrays.
        axis_name: the name of a mapped axis, or a tuple of names, bound by `vmap(..., axis_name=...)`, `shard_map` or
            `pmap`.
        axis_index_groups: a partition of the axis indices into groups of equal size, e.g. `[[0, 1], [2, 3]]`; the
            collective runs within each group. By default all indices form one group.
        axis: the position of the gathered axis in the result.
        tiled: whether to concatenate along the existing axis `axis`; by default the values are stacked along a new
            axis.
        to: inside `shard_map`, whether the type of the result is `"varying"` (the default), so that the cotangents of
            each member's result are its own; or `"invarying"`: the result is replicated, as that of `psum`.

    Returns:
        A tree of the same structure; an array `f32[n]` becomes `f32[size, n]`, or `f32[size * n]` with `tiled`.

    Raises:
        NameError: if no transformation around the call binds `axis_name`.
        ValueError: if `axis_index_groups` doesn't contain each axis index exactly once, or its groups differ in size;
            if `to` is unknown, or is not the default with `axis_index_groups`.

    >>> from tracefx import lax, vmap
    >>> vmap(lambda x: all_gather(x, "batch"), axis_name="batch", out_axes=None)(lax.iota("int32", 3))
    Array([0, 1, 2], dtype=int32)
    """
    if to not in ("varying", "invarying") or (to == "invarying" and axis_index_groups is not None):
        raise ValueError(
            f"all_gather: to must be 'varying' or, without axis_index_groups, 'invarying', got {to!r} with "
            f"axis_index_groups={axis_index_groups!r}"
        )
    if axis_index_groups is None:
        gather = functools.partial(exchange.all_gather, axis=axis, tiled=tiled, invarying=to == "invarying")
        return _map(lambda leaf: gather(leaf, axis_name), x)
    return _map(lambda leaf: grouped.grouped_all_gather(leaf, axis_name, axis_index_groups, axis, tiled), x)


def psum_scatter(
    x: T,
    axis_name: AxisName,
    *,
    scatter_dimension: int = 0,
    axis_index_groups: AxisIndexGroups | None = None,
    tiled: bool = False,
) -> T:
    """Sums each array of a tree over a named axis and scatters the sum: each member keeps one slice (reduce-scatter).

    Args:
        x: a tree of arrays.
        axis_name: the name of a mapped axis, or a tuple of names, bound by `vmap(..., axis_name=...)`, `shard_map` or
            `pmap`.
        scatter_dimension: the axis of the arrays that is split among the members.
        axis_index_groups: a partition of the axis indices into groups of equal size, e.g. `[[0, 1], [2, 3]]`; the
            collective runs within each group. By default all indices form one group.
        tiled: whether the scattered axis stays, with its size divided by the axis size. By default it has the size of
            the named axis and is removed.

    Returns:
        A tree of the same structure; an array `f32[size, n]` becomes `f32[n]`.

    Raises:
        NameError: if no transformation around the call binds `axis_name`.
        ValueError: if `axis_index_groups` doesn't contain each axis index exactly once, or its groups differ in size.

    >>> from tracefx import lax, vmap
    >>> vmap(lambda x: psum_scatter(x, "batch"), axis_name="batch")(lax.full((2, 2), 1))
    Array([2, 2], dtype=int32, weak_type=True)
    """
    if axis_index_groups is not None:
        return _map(
            lambda leaf: grouped.grouped_psum_scatter(leaf, axis_name, axis_index_groups, scatter_dimension, tiled), x
        )
    return _map(
        lambda leaf: exchange.psum_scatter(leaf, axis_name, scatter_dimension=scatter_dimension, tiled=tiled), x
    )


def ppermute(x: T, axis_name: AxisName, perm: Sequence[tuple[int, int]]) -> T:
    """Permutes each array of a tree along a named axis.

    Args:
        x: a tree of arrays.
        axis_name: the name of a mapped axis, or a tuple of names, bound by `vmap(..., axis_name=...)`, `shard_map` or
            `pmap`.
        perm: pairs `(source, destination)` of axis indices. A member that is no destination receives zeros.

    Returns:
        A tree of the same structure.

    Raises:
        NameError: if no transformation around the call binds `axis_name`.

    >>> from tracefx import lax, vmap
    >>> vmap(lambda x: ppermute(x, "batch", [(0, 1), (1, 2), (2, 0)]), axis_name="batch")(lax.iota("int32", 3))
    Array([2, 0, 1], dtype=int32)
    """
    pairs = tuple([(source, destination) for source, destination in perm])
    return _map(lambda leaf: exchange.ppermute(leaf, axis_name, pairs), x)


def all_to_all(
    x: T,
    axis_name: AxisName,
    split_axis: int,
    concat_axis: int,
    *,
    axis_index_groups: AxisIndexGroups | None = None,
    tiled: bool = False,
) -> T:
    """Splits an axis of each array of a tree over the members of a named axis and concatenates what each receives.

    Args:
        x: a tree of arrays.
        axis_name: the name of a mapped axis, or a tuple of names, bound by `vmap(..., axis_name=...)`, `shard_map` or
            `pmap`.
        split_axis: the axis of the arrays that is split among the members.
        concat_axis: the position of the axis that the received slices form.
        axis_index_groups: a partition of the axis indices into groups of equal size, e.g. `[[0, 1], [2, 3]]`; the
            collective runs within each group. By default all indices form one group.
        tiled: whether both axes stay: `split_axis` with its size divided by the axis size, `concat_axis` with its size
            multiplied by it. By default `split_axis` has the size of the named axis and is removed, and `concat_axis`
            is a new axis.

    Returns:
        A tree of the same structure.

    Raises:
        NameError: if no transformation around the call binds `axis_name`.
        ValueError: if `axis_index_groups` doesn't contain each axis index exactly once, or its groups differ in size.

    >>> from tracefx import lax, vmap
    >>> rows = lax.broadcasted_iota("int32", (2, 2), 0)
    >>> vmap(lambda x: all_to_all(x, "batch", 0, 0), axis_name="batch")(rows).tolist()
    [[0, 1], [0, 1]]
    """
    if axis_index_groups is not None:
        return _map(
            lambda leaf: grouped.grouped_all_to_all(leaf, axis_name, axis_index_groups, split_axis, concat_axis, tiled),
            x,
        )
    return _map(lambda leaf: exchange.all_to_all(leaf, axis_name, split_axis, concat_axis, tiled=tiled), x)


def pswapaxes(x: T, axis_name: AxisName, axis: int, *, axis_index_groups: AxisIndexGroups | None = None) -> T:
    """Swaps a named axis with an axis of each array of a tree; both have the same size.

    Args:
        x: a tree of arrays.
        axis_name: the name of a mapped axis, or a tuple of names, bound by `vmap(..., axis_name=...)`, `shard_map` or
            `pmap`.
        axis: the axis of the arrays to swap with the named axis.
        axis_index_groups: a partition of the axis indices into groups of equal size, e.g. `[[0, 1], [2, 3]]`; the
            collective runs within each group. By default all indices form one group.

    Returns:
        A tree of the same structure and shapes.

    Raises:
        NameError: if no transformation around the call binds `axis_name`.
        ValueError: if `axis_index_groups` doesn't contain each axis index exactly once, or its groups differ in size.

    >>> from tracefx import lax, vmap
    >>> vmap(lambda x: pswapaxes(x, "batch", 0), axis_name="batch")(lax.broadcasted_iota("int32", (2, 2), 0)).tolist()
    [[0, 1], [0, 1]]
    """
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)


def pshuffle(x: T, axis_name: AxisName, perm: Sequence[int]) -> T:
    """Permutes each array of a tree along a named axis: member `i` receives the value of member `perm[i]`.

    Args:
        x: a tree of arrays.
        axis_name: the name of a mapped axis, or a tuple of names, bound by `vmap(..., axis_name=...)`, `shard_map` or
            `pmap`.
        perm: for each axis index, the index to receive from.

    Returns:
        A tree of the same structure.

    Raises:
        NameError: if no transformation around the call binds `axis_name`.

    >>> from tracefx import lax, vmap
    >>> vmap(lambda x: pshuffle(x, "batch", [2, 0, 1]), axis_name="batch")(lax.iota("int32", 3))
    Array([2, 0, 1], dtype=int32)
    """
    sources = tuple(perm)
    return _map(lambda leaf: exchange.pshuffle(leaf, axis_name, sources), x)


def pbroadcast(x: T, axis_name: AxisName, source: int) -> T:
    """Copies each array of a tree from one member of a named axis to all.

    Args:
        x: a tree of arrays.
        axis_name: the name of a mapped axis, or a tuple of names, bound by `vmap(..., axis_name=...)`, `shard_map` or
            `pmap`.
        source: the axis index of the member to copy from.

    Returns:
        A tree of the same structure, replicated over the axis.

    Raises:
        NameError: if no transformation around the call binds `axis_name`.

    >>> from tracefx import lax, vmap
    >>> vmap(lambda x: pbroadcast(x, "batch", 2), axis_name="batch")(lax.iota("int32", 3))
    Array([2, 2, 2], dtype=int32)
    """
    return _map(lambda leaf: exchange.pbroadcast(leaf, axis_name, source), x)


def pcast(x: T, axis_name: AxisName, *, to: str) -> T:
    """Marks the arrays of a tree as varying over a named axis; their values stay the same.

    Inside `shard_map`, the derivative with respect to an array that is replicated over the axis is the sum over the
    devices; with respect to a varying array each device has its own. Where replicated and varying operands meet, the
    cast is inserted automatically.

    Args:
        x: a tree of arrays.
        axis_name: the name of a mapped axis, or a tuple of names, bound by `vmap(..., axis_name=...)`, `shard_map` or
            `pmap`.
        to: `"varying"`, the only cast supported.

    Returns:
        A tree of the same arrays, varying over the axis.

    Raises:
        ValueError: if `to` is not `"varying"`.
        NameError: if no transformation around the call binds `axis_name`.

    >>> from tracefx import lax, vmap
    >>> vmap(lambda x: x + pcast(1, "batch", to="varying"), axis_name="batch")(lax.iota("int32", 3))
    Array([1, 2, 3], dtype=int32)
    """
    if to != "varying":
        raise ValueError(f"pcast: to must be 'varying', got {to!r}")
    names, _ = collective.resolve_axis_names("pcast", axis_name)
    return _map(lambda leaf: as_array(varying(as_array(leaf), names)), x)
