"""Batching of functions of single matrices, and checks of their operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tracefx.core import Array, ArrayLike
from tracefx.core.handler import as_array
from tracefx.errors import ShapeError
from tracefx.numpy.linalg.solving import promote_inexact_pair
from tracefx.numpy.operand_promotion import broadcast_operand_shapes, to_inexact
from tracefx.ops.shape.shape import expand_dims, squeeze
from tracefx.ops.structural import broadcast_to
from tracefx.transforms.vmap import vmap

R = TypeVar("R")


def map_over_batch(name: str, f: Callable[..., R], arrays: Sequence[Array], ranks: Sequence[int]) -> R:
    """Maps `f`, a function of arrays with the given ranks, over the leading axes of the arrays, which broadcast."""
    batch_shapes = [x.shape[: x.ndim - rank] for x, rank in zip(arrays, ranks, strict=True)]
    batch_shape = broadcast_operand_shapes(name, *batch_shapes)
    broadcast_arrays = [
        broadcast_to(x, (*batch_shape, *x.shape[x.ndim - rank :])) for x, rank in zip(arrays, ranks, strict=True)
    ]
    for _ in batch_shape:
        f = vmap(f)
    return f(*broadcast_arrays)


def as_matrix(name: str, a: ArrayLike) -> Array:
    """Converts an operand to an inexact dtype.

    Raises:
        ShapeError: if it has fewer than two axes.
    """
    x = as_array(to_inexact(a, f"{name}: a"))
    if x.ndim < 2:
        raise ShapeError(f"{name} takes matrices, arrays with two axes or more, got {x.aval}")
    return x


def as_square_matrix(name: str, a: ArrayLike) -> Array:
    """Converts an operand to an inexact dtype.

    Raises:
        ShapeError: if it is not a square matrix or a batch of them.
    """
    x = as_matrix(name, a)
    if x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"{name} takes square matrices, got {x.aval}")
    return x


def as_linear_system(name: str, a: ArrayLike, b: ArrayLike) -> tuple[Array, Array, bool]:
    """Promotes and broadcasts the operands of a linear system; also returns whether the right-hand side is a vector.

    Raises:
        ShapeError: if `a` is not square, or `b` doesn't match it.
    """
    x, y = promote_inexact_pair(name, a, b)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"{name} takes square matrices, got {x.aval}")
    n = x.shape[-1]
    if not y.ndim or y.shape[max(y.ndim - 2, 0)] != n:
        raise ShapeError(f"{name}: b must be a vector of {n} numbers or matrices of {n} rows, got {y.aval}")
    is_vector = y.ndim == 1
    if is_vector:
        y = expand_dims(y, (1,))
    batch_shape = broadcast_operand_shapes(name, x.shape[:-2], y.shape[:-2])
    return broadcast_to(x, (*batch_shape, n, n)), broadcast_to(y, (*batch_shape, *y.shape[-2:])), is_vector


def restore_vector(x: Array, is_vector: bool) -> Array:
    """Removes the last axis from the solution if the right-hand side was a vector."""
    return squeeze(x, (x.ndim - 1,)) if is_vector else x
