"""The decomposition of positive matrices: `cholesky`, its update, and products that give such matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, final

from attrs import frozen
from typing_extensions import override

from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import Shape, ShapedArray
from tracefx.core.dtypes import DType
from tracefx.core.handler import bind1
from tracefx.core.primitive import Differentiable, Expandable, Tangent, Zero
from tracefx.core.values import Value, as_value
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
from tracefx.ops.shape.shape import concatenate
from tracefx.ops.shape.slicing import slice_axis
from tracefx.ops.structural import broadcast_in_dim, reshape

# ------------------------------------------------------------------ cholesky


@final
class Cholesky(MatrixKernel, Differentiable):
    """Of the lower triangle: what is above the diagonal is not read."""

    __slots__ = ()
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
            factor, said = gpu.call_gpu_solver(builder, "solver_potrf_ffi", [x], results, {"lower": True}, [(0, 0)])
        elif builder.platform == "cpu":
            factor, said = lapack.call_lapack(
                self, builder, "potrf_ffi", [x], results, {"uplo": uplo_attr(True)}, [(0, 0)]
            )
        else:
            (factor,) = builder.emit("stablehlo.cholesky", [x], outs, {"lower": True})
            return [emit_triangle(builder, factor, lower=True)]
        ok = stablehlo.emit_compare(builder, "EQ", said, stablehlo.emit_full(builder, 0, info))
        return [emit_triangle(builder, factor, lower=True, ok=ok)]

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        (t,) = tangents
        assert not isinstance(t, Zero)
        factor = bind1(self, *primals)
        # The change is that of the Hermitian matrix with this lower triangle, half + half^H.
        half = tril_half_diagonal(t)
        right = triangular_solve(factor, half, lower=True, transpose_a=True, conjugate_a=True)
        both = triangular_solve(factor, right, left_side=True, lower=True)
        return [factor], [matmul(factor, tril_half_diagonal(add(both, adjoint(both))))]


CHOLESKY: Final = Cholesky()


def cholesky(x: ArrayLike, *, symmetrize_input: bool = True) -> Array:
    """The lower triangular `l` for which `l l^H` is `x`, Hermitian and positive definite: `f32[..., n, n]`.

    It is computed from the Hermitian part of `x`, or from its lower triangle alone unless `symmetrize_input`. Where it
    doesn't exist, NaN.

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
    __slots__ = ()
    name = "cholesky_update"
    ranks: ClassVar[tuple[int, ...]] = (2, 1)
    domain = FLOATS

    @override
    def result_types(self, dtype: DType, *shapes: Shape) -> ResultTypes:
        r, w = shapes
        if r[0] != r[1] or w[0] != r[0]:
            raise ValueError(f"cholesky_update takes a square matrix and a vector as long as it, got sizes {r} and {w}")
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
        for k in range(n):  # each row and what is left of the vector are turned until that is zero at k
            row = reshape(slice_axis(r, k, k + 1, at), w.aval.shape)
            c, s = _givens_rotation(slice_axis(row, k, k + 1, at), slice_axis(w, k, k + 1, at), w.aval)
            rows.append(reshape(add(mul(c, row), mul(s, w)), (*w.aval.shape[:-1], 1, n)))
            w = sub(mul(c, w), mul(s, row))
        return [concatenate(rows, at)] if rows else [r]


def _givens_rotation(x: Value, y: Value, aval: ShapedArray) -> tuple[Array, Array]:
    """The cosine and sine, repeated to type `aval`, of the rotation of `(x, y)` to `(r, 0)`, without overflow."""
    still = eq(y, 0.0)
    other = select_with_aval(still, 1.0, y, y.aval)
    scale = max(abs(x), abs(other))
    x, other = div(x, scale), div(other, scale)
    length = sqrt(add(square(x), square(other)))
    c, s = (
        select_with_aval(still, 1.0, div(x, length), y.aval),
        select_with_aval(still, 0.0, div(other, length), y.aval),
    )
    return broadcast_in_dim(c, aval.shape, range(aval.ndim)), broadcast_in_dim(s, aval.shape, range(aval.ndim))


CHOLESKY_UPDATE: Final = CholeskyUpdate()


def cholesky_update(r_matrix: ArrayLike, w_vector: ArrayLike) -> Array:
    """The upper triangular `r` for which `r^T r` is `r_matrix^T r_matrix + w w^T`, in time quadratic in their size.

    >>> import numpy as np
    >>> cholesky_update(np.array([[3.0]]), np.array([4.0]))
    Array([[5.]], dtype=float32)
    """
    return bind1(CHOLESKY_UPDATE, r_matrix, w_vector)


# ------------------------------------------------------------------ symmetric_product


@final
@frozen(eq=False)
class SymmetricProduct(MatrixOperation, Expandable):
    """`alpha a a^T + beta c`."""

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
    """`alpha a a^T + beta c` for `a` (`f32[..., m, n]`) and symmetric `c` (`f32[..., m, m]`).

    With `symmetrize_output` the upper triangle is that of the transpose.

    >>> import numpy as np
    >>> symmetric_product(np.array([[1.0], [2.0]]), np.zeros((2, 2)))
    Array([[1., 2.],
           [2., 4.]], dtype=float32)
    """
    out = bind1(SymmetricProduct(float(alpha), float(beta)), a_matrix, c_matrix)
    return add(tril(out), matrix_transpose(tril(out, -1))) if symmetrize_output else out
