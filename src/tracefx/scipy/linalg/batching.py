"""Functions of single matrices, mapped over stacks of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tracefx.core.array import Array, ArrayLike
from tracefx.core.handler import as_array
from tracefx.numpy.linalg.solving import promote_inexact_pair
from tracefx.numpy.operand_promotion import broadcast_operand_shapes, to_inexact
from tracefx.ops.shape.shape import expand_dims, squeeze
from tracefx.ops.static_integers import ShapeError
from tracefx.ops.structural import broadcast_to
from tracefx.transforms.vmap import vmap

R = TypeVar("R")


def map_over_batch(name: str, f: Callable[..., R], arrays: Sequence[Array], ranks: Sequence[int]) -> R:
    """`f` of arrays with so many axes, for all matrices of stacks of these, which broadcast."""
    stacks = [x.shape[: x.ndim - rank] for x, rank in zip(arrays, ranks, strict=True)]
    stack = broadcast_operand_shapes(name, *stacks)
    full = [broadcast_to(x, (*stack, *x.shape[x.ndim - rank :])) for x, rank in zip(arrays, ranks, strict=True)]
    for _ in stack:
        f = vmap(f)
    return f(*full)


def as_matrix(name: str, a: ArrayLike) -> Array:
    x = as_array(to_inexact(a, f"{name}: a"))
    if x.ndim < 2:
        raise ShapeError(f"{name} takes matrices, arrays with two axes or more, got {x.aval}")
    return x


def as_square_matrix(name: str, a: ArrayLike) -> Array:
    x = as_matrix(name, a)
    if x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"{name} takes square matrices, got {x.aval}")
    return x


def as_linear_system(name: str, a: ArrayLike, b: ArrayLike) -> tuple[Array, Array, bool]:
    """Square matrices and matrices beside them, stacked alike, and whether the latter are a vector."""
    x, y = promote_inexact_pair(name, a, b)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"{name} takes square matrices, got {x.aval}")
    n = x.shape[-1]
    if not y.ndim or y.shape[max(y.ndim - 2, 0)] != n:
        raise ShapeError(f"{name}: b must be a vector of {n} numbers or matrices of {n} rows, got {y.aval}")
    is_vector = y.ndim == 1
    if is_vector:
        y = expand_dims(y, (1,))
    stack = broadcast_operand_shapes(name, x.shape[:-2], y.shape[:-2])
    return broadcast_to(x, (*stack, n, n)), broadcast_to(y, (*stack, *y.shape[-2:])), is_vector


def restore_vector(x: Array, is_vector: bool) -> Array:
    """The solution as a vector, where the right-hand side was one."""
    return squeeze(x, (x.ndim - 1,)) if is_vector else x
