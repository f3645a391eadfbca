"""Series rules of smooth functions of one operand, from the differential equations that they satisfy.

`y = tanh(x)` has `y' = (1 - y**2) x'`: the coefficients of `y` up to one order give those of the slope `1 - y**2`, and
these the next coefficient of `y`. The number of products is quadratic in the order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from tracefx.core.handler import bind1
from tracefx.core.values import Value
from tracefx.handlers.taylor.series import (
    Coefficient,
    Coefficients,
    Series,
    cast_series,
    cauchy_product_term,
    cauchy_square_term,
    compose_series,
    euler_derivative,
    integrate_product,
    integrate_quotient,
    leading_coefficient,
    mul_terms,
    scale_term,
    series_exp,
    series_pow,
    series_product,
    sub_terms,
)
from tracefx.ops.elementwise.arithmetic import mul, sub
from tracefx.ops.elementwise.elementwise import add
from tracefx.ops.elementwise.hyperbolic import Acosh, Asinh, Atanh, Cosh, Sinh, Tanh
from tracefx.ops.elementwise.inverse_trigonometric import Acos, Asin, Atan
from tracefx.ops.elementwise.special import Digamma, Erf, Erfc, ErfInv, Lgamma, polygamma
from tracefx.ops.elementwise.transcendental import (
    Cbrt,
    Cos,
    Exp,
    Exp2,
    Expm1,
    Log,
    Log1p,
    Logistic,
    ReciprocalDerivative,
    Rsqrt,
    Sin,
    Sqrt,
    Tan,
    Transcendental,
)

SeriesSolution: TypeAlias = Callable[[Coefficients, Value, Value], list[Coefficient]]
"""Called with the operand's coefficients, the value and the derivative at order 0; returns the coefficients."""

# ------------------------------------------------------------------ slopes that depend on the function


def solve_recurrence(
    x: Coefficients, first: Value, slope: Value, following: Callable[[Coefficients, Coefficients, int], Coefficient]
) -> list[Coefficient]:
    """Solves `y' = slope * x'` for a slope that depends on `y`.

    Args:
        x: the coefficients of the operand.
        first: the value of `y`.
        slope: the value of the slope.
        following: returns the slope's coefficient of order `k` from those of `y` up to order `k` and from
            `euler_derivative(x)`.
    """
    steps = euler_derivative(x)
    out: list[Coefficient] = [first]
    slopes: list[Coefficient] = [slope]
    for k in range(1, len(x)):
        out.append(scale_term(cauchy_product_term(steps, slopes, k, 1), 1.0 / k))
        if k + 1 < len(x):
            slopes.append(following(out, steps, k))
    return out


def _of_exp(x: Coefficients, first: Value, slope: Value) -> list[Coefficient]:
    return series_exp(x, first)


def _of_exp2(x: Coefficients, first: Value, slope: Value) -> list[Coefficient]:
    return series_exp([scale_term(t, math.log(2.0)) for t in x], first)


def _of_expm1(x: Coefficients, first: Value, slope: Value) -> list[Coefficient]:
    return [first, *series_exp(x, slope)[1:]]


def _of_logistic(x: Coefficients, first: Value, slope: Value) -> list[Coefficient]:
    return solve_recurrence(x, first, slope, lambda out, steps, k: sub_terms(out[k], cauchy_square_term(out, k)))


def _of_tanh(x: Coefficients, first: Value, slope: Value) -> list[Coefficient]:
    return solve_recurrence(x, first, slope, lambda out, steps, k: sub_terms(None, cauchy_square_term(out, k)))


def _of_tan(x: Coefficients, first: Value, slope: Value) -> list[Coefficient]:
    return solve_recurrence(x, first, slope, lambda out, steps, k: cauchy_square_term(out, k))


def _of_sin_cos(x: Coefficients, first: Value, slope: Value) -> list[Coefficient]:
    """For functions whose second derivative is minus themselves."""
    return solve_recurrence(
        x, first, slope, lambda out, steps, k: scale_term(cauchy_product_term(steps, out, k, 1), -1.0 / k)
    )


def _of_sinh_cosh(x: Coefficients, first: Value, slope: Value) -> list[Coefficient]:
    """For functions whose second derivative is themselves."""
    return solve_recurrence(
        x, first, slope, lambda out, steps, k: scale_term(cauchy_product_term(steps, out, k, 1), 1.0 / k)
    )


def _of_erf_inv(x: Coefficients, first: Value, slope: Value) -> list[Coefficient]:
    # The slope is a multiple of exp(y**2), so its derivative is itself times that of y**2.
    square_steps: list[Coefficient] = [None]
    slopes: list[Coefficient] = [slope]

    def following(out: Coefficients, steps: Coefficients, k: int) -> Coefficient:
        square_steps.append(scale_term(cauchy_square_term(out, k), float(k)))
        slopes.append(scale_term(cauchy_product_term(square_steps, slopes, k, 1), 1.0 / k))
        return slopes[k]

    return solve_recurrence(x, first, slope, following)


# ------------------------------------------------------------------ slopes that depend on the operand


def _scaled_square(x: Coefficients, first: Value, sign: float) -> list[Coefficient]:
    """Returns `sign * x**2` with its value replaced by `first`."""
    return [first, *[scale_term(t, sign) for t in series_product(x, x, first)[1:]]]


def _of_asin(x: Coefficients, first: Value, slope: Value) -> list[Coefficient]:
    inside = _scaled_square(x, sub(1.0, mul(leading_coefficient(x), leading_coefficient(x))), -1.0)
    return integrate_product(series_pow(inside, -0.5, slope), x, first)


def _of_asinh(x: Coefficients, first: Value, slope: Value) -> list[Coefficient]:
    inside = _scaled_square(x, add(mul(leading_coefficient(x), leading_coefficient(x)), 1.0), 1.0)
    return integrate_product(series_pow(inside, -0.5, slope), x, first)


def _of_acosh(x: Coefficients, first: Value, slope: Value) -> list[Coefficient]:
    inside = _scaled_square(x, sub(mul(leading_coefficient(x), leading_coefficient(x)), 1.0), 1.0)
    return integrate_product(series_pow(inside, -0.5, slope), x, first)


def _of_erf(x: Coefficients, first: Value, slope: Value) -> list[Coefficient]:
    return integrate_product(
        series_exp(_scaled_square(x, first, -1.0), slope), x, first
    )  # only the derivative of the square matters, so its value is arbitrary


def _of_atanh(x: Coefficients, first: Value, slope: Value) -> list[Coefficient]:
    bottom = mul(add(leading_coefficient(x), 1.0), sub(1.0, leading_coefficient(x)))
    return integrate_quotient(_scaled_square(x, bottom, -1.0), x, first)


# ------------------------------------------------------------------ roots


def _of_sqrt(x: Coefficients, first: Value, slope: Value) -> list[Coefficient]:
    out: list[Coefficient] = [first]
    for k in range(1, len(x)):
        out.append(mul_terms(sub_terms(x[k], cauchy_square_term(out, k, 1)), slope))
    return out


def _of_rsqrt(x: Coefficients, first: Value, slope: Value) -> list[Coefficient]:
    return series_pow(x, -0.5, first)


def _of_cbrt(x: Coefficients, first: Value, slope: Value) -> list[Coefficient]:
    """Solves `3 y**2 y' = x'`."""
    out: list[Coefficient] = [first]
    steps: list[Coefficient] = [None]
    squares: list[Coefficient] = [None]
    for k in range(1, len(x)):
        remainder = scale_term(cauchy_product_term(steps, squares, k, 1, k - 1), 3.0 / k)
        out.append(mul_terms(sub_terms(x[k], remainder), slope))
        steps.append(scale_term(out[k], float(k)))
        squares.append(cauchy_square_term(out, k))
    return out


# ------------------------------------------------------------------ the gamma function


def _of_lgamma(x: Coefficients, first: Value, slope: Value) -> list[Coefficient]:
    return compose_series(
        [first, slope, *[polygamma(float(m), leading_coefficient(x)) for m in range(1, len(x) - 1)]], x
    )


def _of_digamma(x: Coefficients, first: Value, slope: Value) -> list[Coefficient]:
    return compose_series([first, slope, *[polygamma(float(m), leading_coefficient(x)) for m in range(2, len(x))]], x)


# ------------------------------------------------------------------ rules

TRANSCENDENTAL_SOLUTIONS: Final[Mapping[type[Transcendental], SeriesSolution]] = MappingProxyType(
    {
        Exp: _of_exp,
        Exp2: _of_exp2,
        Expm1: _of_expm1,
        Logistic: _of_logistic,
        Sin: _of_sin_cos,
        Cos: _of_sin_cos,
        Tan: _of_tan,
        Asin: _of_asin,
        Acos: _of_asin,
        Sinh: _of_sinh_cosh,
        Cosh: _of_sinh_cosh,
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
LOGARITHMIC_DIVISORS: Final[Mapping[type[ReciprocalDerivative], Callable[[Coefficients, Value], list[Coefficient]]]] = (
    MappingProxyType(
        {
            Log: lambda x, bottom: [bottom, *x[1:]],
            Log1p: lambda x, bottom: [bottom, *x[1:]],
            Atan: lambda x, bottom: _scaled_square(x, bottom, 1.0),
        }
    )
)


def transcendental_taylor(prim: Transcendental, x: Series) -> Series:
    """Applies the solution of a function in `TRANSCENDENTAL_SOLUTIONS`."""
    first = bind1(prim, x.primal)
    return cast_series(TRANSCENDENTAL_SOLUTIONS[type(prim)](x.terms, first, prim.derivative(x.primal, first)), first)


def logarithmic_taylor(prim: ReciprocalDerivative, x: Series) -> Series:
    """Integrates a derivative `x' / divisor`, with the divisor from `LOGARITHMIC_DIVISORS`."""
    first = bind1(prim, x.primal)
    divisor = LOGARITHMIC_DIVISORS[type(prim)](x.terms, prim.divisor(x.primal))
    return cast_series(integrate_quotient(divisor, x.terms, first), first)
