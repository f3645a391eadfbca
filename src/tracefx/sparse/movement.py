"""Functions that move, select and sum the elements of sparse arrays: counterparts of functions of `tracefx.lax`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import SupportsIndex

import numpy as np

from tracefx import lax
from tracefx import numpy as fnp
from tracefx.core import Array, ArrayLike, Shape
from tracefx.ops.indexing.gather_scatter_add import Gather, GatherDimensionNumbers
from tracefx.ops.indexing.indexed_windows import GatherScatterMode
from tracefx.ops.shape.shape import Concatenate
from tracefx.ops.shape.slicing import Rev, Slice
from tracefx.ops.static_integers import canonicalize_axes
from tracefx.sparse.bcoo import BCOO, split_permutation
from tracefx.sparse.entries import in_bounds, index_columns, mask_data, mask_vectors, stack_columns, take_columns
from tracefx.transforms.vmap import vmap


def bcoo_broadcast_in_dim(mat: BCOO, *, shape: Sequence[int], broadcast_dimensions: Sequence[int]) -> BCOO:
    """Returns a sparse array with additional axes, along which it is repeated.

    New axes before the first sparse axis are batch axes, and those after the first dense axis dense axes.

    Args:
        mat: The sparse array.
        shape: The shape of the result.
        broadcast_dimensions: For each axis of `mat`, the axis of the result.

    Returns:
        The sparse array.

    Raises:
        ValueError: If the axes do not fit or would mix batch, sparse and dense axes.
        NotImplementedError: If a sparse axis would have to be repeated.

    >>> bcoo_broadcast_in_dim(BCOO.fromdense(fnp.ones(3)), shape=(2, 3), broadcast_dimensions=(1,))
    BCOO(float32[2, 3], nse=3, n_batch=1)
    """
    sizes, dims = tuple(shape), [int(i) for i in broadcast_dimensions]
    if len(dims) != mat.ndim:
        raise ValueError(
            f"bcoo_broadcast_in_dim: broadcast_dimensions {dims} must have one entry for each axis of {mat!r}"
        )
    n, m = mat.n_batch, mat.n_batch + mat.n_sparse
    batch, sparse, dense = dims[:n], dims[n:m], dims[m:]
    if max(batch, default=-1) > min(sparse + dense, default=len(sizes)) or max(sparse, default=-1) > min(
        dense, default=len(sizes)
    ):
        raise ValueError(f"bcoo_broadcast_in_dim: {dims} mixes the batch, sparse and dense axes of {mat!r}")
    new_n = min(sparse + dense, default=len(sizes))
    new_m = min(dense, default=len(sizes))
    if math.prod(mat.sparse_shape) != math.prod(sizes[new_n:new_m]):
        raise NotImplementedError(
            f"bcoo_broadcast_in_dim: {mat!r} would be repeated along sparse axes to shape {sizes}; convert it with "
            "todense()"
        )
    data, indices = mat.data, mat.indices
    if len(batch) != new_n or mat.batch_shape != sizes[:new_n] or mat.dense_shape != sizes[new_m:]:
        data = lax.broadcast_in_dim(
            data, (*sizes[:new_n], mat.nse, *sizes[new_m:]), [*batch, new_n, *[i + 1 - new_m + new_n for i in dense]]
        )
        indices = lax.broadcast_in_dim(indices, (*sizes[:new_n], mat.nse, mat.n_sparse), [*batch, new_n, new_n + 1])
    columns = [fnp.zeros(indices.shape[:-1], indices.dtype)] * (new_m - new_n)
    for i, column in zip(sparse, index_columns(indices), strict=True):
        columns[i - new_n] = column
    if new_m - new_n > mat.n_sparse:  # the index 0 of a new axis would hide that a vector is out of bounds
        valid = in_bounds(indices, mat.sparse_shape)
        indices = mask_vectors(valid, stack_columns(columns, indices), sizes[new_n:new_m])
    else:
        indices = stack_columns(columns, indices)
    return BCOO((data, indices), shape=sizes)


def _with_nse(mat: BCOO, nse: int) -> BCOO:
    """Returns the array with padding added, so that it has `nse` specified elements."""
    n, more = mat.n_batch, nse - mat.nse
    if not more:
        return mat
    data, indices = mat.data, mat.indices
    zeros = fnp.zeros((*data.shape[:n], more, *data.shape[n + 1 :]), data.dtype)
    padding = fnp.broadcast_to(fnp.array(mat.sparse_shape, indices.dtype), (*indices.shape[:n], more, mat.n_sparse))
    return BCOO((fnp.concatenate([data, zeros], n), fnp.concatenate([indices, padding], n)), shape=mat.shape)


def bcoo_concatenate(operands: Sequence[BCOO], *, dimension: int) -> BCOO:
    """Returns sparse arrays joined along a batch or sparse axis.

    Args:
        operands: The sparse arrays, with equal shapes except along `dimension`, and equal numbers of batch and dense
            axes. An array with one batch axis of size 1 more or less than the others is converted.
        dimension: The axis.

    Returns:
        The sparse array.

    Raises:
        ValueError: If an operand is not a `BCOO`, or the numbers of batch or dense axes differ.
        TypeError: If the shapes do not fit.
        NotImplementedError: If `dimension` is a dense axis.

    >>> x = BCOO.fromdense(fnp.array([[0.0, 2.0]]))
    >>> bcoo_concatenate([x, x], dimension=0).todense().tolist()
    [[0.0, 2.0], [0.0, 2.0]]
    """
    mats = [*operands]
    if not all(isinstance(mat, BCOO) for mat in mats):
        raise ValueError(f"bcoo_concatenate: all operands must be BCOO, got {mats}")
    axis = int(dimension)
    (out,) = Concatenate(axis).abstract_eval(*[mat.aval for mat in mats])
    batches = {mat.n_batch for mat in mats}
    if batches == {0, 1}:
        n_batch = 1 if all(mat.shape[0] == 1 for mat in mats if not mat.n_batch) else 0
        if n_batch or all(mat.shape[0] == 1 for mat in mats if mat.n_batch):
            mats = [mat.update_layout(n_batch=n_batch) for mat in mats]
            batches = {n_batch}
    if len(batches) != 1 or len({mat.n_dense for mat in mats}) != 1:
        raise ValueError(f"bcoo_concatenate: the numbers of batch and dense axes differ: {mats}")
    n, s = mats[0].n_batch, mats[0].n_sparse
    if axis >= n + s:
        raise NotImplementedError(f"bcoo_concatenate: axis {axis} is a dense axis of {mats[0]!r}")
    if axis < n:
        nse = max([mat.nse for mat in mats])
        arrays = [_with_nse(mat, nse).full_batch() for mat in mats]
        parts = [*zip(*arrays, strict=True)]
        return BCOO([fnp.concatenate(each, axis) for each in parts], shape=out.shape)
    datas, vectors, offset = [], [], 0
    dtype = fnp.result_type(*[mat.indices for mat in mats])
    for mat in mats:
        data, indices = mat.full_batch()
        moved = indices.astype(dtype) + fnp.array([offset if i == axis - n else 0 for i in range(s)], dtype)
        # Padding stays out of bounds: the next array may have entries there.
        vectors.append(mask_vectors(in_bounds(indices, mat.sparse_shape), moved, out.shape[n : n + s]))
        datas.append(data)
        offset += mat.shape[axis]
    return BCOO((fnp.concatenate(datas, n), fnp.concatenate(vectors, n)), shape=out.shape)


def bcoo_reshape(mat: BCOO, *, new_sizes: Sequence[int], dimensions: Sequence[int] | None = None) -> BCOO:
    """Returns a sparse array with another shape that does not mix batch, sparse and dense axes.

    Args:
        mat: The sparse array.
        new_sizes: The shape of the result.
        dimensions: A permutation of the axes that is applied first. None, the default, permutes nothing.

    Returns:
        The sparse array.

    Raises:
        ValueError: If the shape mixes batch, sparse and dense axes.
        TypeError: If the number of entries differs.

    >>> bcoo_reshape(BCOO.fromdense(fnp.array([[0.0, 2.0], [3.0, 0.0]])), new_sizes=(4,)).indices.tolist()
    [[1], [2]]
    """
    sizes = tuple([int(n) for n in new_sizes])
    if math.prod(sizes) != mat.size:
        raise TypeError(f"bcoo_reshape: {mat!r} cannot have the shape {sizes}")
    if dimensions is not None:
        split_permutation(mat, dimensions)
        mat = mat.transpose(dimensions)
    kinds = [math.prod(part) for part in (mat.batch_shape, mat.sparse_shape, mat.dense_shape)]
    ends = next(
        (
            (i, j)
            for i in range(len(sizes), -1, -1)  # axes of size 1 belong to the first kind that they can
            for j in range(len(sizes), i - 1, -1)
            if [math.prod(sizes[:i]), math.prod(sizes[i:j]), math.prod(sizes[j:])] == kinds
        ),
        None,
    )
    if ends is None:
        raise ValueError(f"bcoo_reshape: shape {sizes} mixes the batch, sparse and dense axes of {mat!r}")
    batch, sparse, dense = sizes[: ends[0]], sizes[ends[0] : ends[1]], sizes[ends[1] :]
    data, indices = mat.full_batch()
    columns = index_columns(indices)
    flat = fnp.zeros(indices.shape[:-1], indices.dtype)
    for column, size in zip(columns, mat.sparse_shape, strict=True):
        flat = flat * size + column
    split = []
    for size in reversed(sparse):
        split.append(flat % max(size, 1))
        flat = flat // max(size, 1)
    valid = in_bounds(indices, mat.sparse_shape)
    if not sparse:  # no index is left that would be out of bounds
        data = mask_data(valid, data, mat.n_dense)
    moved = mask_vectors(valid, stack_columns(split[::-1], indices), sparse)
    return BCOO((data.reshape(*batch, mat.nse, *dense), moved.reshape(*batch, mat.nse, len(sparse))), shape=sizes)


def bcoo_rev(operand: BCOO, dimensions: Sequence[int]) -> BCOO:
    """Returns a sparse array with the order of the entries along some axes reversed.

    Args:
        operand: The sparse array.
        dimensions: The axes.

    Returns:
        The sparse array.

    >>> bcoo_rev(BCOO.fromdense(fnp.array([0.0, 2.0])), (0,)).todense().tolist()
    [2.0, 0.0]
    """
    axes = tuple([int(i) for i in dimensions])
    Rev(axes).abstract_eval(operand.aval)
    n, m = operand.n_batch, operand.n_batch + operand.n_sparse
    data, indices = operand.full_batch()
    batch = [i for i in axes if i < n]
    valid = in_bounds(indices, operand.sparse_shape)
    columns = [
        size - 1 - column if n + i in axes else column
        for i, (column, size) in enumerate(zip(index_columns(indices), operand.sparse_shape, strict=True))
    ]
    moved = mask_vectors(valid, stack_columns(columns, indices), operand.sparse_shape)
    return BCOO(
        (lax.rev(data, [*batch, *[i + 1 - operand.n_sparse for i in axes if i >= m]]), lax.rev(moved, batch)),
        shape=operand.shape,
    )


def bcoo_squeeze(arr: BCOO, *, dimensions: Sequence[int]) -> BCOO:
    """Returns a sparse array without some axes of size 1.

    Args:
        arr: The sparse array.
        dimensions: The axes.

    Returns:
        The sparse array.

    Raises:
        ValueError: If an axis has another size.

    >>> bcoo_squeeze(BCOO.fromdense(fnp.ones((1, 3))), dimensions=(0,)).shape
    (3,)
    """
    axes = canonicalize_axes("bcoo_squeeze", dimensions, arr.ndim, "dimensions")
    if any(arr.shape[i] != 1 for i in axes):
        raise ValueError(f"bcoo_squeeze: the axes {axes} of {arr!r} must have size 1")
    n, m = arr.n_batch, arr.n_batch + arr.n_sparse
    batch = [i for i in axes if i < n]
    kept = [i - n for i in range(n, m) if i not in axes]
    data, indices = arr.data, take_columns(arr.indices, kept)
    if len(kept) < arr.n_sparse:  # the removed index may have been the only one out of bounds
        valid = in_bounds(arr.indices, arr.sparse_shape)
        if kept:
            indices = mask_vectors(valid, indices, tuple([arr.sparse_shape[i] for i in kept]))
        else:
            data = mask_data(valid, data, arr.n_dense)
    return BCOO(
        (
            lax.squeeze(data, [*batch, *[i + 1 - arr.n_sparse for i in axes if i >= m]]),
            lax.squeeze(indices, batch),
        ),
        shape=[size for i, size in enumerate(arr.shape) if i not in axes],
        indices_sorted=arr.indices_sorted,
        unique_indices=arr.unique_indices,
    )


def bcoo_slice(
    mat: BCOO, *, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None = None
) -> BCOO:
    """Returns the entries of a sparse array between static bounds.

    Args:
        mat: The sparse array.
        start_indices: The first index along each axis.
        limit_indices: The end of the range along each axis.
        strides: The step along each axis. None, the default, means 1.

    Returns:
        The sparse array. It has at most as many specified elements as entries along the sparse axes.

    Raises:
        TypeError: If `mat` is not a `BCOO`, or the bounds are out of range.

    >>> bcoo_slice(BCOO.fromdense(fnp.arange(4.0)), start_indices=(2,), limit_indices=(4,)).todense().tolist()
    [2.0, 3.0]
    """
    _require_bcoo("bcoo_slice", mat)
    starts, limits = ([int(i) for i in each] for each in (start_indices, limit_indices))
    steps = [1] * mat.ndim if strides is None else [int(i) for i in strides]
    (out,) = Slice(tuple(starts), tuple(limits), tuple(steps)).abstract_eval(mat.aval)
    n, m = mat.n_batch, mat.n_batch + mat.n_sparse
    windows = [slice(*each) for each in zip(starts, limits, steps, strict=True)]
    data, indices = mat.full_batch()
    data = data[(*windows[:n], slice(None), *windows[m:])]
    indices = indices[tuple(windows[:n])]
    columns, valid = [], fnp.ones(indices.shape[:-1], bool)
    for column, start, limit, step in zip(index_columns(indices), starts[n:m], limits[n:m], steps[n:m], strict=True):
        valid &= (column >= start) & (column < limit) & ((column - start) % step == 0)
        columns.append((column - start) // step)
    return _select(mat, data, stack_columns(columns, indices), valid, out.shape)


def bcoo_dynamic_slice(mat: BCOO, start_indices: Sequence[ArrayLike], slice_sizes: Sequence[int]) -> BCOO:
    """Returns a window of a sparse array at start indices that may be traced.

    Args:
        mat: The sparse array.
        start_indices: The first index along each axis. Negative ones count from the end; the window is moved into the
            array.
        slice_sizes: The shape of the window.

    Returns:
        The sparse array. It has at most as many specified elements as entries along the sparse axes.

    Raises:
        TypeError: If `mat` is not a `BCOO`, or the window is larger than the array.

    >>> bcoo_dynamic_slice(BCOO.fromdense(fnp.arange(4.0)), (1,), (2,)).todense().tolist()
    [1.0, 2.0]
    """
    _require_bcoo("bcoo_dynamic_slice", mat)
    sizes = tuple([int(n) for n in slice_sizes])
    if len(sizes) != mat.ndim or any(not 0 <= size <= own for size, own in zip(sizes, mat.shape, strict=True)):
        raise TypeError(
            f"bcoo_dynamic_slice: slice_sizes {sizes} must have one entry for each axis of {mat!r}, at most its size"
        )
    if len(start_indices) != mat.ndim:
        raise TypeError(f"bcoo_dynamic_slice: start_indices must have one entry for each axis of {mat!r}")
    n, m = mat.n_batch, mat.n_batch + mat.n_sparse
    starts = []
    for start, size, own in zip(map(fnp.asarray, start_indices), sizes, mat.shape, strict=True):
        starts.append(fnp.clip(fnp.where(start < 0, start + own, start), 0, own - size))
    zero = fnp.zeros((), starts[0].dtype) if starts else 0
    data, indices = mat.full_batch()
    data = lax.dynamic_slice(data, [*starts[:n], zero, *starts[m:]], (*sizes[:n], mat.nse, *sizes[m:]))
    indices = lax.dynamic_slice(indices, [*starts[:n], zero, zero], (*sizes[:n], *indices.shape[n:]))
    columns, valid = [], fnp.ones(indices.shape[:-1], bool)
    for column, start, size in zip(index_columns(indices), starts[n:m], sizes[n:m], strict=True):
        moved = column - start.astype(column.dtype)
        valid &= (moved >= 0) & (moved < size)
        columns.append(moved)
    return _select(mat, data, stack_columns(columns, indices), valid, sizes)


def _require_bcoo(name: str, mat: object) -> None:
    if not isinstance(mat, BCOO):
        raise TypeError(f"{name}: mat must be a BCOO, got an object of type {type(mat).__name__}")


def _select(mat: BCOO, data: Array, indices: Array, valid: Array, shape: Shape) -> BCOO:
    """Returns the elements that are `valid`, in a window of a given shape; drops surplus padding."""
    n, m = mat.n_batch, mat.n_batch + mat.n_sparse
    out = BCOO(
        (mask_data(valid, data, mat.n_dense), mask_vectors(valid, indices, shape[n:m])),
        shape=shape,
        unique_indices=mat.unique_indices,
    )
    size = math.prod(shape[n:m])
    return out.sum_duplicates(size, remove_zeros=False) if mat.nse > size else out


def bcoo_gather(
    operand: BCOO,
    start_indices: ArrayLike,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: GatherScatterMode | str | None = None,
    fill_value: ArrayLike | None = None,
) -> BCOO:
    """Returns windows of a sparse array that start at indices, which are within bounds.

    Args:
        operand: The sparse array.
        start_indices: As for `lax.gather`.
        dimension_numbers: As for `lax.gather`, without batching axes.
        slice_sizes: The shape of a window.
        unique_indices: Ignored. False by default.
        indices_are_sorted: Ignored. False by default.
        mode: None, the default, or "promise_in_bounds".
        fill_value: Ignored. None by default.

    Returns:
        The sparse array, whose batch axes are those of the indices and then those of `operand`.

    Raises:
        NotImplementedError: If `mode` is another one, or the axes of the result mix batch, sparse and dense axes.

    >>> numbers = GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
    >>> x = BCOO.fromdense(fnp.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> bcoo_gather(x, fnp.array([[1], [0]]), numbers, (1, 2)).todense().tolist()
    [[3.0, 0.0], [0.0, 2.0]]
    """
    if mode not in (None, "promise_in_bounds", GatherScatterMode.PROMISE_IN_BOUNDS):
        raise NotImplementedError(f"bcoo_gather: indices must be within bounds, got the mode {mode}")
    sizes, starts = tuple(slice_sizes), fnp.asarray(start_indices)
    numbers = dimension_numbers
    if numbers.operand_batching_dims:
        raise NotImplementedError("bcoo_gather: dimension numbers with batching axes")
    prim = Gather(numbers, sizes, False, False, GatherScatterMode.PROMISE_IN_BOUNDS, None)
    (out,) = prim.abstract_eval(operand.aval, starts.aval)

    def window(start: Array) -> BCOO:
        along: list[ArrayLike] = [fnp.zeros((), start.dtype)] * operand.ndim
        for i, axis in enumerate(numbers.start_index_map):
            along[axis] = start[i]
        return bcoo_squeeze(bcoo_dynamic_slice(operand, along, sizes), dimensions=numbers.collapsed_slice_dims)

    count = math.prod(starts.shape[:-1])
    windows = vmap(window)(starts.reshape(count, starts.shape[-1]))
    windows = bcoo_reshape(windows, new_sizes=(*starts.shape[:-1], *windows.shape[1:]))
    others = [i for i in range(out.ndim) if i not in numbers.offset_dims]
    order = [int(i) for i in np.argsort([*others, *numbers.offset_dims])]
    if sorted(order[: windows.n_batch]) != [*range(windows.n_batch)]:
        windows = windows.update_layout(n_batch=0)
    return windows.transpose(order)


def bcoo_reduce_sum(mat: BCOO, *, axes: Sequence[SupportsIndex]) -> BCOO:
    """Returns the sum of a sparse array over some axes.

    Args:
        mat: The sparse array.
        axes: The axes.

    Returns:
        The sparse array of the sums. Elements with equal index vectors remain, and are added where they are used.

    >>> bcoo_reduce_sum(BCOO.fromdense(fnp.array([[0.0, 2.0], [3.0, 4.0]])), axes=(0,)).todense().tolist()
    [3.0, 6.0]
    """
    summed = sorted({*canonicalize_axes("bcoo_reduce_sum", axes, mat.ndim)})
    n, m = mat.n_batch, mat.n_batch + mat.n_sparse
    batch = [i for i in summed if i < n]
    data, indices = mat.full_batch() if batch else (mat.data, mat.indices)
    data = data.sum([i + 1 - mat.n_sparse for i in summed if i >= m], dtype=data.dtype)
    if any(n <= i < m for i in summed):  # the removed index may have been the only one out of bounds
        data = mask_data(in_bounds(indices, mat.sparse_shape), data, data.ndim - n - 1)
    indices = take_columns(indices, [i for i in range(mat.n_sparse) if n + i not in summed])
    kept = [i for i in range(n) if i not in batch]

    def join(x: Array) -> Array:
        """Moves the summed batch axes to the axis of the elements."""
        x = fnp.transpose(x, [*kept, *batch, *range(n, x.ndim)])
        return x.reshape(*x.shape[: len(kept)], math.prod(x.shape[len(kept) : n + 1]), *x.shape[n + 1 :])

    shape = [size for i, size in enumerate(mat.shape) if i not in summed]
    return BCOO((join(data), join(indices)), shape=shape)
