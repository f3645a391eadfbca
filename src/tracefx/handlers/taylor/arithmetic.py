"""Series of products, quotients, powers, and what is made of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tracefx.core import dtypes
from tracefx.core.handler import bind1
from tracefx.core.literal import Literal
from tracefx.core.values import Value
from tracefx.handlers.taylor.linear import locally_linear
from tracefx.handlers.taylor.series import (
    Series,
    Term,
    Terms,
    composed,
    constant,
    convolved,
    exponential,
    fitted,
    logarithm,
    minus,
    plus,
    product,
    quotient,
    rates,
    scaled,
    squared,
    times,
    value,
)
from tracefx.ops.arithmetic import Div, Mul, div, mul, sub
from tracefx.ops.basis import convert, full
from tracefx.ops.comparison import eq
from tracefx.ops.complex import imag, real
from tracefx.ops.elementwise import add
from tracefx.ops.indexing import ScatterAdd
from tracefx.ops.magnitude import Abs
from tracefx.ops.pairs import Atan2
from tracefx.ops.powers import IntegerPow, Pow, Square, by_squaring, pow
from tracefx.ops.scattering import ScatterMul
from tracefx.ops.selection import where
from tracefx.ops.special import Polygamma, polygamma
from tracefx.ops.transcendental import log

# ------------------------------------------------------------------ products and quotients


def multiplied(prim: Mul, x: Series, y: Series) -> Series:
    out = bind1(prim, x.primal, y.primal)
    return fitted(product(x.terms, x.terms if x is y else y.terms, out), out)


def squared_series(prim: Square, x: Series) -> Series:
    out = bind1(prim, x.primal)
    return fitted(product(x.terms, x.terms, out), out)


def divided(prim: Div, x: Series, y: Series) -> Series:
    out = bind1(prim, x.primal, y.primal)
    return fitted(quotient(x.terms, y.terms, out), out)


# ------------------------------------------------------------------ powers


def integer_power(prim: IntegerPow, x: Series) -> Series:
    """By repeated multiplication, as the value is, so that zeros do no harm."""
    out = bind1(prim, x.primal)
    if prim.y == 0:
        return constant(out, x.order)
    found = _whole_power(x.terms, abs(prim.y))
    if prim.y < 0:
        found = quotient(constant(out, x.order).terms, found, out)
    return fitted(found, out)


def _whole_power(x: Terms, n: int) -> list[Term]:
    base: list[Term] = list(x)
    return by_squaring(base, n, product)


def raised(prim: Pow, x: Series, y: Series) -> Series:
    out = bind1(prim, x.primal, y.primal)
    if not y.varies:
        n = _whole(y.primal)
        return fitted(composed(_slopes(x, y.primal, out), x.terms) if n is None else _whole_power(x.terms, n), out)
    base = log(where(eq(x.primal, 0.0), 1, x.primal, x.primal.aval))  # as the derivative takes it
    if not x.varies:
        return fitted(exponential([times(base, t) for t in y.terms], out), out)
    logs = logarithm(x.terms, x.terms, base)
    return fitted(exponential(product(logs, y.terms), out), out)


_LARGEST: Final = 64
"""The exponent up to which powers are products."""


def _whole(exponent: Value) -> int | None:
    """An exponent known to be a whole number, and small."""
    if isinstance(exponent, Literal) and exponent.val in range(1, _LARGEST + 1):
        return int(exponent.val.real)
    return None


def _slopes(x: Series, exponent: Value, first: Value) -> list[Term]:
    """`x ** exponent` and its derivatives; those of whole powers vanish from some order on, at 0 too."""
    n: Value = exponent
    if dtypes.is_integer(n.aval.dtype):
        n = convert(n, x.primal.aval.dtype, n.aval.weak_type)
    factor: Value = n
    out: list[Term] = [first]
    for k in range(1, x.order + 1):
        left = sub(n, float(k))
        slope = mul(factor, pow(x.primal, left))
        out.append(where(eq(factor, 0.0), 0, slope, slope.aval))
        factor = mul(factor, left)
    return out


# ------------------------------------------------------------------ sizes and angles


def absolute(prim: Abs, x: Series) -> Sequence[Series]:
    if not dtypes.is_complex(x.primal.aval.dtype):
        return locally_linear(prim, x)
    out = bind1(prim, x.primal)
    re = [None if t is None else real(t) for t in x.terms]
    im = [None if t is None else imag(t) for t in x.terms]
    inverse = div(0.5, where(eq(out, 0.0), 1, out, out.aval))  # at 0 there is no direction
    terms: list[Term] = [out]
    for k in range(1, len(x.terms)):
        square = plus(squared(re, k), squared(im, k))
        terms.append(times(minus(square, squared(terms, k, 1)), inverse))
    return [fitted(terms, out)]


def angled(prim: Atan2, y: Series, x: Series) -> Series:
    """The derivative of the angle is `(x y' - y x') / (x**2 + y**2)`."""
    out = bind1(prim, y.primal, x.primal)
    size = [plus(squared(x.terms, k), squared(y.terms, k)) for k in range(len(x.terms))]
    y_rates, x_rates = rates(y.terms), rates(x.terms)
    turns: list[Term] = [None]
    inverse = div(1.0, value(size))
    for k in range(1, len(x.terms)):
        turn = minus(convolved(y_rates, x.terms, k, 1), convolved(x_rates, y.terms, k, 1))
        turns.append(times(minus(turn, convolved(turns, size, k, 1, k - 1)), inverse))
    return fitted([out, *[scaled(t, 1.0 / k) for k, t in enumerate(turns) if k]], out)


# ------------------------------------------------------------------ polygamma


def polygamma_series(prim: Polygamma, m: Series, x: Series) -> Series | None:
    if m.varies:
        return None  # the derivative says that there is none
    out = bind1(prim, m.primal, x.primal)
    slopes = [polygamma(add(m.primal, float(k)), x.primal) for k in range(1, x.order + 1)]
    return fitted(composed([out, *slopes], x.terms), out)


# ------------------------------------------------------------------ products at some places


def scattered_product(prim: ScatterMul, x: Series, indices: Series, updates: Series) -> Sequence[Series] | None:
    """A product with an array that is 1 but where the updates are: linear in these, if no place is updated twice."""
    if not updates.varies:
        return locally_linear(prim, x, indices, updates)
    if not prim.unique_indices:
        return None  # the derivative says why there is none
    place = ScatterAdd(prim.dimension_numbers, prim.indices_are_sorted, True, prim.mode)
    aval = x.primal.aval
    factor = bind1(prim, full(aval, 1), indices.primal, updates.primal)
    higher = [None if t is None else bind1(place, full(aval, 0), indices.primal, t) for t in updates.higher]
    out = bind1(prim, x.primal, indices.primal, updates.primal)
    return [fitted(product(x.terms, [factor, *higher], out), out)]
