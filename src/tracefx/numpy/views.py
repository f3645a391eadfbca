"""Reinterpretation of the bytes of arrays: `view` and `byteswap`."""

from __future__ import annotations

from tracefx.core import Array, ArrayLike, DTypeLike, dtypes
from tracefx.core.handler import as_array
from tracefx.numpy.operand_promotion import as_operand, convert_dtype
from tracefx.ops import structural
from tracefx.ops.elementwise import comparison
from tracefx.ops.elementwise import complex as complex_numbers
from tracefx.ops.elementwise.bit_representation import bitcast_convert_type
from tracefx.ops.shape import array_creation, shape


def view(x: ArrayLike, dtype: DTypeLike | None = None) -> Array:
    """Reinterprets the bytes of `x` as another dtype; the last axis grows or shrinks as the sizes of elements differ.

    Bools are read as bytes 0 and 1, and bytes other than 0 become True.

    Args:
        x: The array.
        dtype: The dtype of the result; None means the default float.

    Returns:
        An array of the new dtype.

    Raises:
        ValueError: If the last axis does not fit.

    >>> import numpy as np
    >>> view(np.array([1, 256], np.int16), "uint8").tolist()
    [1, 0, 0, 1]
    """
    value = as_array(as_operand(x, "view: x"))
    new = dtypes.default_float() if dtype is None else dtypes.as_dtype(dtype, "view: dtype")
    if value.dtype == new:
        return value
    if dtypes.is_bool(value.dtype):
        value = as_array(convert_dtype(value, dtypes.uint8))
    if dtypes.is_bool(new):
        octets = view(value, dtypes.uint8)
        return comparison.ne(octets, array_creation.zero(octets.aval.update(shape=())))
    old, wide = dtypes.itemsize_bits(value.dtype), dtypes.itemsize_bits(new)
    if not value.ndim and old != wide:
        raise ValueError(
            f"view: {value.aval} needs an axis to be read as {dtypes.name(new)}, whose elements differ in size"
        )
    if (dtypes.is_complex(value.dtype) or dtypes.is_complex(new)) and not value.ndim:
        raise ValueError(f"view: {value.aval} needs an axis for the real and imaginary parts of complex numbers")
    if dtypes.is_complex(value.dtype):
        parts = shape.stack([complex_numbers.real(value), complex_numbers.imag(value)], value.ndim)
        *before, n = value.shape
        return view(structural.reshape(parts, (*before, 2 * n)), new)
    if dtypes.is_complex(new):
        halves = view(value, dtypes.real_dtype(new))
        if halves.shape[-1] % 2:
            raise ValueError(f"view: the last axis of {value.aval} must hold whole complex numbers")
        pairs = structural.reshape(halves, (*halves.shape[:-1], halves.shape[-1] // 2, 2))
        return complex_numbers.complex(pairs[..., 0], pairs[..., 1])
    if old == wide:
        return bitcast_convert_type(value, new)
    *before, n = value.shape
    if old > wide:
        return structural.reshape(bitcast_convert_type(value, new), (*before, n * (old // wide)))
    ratio = wide // old
    if n % ratio:
        raise ValueError(
            f"view: the last axis of {value.aval} must be a multiple of {ratio} to be read as {dtypes.name(new)}"
        )
    return bitcast_convert_type(structural.reshape(value, (*before, n // ratio, ratio)), new)


def byteswap(x: ArrayLike) -> Array:
    """Reverses the bytes of each element; for complex numbers, of each part.

    Args:
        x: The array.

    Returns:
        An array of the shape and dtype of `x`.

    Raises:
        TypeError: If `x` is an array of random keys.

    >>> import numpy as np
    >>> byteswap(np.array([1, 256], np.int16)).tolist()
    [256, 1]
    """
    value = as_array(as_operand(x, "byteswap: x"))
    if dtypes.is_key(value.dtype):
        raise TypeError(f"byteswap takes numbers, got {value.aval}")
    if dtypes.is_complex(value.dtype):
        parts = complex_numbers.real(value), complex_numbers.imag(value)
        return complex_numbers.complex(*[byteswap(part) for part in parts])
    if dtypes.itemsize_bits(value.dtype) <= 8:
        return value
    octets = bitcast_convert_type(value, dtypes.uint8)
    return as_array(convert_dtype(bitcast_convert_type(shape.rev(octets, (value.ndim,)), value.dtype), value.dtype))
