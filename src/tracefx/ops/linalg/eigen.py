"""Eigenvalues and eigenvectors: `eigh` of Hermitian matrices, `eig` of general ones."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import final

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.core import Array, ArrayLike, DType, Shape, ShapedArray, Value, as_value, dtypes
from tracefx.core.handler import as_array, bind
from tracefx.core.primitive import Tangent
from tracefx.lowering import Attr, Builder, IrValue
from tracefx.ops.elementwise.abs_sign import abs
from tracefx.ops.elementwise.arithmetic import div, mul, neg
from tracefx.ops.elementwise.comparison import eq, gt, lt
from tracefx.ops.elementwise.complex import complex, complex_dtype, conj, imag, real
from tracefx.ops.elementwise.elementwise import add
from tracefx.ops.elementwise.selection import select_with_aval
from tracefx.ops.linalg import gpu, lapack
from tracefx.ops.linalg.lapack import (
    MatrixKernel,
    ResultTypes,
    byte,
    char_attr,
    info_aval,
    nan_on_failure,
    require_square,
)
from tracefx.ops.linalg.lu import solve
from tracefx.ops.linalg.matrices import (
    adjoint,
    broadcast_rows,
    diagonal,
    diagonal_mask,
    hermitian_from_triangle,
    matmul,
    matrix_transpose,
    pairwise_differences,
    real_part,
    symmetrize,
)
from tracefx.ops.operation import HasPushforward
from tracefx.ops.reductions.reduction import argmax
from tracefx.ops.shape.array_creation import broadcasted_iota, zero
from tracefx.ops.shape.slicing import pad, slice_axis
from tracefx.ops.static_integers import static_int
from tracefx.ops.structural import convert, reduce_sum

# ------------------------------------------------------------------ eigh


class EighImplementation(Enum):
    """Implementations of `eigh`. The CPU has `QR`; GPUs have `QR` and `JACOBI`."""

    QR = "qr"
    JACOBI = "jacobi"
    QDWH = "qdwh"


@final
@frozen(eq=False)
class Eigh(MatrixKernel, HasPushforward):
    """The eigendecomposition of Hermitian matrices: unitary `v` and real `w` with `x v = v diag(w)`.

    It reads only one triangle. With `f[i, j] = 1 / (w[j] - w[i])` and zeros on the diagonal, the tangents are
    `dv = v (f * (v^H dx v))` and `dw = diag(v^H dx v)`.

    Args:
        algorithm: The algorithm; None means the platform's default.
        lower: Whether the lower triangle is read; otherwise, the upper one.
        sort_eigenvalues: Whether eigenvalues must be in ascending order; they always are.
        subset_by_index: Only None, the default, is supported: all eigenvalues are computed.

    `x: f32[..., n, n] -> v: f32[..., n, n], w: f32[..., n]`, 32-bit or 64-bit floats or complex numbers. Bound by
    `lax.linalg.eigh`.
    """

    name = "eigh"
    multiple_results = True
    algorithm: EighImplementation | None
    is_lower: bool = field(alias="lower")
    sort_eigenvalues: bool
    subset_by_index: tuple[int, int] | None = None

    @override
    def result_types(self, dtype: DType, *shapes: Shape) -> ResultTypes:
        require_square(self.name, shapes[0])
        if self.subset_by_index is not None:
            raise NotImplementedError("eigh computes all eigenvalues: slice its results for subset_by_index")
        return [(shapes[0], dtype), (shapes[0][:1], dtypes.real_dtype(dtype))]

    @override
    def emit(self, builder: Builder, outs: Sequence[ShapedArray], *operands: IrValue) -> Sequence[IrValue]:
        (x,) = operands
        results = [*outs, info_aval(x.aval)]
        if gpu.on_gpu(builder):
            if self.algorithm is EighImplementation.QDWH:
                raise NotImplementedError(f"eigh: {self.algorithm} is not supported on GPUs; omit implementation")
            which = 0 if self.algorithm is None else 2 if self.algorithm is EighImplementation.JACOBI else 1
            config: dict[str, Attr] = {"lower": self.is_lower, "algorithm": byte(which)}
            *found, status = gpu.call_gpu_solver(builder, "solver_syevd_ffi", [x], results, config, [(0, 0)])
            return nan_on_failure(builder, status, found, outs)
        if self.algorithm not in (None, EighImplementation.QR):
            raise NotImplementedError(f"eigh: {self.algorithm} is not supported on the CPU; omit implementation")
        kernel = "heevd_ffi" if dtypes.is_complex(x.aval.dtype) else "syevd_ffi"
        config = {"mode": char_attr("V"), "uplo": lapack.uplo_attr(self.is_lower)}
        *found, status = lapack.call_lapack(self, builder, kernel, [x], results, config, [(0, 0)])
        return nan_on_failure(builder, status, found, outs)

    @override
    def pushforward(self, x: Value, t: Value) -> tuple[Sequence[Value], Sequence[Tangent]]:
        vectors, values = bind(self, x)
        inner = matmul(matmul(adjoint(vectors), hermitian_from_triangle(t, self.is_lower)), vectors)
        turned = matmul(vectors, mul(_reciprocals(convert(values, t.aval.dtype)), inner))
        return [vectors, values], [turned, diagonal(real_part(inner))]


def _reciprocals(values: Value) -> Array:
    """Returns `1 / (values[j] - values[i])` at row `i`, column `j`; zeros on the diagonal."""
    apart = pairwise_differences(values)
    on = diagonal_mask(apart.aval.shape)
    return select_with_aval(on, 0.0, div(1.0, select_with_aval(on, 1.0, apart, apart.aval)), apart.aval)


def eigh(
    x: ArrayLike,
    *,
    lower: bool = True,
    symmetrize_input: bool = True,
    sort_eigenvalues: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    implementation: EighImplementation | None = None,
) -> tuple[Array, Array]:
    """Returns the eigendecomposition of Hermitian matrices.

    Derivatives of eigenvectors exist where eigenvalues are distinct.

    Args:
        x: Matrices `f32[..., n, n]`.
        lower: Whether to read the lower triangle, without `symmetrize_input`. True by default.
        symmetrize_input: Whether to decompose the Hermitian part of `x`. True by default; False reads one triangle.
        sort_eigenvalues: Accepted for compatibility; eigenvalues are always sorted.
        subset_by_index: A range `(start, stop)` of eigenvalues to return, with their eigenvectors. None, the default,
            means all.
        implementation: The implementation. None, the default, means that of the platform.

    Returns:
        A pair: eigenvectors in columns, `f32[..., n, n]`, and real eigenvalues in ascending order, `f32[..., n]`. NaN
        where there is no convergence.

    Raises:
        NotImplementedError: The platform does not have the implementation.
        TypeError: The dtype does not have 32-bit or 64-bit components.
        ValueError: The matrices are not square, or `subset_by_index` is not a valid range.

    >>> import numpy as np
    >>> vectors, values = eigh(np.array([[2.0, 0.0], [0.0, 1.0]]))
    >>> values
    Array([1., 2.], dtype=float32)
    """
    value = as_value(x, "x")
    if symmetrize_input and value.aval.ndim >= 2 and value.aval.shape[-1] == value.aval.shape[-2]:
        value = symmetrize(value)
    outs = bind(Eigh(implementation, bool(lower), bool(sort_eigenvalues)), value)
    vectors, values = [as_array(o) for o in outs]
    if subset_by_index is not None:
        start, stop = canonicalize_subset("eigh", subset_by_index, values.shape[-1])
        vectors, values = [slice_axis(v, start, stop, v.aval.ndim - 1) for v in (vectors, values)]
    return vectors, values


def canonicalize_subset(name: str, subset: tuple[int, int], size: int) -> tuple[int, int]:
    """Returns a range as two integers; raises ValueError unless it is within `size`."""
    start, stop = [static_int(name, i, "subset_by_index") for i in subset]
    if not 0 <= start <= stop <= size:
        raise ValueError(f"{name}: subset_by_index must be a range within the {size} values, got {subset}")
    return start, stop


# ------------------------------------------------------------------ eig


class EigImplementation(Enum):
    """Libraries that compute `eig`.

    The CPU has `LAPACK`. GPUs have `LAPACK`, which runs on the host; `MAGMA`, if it is installed; and NVIDIA's have
    `CUSOLVER` from version 11.7.1 on, without left eigenvectors. The default on a GPU is cuSOLVER if it is installed
    and can compute what is requested; else MAGMA for large matrices, if it is found; else LAPACK.
    """

    CUSOLVER = "cusolver"
    MAGMA = "magma"
    LAPACK = "lapack"


@final
@frozen(eq=False)
class Eig(MatrixKernel, HasPushforward):
    """The eigendecomposition of general matrices: eigenvalues, left and right eigenvectors, `x v[:, i] = w[i] v[:, i]`.

    Args:
        compute_left_eigenvectors: Whether the left eigenvectors are a result.
        compute_right_eigenvectors: Whether the right eigenvectors are a result.
        enable_eigvec_derivs: Whether eigenvectors may be differentiated; False by default.
        implementation: The library that computes it; None, the default, means the platform's default.

    `x: f32[..., n, n] -> w: c64[..., n], vl: c64[..., n, n], vr: c64[..., n, n]`, with only the requested vectors;
    32-bit or 64-bit floats or complex numbers. Bound by `lax.linalg.eig`.
    """

    name = "eig"
    multiple_results = True
    compute_left_eigenvectors: bool
    compute_right_eigenvectors: bool
    enable_eigvec_derivs: bool = False
    implementation: EigImplementation | None = None

    @override
    def result_types(self, dtype: DType, *shapes: Shape) -> ResultTypes:
        require_square(self.name, shapes[0])
        dtype = complex_dtype(dtypes.real_dtype(dtype))
        count = self.compute_left_eigenvectors + self.compute_right_eigenvectors
        return [(shapes[0][:1], dtype), *[(shapes[0], dtype)] * count]

    @override
    def emit(self, builder: Builder, outs: Sequence[ShapedArray], *operands: IrValue) -> Sequence[IrValue]:
        (x,) = operands
        if gpu.on_gpu(builder):
            return self._emit_on_gpu(builder, outs, x)
        if self.implementation not in (None, EigImplementation.LAPACK):
            raise NotImplementedError(f"eig: {self.implementation} is not supported on the CPU; omit implementation")
        left, right = [char_attr("V" if each else "N") for each in self._requested]
        config = {"compute_left": left, "compute_right": right}
        found = lapack.call_lapack(self, builder, "geev_ffi", [x], self._results(outs[0], x.aval), config)
        return self._checked(builder, outs, *found)

    @property
    def _requested(self) -> tuple[bool, bool]:
        """Whether left and right eigenvectors are requested."""
        return self.compute_left_eigenvectors, self.compute_right_eigenvectors

    @staticmethod
    def _results(out: ShapedArray, x: ShapedArray) -> list[ShapedArray]:
        """Returns the avals of LAPACK's results: eigenvalues (real and imaginary parts for real `x`), left and right
        eigenvectors, status.
        """
        matrix = ShapedArray(x.shape, out.dtype)
        parts = [ShapedArray(out.shape, x.dtype)] * (1 if dtypes.is_complex(x.dtype) else 2)
        return [*parts, matrix, matrix, info_aval(x)]

    def _checked(self, builder: Builder, outs: Sequence[ShapedArray], *found: IrValue) -> list[IrValue]:
        """Emits the requested results of a kernel, with NaN where it failed."""
        *values, vl, vr, status = found
        if len(values) == 2:
            values = builder.emit("stablehlo.complex", values, [outs[0]])
        vectors = [v for v, each in zip((vl, vr), self._requested, strict=True) if each]
        return nan_on_failure(builder, status, [*values, *vectors], outs)

    def _emit_on_gpu(self, builder: Builder, outs: Sequence[ShapedArray], x: IrValue) -> list[IrValue]:
        config: dict[str, Attr] = dict(zip(("left", "right"), self._requested, strict=True))
        library = self.implementation
        if library is None and builder.platform == "cuda" and not self.compute_left_eigenvectors:
            library = EigImplementation.CUSOLVER if builder.has_custom_call_target("cusolver_geev_ffi") else None
        if library is not EigImplementation.CUSOLVER:
            prefer_magma = None if library is None else library is EigImplementation.MAGMA
            kernel = "hybrid_eig_comp" if dtypes.is_complex(x.aval.dtype) else "hybrid_eig_real"
            config["magma"] = gpu.magma_attr(prefer_magma)
            return self._checked(
                builder, outs, *gpu.call_gpu_solver(builder, kernel, [x], self._results(outs[0], x.aval), config)
            )
        if builder.platform != "cuda":
            raise NotImplementedError(f"eig: {library} is not supported on {builder.platform!r}")
        if self.compute_left_eigenvectors:
            raise NotImplementedError("eig: cuSOLVER does not compute left eigenvectors; omit implementation or these")
        results = [x.aval, outs[0], x.aval, x.aval, info_aval(x.aval)]
        _, values, vl, vr, status = gpu.call_gpu_solver(builder, "solver_geev_ffi", [x], results, config)
        if self.compute_right_eigenvectors and not dtypes.is_complex(x.aval.dtype):
            (vr,) = builder.lower_fun(lambda *found: [unpack_eigenvectors(*found)], [values, vr])
        return self._checked(builder, outs, values, vl, vr, status)

    @override
    def pushforward(self, x: Value, t: Value) -> tuple[Sequence[Value], Sequence[Tangent]]:
        left, right = self.compute_left_eigenvectors, self.compute_right_eigenvectors
        if (left or right) and not self.enable_eigvec_derivs:
            raise NotImplementedError(
                "eig: eigenvectors have derivatives only if all eigenvalues are distinct and each eigenvector has "
                "one largest component, which can't be checked while tracing. If you know that this "
                "holds, pass enable_eigvec_derivs=True to lax.linalg.eig"
            )
        # Derivatives of eigenvalues don't depend on the length and phase of eigenvectors, so these are valid here.
        values, *vectors = bind(evolve(self, compute_right_eigenvectors=True, enable_eigvec_derivs=True), x)
        columns = vectors[-1]
        t = convert(t, columns.aval.dtype)
        if not (left or right):
            moved = mul(solve(columns, t), matrix_transpose(columns))
            return [values], [reduce_sum(moved, (moved.aval.ndim - 1,))]
        d_values, d_columns = _eigenpair_jvp(values, columns, t)
        outs: list[Value] = [values]
        pushed: list[Tangent] = [d_values]
        if left:
            outs.append(vectors[0])
            pushed.append(_eigenpair_jvp(conj(values), vectors[0], adjoint(t))[1])
        if right:
            outs.append(columns)
            pushed.append(d_columns)
        return outs, pushed


def unpack_eigenvectors(values: Value, packed: Value) -> Array:
    """Returns complex eigenvectors of real matrices, from conjugate pairs that are stored as real and imaginary parts.

    The eigenvector whose eigenvalue has a positive imaginary part comes first.
    """
    n = packed.aval.shape[-1]
    edge = [(0, 0, 0)] * packed.aval.ndim
    before, after = [pad(packed, zero(packed.aval), [*edge[:-1], (by, -by, 0)]) for by in (1, -1)]
    side = broadcast_rows(imag(values), n)
    first, second = gt(side, 0.0), lt(side, 0.0)
    imaginary = select_with_aval(first, after, select_with_aval(second, neg(packed), 0.0, packed.aval), packed.aval)
    return complex(select_with_aval(second, before, packed, packed.aval), imaginary)


def _eigenpair_jvp(values: Value, vectors: Value, t: Value) -> tuple[Array, Array]:
    """Returns the tangents of eigenvalues and eigenvectors, which keep length 1 and a real largest component."""
    inner = matmul(solve(vectors, t), vectors)
    free = matmul(vectors, mul(_reciprocals(values), inner))
    row = vectors.aval.ndim - 2
    largest = argmax(abs(vectors), row, dtypes.int32)
    at = eq(broadcasted_iota(dtypes.int32, vectors.aval.shape, row), broadcast_rows(largest, vectors.aval.shape[-1]))
    along = real(reduce_sum(mul(conj(vectors), free), (row,)))
    turned, length = [reduce_sum(select_with_aval(at, v, 0.0, v.aval), (row,)) for v in (free, vectors)]
    scale = complex(neg(along), neg(div(imag(turned), real(length))))
    moved = add(free, mul(vectors, broadcast_rows(scale, vectors.aval.shape[-1])))
    return diagonal(inner), moved


def eig(
    x: ArrayLike,
    *,
    compute_left_eigenvectors: bool = True,
    compute_right_eigenvectors: bool = True,
    enable_eigvec_derivs: bool = False,
    implementation: EigImplementation | None = None,
    use_magma: bool | None = None,
) -> list[Array]:
    """Returns the eigendecomposition of general matrices.

    Derivatives of eigenvalues exist where they are distinct.

    Args:
        x: Matrices `f32[..., n, n]`.
        compute_left_eigenvectors: Whether to return left eigenvectors. True by default.
        compute_right_eigenvectors: Whether to return right eigenvectors. True by default.
        enable_eigvec_derivs: Whether eigenvectors may be differentiated, normalized to length 1 with a real largest
            component. False by default, because the derivatives exist only where eigenvalues are distinct.
        implementation: The library. None, the default, means that of the platform.
        use_magma: Whether to use `MAGMA` or `LAPACK`; overrides `implementation`. None, the default, does not.

    Returns:
        A list: complex eigenvalues `c64[..., n]`, then the requested left and right eigenvectors in columns,
        `c64[..., n, n]`. NaN where there is no convergence.

    Raises:
        NotImplementedError: The platform does not have the implementation, or eigenvectors are differentiated without
            `enable_eigvec_derivs`.
        TypeError: The dtype does not have 32-bit or 64-bit components.
        ValueError: The matrices are not square.

    >>> import numpy as np
    >>> eig(np.array([[0.0, 1.0], [-1.0, 0.0]]))[0].tolist()
    [1j, -1j]
    """
    asked = bool(compute_left_eigenvectors), bool(compute_right_eigenvectors)
    if use_magma is not None:
        implementation = EigImplementation.MAGMA if use_magma else EigImplementation.LAPACK
    outs = bind(Eig(*asked, bool(enable_eigvec_derivs), implementation), as_value(x, "x"))
    return [as_array(o) for o in outs]
