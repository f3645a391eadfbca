"""Classes as vectors."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, SupportsIndex

import tracefx.numpy as fnp
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.dtypes import DTypeLike
from tracefx.core.handler import as_array
from tracefx.core.values import as_value
from tracefx.ops.collectives import collective
from tracefx.ops.elementwise import comparison
from tracefx.ops.shape import shape
from tracefx.ops.shape.array_creation import broadcasted_iota
from tracefx.ops.static_integers import canonicalize_axis, static_int


def one_hot(
    x: ArrayLike | Sequence[Any],
    num_classes: SupportsIndex,
    *,
    dtype: DTypeLike | None = None,
    axis: SupportsIndex | Hashable = -1,
) -> Array:
    """For each integer of `x` a vector with 1 at that place and 0 elsewhere, along a new axis; all 0 beyond the ends.

    `axis` may be the name of a mapped axis of size `num_classes`, along which the vector is spread. The dtype is the
    default float unless given. TypeError for numbers that are no integers.

    >>> one_hot(fnp.array([0, 2]), 3).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    value = as_array(fnp.asarray(x) if isinstance(x, list | tuple) else as_value(x, "one_hot: x"))  # type: ignore[arg-type]  # refused there
    if not dtypes.is_integer(value.aval.dtype):
        raise TypeError(f"one_hot: x must be of integers, got {value.aval}; convert it with astype")
    count = static_int("one_hot", num_classes, "num_classes")
    new = dtypes.default_float() if dtype is None else dtypes.as_dtype(dtype, "one_hot: dtype")
    if not isinstance(axis, SupportsIndex):
        size = collective.axis_size(axis)
        if size != count:
            raise ValueError(f"one_hot: num_classes {count} must be the size of the axis {axis!r}, which is {size}")
        return fnp.astype(fnp.equal(value, collective.axis_index(axis)), new)
    place = canonicalize_axis("one_hot", axis, value.aval.ndim + 1)
    rows = shape.expand_dims(value, (place,))
    sizes = [*value.aval.shape[:place], count, *value.aval.shape[place:]]
    classes = broadcasted_iota(value.aval.dtype, sizes, place)
    return fnp.astype(comparison.eq(fnp.broadcast_to(rows, sizes), classes), new)
