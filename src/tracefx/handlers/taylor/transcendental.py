"""Series rules of smooth functions of one operand, from the differential equations that they satisfy.

`y = tanh(x)` has `y' = (1 - y**2) x'`: the coefficients of `y` up to one order give those of the slope `1 - y**2`, and
these the next coefficient of `y`. The number of products is quadratic in the order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from tracefx import ops
from tracefx.core import Value
from tracefx.core.handler import bind1
from tracefx.handlers.taylor import series
from tracefx.ops.elementwise.arithmetic import mul, sub
from tracefx.ops.elementwise.elementwise import add
from tracefx.ops.elementwise.special import polygamma
from tracefx.ops.elementwise.transcendental import ReciprocalDerivative, Transcendental

SeriesSolution: TypeAlias = Callable[[series.Coefficients, Value, Value], list[series.Coefficient]]
"""Called with the operand's coefficients, the value and the derivative at order 0; returns the coefficients."""

# ------------------------------------------------------------------ slopes that depend on the function


def solve_recurrence(
    x: series.Coefficients,
    first: Value,
    slope: Value,
    following: Callable[[series.Coefficients, series.Coefficients, int], series.Coefficient],
) -> list[series.Coefficient]:
    """Solves `y' = slope * x'` for a slope that depends on `y`.

    Args:
        x: the coefficients of the operand.
        first: the value of `y`.
        slope: the value of the slope.
        following: returns the slope's coefficient of order `k` from those of `y` up to order `k` and from
            `euler_derivative(x)`.
    """
    steps = series.euler_derivative(x)
    out: list[series.Coefficient] = [first]
    slopes: list[series.Coefficient] = [slope]
    for k in range(1, len(x)):
        out.append(series.scale_term(series.cauchy_product_term(steps, slopes, k, 1), 1.0 / k))
        if k + 1 < len(x):
            slopes.append(following(out, steps, k))
    return out


def _of_exp(x: series.Coefficients, first: Value, slope: Value) -> list[series.Coefficient]:
    return series.series_exp(x, first)


def _of_exp2(x: series.Coefficients, first: Value, slope: Value) -> list[series.Coefficient]:
    return series.series_exp([series.scale_term(t, math.log(2.0)) for t in x], first)


def _of_expm1(x: series.Coefficients, first: Value, slope: Value) -> list[series.Coefficient]:
    return [first, *series.series_exp(x, slope)[1:]]


def _of_logistic(x: series.Coefficients, first: Value, slope: Value) -> list[series.Coefficient]:
    return solve_recurrence(
        x, first, slope, lambda out, steps, k: series.sub_terms(out[k], series.cauchy_square_term(out, k))
    )


def _of_tanh(x: series.Coefficients, first: Value, slope: Value) -> list[series.Coefficient]:
    return solve_recurrence(
        x, first, slope, lambda out, steps, k: series.sub_terms(None, series.cauchy_square_term(out, k))
    )


def _of_tan(x: series.Coefficients, first: Value, slope: Value) -> list[series.Coefficient]:
    return solve_recurrence(x, first, slope, lambda out, steps, k: series.cauchy_square_term(out, k))


def _of_sin_cos(x: series.Coefficients, first: Value, slope: Value) -> list[series.Coefficient]:
    """For functions whose second derivative is minus themselves."""
    return solve_recurrence(
        x, first, slope, lambda out, steps, k: series.scale_term(series.cauchy_product_term(steps, out, k, 1), -1.0 / k)
    )


def _of_sinh_cosh(x: series.Coefficients, first: Value, slope: Value) -> list[series.Coefficient]:
    """For functions whose second derivative is themselves."""
    return solve_recurrence(
        x, first, slope, lambda out, steps, k: series.scale_term(series.cauchy_product_term(steps, out, k, 1), 1.0 / k)
    )


def _of_erf_inv(x: series.Coefficients, first: Value, slope: Value) -> list[series.Coefficient]:
    # The slope is a multiple of exp(y**2), so its derivative is itself times that of y**2.
    square_steps: list[series.Coefficient] = [None]
    slopes: list[series.Coefficient] = [slope]

    def following(out: series.Coefficients, steps: series.Coefficients, k: int) -> series.Coefficient:
        square_steps.append(series.scale_term(series.cauchy_square_term(out, k), float(k)))
        slopes.append(series.scale_term(series.cauchy_product_term(square_steps, slopes, k, 1), 1.0 / k))
        return slopes[k]

    return solve_recurrence(x, first, slope, following)


# ------------------------------------------------------------------ slopes that depend on the operand


def _scaled_square(x: series.Coefficients, first: Value, sign: float) -> list[series.Coefficient]:
    """Returns `sign * x**2` with its value replaced by `first`."""
    return [first, *[series.scale_term(t, sign) for t in series.series_product(x, x, first)[1:]]]


def _of_asin(x: series.Coefficients, first: Value, slope: Value) -> list[series.Coefficient]:
    inside = _scaled_square(x, sub(1.0, mul(series.leading_coefficient(x), series.leading_coefficient(x))), -1.0)
    return series.integrate_product(series.series_pow(inside, -0.5, slope), x, first)


def _of_asinh(x: series.Coefficients, first: Value, slope: Value) -> list[series.Coefficient]:
    inside = _scaled_square(x, add(mul(series.leading_coefficient(x), series.leading_coefficient(x)), 1.0), 1.0)
    return series.integrate_product(series.series_pow(inside, -0.5, slope), x, first)


def _of_acosh(x: series.Coefficients, first: Value, slope: Value) -> list[series.Coefficient]:
    inside = _scaled_square(x, sub(mul(series.leading_coefficient(x), series.leading_coefficient(x)), 1.0), 1.0)
    return series.integrate_product(series.series_pow(inside, -0.5, slope), x, first)


def _of_erf(x: series.Coefficients, first: Value, slope: Value) -> list[series.Coefficient]:
    return series.integrate_product(
        series.series_exp(_scaled_square(x, first, -1.0), slope), x, first
    )  # only the derivative of the square matters, so its value is arbitrary


def _of_atanh(x: series.Coefficients, first: Value, slope: Value) -> list[series.Coefficient]:
    bottom = mul(add(series.leading_coefficient(x), 1.0), sub(1.0, series.leading_coefficient(x)))
    return series.integrate_quotient(_scaled_square(x, bottom, -1.0), x, first)


# ------------------------------------------------------------------ roots


def _of_sqrt(x: series.Coefficients, first: Value, slope: Value) -> list[series.Coefficient]:
    out: list[series.Coefficient] = [first]
    for k in range(1, len(x)):
        out.append(series.mul_terms(series.sub_terms(x[k], series.cauchy_square_term(out, k, 1)), slope))
    return out


def _of_rsqrt(x: series.Coefficients, first: Value, slope: Value) -> list[series.Coefficient]:
    return series.series_pow(x, -0.5, first)


def _of_cbrt(x: series.Coefficients, first: Value, slope: Value) -> list[series.Coefficient]:
    """Solves `3 y**2 y' = x'`."""
    out: list[series.Coefficient] = [first]
    steps: list[series.Coefficient] = [None]
    squares: list[series.Coefficient] = [None]
    for k in range(1, len(x)):
        remainder = series.scale_term(series.cauchy_product_term(steps, squares, k, 1, k - 1), 3.0 / k)
        out.append(series.mul_terms(series.sub_terms(x[k], remainder), slope))
        steps.append(series.scale_term(out[k], float(k)))
        squares.append(series.cauchy_square_term(out, k))
    return out


# ------------------------------------------------------------------ the gamma function


def _of_lgamma(x: series.Coefficients, first: Value, slope: Value) -> list[series.Coefficient]:
    return series.compose_series(
        [first, slope, *[polygamma(float(m), series.leading_coefficient(x)) for m in range(1, len(x) - 1)]], x
    )


def _of_digamma(x: series.Coefficients, first: Value, slope: Value) -> list[series.Coefficient]:
    return series.compose_series(
        [first, slope, *[polygamma(float(m), series.leading_coefficient(x)) for m in range(2, len(x))]], x
    )


# ------------------------------------------------------------------ rules

TRANSCENDENTAL_SOLUTIONS: Final[Mapping[type[Transcendental], SeriesSolution]] = MappingProxyType(
    {
        ops.Exp: _of_exp,
        ops.Exp2: _of_exp2,
        ops.Expm1: _of_expm1,
        ops.Logistic: _of_logistic,
        ops.Sin: _of_sin_cos,
        ops.Cos: _of_sin_cos,
        ops.Tan: _of_tan,
        ops.Asin: _of_asin,
        ops.Acos: _of_asin,
        ops.Sinh: _of_sinh_cosh,
        ops.Cosh: _of_sinh_cosh,
        ops.Tanh: _of_tanh,
        ops.Asinh: _of_asinh,
        ops.Acosh: _of_acosh,
        ops.Atanh: _of_atanh,
        ops.Sqrt: _of_sqrt,
        ops.Rsqrt: _of_rsqrt,
        ops.Cbrt: _of_cbrt,
        ops.Erf: _of_erf,
        ops.Erfc: _of_erf,
        ops.ErfInv: _of_erf_inv,
        ops.Lgamma: _of_lgamma,
        ops.Digamma: _of_digamma,
    }
)
LOGARITHMIC_DIVISORS: Final[
    Mapping[type[ReciprocalDerivative], Callable[[series.Coefficients, Value], list[series.Coefficient]]]
] = MappingProxyType(
    {
        ops.Log: lambda x, bottom: [bottom, *x[1:]],
        ops.Log1p: lambda x, bottom: [bottom, *x[1:]],
        ops.Atan: lambda x, bottom: _scaled_square(x, bottom, 1.0),
    }
)


def transcendental_taylor(prim: Transcendental, x: series.Series) -> series.Series:
    """Applies the solution of a function in `TRANSCENDENTAL_SOLUTIONS`."""
    first = bind1(prim, x.primal)
    return series.cast_series(
        TRANSCENDENTAL_SOLUTIONS[type(prim)](x.terms, first, prim.derivative(x.primal, first)), first
    )


def logarithmic_taylor(prim: ReciprocalDerivative, x: series.Series) -> series.Series:
    """Integrates a derivative `x' / divisor`, with the divisor from `LOGARITHMIC_DIVISORS`."""
    first = bind1(prim, x.primal)
    divisor = LOGARITHMIC_DIVISORS[type(prim)](x.terms, prim.divisor(x.primal))
    return series.cast_series(series.integrate_quotient(divisor, x.terms, first), first)
