"""Solutions of matrix equations. Leading axes are a batch."""

from __future__ import annotations

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.handler import as_array
from tracefx.numpy import linalg
from tracefx.numpy.linalg.solving import solved
from tracefx.numpy.promoting import converted, inexact_dtype, retyped
from tracefx.numpy.reductions import any
from tracefx.numpy.ufuncs import absolute, where
from tracefx.ops.basis import convert, full
from tracefx.ops.complex import complex_dtype
from tracefx.ops.linalg.matrices import adjoint, as_columns, as_rows, eye, matmul
from tracefx.ops.linalg.triangular import triangular_solve
from tracefx.ops.selection import stop_gradient
from tracefx.scipy.linalg.factors import _cho_solve, _cholesky, schur
from tracefx.scipy.linalg.stacks import as_given, over_stack, system
from tracefx.transforms.at_once import at_once
from tracefx.transforms.loops import fori_loop
from tracefx.transforms.solvers import custom_linear_solve


def det(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """The determinants of square matrices.

    >>> import numpy as np
    >>> det(np.array([[1.0, 2.0], [3.0, 4.0]]))
    Array(-2., dtype=float32)
    """
    return linalg.det(a)


def inv(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """The inverses of square matrices.

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
    """The `x` for which `a x` is `b`. If `assume_a` is "pos", `a` is Hermitian and positive definite, and only its
    triangle `lower` is read; "sym" and "her" are as "gen".

    >>> import numpy as np
    >>> solve(np.array([[4.0, 2.0], [2.0, 5.0]]), np.array([8.0, 8.0]), assume_a="pos").tolist()
    [1.5, 1.0]
    """
    if assume_a not in ("gen", "sym", "her", "pos"):
        raise ValueError(f'solve: assume_a must be "gen", "sym", "her" or "pos", got {assume_a!r}')
    if assume_a != "pos":
        return linalg.solve(a, b)
    x, columns, is_vector = system("solve", a, b)
    return as_given(_positive(x, columns, lower=bool(lower)), is_vector)


@at_once
def _positive(a: Array, b: Array, *, lower: bool) -> Array:
    factor = _cholesky(stop_gradient(a), lower=lower)

    def product(x: Array) -> Array:
        return matmul(a, x)

    def find(_: object, y: Array) -> Array:
        return _cho_solve(factor, y, lower=lower)

    def find_conjugate(_: object, y: Array) -> Array:  # the transpose of a Hermitian matrix is its conjugate
        return find(_, y.conj()).conj()

    out: Array = custom_linear_solve(product, b, find, find_conjugate)
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
    """The `x` for which `a x` is `b`, where `a` is triangular; for `trans` 1 ("T") and 2 ("C") with its transpose and
    conjugate transpose.

    >>> import numpy as np
    >>> solve_triangular(np.array([[2.0, 0.0], [1.0, 1.0]]), np.array([4.0, 3.0]), lower=True).tolist()
    [2.0, 1.0]
    """
    if trans not in (0, 1, 2, "N", "T", "C"):
        raise ValueError(f'solve_triangular: trans must be 0, 1, 2, "N", "T" or "C", got {trans!r}')
    x, columns, is_vector = system("solve_triangular", a, b)
    how = "NTC"[trans] if isinstance(trans, int) else trans
    out = _triangular(x, columns, how=how, lower=bool(lower), unit=bool(unit_diagonal))
    return as_given(out, is_vector)


@at_once
def _triangular(a: Array, b: Array, *, how: str, lower: bool, unit: bool) -> Array:
    return triangular_solve(
        *(a, b), left_side=True, lower=lower, transpose_a=how != "N", conjugate_a=how == "C", unit_diagonal=unit
    )


# ------------------------------------------------------------------ sylvester


def solve_sylvester(A: ArrayLike, B: ArrayLike, C: ArrayLike, *, method: str = "schur", tol: float = 1e-8) -> Array:
    """The `x` for which `A x + x B` is `C`: `f32[..., m, m]`, `f32[..., n, n]` and `f32[..., m, n]`.

    By `method` "schur" or "eigen". NaN where there is more than one: where an eigenvalue of `A` and one of `B` add up
    to less than `tol`.

    >>> import numpy as np
    >>> solve_sylvester(np.array([[1.0]]), np.array([[2.0]]), np.array([[6.0]])).tolist()
    [[2.0]]
    """
    if method not in ("schur", "eigen"):
        raise ValueError(f'solve_sylvester: method must be "schur" or "eigen", got {method!r}')
    values = converted("solve_sylvester", A, B, C)
    dtype = inexact_dtype(values[0].aval.dtype)
    a, b, c = [as_array(retyped(v, dtype, v.aval.weak_type)) for v in values]
    m, n = c.shape[-2:] if c.ndim > 1 else (-1, -1)
    if a.shape[-2:] != (m, m) or b.shape[-2:] != (n, n):
        raise ValueError(f"solve_sylvester: A and B must be square and fit C, got {a.aval}, {b.aval} and {c.aval}")

    def one(a: Array, b: Array, c: Array) -> Array:
        return _sylvester(a, b, c, method=method, tol=float(tol))

    return over_stack("solve_sylvester", one, (a, b, c), (2, 2, 2))


@at_once
def _sylvester(a: Array, b: Array, c: Array, *, method: str, tol: float) -> Array:
    wide = complex_dtype(dtypes.real_dtype(c.dtype))
    of_a, of_b = linalg.eigvals(stop_gradient(a)), linalg.eigvals(stop_gradient(b))
    if method == "schur":
        r, u = schur(a, "complex")
        s, v = schur(adjoint(b), "complex")
        inner = matmul(matmul(adjoint(u), convert(c, wide)), v)
        x = matmul(matmul(u, _by_rows(r, adjoint(s), inner)), adjoint(v))
    else:
        left, u = linalg.eig(a)
        right, v = linalg.eig(b)
        inner = solved(u, matmul(convert(c, wide), v))
        sums = as_columns(left, right.shape[0]) + as_rows(right, left.shape[0])
        x = matmul(matmul(u, inner / sums), linalg.inv(v))
    found = x if dtypes.is_complex(c.dtype) else x.real
    sums = as_columns(of_a, of_b.shape[0]) + as_rows(of_b, of_a.shape[0])
    return where(any(absolute(sums) < tol), float("nan"), found)


def _by_rows(r: Array, s: Array, c: Array) -> Array:
    """The solution for upper triangular `r` and lower triangular `s`: from the last row up, each by an equation."""
    m, n = c.shape

    def row(k: Array, x: Array) -> Array:
        i = m - 1 - k
        rest = c[i] - matmul(r[i][None], x)[0]
        shifted = s + r[i, i] * eye(c.dtype, n)
        return x.at[i].set(triangular_solve(shifted, rest[None], lower=True)[0])

    out: Array = fori_loop(0, m, row, full(c.aval, 0))
    return out
