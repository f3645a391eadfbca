"""Functions that create sparse arrays: `empty`, `eye` and `random_bcoo`; and `todense`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, SupportsIndex, TypeAlias, overload

from tracefx import numpy as fnp
from tracefx import random
from tracefx.core import Array, ArrayLike, DTypeLike, dtypes
from tracefx.core.handler import Tracer, as_array, bind1
from tracefx.sparse.base import TODENSE, SparseArray
from tracefx.sparse.bcoo import BCOO
from tracefx.sparse.bcsr import BCSR
from tracefx.transforms.vmap import vmap

SparseFormat: TypeAlias = Literal["bcoo", "bcsr"]


def _check_layout(name: str, shape: Sequence[int], n_batch: int, n_dense: int, nse: float) -> None:
    if min(n_batch, n_dense, nse) < 0 or n_batch + n_dense > len(shape):
        raise ValueError(f"{name}: {n_batch=}, {n_dense=} and {nse=} do not fit shape {tuple(shape)}")


def _in_format(name: str, mat: BCOO, sparse_format: str) -> BCOO | BCSR:
    if sparse_format not in ("bcoo", "bcsr"):
        raise ValueError(f"{name}: sparse_format must be 'bcoo' or 'bcsr', got {sparse_format!r}")
    if sparse_format == "bcoo":
        return mat
    if mat.n_sparse != 2:
        raise ValueError(f"{name}: {mat!r} must have two sparse axes for the format 'bcsr'")
    return BCSR.from_bcoo(mat)


@overload
def empty(
    shape: Sequence[int],
    dtype: DTypeLike | None = None,
    index_dtype: DTypeLike = "int32",
    sparse_format: Literal["bcoo"] = "bcoo",
    *,
    n_batch: int = 0,
    n_dense: int = 0,
    nse: int = 0,
) -> BCOO: ...
@overload
def empty(
    shape: Sequence[int],
    dtype: DTypeLike | None = None,
    index_dtype: DTypeLike = "int32",
    *,
    sparse_format: Literal["bcsr"],
    n_batch: int = 0,
    n_dense: int = 0,
    nse: int = 0,
) -> BCSR: ...
def empty(
    shape: Sequence[int],
    dtype: DTypeLike | None = None,
    index_dtype: DTypeLike = "int32",
    sparse_format: SparseFormat = "bcoo",
    *,
    n_batch: int = 0,
    n_dense: int = 0,
    nse: int = 0,
) -> BCOO | BCSR:
    """Returns a sparse array of zeros.

    Args:
        shape: The sizes of the axes.
        dtype: The dtype of the elements. None, the default, means float32.
        index_dtype: The dtype of the indices. int32 by default.
        sparse_format: "bcoo", the default, or "bcsr".
        n_batch: The number of batch axes. 0 by default.
        n_dense: The number of dense axes. 0 by default.
        nse: The number of specified elements of each batch element, all of which are padding. 0 by default.

    Returns:
        The sparse array.

    Raises:
        ValueError: If the format is unknown, or the numbers do not fit the shape.

    >>> empty((3, 4))
    BCOO(float32[3, 4], nse=0)
    """
    _check_layout("empty", shape, n_batch, n_dense, nse)
    split = len(shape) - n_dense
    batch, sizes, dense = shape[:n_batch], shape[n_batch:split], shape[split:]
    data = fnp.zeros((*batch, nse, *dense), dtype)
    indices = fnp.broadcast_to(fnp.array([*sizes], index_dtype), (*batch, nse, len(sizes)))
    mat = BCOO((data, indices), shape=shape, indices_sorted=True, unique_indices=True)
    return _in_format("empty", mat, sparse_format)


@overload
def eye(
    N: SupportsIndex,
    M: SupportsIndex | None = None,
    k: SupportsIndex = 0,
    dtype: DTypeLike | None = None,
    index_dtype: DTypeLike = "int32",
    sparse_format: Literal["bcoo"] = "bcoo",
    *,
    n_batch: int = 0,
    n_dense: int = 0,
) -> BCOO: ...
@overload
def eye(
    N: SupportsIndex,
    M: SupportsIndex | None = None,
    k: SupportsIndex = 0,
    dtype: DTypeLike | None = None,
    index_dtype: DTypeLike = "int32",
    *,
    sparse_format: Literal["bcsr"],
    n_batch: int = 0,
    n_dense: int = 0,
) -> BCSR: ...
def eye(
    N: SupportsIndex,
    M: SupportsIndex | None = None,
    k: SupportsIndex = 0,
    dtype: DTypeLike | None = None,
    index_dtype: DTypeLike = "int32",
    sparse_format: SparseFormat = "bcoo",
    *,
    n_batch: int = 0,
    n_dense: int = 0,
) -> BCOO | BCSR:
    """Returns a sparse matrix with ones on a diagonal.

    Args:
        N: The number of rows.
        M: The number of columns. None, the default, means that of rows.
        k: The diagonal: 0, the default, is the main one, positive numbers are above it.
        dtype: The dtype of the elements. None, the default, means float32.
        index_dtype: The dtype of the indices. int32 by default.
        sparse_format: "bcoo", the default, or "bcsr".
        n_batch: The number of batch axes. 0 by default.
        n_dense: The number of dense axes. 0 by default.

    Returns:
        The sparse matrix.

    Raises:
        ValueError: If the format is unknown, or there are more than two batch and dense axes.

    >>> eye(3).todense().tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    rows, columns, offset = int(N), int(N if M is None else M), int(k)
    _check_layout("eye", (rows, columns), n_batch, n_dense, 0)
    size = max(min(rows - max(-offset, 0), columns - max(offset, 0)), 0)
    positions = fnp.arange(size, dtype=index_dtype)
    indices = fnp.stack([positions + max(-offset, 0), positions + max(offset, 0)], -1)
    mat = BCOO((fnp.ones(size, dtype), indices), shape=(rows, columns), indices_sorted=True, unique_indices=True)
    if n_batch == 1 and not n_dense:  # each row has at most one element
        at = fnp.arange(rows, dtype=index_dtype)[:, None, None] + offset
        valid = (at >= 0) & (at < columns)
        mat = BCOO(
            (valid[..., 0].astype(mat.dtype), fnp.where(valid, at, columns).astype(index_dtype)),
            shape=(rows, columns),
            indices_sorted=True,
            unique_indices=True,
        )
    elif n_batch or n_dense:
        mat = mat.update_layout(n_batch=n_batch, n_dense=n_dense, on_inefficient=None)
    return _in_format("eye", mat, sparse_format)


def random_bcoo(
    key: Array,
    shape: Sequence[SupportsIndex],
    *,
    dtype: DTypeLike = float,
    indices_dtype: DTypeLike | None = None,
    nse: float = 0.2,
    n_batch: int = 0,
    n_dense: int = 0,
    unique_indices: bool = True,
    sorted_indices: bool = False,
    generator: Callable[..., Array] = random.uniform,
    **kwds: Any,
) -> BCOO:
    """Returns a random sparse array.

    Args:
        key: The random key.
        shape: The sizes of the axes.
        dtype: The dtype of the elements. float32 by default.
        indices_dtype: The dtype of the indices. None, the default, means int32.
        nse: The number of specified elements, or if it is below 1, their fraction of the entries along the sparse axes.
            0.2 by default.
        n_batch: The number of batch axes. 0 by default.
        n_dense: The number of dense axes. 0 by default.
        unique_indices: Whether the index vectors differ. True by default.
        sorted_indices: Whether the index vectors are sorted. False by default.
        generator: The function `generator(key, shape=..., dtype=...)` that draws the elements. `random.uniform` by
            default.
        **kwds: Further arguments of `generator`.

    Returns:
        The sparse array.

    Raises:
        ValueError: If the numbers do not fit the shape.

    >>> random_bcoo(random.key(0), (10, 10))
    BCOO(float32[10, 10], nse=20)
    """
    sizes = tuple([int(n) for n in shape])
    _check_layout("random_bcoo", sizes, n_batch, n_dense, nse)
    split = len(sizes) - n_dense
    batch, sparse, dense = sizes[:n_batch], sizes[n_batch:split], sizes[split:]
    size = math.prod(sparse)
    if nse >= size:
        raise ValueError(f"random_bcoo: nse must be below {size}, the number of entries of {sparse}, got {nse}")
    count = math.ceil(nse * size) if nse < 1 else int(nse)
    index_dtype = dtypes.default_int() if indices_dtype is None else dtypes.as_dtype(indices_dtype, "indices_dtype")
    if size > fnp.iinfo(index_dtype).max:
        raise ValueError(f"random_bcoo: {index_dtype} cannot count the {size} entries of {sparse}")

    def draw(index_key: Array) -> Array:
        flat = random.choice(index_key, size, (count,), replace=not unique_indices).astype(index_dtype)
        return fnp.stack(fnp.unravel_index(flat, sparse), -1).astype(index_dtype)

    keys = random.split(key, math.prod(batch) + 1)
    data = generator(keys[0], shape=(*batch, count, *dense), dtype=dtype, **kwds)
    drawn = vmap(draw)(keys[1:]) if sparse else fnp.zeros((math.prod(batch), count, 0), index_dtype)
    indices = drawn.reshape(*batch, count, len(sparse))
    mat = BCOO((data, indices), shape=sizes, unique_indices=unique_indices)
    return mat.sort_indices() if sorted_indices else mat


def todense(arr: SparseArray | ArrayLike) -> Array:
    """Returns a sparse array as a dense one, and a dense one unchanged.

    Args:
        arr: The array.

    Returns:
        The dense array.

    >>> todense(eye(2)).tolist(), todense(fnp.ones(1)).tolist()
    ([[1.0, 0.0], [0.0, 1.0]], [1.0])
    """
    if isinstance(arr, SparseArray):
        return arr.todense()
    x = fnp.asarray(arr)
    # Traced functions may be interpreted by `sparsify` later, so the conversion is an equation of the program.
    return as_array(bind1(TODENSE, x)) if isinstance(x, Tracer) else x
