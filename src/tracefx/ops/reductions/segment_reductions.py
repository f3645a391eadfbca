"""Segment reductions: `segment_sum`, `segment_prod`, `segment_max`, `segment_min`."""

from __future__ import annotations

from collections.abc import Callable
from typing import SupportsIndex, final

import numpy as np
from attrs import frozen

from tracefx.core import Array, ArrayLike, DType, Scalar, Shape, Value, as_value, dtypes
from tracefx.core.handler import as_array
from tracefx.core.named_sharding import OutSharding
from tracefx.errors import ShapeError
from tracefx.ops.indexing.gather_scatter_add import ScatterDimensionNumbers
from tracefx.ops.indexing.indexed_windows import GatherScatterMode
from tracefx.ops.indexing.scatter import scatter_add, scatter_max, scatter_min, scatter_mul
from tracefx.ops.monoids import ADD, MAXIMUM, MINIMUM, MULTIPLY
from tracefx.ops.reductions.reduction import reduce_max, reduce_min, reduce_prod
from tracefx.ops.shape.array_creation import full
from tracefx.ops.shape.shape import concatenate, expand_dims
from tracefx.ops.static_integers import static_count, static_int
from tracefx.ops.structural import broadcast_in_dim, convert, reduce_sum


@final
@frozen(eq=False)
class SegmentReduction:
    """How the elements of a segment are combined, and the value of an empty segment."""

    name: str
    scatter: Callable[..., Array]
    reduce: Callable[..., Array]
    empty: Callable[[DType], Scalar]


SEGMENT_SUM = SegmentReduction("segment_sum", scatter_add, reduce_sum, ADD.identity)
SEGMENT_PROD = SegmentReduction("segment_prod", scatter_mul, reduce_prod, MULTIPLY.identity)
SEGMENT_MAX = SegmentReduction("segment_max", scatter_max, reduce_max, MAXIMUM.identity)
SEGMENT_MIN = SegmentReduction("segment_min", scatter_min, reduce_min, MINIMUM.identity)


def segment_sum(
    data: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: GatherScatterMode | str | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Returns the sums of the elements of `data` that have equal segment ids.

    Args:
        data: Array `f32[n, ...]` of numbers.
        segment_ids: Integers `i32[n]`: the segment of each element of `data`.
        num_segments: The number of segments, `s`. None, the default, means one more than the largest id, and needs
            concrete ids.
        indices_are_sorted: Whether the ids are known to be sorted, which permits faster code. False by default.
        unique_indices: Whether the ids are known to be distinct, which permits faster code. False by default.
        bucket_size: If given, sums are computed over buckets of so many elements and then added, which is more precise.
        mode: What to do with ids out of range. By default they are dropped; "clip" assigns them to the nearest segment.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        An array `f32[s, ...]`; empty segments are 0.

    Raises:
        TypeError: The ids are not integers, or `data` is boolean.
        ValueError: `num_segments` is negative, `bucket_size` is not positive, or the shapes don't fit.

    >>> segment_sum(np.array([1, 2, 3]), np.array([0, 2, 2])).tolist()
    [1, 0, 5]
    """
    return _segment_reduce(
        SEGMENT_SUM, data, segment_ids, num_segments, indices_are_sorted, unique_indices, bucket_size, mode
    )


def segment_prod(
    data: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: GatherScatterMode | str | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Returns the products of the elements of `data` that have equal segment ids; empty segments are 1.

    It is differentiable with `unique_indices=True`.

    Args:
        data: Array `f32[n, ...]` of numbers.
        segment_ids: Integers `i32[n]`: the segment of each element of `data`.
        num_segments: The number of segments, `s`. None, the default, means one more than the largest id, and needs
            concrete ids.
        indices_are_sorted: Whether the ids are known to be sorted, which permits faster code. False by default.
        unique_indices: Whether the ids are known to be distinct, which permits faster code. False by default.
        bucket_size: If given, results are computed for buckets of so many elements and then combined.
        mode: What to do with ids out of range. By default they are dropped; "clip" assigns them to the nearest segment.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        An array `f32[s, ...]`.

    Raises:
        TypeError: The ids are not integers, or `data` is boolean.
        ValueError: `num_segments` is negative, `bucket_size` is not positive, or the shapes don't fit.

    >>> segment_prod(np.array([2, 2, 3]), np.array([0, 2, 2])).tolist()
    [2, 1, 6]
    """
    return _segment_reduce(
        SEGMENT_PROD, data, segment_ids, num_segments, indices_are_sorted, unique_indices, bucket_size, mode
    )


def segment_max(
    data: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: GatherScatterMode | str | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Returns the maximum of the elements of `data` that have equal segment ids.

    Empty segments are the dtype's least value.

    Args:
        data: Array `f32[n, ...]` of numbers or booleans.
        segment_ids: Integers `i32[n]`: the segment of each element of `data`.
        num_segments: The number of segments, `s`. None, the default, means one more than the largest id, and needs
            concrete ids.
        indices_are_sorted: Whether the ids are known to be sorted, which permits faster code. False by default.
        unique_indices: Whether the ids are known to be distinct, which permits faster code. False by default.
        bucket_size: If given, results are computed for buckets of so many elements and then combined.
        mode: What to do with ids out of range. By default they are dropped; "clip" assigns them to the nearest segment.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        An array `f32[s, ...]`.

    Raises:
        TypeError: The ids are not integers.
        ValueError: `num_segments` is negative, `bucket_size` is not positive, or the shapes don't fit.

    >>> segment_max(np.array([1.0, 2.0, 3.0]), np.array([0, 2, 2])).tolist()
    [1.0, -inf, 3.0]
    """
    return _segment_reduce(
        SEGMENT_MAX, data, segment_ids, num_segments, indices_are_sorted, unique_indices, bucket_size, mode
    )


def segment_min(
    data: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: GatherScatterMode | str | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Returns the minimum of the elements of `data` that have equal segment ids.

    Empty segments are the dtype's greatest value.

    Args:
        data: Array `f32[n, ...]` of numbers or booleans.
        segment_ids: Integers `i32[n]`: the segment of each element of `data`.
        num_segments: The number of segments, `s`. None, the default, means one more than the largest id, and needs
            concrete ids.
        indices_are_sorted: Whether the ids are known to be sorted, which permits faster code. False by default.
        unique_indices: Whether the ids are known to be distinct, which permits faster code. False by default.
        bucket_size: If given, results are computed for buckets of so many elements and then combined.
        mode: What to do with ids out of range. By default they are dropped; "clip" assigns them to the nearest segment.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        An array `f32[s, ...]`.

    Raises:
        TypeError: The ids are not integers.
        ValueError: `num_segments` is negative, `bucket_size` is not positive, or the shapes don't fit.

    >>> segment_min(np.array([1.0, 2.0, 3.0]), np.array([0, 2, 2])).tolist()
    [1.0, inf, 2.0]
    """
    return _segment_reduce(
        SEGMENT_MIN, data, segment_ids, num_segments, indices_are_sorted, unique_indices, bucket_size, mode
    )


def _segment_reduce(
    how: SegmentReduction,
    data: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: SupportsIndex | None,
    indices_are_sorted: bool,
    unique_indices: bool,
    bucket_size: SupportsIndex | None,
    mode: GatherScatterMode | str | None,
) -> Array:
    """Reduces `data` by segment: validates the arguments of the public functions, then scatters."""
    x, ids = as_value(data, f"{how.name}: data"), as_value(segment_ids, f"{how.name}: segment_ids")
    if not dtypes.is_integer(ids.aval.dtype):
        raise TypeError(f"{how.name}: segment_ids must be integers, got {ids.aval}")
    count = (
        _num_segments(how.name, ids) if num_segments is None else static_count(how.name, num_segments, "num_segments")
    )
    dtype, element_shape = x.aval.dtype, x.aval.shape[1:]
    if how in (SEGMENT_SUM, SEGMENT_PROD) and dtypes.is_bool(dtype):
        raise TypeError(f"{how.name} takes numbers, got {x.aval}; convert it first with astype")
    updates = _broadcast_data(how.name, convert(x, dtype), (*ids.aval.shape, *element_shape))
    window = tuple(range(ids.aval.ndim, updates.aval.ndim))
    flags = {"indices_are_sorted": indices_are_sorted, "unique_indices": unique_indices, "mode": mode}
    if bucket_size is None:
        indices = expand_dims(ids, (ids.aval.ndim,))
        into = ScatterDimensionNumbers(window, (0,), (0,))
        return how.scatter(full((count, *element_shape), how.empty(dtype), dtype), indices, updates, into, **flags)
    size = static_int(how.name, bucket_size, "bucket_size")
    if size < 1:
        raise ValueError(f"{how.name}: bucket_size must be positive, got {size}")
    if ids.aval.ndim != 1:
        raise ShapeError(f"{how.name}: with bucket_size, segment_ids must have one axis, got {ids.aval}")
    (n,) = ids.aval.shape
    buckets = np.arange(n, dtype=ids.aval.dtype) // ids.aval.dtype.type(size)
    indices = concatenate([expand_dims(buckets, (1,)), expand_dims(ids, (1,))], 1)
    start = full((-(-n // size), count, *element_shape), how.empty(dtype), dtype)
    into = ScatterDimensionNumbers(window, (0, 1), (0, 1))
    return how.reduce(how.scatter(start, indices, updates, into, **flags), (0,))


def _num_segments(name: str, ids: Value) -> int:
    """Returns the number of segments such that every id has one; `ids` must be concrete."""
    if not ids.aval.size:
        raise ValueError(f"{name}: num_segments must be given if segment_ids is empty")
    return int(np.max(np.asarray(as_array(ids)))) + 1


def _broadcast_data(name: str, x: Value, shape: Shape) -> Array:
    """Returns `x` broadcast to `shape`."""
    sizes = x.aval.shape
    first = len(shape) - len(sizes)
    if first < 0 or any(n not in (1, m) for n, m in zip(sizes, shape[first:], strict=True)):
        raise ShapeError(f"{name}: data {x.aval} must have a shape that broadcasts to {shape}, that of segment_ids")
    return broadcast_in_dim(x, shape, range(first, len(shape)))
