"""Bounds of operations element by element.

Sources of error beside rounding: XLA's and NumPy's functions are a few units in the last place from the exact ones;
`FAR` is more than either was ever found to be (`tracefx.testing.tolerances`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np

import tracefx.numpy as fnp
from tracefx.core import dtypes
from tracefx.core.array import Array
from tracefx.core.handler import bind1
from tracefx.core.primitive import Primitive
from tracefx.handlers.intervals.interval import Compared, Held, Interval, hull, lifted, rounded, where, whole
from tracefx.ops.arithmetic import Div, Mul
from tracefx.ops.powers import IntegerPow, Pow

NEAR: Final = 1.5
"""Units in the last place of what IEEE rounds right: enough, though the widening itself is rounded."""
FAR: Final = 64.0
Rule: TypeAlias = Callable[..., Sequence[Held]]


def is_float(x: Interval) -> bool:
    return dtypes.is_inexact(x.lo.aval.dtype)


# ------------------------------------------------------------------ monotone functions


def exact(handler: object, op: Primitive, *operands: Held) -> list[Held]:
    """Operations that grow in all their operands and round nothing: moving, choosing, extremes, roundings."""
    xs = list(map(lifted, operands))
    return [Interval(bind1(op, *[x.lo for x in xs]), bind1(op, *[x.hi for x in xs]))]


def growing(least: float = -np.inf, most: float = np.inf) -> Rule:
    """The rule of a growing function defined from `least` to `most`."""

    def rule(handler: object, op: Primitive, operand: Held) -> list[Held]:
        x = within(lifted(operand), least, most)
        return [rounded(bind1(op, x.lo), bind1(op, x.hi), FAR)]

    return rule


def falling(least: float = -np.inf, most: float = np.inf) -> Rule:
    """The rule of a falling function."""

    def rule(handler: object, op: Primitive, operand: Held) -> list[Held]:
        x = within(lifted(operand), least, most)
        return [rounded(bind1(op, x.hi), bind1(op, x.lo), FAR)]

    return rule


def within(x: Interval, least: float, most: float) -> Interval:
    """The part of it for which a function is defined."""
    if least == -np.inf and most == np.inf:
        return x
    lo, hi = [fnp.clip(end, least, most) for end in x]
    return Interval(fnp.where(lo == 0, 0.0, lo), fnp.where(hi == 0, 0.0, hi))  # no function is asked at -0.0


def negated(handler: object, op: Primitive, operand: Held) -> list[Held]:
    x = lifted(operand)
    return [Interval(bind1(op, x.hi), bind1(op, x.lo))]


def converted(handler: object, op: Primitive, operand: Held) -> list[Held]:
    x = lifted(operand)
    y = Interval(bind1(op, x.lo), bind1(op, x.hi))
    if not is_float(y) or dtypes.is_bool(x.lo.aval.dtype):
        return [y]
    if is_float(x) and dtypes.finfo(y.lo.aval.dtype).nmant >= dtypes.finfo(x.lo.aval.dtype).nmant:
        return [y]
    return [rounded(y.lo, y.hi, NEAR)]


# ------------------------------------------------------------------ arithmetic


def added(handler: object, op: Primitive, left: Held, right: Held) -> list[Held]:
    x, y = lifted(left), lifted(right)
    return [_fitted(op, bind1(op, x.lo, y.lo), bind1(op, x.hi, y.hi), lambda a, b: a + b, (x.lo, y.lo), (x.hi, y.hi))]


def subtracted(handler: object, op: Primitive, left: Held, right: Held) -> list[Held]:
    x, y = lifted(left), lifted(right)
    if left is right and is_float(x):
        return [Interval(fnp.zeros_like(x.lo), fnp.zeros_like(x.lo))]
    return [_fitted(op, bind1(op, x.lo, y.hi), bind1(op, x.hi, y.lo), lambda a, b: a - b, (x.lo, y.hi), (x.hi, y.lo))]


def _fitted(
    op: Primitive,
    lo: Array,
    hi: Array,
    roughly: Callable[[Array, Array], Array],
    low: tuple[Array, Array],
    high: tuple[Array, Array],
) -> Interval:
    """Results of arithmetic: rounded, or all integers if one of them may have wrapped around."""
    if dtypes.is_inexact(lo.aval.dtype):
        return rounded(lo, hi, NEAR)
    info = dtypes.iinfo(lo.aval.dtype)
    a, b = [roughly(*[fnp.asarray(x, "float32") for x in pair]) for pair in (low, high)]
    fits = (a >= float(info.min) * 0.999) & (b <= float(info.max) * 0.999)
    return where(fits, Interval(lo, hi), whole(lo.aval))


def product(x: Interval, y: Interval) -> Interval:
    """All products; zero times infinity is zero, since no number is infinite."""
    mul = Mul()
    if not is_float(x):
        corners = [bind1(mul, a, b) for a in x for b in y]
        rough = [fnp.asarray(a, "float32") * fnp.asarray(b, "float32") for a in x for b in y]
        info = dtypes.iinfo(x.lo.aval.dtype)
        most = rough[0]
        least = rough[0]
        for r in rough[1:]:
            least, most = fnp.minimum(least, r), fnp.maximum(most, r)
        fits = (least >= float(info.min) * 0.999) & (most <= float(info.max) * 0.999)
        return where(fits, _around(corners), whole(corners[0].aval))
    corners = [bind1(mul, a, b) for a in x for b in y]
    out = _around([fnp.where(fnp.isnan(c), 0.0, c) for c in corners])
    return rounded(out.lo, out.hi, NEAR)


def _around(values: list[Array]) -> Interval:
    lo = hi = values[0]
    for v in values[1:]:
        lo, hi = fnp.minimum(lo, v), fnp.maximum(hi, v)
    return Interval(lo, hi)


def multiplied(handler: object, op: Mul, left: Held, right: Held) -> list[Held]:
    if left is right:
        return [even(lifted(left), lambda x: bind1(op, x, x), NEAR)]
    return [product(lifted(left), lifted(right))]


def divided(handler: object, op: Div, left: Held, right: Held) -> list[Held]:
    x, y = lifted(left), lifted(right)
    if not is_float(x):
        corners = _around([bind1(op, a, b) for a in x for b in y])
        near = Interval(-x.magnitude, x.magnitude)  # whatever the divisor, if it is no zero
        return [where((y.lo > 0) | (y.hi < 0), corners, where(y.contains(0), whole(x.lo.aval), near))]
    lo, hi = (
        fnp.where(y.lo == 0, 0.0, y.lo),
        fnp.where(y.hi == 0, -0.0, y.hi),
    )  # a bound of zero is approached from inside
    corners = _around([bind1(op, a, b) for a in x for b in (lo, hi)])
    good = rounded(corners.lo, corners.hi, NEAR)
    return [where((y.lo < 0) & (y.hi > 0), whole(good.lo.aval), good)]


def remainder(handler: object, op: Primitive, left: Held, right: Held) -> list[Held]:
    """It has the sign of the first, and no more than the absolute value of either."""
    x, y = lifted(left), lifted(right)
    size = fnp.minimum(x.magnitude, y.magnitude)
    zero = fnp.zeros_like(size)
    return [Interval(fnp.where(x.lo < 0, -size, zero), fnp.where(x.hi > 0, size, zero))]


# ------------------------------------------------------------------ powers


def even(x: Interval, f: Callable[[Array], Array], ulps: float, least: float = 0.0) -> Interval:
    """An even function that grows from zero on, where it is `least`."""
    a, b = f(x.lo), f(x.hi)
    lo = fnp.where(x.contains(0), least, fnp.minimum(a, b))
    hi = fnp.maximum(a, b)
    return rounded_from(lo, hi, ulps, least) if is_float(x) else Interval(lo, hi)


def rounded_from(lo: Array, hi: Array, ulps: float, least: float, most: float = np.inf) -> Interval:
    """`rounded`, for a function that has no value below `least`, nor above `most`."""
    out = rounded(lo, hi, ulps)
    return Interval(fnp.maximum(out.lo, least), fnp.minimum(out.hi, most))


def squared(handler: object, op: Primitive, operand: Held) -> list[Held]:
    return [even(lifted(operand), lambda x: bind1(op, x), NEAR)]


def absolute(handler: object, op: Primitive, operand: Held) -> list[Held]:
    x = lifted(operand)
    a, b = bind1(op, x.lo), bind1(op, x.hi)
    return [Interval(fnp.where(x.contains(0), fnp.zeros_like(a), fnp.minimum(a, b)), fnp.maximum(a, b))]


def cosh(handler: object, op: Primitive, operand: Held) -> list[Held]:
    return [even(lifted(operand), lambda x: bind1(op, x), FAR, 1.0)]


def integer_power(handler: object, op: IntegerPow, operand: Held) -> list[Held]:
    x, n = lifted(operand), op.y
    a, b = bind1(op, x.lo), bind1(op, x.hi)
    around = hull(Interval(a, a), Interval(b, b))
    if n == 0:
        return [Interval(a, b)]
    if not is_float(x):
        out = x
        for _ in range(abs(n) - 1):
            out = product(out, x)
        return [out] if n > 0 else [whole(a.aval)]
    if n > 0:
        return [rounded(a, b, FAR) if n % 2 else even(x, lambda x: bind1(op, x), FAR)]
    good = rounded(around.lo, around.hi, FAR)
    if n % 2:
        return [where(x.contains(0), whole(a.aval), good)]
    return [where(x.contains(0), Interval(fnp.maximum(good.lo, 0.0), fnp.full_like(b, np.inf)), good)]


def power(handler: object, op: Pow, left: Held, right: Held) -> list[Held]:
    """The bounds are at the corners where the base is positive; elsewhere all numbers may be powers."""
    x, y = lifted(left), lifted(right)
    base = fnp.where(x.lo < 0, 0.0, x.lo), fnp.where(x.hi < 0, 0.0, x.hi)
    corners = _around([bind1(op, a, b) for a in base for b in y])
    out = rounded_from(corners.lo, corners.hi, FAR, 0.0)
    good = (x.lo > 0) | ((x.lo == 0) & (y.lo > 0))
    return [where(good, out, whole(out.lo.aval))]


# ------------------------------------------------------------------ waves

_TURN: Final = 2 * np.pi


def _passes(x: Interval, first: float, period: float) -> Array:
    """Whether one of the numbers `first`, `first + period`, ... may be inside."""
    eps = float(dtypes.finfo(x.lo.aval.dtype).eps)
    a, b = (x.lo - first) / period, (x.hi - first) / period
    slack = (fnp.maximum(abs(a), abs(b)) + 1.0) * (8 * eps)
    some = fnp.floor(b + slack) >= fnp.ceil(a - slack)
    return some | ~(fnp.isfinite(a) & fnp.isfinite(b)) | (slack > 0.25)


def wave(top: float) -> Rule:
    """The rule of a function between -1 and 1 with its maxima at `top` and a turn from there."""

    def rule(handler: object, op: Primitive, operand: Held) -> list[Held]:
        x = lifted(operand)
        ends = _around([bind1(op, x.lo), bind1(op, x.hi)])
        lo = fnp.where(_passes(x, top + np.pi, _TURN), -1.0, ends.lo)
        hi = fnp.where(_passes(x, top, _TURN), 1.0, ends.hi)
        return [rounded_from(lo, hi, FAR, -1.0, 1.0)]

    return rule


def tangent(handler: object, op: Primitive, operand: Held) -> list[Held]:
    x = lifted(operand)
    good = rounded(bind1(op, x.lo), bind1(op, x.hi), FAR)
    return [where(_passes(x, np.pi / 2, np.pi), whole(good.lo.aval), good)]


def angle(handler: object, op: Primitive, left: Held, right: Held) -> list[Held]:
    """The angle of a point: at the corners of what lies right of the origin, any elsewhere."""
    y, x = lifted(left), lifted(right)
    corners = _around([bind1(op, a, b) for a in y for b in x])
    pi = float(np.nextafter(np.float32(np.pi), np.float32(4.0)))
    any_angle = Interval(fnp.full_like(corners.lo, -pi), fnp.full_like(corners.hi, pi))
    return [where(x.lo > 0, rounded(corners.lo, corners.hi, FAR), any_angle)]


_NEAR_ROOTS: Final = 2.0**-17
"""Near their roots these functions are computed as differences, right to a few units of numbers about 1."""


def lgamma(handler: object, op: Primitive, operand: Held) -> list[Held]:
    """It falls to its minimum, -0.12148629 at 1.4616321, and grows from there; left of zero it is anything."""
    x = lifted(operand)
    ends = _around([bind1(op, x.lo), bind1(op, x.hi)])
    lo = fnp.where(x.contains(1.4616321), -0.1214863, ends.lo)
    good = rounded(lo, ends.hi, FAR, _NEAR_ROOTS)
    return [where(x.lo > 0, good, whole(good.lo.aval))]


def digamma(handler: object, op: Primitive, operand: Held) -> list[Held]:
    """It grows right of zero; left of it, it is anything."""
    x = lifted(operand)
    good = rounded(bind1(op, x.lo), bind1(op, x.hi), FAR, _NEAR_ROOTS)
    return [where(x.lo > 0, good, whole(good.lo.aval))]


# ------------------------------------------------------------------ truth


def less(handler: object, op: Primitive, left: Held, right: Held) -> list[Held]:
    """`<` and `<=` hold for sure if they do for what speaks most against it."""
    x, y = lifted(left), lifted(right)
    return [Compared(bind1(op, x.hi, y.lo), bind1(op, x.lo, y.hi), x, y)]


def greater(handler: object, op: Primitive, left: Held, right: Held) -> list[Held]:
    x, y = lifted(left), lifted(right)
    return [Compared(bind1(op, x.lo, y.hi), bind1(op, x.hi, y.lo), y, x)]


def equal(handler: object, op: Primitive, left: Held, right: Held) -> list[Held]:
    x, y = lifted(left), lifted(right)
    sure = (x.lo == x.hi) & (y.lo == y.hi) & (x.lo == y.lo)
    return [Interval(sure, (x.lo <= y.hi) & (y.lo <= x.hi))]


def unequal(handler: object, op: Primitive, left: Held, right: Held) -> list[Held]:
    (same,) = equal(handler, op, left, right)
    assert isinstance(same, Interval)
    return [Interval(~same.hi, ~same.lo)]


def finite(handler: object, op: Primitive, operand: Held) -> list[Held]:
    """Numbers are finite; what a program makes of numbers too large may not be."""
    x = lifted(operand)
    sure = bind1(op, x.lo) & bind1(op, x.hi)
    return [Interval(sure, fnp.ones_like(sure))]


def logical(handler: object, op: Primitive, *operands: Held) -> list[Held]:
    """`and` and `or` of truth values grow in both; of integers nothing is known of them."""
    if dtypes.is_bool(lifted(operands[0]).lo.aval.dtype):
        return exact(handler, op, *operands)
    return [whole(lifted(operands[0]).lo.aval)]


def exclusive(handler: object, op: Primitive, left: Held, right: Held) -> list[Held]:
    if dtypes.is_bool(lifted(left).lo.aval.dtype):
        return unequal(handler, op, left, right)
    return [whole(lifted(left).lo.aval)]
