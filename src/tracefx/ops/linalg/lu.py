"""LU decomposition: `lu`, `lu_pivots_to_permutation`, and solvers that use it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, SupportsIndex, final

from attrs import frozen
from typing_extensions import override

from tracefx.core import Array, ArrayLike, DType, Shape, ShapedArray, Value, as_value, dtypes
from tracefx.core.handler import as_array, bind, bind1
from tracefx.core.primitive import Tangent, Zero
from tracefx.lowering import Builder, DenseI64Array, IrValue
from tracefx.ops import stablehlo
from tracefx.ops.elementwise.elementwise import add
from tracefx.ops.indexing.gather_scatter_add import GatherDimensionNumbers, ScatterDimensionNumbers, gather
from tracefx.ops.indexing.indexed_windows import GatherScatterMode
from tracefx.ops.indexing.scatter import scatter_add
from tracefx.ops.linalg import gpu, lapack
from tracefx.ops.linalg.lapack import MatrixKernel, ResultTypes, emit_iota, info_aval, nan_on_failure
from tracefx.ops.linalg.matrices import eye, matmul, tril, triu
from tracefx.ops.linalg.triangular_solve import triangular_solve
from tracefx.ops.monoids import ADD
from tracefx.ops.operation import Domain, HasPushforward
from tracefx.ops.shape.array_creation import zero
from tracefx.ops.shape.slicing import pad, slice_axis
from tracefx.ops.static_integers import static_int
from tracefx.ops.structural import full_like_aval, reshape

# ------------------------------------------------------------------ lu


@final
class Lu(MatrixKernel, HasPushforward):
    """The LU decomposition with row pivoting: `x[p] = l u`, with unit lower triangular `l` and upper triangular `u`.

    The results are both factors in one matrix, the row exchanges of LAPACK's `getrf`, counted from 0, and the
    permutation `p`. With `d = l^-1 dx[p] u^-1`, the tangent of the factors is `l tril(d, -1) + triu(d) u`.

    `x: f32[..., m, n] -> lu: f32[..., m, n], pivots: i32[..., min(m, n)], p: i32[..., m]`, 32-bit or 64-bit floats or
    complex numbers. Bound by `lax.linalg.lu`.
    """

    name = "lu"
    multiple_results = True

    @override
    def result_types(self, dtype: DType, *shapes: Shape) -> ResultTypes:
        (m, n) = shapes[0]
        return [((m, n), dtype), ((min(m, n),), dtypes.int32), ((m,), dtypes.int32)]

    @override
    def emit(self, builder: Builder, outs: Sequence[ShapedArray], *operands: IrValue) -> Sequence[IrValue]:
        (x,) = operands
        out, pivots, permutation = outs
        results = [out, pivots, info_aval(x.aval)]
        if gpu.on_gpu(builder):
            found, swaps, status = gpu.call_gpu_solver(builder, "solver_getrf_ffi", [x], results, aliases=[(0, 0)])
        else:
            found, swaps, status = lapack.call_lapack(self, builder, "getrf_ffi", [x], results, aliases=[(0, 0)])
        (swaps,) = builder.emit("stablehlo.subtract", [swaps, stablehlo.emit_full(builder, 1, pivots)], [pivots])
        return [
            *nan_on_failure(
                builder, status, [found], [out], "GE"
            ),  # positive status: a zero pivot, that is, a singular matrix
            swaps,
            _emit_permutation(builder, permutation, swaps),
        ]

    @override
    def emit_empty(self, builder: Builder, outs: Sequence[ShapedArray], *operands: IrValue) -> Sequence[IrValue]:
        *others, permutation = outs
        rows = emit_iota(builder, permutation.shape, permutation.ndim - 1)
        return [*[stablehlo.emit_full(builder, 0, out) for out in others], rows]

    @override
    def pushforward(self, x: Value, t: Value) -> tuple[Sequence[Value], Sequence[Tangent]]:
        found, pivots, permutation = bind(self, x)
        integers = [Zero(pivots.aval.tangent()), Zero(permutation.aval.tangent())]
        return [found, pivots, permutation], [_lu_jvp(found, permutation, t), *integers]


def _lu_jvp(found: Value, permutation: Value, t: Value) -> Array:
    """Returns the tangent of the factors: `l tril(d, -1) + triu(d) u` with `d = l^-1 P da u^-1`."""
    *stack, m, n = found.aval.shape
    rank, dtype = found.aval.ndim, found.aval.dtype
    k = min(m, n)
    edge = [(0, 0, 0)] * rank
    lower = add(_padded(tril(slice_axis(found, 0, k, rank - 1), -1), rank - 1, m), eye(dtype, m, stack=tuple(stack)))
    upper = _padded(triu(slice_axis(found, 0, k, rank - 2)), rank - 2, n)
    if n > k:
        edge[-2] = edge[-1] = (k, 0, 0)
        upper = add(upper, pad(eye(dtype, n - k, stack=tuple(stack)), zero(upper.aval.strong()), edge))
    left = triangular_solve(lower, permute_rows(t, permutation), left_side=True, lower=True, unit_diagonal=True)
    both = triangular_solve(upper, left)
    return add(matmul(lower, tril(both, -1)), matmul(triu(both), upper))


def _padded(x: Array, axis: int, size: int) -> Array:
    """Returns `x` padded with zeros at the end of an axis, up to a size."""
    more = size - x.aval.shape[axis]
    if not more:
        return x
    edge = [(0, 0, 0)] * x.aval.ndim
    edge[axis] = (0, more, 0)
    return pad(x, zero(x.aval), edge)


LU: Final = Lu()


def lu(x: ArrayLike) -> tuple[Array, Array, Array]:
    """Returns the LU decomposition with row pivoting: `x[p] = l u`, with unit lower triangular `l`.

    Args:
        x: Matrices `f32[..., m, n]`.

    Returns:
        A triple: `u` in the upper triangle and `l` below it, `f32[..., m, n]`; the pivots `i32[..., min(m, n)]`, the
        rows with which rows 0, 1, ... were exchanged in turn; and the permutation `p`, `i32[..., m]`.

    Raises:
        TypeError: The dtype does not have 32-bit or 64-bit components.

    >>> import numpy as np
    >>> lu(np.array([[1.0, 2.0], [4.0, 4.0]]))[0]
    Array([[4.  , 4.  ],
           [0.25, 1.  ]], dtype=float32)
    """
    found, pivots, permutation = bind(LU, as_value(x, "x"))
    return as_array(found), as_array(pivots), as_array(permutation)


# ------------------------------------------------------------------ pivots as a permutation


@final
@frozen(eq=False)
class LuPivotsToPermutation(MatrixKernel):
    """The permutation from exchanging row 0 with row `pivots[0]`, then row 1 with row `pivots[1]`, and so on.

    Args:
        permutation_size: The number of rows, at least the number of pivots.

    `pivots: i32[..., k] -> i32[..., permutation_size]`, int32. Bound by `lax.linalg.lu_pivots_to_permutation`.
    """

    name = "lu_pivots_to_permutation"
    ranks: ClassVar[tuple[int, ...]] = (1,)
    domain = Domain("int32", lambda d: d == dtypes.int32)
    permutation_size: int

    @override
    def result_types(self, dtype: DType, *shapes: Shape) -> ResultTypes:
        ((k,),) = shapes
        if k > self.permutation_size:
            raise ValueError(
                f"lu_pivots_to_permutation: permutation_size {self.permutation_size} must be at least the number of "
                f"pivots, {k}"
            )
        return [((self.permutation_size,), dtype)]

    @override
    def emit(self, builder: Builder, outs: Sequence[ShapedArray], *operands: IrValue) -> Sequence[IrValue]:
        return [_emit_permutation(builder, outs[0], *operands)]

    @override
    def emit_empty(self, builder: Builder, outs: Sequence[ShapedArray], *operands: IrValue) -> Sequence[IrValue]:
        return [emit_iota(builder, out.shape, out.ndim - 1) for out in outs]


def lu_pivots_to_permutation(pivots: ArrayLike, permutation_size: SupportsIndex) -> Array:
    """Returns the permutation that exchanges row 0 with row `pivots[0]`, then row 1 with row `pivots[1]`, and so on.

    Args:
        pivots: The exchanged rows, `i32[..., k]`.
        permutation_size: The number of rows, static, at least `k`.

    Returns:
        The permutation, `i32[..., permutation_size]`: row `i` of the result is row `p[i]` of the original.

    Raises:
        TypeError: The pivots are not int32.
        ValueError: `permutation_size` is less than `k`.

    >>> import numpy as np
    >>> lu_pivots_to_permutation(np.array([2, 2]), 3).tolist()
    [2, 0, 1]
    """
    size = static_int("lu_pivots_to_permutation", permutation_size, "permutation_size")
    return bind1(LuPivotsToPermutation(size), pivots)


def _emit_permutation(builder: Builder, out: ShapedArray, swaps: IrValue) -> IrValue:
    """Emits one loop over the exchanges, each step for all matrices at once; their axis is the last one in the loop.

    On a GPU it is a kernel, because there each loop step would be a kernel launch.
    """
    if gpu.on_gpu(builder):
        return gpu.call_gpu_solver(builder, "_lu_pivots_to_permutation", [swaps], [out], by_rows=True, own=1)[0]
    m, k = out.shape[-1], swaps.aval.shape[-1]
    count = out.size // m if m else 0
    index, line = ShapedArray((), dtypes.int32), ShapedArray((1, count), dtypes.int32)
    matrix, steps = ShapedArray((m, count), dtypes.int32), ShapedArray((k, count), dtypes.int32)

    def emit(b: Builder, name: str, out: ShapedArray, *operands: IrValue) -> IrValue:
        return b.emit(f"stablehlo.{name}", operands, [out])[0]

    def zero_index(b: Builder) -> IrValue:
        return stablehlo.emit_scalar(b, 0, dtypes.int32)

    def read(b: Builder, x: IrValue, t: IrValue) -> IrValue:
        return b.emit(
            "stablehlo.dynamic_slice", [x, t, zero_index(b)], [line], {"slice_sizes": DenseI64Array((1, count))}
        )[0]

    def more(b: Builder, carry: Sequence[IrValue]) -> list[IrValue]:
        return [stablehlo.emit_compare(b, "LT", carry[0], stablehlo.emit_scalar(b, k, dtypes.int32))]

    def step(b: Builder, carry: Sequence[IrValue]) -> list[IrValue]:
        t, rows, swaps = carry
        exchanged = stablehlo.emit_broadcast(b, read(b, swaps, t), matrix.shape, (0, 1))
        there = stablehlo.emit_compare(b, "EQ", emit_iota(b, matrix.shape, 0), exchanged)
        zero = stablehlo.emit_full(b, 0, matrix)
        found = ADD.emit_reduce(b, emit(b, "select", matrix, there, rows, zero), (0,))
        here = stablehlo.emit_broadcast(b, read(b, rows, t), matrix.shape, (0, 1))
        rows = emit(b, "select", matrix, there, here, rows)
        rows = emit(b, "dynamic_update_slice", matrix, rows, emit(b, "reshape", line, found), t, zero_index(b))
        return [emit(b, "add", index, t, stablehlo.emit_scalar(b, 1, dtypes.int32)), rows, swaps]

    (swaps,) = builder.emit("stablehlo.reshape", [swaps], [ShapedArray((count, k), dtypes.int32)])
    (swaps,) = builder.emit("stablehlo.transpose", [swaps], [steps], {"permutation": DenseI64Array((1, 0))})
    start = stablehlo.emit_scalar(builder, 0, dtypes.int32)
    rows = builder.loop([start, emit_iota(builder, matrix.shape, 0), swaps], more, step)[1]
    (rows,) = builder.emit(
        "stablehlo.transpose", [rows], [ShapedArray((count, m), dtypes.int32)], {"permutation": DenseI64Array((1, 0))}
    )
    return builder.emit("stablehlo.reshape", [rows], [out])[0]


# ------------------------------------------------------------------ permutations of rows and solutions


def permute_rows(x: Value, permutation: Value) -> Array:
    """Returns matrices with permuted rows: row `i` of the result is row `permutation[i]` of `x`."""
    if not x.aval.size:
        return as_array(x)
    rank = x.aval.ndim
    stack = tuple(range(rank - 2))
    numbers = GatherDimensionNumbers((rank - 1,), (rank - 2,), (rank - 2,), stack, stack)
    positions = reshape(permutation, (*permutation.aval.shape, 1))
    sizes = (*[1] * (rank - 1), x.aval.shape[-1])
    return gather(x, positions, numbers, sizes, unique_indices=True, mode=GatherScatterMode.PROMISE_IN_BOUNDS)


def unpermute_rows(x: Value, permutation: Value) -> Array:
    """Undoes `permute_rows`: row `permutation[i]` of the result is row `i` of `x`."""
    rank = x.aval.ndim
    stack = tuple(range(rank - 2))
    numbers = ScatterDimensionNumbers((rank - 1,), (rank - 2,), (rank - 2,), stack, stack)
    positions = reshape(permutation, (*permutation.aval.shape, 1))
    mode = GatherScatterMode.PROMISE_IN_BOUNDS
    return scatter_add(full_like_aval(x.aval, 0), positions, x, numbers, unique_indices=True, mode=mode)


def lu_solve(found: Value, permutation: Value, b: Value, trans: int = 0) -> Array:
    """Returns the solution of `a x = b`, where `found` and `permutation` are the results of `lu` for `a`.

    With `trans` 1 or 2, it solves with the transpose or the conjugate transpose of `a`.
    """
    if trans == 0:
        x = triangular_solve(found, permute_rows(b, permutation), left_side=True, lower=True, unit_diagonal=True)
        return triangular_solve(found, x, left_side=True)
    conjugate = trans == 2
    x = triangular_solve(found, b, left_side=True, transpose_a=True, conjugate_a=conjugate)
    x = triangular_solve(
        *(found, x), left_side=True, lower=True, unit_diagonal=True, transpose_a=True, conjugate_a=conjugate
    )
    return unpermute_rows(x, permutation)


def solve(a: Value, b: Value) -> Array:
    """Returns the solution of `a x = b` for stacks of matrices."""
    found, _, permutation = lu(a)
    return lu_solve(found, permutation, b)
