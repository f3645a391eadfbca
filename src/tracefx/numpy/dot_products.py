"""Products of vectors, matrices and stacks of matrices; each is one `dot_general` after promotion.

All take `precision`, which is passed to the compiler, and `preferred_element_type`, the dtype of the result, in which
sums are computed. None means the default precision and the promoted dtype. Sizes that do not fit raise a TypeError
that names both operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsIndex

from tracefx.bounded_cache import memoize
from tracefx.core import Array, ArrayLike, DType, DTypeLike, ShapedArray, Value, dtypes
from tracefx.core.handler import as_array, bind1
from tracefx.numpy.complex_parts import conjugate
from tracefx.numpy.operand_promotion import broadcast_operand_shapes, convert_dtype, promote_dtypes, reject_out
from tracefx.numpy.ufuncs import multiply
from tracefx.ops import structural
from tracefx.ops.contractions import contraction
from tracefx.ops.contractions.contraction import DotGeneral, PrecisionLike
from tracefx.ops.static_integers import canonicalize_axes, static_int
from tracefx.transforms.eager_calls import eager_cached


def _operands(name: str, a: ArrayLike, b: ArrayLike, preferred: DTypeLike | None) -> tuple[Value, Value, DType, bool]:
    """Returns the promoted operands, the dtype of the result, and whether it is weak."""
    x, y = promote_dtypes(name, a, b)
    dtype = x.aval.dtype if preferred is None else dtypes.as_dtype(preferred, f"{name}: preferred_element_type")
    return x, y, dtype, preferred is None and x.aval.weak_type


def _contract(
    name: str,
    x: Value,
    y: Value,
    over: tuple[Sequence[int], Sequence[int]],
    batch: tuple[Sequence[int], Sequence[int]],
    precision: PrecisionLike,
    dtype: DType,
) -> Array:
    """Returns `dot_general` of two operands; raises a TypeError if sizes of contracted axes differ."""
    (i, j), shapes = over, (x.aval.shape, y.aval.shape)
    if [shapes[0][k] for k in i] != [shapes[1][k] for k in j]:
        raise TypeError(
            f"{name}: {x.aval} and {y.aval} do not fit: axes {tuple(i)} of the first and {tuple(j)} of the second are "
            f"contracted, but have sizes {[shapes[0][k] for k in i]} and {[shapes[1][k] for k in j]}, which must agree"
        )
    numbers = ((tuple(i), tuple(j)), (tuple(batch[0]), tuple(batch[1])))
    return contraction.dot_general(x, y, numbers, precision, dtype)


@eager_cached
def dot(
    a: ArrayLike,
    b: ArrayLike,
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Returns the dot product: the sum over the last axis of `a` and the second to last, or only, axis of `b`.

    `f32[m, k]` and `f32[k, n]` give `f32[m, n]`. A scalar operand multiplies the other.

    Args:
        a: An array.
        b: An array.
        precision: The precision of the products, as for `lax.dot`; None means the default.
        preferred_element_type: The dtype of the result; None means the promoted dtype.

    Returns:
        An array with the other axes of `a`, then those of `b`.

    Raises:
        TypeError: If the sizes of the two axes differ.

    >>> import numpy as np
    >>> dot(np.arange(3.0), np.arange(3.0))
    Array(5., dtype=float32)
    """
    if precision is None and preferred_element_type is None and isinstance(a, Array) and isinstance(b, Array):
        product = _direct_dot_general(a.aval, b.aval)
        if product is not None:
            return bind1(product, a, b)
    x, y, dtype, weak = _operands("dot", a, b, preferred_element_type)
    if not x.aval.shape or not y.aval.shape:
        return as_array(convert_dtype(multiply(x, y), dtype, weak))
    over = ((x.aval.ndim - 1,), (max(0, y.aval.ndim - 2),))
    return as_array(convert_dtype(_contract("dot", x, y, over, ((), ()), precision, dtype), dtype, weak))


@memoize(4096)
def _direct_dot_general(x: ShapedArray, y: ShapedArray) -> DotGeneral | None:
    """Returns the single operation that computes the product of two vectors or matrices of one dtype, or None."""
    if (x.dtype, x.weak_type) != (y.dtype, y.weak_type) or not (1 <= x.ndim <= 2 >= y.ndim >= 1):
        return None
    if x.shape[-1] != y.shape[0]:
        return None
    return DotGeneral((((x.ndim - 1,), (0,)), ((), ())), None, x.dtype)


@eager_cached
def matmul(
    a: ArrayLike,
    b: ArrayLike,
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Returns the matrix product: `f32[..., m, k]` and `f32[..., k, n]` give `f32[..., m, n]`.

    Leading axes are batch axes and broadcast. A vector is a row on the left and a column on the right.

    Args:
        a: A vector or matrices.
        b: A vector or matrices.
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
    if precision is None and preferred_element_type is None and isinstance(a, Array) and isinstance(b, Array):
        product = _direct_dot_general(a.aval, b.aval)
        if product is not None:
            return bind1(product, a, b)
    x, y, dtype, weak = _operands("matmul", a, b, preferred_element_type)
    m, n = x.aval.ndim, y.aval.ndim
    if m == 0 or n == 0:
        raise ValueError(f"matmul: operands must have axes, got {x.aval} and {y.aval}; multiply by scalars with *")
    over = ((m - 1,), (max(0, n - 2),))
    if n <= 2:  # the batch axes of `a` are free axes
        return as_array(convert_dtype(_contract("matmul", x, y, over, ((), ()), precision, dtype), dtype, weak))
    stacks = broadcast_operand_shapes("matmul", x.aval.shape[:-2], y.aval.shape[:-2])
    rank = len(stacks)
    x_sizes, y_sizes = _pad_shape(x.aval.shape[:-2], rank), _pad_shape(y.aval.shape[:-2], rank)
    # An axis of both operands is a batch axis; an axis of one operand is a free axis of it, without broadcasting.
    shared = [i for i in range(rank) if x_sizes[i] != 1 and y_sizes[i] != 1]
    x, x_positions = _drop_unit_axes(x, x_sizes)
    y, y_positions = _drop_unit_axes(y, y_sizes)
    batch = [x_positions[i] for i in shared], [y_positions[i] for i in shared]
    over = ((x.aval.ndim - 1,), (y.aval.ndim - 2,))
    out = _contract("matmul", x, y, over, batch, precision, dtype)
    # The axes of the product: the shared ones, those of `a` and its rows, then those of `b` and its columns.
    left, right = [[i for i in positions if i not in shared] for positions in (x_positions, y_positions)]
    rows: list[int] = [rank] if m > 1 else []
    product_axes = [*shared, *left, *rows, *right, rank + 1]
    order = sorted(range(len(product_axes)), key=product_axes.__getitem__)
    out = structural.reshape(
        structural.transpose(out, order), (*stacks, *x.aval.shape[-2:-1][: len(rows)], y.aval.shape[-1])
    )
    return as_array(convert_dtype(out, dtype, weak))


def _pad_shape(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return (1,) * (rank - len(shape)) + shape


def _drop_unit_axes(x: Value, sizes: tuple[int, ...]) -> tuple[Value, dict[int, int]]:
    """Returns `x` without its batch axes of size 1, and the positions of the other batch axes in it."""
    kept = [i for i, n in enumerate(sizes) if n != 1]
    core = x.aval.shape[-2:]
    return structural.reshape(x, [*[sizes[i] for i in kept], *core]), {i: position for position, i in enumerate(kept)}


@eager_cached
def tensordot(
    a: ArrayLike,
    b: ArrayLike,
    axes: int | Sequence[int] | Sequence[Sequence[int]] = 2,
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Returns the sum of products over some axes of `a` and as many of `b`.

    Args:
        a: An array.
        b: An array.
        axes: How many of the last axes of `a` and the first axes of `b` to contract, or a pair of axes or sequences of
            axes, one of `a` and one of `b`.
        precision: The precision of the products; None means the default.
        preferred_element_type: The dtype of the result; None means the promoted dtype.

    Returns:
        An array with the other axes of `a`, then those of `b`.

    Raises:
        TypeError: If `axes` does not name as many axes of both arrays, or their sizes differ.

    >>> import numpy as np
    >>> tensordot(np.ones((2, 3, 4)), np.ones((3, 4, 5))).shape
    (2, 5)
    """
    x, y, dtype, weak = _operands("tensordot", a, b, preferred_element_type)
    if isinstance(axes, SupportsIndex):
        count = static_int("tensordot", axes, "axes")
        if not 0 <= count <= min(x.aval.ndim, y.aval.ndim):
            raise TypeError(f"tensordot: axes {count} must be a number of axes that both {x.aval} and {y.aval} have")
        over = tuple(range(x.aval.ndim - count, x.aval.ndim)), tuple(range(count))
    else:
        if len(axes) != 2:
            raise TypeError(f"tensordot: axes must be a number or a pair of axes or sequences of them, got {axes!r}")
        first, second = [(each,) if isinstance(each, SupportsIndex) else each for each in axes]
        over = (
            canonicalize_axes("tensordot", first, x.aval.ndim, "axes[0]"),
            canonicalize_axes("tensordot", second, y.aval.ndim, "axes[1]"),
        )
        if len(over[0]) != len(over[1]):
            raise TypeError(f"tensordot: axes {axes!r} must name equally many axes of both arrays")
    return as_array(convert_dtype(_contract("tensordot", x, y, over, ((), ()), precision, dtype), dtype, weak))


@eager_cached
def vdot(
    a: ArrayLike, b: ArrayLike, *, precision: PrecisionLike = None, preferred_element_type: DTypeLike | None = None
) -> Array:
    """Returns the dot product of the flattened arrays, with the elements of `a` conjugated.

    Args:
        a: An array.
        b: An array of the same size.
        precision: The precision of the products, as for `lax.dot`; None means the default.
        preferred_element_type: The dtype of the result; None means the promoted dtype.

    Returns:
        An array without axes.

    Raises:
        TypeError: If the sizes differ.

    >>> import numpy as np
    >>> vdot(np.ones((2, 3)), np.ones((2, 3)))
    Array(6., dtype=float32)
    """
    x, y, _, _ = _operands("vdot", a, b, preferred_element_type)
    x, y = [structural.reshape(v, (v.aval.size,)) for v in (conjugate(x), y)]
    return dot(x, y, precision=precision, preferred_element_type=preferred_element_type)


@eager_cached
def inner(
    a: ArrayLike, b: ArrayLike, *, precision: PrecisionLike = None, preferred_element_type: DTypeLike | None = None
) -> Array:
    """Returns the inner product: the sum of products over the last axes of both.

    Args:
        a: An array; a scalar multiplies the other operand.
        b: An array; a scalar multiplies the other operand.
        precision: The precision of the products, as for `lax.dot`; None means the default.
        preferred_element_type: The dtype of the result; None means the promoted dtype.

    Returns:
        An array with the other axes of `a`, then those of `b`.

    Raises:
        TypeError: If the sizes of the last axes differ.

    >>> import numpy as np
    >>> inner(np.ones((2, 3)), np.ones((5, 3))).shape
    (2, 5)
    """
    x, y, dtype, weak = _operands("inner", a, b, preferred_element_type)
    if not x.aval.shape or not y.aval.shape:
        return as_array(convert_dtype(multiply(x, y), dtype, weak))
    over = ((x.aval.ndim - 1,), (y.aval.ndim - 1,))
    return as_array(convert_dtype(_contract("inner", x, y, over, ((), ()), precision, dtype), dtype, weak))


@eager_cached
def outer(a: ArrayLike, b: ArrayLike, out: None = None) -> Array:
    """Returns the products of all pairs of elements of the flattened arrays: `f32[m]` and `f32[n]` give `f32[m, n]`.

    Args:
        a: An array.
        b: An array.
        out: Not supported; must be None.

    Returns:
        A matrix of the promoted dtype.

    >>> import numpy as np
    >>> outer(np.arange(2), np.arange(3)).tolist()
    [[0, 0, 0], [0, 1, 2]]
    """
    reject_out("outer", out)
    x, y = promote_dtypes("outer", a, b)
    m, n = x.aval.size, y.aval.size
    return multiply(
        structural.broadcast_in_dim(structural.reshape(x, (m,)), (m, n), (0,)),
        structural.broadcast_in_dim(structural.reshape(y, (n,)), (m, n), (1,)),
    )
