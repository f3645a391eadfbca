"""Reductions by unitary similarity: `schur`, `hessenberg`, `tridiagonal`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from attrs import field, frozen
from typing_extensions import override

from tracefx.core import Array, ArrayLike, DType, Shape, ShapedArray, as_value, dtypes
from tracefx.core.handler import as_array, bind
from tracefx.lowering import Builder, IrValue
from tracefx.ops.linalg import gpu, lapack
from tracefx.ops.linalg.lapack import (
    MatrixKernel,
    ResultTypes,
    char_attr,
    info_aval,
    nan_on_failure,
    require_square,
    uplo_attr,
    word,
)

# ------------------------------------------------------------------ schur


@final
@frozen(eq=False)
class Schur(MatrixKernel):
    """The Schur decomposition `q t q^H = x`: upper triangular `t` (of 2 by 2 blocks for real matrices) and unitary `q`.

    Args:
        compute_schur_vectors: Whether `q` is a result.
        select_callable: Only None, the default, is supported.
        sort_eig_vals: Only False, the default, is supported: eigenvalues have the order of LAPACK's `gees`.

    `x: f32[..., n, n] -> t: f32[..., n, n], q: f32[..., n, n]`, 32-bit or 64-bit floats or complex numbers. Bound by
    `lax.linalg.schur`.
    """

    name = "schur"
    multiple_results = True
    compute_schur_vectors: bool
    select_callable: None = None
    sort_eig_vals: bool = False

    @override
    def result_types(self, dtype: DType, *shapes: Shape) -> ResultTypes:
        require_square(self.name, shapes[0])
        return [(shapes[0], dtype)] * (2 if self.compute_schur_vectors else 1)

    @override
    def emit(self, builder: Builder, outs: Sequence[ShapedArray], *operands: IrValue) -> Sequence[IrValue]:
        (x,) = operands
        info = info_aval(x.aval)
        values = [ShapedArray(x.aval.shape[:-1], x.aval.dtype)] * (1 if dtypes.is_complex(x.aval.dtype) else 2)
        config = {"mode": char_attr("V" if self.compute_schur_vectors else "N"), "sort": char_attr("N")}
        results = [x.aval, x.aval, *values, info, info]
        form, vectors, *_, status = lapack.call_lapack(self, builder, "gees_ffi", [x], results, config, [(0, 0)])
        return nan_on_failure(builder, status, [form, vectors][: len(outs)], outs)


def schur(
    x: ArrayLike,
    *,
    compute_schur_vectors: bool = True,
    sort_eig_vals: bool = False,
    select_callable: None = None,
) -> list[Array]:
    """Returns the Schur decomposition `q t q^H = x`, with upper triangular `t` and unitary `q`.

    Args:
        x: Matrices `f32[..., n, n]`.
        compute_schur_vectors: Whether to return `q`. True by default.
        sort_eig_vals: Not supported; must be False.
        select_callable: Not supported; must be None.

    Returns:
        A list `[t, q]`, or `[t]`. For real `x` both are real, and `t` has 2 by 2 blocks on its diagonal for pairs of
        complex eigenvalues. NaN where there is no convergence.

    Raises:
        NotImplementedError: `sort_eig_vals` or `select_callable` is given.
        TypeError: The dtype does not have 32-bit or 64-bit components.
        ValueError: The matrices are not square.

    >>> import numpy as np
    >>> schur(np.array([[2.0, 1.0], [0.0, 3.0]]))[0].tolist()
    [[2.0, 1.0], [0.0, 3.0]]
    """
    if sort_eig_vals or select_callable is not None:
        raise NotImplementedError("schur does not sort eigenvalues: they have the order in which LAPACK computes them")
    return [as_array(o) for o in bind(Schur(bool(compute_schur_vectors)), as_value(x, "x"))]


# ------------------------------------------------------------------ hessenberg


@final
class Hessenberg(MatrixKernel):
    """The reduction to Hessenberg form, `q^H x q`, which is zero below the first subdiagonal, as LAPACK's `gehrd`.

    The first result has the Hessenberg form and, below it, the Householder vectors of `q`; the second one has their
    scales.

    `x: f32[..., n, n] -> f32[..., n, n], taus: f32[..., n - 1]`, 32-bit or 64-bit floats or complex numbers. Bound by
    `lax.linalg.hessenberg`.
    """

    name = "hessenberg"
    multiple_results = True

    @override
    def result_types(self, dtype: DType, *shapes: Shape) -> ResultTypes:
        require_square(self.name, shapes[0])
        n = shapes[0][0]
        if not n:
            raise ValueError("hessenberg takes nonempty matrices, got 0 by 0")
        return [(shapes[0], dtype), ((n - 1,), dtype)]

    @override
    def emit(self, builder: Builder, outs: Sequence[ShapedArray], *operands: IrValue) -> Sequence[IrValue]:
        (x,) = operands
        config = {"low": word(1), "high": word(x.aval.shape[-1])}
        *found, status = lapack.call_lapack(
            self, builder, "gehrd_ffi", [x], [*outs, info_aval(x.aval)], config, [(0, 0)]
        )
        return nan_on_failure(builder, status, found, outs)


HESSENBERG: Final = Hessenberg()


def hessenberg(a: ArrayLike) -> tuple[Array, Array]:
    """Returns the Hessenberg form of `a`: a similar matrix that is zero below its first subdiagonal.

    Args:
        a: Matrices `f32[..., n, n]`, nonempty.

    Returns:
        A pair: the form, `f32[..., n, n]`, with the Householder reflectors below its subdiagonal; and their scales,
        `f32[..., n - 1]`.

    Raises:
        TypeError: The dtype does not have 32-bit or 64-bit components.
        ValueError: The matrices are not square, or empty.

    >>> import numpy as np
    >>> hessenberg(np.array([[1.0, 2.0], [3.0, 4.0]]))[0].tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    out, taus = bind(HESSENBERG, as_value(a, "a"))
    return as_array(out), as_array(taus)


# ------------------------------------------------------------------ tridiagonal


@final
@frozen(eq=False)
class Tridiagonal(MatrixKernel):
    """The reduction of Hermitian matrices to real tridiagonal form, `q^H x q`, as LAPACK's `sytrd` and `hetrd`.

    The results are a matrix with the Householder vectors of `q`, the diagonal, the off-diagonal, and the scales.

    Args:
        lower: Whether the lower triangle is read; otherwise, the upper one.

    `x: f32[..., n, n] -> f32[..., n, n], d: f32[..., n], e: f32[..., n - 1], taus: f32[..., n - 1]`, 32-bit or 64-bit
    floats or complex numbers. Bound by `lax.linalg.tridiagonal`.
    """

    name = "tridiagonal"
    multiple_results = True
    is_lower: bool = field(alias="lower")

    @override
    def result_types(self, dtype: DType, *shapes: Shape) -> ResultTypes:
        require_square(self.name, shapes[0])
        n, part = shapes[0][0], dtypes.real_dtype(dtype)
        if not n:
            raise ValueError("tridiagonal takes nonempty matrices, got 0 by 0")
        return [(shapes[0], dtype), ((n,), part), ((n - 1,), part), ((n - 1,), dtype)]

    @override
    def emit(self, builder: Builder, outs: Sequence[ShapedArray], *operands: IrValue) -> Sequence[IrValue]:
        (x,) = operands
        results = [*outs, info_aval(x.aval)]
        if gpu.on_gpu(builder):
            *found, status = gpu.call_gpu_solver(
                builder, "solver_sytrd_ffi", [x], results, {"lower": self.is_lower}, [(0, 0)]
            )
        else:
            kernel = "hetrd_ffi" if dtypes.is_complex(x.aval.dtype) else "sytrd_ffi"
            config = {"uplo": uplo_attr(self.is_lower)}
            *found, status = lapack.call_lapack(self, builder, kernel, [x], results, config, [(0, 0)])
        return nan_on_failure(builder, status, found, outs)


def tridiagonal(a: ArrayLike, *, lower: bool = True) -> tuple[Array, Array, Array, Array]:
    """Returns the tridiagonal form of a Hermitian matrix: a similar, real tridiagonal matrix.

    Args:
        a: Matrices `f32[..., n, n]`, nonempty. Only one triangle is read.
        lower: Whether that is the lower one. True by default.

    Returns:
        A tuple: a matrix with the Householder reflectors beyond the first off-diagonal of that triangle; the diagonal
        `f32[..., n]`; the off-diagonal `f32[..., n - 1]`; and the scales of the reflectors, `f32[..., n - 1]`.

    Raises:
        TypeError: The dtype does not have 32-bit or 64-bit components.
        ValueError: The matrices are not square, or empty.

    >>> import numpy as np
    >>> tridiagonal(np.array([[1.0, 2.0], [2.0, 4.0]]))[1]
    Array([1., 4.], dtype=float32)
    """
    out, diagonal, beside, taus = bind(Tridiagonal(bool(lower)), as_value(a, "a"))
    return as_array(out), as_array(diagonal), as_array(beside), as_array(taus)
