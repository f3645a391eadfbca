"""Histograms: `bincount` of integers, histograms of numbers in one or more dimensions.

A bin includes its lower edge; the last bin includes its upper edge too.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from tracefx.core import Array, ArrayLike, ShapedArray, Value, dtypes
from tracefx.core.handler import as_array
from tracefx.core.named_sharding import OutSharding
from tracefx.numpy.creation import asarray, zeros
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
from tracefx.numpy.ranges import linspace
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


def bincount(
    x: ArrayLike,
    weights: ArrayLike | None = None,
    minlength: int = 0,
    *,
    length: int | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Returns how often each of the integers 0, 1, 2, ... occurs in `x`, or the sums of their weights.

    Args:
        x: A vector of integers. Negative ones count as 0.
        weights: A weight for each element of `x`; None counts elements.
        minlength: The minimal length of the result, which otherwise ends at the maximum of `x`.
        length: The length of the result, which must be given if `x` is traced; larger integers are dropped.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        A vector of integers, or of the dtype of the weights.

    Raises:
        TypeError: If `x` is not of integers.
        ValueError: If `x` is not a vector, or `weights` has another shape.

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
        concrete = concrete_values("bincount", value, "pass length=")
        size = builtins.max(least, int(concrete.max()) + 1 if concrete.size else 0, 0)
    else:
        size = static_int("bincount", length, "length")
    if weights is None:
        weights_: Value = structural.full_like_aval(ShapedArray((), dtypes.default_int()), 1)
    else:
        weights_ = as_operand(weights, "bincount: weights")
        if weights_.aval.shape != value.aval.shape:
            raise ValueError(f"bincount: weights {weights_.aval} must have the shape of x, {value.aval}")
    bins = clip(value, 0, None) if dtypes.is_signed(value.aval.dtype) else as_array(value)
    return at(zeros(size, weights_.aval.dtype))[bins].add(as_array(weights_), mode="drop")


def histogram_bin_edges(
    a: ArrayLike, bins: ArrayLike = 10, range: BinRange = None, weights: ArrayLike | None = None
) -> Array:
    """Returns the edges of the bins of a histogram.

    Args:
        a: The array.
        bins: The number of bins of equal width, or a vector of edges, which is returned.
        range: The first and the last edge; None means the minimum and the maximum of `a`.
        weights: Ignored.

    Returns:
        A vector of floats, one longer than there are bins.

    Raises:
        NotImplementedError: If `bins` is the name of a rule for the number of bins.

    >>> histogram_bin_edges(np.array([0.0, 2.0]), 2)
    Array([0., 1., 2.], dtype=float32)
    """
    del weights
    return _bin_edges("histogram_bin_edges", as_operand(a, "histogram_bin_edges: a"), bins, range)


def _is_name(bins: object) -> bool:
    return isinstance(bins, str)


def _bin_edges(name: str, x: Value, bins: ArrayLike, range: BinRange) -> Array:
    if _is_name(bins):
        raise NotImplementedError(f"{name}: bins must be a number or edges; rules such as {bins!r} are not implemented")
    dtype = inexact_dtype(x.aval.dtype)
    bins_ = as_operand(bins, f"{name}: bins")
    if bins_.aval.ndim == 1:
        return as_array(convert_operand(bins_, dtype, what=f"{name}: bins"))
    count = static_int(name, bins, "bins")
    if range is not None:
        ends = asarray(range, dtype)
        if ends.shape != (2,):
            raise ValueError(f"{name}: range must be the least and the greatest edge, got {range!r}")
        low, high = getitem(ends, 0), getitem(ends, 1)
    elif x.aval.size:
        low, high = [as_array(convert_dtype(extreme, dtype)) for extreme in (min(x), max(x))]
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
    out_sharding: OutSharding = None,
) -> tuple[Array, Array]:
    """Returns the number of elements in each bin, as floats, and the edges of the bins.

    Elements outside of all bins are not counted.

    Args:
        a: The array.
        bins: The number of bins of equal width, or a vector of edges.
        range: The first and the last edge; None means the minimum and the maximum of `a`.
        weights: A weight for each element, in place of 1; None counts elements.
        density: Whether to return densities: the fraction of each bin divided by its width.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        A pair of vectors, of which the edges are one longer.

    Raises:
        ValueError: If `weights` does not have the shape of `a`.

    >>> counts, edges = histogram(np.array([0.0, 0.5, 2.0]), 2)
    >>> counts.tolist(), edges.tolist()
    ([2.0, 1.0], [0.0, 1.0, 2.0])
    """
    x, weights_ = _weighted_operands("histogram", a, weights)
    if weights is not None and weights_.aval.shape != x.aval.shape:
        raise ValueError(f"histogram: weights {weights_.aval} must have the shape of a, {x.aval}")
    edges = _bin_edges("histogram", x, bins, range)
    n = edges.size
    bin_numbers = _bin_numbers(edges, as_array(x), n - 1)
    counts = shape.slice_axis(
        at(zeros(n, weights_.aval.dtype))[bin_numbers].add(as_array(weights_), mode="drop"), 1, n, 0
    )
    if density:
        counts = true_divide(true_divide(counts, _bin_widths(edges)), sum(counts))
    return counts, edges


def _weighted_operands(name: str, a: ArrayLike, weights: ArrayLike | None) -> tuple[Value, Value]:
    """Returns the samples and their weights (ones if None), promoted to a float dtype."""
    if weights is None:
        x = to_inexact(a, f"{name}: a")
        return x, structural.full_like_aval(x.aval, 1)
    x, weights_ = promote_dtypes(name, a, weights)
    if dtypes.is_inexact(x.aval.dtype):
        return x, weights_
    dtype = inexact_dtype(x.aval.dtype)
    return convert_dtype(x, dtype), convert_dtype(weights_, dtype)


def _bin_numbers(edges: Array, x: Array, last: int) -> Array:
    """Returns the number of each element's bin, from 1; 0 below the first. The last edge belongs to bin `last`."""
    numbers = searchsorted(edges, x, "right")
    return broadcast_select(equal(x, getitem(edges, -1)), literal_like(numbers, last), numbers)


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
    """Returns the histogram of points in the plane, and the edges along both axes.

    Args:
        x: The first coordinates, a vector.
        y: The second coordinates.
        bins: A number of bins or a vector of edges for both axes, or a pair with one for each axis.
        range: For each axis the first and the last edge, or None for those of the points; None means None for both.
        weights: A weight for each point; None counts points.
        density: Whether to return densities: the fraction of each box divided by its area.

    Returns:
        The histogram, `f32[n, m]`, and the edges along both axes.

    Raises:
        ValueError: If `x` and `y` are not vectors of one size, or `range` does not fit.

    >>> counts, _, _ = histogram2d(np.array([0.0, 1.0]), np.array([0.0, 1.0]), 2)
    >>> counts.tolist()
    [[1, 0], [0, 1]]
    """
    points = promote_dtypes("histogram2d", x, y)
    for name, value in zip("xy", points, strict=True):
        if value.aval.ndim != 1 or value.aval.shape != points[0].aval.shape:
            raise ValueError(f"histogram2d: x and y must be vectors of one size, but {name} is {value.aval}")
    if len(_bins_of_axes(bins, 2)) not in (1, 2):  # edges for both
        edges = asarray(bins)
        bins = [edges, edges]
    counts, edges_list = histogramdd(shape.stack(points, 1), bins, range, weights, density)
    return counts, edges_list[0], edges_list[1]


def _bins_of_axes(bins: BinSpec, d: int) -> list[ArrayLike]:
    """Returns the elements of a sequence or of an array with axes, otherwise `bins` for each of `d` axes."""
    if isinstance(bins, Sequence):
        return list(bins)
    return list(bins) if isinstance(bins, Array | np.ndarray) and bins.ndim else [bins] * d


def histogramdd(
    sample: ArrayLike,
    bins: BinSpec = 10,
    range: Sequence[BinRange] | None = None,
    weights: ArrayLike | None = None,
    density: bool | None = None,
) -> tuple[Array, list[Array]]:
    """Returns the number of points in each box, and the list of edges along each axis.

    Args:
        sample: The points, `f32[points, dimensions]`.
        bins: The number of bins along every axis, or a list with a number or edges for each axis.
        range: For each axis the first and the last edge, or None for those of the points; None means None for all.
        weights: A weight for each point; None counts points.
        density: Whether to return densities: the fraction of each box divided by its volume.

    Returns:
        The histogram, with an axis for each dimension, and the list of edges.

    Raises:
        ValueError: If `sample` is not a matrix, or another argument does not fit it.

    >>> counts, edges = histogramdd(np.array([[0.0, 0.0], [1.0, 1.0]]), 2)
    >>> counts.tolist(), edges[0].tolist()
    ([[1, 0], [0, 1]], [0.0, 0.5, 1.0])
    """
    points, weights_ = _weighted_operands("histogramdd", sample, weights)
    if points.aval.ndim != 2:
        raise ValueError(f"histogramdd: sample must have a row for each point, got {points.aval}")
    count, d = points.aval.shape
    if weights is not None and weights_.aval.shape != (count,):
        raise ValueError(f"histogramdd: weights {weights_.aval} must have one number for each of {count} points")
    if range is not None and (len(range) != d or any(r is not None and len(r) != 2 for r in range)):
        raise ValueError(f"histogramdd: range must have for each of {d} axes two edges or None, got {range!r}")
    each = _bins_of_axes(bins, d)
    if len(each) != d:
        raise ValueError(f"histogramdd: bins must be a number, or one or edges for each of {d} axes, got {bins!r}")
    all_edges, box_numbers = [], None
    for i in builtins.range(d):
        along = getitem(as_array(points), (slice(None), i))
        edges = _bin_edges("histogramdd", along, each[i], None if range is None else range[i])
        numbers = _bin_numbers(edges, along, edges.size - 1)
        box_numbers = numbers if box_numbers is None else add(multiply(box_numbers, edges.size + 1), numbers)
        all_edges.append(edges)
    assert box_numbers is not None
    sizes = [edges.size + 1 for edges in all_edges]
    dtype = dtypes.default_int() if weights is None else weights_.aval.dtype
    one = structural.full_like_aval(ShapedArray((count,), dtype), 1) if weights is None else as_array(weights_)
    flat = at(zeros(math.prod(sizes), dtype))[box_numbers].add(one, mode="drop")
    counts = getitem(structural.reshape(flat, sizes), (slice(1, -1),) * d)
    if density:
        counts = as_array(convert_dtype(counts, points.aval.dtype))
        counts = true_divide(counts, sum(counts))
        for i, edges in enumerate(all_edges):
            widths = _bin_widths(edges)
            counts = true_divide(counts, structural.broadcast_in_dim(widths, counts.aval.shape, (i,)))
    return counts, all_edges
