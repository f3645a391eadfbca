"""Functions of pytrees that tell differentiation what to differentiate."""

from __future__ import annotations

from typing import Any, TypeVar, overload

from tracefx.core import Array, ArrayLike
from tracefx.ops.elementwise import selection
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree

T = TypeVar("T")


@overload
def stop_gradient(x: ArrayLike) -> Array: ...
@overload
def stop_gradient(x: T) -> T: ...
def stop_gradient(x: PyTree) -> Any:
    """Returns a tree with the same arrays, treated as constants by differentiation.

    Args:
        x: a tree of arrays.

    Returns:
        A tree of the same structure, whose arrays have zero tangents and pass no cotangents on.

    >>> from tracefx import grad
    >>> grad(lambda x: x * stop_gradient(x))(3.0)
    Array(3., dtype=float32, weak_type=True)
    """
    return trees.map(selection.stop_gradient, x)
