"""Queries about arrays, shapes and dtypes that return Python values, also for tracers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, SupportsIndex, TypeAlias

import numpy as np

from tracefx.core import Array, ArrayLike, AxisLike, DTypeLike, Shape, dtypes, get_aval
from tracefx.core.array import is_convertible
from tracefx.numpy import operand_promotion
from tracefx.numpy.creation import asarray
from tracefx.numpy.shapes import normalize_axes
from tracefx.ops.duck_typing import DuckTypedArray, array_type
from tracefx.ops.static_integers import is_sequence_like, static_ints

CastingRule: TypeAlias = Literal["no", "equiv", "safe", "same_kind", "unsafe"]


def shape(a: ArrayLike | DuckTypedArray | Sequence[Any]) -> Shape:
    """Returns the shape of an array, or of the array that nested sequences make.

    Args:
        a: An array, number or nested sequences.

    Returns:
        A tuple of integers.

    >>> shape(np.ones((2, 3)))
    (2, 3)
    """
    return _nested_shape(a, "shape: a")


def ndim(a: ArrayLike | DuckTypedArray | Sequence[Any]) -> int:
    """Returns the number of axes of an array, or of the array that nested sequences make.

    Args:
        a: An array, number or nested sequences.

    Returns:
        An integer.

    >>> ndim(np.zeros((2, 3)))
    2
    """
    return len(_nested_shape(a, "ndim: a"))


def size(a: ArrayLike | DuckTypedArray | Sequence[Any], axis: AxisLike = None) -> int:
    """Returns the number of elements of an array, or the product of its sizes along axes.

    Args:
        a: An array, number or nested sequences.
        axis: The axis or axes to count along; None means all.

    Returns:
        An integer.

    >>> size(np.zeros((2, 3)))
    6
    """
    sizes = _nested_shape(a, "size: a")
    return math.prod(sizes if axis is None else [sizes[i] for i in normalize_axes("size", axis, len(sizes))])


def _nested_shape(x: ArrayLike | DuckTypedArray | Sequence[Any], what: str) -> Shape:
    """Returns the shape of an array, also one of NumPy that is no array here, or of one that nested sequences make."""
    if isinstance(x, np.ndarray):
        return x.shape
    return array_type(asarray(x) if isinstance(x, list | tuple) else x, what).shape  # type: ignore[arg-type]  # checked there


def broadcast_shapes(*shapes: SupportsIndex | tuple[SupportsIndex, ...]) -> Shape:
    """Returns the shape to which shapes broadcast.

    Args:
        *shapes: The shapes: tuples of integers, or integers for vectors.

    Returns:
        A tuple of integers.

    Raises:
        BroadcastError: If the shapes do not broadcast; it is a ValueError.

    >>> broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    sizes = [static_ints("broadcast_shapes", s if is_sequence_like(s) else (s,), "shapes") for s in shapes]
    return operand_promotion.broadcast_operand_shapes("broadcast_shapes", *sizes)


def isscalar(element: object) -> bool:
    """Returns whether `element` is a scalar: a number, a string, or an array without axes.

    Args:
        element: Any object.

    Returns:
        A bool.

    >>> isscalar(1.5), isscalar(np.ones(())), isscalar(np.ones(1))
    (True, True, False)
    """
    return not get_aval(element).shape if is_convertible(element) else np.isscalar(element)


def iterable(y: object) -> bool:
    """Returns whether `y` can be iterated over, such as an array with axes or a sequence.

    Args:
        y: Any object.

    Returns:
        A bool.

    >>> iterable(np.ones(2)), iterable(2)
    (True, False)
    """
    return np.iterable(y)


def iscomplexobj(x: object) -> bool:
    """Returns whether `x` is an array or number of a complex dtype, whatever its imaginary part.

    Args:
        x: An array or number.

    Returns:
        A bool.

    >>> iscomplexobj(1 + 0j), iscomplexobj(np.ones(2))
    (True, False)
    """
    return dtypes.is_complex(get_aval(x).dtype) if is_convertible(x) else bool(np.iscomplexobj(np.asarray(x)))


def isrealobj(x: object) -> bool:
    """Returns whether `x` is not of a complex dtype.

    Args:
        x: An array or number.

    Returns:
        A bool.

    >>> isrealobj(1 + 0j), isrealobj(np.ones(2))
    (False, True)
    """
    return not iscomplexobj(x)


def can_cast(from_: DTypeLike | ArrayLike, to: DTypeLike, casting: CastingRule = "safe") -> bool:
    """Returns whether one dtype can be cast to another.

    Args:
        from_: A dtype, or an array whose dtype is meant.
        to: A dtype.
        casting: The rule: `"safe"` allows casts without loss, `"same_kind"` casts within a kind of dtypes, as in NumPy.

    Returns:
        A bool.

    >>> can_cast("int16", "float32"), can_cast("float32", "int16")
    (True, False)
    """
    dtype = from_.dtype if isinstance(from_, Array | np.ndarray) else _dtype(from_)
    return np.can_cast(dtype, _dtype(to), casting)


def _dtype(x: Any) -> Any:
    return dtypes.as_dtype(x, exact=True) if not isinstance(x, bool | int | float | complex) else x
