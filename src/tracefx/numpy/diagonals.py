"""Diagonals and triangles of matrices: creating, masking, extracting and summing them."""

from __future__ import annotations

from tracefx.core import Array, ArrayLike, DType, DTypeLike, Value, dtypes
from tracefx.core.handler import Tracer, as_array
from tracefx.core.sharding import DeviceOrSharding
from tracefx.dimensions.symbolic_dimensions import max_dim, min_dim
from tracefx.numpy.device_placement import place_on_device
from tracefx.numpy.kernels import KERNELS
from tracefx.numpy.operand_promotion import as_operand, convert_dtype, reject_out
from tracefx.numpy.reductions import sum
from tracefx.numpy.shapes import moveaxis
from tracefx.numpy.symbolic_sizes import size_like
from tracefx.numpy.ufuncs import broadcast_select, literal_like
from tracefx.ops import structural
from tracefx.ops.elementwise import comparison, elementwise
from tracefx.ops.indexing.gather_scatter_add import GatherDimensionNumbers, gather
from tracefx.ops.shape import shape
from tracefx.ops.static_integers import static_int
from tracefx.transforms.eager_calls import eager_cached


@eager_cached
def eye(
    N: int,
    M: int | None = None,
    k: int | Array = 0,
    dtype: DTypeLike | None = None,
    *,
    device: DeviceOrSharding | None = None,
) -> Array:
    """Returns a matrix with ones on a diagonal and zeros elsewhere.

    Args:
        N: The number of rows.
        M: The number of columns; None means `N`.
        k: The diagonal: 0 is the main one, positive numbers lie above it. May be traced.
        dtype: The dtype of the result; None means the default float.
        device: The device or sharding of the result; None means the default.

    Returns:
        A matrix, `f32[N, M]` without `dtype`.

    >>> eye(2)
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    out = as_array(
        convert_dtype(_mask_of_diagonal("eye", N, N if M is None else M, k), _dtype_or_default_float("eye", dtype))
    )
    return place_on_device(out, device)


def identity(n: int, dtype: DTypeLike | None = None) -> Array:
    """Returns the identity matrix.

    Args:
        n: The number of rows and of columns.
        dtype: The dtype of the result; None means the default float.

    Returns:
        A matrix, `f32[n, n]` without `dtype`.

    >>> identity(1)
    Array([[1.]], dtype=float32)
    """
    return eye(n, dtype=dtype)


@eager_cached
def tri(N: int, M: int | None = None, k: int | Array = 0, dtype: DTypeLike | None = None) -> Array:
    """Returns a matrix with ones on and below a diagonal and zeros above it.

    Args:
        N: The number of rows.
        M: The number of columns; None means `N`.
        k: The diagonal: 0 is the main one, positive numbers lie above it. May be traced.
        dtype: The dtype of the result; None means the default float.

    Returns:
        A matrix, `f32[N, M]` without `dtype`.

    >>> tri(2)
    Array([[1., 0.],
           [1., 1.]], dtype=float32)
    """
    return as_array(
        convert_dtype(_mask_up_to_diagonal("tri", N, N if M is None else M, k), _dtype_or_default_float("tri", dtype))
    )


def _dtype_or_default_float(name: str, dtype: DTypeLike | None) -> DType:
    return dtypes.default_float() if dtype is None else dtypes.as_dtype(dtype, f"{name}: dtype")


def _index_grid(name: str, n: int, m: int, axis: int) -> Array:
    """Returns the row (`axis` 0) or column index of each element of an `n` by `m` matrix."""
    return shape.broadcasted_iota(dtypes.int32, (static_int(name, n, "N"), static_int(name, m, "M")), axis)


def _clamp_diagonal(name: str, n: int, m: int, k: int | Array) -> int | Array:
    """Clamps a diagonal to the first one outside the matrix on either side, so that it fits 32 bits."""
    if isinstance(k, Tracer):
        if k.aval.shape or not dtypes.is_integer(k.aval.dtype):
            raise TypeError(f"{name}: k must be an integer scalar, got {k.aval}")
        return as_array(convert_dtype(k, dtypes.int32))
    return max_dim(-static_int(name, n, "N"), min_dim(static_int(name, k, "k"), static_int(name, m, "M")))


def _add_offset(numbers: Array, k: int | Array) -> Array:
    if isinstance(k, Array):
        return elementwise.add(numbers, k)
    return elementwise.add(numbers, size_like(numbers, k))


def _mask_up_to_diagonal(name: str, n: int, m: int, k: int | Array) -> Array:
    """Returns the mask of the elements on or below diagonal `k`."""
    return comparison.ge(
        _add_offset(_index_grid(name, n, m, 0), _clamp_diagonal(name, n, m, k)), _index_grid(name, n, m, 1)
    )


def _mask_of_diagonal(name: str, n: int, m: int, k: int | Array) -> Array:
    """Returns the mask of the elements on diagonal `k`."""
    rows, columns = _index_grid(name, n, m, 0), _index_grid(name, n, m, 1)
    return comparison.eq(_add_offset(rows, _clamp_diagonal(name, n, m, k)), columns)


@eager_cached
def tril(m: ArrayLike, k: int | Array = 0) -> Array:
    """Returns the lower triangles of matrices: zeros above a diagonal.

    Args:
        m: Matrices, `f32[..., n, m]`.
        k: The diagonal: 0 is the main one, positive numbers lie above it. May be traced.

    Returns:
        An array of the shape and dtype of `m`.

    Raises:
        ValueError: If `m` has fewer than two axes.

    >>> import numpy as np
    >>> tril(np.ones((2, 2))).tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    x = _matrix_operand("tril", m)
    m, n = x.aval.shape[-2:]
    diagonal = _clamp_diagonal("tril", m, n, k)
    below = _mask_up_to_diagonal("tril", m, n, diagonal)
    return broadcast_select(structural.broadcast_to(below, x.aval.shape), x, literal_like(x, False))


@eager_cached
def triu(m: ArrayLike, k: int | Array = 0) -> Array:
    """Returns the upper triangles of matrices: zeros below a diagonal.

    Args:
        m: Matrices, `f32[..., n, m]`.
        k: The diagonal: 0 is the main one, positive numbers lie above it. May be traced.

    Returns:
        An array of the shape and dtype of `m`.

    Raises:
        ValueError: If `m` has fewer than two axes.

    >>> import numpy as np
    >>> triu(np.ones((2, 2))).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    x = _matrix_operand("triu", m)
    m, n = x.aval.shape[-2:]
    diagonal = _clamp_diagonal("triu", m, n, k) - 1
    below = _mask_up_to_diagonal("triu", m, n, diagonal)
    return broadcast_select(structural.broadcast_to(below, x.aval.shape), literal_like(x, False), x)


def _matrix_operand(name: str, m: ArrayLike) -> Value:
    x = as_operand(m, f"{name}: m")
    if x.aval.ndim < 2:
        raise ValueError(f"{name}: m must have at least two axes, got {x.aval}")
    return x


@eager_cached(kernel=KERNELS["diagonal"])
def diagonal(a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """Returns a diagonal of the matrices spanned by two axes, as a new last axis.

    Args:
        a: An array with at least two axes.
        offset: The diagonal: 0 is the main one, positive numbers lie above it.
        axis1: The axis of the rows.
        axis2: The axis of the columns.

    Returns:
        An array without the two axes, with the diagonal as its last axis.

    Raises:
        ValueError: If `a` has fewer than two axes.

    >>> import numpy as np
    >>> diagonal(np.arange(4).reshape(2, 2))
    Array([0, 3], dtype=int32)
    """
    x = as_operand(a, "diagonal: a")
    if x.aval.ndim < 2:
        raise ValueError(f"diagonal: a must have at least two axes, got {x.aval}")
    x = moveaxis(x, (axis1, axis2), (-2, -1))
    (m, n), stacks = x.aval.shape[-2:], x.aval.shape[:-2]
    offset = static_int("diagonal", offset, "offset")
    rows, columns = max(0, -offset), max(0, offset)
    count = max(0, min(m - rows, n - columns))
    if not count:
        return structural.full_like_aval(x.aval.update(shape=(*stacks, 0)), 0)
    # A gather, since its transpose writes only the elements of the diagonal; that of a strided slice pads with zeros.
    numbers = shape.broadcasted_iota(dtypes.int32, (count, 1), 0)
    indices = shape.concatenate([_add_offset(numbers, first) for first in (rows, columns)], 1)
    batch_ndim = len(stacks)
    dimension_numbers = GatherDimensionNumbers(
        range(batch_ndim), (batch_ndim, batch_ndim + 1), (batch_ndim, batch_ndim + 1)
    )
    return gather(x, indices, dimension_numbers, (*stacks, 1, 1), unique_indices=True, indices_are_sorted=True)


@eager_cached(kernel=KERNELS["diag"])
def diag(v: ArrayLike, k: int = 0) -> Array:
    """Returns a matrix with the vector `v` on a diagonal, or a diagonal of the matrix `v`.

    Args:
        v: A vector or a matrix.
        k: The diagonal: 0 is the main one, positive numbers lie above it.

    Returns:
        A matrix or a vector of the dtype of `v`.

    Raises:
        ValueError: If `v` has another number of axes.

    >>> import numpy as np
    >>> diag(np.arange(1, 3)).tolist()
    [[1, 0], [0, 2]]
    """
    x = as_operand(v, "diag: v")
    if x.aval.ndim == 2:
        return diagonal(x, k)
    if x.aval.ndim != 1:
        raise ValueError(f"diag: v must be a vector or a matrix, got {x.aval}")
    k = static_int("diag", k, "k")
    n = x.aval.size + abs(k)
    x = shape.pad(x, literal_like(x, False), [(max(0, k), max(0, -k), 0)])
    return broadcast_select(
        _mask_of_diagonal("diag", n, n, k), structural.broadcast_in_dim(x, (n, n), (1,)), literal_like(x, False)
    )


@eager_cached(kernel=KERNELS["trace"])
def trace(
    a: ArrayLike,
    offset: int | Array = 0,
    axis1: int = 0,
    axis2: int = 1,
    dtype: DTypeLike | None = None,
    out: None = None,
) -> Array:
    """Returns the sum of a diagonal of the matrices spanned by two axes.

    Args:
        a: An array with at least two axes.
        offset: The diagonal: 0 is the main one, positive numbers lie above it. May be traced.
        axis1: The axis of the rows.
        axis2: The axis of the columns.
        dtype: The dtype of the sum; None means that of `sum`.
        out: Not supported; must be None.

    Returns:
        An array without the two axes.

    >>> import numpy as np
    >>> trace(np.eye(3))
    Array(3., dtype=float32)
    """
    reject_out("trace", out)
    if isinstance(offset, Tracer):
        x = moveaxis(as_array(as_operand(a, "trace: a")), (axis1, axis2), (-2, -1))
        n, m = x.shape[-2:]
        mask = structural.broadcast_to(_mask_of_diagonal("trace", n, m, offset), x.shape)
        return sum(broadcast_select(mask, x, literal_like(x, False)), (-2, -1), dtype)
    return sum(diagonal(a, static_int("trace", offset, "offset"), axis1, axis2), -1, dtype)
