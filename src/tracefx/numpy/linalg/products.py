"""Products of vectors and matrices, and diagonals, with the array API's signatures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tracefx.core import Array, ArrayLike, DTypeLike
from tracefx.core.handler import as_array
from tracefx.core.named_sharding import OutSharding
from tracefx.numpy import diagonals, dot_products, products, shapes
from tracefx.numpy.operand_promotion import as_operand, promote_dtypes
from tracefx.ops.contractions.contraction import PrecisionLike
from tracefx.ops.static_integers import canonicalize_axis


def cross(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Array:
    """Returns the cross product of vectors with 3 components.

    Args:
        x1: An array of vectors along `axis`.
        x2: Another, broadcast against `x1`.
        axis: The axis of the vectors.

    Returns:
        The products, an array of the broadcast shape.

    Raises:
        ValueError: If vectors have another number of components.

    >>> import numpy as np
    >>> cross(np.array([1, 0, 0]), np.array([0, 1, 0])).tolist()
    [0, 0, 1]
    """
    for i, each in enumerate((x1, x2)):
        x = as_array(as_operand(each, f"cross: x{i + 1}"))
        if x.shape[canonicalize_axis("cross", axis, x.ndim)] != 3:
            raise ValueError(f"cross: vectors must have 3 components along axis {axis}, got {x.aval}")
    return products.cross(x1, x2, axis=axis)


def outer(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns the outer product of vectors: `f32[m]` and `f32[n]` give `f32[m, n]`.

    Args:
        x1: A vector, `f32[m]`.
        x2: A vector, `f32[n]`.

    Returns:
        A matrix of the promoted dtype.

    Raises:
        ValueError: If an operand is not a vector.

    >>> import numpy as np
    >>> outer(np.arange(2), np.arange(3)).tolist()
    [[0, 0, 0], [0, 1, 2]]
    """
    x, y = [as_array(as_operand(v, f"outer: x{i + 1}")) for i, v in enumerate((x1, x2))]
    if x.ndim != 1 or y.ndim != 1:
        raise ValueError(f"outer takes vectors, got {x.aval} and {y.aval}")
    return dot_products.outer(x, y)


def vecdot(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    *,
    axis: int = -1,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Returns the dot products of vectors along `axis`, with those of `x1` conjugated; other axes broadcast.

    Args:
        x1: An array.
        x2: An array.
        axis: The axis of the vectors.
        precision: The precision of the products, as for `lax.dot`; None means the default.
        preferred_element_type: The dtype of the result; None means the promoted dtype.

    Returns:
        An array of the broadcast shape of the other axes.

    Raises:
        ValueError: If the sizes along the axis differ.

    >>> import numpy as np
    >>> vecdot(np.array([1, 2, 3]), np.array([4, 5, 6])).tolist()
    32
    """
    return products.vecdot(x1, x2, axis=axis, precision=precision, preferred_element_type=preferred_element_type)


def matmul(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Returns the matrix product: `f32[..., m, k]` and `f32[..., k, n]` give `f32[..., m, n]`.

    Args:
        x1: A vector or matrices.
        x2: A vector or matrices.
        precision: The precision of the products, as for `lax.dot`; None means the default.
        preferred_element_type: The dtype of the result; None means the promoted dtype.

    Returns:
        An array without the contracted axes.

    Raises:
        TypeError: If the sizes do not fit.
        ValueError: If an operand is a scalar.

    >>> import numpy as np
    >>> matmul(np.ones((5, 2, 3)), np.ones((3, 4))).shape
    (5, 2, 4)
    """
    return dot_products.matmul(x1, x2, precision=precision, preferred_element_type=preferred_element_type)


def tensordot(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    *,
    axes: int | Sequence[int] | Sequence[Sequence[int]] = 2,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Returns the sum of products over some axes of both arrays.

    Args:
        x1: An array.
        x2: An array.
        axes: How many of the last axes of `x1` and the first axes of `x2` to contract, or a pair of axes or sequences
            of axes, one of `x1` and one of `x2`.
        precision: The precision of the products, as for `lax.dot`; None means the default.
        preferred_element_type: The dtype of the result; None means the promoted dtype.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        An array with the other axes of `x1`, then those of `x2`.

    Raises:
        TypeError: If `axes` does not name as many axes of both arrays, or their sizes differ.

    >>> import numpy as np
    >>> tensordot(np.ones((2, 3, 4)), np.ones((3, 4, 5))).shape
    (2, 5)
    """
    return dot_products.tensordot(x1, x2, axes, precision=precision, preferred_element_type=preferred_element_type)


def matrix_transpose(x: ArrayLike, /) -> Array:
    """Swaps the last two axes of `x`: `f32[..., n, m]` becomes `f32[..., m, n]`.

    Args:
        x: An array with at least two axes.

    Returns:
        An array with the elements of `x`.

    Raises:
        ValueError: If `x` has fewer than two axes.

    >>> import numpy as np
    >>> matrix_transpose(np.ones((5, 2, 3))).shape
    (5, 3, 2)
    """
    return shapes.matrix_transpose(x)


def diagonal(x: ArrayLike, /, *, offset: int = 0) -> Array:
    """Returns diagonals of matrices.

    Args:
        x: The matrices, `f32[..., m, n]`.
        offset: The diagonal: 0 is the main one, positive numbers lie above it.

    Returns:
        An array without the last two axes, with the diagonal as its last axis.

    Raises:
        ValueError: If `x` has fewer than two axes.

    >>> import numpy as np
    >>> diagonal(np.arange(6).reshape(2, 3)).tolist()
    [0, 4]
    """
    return diagonals.diagonal(x, offset, -2, -1)


def trace(x: ArrayLike, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Array:
    """Returns the sums of diagonals of matrices.

    Args:
        x: The matrices, `f32[..., m, n]`.
        offset: The diagonal: 0 is the main one, positive numbers lie above it.
        dtype: The dtype of the sum; None means that of `tracefx.numpy.sum`.

    Returns:
        An array without the last two axes.

    Raises:
        ValueError: If `x` has fewer than two axes.

    >>> import numpy as np
    >>> trace(np.arange(6).reshape(2, 3)).tolist()
    4
    """
    return diagonals.trace(x, offset, -2, -1, dtype)


def multi_dot(arrays: Sequence[ArrayLike], *, precision: PrecisionLike = None) -> Array:
    """Returns the product of a sequence of matrices, in the order that takes the fewest multiplications.

    Args:
        arrays: Two arrays or more. The first and the last may be vectors.
        precision: The precision of the products; None means the default.

    Returns:
        The product, a matrix; a vector or a scalar if the first or the last array is a vector.

    Raises:
        ValueError: If the sizes do not fit.

    >>> import numpy as np
    >>> multi_dot([np.ones((2, 3)), np.ones((3, 4)), np.ones(4)]).tolist()
    [12.0, 12.0]
    """
    operands = list(arrays)
    if len(operands) < 2:
        raise ValueError(f"multi_dot takes two arrays or more, got {len(operands)}")
    values = [as_array(v) for v in promote_dtypes("multi_dot", *operands)]
    ranks = [v.ndim for v in values]
    if any(n != 2 for n in ranks[1:-1]) or ranks[0] not in (1, 2) or ranks[-1] not in (1, 2):
        raise ValueError(
            f"multi_dot takes matrices, the first and the last may be vectors, got {_format_avals(values)}"
        )
    if any(x.shape[-1] != y.shape[0] for x, y in pairwise(values)):
        raise ValueError(f"multi_dot: each array needs as many columns as the next has rows: {_format_avals(values)}")
    rows = 1 if ranks[0] == 1 else values[0].shape[0]
    columns = 1 if ranks[-1] == 1 else values[-1].shape[1]
    sizes = [rows, *[v.shape[0] for v in values[1:]], columns]
    return _multiply_chain(values, _optimal_splits(sizes), 0, len(values) - 1, precision)


def _format_avals(values: Sequence[Array]) -> str:
    return ", ".join([str(v.aval) for v in values])


def _optimal_splits(sizes: Sequence[int]) -> dict[tuple[int, int], int]:
    """Returns, for each range of matrices, after which of them to split it for the fewest multiplications."""
    count = len(sizes) - 1
    costs = {(i, i): 0 for i in range(count)}
    cuts: dict[tuple[int, int], int] = {}
    for length in range(2, count + 1):
        for first in range(count - length + 1):
            last = first + length - 1
            options = [
                (costs[first, k] + costs[k + 1, last] + sizes[first] * sizes[k + 1] * sizes[last + 1], k)
                for k in range(first, last)
            ]
            costs[first, last], cuts[first, last] = min(options)
    return cuts


def _multiply_chain(
    values: Sequence[Array], cuts: dict[tuple[int, int], int], first: int, last: int, precision: PrecisionLike
) -> Array:
    """Multiplies a range of matrices in the order of the splits."""
    if first == last:
        return values[first]
    cut = cuts[first, last]
    left, right = (
        _multiply_chain(values, cuts, first, cut, precision),
        _multiply_chain(values, cuts, cut + 1, last, precision),
    )
    return dot_products.matmul(left, right, precision=precision)
