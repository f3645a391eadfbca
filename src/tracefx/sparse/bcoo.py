"""`BCOO`, sparse arrays in the batched coordinate format, and their conversion to and from dense arrays."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Literal, Protocol, SupportsIndex, TypeAlias, final, overload

from typing_extensions import override

from tracefx import lax
from tracefx import numpy as fnp
from tracefx.core import Array, ArrayLike, DTypeLike, Shape, dtypes
from tracefx.core.array import Index
from tracefx.errors import SparseEfficiencyError
from tracefx.pytrees.registration import register_pytree_node_class
from tracefx.sparse.base import (
    SparseArray,
    SparseEfficiencyWarning,
    set_batched_data,
    static_nse,
)
from tracefx.sparse.entries import (
    find_groups,
    index_columns,
    mask_data,
    mask_vectors,
    read_entries,
    sort_vectors,
    sum_entries,
    take_columns,
)
from tracefx.sparse.operators import SPARSIFY
from tracefx.transforms.vmap import vmap

OnInefficient: TypeAlias = Literal["error", "warn"] | None
_Metadata: TypeAlias = tuple[Shape, bool, bool]


class ScipySparse(Protocol):
    """A sparse array of SciPy, as far as `from_scipy_sparse` uses it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the axes."""

    def tocoo(self) -> Any:
        """Returns the array in the coordinate format, which has the attributes `data`, `row` and `col`."""

    def tocsr(self) -> Any:
        """Returns the array in the CSR format, which has the attributes `data`, `indices` and `indptr`."""


@final
@register_pytree_node_class
class BCOO(SparseArray):
    """A sparse array in the batched coordinate format: the index vector of each specified element is stored.

    Elements with equal index vectors are added. Elements whose index vector is out of bounds are padding.

    Args:
        args: The pair of the data, `f32[*batch, nse, *dense]`, and the index vectors, `i32[*batch, nse, n_sparse]`.
            Batch axes of size 1 are broadcast.
        shape: The sizes of the batch, sparse and dense axes.
        indices_sorted: Whether the index vectors of each batch element are sorted. False by default.
        unique_indices: Whether the index vectors within bounds of each batch element differ. False by default.

    Raises:
        TypeError: If the indices are not integers.
        ValueError: If the shapes of the arrays do not fit.

    >>> matrix = BCOO((fnp.array([2.0, 3.0]), fnp.array([[0, 1], [1, 0]])), shape=(2, 2))
    >>> matrix, matrix.todense().tolist()
    (BCOO(float32[2, 2], nse=2), [[0.0, 2.0], [3.0, 0.0]])
    >>> (matrix @ fnp.array([1.0, 10.0])).tolist()
    [20.0, 3.0]
    """

    index_axes: ClassVar[int] = 2

    def __init__(
        self,
        args: tuple[ArrayLike, ArrayLike] | Sequence[ArrayLike],
        *,
        shape: Sequence[SupportsIndex],
        indices_sorted: bool = False,
        unique_indices: bool = False,
    ) -> None:
        data, indices = args
        self.data, self.indices = fnp.asarray(data), fnp.asarray(indices)
        self.indices_sorted, self.unique_indices = indices_sorted, unique_indices
        set_batched_data(self, shape)

    def tree_flatten(self) -> tuple[tuple[Array, Array], _Metadata]:
        """Returns the arrays, and the metadata of the pytree node."""
        return (self.data, self.indices), (self.element_shape, self.indices_sorted, self.unique_indices)

    @classmethod
    def tree_unflatten(cls, metadata: _Metadata, children: tuple[Array, Array]) -> BCOO:
        """Returns the sparse array of a pytree node.

        Args:
            metadata: The metadata.
            children: The data and the index vectors.
        """
        out = object.__new__(cls)
        out.data, out.indices = children
        out.element_shape, out.indices_sorted, out.unique_indices = metadata
        return out

    @property
    @override
    def nse(self) -> int:
        return self.indices.shape[-2]

    @property
    @override
    def n_sparse(self) -> int:
        return self.indices.shape[-1]

    # ------------------------------------------------------------------ conversion

    @classmethod
    def fromdense(
        cls,
        mat: ArrayLike,
        *,
        nse: int | None = None,
        index_dtype: DTypeLike = dtypes.int32,
        n_dense: int = 0,
        n_batch: int = 0,
    ) -> BCOO:
        """Returns the sparse array of the nonzero elements of a dense array.

        Args:
            mat: The dense array.
            nse: The number of specified elements of each batch element: further ones are dropped, missing ones are
                padding. None, the default, counts them, which is not possible if `mat` is traced.
            index_dtype: The dtype of the indices. int32 by default.
            n_dense: The number of dense axes. 0 by default.
            n_batch: The number of batch axes. 0 by default.

        Returns:
            The sparse array, with sorted and unique indices.
        """
        x = fnp.asarray(mat)
        if n_batch < 0 or n_dense < 0 or n_batch + n_dense > x.ndim:
            raise ValueError(f"BCOO.fromdense: {n_batch=} and {n_dense=} do not fit {x.aval}")
        n_sparse = x.ndim - n_batch - n_dense
        mask = (x != 0).any([*range(n_batch + n_sparse, x.ndim)])
        counts = mask.sum([*range(n_batch, mask.ndim)])
        size = static_nse("nse", counts.max(initial=0) if nse is None else nse, "BCOO.fromdense")
        sizes = mask.shape[n_batch:]
        if sizes and size and mask.size:

            def find(m: Array) -> Array:
                return fnp.stack(fnp.nonzero(m, size=size, fill_value=tuple(sizes)), -1).astype(index_dtype)

            for _ in range(n_batch):
                find = vmap(find)
            indices = find(mask)
        else:
            indices = fnp.broadcast_to(fnp.array(sizes, index_dtype), (*mask.shape[:n_batch], size, n_sparse))
        data = read_at(x, indices)
        if not sizes:  # no index vector is out of bounds
            data = mask_data(
                lax.broadcasted_iota(counts.dtype, data.shape[: n_batch + 1], n_batch) < counts[..., None],
                data,
                n_dense,
            )
        return BCOO((data, indices), shape=x.shape, indices_sorted=True, unique_indices=True)

    @classmethod
    def from_scipy_sparse(
        cls, mat: ScipySparse, *, index_dtype: DTypeLike | None = None, n_dense: int = 0, n_batch: int = 0
    ) -> BCOO:
        """Returns the sparse array of a sparse matrix of SciPy.

        Args:
            mat: The matrix of SciPy.
            index_dtype: The dtype of the indices. None, the default, means int32.
            n_dense: 0, the number of dense axes.
            n_batch: 0, the number of batch axes.

        Raises:
            NotImplementedError: If `n_dense` or `n_batch` is not 0.
        """
        if n_dense or n_batch:
            raise NotImplementedError("BCOO.from_scipy_sparse: n_dense and n_batch must be 0; use update_layout")
        coo = mat.tocoo()
        indices = fnp.stack([fnp.asarray(coo.row), fnp.asarray(coo.col)], -1)
        return BCOO((fnp.asarray(coo.data), indices.astype(index_dtype or dtypes.int32)), shape=mat.shape)

    @override
    def todense(self) -> Array:
        n, s = self.n_batch, self.n_sparse
        data, indices = self.full_batch()
        return sum_entries(data, indices, self.shape, {n + i: i for i in range(s)}, {i: i for i in range(n)})

    def full_batch(self) -> tuple[Array, Array]:
        """Returns the data and the index vectors with batch axes of size 1 broadcast."""
        n, batch = self.n_batch, self.batch_shape
        arrays = [
            x if x.shape[:n] == batch else fnp.broadcast_to(x, (*batch, *x.shape[n:]))
            for x in (self.data, self.indices)
        ]
        return arrays[0], arrays[1]

    def with_data(self, data: Array) -> BCOO:
        """Returns the sparse array with other data at the same index vectors.

        Args:
            data: The data.
        """
        return BCOO.tree_unflatten(self.tree_flatten()[1], (data, self.indices))

    # ------------------------------------------------------------------ layout

    def transpose(self, axes: Sequence[int] | None = None) -> BCOO:
        """Returns the array with permuted axes. Batch, sparse and dense axes are permuted among themselves.

        Args:
            axes: The permutation. None, the default, reverses the axes.

        Raises:
            TypeError: If `axes` is not a permutation.
            NotImplementedError: If it mixes batch, sparse and dense axes.
        """
        order = [*reversed(range(self.ndim))] if axes is None else [int(i) for i in axes]
        batch, sparse, dense = split_permutation(self, order)
        n = self.n_batch
        return BCOO(
            (
                fnp.transpose(self.data, [*batch, n, *[n + 1 + i for i in dense]]),
                fnp.transpose(take_columns(self.indices, sparse), [*batch, n, n + 1]),
            ),
            shape=[self.shape[i] for i in order],
            indices_sorted=self.indices_sorted and sparse == [*range(self.n_sparse)],
            unique_indices=self.unique_indices,
        )

    @property
    def T(self) -> BCOO:
        """The array with its axes reversed."""
        return self.transpose()

    def sort_indices(self) -> BCOO:
        """Returns the same array with its elements sorted by their index vectors."""
        if not self.n_sparse:
            return BCOO(
                (self.data, self.indices), shape=self.shape, indices_sorted=True, unique_indices=self.unique_indices
            )
        indices, order = sort_vectors(self.indices)
        return BCOO(
            (self._take_data(order), indices),
            shape=self.shape,
            indices_sorted=True,
            unique_indices=self.unique_indices,
        )

    def _take_data(self, order: Array) -> Array:
        """Returns the data of the elements at positions `i32[*batch, m]`."""
        n = self.n_batch
        batch = self.batch_shape
        data = fnp.broadcast_to(self.data, (*batch, *self.data.shape[n:]))
        order = fnp.broadcast_to(order, (*batch, order.shape[-1]))
        return read_entries(data, order[..., None], {n: 0}, {i: i for i in range(n)})

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCOO:
        """Returns the same array with sorted and unique indices.

        Args:
            nse: The number of specified elements of each batch element: further ones are dropped, missing ones are
                padding. None, the default, counts them, which is not possible if the array is traced.
            remove_zeros: Whether elements that are 0 are removed before elements are added. True by default. Their
                derivatives are lost.

        Returns:
            The sparse array.
        """
        if not remove_zeros:
            return self._sum_duplicates(nse)
        data, indices = self.full_batch()
        kept = (data != 0).any([*range(self.n_batch + 1, data.ndim)])
        for i, n in enumerate(self.indices.shape[: self.n_batch]):
            if n == 1:
                kept, indices = kept.any(i, keepdims=True), lax.slice_in_dim(indices, 0, 1, axis=i)
        indices = mask_vectors(kept, indices, self.sparse_shape)
        return BCOO((self.data, indices), shape=self.shape)._sum_duplicates(nse)

    def _sum_duplicates(self, nse: int | None) -> BCOO:
        n, sizes = self.n_batch, self.sparse_shape
        if not sizes or not self.nse:
            return self._sum_all(static_nse("nse", min(self.nse, 1) if nse is None else nse, "sum_duplicates"))
        vectors, order, groups, first = find_groups(self.indices, sizes)
        if nse is None:
            nse = static_nse("nse", first.sum(-1).max(initial=0), "sum_duplicates")
        count = static_nse("nse", nse, "sum_duplicates")
        # Each group's index vector is the padding plus its first vector's difference from it.
        fill = fnp.array(sizes, self.indices.dtype)
        own = first.shape[:-1]
        pairs = {i: i for i in range(n)}
        differences = fnp.where(first[..., None], vectors - fill, fnp.zeros((), fill.dtype))
        indices = fill + sum_entries(differences, groups[..., None], (*own, count, len(sizes)), {n: 0}, pairs)
        batch = self.batch_shape
        groups = fnp.broadcast_to(groups, (*batch, self.nse))
        data = sum_entries(self._take_data(order), groups[..., None], (*batch, count, *self.dense_shape), {n: 0}, pairs)
        return BCOO((data, indices), shape=self.shape, indices_sorted=True, unique_indices=True)

    def _sum_all(self, nse: int) -> BCOO:
        """Returns the array with the sum of all elements, which have equal or no index vectors, as its first."""
        n, sizes = self.n_batch, self.sparse_shape
        total = self.data.sum(n, keepdims=True, dtype=self.dtype)
        rest = fnp.zeros((*total.shape[:n], max(nse - 1, 0), *self.dense_shape), self.dtype)
        data = lax.slice_in_dim(fnp.concatenate([total, rest], n), 0, nse, axis=n)
        indices = fnp.broadcast_to(fnp.array(sizes, self.indices.dtype), (*self.indices.shape[:n], nse, len(sizes)))
        return BCOO((data, indices), shape=self.shape, indices_sorted=True, unique_indices=True)

    def update_layout(
        self, *, n_batch: int | None = None, n_dense: int | None = None, on_inefficient: OnInefficient = "error"
    ) -> BCOO:
        """Returns the same array with other numbers of batch and dense axes.

        Sparse axes that become batch or dense axes are stored with all their zeros.

        Args:
            n_batch: The number of batch axes. None, the default, leaves it.
            n_dense: The number of dense axes. None, the default, leaves it.
            on_inefficient: What to do if a sparse axis of a size above 1 becomes a batch or dense axis: "error" (the
                default), "warn", or None for nothing.

        Raises:
            SparseEfficiencyError: If this stores zeros and `on_inefficient` is "error".
            ValueError: If the numbers are out of range, or `on_inefficient` is unknown.
        """
        batch = self.n_batch if n_batch is None else int(n_batch)
        dense = self.n_dense if n_dense is None else int(n_dense)
        if on_inefficient not in ("error", "warn", None):
            raise ValueError(f"update_layout: on_inefficient must be 'error', 'warn' or None, got {on_inefficient!r}")
        if batch < 0 or dense < 0 or batch + dense > self.ndim:
            raise ValueError(f"update_layout: n_batch={batch} and n_dense={dense} do not fit {self!r}")
        for what, sizes in (
            ("n_dense", self.shape[self.ndim - dense : self.ndim - self.n_dense]),
            ("n_batch", self.shape[self.n_batch : batch]),
        ):
            if any(n > 1 for n in sizes) and on_inefficient:
                message = (
                    f"update_layout: a larger {what} stores all zeros along axes of the sizes {sizes} of {self!r}; "
                    "pass on_inefficient=None if this is intended"
                )
                if on_inefficient == "error":
                    raise SparseEfficiencyError(message)
                warnings.warn(message, SparseEfficiencyWarning, stacklevel=2)
        out = self
        if dense < out.n_dense:
            out = _dense_to_sparse(out, out.n_dense - dense)
        if batch < out.n_batch:
            out = _batch_to_sparse(out, out.n_batch - batch)
        if dense > out.n_dense:
            out = _sparse_to_dense(out, dense - out.n_dense)
        if batch > out.n_batch:
            out = _sparse_to_batch(out, batch - out.n_batch)
        return out

    # ------------------------------------------------------------------ array functions

    def _call(self, function: Callable[..., object], *args: object) -> Any:
        """Calls a function of dense arrays with this and other arrays, by `sparsify`."""
        return SPARSIFY.value(function)(self, *args)

    def _to_sparse(self, function: Callable[..., object], *args: object) -> BCOO:
        out: BCOO = self._call(function, *args)
        return out

    def _to_dense(self, function: Callable[..., object], *args: object) -> Array:
        out: Array = self._call(function, *args)
        return out

    def _to_either(self, function: Callable[..., object], *args: object) -> BCOO | Array:
        out: BCOO | Array = self._call(function, *args)
        return out

    def reshape(self, *args: SupportsIndex | Sequence[SupportsIndex], order: str = "C") -> BCOO:
        """Returns the array with another shape that does not mix batch, sparse and dense axes.

        Args:
            *args: The sizes of the axes, or one sequence of them.
            order: "C", the default: the last axis varies fastest.
        """
        return self._to_sparse(lambda x: x.reshape(*args, order=order))

    def astype(self, dtype: DTypeLike) -> BCOO:
        """Returns the array converted to a dtype.

        Args:
            dtype: The dtype.
        """
        return self._to_sparse(lambda x: x.astype(dtype))

    def sum(self, axis: int | Sequence[int] | None = None, dtype: DTypeLike | None = None) -> Any:
        """Returns the sum over some axes: a sparse array, or a scalar `f32[]` for the sum over all axes.

        Args:
            axis: The axes. None, the default, means all.
            dtype: The dtype of the result. None, the default, means that of the array, or of a sum of its elements.
        """
        out = self._call(lambda x: x.sum(axis, dtype=dtype))
        return out if out.ndim or not isinstance(out, BCOO) else out.todense()

    def __getitem__(self, index: Index) -> BCOO:
        out = self._to_either(lambda x: x[index])
        return out if isinstance(out, BCOO) else BCOO.fromdense(out)

    def __iter__(self) -> Iterator[BCOO]:
        return iter([self[i] for i in range(self.shape[0])])

    def __neg__(self) -> BCOO:
        return self._to_sparse(fnp.negative)

    def __pos__(self) -> BCOO:
        return self

    def __abs__(self) -> BCOO:
        return self._to_sparse(fnp.abs)

    @overload
    def __matmul__(self, other: BCOO) -> BCOO: ...
    @overload
    def __matmul__(self, other: ArrayLike) -> Array: ...
    def __matmul__(self, other: BCOO | ArrayLike) -> BCOO | Array:
        return self._to_either(fnp.matmul, other)

    def __rmatmul__(self, other: ArrayLike) -> Array:
        return self._to_dense(_swapped(fnp.matmul), other)

    def __mul__(self, other: BCOO | ArrayLike) -> BCOO:
        return self._to_sparse(fnp.multiply, other)

    __rmul__ = __mul__

    def __truediv__(self, other: ArrayLike) -> BCOO:
        return self._to_sparse(fnp.divide, other)

    def __rtruediv__(self, other: ArrayLike) -> Array:
        return self._to_dense(_swapped(fnp.divide), other)

    @overload
    def __add__(self, other: BCOO) -> BCOO: ...
    @overload
    def __add__(self, other: ArrayLike) -> Array: ...
    def __add__(self, other: BCOO | ArrayLike) -> BCOO | Array:
        return self._to_either(fnp.add, other)

    __radd__ = __add__

    @overload
    def __sub__(self, other: BCOO) -> BCOO: ...
    @overload
    def __sub__(self, other: ArrayLike) -> Array: ...
    def __sub__(self, other: BCOO | ArrayLike) -> BCOO | Array:
        return self._to_either(fnp.subtract, other)

    def __rsub__(self, other: ArrayLike) -> Array:
        return self._to_dense(_swapped(fnp.subtract), other)

    def __pow__(self, exponent: ArrayLike) -> BCOO:
        return self._to_sparse(lambda x: fnp.power(x, exponent))

    def __rpow__(self, base: ArrayLike) -> Array:
        return self._to_dense(_swapped(fnp.power), base)

    @override
    def __eq__(self, other: object) -> Any:
        return self._call(fnp.equal, other)

    @override
    def __ne__(self, other: object) -> Any:
        return self._call(fnp.not_equal, other)

    def __lt__(self, other: BCOO | ArrayLike) -> Array:
        return self._to_dense(fnp.less, other)

    def __le__(self, other: BCOO | ArrayLike) -> Array:
        return self._to_dense(fnp.less_equal, other)

    def __gt__(self, other: BCOO | ArrayLike) -> Array:
        return self._to_dense(fnp.greater, other)

    def __ge__(self, other: BCOO | ArrayLike) -> Array:
        return self._to_dense(fnp.greater_equal, other)


def _swapped(function: Callable[..., Array]) -> Callable[..., Array]:
    """Returns the function with its two arguments swapped."""
    return lambda x, y: function(y, x)


def read_at(x: Array, indices: Array) -> Array:
    """Returns the data of a dense array at index vectors whose batch axes are those of the array."""
    n = indices.ndim - 2
    return read_entries(x, indices, {n + i: i for i in range(indices.shape[-1])}, {i: i for i in range(n)})


def split_permutation(mat: BCOO, order: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """Returns the permutations of the batch, sparse and dense axes of which a permutation of all axes consists.

    Raises:
        TypeError: If `order` is not a permutation.
        NotImplementedError: If it mixes batch, sparse and dense axes.
    """
    n, m = mat.n_batch, mat.n_batch + mat.n_sparse
    if sorted(order) != [*range(mat.ndim)]:
        raise TypeError(f"transpose: {tuple(order)} is not a permutation of the axes of {mat!r}")
    parts = [*order[:n]], [i - n for i in order[n:m]], [i - m for i in order[m:]]
    if any(sorted(part) != [*range(len(part))] for part in parts):
        raise NotImplementedError(f"transpose: {tuple(order)} mixes the batch, sparse and dense axes of {mat!r}")
    return parts


# ------------------------------------------------------------------ changes of the layout


def _dense_to_sparse(mat: BCOO, count: int) -> BCOO:
    """Makes the first dense axes sparse axes: each of their entries becomes an element."""
    n, sizes = mat.n_batch, mat.dense_shape[:count]
    data, lead = mat.data, (*mat.indices.shape[: n + 1], *sizes)
    columns = [fnp.broadcast_to(c.reshape(*c.shape, *[1] * count), lead) for c in index_columns(mat.indices)]
    columns += [lax.broadcasted_iota(mat.indices.dtype, lead, n + 1 + i) for i in range(count)]
    indices = fnp.stack(columns, -1)
    nse = mat.nse * math.prod(sizes)
    return BCOO(
        (
            data.reshape(*data.shape[:n], nse, *data.shape[n + 1 + count :]),
            indices.reshape(*indices.shape[:n], nse, indices.shape[-1]),
        ),
        shape=mat.shape,
    )


def _batch_to_sparse(mat: BCOO, count: int) -> BCOO:
    """Makes the last batch axes sparse axes: the elements of all their batch elements are joined."""
    data, indices = mat.full_batch()
    n = mat.n_batch - count
    columns = [lax.broadcasted_iota(indices.dtype, indices.shape[:-1], n + i) for i in range(count)]
    indices = fnp.stack([*columns, *index_columns(indices)], -1)
    nse = math.prod(data.shape[n : mat.n_batch + 1])
    return BCOO(
        (
            data.reshape(*data.shape[:n], nse, *data.shape[mat.n_batch + 1 :]),
            indices.reshape(*indices.shape[:n], nse, indices.shape[-1]),
        ),
        shape=mat.shape,
    )


def _sparse_to_dense(mat: BCOO, count: int) -> BCOO:
    """Makes the last sparse axes dense axes: each element stores all entries along them."""
    data, indices = mat.full_batch()
    n, kept = mat.n_batch, mat.n_sparse - count
    shape = (*data.shape[: n + 1], *mat.sparse_shape[kept:], *mat.dense_shape)
    columns = {n + 1 + i: kept + i for i in range(count)}
    expanded = sum_entries(data, indices, shape, columns, {i: i for i in range(n + 1)})
    return BCOO((expanded, take_columns(indices, range(kept))), shape=mat.shape)


def _sparse_to_batch(mat: BCOO, count: int) -> BCOO:
    """Makes the first sparse axes batch axes: each of their batch elements has room for all elements."""
    data, indices = mat.full_batch()
    n, sizes = mat.n_batch, mat.sparse_shape[:count]
    shape = (*data.shape[:n], *sizes, mat.nse, *mat.dense_shape)
    columns = {n + i: i for i in range(count)}
    spread = sum_entries(data, indices, shape, columns, {**{i: i for i in range(n)}, n + count: n})
    rest = take_columns(indices, range(count, mat.n_sparse))
    rest = rest.reshape(*rest.shape[:n], *[1] * count, *rest.shape[n:])
    return BCOO((spread, fnp.broadcast_to(rest, (*shape[: n + count + 1], rest.shape[-1]))), shape=mat.shape)
