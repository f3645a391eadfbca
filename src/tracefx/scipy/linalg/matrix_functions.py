"""Matrix functions: exponential, square root, arbitrary functions; and polar decompositions."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Final

from tracefx import numpy as fnp
from tracefx.core import Array, ArrayLike, dtypes
from tracefx.core.handler import as_array
from tracefx.lax.polar import qdwh
from tracefx.numpy.linalg.solving import promote_inexact_pair, solve_batched
from tracefx.ops.elementwise.complex import complex_dtype
from tracefx.ops.elementwise.selection import stop_gradient
from tracefx.ops.indexing.dynamic_slicing import dynamic_slice, dynamic_update_slice
from tracefx.ops.linalg import svd as svd_operations
from tracefx.ops.linalg.matrices import adjoint, diagonal, diagonal_mask, eye, matmul, triu
from tracefx.ops.linalg.triangular_solve import triangular_solve
from tracefx.ops.structural import convert, full_like_aval
from tracefx.scipy.linalg.batching import as_matrix, as_square_matrix, map_over_batch
from tracefx.scipy.linalg.factorizations import schur
from tracefx.transforms.conditionals import cond, switch
from tracefx.transforms.differentiation import jvp
from tracefx.transforms.eager_calls import eager_cached
from tracefx.transforms.loops import fori_loop
from tracefx.transforms.scans import scan

# ------------------------------------------------------------------ expm

_PADE_NUMERATORS: Final = {
    3: (120.0, 60.0, 12.0, 1.0),
    5: (30240.0, 15120.0, 3360.0, 420.0, 30.0, 1.0),
    7: (17297280.0, 8648640.0, 1995840.0, 277200.0, 25200.0, 1512.0, 56.0, 1.0),
    9: (
        *(17643225600.0, 8821612800.0, 2075673600.0, 302702400.0, 30270240.0, 2162160.0, 110880.0, 3960.0),
        *(90.0, 1.0),
    ),
    13: (
        *(64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0),
        *(10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0),
    ),
}
"""Numerators of the Padé approximants of the exponential, by degree."""
_BOUNDS: Final = {
    4: ((0.4258730016922831, 1.880152677804762), 3.92572478313866),
    8: ((0.01495585217958292, 0.253939833006323, 0.9504178996162932, 2.097847961257068), 5.371920351148152),
}
"""By the size of a real number in bytes: the norms up to which each degree is exact, and the norm to scale down to."""


def expm(A: ArrayLike, *, upper_triangular: bool = False, max_squarings: int = 16) -> Array:
    """Computes matrix exponentials, by a Padé approximation of a scaled matrix followed by repeated squaring.

    Args:
        A: `f32[..., n, n]`.
        upper_triangular: whether the matrices are upper triangular, which simplifies the linear solve.
        max_squarings: the maximum number of squarings; the result is NaN where more are needed.

    Returns:
        `f32[..., n, n]`.

    Raises:
        ShapeError: if `A` is not square.
        TypeError: if the dtype is not float32, float64, complex64 or complex128.

    >>> import numpy as np
    >>> expm(np.array([[0.0, 1.0], [0.0, 0.0]])).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    x = as_square_matrix("expm", A)
    if dtypes.real_dtype(x.dtype).itemsize not in _BOUNDS:
        raise TypeError(f"expm takes float32, float64, complex64 or complex128, got {x.aval}")

    def one(x: Array) -> Array:
        return _expm(x, upper=bool(upper_triangular), most=int(max_squarings))

    return map_over_batch("expm", one, (x,), (2,))


@eager_cached(compiled=True)
def _expm(x: Array, *, upper: bool, most: int) -> Array:
    bounds, largest = _BOUNDS[dtypes.real_dtype(x.dtype).itemsize]
    size = stop_gradient(fnp.linalg.norm(x, 1))
    halvings = fnp.maximum(fnp.floor(fnp.log2(size / largest)), 0.0)
    x = x / convert(2.0**halvings, x.dtype)
    degrees = (3, 5, 7) if len(bounds) == 2 else (3, 5, 7, 9, 13)
    choice = fnp.sum(size >= fnp.array(bounds, dtype=size.dtype))
    odd, even = switch(choice, [functools.partial(_pade, degree) for degree in degrees], x)
    above, below = even + odd, even - odd
    start = triangular_solve(below, above, left_side=True) if upper else solve_batched(below, above)

    def squared(y: Array, i: Array) -> tuple[Array, None]:
        return cond(i < halvings, lambda y: matmul(y, y), lambda y: y, y), None

    out, _ = scan(squared, start, fnp.arange(most))
    return fnp.where(halvings > most, math.nan, out)


def _pade(degree: int, x: Array) -> tuple[Array, Array]:
    """Returns the odd and the even terms of the numerator."""
    b = _PADE_NUMERATORS[degree]
    one, square = eye(x.dtype, x.shape[-1]), matmul(x, x)
    powers = [one, square]
    while len(powers) < (4 if degree == 13 else (degree + 1) // 2):
        powers.append(matmul(powers[-1], square))
    odd = _weighted_sum(powers, b[1::2])
    even = _weighted_sum(powers, b[::2])
    if degree == 13:  # the higher powers share a factor
        odd += matmul(powers[3], _weighted_sum(powers[1:], b[9::2]))
        even += matmul(powers[3], _weighted_sum(powers[1:], b[8::2]))
    return matmul(x, odd), even


def _weighted_sum(powers: Sequence[Array], weights: Sequence[float]) -> Array:
    terms = [power * weight for power, weight in zip(powers, weights, strict=False)]
    return functools.reduce(operator.add, terms)


def expm_frechet(
    A: ArrayLike, E: ArrayLike, *, method: str | None = None, compute_expm: bool = True
) -> Array | tuple[Array, Array]:
    """Computes the matrix exponential and its Fréchet derivative in a direction.

    Args:
        A: `f32[..., n, n]`, the point.
        E: `f32[..., n, n]`, the direction.
        method: accepted for compatibility with SciPy; it has no effect.
        compute_expm: whether to return the exponential too.

    Returns:
        The exponential and the derivative, or only the derivative.

    Raises:
        ValueError: if the matrices are not square or differ in shape.

    >>> import numpy as np
    >>> expm_frechet(np.zeros((1, 1)), np.ones((1, 1)), compute_expm=False).tolist()
    [[1.0]]
    """
    x, t = promote_inexact_pair("expm_frechet", A, E)
    if x.shape != t.shape or x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"expm_frechet takes two square matrices of one size, got {x.aval} and {t.aval}")
    out, rate = jvp(expm, (x,), (t,))
    return (out, rate) if compute_expm else rate


# ------------------------------------------------------------------ sqrtm, funm


def sqrtm(A: ArrayLike, blocksize: int = 1) -> Array:
    """Computes the principal square roots of matrices.

    Args:
        A: `f32[..., n, n]`.
        blocksize: must be 1: the algorithm is not blocked.

    Returns:
        `c64[..., n, n]`.

    Raises:
        NotImplementedError: if `blocksize` is greater than 1.
        ShapeError: if `A` is not square.

    >>> import numpy as np
    >>> sqrtm(np.array([[4.0, 0.0], [0.0, 9.0]])).real.tolist()
    [[2.0, 0.0], [0.0, 3.0]]
    """
    if blocksize > 1:
        raise NotImplementedError(f"sqrtm is not blocked: blocksize must be 1, got {blocksize}")
    return map_over_batch("sqrtm", _sqrtm, (as_square_matrix("sqrtm", A),), (2,))


@eager_cached(compiled=True)
def _sqrtm(x: Array) -> Array:
    t, z = schur(x, "complex")
    roots = fnp.sqrt(diagonal(t))
    n = x.shape[-1]

    def column(j: Array, u: Array) -> Array:
        def element(k: Array, u: Array) -> Array:
            i = j - 1 - k
            partial_sum = fnp.sum(u[i] * u[:, j])
            entry = fnp.where(t[i, j] == partial_sum, 0.0, (t[i, j] - partial_sum) / (roots[i] + roots[j]))
            return u.at[i, j].set(entry)

        updated: Array = fori_loop(0, j, element, u)
        return updated

    u = fnp.where(diagonal_mask(t.shape), roots, 0.0)
    if n:
        u = fori_loop(0, n, column, u)
    return matmul(matmul(z, u), adjoint(z))


def funm(A: ArrayLike, func: Callable[[Array], Array], disp: bool = True) -> Array | tuple[Array, Array]:
    """Computes an arbitrary function of a square matrix, by the Schur-Parlett method.

    The result is inaccurate where eigenvalues are nearly equal.

    Args:
        A: `f32[n, n]`.
        func: the function, applied to a vector of eigenvalues.
        disp: whether to return the result only; otherwise an error estimate is returned too.

    Returns:
        `c64[n, n]`, and unless `disp` an error estimate, `f32[]`.

    Raises:
        ShapeError: if `A` is not square.
        ValueError: if `A` is a batch of matrices.

    >>> import numpy as np
    >>> funm(np.array([[1.0, 0.0], [0.0, 2.0]]), lambda x: x * x).real.tolist()
    [[1.0, 0.0], [0.0, 4.0]]
    """
    x = as_square_matrix("funm", A)
    if x.ndim != 2:
        raise ValueError(f"funm takes one matrix, got {x.aval}")
    t, z = rsf2csf(*schur(x))
    n = x.shape[-1]
    values = diagonal(t)
    start = fnp.where(diagonal_mask(t.shape), convert(as_array(func(values)), t.dtype), 0.0)
    smallest_gap: Array = full_like_aval(values.aval.update(shape=(), dtype=dtypes.real_dtype(t.dtype)), 0) + abs(
        values[0]
    )

    def entry(k: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        """Computes one element above the diagonal, in the order of distance from it."""
        f, smallest_gap = state
        i, j = indices[k, 0], indices[k, 1]
        inner = fnp.sum(fnp.where(between(i, j), t[i] * f[:, j] - f[i] * t[:, j], 0.0))
        numerator = t[i, j] * (f[j, j] - f[i, i]) + inner
        eigenvalue_gap = t[j, j] - t[i, i]
        f = f.at[i, j].set(
            fnp.where(eigenvalue_gap != 0, numerator / fnp.where(eigenvalue_gap != 0, eigenvalue_gap, 1.0), numerator)
        )
        return f, fnp.minimum(smallest_gap, abs(eigenvalue_gap))

    def between(i: Array, j: Array) -> Array:
        k = fnp.arange(n)
        return (k > i) & (k < j)

    order = [(i, i + p) for p in range(1, n) for i in range(n - p)]
    indices = fnp.array(order if order else [(0, 0)])
    f, smallest_gap = fori_loop(0, len(order), entry, (start, smallest_gap))
    out = matmul(matmul(z, f), adjoint(z))
    if disp:
        return out
    tol = float(dtypes.finfo(t.dtype).eps)
    size = fnp.linalg.norm(triu(t, 1), 1)
    error = fnp.clip(tol / fnp.where(smallest_gap == 0, tol, smallest_gap) * size, tol, 1.0)
    return out, fnp.where(fnp.any(fnp.isinf(out)), math.inf, error)


def rsf2csf(T: ArrayLike, Z: ArrayLike, check_finite: bool = True) -> tuple[Array, Array]:
    """Converts a real Schur decomposition to a complex one, whose `t` is triangular.

    Args:
        T: `f32[..., n, n]`, as returned by `schur`.
        Z: `f32[..., n, n]`, as returned by `schur`.
        check_finite: accepted for compatibility with SciPy; it has no effect.

    Returns:
        `t` and `z`, `c64[..., n, n]`, with the same product `z @ t @ z^H`.

    Raises:
        ValueError: if the matrices are not square or differ in size.

    >>> import numpy as np
    >>> rsf2csf(np.array([[1.0, 2.0], [0.0, 3.0]]), np.eye(2))[0].real.tolist()
    [[1.0, 2.0], [0.0, 3.0]]
    """
    t, z = promote_inexact_pair("rsf2csf", T, Z)
    for x in (t, z):
        if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
            raise ValueError(f"rsf2csf takes square matrices, got {x.aval}")
    if t.shape[-1] != z.shape[-1]:
        raise ValueError(f"rsf2csf takes matrices of equal size, got {t.aval} and {z.aval}")
    wide = complex_dtype(dtypes.real_dtype(t.dtype))
    return map_over_batch("rsf2csf", _triangular, (convert(t, wide), convert(z, wide)), (2, 2))


@eager_cached(compiled=True)
def _triangular(t: Array, z: Array) -> tuple[Array, Array]:
    """Rotates each 2x2 block of the diagonal to triangular form."""
    n, eps = t.shape[-1], float(dtypes.finfo(t.dtype).eps)
    if n < 2:
        return t, z

    def rotate_block(m: Array, t: Array, z: Array) -> tuple[Array, Array]:
        """Zeroes the element below the diagonal at row `m` by a Givens rotation."""
        block = dynamic_slice(t, (m - 1, m - 1), (2, 2))
        low = t[m, m - 1]
        value = fnp.linalg.eigvals(block)[0] - t[m, m]
        length = convert(fnp.sqrt(abs(value) ** 2 + abs(low) ** 2), t.dtype)
        c, s = value / length, low / length
        rotation = fnp.stack([fnp.stack([c.conj(), s]), fnp.stack([-s, c])])
        index = fnp.arange(n)
        rows = dynamic_slice(t, (m - 1, 0), (2, n))
        t = dynamic_update_slice(t, fnp.where(index >= m - 1, matmul(rotation, rows), rows), (m - 1, 0))
        columns = dynamic_slice(t, (0, m - 1), (n, 2))
        inverse_rotation = adjoint(rotation)
        t = dynamic_update_slice(
            t, fnp.where(index[:, None] < m + 1, matmul(columns, inverse_rotation), columns), (0, m - 1)
        )
        vectors = dynamic_slice(z, (0, m - 1), (n, 2))
        return t, dynamic_update_slice(z, matmul(vectors, inverse_rotation), (0, m - 1))

    def step(i: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        m = n - i
        t, z = state
        is_block = abs(t[m, m - 1]) > eps * (abs(t[m - 1, m - 1]) + abs(t[m, m]))
        t, z = cond(is_block, rotate_block, lambda m, t, z: (t, z), m, t, z)
        return t.at[m, m - 1].set(0.0), z

    out: tuple[Array, Array] = fori_loop(1, n, step, (t, z))
    return out


# ------------------------------------------------------------------ polar decomposition


def polar(
    a: ArrayLike,
    side: str = "right",
    *,
    method: str = "qdwh",
    eps: float | None = None,
    max_iterations: int | None = None,
) -> tuple[Array, Array]:
    """Computes polar decompositions: `a = u @ p`, or `a = p @ u` for the left side.

    Args:
        a: `f32[..., m, n]`.
        side: `"right"` or `"left"`.
        method: `"qdwh"`, an iteration, for matrices with `m >= n` (for the left side `m < n`); or `"svd"`.
        eps: the tolerance of the iteration; by default the machine epsilon of the dtype.
        max_iterations: the maximum number of iterations; 10 by default.

    Returns:
        `u` with orthonormal columns or rows (`f32[..., m, n]`), and Hermitian positive semidefinite `p`.

    Raises:
        NotImplementedError: if `method` is `"qdwh"` and the shape is not supported.
        ValueError: if `side` or `method` is unknown.

    >>> import numpy as np
    >>> polar(np.array([[0.0, 2.0], [1.0, 0.0]]), method="svd")[0].round(3).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    x = as_matrix("polar", a)
    if side not in ("right", "left"):
        raise ValueError(f'polar: side must be "right" or "left", got {side!r}')
    if method not in ("qdwh", "svd"):
        raise ValueError(f'polar: method must be "qdwh" or "svd", got {method!r}')
    m, n = x.shape[-2:]
    if method == "qdwh" and (m >= n) != (side == "right"):
        raise NotImplementedError(
            f'polar: method "qdwh" is for matrices with no more columns than rows for side "right", and with more for '
            f'"left", got {x.aval}; use "svd"'
        )

    def one(x: Array) -> tuple[Array, Array]:
        return _polar(x, right=side == "right", by_svd=method == "svd", eps=eps, most=max_iterations)

    return map_over_batch("polar", one, (x,), (2,))


@eager_cached(compiled=True)
def _polar(x: Array, *, right: bool, by_svd: bool, eps: float | None, most: int | None) -> tuple[Array, Array]:
    if not by_svd:
        u, h, _, _ = qdwh(x if right else adjoint(x), eps=eps, max_iterations=most)
        return (u, h) if right else (adjoint(u), adjoint(h))
    u, s, vh = svd_operations.svd(x, full_matrices=False)
    sizes = convert(s, x.dtype)
    if right:
        return matmul(u, vh), matmul(adjoint(vh) * sizes, vh)
    return matmul(u, vh), matmul(u * sizes, adjoint(u))
