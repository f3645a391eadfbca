"""Exponential integrals, sine and cosine integrals, Fresnel integrals, and the dilogarithm."""

from __future__ import annotations

import math
from collections.abc import Callable

import tracefx.numpy as fnp
from tracefx.control.special.polynomials import chebyshev_on
from tracefx.core import Array, ArrayLike, dtypes
from tracefx.ops.elementwise import special
from tracefx.scipy.special.argument_promotion import EULER_GAMMA, call_promoted
from tracefx.scipy.special.chebyshev_coefficients import (
    CI,
    E1_FAR,
    E1_MIDDLE,
    E1_NEAR,
    EI_FAR,
    EI_MIDDLE,
    EI_OUTER,
    EI_ROOT,
    FRESNEL_C,
    FRESNEL_F,
    FRESNEL_G,
    FRESNEL_S,
    SI,
    SINE_F,
    SINE_G,
    SPENCE,
)
from tracefx.transforms.custom_derivatives import custom_jvp
from tracefx.transforms.jit import jit
from tracefx.transforms.loops import while_loop

# ------------------------------------------------------------------ exponential integrals

_ROOT = 0.37250741078136663
"""The root of `expi`, rounded to a double."""
_ROOT_REST = 1.3140183414386028e-17
"""The rest of the root."""


def expi(x: ArrayLike) -> Array:
    """Computes the exponential integral Ei.

    It is the principal value of the integral of `exp(t) / t` from minus infinity to `x`.

    Args:
        x: an array of real numbers.

    Returns:
        An array of floats of the shape of `x`.

    >>> round(float(expi(1.0)), 5)
    1.89512
    """
    return call_promoted("expi", _expi, x)


@custom_jvp
@jit
def _expi(x: Array) -> Array:
    small = fnp.where((x > 0) & (x < 4), x, 1.0)
    distance_to_root = (small - _ROOT) - _ROOT_REST
    is_near_root = (small > 0.2) & (small < 0.6)
    log = fnp.where(
        is_near_root,
        fnp.log1p(fnp.where(is_near_root, distance_to_root, 0.0) / _ROOT),
        fnp.log(small) - math.log(_ROOT),
    )
    value = log + distance_to_root * chebyshev_on(0, 4, EI_ROOT, small)
    growth = fnp.exp(fnp.where(x > 4, x, 4.0))
    factors: tuple[tuple[float, float, Callable[[Array], Array]], ...] = (
        (4, 10, lambda z: chebyshev_on(4, 10, EI_MIDDLE, z)),
        (10, 25, lambda z: chebyshev_on(10, 25, EI_OUTER, z)),
        (25, math.inf, lambda z: chebyshev_on(0, 1, EI_FAR, 25 / z)),
    )
    for low, high, chebyshev_factor in factors:
        is_in_interval = (x >= low) & (x < high)
        z = fnp.where(is_in_interval, x, float(low))
        value = fnp.where(is_in_interval, growth * (chebyshev_factor(z) / z), value)
    value = fnp.where(x == math.inf, math.inf, value)
    value = fnp.where(x < 0, -_exp1(fnp.where(x < 0, -x, 1.0)), value)
    return fnp.where(x == 0, -math.inf, fnp.where(x != x, math.nan, value))


_expi.defjvps(lambda t, out, x: t * (fnp.exp(x) / x))


def exp1(x: ArrayLike) -> Array:
    """Computes the exponential integral E1: the integral of `exp(-t) / t` from `x` to infinity.

    Args:
        x: an array of real numbers.

    Returns:
        An array of floats of the shape of `x`; NaN for negative numbers.

    >>> round(float(exp1(1.0)), 5)
    0.21938
    """
    return call_promoted("exp1", _exp1, x)


@custom_jvp
@jit
def _exp1(x: Array) -> Array:
    small = fnp.where((x > 0) & (x < 1), x, 0.5)
    near = small * chebyshev_on(0, 1, E1_NEAR, small) - EULER_GAMMA - fnp.log(small)
    middle = fnp.where((x >= 1) & (x < 4), x, 2.0)
    large = fnp.where(x >= 4, x, 8.0)
    fall = fnp.exp(-fnp.where(x >= 1, x, 1.0))
    value = fnp.where(x < 4, fall * chebyshev_on(0.25, 1, E1_MIDDLE, 1 / middle) / middle, 0.0)
    value = fnp.where(x < 4, value, fall * chebyshev_on(0, 1, E1_FAR, 4 / large) / large)
    value = fnp.where(x < 1, near, value)
    return fnp.where(x == 0, math.inf, fnp.where(x >= 0, value, math.nan))


_exp1.defjvps(lambda t, out, x: t * (-fnp.exp(-x) / x))


def expn(n: ArrayLike, x: ArrayLike) -> Array:
    """Computes the generalized exponential integral: the integral of `exp(-x * t) / t**n` from 1 to infinity.

    Differentiable with respect to `x` only.

    Args:
        n: an array of nonnegative integers, as integers or floats.
        x: an array of nonnegative numbers.

    Returns:
        An array of floats of the shape that the arguments broadcast to; NaN where `n` or `x` is negative.

    >>> round(float(expn(2, 1.0)), 5)
    0.1485
    """
    return call_promoted("expn", _expn, n, x)


@custom_jvp
@jit
def _expn(n: Array, x: Array) -> Array:
    valid = (n >= 0) & (x >= 0) & (n == fnp.floor(n)) & (x < math.inf)
    inner = valid & (n > 0) & (x > 0)
    low = inner & (x <= 1)
    value = fnp.where(low, _expn_series(fnp.where(low, n, 1.0), fnp.where(low, x, 0.5)), 0.0)
    high = inner & (x > 1)
    value = fnp.where(high, _expn_fraction(fnp.where(high, n, 1.0), fnp.where(high, x, 2.0)), value)
    value = fnp.where(n == 0, fnp.exp(-x) / fnp.where(x == 0, 1.0, x), value)
    value = fnp.where(x == 0, fnp.where(n > 1, 1 / fnp.where(n > 1, n - 1, 1.0), math.inf), value)
    value = fnp.where((x == math.inf) & (n >= 0), 0.0, value)
    return fnp.where(valid | ((x == math.inf) & (n >= 0)), value, math.nan)


def _expn_series(n: Array, x: Array) -> Array:
    """Sums the series for `x <= 1` (DLMF 8.19.8)."""
    total = fnp.zeros_like(x)
    for m in range(20 if x.dtype == dtypes.float64 else 13, -1, -1):  # sum((-x)**m / (m! * (m - n + 1))) but m = n - 1
        distance = m + 1 - n
        total = fnp.where(distance == 0, 0.0, 1 / fnp.where(distance == 0, 1.0, distance)) + total * x / -(m + 1.0)
    k = n - 1
    power = fnp.exp(k * fnp.log(x) - special.lgamma(n))
    sign = 1 - 2 * (k - 2 * fnp.floor(k / 2))
    return sign * power * (special.digamma(n) - fnp.log(x)) - total


def _expn_fraction(n: Array, x: Array) -> Array:
    """Evaluates the continued fraction for `x > 1` (DLMF 8.19.17), summing its approximants by Steed's method."""
    precision = float(dtypes.finfo(x.dtype).eps) / 8
    start = 1 / (x + n)

    def step(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        i, d, term, total = carry
        numerator = -i * (n + i - 1)
        after = 1 / (x + n + 2 * i + numerator * d)
        term = -numerator * d * after * term
        return i + 1, after, term, total + term

    def is_unfinished(carry: tuple[Array, Array, Array, Array]) -> Array:
        i, _, term, total = carry
        return fnp.any(fnp.abs(term) > precision * total) & (i < 500)

    one = fnp.ones((), x.dtype)
    _, _, _, total = while_loop(is_unfinished, step, (one, start, start, start))
    return total * fnp.exp(-x)


def _expn_slope(t: Array, out: Array, n: Array, x: Array) -> Array:
    is_order_zero = n == 0  # here the function is exp(-x) / x
    return -t * fnp.where(
        is_order_zero, out * (1 + 1 / fnp.where(is_order_zero, x, 1.0)), _expn(fnp.where(is_order_zero, n, n - 1), x)
    )


_expn.defjvps(None, _expn_slope)


# ------------------------------------------------------------------ sine and cosine integrals


def sici(x: ArrayLike) -> tuple[Array, Array]:
    """Computes the sine integral and the cosine integral.

    They are the integrals of `sin(t) / t` from 0 to `x`, and of `cos(t) / t` from infinity to `abs(x)`.

    Args:
        x: an array of real numbers.

    Returns:
        Two arrays of floats of the shape of `x`.

    >>> [round(float(v), 5) for v in sici(1.0)]
    [0.94608, 0.3374]
    """
    return call_promoted("sici", _sici, x)


@custom_jvp
@jit
def _sici(x: Array) -> tuple[Array, Array]:
    """Evaluates Chebyshev series for `abs(x) <= 4`, and of the auxiliary functions beyond (DLMF 6.2.17-6.2.20)."""
    size = fnp.abs(x)
    is_small = size <= 4
    small = fnp.where(is_small, size, 1.0)
    square = small * small
    safe_large = fnp.where(is_small, 4.0, size)
    ratio = (4 / safe_large) ** 2
    f = chebyshev_on(0, 1, SINE_F, ratio) / safe_large
    g = chebyshev_on(0, 1, SINE_G, ratio) / (safe_large * safe_large)
    angle = fnp.where(safe_large == math.inf, 0.0, safe_large)
    sine, cosine = fnp.sin(angle), fnp.cos(angle)
    si = fnp.where(is_small, small * chebyshev_on(0, 16, SI, square), math.pi / 2 - f * cosine - g * sine)
    log = fnp.log(fnp.where(size == 0, 1.0, small))
    ci = fnp.where(is_small, EULER_GAMMA + log + square * chebyshev_on(0, 16, CI, square), f * sine - g * cosine)
    ci = fnp.where(size == 0, -math.inf, fnp.where(x == -math.inf, math.nan, ci))
    return fnp.where(x < 0, -si, si), ci


@_sici.defjvp
def _sici_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    (x,), (t,) = primals, tangents
    return _sici(x), (t * fnp.sinc(x / math.pi), t * (fnp.cos(x) / x))


def fresnel(x: ArrayLike) -> tuple[Array, Array]:
    """Computes the Fresnel integrals: of `sin(pi * t**2 / 2)` and of `cos(pi * t**2 / 2)` from 0 to `x`.

    Args:
        x: an array of real numbers.

    Returns:
        Two arrays of floats of the shape of `x`.

    >>> [round(float(v), 5) for v in fresnel(1.0)]
    [0.43826, 0.77989]
    """
    return call_promoted("fresnel", _fresnel, x)


@custom_jvp
@jit
def _fresnel(x: Array) -> tuple[Array, Array]:
    """Evaluates Chebyshev series for `abs(x) <= 1.6`, and of the auxiliary functions beyond (DLMF 7.5.3, 7.5.4)."""
    size = fnp.abs(x)
    near = size <= 1.6
    small = fnp.where(near, size, 1.0)
    fourth = small**4
    outer = fnp.where(near, 1.6, fnp.minimum(size, 1e8))
    ratio = (1.6 / outer) ** 4
    far = fnp.where(near, 1.6, size)
    f = chebyshev_on(0, 1, FRESNEL_F, ratio) / (math.pi * far)
    g = chebyshev_on(0, 1, FRESNEL_G, ratio) / (math.pi**2 * far**3)
    sine, cosine = _turns(outer)
    s = fnp.where(near, small**3 * chebyshev_on(0, 1.6**4, FRESNEL_S, fourth), 0.5 - f * cosine - g * sine)
    c = fnp.where(near, small * chebyshev_on(0, 1.6**4, FRESNEL_C, fourth), 0.5 + f * sine - g * cosine)
    return fnp.where(x < 0, -s, s), fnp.where(x < 0, -c, c)


def _turns(x: Array) -> tuple[Array, Array]:
    """Returns the sine and cosine of `pi * x**2 / 2`.

    The square of the leading bits is exact, and multiples of 4, whole periods, are removed.
    """
    leading = fnp.round(x * 16) / 16
    trailing = x - leading
    quarter_turns = (
        fnp.remainder(leading * leading, 4.0) + fnp.remainder(2 * leading * trailing, 4.0) + trailing * trailing
    )
    return fnp.sin(quarter_turns * (math.pi / 2)), fnp.cos(quarter_turns * (math.pi / 2))


@_fresnel.defjvp
def _fresnel_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    (x,), (t,) = primals, tangents
    sine, cosine = _turns(x)
    return _fresnel(x), (t * sine, t * cosine)


# ------------------------------------------------------------------ the dilogarithm


def spence(x: ArrayLike) -> Array:
    """Computes Spence's function (the dilogarithm of `1 - x`): the integral of `log(t) / (1 - t)` from 1 to `x`.

    Args:
        x: an array of real numbers.

    Returns:
        An array of floats of the shape of `x`; NaN for negative numbers.

    >>> round(float(spence(0.0)), 5)
    1.64493
    """
    return call_promoted("spence", _spence, x)


@custom_jvp
@jit
def _spence(x: Array) -> Array:
    """Evaluates a Chebyshev series between 1/2 and 3/2, to which other numbers are mapped (DLMF 25.12.4, 25.12.6)."""
    is_large = x > 1.5
    z = fnp.where(is_large, 1 / fnp.where(is_large, x, 2.0), x)
    is_small = z < 0.5
    w = fnp.where(is_small, -z, z - 1)
    value = w * chebyshev_on(-0.5, 0.5, SPENCE, fnp.clip(w, -0.5, 0.5))
    is_zero = z == 0
    log_complement = fnp.where(
        z < 0.25, fnp.log1p(-fnp.where(z < 0.25, z, 0.0)), fnp.log(1 - fnp.where(is_small, z, 0.0))
    )
    logs = fnp.where(is_zero, 0.0, fnp.log(fnp.where(is_zero, 1.0, z)) * log_complement)
    value = fnp.where(is_small, math.pi**2 / 6 - logs - value, value)
    log = fnp.log(fnp.where(is_large, x, 1.0))
    value = fnp.where(is_large, -0.5 * log * log - value, value)
    return fnp.where(x == math.inf, -math.inf, fnp.where(x >= 0, value, math.nan))


def _spence_slope(t: Array, out: Array, x: Array) -> Array:
    at_one = x == 1
    return t * fnp.where(at_one, -1.0, fnp.log(x) / fnp.where(at_one, 1.0, 1 - x))


_spence.defjvps(_spence_slope)
