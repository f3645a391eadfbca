"""Functions that compute and apply shapes: collapsed axes, broadcasting, shapes as arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import SupportsIndex

import numpy as np

from tracefx.core import Array, ArrayLike, DTypeLike, Shape, as_value, from_numpy
from tracefx.core.handler import as_array
from tracefx.core.named_sharding import OutSharding
from tracefx.errors import ShapeError
from tracefx.ops.operation import static_shape
from tracefx.ops.shape.array_creation import full
from tracefx.ops.shape.shape import broadcast
from tracefx.ops.static_integers import static_int
from tracefx.ops.structural import broadcast_to, reshape


def collapse(operand: ArrayLike, start_dimension: SupportsIndex, stop_dimension: SupportsIndex | None = None) -> Array:
    """Returns `operand` with a range of axes merged into one.

    Args:
        operand: Array.
        start_dimension: The first of these axes.
        stop_dimension: The end of the range, exclusive. None, the default, means all further axes. Both are interpreted
            like the bounds of a slice.

    Returns:
        The reshaped array.

    Raises:
        ValueError: `start_dimension` is greater than `stop_dimension`.

    >>> collapse(np.ones((2, 3, 4)), 0, 2).shape
    (6, 4)
    """
    x = as_value(operand, "operand")
    shape = x.aval.shape
    start = static_int("collapse", start_dimension, "start_dimension")
    stop = None if stop_dimension is None else static_int("collapse", stop_dimension, "stop_dimension")
    low, high, _ = slice(start, stop).indices(len(shape))
    if high < low:
        raise ValueError(f"collapse: for {x.aval}, start_dimension {start} is after stop_dimension {stop}")
    return reshape(x, (*shape[:low], math.prod(shape[low:high]), *shape[high:]))


def broadcast_like(arr: ArrayLike, like_arr: ArrayLike) -> Array:
    """Returns `arr` broadcast to the shape of `like_arr`, with trailing axes aligned as in NumPy.

    Args:
        arr: Array or number.
        like_arr: The array whose shape the result has. Its dtype and elements have no effect.

    Returns:
        An array of the dtype of `arr`.

    Raises:
        ValueError: The shapes don't fit.

    >>> broadcast_like(np.arange(3), np.ones((2, 3))).tolist()
    [[0, 1, 2], [0, 1, 2]]
    """
    x, shape = as_value(arr, "arr"), as_value(like_arr, "like_arr").aval.shape
    if len(shape) < x.aval.ndim:
        raise ShapeError(f"broadcast_like: {x.aval} has more axes than the shape {shape}")
    return broadcast_to(x, shape)


def broadcast_to_rank(x: ArrayLike, rank: SupportsIndex) -> Array:
    """Returns `x` with new leading axes of size 1, so that it has `rank` axes.

    Args:
        x: Array or number of at most `rank` axes.
        rank: The number of axes of the result.

    Returns:
        The reshaped array.

    Raises:
        ValueError: `x` has more axes.

    >>> broadcast_to_rank(np.arange(3), 3).shape
    (1, 1, 3)
    """
    value = as_value(x)
    missing = static_int("broadcast_to_rank", rank, "rank") - value.aval.ndim
    if missing < 0:
        raise ShapeError(f"broadcast_to_rank: {value.aval} has more than {rank} axes")
    return broadcast(value, (1,) * missing) if missing else as_array(value)


def broadcast_shapes(*shapes: Sequence[SupportsIndex]) -> Shape:
    """Returns the shape that arrays of these shapes broadcast to under NumPy's rules.

    Args:
        *shapes: At least one shape.

    Returns:
        A tuple of integers.

    Raises:
        TypeError: No shapes are given, or a size is not a static integer.
        ValueError: The shapes don't broadcast.

    >>> broadcast_shapes((3, 1), (4,))
    (3, 4)
    """
    if not shapes:
        raise ShapeError("broadcast_shapes: there must be at least one shape")
    static_shapes = [static_shape("broadcast_shapes", tuple(shape)) for shape in shapes]
    try:
        return np.broadcast_shapes(*static_shapes)
    except ValueError as error:
        raise ValueError(f"broadcast_shapes: shapes {', '.join(map(str, static_shapes))} do not broadcast") from error


def shape_as_value(shape: Sequence[SupportsIndex]) -> Array:
    """Returns a shape as an array of integers.

    Args:
        shape: The sizes, static integers.

    Returns:
        A vector of integers: `i32[rank]`, or `i64[rank]` if a size exceeds 32 bits.

    >>> shape_as_value((2, 3))
    Array([2, 3], dtype=int32)
    """
    sizes = static_shape("shape_as_value", tuple([n.__index__() for n in shape]))
    wide = any(n > np.iinfo(np.int32).max for n in sizes)
    return from_numpy(np.asarray(sizes, np.int64 if wide else np.int32), np.dtype(np.int64 if wide else np.int32))


def empty(shape: Sequence[int] | SupportsIndex, dtype: DTypeLike, *, out_sharding: OutSharding = None) -> Array:
    """Returns an array with arbitrary elements; here they are zeros.

    Args:
        shape: The shape, or the size of one axis.
        dtype: The dtype.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        An array of this shape and dtype.

    >>> empty((2, 3), "float32").shape
    (2, 3)
    """
    return full(shape, 0, dtype)
