"""Places in sorted arrays, and what lies between their elements: `searchsorted`, `digitize`, `interp`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias
from typing import Literal as Exactly

import numpy as np

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import DType, NDArray
from tracefx.core.handler import Tracer, as_array, evaluating
from tracefx.core.kernel_context import call_kernel
from tracefx.core.values import ConcreteArray, Value, to_numpy
from tracefx.numpy.evaluated import NUMBERS, Kernel, by_numpy
from tracefx.numpy.indexing import getitem, take
from tracefx.numpy.joining import concatenate
from tracefx.numpy.logic import greater, isnan, less
from tracefx.numpy.operand_promotion import as_operand, convert_dtype, inexact_dtype, promote_dtypes, to_inexact
from tracefx.numpy.reductions import sum
from tracefx.numpy.sorting import index_dtype
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
from tracefx.transforms.at_once import at_once
from tracefx.transforms.evaluations import Number
from tracefx.transforms.loops import fori_loop

SearchBounds: TypeAlias = tuple[Array, Array]
SearchStep: TypeAlias = Callable[[ArrayLike, SearchBounds], SearchBounds]
SearchLoop: TypeAlias = Callable[[int, SearchStep, SearchBounds], SearchBounds]
SearchFunction: TypeAlias = Callable[[Array, Array, bool, DType], Array]
COMPARE_ALL_LIMIT: Final = 16
"""Up to how many elements comparing all takes no longer than a loop."""
_NUMPY_DTYPES: Final = frozenset(map(np.dtype, ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8")))
"""The dtypes whose arrays NumPy searches as we do."""

# ------------------------------------------------------------------ order, as sorting has it


def _sort_keys(x: Value) -> list[Value]:
    return [complex_numbers.real(x), complex_numbers.imag(x)] if dtypes.is_complex(x.aval.dtype) else [x]


def _precedes(x: Value, y: Value, strictly: bool) -> Array:
    """Whether `x` stands before `y` in sorted order, or may; NaN is greater than all numbers and equal to itself."""
    found: Array | None = None
    for a, b in zip(reversed(_sort_keys(x)), reversed(_sort_keys(y)), strict=True):
        floats = dtypes.is_float(a.aval.dtype)
        if found is None and not strictly:
            less = comparison.le(a, b)
            found = bitwise.bitwise_or(less, isnan(b)) if floats else less
            continue
        less = comparison.lt(a, b)
        if floats:
            less = bitwise.bitwise_or(less, bitwise.bitwise_and(isnan(b), bitwise.bitwise_not(isnan(a))))
        if found is not None:
            tie = comparison.eq(a, b)
            if floats:
                tie = bitwise.bitwise_or(tie, bitwise.bitwise_and(isnan(a), isnan(b)))
            less = bitwise.bitwise_or(less, bitwise.bitwise_and(tie, found))
        found = less
    assert found is not None
    return found


# ------------------------------------------------------------------ searchsorted


def _searchsorted_kernel(
    a: ShapedArray, v: ShapedArray | Number, side: Exactly["left", "right"] = "left", *given: object, **options: object
) -> Kernel | None:
    """`searchsorted` in NumPy's arrays."""
    if given or options:
        return None
    places = index_dtype(a.size)
    return lambda x, y: x.searchsorted(y, side).astype(places)


@by_numpy(_searchsorted_kernel, arrays=2, numbers=True, among=NUMBERS, replays=False)
def searchsorted(
    a: ArrayLike,
    v: ArrayLike,
    side: str = "left",
    sorter: ArrayLike | None = None,
    *,
    method: str = "scan",
) -> Array:
    """For every element of `v` the place at which it could be put into `a`, a sorted vector, so that it stays sorted:
    the first such place, or with `side="right"` the last. `sorter` has the places in the order of which `a` is sorted.

    `method` says how they are searched: by halving in a loop ("scan"), the same without a loop ("scan_unrolled"), by
    sorting `a` and `v` together ("sort"), or by comparing all with all ("compare_all", and "scan" where `a` is short).
    The result is the same.

    Raises ValueError for an `a` that is no vector, and an unknown `side` or `method`.

    >>> searchsorted(np.array([1, 3, 5]), np.array([0, 3, 9]))
    Array([0, 1, 3], dtype=int32)
    """
    values = promote_dtypes("searchsorted", a, v)
    if sorter is not None:
        values[0] = getitem(as_array(values[0]), as_array(as_operand(sorter, "searchsorted: sorter")))
    x, y = values
    if x.aval.ndim != 1:
        raise ValueError(f"searchsorted: a must be a vector, got {x.aval}")
    if side not in ("left", "right"):
        raise ValueError(f"searchsorted: side must be 'left' or 'right', got {side!r}")
    search = _SEARCH_FUNCTIONS.get(method)
    if search is None:
        raise ValueError(f"searchsorted: method must be one of {', '.join(_SEARCH_FUNCTIONS)}, got {method!r}")
    n = x.aval.size
    dtype = index_dtype(n)
    if not n:
        return structural.full_like_aval(ShapedArray(y.aval.shape, dtype), 0)
    if evaluating() and type(x) is ConcreteArray and not isinstance(y, Tracer):
        if x.aval.dtype in _NUMPY_DTYPES:
            return call_kernel(_searchsorted_by_numpy, x.numpy(), to_numpy(y), side, dtype)
        search = _SEARCH_FUNCTIONS["scan_unrolled"]
    elif method == "scan" and n <= COMPARE_ALL_LIMIT:
        search = _SEARCH_FUNCTIONS["compare_all"]
    # Places have no derivative, which loops need not find out.
    return search(selection.stop_gradient(x), selection.stop_gradient(y), side == "left", dtype)


def _searchsorted_by_numpy(x: NDArray, y: NDArray, side: str, dtype: DType) -> Array:
    found = np.asarray(np.searchsorted(x, y, "left" if side == "left" else "right")).astype(dtype)
    return ConcreteArray(ShapedArray(found.shape, dtype), found)


def _binary_search(loop: SearchLoop, x: Array, y: Array, left: bool, dtype: DType) -> Array:
    """The place is above `low`, unless it is 0, and at most `high`; elements in the middle are asked on which side."""
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
    """How many elements stand before."""
    shape = (x.aval.size, *y.aval.shape)
    rows, columns = structural.broadcast_in_dim(x, shape, (0,)), structural.broadcast_to(y, shape)
    return sum(_precedes(rows, columns, strictly=left), 0, dtype)


def _search_by_sorting(x: Array, y: Array, left: bool, dtype: DType) -> Array:
    """The rank among all, less that among the elements of `y`."""
    flat = structural.reshape(y, (y.aval.size,))
    n, m = x.aval.size, y.aval.size
    if left:
        among = shape.slice_axis(_ranks(concatenate([flat, x]), dtype), 0, m, 0)
    else:
        among = shape.slice_axis(_ranks(concatenate([x, flat]), dtype), n, n + m, 0)
    return structural.reshape(arithmetic.sub(among, _ranks(flat, dtype)), y.aval.shape)


def _ranks(x: Array, dtype: DType) -> Array:
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


def _digitize_kernel(
    x: ShapedArray | Number, bins: ShapedArray, right: bool = False, *, method: str | None = None
) -> Kernel | None:
    """`digitize` of NumPy's arrays."""
    side: Exactly["left", "right"] = "left" if right else "right"
    n, places = bins.size, index_dtype(bins.size)
    if not isinstance(x, ShapedArray) or not n:
        return None

    def kernel(values: NDArray, edges: NDArray) -> NDArray:
        first, last = edges[0], edges[-1]
        if first <= last or last != last:
            return edges.searchsorted(values, side).astype(places)
        return (n - edges[::-1].searchsorted(values, side)).astype(places)

    return kernel


@by_numpy(_digitize_kernel, arrays=2, among=NUMBERS, replays=False)
def digitize(x: ArrayLike, bins: ArrayLike, right: bool = False, *, method: str | None = None) -> Array:
    """The number of the bin that every element of `x` falls into: 0 before the first edge, `len(bins)` after the last.

    `bins` are the edges, a vector that ascends or descends. A bin holds its lower edge, or with `right` its upper one.
    `method` is that of `searchsorted`.

    >>> digitize(np.array([0.5, 1.0, 9.0]), np.array([1.0, 2.0]))
    Array([0, 1, 2], dtype=int32)
    """
    value, edges = as_array(as_operand(x, "digitize: x")), as_array(as_operand(bins, "digitize: bins"))
    if edges.aval.ndim != 1:
        raise ValueError(f"digitize: bins must be a vector, got {edges.aval}")
    n = edges.aval.size
    if not n:
        return structural.full_like_aval(ShapedArray(value.aval.shape, dtypes.default_int()), 0)
    side, how = "left" if right else "right", method or "scan"

    def descending() -> Array:
        found = searchsorted(shape.rev(edges, (0,)), value, side, method=how)
        return arithmetic.sub(literal_like(found, n), found)

    ascends = _precedes(getitem(edges, 0), getitem(edges, -1), strictly=False)
    if type(ascends) is ConcreteArray:
        return searchsorted(edges, value, side, method=how) if ascends else descending()
    return broadcast_select(ascends, searchsorted(edges, value, side, method=how), descending())


# ------------------------------------------------------------------ interpolation


def interp(
    x: ArrayLike,
    xp: ArrayLike,
    fp: ArrayLike,
    left: ArrayLike | str | None = None,
    right: ArrayLike | str | None = None,
    period: ArrayLike | None = None,
) -> Array:
    """At every `x` the value of the line through the points `xp`, `fp`, two vectors of which `xp` ascends.

    Before the first point and after the last it is `left` and `right`, those points' values unless given;
    "extrapolate" goes on along the line. With a `period` both go round and round, and `xp` may be in any order.

    Raises ValueError for vectors of different sizes or none, and for complex `x`.

    >>> interp(np.array([0.5, 3.0]), np.array([0.0, 1.0]), np.array([10.0, 20.0])).tolist()
    [15.0, 20.0]
    """
    places, points = promote_dtypes_inexact("interp", x, xp)
    values = to_inexact(fp, "interp: fp")
    for name, end in (("left", left), ("right", right)):
        if isinstance(end, str) and end != "extrapolate":
            raise ValueError(f"interp: {name} must be a value or 'extrapolate', got {end!r}")
    if points.aval.ndim != 1 or points.aval.shape != values.aval.shape or not points.aval.size:
        raise ValueError(
            f"interp: xp and fp must be vectors of one size, at least 1, got {points.aval} and {values.aval}"
        )
    if dtypes.is_complex(places.aval.dtype):
        raise ValueError(f"interp: x must be of real numbers, got {places.aval}")
    length = (
        None if period is None else as_array(convert_dtype(as_operand(period, "interp: period"), places.aval.dtype))
    )
    if length is not None and length.shape:
        raise ValueError(f"interp: period must be a number, got {length.aval}")
    first, last = [
        None if e is None or isinstance(e, str) else as_array(as_operand(e, "interp")) for e in (left, right)
    ]
    open_ends = isinstance(left, str), isinstance(right, str)
    return _interpolate(as_array(places), as_array(points), as_array(values), first, last, length, open_ends=open_ends)


@at_once
def _interpolate(
    x: Array,
    knots: Array,
    heights: Array,
    left: Array | None,
    right: Array | None,
    period: Array | None,
    *,
    open_ends: tuple[bool, bool],
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
    found = broadcast_select(level, y0, add(y0, slope))
    if period is not None:
        return found
    if not open_ends[0]:
        found = where(less(x, getitem(knots, 0)), getitem(heights, 0) if left is None else left, found)
    if not open_ends[1]:
        found = where(greater(x, getitem(knots, n - 1)), getitem(heights, n - 1) if right is None else right, found)
    return found


def promote_dtypes_inexact(name: str, *args: ArrayLike) -> list[Value]:
    """Operands in the float or complex dtype in which they meet, each in its own shape."""
    values = promote_dtypes(name, *args)
    dtype, weak = values[0].aval.dtype, values[0].aval.weak_type
    return values if dtypes.is_inexact(dtype) else [convert_dtype(v, inexact_dtype(dtype), weak) for v in values]
