"""`tridiagonal_solve`: systems of equations with tridiagonal matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, final

from attrs import frozen
from typing_extensions import override

from tracefx.core import Array, ArrayLike, DType, Shape, ShapedArray, Value
from tracefx.core.handler import bind1
from tracefx.core.primitive import (
    BatchDims,
    Differentiable,
    MappedAxis,
    Tangent,
    UndefinedPrimal,
    Zero,
    not_linear_error,
)
from tracefx.lowering import Builder, IrValue
from tracefx.ops.elementwise.abs_sign import abs
from tracefx.ops.elementwise.arithmetic import div, mul, neg, sub
from tracefx.ops.elementwise.comparison import gt
from tracefx.ops.elementwise.elementwise import add, add_tangents
from tracefx.ops.elementwise.selection import select_with_aval
from tracefx.ops.linalg import gpu, lapack
from tracefx.ops.linalg.lapack import MatrixKernel, ResultTypes, info_aval, nan_on_failure
from tracefx.ops.linalg.matrices import broadcast_columns
from tracefx.ops.operation import HasPullback
from tracefx.ops.shape.array_creation import zero
from tracefx.ops.shape.shape import concatenate
from tracefx.ops.shape.slicing import pad, slice_axis
from tracefx.ops.structural import batch_first, instantiate, move_axis, reshape


@final
@frozen(eq=False)
class TridiagonalSolve(MatrixKernel, Differentiable, HasPullback):
    """The solution `x` of `dl[i] x[i - 1] + d[i] x[i] + du[i] x[i + 1] = b[i]`, for matrices given by three diagonals.

    `dl[0]` and `du[-1]` have no effect.

    Args:
        perturb_singular: Whether zero pivots are replaced by small numbers; False by default.

    `dl: f32[..., n], d: f32[..., n], du: f32[..., n], b: f32[..., n, m] -> f32[..., n, m]`, 32-bit or 64-bit floats or
    complex numbers. Bound by `lax.linalg.tridiagonal_solve`.
    """

    name = "tridiagonal_solve"
    ranks: ClassVar[tuple[int, ...]] = (1, 1, 1, 2)
    perturb_singular: bool = False

    @override
    def result_types(self, dtype: DType, *shapes: Shape) -> ResultTypes:
        dl, d, du, b = shapes
        if not dl == d == du:
            raise TypeError(f"tridiagonal_solve: dl, d and du must have equal lengths, got {dl[0]}, {d[0]} and {du[0]}")
        if d[0] != b[0]:
            raise TypeError(f"tridiagonal_solve: b must have one row for each of the {d[0]} equations, got {b[0]}")
        return [(b, dtype)]

    @override
    def emit(self, builder: Builder, outs: Sequence[ShapedArray], *operands: IrValue) -> Sequence[IrValue]:
        if gpu.on_gpu(builder):
            return self._emit_on_gpu(builder, outs, operands)
        if self.perturb_singular:
            return lapack.call_cpu_target(self, builder, "tridiagonal_solve_perturbed_ffi", operands, outs)
        results = [*[x.aval for x in operands], info_aval(outs[0])]
        same = [(i, i) for i in range(4)]
        *_, x, status = lapack.call_lapack(self, builder, "gtsv_ffi", operands, results, aliases=same)
        return nan_on_failure(builder, status, [x], outs)

    def _emit_on_gpu(
        self, builder: Builder, outs: Sequence[ShapedArray], operands: Sequence[IrValue]
    ) -> Sequence[IrValue]:
        if self.perturb_singular:
            return gpu.call_gpu_solver(builder, "_tridiagonal_solve_perturbed", operands, outs)
        if outs[0].shape[-2] < 3:  # cuSPARSE needs at least 3 equations
            return builder.lower_fun(_solve_small, operands)
        return gpu.call_gpu_solver(builder, "sparse_gtsv2_ffi", operands, outs, aliases=[(3, 0)])

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        *diagonals, _ = primals
        *moved, db = tangents
        x = bind1(self, *primals)
        change: Tangent = db
        if not all(isinstance(t, Zero) for t in moved):
            change = add_tangents(neg(_product([instantiate(t) for t in moved], x)), db)
        if isinstance(change, Zero):
            return [x], [change]
        return [x], [bind1(self, *diagonals, change)]

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        dl, d, du, b = args
        if (
            isinstance(dl, UndefinedPrimal)
            or isinstance(d, UndefinedPrimal)
            or isinstance(du, UndefinedPrimal)
            or not isinstance(b, UndefinedPrimal)
        ):
            raise not_linear_error(self)
        return [None, None, None, bind1(self, _shifted(du, 1), d, _shifted(dl, -1), ct)]

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        *diagonals, b = args
        dim = dims[-1]
        if dim is None or any(d is not None for d in dims[:-1]):
            fronted = [batch_first(x, d, axis) for x, d in zip(args, dims, strict=True)]
            return [bind1(self, *fronted)], [0]
        # One matrix for all right-hand sides, which are concatenated.
        position = b.aval.ndim - 2
        spread = move_axis(b, dim, position)
        *front, size, n = spread.aval.shape
        # The batch axis comes after the rows.
        flat = reshape(spread, (*front, size * n))
        return [reshape(bind1(self, *diagonals, flat), spread.aval.shape)], [position]


def _solve_small(dl: Value, d: Value, du: Value, b: Value) -> Sequence[Value]:
    """Returns the solution of one or two equations."""
    m, n = b.aval.shape[-2:]
    (first, *second), row = [slice_axis(b, i, i + 1, b.aval.ndim - 2) for i in range(m)], d.aval.ndim - 1

    def number(v: Value, i: int) -> Array:
        """Returns element `i` of each vector, broadcast over the right-hand sides."""
        return broadcast_columns(slice_axis(v, i, i + 1, row), n)

    if not second:
        return [div(first, number(d, 0))]
    # Pivoting: first the equation with the larger coefficient of the first unknown.
    (last,), a, c = second, number(d, 0), number(dl, 1)
    turned = gt(abs(c), abs(a))
    aval = first.aval
    pairs = ((a, c), (number(du, 0), number(d, 1)), (first, last))
    (a, c), (up, down), (first, last) = [
        (select_with_aval(turned, y, x, aval), select_with_aval(turned, x, y, aval)) for x, y in pairs
    ]
    factor = div(c, a)
    last = div(sub(last, mul(factor, first)), sub(down, mul(factor, up)))
    return [concatenate([div(sub(first, mul(up, last)), a), last], b.aval.ndim - 2)]


def _shifted(x: Value, by: int) -> Array:
    """Returns vectors shifted by one element, padded with a zero."""
    return pad(x, zero(x.aval), [*[(0, 0, 0)] * (x.aval.ndim - 1), (by, -by, 0)])


def _product(diagonals: Sequence[Value], x: Value) -> Array:
    """Returns the product of a tridiagonal matrix and a matrix."""
    dl, d, du = diagonals
    m, n = x.aval.shape[-2:]
    row = x.aval.ndim - 2
    edge = [(0, 0, 0)] * x.aval.ndim
    edge[row] = (1, 0, 0)
    before = pad(slice_axis(x, 0, m - 1, row), zero(x.aval), edge) if m else x
    edge[row] = (0, 1, 0)
    after = pad(slice_axis(x, 1, m, row), zero(x.aval), edge) if m else x
    terms = [mul(broadcast_columns(v, n), each) for v, each in ((dl, before), (d, x), (du, after))]
    return add(add(terms[0], terms[1]), terms[2])


def tridiagonal_solve(
    dl: ArrayLike, d: ArrayLike, du: ArrayLike, b: ArrayLike, *, perturb_singular: bool = False
) -> Array:
    """Returns the solution `x` of a system of equations with a tridiagonal matrix.

    Row `i` of the matrix has `dl[i]`, `d[i]` and `du[i]` before, on and after the diagonal.

    Args:
        dl: The lower diagonal, `f32[..., n]`; its first element is not read.
        d: The diagonal, `f32[..., n]`.
        du: The upper diagonal, `f32[..., n]`; its last element is not read.
        b: The right-hand sides, `f32[..., n, k]`.
        perturb_singular: Whether to solve a slightly perturbed system if the matrix is singular. False by default.

    Returns:
        An array `f32[..., n, k]`; NaN where the matrix is singular, without `perturb_singular`.

    Raises:
        TypeError: The sizes don't fit, the dtypes differ, or don't have 32-bit or 64-bit components.

    >>> import numpy as np
    >>> tridiagonal_solve(*[np.array(v) for v in ([0.0, 1.0], [2.0, 2.0], [1.0, 0.0], [[3.0], [3.0]])]).tolist()
    [[1.0], [1.0]]
    """
    return bind1(TridiagonalSolve(bool(perturb_singular)), dl, d, du, b)
