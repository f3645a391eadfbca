"""Set operations: unique elements, unions, intersections, differences, membership.

Results are sorted: NaN last, complex numbers by their real and then by their imaginary parts. Their size depends on
values; for traced ones `size` must be given: further elements are dropped, and missing ones are `fill_value`, by
default the least element of the result.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple, SupportsIndex, final, overload
from typing import Literal as Exactly

import numpy as np
from attrs import frozen

from tracefx.core import Array, ArrayLike, ConcreteArray, Shape, ShapedArray, dtypes, from_numpy, to_numpy
from tracefx.core.handler import as_array, evaluating
from tracefx.core.kernel_context import call_kernel
from tracefx.numpy.creation import zeros
from tracefx.numpy.indexing import getitem, take
from tracefx.numpy.joining import concatenate
from tracefx.numpy.logic import isnan
from tracefx.numpy.mask_selection import concrete_values, fill_tail, flat_nonzero_indices, static_size
from tracefx.numpy.operand_promotion import as_operand, convert_dtype, promote_dtypes
from tracefx.numpy.reductions import any, cumsum
from tracefx.numpy.searching import searchsorted
from tracefx.numpy.shapes import moveaxis
from tracefx.numpy.sorting import lexsort
from tracefx.numpy.ufuncs import broadcast_select, literal_like
from tracefx.numpy.updates import at
from tracefx.ops import structural
from tracefx.ops.elementwise import arithmetic, bitwise, comparison, elementwise
from tracefx.ops.indexing import sorting
from tracefx.ops.reductions import cumulative
from tracefx.ops.shape import array_creation, shape
from tracefx.ops.static_integers import canonicalize_axis
from tracefx.ops.structural import full_like_aval
from tracefx.transforms.eager_calls import eager_cached

ISIN_COMPARE_ALL_LIMIT: Final = 64
"""The largest size of a set that is searched by comparing with all of its elements."""


class UniqueAll(NamedTuple):
    """The results of `unique_all`."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """The results of `unique_counts`."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """The results of `unique_inverse`."""

    values: Array
    inverse_indices: Array


# ------------------------------------------------------------------ unique elements


@overload
def unique(
    ar: ArrayLike,
    return_index: Exactly[False] = False,
    return_inverse: Exactly[False] = False,
    return_counts: Exactly[False] = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
    sorted: bool = True,
) -> Array: ...
@overload
def unique(
    ar: ArrayLike,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
    sorted: bool = True,
) -> Array | tuple[Array, ...]: ...
def unique(
    ar: ArrayLike,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
    sorted: bool = True,
) -> Array | tuple[Array, ...]:
    """Returns the unique elements of an array, sorted; with `axis`, its unique slices.

    Args:
        ar: The array.
        return_index: Whether to return the index of the first occurrence of each unique element.
        return_inverse: Whether to return, for each element of `ar`, its index among the unique elements.
        return_counts: Whether to return how often each unique element occurs.
        axis: The axis of the slices to compare; None means the elements of the flattened array.
        equal_nan: Whether NaN equals NaN.
        size: The static number of unique elements to return, which is required if `ar` is traced: further ones are
            dropped, missing ones filled. None means all.
        fill_value: The missing elements; None means the least element.
        sorted: Ignored: results are always sorted.

    Returns:
        The unique elements, or a tuple of them and the other arrays, in the order of the arguments.

    Raises:
        ConcretizationError: If `ar` is traced without `size`.

    >>> unique(np.array([3, 1, 3]))
    Array([1, 3], dtype=int32)
    >>> [x.tolist() for x in unique(np.array([3, 1, 3]), True, True, True)]
    [[1, 3], [1, 0], [1, 0, 1], [1, 2]]
    """
    del sorted  # results are always sorted
    runs = _sorted_runs("unique", ar, axis, equal_nan, size, return_index or return_inverse)
    outs = [runs.values(fill_value)]
    outs += [runs.indices()] if return_index else []
    outs += [runs.inverse()] if return_inverse else []
    outs += [runs.counts()] if return_counts else []
    return outs[0] if len(outs) == 1 else tuple(outs)


@final
@frozen(eq=False)
class SortedRuns:
    """An array sorted along one axis, divided into runs of equal rows."""

    rows: Array
    """The sorted rows, with the axis in front."""
    order: Array | None
    """The original index of each row."""
    axis: int | None
    shape: Shape
    """The shape of the array."""
    first: Array
    """The mask of the rows that begin a run."""
    run_starts: Array
    """The indices of these rows, cut off or padded with 0 to the given size."""
    count: Array | None
    """The number of runs, if the size is given."""

    def values(self, fill: ArrayLike | None) -> Array:
        """Returns the first row of each run."""
        if not self.first.size:
            if self.count is None or not self.run_starts.size:
                out = self.rows
            elif fill is None:
                raise ValueError(f"unique of no elements with size {self.run_starts.size}: pass fill_value")
            else:
                value = structural.convert(as_operand(fill, "unique: fill_value"), self.rows.aval.dtype)
                out = structural.broadcast_to(value, (self.run_starts.size, *self.rows.aval.shape[1:]))
        else:
            out = getitem(self.rows, self.run_starts)
            if self.count is not None and fill is not None:
                out = fill_tail(
                    out, structural.convert(as_operand(fill, "unique: fill_value"), out.aval.dtype), self.count
                )
        return out if not self.axis else moveaxis(out, 0, self.axis)

    def indices(self) -> Array:
        """Returns the original index of the first row of each run."""
        assert self.order is not None
        return getitem(self.order, self.run_starts) if self.first.size else self.order

    def inverse(self) -> Array:
        """Returns the number of the run of each original row."""
        assert self.order is not None
        dtype = dtypes.default_int()
        if self.axis is None:
            n, shape = math.prod(self.shape), self.shape
        else:
            n, shape = self.shape[self.axis], (self.shape[self.axis],)
        run_numbers = zeros(n, dtype)
        if self.first.size == n:
            numbers = cumsum(self.first, dtype=dtype)
            run_numbers = at(run_numbers)[self.order].set(
                arithmetic.sub(numbers, literal_like(numbers, 1)), unique_indices=True
            )
        return structural.reshape(run_numbers, shape)

    def counts(self) -> Array:
        """Returns the length of each run."""
        n, dtype = self.shape[self.axis] if self.axis is not None else math.prod(self.shape), dtypes.default_int()
        if not self.first.size:
            return zeros(self.run_starts.size, dtype)
        if self.first.size != n:  # rows without elements are all equal
            return full_like_aval(ShapedArray((1,), dtype), n)
        if self.count is None:
            ends = np.append(to_numpy(self.run_starts)[1:], n)
            return arithmetic.sub(from_numpy(ends.astype(dtype), dtype), self.run_starts)
        size = self.run_starts.size
        starts, _ = flat_nonzero_indices("unique", self.first, size + 1)
        bounds = fill_tail(starts, n, self.count)
        return arithmetic.sub(shape.slice_axis(bounds, 1, size + 1, 0), shape.slice_axis(bounds, 0, size, 0))


def _sorted_runs(
    name: str, ar: ArrayLike, axis: int | None, equal_nan: bool, size: SupportsIndex | None, ordered: bool
) -> SortedRuns:
    """Sorts an array and finds its runs of equal elements or slices."""
    x = as_array(as_operand(ar, f"{name}: ar"))
    if size is None:
        concrete_values(name, x)
    else:
        size = static_size(name, size)
    along = None if axis is None else canonicalize_axis(name, axis, x.aval.ndim)
    rows = structural.reshape(x, (x.aval.size,)) if along is None else moveaxis(x, along, 0)
    if dtypes.is_complex(x.aval.dtype):  # all complex NaNs become one
        rows = broadcast_select(isnan(rows), literal_like(rows, math.nan), rows)
    n, width = rows.aval.shape[0], math.prod(rows.aval.shape[1:])
    order: Array | None = None
    if n and not width:
        rows = shape.slice_axis(rows, 0, 1, 0)
        order = zeros(1, dtypes.default_int())
    elif rows.aval.ndim > 1:
        columns = structural.reshape(rows, (n, width))
        order = lexsort([getitem(columns, (slice(None), i)) for i in reversed(range(width))])
        rows = getitem(rows, order) if n else rows
    elif ordered:
        rows, order = sorting.sort_key_val(rows, array_creation.iota(dtypes.default_int(), n))
    else:
        rows = sorting.sort(rows)
    first = _run_starts(rows, equal_nan)
    places, count = flat_nonzero_indices(name, first, size)
    return SortedRuns(rows, order, along, x.aval.shape, first, places, count)


def _run_starts(rows: Array, equal_nan: bool) -> Array:
    """Returns the mask of the rows that differ from the one before."""
    n = rows.aval.shape[0]
    start = full_like_aval(ShapedArray((min(n, 1),), dtypes.bool_), True)
    if n < 2:
        return start
    before, after = shape.slice_axis(rows, 0, n - 1, 0), shape.slice_axis(rows, 1, n, 0)
    differs = comparison.ne(after, before)
    if equal_nan and dtypes.is_inexact(rows.aval.dtype):
        both = bitwise.bitwise_and(isnan(before), isnan(after))
        differs = bitwise.bitwise_and(differs, bitwise.bitwise_not(both))
    if differs.aval.ndim > 1:
        differs = any(differs, tuple(range(1, differs.aval.ndim)))
    return shape.concatenate([start, differs], 0)


def unique_all(x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None) -> UniqueAll:
    """Returns the unique elements of `x`, the indices of their first occurrences, the inverse indices, and the counts.

    Every NaN is unique.

    Args:
        x: The array.
        size: The static number of unique elements to return, which is required for traced arrays: further ones are
            dropped, missing ones filled. None means all.
        fill_value: The missing elements; None means the least element.

    Returns:
        A named tuple: `values`, `indices`, `inverse_indices`, `counts`.

    Raises:
        ConcretizationError: If `x` is traced without `size`.

    >>> [a.tolist() for a in unique_all(np.array([3, 1, 3]))]
    [[1, 3], [1, 0], [1, 0, 1], [1, 2]]
    """
    runs = _sorted_runs("unique_all", x, None, False, size, True)
    return UniqueAll(runs.values(fill_value), runs.indices(), runs.inverse(), runs.counts())


def unique_counts(x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None) -> UniqueCounts:
    """Returns the unique elements of `x` and how often each occurs.

    Every NaN is unique.

    Args:
        x: The array.
        size: The static number of unique elements to return, which is required for traced arrays: further ones are
            dropped, missing ones filled. None means all.
        fill_value: The missing elements; None means the least element.

    Returns:
        A named tuple: `values`, `counts`.

    Raises:
        ConcretizationError: If `x` is traced without `size`.

    >>> [a.tolist() for a in unique_counts(np.array([3, 1, 3]))]
    [[1, 3], [1, 2]]
    """
    runs = _sorted_runs("unique_counts", x, None, False, size, False)
    return UniqueCounts(runs.values(fill_value), runs.counts())


def unique_inverse(x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None) -> UniqueInverse:
    """Returns the unique elements of `x` and, for each element of `x`, its index among them.

    Every NaN is unique.

    Args:
        x: The array.
        size: The static number of unique elements to return, which is required for traced arrays: further ones are
            dropped, missing ones filled. None means all.
        fill_value: The missing elements; None means the least element.

    Returns:
        A named tuple: `values`, `inverse_indices`.

    Raises:
        ConcretizationError: If `x` is traced without `size`.

    >>> [a.tolist() for a in unique_inverse(np.array([3, 1, 3]))]
    [[1, 3], [1, 0, 1]]
    """
    runs = _sorted_runs("unique_inverse", x, None, False, size, True)
    return UniqueInverse(runs.values(fill_value), runs.inverse())


def unique_values(x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None) -> Array:
    """Returns the unique elements of `x`. Every NaN is unique.

    Args:
        x: The array.
        size: The static number of unique elements to return, which is required for traced arrays: further ones are
            dropped, missing ones filled. None means all.
        fill_value: The missing elements; None means the least element.

    Returns:
        A sorted vector.

    Raises:
        ConcretizationError: If `x` is traced without `size`.

    >>> unique_values(np.array([3, 1, 3]))
    Array([1, 3], dtype=int32)
    """
    return _sorted_runs("unique_values", x, None, False, size, False).values(fill_value)


# ------------------------------------------------------------------ two sets


def _flat_operands(
    name: str, ar1: ArrayLike, ar2: ArrayLike, size: SupportsIndex | None
) -> tuple[Array, Array, int | None]:
    """Returns two flattened operands and the size; raises ConcretizationError for tracers without a size."""
    operands = as_operand(ar1, f"{name}: ar1"), as_operand(ar2, f"{name}: ar2")
    if size is None:
        for value in operands:
            concrete_values(name, value)
    x, y = [structural.reshape(v, (v.aval.size,)) for v in operands]
    return x, y, None if size is None else static_size(name, size)


def _select_by_mask(
    name: str, x: Array, mask: Array, size: int | None, fill: ArrayLike | None
) -> tuple[Array, Array, Array | None]:
    """Returns the elements where a mask is true, their indices, and, if `size` is given, how many there are."""
    places, count = flat_nonzero_indices(name, mask, size)
    if count is None:
        return getitem(x, places), places, None
    if not x.aval.size or not size:
        out = zeros(places.aval.size, x.aval.dtype)
    else:
        out = getitem(x, places)
    if fill is None:
        least = getitem(out, 0) if size and x.aval.size else literal_like(out, 0)
        fill = broadcast_select(comparison.gt(count, literal_like(count, 0)), least, literal_like(out, 0))
    return fill_tail(out, as_array(fill) if isinstance(fill, Array) else fill, count), places, count


def union1d(ar1: ArrayLike, ar2: ArrayLike, *, size: int | None = None, fill_value: ArrayLike | None = None) -> Array:
    """Returns the unique elements that are in either array.

    Args:
        ar1: An array, which is flattened.
        ar2: Another.
        size: The static number of unique elements to return, which is required for traced arrays: further ones are
            dropped, missing ones filled. None means all.
        fill_value: The missing elements; None means the least element.

    Returns:
        A sorted vector of the promoted dtype.

    Raises:
        ConcretizationError: If an array is traced without `size`.

    >>> union1d(np.array([3, 1]), np.array([1, 2]))
    Array([1, 2, 3], dtype=int32)
    """
    x, y, _ = _flat_operands("union1d", ar1, ar2, size)
    return _sorted_runs("union1d", concatenate(promote_dtypes("union1d", x, y)), None, True, size, False).values(
        fill_value
    )


@overload
def intersect1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    return_indices: Exactly[False] = False,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Array: ...
@overload
def intersect1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    return_indices: bool = False,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Array | tuple[Array, Array, Array]: ...
def intersect1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    return_indices: bool = False,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Array | tuple[Array, Array, Array]:
    """Returns the unique elements that are in both arrays.

    Args:
        ar1: An array, which is flattened.
        ar2: Another.
        assume_unique: Promises that neither array has duplicates.
        return_indices: Whether to return the indices of the first occurrences in both arrays too.
        size: The static number of elements to return, which is required for traced arrays: further ones are dropped,
            missing ones filled. None means all.
        fill_value: The missing elements; None means the least element.

    Returns:
        A sorted vector of the promoted dtype; with `return_indices`, a tuple of it and two vectors of indices.

    Raises:
        ConcretizationError: If an array is traced without `size`.

    >>> intersect1d(np.array([3, 1, 3]), np.array([3, 2]))
    Array([3], dtype=int32)
    """
    del assume_unique
    x, y, count = _flat_operands("intersect1d", ar1, ar2, size)
    merged, order = _merge_sorted(x, y)
    n = merged.aval.size
    if n < 2:
        same = zeros(0, dtypes.bool_)
    else:
        equal = comparison.eq(shape.slice_axis(merged, 0, n - 1, 0), shape.slice_axis(merged, 1, n, 0))
        second = comparison.ge(order, structural.full_like_aval(order.aval, x.aval.size))
        from_both = comparison.lt(shape.slice_axis(second, 0, n - 1, 0), shape.slice_axis(second, 1, n, 0))
        same = bitwise.bitwise_and(equal, from_both)
    common, indices, common_count = _select_by_mask("intersect1d", merged, same, count, fill_value)
    if not return_indices:
        return common
    if not n:
        first, second = [structural.full_like_aval(indices.aval, v.aval.size) for v in (x, y)]
        return common, first, second
    first = _run_starts(merged, equal_nan=False)
    numbers = array_creation.iota(order.aval.dtype, n)
    starts = cumulative.cummax(broadcast_select(first, numbers, 0))
    in_x = take(order, take(starts, indices, mode="clip"), mode="clip")
    later = take(order, elementwise.add(indices, literal_like(indices, 1)), mode="clip")
    in_y = arithmetic.sub(later, literal_like(later, x.aval.size))
    if common_count is not None:
        in_x, in_y = fill_tail(in_x, x.aval.size, common_count), fill_tail(in_y, y.aval.size, common_count)
    return common, in_x, in_y


def _merge_sorted(x: Array, y: Array) -> tuple[Array, Array]:
    """Returns the elements of both arrays sorted, and their indices in the concatenated array."""
    both = concatenate(promote_dtypes("x1", x, y))
    return sorting.sort_key_val(both, array_creation.iota(dtypes.default_int(), both.aval.size))


def setxor1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Array:
    """Returns the unique elements that are in exactly one of the arrays.

    Args:
        ar1: An array, which is flattened.
        ar2: Another.
        assume_unique: Promises that neither array has duplicates.
        size: The static number of elements to return, which is required for traced arrays: further ones are dropped,
            missing ones filled. None means all.
        fill_value: The missing elements; None means the least element.

    Returns:
        A sorted vector of the promoted dtype.

    Raises:
        ConcretizationError: If an array is traced without `size`.

    >>> setxor1d(np.array([3, 1, 3]), np.array([3, 2]))
    Array([1, 2], dtype=int32)
    """
    del assume_unique
    x, y, count = _flat_operands("setxor1d", ar1, ar2, size)
    merged, order = _merge_sorted(x, y)
    n = merged.aval.size
    second = comparison.ge(order, structural.full_like_aval(order.aval, x.aval.size))
    begins = bitwise.bitwise_and(
        _run_starts(merged, equal_nan=False),
        bitwise.bitwise_or(_run_starts(merged, equal_nan=True), _run_starts(second, False)),
    )  # NaN equals NaN only within one array
    if n:
        ends = shape.concatenate(
            [shape.slice_axis(begins, 1, n, 0), full_like_aval(ShapedArray((1,), dtypes.bool_), True)], 0
        )
        numbers = array_creation.iota(order.aval.dtype, n)
        last = cumulative.cummin(broadcast_select(ends, numbers, n), reverse=True)
        alone = comparison.eq(second, take(second, last, mode="clip"))
        begins = bitwise.bitwise_and(begins, alone)
    return _select_by_mask("setxor1d", merged, begins, count, fill_value)[0]


def setdiff1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Array:
    """Returns the unique elements of `ar1` that are not in `ar2`.

    Args:
        ar1: An array, which is flattened.
        ar2: Another.
        assume_unique: Promises that `ar1` has no duplicates, whose order is then kept.
        size: The static number of elements to return, which is required for traced arrays: further ones are dropped,
            missing ones filled. None means all.
        fill_value: The missing elements; None means 0.

    Returns:
        A vector of the dtype of `ar1`.

    Raises:
        ConcretizationError: If an array is traced without `size`.

    >>> setdiff1d(np.array([3, 1, 3]), np.array([3, 2]))
    Array([1], dtype=int32)
    """
    x, y, count = _flat_operands("setdiff1d", ar1, ar2, size)
    missing = bitwise.bitwise_not(_contains("setdiff1d", x, y, "auto"))
    if not assume_unique:
        x, sorted_missing = sorting.sort_key_val(x, missing)
        missing = bitwise.bitwise_and(_run_starts(x, equal_nan=True), sorted_missing)
    filler = convert_dtype(as_operand(0 if fill_value is None else fill_value, "setdiff1d: fill_value"), x.aval.dtype)
    return _select_by_mask("setdiff1d", x, missing, count, filler)[0]


# ------------------------------------------------------------------ membership


@eager_cached
def isin(
    element: ArrayLike,
    test_elements: ArrayLike,
    assume_unique: bool = False,
    invert: bool = False,
    *,
    method: str = "auto",
) -> Array:
    """Returns, for each element, whether it is in a set of elements.

    Args:
        element: The elements to look up.
        test_elements: The set. NaN is in no set.
        assume_unique: Promises that neither array has duplicates.
        invert: Whether to return where elements are not in the set.
        method: The algorithm, which makes no difference to the result: `"compare_all"`, `"binary_search"`, `"sort"`, or
            `"auto"`, which compares with all elements of small sets.

    Returns:
        An array of bools of the shape of `element`.

    Raises:
        ValueError: If the method is unknown.

    >>> isin(np.array([1, 2, 3]), np.array([3, 1]))
    Array([ True, False,  True], dtype=bool)
    """
    del assume_unique
    x, y = as_operand(element, "isin: element"), as_operand(test_elements, "isin: test_elements")
    contained = _contains("isin", structural.reshape(x, (x.aval.size,)), structural.reshape(y, (y.aval.size,)), method)
    return structural.reshape(bitwise.bitwise_not(contained) if invert else contained, x.aval.shape)


def _contains(name: str, elements: Array, among: Array, method: str) -> Array:
    if method not in _METHODS:
        raise ValueError(f"{name}: method must be one of {', '.join(_METHODS)}, got {method!r}")
    x, y = [as_array(v) for v in promote_dtypes(name, elements, among)]
    n, m = x.aval.size, y.aval.size
    if not n or not m:
        return full_like_aval(ShapedArray((n,), dtypes.bool_), False)
    if type(x) is ConcreteArray and type(y) is ConcreteArray and evaluating() and x.aval.dtype.kind in "biuf":
        contained = call_kernel(np.isin, x.numpy(), y.numpy())
        return ConcreteArray(ShapedArray((n,), dtypes.bool_), contained)
    if method == "compare_all" or (method == "auto" and m <= ISIN_COMPARE_ALL_LIMIT):
        rows, columns = structural.broadcast_in_dim(x, (n, m), (0,)), structural.broadcast_in_dim(y, (n, m), (1,))
        return any(comparison.eq(rows, columns), 1)
    y = sorting.sort(y)
    position = searchsorted(y, x, method="sort" if method == "sort" else "scan")
    return comparison.eq(x, take(y, position, mode="clip"))


_METHODS: Final = ("auto", "compare_all", "binary_search", "sort")
