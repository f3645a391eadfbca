"""Reductions by unitary similarity: `schur`, `hessenberg`, and `tridiagonal` of Hermitian matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from attrs import field, frozen
from typing_extensions import override

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import Shape, ShapedArray
from tracefx.core.dtypes import DType
from tracefx.core.handler import as_array, bind
from tracefx.core.values import as_value
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
    name = "schur"
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
        form, vectors, *_, said = lapack.call_lapack(self, builder, "gees_ffi", [x], results, config, [(0, 0)])
        return nan_on_failure(builder, said, [form, vectors][: len(outs)], outs)


def schur(
    x: ArrayLike,
    *,
    compute_schur_vectors: bool = True,
    sort_eig_vals: bool = False,
    select_callable: None = None,
) -> list[Array]:
    """Upper triangular `t`, and unitary `q` if `compute_schur_vectors`, for which `q t q^H` is `x` (`f32[..., n, n]`).

    For real `x` both are real, and `t` has blocks of two on its diagonal for pairs of complex eigenvalues.

    Raises NotImplementedError for `sort_eig_vals`.

    >>> import numpy as np
    >>> schur(np.array([[2.0, 1.0], [0.0, 3.0]]))[0].tolist()
    [[2.0, 1.0], [0.0, 3.0]]
    """
    if sort_eig_vals or select_callable is not None:
        raise NotImplementedError("schur gives eigenvalues in the order in which LAPACK finds them: they aren't sorted")
    return [as_array(o) for o in bind(Schur(bool(compute_schur_vectors)), as_value(x, "x"))]


# ------------------------------------------------------------------ hessenberg


@final
class Hessenberg(MatrixKernel):
    __slots__ = ()
    name = "hessenberg"

    @override
    def result_types(self, dtype: DType, *shapes: Shape) -> ResultTypes:
        require_square(self.name, shapes[0])
        n = shapes[0][0]
        if not n:
            raise ValueError("hessenberg takes matrices with elements, but they are 0 by 0")
        return [(shapes[0], dtype), ((n - 1,), dtype)]

    @override
    def emit(self, builder: Builder, outs: Sequence[ShapedArray], *operands: IrValue) -> Sequence[IrValue]:
        (x,) = operands
        config = {"low": word(1), "high": word(x.aval.shape[-1])}
        *found, said = lapack.call_lapack(self, builder, "gehrd_ffi", [x], [*outs, info_aval(x.aval)], config, [(0, 0)])
        return nan_on_failure(builder, said, found, outs)


HESSENBERG: Final = Hessenberg()


def hessenberg(a: ArrayLike) -> tuple[Array, Array]:
    """The matrix that is zero below its first subdiagonal and similar to `a` (`f32[..., n, n]`), and how it came about.

    Below that subdiagonal of the first result stand reflections; the second has their factors (`f32[..., n - 1]`).

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
    name = "tridiagonal"
    is_lower: bool = field(alias="lower")

    @override
    def result_types(self, dtype: DType, *shapes: Shape) -> ResultTypes:
        require_square(self.name, shapes[0])
        n, part = shapes[0][0], dtypes.real_dtype(dtype)
        if not n:
            raise ValueError("tridiagonal takes matrices with elements, but they are 0 by 0")
        return [(shapes[0], dtype), ((n,), part), ((n - 1,), part), ((n - 1,), dtype)]

    @override
    def emit(self, builder: Builder, outs: Sequence[ShapedArray], *operands: IrValue) -> Sequence[IrValue]:
        (x,) = operands
        results = [*outs, info_aval(x.aval)]
        if gpu.on_gpu(builder):
            *found, said = gpu.call_gpu_solver(
                builder, "solver_sytrd_ffi", [x], results, {"lower": self.is_lower}, [(0, 0)]
            )
        else:
            kernel = "hetrd_ffi" if dtypes.is_complex(x.aval.dtype) else "sytrd_ffi"
            config = {"uplo": uplo_attr(self.is_lower)}
            *found, said = lapack.call_lapack(self, builder, kernel, [x], results, config, [(0, 0)])
        return nan_on_failure(builder, said, found, outs)


def tridiagonal(a: ArrayLike, *, lower: bool = True) -> tuple[Array, Array, Array, Array]:
    """The tridiagonal matrix that Hermitian `a` (`f32[..., n, n]`) is similar to, and how it came about.

    The results are a matrix with the reflections beyond the first off-diagonal of one triangle, which alone is read
    and written; the diagonal; the off-diagonal; and the factors of the reflections.

    >>> import numpy as np
    >>> tridiagonal(np.array([[1.0, 2.0], [2.0, 4.0]]))[1]
    Array([1., 4.], dtype=float32)
    """
    out, diagonal, beside, taus = bind(Tridiagonal(bool(lower)), as_value(a, "a"))
    return as_array(out), as_array(diagonal), as_array(beside), as_array(taus)
