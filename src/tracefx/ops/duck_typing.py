"""The types of arrays, and the protocol of objects that have a shape and a dtype but no data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeGuard

from tracefx.core import ArrayLike, DTypeLike, ShapedArray, Value, as_value, dtypes
from tracefx.core.array import is_convertible
from tracefx.ops.operation import static_shape


class DuckTypedArray(Protocol):
    """An object with the shape and dtype of an array but no data, for example a `ShapeDtypeStruct`."""

    @property
    def shape(self) -> Sequence[int]: ...
    @property
    def dtype(self) -> DTypeLike: ...


def array_type(x: ArrayLike | DuckTypedArray, what: str) -> ShapedArray:
    """Returns the abstract value (shape, dtype and weak type) of an array, a number, or an object with both.

    Args:
        x: An array, a number, a tracer, or an object with `shape` and `dtype`.
        what: How error messages name the argument.

    Raises:
        TypeError: If `x` is neither an array nor has a shape and a dtype.
    """
    if isinstance(x, Value):
        return x.aval
    if _is_duck_typed(x):
        return ShapedArray(static_shape(what, x.shape), dtypes.as_dtype(x.dtype, what), getattr(x, "weak_type", False))
    return as_value(x, what).aval


def _is_duck_typed(x: ArrayLike | DuckTypedArray) -> TypeGuard[DuckTypedArray]:
    return not is_convertible(x) and hasattr(x, "shape") and hasattr(x, "dtype")
