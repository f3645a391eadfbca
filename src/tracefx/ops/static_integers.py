"""Arguments that must be known when a program is traced: integers, axes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import SupportsIndex, TypeVar

import numpy as np

from tracefx.core.array import Array
from tracefx.core.dtypes import NDArray
from tracefx.core.values import ConcreteArray

T = TypeVar("T")


class AxisError(ValueError, IndexError, TypeError):
    """An axis that an array hasn't, or that is named twice: JAX raises any of these, by the function."""


class ShapeError(ValueError, TypeError):
    """A shape that no array has, or arrays whose shapes do not fit: JAX raises either, by the function."""


def concretize(xs: T) -> T | NDArray:
    """`xs`; of an array that is there its numbers, as taking the elements of an array is staged where one traces."""
    return xs.numpy() if isinstance(xs, ConcreteArray) else xs


def is_sequence_like(xs: object) -> bool:
    """Whether an argument that may be one number or a sequence of them is a sequence, or an array with axes."""
    return isinstance(xs, Sequence) or (isinstance(xs, Array | np.ndarray) and xs.ndim > 0)


def static_int(name: str, x: SupportsIndex, argument: str) -> int:
    """`x` as a Python integer; `TypeError` for a tracer or anything that is no integer."""
    try:
        return x.__index__()
    except (TypeError, AttributeError) as error:
        raise TypeError(
            f"{name}: {argument} must be an integer known when the program is traced, got {x!r}. Compute it with "
            "NumPy or Python integers, or mark the argument it comes from in static_argnums"
        ) from error


def static_ints(name: str, xs: Iterable[SupportsIndex], argument: str) -> tuple[int, ...]:
    """`xs` as a tuple of Python integers."""
    if type(xs) is tuple:
        for x in xs:
            if type(x) is not int:
                break
        else:
            return xs
    try:
        given = list(concretize(xs))
    except TypeError as error:
        raise TypeError(f"{name}: {argument} must be a sequence of integers, got {xs!r}") from error
    return tuple([static_int(name, x, argument) for x in given])


def canonicalize_axis(name: str, axis: SupportsIndex, ndim: int, argument: str = "axis") -> int:
    """An axis counted from 0, from one that may be counted from the end; `AxisError` if there is none."""
    i = static_int(name, axis, argument)
    if not -ndim <= i < ndim:
        raise AxisError(f"{name}: {argument} {i} is out of bounds for an array with {ndim} axes")
    return i + ndim if i < 0 else i


def canonicalize_axes(
    name: str, axes: Sequence[SupportsIndex], ndim: int, argument: str = "dimensions"
) -> tuple[int, ...]:
    """Different axes counted from 0, in the order given; `AxisError` if one is out of bounds or there twice."""
    given = static_ints(name, axes, argument)
    if len(given) == 1 and 0 <= given[0] < ndim:
        return given
    found = tuple([canonicalize_axis(name, a, ndim, argument) for a in given])
    if len(set(found)) != len(found):
        raise AxisError(f"{name}: {argument} {given} name an axis twice")
    return found
