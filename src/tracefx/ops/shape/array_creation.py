"""Arrays created without array operands: `iota`, `full`, `full_like`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, SupportsIndex, final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.core import (
    Array,
    ArrayLike,
    DType,
    DTypeLike,
    Literal,
    NDArray,
    Shape,
    ShapedArray,
    Value,
    as_value,
    dtypes,
    from_numpy,
)
from tracefx.core.dtypes import DTypeKind
from tracefx.core.handler import as_array, bind1
from tracefx.core.host_memory import require_memory
from tracefx.core.named_sharding import OutSharding
from tracefx.core.primitive import MappedAxis
from tracefx.core.values import filled_key
from tracefx.lowering import Builder, IrValue
from tracefx.ops.annotations.reshard import with_type_of
from tracefx.ops.casting import cast, convert_host
from tracefx.ops.duck_typing import DuckTypedArray, array_type
from tracefx.ops.operation import Operation, static_shape
from tracefx.ops.static_integers import is_sequence_like, static_int
from tracefx.ops.structural import broadcast_in_dim, convert, convert_element_type


@final
@frozen(eq=False)
class Iota(Operation):
    """The indices along one axis: `out[i0, i1, ...] = i` for the index `i` along `dimension`.

    Args:
        dtype: The dtype of the result: an integer, float or complex dtype.
        shape: The shape of the result.
        dimension: The axis along which elements increase.

    `-> i32[*shape]`. Bound by `lax.iota` and `lax.broadcasted_iota`.

    >>> from tracefx import bind, dtypes, ops
    >>> bind(ops.Iota(dtypes.result_type("int32"), (2, 2), 1))[0].tolist()
    [[0, 1], [0, 1]]
    """

    name = "iota"
    arity = 0
    dtype: DType
    shape: Shape
    dimension: int

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        if not (dtypes.is_integer(self.dtype) or dtypes.is_inexact(self.dtype)):
            raise TypeError(f"iota: dtype must be an integer, float or complex dtype, got {dtypes.name(self.dtype)}")
        if not 0 <= self.dimension < len(self.shape):
            raise ValueError(f"iota: dimension {self.dimension} must be an axis of shape {self.shape}")
        return ShapedArray(self.shape, self.dtype)

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        require_memory(self.name, self.shape, self.dtype)
        sizes = [1] * len(self.shape)
        sizes[self.dimension] = n = self.shape[self.dimension]
        return np.broadcast_to(cast(np.arange(n), self.dtype).reshape(sizes), self.shape)

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]) -> tuple[Value, int | None]:
        return bind1(self), None  # without operands there is no batch axis

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        return builder.emit("stablehlo.iota", operands, [out], {"iota_dimension": self.dimension})[0]


def iota(dtype: DTypeLike, size: int) -> Array:
    """Returns the numbers from 0 to `size - 1`.

    Args:
        dtype: An integer, float or complex dtype.
        size: The number of elements, static.

    Returns:
        An array of shape `(size,)`.

    Raises:
        TypeError: The dtype is not numeric, or `size` is not a static integer.

    >>> iota("int32", 3)
    Array([0, 1, 2], dtype=int32)
    """
    return broadcasted_iota(dtype, (size,), 0)


def broadcasted_iota(
    dtype: DTypeLike, shape: Sequence[int], dimension: int, *, out_sharding: OutSharding = None
) -> Array:
    """Returns an array whose elements are their own indices along axis `dimension`.

    Args:
        dtype: An integer, float or complex dtype.
        shape: The shape, static.
        dimension: The axis that is counted, non-negative.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        An array of this shape and dtype.

    Raises:
        TypeError: The dtype is not numeric, or a size is not a static integer.
        ValueError: `dimension` is not an axis of `shape`.

    >>> broadcasted_iota("int32", (2, 3), 1).tolist()
    [[0, 1, 2], [0, 1, 2]]
    """
    sizes, axis = static_shape("iota", shape), static_int("iota", dimension, "dimension")
    return bind1(Iota(dtypes.as_dtype(dtype), sizes, axis))


def full(shape: Sequence[int] | SupportsIndex, fill_value: ArrayLike, dtype: DTypeLike | None = None) -> Array:
    """Returns an array filled with `fill_value`."""
    sizes = static_shape("full", shape if is_sequence_like(shape) else (shape,))
    if dtype is not None and type(fill_value) is int:
        fill_value = convert_element_type(fill_value, dtype) if _is_wide(fill_value) else fill_value
    value = as_value(fill_value, "fill_value")
    if value.aval.shape:
        raise TypeError(f"full: fill_value must be a scalar, got {value.aval}")
    if dtype is not None:
        value = _convert_scalar(value, dtypes.as_dtype(dtype), False)
    return broadcast_in_dim(value, sizes, ())


def full_like(
    x: ArrayLike | DuckTypedArray,
    fill_value: ArrayLike,
    dtype: DTypeLike | None = None,
    shape: Sequence[int] | None = None,
) -> Array:
    """Returns an array with the shape and dtype of `x`, filled with `fill_value`."""
    like, value = array_type(x, "full_like: x"), as_value(fill_value, "fill_value")
    if value.aval.shape:
        raise TypeError(f"full_like: fill_value must be a scalar, got {value.aval}")
    sizes = like.shape if shape is None else static_shape("full_like", shape)
    weak, new = (like.weak_type, like.dtype) if dtype is None else (False, dtypes.as_dtype(dtype))
    out = broadcast_in_dim(_convert_scalar(value, new, weak), sizes, ())
    return as_array(with_type_of(out, like)) if sizes == like.shape and like.explicit_sharding is not None else out


def _is_wide(x: int) -> bool:
    """Returns whether a Python integer is out of range for the default integer dtype."""
    info = dtypes.iinfo(dtypes.default_int())
    return not info.min <= x <= info.max


def _convert_scalar(x: Value, dtype: DType, weak: bool) -> Value:
    """Converts a scalar to `dtype`; literals stay literals. An integer becomes a random key with such words."""
    if isinstance(x, Literal):
        if dtypes.is_key(dtype) and type(x.val) is int:
            return filled_key(x.val, dtype)
        if dtype == dtypes.float0:
            return from_numpy(np.zeros((), dtype), dtype)
        return Literal(python_type(dtype)(convert_host(np.asarray(x.val), dtype)), ShapedArray((), dtype, weak))
    return convert(x, dtype, weak)


_SCALARS: Final[dict[DTypeKind, type[bool] | type[int] | type[float] | type[complex]]] = {
    DTypeKind.BOOL: bool,
    DTypeKind.SIGNED: int,
    DTypeKind.UNSIGNED: int,
    DTypeKind.FLOAT: float,
    DTypeKind.COMPLEX: complex,
}


def python_type(dtype: DType) -> type[bool] | type[int] | type[float] | type[complex]:
    """Returns the type of Python number that represents the elements of `dtype`."""
    return _SCALARS[dtypes.kind(dtype)]


def zero(aval: ShapedArray) -> Literal:
    """Returns the scalar 0 with the dtype and weak type of `aval`."""
    return Literal(python_type(aval.dtype)(0), ShapedArray((), aval.dtype, aval.weak_type))
