"""Matrices with a pattern: made of vectors, or of nothing but their size."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import SupportsIndex

import numpy as np

from tracefx import numpy as fnp
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.dtypes import DTypeLike, NDArray
from tracefx.core.handler import as_array
from tracefx.numpy.operand_promotion import as_operand, promote_dtypes, to_inexact
from tracefx.ops.static_integers import static_int

# ------------------------------------------------------------------ of vectors


def block_diag(*arrs: ArrayLike) -> Array:
    """The matrices one after another along the diagonal, zeros elsewhere. Vectors are rows.

    >>> import numpy as np
    >>> block_diag(np.ones((1, 2)), np.array([[2.0]])).tolist()
    [[1.0, 1.0, 0.0], [0.0, 0.0, 2.0]]
    """
    if not arrs:
        return fnp.zeros((1, 0))
    values = [as_array(v) for v in promote_dtypes("block_diag", *arrs)]
    for v in values:
        if v.ndim > 2:
            raise ValueError(f"block_diag takes matrices, got {v.aval}")
    blocks = [fnp.atleast_2d(v) for v in values]
    width, rows, start = sum(b.shape[1] for b in blocks), [], 0
    for b in blocks:
        rows.append(fnp.pad(b, ((0, 0), (start, width - start - b.shape[1]))))
        start += b.shape[1]
    return fnp.concatenate(rows, axis=0)


def _as_vectors(name: str, x: ArrayLike, what: str, least: int = 0) -> Array:
    """Stacks of vectors with so many numbers; a number is a vector."""
    value = fnp.atleast_1d(as_array(as_operand(x, f"{name}: {what}")))
    if value.shape[-1] < least:
        raise ValueError(f"{name}: {what} must have {least} numbers or more along its last axis, got {value.aval}")
    return value


def _broadcast_batch(x: Array, y: Array) -> tuple[Array, Array]:
    """Two stacks of vectors, stacked alike."""
    stack = np.broadcast_shapes(x.shape[:-1], y.shape[:-1])
    dtype = fnp.promote_types(x.dtype, y.dtype)
    x, y = [fnp.broadcast_to(v, (*stack, v.shape[-1])).astype(dtype) for v in (x, y)]
    return x, y


def toeplitz(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    """The matrix with first column `c` and first row `r` (without its first number), constant along its diagonals.

    Without `r`, the row is the conjugate of the column.

    >>> import numpy as np
    >>> toeplitz(np.array([1, 2, 3]), np.array([0, 4])).tolist()
    [[1, 4], [2, 1], [3, 2]]
    """
    column = _as_vectors("toeplitz", c, "c")
    row = column.conj() if r is None else _as_vectors("toeplitz", r, "r")
    column, row = _broadcast_batch(column, row)
    m, n = column.shape[-1], row.shape[-1]
    line = fnp.concatenate([column[..., ::-1], row[..., 1:]], axis=-1)
    places = np.arange(m)[::-1, None] + np.arange(n)
    return line[..., places] if places.size else fnp.zeros((*column.shape[:-1], m, n), column.dtype)


def hankel(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    """The matrix with first column `c` and last row `r` (without its first number), constant along its antidiagonals.

    Without `r`, the row is zeros.

    >>> import numpy as np
    >>> hankel(np.array([1, 2, 3])).tolist()
    [[1, 2, 3], [2, 3, 0], [3, 0, 0]]
    """
    values = [as_array(as_operand(x, f"hankel: {what}")) for x, what in ((c, "c"), (r, "r")) if x is not None]
    if any(not x.ndim for x in values):
        raise ValueError("hankel: c and r must be vectors, got a number")
    column = values[0]
    column, row = _broadcast_batch(column, fnp.zeros_like(column) if r is None else values[1])
    m, n = column.shape[-1], row.shape[-1]
    line = fnp.concatenate([column, row[..., 1:]], axis=-1)
    places = np.arange(m)[:, None] + np.arange(n)
    return line[..., places] if places.size else fnp.zeros((*column.shape[:-1], m, n), column.dtype)


def circulant(c: ArrayLike) -> Array:
    """The square matrix with first column `c`, each column the one before moved on by one place, around the end.

    >>> import numpy as np
    >>> circulant(np.array([1, 2, 3])).tolist()
    [[1, 3, 2], [2, 1, 3], [3, 2, 1]]
    """
    x = _as_vectors("circulant", c, "c")
    n = x.shape[-1]
    places = (np.arange(n)[:, None] - np.arange(n)) % max(n, 1)
    return x[..., places] if n else fnp.zeros((*x.shape, 0), x.dtype)


def leslie(f: ArrayLike, s: ArrayLike) -> Array:
    """The matrix with first row `f`, and `s`, which is one shorter, below the diagonal.

    >>> import numpy as np
    >>> leslie(np.array([1, 2]), np.array([3])).tolist()
    [[1, 2], [3, 0]]
    """
    row, below = _as_vectors("leslie", f, "f", 2), _as_vectors("leslie", s, "s")
    if below.shape[-1] != row.shape[-1] - 1:
        raise ValueError(f"leslie: s must be one shorter than f, got {below.aval} and {row.aval}")
    row, below = _broadcast_batch(row, below)
    n = row.shape[-1]
    beside = fnp.pad(below, [*[(0, 0)] * (below.ndim - 1), (0, 1)])[..., None, :]
    at = np.eye(n, k=-1, dtype=bool)
    return fnp.where(np.arange(n)[:, None] == 0, row[..., None, :], fnp.where(at, beside, fnp.zeros((), row.dtype)))


def companion(a: ArrayLike) -> Array:
    """The matrix whose characteristic polynomial has the coefficients `a`, the highest first.

    >>> import numpy as np
    >>> companion(np.array([2.0, 4.0, 6.0])).tolist()
    [[-2.0, -3.0], [1.0, 0.0]]
    """
    x = _as_vectors("companion", to_inexact(a, "companion: a"), "a", 2)
    row = -x[..., 1:] / x[..., :1]
    n = row.shape[-1]
    return fnp.where(np.arange(n)[:, None] == 0, row[..., None, :], np.eye(n, k=-1)).astype(x.dtype)


def fiedler(a: ArrayLike) -> Array:
    """The distances of all pairs of numbers of `a`.

    >>> import numpy as np
    >>> fiedler(np.array([1, 4])).tolist()
    [[0, 3], [3, 0]]
    """
    x = _as_vectors("fiedler", a, "a")
    return abs(x[..., :, None] - x[..., None, :])


def fiedler_companion(a: ArrayLike) -> Array:
    """A matrix with five diagonals whose characteristic polynomial has the coefficients `a`, the highest first.

    >>> import numpy as np
    >>> fiedler_companion(np.array([1.0, 2.0, 3.0])).tolist()
    [[-2.0, -3.0], [1.0, 0.0]]
    """
    x = _as_vectors("fiedler_companion", to_inexact(a, "fiedler_companion: a"), "a", 1)
    x = -x / x[..., :1]
    n = x.shape[-1] - 1
    taken = np.full((n, n), n + 1)  # the place of a zero; the one before is that of a one
    for i in range(n):
        if i % 2 == 0:
            entries = {i + 1: i + 2, i + 2: -1, i - 1: i + 1 if i >= 2 else None}
        else:
            entries = {i - 2: -1 if i >= 3 else None}
        for j, place in entries.items():
            if place is not None and 0 <= j < n:
                taken[i, j] = n + 2 if place < 0 else place
    if n:
        taken[0, 0] = 1
    if n > 1:
        taken[1, 0] = n + 2
    line = fnp.concatenate([x, fnp.zeros_like(x[..., :1]), fnp.ones_like(x[..., :1])], axis=-1)
    return line[..., taken] if n else fnp.zeros((*x.shape[:-1], 0, 0), x.dtype)


def convolution_matrix(a: ArrayLike, n: SupportsIndex, mode: str = "full") -> Array:
    """The matrix whose product with a vector of `n` numbers is the convolution of that with `a`, in the same `mode`.

    >>> import numpy as np
    >>> convolution_matrix(np.array([1, 2]), 2).tolist()
    [[1, 0], [2, 1], [0, 2]]
    """
    size = static_int("convolution_matrix", n, "n")
    x = as_array(as_operand(a, "convolution_matrix: a"))
    if size <= 0 or not x.ndim or not x.shape[-1]:
        raise ValueError(f"convolution_matrix: n must be positive and a have elements, got {size} and {x.aval}")
    if mode not in ("full", "valid", "same"):
        raise ValueError(f'convolution_matrix: mode must be "full", "valid" or "same", got {mode!r}')
    m = x.shape[-1]
    cut = 0 if mode == "full" else min(m, size) - 1
    before = cut // 2 if mode == "same" else cut
    after = cut - before if mode == "same" else cut
    places = np.arange(m + size - 1)[:, None] - np.arange(size)
    places = np.where((places >= 0) & (places < m), places, m)[before : m + size - 1 - after]
    return fnp.concatenate([x, fnp.zeros_like(x[..., :1])], axis=-1)[..., places]


# ------------------------------------------------------------------ of their size


def _check_size(name: str, n: SupportsIndex) -> int:
    return static_int(name, n, "n")


def _floats(x: NDArray) -> Array:
    return fnp.array(x.astype(np.float64), dtype=dtypes.default_float())


def hilbert(n: SupportsIndex) -> Array:
    """`1 / (i + j + 1)` at row `i`, column `j`.

    >>> hilbert(2)[0].tolist()
    [1.0, 0.5]
    """
    i = np.arange(_check_size("hilbert", n))
    return _floats(1 / (i[:, None] + i + 1.0))


def invhilbert(n: SupportsIndex) -> Array:
    """The inverse of `hilbert(n)`, whose elements are whole numbers.

    >>> invhilbert(2).tolist()
    [[4.0, -6.0], [-6.0, 12.0]]
    """
    size, comb = _check_size("invhilbert", n), math.comb

    def entry(i: int, j: int) -> int:
        s = i + j
        return _sign(s) * (s + 1) * comb(size + i, size - j - 1) * comb(size + j, size - i - 1) * comb(s, i) ** 2

    return _matrix_from_entries(size, entry)


def _sign(n: int) -> int:
    return -1 if n % 2 else 1


def _matrix_from_entries(n: int, entry: Callable[[int, int], int]) -> Array:
    return _floats(np.array([[float(entry(i, j)) for j in range(n)] for i in range(n)]).reshape(n, n))


def _check_kind(name: str, kind: str | None) -> str:
    if kind not in (None, "symmetric", "lower", "upper"):
        raise ValueError(f'{name}: kind must be "symmetric", "lower" or "upper", got {kind!r}')
    return kind or "symmetric"


def pascal(n: SupportsIndex, kind: str | None = None) -> Array:
    """Pascal's triangle as a lower or upper triangular matrix, or "symmetric": the product of the two.

    >>> pascal(3).tolist()
    [[1.0, 1.0, 1.0], [1.0, 2.0, 3.0], [1.0, 3.0, 6.0]]
    """
    size, which = _check_size("pascal", n), _check_kind("pascal", kind)
    if which == "symmetric":
        return _matrix_from_entries(size, lambda i, j: math.comb(i + j, i))
    return _matrix_from_entries(size, math.comb if which == "lower" else lambda i, j: math.comb(j, i))


def invpascal(n: SupportsIndex, kind: str | None = None) -> Array:
    """The inverse of `pascal(n, kind)`, whose elements are whole numbers.

    >>> invpascal(2).tolist()
    [[2.0, -1.0], [-1.0, 1.0]]
    """
    size, which = _check_size("invpascal", n), _check_kind("invpascal", kind)

    def lower(i: int, j: int) -> int:
        return _sign(i + j) * math.comb(i, j)

    if which == "symmetric":
        return _matrix_from_entries(size, lambda i, j: sum(lower(k, i) * lower(k, j) for k in range(size)))
    return _matrix_from_entries(size, lower if which == "lower" else lambda i, j: lower(j, i))


def helmert(n: SupportsIndex, full: bool = False) -> Array:
    """Orthonormal rows that are at right angles to a row of ones; with it, of length 1, in front if `full`.

    >>> (helmert(2) ** 2).round(3).tolist()
    [[0.5, 0.5]]
    """
    size = _check_size("helmert", n)
    if size < 1:
        raise ValueError(f"helmert: n must be positive, got {size}")
    i, j = np.arange(1, size)[:, None], np.arange(size)
    rows = np.where(j < i, 1.0, np.where(j == i, -i, 0.0)) / np.sqrt(i * (i + 1.0))
    return _floats(np.concatenate([np.full((1, size), size**-0.5), rows]) if full else rows)


def hadamard(n: SupportsIndex, dtype: DTypeLike = int) -> Array:
    """The matrix of ones and minus ones whose rows are at right angles, for a power of two.

    >>> hadamard(2).tolist()
    [[1, 1], [1, -1]]
    """
    size = _check_size("hadamard", n)
    if size < 1 or size & (size - 1):
        raise ValueError(f"hadamard: n must be a power of two, got {size}")
    signs = np.ones((1, 1))
    while signs.shape[0] < size:
        signs = np.kron(np.array([[1, 1], [1, -1]]), signs)
    return fnp.array(signs, dtype=dtype)


def dft(n: SupportsIndex, scale: str | None = None, *, dtype: DTypeLike | None = None) -> Array:
    """The matrix whose product with a vector is its discrete Fourier transform, divided by `scale`: "sqrtn" or "n".

    >>> dft(2).real.tolist()
    [[1.0, 1.0], [1.0, -1.0]]
    """
    size = _check_size("dft", n)
    if scale not in (None, "sqrtn", "n"):
        raise ValueError(f'dft: scale must be None, "sqrtn" or "n", got {scale!r}')
    default = np.dtype(np.complex64 if dtypes.default_float() == dtypes.float32 else np.complex128)
    kind = default if dtype is None else dtypes.as_dtype(dtype, "dft: dtype")
    if not dtypes.is_complex(kind):
        raise ValueError(f"dft: dtype must be one of complex numbers, got {kind}")
    i = np.arange(size)
    found = np.exp(-2j * np.pi * (i[:, None] * i % max(size, 1)) / max(size, 1))
    by = {None: 1.0, "sqrtn": math.sqrt(size), "n": float(size)}[scale]
    return fnp.array(found / (by or 1.0), dtype=kind)
