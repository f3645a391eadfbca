"""Helpers for rules of decompositions: matrix products, triangles, diagonals. Leading axes are batch axes."""

from __future__ import annotations

from tracefx.core import Array, DType, ShapedArray, Value, dtypes
from tracefx.core.handler import as_array
from tracefx.ops.contractions.contraction import dot_general
from tracefx.ops.elementwise.arithmetic import div, mul, sub
from tracefx.ops.elementwise.comparison import eq, ge
from tracefx.ops.elementwise.complex import conj, real
from tracefx.ops.elementwise.elementwise import add
from tracefx.ops.elementwise.selection import select_with_aval
from tracefx.ops.shape.array_creation import broadcasted_iota
from tracefx.ops.shape.slicing import slice_axis
from tracefx.ops.structural import broadcast_in_dim, reduce_sum, transpose


def matrix_transpose(x: Value) -> Array:
    """Returns `x` with its last two axes exchanged."""
    n = x.aval.ndim
    return transpose(x, (*range(n - 2), n - 1, n - 2))


def adjoint(x: Value) -> Array:
    """Returns the conjugate transpose."""
    flipped = matrix_transpose(x)
    return conj(flipped) if dtypes.is_complex(x.aval.dtype) else flipped


def matmul(x: Value, y: Value) -> Array:
    """Returns the matrix products of two stacks of matrices, with the highest precision."""
    n = x.aval.ndim
    stack = range(n - 2)
    return dot_general(x, y, (((n - 1,), (n - 2,)), (stack, stack)), "highest")


def symmetrize(x: Value) -> Array:
    """Returns the Hermitian part: the mean of `x` and its conjugate transpose."""
    return div(add(x, adjoint(x)), 2.0)


# ------------------------------------------------------------------ triangles


def lower_mask(shape: tuple[int, ...], k: int = 0) -> Array:
    """Returns a mask of the elements on and below the diagonal `k` of matrices."""
    sizes = shape[-2:]
    row = broadcasted_iota(dtypes.int32, sizes, 0)
    inside = ge(add(row, k) if k else row, broadcasted_iota(dtypes.int32, sizes, 1))
    return _broadcast_to_stack(inside, shape)


def diagonal_mask(shape: tuple[int, ...]) -> Array:
    """Returns a mask of the diagonals of matrices."""
    sizes = shape[-2:]
    return _broadcast_to_stack(
        eq(broadcasted_iota(dtypes.int32, sizes, 0), broadcasted_iota(dtypes.int32, sizes, 1)), shape
    )


def _broadcast_to_stack(matrix: Array, shape: tuple[int, ...]) -> Array:
    """Returns a matrix broadcast to a stack of shape `shape`."""
    return broadcast_in_dim(matrix, shape, (len(shape) - 2, len(shape) - 1))


def tril(x: Value, k: int = 0) -> Array:
    """Returns `x` with zeros above the diagonal `k`."""
    return select_with_aval(lower_mask(x.aval.shape, k), x, 0, x.aval)


def triu(x: Value, k: int = 0) -> Array:
    """Returns `x` with zeros below the diagonal `k`."""
    return select_with_aval(lower_mask(x.aval.shape, k - 1), 0, x, x.aval)


def tril_half_diagonal(x: Value) -> Array:
    """Returns the lower triangle with half of the diagonal; plus its adjoint, it is the Hermitian matrix."""
    weights = select_with_aval(diagonal_mask(x.aval.shape), 0.5, 1.0, x.aval)
    return mul(tril(x), weights)


def hermitian_from_triangle(x: Value, lower: bool) -> Array:
    """Returns the Hermitian matrix with the lower or upper triangle of `x`."""
    half = tril_half_diagonal(x if lower else adjoint(x))
    return add(half, adjoint(half))


# ------------------------------------------------------------------ diagonals


def eye(dtype: DType, n: int, m: int | None = None, stack: tuple[int, ...] = ()) -> Array:
    """Returns a stack of matrices with ones on the diagonal."""
    aval = ShapedArray((*stack, n, n if m is None else m), dtype)
    return select_with_aval(diagonal_mask(aval.shape), 1.0, 0.0, aval)


def diagonal(x: Value) -> Array:
    """Returns the diagonals of matrices, which need not be square."""
    m, n = x.aval.shape[-2:]
    k = min(m, n)
    if m > k:
        x = slice_axis(x, 0, k, x.aval.ndim - 2)
    if n > k:
        x = slice_axis(x, 0, k, x.aval.ndim - 1)
    return reduce_sum(select_with_aval(diagonal_mask(x.aval.shape), x, 0, x.aval), (x.aval.ndim - 1,))


def broadcast_columns(v: Value, count: int) -> Array:
    """Returns matrices with `count` columns, all of which are `v`."""
    return broadcast_in_dim(v, (*v.aval.shape, count), range(v.aval.ndim))


def broadcast_rows(v: Value, count: int) -> Array:
    """Returns matrices with `count` rows, all of which are `v`."""
    n = v.aval.ndim
    return broadcast_in_dim(v, (*v.aval.shape[:-1], count, v.aval.shape[-1]), (*range(n - 1), n))


def pairwise_differences(v: Value) -> Array:
    """Returns `v[j] - v[i]` at row `i`, column `j`."""
    n = v.aval.shape[-1]
    return sub(broadcast_rows(v, n), broadcast_columns(v, n))


def real_part(x: Value) -> Array:
    """Returns the real part, or `x` itself if it is real."""
    return real(x) if dtypes.is_complex(x.aval.dtype) else as_array(x)
