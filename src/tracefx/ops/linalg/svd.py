"""Singular value decomposition: `svd`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, Literal, final, overload

from attrs import evolve, frozen
from typing_extensions import override

from tracefx.core import Array, ArrayLike, DType, Shape, ShapedArray, Value, as_value, dtypes
from tracefx.core.handler import as_array, bind
from tracefx.core.primitive import Tangent
from tracefx.dimensions.symbolic_dimensions import min_dim
from tracefx.lowering import Builder, IrValue
from tracefx.ops import stablehlo
from tracefx.ops.elementwise.arithmetic import div, mul, sub
from tracefx.ops.elementwise.comparison import eq
from tracefx.ops.elementwise.elementwise import add
from tracefx.ops.elementwise.selection import select_with_aval
from tracefx.ops.linalg import gpu, lapack
from tracefx.ops.linalg.eigen import canonicalize_subset
from tracefx.ops.linalg.lapack import MatrixKernel, ResultTypes, char_attr, info_aval, nan_on_failure
from tracefx.ops.linalg.matrices import (
    adjoint,
    broadcast_columns,
    broadcast_rows,
    diagonal,
    diagonal_mask,
    matmul,
    real_part,
)
from tracefx.ops.operation import HasPushforward
from tracefx.ops.shape.slicing import slice_axis
from tracefx.ops.structural import convert


class SvdAlgorithm(Enum):
    """Algorithms of the singular value decomposition.

    The CPU has `DEFAULT`, `QR` and `DIVIDE_AND_CONQUER`. GPUs have `QR`, `JACOBI` and `POLAR`, AMD's also
    `DIVIDE_AND_CONQUER`; the default there is `JACOBI` for matrices up to 1024 by 1024, and `QR` for larger ones.
    """

    DEFAULT = "default"
    QR = "QR"
    JACOBI = "Jacobi"
    POLAR = "polar"
    DIVIDE_AND_CONQUER = "divide_and_conquer"


_KERNELS: Final = {
    None: "gesdd_ffi",
    SvdAlgorithm.DEFAULT: "gesdd_ffi",
    SvdAlgorithm.DIVIDE_AND_CONQUER: "gesdd_ffi",
    SvdAlgorithm.QR: "gesvd_ffi",
}


_GPU_KERNELS: Final = {
    SvdAlgorithm.QR: "solver_gesvd_ffi",
    SvdAlgorithm.JACOBI: "solver_gesvdj_ffi",
    SvdAlgorithm.POLAR: "solver_gesvdp_ffi",
    SvdAlgorithm.DIVIDE_AND_CONQUER: "solver_gesdd_ffi",
}
_MAX_JACOBI_SIZE: Final = 1024
"""The number of rows or columns up to which Jacobi rotations are faster than bidiagonalization on a GPU."""
_MAX_BATCHED_JACOBI_SIZE: Final = 32
"""The number of rows or columns up to which cuSOLVER's batched kernel is used, which returns all vectors."""


@final
@frozen(eq=False)
class Svd(MatrixKernel, HasPushforward):
    """The singular value decomposition `u diag(s) vh = x`: singular values in descending order, and singular vectors.

    Args:
        algorithm: The algorithm; None means the platform's default.
        compute_uv: Whether `u` and `vh` are results.
        full_matrices: Whether `u` and `vh` are square; otherwise, they have `min(m, n)` columns and rows.
        subset_by_index: Only None, the default, is supported: all singular values are computed.

    `x: f32[..., m, n] -> s: f32[..., min(m, n)], u: f32[..., m, min(m, n)], vh: f32[..., min(m, n), n]`, 32-bit or
    64-bit floats or complex numbers. Bound by `lax.linalg.svd`.
    """

    name = "svd"
    multiple_results = True
    algorithm: SvdAlgorithm | None
    compute_uv: bool
    full_matrices: bool
    subset_by_index: tuple[int, int] | None = None

    @override
    def result_types(self, dtype: DType, *shapes: Shape) -> ResultTypes:
        m, n = shapes[0]
        if self.subset_by_index is not None:
            raise NotImplementedError("svd computes all singular values: slice its results for subset_by_index")
        k = min_dim(m, n)
        rows, columns = (m, n) if self.full_matrices else (k, k)
        vectors: ResultTypes = [((m, rows), dtype), ((columns, n), dtype)] if self.compute_uv else []
        return [((k,), dtypes.real_dtype(dtype)), *vectors]

    @override
    def emit(self, builder: Builder, outs: Sequence[ShapedArray], *operands: IrValue) -> Sequence[IrValue]:
        (x,) = operands
        if gpu.on_gpu(builder):
            return self._emit_on_gpu(builder, outs, x)
        if self.algorithm not in _KERNELS:
            raise NotImplementedError(f"svd: {self.algorithm} is not supported on the CPU; omit algorithm")
        mode = ("A" if self.full_matrices else "S") if self.compute_uv else "N"
        found = outs if self.compute_uv else evolve(self, compute_uv=True).abstract_eval(x.aval)
        results = [x.aval, *found, info_aval(x.aval)]
        kernel = _KERNELS[self.algorithm]
        _, *parts, status = lapack.call_lapack(self, builder, kernel, [x], results, {"mode": char_attr(mode)}, [(0, 0)])
        return nan_on_failure(builder, status, parts[: len(outs)], outs)

    def _emit_on_gpu(self, builder: Builder, outs: Sequence[ShapedArray], x: IrValue) -> Sequence[IrValue]:
        algorithm, (m, n) = self.algorithm, x.aval.shape[-2:]
        if algorithm in (None, SvdAlgorithm.DEFAULT):
            algorithm = SvdAlgorithm.JACOBI if max(m, n) <= _MAX_JACOBI_SIZE else SvdAlgorithm.QR
        if algorithm is SvdAlgorithm.DIVIDE_AND_CONQUER and builder.platform != "rocm":
            raise NotImplementedError(
                f"svd: {algorithm} is not supported on {builder.platform!r}; omit algorithm, or choose another one"
            )
        if algorithm in (SvdAlgorithm.JACOBI, SvdAlgorithm.POLAR):
            return self._emit_jacobi(builder, outs, x, _GPU_KERNELS[algorithm])
        # cuSOLVER's kernel needs at least as many rows as columns. Others are passed transposed, in row-major order.
        across = m < n and algorithm is SvdAlgorithm.QR
        none = ShapedArray((), x.aval.dtype)
        u, vh = outs[1:] if self.compute_uv else (none, none)
        results = [x.aval, outs[0], *((vh, u) if across else (u, vh)), info_aval(x.aval)]
        config = {"full_matrices": self.full_matrices, "compute_uv": self.compute_uv, "transposed": across}
        kernel = _GPU_KERNELS[algorithm]
        _, *parts, status = gpu.call_gpu_solver(builder, kernel, [x], results, config, [(0, 0)], by_rows=across)
        if across:
            parts[1:] = parts[:0:-1]
        return nan_on_failure(builder, status, parts[: len(outs)], outs)

    def _emit_jacobi(self, builder: Builder, outs: Sequence[ShapedArray], x: IrValue, kernel: str) -> Sequence[IrValue]:
        """Emits kernels that always return the vectors, the right ones in columns."""
        *stack, m, n = x.aval.shape
        k = min(m, n)
        whole = self.full_matrices or (kernel == _GPU_KERNELS[SvdAlgorithm.JACOBI] and k <= _MAX_BATCHED_JACOBI_SIZE)
        left, right = [x.aval.update(shape=(*stack, r, r if whole else k)) for r in (m, n)]
        results = [x.aval, outs[0], left, right, info_aval(x.aval)]
        config = {"full_matrices": whole, "compute_uv": self.compute_uv}
        _, values, u, v, status = gpu.call_gpu_solver(builder, kernel, [x], results, config, [(0, 0)])
        if not self.compute_uv:
            return nan_on_failure(builder, status, [values], outs)

        def as_asked(u: Value, v: Value) -> list[Array]:
            last = len(stack) + 1
            if self.full_matrices:
                return [as_array(u), adjoint(v)]
            return [slice_axis(u, 0, k, last), adjoint(slice_axis(v, 0, k, last))]

        return nan_on_failure(builder, status, [values, *builder.lower_fun(as_asked, [u, v])], outs)

    @override
    def emit_empty(self, builder: Builder, outs: Sequence[ShapedArray], *operands: IrValue) -> Sequence[IrValue]:
        """Emits no singular values, and identity matrices as vectors."""
        values, *vectors = outs
        return [stablehlo.emit_full(builder, 0, values), *[lapack.emit_identity(builder, out) for out in vectors]]

    @override
    def pushforward(self, x: Value, t: Value) -> tuple[Sequence[Value], Sequence[Tangent]]:
        m, n = x.aval.shape[-2:]
        if self.compute_uv and self.full_matrices and m != n:
            raise NotImplementedError(
                f"svd: the {abs(m - n)} singular vectors without a singular value are determined only up to rotation, "
                "so they have no derivatives; use full_matrices=False"
            )
        values, u, vh = bind(evolve(self, compute_uv=True, full_matrices=False), x)
        uh, v = adjoint(u), adjoint(vh)
        inner = matmul(matmul(uh, t), v)
        moved = diagonal(real_part(inner))
        if not self.compute_uv:
            return [values], [moved]
        dtype, k = x.aval.dtype, values.aval.shape[-1]
        on = diagonal_mask(inner.aval.shape)
        s = convert(values, dtype)
        rows, columns = broadcast_rows(s, k), broadcast_columns(s, k)
        apart = mul(add(rows, columns), sub(rows, columns))
        weights = select_with_aval(on, 0.0, div(1.0, select_with_aval(on, 1.0, apart, apart.aval)), apart.aval)
        right, left = mul(rows, inner), mul(columns, inner)
        # The diagonal is the phase; it is zero for real matrices.
        none = eq(columns, 0.0)
        inverse = select_with_aval(
            none, 0.0, div(1.0, select_with_aval(none, 1.0, columns, columns.aval)), columns.aval
        )
        phase = select_with_aval(on, mul(mul(0.5, sub(inner, adjoint(inner))), inverse), 0.0, inner.aval)
        du = matmul(u, add(mul(weights, add(right, adjoint(right))), phase))
        dv = matmul(v, mul(weights, add(left, adjoint(left))))
        if m != k:
            beyond = matmul(t, v)
            du = add(du, div(sub(beyond, matmul(u, matmul(uh, beyond))), broadcast_rows(s, m)))
        if n != k:
            beyond = matmul(adjoint(t), u)
            dv = add(dv, div(sub(beyond, matmul(v, matmul(vh, beyond))), broadcast_rows(s, n)))
        return [values, u, vh], [moved, du, adjoint(dv)]


@overload
def svd(
    x: ArrayLike,
    *,
    full_matrices: bool = ...,
    compute_uv: Literal[True] = ...,
    subset_by_index: tuple[int, int] | None = ...,
    algorithm: SvdAlgorithm | None = ...,
) -> tuple[Array, Array, Array]: ...
@overload
def svd(
    x: ArrayLike,
    *,
    full_matrices: bool = ...,
    compute_uv: Literal[False],
    subset_by_index: tuple[int, int] | None = ...,
    algorithm: SvdAlgorithm | None = ...,
) -> Array: ...
@overload
def svd(
    x: ArrayLike,
    *,
    full_matrices: bool = ...,
    compute_uv: bool,
    subset_by_index: tuple[int, int] | None = ...,
    algorithm: SvdAlgorithm | None = ...,
) -> Array | tuple[Array, Array, Array]: ...
def svd(
    x: ArrayLike,
    *,
    full_matrices: bool = True,
    compute_uv: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    algorithm: SvdAlgorithm | None = None,
) -> Array | tuple[Array, Array, Array]:
    """Returns the singular value decomposition `u diag(s) vh = x`.

    Args:
        x: Matrices `f32[..., m, n]`.
        full_matrices: Whether `u` is `f32[..., m, m]` and `vh` is `f32[..., n, n]`. True by default; False gives them
            `min(m, n)` columns and rows.
        compute_uv: Whether to return `u` and `vh`. True by default; False returns only `s`.
        subset_by_index: A range `(start, stop)` of singular values to return, with their vectors. None, the default,
            means all.
        algorithm: The algorithm. None, the default, means that of the platform.

    Returns:
        `(u, s, vh)`, or `s` alone; `s` is `f32[..., min(m, n)]` in descending order. NaN where there is no convergence.

    Raises:
        NotImplementedError: The platform does not have the algorithm, or full matrices of vectors are differentiated.
        TypeError: The dtype does not have 32-bit or 64-bit components.
        ValueError: `subset_by_index` is not a valid range, or is a part while `full_matrices` is set.

    >>> import numpy as np
    >>> svd(np.array([[0.0, 2.0], [1.0, 0.0]]), compute_uv=False)
    Array([2., 1.], dtype=float32)
    """
    outs = bind(Svd(algorithm, bool(compute_uv), bool(full_matrices)), as_value(x, "x"))
    s, *vectors = [as_array(o) for o in outs]
    if subset_by_index is not None:
        start, stop = canonicalize_subset("svd", subset_by_index, s.shape[-1])
        if full_matrices and compute_uv and stop - start != s.shape[-1]:
            raise ValueError("svd: subset_by_index and full_matrices contradict each other; pass full_matrices=False")
        s = slice_axis(s, start, stop, s.ndim - 1)
        if vectors and not full_matrices:
            u, vh = vectors
            vectors = [slice_axis(u, start, stop, u.ndim - 1), slice_axis(vh, start, stop, vh.ndim - 2)]
    return (vectors[0], s, vectors[1]) if vectors else s
