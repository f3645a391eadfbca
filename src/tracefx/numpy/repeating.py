"""Repetition and rotation of elements: `tile`, `repeat`, `roll`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracefx.core import Array, ArrayLike, AxisLike, ConcreteArray, NDArray, Shape, Value, dtypes
from tracefx.core.array import IndexPart
from tracefx.core.handler import as_array
from tracefx.core.named_sharding import OutSharding
from tracefx.errors import ConcretizationError
from tracefx.numpy.creation import zeros
from tracefx.numpy.indexing import getitem, index_remainder, take
from tracefx.numpy.operand_promotion import as_operand, convert_dtype
from tracefx.numpy.reductions import cumsum
from tracefx.numpy.shapes import ShapeLike, sizes_of
from tracefx.numpy.ufuncs import literal_like
from tracefx.numpy.updates import at
from tracefx.ops import structural
from tracefx.ops.elementwise import arithmetic
from tracefx.ops.indexing import dynamic_slicing
from tracefx.ops.shape import shape
from tracefx.ops.static_integers import canonicalize_axis, concretize, is_sequence_like, static_int, static_ints
from tracefx.transforms.eager_calls import eager_cached


@eager_cached
def tile(A: ArrayLike, reps: ShapeLike) -> Array:
    """Repeats a whole array along each axis.

    Args:
        A: The array.
        reps: The numbers of repetitions along the last axes; axes are added in front if there are more.

    Returns:
        An array of the dtype of `A`; each size is multiplied by its number of repetitions.

    >>> tile(np.arange(2), (2, 2)).tolist()
    [[0, 1, 0, 1], [0, 1, 0, 1]]
    """
    x = as_operand(A, "tile: A")
    times = sizes_of("tile", reps, "reps")
    new = max(0, len(times) - x.aval.ndim)
    expanded = structural.broadcast_in_dim(x, (*[1] * new, *x.aval.shape), range(new, new + x.aval.ndim)) if new else x
    return shape.tile(expanded, (1,) * (expanded.aval.ndim - len(times)) + times)


@eager_cached
def repeat(
    a: ArrayLike,
    repeats: ArrayLike | Sequence[int],
    axis: int | None = None,
    *,
    total_repeat_length: int | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Repeats each element along an axis.

    Args:
        a: The array.
        repeats: How many times: one integer for all elements, or one for each. True is 1.
        axis: The axis; None means the flattened array.
        total_repeat_length: The static size of the result along the axis, which is required if `repeats` is traced:
            further repetitions are dropped, and the last element fills up. None means the sum of `repeats`.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        An array of the dtype of `a`; a vector without `axis`.

    Raises:
        ValueError: If the number of `repeats` or the total length does not fit.

    >>> repeat(np.arange(3), 2).tolist()
    [0, 0, 1, 1, 2, 2]
    >>> repeat(np.arange(3), np.array([1, 0, 2]), total_repeat_length=5).tolist()
    [0, 2, 2, 2, 2]
    """
    x = as_operand(a, "repeat: a")
    if axis is None or (not x.aval.shape and axis in (0, -1)):
        x, axis = structural.reshape(x, (x.aval.size,)), 0
    axis = canonicalize_axis("repeat", axis, x.aval.ndim)
    n = x.aval.shape[axis]
    total = None if total_repeat_length is None else static_int("repeat", total_repeat_length, "total_repeat_length")
    if total is not None and (total < 0 or (total and not n)):
        raise ValueError(f"repeat: total_repeat_length {total} is negative, or axis {axis} of {x.aval} has no elements")
    if total is not None and isinstance(repeats, Array) and type(repeats) is not ConcreteArray:
        return take(x, _traced_repeat_indices(repeats, n, total), axis)
    if isinstance(repeats, ConcreteArray | np.ndarray | np.generic):
        counts = repeats.numpy() if isinstance(repeats, ConcreteArray) else np.asarray(repeats)
        if dtypes.is_bool(counts.dtype) or dtypes.is_integer(counts.dtype):
            repeats = counts.astype(np.int64).ravel()
    try:
        times = sizes_of("repeat", repeats, "repeats")
    except ConcretizationError as error:
        raise ConcretizationError(
            f"repeat: repeats determines the shape of the result, but {error.detail} To fix the shape, pass "
            "total_repeat_length=, the size of the result along the axis",
            error.detail,
        ) from error
    if len(times) == 1:
        if total is None and n:
            repeated_shape = (*x.aval.shape[: axis + 1], times[0], *x.aval.shape[axis + 1 :])
            repeated = structural.broadcast_in_dim(
                x, repeated_shape, [i for i in range(x.aval.ndim + 1) if i != axis + 1]
            )
            return structural.reshape(repeated, (*x.aval.shape[:axis], n * times[0], *x.aval.shape[axis + 1 :]))
        times *= n
    if len(times) != n:
        raise ValueError(f"repeat: repeats has {len(times)} entries for axis {axis} of {x.aval}; pass one or {n}")
    indices = _repeat_indices(times, total)
    if not n:  # an empty axis
        return shape.slice_axis(x, 0, 0, axis)
    index: list[IndexPart] = [slice(None)] * axis
    return getitem(as_array(x), (*index, indices))


def _repeat_indices(times: Shape, total: int | None) -> NDArray:
    """Returns the index of the source of each element of the result."""
    indices = np.repeat(np.arange(len(times), dtype=np.int32), times)
    if total is None or len(indices) >= total:
        return indices[:total]
    return np.concatenate([indices, np.full(total - len(indices), len(times) - 1, np.int32)])


def _traced_repeat_indices(repeats: Array, n: int, total: int) -> Array:
    """Returns the same for traced repeats: the number of source elements whose repetitions have begun, minus 1."""
    numbers = dtypes.is_integer(repeats.aval.dtype) or dtypes.is_bool(repeats.aval.dtype)
    if not numbers or repeats.aval.shape not in ((), (1,), (n,)):
        raise TypeError(f"repeat: repeats must be an integer or {n} of them, got {repeats.aval}")
    times = structural.broadcast_to(convert_dtype(repeats, dtypes.int32), (n,))
    starts = arithmetic.sub(cumsum(times), times)
    begun = cumsum(at(zeros(total, dtypes.int32))[starts].add(1))
    return arithmetic.sub(begun, literal_like(begun, 1))


@eager_cached
def roll(a: ArrayLike, shift: ArrayLike | Sequence[int], axis: AxisLike = None) -> Array:
    """Rotates elements along axes; those shifted beyond the end reappear at the start.

    Args:
        a: The array.
        shift: By how many positions: one integer, or one for each axis. May be traced.
        axis: The axis or axes; None means the flattened array.

    Returns:
        An array of the shape and dtype of `a`.

    Raises:
        ValueError: If the numbers of shifts and axes do not fit.

    >>> roll(np.arange(4), 1).tolist()
    [3, 0, 1, 2]
    """
    x = as_operand(a, "roll: a")
    if axis is None and x.aval.ndim == 1:
        axis = 0
    if axis is None:
        flat = structural.reshape(x, (x.aval.size,))
        return structural.reshape(roll(flat, shift, 0), x.aval.shape)
    axes = static_ints("roll", axis if is_sequence_like(axis) else (axis,), "axis")
    along = [canonicalize_axis("roll", i, x.aval.ndim) for i in axes]
    shifts: list[object] = list(concretize(shift)) if is_sequence_like(shift) else [shift]
    if len(shifts) == 1:
        shifts *= len(along)
    if len(along) == 1:
        along *= len(shifts)
    if len(along) != len(shifts):
        raise ValueError(f"roll: shift {shift} and axis {axis} must have equally many entries")
    for i, by in zip(along, shifts, strict=True):
        x = _roll_axis(x, by, i)
    return as_array(x)


def _roll_axis(x: Value, shift: object, axis: int) -> Value:
    """Rotates elements along one axis."""
    n = x.aval.shape[axis]
    if isinstance(shift, Array) and type(shift) is not ConcreteArray:
        if shift.aval.shape or not dtypes.is_integer(shift.aval.dtype):
            raise TypeError(f"roll: shift must be integers, one for each axis, got {shift.aval}")
        if n == 0:
            return x
        by = index_remainder(shift, n)
        start = arithmetic.sub(literal_like(by, n), by)
        twice = shape.concatenate([x, x], axis)
        return dynamic_slicing.dynamic_slice_in_dim(twice, start, n, axis, allow_negative_indices=False)
    positions = static_int("roll", shift, "shift")
    positions = positions % n if n else 0
    if positions == 0:
        return x
    return shape.concatenate(
        [shape.slice_axis(x, n - positions, n, axis), shape.slice_axis(x, 0, n - positions, axis)], axis
    )
