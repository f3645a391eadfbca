"""Truncated power series of arrays, and the arithmetic that all rules are made of.

A value on its way along a curve is `x_0 + x_1 t + x_2 t**2 + ...`: the coefficients are derivatives divided by
factorials, so that a product's are plain sums of products. A coefficient known to be zero is absent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias, final

from attrs import frozen

from tracefx.core.avals import ShapedArray
from tracefx.core.primitive import Tangent, Zero
from tracefx.core.values import Value
from tracefx.ops.elementwise.arithmetic import div, mul, neg, sub
from tracefx.ops.elementwise.elementwise import add
from tracefx.ops.structural import constant_like_aval, match_aval
from tracefx.pytrees import trees

Coefficient: TypeAlias = Value | None
"""A coefficient; `None` is one that is zero."""
Coefficients: TypeAlias = Sequence[Coefficient]
"""Coefficients from order 0 on."""


@final
@frozen(eq=False)
class Series:
    """A value and its coefficients of order 1, 2, ...; all absent where it doesn't vary."""

    primal: Value
    higher: tuple[Coefficient, ...]

    @property
    def order(self) -> int:
        return len(self.higher)

    @property
    def terms(self) -> tuple[Coefficient, ...]:
        """The coefficients from order 0 on."""
        return (self.primal, *self.higher)

    @property
    def varies(self) -> bool:
        return any(t is not None for t in self.higher)


trees.register_pytree_node(Series, lambda x: ((x.primal, x.higher), None), lambda _, children: Series(*children))


def constant_series(x: Value, order: int) -> Series:
    return Series(x, (None,) * order)


def series(terms: Coefficients) -> Series:
    return Series(leading_coefficient(terms), tuple(terms[1:]))


def leading_coefficient(x: Coefficients) -> Value:
    first = x[0]
    assert first is not None
    return first


# ------------------------------------------------------------------ coefficients


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
    """The sum of `x[j] * y[k - j]` for `j` from `first` to `last`, which is `k` unless given."""
    stop = k if last is None else last
    return sum_terms([mul_terms(x[j], y[k - j]) for j in order_by_availability(k, first, stop)])


def cauchy_square_term(x: Coefficients, k: int, first: int = 0) -> Coefficient:
    """The sum of `x[j] * x[k - j]` for `j` from `first` to `k - first`: all but the middle one count twice."""
    pairs = sum_terms([mul_terms(x[j], x[k - j]) for j in range((k - 1) // 2, first - 1, -1)])
    middle = x[k // 2] if k % 2 == 0 and k // 2 >= first else None
    return add_terms(mul_terms(middle, middle), scale_term(pairs, 2.0))


def order_by_availability(k: int, first: int, last: int) -> list[int]:
    """The terms of a sum in the order in which they can be had, so that none waits for one that comes later."""
    return sorted(range(first, last + 1), key=lambda j: max(j, k - j))


def euler_derivative(x: Coefficients) -> list[Coefficient]:
    """`k * x[k]`: the coefficients of `t` times the derivative."""
    return [None, *[scale_term(t, float(k)) for k, t in enumerate(x) if k]]


# ------------------------------------------------------------------ series
#
# One division each, of a number: XLA does not fuse a quotient of arrays that has several uses with what uses it.


def series_product(x: Coefficients, y: Coefficients, first: Coefficient = None) -> list[Coefficient]:
    """`x * y`, of which `first` is the value if that is known."""
    orders = range(len(x)) if first is None else range(1, len(x))
    higher = [cauchy_square_term(x, k) if x is y else cauchy_product_term(x, y, k) for k in orders]
    return higher if first is None else [first, *higher]


def series_quotient(x: Coefficients, y: Coefficients, first: Value) -> list[Coefficient]:
    """`x / y`, of which `first` is the value."""
    out: list[Coefficient] = [first]
    inverse, minus_first = div(1.0, leading_coefficient(y)), neg(first)
    for k in range(1, len(x)):
        rest = add_terms(x[k], mul_terms(y[k], minus_first))
        out.append(mul_terms(sub_terms(rest, cauchy_product_term(out, y, k, 1, k - 1)), inverse))
    return out


def integrate_product(slope: Coefficients, x: Coefficients, first: Value) -> list[Coefficient]:
    """What has the value `first` and the derivative `slope` times that of `x`."""
    steps = euler_derivative(x)
    return [first, *[scale_term(cauchy_product_term(steps, slope, k, 1), 1.0 / k) for k in range(1, len(x))]]


def integrate_quotient(divisor: Coefficients, x: Coefficients, first: Value) -> list[Coefficient]:
    """What has the value `first` and the derivative of `x` divided by `divisor`."""
    out: list[Coefficient] = [first]
    steps: list[Coefficient] = [None]
    inverse = div(1.0, leading_coefficient(divisor))
    for k in range(1, len(x)):
        rest = scale_term(cauchy_product_term(steps, divisor, k, 1, k - 1), 1.0 / k)
        out.append(mul_terms(sub_terms(x[k], rest), inverse))
        steps.append(scale_term(out[k], float(k)))
    return out


def series_exp(x: Coefficients, first: Value) -> list[Coefficient]:
    """What has the value `first` and the derivative of `x` times itself."""
    steps = euler_derivative(x)
    out: list[Coefficient] = [first]
    for k in range(1, len(x)):
        out.append(scale_term(cauchy_product_term(steps, out, k, 1), 1.0 / k))
    return out


def series_pow(x: Coefficients, exponent: float, first: Value) -> list[Coefficient]:
    """`x ** exponent`, of which `first` is the value; `x[0]` is not zero."""
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
    """A function of `x`, of which `derivatives` has the value and all derivatives at `x[0]`.

    By Horner's rule in what `x` is more than `x[0]`: sums and products only.
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
        # Multiplied by `change` k more times, what is beyond order - k can't be seen.
        out = [cauchy_product_term(change, out, i, 1) if i <= order - k else None for i in range(order + 1)]
        out[0] = scale_term(derivatives[k], scales[k])
    return out


# ------------------------------------------------------------------ types


def cast_series(terms: Coefficients, primal: Value) -> Series:
    """The series with `primal` for a value, and coefficients of its type."""
    aval = primal.aval.tangent()
    return Series(primal, tuple([None if t is None else cast_term(t, aval) for t in terms[1:]]))


def cast_term(t: Value, aval: ShapedArray) -> Value:
    out = match_aval(t, aval)
    assert not isinstance(out, Zero)
    return out


def term_to_tangent(t: Coefficient, primal: Value) -> Tangent:
    return Zero(primal.aval.tangent()) if t is None else t


def tangent_to_term(t: Tangent) -> Coefficient:
    return None if isinstance(t, Zero) else t


def instantiate_term(t: Coefficient, primal: Value) -> Value:
    """The coefficient as a value: zeros for an absent one."""
    return constant_like_aval(primal.aval.tangent(), 0) if t is None else t
