"""`ravel_pytree`: a pytree of arrays as one vector."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Generic, TypeVar, final

from attrs import frozen

from tracefx import numpy as fnp
from tracefx.core import Array, ArrayLike, DType, Shape, dtypes
from tracefx.core.handler import as_array
from tracefx.numpy.operand_promotion import convert_operand
from tracefx.pytrees.trees import TreeDef
from tracefx.transforms.arguments import flatten_values

__all__ = ["ravel_pytree"]

T = TypeVar("T")


def ravel_pytree(pytree: T) -> tuple[Array, Callable[[ArrayLike], T]]:
    """Concatenates all elements of a pytree of arrays to one vector.

    The arrays are promoted to a common dtype. A pytree without arrays gives an empty vector of floats.

    Args:
        pytree: A pytree of arrays or numbers.

    Returns:
        A pair `(vector, unravel)`. `unravel(vector)` rebuilds the pytree. If the arrays have different dtypes, it takes
        only vectors of the common dtype, and restores their own; otherwise the new arrays have the dtype of its
        argument. It raises ValueError for a vector of another size, and TypeError for another dtype. Two such functions
        are equal if structures, shapes and dtypes are.

    Raises:
        TypeError: If a leaf is not an array.

    >>> vector, unravel = ravel_pytree({"a": fnp.ones((2, 2)), "b": 3.0})
    >>> vector.tolist()
    [1.0, 1.0, 1.0, 1.0, 3.0]
    >>> unravel(vector * 2)["b"]
    Array(6., dtype=float32)
    """
    values, structure = flatten_values(pytree, "ravel_pytree: pytree")
    arrays = [as_array(x) for x in values]
    vector = fnp.concatenate([fnp.ravel(x) for x in arrays]) if arrays else fnp.zeros(0)
    return vector, Unravel(structure, tuple([(x.shape, x.dtype) for x in arrays]), vector.dtype)


@final
@frozen
class Unravel(Generic[T]):
    """A function from a vector to a pytree of arrays of given shapes and dtypes."""

    structure: TreeDef
    types: tuple[tuple[Shape, DType], ...]
    dtype: DType
    """The dtype of the vector, and of the arrays if they have the same."""

    def __call__(self, flat: ArrayLike) -> T:
        given = fnp.ravel(flat)
        sizes = [math.prod(shape) for shape, _ in self.types]
        mixed = any(dtype != self.dtype for _, dtype in self.types)
        if mixed and given.dtype != self.dtype:
            raise TypeError(
                f"unravel takes a vector of {dtypes.name(self.dtype)}, since the arrays have different dtypes, got "
                f"{given.aval}; convert it with astype"
            )
        if self.types and given.size != sum(sizes):
            raise ValueError(f"unravel takes a vector of {sum(sizes)} elements, got {given.aval}")
        parts = fnp.split(given, list(itertools.accumulate(sizes))[:-1]) if self.types else []
        leaves: list[Array] = [fnp.reshape(p, shape) for p, (shape, _) in zip(parts, self.types, strict=True)]
        if mixed:
            leaves = [
                as_array(convert_operand(x, dtype, False)) for x, (_, dtype) in zip(leaves, self.types, strict=True)
            ]
        tree: T = self.structure.unflatten(leaves)
        return tree
