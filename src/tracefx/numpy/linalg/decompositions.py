"""Matrix decompositions: Cholesky, QR, singular values, eigenvalues. Leading axes are batch axes."""

from __future__ import annotations

from typing import Literal, NamedTuple, overload

from tracefx.core import Array, ArrayLike, dtypes
from tracefx.core.handler import as_array
from tracefx.errors import ShapeError
from tracefx.numpy.operand_promotion import to_inexact
from tracefx.numpy.ufuncs import absolute, multiply, sign
from tracefx.ops.indexing import sorting
from tracefx.ops.linalg import cholesky as cholesky_operations
from tracefx.ops.linalg import eigen
from tracefx.ops.linalg import qr as qr_operations
from tracefx.ops.linalg import svd as svd_operations
from tracefx.ops.linalg.lu import permute_rows
from tracefx.ops.linalg.matrices import adjoint, broadcast_rows, matrix_transpose
from tracefx.ops.shape import array_creation, slicing
from tracefx.transforms.eager_calls import eager_cached


class QRResult(NamedTuple):
    """The results of `qr`."""

    Q: Array
    R: Array


class SVDResult(NamedTuple):
    """The results of `svd`."""

    U: Array
    S: Array
    Vh: Array


class EighResult(NamedTuple):
    """The results of `eigh`."""

    eigenvalues: Array
    eigenvectors: Array


class EigResult(NamedTuple):
    """The results of `eig`."""

    eigenvalues: Array
    eigenvectors: Array


def as_matrices(name: str, a: ArrayLike) -> Array:
    """Returns an operand of floats or complex numbers; raises ShapeError unless it has two axes or more."""
    x = as_array(to_inexact(a, f"{name}: a"))
    if x.ndim < 2:
        raise ShapeError(f"{name} takes matrices (arrays with two axes or more), got {x.aval}")
    return x


def as_square_matrices(name: str, a: ArrayLike) -> Array:
    """Returns an operand of floats or complex numbers; raises ShapeError unless it is of square matrices."""
    x = as_matrices(name, a)
    if x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"{name} takes square matrices, got {x.aval}")
    return x


# ------------------------------------------------------------------ cholesky


@eager_cached(compiled=True)
def cholesky(a: ArrayLike, *, upper: bool = False, symmetrize_input: bool = True) -> Array:
    """Returns the Cholesky factor of Hermitian positive definite matrices: `l` with `l l^H = a`; NaN if none exists.

    Args:
        a: The matrices, `f32[..., n, n]`.
        upper: Whether to return the upper triangular factor `l^H` instead of the lower triangular `l`.
        symmetrize_input: Whether to use the Hermitian part of `a`; if False, only its lower triangle is read.

    Returns:
        The factors, `f32[..., n, n]`.

    Raises:
        ValueError: If the matrices are not square.

    >>> import numpy as np
    >>> cholesky(np.array([[4.0, 2.0], [2.0, 5.0]])).tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    x = as_square_matrices("cholesky", a)
    factor = cholesky_operations.cholesky(x, symmetrize_input=bool(symmetrize_input))
    return adjoint(factor) if upper else factor


# ------------------------------------------------------------------ qr


@overload
def qr(a: ArrayLike, mode: Literal["reduced", "complete", "raw", "full"] = "reduced") -> QRResult: ...
@overload
def qr(a: ArrayLike, mode: Literal["r"]) -> Array: ...
@overload
def qr(a: ArrayLike, mode: str) -> Array | QRResult: ...
@eager_cached(compiled=True)
def qr(a: ArrayLike, mode: str = "reduced") -> Array | QRResult:
    """Returns the QR decomposition: `Q` with orthonormal columns and upper triangular `R` with `Q R = a`.

    Args:
        a: The matrices, `f32[..., m, n]`.
        mode: `"reduced"` (or `"full"`) for `Q` of shape `f32[..., m, min(m, n)]`, `"complete"` for `f32[..., m, m]`,
            `"r"` for `R` alone, `"raw"` for LAPACK's reflectors, transposed, and their factors.

    Returns:
        A named tuple of `Q` and `R`; for `"r"` `R` alone, `f32[..., min(m, n), n]`.

    Raises:
        ValueError: If the mode is unknown.

    >>> import numpy as np
    >>> qr(np.array([[3.0], [4.0]])).R.tolist()
    [[-5.0]]
    """
    x = as_matrices("qr", a)
    if mode not in ("reduced", "r", "full", "complete", "raw"):
        raise ValueError(f'qr: mode must be "reduced", "complete", "r" or "raw", got {mode!r}')
    if mode == "raw":
        out, taus = qr_operations.geqrf(x)
        return QRResult(matrix_transpose(out), taus)
    q, r = qr_operations.qr(x, full_matrices=mode == "complete")
    return r if mode == "r" else QRResult(q, r)


# ------------------------------------------------------------------ svd


@overload
def svd(
    a: ArrayLike,
    full_matrices: bool = ...,
    compute_uv: Literal[True] = ...,
    hermitian: bool = ...,
    subset_by_index: tuple[int, int] | None = ...,
) -> SVDResult: ...
@overload
def svd(
    a: ArrayLike,
    full_matrices: bool,
    compute_uv: Literal[False],
    hermitian: bool = ...,
    subset_by_index: tuple[int, int] | None = ...,
) -> Array: ...
@overload
def svd(
    a: ArrayLike,
    full_matrices: bool = ...,
    *,
    compute_uv: Literal[False],
    hermitian: bool = ...,
    subset_by_index: tuple[int, int] | None = ...,
) -> Array: ...
@overload
def svd(
    a: ArrayLike,
    full_matrices: bool = ...,
    compute_uv: bool = ...,
    hermitian: bool = ...,
    subset_by_index: tuple[int, int] | None = ...,
) -> Array | SVDResult: ...
@eager_cached(compiled=True)
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> Array | SVDResult:
    """Returns the singular value decomposition: `U`, `S` (descending) and `Vh` with `U diag(S) Vh = a`.

    Args:
        a: The matrices, `f32[..., m, n]`.
        full_matrices: Whether `U` and `Vh` are square; if False, they have `min(m, n)` columns and rows.
        compute_uv: Whether to compute `U` and `Vh`; if False, only `S` is returned.
        hermitian: Whether the matrices are Hermitian, which are decomposed by their eigenvalues.
        subset_by_index: The range of the singular values to compute; None means all.

    Returns:
        A named tuple of `U`, `S` and `Vh`; without `compute_uv`, `S`, `f32[..., min(m, n)]`.

    Raises:
        ValueError: If `a` has fewer than two axes.

    >>> import numpy as np
    >>> svd(np.array([[0.0, 2.0], [1.0, 0.0]])).S.tolist()
    [2.0, 1.0]
    """
    x = as_matrices("svd", a)
    find = _hermitian_svd if hermitian else _svd
    return find(x, full_matrices=bool(full_matrices), compute_uv=bool(compute_uv), subset=subset_by_index)


def _svd(x: Array, *, full_matrices: bool, compute_uv: bool, subset: tuple[int, int] | None) -> Array | SVDResult:
    result = svd_operations.svd(x, full_matrices=full_matrices, compute_uv=compute_uv, subset_by_index=subset)
    return SVDResult(*result) if isinstance(result, tuple) else result


def _hermitian_svd(
    x: Array, *, full_matrices: bool, compute_uv: bool, subset: tuple[int, int] | None
) -> Array | SVDResult:
    vectors, values = eigen.eigh(x, subset_by_index=subset)
    last = values.ndim - 1
    magnitudes = absolute(values)
    if not compute_uv:
        return slicing.rev(sorting.sort(magnitudes, last), (last,))
    positions = array_creation.broadcasted_iota(dtypes.int32, magnitudes.shape, last)
    sorted_values = sorting.sort((magnitudes, positions, sign(values)), last, num_keys=1)
    s, order, signs = [slicing.rev(v, (last,)) for v in sorted_values]
    u = matrix_transpose(permute_rows(matrix_transpose(vectors), order))
    flipped = multiply(u, broadcast_rows(signs, u.shape[-2]))
    return SVDResult(u, s, adjoint(flipped))


@eager_cached(compiled=True)
def svdvals(x: ArrayLike, /) -> Array:
    """Returns the singular values of matrices, descending.

    Args:
        x: The matrices, `f32[..., m, n]`.

    Returns:
        The singular values, `f32[..., min(m, n)]`.

    Raises:
        ValueError: If `x` has fewer than two axes.

    >>> import numpy as np
    >>> svdvals(np.array([[0.0, 2.0], [1.0, 0.0]])).tolist()
    [2.0, 1.0]
    """
    return svd(x, compute_uv=False)


# ------------------------------------------------------------------ eigenvalues


@eager_cached(compiled=True)
def eigh(a: ArrayLike, UPLO: str | None = None, symmetrize_input: bool = True) -> EighResult:
    """Returns the eigenvalues of Hermitian matrices, ascending, and eigenvectors as columns.

    Args:
        a: The matrices, `f32[..., n, n]`.
        UPLO: The triangle that is read unless `symmetrize_input`: `"L"` (or None) or `"U"`.
        symmetrize_input: Whether to use the Hermitian part of `a`.

    Returns:
        The eigenvalues, `f32[..., n]`, and the eigenvectors, `f32[..., n, n]`.

    Raises:
        ValueError: If the matrices are not square, or `UPLO` is unknown.

    >>> import numpy as np
    >>> eigh(np.array([[2.0, 0.0], [0.0, 1.0]])).eigenvalues.tolist()
    [1.0, 2.0]
    """
    if UPLO not in (None, "L", "U"):
        raise ValueError(f'eigh: UPLO must be "L" or "U", got {UPLO!r}')
    x = as_square_matrices("eigh", a)
    vectors, values = eigen.eigh(x, lower=UPLO != "U", symmetrize_input=bool(symmetrize_input))
    return EighResult(values, vectors)


def eigvalsh(a: ArrayLike, UPLO: str | None = "L", *, symmetrize_input: bool = True) -> Array:
    """Returns the eigenvalues of Hermitian matrices, ascending.

    Args:
        a: The matrices, `f32[..., n, n]`.
        UPLO: The triangle that is read unless `symmetrize_input`: `"L"` (or None) or `"U"`.
        symmetrize_input: Whether to use the Hermitian part of `a`.

    Returns:
        The eigenvalues, `f32[..., n]`.

    Raises:
        ValueError: If the matrices are not square, or `UPLO` is unknown.

    >>> import numpy as np
    >>> eigvalsh(np.array([[2.0, 0.0], [0.0, 1.0]])).tolist()
    [1.0, 2.0]
    """
    return eigh(a, UPLO, symmetrize_input).eigenvalues


@eager_cached(compiled=True)
def eig(a: ArrayLike) -> EigResult:
    """Returns the eigenvalues of square matrices as complex numbers, and eigenvectors as columns.

    Only the eigenvalues can be differentiated, by `eigvals`.

    Args:
        a: The matrices, `f32[..., n, n]`.

    Returns:
        The eigenvalues, `c64[..., n]`, and the eigenvectors, `c64[..., n, n]`.

    Raises:
        ValueError: If the matrices are not square.

    >>> import numpy as np
    >>> eig(np.array([[0.0, 1.0], [-1.0, 0.0]])).eigenvalues.tolist()
    [1j, -1j]
    """
    return EigResult(*eigen.eig(as_square_matrices("eig", a), compute_left_eigenvectors=False))


@eager_cached(compiled=True)
def eigvals(a: ArrayLike) -> Array:
    """Returns the eigenvalues of square matrices as complex numbers.

    Args:
        a: The matrices, `f32[..., n, n]`.

    Returns:
        The eigenvalues, `c64[..., n]`.

    Raises:
        ValueError: If the matrices are not square.

    >>> import numpy as np
    >>> eigvals(np.array([[0.0, 1.0], [-1.0, 0.0]])).tolist()
    [1j, -1j]
    """
    x = as_square_matrices("eigvals", a)
    return eigen.eig(x, compute_left_eigenvectors=False, compute_right_eigenvectors=False)[0]
