"""The regularized incomplete gamma functions `P` and `Q = 1 - P`, and their derivatives with respect to `a`.

For large `a` and `x` near `a`, both follow from a uniform asymptotic expansion (`temme.py`). Otherwise, `P` is computed
by a series if `x <= max(a, 1)` (DLMF 8.11.4), and `Q` by a continued fraction if not (DLMF 8.9.2, its approximants
summed by Steed's method, Numerical Recipes 5.2), so that neither takes more than about a hundred terms. `Q` for small
`a` and `x`, where `P` is nearly 1, is computed by a formula without cancellation (Gautschi 1979; Gil, Segura and Temme
2012, section 2.3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, final

from attrs import frozen
from typing_extensions import override

from tracefx.control.special.formula import ElementwiseFormula, count_like, iterate_while
from tracefx.control.special.log_gamma import (
    ASYMPTOTIC_MIN,
    digamma_remainder,
    gamma_prefactor,
    lgamma1p,
    log1p_remainder,
    stirling_remainder,
)
from tracefx.control.special.temme import MAX_MU, MIN_A, temme_expansion
from tracefx.core import Array, ArrayLike, Value, dtypes
from tracefx.core.handler import as_array
from tracefx.core.primitive import Tangent
from tracefx.ops.elementwise.abs_sign import abs, sign
from tracefx.ops.elementwise.arithmetic import div, mul, neg, sub
from tracefx.ops.elementwise.elementwise import bind_binary
from tracefx.ops.elementwise.selection import select_with_aval
from tracefx.ops.elementwise.special import digamma, erfc
from tracefx.ops.elementwise.transcendental import exp, expm1, log, log1p, sqrt

# ------------------------------------------------------------------ regions of the methods


@final
@frozen(eq=False)
class Regions:
    """The operands, replaced by harmless values outside the domain, and masks of the method for each element.

    `uniform` marks elements computed by the uniform expansion, `lower` those of the others computed by the series.
    """

    a: Array
    x: Array
    uniform: Array
    lower: Array

    def select(self, uniform: Array, lower: Array, upper: Array) -> Array:
        """Selects among the results of the three methods."""
        aval = self.a.aval
        return select_with_aval(self.uniform, uniform, select_with_aval(self.lower, lower, upper, aval), aval)


def split_regions(a: Array, x: Array) -> Regions:
    """Determines the method for each element."""
    inside = (a > 0) & (x > 0) & (a < math.inf) & (x < math.inf)
    a, x = select_with_aval(inside, a, 1.0, a.aval), select_with_aval(inside, x, 1.0, a.aval)
    uniform = (a > MIN_A) & (abs(x - a) < MAX_MU * a)
    return Regions(a, x, uniform, (x <= 1) | (x <= a))


def fill_boundaries(a: Array, x: Array, value: Array, at_zero: float, at_infinity: float) -> Array:
    """Extends a function of `a > 0` and `x > 0` by its values at the bounds of `x`, and by NaN beyond them."""
    value = select_with_aval(x == 0, at_zero, value, a.aval)
    value = select_with_aval((x == math.inf) & (a < math.inf), at_infinity, value, a.aval)
    value = select_with_aval(a == math.inf, select_with_aval(x == math.inf, math.nan, at_zero, a.aval), value, a.aval)
    return select_with_aval((a >= 0) & (x >= 0), value, math.nan, a.aval)


# ------------------------------------------------------------------ the three methods

_TERMS: Final = 4  # terms per step of a loop, so that arrays are read and written less often
_MAX_STEPS: Final = 250


def _eps(x: Array) -> float:
    return float(dtypes.finfo(x.dtype).eps)


def _series(p: Regions, slopes: bool) -> tuple[Array, Array]:
    """Computes the sum of `x**n / ((a + 1) * ... * (a + n))`, and with `slopes` its derivative with respect to `a`."""
    active = p.lower & ~p.uniform
    a, x = select_with_aval(active, p.a, 1.0, p.a.aval), select_with_aval(active, p.x, 0.0, p.a.aval)
    one, zero = a * 0 + 1, a * 0

    def step(count: Value, *carry: Value) -> Sequence[Value]:
        total, term, *rest = carry
        for k in range(_TERMS):
            shift = 1 / (a + count_like(a, count) * _TERMS + (k + 1))
            if rest:  # derivatives of the sum and of the term
                by_term = (rest[1] - term * shift) * x * shift
                rest = [rest[0] + by_term, by_term]
            term = term * x * shift
            total = total + term
        return [total, term, *rest]

    def changing(total: Array, term: Array, *rest: Array) -> Array:
        test = term > _eps(a) / 8 * total
        return test | (abs(rest[1]) > _eps(a) / 8 * abs(rest[0])) if rest else test

    out = iterate_while(changing, step, _MAX_STEPS, [one, one, zero, zero] if slopes else [one, one])
    return as_array(out[0]), as_array(out[2]) if slopes else zero


def _continued_fraction(p: Regions, slopes: bool) -> tuple[Array, Array]:
    """Computes `h` in `Q = x**a * exp(-x) / gamma(a) * h`, and with `slopes` its derivative with respect to `a`."""
    active = ~p.lower & ~p.uniform
    a, x = select_with_aval(active, p.a, 1.0, p.a.aval), select_with_aval(active, p.x, 2.0, p.a.aval)
    d = 1 / (x - a + 1)
    zero = a * 0

    def step(count: Value, *carry: Value) -> Sequence[Value]:
        d, term, h, *rest = carry
        for k in range(_TERMS):
            i = count_like(a, count) * _TERMS + (k + 1)
            numerator = i * (a - i)
            after = 1 / (x - a + 1 + 2 * i + numerator * d)
            factor = -numerator * d * after
            if rest:  # the derivatives of numerator and denominator with respect to `a` are i and -1
                dd, dterm, dh = rest
                dafter = after * after * (1 - i * d - numerator * dd)
                dfactor = -(i * d * after + numerator * (dd * after + d * dafter))
                dterm = dfactor * term + factor * dterm
                rest = [dafter, dterm, dh + dterm]
            d, term = after, term * factor
            h = h + term
        return [d, term, h, *rest]

    def changing(d: Array, term: Array, h: Array, *rest: Array) -> Array:
        test = abs(term) > _eps(a) / 8 * h
        return test | (abs(rest[1]) > _eps(a) / 8 * abs(rest[2])) if rest else test

    out = iterate_while(changing, step, _MAX_STEPS, [d, d, d, d * d, d * d, d * d] if slopes else [d, d, d])
    return as_array(out[2]), as_array(out[5]) if slopes else zero


def _uniform(p: Regions) -> tuple[Array, Array, Array, Array]:
    """Returns `a`, `mu`, `eta` and `eta**2 / 2` of the uniform expansion."""
    a = select_with_aval(p.uniform, p.a, 2 * MIN_A, p.a.aval)
    mu = select_with_aval(p.uniform, (p.x - a) / a, 0.0, a.aval)
    half = log1p_remainder(mu, mu + 1)
    return a, mu, sign(mu) * sqrt(2 * half), half


def _uniform_value(p: Regions, side: int) -> Array:
    """Computes `P` for `side` -1, `Q` for `side` 1, by the uniform expansion."""
    a, _, eta, half = _uniform(p)
    total, _, _ = temme_expansion(a, eta)
    rest = exp(-a * half) / sqrt(2 * math.pi * a) * total
    return 0.5 * erfc(side * eta * sqrt(0.5 * a)) + side * rest


# ------------------------------------------------------------------ values


def lower(a: Array, x: Array) -> Array:
    """Computes `P(a, x)`."""
    p = split_regions(a, x)
    weight = gamma_prefactor(p.a, p.x)
    below = weight * _series(p, False)[0]
    above = 1 - weight * p.a * _continued_fraction(p, False)[0]
    value = p.select(_uniform_value(p, -1), below, above)
    value = select_with_aval((a == 0) & (x > 0), 1.0, fill_boundaries(a, x, value, 0.0, 1.0), a.aval)
    return select_with_aval((a == 0) & (x == 0), math.nan, value, a.aval)


def upper(a: Array, x: Array) -> Array:
    """Computes `Q(a, x)`."""
    p = split_regions(a, x)
    weight = gamma_prefactor(p.a, p.x)
    below = select_with_aval((p.a < 1) & (p.x <= 1), _upper_small(p), 1 - weight * _series(p, False)[0], a.aval)
    above = weight * p.a * _continued_fraction(p, False)[0]
    value = p.select(_uniform_value(p, 1), below, above)
    value = select_with_aval((a == 0) & (x > 0), 0.0, fill_boundaries(a, x, value, 1.0, 0.0), a.aval)
    return select_with_aval((a == 0) & (x == 0), math.nan, value, a.aval)


def _upper_small(p: Regions) -> Array:
    """Computes `Q` for `a` and `x` up to 1.

    It is `1 - u - u * a * sum((-x)**n / (n! * (a + n)))` with `u = x**a / gamma(1 + a)`.
    """
    active = (p.a < 1) & (p.x <= 1)
    a, x = select_with_aval(active, p.a, 0.5, p.a.aval), select_with_aval(active, p.x, 0.5, p.a.aval)
    power = a * log(x) - lgamma1p(a)
    terms = 18 if a.dtype == dtypes.float64 else 11
    total = a * 0
    for n in range(terms, 0, -1):
        total = (total + 1 / (a + n)) * x / -n
    return -expm1(power) - exp(power) * a * total


# ------------------------------------------------------------------ derivatives with respect to a


def igamma_grad_a_formula(a: Array, x: Array) -> Array:
    """Computes the derivative of `P(a, x)` with respect to `a`."""
    p = split_regions(a, x)
    weight = gamma_prefactor(p.a, p.x)
    _, uniform_weight, uniform = _uniform_slope(p)
    value = p.select(uniform_weight * uniform, weight * _series_slope(p), -weight * p.a * _fraction_slope(p))
    return select_with_aval(a == 0, math.nan, fill_boundaries(a, x, value, 0.0, 0.0), a.aval)


def random_gamma_grad_formula(a: Array, x: Array) -> Array:
    """Computes the derivative of a gamma-distributed sample `x` with respect to `a`, for constant `P(a, x)`."""
    p = split_regions(a, x)
    big, _, uniform = _uniform_slope(p)
    value = p.select(
        -uniform * exp(stirling_remainder(big)) * p.x / big, -_series_slope(p) * p.x / p.a, p.x * _fraction_slope(p)
    )
    return select_with_aval(a == 0, math.nan, fill_boundaries(a, x, value, 0.0, math.inf), a.aval)


def _log_over_digamma(a: Array, x: Array, shift: int) -> Array:
    """Computes `log(x) - digamma(a + shift)`, where `shift` is 0 or 1."""
    big = a >= ASYMPTOTIC_MIN
    ratio = select_with_aval(big, (x - a) / a, 0.0, a.aval)
    apart = select_with_aval(ratio < -0.5, log(x / a), log1p(ratio), a.aval)
    far = apart - digamma_remainder(a) - (1 / a if shift else 0)
    return select_with_aval(big, far, log(x) - digamma(select_with_aval(big, 1.0, a + shift, a.aval)), a.aval)


def _series_slope(p: Regions) -> Array:
    """Computes the derivative of `P` with respect to `a`, divided by `x**a * exp(-x) / gamma(a + 1)`."""
    total, slope = _series(p, True)
    return total * _log_over_digamma(p.a, p.x, 1) + slope


def _fraction_slope(p: Regions) -> Array:
    """Computes the derivative of `Q` with respect to `a`, divided by `x**a * exp(-x) / gamma(a)`."""
    h, slope = _continued_fraction(p, True)
    return h * _log_over_digamma(p.a, p.x, 0) + slope


def _uniform_slope(p: Regions) -> tuple[Array, Array, Array]:
    """Returns `a`, the density `exp(-a * eta**2 / 2) / sqrt(2 * pi * a)`, and the derivative of `P` divided by it.

    With `x` fixed, the derivative of `eta` with respect to `a` is `-mu / (a * eta)`, and that of `a * eta**2 / 2` is
    `-log(1 + mu)`.
    """
    a, mu, eta, half = _uniform(p)
    total, by_a, by_eta = temme_expansion(a, eta)
    ratio = select_with_aval(eta == 0, 1.0, mu / select_with_aval(eta == 0, 1.0, eta, a.aval), a.aval)
    slope = 0.5 * eta - ratio - (total * (log1p(mu) - 0.5 / a) + by_a - by_eta * ratio / a)
    return a, exp(-a * half) / sqrt(2 * math.pi * a), slope


# ------------------------------------------------------------------ the primitives


@final
class Igamma(ElementwiseFormula):
    """The regularized lower incomplete gamma function `P(a, x)`."""

    name = "igamma"
    arity = 2

    @override
    def formula(self, *operands: Array) -> Array:
        return lower(*operands)

    @override
    def jvp_term(self, i: int, tangent: Value, out: Value, *primals: Value) -> Tangent:
        return mul(tangent, _partial_derivative(i, *primals))


@final
class Igammac(ElementwiseFormula):
    """The regularized upper incomplete gamma function `Q(a, x)`."""

    name = "igammac"
    arity = 2

    @override
    def formula(self, *operands: Array) -> Array:
        return upper(*operands)

    @override
    def jvp_term(self, i: int, tangent: Value, out: Value, *primals: Value) -> Tangent:
        return neg(mul(tangent, _partial_derivative(i, *primals)))


@final
class IgammaGradA(ElementwiseFormula):
    """The derivative of `P(a, x)` with respect to `a`."""

    name = "igamma_grad_a"
    arity = 2

    @override
    def formula(self, *operands: Array) -> Array:
        return igamma_grad_a_formula(*operands)

    @override
    def jvp_term(self, i: int, tangent: Value, out: Value, *primals: Value) -> Tangent:
        if i == 0:
            raise _no_derivative_error(self.name)
        a, x = primals
        return mul(tangent, mul(gamma_pdf(a, x), sub(log(x), digamma(a))))


@final
class RandomGammaGrad(ElementwiseFormula):
    """The derivative of a gamma-distributed sample `x` with respect to `a`."""

    name = "random_gamma_grad"
    arity = 2

    @override
    def formula(self, *operands: Array) -> Array:
        return random_gamma_grad_formula(*operands)

    @override
    def jvp_term(self, i: int, tangent: Value, out: Value, *primals: Value) -> Tangent:
        if i == 0:
            raise _no_derivative_error(self.name)
        a, x = primals  # out * density is minus the derivative of P with respect to a
        return mul(tangent, sub(sub(digamma(a), log(x)), mul(out, _log_slope(a, x))))


def _no_derivative_error(name: str) -> ValueError:
    return ValueError(f"{name} has no derivative with respect to its parameter a; wrap a in stop_gradient")


@final
class GammaDensity(ElementwiseFormula):
    """The density of the gamma distribution, the derivative of `P` with respect to `x`."""

    name = "gamma_density"
    arity = 2

    @override
    def formula(self, *operands: Array) -> Array:
        a, x = operands
        inside = (x > 0) & (x < math.inf)
        z = select_with_aval(inside, x, 1.0, x.aval)
        value = select_with_aval(x == math.inf, 0.0, gamma_prefactor(a, z) * a / z, x.aval)
        start = select_with_aval(a < 1, math.inf, select_with_aval(a > 1, 0.0, 1.0, x.aval), x.aval)
        value = select_with_aval(x == 0, start, value, x.aval)
        return select_with_aval((a >= 0) & (x >= 0), value, math.nan, x.aval)

    @override
    def jvp_term(self, i: int, tangent: Value, out: Value, *primals: Value) -> Tangent:
        a, x = primals
        change = sub(log(x), digamma(a)) if i == 0 else _log_slope(a, x)
        return mul(tangent, out * change)


def _log_slope(a: Value, x: Value) -> Array:
    """Computes the derivative of the logarithm of the density with respect to `x`."""
    return sub(div(sub(a, 1.0), x), 1.0)


IGAMMA: Final = Igamma()
IGAMMAC: Final = Igammac()
IGAMMA_GRAD_A: Final = IgammaGradA()
RANDOM_GAMMA_GRAD: Final = RandomGammaGrad()
GAMMA_DENSITY: Final = GammaDensity()


def gamma_pdf(a: ArrayLike, x: ArrayLike) -> Array:
    """Computes the density of the gamma distribution, `x**(a - 1) * exp(-x) / gamma(a)`."""
    return bind_binary(GAMMA_DENSITY, a, x)


def _partial_derivative(i: int, a: Value, x: Value) -> Array:
    return igamma_grad_a(a, x) if i == 0 else gamma_pdf(a, x)


def igamma(a: ArrayLike, x: ArrayLike) -> Array:
    """Computes the regularized lower incomplete gamma function `P(a, x)`, elementwise.

    It is the integral of `t**(a - 1) * exp(-t) / gamma(a)` from 0 to `x`.

    Args:
        a: the shape parameter, not negative. The derivative with respect to it is `igamma_grad_a`.
        x: the upper bound of the integral, not negative.

    Returns:
        Values between 0 and 1; NaN where an operand is negative.

    >>> round(float(igamma(1.0, 1.0)), 5)
    0.63212
    """
    return bind_binary(IGAMMA, a, x)


def igammac(a: ArrayLike, x: ArrayLike) -> Array:
    """Computes the regularized upper incomplete gamma function `Q(a, x) = 1 - igamma(a, x)`, elementwise.

    It is accurate also where the result is small.

    Args:
        a: the shape parameter, not negative.
        x: the lower bound of the integral, not negative.

    Returns:
        Values between 0 and 1; NaN where an operand is negative.

    >>> round(float(igammac(1.0, 1.0)), 5)
    0.36788
    """
    return bind_binary(IGAMMAC, a, x)


def igamma_grad_a(a: ArrayLike, x: ArrayLike) -> Array:
    """Computes the derivative of `igamma(a, x)` with respect to `a`, elementwise.

    Args:
        a: the shape parameter, not negative.
        x: the upper bound of the integral, not negative.

    Returns:
        An array of the broadcast shape; NaN where an operand is negative.

    Raises:
        ValueError: when differentiated with respect to `a`.

    >>> round(float(igamma_grad_a(1.0, 1.0)), 5)
    -0.43173
    """
    return bind_binary(IGAMMA_GRAD_A, a, x)


def random_gamma_grad(a: ArrayLike, x: ArrayLike) -> Array:
    """Computes the derivative of a sample `x` of the gamma distribution with respect to its shape `a`, elementwise.

    Args:
        a: the shape parameter of the distribution.
        x: the sample.

    Returns:
        An array of the broadcast shape; NaN where an operand is negative.

    Raises:
        ValueError: when differentiated with respect to `a`.

    >>> round(float(random_gamma_grad(1.0, 1.0)), 5)
    1.17356
    """
    return bind_binary(RANDOM_GAMMA_GRAD, a, x)
