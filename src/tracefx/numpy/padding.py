"""Padding: an array with more elements around it: constants, its own ones over again, or what follows from them."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike, IndexPart
from tracefx.core.dtypes import NDArray
from tracefx.core.handler import as_array
from tracefx.core.values import Value, from_numpy
from tracefx.numpy.creation import array as array_of
from tracefx.numpy.creation import linspace
from tracefx.numpy.evaluated import by_numpy
from tracefx.numpy.indexing import getitem
from tracefx.numpy.operand_promotion import as_operand, convert_dtype
from tracefx.numpy.reductions import max, mean, min
from tracefx.numpy.shapes import flip
from tracefx.numpy.ufuncs import broadcast_select, round
from tracefx.ops import structural
from tracefx.ops.elementwise import arithmetic, elementwise
from tracefx.ops.shape import shape
from tracefx.ops.static_integers import static_int
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
    """`array` with elements put around it: `(before, after)` for each axis, or one pair or one number for all.

    `mode` says which: "constant", `constant_values`, given for each side as the widths are, by default 0; "empty",
    any; "edge", the outermost ones over again; "reflect" and "symmetric", the array mirrored at its ends, without and
    with the outermost ones doubled; "wrap", the array over again; "linear_ramp", numbers that go evenly to
    `end_values`, by default 0; "maximum", "minimum" and "mean", those of each line, or of the `stat_length` elements
    next to its end. `reflect_type="odd"` mirrors twice the outermost element less the elements.

    `mode` may also be a function `f(vector, widths, axis, kwargs)`: it takes each line of the array, padded with zeros,
    for one axis after the other, and returns the line that takes its place. Other keyword arguments are for it.

    Raises ValueError for another mode or its option, for negative widths, and where there are no elements.

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
    given = {option: value for option, value in options.items() if value is not None}
    if callable(mode):
        return _pad_by_function(array, pad_width, mode, kwargs | given)
    if kwargs:
        raise ValueError(f"pad: {', '.join(kwargs)} means nothing for mode {mode!r}")
    return pad_by_mode(array, pad_width, mode, **given)  # type: ignore[arg-type]  # options of their types


@by_numpy()
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
    """`pad` by one of the modes with a name."""
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
    takes = _OPTIONS.get(mode, "stat_length" if mode in _STATISTICS else "")
    for option, given in options.items():
        if given is not None and option != takes:
            raise ValueError(f"pad: {option} means nothing for mode {mode!r}")
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
            raise ValueError(f"pad: axis {axis} of {x.aval} has no elements that mode {mode!r} could repeat")
        if reflect_type == "odd":
            out = _pad_odd_reflection(out, axis, sides, 1 if mode == "symmetric" else 0)
            continue
        places = np.pad(np.arange(n, dtype=np.int32), sides, mode)  # type: ignore[call-overload]  # one of the modes above
        out = getitem(out, (*[slice(None)] * axis, places))
    return out


def _pad_odd_reflection(x: Array, axis: int, sides: tuple[int, int], doubled: int) -> Array:
    """`x` lengthened along an axis by twice its outermost element less the elements mirrored there.

    Segments as long as the axis alternate between the elements and twice the nearer outermost element less them, both
    plus `rise` for each further segment. Reflections that are not `doubled` share the outermost elements.
    """
    n = x.shape[axis]
    period = builtins.max(n - 1 + doubled, 1)
    segments, rests = np.divmod(np.arange(-sides[0], n + sides[1]), period)
    if not doubled:  # the last element is in the first segment too
        last = (rests == 0) & (segments == 1)
        segments, rests = np.where(last, 0, segments), np.where(last, n - 1, rests)
    odd = segments % 2 == 1
    places = np.where(odd, n - 1 - rests, rests).astype(np.int32)
    index: list[IndexPart] = [slice(None)] * axis
    elements = getitem(x, (*index, places if n > 1 else np.zeros_like(places)))

    def along(numbers: NDArray) -> Value:
        line = from_numpy(numbers.reshape([-1 if i == axis else 1 for i in range(x.ndim)]), numbers.dtype)
        return structural.broadcast_to(line, elements.shape)

    first, end = [structural.broadcast_to(_edge_elements(x, axis, side, 1), elements.shape) for side in (0, 1)]
    edge = broadcast_select(along(segments < 0), first, end)
    mirrored = broadcast_select(along(odd), arithmetic.sub(elementwise.add(edge, edge), elements), elements)
    turns = np.where(odd & (segments < 0), segments + 1, segments - odd)
    rise = arithmetic.mul(convert_dtype(along(turns.astype(np.int32)), x.dtype), arithmetic.sub(end, first))
    return broadcast_select(along(turns == 0), mirrored, elementwise.add(mirrored, rise))


def _pad_by_function(
    array: ArrayLike, pad_width: PadWidth, function: Callable[..., Any], kwargs: dict[str, Any]
) -> Array:
    x = as_operand(array, "pad: array")
    if not x.aval.shape:
        return as_array(x)
    widths = _normalize_widths("pad_width", x, pad_width)
    out = _pad_constant(x, widths, 0)
    for axis, sides in enumerate(widths):
        lines = structural.move_axis(out, axis, out.ndim - 1)
        *others, n = lines.shape

        def changed(line: Array, axis: int = axis, sides: tuple[int, int] = sides) -> Array:
            return as_array(as_operand(function(line, sides, axis, kwargs), "pad: what the function returns"))

        rows = vmap(changed)(structural.reshape(lines, (math.prod(others), n)))
        if rows.ndim != 2:
            raise ValueError(f"pad: mode must return a line for each line, got {rows.aval.without_axis(0)}")
        out = structural.move_axis(structural.reshape(rows, (*others, rows.shape[1])), out.ndim - 1, axis)
    return out


def _normalize_widths(option: str, x: Value, given: int | Sequence[int] | Sequence[Sequence[int]]) -> Widths:
    if type(given) is int and given >= 0:
        return [(given, given)] * x.aval.ndim
    try:
        pairs = np.broadcast_to(np.asarray(given, object), (x.aval.ndim, 2)).tolist()
    except ValueError as error:
        raise ValueError(
            f"pad: {option} {given!r} must be a number, a pair, or a pair for each axis of {x.aval}"
        ) from error
    widths = [(static_int("pad", low, option), static_int("pad", high, option)) for low, high in pairs]
    if any(builtins.min(sides) < 0 for sides in widths):
        raise ValueError(f"pad: {option} {given!r} has a negative entry")
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


def _pad_constant_by_numpy(x: NDArray, fill: NDArray, widths: Widths) -> NDArray:
    """NumPy's array with one number around it."""
    out = np.full([low + n + high for (low, high), n in zip(widths, x.shape, strict=True)], fill, x.dtype)
    out[tuple([slice(low, low + n) for (low, _), n in zip(widths, x.shape, strict=True)])] = x
    return out


def _side_values(option: str, x: Value, given: SideValues) -> Value:
    """Numbers for the sides of an array: one, a pair, or a pair for each axis."""
    value = as_operand(array_of(given) if isinstance(given, Sequence) else given, f"pad: {option}")
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
            structural.reshape(edge, _shape_without_axis(x, axis)),
            width,
            endpoint=False,
            dtype=x.dtype,
            axis=axis,
        )
        return flip(rising, axis) if side else rising

    return _pad_each_axis(x, widths, ramp)


def _pad_statistics(x: Value, widths: Widths, lengths: Widths, function: Callable[..., Array]) -> Array:
    if 0 in [n for sides in lengths for n in sides]:
        raise ValueError("pad: there is nothing that a stat_length of 0, or of an axis without elements, could tell")

    def level(x: Array, axis: int, side: int, width: int) -> Array:
        own = function(
            _edge_elements(x, axis, side, builtins.min(lengths[axis][side], x.shape[axis])), axis, keepdims=True
        )
        if dtypes.is_integer(x.dtype):
            own = round(own)
        sizes = [width if i == axis else n for i, n in enumerate(x.shape)]
        return structural.broadcast_to(convert_dtype(own, x.dtype, x.weak_type), tuple(sizes))

    return _pad_each_axis(x, widths, level)


def _pad_each_axis(x: Value, widths: Widths, made: Callable[[Array, int, int, int], Array]) -> Array:
    """`x` with what `made(x, axis, side, width)` gives put at its sides, axis after axis."""
    out = as_array(x)
    for axis, sides in enumerate(widths):
        low, high = [[made(out, axis, side, width)] if width else [] for side, width in enumerate(sides)]
        if low or high:
            parts = [as_array(convert_dtype(part, out.dtype, out.weak_type)) for part in (*low, out, *high)]
            out = shape.concatenate(parts, axis)
    return out


def _edge_elements(x: Array, axis: int, side: int, count: int) -> Array:
    """The first (`side` 0) or last elements of each line along an axis."""
    n = x.shape[axis]
    if n < count:
        raise ValueError(f"pad: axis {axis} of {x.aval} has no elements to go on from")
    return shape.slice_axis(x, n - count, n, axis) if side else shape.slice_axis(x, 0, count, axis)


def _shape_without_axis(x: Array, axis: int) -> tuple[int, ...]:
    return (*x.shape[:axis], *x.shape[axis + 1 :])
