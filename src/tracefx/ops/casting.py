"""Conversion between dtypes in NumPy, with XLA's results where NumPy's are undefined."""

from __future__ import annotations

import numpy as np

from tracefx.core import dtypes
from tracefx.core.dtypes import DType, NDArray
from tracefx.core.kernel_context import call_kernel


def cast(x: NDArray, dtype: DType) -> NDArray:
    """`x` converted to `dtype`. Floats out of an integer's range become its nearest end, NaN 0; integers wrap."""
    if x.dtype == dtype:
        return x
    if x.dtype == dtypes.float0:  # whose one value is a zero
        return np.zeros(x.shape, dtype)
    if dtypes.is_complex(x.dtype) and not dtypes.is_complex(dtype):
        x = x.real
    if dtypes.is_bool(dtype):
        return np.asarray(x != 0)
    if not dtypes.is_integer(dtype):
        if dtypes.is_float(x.dtype) and dtypes.itemsize_bits(x.dtype) <= 8:  # which convert to few others directly
            x = x.astype(np.float32)
        elif dtypes.itemsize_bits(x.dtype) < 8:
            x = x.astype(np.int8)
        return x.astype(dtype)
    if dtypes.is_float(x.dtype):
        wide = x.astype(np.float64)
        return wide.astype(dtype) if _fits(wide, dtype) else _saturate(wide, dtype)
    return _wrap(x, dtype)


def convert_host(x: NDArray, dtype: DType) -> NDArray:
    """`cast` outside a kernel, where NumPy would warn of an overflow that gives infinity."""
    return x if x.dtype == dtype else call_kernel(cast, x, dtype)


def _fits(x: NDArray, dtype: DType) -> bool:
    """Whether NumPy's conversion to an integer dtype is right as it is: no float is out of range, none is NaN."""
    if not x.size or dtypes.itemsize_bits(dtype) < 8:
        return False
    info = dtypes.iinfo(dtype)
    low, high = np.minimum.reduce(x, None), np.maximum.reduce(x, None)
    return bool(info.min <= low and high < info.max)  # not for a NaN, which either extreme would be


def _saturate(x: NDArray, dtype: DType) -> NDArray:
    info = dtypes.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    above, below = x >= float(high + 1), x < float(low)
    inside = np.where(above | below | np.isnan(x), 0.0, x).astype(np.uint64 if low == 0 else np.int64)
    return _wrap(np.where(above, inside.dtype.type(high), np.where(below, inside.dtype.type(low), inside)), dtype)


def _wrap(x: NDArray, dtype: DType) -> NDArray:
    bits = dtypes.itemsize_bits(dtype)
    if bits >= 8:
        return x.astype(np.int8).astype(dtype) if dtypes.itemsize_bits(x.dtype) < 8 else x.astype(dtype)
    low_bits = x.astype(np.int8).astype(np.int16) & (2**bits - 1)
    if dtypes.is_signed(dtype):
        sign = 2 ** (bits - 1)
        low_bits = (low_bits ^ sign) - sign
    out: NDArray = low_bits.astype(np.int8).astype(dtype)
    return out
