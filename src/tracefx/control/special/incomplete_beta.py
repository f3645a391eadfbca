"""The regularized incomplete beta function and its density.

The function is `x**a * (1 - x)**b / (a * beta(a, b))` times a continued fraction (DLMF 8.17.22), whose approximants are
summed by Steed's method (Numerical Recipes 5.2). Where `x > (a + 1) / (a + b + 2)`, the fraction converges slowly, so
the complement is computed: the function of `1 - x` with `a` and `b` exchanged. For large `a` and `b`, the prefactor is
computed from the difference of `x` and `a / (a + b)` (DiDonato and Morris 1992, section 3), since its logarithm is a
difference of much larger numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, final

from typing_extensions import override

from tracefx.control.special.formula import ElementwiseFormula, count_like, iterate_while
from tracefx.control.special.log_gamma import (
    ASYMPTOTIC_MIN,
    accurate_log1p,
    log1p_remainder,
    log_beta,
    log_gamma,
    log_gamma_ratio,
    stirling_remainder,
)
from tracefx.core import Array, ArrayLike, Value, dtypes
from tracefx.core.handler import as_array, bind1
from tracefx.core.primitive import Tangent
from tracefx.ops.elementwise import transcendental
from tracefx.ops.elementwise.abs_sign import abs
from tracefx.ops.elementwise.arithmetic import div, mul, neg, sub
from tracefx.ops.elementwise.elementwise import add, bind_elementwise
from tracefx.ops.elementwise.selection import select_with_aval
from tracefx.ops.elementwise.special import digamma
from tracefx.ops.elementwise.transcendental import exp, log, sqrt

_MAX_STEPS: Final = 10_000  # the number of steps is about the square root of the largest operand


def betainc_formula(a: Array, b: Array, x: Array) -> Array:
    """Computes the integral of the density of the beta distribution from 0 to `x`."""
    like = a.aval
    inside = (a > 0) & (b > 0) & (x > 0) & (x < 1) & (a < math.inf) & (b < math.inf)
    p, q, z = (select_with_aval(inside, v, 0.5, like) for v in (a, b, x))
    exchanged = z > (p + 1) / (p + q + 2)
    p, q = select_with_aval(exchanged, q, p, like), select_with_aval(exchanged, p, q, like)
    complement = 1 - z
    near, far = select_with_aval(exchanged, complement, z, like), select_with_aval(exchanged, z, complement, like)
    one, other = log(z), accurate_log1p(-z)
    log_near, log_far = select_with_aval(exchanged, other, one, like), select_with_aval(exchanged, one, other, like)
    part = _prefactor(p, q, near, far, log_near, log_far) * _continued_fraction(p, q, near)
    value = select_with_aval(exchanged, 1 - part, part, like)
    return _fill_boundaries(a, b, x, select_with_aval(inside, value, math.nan, like))


def _fill_boundaries(a: Array, b: Array, x: Array, value: Array) -> Array:
    """Fills in the values at the bounds of the operands: the distribution is at 0 if `a` is 0 or `b` infinite."""
    like = a.aval
    at_zero, at_one = (a == 0) | (b == math.inf), (b == 0) | (a == math.inf)
    value = select_with_aval((x == 0) | (at_one & (x < 1)), 0.0, value, like)
    value = select_with_aval(((x == 1) & ~at_zero) | (at_zero & (x > 0)), 1.0, value, like)
    valid = (a >= 0) & (b >= 0) & (x >= 0) & (x <= 1) & ~(at_zero & at_one)
    return select_with_aval(valid, select_with_aval((at_zero & (x == 0)), 0.0, value, like), math.nan, like)


def _prefactor(a: Array, b: Array, x: Array, y: Array, log_x: Array, log_y: Array) -> Array:
    """Computes `x**a * y**b / (a * beta(a, b))`, where `y` is `1 - x`."""
    like = a.aval
    both = (a >= ASYMPTOTIC_MIN) & (b >= ASYMPTOTIC_MIN)
    p, q = select_with_aval(both, a, 2 * ASYMPTOTIC_MIN, like), select_with_aval(both, b, 2 * ASYMPTOTIC_MIN, like)
    s, t = select_with_aval(both, x, 0.5, like), select_with_aval(both, y, 0.5, like)
    apart = p * t - q * s  # how far x is below a / (a + b), times a + b
    total = p + q
    exponent = -p * log1p_remainder(-apart / p, s * (total / p)) - q * log1p_remainder(apart / q, t * (total / q))
    exponent = exponent - (stirling_remainder(p) + stirling_remainder(q) - stirling_remainder(total))
    far = exp(exponent) * sqrt(q / (2 * math.pi * p * total))
    small, large = select_with_aval(both, 1.0, a, like), select_with_aval(both, 1.0, b, like)
    growing = small < large
    scale = log_gamma(small + 1) + log_gamma_ratio(large, small)
    scale = select_with_aval(growing, scale, log_beta(small, large) + log(small), like)
    return select_with_aval(both, far, exp(small * log_x + large * log_y - scale), like)


def _continued_fraction(a: Array, b: Array, x: Array) -> Array:
    """Computes the continued fraction."""
    one = a * 0 + 1

    def step(count: Value, *carry: Value) -> Sequence[Value]:
        d, term, h = carry
        m = count_like(a, count)
        twice = a + 2 * m
        for above, below in (
            (-(a + m) * (a + b + m) * x, twice * (twice + 1)),
            ((m + 1) * (b - m - 1) * x, (twice + 1) * (twice + 2)),
        ):
            inverse = 1 / (below + above * d)
            term = -above * d * inverse * term
            d = below * inverse
            h = h + term
        return [d, term, h]

    precision = float(dtypes.finfo(a.dtype).eps) / 8
    _, _, h = iterate_while(lambda d, term, h: abs(term) > precision * h, step, _MAX_STEPS, [one, one, one])
    return as_array(h)


def beta_pdf(a: Array, b: Array, x: Array) -> Array:
    """Computes the density of the beta distribution, `x**(a - 1) * (1 - x)**(b - 1) / beta(a, b)`."""
    like = a.aval
    inside = (a > 0) & (b > 0) & (x > 0) & (x < 1)
    p, q, z = (select_with_aval(inside, v, 0.5, like) for v in (a, b, x))
    value = _prefactor(p, q, z, 1 - z, log(z), accurate_log1p(-z)) * p / (z * (1 - z))
    for end, first, second in ((0.0, a, b), (1.0, b, a)):
        there = select_with_aval(first < 1, math.inf, select_with_aval(first > 1, 0.0, second, like), like)
        value = select_with_aval(x == end, there, value, like)
    return select_with_aval((a >= 0) & (b >= 0) & (x >= 0) & (x <= 1), value, math.nan, like)


@final
class RegularizedIncompleteBeta(ElementwiseFormula):
    """The regularized incomplete beta function of `(a, b, x)`."""

    name = "regularized_incomplete_beta"
    arity = 3

    @override
    def formula(self, *operands: Array) -> Array:
        return betainc_formula(*operands)

    @override
    def jvp_term(self, i: int, tangent: Value, out: Value, *primals: Value) -> Tangent:
        if i < 2:
            raise ValueError(
                f"betainc has no derivative with respect to its parameter {'ab'[i]}; wrap {'ab'[i]} in stop_gradient"
            )
        return mul(tangent, bind1(BETA_DENSITY, *primals))


@final
class BetaDensity(ElementwiseFormula):
    """The density of the beta distribution, as a function of `(a, b, x)`."""

    name = "beta_density"
    arity = 3

    @override
    def formula(self, *operands: Array) -> Array:
        return beta_pdf(*operands)

    @override
    def jvp_term(self, i: int, tangent: Value, out: Value, *primals: Value) -> Tangent:
        a, b, x = primals
        if i < 2:
            part = log(x) if i == 0 else transcendental.log1p(neg(x))
            change = sub(add(part, digamma(add(a, b))), digamma(primals[i]))
        else:
            change = sub(div(sub(a, 1.0), x), div(sub(b, 1.0), sub(1.0, x)))
        return mul(tangent, mul(out, change))


REGULARIZED_INCOMPLETE_BETA: Final = RegularizedIncompleteBeta()
BETA_DENSITY: Final = BetaDensity()


def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """Computes the regularized incomplete beta function, elementwise.

    It is the integral of `t**(a - 1) * (1 - t)**(b - 1) / beta(a, b)` from 0 to `x`.

    Args:
        a: the first parameter, not negative.
        b: the second parameter, not negative.
        x: the upper bound of the integral, from 0 to 1.

    Returns:
        Values between 0 and 1; NaN where an operand is negative or `x` is above 1.

    Raises:
        ValueError: when differentiated with respect to `a` or `b`.

    >>> round(float(betainc(1.0, 2.0, 0.5)), 5)
    0.75
    """
    return bind_elementwise(REGULARIZED_INCOMPLETE_BETA, a, b, x)
