"""Trees of arrays as one vector, and back."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Generic, TypeVar, final

from attrs import frozen

from tracefx import numpy as fnp
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import Shape
from tracefx.core.dtypes import DType
from tracefx.core.handler import as_array
from tracefx.numpy.operand_promotion import convert_operand
from tracefx.pytrees.trees import TreeDef
from tracefx.transforms.arguments import flatten_values

__all__ = ["ravel_pytree"]

T = TypeVar("T")


def ravel_pytree(pytree: T) -> tuple[Array, Callable[[ArrayLike], T]]:
    """All elements of a tree's arrays in one vector, and the function that makes such a tree of such a vector.

    The arrays meet in one dtype. Where they have different ones, the function takes vectors of that dtype alone
    (TypeError), and the tree that it makes has their own; where they have one, the tree has the dtype of the vector.
    A tree without arrays is a vector of no floats.

    The function raises ValueError for another number of elements. Functions for equal structures, shapes and dtypes
    are equal.

    >>> vector, tree_of = ravel_pytree({"a": fnp.ones((2, 2)), "b": 3.0})
    >>> vector.tolist()
    [1.0, 1.0, 1.0, 1.0, 3.0]
    >>> tree_of(vector * 2)["b"]
    Array(6., dtype=float32)
    """
    values, structure = flatten_values(pytree, "ravel_pytree: pytree")
    arrays = [as_array(x) for x in values]
    vector = fnp.concatenate([fnp.ravel(x) for x in arrays]) if arrays else fnp.zeros(0)
    return vector, Unravel(structure, tuple([(x.shape, x.dtype) for x in arrays]), vector.dtype)


@final
@frozen
class Unravel(Generic[T]):
    """From a vector to a tree of arrays of these shapes and dtypes."""

    structure: TreeDef
    types: tuple[tuple[Shape, DType], ...]
    dtype: DType
    """That of the vector, and of the arrays unless they have different ones."""

    def __call__(self, flat: ArrayLike) -> T:
        given = fnp.ravel(flat)
        sizes = [math.prod(shape) for shape, _ in self.types]
        mixed = any(dtype != self.dtype for _, dtype in self.types)
        if mixed and given.dtype != self.dtype:
            raise TypeError(
                f"unravel takes a vector of {dtypes.name(self.dtype)}, as the arrays have different dtypes, got "
                f"{given.aval}; convert it with astype"
            )
        if self.types and given.size != sum(sizes):
            raise ValueError(f"unravel takes a vector of {sum(sizes)} elements, got {given.aval}")
        parts = fnp.split(given, list(itertools.accumulate(sizes))[:-1]) if self.types else []
        made: list[Array] = [fnp.reshape(p, shape) for p, (shape, _) in zip(parts, self.types, strict=True)]
        if mixed:
            made = [as_array(convert_operand(x, dtype, False)) for x, (_, dtype) in zip(made, self.types, strict=True)]
        tree: T = self.structure.unflatten(made)
        return tree
