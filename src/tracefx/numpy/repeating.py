"""An array's elements over again, or in turn: tiling, repeating, rolling."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike, AxisLike, IndexPart
from tracefx.core.avals import Shape
from tracefx.core.dtypes import NDArray
from tracefx.core.handler import as_array
from tracefx.core.values import ConcreteArray, Value
from tracefx.numpy.creation import zeros
from tracefx.numpy.evaluated import by_numpy
from tracefx.numpy.indexing import getitem, take
from tracefx.numpy.operand_promotion import as_operand, convert_dtype
from tracefx.numpy.reductions import cumsum
from tracefx.numpy.shapes import ShapeLike, sizes_of
from tracefx.numpy.ufuncs import literal_like, remainder
from tracefx.numpy.updates import at
from tracefx.ops import structural
from tracefx.ops.elementwise import arithmetic
from tracefx.ops.indexing import dynamic_slicing
from tracefx.ops.shape import shape
from tracefx.ops.static_integers import canonicalize_axis, concretize, is_sequence_like, static_int, static_ints


@by_numpy()
def tile(A: ArrayLike, reps: ShapeLike) -> Array:
    """`A` repeated as a whole, `reps` times along each axis, counted from the last.

    >>> tile(np.arange(2), (2, 2)).tolist()
    [[0, 1, 0, 1], [0, 1, 0, 1]]
    """
    x = as_operand(A, "tile: A")
    times = sizes_of("tile", reps, "reps")
    new = max(0, len(times) - x.aval.ndim)
    spread = structural.broadcast_in_dim(x, (*[1] * new, *x.aval.shape), range(new, new + x.aval.ndim)) if new else x
    return shape.tile(spread, (1,) * (spread.aval.ndim - len(times)) + times)


@by_numpy()
def repeat(
    a: ArrayLike,
    repeats: ArrayLike | Sequence[int],
    axis: int | None = None,
    *,
    total_repeat_length: int | None = None,
) -> Array:
    """`a` with every element repeated along `axis`, or along the flattened array; `repeats` is one number for all
    or one for each.

    With `total_repeat_length` the result has that many elements along the axis: too many repetitions are cut off, and
    the last element is repeated further where there are too few. Where `repeats` is traced this must be given, since
    shapes are static.

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
    times = sizes_of("repeat", repeats, "repeats")  # type: ignore[arg-type]  # what is no integer is refused there
    if len(times) == 1:
        times *= n
        if total is None and n:
            spread_shape = (*x.aval.shape[: axis + 1], times[0], *x.aval.shape[axis + 1 :])
            spread = structural.broadcast_in_dim(x, spread_shape, [i for i in range(x.aval.ndim + 1) if i != axis + 1])
            return structural.reshape(spread, (*x.aval.shape[:axis], n * times[0], *x.aval.shape[axis + 1 :]))
    if len(times) != n:
        raise ValueError(f"repeat: repeats has {len(times)} entries for axis {axis} of {x.aval}; give one or {n}")
    places = _repeat_indices(times, total)
    if not n:  # and so nothing is taken
        return shape.slice_axis(x, 0, 0, axis)
    index: list[IndexPart] = [slice(None)] * axis
    return getitem(as_array(x), (*index, places))


def _repeat_indices(times: Shape, total: int | None) -> NDArray:
    """For each element of the result which one it is."""
    found = np.repeat(np.arange(len(times), dtype=np.int32), times)
    if total is None or len(found) >= total:
        return found[:total]
    return np.concatenate([found, np.full(total - len(found), len(times) - 1, np.int32)])


def _traced_repeat_indices(repeats: Array, n: int, total: int) -> Array:
    """The same where the numbers aren't known: of how many elements the repetitions have begun, less one."""
    if not dtypes.is_integer(repeats.aval.dtype) or repeats.aval.shape not in ((), (1,), (n,)):
        raise TypeError(f"repeat: repeats must be an integer or {n} of them, got {repeats.aval}")
    times = structural.broadcast_to(convert_dtype(repeats, dtypes.int32), (n,))
    begins = arithmetic.sub(cumsum(times), times)
    begun = cumsum(at(zeros(total, dtypes.int32))[begins].add(1))
    return arithmetic.sub(begun, literal_like(begun, 1))


@by_numpy()
def roll(a: ArrayLike, shift: ArrayLike | Sequence[int], axis: AxisLike = None) -> Array:
    """`a` with its elements moved `shift` places along `axis`, those pushed out at the end coming in at the front.

    Without `axis` the flattened array is rolled. `shift` is one integer or one for each axis, traced or not.

    >>> roll(np.arange(4), 1).tolist()
    [3, 0, 1, 2]
    """
    x = as_operand(a, "roll: a")
    if axis is None and x.aval.ndim == 1:
        axis = 0
    if axis is None:
        flat = structural.reshape(x, (x.aval.size,))
        return structural.reshape(roll(flat, shift, 0), x.aval.shape)
    given = static_ints("roll", axis if is_sequence_like(axis) else (axis,), "axis")  # type: ignore[arg-type]  # None is refused there
    along = [canonicalize_axis("roll", i, x.aval.ndim) for i in given]
    shifts: list[ArrayLike] = list(concretize(shift)) if is_sequence_like(shift) else [shift]  # type: ignore[arg-type, list-item]  # as asked
    if len(shifts) == 1:
        shifts *= len(along)
    if len(along) == 1:
        along *= len(shifts)
    if len(along) != len(shifts):
        raise ValueError(f"roll: shift {shift} and axis {axis} must have equally many entries")
    for i, by in zip(along, shifts, strict=True):
        x = _roll_axis(x, by, i)
    return as_array(x)


def _roll_axis(x: Value, shift: ArrayLike, axis: int) -> Value:
    n = x.aval.shape[axis]
    if isinstance(shift, Array) and type(shift) is not ConcreteArray:
        if shift.aval.shape or not dtypes.is_integer(shift.aval.dtype):
            raise TypeError(f"roll: shift must be integers, one for each axis, got {shift.aval}")
        if n == 0:
            return x
        by = remainder(convert_dtype(shift, dtypes.int32), n)
        start = arithmetic.sub(literal_like(by, n), by)
        twice = shape.concatenate([x, x], axis)
        return dynamic_slicing.dynamic_slice_in_dim(twice, start, n, axis, allow_negative_indices=False)
    places = static_int("roll", shift, "shift")  # type: ignore[arg-type]  # what is no integer is refused there
    places = places % n if n else 0
    if places == 0:
        return x
    return shape.concatenate([shape.slice_axis(x, n - places, n, axis), shape.slice_axis(x, 0, n - places, axis)], axis)
