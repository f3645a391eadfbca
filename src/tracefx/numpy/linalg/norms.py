"""Vector and matrix norms, condition numbers and ranks."""

from __future__ import annotations

import builtins
import math

from tracefx.core import Array, ArrayLike, dtypes
from tracefx.core.handler import as_array
from tracefx.numpy.linalg.decompositions import as_matrices, svd, svdvals
from tracefx.numpy.linalg.solving import inv
from tracefx.numpy.logic import isnan
from tracefx.numpy.operand_promotion import convert_operand, to_inexact
from tracefx.numpy.reductions import any, max, min
from tracefx.numpy.reductions import sum as total
from tracefx.numpy.shapes import moveaxis
from tracefx.numpy.transcendentals import sqrt
from tracefx.numpy.ufuncs import absolute, power, square, where
from tracefx.ops.shape.shape import expand_dims
from tracefx.ops.static_integers import canonicalize_axes
from tracefx.transforms.eager_calls import eager_cached

# ------------------------------------------------------------------ norms


@eager_cached(fused="at the first call")
def norm(
    x: ArrayLike,
    ord: int | float | str | None = None,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
) -> Array:
    """Returns norms of vectors along one axis, or of matrices along two.

    Args:
        x: The array.
        ord: The order. For vectors a number, as for `vector_norm`; for matrices `"fro"`, `"nuc"` (the sum of the
            singular values), 2 and -2 (the largest and the least of them), 1 and -1 (the largest and the least sum of
            absolute values of a column), inf and -inf (of a row). None means the root of the sum of squares.
        axis: One axis for vectors, two for matrices. None means all axes; without `ord` there may then be any number.
        keepdims: Whether to keep the reduced axes with size 1.

    Returns:
        An array of floats without the reduced axes.

    Raises:
        ValueError: If the order is unknown or there are more axes.

    >>> import numpy as np
    >>> norm(np.array([3.0, 4.0]))
    Array(5., dtype=float32)
    """
    value = as_array(to_inexact(x, "norm: x"))
    if axis is None:
        if ord is None:
            return sqrt(total(_abs_squared(value), keepdims=keepdims))
        over = tuple(range(value.ndim))
    else:
        over = canonicalize_axes("norm", axis if isinstance(axis, tuple) else (axis,), value.ndim, "axis")
    if len(over) == 1:
        return vector_norm(value, axis=over, keepdims=keepdims, ord=2 if ord is None else ord)
    if len(over) != 2:
        raise ValueError(f"norm: axis must be one axis, for vectors, or two, for matrices, got {over} of {value.aval}")
    return _matrix_norm(value, ord="fro" if ord is None else ord, axes=over, keepdims=bool(keepdims))


def _abs_squared(x: Array) -> Array:
    """Returns squared absolute values."""
    return square(x.real) + square(x.imag) if dtypes.is_complex(x.dtype) else square(x)


@eager_cached(compiled=True)
def _matrix_norm(x: Array, *, ord: int | float | str, axes: tuple[int, ...], keepdims: bool) -> Array:
    row, column = axes
    if ord in ("f", "fro"):
        return sqrt(total(_abs_squared(x), axis=(row, column), keepdims=keepdims))
    if ord in (1, -1, math.inf, -math.inf):
        summed, other = (row, column) if ord in (1, -1) else (column, row)
        sums = total(absolute(x), axis=summed, keepdims=keepdims)
        if not keepdims and other > summed:
            other -= 1
        if ord in (1, math.inf):
            return max(sums, axis=other, keepdims=keepdims, initial=0)
        return min(sums, axis=other, keepdims=keepdims)
    if ord in ("nuc", 2, -2):
        s = svdvals(moveaxis(x, (row, column), (-2, -1)))
        if ord == 2:
            out = max(s, axis=-1, initial=0)
        else:
            out = min(s, axis=-1) if ord == -2 else total(s, axis=-1)
        return expand_dims(out, sorted((row, column))) if keepdims else out
    raise ValueError(f'norm: ord of matrices must be "fro", "nuc", 1, -1, 2, -2, inf or -inf, got {ord!r}')


@eager_cached(fused="at the first call")
def vector_norm(
    x: ArrayLike,
    /,
    *,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    ord: int | float | str = 2,
) -> Array:
    """Returns norms of vectors: `sum(abs(x) ** ord) ** (1 / ord)`.

    Args:
        x: The array.
        axis: The axis or axes of the vectors; None means all.
        keepdims: Whether to keep the reduced axes with size 1.
        ord: The order. For inf and -inf, the largest and the least absolute value; for 0, the number of nonzero
            elements.

    Returns:
        An array of floats without the reduced axes.

    Raises:
        ValueError: If `ord` is not a number.

    >>> import numpy as np
    >>> vector_norm(np.array([3.0, -4.0]), ord=1)
    Array(7., dtype=float32)
    """
    value = as_array(to_inexact(x, "vector_norm: x"))
    if isinstance(ord, str):
        raise ValueError(f"vector_norm: ord must be a number, got {ord!r}")
    if ord == 2:
        return sqrt(total(_abs_squared(value), axis=axis, keepdims=keepdims))
    if ord == math.inf:
        return max(absolute(value), axis=axis, keepdims=keepdims, initial=0)
    if ord == -math.inf:
        return min(absolute(value), axis=axis, keepdims=keepdims)
    if ord == 0:
        return total(value != 0, axis=axis, dtype=dtypes.real_dtype(value.dtype), keepdims=keepdims)
    if ord == 1:
        return total(absolute(value), axis=axis, keepdims=keepdims)
    return power(total(absolute(value) ** ord, axis=axis, keepdims=keepdims), 1.0 / ord)


@eager_cached
def matrix_norm(x: ArrayLike, /, *, keepdims: bool = False, ord: int | float | str = "fro") -> Array:
    """Returns norms of matrices, which are the last two axes.

    Args:
        x: The matrices, `f32[..., m, n]`.
        keepdims: Whether to keep the reduced axes with size 1.
        ord: The order, as for `norm`; by default the root of the sum of squares.

    Returns:
        An array of floats, without the last two axes unless `keepdims` is set.

    Raises:
        ValueError: If the order is unknown.

    >>> import numpy as np
    >>> matrix_norm(np.array([[1.0, 2.0], [3.0, -4.0]]), ord=1)
    Array(6., dtype=float32)
    """
    return norm(x, ord=ord, axis=(-2, -1), keepdims=keepdims)


# ------------------------------------------------------------------ condition and rank


@eager_cached(compiled=True)
def cond(x: ArrayLike, p: int | float | str | None = None) -> Array:
    """Returns condition numbers: the norm of a matrix times the norm of its inverse; infinite for singular matrices.

    Args:
        x: The matrices, `f32[..., m, n]`.
        p: The order of the norm, as for `norm`. For None and 2, the quotient of the largest and the least singular
            value, for matrices of any shape; for -2 its inverse.

    Returns:
        The condition numbers, `f32[...]`.

    Raises:
        ValueError: If matrices are empty, or not square with another order.

    >>> import numpy as np
    >>> cond(np.array([[2.0, 0.0], [0.0, 1.0]])).tolist()
    2.0
    """
    value = as_matrices("cond", x)
    if not value.shape[-1] or not value.shape[-2]:
        raise ValueError(f"cond: matrices must not be empty, got {value.aval}")
    if p not in (None, 2, -2) and value.shape[-1] != value.shape[-2]:
        raise ValueError(f"cond: for p = {p!r} matrices must be square, got {value.aval}")
    return _cond(value, p=p)


def _cond(x: Array, *, p: int | float | str | None) -> Array:
    if p in (None, 2, -2):
        s = svdvals(x)
        first, last = s[..., 0], s[..., -1]
        if p != -2:
            return first / last
        out = last / first
    else:
        out = norm(x, p, (-2, -1)) * norm(inv(x), p, (-2, -1))
    return where(isnan(out) & ~any(isnan(x), axis=(-2, -1)), math.inf, out)


def matrix_rank(
    M: ArrayLike, rtol: ArrayLike | None = None, *, hermitian: bool = False, tol: ArrayLike | None = None
) -> Array:
    """Returns the rank of matrices, the number of nonzero singular values.

    Args:
        M: The matrices, `f32[..., m, n]`. For a vector, the result is whether it has a nonzero element.
        rtol: The size, relative to the largest, up to which singular values count as zero; None means the machine
            epsilon times `max(m, n)`.
        hermitian: Whether the matrices are Hermitian, which are decomposed by their eigenvalues.
        tol: The absolute size in place of `rtol`.

    Returns:
        The ranks, an array of integers.

    Raises:
        ValueError: If `rtol` and `tol` are both given.

    >>> import numpy as np
    >>> matrix_rank(np.array([[1.0, 1.0], [1.0, 1.0]])).tolist()
    1
    """
    if tol is not None and rtol is not None:
        raise ValueError("matrix_rank: tol is absolute and rtol relative; pass one of them")
    x = as_array(to_inexact(M, "matrix_rank: M"))
    if x.ndim < 2:
        return any(x != 0).astype("int32")
    part = dtypes.real_dtype(x.dtype)
    if rtol is None and tol is None:
        return _rank(x, hermitian=bool(hermitian), is_relative=True)
    threshold = tol if rtol is None else rtol
    assert threshold is not None
    limit = as_array(convert_operand(threshold, part, what="matrix_rank: tol" if rtol is None else "argument"))
    return _rank(x, limit, hermitian=bool(hermitian), is_relative=rtol is not None)


@eager_cached(compiled=True)
def _rank(x: Array, limit: Array | None = None, *, hermitian: bool, is_relative: bool) -> Array:
    s = svd(x, full_matrices=False, compute_uv=False, hermitian=hermitian)
    if limit is None:
        least: Array | float = builtins.max(x.shape[-2:]) * float(dtypes.finfo(s.dtype).eps)
    else:
        least = limit[..., None]
    return total(s > (least * max(s, axis=-1, keepdims=True, initial=0) if is_relative else least), axis=-1)
