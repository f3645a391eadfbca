"""QR decompositions: `qr`, and the Householder reflections that it is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, Literal, final, overload

from attrs import frozen
from typing_extensions import override

from tracefx.core import Array, ArrayLike, DType, Shape, ShapedArray, Value, as_value, dtypes
from tracefx.core.handler import as_array, bind, bind1
from tracefx.core.primitive import Expandable, Tangent, Zero
from tracefx.errors import ShapeError
from tracefx.lowering import Builder, IrValue
from tracefx.ops.elementwise.arithmetic import sub
from tracefx.ops.elementwise.complex import complex, imag
from tracefx.ops.elementwise.elementwise import add
from tracefx.ops.elementwise.selection import select_with_aval
from tracefx.ops.linalg import gpu, lapack
from tracefx.ops.linalg.lapack import MatrixKernel, MatrixOperation, ResultTypes
from tracefx.ops.linalg.lu import lu, lu_solve, permute_rows
from tracefx.ops.linalg.matrices import adjoint, diagonal_mask, eye, matmul, matrix_transpose, tril, triu
from tracefx.ops.linalg.triangular_solve import triangular_solve
from tracefx.ops.operation import HasPushforward
from tracefx.ops.shape.array_creation import zero
from tracefx.ops.shape.shape import concatenate
from tracefx.ops.shape.slicing import pad, slice_axis
from tracefx.ops.structural import full_like_aval

# ------------------------------------------------------------------ Householder reflections


@final
class Geqrf(MatrixKernel):
    """A QR decomposition by Householder reflections, `I - tau v v^H`, in the format of LAPACK's `geqrf`.

    The first result has `r` in its upper triangle, and the vectors `v` below it; the second one has the scales `tau`.

    `x: f32[..., m, n] -> f32[..., m, n], taus: f32[..., min(m, n)]`, 32-bit or 64-bit floats or complex numbers. Bound
    by the expansion of `Qr`.
    """

    name = "geqrf"
    multiple_results = True

    @override
    def result_types(self, dtype: DType, *shapes: Shape) -> ResultTypes:
        return [(shapes[0], dtype), ((min(shapes[0]),), dtype)]

    @override
    def emit(self, builder: Builder, outs: Sequence[ShapedArray], *operands: IrValue) -> Sequence[IrValue]:
        if gpu.on_gpu(builder):
            return gpu.call_gpu_solver(builder, "solver_geqrf_ffi", operands, outs, aliases=[(0, 0)])
        return lapack.call_lapack(self, builder, "geqrf_ffi", operands, outs, aliases=[(0, 0)])


@final
@frozen(eq=False)
class Geqp3(MatrixKernel):
    """A QR decomposition with column pivoting (the diagonal of `r` decreases), in the format of LAPACK's `geqp3`.

    The second operand marks the columns that come first by nonzero numbers. The results are those of `Geqrf` for
    the permuted columns, with the permutation, counted from 1, between them.

    Args:
        use_magma: Whether GPUs use MAGMA; None, the default, means if it is installed and the matrices are large.

    `x: f32[..., m, n], first: i32[..., n] -> f32[..., m, n], p: i32[..., n], taus: f32[..., min(m, n)]`, 32-bit or
    64-bit floats or complex numbers. Bound by the expansion of `Qr`.
    """

    name = "geqp3"
    multiple_results = True
    ranks: ClassVar[tuple[int, ...]] = (2, 1)
    use_magma: bool | None = None

    @override
    def require_dtypes(self, *avals: ShapedArray) -> None:
        a, first = avals
        self.domain.require(self.name, a)
        if first.dtype != dtypes.int32:
            raise TypeError(f"geqp3: the second operand, which marks leading columns, must be int32, got {first}")

    @override
    def result_types(self, dtype: DType, *shapes: Shape) -> ResultTypes:
        a, first = shapes
        if first[0] != a[1]:
            raise ShapeError(f"geqp3: there must be one mark for each of the {a[1]} columns, got {first[0]}")
        return [(a, dtype), (first, dtypes.int32), ((min(a),), dtype)]

    @override
    def emit(self, builder: Builder, outs: Sequence[ShapedArray], *operands: IrValue) -> Sequence[IrValue]:
        same = [(0, 0), (1, 1)]
        if gpu.on_gpu(builder):
            config = {"magma": gpu.magma_attr(self.use_magma)}
            return gpu.call_gpu_solver(builder, "hybrid_geqp3", operands, outs, config, same)
        return lapack.call_lapack(self, builder, "geqp3_ffi", operands, outs, aliases=same)


@final
class HouseholderProduct(MatrixKernel):
    """The first `n` columns of a product of Householder reflections `I - tau v v^H`, in the format of LAPACK's `geqrf`.

    `a: f32[..., m, n], taus: f32[..., k] -> f32[..., m, n]` with `m >= n >= k`, 32-bit or 64-bit floats or complex
    numbers. Bound by `lax.linalg.householder_product`.
    """

    name = "householder_product"
    ranks: ClassVar[tuple[int, ...]] = (2, 1)

    @override
    def result_types(self, dtype: DType, *shapes: Shape) -> ResultTypes:
        (m, n), (k,) = shapes
        if m < n or k > n:
            raise ValueError(
                f"householder_product: a must have at least as many rows as columns, and taus at most one entry "
                f"for each column, got {m} rows, {n} columns and {k} entries"
            )
        return [((m, n), dtype)]

    @override
    def emit(self, builder: Builder, outs: Sequence[ShapedArray], *operands: IrValue) -> Sequence[IrValue]:
        if gpu.on_gpu(builder):
            return gpu.call_gpu_solver(builder, "solver_orgqr_ffi", operands, outs, aliases=[(0, 0)])
        kernel = "ungqr_ffi" if dtypes.is_complex(outs[0].dtype) else "orgqr_ffi"
        return lapack.call_lapack(self, builder, kernel, operands, outs, aliases=[(0, 0)])

    @override
    def emit_empty(self, builder: Builder, outs: Sequence[ShapedArray], *operands: IrValue) -> Sequence[IrValue]:
        """Emits identity matrices, the product of no reflections."""
        return [lapack.emit_identity(builder, outs[0])]


@final
@frozen(eq=False)
class Ormqr(MatrixKernel):
    """The product of `c` and the unitary matrix `q` that Householder reflections represent, without computing `q`.

    Args:
        left: Whether the result is `q c`; otherwise, it is `c q`.
        transpose: Whether the conjugate transpose of `q` is used.

    `a: f32[..., m, n], taus: f32[..., k], c: f32[..., m, l] -> f32[..., m, l]` with `left`, 32-bit or 64-bit floats or
    complex numbers. Bound by `lax.linalg.ormqr`.
    """

    name = "ormqr"
    ranks: ClassVar[tuple[int, ...]] = (2, 1, 2)
    left: bool
    transpose: bool

    @override
    def result_types(self, dtype: DType, *shapes: Shape) -> ResultTypes:
        (m, n), (k,), c = shapes
        if c[0 if self.left else 1] != m:
            side = "rows" if self.left else "columns"
            raise ValueError(f"ormqr: c must have as many {side} as a has rows, {m}, got {c[0]} by {c[1]}")
        if k > min(m, n):
            raise ShapeError(f"ormqr: a is {m} by {n}, so taus must have at most {min(m, n)} entries, got {k}")
        return [(c, dtype)]

    @override
    def emit(self, builder: Builder, outs: Sequence[ShapedArray], *operands: IrValue) -> Sequence[IrValue]:
        config = {"left": self.left, "transpose": self.transpose}
        if gpu.on_gpu(builder):
            return gpu.call_gpu_solver(builder, "solver_ormqr_ffi", operands, outs, config, [(2, 0)])
        kernel = "unmqr_ffi" if dtypes.is_complex(outs[0].dtype) else "ormqr_ffi"
        return lapack.call_lapack(self, builder, kernel, operands, outs, config, [(2, 0)])

    @override
    def emit_empty(self, builder: Builder, outs: Sequence[ShapedArray], *operands: IrValue) -> Sequence[IrValue]:
        return [operands[2]]


GEQRF: Final = Geqrf()
HOUSEHOLDER_PRODUCT: Final = HouseholderProduct()


def geqrf(a: ArrayLike) -> tuple[Array, Array]:
    """Returns `r` with the reflectors of `q` below its diagonal, and their scales."""
    out, taus = bind(GEQRF, a)
    return as_array(out), as_array(taus)


def geqp3(a: ArrayLike, first: ArrayLike, use_magma: bool | None = None) -> tuple[Array, Array, Array]:
    """Returns the results of `geqrf` for permuted columns, with the permutation (1-based) before the scales."""
    out, positions, taus = bind(Geqp3(use_magma), a, first)
    return as_array(out), as_array(positions), as_array(taus)


def householder_product(a: ArrayLike, taus: ArrayLike) -> Array:
    """Returns the product of Householder reflections, the first `n` columns of a unitary matrix.

    Args:
        a: The reflectors below the diagonal, `f32[..., m, n]` with `m >= n`.
        taus: Their scales, `f32[..., k]` with `k <= n`.

    Returns:
        Matrices with orthonormal columns, `f32[..., m, n]`.

    Raises:
        TypeError: The dtypes differ, or don't have 32-bit or 64-bit components.
        ValueError: The sizes don't fit.

    >>> import numpy as np
    >>> householder_product(np.array([[5.0], [0.0]]), np.array([2.0])).tolist()
    [[-1.0], [-0.0]]
    """
    return bind1(HOUSEHOLDER_PRODUCT, a, taus)


def ormqr(a: ArrayLike, taus: ArrayLike, c: ArrayLike, *, left: bool = True, transpose: bool = False) -> Array:
    """Returns `q c`, where `q` is a product of Householder reflections, without computing `q`.

    Args:
        a: The reflectors below the diagonal, `f32[..., m, n]`.
        taus: Their scales, `f32[..., k]`.
        c: The matrices to multiply.
        left: Whether to return `q c`. True by default; False returns `c q`.
        transpose: Whether to use the conjugate transpose of `q`. False by default.

    Returns:
        Matrices of the shape of `c`.

    Raises:
        TypeError: The dtypes differ, or don't have 32-bit or 64-bit components.
        ValueError: The sizes don't fit.

    >>> import numpy as np
    >>> ormqr(np.array([[5.0], [0.0]]), np.array([2.0]), np.array([[3.0], [4.0]])).tolist()
    [[-3.0], [4.0]]
    """
    return bind1(Ormqr(bool(left), bool(transpose)), a, taus, c)


# ------------------------------------------------------------------ qr


@final
@frozen(eq=False)
class Qr(MatrixOperation, HasPushforward, Expandable):
    """The QR decomposition: `q` with orthonormal columns and upper triangular `r`, with `q r = x`, or `q r = x[:, p]`.

    Args:
        full_matrices: Whether `q` is square; otherwise, it has `min(m, n)` columns.
        pivoting: Whether columns are permuted so that the diagonal of `r` decreases; `p` is a third result.
        use_magma: Whether GPUs use MAGMA for pivoting; None, the default, means if it is installed and pays off.

    `x: f32[..., m, n] -> q: f32[..., m, min(m, n)], r: f32[..., min(m, n), n]`, 32-bit or 64-bit floats or complex
    numbers. Bound by `lax.linalg.qr`.
    """

    name = "qr"
    multiple_results = True
    full_matrices: bool
    pivoting: bool
    use_magma: bool | None = None

    @override
    def result_types(self, dtype: DType, *shapes: Shape) -> ResultTypes:
        m, n = shapes[0]
        k = m if self.full_matrices else min(m, n)
        return [((m, k), dtype), ((k, n), dtype), *[((n,), dtypes.int32)] * self.pivoting]

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        (x,) = args
        *stack, m, n = x.aval.shape
        dtype, rank = x.aval.dtype, x.aval.ndim
        columns = ShapedArray((*stack, n), dtypes.int32)
        if not x.aval.size:
            k = m if self.full_matrices else min(m, n)
            q, r = eye(dtype, m, k, tuple(stack)), full_like_aval(ShapedArray((*stack, k, n), dtype), 0)
            return [q, r, *[full_like_aval(columns, 0)] * self.pivoting]
        positions: list[Value] = []
        if self.pivoting:
            both, found, taus = geqp3(x, full_like_aval(columns, 0), self.use_magma)
            positions = [sub(found, 1)]
        else:
            both, taus = geqrf(x)
        reflections, r = both, both
        if m < n:
            reflections = slice_axis(both, 0, m, rank - 1)
        elif self.full_matrices:
            reflections = pad(both, zero(both.aval), [*[(0, 0, 0)] * (rank - 1), (0, m - n, 0)])
        else:
            r = slice_axis(both, 0, n, rank - 2)
        return [householder_product(reflections, taus), triu(r), *positions]

    @override
    def pushforward(self, x: Value, t: Value) -> tuple[Sequence[Value], Sequence[Tangent]]:
        outs = bind(self, x)
        q, r, *positions = outs
        if positions:
            x, t = [matrix_transpose(permute_rows(matrix_transpose(v), positions[0])) for v in (x, t)]
        m, n = x.aval.shape[-2:]
        last = x.aval.ndim - 1
        if m < n:  # the first m columns determine q
            dq, first = _reduced_jvp(q, slice_axis(r, 0, m, last), slice_axis(t, 0, m, last))
            rest = add(matmul(adjoint(dq), slice_axis(x, m, n, last)), matmul(adjoint(q), slice_axis(t, m, n, last)))
            dr = concatenate([first, rest], last)
        elif m == n or not self.full_matrices:
            dq, dr = _reduced_jvp(q, r, t)
        else:
            dq, dr = _full_jvp(q, r, t)
        return outs, [dq, dr, *[Zero(p.aval.tangent()) for p in positions]]


def _reduced_jvp(q: Value, r: Value, t: Value) -> tuple[Array, Array]:
    """Returns the tangents of the factors of matrices with no more columns than rows, for the reduced `q`."""
    right = triangular_solve(r, t)
    inner = matmul(adjoint(q), right)
    below = tril(inner, -1)
    turned = sub(below, adjoint(below))
    if dtypes.is_complex(inner.aval.dtype):
        part = imag(inner)
        turned = add(
            turned,
            select_with_aval(
                diagonal_mask(inner.aval.shape), complex(full_like_aval(part.aval, 0), part), 0, inner.aval
            ),
        )
    return add(matmul(q, sub(turned, inner)), right), matmul(sub(inner, turned), r)


def _full_jvp(q: Value, r: Value, t: Value) -> tuple[Array, Array]:
    """Returns the tangents for a square `q` with more columns than `r`.

    LAPACK's `q` is a product of as many reflections as `r` has columns, so `q - 1` has at most that rank. This
    determines the other columns of `q` from the first ones, and so their tangents.
    """
    *_, m, n = t.aval.shape
    rank = q.aval.ndim
    first, others = slice_axis(q, 0, n, rank - 1), slice_axis(q, n, m, rank - 1)
    dq, dr = _reduced_jvp(first, slice_axis(r, 0, n, rank - 2), t)
    top, bottom = slice_axis(first, 0, n, rank - 2), slice_axis(first, n, m, rank - 2)
    d_top, d_bottom = slice_axis(dq, 0, n, rank - 2), slice_axis(dq, n, m, rank - 2)
    found, _, permutation = lu(sub(top, eye(q.aval.dtype, n, stack=q.aval.shape[:-2])))
    z_adjoint = lu_solve(found, permutation, adjoint(bottom), trans=2)
    z = adjoint(z_adjoint)
    moved = matmul(add(first, matmul(others, z)), adjoint(sub(d_bottom, matmul(z, d_top))))
    d_others = sub(matmul(dq, z_adjoint), moved)
    below = full_like_aval(dr.aval.update(shape=(*dr.aval.shape[:-2], m - n, n)), 0)
    return concatenate([dq, d_others], rank - 1), concatenate([dr, below], rank - 2)


@overload
def qr(
    x: ArrayLike, *, pivoting: Literal[False] = ..., full_matrices: bool = ..., use_magma: bool | None = ...
) -> tuple[Array, Array]: ...
@overload
def qr(
    x: ArrayLike, *, pivoting: Literal[True], full_matrices: bool = ..., use_magma: bool | None = ...
) -> tuple[Array, Array, Array]: ...
@overload
def qr(
    x: ArrayLike, *, pivoting: bool, full_matrices: bool = ..., use_magma: bool | None = ...
) -> tuple[Array, Array] | tuple[Array, Array, Array]: ...
def qr(
    x: ArrayLike, *, pivoting: bool = False, full_matrices: bool = True, use_magma: bool | None = None
) -> tuple[Array, Array] | tuple[Array, Array, Array]:
    """Returns the QR decomposition: `q` with orthonormal columns and upper triangular `r`, with `q r = x`.

    Args:
        x: Matrices `f32[..., m, n]`.
        pivoting: Whether to permute columns so that the diagonal of `r` decreases. False by default.
        full_matrices: Whether `q` is square, `f32[..., m, m]`. True by default; False gives `f32[..., m, min(m, n)]`.
        use_magma: For pivoting on a GPU: whether to use MAGMA, or LAPACK on the host. None, the default, uses MAGMA if
            it is installed.

    Returns:
        `(q, r)`; with `pivoting` `(q, r, p)`, where `p` is `i32[..., n]` and `q r = x[:, p]`.

    Raises:
        TypeError: The dtype does not have 32-bit or 64-bit components.

    >>> import numpy as np
    >>> q, r = qr(np.array([[3.0], [4.0]]), full_matrices=False)
    >>> r
    Array([[-5.]], dtype=float32)
    """
    outs = bind(Qr(bool(full_matrices), bool(pivoting), use_magma), as_value(x, "x"))
    q, r, *positions = [as_array(o) for o in outs]
    return (q, r, positions[0]) if positions else (q, r)
