"""How many elements fall where: `bincount` of integers, histograms of numbers in one or several dimensions.

A bin holds its lower edge; the last one also its upper edge.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import ShapedArray
from tracefx.core.handler import as_array
from tracefx.core.values import Value
from tracefx.numpy.creation import asarray, linspace, zeros
from tracefx.numpy.indexing import getitem
from tracefx.numpy.logic import equal
from tracefx.numpy.mask_selection import concrete_values
from tracefx.numpy.operand_promotion import (
    as_operand,
    convert_dtype,
    convert_operand,
    inexact_dtype,
    promote_dtypes,
    to_inexact,
)
from tracefx.numpy.reductions import max, min, sum
from tracefx.numpy.searching import searchsorted
from tracefx.numpy.ufuncs import add, broadcast_select, clip, literal_like, multiply, true_divide
from tracefx.numpy.updates import at
from tracefx.ops import structural
from tracefx.ops.elementwise import arithmetic, comparison
from tracefx.ops.shape import shape
from tracefx.ops.static_integers import static_int

BinRange: TypeAlias = Array | Sequence[ArrayLike] | None
BinSpec: TypeAlias = ArrayLike | Sequence[ArrayLike]


def bincount(x: ArrayLike, weights: ArrayLike | None = None, minlength: int = 0, *, length: int | None = None) -> Array:
    """How often each of the numbers 0, 1, 2, ... is among `x`, a vector of integers; the sums of their `weights`.

    The result goes to the greatest number, and to `minlength` at least. Where `x` is traced `length` says how long it
    is to be: greater numbers are left out. Negative ones count as 0. Raises TypeError for other numbers than integers,
    ValueError for an `x` that is no vector and for weights of another shape.

    >>> bincount(np.array([0, 1, 1, 3]))
    Array([1, 2, 0, 1], dtype=int32)
    """
    value = as_operand(x, "bincount: x")
    if dtypes.is_bool(value.aval.dtype):
        value = convert_dtype(value, dtypes.int32)
    if not dtypes.is_integer(value.aval.dtype):
        raise TypeError(f"bincount: x must be of integers, got {value.aval}")
    if value.aval.ndim != 1:
        raise ValueError(f"bincount: x must be a vector, got {value.aval}")
    least = static_int("bincount", minlength, "minlength")
    if length is None:
        held = concrete_values("bincount", value, "give length=")
        size = builtins.max(least, int(held.max()) + 1 if held.size else 0, 0)
    else:
        size = static_int("bincount", length, "length")
    if weights is None:
        load: Value = structural.full_like_aval(ShapedArray((), dtypes.default_int()), 1)
    else:
        load = as_operand(weights, "bincount: weights")
        if load.aval.shape != value.aval.shape:
            raise ValueError(f"bincount: weights {load.aval} must have the shape of x, {value.aval}")
    places = clip(value, 0, None) if dtypes.is_signed(value.aval.dtype) else as_array(value)
    return at(zeros(size, load.aval.dtype))[places].add(as_array(load), mode="drop")


def histogram_bin_edges(
    a: ArrayLike, bins: ArrayLike = 10, range: BinRange = None, weights: ArrayLike | None = None
) -> Array:
    """The edges of a histogram of `a`: of so many `bins` of one width from the least to the greatest element, or in
    `range`; or `bins` itself, if that is a vector.

    Raises NotImplementedError for the name of a rule that would find the number of bins.

    >>> histogram_bin_edges(np.array([0.0, 2.0]), 2)
    Array([0., 1., 2.], dtype=float32)
    """
    del weights
    return _bin_edges("histogram_bin_edges", as_operand(a, "histogram_bin_edges: a"), bins, range)


def _is_name(bins: object) -> bool:
    return isinstance(bins, str)


def _bin_edges(name: str, x: Value, bins: ArrayLike, range: BinRange) -> Array:
    if _is_name(bins):
        raise NotImplementedError(f"{name}: bins must be a number or edges, got the name of a rule, {bins!r}")
    dtype = inexact_dtype(x.aval.dtype)
    given = as_operand(bins, f"{name}: bins")
    if given.aval.ndim == 1:
        return as_array(convert_operand(given, dtype, what=f"{name}: bins"))
    count = static_int(name, bins, "bins")  # type: ignore[arg-type]  # what is no integer is refused there
    if range is not None:
        ends = asarray(range, dtype)
        if ends.shape != (2,):
            raise ValueError(f"{name}: range must be the least and the greatest edge, got {range!r}")
        low, high = getitem(ends, 0), getitem(ends, 1)
    elif x.aval.size:
        low, high = [as_array(convert_dtype(found, dtype)) for found in (min(x), max(x))]
    else:
        low, high = [structural.full_like_aval(ShapedArray((), dtype), end) for end in (0, 1)]
    point = comparison.eq(low, high)
    half = literal_like(low, 0.5)
    start, stop = (
        broadcast_select(point, arithmetic.sub(low, half), low),
        broadcast_select(point, add(high, half), high),
    )
    return linspace(start, stop, count + 1, dtype=dtype)


def histogram(
    a: ArrayLike,
    bins: ArrayLike = 10,
    range: Sequence[ArrayLike] | None = None,
    weights: ArrayLike | None = None,
    density: bool | None = None,
) -> tuple[Array, Array]:
    """How many elements of `a` fall into each bin, as floats, and the edges of the bins: as `histogram_bin_edges`.

    With `weights`, of the shape of `a`, their sums; with `density` the share of each bin over its width. Elements
    outside of all bins are left out. Raises ValueError for weights of another shape.

    >>> counts, edges = histogram(np.array([0.0, 0.5, 2.0]), 2)
    >>> counts.tolist(), edges.tolist()
    ([2.0, 1.0], [0.0, 1.0, 2.0])
    """
    x, load = _weighted_operands("histogram", a, weights)
    if weights is not None and load.aval.shape != x.aval.shape:
        raise ValueError(f"histogram: weights {load.aval} must have the shape of a, {x.aval}")
    edges = _bin_edges("histogram", x, bins, range)
    n = edges.size
    place = _bin_numbers(edges, as_array(x), n - 1)
    counts = shape.slice_axis(at(zeros(n, load.aval.dtype))[place].add(as_array(load), mode="drop"), 1, n, 0)
    if density:
        counts = true_divide(true_divide(counts, _bin_widths(edges)), sum(counts))
    return counts, edges


def _weighted_operands(name: str, a: ArrayLike, weights: ArrayLike | None) -> tuple[Value, Value]:
    if weights is None:
        x = to_inexact(a, f"{name}: a")
        return x, structural.full_like_aval(x.aval, 1)
    x, load = promote_dtypes(name, a, weights)
    if dtypes.is_inexact(x.aval.dtype):
        return x, load
    dtype = inexact_dtype(x.aval.dtype)
    return convert_dtype(x, dtype), convert_dtype(load, dtype)


def _bin_numbers(edges: Array, x: Array, last: int) -> Array:
    """The number of the bin, from 1; 0 before the first. The last edge is in bin `last`."""
    found = searchsorted(edges, x, "right")
    return broadcast_select(equal(x, getitem(edges, -1)), literal_like(found, last), found)


def _bin_widths(edges: Array) -> Array:
    n = edges.size
    return arithmetic.sub(shape.slice_axis(edges, 1, n, 0), shape.slice_axis(edges, 0, n - 1, 0))


def histogram2d(
    x: ArrayLike,
    y: ArrayLike,
    bins: BinSpec = 10,
    range: Sequence[BinRange] | None = None,
    weights: ArrayLike | None = None,
    density: bool | None = None,
) -> tuple[Array, Array, Array]:
    """A histogram of points in the plane, and its edges in both directions: as `histogramdd`.

    `bins` are a number or edges for both directions, or two of these.

    >>> counts, _, _ = histogram2d(np.array([0.0, 1.0]), np.array([0.0, 1.0]), 2)
    >>> counts.tolist()
    [[1, 0], [0, 1]]
    """
    points = promote_dtypes("histogram2d", x, y)
    for name, value in zip("xy", points, strict=True):
        if value.aval.ndim != 1 or value.aval.shape != points[0].aval.shape:
            raise ValueError(f"histogram2d: x and y must be vectors of one size, but {name} is {value.aval}")
    each = _list_bins(bins)
    if each is not None and len(each) not in (1, 2):  # edges for both
        edges = asarray(bins)
        bins = [edges, edges]
    counts, found = histogramdd(shape.stack(points, 1), bins, range, weights, density)
    return counts, found[0], found[1]


def _list_bins(bins: BinSpec) -> list[ArrayLike] | None:
    """What there is of a sequence, or an array with axes."""
    if isinstance(bins, Array | np.ndarray):
        return list(bins) if bins.ndim else None
    return list(bins) if isinstance(bins, Sequence) else None


def histogramdd(
    sample: ArrayLike,
    bins: BinSpec = 10,
    range: Sequence[BinRange] | None = None,
    weights: ArrayLike | None = None,
    density: bool | None = None,
) -> tuple[Array, list[Array]]:
    """How many of the points `sample`, one row each, fall into each box, and the edges along each axis.

    `bins` is the number of bins along every axis, or for each one a number or edges; `range` has for each axis the
    least and the greatest edge, or None. `weights` has one number for each point. With `density` the result is the
    share of each box over its volume.

    >>> counts, edges = histogramdd(np.array([[0.0, 0.0], [1.0, 1.0]]), 2)
    >>> counts.tolist(), edges[0].tolist()
    ([[1, 0], [0, 1]], [0.0, 0.5, 1.0])
    """
    points, load = _weighted_operands("histogramdd", sample, weights)
    if points.aval.ndim != 2:
        raise ValueError(f"histogramdd: sample must have a row for each point, got {points.aval}")
    count, d = points.aval.shape
    if weights is not None and load.aval.shape != (count,):
        raise ValueError(f"histogramdd: weights {load.aval} must have one number for each of {count} points")
    if range is not None and (len(range) != d or any(r is not None and len(r) != 2 for r in range)):
        raise ValueError(f"histogramdd: range must have for each of {d} axes two edges or None, got {range!r}")
    listed = _list_bins(bins)
    each: list[ArrayLike] = [bins] * d if listed is None else listed  # type: ignore[list-item]  # no sequence, then
    if len(each) != d:
        raise ValueError(f"histogramdd: bins must be a number, or one or edges for each of {d} axes, got {bins!r}")
    all_edges, places = [], None
    for i in builtins.range(d):
        along = getitem(as_array(points), (slice(None), i))
        edges = _bin_edges("histogramdd", along, each[i], None if range is None else range[i])
        found = _bin_numbers(edges, along, edges.size - 1)
        places = found if places is None else add(multiply(places, edges.size + 1), found)
        all_edges.append(edges)
    assert places is not None
    sizes = [edges.size + 1 for edges in all_edges]
    dtype = dtypes.default_int() if weights is None else load.aval.dtype
    one = structural.full_like_aval(ShapedArray((count,), dtype), 1) if weights is None else as_array(load)
    flat = at(zeros(math.prod(sizes), dtype))[places].add(one, mode="drop")
    counts = getitem(structural.reshape(flat, sizes), (slice(1, -1),) * d)
    if density:
        counts = as_array(convert_dtype(counts, points.aval.dtype))
        counts = true_divide(counts, sum(counts))
        for i, edges in enumerate(all_edges):
            widths = _bin_widths(edges)
            counts = true_divide(counts, structural.broadcast_in_dim(widths, counts.aval.shape, (i,)))
    return counts, all_edges
