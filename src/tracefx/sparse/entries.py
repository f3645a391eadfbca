"""Reading and adding the entries of dense arrays at index vectors, `i32[*batch, nse, k]`, which have batch axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tracefx import lax
from tracefx import numpy as fnp
from tracefx.core import Array, Shape, dtypes
from tracefx.ops.indexing.gather_scatter_add import GatherDimensionNumbers, ScatterDimensionNumbers
from tracefx.ops.indexing.indexed_windows import GatherScatterMode

_DROP = GatherScatterMode.FILL_OR_DROP


def read_entries(x: Array, indices: Array, columns: Mapping[int, int], batch: Mapping[int, int]) -> Array:
    """Returns the entries of `x` at index vectors; those of vectors out of bounds are 0.

    Args:
        x: The array.
        indices: The index vectors, `i32[*lead, k]`.
        columns: For each indexed axis of `x`, the column of `indices` with its index.
        batch: For each axis of `x` that is paired with an axis of `indices`, that axis. Both have the same size.

    Returns:
        An array of shape `[*lead, *kept]` with the axes of `x` that are in neither mapping.
    """
    lead = indices.ndim - 1
    kept = [i for i in range(x.ndim) if i not in columns and i not in batch]
    if not columns:
        order = [*sorted(batch, key=lambda axis: batch[axis]), *kept]
        shape = (*indices.shape[:-1], *[x.shape[i] for i in kept])
        return lax.broadcast_in_dim(
            fnp.transpose(x, order), shape, [*sorted(batch.values()), *range(lead, lead + len(kept))]
        )
    indexed, paired = sorted(columns), sorted(batch)
    if not all(x.shape[i] for i in indexed):  # every index vector is out of bounds
        return fnp.zeros((*indices.shape[:-1], *[x.shape[i] for i in kept]), x.dtype)
    numbers = GatherDimensionNumbers(
        range(lead, lead + len(kept)), indexed, indexed, paired, [batch[axis] for axis in paired]
    )
    sizes = [n if i in kept else 1 for i, n in enumerate(x.shape)]
    return lax.gather(x, take_columns(indices, [columns[i] for i in indexed]), numbers, sizes, mode=_DROP, fill_value=0)


def sum_entries(
    updates: Array, indices: Array, shape: Shape, columns: Mapping[int, int], batch: Mapping[int, int]
) -> Array:
    """Returns an array of zeros to which updates are added at index vectors; those out of bounds are dropped.

    Args:
        updates: The updates, `f32[*lead, *window]`.
        indices: The index vectors, `i32[*lead, k]`.
        shape: The shape of the result. Its axes that are in neither mapping are those of the window, in order.
        columns: For each indexed axis of the result, the column of `indices` with its index.
        batch: For each axis of the result that is paired with an axis of `indices`, that axis.

    Returns:
        The sums. Axes of `indices` that are in no mapping are summed over.
    """
    if updates.dtype == dtypes.bool_:
        return sum_entries(updates.astype(dtypes.int32), indices, shape, columns, batch) != 0
    lead = indices.ndim - 1
    if not columns:
        summed = updates.sum([i for i in range(lead) if i not in batch.values()], dtype=updates.dtype)
        order = sorted(batch.values())
        window = iter(range(len(batch), summed.ndim))
        return fnp.transpose(summed, [order.index(batch[i]) if i in batch else next(window) for i in range(len(shape))])
    indexed, paired = sorted(columns), sorted(batch)
    numbers = ScatterDimensionNumbers(
        range(lead, updates.ndim), indexed, indexed, paired, [batch[axis] for axis in paired]
    )
    starts = take_columns(indices, [columns[i] for i in indexed])
    return lax.scatter_add(fnp.zeros(shape, updates.dtype), starts, updates, numbers, mode=_DROP)


def take_columns(indices: Array, columns: Sequence[int]) -> Array:
    """Returns some columns of index vectors."""
    if list(columns) == list(range(indices.shape[-1])):
        return indices
    if not columns:
        return fnp.zeros((*indices.shape[:-1], 0), indices.dtype)
    return fnp.concatenate([indices[..., i : i + 1] for i in columns], -1)


def index_columns(indices: Array) -> list[Array]:
    """Returns the columns of index vectors, each `i32[*lead]`."""
    return [indices[..., i] for i in range(indices.shape[-1])]


def stack_columns(columns: Sequence[Array], like: Array) -> Array:
    """Returns index vectors of these columns, of the dtype and leading axes of `like`, other index vectors."""
    if not columns:
        return fnp.zeros((*like.shape[:-1], 0), like.dtype)
    return fnp.stack([c.astype(like.dtype) for c in columns], -1)


def in_bounds(indices: Array, shape: Shape) -> Array:
    """Returns for each index vector whether it is within `shape`, `bool[*lead]`."""
    valid = fnp.ones(indices.shape[:-1], bool)
    for column, size in zip(index_columns(indices), shape, strict=True):
        valid &= (column >= 0) & (column < size)
    return valid


def mask_vectors(valid: Array, indices: Array, shape: Shape) -> Array:
    """Returns index vectors with those that are not `valid` replaced by padding: the sizes of `shape`."""
    return fnp.where(valid[..., None], indices, fnp.array(shape, indices.dtype))


def mask_data(valid: Array, data: Array, n_dense: int) -> Array:
    """Returns the data with that of entries that are not `valid` replaced by 0."""
    return fnp.where(valid.reshape(*valid.shape, *[1] * n_dense), data, fnp.zeros((), data.dtype))


def sort_vectors(indices: Array) -> tuple[Array, Array]:
    """Sorts index vectors lexicographically.

    Args:
        indices: The index vectors, `i32[*batch, nse, k]`, with `k > 0`.

    Returns:
        The sorted vectors and the permutation, `i32[*batch, nse]`.
    """
    columns = index_columns(indices)
    positions = lax.broadcasted_iota(dtypes.int32, columns[0].shape, columns[0].ndim - 1)
    *columns, order = lax.sort((*columns, positions), num_keys=len(columns))
    return fnp.stack(columns, -1), order


def find_groups(indices: Array, shape: Shape) -> tuple[Array, Array, Array, Array]:
    """Groups equal index vectors.

    Args:
        indices: The index vectors, `i32[*batch, nse, k]`, with `k > 0`.
        shape: The sizes of the indexed axes, for bounds.

    Returns:
        The sorted vectors; the permutation that sorts them; the number of each sorted vector's group, which is `nse`
        for vectors out of bounds; and whether it is the first of its group and within bounds.
    """
    nse = indices.shape[-2]
    vectors, order = sort_vectors(mask_vectors(in_bounds(indices, shape), indices, shape))
    differs = (vectors[..., 1:, :] != vectors[..., :-1, :]).any(-1)
    first = fnp.concatenate([fnp.ones((*differs.shape[:-1], min(nse, 1)), bool), differs], -1)
    valid = in_bounds(vectors, shape)
    groups = fnp.where(valid, fnp.cumsum(first, -1, dtype=dtypes.int32) - 1, nse)
    return vectors, order, groups, first & valid
