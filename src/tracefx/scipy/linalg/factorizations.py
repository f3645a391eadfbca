"""Matrix factorizations with SciPy's arguments, and solvers based on them. Leading axes are batch axes.

Arguments with which SciPy overwrites operands or skips checks are accepted and have no effect: arrays are immutable,
and numbers that are not finite give NaN.
"""

from __future__ import annotations

from typing import Literal, TypeVar, overload

from tracefx.core import Array, ArrayLike, dtypes
from tracefx.core.handler import as_array
from tracefx.numpy.linalg.solving import promote_inexact_pair
from tracefx.numpy.operand_promotion import as_operand, broadcast_operand_shapes
from tracefx.ops.elementwise.complex import complex_dtype
from tracefx.ops.linalg import cholesky as cholesky_operations
from tracefx.ops.linalg import eigen
from tracefx.ops.linalg import lu as lu_operations
from tracefx.ops.linalg import qr as qr_operations
from tracefx.ops.linalg import schur as schur_operations
from tracefx.ops.linalg import svd as svd_operations
from tracefx.ops.linalg.matrices import adjoint, broadcast_columns, eye, matrix_transpose, tril, triu
from tracefx.ops.linalg.triangular_solve import triangular_solve
from tracefx.ops.shape.array_creation import broadcasted_iota, zero
from tracefx.ops.shape.shape import expand_dims
from tracefx.ops.shape.slicing import pad, slice_axis
from tracefx.ops.structural import broadcast_to, convert, full_like_aval, reshape
from tracefx.scipy.linalg.batching import as_linear_system, as_matrix, as_square_matrix, restore_vector
from tracefx.transforms.arguments import show_object
from tracefx.transforms.eager_calls import eager_cached

X = TypeVar("X")
Y = TypeVar("Y")

# ------------------------------------------------------------------ Cholesky


@eager_cached(compiled=True)
def cholesky(a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """Computes the Cholesky factor of a Hermitian positive definite matrix: upper triangular `u` with `u^H @ u = a`.

    Args:
        a: `f32[..., n, n]`; only one triangle is read.
        lower: whether to read the lower triangle and return lower triangular `l` with `l @ l^H = a`.
        overwrite_a: accepted for compatibility with SciPy; it has no effect.
        check_finite: accepted for compatibility with SciPy; it has no effect.

    Returns:
        The factor, `f32[..., n, n]`; NaN if `a` is not positive definite.

    Raises:
        ShapeError: if `a` is not square.

    >>> import numpy as np
    >>> cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
    Array([[2., 1.],
           [0., 2.]], dtype=float32)
    """
    x = as_square_matrix("cholesky", a)
    factor = cholesky_operations.cholesky(x if lower else adjoint(x), symmetrize_input=False)
    return factor if lower else adjoint(factor)


def cho_factor(
    a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, bool]:
    """Computes a Cholesky factorization as `cho_solve` takes it.

    Args:
        a: `f32[..., n, n]`; only one triangle is read.
        lower: whether to read the lower triangle and compute the lower factor.
        overwrite_a: accepted for compatibility with SciPy; it has no effect.
        check_finite: accepted for compatibility with SciPy; it has no effect.

    Returns:
        The factor, `f32[..., n, n]`, and `lower`.

    Raises:
        ShapeError: if `a` is not square.

    >>> import numpy as np
    >>> cho_solve(cho_factor(np.array([[4.0, 2.0], [2.0, 5.0]])), np.array([8.0, 8.0])).tolist()
    [1.5, 1.0]
    """
    return cholesky(a, lower), lower


def cho_solve(
    c_and_lower: tuple[ArrayLike, bool], b: ArrayLike, overwrite_b: bool = False, check_finite: bool = True
) -> Array:
    """Solves the linear system `a @ x = b`, given the Cholesky factorization of `a`.

    Args:
        c_and_lower: the result of `cho_factor(a)`.
        b: a vector `f32[n]`, or matrices `f32[..., n, k]`.
        overwrite_b: accepted for compatibility with SciPy; it has no effect.
        check_finite: accepted for compatibility with SciPy; it has no effect.

    Returns:
        The solution, of the shape of `b`.

    Raises:
        TypeError: if `c_and_lower` is not a pair.
        ShapeError: if shapes do not match.

    >>> import numpy as np
    >>> cho_solve((np.array([[2.0, 0.0], [1.0, 2.0]]), True), np.array([8.0, 8.0])).tolist()
    [1.5, 1.0]
    """
    c, lower = _pair("cho_solve", c_and_lower, "(c, lower) that cho_factor returns")
    factor, columns, is_vector = as_linear_system("cho_solve", c, b)
    return restore_vector(_cho_solve(factor, columns, lower=bool(lower)), is_vector)


def _pair(function: str, given: tuple[X, Y], expected: str) -> tuple[X, Y]:
    """Returns a factorization in two parts; raises TypeError for another object, such as one of the parts."""
    parts: object = given
    if not isinstance(parts, tuple | list) or len(parts) != 2:
        raise TypeError(f"{function} takes the pair {expected}, got {show_object(parts)}")
    return given


@eager_cached(compiled=True)
def _cho_solve(c: Array, b: Array, *, lower: bool) -> Array:
    x = triangular_solve(c, b, left_side=True, lower=lower, transpose_a=not lower, conjugate_a=not lower)
    return triangular_solve(c, x, left_side=True, lower=lower, transpose_a=lower, conjugate_a=lower)


# ------------------------------------------------------------------ LU


@eager_cached(compiled=True)
def lu_factor(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Array, Array]:
    """Computes an LU factorization with partial pivoting, as `lu_solve` takes it.

    Args:
        a: `f32[..., m, n]`.
        overwrite_a: accepted for compatibility with SciPy; it has no effect.
        check_finite: accepted for compatibility with SciPy; it has no effect.

    Returns:
        Both factors in one matrix, `f32[..., m, n]`, and the pivot indices, `i32[..., min(m, n)]`.

    Raises:
        ShapeError: if `a` has fewer than two axes.

    >>> import numpy as np
    >>> lu_solve(lu_factor(np.array([[2.0, 0.0], [1.0, 1.0]])), np.array([4.0, 3.0])).tolist()
    [2.0, 1.0]
    """
    lu, pivots, _ = lu_operations.lu(as_matrix("lu_factor", a))
    return lu, pivots


def lu_solve(
    lu_and_piv: tuple[ArrayLike, ArrayLike],
    b: ArrayLike,
    trans: int = 0,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Array:
    """Solves the linear system `a @ x = b`, given the LU factorization of `a`.

    Args:
        lu_and_piv: the result of `lu_factor(a)`.
        b: a vector `f32[n]`, or matrices `f32[..., n, k]`.
        trans: 0 for `a`, 1 for its transpose, 2 for its conjugate transpose.
        overwrite_b: accepted for compatibility with SciPy; it has no effect.
        check_finite: accepted for compatibility with SciPy; it has no effect.

    Returns:
        The solution, of the shape of `b`.

    Raises:
        TypeError: if `lu_and_piv` is not a pair.
        ShapeError: if shapes do not match.
        ValueError: if `trans` is unknown.

    >>> import numpy as np
    >>> lu_solve((np.array([[2.0, 0.0], [0.5, 1.0]]), np.array([0, 1])), np.array([4.0, 3.0])).tolist()
    [2.0, 1.0]
    """
    if trans not in (0, 1, 2):
        raise ValueError(f"lu_solve: trans must be 0, 1 or 2, got {trans!r}")
    lu, piv = _pair("lu_solve", lu_and_piv, "(lu, piv) that lu_factor returns")
    factors, columns, is_vector = as_linear_system("lu_solve", lu, b)
    pivots = as_array(as_operand(piv, "lu_solve: pivots"))
    pivot_rows = broadcast_to(convert(pivots, dtypes.int32), (*factors.shape[:-2], pivots.shape[-1]))
    return restore_vector(_lu_solve(factors, pivot_rows, columns, trans=trans), is_vector)


@eager_cached(compiled=True)
def _lu_solve(factors: Array, pivots: Array, b: Array, *, trans: int) -> Array:
    permutation = lu_operations.lu_pivots_to_permutation(pivots, factors.shape[-1])
    return lu_operations.lu_solve(factors, permutation, b, trans)


@overload
def lu(
    a: ArrayLike, permute_l: Literal[False] = ..., overwrite_a: bool = ..., check_finite: bool = ...
) -> tuple[Array, Array, Array]: ...
@overload
def lu(
    a: ArrayLike, permute_l: Literal[True], overwrite_a: bool = ..., check_finite: bool = ...
) -> tuple[Array, Array]: ...
@overload
def lu(
    a: ArrayLike, permute_l: bool, overwrite_a: bool = ..., check_finite: bool = ...
) -> tuple[Array, Array] | tuple[Array, Array, Array]: ...
@eager_cached(compiled=True)
def lu(
    a: ArrayLike, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, Array] | tuple[Array, Array, Array]:
    """Computes an LU factorization with partial pivoting, `a = p @ l @ u`.

    Args:
        a: `f32[..., m, n]`.
        permute_l: whether to return `p @ l` instead of `p` and `l`.
        overwrite_a: accepted for compatibility with SciPy; it has no effect.
        check_finite: accepted for compatibility with SciPy; it has no effect.

    Returns:
        The permutation matrix `p` (`f32[..., m, m]`), lower triangular `l` with unit diagonal (`f32[..., m, k]`) and
        upper triangular `u` (`f32[..., k, n]`), with `k = min(m, n)`; or `p @ l` and `u`.

    Raises:
        ShapeError: if `a` has fewer than two axes.

    >>> import numpy as np
    >>> lu(np.array([[1.0, 2.0], [4.0, 4.0]]))[0].tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    x = as_matrix("lu", a)
    factors, _, permutation = lu_operations.lu(x)
    *batch_shape, m, n = x.shape
    k, rank = min(m, n), x.ndim
    lower = tril(slice_axis(factors, 0, k, rank - 1), -1) + eye(x.dtype, m, k, tuple(batch_shape))
    upper = triu(slice_axis(factors, 0, k, rank - 2))
    if permute_l:
        return lu_operations.unpermute_rows(lower, permutation), upper
    permutation_mask = broadcasted_iota(dtypes.int32, (*batch_shape, m, m), rank - 2) == matrix_transpose(
        broadcast_columns(permutation, m)
    )
    return convert(permutation_mask, dtypes.real_dtype(x.dtype)), lower, upper


# ------------------------------------------------------------------ QR


@eager_cached(compiled=True)
def qr(
    a: ArrayLike,
    overwrite_a: bool = False,
    lwork: None = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
) -> tuple[Array] | tuple[Array, Array] | tuple[Array, Array, Array]:
    """Computes a QR factorization: `a = q @ r`, or `a[:, p] = q @ r` with `pivoting`.

    Args:
        a: `f32[..., m, n]`.
        overwrite_a: accepted for compatibility with SciPy; it has no effect.
        lwork: must be None.
        mode: `"full"`; `"economic"`, for `q` with `min(m, n)` columns; or `"r"`, which omits `q` from the result.
        pivoting: whether to permute the columns of `a`, and return the permutation.
        check_finite: accepted for compatibility with SciPy; it has no effect.

    Returns:
        A tuple of `q` with orthonormal columns (unless `mode` is `"r"`), upper triangular `r`, and with `pivoting` the
        column indices `p`.

    Raises:
        ShapeError: if `a` has fewer than two axes.
        ValueError: if `mode` is unknown.

    >>> import numpy as np
    >>> qr(np.array([[3.0], [4.0]]), mode="r")[0].tolist()
    [[-5.0], [0.0]]
    """
    if mode not in ("full", "r", "economic"):
        raise ValueError(f'qr: mode must be "full", "economic" or "r", got {mode!r}')
    x = as_matrix("qr", a)
    factors = qr_operations.qr(x, full_matrices=mode != "economic", pivoting=bool(pivoting))
    return factors[1:] if mode == "r" else factors


def qr_multiply(
    a: ArrayLike,
    c: ArrayLike,
    mode: str = "right",
    pivoting: bool = False,
    conjugate: bool = False,
    overwrite_a: bool = False,
    overwrite_c: bool = False,
) -> tuple[Array, Array] | tuple[Array, Array, Array]:
    """Multiplies by `q` of the economic QR factorization of `a`, without computing `q`.

    Args:
        a: `f32[..., m, n]`.
        c: the matrix to multiply, or a vector.
        mode: `"right"` for `c @ q`, or `"left"` for `q @ c`.
        pivoting: whether to permute the columns of `a`, and return the permutation.
        conjugate: whether to multiply by the elementwise conjugate of `q`.
        overwrite_a: accepted for compatibility with SciPy; it has no effect.
        overwrite_c: accepted for compatibility with SciPy; it has no effect.

    Returns:
        The product, upper triangular `r`, and with `pivoting` the column indices `p`.

    Raises:
        ValueError: if `mode` is unknown, or the shape of `c` does not match.

    >>> import numpy as np
    >>> qr_multiply(np.array([[3.0], [4.0]]), np.array([5.0, 5.0]))[0].round().tolist()
    [-7.0]
    """
    if mode not in ("right", "left"):
        raise ValueError(f'qr_multiply: mode must be "right" or "left", got {mode!r}')
    x, y = promote_inexact_pair("qr_multiply", a, c)
    x = as_matrix("qr_multiply", x)
    m, n = x.shape[-2:]
    k, left = min(m, n), mode == "left"
    is_vector = y.ndim == 1
    if is_vector:
        y = expand_dims(y, (1 if left else 0,))
    size, expected_size = (y.shape[-2], k) if left else (y.shape[-1], m)
    if size != expected_size:
        raise ValueError(f"qr_multiply: c must have {expected_size} {'rows' if left else 'columns'}, got {y.aval}")
    batch_shape = broadcast_operand_shapes("qr_multiply", x.shape[:-2], y.shape[:-2])
    x, y = broadcast_to(x, (*batch_shape, m, n)), broadcast_to(y, (*batch_shape, *y.shape[-2:]))
    product, r, *columns = _qr_multiply(x, y, left=left, pivoting=bool(pivoting), conjugate=bool(conjugate))
    if is_vector:
        product = reshape(product, (product.size,))
    return (product, r, columns[0]) if columns else (product, r)


@eager_cached(compiled=True)
def _qr_multiply(x: Array, c: Array, *, left: bool, pivoting: bool, conjugate: bool) -> tuple[Array, ...]:
    m, n = x.shape[-2:]
    k, rank = min(m, n), x.ndim
    permutations: list[Array] = []
    if pivoting:
        packed, pivots, taus = qr_operations.geqp3(
            x, full_like_aval(x.aval.update(shape=(*x.shape[:-2], n), dtype=dtypes.int32), 0)
        )
        permutations = [pivots - 1]
    else:
        packed, taus = qr_operations.geqrf(x)
    if left and m > n:
        c = pad(c, zero(c.aval), [*[(0, 0, 0)] * (rank - 2), (0, m - k, 0), (0, 0, 0)])
    if conjugate:
        c = matrix_transpose(c)
    out = qr_operations.ormqr(packed, taus, c, left=left != conjugate, transpose=conjugate)
    if conjugate:
        out = matrix_transpose(out)
    if not left:
        out = slice_axis(out, 0, k, rank - 1)
    return (out, triu(slice_axis(packed, 0, k, rank - 2)), *permutations)


# ------------------------------------------------------------------ singular values, eigenvalues


@eager_cached(compiled=True)
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Array | tuple[Array, Array, Array]:
    """Computes the singular value decomposition `a = u @ diag(s) @ vh`.

    Args:
        a: `f32[..., m, n]`.
        full_matrices: whether `u` and `vh` are square; otherwise they have `min(m, n)` columns and rows.
        compute_uv: whether to return `u` and `vh` too.
        overwrite_a: accepted for compatibility with SciPy; it has no effect.
        check_finite: accepted for compatibility with SciPy; it has no effect.
        lapack_driver: accepted for compatibility with SciPy; it has no effect.

    Returns:
        `(u, s, vh)`, or only the singular values `s`, in decreasing order.

    Raises:
        ShapeError: if `a` has fewer than two axes.

    >>> import numpy as np
    >>> svd(np.array([[0.0, 2.0], [1.0, 0.0]]), compute_uv=False).tolist()
    [2.0, 1.0]
    """
    return svd_operations.svd(as_matrix("svd", a), full_matrices=bool(full_matrices), compute_uv=bool(compute_uv))


@eager_cached(compiled=True)
def eigh(
    a: ArrayLike,
    b: ArrayLike | None = None,
    lower: bool = True,
    eigvals_only: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: None = None,
    type: int = 1,
    check_finite: bool = True,
) -> Array | tuple[Array, Array]:
    """Computes the eigenvalues and eigenvectors of the Hermitian part of a matrix.

    Args:
        a: `f32[..., n, n]`.
        b: must be None: generalized problems are not supported.
        lower: which triangle of `a` is read.
        eigvals_only: whether to omit the eigenvectors.
        overwrite_a: accepted for compatibility with SciPy; it has no effect.
        overwrite_b: accepted for compatibility with SciPy; it has no effect.
        turbo: accepted for compatibility with SciPy; it has no effect.
        eigvals: must be None: all eigenvalues are computed.
        type: must be 1.
        check_finite: accepted for compatibility with SciPy; it has no effect.

    Returns:
        The eigenvalues in increasing order, `f32[..., n]`, and the eigenvectors in columns, `f32[..., n, n]`.

    Raises:
        NotImplementedError: for generalized problems and subsets of the eigenvalues.
        ShapeError: if `a` is not square.

    >>> import numpy as np
    >>> eigh(np.array([[2.0, 0.0], [0.0, 1.0]]), eigvals_only=True).tolist()
    [1.0, 2.0]
    """
    if b is not None or type != 1:
        raise NotImplementedError("eigh does not support generalized problems: b must be None and type must be 1")
    if eigvals is not None:
        raise NotImplementedError("eigh computes all eigenvalues: eigvals must be None")
    vectors, values = eigen.eigh(as_square_matrix("eigh", a), lower=bool(lower))
    return values if eigvals_only else (values, vectors)


# ------------------------------------------------------------------ Schur, Hessenberg


@eager_cached(compiled=True)
def schur(a: ArrayLike, output: str = "real") -> tuple[Array, Array]:
    """Computes the Schur decomposition `a = z @ t @ z^H`, with unitary `z` and upper triangular `t`.

    Args:
        a: `f32[..., n, n]`.
        output: `"real"`, for which real `a` gives real `t` with 2x2 blocks on its diagonal for pairs of complex
            eigenvalues; or `"complex"`.

    Returns:
        `t` and `z`, `f32[..., n, n]`.

    Raises:
        ShapeError: if `a` is not square.
        ValueError: if `output` is unknown.

    >>> import numpy as np
    >>> schur(np.array([[2.0, 1.0], [0.0, 3.0]]))[0].tolist()
    [[2.0, 1.0], [0.0, 3.0]]
    """
    if output not in ("real", "complex"):
        raise ValueError(f'schur: output must be "real" or "complex", got {output!r}')
    x = as_square_matrix("schur", a)
    if output == "complex":
        x = convert(x, complex_dtype(dtypes.real_dtype(x.dtype)))
    t, z = schur_operations.schur(x)
    return t, z


@eager_cached(compiled=True)
def hessenberg(
    a: ArrayLike, *, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> Array | tuple[Array, Array]:
    """Computes the Hessenberg decomposition `a = q @ h @ q^H`, where `h` is zero below its first subdiagonal.

    Args:
        a: `f32[..., n, n]`.
        calc_q: whether to return `q` too.
        overwrite_a: accepted for compatibility with SciPy; it has no effect.
        check_finite: accepted for compatibility with SciPy; it has no effect.

    Returns:
        `h`, or `h` and unitary `q`, `f32[..., n, n]`.

    Raises:
        ShapeError: if `a` is not square.

    >>> import numpy as np
    >>> hessenberg(np.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    x = as_square_matrix("hessenberg", a)
    if not x.shape[-1]:
        return (x, x) if calc_q else x
    packed, taus = schur_operations.hessenberg(x)
    h = triu(packed, -1)
    if not calc_q:
        return h
    n, rank = x.shape[-1], x.ndim
    inner = slice_axis(slice_axis(packed, 1, n, rank - 2), 0, n - 1, rank - 1)
    q = qr_operations.householder_product(inner, taus)
    q = pad(q, zero(q.aval), [*[(0, 0, 0)] * (rank - 2), (1, 0, 0), (1, 0, 0)])
    row_and_column = [broadcasted_iota(dtypes.int32, x.shape, axis) for axis in (rank - 2, rank - 1)]
    corner = row_and_column[0] + row_and_column[1] == 0
    return h, q + convert(corner, x.dtype)
