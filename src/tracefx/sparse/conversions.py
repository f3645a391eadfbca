"""Functions that convert sparse arrays, and change the order of their elements or their layout."""

from __future__ import annotations

from collections.abc import Sequence

from tracefx import lax
from tracefx import numpy as fnp
from tracefx.core import Array, ArrayLike, DTypeLike, NDArray, dtypes
from tracefx.sparse.bcoo import BCOO, OnInefficient, read_at
from tracefx.sparse.entries import find_groups, mask_data, sum_entries


def bcoo_fromdense(
    mat: ArrayLike,
    *,
    nse: int | None = None,
    n_batch: int = 0,
    n_dense: int = 0,
    index_dtype: DTypeLike = dtypes.int32,
) -> BCOO:
    """Returns the sparse array of the nonzero elements of a dense array; `BCOO.fromdense` as a function.

    Args:
        mat: The dense array.
        nse: The number of specified elements of each batch element. None, the default, counts them.
        n_batch: The number of batch axes. 0 by default.
        n_dense: The number of dense axes. 0 by default.
        index_dtype: The dtype of the indices. int32 by default.

    Returns:
        The sparse array.

    Raises:
        ConcretizationError: If `mat` is traced without `nse`.

    >>> bcoo_fromdense(fnp.array([0.0, 2.0, 0.0])).indices.tolist()
    [[1]]
    """
    return BCOO.fromdense(mat, nse=nse, n_batch=n_batch, n_dense=n_dense, index_dtype=index_dtype)


def bcoo_todense(mat: BCOO) -> Array:
    """Returns the dense array of a sparse array; `BCOO.todense` as a function.

    Args:
        mat: The sparse array.

    Returns:
        The dense array.

    >>> bcoo_todense(BCOO.fromdense(fnp.array([0.0, 2.0]))).tolist()
    [0.0, 2.0]
    """
    return mat.todense()


def bcoo_extract(sparr: BCOO, arr: ArrayLike, *, assume_unique: bool | None = None) -> BCOO:
    """Returns the entries of a dense array at the index vectors of a sparse array.

    Args:
        sparr: The sparse array whose index vectors are used.
        arr: A dense array of its shape.
        assume_unique: Whether to read an entry for each index vector. Otherwise all but the first of equal index
            vectors get 0. None, the default, means `sparr.unique_indices`.

    Returns:
        A sparse array with the index vectors of `sparr`.

    Raises:
        TypeError: If `sparr` is not a sparse array.
        ValueError: If the shapes differ.

    >>> pattern = BCOO.fromdense(fnp.array([0, 1, 1]))
    >>> bcoo_extract(pattern, fnp.array([5.0, 6.0, 7.0])).data.tolist()
    [6.0, 7.0]
    """
    if not isinstance(sparr, BCOO):
        raise TypeError(f"bcoo_extract: sparr must be a BCOO, got an object of type {type(sparr).__name__}")
    x = fnp.asarray(arr)
    if x.shape != sparr.shape:
        raise ValueError(f"bcoo_extract: arr must have the shape of {sparr!r}, got {x.aval}")
    data = read_at(x, sparr.full_batch()[1])
    if not (sparr.unique_indices if assume_unique is None else assume_unique):
        data = mask_data(_first_of_equal(sparr), data, sparr.n_dense)
    return sparr.with_data(data)


def _first_of_equal(mat: BCOO) -> Array:
    """Returns for each element whether it is the first with its index vector, `bool[*batch, nse]`."""
    n, indices = mat.n_batch, mat.full_batch()[1]
    if not mat.n_sparse:
        return lax.broadcasted_iota(dtypes.int32, indices.shape[:-1], n) == 0
    _, order, _, first = find_groups(indices, mat.sparse_shape)
    pairs = {i: i for i in range(n)}
    return sum_entries(first, order[..., None], first.shape, {n: 0}, pairs)


def bcoo_transpose(mat: BCOO, *, permutation: Sequence[int] | NDArray) -> BCOO:
    """Returns a sparse array with permuted axes.

    Args:
        mat: The sparse array.
        permutation: For each axis of the result, the axis of `mat`. Batch, sparse and dense axes are permuted among
            themselves.

    Returns:
        The sparse array.

    Raises:
        TypeError: If `permutation` is not a permutation.
        NotImplementedError: If it mixes batch, sparse and dense axes.

    >>> bcoo_transpose(BCOO.fromdense(fnp.ones((2, 3))), permutation=(1, 0)).shape
    (3, 2)
    """
    return mat.transpose([int(i) for i in permutation])


def bcoo_sort_indices(mat: BCOO) -> BCOO:
    """Returns a sparse array with its elements sorted by their index vectors.

    Args:
        mat: The sparse array.

    Returns:
        The sparse array.

    >>> bcoo_sort_indices(BCOO((fnp.array([1, 2]), fnp.array([[3], [0]])), shape=(4,))).data.tolist()
    [2, 1]
    """
    return mat.sort_indices()


def bcoo_sum_duplicates(mat: BCOO, nse: int | None = None) -> BCOO:
    """Returns a sparse array with sorted and unique indices. Elements that are 0 remain.

    Args:
        mat: The sparse array.
        nse: The number of specified elements of each batch element: further ones are dropped, missing ones are padding.
            None, the default, counts them, which is not possible if the array is traced.

    Returns:
        The sparse array.

    Raises:
        ConcretizationError: If the array is traced without `nse`.

    >>> bcoo_sum_duplicates(BCOO((fnp.array([1, 2]), fnp.array([[3], [3]])), shape=(4,))).data.tolist()
    [3]
    """
    return mat.sum_duplicates(nse, remove_zeros=False)


def bcoo_update_layout(
    mat: BCOO, *, n_batch: int | None = None, n_dense: int | None = None, on_inefficient: OnInefficient = "error"
) -> BCOO:
    """Returns the same array with other numbers of batch and dense axes; `BCOO.update_layout` as a function.

    Args:
        mat: The sparse array.
        n_batch: The number of batch axes. None, the default, leaves it.
        n_dense: The number of dense axes. None, the default, leaves it.
        on_inefficient: What to do if zeros would be stored: "error" (the default), "warn" or None.

    Returns:
        The sparse array.

    Raises:
        SparseEfficiencyError: If zeros would be stored and `on_inefficient` is "error".

    >>> bcoo_update_layout(BCOO.fromdense(fnp.ones((2, 3)), n_batch=1), n_batch=0)
    BCOO(float32[2, 3], nse=6)
    """
    return mat.update_layout(n_batch=n_batch, n_dense=n_dense, on_inefficient=on_inefficient)
