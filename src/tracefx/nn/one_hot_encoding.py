"""`one_hot`: one-hot encoding of class indices."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, SupportsIndex

import tracefx.numpy as fnp
from tracefx.core import Array, ArrayLike, DTypeLike, as_value, dtypes
from tracefx.core.handler import as_array
from tracefx.core.named_sharding import OutSharding
from tracefx.ops.collectives import collective
from tracefx.ops.elementwise import comparison
from tracefx.ops.indexing.dynamic_slicing import widen_indices
from tracefx.ops.shape import shape
from tracefx.ops.shape.array_creation import broadcasted_iota
from tracefx.ops.static_integers import canonicalize_axis, static_int


def one_hot(
    x: ArrayLike | Sequence[Any],
    num_classes: SupportsIndex,
    *,
    dtype: DTypeLike | None = None,
    axis: SupportsIndex | Hashable = -1,
    out_sharding: OutSharding = None,
) -> Array:
    """Encodes class indices as one-hot vectors: 1 at the index and 0 elsewhere, along a new axis.

    Args:
        x: an array of integers, or of floats with their values. Indices outside of `0 <= x < num_classes` give vectors
            of zeros.
        num_classes: the size of the vectors.
        dtype: the dtype of the result; the default float dtype by default.
        axis: the position of the new axis; or the name of a mapped axis of size `num_classes`, along which the vectors
            are distributed.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        `dtype[..., num_classes]`; for a named axis an array of the shape of `x`.

    Raises:
        TypeError: if `x` has neither an integer nor a float dtype.
        ValueError: if `num_classes` is not the size of the named axis.

    >>> one_hot(fnp.array([0, 2]), 3).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    value = as_array(fnp.asarray(x) if isinstance(x, list | tuple) else as_value(x, "one_hot: x"))
    if not dtypes.is_integer(value.aval.dtype) and not dtypes.is_float(value.aval.dtype):
        raise TypeError(f"one_hot: x must have an integer or float dtype, got {value.aval}; convert it with astype")
    value = as_array(widen_indices(value))
    count = static_int("one_hot", num_classes, "num_classes")
    result_dtype = dtypes.default_float() if dtype is None else dtypes.as_dtype(dtype, "one_hot: dtype")
    if not isinstance(axis, int) and not isinstance(axis, SupportsIndex):  # the latter takes 3 µs
        size = collective.axis_size(axis)
        if size != count:
            raise ValueError(f"one_hot: num_classes {count} must be the size of the axis {axis!r}, which is {size}")
        return fnp.astype(fnp.equal(value, collective.axis_index(axis)), result_dtype)
    canonical_axis = canonicalize_axis("one_hot", axis, value.aval.ndim + 1)
    rows = shape.expand_dims(value, (canonical_axis,))
    sizes = [*value.aval.shape[:canonical_axis], count, *value.aval.shape[canonical_axis:]]
    classes = broadcasted_iota(value.aval.dtype, sizes, canonical_axis)
    return fnp.astype(comparison.eq(fnp.broadcast_to(rows, sizes), classes), result_dtype)
