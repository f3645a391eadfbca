"""Sums, means and exchanges along named axes, of all arrays of a tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracefx.core.handler import as_array
from tracefx.ops.collectives import collective, exchange, grouped
from tracefx.ops.collectives.collective import AxisName
from tracefx.ops.collectives.grouped import AxisIndexGroups
from tracefx.ops.collectives.pvary import varying
from tracefx.ops.reductions.reduction import reduce_max, reduce_min
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree


def psum(x: PyTree, axis_name: AxisName, *, axis_index_groups: AxisIndexGroups | None = None) -> Any:
    """The sum of each array of a tree along the named axis.

    The sum of a Python number is known at once: it times the axis's size. Members that are in one of the
    `axis_index_groups`, which are of one size, sum among themselves. Raises NameError for a name that no
    `vmap(..., axis_name=...)`, `shard_map` or `pmap` around the call binds.

    >>> from tracefx import lax, vmap
    >>> vmap(lambda x: x / psum(x, "batch"), axis_name="batch")(lax.full((4,), 3.0))
    Array([0.25, 0.25, 0.25, 0.25], dtype=float32, weak_type=True)
    """
    if axis_index_groups is None:
        return trees.map(lambda leaf: collective.psum(leaf, axis_name), x)
    return trees.map(lambda leaf: grouped.grouped_psum(leaf, axis_name, axis_index_groups), x)


def pmean(x: PyTree, axis_name: AxisName, *, axis_index_groups: AxisIndexGroups | None = None) -> Any:
    """The mean of each array of a tree along the named axis, or within a group of its members.

    >>> from tracefx import lax, vmap
    >>> vmap(lambda x: x - pmean(x, "batch"), axis_name="batch")(lax.iota("float32", 3))
    Array([-1.,  0.,  1.], dtype=float32)
    """
    if axis_index_groups is None:
        return trees.map(lambda leaf: collective.pmean(leaf, axis_name), x)
    return trees.map(lambda leaf: grouped.grouped_pmean(leaf, axis_name, axis_index_groups), x)


def pmax(x: PyTree, axis_name: AxisName, *, axis_index_groups: AxisIndexGroups | None = None) -> Any:
    """The greatest value of each array of a tree along the named axis, or within a group of its members.

    >>> from tracefx import lax, vmap
    >>> vmap(lambda x: x - pmax(x, "batch"), axis_name="batch")(lax.iota("float32", 3))
    Array([-2., -1.,  0.], dtype=float32)
    """
    if axis_index_groups is None:
        return trees.map(lambda leaf: collective.pmax(leaf, axis_name), x)
    return trees.map(lambda leaf: grouped.grouped_reduce("pmax", reduce_max, leaf, axis_name, axis_index_groups), x)


def pmin(x: PyTree, axis_name: AxisName, *, axis_index_groups: AxisIndexGroups | None = None) -> Any:
    """The least value of each array of a tree along the named axis, or within a group of its members.

    >>> from tracefx import lax, vmap
    >>> vmap(lambda x: pmin(x, "batch"), axis_name="batch", out_axes=None)(lax.iota("float32", 3))
    Array(0., dtype=float32)
    """
    if axis_index_groups is None:
        return trees.map(lambda leaf: collective.pmin(leaf, axis_name), x)
    return trees.map(lambda leaf: grouped.grouped_reduce("pmin", reduce_min, leaf, axis_name, axis_index_groups), x)


def all_gather(
    x: PyTree,
    axis_name: AxisName,
    *,
    axis_index_groups: AxisIndexGroups | None = None,
    axis: int = 0,
    tiled: bool = False,
) -> Any:
    """Each array of a tree, gathered along the named axis: as a new axis, or `tiled`, one behind another along `axis`.

    With `axis_index_groups`, within a group of its members.

    >>> from tracefx import lax, vmap
    >>> vmap(lambda x: all_gather(x, "batch"), axis_name="batch", out_axes=None)(lax.iota("int32", 3))
    Array([0, 1, 2], dtype=int32)
    """
    if axis_index_groups is None:
        return trees.map(lambda leaf: exchange.all_gather(leaf, axis_name, axis=axis, tiled=tiled), x)
    return trees.map(lambda leaf: grouped.grouped_all_gather(leaf, axis_name, axis_index_groups, axis, tiled), x)


def psum_scatter(
    x: PyTree,
    axis_name: AxisName,
    *,
    scatter_dimension: int = 0,
    axis_index_groups: AxisIndexGroups | None = None,
    tiled: bool = False,
) -> Any:
    """The sum of each array of a tree along the named axis, dealt out along `scatter_dimension`.

    Without `tiled`, that axis has the named axis's size, and is gone in the result. With `axis_index_groups`, members
    sum and deal out within their group.

    >>> from tracefx import lax, vmap
    >>> vmap(lambda x: psum_scatter(x, "batch"), axis_name="batch")(lax.full((2, 2), 1))
    Array([2, 2], dtype=int32, weak_type=True)
    """
    if axis_index_groups is not None:
        return trees.map(
            lambda leaf: grouped.grouped_psum_scatter(leaf, axis_name, axis_index_groups, scatter_dimension, tiled), x
        )
    return trees.map(
        lambda leaf: exchange.psum_scatter(leaf, axis_name, scatter_dimension=scatter_dimension, tiled=tiled), x
    )


def ppermute(x: PyTree, axis_name: AxisName, perm: Sequence[tuple[int, int]]) -> Any:
    """Each array of a tree, sent along the named axis from the first to the second member of every pair of `perm`.

    >>> from tracefx import lax, vmap
    >>> vmap(lambda x: ppermute(x, "batch", [(0, 1), (1, 2), (2, 0)]), axis_name="batch")(lax.iota("int32", 3))
    Array([2, 0, 1], dtype=int32)
    """
    pairs = tuple([(source, destination) for source, destination in perm])
    return trees.map(lambda leaf: exchange.ppermute(leaf, axis_name, pairs), x)


def all_to_all(
    x: PyTree,
    axis_name: AxisName,
    split_axis: int,
    concat_axis: int,
    *,
    axis_index_groups: AxisIndexGroups | None = None,
    tiled: bool = False,
) -> Any:
    """Each array of a tree with `split_axis` dealt out along the named axis, which is collected at `concat_axis`.

    With `axis_index_groups`, within a group of its members.

    >>> from tracefx import lax, vmap
    >>> rows = lax.broadcasted_iota("int32", (2, 2), 0)
    >>> vmap(lambda x: all_to_all(x, "batch", 0, 0), axis_name="batch")(rows).tolist()
    [[0, 1], [0, 1]]
    """
    if axis_index_groups is not None:
        return trees.map(
            lambda leaf: grouped.grouped_all_to_all(leaf, axis_name, axis_index_groups, split_axis, concat_axis, tiled),
            x,
        )
    return trees.map(lambda leaf: exchange.all_to_all(leaf, axis_name, split_axis, concat_axis, tiled=tiled), x)


def pswapaxes(x: PyTree, axis_name: AxisName, axis: int, *, axis_index_groups: AxisIndexGroups | None = None) -> Any:
    """Each array of a tree with the named axis and its axis `axis`, which must be as long, in each other's place.

    With `axis_index_groups`, within a group of its members.

    >>> from tracefx import lax, vmap
    >>> vmap(lambda x: pswapaxes(x, "batch", 0), axis_name="batch")(lax.broadcasted_iota("int32", (2, 2), 0)).tolist()
    [[0, 1], [0, 1]]
    """
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)


def pshuffle(x: PyTree, axis_name: AxisName, perm: Sequence[int]) -> Any:
    """Each array of a tree, along the named axis: the `i`-th member gets that of the member `perm[i]`.

    >>> from tracefx import lax, vmap
    >>> vmap(lambda x: pshuffle(x, "batch", [2, 0, 1]), axis_name="batch")(lax.iota("int32", 3))
    Array([2, 0, 1], dtype=int32)
    """
    sources = tuple(perm)
    return trees.map(lambda leaf: exchange.pshuffle(leaf, axis_name, sources), x)


def pbroadcast(x: PyTree, axis_name: AxisName, source: int) -> Any:
    """Each array of a tree, of the member `source` along the named axis, at every member.

    >>> from tracefx import lax, vmap
    >>> vmap(lambda x: pbroadcast(x, "batch", 2), axis_name="batch")(lax.iota("int32", 3))
    Array([2, 2, 2], dtype=int32)
    """
    return trees.map(lambda leaf: exchange.pbroadcast(leaf, axis_name, source), x)


def pcast(x: PyTree, axis_name: AxisName, *, to: str) -> Any:
    """The arrays of a tree as they are, from here on ones that may differ along the named axis (`to="varying"`).

    Inside of `shard_map` a derivative with respect to an array that is the same on all devices is the sum of what they
    have of it; with respect to one that varies, each has its own. Where such arrays meet nothing has to be said.
    ValueError for another `to`.

    >>> from tracefx import lax, vmap
    >>> vmap(lambda x: x + pcast(1, "batch", to="varying"), axis_name="batch")(lax.iota("int32", 3))
    Array([1, 2, 3], dtype=int32)
    """
    if to != "varying":
        raise ValueError(f"pcast: to must be 'varying', got {to!r}")
    names, _ = collective.resolve_axis_names("pcast", axis_name)
    return trees.map(lambda leaf: as_array(varying(as_array(leaf), names)), x)
