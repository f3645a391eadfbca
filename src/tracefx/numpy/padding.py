"""Padding of arrays with constants, their own elements, or values computed from these."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np

from tracefx.core import Array, ArrayLike, NDArray, Value, dtypes, from_numpy
from tracefx.core.array import IndexPart
from tracefx.core.handler import as_array
from tracefx.numpy.creation import array as array_of
from tracefx.numpy.indexing import getitem
from tracefx.numpy.moments import mean
from tracefx.numpy.operand_promotion import as_operand, convert_dtype
from tracefx.numpy.ranges import linspace
from tracefx.numpy.reductions import max, min
from tracefx.numpy.rounding import round
from tracefx.numpy.shapes import flip
from tracefx.numpy.ufuncs import broadcast_select
from tracefx.ops import structural
from tracefx.ops.elementwise import arithmetic, elementwise
from tracefx.ops.shape import shape
from tracefx.ops.static_integers import static_int
from tracefx.transforms.eager_calls import eager_cached
from tracefx.transforms.vmap import vmap

_REPEATING: Final = ("edge", "reflect", "symmetric", "wrap")
_STATISTICS: Final[Mapping[str, Callable[..., Array]]] = MappingProxyType(
    {"maximum": max, "minimum": min, "mean": mean}
)
_OPTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "constant": "constant_values",
        "linear_ramp": "end_values",
        "reflect": "reflect_type",
        "symmetric": "reflect_type",
    }
)
SideValues: TypeAlias = ArrayLike | Sequence[ArrayLike] | Sequence[Sequence[ArrayLike]]
Widths = list[tuple[int, int]]


PadWidth: TypeAlias = int | Sequence[int] | Sequence[Sequence[int]]


def pad(
    array: ArrayLike,
    pad_width: PadWidth,
    mode: str | Callable[..., Any] = "constant",
    *,
    constant_values: SideValues | None = None,
    stat_length: PadWidth | None = None,
    end_values: SideValues | None = None,
    reflect_type: str | None = None,
    **kwargs: Any,
) -> Array:
    """Pads an array along each axis.

    The modes are `"constant"`; `"empty"` (unspecified elements); `"edge"`, which repeats the outermost elements;
    `"reflect"` and `"symmetric"`, which mirror the array at its ends without and with repeating the outermost element;
    `"wrap"`, which repeats the array; `"linear_ramp"`, an even transition to `end_values`; and `"maximum"`, `"minimum"`
    and `"mean"` of each line.

    Args:
        array: The array.
        pad_width: The numbers of elements to add: `(before, after)` for each axis, or one pair or one number for all.
        mode: A mode, or a function `f(vector, widths, axis, kwargs)` that is applied along each axis in turn to each
            line, padded with zeros, and returns the new line.
        constant_values: For `"constant"`: the values, structured as `pad_width`; None means 0.
        stat_length: For the statistics: how many elements next to each end to use, as `pad_width`; None means all.
        end_values: For `"linear_ramp"`: the outermost values, structured as `pad_width`; None means 0.
        reflect_type: For the mirroring modes: None or `"even"` mirrors the elements, `"odd"` twice the outermost
            element minus the elements.
        **kwargs: Keyword arguments for a function as mode.

    Returns:
        An array of the dtype of `array`.

    Raises:
        ValueError: If the mode or an option for it is unknown, a width is negative, or an axis has no elements to
            repeat.

    >>> pad(np.ones(2), 1).tolist()
    [0.0, 1.0, 1.0, 0.0]
    >>> pad(np.arange(3), (2, 1), "reflect").tolist()
    [2, 1, 0, 1, 2, 1]
    """
    plain = constant_values is None and stat_length is None and end_values is None and reflect_type is None
    if plain and not kwargs and isinstance(mode, str):
        return pad_by_mode(array, pad_width, mode)
    options = {
        "constant_values": constant_values,
        "stat_length": stat_length,
        "end_values": end_values,
        "reflect_type": reflect_type,
    }
    present = {option: value for option, value in options.items() if value is not None}
    if callable(mode):
        return _pad_by_function(array, pad_width, mode, kwargs | present)
    if kwargs:
        raise ValueError(f"pad: {', '.join(kwargs)} has no meaning for mode {mode!r}")
    return pad_by_mode(array, pad_width, mode, **present)  # type: ignore[arg-type]  # each option has its type


@eager_cached
def pad_by_mode(
    array: ArrayLike,
    pad_width: PadWidth,
    mode: str,
    *,
    constant_values: SideValues | None = None,
    stat_length: PadWidth | None = None,
    end_values: SideValues | None = None,
    reflect_type: str | None = None,
) -> Array:
    """Implements `pad` for the modes that have a name."""
    x = as_operand(array, "pad: array")
    modes = ("constant", "empty", *_REPEATING, "linear_ramp", *_STATISTICS)
    if mode not in modes:
        raise ValueError(f"pad: mode must be {', '.join(map(repr, modes))}, got {mode!r}")
    options = {
        "constant_values": constant_values,
        "stat_length": stat_length,
        "end_values": end_values,
        "reflect_type": reflect_type,
    }
    accepted = _OPTIONS.get(mode, "stat_length" if mode in _STATISTICS else "")
    for option, value in options.items():
        if value is not None and option != accepted:
            raise ValueError(f"pad: {option} has no meaning for mode {mode!r}")
    if reflect_type not in (None, "even", "odd"):
        raise ValueError(f"pad: reflect_type must be 'even' or 'odd', got {reflect_type!r}")
    if not x.aval.shape:
        return as_array(x)
    widths = _normalize_widths("pad_width", x, pad_width)
    if mode in ("constant", "empty"):
        return _pad_constant(x, widths, 0 if constant_values is None else constant_values)
    if mode == "linear_ramp":
        return _pad_linear_ramp(x, widths, 0 if end_values is None else end_values)
    if mode in _STATISTICS:
        lengths = (
            [(n, n) for n in x.aval.shape] if stat_length is None else _normalize_widths("stat_length", x, stat_length)
        )
        return _pad_statistics(x, widths, lengths, _STATISTICS[mode])
    out = as_array(x)
    for axis, sides in enumerate(widths):
        if sides == (0, 0):
            continue
        n = x.aval.shape[axis]
        if n == 0:
            raise ValueError(f"pad: axis {axis} of {x.aval} has no elements for mode {mode!r} to repeat")
        if reflect_type == "odd":
            out = _pad_odd_reflection(out, axis, sides, 1 if mode == "symmetric" else 0)
            continue
        indices = np.pad(np.arange(n, dtype=np.int32), sides, mode)  # type: ignore[call-overload]  # one of the modes above
        out = getitem(out, (*[slice(None)] * axis, indices))
    return out


def _pad_odd_reflection(x: Array, axis: int, sides: tuple[int, int], doubled: int) -> Array:
    """Extends `x` along an axis by twice its outermost element minus the elements mirrored there.

    Segments as long as the axis alternate between the elements and twice the nearer outermost element minus them, both
    plus `rise` for each further segment. Reflections that are not `doubled` share the outermost elements.
    """
    n = x.shape[axis]
    period = builtins.max(n - 1 + doubled, 1)
    segments, offsets = np.divmod(np.arange(-sides[0], n + sides[1]), period)
    if not doubled:  # the last element belongs to the first segment too
        last = (offsets == 0) & (segments == 1)
        segments, offsets = np.where(last, 0, segments), np.where(last, n - 1, offsets)
    odd = segments % 2 == 1
    indices = np.where(odd, n - 1 - offsets, offsets).astype(np.int32)
    index: list[IndexPart] = [slice(None)] * axis
    elements = getitem(x, (*index, indices if n > 1 else np.zeros_like(indices)))

    def along(numbers: NDArray) -> Value:
        line = from_numpy(numbers.reshape([-1 if i == axis else 1 for i in range(x.ndim)]), numbers.dtype)
        return structural.broadcast_to(line, elements.shape)

    first, end = [structural.broadcast_to(_edge_elements(x, axis, side, 1), elements.shape) for side in (0, 1)]
    edge = broadcast_select(along(segments < 0), first, end)
    mirrored = broadcast_select(along(odd), arithmetic.sub(elementwise.add(edge, edge), elements), elements)
    segment_count = np.where(odd & (segments < 0), segments + 1, segments - odd)
    rise = arithmetic.mul(convert_dtype(along(segment_count.astype(np.int32)), x.dtype), arithmetic.sub(end, first))
    return broadcast_select(along(segment_count == 0), mirrored, elementwise.add(mirrored, rise))


def _pad_by_function(
    array: ArrayLike, pad_width: PadWidth, function: Callable[..., Any], kwargs: dict[str, Any]
) -> Array:
    """Implements `pad` for a function as mode."""
    x = as_operand(array, "pad: array")
    if not x.aval.shape:
        return as_array(x)
    widths = _normalize_widths("pad_width", x, pad_width)
    out = _pad_constant(x, widths, 0)
    for axis, sides in enumerate(widths):
        lines = structural.move_axis(out, axis, out.ndim - 1)
        *others, n = lines.shape

        def pad_line(line: Array, axis: int = axis, sides: tuple[int, int] = sides) -> Array:
            return as_array(as_operand(function(line, sides, axis, kwargs), "pad: the result of the function"))

        rows = vmap(pad_line)(structural.reshape(lines, (math.prod(others), n)))
        if rows.ndim != 2:
            raise ValueError(f"pad: mode must return a line for each line, got {rows.aval.without_axis(0)}")
        out = structural.move_axis(structural.reshape(rows, (*others, rows.shape[1])), out.ndim - 1, axis)
    return out


def _normalize_widths(option: str, x: Value, width: int | Sequence[int] | Sequence[Sequence[int]]) -> Widths:
    """Returns a pair of numbers for each axis."""
    if type(width) is int and width >= 0:
        return [(width, width)] * x.aval.ndim
    try:
        pairs = np.broadcast_to(np.asarray(width, object), (x.aval.ndim, 2)).tolist()
    except ValueError as error:
        raise ValueError(
            f"pad: {option} {width!r} must be a number, a pair, or a pair for each axis of {x.aval}"
        ) from error
    widths = [(static_int("pad", low, option), static_int("pad", high, option)) for low, high in pairs]
    if any(builtins.min(sides) < 0 for sides in widths):
        raise ValueError(f"pad: {option} {width!r} has a negative entry")
    return widths


def _pad_constant(x: Value, widths: Widths, constant_values: SideValues) -> Array:
    fill = convert_dtype(_side_values("constant_values", x, constant_values), x.aval.dtype, x.aval.weak_type)
    if fill.aval.size == 1:
        fill = structural.reshape(fill, ()) if fill.aval.shape else fill
        return shape.pad(x, fill, [(low, high, 0) for low, high in widths])
    ndim = x.aval.ndim
    sides = structural.broadcast_to(fill, (ndim, 2))
    for axis, (low, high) in enumerate(widths):
        for side, width in enumerate(((low, 0, 0), (0, high, 0))):
            if any(width):
                config = [width if i == axis else (0, 0, 0) for i in range(ndim)]
                x = shape.pad(x, getitem(sides, (axis, side)), config)
    return as_array(x)


def _side_values(option: str, x: Value, values: SideValues) -> Value:
    """Returns values for the sides of an array: a scalar, or an array that broadcasts to a pair per axis."""
    value = as_operand(array_of(values) if isinstance(values, Sequence) else values, f"pad: {option}")
    if value.aval.size == 1:
        return value
    if (
        value.aval.ndim > 2
        or value.aval.shape[-1] not in (1, 2)
        or value.aval.shape[:-1] not in ((), (1,), (x.aval.ndim,))
    ):
        raise ValueError(
            f"pad: {option} must be a number, a pair, or a pair for each axis of {x.aval}, got {value.aval}"
        )
    return value


def _pad_linear_ramp(x: Value, widths: Widths, end_values: SideValues) -> Array:
    ends = structural.broadcast_to(_side_values("end_values", x, end_values), (x.aval.ndim, 2))

    def ramp(x: Array, axis: int, side: int, width: int) -> Array:
        edge = _edge_elements(x, axis, side, 1)
        rising = linspace(
            ends[axis, side],
            structural.reshape(edge, x.aval.without_axis(axis).shape),
            width,
            endpoint=False,
            dtype=x.dtype,
            axis=axis,
        )
        return flip(rising, axis) if side else rising

    return _pad_each_axis(x, widths, ramp)


def _pad_statistics(x: Value, widths: Widths, lengths: Widths, function: Callable[..., Array]) -> Array:
    if 0 in [n for sides in lengths for n in sides]:
        raise ValueError("pad: a stat_length of 0, or an axis without elements, has no statistics")

    def constant_part(x: Array, axis: int, side: int, width: int) -> Array:
        statistic = function(
            _edge_elements(x, axis, side, builtins.min(lengths[axis][side], x.shape[axis])), axis, keepdims=True
        )
        if dtypes.is_integer(x.dtype):
            statistic = round(statistic)
        sizes = [width if i == axis else n for i, n in enumerate(x.shape)]
        return structural.broadcast_to(convert_dtype(statistic, x.dtype, x.weak_type), tuple(sizes))

    return _pad_each_axis(x, widths, constant_part)


def _pad_each_axis(x: Value, widths: Widths, make_part: Callable[[Array, int, int, int], Array]) -> Array:
    """Extends `x` on each side by the result of `make_part(x, axis, side, width)`, one axis after another."""
    out = as_array(x)
    for axis, sides in enumerate(widths):
        low, high = [[make_part(out, axis, side, width)] if width else [] for side, width in enumerate(sides)]
        if low or high:
            parts = [as_array(convert_dtype(part, out.dtype, out.weak_type)) for part in (*low, out, *high)]
            out = shape.concatenate(parts, axis)
    return out


def _edge_elements(x: Array, axis: int, side: int, count: int) -> Array:
    """Returns the first (`side` 0) or last `count` elements of each line along an axis."""
    n = x.shape[axis]
    if n < count:
        raise ValueError(f"pad: axis {axis} of {x.aval} has too few elements to extend it")
    return shape.slice_axis(x, n - count, n, axis) if side else shape.slice_axis(x, 0, count, axis)
