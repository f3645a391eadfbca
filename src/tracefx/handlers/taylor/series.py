"""Truncated power series of arrays, and their arithmetic.

A value along a curve is `x_0 + x_1 t + x_2 t**2 + ...`. The coefficients are derivatives divided by factorials, so the
product of two series is a plain sum of products. A coefficient that is known to be zero is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias, final

from attrs import frozen

from tracefx.core import ShapedArray, Value
from tracefx.core.primitive import Tangent, Zero
from tracefx.ops.elementwise.arithmetic import div, mul, neg, sub
from tracefx.ops.elementwise.elementwise import add
from tracefx.ops.structural import constant_like_aval, match_aval
from tracefx.pytrees import trees

Coefficient: TypeAlias = Value | None
"""A coefficient; None is zero."""
Coefficients: TypeAlias = Sequence[Coefficient]
"""Coefficients from order 0 on."""


@final
@trees.register_dataclass
@frozen(eq=False)
class Series:
    """A value and its coefficients of order 1, 2, ..., which are all None for a constant.

    Attributes:
        primal: the value, the coefficient of order 0.
        higher: the coefficients from order 1 on.

    >>> from tracefx.core.values import as_value
    >>> series = Series(as_value(2.0), (as_value(1.0), None))
    >>> series.primal, len(series.higher)
    (Literal(val=2.0, aval=f32[]*), 2)
    """

    primal: Value
    higher: tuple[Coefficient, ...]

    @property
    def order(self) -> int:
        """The highest order."""
        return len(self.higher)

    @property
    def terms(self) -> tuple[Coefficient, ...]:
        """The coefficients from order 0 on."""
        return (self.primal, *self.higher)

    @property
    def varies(self) -> bool:
        """Whether the value is not constant."""
        return any(t is not None for t in self.higher)


def constant_series(x: Value, order: int) -> Series:
    return Series(x, (None,) * order)


def make_series(terms: Coefficients) -> Series:
    return Series(leading_coefficient(terms), tuple(terms[1:]))


def leading_coefficient(x: Coefficients) -> Value:
    first = x[0]
    assert first is not None
    return first


# ------------------------------------------------------------------ arithmetic of coefficients


def add_terms(x: Coefficient, y: Coefficient) -> Coefficient:
    if x is None:
        return y
    return x if y is None else add(x, y)


def sub_terms(x: Coefficient, y: Coefficient) -> Coefficient:
    if y is None:
        return x
    return neg(y) if x is None else sub(x, y)


def mul_terms(x: Coefficient, y: Coefficient) -> Coefficient:
    return None if x is None or y is None else mul(x, y)


def scale_term(x: Coefficient, factor: float) -> Coefficient:
    return x if x is None or factor == 1.0 else mul(x, factor)


def sum_terms(terms: Iterable[Coefficient]) -> Coefficient:
    total: Coefficient = None
    for t in terms:
        total = add_terms(total, t)
    return total


def cauchy_product_term(
    x: Coefficients, y: Coefficients, k: int, first: int = 0, last: int | None = None
) -> Coefficient:
    """Returns the sum of `x[j] * y[k - j]` for `j` from `first` to `last`, by default `k`."""
    stop = k if last is None else last
    return sum_terms([mul_terms(x[j], y[k - j]) for j in order_by_availability(k, first, stop)])


def cauchy_square_term(x: Coefficients, k: int, first: int = 0) -> Coefficient:
    """Returns the sum of `x[j] * x[k - j]` for `j` from `first` to `k - first`: pairs are computed once and doubled."""
    pairs = sum_terms([mul_terms(x[j], x[k - j]) for j in range((k - 1) // 2, first - 1, -1)])
    middle = x[k // 2] if k % 2 == 0 and k // 2 >= first else None
    return add_terms(mul_terms(middle, middle), scale_term(pairs, 2.0))


def order_by_availability(k: int, first: int, last: int) -> list[int]:
    """Returns the indices of a sum's terms in the order in which they become available in a recurrence."""
    return sorted(range(first, last + 1), key=lambda j: max(j, k - j))


def euler_derivative(x: Coefficients) -> list[Coefficient]:
    """Returns `k * x[k]`: the coefficients of `t` times the derivative."""
    return [None, *[scale_term(t, float(k)) for k, t in enumerate(x) if k]]


# ------------------------------------------------------------------ arithmetic of series
#
# Each function divides one number only: XLA does not fuse a quotient of arrays with several uses into its consumers.


def series_product(x: Coefficients, y: Coefficients, first: Coefficient = None) -> list[Coefficient]:
    """Returns `x * y`; `first` is its value if that is known."""
    orders = range(len(x)) if first is None else range(1, len(x))
    higher = [cauchy_square_term(x, k) if x is y else cauchy_product_term(x, y, k) for k in orders]
    return higher if first is None else [first, *higher]


def series_quotient(x: Coefficients, y: Coefficients, first: Value) -> list[Coefficient]:
    """Returns `x / y`, whose value is `first`."""
    out: list[Coefficient] = [first]
    inverse, minus_first = div(1.0, leading_coefficient(y)), neg(first)
    for k in range(1, len(x)):
        remainder = add_terms(x[k], mul_terms(y[k], minus_first))
        out.append(mul_terms(sub_terms(remainder, cauchy_product_term(out, y, k, 1, k - 1)), inverse))
    return out


def integrate_product(slope: Coefficients, x: Coefficients, first: Value) -> list[Coefficient]:
    """Returns the series with the value `first` whose derivative is `slope` times that of `x`."""
    steps = euler_derivative(x)
    return [first, *[scale_term(cauchy_product_term(steps, slope, k, 1), 1.0 / k) for k in range(1, len(x))]]


def integrate_quotient(divisor: Coefficients, x: Coefficients, first: Value) -> list[Coefficient]:
    """Returns the series with the value `first` whose derivative is that of `x` divided by `divisor`."""
    out: list[Coefficient] = [first]
    steps: list[Coefficient] = [None]
    inverse = div(1.0, leading_coefficient(divisor))
    for k in range(1, len(x)):
        remainder = scale_term(cauchy_product_term(steps, divisor, k, 1, k - 1), 1.0 / k)
        out.append(mul_terms(sub_terms(x[k], remainder), inverse))
        steps.append(scale_term(out[k], float(k)))
    return out


def series_exp(x: Coefficients, first: Value) -> list[Coefficient]:
    """Returns the series with the value `first` whose derivative is itself times that of `x`: `c * exp(x)`."""
    steps = euler_derivative(x)
    out: list[Coefficient] = [first]
    for k in range(1, len(x)):
        out.append(scale_term(cauchy_product_term(steps, out, k, 1), 1.0 / k))
    return out


def series_pow(x: Coefficients, exponent: float, first: Value) -> list[Coefficient]:
    """Returns `x ** exponent`, whose value is `first`; `x[0]` must not be zero."""
    out: list[Coefficient] = [first]
    inverse = div(1.0, leading_coefficient(x))
    for k in range(1, len(x)):
        parts = [
            mul_terms(scale_term(x[j], (exponent + 1.0) * j / k - 1.0), out[k - j])
            for j in order_by_availability(k, 1, k)
        ]
        out.append(mul_terms(sum_terms(parts), inverse))
    return out


def compose_series(derivatives: Sequence[Coefficient], x: Coefficients) -> list[Coefficient]:
    """Returns a function of the series `x`, given its value and derivatives at `x[0]`.

    Uses Horner's rule in `x - x[0]`: only sums and products.
    """
    order = len(x) - 1
    change = [None, *x[1:]]
    out: list[Coefficient] = [None] * (order + 1)
    factorial = 1.0
    scales = []
    for k in range(order + 1):
        factorial *= max(k, 1)
        scales.append(1.0 / factorial)
    for k in range(order, -1, -1):
        # Still to be multiplied by `change` k times, so coefficients beyond order - k do not matter.
        out = [cauchy_product_term(change, out, i, 1) if i <= order - k else None for i in range(order + 1)]
        out[0] = scale_term(derivatives[k], scales[k])
    return out


# ------------------------------------------------------------------ types


def cast_series(terms: Coefficients, primal: Value) -> Series:
    """Returns the series with the value `primal` and coefficients of its dtype."""
    aval = primal.aval.tangent()
    return Series(primal, tuple([None if t is None else cast_term(t, aval) for t in terms[1:]]))


def cast_term(t: Value, aval: ShapedArray) -> Value:
    """Converts a coefficient to a dtype and weak type."""
    return match_aval(t, aval)


def term_to_tangent(t: Coefficient, primal: Value) -> Tangent:
    return Zero(primal.aval.tangent()) if t is None else t


def tangent_to_term(t: Tangent) -> Coefficient:
    return None if isinstance(t, Zero) else t


def instantiate_term(t: Coefficient, primal: Value) -> Value:
    """Returns a coefficient as a value: zeros for None."""
    return constant_like_aval(primal.aval.tangent(), 0) if t is None else t
