"""What has the type of an array: arrays and numbers, and what stands in their place without numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeGuard

from tracefx.core import dtypes
from tracefx.core.array import ArrayLike, is_convertible
from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import DTypeLike
from tracefx.core.handler import varies
from tracefx.core.values import Value, as_value
from tracefx.ops.operation import static_shape


class DuckTypedArray(Protocol):
    """What has the shape and the dtype of an array, though no numbers: a `ShapeDtypeStruct`."""

    @property
    def shape(self) -> Sequence[int]: ...
    @property
    def dtype(self) -> DTypeLike: ...


def typeof(x: ArrayLike | DuckTypedArray, what: str = "typeof: argument") -> ShapedArray:
    """The type of an array or number, or of what has a shape and a dtype. TypeError that calls it `what` for others.

    Inside of a checked `shard_map` it tells in `vma` along which axes of the mesh an array may differ from device to
    device.

    >>> typeof(2.0)
    f32[]*
    """
    if isinstance(x, Value):
        return x.aval.varying(varies(x))
    if _is_duck_typed(x):
        return ShapedArray(static_shape(what, x.shape), dtypes.as_dtype(x.dtype, what), getattr(x, "weak_type", False))
    return as_value(x, what).aval  # type: ignore[arg-type]  # what is no array either is refused there


def _is_duck_typed(x: ArrayLike | DuckTypedArray) -> TypeGuard[DuckTypedArray]:
    return not is_convertible(x) and hasattr(x, "shape") and hasattr(x, "dtype")
