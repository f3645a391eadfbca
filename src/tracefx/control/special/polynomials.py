"""Power series and Chebyshev series of `f32` and `f64` arrays that are not weakly typed."""

from __future__ import annotations

from collections.abc import Sequence

from tracefx.core import Array, dtypes


def polynomial(coefficients: Sequence[float], x: Array) -> Array:
    """Computes the sum of `coefficients[n] * x**n`."""
    total = x * 0 + coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = total * x + c
    return total


def chebyshev(coefficients: Sequence[float], twice: Array) -> Array:
    """Computes a Chebyshev series at `twice / 2` by Clenshaw's recurrence, with the terms significant in the dtype."""
    threshold = max(map(abs, coefficients)) * (2.0**-55 if twice.dtype == dtypes.float64 else 2.0**-26)
    kept = max(n for n, c in enumerate(coefficients) if abs(c) > threshold) + 1
    last = before = twice * 0
    for c in reversed(coefficients[1:kept]):
        last, before = twice * last - before + c, last
    return twice * last * 0.5 - before + coefficients[0]


def chebyshev_on(low: float, high: float, coefficients: Sequence[float], x: Array) -> Array:
    """Computes a Chebyshev series on the interval from `low` to `high`."""
    scale = 4 / (high - low)
    return chebyshev(coefficients, x * scale - (low * scale + 2))
