"""Search in sorted arrays and linear interpolation: `searchsorted`, `digitize`, `interp`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from tracefx.core import Array, ArrayLike, ConcreteArray, DType, ShapedArray, Value, dtypes
from tracefx.core.handler import Tracer, as_array, evaluating
from tracefx.numpy.indexing import getitem, take
from tracefx.numpy.joining import concatenate
from tracefx.numpy.kernels import KERNELS
from tracefx.numpy.logic import greater, isnan, less
from tracefx.numpy.operand_promotion import as_operand, convert_dtype, promote_dtypes, to_inexact
from tracefx.numpy.reductions import sum
from tracefx.numpy.ufuncs import (
    absolute,
    add,
    broadcast_select,
    clip,
    literal_like,
    maximum,
    multiply,
    remainder,
    subtract,
    true_divide,
    where,
)
from tracefx.numpy.updates import at
from tracefx.ops import structural
from tracefx.ops.elementwise import arithmetic, bitwise, comparison, elementwise, selection
from tracefx.ops.elementwise import complex as complex_numbers
from tracefx.ops.indexing import sorting
from tracefx.ops.shape import array_creation, shape
from tracefx.transforms.eager_calls import eager_cached
from tracefx.transforms.loops import fori_loop

SearchBounds: TypeAlias = tuple[Array, Array]
SearchStep: TypeAlias = Callable[[ArrayLike, SearchBounds], SearchBounds]
SearchLoop: TypeAlias = Callable[[int, SearchStep, SearchBounds], SearchBounds]
SearchFunction: TypeAlias = Callable[[Array, Array, bool, DType], Array]
COMPARE_ALL_LIMIT: Final = 16
"""The largest number of elements for which comparing with all is not slower than a loop."""
# ------------------------------------------------------------------ sort order


def _sort_keys(x: Value) -> list[Value]:
    return [complex_numbers.real(x), complex_numbers.imag(x)] if dtypes.is_complex(x.aval.dtype) else [x]


def _precedes(x: Value, y: Value, strictly: bool) -> Array:
    """Returns whether `x` sorts before `y`, or is equal and not `strictly`; NaN is greatest and equals itself."""
    result: Array | None = None
    for a, b in zip(reversed(_sort_keys(x)), reversed(_sort_keys(y)), strict=True):
        floats = dtypes.is_float(a.aval.dtype)
        if result is None and not strictly:
            less = comparison.le(a, b)
            result = bitwise.bitwise_or(less, isnan(b)) if floats else less
            continue
        less = comparison.lt(a, b)
        if floats:
            less = bitwise.bitwise_or(less, bitwise.bitwise_and(isnan(b), bitwise.bitwise_not(isnan(a))))
        if result is not None:
            tie = comparison.eq(a, b)
            if floats:
                tie = bitwise.bitwise_or(tie, bitwise.bitwise_and(isnan(a), isnan(b)))
            less = bitwise.bitwise_or(less, bitwise.bitwise_and(tie, result))
        result = less
    assert result is not None
    return result


# ------------------------------------------------------------------ searchsorted


@eager_cached(numbers=2, kernel=KERNELS["searchsorted"])
def searchsorted(
    a: ArrayLike,
    v: ArrayLike,
    side: str = "left",
    sorter: ArrayLike | None = None,
    *,
    method: str = "scan",
) -> Array:
    """Returns the positions at which elements could be inserted into a sorted vector to keep it sorted.

    Args:
        a: A sorted vector.
        v: The elements to search for.
        side: `"left"` for the first such position, `"right"` for the last.
        sorter: Indices that sort `a`, if it is not sorted; None means that it is.
        method: The algorithm, which makes no difference to the result: binary search in a loop (`"scan"`) or without a
            loop (`"scan_unrolled"`), sorting `a` and `v` together (`"sort"`), or comparing all elements with all
            (`"compare_all"`, which `"scan"` uses for short `a`).

    Returns:
        An array of integers of the shape of `v`.

    Raises:
        ValueError: If `a` is not a vector, or `side` or `method` is unknown.

    >>> import numpy as np
    >>> searchsorted(np.array([1, 3, 5]), np.array([0, 3, 9]))
    Array([0, 1, 3], dtype=int32)
    """
    if sorter is not None:
        operand = as_array(as_operand(a, "searchsorted: a"))
        ordered = getitem(operand, as_array(as_operand(sorter, "searchsorted: sorter")))
        return searchsorted(ordered, v, side, method=method)
    x, y = promote_dtypes("searchsorted", a, v)
    if x.aval.ndim != 1:
        raise ValueError(f"searchsorted: a must be a vector, got {x.aval}")
    if side not in ("left", "right"):
        raise ValueError(f"searchsorted: side must be 'left' or 'right', got {side!r}")
    search = _SEARCH_FUNCTIONS.get(method)
    if search is None:
        raise ValueError(f"searchsorted: method must be one of {', '.join(_SEARCH_FUNCTIONS)}, got {method!r}")
    n = x.aval.size
    dtype = dtypes.index_dtype(n)
    if not n:
        return structural.full_like_aval(ShapedArray(y.aval.shape, dtype), 0)
    if evaluating() and type(x) is ConcreteArray and not isinstance(y, Tracer):
        search = _SEARCH_FUNCTIONS["scan_unrolled"]
    elif method == "scan" and n <= COMPARE_ALL_LIMIT:
        search = _SEARCH_FUNCTIONS["compare_all"]
    # Positions have no derivative, so loops need not be differentiated.
    return search(selection.stop_gradient(x), selection.stop_gradient(y), side == "left", dtype)


def _binary_search(loop: SearchLoop, x: Array, y: Array, left: bool, dtype: DType) -> Array:
    """Searches by halving: the position is above `low` (unless it is 0) and at most `high`."""
    n = x.aval.size

    def narrowed(_: ArrayLike, bounds: SearchBounds) -> SearchBounds:
        low, high = bounds
        middle = arithmetic.div(elementwise.add(low, high), literal_like(low, 2))
        lower = _precedes(y, take(x, middle, mode="clip"), strictly=not left)
        return broadcast_select(lower, low, middle), broadcast_select(lower, middle, high)

    start = (
        structural.full_like_aval(ShapedArray(y.aval.shape, dtype), 0),
        structural.full_like_aval(ShapedArray(y.aval.shape, dtype), n),
    )
    return loop(n.bit_length(), narrowed, start)[1]


def _run_as_loop(times: int, step: SearchStep, start: SearchBounds) -> SearchBounds:
    return fori_loop(0, times, step, start)


def _run_unrolled(times: int, step: SearchStep, start: SearchBounds) -> SearchBounds:
    for _ in range(times):
        start = step(0, start)
    return start


def _compare_all(x: Array, y: Array, left: bool, dtype: DType) -> Array:
    """Counts the elements that precede."""
    shape = (x.aval.size, *y.aval.shape)
    rows, columns = structural.broadcast_in_dim(x, shape, (0,)), structural.broadcast_to(y, shape)
    return sum(_precedes(rows, columns, strictly=left), 0, dtype)


def _search_by_sorting(x: Array, y: Array, left: bool, dtype: DType) -> Array:
    """Returns the ranks of `y` among `x` and `y` together, minus the ranks among `y` alone."""
    flat = structural.reshape(y, (y.aval.size,))
    n, m = x.aval.size, y.aval.size
    if left:
        joint_ranks = shape.slice_axis(_ranks(concatenate([flat, x]), dtype), 0, m, 0)
    else:
        joint_ranks = shape.slice_axis(_ranks(concatenate([x, flat]), dtype), n, n + m, 0)
    return structural.reshape(arithmetic.sub(joint_ranks, _ranks(flat, dtype)), y.aval.shape)


def _ranks(x: Array, dtype: DType) -> Array:
    """Returns the rank of each element of a vector, ties in order."""
    numbers = array_creation.iota(dtype, x.aval.size)
    _, order = sorting.sort_key_val(x, numbers)
    return at(numbers)[order].set(numbers, unique_indices=True)


_SEARCH_FUNCTIONS: Final[Mapping[str, SearchFunction]] = MappingProxyType(
    {
        "scan": functools.partial(_binary_search, _run_as_loop),
        "scan_unrolled": functools.partial(_binary_search, _run_unrolled),
        "sort": _search_by_sorting,
        "compare_all": _compare_all,
    }
)


@eager_cached(kernel=KERNELS["digitize"])
def digitize(x: ArrayLike, bins: ArrayLike, right: bool = False, *, method: str | None = None) -> Array:
    """Returns the number of the bin of each element: 0 below the first edge, `len(bins)` above the last.

    Args:
        x: The elements.
        bins: The edges, a vector that is ascending or descending.
        right: Whether a bin includes its upper edge instead of its lower one.
        method: The algorithm, as for `searchsorted`; None means `"scan"`.

    Returns:
        An array of integers of the shape of `x`.

    Raises:
        ValueError: If `bins` is not a vector.

    >>> import numpy as np
    >>> digitize(np.array([0.5, 1.0, 9.0]), np.array([1.0, 2.0]))
    Array([0, 1, 2], dtype=int32)
    """
    value, edges = as_array(as_operand(x, "digitize: x")), as_array(as_operand(bins, "digitize: bins"))
    if edges.aval.ndim != 1:
        raise ValueError(f"digitize: bins must be a vector, got {edges.aval}")
    n = edges.aval.size
    if not n:
        return structural.full_like_aval(ShapedArray(value.aval.shape, dtypes.default_int()), 0)
    side, search_method = "left" if right else "right", method or "scan"

    def descending() -> Array:
        positions = searchsorted(shape.rev(edges, (0,)), value, side, method=search_method)
        return arithmetic.sub(literal_like(positions, n), positions)

    ascends = _precedes(getitem(edges, 0), getitem(edges, -1), strictly=False)
    if type(ascends) is ConcreteArray:
        return searchsorted(edges, value, side, method=search_method) if ascends else descending()
    return broadcast_select(ascends, searchsorted(edges, value, side, method=search_method), descending())


# ------------------------------------------------------------------ interpolation


def interp(
    x: ArrayLike,
    xp: ArrayLike,
    fp: ArrayLike,
    left: ArrayLike | str | None = None,
    right: ArrayLike | str | None = None,
    period: ArrayLike | None = None,
) -> Array:
    """Interpolates linearly between points.

    Args:
        x: Where to evaluate.
        xp: The first coordinates of the points, an ascending vector.
        fp: The second coordinates.
        left: The value below `xp[0]`; None means `fp[0]`, `"extrapolate"` continues the first segment.
        right: The value above `xp[-1]`; None means `fp[-1]`, `"extrapolate"` continues the last segment.
        period: The period of `x` and `xp`, which may then be in any order; None means no period.

    Returns:
        An array of floats or complex numbers of the shape of `x`.

    Raises:
        ValueError: If `xp` and `fp` are not vectors of one nonzero size, or `x` is complex.

    >>> import numpy as np
    >>> interp(np.array([0.5, 3.0]), np.array([0.0, 1.0]), np.array([10.0, 20.0])).tolist()
    [15.0, 20.0]
    """
    x_values, points = promote_dtypes("interp", x, xp, inexact=True)
    values = to_inexact(fp, "interp: fp")
    for name, end in (("left", left), ("right", right)):
        if isinstance(end, str) and end != "extrapolate":
            raise ValueError(f"interp: {name} must be a value or 'extrapolate', got {end!r}")
    if points.aval.ndim != 1 or points.aval.shape != values.aval.shape or not points.aval.size:
        raise ValueError(
            f"interp: xp and fp must be vectors of one size, at least 1, got {points.aval} and {values.aval}"
        )
    if dtypes.is_complex(x_values.aval.dtype):
        raise ValueError(f"interp: x must be of real numbers, got {x_values.aval}")
    length = (
        None if period is None else as_array(convert_dtype(as_operand(period, "interp: period"), x_values.aval.dtype))
    )
    if length is not None and length.shape:
        raise ValueError(f"interp: period must be a number, got {length.aval}")
    first, last = [
        None if e is None or isinstance(e, str) else as_array(as_operand(e, "interp")) for e in (left, right)
    ]
    return _interpolate(
        as_array(x_values),
        as_array(points),
        as_array(values),
        first,
        last,
        length,
        extrapolate_left=isinstance(left, str),
        extrapolate_right=isinstance(right, str),
    )


@eager_cached(compiled=True)
def _interpolate(
    x: Array,
    knots: Array,
    heights: Array,
    left: Array | None,
    right: Array | None,
    period: Array | None,
    *,
    extrapolate_left: bool,
    extrapolate_right: bool,
) -> Array:
    if period is not None:
        period = absolute(period)
        x, knots = remainder(x, period), remainder(knots, period)
        knots, heights = sorting.sort_key_val(knots, heights)
        first, last = shape.slice_axis(knots, 0, 1, 0), shape.slice_axis(knots, knots.size - 1, knots.size, 0)
        knots = concatenate([subtract(last, period), knots, add(first, period)])
        n = heights.size
        heights = concatenate([shape.slice_axis(heights, n - 1, n, 0), heights, shape.slice_axis(heights, 0, 1, 0)])
    n = knots.size
    after = clip(searchsorted(knots, x, "right"), min(1, n - 1), n - 1)
    before = maximum(subtract(after, 1), 0)
    x0, y0 = take(knots, before, mode="clip"), take(heights, before, mode="clip")
    run, rise = subtract(take(knots, after, mode="clip"), x0), subtract(take(heights, after, mode="clip"), y0)
    level = comparison.eq(run, structural.full_like_aval(run.aval, 0))
    slope = multiply(true_divide(subtract(x, x0), broadcast_select(level, 1, run)), rise)
    interpolated = broadcast_select(level, y0, add(y0, slope))
    if period is not None:
        return interpolated
    if not extrapolate_left:
        interpolated = where(less(x, getitem(knots, 0)), getitem(heights, 0) if left is None else left, interpolated)
    if not extrapolate_right:
        interpolated = where(
            greater(x, getitem(knots, n - 1)), getitem(heights, n - 1) if right is None else right, interpolated
        )
    return interpolated
