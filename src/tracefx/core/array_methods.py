"""Protocols of the operators and methods of arrays, generic in the array class, which is defined later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from types import EllipsisType
from typing import Protocol, TypeAlias, TypeVar

import numpy as np

from tracefx.core.dtypes import DTypeLike, NDArray
from tracefx.core.literal import Literal, Scalar
from tracefx.core.sharding import DeviceOrSharding

A = TypeVar("A")
Like: TypeAlias = A | Literal | NDArray | np.generic | Scalar
AxisLike: TypeAlias = int | Sequence[int] | None
IndexPart: TypeAlias = A | NDArray | Sequence[int] | int | slice | EllipsisType | None
Index: TypeAlias = IndexPart[A] | tuple[IndexPart[A], ...]
UpdateMode: TypeAlias = str | Enum | None
"""The treatment of indices out of bounds: "drop" (the default), "clip", "promise_in_bounds", or an enum member."""


class IndexUpdateFn(Protocol[A]):
    """An update at an index, as in `x.at[index].add(values)`.

    Args:
        values: The values, which broadcast to the shape of `x[index]`.
        indices_are_sorted: A promise that the indices are sorted, which permits faster code.
        unique_indices: A promise that no element is indexed twice, which permits faster code.
        mode: The treatment of indices out of bounds.
        out_sharding: Has no effect on one device.
        wrap_negative_indices: Whether negative indices count from the end. Otherwise they are out of bounds.
    """

    def __call__(
        self,
        values: Like[A],
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
        ...

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
        ...

    @property
    def set(self) -> IndexUpdateFn[A]:
        """Replaces the elements at the index by the values."""
        ...

    @property
    def add(self) -> IndexUpdateFn[A]:
        """Adds the values to the elements at the index."""
        ...

    @property
    def subtract(self) -> IndexUpdateFn[A]:
        """Subtracts the values from the elements at the index."""
        ...

    @property
    def multiply(self) -> IndexUpdateFn[A]:
        """Multiplies the elements at the index by the values."""
        ...

    @property
    def mul(self) -> IndexUpdateFn[A]:
        """An alias of `multiply`."""
        ...

    @property
    def divide(self) -> IndexUpdateFn[A]:
        """Divides the elements at the index by the values."""
        ...

    @property
    def power(self) -> IndexUpdateFn[A]:
        """Raises the elements at the index to the power of the values."""
        ...

    @property
    def min(self) -> IndexUpdateFn[A]:
        """Replaces the elements at the index by the minimum of them and the values."""
        ...

    @property
    def max(self) -> IndexUpdateFn[A]:
        """Replaces the elements at the index by the maximum of them and the values."""
        ...


class AtIndexer(Protocol[A]):
    """The type of `x.at`."""

    def __getitem__(self, index: Index[A]) -> IndexedUpdates[A]: ...


class ArrayMethods(Protocol[A]):
    """The functions that implement the operators and methods of arrays. The module `tracefx.numpy` is one."""

    def add(self, x1: Like[A], x2: Like[A], /) -> A: ...
    def subtract(self, x1: Like[A], x2: Like[A], /) -> A: ...
    def multiply(self, x1: Like[A], x2: Like[A], /) -> A: ...
    def true_divide(self, x1: Like[A], x2: Like[A], /) -> A: ...
    def floor_divide(self, x1: Like[A], x2: Like[A], /) -> A: ...
    def remainder(self, x1: Like[A], x2: Like[A], /) -> A: ...
    def power(self, x1: Like[A], x2: Like[A], /) -> A: ...
    def matmul(self, a: Like[A], b: Like[A], /) -> A: ...
    def bitwise_and(self, x1: Like[A], x2: Like[A], /) -> A: ...
    def bitwise_or(self, x1: Like[A], x2: Like[A], /) -> A: ...
    def bitwise_xor(self, x1: Like[A], x2: Like[A], /) -> A: ...
    def left_shift(self, x1: Like[A], x2: Like[A], /) -> A: ...
    def right_shift(self, x1: Like[A], x2: Like[A], /) -> A: ...
    def equal(self, x1: Like[A], x2: Like[A], /) -> A: ...
    def not_equal(self, x1: Like[A], x2: Like[A], /) -> A: ...
    def less(self, x1: Like[A], x2: Like[A], /) -> A: ...
    def less_equal(self, x1: Like[A], x2: Like[A], /) -> A: ...
    def greater(self, x1: Like[A], x2: Like[A], /) -> A: ...
    def greater_equal(self, x1: Like[A], x2: Like[A], /) -> A: ...
    def negative(self, x: Like[A], /) -> A: ...
    def positive(self, x: Like[A], /) -> A: ...
    def absolute(self, x: Like[A], /) -> A: ...
    def invert(self, x: Like[A], /) -> A: ...
    def conjugate(self, x: Like[A], /) -> A: ...
    def real(self, val: Like[A], /) -> A: ...
    def imag(self, val: Like[A], /) -> A: ...
    def round(self, a: Like[A], decimals: int = 0, out: None = None) -> A: ...
    def astype(self, x: Like[A], dtype: DTypeLike | None, /, *, device: DeviceOrSharding | None = None) -> A: ...
    def view(self, x: Like[A], dtype: DTypeLike | None) -> A: ...
    def byteswap(self, x: Like[A], /) -> A: ...
    def choose(self, a: Like[A], choices: Like[A] | Sequence[Like[A]], out: None, mode: str) -> A: ...
    def copy(self, a: Like[A]) -> A: ...
    def reshape(self, a: Like[A], shape: int | Sequence[int], order: str = "C") -> A: ...
    def transpose(self, a: Like[A], axes: Sequence[int] | None = None) -> A: ...
    def matrix_transpose(self, x: Like[A], /) -> A: ...
    def swapaxes(self, a: Like[A], axis1: int, axis2: int) -> A: ...
    def squeeze(self, a: Like[A], axis: AxisLike = None) -> A: ...
    def ravel(self, a: Like[A], order: str = "C") -> A: ...
    def diagonal(self, a: Like[A], offset: int = 0, axis1: int = 0, axis2: int = 1) -> A: ...
    def trace(self, a: Like[A], offset: int, axis1: int, axis2: int, dtype: DTypeLike | None, out: None) -> A: ...
    def repeat(
        self, a: Like[A], repeats: Like[A] | Sequence[int], axis: int | None, *, total_repeat_length: int | None
    ) -> A: ...
    def take(
        self,
        a: Like[A],
        indices: Like[A],
        axis: int | None,
        out: None,
        mode: str | None,
        unique_indices: bool,
        indices_are_sorted: bool,
        fill_value: Scalar | None,
    ) -> A: ...
    def dot(self, a: Like[A], b: Like[A], *, precision: str | None, preferred_element_type: DTypeLike | None) -> A: ...
    def clip(self, arr: Like[A], /, min: Like[A] | None = None, max: Like[A] | None = None) -> A: ...
    def sum(
        self,
        a: Like[A],
        axis: AxisLike,
        dtype: DTypeLike | None,
        out: None,
        keepdims: bool,
        initial: Like[A] | None,
        where: Like[A] | None,
        promote_integers: bool,
    ) -> A: ...
    def prod(
        self,
        a: Like[A],
        axis: AxisLike,
        dtype: DTypeLike | None,
        out: None,
        keepdims: bool,
        initial: Like[A] | None,
        where: Like[A] | None,
        promote_integers: bool,
    ) -> A: ...
    def max(
        self,
        a: Like[A],
        axis: AxisLike,
        out: None,
        keepdims: bool,
        initial: Like[A] | None,
        where: Like[A] | None,
    ) -> A: ...
    def min(
        self,
        a: Like[A],
        axis: AxisLike,
        out: None,
        keepdims: bool,
        initial: Like[A] | None,
        where: Like[A] | None,
    ) -> A: ...
    def var(
        self,
        a: Like[A],
        axis: AxisLike,
        dtype: DTypeLike | None,
        out: None,
        ddof: int,
        keepdims: bool,
        *,
        where: Like[A] | None,
        correction: int | float | None,
    ) -> A: ...
    def std(
        self,
        a: Like[A],
        axis: AxisLike,
        dtype: DTypeLike | None,
        out: None,
        ddof: int,
        keepdims: bool,
        *,
        where: Like[A] | None,
        correction: int | float | None,
    ) -> A: ...
    def mean(
        self, a: Like[A], axis: AxisLike, dtype: DTypeLike | None, out: None, keepdims: bool, *, where: Like[A] | None
    ) -> A: ...
    def ptp(self, a: Like[A], axis: AxisLike, out: None, keepdims: bool) -> A: ...
    def all(self, a: Like[A], axis: AxisLike, out: None, keepdims: bool, *, where: Like[A] | None) -> A: ...
    def any(self, a: Like[A], axis: AxisLike, out: None, keepdims: bool, *, where: Like[A] | None) -> A: ...
    def argmax(self, a: Like[A], axis: int | None, out: None, keepdims: bool | None) -> A: ...
    def argmin(self, a: Like[A], axis: int | None, out: None, keepdims: bool | None) -> A: ...
    def cumsum(self, a: Like[A], axis: int | None, dtype: DTypeLike | None, out: None) -> A: ...
    def cumprod(self, a: Like[A], axis: int | None, dtype: DTypeLike | None, out: None) -> A: ...
    def sort(self, a: Like[A], axis: int | None, *, kind: None, order: None, stable: bool, descending: bool) -> A: ...
    def argsort(
        self, a: Like[A], axis: int | None, *, kind: None, order: None, stable: bool, descending: bool
    ) -> A: ...
    def argpartition(self, a: Like[A], kth: int, axis: int) -> A: ...
    def searchsorted(self, a: Like[A], v: Like[A], side: str, sorter: Like[A] | None, *, method: str) -> A: ...
    def nonzero(
        self, a: Like[A], *, size: int | None, fill_value: Like[A] | tuple[Like[A], ...] | None
    ) -> tuple[A, ...]: ...
    def compress(
        self,
        condition: Like[A],
        a: Like[A],
        axis: int | None,
        *,
        size: int | None,
        fill_value: Like[A],
        out: None,
    ) -> A: ...
    def getitem(self, x: A, index: Index[A], /) -> A: ...
    def at(self, x: A, /) -> AtIndexer[A]: ...
