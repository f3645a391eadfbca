"""Types of universal functions for type checkers, in a module that no import at run time pays for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, SupportsIndex, TypeAlias

from tracefx.core import Array, ArrayLike, AxisLike, DTypeLike, Scalar
from tracefx.core.array import Index

UfuncIdentity: TypeAlias = Scalar | None
InitialValue: TypeAlias = ArrayLike | None
UfuncReduction: TypeAlias = Callable[[ArrayLike, AxisLike, DTypeLike | None, bool, InitialValue, InitialValue], Array]
"""A reduction `f(a, axis, dtype, keepdims, initial, where)`."""
UfuncAccumulation: TypeAlias = Callable[[ArrayLike, int, DTypeLike | None], Array]
"""An accumulation `f(a, axis, dtype)`."""


class UfuncAtMethod(Protocol):
    def __call__(
        self, a: ArrayLike, indices: Index, b: ArrayLike | None = None, /, *, inplace: bool = True
    ) -> Array: ...


class UfuncReduceMethod(Protocol):
    def __call__(
        self,
        a: ArrayLike,
        axis: AxisLike = 0,
        dtype: DTypeLike | None = None,
        out: None = None,
        keepdims: bool = False,
        initial: ArrayLike | None = None,
        where: ArrayLike | None = None,
    ) -> Array: ...


class UfuncAccumulateMethod(Protocol):
    def __call__(
        self, a: ArrayLike, axis: SupportsIndex | None = 0, dtype: DTypeLike | None = None, out: None = None
    ) -> Array: ...


class UfuncReduceatMethod(Protocol):
    def __call__(
        self,
        a: ArrayLike,
        indices: ArrayLike,
        axis: SupportsIndex = 0,
        dtype: DTypeLike | None = None,
        out: None = None,
    ) -> Array: ...


class UnaryFunction(Protocol):
    """A universal function of one array."""

    nin: int
    nout: int
    nargs: int
    identity: UfuncIdentity
    at: UfuncAtMethod

    def __call__(self, x: ArrayLike, /) -> Array: ...


class BinaryFunction(Protocol):
    """A universal function of two arrays."""

    nin: int
    nout: int
    nargs: int
    identity: UfuncIdentity
    at: UfuncAtMethod
    reduce: UfuncReduceMethod
    accumulate: UfuncAccumulateMethod
    reduceat: UfuncReduceatMethod
    outer: Callable[[ArrayLike, ArrayLike], Array]

    def __call__(self, x1: ArrayLike, x2: ArrayLike, /) -> Array: ...
