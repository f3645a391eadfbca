"""`BCSR`, sparse arrays in the batched compressed row format, and their functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, SupportsIndex, final

from typing_extensions import override

from tracefx import lax
from tracefx import numpy as fnp
from tracefx.core import Array, ArrayLike, DTypeLike, Shape, dtypes
from tracefx.core.array import Index
from tracefx.pytrees.registration import register_pytree_node_class
from tracefx.sparse.base import SparseArray, set_batched_data
from tracefx.sparse.bcoo import BCOO, ScipySparse, read_at
from tracefx.sparse.contractions import DimensionNumbers, bcoo_dot_general
from tracefx.sparse.entries import index_columns, sum_entries
from tracefx.sparse.movement import bcoo_broadcast_in_dim, bcoo_concatenate
from tracefx.sparse.operators import SPARSIFY

_Metadata = tuple[Shape, bool, bool]


@final
@register_pytree_node_class
class BCSR(SparseArray):
    """A sparse array in the batched compressed row format: elements are ordered by row, and their columns are stored.

    Args:
        args: The data, `f32[*batch, nse, *dense]`; the columns, `i32[*batch, nse]`; and the position of each row's
            first element, then that of the padding, `i32[*batch, rows + 1]`.
        shape: The sizes of the batch axes, of the rows and columns, and of the dense axes.
        indices_sorted: Whether the columns of each row are sorted. False by default.
        unique_indices: Whether the columns of each row differ. False by default.

    Raises:
        TypeError: If the indices are not integers.
        ValueError: If the shapes of the arrays do not fit.

    >>> matrix = BCSR((fnp.array([2.0, 3.0]), fnp.array([1, 0]), fnp.array([0, 1, 2])), shape=(2, 2))
    >>> matrix.todense().tolist(), (matrix @ fnp.array([1.0, 10.0])).tolist()
    ([[0.0, 2.0], [3.0, 0.0]], [20.0, 3.0])
    """

    index_axes: ClassVar[int] = 1
    indptr: Array

    def __init__(
        self,
        args: tuple[ArrayLike, ArrayLike, ArrayLike] | Sequence[ArrayLike],
        *,
        shape: Sequence[SupportsIndex],
        indices_sorted: bool = False,
        unique_indices: bool = False,
    ) -> None:
        self.data, self.indices, self.indptr = map(fnp.asarray, args)
        self.indices_sorted, self.unique_indices = indices_sorted, unique_indices
        set_batched_data(self, shape)
        n = self.n_batch
        if not dtypes.is_integer(self.indptr.dtype):
            raise TypeError(f"BCSR: indptr must be integers, got {self.indptr.aval}")
        if self.indptr.shape[n:] != (self.element_shape[0] + 1,) or any(
            size not in (1, own) for size, own in zip(self.indptr.shape[:n], self.batch_shape, strict=True)
        ):
            raise ValueError(f"BCSR: indptr {self.indptr.aval} does not fit shape {self.shape}")

    def tree_flatten(self) -> tuple[tuple[Array, Array, Array], _Metadata]:
        """Returns the arrays, and the metadata of the pytree node."""
        return (self.data, self.indices, self.indptr), (self.element_shape, self.indices_sorted, self.unique_indices)

    @classmethod
    def tree_unflatten(cls, metadata: _Metadata, children: tuple[Array, Array, Array]) -> BCSR:
        """Returns the sparse array of a pytree node.

        Args:
            metadata: The metadata.
            children: The data, the columns and the positions of the rows.
        """
        out = object.__new__(cls)
        out.data, out.indices, out.indptr = children
        out.element_shape, out.indices_sorted, out.unique_indices = metadata
        return out

    @property
    @override
    def nse(self) -> int:
        return self.indices.shape[-1]

    @property
    @override
    def n_sparse(self) -> int:
        return 2

    @classmethod
    def fromdense(
        cls,
        mat: ArrayLike,
        *,
        nse: int | None = None,
        index_dtype: DTypeLike = dtypes.int32,
        n_dense: int = 0,
        n_batch: int = 0,
    ) -> BCSR:
        """Returns the sparse array of the nonzero elements of a dense array, with two sparse axes.

        Args:
            mat: The dense array.
            nse: As for `BCOO.fromdense`. None by default.
            index_dtype: The dtype of the indices. int32 by default.
            n_dense: The number of dense axes. 0 by default.
            n_batch: The number of batch axes. 0 by default.

        Raises:
            ValueError: If there are not two sparse axes.
        """
        x = fnp.asarray(mat)
        if x.ndim != n_batch + n_dense + 2:
            raise ValueError(f"BCSR.fromdense: {x.aval} must have two sparse axes, with {n_batch=} and {n_dense=}")
        return BCSR.from_bcoo(BCOO.fromdense(x, nse=nse, index_dtype=index_dtype, n_dense=n_dense, n_batch=n_batch))

    @classmethod
    def from_bcoo(cls, arr: BCOO) -> BCSR:
        """Returns the same array in the compressed row format.

        Args:
            arr: The array, with two sparse axes.

        Raises:
            NotImplementedError: If it does not have two sparse axes.
        """
        if arr.n_sparse != 2:
            raise NotImplementedError(f"BCSR.from_bcoo: {arr!r} must have two sparse axes")
        if not arr.indices_sorted:
            arr = arr.sort_indices()
        n, lead, rows = arr.n_batch, arr.indices.shape[:-2], arr.sparse_shape[0]
        row, column = index_columns(arr.indices)
        # The last row of the counts is that of padding, which the positions of the rows do not include.
        counts = sum_entries(fnp.ones_like(row), row[..., None], (*lead, rows), {n: 0}, {i: i for i in range(n)})
        first = fnp.zeros((*lead, 1), row.dtype)
        indptr = fnp.concatenate([first, fnp.cumsum(counts, -1, dtype=row.dtype)], -1)
        return BCSR(
            (arr.data, column, indptr),
            shape=arr.shape,
            indices_sorted=True,
            unique_indices=arr.unique_indices,
        )

    @classmethod
    def from_scipy_sparse(
        cls, mat: ScipySparse, *, index_dtype: DTypeLike | None = None, n_dense: int = 0, n_batch: int = 0
    ) -> BCSR:
        """Returns the sparse array of a sparse matrix of SciPy.

        Args:
            mat: The matrix of SciPy.
            index_dtype: The dtype of the indices. None, the default, means int32.
            n_dense: 0, the number of dense axes.
            n_batch: 0, the number of batch axes.

        Raises:
            NotImplementedError: If `n_dense` or `n_batch` is not 0.
            ValueError: If `mat` does not have two axes.
        """
        if n_dense or n_batch:
            raise NotImplementedError("BCSR.from_scipy_sparse: n_dense and n_batch must be 0")
        if len(mat.shape) != 2:
            raise ValueError(f"BCSR.from_scipy_sparse: the matrix must have two axes, got shape {mat.shape}")
        csr = mat.tocsr()
        indices, indptr = (fnp.asarray(x).astype(index_dtype or dtypes.int32) for x in (csr.indices, csr.indptr))
        return BCSR((fnp.asarray(csr.data), indices, indptr), shape=mat.shape)

    def to_bcoo(self) -> BCOO:
        """Returns the same array in the coordinate format."""
        n = self.n_batch
        lead = lax.broadcast_shapes(self.indices.shape[:-1], self.indptr.shape[:-1])
        indptr = fnp.broadcast_to(self.indptr, (*lead, self.indptr.shape[-1]))
        columns = fnp.broadcast_to(self.indices, (*lead, self.nse))
        # The row of an element is the number of rows that begin at it or before, minus 1.
        starts = sum_entries(
            fnp.ones_like(indptr), indptr[..., None], (*lead, self.nse), {n: 0}, {i: i for i in range(n)}
        )
        rows = (fnp.cumsum(starts, -1, dtype=indptr.dtype) - 1).astype(columns.dtype)
        return BCOO(
            (self.data, fnp.stack([rows, columns], -1)),
            shape=self.shape,
            indices_sorted=self.indices_sorted,
            unique_indices=self.unique_indices,
        )

    @override
    def todense(self) -> Array:
        return self.to_bcoo().todense()

    def with_data(self, data: Array) -> BCSR:
        """Returns the sparse array with other data at the same positions.

        Args:
            data: The data.
        """
        return BCSR.tree_unflatten(self.tree_flatten()[1], (data, self.indices, self.indptr))

    def transpose(self, axes: Sequence[int] | None = None) -> BCSR:
        """Raises NotImplementedError: the transposed array has another order of elements.

        Args:
            axes: The permutation.
        """
        raise NotImplementedError("BCSR.transpose: convert the array by to_bcoo()")

    @property
    def T(self) -> BCSR:
        """Raises NotImplementedError, as `transpose` does."""
        return self.transpose()

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCSR:
        """Returns the same array with sorted and unique indices.

        Args:
            nse: As for `BCOO.sum_duplicates`. None by default.
            remove_zeros: As for `BCOO.sum_duplicates`. True by default.
        """
        return BCSR.from_bcoo(self.to_bcoo().sum_duplicates(nse, remove_zeros))

    def __matmul__(self, other: ArrayLike) -> Array:
        out: Array = SPARSIFY.value(fnp.matmul)(self, other)
        return out

    def __rmatmul__(self, other: ArrayLike) -> Array:
        out: Array = SPARSIFY.value(lambda x, y: fnp.matmul(y, x))(self, other)
        return out

    def __getitem__(self, index: Index) -> Any:
        return SPARSIFY.value(lambda x: x[index])(self)


# ------------------------------------------------------------------ functions


def bcsr_fromdense(
    mat: ArrayLike,
    *,
    nse: int | None = None,
    n_batch: int = 0,
    n_dense: int = 0,
    index_dtype: DTypeLike = dtypes.int32,
) -> BCSR:
    """Returns the sparse array of the nonzero elements of a dense array; `BCSR.fromdense` as a function.

    Args:
        mat: The dense array, with two sparse axes.
        nse: The number of specified elements of each batch element. None, the default, counts them.
        n_batch: The number of batch axes. 0 by default.
        n_dense: The number of dense axes. 0 by default.
        index_dtype: The dtype of the indices. int32 by default.

    Returns:
        The sparse array.

    Raises:
        ConcretizationError: If `mat` is traced without `nse`.
        ValueError: If there are not two sparse axes.

    >>> bcsr_fromdense(fnp.array([[0.0, 2.0], [3.0, 0.0]])).indptr.tolist()
    [0, 1, 2]
    """
    return BCSR.fromdense(mat, nse=nse, n_batch=n_batch, n_dense=n_dense, index_dtype=index_dtype)


def bcsr_todense(mat: BCSR) -> Array:
    """Returns the dense array of a sparse array; `BCSR.todense` as a function.

    Args:
        mat: The sparse array.

    Returns:
        The dense array.

    >>> bcsr_todense(BCSR.fromdense(fnp.array([[0.0, 2.0]]))).tolist()
    [[0.0, 2.0]]
    """
    return mat.todense()


def bcsr_extract(indices: ArrayLike, indptr: ArrayLike, mat: ArrayLike) -> Array:
    """Returns the entries of a dense array at the positions of a sparse array.

    Args:
        indices: The columns, `i32[*batch, nse]`.
        indptr: The positions of the rows, `i32[*batch, rows + 1]`.
        mat: The dense array, `f32[*batch, rows, columns, *dense]`.

    Returns:
        The data of a `BCSR`, `f32[*batch, nse, *dense]`.

    >>> bcsr_extract(fnp.array([1, 0]), fnp.array([0, 1, 2]), fnp.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [2.0, 3.0]
    """
    x, columns = fnp.asarray(mat), fnp.asarray(indices)
    n = columns.ndim - 1
    pattern = BCSR((fnp.zeros((*columns.shape, *x.shape[n + 2 :]), x.dtype), columns, indptr), shape=x.shape)
    return read_at(x, pattern.to_bcoo().full_batch()[1])


def bcsr_dot_general(
    lhs: BCSR | ArrayLike,
    rhs: ArrayLike,
    *,
    dimension_numbers: DimensionNumbers,
    precision: object = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Returns a contraction of a sparse with a dense array: `lax.dot_general` for a sparse `lhs`.

    Args:
        lhs: A sparse array. A dense one is contracted by `lax.dot_general`.
        rhs: A dense array.
        dimension_numbers: As for `bcoo_dot_general`.
        precision: Ignored. None by default.
        preferred_element_type: The dtype of the sums. None, the default, means the dtype of the products.

    Returns:
        The dense array.

    Raises:
        NotImplementedError: If the axes do not have the kinds that `bcoo_dot_general` requires.

    >>> matrix = BCSR.fromdense(fnp.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> bcsr_dot_general(matrix, fnp.array([1.0, 10.0]), dimension_numbers=(((1,), (0,)), ((), ()))).tolist()
    [20.0, 3.0]
    """
    out = bcoo_dot_general(
        lhs.to_bcoo() if isinstance(lhs, BCSR) else lhs,
        rhs,
        dimension_numbers=dimension_numbers,
        preferred_element_type=preferred_element_type,
    )
    assert not isinstance(out, BCOO)
    return out


def bcsr_sum_duplicates(mat: BCSR, nse: int | None = None) -> BCSR:
    """Returns a sparse array with sorted and unique indices. Elements that are 0 remain.

    Args:
        mat: The sparse array.
        nse: As for `bcoo_sum_duplicates`. None by default.

    Returns:
        The sparse array.

    >>> bcsr_sum_duplicates(BCSR((fnp.array([1, 2]), fnp.array([1, 1]), fnp.array([0, 2])), shape=(1, 2))).data.tolist()
    [3]
    """
    return mat.sum_duplicates(nse, remove_zeros=False)


def bcsr_broadcast_in_dim(mat: BCSR, *, shape: Sequence[int], broadcast_dimensions: Sequence[int]) -> BCSR:
    """Returns a sparse array with additional batch or dense axes, along which it is repeated.

    Args:
        mat: The sparse array.
        shape: The shape of the result.
        broadcast_dimensions: For each axis of `mat`, the axis of the result.

    Returns:
        The sparse array.

    Raises:
        NotImplementedError: If the result does not have two sparse axes, or a sparse axis would have to be repeated.

    >>> bcsr_broadcast_in_dim(BCSR.fromdense(fnp.ones((2, 3))), shape=(4, 2, 3), broadcast_dimensions=(1, 2))
    BCSR(float32[4, 2, 3], nse=6, n_batch=1)
    """
    return BCSR.from_bcoo(bcoo_broadcast_in_dim(mat.to_bcoo(), shape=shape, broadcast_dimensions=broadcast_dimensions))


def bcsr_concatenate(operands: Sequence[BCSR], *, dimension: int) -> BCSR:
    """Returns sparse arrays joined along a batch or sparse axis.

    Args:
        operands: The sparse arrays.
        dimension: The axis.

    Returns:
        The sparse array.

    Raises:
        ValueError: If the numbers of batch or dense axes differ.
        NotImplementedError: If `dimension` is a dense axis.

    >>> x = BCSR.fromdense(fnp.array([[0.0, 2.0]]))
    >>> bcsr_concatenate([x, x], dimension=0).todense().tolist()
    [[0.0, 2.0], [0.0, 2.0]]
    """
    return BCSR.from_bcoo(bcoo_concatenate([mat.to_bcoo() for mat in operands], dimension=dimension))
