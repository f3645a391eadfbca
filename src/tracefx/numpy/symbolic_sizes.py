"""Symbolic axis sizes in array functions: as scalars, and as bounds of slices."""

from __future__ import annotations

import numpy as np

from tracefx.core import Array, Literal, NDArray, ShapedArray, Value, as_value, dtypes
from tracefx.core.handler import as_array
from tracefx.dimensions.symbolic_dimensions import has_symbolic_dims, is_symbolic_dim, max_dim, min_dim
from tracefx.ops.elementwise.arithmetic import mul
from tracefx.ops.elementwise.elementwise import add
from tracefx.ops.shape.array_creation import iota
from tracefx.ops.static_integers import static_int
from tracefx.ops.structural import convert


def size_like(x: Value, size: int) -> Value:
    """Returns an axis size as a scalar with the integer dtype and weak type of `x`."""
    if is_symbolic_dim(size):
        return convert(as_value(size), x.aval.dtype, x.aval.weak_type)
    return Literal(size, ShapedArray((), x.aval.dtype, x.aval.weak_type))


def symbolic_slice(part: slice, size: int) -> tuple[int, int, int, bool]:
    """Returns the start, stop and positive step of a slice, and whether it is reversed, for an axis of symbolic size.

    Bounds out of range are clamped, by `max_dim` and `min_dim` where it depends on the size.
    """
    step = 1 if part.step is None else static_int("indexing", part.step, f"the step of {part}")
    if step == 0:
        raise ValueError("the step of a slice must not be 0")

    def clamped(bound: object, default: int) -> int:
        if bound is None:
            return default
        n = static_int("indexing", bound, f"a bound of {part}")
        position = n + size if n < 0 else n
        return max_dim(0, min_dim(position, size)) if step > 0 else max_dim(-1, min_dim(size - 1, position))

    start = clamped(part.start, 0 if step > 0 else size - 1)
    stop = clamped(part.stop, size if step > 0 else -1)
    stride = abs(step)
    distance = stop - start if step > 0 else start - stop
    count = max_dim(0, (distance + stride - 1) // stride)
    span = count if stride == 1 else max_dim(0, (count - 1) * stride + 1)
    low = start if step > 0 else start + 1 - span
    return low, low + span, stride, step < 0


def index_array(n: int) -> NDArray | Array:
    """Returns an index, which may be symbolic, as an int32 array without axes."""
    return as_array(convert(as_value(n), dtypes.int32, False)) if is_symbolic_dim(n) else np.asarray(n, np.int32)


def slice_positions(start: int, stop: int, step: int) -> NDArray | Array:
    """Returns the int32 indices that a slice with a positive step selects."""
    if not has_symbolic_dims((start, stop)):
        return np.arange(start, stop, step, dtype=np.int32)
    return add(mul(iota(dtypes.int32, (stop - start + step - 1) // step), step), index_array(start))
