"""`qdwh`: the polar decomposition by the QR-based dynamically weighted Halley iteration."""

from __future__ import annotations

from typing import Any

from tracefx.core import Array, ArrayLike, ShapedArray, as_value, dtypes
from tracefx.core.handler import as_array
from tracefx.errors import ShapeError
from tracefx.ops.elementwise.abs_sign import abs
from tracefx.ops.elementwise.arithmetic import mul, sub
from tracefx.ops.elementwise.bitwise import bitwise_and, bitwise_not
from tracefx.ops.elementwise.comparison import eq, gt, lt
from tracefx.ops.elementwise.elementwise import add
from tracefx.ops.elementwise.powers import square
from tracefx.ops.elementwise.selection import select_with_aval
from tracefx.ops.elementwise.transcendental import rsqrt, sqrt
from tracefx.ops.linalg.cholesky import cholesky
from tracefx.ops.linalg.matrices import adjoint, eye, matmul, symmetrize
from tracefx.ops.linalg.qr import qr
from tracefx.ops.linalg.triangular_solve import triangular_solve
from tracefx.ops.reductions.reduction import reduce_max
from tracefx.ops.shape.array_creation import broadcasted_iota
from tracefx.ops.shape.shape import concatenate
from tracefx.ops.shape.slicing import slice_axis
from tracefx.ops.structural import convert, full_like_aval, reduce_sum
from tracefx.transforms.eager_calls import eager_cached
from tracefx.transforms.loops import while_loop

_QR_THRESHOLD = 100.0
"""Above this weight the normal equations are too ill-conditioned: iterations use `qr`, not `cholesky`."""


def qdwh(
    x: ArrayLike,
    *,
    is_hermitian: bool = False,
    max_iterations: int | None = None,
    eps: float | None = None,
    dynamic_shape: tuple[ArrayLike, ArrayLike] | None = None,
) -> tuple[Array, Array, Array, Array]:
    """Computes the polar decomposition of a matrix, `x = u @ h`, by the QR-based dynamically weighted Halley iteration.

    Args:
        x: `f32[m, n]` with `m >= n`, of full rank.
        is_hermitian: accepted for compatibility with JAX; it has no effect.
        max_iterations: the maximum number of iterations; 10 by default.
        eps: the tolerance; by default the machine epsilon of the dtype.
        dynamic_shape: the true numbers of rows and columns, which may be traced; elements beyond them count as zero. By
            default the shape of `x`.

    Returns:
        `(u, h, iterations, converged)`: `u` (`f32[m, n]`) has orthonormal columns, `h` (`f32[n, n]`) is Hermitian
        positive semidefinite, `iterations` is `i32[]` and `converged` is `bool[]`.

    Raises:
        ShapeError: if `x` is not a matrix or has more columns than rows.

    >>> import numpy as np
    >>> u, h, iterations, converged = qdwh(np.array([[0.0, 2.0], [1.0, 0.0]]))
    >>> converged
    Array(True, dtype=bool)
    """
    value = as_array(as_value(x, "x"))
    if value.ndim != 2 or value.shape[0] < value.shape[1]:
        raise ShapeError(f"qdwh takes a matrix with at least as many rows as columns, got {value.aval}")
    most = 10 if max_iterations is None else int(max_iterations)
    tolerance = float(dtypes.finfo(value.dtype).eps) if eps is None else float(eps)
    if dynamic_shape is not None:
        rows, columns = dynamic_shape
        inside = bitwise_and(_index_less_than(value.aval, 0, rows), _index_less_than(value.aval, 1, columns))
        value = select_with_aval(inside, value, 0, value.aval)
    return _iterate(value, most=most, eps=tolerance)


def _index_less_than(aval: ShapedArray, axis: int, size: ArrayLike) -> Array:
    return lt(broadcasted_iota(dtypes.int32, aval.shape, axis), convert(as_value(size), dtypes.int32))


@eager_cached(compiled=True)
def _iterate(x: Array, *, most: int, eps: float) -> tuple[Array, Array, Array, Array]:
    """Runs the weighted iterations, then Halley iterations with fixed weights until convergence."""
    sizes = abs(x)
    one_norm = reduce_max(reduce_sum(sizes, (0,)), (0,))
    infinity_norm = reduce_max(reduce_sum(sizes, (1,)), (0,))
    scale = select_with_aval(eq(one_norm, 0.0), 1.0, mul(rsqrt(one_norm), rsqrt(infinity_norm)), one_norm.aval)
    u = mul(x, convert(scale, x.dtype))
    done, least = 0, eps
    tol = 5.0 * eps
    moving: Array = full_like_aval(ShapedArray((), dtypes.bool_), True)
    while least + tol < 1 and done < most:
        a, b, c, least = _weights(least)
        u, moving = _step(u, a, b, c, tol ** (1 / 3))
        done += 1

    def unfinished(state: Any) -> Array:
        count, _, moving = state
        return bitwise_and(moving, lt(count, most))

    def step(state: Any) -> Any:
        count, u, _ = state
        u, moving = _step(u, 3.0, 1.0, 3.0, tol ** (1 / 3))
        return add(count, 1), u, moving

    start = full_like_aval(ShapedArray((), dtypes.default_int(), True), done), u, moving
    count, u, moving = while_loop(unfinished, step, start)
    u = sub(mul(1.5, u), mul(0.5, matmul(u, matmul(adjoint(u), u))))
    return u, symmetrize(matmul(adjoint(u), x)), count, bitwise_not(moving)


def _weights(least: float) -> tuple[float, float, float, float]:
    """Returns the optimal weights for singular values of at least `least`, and the next lower bound."""
    squared = least * least
    root = (4 * (1 / squared - 1) / squared) ** (1 / 3)
    first = (1.0 + root) ** 0.5
    a = first + (2 - root + 2 * (2 - squared) / (squared * first)) ** 0.5
    b = (a - 1) ** 2 / 4
    c = a + b - 1
    return a, b, c, least * (a + b * squared) / (1 + c * squared)


def _step(u: Array, a: float, b: float, c: float, tol: float) -> tuple[Array, Array]:
    """Returns the next iterate, and whether it moved by more than `tol`."""
    e = b / c
    m, n = u.shape
    if c > _QR_THRESHOLD:
        q, _ = qr(concatenate([mul(c**0.5, u), eye(u.dtype, n)], 0), full_matrices=False)
        change = mul((a - e) / c**0.5, matmul(slice_axis(q, 0, m, 0), adjoint(slice_axis(q, m, m + n, 0))))
    else:
        gram = add(mul(c, matmul(adjoint(u), u)), eye(u.dtype, n))
        factor = cholesky(gram, symmetrize_input=False)
        right = triangular_solve(factor, adjoint(u), left_side=True, lower=True)
        right = triangular_solve(factor, right, left_side=True, lower=True, transpose_a=True, conjugate_a=True)
        change = mul(a - e, adjoint(right))
    new = add(mul(e, u), change)
    moved = sqrt(reduce_sum(square(abs(sub(new, u))), (0, 1)))
    return new, gt(moved, tol)
