"""Determinants and their logarithms, with derivatives at singular matrices too. Leading axes are batch axes."""

from __future__ import annotations

from typing import NamedTuple

from tracefx.core import Array, ArrayLike, dtypes
from tracefx.numpy.joining import concatenate
from tracefx.numpy.linalg.decompositions import as_square_matrices
from tracefx.numpy.linalg.solving import solve_batched
from tracefx.numpy.logic import isfinite
from tracefx.numpy.reductions import all, cumprod, prod
from tracefx.numpy.reductions import sum as total
from tracefx.numpy.transcendentals import exp, log
from tracefx.numpy.ufuncs import absolute, sign, where
from tracefx.ops.elementwise.complex import complex
from tracefx.ops.elementwise.selection import stop_gradient
from tracefx.ops.linalg.lu import lu, unpermute_rows
from tracefx.ops.linalg.matrices import adjoint, diagonal, diagonal_mask, eye, lower_mask, matmul
from tracefx.ops.linalg.qr import geqrf, qr
from tracefx.ops.linalg.triangular_solve import triangular_solve
from tracefx.ops.shape.array_creation import broadcasted_iota
from tracefx.ops.structural import convert, full_like_aval
from tracefx.transforms.custom_derivatives import custom_jvp
from tracefx.transforms.eager_calls import eager_cached


class SlogdetResult(NamedTuple):
    """The results of `slogdet`."""

    sign: Array
    logabsdet: Array


# ------------------------------------------------------------------ det


@eager_cached(compiled=True)
def det(a: ArrayLike) -> Array:
    """Returns the determinants of square matrices. Derivatives are right for singular matrices too.

    Args:
        a: The matrices, `f32[..., n, n]`.

    Returns:
        The determinants, `f32[...]`.

    Raises:
        ValueError: If the matrices are not square.

    >>> import numpy as np
    >>> det(np.array([[1.0, 2.0], [3.0, 4.0]]))
    Array(-2., dtype=float32)
    """
    x = as_square_matrices("det", a)
    n = x.shape[-1]
    if n == 1:
        return x[..., 0, 0]
    if n == 2:
        return x[..., 0, 0] * x[..., 1, 1] - x[..., 0, 1] * x[..., 1, 0]
    if n == 3:
        minors = [x[..., 1, j] * x[..., 2, k] - x[..., 1, k] * x[..., 2, j] for j, k in ((1, 2), (2, 0), (0, 1))]
        return x[..., 0, 0] * minors[0] + x[..., 0, 1] * minors[1] + x[..., 0, 2] * minors[2]
    out: Array = _determinant(x)
    return out


@custom_jvp
def _determinant(a: Array) -> Array:
    direction, logarithm = _by_lu(a)
    return direction * convert(exp(logarithm), a.dtype)


@_determinant.defjvp
def _determinant_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (a,), (t,) = primals, tangents
    return _determinant(a), total(diagonal(_adjugate_times(a, t)), axis=-1)


def _adjugate_times(a: Array, b: Array) -> Array:
    """Returns `det(a) a^-1 b` without division by the last pivot, which is zero if the rank is deficient by one.

    The pivots of the pivoted QR decomposition decrease, so no other is zero then. If more than one is, the result is 0.
    """
    n = a.shape[-1]
    if n <= 1:
        return b
    q, r, order = qr(a, pivoting=True)
    direction, _ = _logarithm(False, q)
    partial_products = cumprod(diagonal(r), axis=-1) * (direction * _permutation_sign(order, a))[..., None]
    value, previous = partial_products[..., -1], partial_products[..., -2]
    last = diagonal_mask(a.shape) & (broadcasted_iota(dtypes.int32, a.shape, a.ndim - 1) == n - 1)
    upper = where(last, (1.0 / previous)[..., None, None], r)
    column = triangular_solve(upper, full_like_aval(a.aval.update(shape=(*a.shape[:-1], 1)), 1), left_side=True)
    deficient = ~all(isfinite(stop_gradient(column)), axis=(-2, -1), keepdims=True) & all(
        isfinite(stop_gradient(a)), axis=(-2, -1), keepdims=True
    )
    upper, b = where(deficient, eye(a.dtype, n), upper), where(deficient, 0.0, b)
    x = matmul(adjoint(q), b)
    x = concatenate([x[..., :-1, :] * value[..., None, None], x[..., -1:, :]], axis=-2)
    return unpermute_rows(triangular_solve(upper, x, left_side=True), order)


def _permutation_sign(order: Array, a: Array) -> Array:
    """Returns the sign of a permutation: 1 or -1 for an even or odd number of inversions."""
    inversions = (order[..., :, None] > order[..., None, :]) & ~lower_mask((*order.shape, order.shape[-1]))
    return convert(1 - 2 * (total(inversions, axis=(-2, -1)) % 2), a.dtype)


def _pivots_sign(pivots: Array, a: Array) -> Array:
    """Returns 1 or -1 for an even or odd number of row exchanges."""
    exchanged = total(pivots != broadcasted_iota(dtypes.int32, pivots.shape, pivots.ndim - 1), axis=-1)
    return convert(1 - 2 * (exchanged % 2), a.dtype)


# ------------------------------------------------------------------ slogdet


@eager_cached(compiled=True)
def slogdet(a: ArrayLike, *, method: str | None = None) -> SlogdetResult:
    """Returns the signs of determinants and the logarithms of their absolute values.

    Singular matrices give 0 and minus infinity. The sign of a complex determinant is a number on the unit circle.

    Args:
        a: Square matrices, `f32[..., n, n]`; both results are `f32[...]`.
        method: The decomposition to use: `"lu"` (or None), or, for real matrices, `"qr"`.

    Returns:
        A named tuple: `sign`, `f32[...]`, and `logabsdet`, `f32[...]`.

    Raises:
        ValueError: If the matrices are not square or the method is unknown.
        NotImplementedError: If the method is `"qr"` and the matrices are complex.

    >>> import numpy as np
    >>> slogdet(np.array([[0.0, 1.0], [1.0, 0.0]]))
    SlogdetResult(sign=Array(-1., dtype=float32), logabsdet=Array(0., dtype=float32))
    """
    if method not in (None, "lu", "qr"):
        raise ValueError(f'slogdet: method must be "lu" or "qr", got {method!r}')
    x = as_square_matrices("slogdet", a)
    if method == "qr" and dtypes.is_complex(x.dtype):
        raise NotImplementedError('slogdet: method "qr" supports real matrices only; use "lu"')
    out: tuple[Array, Array] = _logarithm(method == "qr", x)
    return SlogdetResult(*out)


def _sign_and_logarithm(by_qr: bool, a: Array) -> tuple[Array, Array]:
    if by_qr:
        return _by_qr(a)
    n = a.shape[-1]
    if n not in (1, 2):
        return _by_lu(a)
    value = a[..., 0, 0] if n == 1 else a[..., 0, 0] * a[..., 1, 1] - a[..., 0, 1] * a[..., 1, 0]
    return sign(value), log(absolute(value))


def _by_lu(a: Array) -> tuple[Array, Array]:
    packed, pivots, _ = lu(a)
    factors = diagonal(packed)
    return _pivots_sign(pivots, a) * prod(sign(factors), axis=-1), total(log(absolute(factors)), axis=-1)


def _by_qr(a: Array) -> tuple[Array, Array]:
    packed, taus = geqrf(a)
    factors = diagonal(packed)
    flips = prod(where(taus[..., : a.shape[-1] - 1] != 0, -1.0, 1.0), axis=-1)
    return convert(flips, a.dtype) * prod(sign(factors), axis=-1), total(log(absolute(factors)), axis=-1)


_logarithm = custom_jvp(_sign_and_logarithm, nondiff_argnums=(0,))


@_logarithm.defjvp
def _logarithm_jvp(
    by_qr: bool, primals: tuple[Array], tangents: tuple[Array]
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    (a,), (t,) = primals, tangents
    direction, logarithm = _logarithm(by_qr, a)
    rate = total(diagonal(solve_batched(a, t)), axis=-1)
    if not dtypes.is_complex(a.dtype):
        return (direction, logarithm), (full_like_aval(direction.aval, 0), rate)
    imaginary_rate = complex(full_like_aval(logarithm.aval, 0), rate.imag)
    return (direction, logarithm), (imaginary_rate * direction, rate.real)
