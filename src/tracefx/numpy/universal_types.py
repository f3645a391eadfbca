"""The types of universal functions, for type checkers: classes that would take time to make when a program starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from tracefx.core.array import Array, ArrayLike, Axes, Index
from tracefx.core.dtypes import DTypeLike
from tracefx.core.literal import Scalar

Identity: TypeAlias = Scalar | None
Start: TypeAlias = ArrayLike | None
Folded: TypeAlias = Callable[[ArrayLike, Axes, DTypeLike | None, bool, Start, Start], Array]
"""A reduction: of an array, along axes, in a dtype, with or without them, from a number on, where a mask says."""
SoFar: TypeAlias = Callable[[ArrayLike, int, DTypeLike | None], Array]
"""An accumulation: of an array, along an axis, in a dtype."""


class Updated(Protocol):
    def __call__(
        self, a: ArrayLike, indices: Index, b: ArrayLike | None = None, /, *, inplace: bool = True
    ) -> Array: ...


class Reduced(Protocol):
    def __call__(
        self,
        a: ArrayLike,
        axis: Axes = 0,
        dtype: DTypeLike | None = None,
        out: None = None,
        keepdims: bool = False,
        initial: ArrayLike | None = None,
        where: ArrayLike | None = None,
    ) -> Array: ...


class Accumulated(Protocol):
    def __call__(self, a: ArrayLike, axis: int = 0, dtype: DTypeLike | None = None, out: None = None) -> Array: ...


class ReducedAt(Protocol):
    def __call__(
        self, a: ArrayLike, indices: ArrayLike, axis: int = 0, dtype: DTypeLike | None = None, out: None = None
    ) -> Array: ...


class UnaryFunction(Protocol):
    """A universal function of one array."""

    nin: int
    nout: int
    nargs: int
    identity: Identity
    at: Updated

    def __call__(self, x: ArrayLike, /) -> Array: ...


class BinaryFunction(Protocol):
    """A universal function of two arrays."""

    nin: int
    nout: int
    nargs: int
    identity: Identity
    at: Updated
    reduce: Reduced
    accumulate: Accumulated
    reduceat: ReducedAt
    outer: Callable[[ArrayLike, ArrayLike], Array]

    def __call__(self, x1: ArrayLike, x2: ArrayLike, /) -> Array: ...
