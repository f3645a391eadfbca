"""The regularized incomplete gamma functions `P` and `Q = 1 - P`, and what they change by with their first argument.

Where `a` is large and `x` near to it they follow from an expansion that holds uniformly (`temme.py`). Elsewhere `P` is
a series if `x <= max(a, 1)` (DLMF 8.11.4), and `Q` a continued fraction if not (DLMF 8.9.2, its approximants added
up by Steed's method, Numerical Recipes 5.2), so that neither takes more than about a hundred terms. `Q` of small `a`
and `x`, where `P` is nearly 1, is written by what is left (Gautschi 1979; Gil, Segura and Temme 2012, section 2.3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, final

from attrs import frozen
from typing_extensions import override

from tracefx.control.special.defined import Defined, count_as, repeat
from tracefx.control.special.gamma_parts import (
    LARGE,
    digamma_rest,
    gamma_density,
    lgamma1p,
    log1p_rest,
    stirling,
)
from tracefx.control.special.temme import FARTHEST, LEAST, expansion
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.primitive import Tangent
from tracefx.core.values import Value
from tracefx.ops.arithmetic import div, mul, neg, sub
from tracefx.ops.elementwise import bind_binary
from tracefx.ops.magnitude import abs, sign
from tracefx.ops.selection import where
from tracefx.ops.special import digamma, erfc
from tracefx.ops.transcendental import exp, expm1, log, log1p, sqrt

# ------------------------------------------------------------------ where what holds


@final
@frozen(eq=False)
class Places:
    """The operands, made harmless wherever a part doesn't apply, and which part applies where."""

    a: Array
    x: Array
    uniform: Array
    lower: Array

    def chosen(self, uniform: Array, lower: Array, upper: Array) -> Array:
        aval = self.a.aval
        return where(self.uniform, uniform, where(self.lower, lower, upper, aval), aval)


def places(a: Array, x: Array) -> Places:
    inside = (a > 0) & (x > 0) & (a < math.inf) & (x < math.inf)
    a, x = where(inside, a, 1.0, a.aval), where(inside, x, 1.0, a.aval)
    uniform = (a > LEAST) & (abs(x - a) < FARTHEST * a)
    return Places(a, x, uniform, (x <= 1) | (x <= a))


def edges(a: Array, x: Array, value: Array, at_zero: float, at_infinity: float) -> Array:
    """A function of `a > 0` and `x > 0` with its values at the ends of `x`; NaN beyond them."""
    value = where(x == 0, at_zero, value, a.aval)
    value = where((x == math.inf) & (a < math.inf), at_infinity, value, a.aval)
    value = where(a == math.inf, where(x == math.inf, math.nan, at_zero, a.aval), value, a.aval)
    return where((a >= 0) & (x >= 0), value, math.nan, a.aval)


# ------------------------------------------------------------------ three ways to compute

_TERMS: Final = 4  # of a series or fraction in a step of its loop, so that arrays are read and written less often
_STEPS: Final = 250


def _precision(x: Array) -> float:
    return float(dtypes.finfo(x.dtype).eps)


def _series(p: Places, slopes: bool) -> tuple[Array, Array]:
    """The sum of `x**n / ((a + 1) * ... * (a + n))`, and its derivative with respect to `a` if that is asked for."""
    active = p.lower & ~p.uniform
    a, x = where(active, p.a, 1.0, p.a.aval), where(active, p.x, 0.0, p.a.aval)
    one, zero = a * 0 + 1, a * 0

    def step(count: Value, *carry: Value) -> Sequence[Value]:
        total, term, *rest = carry
        for k in range(_TERMS):
            shift = 1 / (a + count_as(a, count) * _TERMS + (k + 1))
            if rest:  # the sum of the derivatives, and that of the term
                by_term = (rest[1] - term * shift) * x * shift
                rest = [rest[0] + by_term, by_term]
            term = term * x * shift
            total = total + term
        return [total, term, *rest]

    def changing(total: Array, term: Array, *rest: Array) -> Array:
        test = term > _precision(a) / 8 * total
        return test | (abs(rest[1]) > _precision(a) / 8 * abs(rest[0])) if rest else test

    out = repeat(changing, step, _STEPS, [one, one, zero, zero] if slopes else [one, one])
    return out[0], out[2] if slopes else zero  # type: ignore[return-value]


def _fraction(p: Places, slopes: bool) -> tuple[Array, Array]:
    """`h` of `Q = x**a * exp(-x) / gamma(a) * h`, and its derivative with respect to `a` if that is asked for."""
    active = ~p.lower & ~p.uniform
    a, x = where(active, p.a, 1.0, p.a.aval), where(active, p.x, 2.0, p.a.aval)
    d = 1 / (x - a + 1)
    zero = a * 0

    def step(count: Value, *carry: Value) -> Sequence[Value]:
        d, term, h, *rest = carry
        for k in range(_TERMS):
            i = count_as(a, count) * _TERMS + (k + 1)
            numerator = i * (a - i)
            after = 1 / (x - a + 1 + 2 * i + numerator * d)
            factor = -numerator * d * after
            if rest:  # the derivatives of the numerator and of what it stands over are i and -1
                dd, dterm, dh = rest
                dafter = after * after * (1 - i * d - numerator * dd)
                dfactor = -(i * d * after + numerator * (dd * after + d * dafter))
                dterm = dfactor * term + factor * dterm
                rest = [dafter, dterm, dh + dterm]
            d, term = after, term * factor
            h = h + term
        return [d, term, h, *rest]

    def changing(d: Array, term: Array, h: Array, *rest: Array) -> Array:
        test = abs(term) > _precision(a) / 8 * h
        return test | (abs(rest[1]) > _precision(a) / 8 * abs(rest[2])) if rest else test

    out = repeat(changing, step, _STEPS, [d, d, d, d * d, d * d, d * d] if slopes else [d, d, d])
    return out[2], out[5] if slopes else zero  # type: ignore[return-value]


def _uniform(p: Places) -> tuple[Array, Array, Array, Array]:
    """`a`, `mu`, `eta` and `eta**2 / 2` of the uniform expansion."""
    a = where(p.uniform, p.a, 2 * LEAST, p.a.aval)
    mu = where(p.uniform, (p.x - a) / a, 0.0, a.aval)
    half = log1p_rest(mu, mu + 1)
    return a, mu, sign(mu) * sqrt(2 * half), half


def _uniform_value(p: Places, side: int) -> Array:
    """`P` for `side` -1, `Q` for 1."""
    a, _, eta, half = _uniform(p)
    total, _, _ = expansion(a, eta)
    rest = exp(-a * half) / sqrt(2 * math.pi * a) * total
    return 0.5 * erfc(side * eta * sqrt(0.5 * a)) + side * rest


# ------------------------------------------------------------------ values


def lower(a: Array, x: Array) -> Array:
    """`P(a, x)`."""
    p = places(a, x)
    weight = gamma_density(p.a, p.x)
    below = weight * _series(p, False)[0]
    above = 1 - weight * p.a * _fraction(p, False)[0]
    value = p.chosen(_uniform_value(p, -1), below, above)
    value = where((a == 0) & (x > 0), 1.0, edges(a, x, value, 0.0, 1.0), a.aval)
    return where((a == 0) & (x == 0), math.nan, value, a.aval)


def upper(a: Array, x: Array) -> Array:
    """`Q(a, x)`."""
    p = places(a, x)
    weight = gamma_density(p.a, p.x)
    below = where((p.a < 1) & (p.x <= 1), _upper_small(p), 1 - weight * _series(p, False)[0], a.aval)
    above = weight * p.a * _fraction(p, False)[0]
    value = p.chosen(_uniform_value(p, 1), below, above)
    value = where((a == 0) & (x > 0), 0.0, edges(a, x, value, 1.0, 0.0), a.aval)
    return where((a == 0) & (x == 0), math.nan, value, a.aval)


def _upper_small(p: Places) -> Array:
    """`Q` of numbers up to 1: `1 - u - u * a * sum((-x)**n / (n! * (a + n)))`, where `u = x**a / gamma(1 + a)`."""
    here = (p.a < 1) & (p.x <= 1)
    a, x = where(here, p.a, 0.5, p.a.aval), where(here, p.x, 0.5, p.a.aval)
    power = a * log(x) - lgamma1p(a)
    terms = 18 if a.dtype == dtypes.float64 else 11
    total = a * 0
    for n in range(terms, 0, -1):
        total = (total + 1 / (a + n)) * x / -n
    return -expm1(power) - exp(power) * a * total


# ------------------------------------------------------------------ derivatives with respect to a


def lower_by_a(a: Array, x: Array) -> Array:
    """The derivative of `P(a, x)` with respect to `a`."""
    p = places(a, x)
    weight = gamma_density(p.a, p.x)
    _, weight_there, uniform = _uniform_slope(p)
    value = p.chosen(weight_there * uniform, weight * _series_slope(p), -weight * p.a * _fraction_slope(p))
    return where(a == 0, math.nan, edges(a, x, value, 0.0, 0.0), a.aval)


def sample_by_a(a: Array, x: Array) -> Array:
    """How a draw `x` from the gamma distribution changes with `a` while `P(a, x)` stays what it is."""
    p = places(a, x)
    big, _, uniform = _uniform_slope(p)
    value = p.chosen(-uniform * exp(stirling(big)) * p.x / big, -_series_slope(p) * p.x / p.a, p.x * _fraction_slope(p))
    return where(a == 0, math.nan, edges(a, x, value, 0.0, math.inf), a.aval)


def _log_over_digamma(a: Array, x: Array, shift: int) -> Array:
    """`log(x) - digamma(a + shift)`, `shift` being 0 or 1."""
    big = a >= LARGE
    ratio = where(big, (x - a) / a, 0.0, a.aval)
    apart = where(ratio < -0.5, log(x / a), log1p(ratio), a.aval)
    far = apart - digamma_rest(a) - (1 / a if shift else 0)
    return where(big, far, log(x) - digamma(where(big, 1.0, a + shift, a.aval)), a.aval)


def _series_slope(p: Places) -> Array:
    """The derivative of `P`, divided by `x**a * exp(-x) / gamma(a + 1)`."""
    total, slope = _series(p, True)
    return total * _log_over_digamma(p.a, p.x, 1) + slope


def _fraction_slope(p: Places) -> Array:
    """The derivative of `Q`, divided by `x**a * exp(-x) / gamma(a)`."""
    h, slope = _fraction(p, True)
    return h * _log_over_digamma(p.a, p.x, 0) + slope


def _uniform_slope(p: Places) -> tuple[Array, Array, Array]:
    """`a`; `exp(-a * eta**2 / 2) / sqrt(2 * pi * a)`; and the derivative of `P`, divided by that.

    With `x` fixed, `eta` changes with `a` by `-mu / (a * eta)`, and `a * eta**2 / 2` by `-log(1 + mu)`.
    """
    a, mu, eta, half = _uniform(p)
    total, by_a, by_eta = expansion(a, eta)
    ratio = where(eta == 0, 1.0, mu / where(eta == 0, 1.0, eta, a.aval), a.aval)
    slope = 0.5 * eta - ratio - (total * (log1p(mu) - 0.5 / a) + by_a - by_eta * ratio / a)
    return a, exp(-a * half) / sqrt(2 * math.pi * a), slope


# ------------------------------------------------------------------ the operations


@final
class Igamma(Defined):
    __slots__ = ()
    name = "igamma"
    arity = 2

    @override
    def formula(self, *operands: Array) -> Array:
        return lower(*operands)

    @override
    def push(self, i: int, tangent: Value, out: Value, *primals: Value) -> Tangent:
        return mul(tangent, _partial(i, *primals))


@final
class Igammac(Defined):
    __slots__ = ()
    name = "igammac"
    arity = 2

    @override
    def formula(self, *operands: Array) -> Array:
        return upper(*operands)

    @override
    def push(self, i: int, tangent: Value, out: Value, *primals: Value) -> Tangent:
        return neg(mul(tangent, _partial(i, *primals)))


@final
class IgammaGradA(Defined):
    __slots__ = ()
    name = "igamma_grad_a"
    arity = 2

    @override
    def formula(self, *operands: Array) -> Array:
        return lower_by_a(*operands)

    @override
    def push(self, i: int, tangent: Value, out: Value, *primals: Value) -> Tangent:
        if i == 0:
            raise _undifferentiated(self.name)
        a, x = primals
        return mul(tangent, mul(density(a, x), sub(log(x), digamma(a))))


@final
class RandomGammaGrad(Defined):
    __slots__ = ()
    name = "random_gamma_grad"
    arity = 2

    @override
    def formula(self, *operands: Array) -> Array:
        return sample_by_a(*operands)

    @override
    def push(self, i: int, tangent: Value, out: Value, *primals: Value) -> Tangent:
        if i == 0:
            raise _undifferentiated(self.name)
        a, x = primals  # out * density is minus the derivative of P with respect to a
        return mul(tangent, sub(sub(digamma(a), log(x)), mul(out, _log_slope(a, x))))


def _undifferentiated(name: str) -> ValueError:
    return ValueError(f"{name} has no derivative with respect to its parameter a; wrap a in stop_gradient")


@final
class GammaDensity(Defined):
    """The density of the gamma distribution, the derivative of `P` with respect to `x`."""

    __slots__ = ()
    name = "gamma_density"
    arity = 2

    @override
    def formula(self, *operands: Array) -> Array:
        a, x = operands
        inside = (x > 0) & (x < math.inf)
        z = where(inside, x, 1.0, x.aval)
        value = where(x == math.inf, 0.0, gamma_density(a, z) * a / z, x.aval)
        start = where(a < 1, math.inf, where(a > 1, 0.0, 1.0, x.aval), x.aval)
        value = where(x == 0, start, value, x.aval)
        return where((a >= 0) & (x >= 0), value, math.nan, x.aval)

    @override
    def push(self, i: int, tangent: Value, out: Value, *primals: Value) -> Tangent:
        a, x = primals
        change = sub(log(x), digamma(a)) if i == 0 else _log_slope(a, x)
        return mul(tangent, out * change)


def _log_slope(a: Value, x: Value) -> Array:
    """The derivative of the density's logarithm with respect to `x`."""
    return sub(div(sub(a, 1.0), x), 1.0)


IGAMMA: Final = Igamma()
IGAMMAC: Final = Igammac()
IGAMMA_GRAD_A: Final = IgammaGradA()
RANDOM_GAMMA_GRAD: Final = RandomGammaGrad()
GAMMA_DENSITY: Final = GammaDensity()


def density(a: ArrayLike, x: ArrayLike) -> Array:
    """`x**(a - 1) * exp(-x) / gamma(a)`."""
    return bind_binary(GAMMA_DENSITY, a, x)


def _partial(i: int, a: Value, x: Value) -> Array:
    return igamma_grad_a(a, x) if i == 0 else density(a, x)


def igamma(a: ArrayLike, x: ArrayLike) -> Array:
    """The regularized lower incomplete gamma function: the share of `gamma(a)` that its integral has up to `x`.

    NaN of negative numbers.

    >>> round(float(igamma(1.0, 1.0)), 5)
    0.63212
    """
    return bind_binary(IGAMMA, a, x)


def igammac(a: ArrayLike, x: ArrayLike) -> Array:
    """`1 - igamma(a, x)`, accurate where that is small.

    >>> round(float(igammac(1.0, 1.0)), 5)
    0.36788
    """
    return bind_binary(IGAMMAC, a, x)


def igamma_grad_a(a: ArrayLike, x: ArrayLike) -> Array:
    """The derivative of `igamma(a, x)` with respect to `a`.

    Raises ValueError when differentiated with respect to `a`.

    >>> round(float(igamma_grad_a(1.0, 1.0)), 5)
    -0.43173
    """
    return bind_binary(IGAMMA_GRAD_A, a, x)


def random_gamma_grad(a: ArrayLike, x: ArrayLike) -> Array:
    """The derivative of a sample `x` from the gamma distribution of shape `a` with respect to `a`.

    Raises ValueError when differentiated with respect to `a`.

    >>> round(float(random_gamma_grad(1.0, 1.0)), 5)
    1.17356
    """
    return bind_binary(RANDOM_GAMMA_GRAD, a, x)
