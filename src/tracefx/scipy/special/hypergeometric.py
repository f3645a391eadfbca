"""Confluent and Gaussian hypergeometric functions of real numbers."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.ops.elementwise import special
from tracefx.scipy.special.argument_promotion import EULER_GAMMA, call_promoted
from tracefx.scipy.special.gammas import gammasgn
from tracefx.transforms.custom_derivatives import custom_jvp
from tracefx.transforms.jit import jit
from tracefx.transforms.loops import while_loop

_STEPS = 5000
Carry = tuple[Array, ...]


def _series(tops: tuple[Array, ...], bottoms: tuple[Array, ...], x: Array, by: int | None = None) -> Array:
    """The sum of `x**n / n!` times rising factorials of `tops` over those of `bottoms`.

    With `by`, its derivative with respect to that one of `(*tops, *bottoms)`.
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

    def goes(carry: Carry) -> Array:
        return (carry[0] < _STEPS) & fnp.any(carry[5])

    start: Carry = (fnp.zeros((), x.dtype), one, one, zero, zero, one > 0)
    _, _, total, _, slopes, _ = while_loop(goes, step, start)
    return total if by is None else slopes


# ------------------------------------------------------------------ 1F1


def hyp1f1(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """Kummer's confluent hypergeometric function `M(a, b, x)`.

    >>> round(float(hyp1f1(1.0, 2.0, 1.0)), 5)
    1.71828
    """
    return call_promoted("hyp1f1", _hyp1f1, a, b, x)


@custom_jvp
@jit
def _hyp1f1(a: Array, b: Array, x: Array) -> Array:
    """The series; of negative numbers that of Kummer's transformation, whose terms don't cancel (DLMF 13.2.39)."""
    turned = _turned(a, b, x)
    value = _series((fnp.where(turned, b - a, a),), (b,), fnp.where(turned, -x, x))
    return fnp.where(turned, fnp.exp(x) * value, value)


def _turned(a: Array, b: Array, x: Array) -> Array:
    ends = (a <= 0) & (a == fnp.round(a))  # a polynomial
    return (x < 0) & ~ends


@jit
def _hyp1f1_by_a(a: Array, b: Array, x: Array) -> Array:
    turned = x < 0
    slope = _series((fnp.where(turned, b - a, a),), (b,), fnp.where(turned, -x, x), 0)
    return fnp.where(turned, -fnp.exp(x) * slope, slope)


@jit
def _hyp1f1_by_b(a: Array, b: Array, x: Array) -> Array:
    turned = x < 0
    top, z = fnp.where(turned, b - a, a), fnp.where(turned, -x, x)
    slope = _series((top,), (b,), z, 1)
    return fnp.where(turned, fnp.exp(x) * (slope + _series((top,), (b,), z, 0)), slope)


_hyp1f1.defjvps(
    lambda t, out, a, b, x: t * _hyp1f1_by_a(a, b, x),
    lambda t, out, a, b, x: t * _hyp1f1_by_b(a, b, x),
    lambda t, out, a, b, x: t * (a / b * _hyp1f1(a + 1, b + 1, x)),
)


# ------------------------------------------------------------------ 2F1


def hyp2f1(a: ArrayLike, b: ArrayLike, c: ArrayLike, x: ArrayLike) -> Array:
    """Gauss's hypergeometric function of `x` up to 1; NaN beyond.

    >>> round(float(hyp2f1(1.0, 1.0, 2.0, 0.5)), 5)
    1.38629
    """
    return call_promoted("hyp2f1", _hyp2f1, a, b, c, x)


@custom_jvp
@jit
def _hyp2f1(a: Array, b: Array, c: Array, x: Array) -> Array:
    """The series; negative numbers are mapped to positive ones (DLMF 15.8.1), and those near 1 to small ones."""
    ends = _is_end(a) | _is_end(b)
    first = _is_end(a) & (~_is_end(b) | (a >= b))  # the one that ends sooner
    a, b = fnp.where(first, b, a), fnp.where(first, a, b)
    low = (x < 0) & ~ends
    at_one = x == 1
    z = fnp.where(low, x / (x - 1), x)
    top = fnp.where(low, c - b, b)
    swapped = low & _is_end(c - a) & ~_is_end(c - b)
    a, top = fnp.where(swapped, b, a), fnp.where(swapped, c - fnp.where(swapped, a, c), top)
    front = fnp.where(low, fnp.exp(-a * fnp.log1p(fnp.where(low, -x, 0.0))), 1.0)
    ended = ends | _is_end(top)
    near = (z > 0.9) & ~ended & (z < 1)
    plain = ((z < 1) & ~near) | ended
    value = _series((a, top), (c,), fnp.where(plain, z, 0.0))
    value = fnp.where(
        near,
        _near_one(
            fnp.where(near, a, 0.5), fnp.where(near, top, 0.5), fnp.where(near, c, 1.5), fnp.where(near, z, 0.95)
        ),
        value,
    )
    value = fnp.where(at_one & ~ended, _at_one(a, top, c), value)
    return fnp.where((x <= 1) | ends, front * value, fnp.where(x != x, x, math.nan))


def _is_end(a: Array) -> Array:
    return (a <= 0) & (a == fnp.round(a))


def _gamma_quotient(tops: tuple[Array, ...], bottoms: tuple[Array, ...]) -> Array:
    """Gamma functions multiplied over others: 0 where one of those below is infinite."""
    log, sign = fnp.zeros_like(tops[0]), fnp.ones_like(tops[0])
    pole = log > 0
    for each in tops:
        log, sign = log + special.lgamma(each), sign * gammasgn(each)
    for each in bottoms:
        at_pole = _is_end(each)
        safe = fnp.where(at_pole, 1.0, each)
        log, sign, pole = log - special.lgamma(safe), sign * gammasgn(safe), pole | at_pole
    return fnp.where(pole, 0.0, sign * fnp.exp(log))


def _at_one(a: Array, b: Array, c: Array) -> Array:
    """DLMF 15.4.20; infinite where the series diverges."""
    s = c - a - b
    value = _gamma_quotient((c, fnp.where(s > 0, s, 1.0)), (c - a, c - b))
    return fnp.where(s > 0, value, math.inf * gammasgn(c) * gammasgn(a) * gammasgn(b))


def _near_one(a: Array, b: Array, c: Array, x: Array) -> Array:
    """By functions of `1 - x`: DLMF 15.8.4, which loses digits where `s = c - a - b` is close to a whole number.

    So close that half of the digits would go, it is taken for that number.
    """
    y, s = 1 - x, c - a - b
    close = fnp.abs(s - fnp.round(s)) < float(dtypes.finfo(x.dtype).eps) ** 0.5
    apart = fnp.where(close, 0.5, s)
    far = fnp.where(close, 0.0, y)
    value = _gamma_quotient((c, apart), (c - a, c - b)) * _series((a, b), (1 - apart,), far)
    other = fnp.exp(apart * fnp.log(y)) * _series((c - a, c - b), (1 + apart,), far)
    value = value + _gamma_quotient((c, -apart), (a, b)) * other
    # Euler's transformation (DLMF 15.8.1) where the number is negative.
    below = s < -0.5
    whole = _at_whole(fnp.where(below, c - a, a), fnp.where(below, c - b, b), c, fnp.abs(fnp.round(s)), y)
    return fnp.where(close, fnp.where(below, fnp.exp(s * fnp.log(y)), 1.0) * whole, value)


def _at_whole(a: Array, b: Array, c: Array, m: Array, y: Array) -> Array:
    """Where `m = c - a - b` is a whole number from 0 on: DLMF 15.8.10, a finite sum and one with logarithms."""
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
    """The derivative with respect to `a`, `b` or `c`, of `x` from below 0 on by Pfaff's transformation."""
    low = x < 0
    z = fnp.where(low, x / (x - 1), x)
    top = fnp.where(low, c - b, b)
    front = fnp.exp(-a * fnp.log1p(fnp.where(low, -x, 0.0)))
    if which == 0:
        slope = _series((a, top), (c,), z, 0)
        logs = fnp.where(low, fnp.log1p(fnp.where(low, -x, 0.0)), 0.0)
        return front * (slope - logs * _series((a, top), (c,), z))
    by_top = _series((a, top), (c,), z, 1)
    if which == 1:
        return front * fnp.where(low, -by_top, by_top)
    return front * (_series((a, top), (c,), z, 2) + fnp.where(low, by_top, 0.0))


_by_parameter_compiled = jit(_by_parameter, static_argnums=0)

_hyp2f1.defjvps(
    lambda t, out, a, b, c, x: t * _by_parameter_compiled(0, a, b, c, x),
    lambda t, out, a, b, c, x: t * _by_parameter_compiled(1, a, b, c, x),
    lambda t, out, a, b, c, x: t * _by_parameter_compiled(2, a, b, c, x),
    lambda t, out, a, b, c, x: t * (a * b / c * _hyp2f1(a + 1, b + 1, c + 1, x)),
)
