"""Confluent (1F1) and Gaussian (2F1) hypergeometric functions of real numbers."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.core import Array, ArrayLike, dtypes
from tracefx.ops.elementwise import special
from tracefx.scipy.special.argument_promotion import EULER_GAMMA, call_promoted
from tracefx.scipy.special.gammas import gammasgn
from tracefx.transforms.custom_derivatives import custom_jvp
from tracefx.transforms.jit import jit
from tracefx.transforms.loops import while_loop

_STEPS = 5000
"""The largest number of terms of a series."""
Carry = tuple[Array, ...]


def _series(tops: tuple[Array, ...], bottoms: tuple[Array, ...], x: Array, by: int | None = None) -> Array:
    """Sums `x**n / n!` times the rising factorials of `tops`, divided by those of `bottoms`.

    With `by`, it returns the derivative with respect to the parameter `(*tops, *bottoms)[by]`.
    """
    precision = float(dtypes.finfo(x.dtype).eps) / 8
    one, zero = fnp.ones_like(x), fnp.zeros_like(x)

    def step(carry: Carry) -> Carry:
        n, term, total, slope, slopes, _ = carry
        factor, change = x / (n + 1), x * 0
        for i, top in enumerate(tops):
            if i == by:
                change = change * (top + n) + factor
            else:
                change = change * (top + n)
            factor = factor * (top + n)
        for i, bottom in enumerate(bottoms, len(tops)):
            inverse = 1 / (bottom + n)
            change = change * inverse - (factor * inverse * inverse if i == by else 0)
            factor = factor * inverse
        slope = slope * factor + term * change
        term = term * factor
        shrinking = fnp.abs(factor) < 1
        small = (fnp.abs(term) <= precision * fnp.abs(total)) & (fnp.abs(slope) <= precision * fnp.abs(slopes))
        ended = (term == 0) & (slope == 0)
        return n + 1, term, total + term, slope, slopes + slope, ~(small & shrinking) & ~ended & fnp.isfinite(term)

    def is_unfinished(carry: Carry) -> Array:
        return (carry[0] < _STEPS) & fnp.any(carry[5])

    start: Carry = (fnp.zeros((), x.dtype), one, one, zero, zero, one > 0)
    _, _, total, _, slopes, _ = while_loop(is_unfinished, step, start)
    return total if by is None else slopes


# ------------------------------------------------------------------ 1F1


def hyp1f1(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """Computes Kummer's confluent hypergeometric function `M(a, b, x)`.

    Args:
        a: an array of real numbers.
        b: an array of real numbers.
        x: an array of real numbers.

    Returns:
        An array of floats of the shape that the arguments broadcast to.

    >>> round(float(hyp1f1(1.0, 2.0, 1.0)), 5)
    1.71828
    """
    return call_promoted("hyp1f1", _hyp1f1, a, b, x)


@custom_jvp
@jit
def _hyp1f1(a: Array, b: Array, x: Array) -> Array:
    """Sums the series, for negative `x` that of Kummer's transformation, whose terms don't cancel (DLMF 13.2.39)."""
    is_transformed = _uses_kummer(a, b, x)
    value = _series((fnp.where(is_transformed, b - a, a),), (b,), fnp.where(is_transformed, -x, x))
    return fnp.where(is_transformed, fnp.exp(x) * value, value)


def _uses_kummer(a: Array, b: Array, x: Array) -> Array:
    """Returns where Kummer's transformation is used: for negative `x`, unless the series is finite."""
    is_polynomial = (a <= 0) & (a == fnp.round(a))  # a polynomial
    return (x < 0) & ~is_polynomial


@jit
def _hyp1f1_by_a(a: Array, b: Array, x: Array) -> Array:
    """Returns the derivative of `_hyp1f1` with respect to `a`."""
    is_transformed = x < 0
    slope = _series((fnp.where(is_transformed, b - a, a),), (b,), fnp.where(is_transformed, -x, x), 0)
    return fnp.where(is_transformed, -fnp.exp(x) * slope, slope)


@jit
def _hyp1f1_by_b(a: Array, b: Array, x: Array) -> Array:
    """Returns the derivative of `_hyp1f1` with respect to `b`."""
    is_transformed = x < 0
    top, z = fnp.where(is_transformed, b - a, a), fnp.where(is_transformed, -x, x)
    slope = _series((top,), (b,), z, 1)
    return fnp.where(is_transformed, fnp.exp(x) * (slope + _series((top,), (b,), z, 0)), slope)


_hyp1f1.defjvps(
    lambda t, out, a, b, x: t * _hyp1f1_by_a(a, b, x),
    lambda t, out, a, b, x: t * _hyp1f1_by_b(a, b, x),
    lambda t, out, a, b, x: t * (a / b * _hyp1f1(a + 1, b + 1, x)),
)


# ------------------------------------------------------------------ 2F1


def hyp2f1(a: ArrayLike, b: ArrayLike, c: ArrayLike, x: ArrayLike) -> Array:
    """Computes the Gaussian hypergeometric function `F(a, b, c, x)`.

    Args:
        a: an array of real numbers.
        b: an array of real numbers.
        c: an array of real numbers.
        x: an array of real numbers up to 1.

    Returns:
        An array of floats of the shape that the arguments broadcast to; NaN for `x > 1`, unless the series is finite.

    >>> round(float(hyp2f1(1.0, 1.0, 2.0, 0.5)), 5)
    1.38629
    """
    return call_promoted("hyp2f1", _hyp2f1, a, b, c, x)


@custom_jvp
@jit
def _hyp2f1(a: Array, b: Array, c: Array, x: Array) -> Array:
    """Sums the series; maps negative `x` to positive ones (DLMF 15.8.1), and `x` near 1 to `1 - x`."""
    is_polynomial = _is_nonpositive_integer(a) | _is_nonpositive_integer(b)
    swaps_a_and_b = _is_nonpositive_integer(a) & (
        ~_is_nonpositive_integer(b) | (a >= b)
    )  # a terminates the series sooner
    a, b = fnp.where(swaps_a_and_b, b, a), fnp.where(swaps_a_and_b, a, b)
    is_negative = (x < 0) & ~is_polynomial
    is_one = x == 1
    z = fnp.where(is_negative, x / (x - 1), x)
    top = fnp.where(is_negative, c - b, b)
    swaps_again = is_negative & _is_nonpositive_integer(c - a) & ~_is_nonpositive_integer(c - b)
    a, top = fnp.where(swaps_again, b, a), fnp.where(swaps_again, c - fnp.where(swaps_again, a, c), top)
    factor = fnp.where(is_negative, fnp.exp(-a * fnp.log1p(fnp.where(is_negative, -x, 0.0))), 1.0)
    is_finite_sum = is_polynomial | _is_nonpositive_integer(top)
    is_near_one = (z > 0.9) & ~is_finite_sum & (z < 1)
    uses_series = ((z < 1) & ~is_near_one) | is_finite_sum
    value = _series((a, top), (c,), fnp.where(uses_series, z, 0.0))
    value = fnp.where(
        is_near_one,
        _near_one(
            fnp.where(is_near_one, a, 0.5),
            fnp.where(is_near_one, top, 0.5),
            fnp.where(is_near_one, c, 1.5),
            fnp.where(is_near_one, z, 0.95),
        ),
        value,
    )
    value = fnp.where(is_one & ~is_finite_sum, _at_one(a, top, c), value)
    return fnp.where((x <= 1) | is_polynomial, factor * value, fnp.where(x != x, x, math.nan))


def _is_nonpositive_integer(a: Array) -> Array:
    """Returns where a parameter is a nonpositive integer, which makes the series finite."""
    return (a <= 0) & (a == fnp.round(a))


def _gamma_quotient(tops: tuple[Array, ...], bottoms: tuple[Array, ...]) -> Array:
    """Returns the product of `gamma(tops)` divided by that of `gamma(bottoms)`: 0 at a pole of the denominator."""
    log, sign = fnp.zeros_like(tops[0]), fnp.ones_like(tops[0])
    pole = log > 0
    for each in tops:
        log, sign = log + special.lgamma(each), sign * gammasgn(each)
    for each in bottoms:
        at_pole = _is_nonpositive_integer(each)
        safe = fnp.where(at_pole, 1.0, each)
        log, sign, pole = log - special.lgamma(safe), sign * gammasgn(safe), pole | at_pole
    return fnp.where(pole, 0.0, sign * fnp.exp(log))


def _at_one(a: Array, b: Array, c: Array) -> Array:
    """Evaluates Gauss's formula for `x = 1` (DLMF 15.4.20); infinite where the series diverges."""
    s = c - a - b
    value = _gamma_quotient((c, fnp.where(s > 0, s, 1.0)), (c - a, c - b))
    return fnp.where(s > 0, value, math.inf * gammasgn(c) * gammasgn(a) * gammasgn(b))


def _near_one(a: Array, b: Array, c: Array, x: Array) -> Array:
    """Evaluates functions of `1 - x` (DLMF 15.8.4), for `x` near 1.

    The formula loses digits where `s = c - a - b` is close to an integer; where half of the digits would be lost, `s`
    is rounded to it.
    """
    y, s = 1 - x, c - a - b
    is_integer = fnp.abs(s - fnp.round(s)) < float(dtypes.finfo(x.dtype).eps) ** 0.5
    noninteger_s = fnp.where(is_integer, 0.5, s)
    safe_y = fnp.where(is_integer, 0.0, y)
    value = _gamma_quotient((c, noninteger_s), (c - a, c - b)) * _series((a, b), (1 - noninteger_s,), safe_y)
    other = fnp.exp(noninteger_s * fnp.log(y)) * _series((c - a, c - b), (1 + noninteger_s,), safe_y)
    value = value + _gamma_quotient((c, -noninteger_s), (a, b)) * other
    # Euler's transformation (DLMF 15.8.1) where s is negative.
    is_negative = s < -0.5
    integer_case = _integer_difference_case(
        fnp.where(is_negative, c - a, a), fnp.where(is_negative, c - b, b), c, fnp.abs(fnp.round(s)), y
    )
    return fnp.where(is_integer, fnp.where(is_negative, fnp.exp(s * fnp.log(y)), 1.0) * integer_case, value)


def _integer_difference_case(a: Array, b: Array, c: Array, m: Array, y: Array) -> Array:
    """Evaluates the case of integers `m = c - a - b >= 0`: a finite sum and a logarithmic series (DLMF 15.8.10)."""
    precision = float(dtypes.finfo(y.dtype).eps) / 8
    one, zero = fnp.ones_like(y), fnp.zeros_like(y)

    def finite(carry: Carry) -> Carry:
        k, term, total = carry
        total = total + fnp.where(k < m, term, 0.0)
        factor = -(a + k) * (b + k) * y / ((k + 1) * fnp.where(k + 1 < m, m - k - 1, 1.0))
        return k + 1, term * factor, total

    def endless(carry: Carry) -> Carry:
        k, term, logs, total, _ = carry
        part = term * logs
        logs = logs - 1 / (k + 1) - 1 / (m + k + 1) + 1 / (a + m + k) + 1 / (b + m + k)
        term = term * ((a + m + k) * (b + m + k) / ((k + 1) * (m + k + 1)) * y)
        return k + 1, term, logs, total + part, fnp.abs(term * logs) > precision * fnp.abs(total + part)

    start: Carry = (fnp.zeros((), y.dtype), one, zero)
    first = while_loop(lambda carry: fnp.any(carry[0] < m) & (carry[0] < _STEPS), finite, start)[2]
    logs = fnp.log(y) + EULER_GAMMA - special.digamma(m + 1) + special.digamma(a + m) + special.digamma(b + m)
    begin: Carry = (fnp.zeros((), y.dtype), one, logs, zero, one > 0)
    second = while_loop(lambda carry: fnp.any(carry[4]) & (carry[0] < _STEPS), endless, begin)[3]
    sign = 1 - 2 * fnp.remainder(m, 2)
    rest = sign * fnp.exp(m * fnp.log(y)) * _gamma_quotient((c,), (a, b, m + 1)) * second
    return _gamma_quotient((c, fnp.maximum(m, 1.0)), (a + m, b + m)) * first - rest


def _by_parameter(which: int, a: Array, b: Array, c: Array, x: Array) -> Array:
    """Returns the derivative with respect to `a`, `b` or `c`; for negative `x` by Pfaff's transformation."""
    is_negative = x < 0
    z = fnp.where(is_negative, x / (x - 1), x)
    top = fnp.where(is_negative, c - b, b)
    factor = fnp.exp(-a * fnp.log1p(fnp.where(is_negative, -x, 0.0)))
    if which == 0:
        slope = _series((a, top), (c,), z, 0)
        logs = fnp.where(is_negative, fnp.log1p(fnp.where(is_negative, -x, 0.0)), 0.0)
        return factor * (slope - logs * _series((a, top), (c,), z))
    by_top = _series((a, top), (c,), z, 1)
    if which == 1:
        return factor * fnp.where(is_negative, -by_top, by_top)
    return factor * (_series((a, top), (c,), z, 2) + fnp.where(is_negative, by_top, 0.0))


_by_parameter_compiled = jit(_by_parameter, static_argnums=0)

_hyp2f1.defjvps(
    lambda t, out, a, b, c, x: t * _by_parameter_compiled(0, a, b, c, x),
    lambda t, out, a, b, c, x: t * _by_parameter_compiled(1, a, b, c, x),
    lambda t, out, a, b, c, x: t * _by_parameter_compiled(2, a, b, c, x),
    lambda t, out, a, b, c, x: t * (a * b / c * _hyp2f1(a + 1, b + 1, c + 1, x)),
)
