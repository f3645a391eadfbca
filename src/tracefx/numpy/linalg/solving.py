"""Solutions of linear equations, inverses, pseudo-inverses and least squares. Leading axes are batch axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import SupportsIndex

from tracefx.core import Array, ArrayLike, ShapedArray, dtypes
from tracefx.core.handler import as_array
from tracefx.core.literal import cached_literal
from tracefx.errors import ShapeError
from tracefx.numpy.linalg.decompositions import as_matrices, as_square_matrices, svd
from tracefx.numpy.operand_promotion import (
    as_operand,
    broadcast_operand_shapes,
    convert_dtype,
    convert_operand,
    promote_dtypes,
)
from tracefx.numpy.reductions import sum as total
from tracefx.numpy.shapes import moveaxis
from tracefx.numpy.ufuncs import where
from tracefx.ops.elementwise.selection import stop_gradient
from tracefx.ops.linalg.lu import lu, lu_solve
from tracefx.ops.linalg.matrices import adjoint, eye, matmul, symmetrize
from tracefx.ops.shape.shape import expand_dims, squeeze
from tracefx.ops.static_integers import canonicalize_axes, static_int
from tracefx.ops.structural import broadcast_to, convert, full_like_aval, reshape
from tracefx.transforms.custom_derivatives import custom_jvp
from tracefx.transforms.eager_calls import eager_cached
from tracefx.transforms.solvers import custom_linear_solve

# ------------------------------------------------------------------ solve, inv


def promote_inexact_pair(name: str, a: ArrayLike, b: ArrayLike) -> tuple[Array, Array]:
    """Returns two operands promoted to a float or complex dtype."""
    x, y = promote_dtypes(name, a, b, inexact=True)
    return as_array(x), as_array(y)


@eager_cached(compiled=True)
def solve(a: ArrayLike, b: ArrayLike) -> Array:
    """Returns the solution `x` of `a x = b` for square matrices; infinities or NaN where `a` is singular.

    Args:
        a: The matrices, `f32[..., n, n]`.
        b: One vector, `f32[n]`, or matrices, `f32[..., n, k]`.

    Returns:
        The solution, of the shape of `b` with broadcast batch axes.

    Raises:
        ValueError: If the sizes do not fit.

    >>> import numpy as np
    >>> solve(np.array([[2.0, 0.0], [1.0, 1.0]]), np.array([4.0, 3.0])).tolist()
    [2.0, 1.0]
    """
    x, y = promote_inexact_pair("solve", a, b)
    x = as_square_matrices("solve", x)
    n = x.shape[-1]
    if not y.ndim or y.shape[max(y.ndim - 2, 0)] != n:
        raise ValueError(
            f"solve: b must be a vector of {n} numbers or matrices of {n} rows for a of {x.aval}, got {y.aval}"
        )
    return _broadcast_and_solve(x, y)


def _broadcast_and_solve(a: Array, b: Array) -> Array:
    stack = broadcast_operand_shapes("solve", a.shape[:-2], b.shape[:-2])
    columns = expand_dims(b, (1,)) if b.ndim == 1 else b
    a, columns = broadcast_to(a, (*stack, *a.shape[-2:])), broadcast_to(columns, (*stack, *columns.shape[-2:]))
    out = solve_batched(a, columns)
    return squeeze(out, (out.ndim - 1,)) if b.ndim == 1 else out


def solve_batched(a: Array, b: Array) -> Array:
    """Solves equations for batches of matrices of one shape and dtype."""
    factors, _, permutation = lu(stop_gradient(a))

    def product(x: Array) -> Array:
        return matmul(a, x)

    def solve_(_: object, y: Array) -> Array:
        return lu_solve(factors, permutation, y)

    def transposed_solve(_: object, y: Array) -> Array:
        return lu_solve(factors, permutation, y, trans=1)

    out: Array = custom_linear_solve(product, b, solve_, transposed_solve)
    return out


@eager_cached(compiled=True)
def inv(a: ArrayLike) -> Array:
    """Returns the inverses of square matrices; infinities or NaN where one is singular.

    Args:
        a: The matrices, `f32[..., n, n]`.

    Returns:
        The inverses, `f32[..., n, n]`.

    Raises:
        ValueError: If the matrices are not square.

    >>> import numpy as np
    >>> inv(np.array([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    x = as_square_matrices("inv", a)
    one = eye(x.dtype, x.shape[-1], stack=x.shape[:-2])
    return solve_batched(x, as_array(convert_dtype(one, x.dtype, x.weak_type)))


@eager_cached(compiled=True)
def matrix_power(a: ArrayLike, n: SupportsIndex) -> Array:
    """Returns powers of square matrices; for negative exponents, of their inverses.

    Args:
        a: The matrices, `f32[..., n, n]`.
        n: The exponent, a static integer.

    Returns:
        The powers, an array of the shape of `a`.

    Raises:
        ValueError: If the matrices are not square.
        TypeError: If `n` is not a static integer.

    >>> import numpy as np
    >>> matrix_power(np.array([[1.0, 1.0], [0.0, 1.0]]), 3).tolist()
    [[1.0, 3.0], [0.0, 1.0]]
    """
    count = static_int("matrix_power", n, "n")
    x = as_array(as_operand(a, "matrix_power: a"))
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"matrix_power takes square matrices, got {x.aval}")
    if count < 0:
        x, count = inv(x), -count
    if count == 0:
        return eye(x.dtype, x.shape[-1], stack=x.shape[:-2])
    out: Array | None = None
    while True:
        count, odd = divmod(count, 2)
        if odd:
            out = x if out is None else out @ x
        if not count:
            assert out is not None
            return out
        x = x @ x


# ------------------------------------------------------------------ tensor equations


def tensorinv(a: ArrayLike, ind: SupportsIndex = 2) -> Array:
    """Returns the inverse of a tensor with respect to `tensordot` over its first `ind` axes.

    Args:
        a: The tensor.
        ind: The number of axes, positive.

    Returns:
        The inverse, with the other axes of `a` before the first `ind`.

    Raises:
        ValueError: If `ind` is not positive, or the first `ind` axes do not have as many elements as the others.

    >>> import numpy as np
    >>> tensorinv(np.eye(6).reshape(2, 3, 6)).shape
    (6, 2, 3)
    """
    x, count = as_array(as_operand(a, "tensorinv: a")), static_int("tensorinv", ind, "ind")
    if count <= 0:
        raise ValueError(f"tensorinv: ind must be positive, got {count}")
    first, remaining = x.shape[:count], x.shape[count:]
    if math.prod(first) != math.prod(remaining):
        raise ValueError(f"tensorinv: the first {count} axes of {x.aval} must have as many elements as the others")
    return reshape(inv(reshape(x, (math.prod(first), math.prod(remaining)))), (*remaining, *first))


def tensorsolve(a: ArrayLike, b: ArrayLike, axes: Sequence[int] | None = None) -> Array:
    """Returns the solution `x` of `tensordot(a, x, x.ndim) = b`.

    Args:
        a: The tensor, whose first axes are those of `b`, and whose other axes have as many elements.
        b: The right-hand side.
        axes: Axes of `a` to move to the end first; None means none.

    Returns:
        The solution, with the other axes of `a`.

    Raises:
        ValueError: If the shapes do not fit.

    >>> import numpy as np
    >>> tensorsolve(np.eye(6).reshape(2, 3, 6), np.ones((2, 3))).shape
    (6,)
    """
    x, y = as_array(as_operand(a, "tensorsolve: a")), as_array(as_operand(b, "tensorsolve: b"))
    if axes is not None:
        last = canonicalize_axes("tensorsolve", axes, x.ndim, "axes")
        x = moveaxis(x, last, tuple(range(x.ndim - len(last), x.ndim)))
    sizes = x.shape[y.ndim :]
    if x.shape[: y.ndim] != y.shape or math.prod(sizes) != y.size:
        raise ValueError(
            f"tensorsolve: the first axes of a must be those of b, and the others have as many elements, got {x.aval} "
            f"and {y.aval}"
        )
    return reshape(solve(reshape(x, (y.size, y.size)), reshape(y, (y.size,))), sizes)


# ------------------------------------------------------------------ pinv


def pinv(
    a: ArrayLike, rtol: ArrayLike | None = None, hermitian: bool = False, *, rcond: ArrayLike | None = None
) -> Array:
    """Returns the pseudo-inverse of matrices.

    Args:
        a: The matrices, `f32[..., m, n]`.
        rtol: The size, relative to the largest, up to which singular values count as zero; None means 10 times the
            machine epsilon times `max(m, n)`.
        hermitian: Whether the matrices are Hermitian, which are decomposed by their eigenvalues.
        rcond: Another name of `rtol`.

    Returns:
        The pseudo-inverses, `f32[..., n, m]`.

    Raises:
        ValueError: If `rtol` and `rcond` are both given.

    >>> import numpy as np
    >>> pinv(np.array([[2.0, 0.0], [0.0, 0.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.0]]
    """
    if rcond is not None:
        if rtol is not None:
            raise ValueError("pinv: rtol and rcond mean the same; pass one of them")
        rtol = rcond
    x = as_matrices("pinv", a)
    if not x.size:
        return full_like_aval(x.aval.update(shape=(*x.shape[:-2], x.shape[-1], x.shape[-2])), 0)
    if rtol is None:
        return _pinv(x, hermitian=bool(hermitian))
    return _pinv(
        x, as_array(convert_operand(rtol, dtypes.real_dtype(x.dtype), what="pinv: rtol")), hermitian=bool(hermitian)
    )


@eager_cached(compiled=True)
def _pinv(x: Array, rtol: Array | None = None, *, hermitian: bool) -> Array:
    if rtol is None:
        rtol = as_array(cached_literal(10.0 * max(x.shape[-2:]) * _eps(x), ShapedArray((), dtypes.real_dtype(x.dtype))))
    out: Array = _pseudo_inverse(hermitian, x, stop_gradient(rtol))
    return out


def _eps(x: Array) -> float:
    return float(dtypes.finfo(x.dtype).eps)


def _pseudo_inverse_primal(hermitian: bool, x: Array, rtol: Array) -> Array:
    u, s, vh = svd(x, full_matrices=False, hermitian=hermitian)
    cutoff = rtol[..., None] * s[..., :1]
    kept = where(s > cutoff, s, math.inf)
    return adjoint(vh) @ (adjoint(u) / convert(kept, x.dtype)[..., None])


_pseudo_inverse = custom_jvp(_pseudo_inverse_primal, nondiff_argnums=(0,))


@_pseudo_inverse.defjvp
def _pseudo_inverse_jvp(
    hermitian: bool, primals: tuple[Array, Array], tangents: tuple[Array, Array]
) -> tuple[Array, Array]:
    (a, rtol), (t, _) = primals, tangents
    p: Array = _pseudo_inverse(hermitian, a, rtol)
    if hermitian:
        a, t = symmetrize(a), symmetrize(t)
    ph, th = adjoint(p), adjoint(t)
    if a.shape[-2] >= a.shape[-1]:
        left, right = (p @ ph) @ th, (th @ ph) @ p
        return p, -(p @ t) @ p + left - (left @ a) @ p + right - (p @ a) @ right
    left, right = p @ (ph @ th), th @ (ph @ p)
    return p, -p @ (t @ p) + left - left @ (a @ p) + right - p @ (a @ right)


# ------------------------------------------------------------------ lstsq


def lstsq(
    a: ArrayLike, b: ArrayLike, rcond: ArrayLike | None = None, *, numpy_resid: bool = False
) -> tuple[Array, Array, Array, Array]:
    """Returns the least-squares solution `x` of `a x = b`; of several, the one with the least norm.

    Args:
        a: A matrix, `f32[m, n]`.
        b: A vector, `f32[m]`, or a matrix, `f32[m, k]`.
        rcond: The size, relative to the largest, below which singular values count as zero; None means the machine
            epsilon times `max(m, n)`.
        numpy_resid: Whether to return empty residuals where NumPy does, which needs a concrete rank.

    Returns:
        `x`, the squared residuals of the columns, the rank of `a`, and its singular values.

    Raises:
        ValueError: If the numbers of rows differ.
        TypeError: If an operand has another number of axes.

    >>> import numpy as np
    >>> lstsq(np.array([[1.0], [1.0]]), np.array([1.0, 3.0]))[0].round(3).tolist()
    [2.0]
    """
    x, y = promote_inexact_pair("lstsq", a, b)
    if x.ndim and y.ndim and x.shape[0] != y.shape[0]:
        raise ValueError(f"lstsq: a and b must have as many rows, got {x.aval} and {y.aval}")
    if x.ndim != 2 or y.ndim not in (1, 2):
        raise TypeError(f"lstsq: a must be a matrix and b a vector or a matrix, got {x.aval} and {y.aval}")
    m, n = x.shape
    part = dtypes.real_dtype(x.dtype)
    if rcond is None:
        nearest, distances, rank, s = _least_squares(x, y)
    else:
        nearest, distances, rank, s = _least_squares(x, y, as_array(convert_operand(rcond, part, what="lstsq: rcond")))
    if numpy_resid and (int(rank) < n or m <= n):
        distances = full_like_aval(ShapedArray((0,), part), 0)
    return nearest, distances, rank, s


@eager_cached(compiled=True)
def _least_squares(a: Array, b: Array, rcond: Array | None = None) -> tuple[Array, Array, Array, Array]:
    columns = b[:, None] if b.ndim == 1 else b
    if a.size:
        cut = _eps(a) * max(a.shape) if rcond is None else where(rcond < 0, _eps(a), rcond)
        u, s, vh = svd(a, full_matrices=False)
        kept = (s > 0) & (s >= cut * s[0])
        inverse = where(kept, 1.0 / where(kept, s, 1.0), 0.0)
        x = adjoint(vh) @ (convert(inverse, a.dtype)[:, None] * (adjoint(u) @ columns))
        rank = total(kept)
    else:
        x = full_like_aval(columns.aval.update(shape=(a.shape[1], columns.shape[1])), 0)
        s = full_like_aval(ShapedArray((0,), dtypes.real_dtype(a.dtype)), 0)
        rank = full_like_aval(ShapedArray((), dtypes.default_int()), 0)
    residuals = columns - a @ x
    return reshape(x, (a.shape[1],)) if b.ndim == 1 else x, total((residuals * residuals.conj()).real, axis=0), rank, s
