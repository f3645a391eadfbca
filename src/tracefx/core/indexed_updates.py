"""Indices of arrays and the protocols of `x.at`, generic in the array class, which is defined later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from types import EllipsisType
from typing import Protocol, TypeAlias, TypeVar

import numpy as np

from tracefx.core.dtypes import NDArray, Scalar

A = TypeVar("A")
Like: TypeAlias = A | NDArray | np.generic | Scalar
NestedLike: TypeAlias = Like[A] | Sequence["NestedLike[A]"]
AxisLike: TypeAlias = int | Sequence[int] | None
IndexPart: TypeAlias = A | NDArray | Sequence[int] | int | slice | EllipsisType | None
Index: TypeAlias = IndexPart[A] | tuple[IndexPart[A], ...]
UpdateMode: TypeAlias = str | Enum | None
"""The treatment of indices out of bounds: "drop" (the default), "clip", "promise_in_bounds", or an enum member."""


class IndexUpdateFn(Protocol[A]):
    """An update at an index, as in `x.at[index].add(values)`.

    Args:
        values: The values, which broadcast to the shape of `x[index]`; lists and tuples are converted to arrays.
        indices_are_sorted: A promise that the indices are sorted, which permits faster code.
        unique_indices: A promise that no element is indexed twice, which permits faster code.
        mode: The treatment of indices out of bounds.
        out_sharding: The sharding of the result, as a constraint.
        wrap_negative_indices: Whether negative indices count from the end. Otherwise they are out of bounds.
    """

    def __call__(
        self,
        values: NestedLike[A],
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: UpdateMode = None,
        out_sharding: object = None,
        wrap_negative_indices: bool = True,
    ) -> A: ...


class IndexedUpdates(Protocol[A]):
    """The methods of `x.at[index]`. Each returns a new array, since arrays are immutable."""

    def get(
        self,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: UpdateMode = None,
        fill_value: Scalar | None = None,
        out_sharding: object = None,
        wrap_negative_indices: bool = True,
    ) -> A:
        """Returns `x[index]`. In mode "fill", indices out of bounds give `fill_value`."""

    def apply(
        self,
        func: Callable[[A], Like[A]],
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: UpdateMode = None,
        wrap_negative_indices: bool = True,
    ) -> A:
        """Returns `x` with `func` applied to the elements at the index."""

    @property
    def set(self) -> IndexUpdateFn[A]:
        """Replaces the elements at the index by the values."""

    @property
    def add(self) -> IndexUpdateFn[A]:
        """Adds the values to the elements at the index."""

    @property
    def subtract(self) -> IndexUpdateFn[A]:
        """Subtracts the values from the elements at the index."""

    @property
    def multiply(self) -> IndexUpdateFn[A]:
        """Multiplies the elements at the index by the values."""

    @property
    def mul(self) -> IndexUpdateFn[A]:
        """An alias of `multiply`."""

    @property
    def divide(self) -> IndexUpdateFn[A]:
        """Divides the elements at the index by the values."""

    @property
    def power(self) -> IndexUpdateFn[A]:
        """Raises the elements at the index to the power of the values."""

    @property
    def min(self) -> IndexUpdateFn[A]:
        """Replaces the elements at the index by the minimum of them and the values."""

    @property
    def max(self) -> IndexUpdateFn[A]:
        """Replaces the elements at the index by the maximum of them and the values."""


class AtIndexer(Protocol[A]):
    """The type of `x.at`."""

    def __getitem__(self, index: Index[A]) -> IndexedUpdates[A]: ...
