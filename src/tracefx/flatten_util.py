"""Trees of arrays as one vector, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tracefx import numpy as fnp
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.handler import as_array
from tracefx.numpy.promoting import to_type
from tracefx.transforms.arguments import flatten_values

__all__ = ["ravel_pytree"]

T = TypeVar("T")


def ravel_pytree(pytree: T) -> tuple[Array, Callable[[ArrayLike], T]]:
    """All elements of a tree's arrays in one vector, and the function that makes such a tree of such a vector.

    The arrays meet in one dtype; the tree that is made has their own. A tree without arrays is a vector of no floats.

    The function raises ValueError for a vector of another length, TypeError for one of another dtype.

    >>> vector, tree_of = ravel_pytree({"a": fnp.ones((2, 2)), "b": 3.0})
    >>> vector.tolist()
    [1.0, 1.0, 1.0, 1.0, 3.0]
    >>> tree_of(vector * 2)["b"]
    Array(6., dtype=float32)
    """
    values, structure = flatten_values(pytree, "ravel_pytree: pytree")
    arrays = [as_array(x) for x in values]
    avals = [x.aval for x in arrays]
    ends = [sum([a.size for a in avals[: i + 1]]) for i in range(len(avals))]
    vector = fnp.concatenate([fnp.ravel(x) for x in arrays]) if arrays else fnp.zeros(0)
    length, dtype = vector.shape[0], vector.dtype

    def unravel(flat: ArrayLike) -> T:
        given = as_array(flat)
        if given.shape != (length,):
            raise ValueError(f"unravel takes a vector of {length} elements, got {given.aval}")
        if given.dtype != dtype:
            raise TypeError(f"unravel takes a vector of {dtypes.name(dtype)}, got {given.aval}; convert it with astype")
        parts = fnp.split(given, ends[:-1]) if arrays else []
        made = [to_type(fnp.reshape(p, a.shape), a.dtype, False) for p, a in zip(parts, avals, strict=True)]
        tree: T = structure.unflatten(made)
        return tree

    return vector, unravel
