"""Series of products and sums of exponentials along axes: series are folded in a tree, so that zeros do no harm."""

from __future__ import annotations

from tracefx.core.array import Array
from tracefx.core.handler import as_array, bind1
from tracefx.handlers.taylor.series import Series, Term, exponential, fitted, logarithm, product, spelled
from tracefx.ops.arithmetic import mul, neg, sub
from tracefx.ops.basis import filled, reshape
from tracefx.ops.bitwise import bitwise_and
from tracefx.ops.comparison import eq, ge, ne
from tracefx.ops.cumulative import CumLogSumExp, CumProd
from tracefx.ops.cutting import pad, slice_axis
from tracefx.ops.elementwise import add
from tracefx.ops.reduction import ReduceProd
from tracefx.ops.selection import select, where
from tracefx.ops.transcendental import exp, log1p, logistic
from tracefx.transforms.prefixes import associative_scan


def spelled_out(x: Series) -> list[Array]:
    """All coefficients, as many as there are orders: products have them all soon."""
    return [as_array(spelled(t, x.primal)) for t in x.terms]


def present(terms: list[Term]) -> list[Array]:
    return [as_array(t) for t in terms if t is not None]


# ------------------------------------------------------------------ products


def multiplied_along(prim: CumProd, x: Series) -> Series:
    terms = associative_scan(lambda a, b: present(product(a, b)), spelled_out(x), reverse=prim.reverse, axis=prim.axis)
    return fitted(terms, bind1(prim, x.primal))


def multiplied_over(prim: ReduceProd, x: Series) -> Series:
    out = bind1(prim, x.primal)
    terms = [prim.flat(t) for t in spelled_out(x)]
    if not terms[0].shape[0]:
        return fitted([out, *[None] * x.order], out)
    while (n := terms[0].shape[0]) > 1:
        half = (n + 1) // 2
        others = [_others(t, half, 0 if k else 1) for k, t in enumerate(terms)]
        terms = present(product([slice_axis(t, 0, half, 0) for t in terms], others))
    return fitted([reshape(t, out.shape) for t in terms], out)


def _others(x: Array, half: int, fill: int) -> Array:
    """The second half of the rows, filled up to be as many as the first."""
    rows = slice_axis(x, half, x.shape[0], 0)
    missing = half - rows.shape[0]
    return pad(rows, fill, [(0, missing, 0), *[(0, 0, 0)] * (x.ndim - 1)]) if missing else rows


# ------------------------------------------------------------------ sums of exponentials


def summed_along(prim: CumLogSumExp, x: Series) -> Series:
    """The sum's series, divided by the sum, is the mean of the terms', each divided by its term: none overflows."""
    out = bind1(prim, x.primal)
    ones = filled(x.primal.aval, 1)
    parts = [spelled(t, x.primal) for t in exponential(x.terms, ones)[1:]]

    def together(a: list[Array], b: list[Array]) -> list[Array]:
        (u, *us), (v, *vs) = a, b
        total, share, rest = _shares(u, v)
        return [total, *[add(mul(s, share), mul(t, rest)) for s, t in zip(us, vs, strict=True)]]

    elements = [as_array(t) for t in (x.primal, *parts)]
    _, *means = associative_scan(together, elements, reverse=prim.reverse, axis=prim.axis)
    relative = [ones, *means]
    return fitted(logarithm(relative, relative, out), out)


def _shares(x: Array, y: Array) -> tuple[Array, Array, Array]:
    """The logarithm of the sum of two exponentials, and the shares that they have in it; infinities that tie halves."""
    apart, larger = sub(x, y), ge(x, y)
    total = add(select(larger, x, y), log1p(exp(select(larger, neg(apart), apart))))  # without a kink where they tie
    total = select(eq(apart, apart), total, add(x, y))
    apart = where(bitwise_and(eq(x, y), ne(apart, apart)), 0, apart, apart.aval)
    return total, logistic(apart), logistic(neg(apart))
