"""`SparsityPattern`, the static positions of a sparse matrix's entries, and `SparseMatrix`, positions and values."""

from __future__ import annotations

import hashlib
from typing import Any, final

import numpy as np
import numpy.typing as npt
from attrs import field, frozen
from typing_extensions import override

import tracefx.numpy as fnp
from tracefx.core import Array, ArrayLike, DType
from tracefx.handlers.sparsity.colouring import IndexVector
from tracefx.pytrees import trees


def _as_frozen_indices(x: npt.ArrayLike) -> IndexVector:
    out = np.array(x, np.int64)
    out.flags.writeable = False
    return out


@final
@frozen(eq=False, repr=False)
class SparsityPattern:
    """The positions at which a matrix may have nonzero entries, ordered by row, then column.

    Patterns are compared by content, hashable, and static in traced programs.

    Attributes:
        rows: the row of each entry, `int64[nnz]`.
        cols: the column of each entry, `int64[nnz]`.
        shape: the shape `(m, n)` of the matrix.
        digest: a hash of the other attributes.

    Raises:
        ValueError: if `rows` and `cols` differ in length, an entry is outside of `shape`, or entries are not ordered.

    >>> pattern = SparsityPattern([0, 1, 1], [1, 0, 2], (2, 3))
    >>> pattern, pattern.nnz
    (SparsityPattern(2 x 3, nnz=3), 3)
    >>> pattern.todense().astype(int).tolist()
    [[0, 1, 0], [1, 0, 1]]
    """

    rows: IndexVector = field(converter=_as_frozen_indices)
    cols: IndexVector = field(converter=_as_frozen_indices)
    shape: tuple[int, int]
    digest: bytes = field(init=False)

    def __attrs_post_init__(self) -> None:
        m, n = self.shape
        if self.rows.ndim != 1 or self.rows.shape != self.cols.shape:
            raise ValueError(
                f"SparsityPattern: rows and cols must be two lists of one length, got shapes {self.rows.shape} and "
                f"{self.cols.shape}"
            )
        keys = self.rows * max(n, 1) + self.cols
        inside = (self.rows >= 0) & (self.rows < m) & (self.cols >= 0) & (self.cols < n)
        if not inside.all():
            k = int(np.argmin(inside))
            raise ValueError(f"SparsityPattern: entry ({self.rows[k]}, {self.cols[k]}) is outside of {m} x {n}")
        if (np.diff(keys) <= 0).any():
            raise ValueError("SparsityPattern: entries must be different, and ordered by row, then column")
        digest = hashlib.sha256(repr(self.shape).encode())
        digest.update(self.rows.tobytes())
        digest.update(self.cols.tobytes())
        object.__setattr__(self, "digest", digest.digest())

    @property
    def nnz(self) -> int:
        """The number of entries."""
        return len(self.rows)

    @property
    def density(self) -> float:
        """The fraction of the matrix that the entries are."""
        m, n = self.shape
        return self.nnz / (m * n) if m * n else 0.0

    @property
    def T(self) -> SparsityPattern:  # as arrays call it
        """The transposed pattern."""
        order = np.lexsort((self.rows, self.cols))
        return SparsityPattern(self.cols[order], self.rows[order], self.shape[::-1])

    def todense(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Returns a `bool[m, n]` that is true at the entries."""
        out = np.zeros(self.shape, np.bool_)
        out[self.rows, self.cols] = True
        return out

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, SparsityPattern) and self.digest == other.digest

    @override
    def __hash__(self) -> int:
        return hash(self.digest)

    @override
    def __repr__(self) -> str:
        m, n = self.shape
        return f"SparsityPattern({m} x {n}, nnz={self.nnz})"


@final
@trees.register_dataclass
@frozen(eq=False, repr=False)
class SparseMatrix:
    """A sparse matrix: the values of the entries of a `SparsityPattern`.

    It is a pytree with one leaf, so it passes through `jit`, `vmap` and `grad`. Its rows and columns are NumPy arrays:
    `scipy.sparse.coo_matrix((A.data, (A.rows, A.cols)), A.shape)` converts it to SciPy.

    Attributes:
        data: the values of the entries, `f32[nnz]`.
        pattern: their positions.

    >>> A = SparseMatrix(fnp.array([2.0, 3.0]), SparsityPattern([0, 1], [1, 0], (2, 2)))
    >>> (A @ fnp.array([1.0, 10.0])).tolist(), A.todense().tolist()
    ([20.0, 3.0], [[0.0, 2.0], [3.0, 0.0]])
    """

    data: Array
    pattern: SparsityPattern = field(metadata={"static": True})

    @property
    def shape(self) -> tuple[int, int]:
        """The shape `(m, n)`."""
        return self.pattern.shape

    @property
    def nnz(self) -> int:
        """The number of entries."""
        return self.pattern.nnz

    @property
    def dtype(self) -> DType:
        """The dtype of the entries."""
        return self.data.dtype

    @property
    def rows(self) -> IndexVector:
        """The row of each entry."""
        return self.pattern.rows

    @property
    def cols(self) -> IndexVector:
        """The column of each entry."""
        return self.pattern.cols

    @property
    def indptr(self) -> IndexVector:
        """The index of each row's first entry, and the number of entries: with `cols` and `data` the CSR format."""
        return np.append(0, np.cumsum(np.bincount(self.rows, minlength=self.shape[0]))).astype(np.int64)

    @property
    def T(self) -> SparseMatrix:  # as arrays call it
        """The transposed matrix."""
        order = np.lexsort((self.rows, self.cols))
        return SparseMatrix(self.data[order], self.pattern.T)

    def todense(self) -> Array:
        """Returns the matrix as an array `f32[m, n]`."""
        zeros = fnp.zeros(self.shape, self.dtype)
        return zeros.at[self.rows, self.cols].set(self.data, unique_indices=True, indices_are_sorted=True)

    def __matmul__(self, other: ArrayLike) -> Array:
        """Returns the product with a vector `f32[n]` or a matrix `f32[n, k]`.

        Raises:
            ValueError: if `other` has another shape.
        """
        x = fnp.asarray(other)
        m, n = self.shape
        if x.ndim not in (1, 2) or x.shape[0] != n:
            raise ValueError(
                f"a sparse matrix of shape {m, n} is multiplied by arrays of shape ({n},) or ({n}, k), not {x.shape}"
            )
        terms = (self.data if x.ndim == 1 else self.data[:, None]) * x[self.cols]
        zeros = fnp.zeros((m, *x.shape[1:]), terms.dtype)
        return zeros.at[self.rows].add(terms, indices_are_sorted=True)

    @override
    def __repr__(self) -> str:
        return f"SparseMatrix({self.shape[0]} x {self.shape[1]}, nnz={self.nnz}, data={self.data!r})"
