"""Series of smooth functions of one operand, by the differential equations that they solve.

`y = tanh(x)` has `y' = (1 - y**2) x'`: the coefficients of `y` up to one order give those of the slope `1 - y**2`, and
these the coefficient of `y` of the next order. So all orders take a number of products that is quadratic in them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from tracefx.core.handler import bind1
from tracefx.core.values import Value
from tracefx.handlers.taylor.series import (
    Series,
    Term,
    Terms,
    composed,
    convolved,
    exponential,
    fitted,
    integral,
    logarithm,
    minus,
    power,
    product,
    rates,
    scaled,
    squared,
    times,
    value,
)
from tracefx.ops.arithmetic import mul, sub
from tracefx.ops.elementwise import add
from tracefx.ops.special import Digamma, Erf, Erfc, ErfInv, Lgamma, polygamma
from tracefx.ops.transcendental import (
    Acos,
    Acosh,
    Asin,
    Asinh,
    Atan,
    Atanh,
    Cbrt,
    Cos,
    Cosh,
    Exp,
    Exp2,
    Expm1,
    Log,
    Log1p,
    Logarithmic,
    Logistic,
    Rsqrt,
    Sin,
    Sinh,
    Sqrt,
    Tan,
    Tanh,
    Transcendental,
)

Solution: TypeAlias = Callable[[Terms, Value, Value], list[Term]]
"""The coefficients from those of the operand, the value, and the derivative at order 0."""

# ------------------------------------------------------------------ the slope depends on the function


def grown(x: Terms, first: Value, slope: Value, following: Callable[[Terms, Terms, int], Term]) -> list[Term]:
    """What has the value `first` and, at order 0, the derivative `slope`.

    `following` gives the slope's coefficient of order `k` from those of the function up to there and from the rates of
    the operand.
    """
    steps = rates(x)
    out: list[Term] = [first]
    slopes: list[Term] = [slope]
    for k in range(1, len(x)):
        out.append(scaled(convolved(steps, slopes, k, 1), 1.0 / k))
        if k + 1 < len(x):
            slopes.append(following(out, steps, k))
    return out


def _of_exp(x: Terms, first: Value, slope: Value) -> list[Term]:
    return exponential(x, first)


def _of_exp2(x: Terms, first: Value, slope: Value) -> list[Term]:
    return exponential([scaled(t, math.log(2.0)) for t in x], first)


def _of_expm1(x: Terms, first: Value, slope: Value) -> list[Term]:
    return [first, *exponential(x, slope)[1:]]


def _of_logistic(x: Terms, first: Value, slope: Value) -> list[Term]:
    return grown(x, first, slope, lambda out, steps, k: minus(out[k], squared(out, k)))


def _of_tanh(x: Terms, first: Value, slope: Value) -> list[Term]:
    return grown(x, first, slope, lambda out, steps, k: minus(None, squared(out, k)))


def _of_tan(x: Terms, first: Value, slope: Value) -> list[Term]:
    return grown(x, first, slope, lambda out, steps, k: squared(out, k))


def _turning(x: Terms, first: Value, slope: Value) -> list[Term]:
    """The second derivative is minus the function: sine, cosine."""
    return grown(x, first, slope, lambda out, steps, k: scaled(convolved(steps, out, k, 1), -1.0 / k))


def _growing(x: Terms, first: Value, slope: Value) -> list[Term]:
    """The second derivative is the function."""
    return grown(x, first, slope, lambda out, steps, k: scaled(convolved(steps, out, k, 1), 1.0 / k))


def _of_erf_inv(x: Terms, first: Value, slope: Value) -> list[Term]:
    # The slope is a multiple of exp(y**2), so that its own is itself times that of y**2.
    square_steps: list[Term] = [None]
    slopes: list[Term] = [slope]

    def following(out: Terms, steps: Terms, k: int) -> Term:
        square_steps.append(scaled(squared(out, k), float(k)))
        slopes.append(scaled(convolved(square_steps, slopes, k, 1), 1.0 / k))
        return slopes[k]

    return grown(x, first, slope, following)


# ------------------------------------------------------------------ the slope depends on the operand


def _square(x: Terms, first: Value, sign: float) -> list[Term]:
    """The square of `x` times `sign`, with another value."""
    return [first, *[scaled(t, sign) for t in product(x, x, first)[1:]]]


def _of_asin(x: Terms, first: Value, slope: Value) -> list[Term]:
    inside = _square(x, sub(1.0, mul(value(x), value(x))), -1.0)
    return integral(power(inside, -0.5, slope), x, first)


def _of_asinh(x: Terms, first: Value, slope: Value) -> list[Term]:
    inside = _square(x, add(mul(value(x), value(x)), 1.0), 1.0)
    return integral(power(inside, -0.5, slope), x, first)


def _of_acosh(x: Terms, first: Value, slope: Value) -> list[Term]:
    inside = _square(x, sub(mul(value(x), value(x)), 1.0), 1.0)
    return integral(power(inside, -0.5, slope), x, first)


def _of_erf(x: Terms, first: Value, slope: Value) -> list[Term]:
    return integral(exponential(_square(x, first, -1.0), slope), x, first)  # of the square, the value has no rate


def _of_atanh(x: Terms, first: Value, slope: Value) -> list[Term]:
    bottom = mul(add(value(x), 1.0), sub(1.0, value(x)))
    return logarithm(_square(x, bottom, -1.0), x, first)


# ------------------------------------------------------------------ roots


def _of_sqrt(x: Terms, first: Value, slope: Value) -> list[Term]:
    out: list[Term] = [first]
    for k in range(1, len(x)):
        out.append(times(minus(x[k], squared(out, k, 1)), slope))
    return out


def _of_rsqrt(x: Terms, first: Value, slope: Value) -> list[Term]:
    return power(x, -0.5, first)


def _of_cbrt(x: Terms, first: Value, slope: Value) -> list[Term]:
    """The derivative of `x` is that of the root times three times its square."""
    out: list[Term] = [first]
    steps: list[Term] = [None]
    squares: list[Term] = [None]
    for k in range(1, len(x)):
        rest = scaled(convolved(steps, squares, k, 1, k - 1), 3.0 / k)
        out.append(times(minus(x[k], rest), slope))
        steps.append(scaled(out[k], float(k)))
        squares.append(squared(out, k))
    return out


# ------------------------------------------------------------------ the gamma function


def _of_lgamma(x: Terms, first: Value, slope: Value) -> list[Term]:
    return composed([first, slope, *[polygamma(float(m), value(x)) for m in range(1, len(x) - 1)]], x)


def _of_digamma(x: Terms, first: Value, slope: Value) -> list[Term]:
    return composed([first, slope, *[polygamma(float(m), value(x)) for m in range(2, len(x))]], x)


# ------------------------------------------------------------------ rules

SLOPES: Final[Mapping[type[Transcendental], Solution]] = MappingProxyType(
    {
        Exp: _of_exp,
        Exp2: _of_exp2,
        Expm1: _of_expm1,
        Logistic: _of_logistic,
        Sin: _turning,
        Cos: _turning,
        Tan: _of_tan,
        Asin: _of_asin,
        Acos: _of_asin,
        Sinh: _growing,
        Cosh: _growing,
        Tanh: _of_tanh,
        Asinh: _of_asinh,
        Acosh: _of_acosh,
        Atanh: _of_atanh,
        Sqrt: _of_sqrt,
        Rsqrt: _of_rsqrt,
        Cbrt: _of_cbrt,
        Erf: _of_erf,
        Erfc: _of_erf,
        ErfInv: _of_erf_inv,
        Lgamma: _of_lgamma,
        Digamma: _of_digamma,
    }
)
DIVISORS: Final[Mapping[type[Logarithmic], Callable[[Terms, Value], list[Term]]]] = MappingProxyType(
    {
        Log: lambda x, bottom: [bottom, *x[1:]],
        Log1p: lambda x, bottom: [bottom, *x[1:]],
        Atan: lambda x, bottom: _square(x, bottom, 1.0),
    }
)


def transcendental(prim: Transcendental, x: Series) -> Series:
    """A function given by its derivative, one of `SLOPES`."""
    first = bind1(prim, x.primal)
    return fitted(SLOPES[type(prim)](x.terms, first, prim.derivative(x.primal, first)), first)


def logarithmic(prim: Logarithmic, x: Series) -> Series:
    """A function given by what its derivative is one divided by, one of `DIVISORS`."""
    first = bind1(prim, x.primal)
    divisor = DIVISORS[type(prim)](x.terms, prim.divisor(x.primal))
    return fitted(logarithm(divisor, x.terms, first), first)
