"""Validation of static arguments, whose values must be known at trace time: integers, axes, shapes."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TypeGuard, TypeVar, cast

import numpy as np

from tracefx.core import Array, ConcreteArray, NDArray
from tracefx.dimensions.symbolic_dimensions import is_symbolic_dim
from tracefx.errors import AxisError, ConcretizationError, ShapeError

T = TypeVar("T")


def concretize(xs: T) -> T | NDArray:
    """Returns a concrete array as a NumPy array, anything else unchanged.

    Taking elements of a tracefx array would be traced if a tracing handler is active; of a NumPy array it isn't.
    """
    return xs.numpy() if isinstance(xs, ConcreteArray) else xs


def is_sequence_like(xs: object) -> TypeGuard[Sequence[object] | Array | NDArray]:
    """Returns whether an argument that may be a number or a sequence is a sequence or an array with axes."""
    return (isinstance(xs, Sequence) and not isinstance(xs, str)) or (
        isinstance(xs, Array | np.ndarray) and xs.ndim > 0
    )


def static_int(name: str, x: object, argument: str) -> int:
    """Returns `x` as a Python integer or symbolic dimension; raises TypeError if it is traced or not an integer."""
    if is_symbolic_dim(x):
        return cast(int, x)
    try:
        return operator.index(x)  # type: ignore[arg-type]  # it raises TypeError for others
    except ConcretizationError as error:
        raise ConcretizationError(
            f"{name}: {argument} must be a concrete integer, but {error.detail} Compute it with NumPy or Python "
            "integers, or make the argument it comes from static, with static_argnums",
            error.detail,
        ) from error
    except TypeError as error:
        raise TypeError(f"{name}: {argument} must be an integer, got {x!r} of type {type(x).__name__}") from error


def static_count(name: str, x: object, argument: str) -> int:
    """Returns `x` as a Python integer that is not negative; raises the errors of `static_int`, and `ShapeError`."""
    count = static_int(name, x, argument)
    if count < 0:
        raise ShapeError(f"{name}: {argument} must not be negative, got {count}")
    return count


def static_ints(name: str, xs: object, argument: str) -> tuple[int, ...]:
    """Returns `xs` as a tuple of Python integers; raises TypeError if they are traced or not integers."""
    if type(xs) is tuple:
        for x in xs:
            if type(x) is not int:
                break
        else:
            return xs
    try:
        ints = list(concretize(xs))  # type: ignore[call-overload]  # as above
    except TypeError as error:
        raise TypeError(f"{name}: {argument} must be a sequence of integers, got {xs!r}") from error
    return tuple([static_int(name, x, argument) for x in ints])


def canonicalize_axis(name: str, axis: object, ndim: int, argument: str = "axis") -> int:
    """Returns `axis` as a non-negative axis of an array of rank `ndim`; raises `AxisError` if it is out of bounds."""
    i = static_int(name, axis, argument)
    if not -ndim <= i < ndim:
        raise AxisError(f"{name}: {argument} {i} is out of bounds for an array with {ndim} axes")
    return i + ndim if i < 0 else i


def canonicalize_axes(name: str, axes: object, ndim: int, argument: str = "dimensions") -> tuple[int, ...]:
    """Returns `axes` as distinct non-negative axes; raises `AxisError` if one is out of bounds or repeated."""
    ints = static_ints(name, axes, argument)
    if len(ints) == 1 and 0 <= ints[0] < ndim:
        return ints
    canonical = tuple([canonicalize_axis(name, a, ndim, argument) for a in ints])
    if len(set(canonical)) != len(canonical):
        raise AxisError(f"{name}: {argument}={ints} names an axis twice")
    return canonical
