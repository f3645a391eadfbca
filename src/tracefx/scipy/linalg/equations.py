"""Determinants, inverses, and solutions of matrix equations. Leading axes are batch axes."""

from __future__ import annotations

from tracefx.core import Array, ArrayLike, dtypes
from tracefx.core.handler import as_array
from tracefx.numpy import linalg
from tracefx.numpy.linalg.solving import solve_batched
from tracefx.numpy.operand_promotion import convert_dtype, inexact_dtype, promote_dtypes
from tracefx.numpy.reductions import any
from tracefx.numpy.ufuncs import absolute, where
from tracefx.ops.elementwise.complex import complex_dtype
from tracefx.ops.elementwise.selection import stop_gradient
from tracefx.ops.linalg.matrices import adjoint, broadcast_columns, broadcast_rows, eye, matmul
from tracefx.ops.linalg.triangular_solve import triangular_solve
from tracefx.ops.structural import convert, full_like_aval
from tracefx.scipy.linalg.batching import as_linear_system, map_over_batch, restore_vector
from tracefx.scipy.linalg.factorizations import _cho_solve, cholesky, schur
from tracefx.transforms.eager_calls import eager_cached
from tracefx.transforms.loops import fori_loop
from tracefx.transforms.solvers import custom_linear_solve


def det(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """Computes determinants.

    Args:
        a: `f32[..., n, n]`.
        overwrite_a: accepted for compatibility with SciPy; it has no effect.
        check_finite: accepted for compatibility with SciPy; it has no effect.

    Returns:
        `f32[...]`.

    >>> import numpy as np
    >>> det(np.array([[1.0, 2.0], [3.0, 4.0]]))
    Array(-2., dtype=float32)
    """
    return linalg.det(a)


def inv(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """Computes matrix inverses.

    Args:
        a: `f32[..., n, n]`.
        overwrite_a: accepted for compatibility with SciPy; it has no effect.
        check_finite: accepted for compatibility with SciPy; it has no effect.

    Returns:
        `f32[..., n, n]`.

    >>> import numpy as np
    >>> inv(np.array([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    return linalg.inv(a)


def solve(
    a: ArrayLike,
    b: ArrayLike,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    debug: bool = False,
    check_finite: bool = True,
    assume_a: str = "gen",
) -> Array:
    """Solves the linear system `a @ x = b`.

    Args:
        a: `f32[..., n, n]`.
        b: a vector `f32[n]`, or matrices `f32[..., n, k]`.
        lower: which triangle of `a` is read if `assume_a` is `"pos"`.
        overwrite_a: accepted for compatibility with SciPy; it has no effect.
        overwrite_b: accepted for compatibility with SciPy; it has no effect.
        debug: accepted for compatibility with SciPy; it has no effect.
        check_finite: accepted for compatibility with SciPy; it has no effect.
        assume_a: `"gen"`; or `"pos"` if `a` is Hermitian positive definite, which uses the Cholesky factorization.
            `"sym"` and `"her"` mean the same as `"gen"`.

    Returns:
        The solution, of the shape of `b`.

    Raises:
        ShapeError: if shapes do not match.
        ValueError: if `assume_a` is unknown.

    >>> import numpy as np
    >>> solve(np.array([[4.0, 2.0], [2.0, 5.0]]), np.array([8.0, 8.0]), assume_a="pos").tolist()
    [1.5, 1.0]
    """
    if assume_a not in ("gen", "sym", "her", "pos"):
        raise ValueError(f'solve: assume_a must be "gen", "sym", "her" or "pos", got {assume_a!r}')
    if assume_a != "pos":
        return linalg.solve(a, b)
    x, columns, is_vector = as_linear_system("solve", a, b)
    return restore_vector(_solve_positive_definite(x, columns, lower=bool(lower)), is_vector)


@eager_cached(compiled=True)
def _solve_positive_definite(a: Array, b: Array, *, lower: bool) -> Array:
    factor = cholesky(stop_gradient(a), lower)

    def product(x: Array) -> Array:
        return matmul(a, x)

    def solve(_: object, y: Array) -> Array:
        return _cho_solve(factor, y, lower=lower)

    def solve_transposed(_: object, y: Array) -> Array:  # the transpose of a Hermitian matrix is its conjugate
        return solve(_, y.conj()).conj()

    out: Array = custom_linear_solve(product, b, solve, solve_transposed)
    return out


def solve_triangular(
    a: ArrayLike,
    b: ArrayLike,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    debug: None = None,
    check_finite: bool = True,
) -> Array:
    """Solves the linear system `a @ x = b` for triangular `a`.

    Args:
        a: `f32[..., n, n]`.
        b: a vector `f32[n]`, or matrices `f32[..., n, k]`.
        trans: 0 or `"N"` for `a`, 1 or `"T"` for its transpose, 2 or `"C"` for its conjugate transpose.
        lower: whether `a` is lower triangular; the other triangle is not read.
        unit_diagonal: whether the diagonal of `a` is assumed to be 1 and not read.
        overwrite_b: accepted for compatibility with SciPy; it has no effect.
        debug: accepted for compatibility with SciPy; it has no effect.
        check_finite: accepted for compatibility with SciPy; it has no effect.

    Returns:
        The solution, of the shape of `b`.

    Raises:
        ShapeError: if shapes do not match.
        ValueError: if `trans` is unknown.

    >>> import numpy as np
    >>> solve_triangular(np.array([[2.0, 0.0], [1.0, 1.0]]), np.array([4.0, 3.0]), lower=True).tolist()
    [2.0, 1.0]
    """
    if trans not in (0, 1, 2, "N", "T", "C"):
        raise ValueError(f'solve_triangular: trans must be 0, 1, 2, "N", "T" or "C", got {trans!r}')
    x, columns, is_vector = as_linear_system("solve_triangular", a, b)
    how = "NTC"[trans] if isinstance(trans, int) else trans
    out = _solve_triangular(x, columns, how=how, lower=bool(lower), unit=bool(unit_diagonal))
    return restore_vector(out, is_vector)


@eager_cached(compiled=True)
def _solve_triangular(a: Array, b: Array, *, how: str, lower: bool, unit: bool) -> Array:
    return triangular_solve(
        *(a, b), left_side=True, lower=lower, transpose_a=how != "N", conjugate_a=how == "C", unit_diagonal=unit
    )


# ------------------------------------------------------------------ Sylvester equation


def solve_sylvester(A: ArrayLike, B: ArrayLike, C: ArrayLike, *, method: str = "schur", tol: float = 1e-8) -> Array:
    """Solves the Sylvester equation `A @ x + x @ B = C`.

    Args:
        A: `f32[..., m, m]`.
        B: `f32[..., n, n]`.
        C: `f32[..., m, n]`.
        method: `"schur"` or `"eigen"`.
        tol: the solution is NaN if it is not unique: if the sum of an eigenvalue of `A` and one of `B` is smaller than
            this.

    Returns:
        The solution, `f32[..., m, n]`.

    Raises:
        ValueError: if `method` is unknown, or shapes do not match.

    >>> import numpy as np
    >>> solve_sylvester(np.array([[1.0]]), np.array([[2.0]]), np.array([[6.0]])).tolist()
    [[2.0]]
    """
    if method not in ("schur", "eigen"):
        raise ValueError(f'solve_sylvester: method must be "schur" or "eigen", got {method!r}')
    values = promote_dtypes("solve_sylvester", A, B, C)
    dtype = inexact_dtype(values[0].aval.dtype)
    a, b, c = [as_array(convert_dtype(v, dtype, v.aval.weak_type)) for v in values]
    m, n = c.shape[-2:] if c.ndim > 1 else (-1, -1)
    if a.shape[-2:] != (m, m) or b.shape[-2:] != (n, n):
        raise ValueError(f"solve_sylvester: A and B must be square and match C, got {a.aval}, {b.aval} and {c.aval}")

    def one(a: Array, b: Array, c: Array) -> Array:
        return _sylvester(a, b, c, method=method, tol=float(tol))

    return map_over_batch("solve_sylvester", one, (a, b, c), (2, 2, 2))


@eager_cached(compiled=True)
def _sylvester(a: Array, b: Array, c: Array, *, method: str, tol: float) -> Array:
    complex_type = complex_dtype(dtypes.real_dtype(c.dtype))
    eigenvalues_a, eigenvalues_b = linalg.eigvals(stop_gradient(a)), linalg.eigvals(stop_gradient(b))
    if method == "schur":
        r, u = schur(a, "complex")
        s, v = schur(adjoint(b), "complex")
        inner = matmul(matmul(adjoint(u), convert(c, complex_type)), v)
        x = matmul(matmul(u, _solve_sylvester_by_rows(r, adjoint(s), inner)), adjoint(v))
    else:
        left, u = linalg.eig(a)
        right, v = linalg.eig(b)
        inner = solve_batched(u, matmul(convert(c, complex_type), v))
        sums = broadcast_columns(left, right.shape[0]) + broadcast_rows(right, left.shape[0])
        x = matmul(matmul(u, inner / sums), linalg.inv(v))
    solution = x if dtypes.is_complex(c.dtype) else x.real
    sums = broadcast_columns(eigenvalues_a, eigenvalues_b.shape[0]) + broadcast_rows(
        eigenvalues_b, eigenvalues_a.shape[0]
    )
    return where(any(absolute(sums) < tol), float("nan"), solution)


def _solve_sylvester_by_rows(r: Array, s: Array, c: Array) -> Array:
    """Solves for upper triangular `r` and lower triangular `s`, row by row from the last one."""
    m, n = c.shape

    def row(k: Array, x: Array) -> Array:
        i = m - 1 - k
        right_side = c[i] - matmul(r[i][None], x)[0]
        shifted = s + r[i, i] * eye(c.dtype, n)
        return x.at[i].set(triangular_solve(shifted, right_side[None], lower=True)[0])

    out: Array = fori_loop(0, m, row, full_like_aval(c.aval, 0))
    return out
