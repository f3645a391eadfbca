"""The error function and related functions: Dawson, Faddeeva, the normal distribution, Owen's T."""

from __future__ import annotations

import math
from typing import SupportsIndex

import numpy as np

import tracefx.numpy as fnp
from tracefx.bounded_cache import memoize
from tracefx.control.special.polynomials import chebyshev, chebyshev_on
from tracefx.core import Array, ArrayLike, NDArray, dtypes
from tracefx.numpy.operand_promotion import convert_dtype, to_inexact
from tracefx.ops.elementwise import complex as complex_numbers
from tracefx.ops.elementwise import special
from tracefx.ops.static_integers import static_int
from tracefx.scipy.special.argument_promotion import call_promoted, promote_real
from tracefx.scipy.special.chebyshev_coefficients import (
    DAWSN_FAR,
    DAWSN_NEAR,
    ERFCX,
    NDTRI_CENTRE,
    NDTRI_FAR,
    NDTRI_TAIL,
)
from tracefx.transforms.custom_derivatives import custom_jvp
from tracefx.transforms.jit import jit

_ROOT_PI = math.sqrt(math.pi)

# ------------------------------------------------------------------ the error function


def erf(x: ArrayLike) -> Array:
    """Computes the error function: the integral of `2 / sqrt(pi) * exp(-t**2)` from 0 to `x`.

    Args:
        x: an array of real numbers.

    Returns:
        An array of floats of the shape of `x`.

    >>> float(erf(0.0))
    0.0
    """
    return special.erf(*promote_real("erf", x))


def erfc(x: ArrayLike) -> Array:
    """Computes the complementary error function `1 - erf(x)`, accurate where it is small.

    Args:
        x: an array of real numbers.

    Returns:
        An array of floats of the shape of `x`.

    >>> float(erfc(0.0))
    1.0
    """
    return special.erfc(*promote_real("erfc", x))


def erfinv(x: ArrayLike) -> Array:
    """Computes the inverse of the error function.

    Args:
        x: an array of numbers between -1 and 1.

    Returns:
        An array of floats of the shape of `x`.

    >>> float(erfinv(0.0))
    0.0
    """
    return special.erf_inv(*promote_real("erfinv", x))


def erfcinv(y: ArrayLike) -> Array:
    """Computes the inverse of the complementary error function, accurate where `y` is small.

    Args:
        y: an array of numbers between 0 and 2.

    Returns:
        An array of floats of the shape of `y`; NaN unless `0 <= y <= 2`.

    >>> round(float(erfcinv(0.5)), 5)
    0.47694
    """
    return call_promoted("erfcinv", lambda y: _ndtri(0.5 * y) * -math.sqrt(0.5), y)


def erfcx(x: ArrayLike) -> Array:
    """Computes the scaled complementary error function, `exp(x**2) * erfc(x)`.

    For positive `x` nothing overflows or underflows.

    Args:
        x: an array of real numbers.

    Returns:
        An array of floats of the shape of `x`.

    >>> round(float(erfcx(100.0)), 7)
    0.0056416
    """
    return call_promoted("erfcx", _erfcx, x)


@custom_jvp
@jit
def _erfcx(x: Array) -> Array:
    """Evaluates a Chebyshev series in `(x - 3.75) / (x + 3.75)`, as Shepherd and Laframboise (1981)."""
    size = fnp.abs(x)
    above = chebyshev(ERFCX, 2 - 15 / (size + 3.75)) / (1 + 2 * size)
    return fnp.where(x < 0, 2 * _exp_of_square(fnp.minimum(size, 1e4)) - above, above)


_erfcx.defjvps(lambda t, out, x: t * (2 * x * out - 2 / _ROOT_PI))


def _exp_of_square(x: Array) -> Array:
    """Computes `exp(x**2)` accurately: the square of the leading bits is exact."""
    leading = fnp.round(x * 16) / 16
    return fnp.exp(leading * leading) * fnp.exp((x - leading) * (x + leading))


def dawsn(x: ArrayLike) -> Array:
    """Computes Dawson's integral: `exp(-x**2)` times the integral of `exp(t**2)` from 0 to `x`.

    Args:
        x: an array of real numbers.

    Returns:
        An array of floats of the shape of `x`.

    >>> round(float(dawsn(1.0)), 5)
    0.53808
    """
    return call_promoted("dawsn", _dawsn, x)


@custom_jvp
@jit
def _dawsn(x: Array) -> Array:
    far = fnp.abs(x) > 5
    square = fnp.where(far, 0.0, x * x)
    near = x * chebyshev_on(0, 25, DAWSN_NEAR, square) / (1 + 2 * square)
    outer = fnp.where(far, x, 5.0)
    return fnp.where(far, chebyshev(DAWSN_FAR, (10 / outer) ** 2 - 2) / (2 * outer), near)


_dawsn.defjvps(lambda t, out, x: t * (1 - 2 * x * out))


# ------------------------------------------------------------------ complex numbers


def wofz(z: ArrayLike) -> Array:
    """Computes the Faddeeva function, `exp(-z**2) * erfc(-1j * z)`.

    Args:
        z: an array of complex numbers; others are converted.

    Returns:
        An array of complex numbers of the shape of `z`.

    >>> round(complex(wofz(1j)).real, 5)
    0.42758
    """
    value = to_inexact(z, "wofz: z")
    dtype = value.aval.dtype
    wide = np.result_type(dtype, np.complex64) if dtype.itemsize > 2 else dtypes.complex64
    return _wofz(fnp.asarray(convert_dtype(value, dtypes.as_dtype(wide, "wofz", exact=True), value.aval.weak_type)))


@custom_jvp
@jit
def _wofz(z: Array) -> Array:
    """Evaluates three forms of the trapezoidal rule, corrected by residues (Al Azah and Chandler-Wilde 2021).

    They hold in the first quadrant; `w(-conj(z)) = conj(w(z))` and `w(-z) = 2 * exp(-z**2) - w(z)` extend them.
    """
    x, y = fnp.abs(fnp.real(z)), fnp.abs(fnp.imag(z))
    is_distant = fnp.maximum(x, y) > 1e8
    x, y = fnp.where(is_distant, 1.0, x), fnp.where(is_distant, 1.0, y)
    terms = 11 if x.dtype == dtypes.float64 else 6
    step = math.sqrt(math.pi / (terms + 1))
    w = complex_numbers.complex(x, y)
    square = w * w
    half = sum(
        (2 * math.exp(-(((k + 0.5) * step) ** 2)) / (square - ((k + 0.5) * step) ** 2)) for k in range(terms + 1)
    )
    whole = sum((2 * math.exp(-((k * step) ** 2)) / (square - (k * step) ** 2)) for k in range(1, terms + 1))
    factor = (1j * step / math.pi) * w
    is_high = y >= fnp.maximum(x, math.pi / step)
    node_fraction = x / step - fnp.floor(x / step)
    is_between_nodes = (node_fraction >= 0.25) & (node_fraction <= 0.75) & (y < x)
    gaussian = 2 * fnp.exp(-square)
    phase_factor = fnp.exp((-2j * math.pi / step) * fnp.where(is_high, 1.0 + 0j, w))
    midpoint_rule = factor * half + fnp.where(is_high, 0, gaussian / (1 + phase_factor))
    trapezoidal_rule = factor * (whole + 1 / square) + gaussian / (1 - phase_factor)
    value = fnp.where(is_between_nodes & ~is_high, trapezoidal_rule, midpoint_rule)
    safe = fnp.where(is_distant, z, 1.0 + 0j)
    asymptotic = (1j / _ROOT_PI) / safe
    value = fnp.where(fnp.real(z) < 0, fnp.conj(value), value)
    upper = fnp.where(is_distant, 0j, complex_numbers.complex(fnp.real(z), fnp.abs(fnp.imag(z))))
    mirrored = 2 * fnp.exp(-upper * upper) - value  # this is w(-conj(z)) below the real axis
    below = fnp.conj(mirrored)
    return fnp.where(is_distant, asymptotic, fnp.where(fnp.imag(z) < 0, below, value))


_wofz.defjvps(lambda t, out, z: t * (2j / _ROOT_PI - 2 * z * out))


# ------------------------------------------------------------------ the normal distribution


def ndtr(x: ArrayLike) -> Array:
    """Computes the cumulative distribution function of the standard normal distribution.

    Args:
        x: an array of real numbers.

    Returns:
        An array of floats of the shape of `x`.

    >>> float(ndtr(0.0))
    0.5
    """
    return call_promoted("ndtr", lambda x: 0.5 * special.erfc(x * -math.sqrt(0.5)), x)


def ndtri(p: ArrayLike) -> Array:
    """Computes the quantile function of the standard normal distribution, the inverse of `ndtr`.

    Args:
        p: an array of probabilities.

    Returns:
        An array of floats of the shape of `p`; NaN unless `0 <= p <= 1`.

    >>> float(ndtri(0.5))
    0.0
    """
    return call_promoted("ndtri", _ndtri, p)


@custom_jvp
@jit
def _ndtri(p: Array) -> Array:
    """Evaluates Chebyshev series: in `(p - 1/2)**2` in the center, in `1 / sqrt(-2 * log(p))` in the tails."""
    centered = p - 0.5
    is_central = fnp.abs(centered) <= 0.425
    centre = centered * chebyshev_on(0, 0.425**2, NDTRI_CENTRE, fnp.where(is_central, centered * centered, 0.0))
    tail_probability = fnp.where(p > 0.5, 1 - p, p)
    is_tail = (p > 0) & (p < 1) & ~is_central
    r = fnp.sqrt(-2 * fnp.log(fnp.where(is_tail, tail_probability, 0.01)))
    u = 1 / r
    factor = fnp.where(r < 6, chebyshev_on(1 / 6, 1 / 2.2, NDTRI_TAIL, u), chebyshev_on(1 / 40, 1 / 6, NDTRI_FAR, u))
    tail = fnp.where((p == 0) | (p == 1), math.inf, r * factor)
    value = fnp.where(is_central, centre, fnp.where(p < 0.5, -tail, tail))
    return fnp.where((p >= 0) & (p <= 1), value, math.nan)


_ndtri.defjvps(lambda t, out, p: t * (math.sqrt(2 * math.pi) * fnp.exp(out * out / 2)))


def log_ndtr(x: ArrayLike, series_order: SupportsIndex = 3) -> Array:
    """Computes the logarithm of `ndtr`, accurate everywhere.

    Args:
        x: an array of real numbers.
        series_order: the number of terms of an asymptotic series. It is checked, but has no effect: no such series is
            used.

    Returns:
        An array of floats of the shape of `x`.

    Raises:
        TypeError: if `series_order` is not an integer.
        ValueError: if `series_order` is not between 0 and 30.

    >>> round(float(log_ndtr(-100.0)), 2)
    -5005.52
    """
    order = static_int("log_ndtr", series_order, "series_order")
    if not 0 <= order <= 30:
        raise ValueError(f"log_ndtr: series_order must be between 0 and 30, got {order}")
    return call_promoted("log_ndtr", _log_ndtr, x)


@custom_jvp
@jit
def _log_ndtr(x: Array) -> Array:
    is_low = x < -1
    below, above = fnp.where(is_low, x, -2.0), fnp.where(is_low, 0.0, x)
    tail = fnp.log(0.5 * _erfcx(below * -math.sqrt(0.5))) - 0.5 * below * below
    return fnp.where(is_low, tail, fnp.log1p(-0.5 * special.erfc(above * math.sqrt(0.5))))


def _log_ndtr_slope(t: Array, out: Array, x: Array) -> Array:
    is_low = x < -1
    below, above = fnp.where(is_low, x, -2.0), fnp.where(is_low, 0.0, x)
    tail = math.sqrt(2 / math.pi) / _erfcx(below * -math.sqrt(0.5))
    density = fnp.exp(-0.5 * above * above) / math.sqrt(2 * math.pi)
    return t * fnp.where(is_low, tail, density / (0.5 * special.erfc(above * -math.sqrt(0.5))))


_log_ndtr.defjvps(_log_ndtr_slope)


# ------------------------------------------------------------------ Owen's T


def owens_t(h: ArrayLike, a: ArrayLike) -> Array:
    """Computes Owen's T function.

    It is the probability of `X > h` and `0 < Y < a * X` for independent standard normal `X` and `Y`.

    Args:
        h: an array of real numbers.
        a: an array of real numbers.

    Returns:
        An array of floats of the shape that the arguments broadcast to.

    >>> round(float(owens_t(0.0, 1.0)), 5)
    0.125
    """
    return call_promoted("owens_t", _owens_t, h, a)


@custom_jvp
@jit
def _owens_t(h: Array, a: Array) -> Array:
    """Integrates by Gauss-Legendre quadrature; `a > 1` is reduced to `1 / a` (Owen 1956, (2.3))."""
    is_infinite = fnp.abs(h) == math.inf
    height, slope = fnp.where(is_infinite, 0.0, fnp.abs(h)), fnp.abs(a)
    is_steep = slope > 1
    scaled_height = fnp.where(is_steep, height * slope, height)
    reduced_slope = fnp.where(is_steep, 1 / fnp.where(is_steep, slope, 1.0), slope)
    integral = _owens_integral(scaled_height, reduced_slope)
    p, q = (0.5 * special.erfc(fnp.where(is_steep, v, 0.0) * math.sqrt(0.5)) for v in (height, scaled_height))
    value = fnp.where(is_steep, 0.5 * (p + q) - p * q - integral, integral)
    value = fnp.where(slope == math.inf, 0.25 * special.erfc(height * math.sqrt(0.5)), value)
    value = fnp.where(is_infinite & (a == a), 0.0, value)
    return fnp.where(a < 0, -value, value)


def _owens_integral(h: Array, a: Array) -> Array:
    """Integrates up to where the exponential underflows, which concentrates the nodes on the rest."""
    is_float64 = h.dtype == dtypes.float64
    nodes, weights = _legendre(40 if is_float64 else 20)
    underflow_bound = 9.0 if is_float64 else 6.0
    width = fnp.where(h * a > underflow_bound, underflow_bound / fnp.where(h > 0, h, 1.0), a)
    total = fnp.zeros_like(width)
    for x, weight in zip(nodes, weights, strict=True):
        square = (width * float(0.5 * (x + 1))) ** 2
        total = total + float(weight) * fnp.exp(-0.5 * h * h * square) / (1 + square)
    return total * width * fnp.exp(-0.5 * h * h) / (4 * math.pi)


@memoize(256)
def _legendre(n: int) -> tuple[NDArray, NDArray]:
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return nodes, weights


_owens_t.defjvps(
    lambda t, out, h, a: (
        t * (-0.5 / math.sqrt(2 * math.pi) * fnp.exp(-0.5 * h * h) * special.erf(a * h * math.sqrt(0.5)))
    ),
    lambda t, out, h, a: t * (fnp.exp(-0.5 * h * h * (1 + a * a)) / (2 * math.pi * (1 + a * a))),
)
