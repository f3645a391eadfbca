"""Factorizations, with SciPy's arguments, and solutions by them. Leading axes are a batch.

Arguments that let SciPy overwrite an operand or leave out its checks are there and do nothing: arrays never change, and
numbers that are not finite give NaN.
"""

from __future__ import annotations

from typing import Literal, overload

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
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
from tracefx.transforms.at_once import at_once

# ------------------------------------------------------------------ cholesky


def cholesky(a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """The upper triangular `u` for which `u^H u` is `a`, or the lower triangular `l` for which `l l^H` is.

    Only that triangle of `a` is read. Where there is no such matrix, NaN.

    >>> import numpy as np
    >>> cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
    Array([[2., 1.],
           [0., 2.]], dtype=float32)
    """
    return _cholesky(as_square_matrix("cholesky", a), lower=bool(lower))


@at_once
def _cholesky(x: Array, *, lower: bool) -> Array:
    factor = cholesky_operations.cholesky(x if lower else adjoint(x), symmetrize_input=False)
    return factor if lower else adjoint(factor)


def cho_factor(
    a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, bool]:
    """What `cholesky` gives, and `lower`: what `cho_solve` takes.

    >>> import numpy as np
    >>> cho_solve(cho_factor(np.array([[4.0, 2.0], [2.0, 5.0]])), np.array([8.0, 8.0])).tolist()
    [1.5, 1.0]
    """
    return cholesky(a, lower), lower


def cho_solve(
    c_and_lower: tuple[ArrayLike, bool], b: ArrayLike, overwrite_b: bool = False, check_finite: bool = True
) -> Array:
    """The `x` for which `a x` is `b`, where `c_and_lower` is `cho_factor(a)`.

    >>> import numpy as np
    >>> cho_solve((np.array([[2.0, 0.0], [1.0, 2.0]]), True), np.array([8.0, 8.0])).tolist()
    [1.5, 1.0]
    """
    c, lower = c_and_lower
    factor, columns, is_vector = as_linear_system("cho_solve", c, b)
    return restore_vector(_cho_solve(factor, columns, lower=bool(lower)), is_vector)


@at_once
def _cho_solve(c: Array, b: Array, *, lower: bool) -> Array:
    x = triangular_solve(c, b, left_side=True, lower=lower, transpose_a=not lower, conjugate_a=not lower)
    return triangular_solve(c, x, left_side=True, lower=lower, transpose_a=lower, conjugate_a=lower)


# ------------------------------------------------------------------ lu


def lu_factor(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Array, Array]:
    """The factors of matrices in one, and the rows that were exchanged: what `lu_solve` takes.

    >>> import numpy as np
    >>> lu_solve(lu_factor(np.array([[2.0, 0.0], [1.0, 1.0]])), np.array([4.0, 3.0])).tolist()
    [2.0, 1.0]
    """
    return _lu_factor(as_matrix("lu_factor", a))


@at_once
def _lu_factor(x: Array) -> tuple[Array, Array]:
    found, pivots, _ = lu_operations.lu(x)
    return found, pivots


def lu_solve(
    lu_and_piv: tuple[ArrayLike, ArrayLike],
    b: ArrayLike,
    trans: int = 0,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Array:
    """The `x` for which `a x` is `b`, where `lu_and_piv` is `lu_factor(a)`; for `trans` 1 and 2 with the transpose and
    the conjugate transpose of `a`.

    >>> import numpy as np
    >>> lu_solve((np.array([[2.0, 0.0], [0.5, 1.0]]), np.array([0, 1])), np.array([4.0, 3.0])).tolist()
    [2.0, 1.0]
    """
    if trans not in (0, 1, 2):
        raise ValueError(f"lu_solve: trans must be 0, 1 or 2, got {trans!r}")
    found, columns, is_vector = as_linear_system("lu_solve", lu_and_piv[0], b)
    pivots = as_array(as_operand(lu_and_piv[1], "lu_solve: pivots"))
    rows = broadcast_to(convert(pivots, dtypes.int32), (*found.shape[:-2], pivots.shape[-1]))
    return restore_vector(_lu_solve(found, rows, columns, trans=trans), is_vector)


@at_once
def _lu_solve(found: Array, pivots: Array, b: Array, *, trans: int) -> Array:
    permutation = lu_operations.lu_pivots_to_permutation(pivots, found.shape[-1])
    return lu_operations.lu_solve(found, permutation, b, trans)


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
def lu(
    a: ArrayLike, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, Array] | tuple[Array, Array, Array]:
    """A permutation `p`, lower triangular `l` and upper triangular `u`, whose product is `a`; `p l` and `u` if
    `permute_l`.

    >>> import numpy as np
    >>> lu(np.array([[1.0, 2.0], [4.0, 4.0]]))[0].tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    return _lu(as_matrix("lu", a), permute_l=bool(permute_l))


@at_once
def _lu(x: Array, *, permute_l: bool) -> tuple[Array, Array] | tuple[Array, Array, Array]:
    found, _, permutation = lu_operations.lu(x)
    *stack, m, n = x.shape
    k, rank = min(m, n), x.ndim
    lower = tril(slice_axis(found, 0, k, rank - 1), -1) + eye(x.dtype, m, k, tuple(stack))
    upper = triu(slice_axis(found, 0, k, rank - 2))
    if permute_l:
        return lu_operations.unpermute_rows(lower, permutation), upper
    at = broadcasted_iota(dtypes.int32, (*stack, m, m), rank - 2) == matrix_transpose(broadcast_columns(permutation, m))
    return convert(at, dtypes.real_dtype(x.dtype)), lower, upper


# ------------------------------------------------------------------ qr


def qr(
    a: ArrayLike,
    overwrite_a: bool = False,
    lwork: None = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
) -> tuple[Array] | tuple[Array, Array] | tuple[Array, Array, Array]:
    """`q` with orthonormal columns and upper triangular `r`, whose product is `a`; with `pivoting` `a[:, p]`, and `p`.

    For mode "economic" `q` has no more columns than `a`; for "r" it is left out.

    >>> import numpy as np
    >>> qr(np.array([[3.0], [4.0]]), mode="r")[0].tolist()
    [[-5.0], [0.0]]
    """
    if mode not in ("full", "r", "economic"):
        raise ValueError(f'qr: mode must be "full", "economic" or "r", got {mode!r}')
    found = _qr(as_matrix("qr", a), full_matrices=mode != "economic", pivoting=bool(pivoting))
    return found[1:] if mode == "r" else found


@at_once
def _qr(x: Array, *, full_matrices: bool, pivoting: bool) -> tuple[Array, Array] | tuple[Array, Array, Array]:
    return qr_operations.qr(x, full_matrices=full_matrices, pivoting=pivoting)


def qr_multiply(
    a: ArrayLike,
    c: ArrayLike,
    mode: str = "right",
    pivoting: bool = False,
    conjugate: bool = False,
    overwrite_a: bool = False,
    overwrite_c: bool = False,
) -> tuple[Array, Array] | tuple[Array, Array, Array]:
    """`c q`, or `q c` for mode "left", and `r`, of the economic `qr` of `a`; with `pivoting`, `p` too.

    `q` itself is not computed. With `conjugate` its elements are conjugated.

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
    given, wanted = (y.shape[-2], k) if left else (y.shape[-1], m)
    if given != wanted:
        raise ValueError(f"qr_multiply: c must have {wanted} {'rows' if left else 'columns'}, got {y.aval}")
    stack = broadcast_operand_shapes("qr_multiply", x.shape[:-2], y.shape[:-2])
    x, y = broadcast_to(x, (*stack, m, n)), broadcast_to(y, (*stack, *y.shape[-2:]))
    product, *others = _qr_multiply(x, y, left=left, pivoting=bool(pivoting), conjugate=bool(conjugate))
    if is_vector:
        product = reshape(product, (product.size,))
    return (product, *others)  # type: ignore[return-value]  # two or three


@at_once
def _qr_multiply(x: Array, c: Array, *, left: bool, pivoting: bool, conjugate: bool) -> tuple[Array, ...]:
    m, n = x.shape[-2:]
    k, rank = min(m, n), x.ndim
    places: list[Array] = []
    if pivoting:
        both, found, taus = qr_operations.geqp3(
            x, full_like_aval(x.aval.update(shape=(*x.shape[:-2], n), dtype=dtypes.int32), 0)
        )
        places = [found - 1]
    else:
        both, taus = qr_operations.geqrf(x)
    if left and m > n:
        c = pad(c, zero(c.aval), [*[(0, 0, 0)] * (rank - 2), (0, m - k, 0), (0, 0, 0)])
    if conjugate:
        c = matrix_transpose(c)
    out = qr_operations.ormqr(both, taus, c, left=left != conjugate, transpose=conjugate)
    if conjugate:
        out = matrix_transpose(out)
    if not left:
        out = slice_axis(out, 0, k, rank - 1)
    return (out, triu(slice_axis(both, 0, k, rank - 2)), *places)


# ------------------------------------------------------------------ singular values, eigenvalues


def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Array | tuple[Array, Array, Array]:
    """`(u, s, vh)` for which `u diag(s) vh` is `a`, or only the decreasing singular values `s`.

    >>> import numpy as np
    >>> svd(np.array([[0.0, 2.0], [1.0, 0.0]]), compute_uv=False).tolist()
    [2.0, 1.0]
    """
    return _svd(as_matrix("svd", a), full_matrices=bool(full_matrices), compute_uv=bool(compute_uv))


@at_once
def _svd(x: Array, *, full_matrices: bool, compute_uv: bool) -> Array | tuple[Array, Array, Array]:
    return svd_operations.svd(x, full_matrices=full_matrices, compute_uv=compute_uv)


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
    """The increasing eigenvalues of the Hermitian part of `a`, and unless `eigvals_only` their eigenvectors in columns.

    Raises NotImplementedError for generalized problems (`b`, `type`) and parts of the eigenvalues.

    >>> import numpy as np
    >>> eigh(np.array([[2.0, 0.0], [0.0, 1.0]]), eigvals_only=True).tolist()
    [1.0, 2.0]
    """
    if b is not None or type != 1:
        raise NotImplementedError("eigh solves no generalized problem: b must be None and type 1")
    if eigvals is not None:
        raise NotImplementedError("eigh gives all eigenvalues: eigvals must be None")
    return _eigh(as_square_matrix("eigh", a), lower=bool(lower), only=bool(eigvals_only))


@at_once
def _eigh(x: Array, *, lower: bool, only: bool) -> Array | tuple[Array, Array]:
    vectors, values = eigen.eigh(x, lower=lower)
    return values if only else (values, vectors)


# ------------------------------------------------------------------ schur, hessenberg


def schur(a: ArrayLike, output: str = "real") -> tuple[Array, Array]:
    """Upper triangular `t` and unitary `z`, for which `z t z^H` is `a`.

    For real `a` both are real, `t` with blocks of two on its diagonal for pairs of complex eigenvalues, unless `output`
    is "complex".

    >>> import numpy as np
    >>> schur(np.array([[2.0, 1.0], [0.0, 3.0]]))[0].tolist()
    [[2.0, 1.0], [0.0, 3.0]]
    """
    if output not in ("real", "complex"):
        raise ValueError(f'schur: output must be "real" or "complex", got {output!r}')
    return _schur(as_square_matrix("schur", a), output=output)


@at_once
def _schur(x: Array, *, output: str) -> tuple[Array, Array]:
    if output == "complex":
        x = convert(x, complex_dtype(dtypes.real_dtype(x.dtype)))
    t, z = schur_operations.schur(x)
    return t, z


def hessenberg(
    a: ArrayLike, *, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> Array | tuple[Array, Array]:
    """`h`, which is zero below its first subdiagonal, and with `calc_q` unitary `q`, for which `q h q^H` is `a`.

    >>> import numpy as np
    >>> hessenberg(np.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    x = as_square_matrix("hessenberg", a)
    if not x.shape[-1]:
        return (x, x) if calc_q else x
    return _hessenberg(x, calc_q=bool(calc_q))


@at_once
def _hessenberg(x: Array, *, calc_q: bool) -> Array | tuple[Array, Array]:
    both, taus = schur_operations.hessenberg(x)
    h = triu(both, -1)
    if not calc_q:
        return h
    n, rank = x.shape[-1], x.ndim
    inner = slice_axis(slice_axis(both, 1, n, rank - 2), 0, n - 1, rank - 1)
    q = qr_operations.householder_product(inner, taus)
    q = pad(q, zero(q.aval), [*[(0, 0, 0)] * (rank - 2), (1, 0, 0), (1, 0, 0)])
    places = [broadcasted_iota(dtypes.int32, x.shape, axis) for axis in (rank - 2, rank - 1)]
    corner = places[0] + places[1] == 0
    return h, q + convert(corner, x.dtype)
