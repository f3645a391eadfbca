"""NumPy's functions of complex numbers, where those miss what the array API says or lose digits."""

from __future__ import annotations

import numpy as np

from tracefx.core.dtypes import NDArray


def complex_expm1(x: NDArray) -> NDArray:
    """NumPy's, but `exp(x) - 1` at infinities and NaNs, and real for real numbers."""
    out: NDArray = np.asarray(np.expm1(x))
    a, b = x.real, x.imag
    where_real = b == 0
    lost = ~np.isfinite(x)
    if lost.any():
        power = np.exp(x)
        out.real[...] = np.where(lost, power.real - 1, out.real)
        out.imag[...] = np.where(lost, power.imag, out.imag)
    if where_real.any():
        out.real[...] = np.where(where_real, np.expm1(a) + 0.0, out.real)
        out.imag[...] = np.where(where_real, b, out.imag)
    return out


def complex_log1p(x: NDArray) -> NDArray:
    """NumPy's, whose real part loses the digits of a small `x`."""
    out: NDArray = np.asarray(np.log1p(x))
    a, b = x.real, x.imag
    small = (abs(a) < 0.5) & (abs(b) < 0.5)
    if small.any():
        out.real[...] = np.where(small, np.log1p(np.where(small, a * (2 + a) + b * b, 0)) / 2, out.real)
    return out


def complex_tanh(x: NDArray) -> NDArray:
    """NumPy's, but with the array API's zero at infinities: that of the operand, not that of a sine."""
    out: NDArray = np.asarray(np.tanh(x))
    end = np.isinf(x.real)
    if end.any():
        out.imag[...] = np.where(end, np.copysign(0, x.imag), out.imag)
    return out


def complex_tan(x: NDArray) -> NDArray:
    """`-1j * tanh(1j * x)`, with the same zeros."""
    out: NDArray = np.asarray(np.tan(x))
    end = np.isinf(x.imag)
    if end.any():
        out.real[...] = np.where(end, np.copysign(0, x.real), out.real)
    return out
