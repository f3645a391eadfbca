"""Cross, Kronecker, batched vector and matrix products, and contraction paths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from tracefx.core import Array, ArrayLike, DTypeLike
from tracefx.core.handler import as_array
from tracefx.errors import ShapeError
from tracefx.numpy.complex_parts import conjugate
from tracefx.numpy.dot_products import matmul
from tracefx.numpy.einstein_summation import check_strategy
from tracefx.numpy.joining import stack
from tracefx.numpy.kernels import KERNELS
from tracefx.numpy.operand_promotion import as_operand, promote_dtypes
from tracefx.numpy.shapes import moveaxis
from tracefx.numpy.ufuncs import multiply, subtract
from tracefx.ops import structural
from tracefx.ops.contractions.contraction import PrecisionLike
from tracefx.ops.shape import shape
from tracefx.ops.static_integers import canonicalize_axis
from tracefx.transforms.eager_calls import eager_cached

ContractionPath: TypeAlias = list[tuple[int, ...]]


@eager_cached(kernel=KERNELS["cross"])
def cross(
    a: ArrayLike, b: ArrayLike, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Array:
    """Returns the cross product of vectors with 2 or 3 components.

    Args:
        a: Vectors along an axis. A vector with 2 components has 0 as its third.
        b: Vectors.
        axisa: The axis of the vectors of `a`.
        axisb: The axis of the vectors of `b`.
        axisc: The axis of the vectors of the result, which two operands with 2 components do not have.
        axis: An axis in place of the other three; None means those.

    Returns:
        An array of the vectors' products; without the axis if both operands have 2 components.

    Raises:
        ValueError: If vectors have other numbers of components.

    >>> cross(np.array([1, 0, 0]), np.array([0, 1, 0])).tolist()
    [0, 0, 1]
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = promote_dtypes("cross", as_operand(a, "cross: a"), as_operand(b, "cross: b"))
    x, y = moveaxis(x, axisa, -1), moveaxis(y, axisb, -1)
    for v in (x, y):
        if v.shape[-1] not in (2, 3):
            raise ValueError(f"cross: vectors must have 2 or 3 components, got {v.aval}")
    (a0, a1, *a2), (b0, b1, *b2) = [[v[..., i] for i in range(v.shape[-1])] for v in (x, y)]
    third = _minor(a0, b1, a1, b0)
    if not a2 and not b2:
        return third
    first = multiply(a1, b2[0]) if not a2 else -multiply(a2[0], b1) if not b2 else _minor(a1, b2[0], a2[0], b1)
    second = -multiply(a0, b2[0]) if not a2 else multiply(a2[0], b0) if not b2 else _minor(a2[0], b0, a0, b2[0])
    return moveaxis(stack([first, second, third], -1), -1, axisc)


def _minor(a: Array, d: Array, b: Array, c: Array) -> Array:
    """Returns `a * d - b * c`."""
    return subtract(multiply(a, d), multiply(b, c))


@eager_cached
def kron(a: ArrayLike, b: ArrayLike) -> Array:
    """Returns the Kronecker product: each element of `a` multiplies a copy of `b`.

    Args:
        a: An array.
        b: An array.

    Returns:
        An array whose sizes are the products of those of `a` and `b`.

    >>> kron(np.array([1, 10]), np.array([1, 2])).tolist()
    [1, 2, 10, 20]
    """
    x, y = promote_dtypes("kron", a, b)
    rank = max(x.aval.ndim, y.aval.ndim)
    if x.aval.ndim != y.aval.ndim:
        x, y = [shape.expand_dims(v, range(rank - v.aval.ndim)) for v in (x, y)]
    sizes = [m * n for m, n in zip(x.aval.shape, y.aval.shape, strict=True)]
    expanded = shape.expand_dims(x, range(1, 2 * rank, 2)), shape.expand_dims(y, range(0, 2 * rank, 2))
    return structural.reshape(multiply(*expanded), sizes)


@eager_cached
def vecdot(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    *,
    axis: int = -1,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Returns the dot products of vectors along an axis, with those of `x1` conjugated; other axes broadcast.

    Args:
        x1: An array.
        x2: An array.
        axis: The axis of the vectors, counted in each operand before broadcasting.
        precision: The precision of the products; None means the default.
        preferred_element_type: The dtype of the result; None means the promoted dtype.

    Returns:
        An array of the broadcast shape of the other axes.

    Raises:
        ValueError: If the sizes along the axis differ.

    >>> vecdot(np.ones((5, 3)), np.ones(3)).shape
    (5,)
    """
    x, y = [as_array(as_operand(v, f"vecdot: x{i + 1}")) for i, v in enumerate((x1, x2))]
    x, y = [moveaxis(v, canonicalize_axis("vecdot", axis, v.ndim), -1) for v in (x, y)]
    if x.shape[-1] != y.shape[-1]:
        raise ShapeError(f"vecdot: axis {axis} must have one size, got {x.aval} and {y.aval}")
    row, column = shape.expand_dims(conjugate(x), (x.ndim - 1,)), shape.expand_dims(y, (y.ndim,))
    out = matmul(row, column, precision=precision, preferred_element_type=preferred_element_type)
    return shape.squeeze(out, (out.ndim - 2, out.ndim - 1))


@eager_cached
def matvec(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns matrix-vector products: `f32[..., m, n]` and `f32[..., n]` give `f32[..., m]`.

    Args:
        x1: The matrices, `f32[..., m, n]`.
        x2: The vectors, `f32[..., n]`.

    Returns:
        An array of vectors.

    Raises:
        ValueError: If the sizes do not fit.

    >>> matvec(np.ones((5, 2, 3)), np.ones(3)).shape
    (5, 2)
    """
    x, y = _contraction_operands("matvec", x1, x2, 2, 1, -1)
    return shape.squeeze(out := matmul(x, shape.expand_dims(y, (y.ndim,))), (out.ndim - 1,))


@eager_cached
def vecmat(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns vector-matrix products with conjugated vectors: `f32[..., n]` and `f32[..., n, m]` give `f32[..., m]`.

    Args:
        x1: The vectors, `f32[..., n]`.
        x2: The matrices, `f32[..., n, m]`.

    Returns:
        An array of vectors.

    Raises:
        ValueError: If the sizes do not fit.

    >>> vecmat(np.ones(3), np.ones((5, 3, 2))).shape
    (5, 2)
    """
    x, y = _contraction_operands("vecmat", x1, x2, 1, 2, -2)
    return shape.squeeze(out := matmul(shape.expand_dims(conjugate(x), (x.ndim - 1,)), y), (out.ndim - 2,))


def _contraction_operands(
    name: str, x1: ArrayLike, x2: ArrayLike, least1: int, least2: int, axis: int
) -> tuple[Array, Array]:
    x, y = [as_array(as_operand(v, f"{name}: x{i + 1}")) for i, v in enumerate((x1, x2))]
    if x.ndim < least1 or y.ndim < least2 or x.shape[-1] != y.shape[axis]:
        raise ShapeError(
            f"{name}: {x.aval} and {y.aval} do not fit: the sizes of the contracted axes -1 and {axis} must agree"
        )
    return x, y


def einsum_path(
    subscripts: Any, /, *operands: Any, optimize: bool | str | Sequence[tuple[int, ...]] = "auto"
) -> tuple[ContractionPath, str]:
    """Returns a cheap contraction order for `einsum`, and NumPy's report on its cost.

    Args:
        subscripts: The subscripts, as for `einsum`.
        *operands: The arrays.
        optimize: The method, as for `einsum`; `"auto"` means `"optimal"`.

    Returns:
        A list of tuples, each with the positions of the operands to contract next, and a text.

    >>> path, _ = einsum_path("ij,jk,kl->il", np.ones((9, 1)), np.ones((1, 9)), np.ones((9, 1)))
    >>> path
    [(1, 2), (0, 1)]
    """
    shapes = [_shape_only_array(x) for x in (subscripts, *operands)]
    strategy: Any
    if isinstance(optimize, bool | str):
        check_strategy("einsum_path", optimize)
        strategy = "optimal" if optimize == "auto" else optimize
    else:
        strategy = ["einsum_path", *optimize]
    path, text = np.einsum_path(*shapes, optimize=strategy)
    return [tuple(each) for each in path[1:]], text


def _shape_only_array(x: Any) -> Any:
    """Returns a broadcast scalar with the shape of an array: NumPy looks at shapes only."""
    return (
        np.broadcast_to(np.float32(0), as_operand(x, "einsum_path: an operand").aval.shape)
        if isinstance(x, Array | np.ndarray)
        else x
    )
