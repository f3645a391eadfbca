"""Special matrices: built from vectors, or from a size alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import SupportsIndex

import numpy as np

from tracefx import numpy as fnp
from tracefx.core import Array, ArrayLike, DTypeLike, NDArray, dtypes
from tracefx.core.handler import as_array
from tracefx.numpy.operand_promotion import as_operand, promote_dtypes, to_inexact
from tracefx.ops.static_integers import static_int

# ------------------------------------------------------------------ from vectors


def block_diag(*arrs: ArrayLike) -> Array:
    """Builds a block diagonal matrix.

    Args:
        *arrs: the blocks: matrices, or vectors, which are rows.

    Returns:
        A matrix with the blocks along its diagonal and zeros elsewhere.

    Raises:
        ValueError: if an array has more than two axes.

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


def _as_vectors(name: str, x: ArrayLike, argument: str, least: int = 0) -> Array:
    """Converts an argument to an array of vectors with at least this many elements; a scalar is a vector."""
    value = fnp.atleast_1d(as_array(as_operand(x, f"{name}: {argument}")))
    if value.shape[-1] < least:
        raise ValueError(f"{name}: {argument} must have {least} numbers or more along its last axis, got {value.aval}")
    return value


def _broadcast_batch(x: Array, y: Array) -> tuple[Array, Array]:
    """Promotes two arrays of vectors, and broadcasts their leading axes."""
    batch_shape = np.broadcast_shapes(x.shape[:-1], y.shape[:-1])
    dtype = fnp.promote_types(x.dtype, y.dtype)
    x, y = [fnp.broadcast_to(v, (*batch_shape, v.shape[-1])).astype(dtype) for v in (x, y)]
    return x, y


def toeplitz(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    """Builds a Toeplitz matrix, which is constant along its diagonals.

    Args:
        c: the first column, `f32[..., m]`.
        r: the first row, `f32[..., n]`, whose first element is ignored; by default the conjugate of `c`.

    Returns:
        `f32[..., m, n]`.

    >>> import numpy as np
    >>> toeplitz(np.array([1, 2, 3]), np.array([0, 4])).tolist()
    [[1, 4], [2, 1], [3, 2]]
    """
    column = _as_vectors("toeplitz", c, "c")
    row = column.conj() if r is None else _as_vectors("toeplitz", r, "r")
    column, row = _broadcast_batch(column, row)
    m, n = column.shape[-1], row.shape[-1]
    diagonals = fnp.concatenate([column[..., ::-1], row[..., 1:]], axis=-1)
    indices = np.arange(m)[::-1, None] + np.arange(n)
    return diagonals[..., indices] if indices.size else fnp.zeros((*column.shape[:-1], m, n), column.dtype)


def hankel(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    """Builds a Hankel matrix, which is constant along its antidiagonals.

    Args:
        c: the first column, `f32[..., m]`.
        r: the last row, `f32[..., n]`, whose first element is ignored; zeros by default.

    Returns:
        `f32[..., m, n]`.

    Raises:
        ValueError: if an argument is a scalar.

    >>> import numpy as np
    >>> hankel(np.array([1, 2, 3])).tolist()
    [[1, 2, 3], [2, 3, 0], [3, 0, 0]]
    """
    values = [as_array(as_operand(x, f"hankel: {argument}")) for x, argument in ((c, "c"), (r, "r")) if x is not None]
    if any(not x.ndim for x in values):
        raise ValueError("hankel: c and r must be vectors, got a scalar")
    column = values[0]
    column, row = _broadcast_batch(column, fnp.zeros_like(column) if r is None else values[1])
    m, n = column.shape[-1], row.shape[-1]
    antidiagonals = fnp.concatenate([column, row[..., 1:]], axis=-1)
    indices = np.arange(m)[:, None] + np.arange(n)
    return antidiagonals[..., indices] if indices.size else fnp.zeros((*column.shape[:-1], m, n), column.dtype)


def circulant(c: ArrayLike) -> Array:
    """Builds a circulant matrix: each column is the one before, rotated by one.

    Args:
        c: the first column, `f32[..., n]`.

    Returns:
        `f32[..., n, n]`.

    >>> import numpy as np
    >>> circulant(np.array([1, 2, 3])).tolist()
    [[1, 3, 2], [2, 1, 3], [3, 2, 1]]
    """
    x = _as_vectors("circulant", c, "c")
    n = x.shape[-1]
    indices = (np.arange(n)[:, None] - np.arange(n)) % max(n, 1)
    return x[..., indices] if n else fnp.zeros((*x.shape, 0), x.dtype)


def leslie(f: ArrayLike, s: ArrayLike) -> Array:
    """Builds a Leslie matrix.

    Args:
        f: the first row, `f32[..., n]`, with `n >= 2`.
        s: the subdiagonal, `f32[..., n - 1]`.

    Returns:
        `f32[..., n, n]`.

    Raises:
        ValueError: if the sizes do not match.

    >>> import numpy as np
    >>> leslie(np.array([1, 2]), np.array([3])).tolist()
    [[1, 2], [3, 0]]
    """
    row, subdiagonal = _as_vectors("leslie", f, "f", 2), _as_vectors("leslie", s, "s")
    if subdiagonal.shape[-1] != row.shape[-1] - 1:
        raise ValueError(f"leslie: s must be one shorter than f, got {subdiagonal.aval} and {row.aval}")
    row, subdiagonal = _broadcast_batch(row, subdiagonal)
    n = row.shape[-1]
    padded_subdiagonal = fnp.pad(subdiagonal, [*[(0, 0)] * (subdiagonal.ndim - 1), (0, 1)])[..., None, :]
    subdiagonal_mask = np.eye(n, k=-1, dtype=bool)
    return fnp.where(
        np.arange(n)[:, None] == 0,
        row[..., None, :],
        fnp.where(subdiagonal_mask, padded_subdiagonal, fnp.zeros((), row.dtype)),
    )


def companion(a: ArrayLike) -> Array:
    """Builds the companion matrix of a polynomial, whose characteristic polynomial it is.

    Args:
        a: the coefficients, `f32[..., n + 1]`, the highest first.

    Returns:
        `f32[..., n, n]`.

    Raises:
        ValueError: if there are fewer than two coefficients.

    >>> import numpy as np
    >>> companion(np.array([2.0, 4.0, 6.0])).tolist()
    [[-2.0, -3.0], [1.0, 0.0]]
    """
    x = _as_vectors("companion", to_inexact(a, "companion: a"), "a", 2)
    row = -x[..., 1:] / x[..., :1]
    n = row.shape[-1]
    return fnp.where(np.arange(n)[:, None] == 0, row[..., None, :], np.eye(n, k=-1)).astype(x.dtype)


def fiedler(a: ArrayLike) -> Array:
    """Builds a Fiedler matrix: the distances of all pairs of elements.

    Args:
        a: `f32[..., n]`.

    Returns:
        `f32[..., n, n]`.

    >>> import numpy as np
    >>> fiedler(np.array([1, 4])).tolist()
    [[0, 3], [3, 0]]
    """
    x = _as_vectors("fiedler", a, "a")
    return abs(x[..., :, None] - x[..., None, :])


def fiedler_companion(a: ArrayLike) -> Array:
    """Builds the Fiedler companion matrix of a polynomial: pentadiagonal, with that characteristic polynomial.

    Args:
        a: the coefficients, `f32[..., n + 1]`, the highest first.

    Returns:
        `f32[..., n, n]`.

    Raises:
        ValueError: if there are no coefficients.

    >>> import numpy as np
    >>> fiedler_companion(np.array([1.0, 2.0, 3.0])).tolist()
    [[-2.0, -3.0], [1.0, 0.0]]
    """
    x = _as_vectors("fiedler_companion", to_inexact(a, "fiedler_companion: a"), "a", 1)
    x = -x / x[..., :1]
    n = x.shape[-1] - 1
    indices = np.full((n, n), n + 1)  # the index of a zero; that of a one follows
    for i in range(n):
        if i % 2 == 0:
            entries = {i + 1: i + 2, i + 2: -1, i - 1: i + 1 if i >= 2 else None}
        else:
            entries = {i - 2: -1 if i >= 3 else None}
        for j, index in entries.items():
            if index is not None and 0 <= j < n:
                indices[i, j] = n + 2 if index < 0 else index
    if n:
        indices[0, 0] = 1
    if n > 1:
        indices[1, 0] = n + 2
    elements = fnp.concatenate([x, fnp.zeros_like(x[..., :1]), fnp.ones_like(x[..., :1])], axis=-1)
    return elements[..., indices] if n else fnp.zeros((*x.shape[:-1], 0, 0), x.dtype)


def convolution_matrix(a: ArrayLike, n: SupportsIndex, mode: str = "full") -> Array:
    """Builds the matrix whose product with a vector of size `n` is its convolution with `a`.

    Args:
        a: `f32[..., m]`.
        n: the size of the vector, a concrete integer.
        mode: `"full"`, `"same"` or `"valid"`, as for `tracefx.numpy.convolve`.

    Returns:
        A matrix with `n` columns.

    Raises:
        ValueError: if `mode` is unknown, `n` is not positive, or `a` is empty.

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
    indices = np.arange(m + size - 1)[:, None] - np.arange(size)
    indices = np.where((indices >= 0) & (indices < m), indices, m)[before : m + size - 1 - after]
    return fnp.concatenate([x, fnp.zeros_like(x[..., :1])], axis=-1)[..., indices]


# ------------------------------------------------------------------ from a size


def _check_size(name: str, n: SupportsIndex) -> int:
    return static_int(name, n, "n")


def _floats(x: NDArray) -> Array:
    """Converts to the default float dtype."""
    return fnp.array(x.astype(np.float64), dtype=dtypes.default_float())


def hilbert(n: SupportsIndex) -> Array:
    """Builds the Hilbert matrix, `1 / (i + j + 1)` at row `i` and column `j`.

    Args:
        n: the size, a concrete integer.

    Returns:
        `f32[n, n]`.

    >>> hilbert(2)[0].tolist()
    [1.0, 0.5]
    """
    i = np.arange(_check_size("hilbert", n))
    return _floats(1 / (i[:, None] + i + 1.0))


def invhilbert(n: SupportsIndex) -> Array:
    """Builds the inverse of the Hilbert matrix, which has integer elements.

    Args:
        n: the size, a concrete integer.

    Returns:
        `f32[n, n]`.

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
    """Builds a Pascal matrix.

    Args:
        n: the size, a concrete integer.
        kind: `"lower"` or `"upper"`, Pascal's triangle as a triangular matrix; or `"symmetric"` (the default), the
            product of the two.

    Returns:
        `f32[n, n]`.

    Raises:
        ValueError: if `kind` is unknown.

    >>> pascal(3).tolist()
    [[1.0, 1.0, 1.0], [1.0, 2.0, 3.0], [1.0, 3.0, 6.0]]
    """
    size, which = _check_size("pascal", n), _check_kind("pascal", kind)
    if which == "symmetric":
        return _matrix_from_entries(size, lambda i, j: math.comb(i + j, i))
    return _matrix_from_entries(size, math.comb if which == "lower" else lambda i, j: math.comb(j, i))


def invpascal(n: SupportsIndex, kind: str | None = None) -> Array:
    """Builds the inverse of a Pascal matrix, which has integer elements.

    Args:
        n: the size, a concrete integer.
        kind: the kind of the Pascal matrix: `"symmetric"` (the default), `"lower"` or `"upper"`.

    Returns:
        `f32[n, n]`.

    Raises:
        ValueError: if `kind` is unknown.

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
    """Builds a Helmert matrix: orthonormal rows, which are orthogonal to a row of ones.

    Args:
        n: the size, a concrete integer.
        full: whether to include the normalized row of ones as the first row.

    Returns:
        `f32[n - 1, n]`, or `f32[n, n]` with `full`.

    Raises:
        ValueError: if `n` is not positive.

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
    """Builds a Hadamard matrix: elements are 1 or -1, and rows are orthogonal.

    Args:
        n: the size, a power of two.
        dtype: the dtype of the matrix.

    Returns:
        `dtype[n, n]`.

    Raises:
        ValueError: if `n` is not a power of two.

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
    """Builds the matrix of the discrete Fourier transform.

    Args:
        n: the size, a concrete integer.
        scale: the divisor: None for 1, `"sqrtn"` for `sqrt(n)`, or `"n"`.
        dtype: the complex dtype of the matrix; the default one by default.

    Returns:
        `c64[n, n]`.

    Raises:
        ValueError: if `scale` is unknown, or `dtype` is not complex.

    >>> dft(2).real.tolist()
    [[1.0, 1.0], [1.0, -1.0]]
    """
    size = _check_size("dft", n)
    if scale not in (None, "sqrtn", "n"):
        raise ValueError(f'dft: scale must be None, "sqrtn" or "n", got {scale!r}')
    default = np.dtype(np.complex64 if dtypes.default_float() == dtypes.float32 else np.complex128)
    complex_type = default if dtype is None else dtypes.as_dtype(dtype, "dft: dtype")
    if not dtypes.is_complex(complex_type):
        raise ValueError(f"dft: dtype must be a complex dtype, got {complex_type}")
    i = np.arange(size)
    matrix = np.exp(-2j * np.pi * (i[:, None] * i % max(size, 1)) / max(size, 1))
    divisor = {None: 1.0, "sqrtn": math.sqrt(size), "n": float(size)}[scale]
    return fnp.array(matrix / (divisor or 1.0), dtype=complex_type)
