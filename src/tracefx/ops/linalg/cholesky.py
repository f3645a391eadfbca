"""Cholesky decomposition and related primitives: `cholesky`, `cholesky_update`, `symmetric_product`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, final

from attrs import frozen
from typing_extensions import override

from tracefx.core import Array, ArrayLike, DType, Shape, ShapedArray, Value, as_value
from tracefx.core.handler import bind1
from tracefx.core.primitive import Expandable, Tangent
from tracefx.lowering import Builder, IrValue, Lowerable
from tracefx.ops import stablehlo
from tracefx.ops.elementwise.abs_sign import abs
from tracefx.ops.elementwise.arithmetic import div, max, mul, sub
from tracefx.ops.elementwise.comparison import eq
from tracefx.ops.elementwise.elementwise import FLOATS, add
from tracefx.ops.elementwise.powers import square
from tracefx.ops.elementwise.selection import select_with_aval
from tracefx.ops.elementwise.transcendental import sqrt
from tracefx.ops.linalg import gpu, lapack
from tracefx.ops.linalg.lapack import (
    LAPACK_PREFIXES,
    MatrixKernel,
    MatrixOperation,
    ResultTypes,
    emit_triangle,
    info_aval,
    require_square,
    uplo_attr,
)
from tracefx.ops.linalg.matrices import adjoint, matmul, matrix_transpose, symmetrize, tril, tril_half_diagonal
from tracefx.ops.linalg.triangular_solve import triangular_solve
from tracefx.ops.operation import HasPushforward
from tracefx.ops.shape.shape import concatenate
from tracefx.ops.shape.slicing import slice_axis
from tracefx.ops.structural import broadcast_in_dim, reshape

# ------------------------------------------------------------------ cholesky


@final
class Cholesky(MatrixKernel, HasPushforward):
    """The Cholesky decomposition of positive-definite matrices: lower triangular `l` with `l l^H = x`.

    It reads only the lower triangle. Matrices that are not positive-definite result in NaN. With `p` that takes the
    lower triangle and half of the diagonal, the tangent is `l p(l^-1 dx l^-H)`.

    `x: f32[..., n, n] -> f32[..., n, n]`, 32-bit or 64-bit floats or complex numbers. Bound by `lax.linalg.cholesky`.
    """

    name = "cholesky"

    @override
    def result_types(self, dtype: DType, *shapes: Shape) -> ResultTypes:
        require_square(self.name, shapes[0])
        return [(shapes[0], dtype)]

    @override
    def emit(self, builder: Builder, outs: Sequence[ShapedArray], *operands: IrValue) -> Sequence[IrValue]:
        (x,) = operands
        info = info_aval(x.aval)
        results = [x.aval, info]
        if gpu.on_gpu(builder):
            factor, status = gpu.call_gpu_solver(builder, "solver_potrf_ffi", [x], results, {"lower": True}, [(0, 0)])
        elif builder.platform == "cpu":
            factor, status = lapack.call_lapack(
                self, builder, "potrf_ffi", [x], results, {"uplo": uplo_attr(True)}, [(0, 0)]
            )
        else:
            (factor,) = builder.emit("stablehlo.cholesky", [x], outs, {"lower": True})
            return [emit_triangle(builder, factor, lower=True)]
        ok = stablehlo.emit_compare(builder, "EQ", status, stablehlo.emit_full(builder, 0, info))
        return [emit_triangle(builder, factor, lower=True, ok=ok)]

    @override
    def pushforward(self, x: Value, t: Value) -> tuple[Sequence[Value], Sequence[Tangent]]:
        factor = bind1(self, x)
        # The tangent is that of the Hermitian matrix with this lower triangle, half + half^H.
        half = tril_half_diagonal(t)
        right = triangular_solve(factor, half, lower=True, transpose_a=True, conjugate_a=True)
        both = triangular_solve(factor, right, left_side=True, lower=True)
        return [factor], [matmul(factor, tril_half_diagonal(add(both, adjoint(both))))]


CHOLESKY: Final = Cholesky()


def cholesky(x: ArrayLike, *, symmetrize_input: bool = True) -> Array:
    """Returns the Cholesky factor of a Hermitian positive-definite matrix: lower triangular `l` with `l l^H = x`.

    Args:
        x: Matrices `f32[..., n, n]` with 32-bit or 64-bit components.
        symmetrize_input: Whether to decompose the Hermitian part of `x`. True by default; False reads only the lower
            triangle.

    Returns:
        The factors, `f32[..., n, n]`; NaN where `x` is not positive definite.

    Raises:
        TypeError: The dtype is another one.
        ValueError: The matrices are not square.

    >>> import numpy as np
    >>> cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
    Array([[2., 0.],
           [1., 2.]], dtype=float32)
    """
    value = as_value(x, "x")
    if symmetrize_input and value.aval.ndim >= 2 and value.aval.shape[-1] == value.aval.shape[-2]:
        return bind1(CHOLESKY, symmetrize(value))
    return bind1(CHOLESKY, value)


# ------------------------------------------------------------------ cholesky_update


@final
class CholeskyUpdate(MatrixOperation, Lowerable, Expandable):
    """The rank-1 update of a Cholesky factor: upper triangular `s` with `s^T s = r^T r + w w^T`, by Givens rotations.

    `r: f32[..., n, n], w: f32[..., n] -> f32[..., n, n]`, floats. Bound by `lax.linalg.cholesky_update`.
    """

    name = "cholesky_update"
    ranks: ClassVar[tuple[int, ...]] = (2, 1)
    domain = FLOATS

    @override
    def result_types(self, dtype: DType, *shapes: Shape) -> ResultTypes:
        r, w = shapes
        if r[0] != r[1] or w[0] != r[0]:
            raise ValueError(
                f"cholesky_update takes a square matrix and a vector of the same length, got sizes {r} and {w}"
            )
        return [(r, dtype)]

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        r, w = operands
        if builder.platform != "cuda" or r.aval.ndim > 2 or r.aval.dtype not in LAPACK_PREFIXES or not r.aval.size:
            return builder.lower_fun(self.expand, operands)
        results = [r.aval, w.aval]
        return gpu.call_gpu_solver(
            builder, "_cholesky_update_ffi", operands, results, aliases=[(0, 0), (1, 1)], by_rows=True
        )[:1]

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        r, w = args
        n = w.aval.shape[-1]
        at = r.aval.ndim - 2
        rows: list[Value] = []
        for k in range(n):  # rotates row k and the vector so that element k of the vector becomes zero
            row = reshape(slice_axis(r, k, k + 1, at), w.aval.shape)
            c, s = _givens_rotation(slice_axis(row, k, k + 1, at), slice_axis(w, k, k + 1, at), w.aval)
            rows.append(reshape(add(mul(c, row), mul(s, w)), (*w.aval.shape[:-1], 1, n)))
            w = sub(mul(c, w), mul(s, row))
        return [concatenate(rows, at)] if rows else [r]


def _givens_rotation(x: Value, y: Value, aval: ShapedArray) -> tuple[Array, Array]:
    """Returns the cosine and sine of the rotation of `(x, y)` to `(r, 0)`, broadcast to `aval`, without overflow."""
    is_zero = eq(y, 0.0)
    other = select_with_aval(is_zero, 1.0, y, y.aval)
    scale = max(abs(x), abs(other))
    x, other = div(x, scale), div(other, scale)
    length = sqrt(add(square(x), square(other)))
    c, s = (
        select_with_aval(is_zero, 1.0, div(x, length), y.aval),
        select_with_aval(is_zero, 0.0, div(other, length), y.aval),
    )
    return broadcast_in_dim(c, aval.shape, range(aval.ndim)), broadcast_in_dim(s, aval.shape, range(aval.ndim))


CHOLESKY_UPDATE: Final = CholeskyUpdate()


def cholesky_update(r_matrix: ArrayLike, w_vector: ArrayLike) -> Array:
    """Returns the Cholesky factor of a rank-1 update: upper triangular `r` with `r^T r = r_matrix^T r_matrix + w w^T`.

    It takes time quadratic in `n`.

    Args:
        r_matrix: Upper triangular factors, real, `f32[..., n, n]`.
        w_vector: Vectors, `f32[..., n]`.

    Returns:
        The new factors, `f32[..., n, n]`.

    Raises:
        TypeError: The operands are not floats of one dtype.
        ValueError: The sizes don't fit.

    >>> import numpy as np
    >>> cholesky_update(np.array([[3.0]]), np.array([4.0]))
    Array([[5.]], dtype=float32)
    """
    return bind1(CHOLESKY_UPDATE, r_matrix, w_vector)


# ------------------------------------------------------------------ symmetric_product


@final
@frozen(eq=False)
class SymmetricProduct(MatrixOperation, Expandable):
    """The symmetric rank-k update `alpha a a^T + beta c`.

    Args:
        alpha: The factor of the product.
        beta: The factor of `c`.

    `a: f32[..., n, k], c: f32[..., n, n] -> f32[..., n, n]`, floats. Bound by `lax.linalg.symmetric_product`.
    """

    name = "symmetric_product"
    ranks: ClassVar[tuple[int, ...]] = (2, 2)
    domain = FLOATS
    alpha: float
    beta: float

    @override
    def result_types(self, dtype: DType, *shapes: Shape) -> ResultTypes:
        a, c = shapes
        if c[0] != c[1] or a[0] != c[1]:
            raise ValueError(f"symmetric_product: c must be square with as many rows as a, got sizes {a} and {c}")
        return [(c, dtype)]

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        a, c = args
        return [add(mul(self.alpha, matmul(a, matrix_transpose(a))), mul(self.beta, c))]


def symmetric_product(
    a_matrix: ArrayLike,
    c_matrix: ArrayLike,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    symmetrize_output: bool = False,
) -> Array:
    """Returns `alpha a a^T + beta c`, a symmetric rank-k update.

    Args:
        a_matrix: Matrices `a`, real, `f32[..., m, n]`.
        c_matrix: Symmetric matrices `c`, `f32[..., m, m]`.
        alpha: The factor of the product. 1 by default.
        beta: The factor of `c`. 0 by default.
        symmetrize_output: Whether to copy the lower triangle of the result to the upper one. False by default.

    Returns:
        Matrices `f32[..., m, m]`.

    Raises:
        TypeError: The operands are not floats of one dtype.
        ValueError: The sizes don't fit.

    >>> import numpy as np
    >>> symmetric_product(np.array([[1.0], [2.0]]), np.zeros((2, 2)))
    Array([[1., 2.],
           [2., 4.]], dtype=float32)
    """
    out = bind1(SymmetricProduct(float(alpha), float(beta)), a_matrix, c_matrix)
    return add(tril(out), matrix_transpose(tril(out, -1))) if symmetrize_output else out
