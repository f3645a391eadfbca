"""Padding: an array with more elements around it, constants or its own ones over again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tracefx.core.array import Array, ArrayLike
from tracefx.core.handler import as_array
from tracefx.core.values import Value
from tracefx.numpy.creation import array as array_of
from tracefx.numpy.indexing import getitem
from tracefx.numpy.promoting import operand, retyped
from tracefx.ops import basis, shape
from tracefx.ops.static import static_int

_REPEATING: Final = ("edge", "reflect", "symmetric", "wrap")
Widths = list[tuple[int, int]]


def pad(
    array: ArrayLike,
    pad_width: int | Sequence[int] | Sequence[Sequence[int]],
    mode: str = "constant",
    *,
    constant_values: ArrayLike | Sequence[ArrayLike] | Sequence[Sequence[ArrayLike]] = 0,
) -> Array:
    """`array` with elements put around it: `(before, after)` for each axis, or one pair or one number for all.

    `mode` says which: "constant", `constant_values`, given for each side as the widths are; "edge", the outermost
    ones over again; "reflect" and "symmetric", the array mirrored at its ends, without and with the outermost ones
    doubled; "wrap", the array over again. ValueError for another mode, for negative widths, and where there are no
    elements to repeat.

    >>> pad(np.ones(2), 1).tolist()
    [0.0, 1.0, 1.0, 0.0]
    >>> pad(np.arange(3), (2, 1), "reflect").tolist()
    [2, 1, 0, 1, 2, 1]
    """
    x = operand(array, "pad: array")
    if mode != "constant" and mode not in _REPEATING:
        raise ValueError(f"pad: mode must be 'constant', {', '.join(map(repr, _REPEATING))}, got {mode!r}")
    if not x.aval.shape:
        return as_array(x)
    widths = _widths(x, pad_width)
    if mode == "constant":
        return _with_constants(x, widths, constant_values)
    out = as_array(x)
    for axis, sides in enumerate(widths):
        if sides == (0, 0):
            continue
        n = x.aval.shape[axis]
        if n == 0:
            raise ValueError(f"pad: axis {axis} of {x.aval} has no elements that mode {mode!r} could repeat")
        places = np.pad(np.arange(n, dtype=np.int32), sides, mode)  # type: ignore[call-overload]  # one of the modes above
        out = getitem(out, (*[slice(None)] * axis, places))
    return out


def _widths(x: Value, pad_width: int | Sequence[int] | Sequence[Sequence[int]]) -> Widths:
    try:
        pairs = np.broadcast_to(np.asarray(pad_width, object), (x.aval.ndim, 2)).tolist()
    except ValueError as error:
        raise ValueError(
            f"pad: pad_width {pad_width!r} must be a number, a pair, or a pair for each axis of {x.aval}"
        ) from error
    widths = [(static_int("pad", low, "pad_width"), static_int("pad", high, "pad_width")) for low, high in pairs]
    if any(min(sides) < 0 for sides in widths):
        raise ValueError(f"pad: pad_width {pad_width!r} has a negative width")
    return widths


def _with_constants(
    x: Value, widths: Widths, constant_values: ArrayLike | Sequence[ArrayLike] | Sequence[Sequence[ArrayLike]]
) -> Array:
    if isinstance(constant_values, Sequence):
        constant_values = array_of(constant_values)
    fill = retyped(operand(constant_values, "pad: constant_values"), x.aval.dtype, x.aval.weak_type)
    if fill.aval.size == 1:
        fill = basis.reshape(fill, ()) if fill.aval.shape else fill
        return shape.pad(x, fill, [(low, high, 0) for low, high in widths])
    ndim = x.aval.ndim
    if fill.aval.ndim > 2 or fill.aval.shape[-1] not in (1, 2) or fill.aval.shape[:-1] not in ((), (1,), (ndim,)):
        raise ValueError(
            f"pad: constant_values must be a number, a pair, or a pair for each axis of {x.aval}, got {fill.aval}"
        )
    sides = basis.broadcast_to(fill, (ndim, 2))
    for axis, (low, high) in enumerate(widths):
        for side, width in enumerate(((low, 0, 0), (0, high, 0))):
            if any(width):
                config = [width if i == axis else (0, 0, 0) for i in range(ndim)]
                x = shape.pad(x, getitem(sides, (axis, side)), config)
    return as_array(x)
