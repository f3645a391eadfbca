"""Sums of powers and of Chebyshev polynomials, for strong `f32` and `f64` arrays."""

from __future__ import annotations

from collections.abc import Sequence

from tracefx.core import dtypes
from tracefx.core.array import Array


def polynomial(coefficients: Sequence[float], x: Array) -> Array:
    """The sum of `coefficients[n] * x**n`."""
    total = x * 0 + coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = total * x + c
    return total


def chebyshev(coefficients: Sequence[float], twice: Array) -> Array:
    """A Chebyshev series at `twice / 2` by Clenshaw's recurrence, of the terms that count in the dtype."""
    least = max(map(abs, coefficients)) * (2.0**-55 if twice.dtype == dtypes.float64 else 2.0**-26)
    kept = max(n for n, c in enumerate(coefficients) if abs(c) > least) + 1
    last = before = twice * 0
    for c in reversed(coefficients[1:kept]):
        last, before = twice * last - before + c, last
    return twice * last * 0.5 - before + coefficients[0]


def chebyshev_on(low: float, high: float, coefficients: Sequence[float], x: Array) -> Array:
    """A Chebyshev series for numbers between two bounds."""
    scale = 4 / (high - low)
    return chebyshev(coefficients, x * scale - (low * scale + 2))
