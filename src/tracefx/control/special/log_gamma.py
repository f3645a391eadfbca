"""Parts of the gamma function without cancellation: remainders of Stirling's formula, and ratios.

    log(gamma(a)) = (a - 1/2) * log(a) - a + log(2 * pi) / 2 + stirling_remainder(a)    (DLMF 5.11.1)
    digamma(a) = log(a) + digamma_remainder(a)                                          (DLMF 5.11.2)

Both remainders are asymptotic series in `1 / a**2` whose coefficients follow from Bernoulli numbers; for `a >= 10`, the
first terms give 53 bits. All functions take `f32` or `f64` arrays of one shape that are not weakly typed.
"""

from __future__ import annotations

import math
from typing import Final

from tracefx.control.special.polynomials import chebyshev, polynomial
from tracefx.core import Array, dtypes
from tracefx.ops.elementwise.arithmetic import max as maximum
from tracefx.ops.elementwise.arithmetic import min as minimum
from tracefx.ops.elementwise.rounding import floor
from tracefx.ops.elementwise.selection import select_with_aval
from tracefx.ops.elementwise.special import digamma
from tracefx.ops.elementwise.transcendental import exp, log, sqrt

ASYMPTOTIC_MIN: Final = 10.0
"""The least argument for which the series hold."""


def stirling_remainder(a: Array) -> Array:
    """Computes the remainder of Stirling's formula for `log(gamma(a))`, for `a >= 10`."""
    w = 1 / a
    return polynomial(_STIRLING if a.dtype == dtypes.float64 else _STIRLING[:3], w * w) * w


def digamma_remainder(a: Array) -> Array:
    """Computes `digamma(a) - log(a)`."""
    big = a > ASYMPTOTIC_MIN
    w = 1 / select_with_aval(big, a, ASYMPTOTIC_MIN, a.aval)
    square = w * w
    series = -0.5 * w - square * polynomial(_DIGAMMA if a.dtype == dtypes.float64 else _DIGAMMA[:3], square)
    small = select_with_aval(big, 1.0, a, a.aval)
    return select_with_aval(big, series, digamma(small) - log(small), a.aval)


def log1p_remainder(x: Array, whole: Array) -> Array:
    """Computes `x - log(whole)` for `whole = 1 + x`; near 0, it is about `x**2 / 2`."""
    near = (x > -0.5) & (x < 0.5)
    return select_with_aval(near, _log1p_series(select_with_aval(near, x, 0.0, x.aval)), x - log(whole), x.aval)


def _log1p_series(x: Array) -> Array:
    r = x / (x + 2)  # log1p(x) is 2 * atanh(r)
    square = r * r
    terms = 16 if x.dtype == dtypes.float64 else 7
    return r * (x - 2 * square * polynomial([1 / (2 * k + 3) for k in range(terms)], square))


def accurate_log1p(x: Array) -> Array:
    """Computes `log(1 + x)` accurately: XLA's has errors of up to a hundred ulps in f64 where `abs(x)` is about 0.4."""
    near = (x > -0.5) & (x < 0.5)
    z = select_with_aval(near, x, 0.0, x.aval)
    return select_with_aval(near, z - _log1p_series(z), log(1 + x), x.aval)


def lgamma1p(a: Array) -> Array:
    """Computes `log(gamma(1 + a))` for `a` from 0 to 1, accurate near both bounds, where it is 0.

    It is `a * (a - 1)` times a Chebyshev series, whose coefficients were computed with 40 digits.
    """
    t = 4 * a - 2
    return a * (a - 1) * chebyshev(_LGAMMA1P, t)


def log_gamma(x: Array) -> Array:
    """Computes `log(gamma(x))` for `x >= 0`, accurate near 1 and 2, where XLA's is not.

    It uses `gamma(x) = (x - 1) * gamma(x - 1)` for `x < 10` and Stirling's formula otherwise; both take one logarithm.
    """
    like = x.aval
    big = x >= ASYMPTOTIC_MIN
    small = select_with_aval(big, 1.5, x, like)
    whole = floor(small)
    product = select_with_aval(small >= 2, small - 1, 1.0, like)
    for k in range(2, int(ASYMPTOTIC_MIN) - 1):
        product = product * select_with_aval(whole > k, small - k, 1.0, like)
    below = small < 1
    logs = log(select_with_aval(big, x, select_with_aval(below, small, product, like), like))
    near = lgamma1p(small - whole) + select_with_aval(below, -logs, logs, like)
    large = select_with_aval(big, x, ASYMPTOTIC_MIN, like)
    far = (large - 0.5) * logs - large + 0.5 * math.log(2 * math.pi) + stirling_remainder(large)
    return select_with_aval(x == math.inf, math.inf, select_with_aval(big, far, near, like), like)


def gamma_prefactor(a: Array, x: Array) -> Array:
    """Computes `x**a * exp(-x) / gamma(a + 1)`, by the difference of `x` and `a` where they are large."""
    big = a >= ASYMPTOTIC_MIN
    large = select_with_aval(big, a, ASYMPTOTIC_MIN, a.aval)
    far = exp(-large * log1p_remainder((x - large) / large, x / large) - stirling_remainder(large)) / sqrt(
        2 * math.pi * large
    )
    small = select_with_aval(big, 1.0, a, a.aval)
    powers = select_with_aval(small == 0, 0.0, small * log(x), a.aval)
    return select_with_aval(big, far, exp(powers - x - log_gamma(small + 1)), a.aval)


def log_gamma_ratio(a: Array, b: Array) -> Array:
    """Computes `log(gamma(a) / gamma(a + b))` for positive operands, without cancellation where `a` is large."""
    big = a >= ASYMPTOTIC_MIN
    large = select_with_aval(big, a, ASYMPTOTIC_MIN, a.aval)
    total = large + b
    far = (
        -(large - 0.5) * accurate_log1p(b / large)
        - b * (log(total) - 1)
        + stirling_remainder(large)
        - stirling_remainder(total)
    )
    return select_with_aval(big, far, log_gamma(a) - log_gamma(a + b), a.aval)


def log_beta(a: Array, b: Array) -> Array:
    """Computes `log(beta(a, b))` for positive operands."""
    low, high = minimum(a, b), maximum(a, b)
    both = low >= ASYMPTOTIC_MIN
    small, large = (
        select_with_aval(both, ASYMPTOTIC_MIN, low, a.aval),
        select_with_aval(both, ASYMPTOTIC_MIN, high, a.aval),
    )
    mixed = log_gamma(small) + log_gamma_ratio(large, small)
    p, q = select_with_aval(both, low, ASYMPTOTIC_MIN, a.aval), select_with_aval(both, high, ASYMPTOTIC_MIN, a.aval)
    ratio = p / q
    far = (
        0.5 * math.log(2 * math.pi)
        - 0.5 * log(q)
        - (p - 0.5) * accurate_log1p(1 / ratio)
        - q * accurate_log1p(ratio)
        + (stirling_remainder(p) + stirling_remainder(q) - stirling_remainder(p + q))
    )
    return select_with_aval(both, far, mixed, a.aval)


_STIRLING: Final = (
    0.08333333333333333,
    -0.002777777777777778,
    0.0007936507936507937,
    -0.0005952380952380953,
    0.0008417508417508417,
    -0.0019175269175269176,
    0.00641025641025641,
    -0.029550653594771242,
)
_DIGAMMA: Final = (
    0.08333333333333333,
    -0.008333333333333333,
    0.003968253968253968,
    -0.004166666666666667,
    0.007575757575757576,
    -0.021092796092796094,
    0.08333333333333333,
    -0.4432598039215686,
)
_LGAMMA1P: Final = (
    0.49141539302938714,
    -0.07611416167043585,
    0.008432324965932778,
    -0.001079493726328608,
    0.00014900748003692963,
    -2.1512399888556784e-05,
    3.1979329860862186e-06,
    -4.851693012139927e-07,
    7.47148782116316e-08,
    -1.1638296700170518e-08,
    1.829400437118668e-09,
    -2.8969180607129607e-10,
    4.61570140620909e-11,
    -7.392810230497983e-12,
    1.1894280008333085e-12,
    -1.9212068676522805e-13,
    3.113975526387164e-14,
    -5.0628432984486114e-15,
    8.254150281631144e-16,
    -1.3490578987574844e-16,
    2.209876116782623e-17,
)
