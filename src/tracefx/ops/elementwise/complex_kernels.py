"""NumPy's complex functions, corrected where they lose digits or miss the array API's special values."""

from __future__ import annotations

import numpy as np

from tracefx.core import NDArray


def complex_expm1(x: NDArray) -> NDArray:
    """Returns `np.expm1(x)`, corrected to `exp(x) - 1` at infinities and NaNs and to real results for real operands."""
    out: NDArray = np.asarray(np.expm1(x))
    a, b = x.real, x.imag
    where_real = b == 0
    non_finite = ~np.isfinite(x)
    if non_finite.any():
        power = np.exp(x)
        out.real[...] = np.where(non_finite, power.real - 1, out.real)
        out.imag[...] = np.where(non_finite, power.imag, out.imag)
    if where_real.any():
        out.real[...] = np.where(where_real, np.expm1(a) + 0.0, out.real)
        out.imag[...] = np.where(where_real, b, out.imag)
    return out


def complex_log1p(x: NDArray) -> NDArray:
    """Returns `np.log1p(x)`, corrected for small `x`, where NumPy's loses digits, and large `x`, where it overflows."""
    out: NDArray = np.asarray(np.log1p(x))
    a, b = x.real, x.imag
    small = (abs(a) < 0.5) & (abs(b) < 0.5)
    if small.any():
        out.real[...] = np.where(small, np.log1p(np.where(small, a * (2 + a) + b * b, 0)) / 2, out.real)
    large = np.isfinite(x) & (np.maximum(abs(a), abs(b)) > np.finfo(a.dtype).max ** 0.5)
    if large.any():
        out[...] = np.where(large, np.log(np.where(large, x, 1)), out)
    return out


def complex_square(x: NDArray) -> NDArray:
    """Returns `x * x` with the real part as a product of sum and difference, without overflow to NaN."""
    a, b = x.real, x.imag
    out = np.empty_like(x)
    out.real[...] = np.where((abs(a) == abs(b)) & np.isfinite(a), 0.0, (a - b) * (a + b))
    out.imag[...] = 2 * (a * b)
    return out


def complex_tanh(x: NDArray) -> NDArray:
    """Returns `np.tanh(x)`, with imaginary zeros of the sign of `x.imag` at real infinities, as in the array API."""
    out: NDArray = np.asarray(np.tanh(x))
    end = np.isinf(x.real)
    if end.any():
        out.imag[...] = np.where(end, np.copysign(0, x.imag), out.imag)
    return out


def complex_tan(x: NDArray) -> NDArray:
    """Returns `np.tan(x)` with the signed zeros of `-1j * tanh(1j * x)`."""
    out: NDArray = np.asarray(np.tan(x))
    end = np.isinf(x.imag)
    if end.any():
        out.real[...] = np.where(end, np.copysign(0, x.real), out.real)
    return out
