"""Truncated power series of arrays, and the arithmetic that all rules are made of.

A value on its way along a curve is `x_0 + x_1 t + x_2 t**2 + ...`: the coefficients are derivatives divided by
factorials, so that a product's are plain sums of products. A coefficient known to be zero is absent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias, final

from attrs import frozen

from tracefx.core import trees
from tracefx.core.avals import ShapedArray
from tracefx.core.primitive import Tangent, Zero
from tracefx.core.values import Value
from tracefx.ops.arithmetic import div, mul, neg, sub
from tracefx.ops.basis import filled, fit
from tracefx.ops.elementwise import add

Term: TypeAlias = Value | None
"""A coefficient; `None` is one that is zero."""
Terms: TypeAlias = Sequence[Term]
"""Coefficients from order 0 on."""


@final
@frozen(eq=False)
class Series:
    """A value and its coefficients of order 1, 2, ...; all absent where it doesn't vary."""

    primal: Value
    higher: tuple[Term, ...]

    @property
    def order(self) -> int:
        return len(self.higher)

    @property
    def terms(self) -> tuple[Term, ...]:
        """The coefficients from order 0 on."""
        return (self.primal, *self.higher)

    @property
    def varies(self) -> bool:
        return any(t is not None for t in self.higher)


trees.register_pytree_node(Series, lambda x: ((x.primal, x.higher), None), lambda _, children: Series(*children))


def constant(x: Value, order: int) -> Series:
    return Series(x, (None,) * order)


def series(terms: Terms) -> Series:
    return Series(value(terms), tuple(terms[1:]))


def value(x: Terms) -> Value:
    first = x[0]
    assert first is not None
    return first


# ------------------------------------------------------------------ coefficients


def plus(x: Term, y: Term) -> Term:
    if x is None:
        return y
    return x if y is None else add(x, y)


def minus(x: Term, y: Term) -> Term:
    if y is None:
        return x
    return neg(y) if x is None else sub(x, y)


def times(x: Term, y: Term) -> Term:
    return None if x is None or y is None else mul(x, y)


def scaled(x: Term, factor: float) -> Term:
    return x if x is None or factor == 1.0 else mul(x, factor)


def summed(terms: Iterable[Term]) -> Term:
    total: Term = None
    for t in terms:
        total = plus(total, t)
    return total


def convolved(x: Terms, y: Terms, k: int, first: int = 0, last: int | None = None) -> Term:
    """The sum of `x[j] * y[k - j]` for `j` from `first` to `last`, which is `k` unless given."""
    stop = k if last is None else last
    return summed([times(x[j], y[k - j]) for j in latest_last(k, first, stop)])


def squared(x: Terms, k: int, first: int = 0) -> Term:
    """The sum of `x[j] * x[k - j]` for `j` from `first` to `k - first`: all but the middle one count twice."""
    pairs = summed([times(x[j], x[k - j]) for j in range((k - 1) // 2, first - 1, -1)])
    middle = x[k // 2] if k % 2 == 0 and k // 2 >= first else None
    return plus(times(middle, middle), scaled(pairs, 2.0))


def latest_last(k: int, first: int, last: int) -> list[int]:
    """The terms of a sum in the order in which they can be had, so that none waits for one that comes later."""
    return sorted(range(first, last + 1), key=lambda j: max(j, k - j))


def rates(x: Terms) -> list[Term]:
    """`k * x[k]`: the coefficients of `t` times the derivative."""
    return [None, *[scaled(t, float(k)) for k, t in enumerate(x) if k]]


# ------------------------------------------------------------------ series
#
# One division each, of a number: XLA does not fuse a quotient of arrays that has several uses with what uses it.


def product(x: Terms, y: Terms, first: Term = None) -> list[Term]:
    """`x * y`, of which `first` is the value if that is known."""
    orders = range(len(x)) if first is None else range(1, len(x))
    higher = [squared(x, k) if x is y else convolved(x, y, k) for k in orders]
    return higher if first is None else [first, *higher]


def quotient(x: Terms, y: Terms, first: Value) -> list[Term]:
    """`x / y`, of which `first` is the value."""
    out: list[Term] = [first]
    inverse, minus_first = div(1.0, value(y)), neg(first)
    for k in range(1, len(x)):
        rest = plus(x[k], times(y[k], minus_first))
        out.append(times(minus(rest, convolved(out, y, k, 1, k - 1)), inverse))
    return out


def integral(slope: Terms, x: Terms, first: Value) -> list[Term]:
    """What has the value `first` and the derivative `slope` times that of `x`."""
    steps = rates(x)
    return [first, *[scaled(convolved(steps, slope, k, 1), 1.0 / k) for k in range(1, len(x))]]


def logarithm(divisor: Terms, x: Terms, first: Value) -> list[Term]:
    """What has the value `first` and the derivative of `x` divided by `divisor`."""
    out: list[Term] = [first]
    steps: list[Term] = [None]
    inverse = div(1.0, value(divisor))
    for k in range(1, len(x)):
        rest = scaled(convolved(steps, divisor, k, 1, k - 1), 1.0 / k)
        out.append(times(minus(x[k], rest), inverse))
        steps.append(scaled(out[k], float(k)))
    return out


def exponential(x: Terms, first: Value) -> list[Term]:
    """What has the value `first` and the derivative of `x` times itself."""
    steps = rates(x)
    out: list[Term] = [first]
    for k in range(1, len(x)):
        out.append(scaled(convolved(steps, out, k, 1), 1.0 / k))
    return out


def power(x: Terms, exponent: float, first: Value) -> list[Term]:
    """`x ** exponent`, of which `first` is the value; `x[0]` is not zero."""
    out: list[Term] = [first]
    inverse = div(1.0, value(x))
    for k in range(1, len(x)):
        parts = [times(scaled(x[j], (exponent + 1.0) * j / k - 1.0), out[k - j]) for j in latest_last(k, 1, k)]
        out.append(times(summed(parts), inverse))
    return out


def composed(derivatives: Sequence[Term], x: Terms) -> list[Term]:
    """A function of `x`, of which `derivatives` has the value and all derivatives at `x[0]`.

    By Horner's rule in what `x` is more than `x[0]`: sums and products only.
    """
    order = len(x) - 1
    change = [None, *x[1:]]
    out: list[Term] = [None] * (order + 1)
    factorial = 1.0
    scales = []
    for k in range(order + 1):
        factorial *= max(k, 1)
        scales.append(1.0 / factorial)
    for k in range(order, -1, -1):
        # Multiplied by `change` k more times, what is beyond order - k can't be seen.
        out = [convolved(change, out, i, 1) if i <= order - k else None for i in range(order + 1)]
        out[0] = scaled(derivatives[k], scales[k])
    return out


# ------------------------------------------------------------------ types


def fitted(terms: Terms, primal: Value) -> Series:
    """The series with `primal` for a value, and coefficients of its type."""
    aval = primal.aval.tangent()
    return Series(primal, tuple([None if t is None else fitted_term(t, aval) for t in terms[1:]]))


def fitted_term(t: Value, aval: ShapedArray) -> Value:
    out = fit(t, aval)
    assert not isinstance(out, Zero)
    return out


def as_tangent(t: Term, primal: Value) -> Tangent:
    return Zero(primal.aval.tangent()) if t is None else t


def as_term(t: Tangent) -> Term:
    return None if isinstance(t, Zero) else t


def spelled(t: Term, primal: Value) -> Value:
    """The coefficient as a value: zeros for an absent one."""
    return filled(primal.aval.tangent(), 0) if t is None else t
