"""Dtype conversion of NumPy arrays, with XLA's results where NumPy's are undefined."""

from __future__ import annotations

from typing import Final

import numpy as np

from tracefx.core import Array, DType, Literal, NDArray, ShapedArray, dtypes
from tracefx.core.handler import as_array
from tracefx.core.kernel_context import call_kernel
from tracefx.core.literal import out_of_bounds_error

NUMPY_NATIVE_DTYPES: Final = frozenset({dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64})
"""The most common dtypes, which NumPy's reductions preserve on every platform."""


def cast(x: NDArray, dtype: DType) -> NDArray:
    """Returns `x` converted to `dtype`, with XLA's semantics.

    Floats outside the range of an integer dtype saturate and NaN becomes 0; integers wrap around; the imaginary part of
    a complex number is dropped on conversion to a real dtype.
    """
    if x.dtype == dtype:
        return x
    if x.dtype == dtypes.float0:  # its only value is zero
        return np.zeros(x.shape, dtype)
    if dtypes.is_complex(x.dtype) and not dtypes.is_complex(dtype):
        x = x.real
    if dtypes.is_bool(dtype):
        return np.asarray(x != 0)
    if not dtypes.is_integer(dtype):
        if dtypes.is_float(x.dtype) and dtypes.itemsize_bits(x.dtype) <= 8:  # with few direct conversions
            x = x.astype(np.float32)
        elif dtypes.itemsize_bits(x.dtype) < 8:
            x = x.astype(np.int8)
        return x.astype(dtype)
    if dtypes.is_float(x.dtype):
        wide = x.astype(np.float64)
        return wide.astype(dtype) if _fits(wide, dtype) else _saturate(wide, dtype)
    return _wrap(x, dtype)


def cast_to_integers(dtype: DType, least: int, x: NDArray) -> NDArray:
    """Converts floats to a 32-bit or 64-bit integer dtype, falling back to `cast` if an element may be out of range.

    `least` is the dtype's minimum. Processors return it, or the nearest end of the range, for inputs out of range.
    """
    out = x.astype(dtype)
    return out if np.minimum.reduce(out, None) > least else cast(x, dtype)


def convert_host(x: NDArray, dtype: DType) -> NDArray:
    """Calls `cast` outside a kernel, without NumPy's warnings about overflow to infinity."""
    return x if x.dtype == dtype else call_kernel(cast, x, dtype)


def _fits(x: NDArray, dtype: DType) -> bool:
    """Returns whether NumPy's conversion to an integer dtype is exact: no element of `x` is out of range or NaN."""
    if not x.size or dtypes.itemsize_bits(dtype) < 8:
        return False
    info = dtypes.iinfo(dtype)
    low, high = np.minimum.reduce(x, None), np.maximum.reduce(x, None)
    return bool(info.min <= low and high < info.max)  # False for NaN, which propagates to both extremes


def _saturate(x: NDArray, dtype: DType) -> NDArray:
    """Converts floats to an integer dtype: clamps to its range, maps NaN to 0."""
    info = dtypes.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    above, below = x >= float(high + 1), x < float(low)
    inside = np.where(above | below | np.isnan(x), 0.0, x).astype(np.uint64 if low == 0 else np.int64)
    return _wrap(np.where(above, inside.dtype.type(high), np.where(below, inside.dtype.type(low), inside)), dtype)


def _wrap(x: NDArray, dtype: DType) -> NDArray:
    """Converts integers to an integer dtype modulo `2**bits`."""
    bits = dtypes.itemsize_bits(dtype)
    if bits >= 8:
        return x.astype(np.int8).astype(dtype) if dtypes.itemsize_bits(x.dtype) < 8 else x.astype(dtype)
    low_bits = x.astype(np.int8).astype(np.int16) & (2**bits - 1)
    if dtypes.is_signed(dtype):
        sign = 2 ** (bits - 1)
        low_bits = (low_bits ^ sign) - sign
    out: NDArray = low_bits.astype(np.int8).astype(dtype)
    return out


def convert_wide_number(x: int | np.generic, dtype: DType) -> Array | None:
    """Converts a number that its default dtype can't hold directly to `dtype`; returns None for any other number."""
    if isinstance(x, np.generic):
        if x.dtype == dtypes.canonicalize(x.dtype):
            return None
        host: NDArray = np.asarray(x)
    else:
        info = dtypes.iinfo(dtypes.default_int())
        if info.min <= x <= info.max:
            return None
        host = np.asarray(x)
        if host.dtype == object:  # more than 64 bits
            if dtypes.is_integer(dtype):
                raise out_of_bounds_error(x, dtype)
            try:
                host = np.asarray(float(x))
            except OverflowError as error:
                raise out_of_bounds_error(x, dtype) from error
    return as_array(Literal(convert_host(host, dtype).item(), ShapedArray((), dtype)))
