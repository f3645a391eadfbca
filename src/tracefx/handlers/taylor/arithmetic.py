"""Series rules of products, quotients, powers, absolute values, angles and polygamma."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tracefx import ops
from tracefx.core import Literal, Value, dtypes
from tracefx.core.handler import bind1
from tracefx.handlers.taylor import series
from tracefx.handlers.taylor.linear import locally_linear_taylor
from tracefx.ops.elementwise.arithmetic import div, mul, sub
from tracefx.ops.elementwise.comparison import eq
from tracefx.ops.elementwise.complex import imag, real
from tracefx.ops.elementwise.elementwise import add
from tracefx.ops.elementwise.powers import pow, power_by_squaring
from tracefx.ops.elementwise.selection import select_with_aval
from tracefx.ops.elementwise.special import polygamma
from tracefx.ops.elementwise.transcendental import log
from tracefx.ops.structural import convert, full_like_aval

# ------------------------------------------------------------------ products and quotients


def mul_taylor(prim: ops.Mul, x: series.Series, y: series.Series) -> series.Series:
    out = bind1(prim, x.primal, y.primal)
    return series.cast_series(series.series_product(x.terms, x.terms if x is y else y.terms, out), out)


def square_taylor(prim: ops.Square, x: series.Series) -> series.Series:
    out = bind1(prim, x.primal)
    return series.cast_series(series.series_product(x.terms, x.terms, out), out)


def div_taylor(prim: ops.Div, x: series.Series, y: series.Series) -> series.Series:
    out = bind1(prim, x.primal, y.primal)
    return series.cast_series(series.series_quotient(x.terms, y.terms, out), out)


# ------------------------------------------------------------------ powers


def integer_pow_taylor(prim: ops.IntegerPow, x: series.Series) -> series.Series:
    """Uses repeated multiplication, as the value does, so that zeros cause no NaN."""
    out = bind1(prim, x.primal)
    if prim.y == 0:
        return series.constant_series(out, x.order)
    terms = _series_integer_pow(x.terms, abs(prim.y))
    if prim.y < 0:
        terms = series.series_quotient(series.constant_series(out, x.order).terms, terms, out)
    return series.cast_series(terms, out)


def _series_integer_pow(x: series.Coefficients, n: int) -> list[series.Coefficient]:
    base: list[series.Coefficient] = list(x)
    return power_by_squaring(base, n, series.series_product)


def pow_taylor(prim: ops.Pow, x: series.Series, y: series.Series) -> series.Series:
    out = bind1(prim, x.primal, y.primal)
    if not y.varies:
        n = _small_integer_exponent(y.primal)
        return series.cast_series(
            series.compose_series(_pow_derivatives(x, y.primal, out), x.terms)
            if n is None
            else _series_integer_pow(x.terms, n),
            out,
        )
    base = log(select_with_aval(eq(x.primal, 0.0), 1, x.primal, x.primal.aval))  # log(1) at 0, as in the JVP rule
    if not x.varies:
        return series.cast_series(series.series_exp([series.mul_terms(base, t) for t in y.terms], out), out)
    logs = series.integrate_quotient(x.terms, x.terms, base)
    return series.cast_series(series.series_exp(series.series_product(logs, y.terms), out), out)


_MAX_UNROLLED_EXPONENT: Final = 64
"""The largest exponent for which powers are computed as products."""


def _small_integer_exponent(exponent: Value) -> int | None:
    """Returns an exponent that is known to be a small positive integer, otherwise None."""
    if isinstance(exponent, Literal) and exponent.val in range(1, _MAX_UNROLLED_EXPONENT + 1):
        return int(exponent.val.real)
    return None


def _pow_derivatives(x: series.Series, exponent: Value, first: Value) -> list[series.Coefficient]:
    """Returns `x ** exponent` and its derivatives; for integer exponents those of high order are zero, also at 0."""
    n: Value = exponent
    if dtypes.is_integer(n.aval.dtype):
        n = convert(n, x.primal.aval.dtype, n.aval.weak_type)
    factor: Value = n
    out: list[series.Coefficient] = [first]
    for k in range(1, x.order + 1):
        remaining = sub(n, float(k))
        slope = mul(factor, pow(x.primal, remaining))
        out.append(select_with_aval(eq(factor, 0.0), 0, slope, slope.aval))
        factor = mul(factor, remaining)
    return out


# ------------------------------------------------------------------ absolute values and angles


def abs_taylor(prim: ops.Abs, x: series.Series) -> Sequence[series.Series]:
    if not dtypes.is_complex(x.primal.aval.dtype):
        return locally_linear_taylor(prim, x)
    out = bind1(prim, x.primal)
    re = [None if t is None else real(t) for t in x.terms]
    im = [None if t is None else imag(t) for t in x.terms]
    inverse = div(0.5, select_with_aval(eq(out, 0.0), 1, out, out.aval))  # at 0 the direction is undefined
    terms: list[series.Coefficient] = [out]
    for k in range(1, len(x.terms)):
        square = series.add_terms(series.cauchy_square_term(re, k), series.cauchy_square_term(im, k))
        terms.append(series.mul_terms(series.sub_terms(square, series.cauchy_square_term(terms, k, 1)), inverse))
    return [series.cast_series(terms, out)]


def atan2_taylor(prim: ops.Atan2, y: series.Series, x: series.Series) -> series.Series:
    """Integrates the derivative of the angle, `(x y' - y x') / (x**2 + y**2)`."""
    out = bind1(prim, y.primal, x.primal)
    radius_squared = [
        series.add_terms(series.cauchy_square_term(x.terms, k), series.cauchy_square_term(y.terms, k))
        for k in range(len(x.terms))
    ]
    y_rates, x_rates = series.euler_derivative(y.terms), series.euler_derivative(x.terms)
    angle_rates: list[series.Coefficient] = [None]
    inverse = div(1.0, series.leading_coefficient(radius_squared))
    for k in range(1, len(x.terms)):
        cross_term = series.sub_terms(
            series.cauchy_product_term(y_rates, x.terms, k, 1), series.cauchy_product_term(x_rates, y.terms, k, 1)
        )
        angle_rates.append(
            series.mul_terms(
                series.sub_terms(cross_term, series.cauchy_product_term(angle_rates, radius_squared, k, 1, k - 1)),
                inverse,
            )
        )
    return series.cast_series([out, *[series.scale_term(t, 1.0 / k) for k, t in enumerate(angle_rates) if k]], out)


# ------------------------------------------------------------------ polygamma


def polygamma_taylor(prim: ops.Polygamma, m: series.Series, x: series.Series) -> series.Series | None:
    if m.varies:
        return None  # the JVP rule raises the error
    out = bind1(prim, m.primal, x.primal)
    slopes = [polygamma(add(m.primal, float(k)), x.primal) for k in range(1, x.order + 1)]
    return series.cast_series(series.compose_series([out, *slopes], x.terms), out)


# ------------------------------------------------------------------ scatter_mul


def scatter_mul_taylor(
    prim: ops.ScatterMul, x: series.Series, indices: series.Series, updates: series.Series
) -> Sequence[series.Series] | None:
    """Multiplies by an array of ones except at the updates: linear in the updates if no element is updated twice."""
    if not updates.varies:
        return locally_linear_taylor(prim, x, indices, updates)
    if not prim.unique_indices:
        return None  # the JVP rule raises the error
    scatter_add = ops.ScatterAdd(prim.dimension_numbers, prim.indices_are_sorted, True, prim.mode)
    aval = x.primal.aval
    factor = bind1(prim, full_like_aval(aval, 1), indices.primal, updates.primal)
    higher = [
        None if t is None else bind1(scatter_add, full_like_aval(aval, 0), indices.primal, t) for t in updates.higher
    ]
    out = bind1(prim, x.primal, indices.primal, updates.primal)
    return [series.cast_series(series.series_product(x.terms, [factor, *higher], out), out)]
