"""`full` and `full_like`: arrays filled with one value, with a sharding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsIndex

from tracefx.core import Array, ArrayLike, DTypeLike, Shape
from tracefx.core.sharding import Sharding
from tracefx.ops.duck_typing import DuckTypedArray, array_type
from tracefx.ops.shape import array_creation
from tracefx.transforms.devices import device_put
from tracefx.transforms.shardings import committed_sharding


def full(
    shape: Sequence[int] | SupportsIndex,
    fill_value: ArrayLike,
    dtype: DTypeLike | None = None,
    *,
    sharding: Sharding | None = None,
) -> Array:
    """Returns an array filled with `fill_value`.

    Args:
        shape: The shape, or the size of one axis; static.
        fill_value: A scalar.
        dtype: The dtype of the result. None, the default, means that of `fill_value`.
        sharding: The sharding of the result. None, the default, leaves it uncommitted. While a function is traced, it
            constrains the sharding.

    Returns:
        An array of this shape and dtype.

    Raises:
        TypeError: `fill_value` is not a scalar, a size is not a static integer, or `sharding` is not a sharding.
        ValueError: The array cannot be divided as the sharding requires.

    >>> full((2,), 1.5)
    Array([1.5, 1.5], dtype=float32, weak_type=True)
    """
    return _with_sharding("full", array_creation.full(shape, fill_value, dtype), sharding)


def full_like(
    x: ArrayLike | DuckTypedArray,
    fill_value: ArrayLike,
    dtype: DTypeLike | None = None,
    shape: Sequence[int] | None = None,
    sharding: Sharding | None = None,
) -> Array:
    """Returns an array with the shape and dtype of `x`, filled with `fill_value`.

    Args:
        x: An array, a number, or an object with a shape and a dtype, for example a `ShapeDtypeStruct`.
        fill_value: A scalar.
        dtype: Another dtype for the result. None, the default, means that of `x`, weak type included.
        shape: Another shape for the result. None, the default, means that of `x`.
        sharding: The sharding of the result. None, the default, means that of a committed `x`, if the shapes are equal
            or every device has all of `x`.

    Returns:
        An array.

    Raises:
        TypeError: `x` has no shape and dtype, `fill_value` is not a scalar, a size is not a static integer, or
            `sharding` is not a sharding.
        ValueError: The array cannot be divided as the sharding requires.

    >>> import numpy as np
    >>> full_like(np.arange(2), 7)
    Array([7, 7], dtype=int32)
    """
    out = array_creation.full_like(x, fill_value, dtype, shape)
    return _with_sharding("full_like", out, sharding_like(x, out.shape) if sharding is None else sharding)


def sharding_like(x: ArrayLike | DuckTypedArray, shape: Shape) -> Sharding | None:
    """Returns the sharding of `x` for a new array of the given shape; None if `x` has none or it does not apply.

    Arrays that are committed and types such as `ShapeDtypeStruct` have one.
    """
    sharding = committed_sharding(x) if isinstance(x, Array) else getattr(x, "sharding", None)
    if not isinstance(sharding, Sharding):
        return None
    return sharding if array_type(x, "like").shape == shape or sharding.is_fully_replicated else None


def _with_sharding(name: str, x: Array, sharding: Sharding | None) -> Array:
    if sharding is None:
        return x
    if not isinstance(sharding, Sharding):
        raise TypeError(f"{name}: sharding must be a sharding or None, got {sharding!r}")
    return device_put(x, sharding)
