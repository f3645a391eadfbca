"""`typeof`, and the protocol of objects that have a shape and a dtype but no data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeGuard

from tracefx.core import dtypes
from tracefx.core.array import ArrayLike, is_convertible
from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import DTypeLike
from tracefx.core.values import Value, as_value
from tracefx.ops.operation import static_shape


class DuckTypedArray(Protocol):
    """An object with the shape and dtype of an array but no data, for example a `ShapeDtypeStruct`."""

    @property
    def shape(self) -> Sequence[int]: ...
    @property
    def dtype(self) -> DTypeLike: ...


def typeof(x: ArrayLike | DuckTypedArray, what: str = "typeof: argument") -> ShapedArray:
    """Returns the abstract value (shape, dtype and weak type) of `x`.

    Args:
        x: An array, a number, a tracer, or an object with `shape` and `dtype`.
        what: How error messages name the argument.

    Returns:
        The aval. Inside a checked `shard_map`, its `vma` names the mesh axes over which the array may vary from
        device to device.

    Raises:
        TypeError: `x` is neither an array nor has a shape and a dtype.

    >>> typeof(2.0)
    f32[]*
    """
    if isinstance(x, Value):
        return x.aval
    if _is_duck_typed(x):
        return ShapedArray(static_shape(what, x.shape), dtypes.as_dtype(x.dtype, what), getattr(x, "weak_type", False))
    return as_value(x, what).aval


def _is_duck_typed(x: ArrayLike | DuckTypedArray) -> TypeGuard[DuckTypedArray]:
    return not is_convertible(x) and hasattr(x, "shape") and hasattr(x, "dtype")
