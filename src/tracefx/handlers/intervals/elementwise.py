"""Bounds of elementwise operations.

Besides rounding, XLA's and NumPy's functions have errors of a few units in the last place; `FUNCTION_ULPS` is larger
than any that was measured (`tracefx.testing.tolerances`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np

import tracefx.numpy as fnp
from tracefx.core import Array, dtypes
from tracefx.core.handler import bind1
from tracefx.core.primitive import Primitive
from tracefx.handlers.intervals.interval import (
    ComparisonInterval,
    Interval,
    IntervalOrValue,
    as_interval,
    full_range,
    hull,
    round_outward,
    select_interval,
)
from tracefx.ops.elementwise.arithmetic import Div, Mul
from tracefx.ops.elementwise.powers import IntegerPow, Pow

ARITHMETIC_ULPS: Final = 1.5
"""The error bound of correctly rounded operations in ulp, with a margin because the widening itself is rounded."""
FUNCTION_ULPS: Final = 64.0
"""The error bound of elementary functions in ulp."""
Results: TypeAlias = list[IntervalOrValue]
"""What a rule returns: the results of the primitive."""
IntervalRule: TypeAlias = Callable[..., Sequence[IntervalOrValue]]


def is_float_interval(x: Interval) -> bool:
    return dtypes.is_inexact(x.lo.aval.dtype)


# ------------------------------------------------------------------ monotone functions


def exact_monotone_interval(handler: object, op: Primitive, *operands: IntervalOrValue) -> Results:
    """Bounds of operations that are increasing in all operands and exact: data movement, extrema, rounding."""
    xs = list(map(as_interval, operands))
    return [Interval(bind1(op, *[x.lo for x in xs]), bind1(op, *[x.hi for x in xs]))]


def increasing(least: float = -np.inf, most: float = np.inf) -> IntervalRule:
    """Returns the rule of an increasing function with the domain from `least` to `most`."""

    def rule(handler: object, op: Primitive, operand: IntervalOrValue) -> Results:
        x = clip_to_domain(as_interval(operand), least, most)
        return [round_outward(bind1(op, x.lo), bind1(op, x.hi), FUNCTION_ULPS)]

    return rule


def decreasing(least: float = -np.inf, most: float = np.inf) -> IntervalRule:
    """Returns the rule of a decreasing function with the domain from `least` to `most`."""

    def rule(handler: object, op: Primitive, operand: IntervalOrValue) -> Results:
        x = clip_to_domain(as_interval(operand), least, most)
        return [round_outward(bind1(op, x.hi), bind1(op, x.lo), FUNCTION_ULPS)]

    return rule


def clip_to_domain(x: Interval, least: float, most: float) -> Interval:
    """Returns the part of the interval in a function's domain."""
    if least == -np.inf and most == np.inf:
        return x
    lo, hi = [fnp.clip(end, least, most) for end in x]
    return Interval(fnp.where(lo == 0, 0.0, lo), fnp.where(hi == 0, 0.0, hi))  # functions are never evaluated at -0.0


def neg_interval(handler: object, op: Primitive, operand: IntervalOrValue) -> Results:
    x = as_interval(operand)
    return [Interval(bind1(op, x.hi), bind1(op, x.lo))]


def convert_interval(handler: object, op: Primitive, operand: IntervalOrValue) -> Results:
    x = as_interval(operand)
    y = Interval(bind1(op, x.lo), bind1(op, x.hi))
    if not is_float_interval(y) or dtypes.is_bool(x.lo.aval.dtype):
        return [y]
    if is_float_interval(x) and dtypes.finfo(y.lo.aval.dtype).nmant >= dtypes.finfo(x.lo.aval.dtype).nmant:
        return [y]
    return [round_outward(y.lo, y.hi, ARITHMETIC_ULPS)]


# ------------------------------------------------------------------ arithmetic


def add_interval(handler: object, op: Primitive, left: IntervalOrValue, right: IntervalOrValue) -> Results:
    x, y = as_interval(left), as_interval(right)
    return [
        _round_or_overflow(
            op, bind1(op, x.lo, y.lo), bind1(op, x.hi, y.hi), lambda a, b: a + b, (x.lo, y.lo), (x.hi, y.hi)
        )
    ]


def sub_interval(handler: object, op: Primitive, left: IntervalOrValue, right: IntervalOrValue) -> Results:
    x, y = as_interval(left), as_interval(right)
    if left is right and is_float_interval(x):
        return [Interval(fnp.zeros_like(x.lo), fnp.zeros_like(x.lo))]
    return [
        _round_or_overflow(
            op, bind1(op, x.lo, y.hi), bind1(op, x.hi, y.lo), lambda a, b: a - b, (x.lo, y.hi), (x.hi, y.lo)
        )
    ]


def _round_or_overflow(
    op: Primitive,
    lo: Array,
    hi: Array,
    roughly: Callable[[Array, Array], Array],
    low: tuple[Array, Array],
    high: tuple[Array, Array],
) -> Interval:
    """Returns the rounded bounds of a sum or difference; of integers all values if one may have wrapped around."""
    if dtypes.is_inexact(lo.aval.dtype):
        return round_outward(lo, hi, ARITHMETIC_ULPS)
    info = dtypes.iinfo(lo.aval.dtype)
    a, b = [roughly(*[fnp.asarray(x, "float32") for x in pair]) for pair in (low, high)]
    fits = (a >= float(info.min) * 0.999) & (b <= float(info.max) * 0.999)
    return select_interval(fits, Interval(lo, hi), full_range(lo.aval))


def interval_product(x: Interval, y: Interval) -> Interval:
    """Bounds of a product; zero times infinity is zero, because infinite ends only bound finite numbers."""
    mul = Mul()
    if not is_float_interval(x):
        corners = [bind1(mul, a, b) for a in x for b in y]
        rough = [fnp.asarray(a, "float32") * fnp.asarray(b, "float32") for a in x for b in y]
        info = dtypes.iinfo(x.lo.aval.dtype)
        highest = rough[0]
        lowest = rough[0]
        for r in rough[1:]:
            lowest, highest = fnp.minimum(lowest, r), fnp.maximum(highest, r)
        fits = (lowest >= float(info.min) * 0.999) & (highest <= float(info.max) * 0.999)
        return select_interval(fits, _hull_of_arrays(corners), full_range(corners[0].aval))
    corners = [bind1(mul, a, b) for a in x for b in y]
    out = _hull_of_arrays([fnp.where(fnp.isnan(c), 0.0, c) for c in corners])
    return round_outward(out.lo, out.hi, ARITHMETIC_ULPS)


def _hull_of_arrays(values: list[Array]) -> Interval:
    lo = hi = values[0]
    for v in values[1:]:
        lo, hi = fnp.minimum(lo, v), fnp.maximum(hi, v)
    return Interval(lo, hi)


def mul_interval(handler: object, op: Mul, left: IntervalOrValue, right: IntervalOrValue) -> Results:
    if left is right:
        return [even_function(as_interval(left), lambda x: bind1(op, x, x), ARITHMETIC_ULPS)]
    return [interval_product(as_interval(left), as_interval(right))]


def div_interval(handler: object, op: Div, left: IntervalOrValue, right: IntervalOrValue) -> Results:
    x, y = as_interval(left), as_interval(right)
    if not is_float_interval(x):
        corners = _hull_of_arrays([bind1(op, a, b) for a in x for b in y])
        near = Interval(-x.magnitude, x.magnitude)  # for any nonzero divisor
        return [
            select_interval(
                (y.lo > 0) | (y.hi < 0), corners, select_interval(y.contains(0), full_range(x.lo.aval), near)
            )
        ]
    lo, hi = (
        fnp.where(y.lo == 0, 0.0, y.lo),
        fnp.where(y.hi == 0, -0.0, y.hi),
    )  # a zero end is approached from inside the interval
    corners = _hull_of_arrays([bind1(op, a, b) for a in x for b in (lo, hi)])
    good = round_outward(corners.lo, corners.hi, ARITHMETIC_ULPS)
    return [select_interval((y.lo < 0) & (y.hi > 0), full_range(good.lo.aval), good)]


def rem_interval(handler: object, op: Primitive, left: IntervalOrValue, right: IntervalOrValue) -> Results:
    """The remainder has the sign of the dividend, and at most the absolute value of either operand."""
    x, y = as_interval(left), as_interval(right)
    size = fnp.minimum(x.magnitude, y.magnitude)
    zero = fnp.zeros_like(size)
    return [Interval(fnp.where(x.lo < 0, -size, zero), fnp.where(x.hi > 0, size, zero))]


# ------------------------------------------------------------------ powers


def even_function(x: Interval, f: Callable[[Array], Array], ulps: float, least: float = 0.0) -> Interval:
    """Bounds of an even function that increases for positive arguments, with the minimum `least` at zero."""
    a, b = f(x.lo), f(x.hi)
    lo = fnp.where(x.contains(0), least, fnp.minimum(a, b))
    hi = fnp.maximum(a, b)
    return round_outward_clipped(lo, hi, ulps, least) if is_float_interval(x) else Interval(lo, hi)


def round_outward_clipped(lo: Array, hi: Array, ulps: float, least: float, most: float = np.inf) -> Interval:
    """`round_outward` for a function with values between `least` and `most`."""
    out = round_outward(lo, hi, ulps)
    return Interval(fnp.maximum(out.lo, least), fnp.minimum(out.hi, most))


def square_interval(handler: object, op: Primitive, operand: IntervalOrValue) -> Results:
    return [even_function(as_interval(operand), lambda x: bind1(op, x), ARITHMETIC_ULPS)]


def abs_interval(handler: object, op: Primitive, operand: IntervalOrValue) -> Results:
    x = as_interval(operand)
    a, b = bind1(op, x.lo), bind1(op, x.hi)
    return [Interval(fnp.where(x.contains(0), fnp.zeros_like(a), fnp.minimum(a, b)), fnp.maximum(a, b))]


def cosh_interval(handler: object, op: Primitive, operand: IntervalOrValue) -> Results:
    return [even_function(as_interval(operand), lambda x: bind1(op, x), FUNCTION_ULPS, 1.0)]


def integer_pow_interval(handler: object, op: IntegerPow, operand: IntervalOrValue) -> Results:
    x, n = as_interval(operand), op.y
    a, b = bind1(op, x.lo), bind1(op, x.hi)
    around = hull(Interval(a, a), Interval(b, b))
    if n == 0:
        return [Interval(a, b)]
    if not is_float_interval(x):
        out = x
        for _ in range(abs(n) - 1):
            out = interval_product(out, x)
        return [out] if n > 0 else [full_range(a.aval)]
    if n > 0:
        return [
            round_outward(a, b, FUNCTION_ULPS) if n % 2 else even_function(x, lambda x: bind1(op, x), FUNCTION_ULPS)
        ]
    good = round_outward(around.lo, around.hi, FUNCTION_ULPS)
    if n % 2:
        return [select_interval(x.contains(0), full_range(a.aval), good)]
    return [select_interval(x.contains(0), Interval(fnp.maximum(good.lo, 0.0), fnp.full_like(b, np.inf)), good)]


def pow_interval(handler: object, op: Pow, left: IntervalOrValue, right: IntervalOrValue) -> Results:
    """For positive bases the extrema are at the corners; otherwise the result is unbounded."""
    x, y = as_interval(left), as_interval(right)
    base = fnp.where(x.lo < 0, 0.0, x.lo), fnp.where(x.hi < 0, 0.0, x.hi)
    corners = _hull_of_arrays([bind1(op, a, b) for a in base for b in y])
    out = round_outward_clipped(corners.lo, corners.hi, FUNCTION_ULPS, 0.0)
    good = (x.lo > 0) | ((x.lo == 0) & (y.lo > 0))
    return [select_interval(good, out, full_range(out.lo.aval))]


# ------------------------------------------------------------------ periodic functions

_TWO_PI: Final = 2 * np.pi


def _may_contain_multiple(x: Interval, first: float, period: float) -> Array:
    """Returns whether the interval may contain a number `first + k * period` with an integer `k`."""
    eps = float(dtypes.finfo(x.lo.aval.dtype).eps)
    a, b = (x.lo - first) / period, (x.hi - first) / period
    slack = (fnp.maximum(abs(a), abs(b)) + 1.0) * (8 * eps)
    some = fnp.floor(b + slack) >= fnp.ceil(a - slack)
    return some | ~(fnp.isfinite(a) & fnp.isfinite(b)) | (slack > 0.25)


def sinusoid(top: float) -> IntervalRule:
    """Returns the rule of a sine wave with values from -1 to 1, period 2 pi and a maximum at `top`."""

    def rule(handler: object, op: Primitive, operand: IntervalOrValue) -> Results:
        x = as_interval(operand)
        ends = _hull_of_arrays([bind1(op, x.lo), bind1(op, x.hi)])
        lo = fnp.where(_may_contain_multiple(x, top + np.pi, _TWO_PI), -1.0, ends.lo)
        hi = fnp.where(_may_contain_multiple(x, top, _TWO_PI), 1.0, ends.hi)
        return [round_outward_clipped(lo, hi, FUNCTION_ULPS, -1.0, 1.0)]

    return rule


def tan_interval(handler: object, op: Primitive, operand: IntervalOrValue) -> Results:
    x = as_interval(operand)
    good = round_outward(bind1(op, x.lo), bind1(op, x.hi), FUNCTION_ULPS)
    return [select_interval(_may_contain_multiple(x, np.pi / 2, np.pi), full_range(good.lo.aval), good)]


def atan2_interval(handler: object, op: Primitive, left: IntervalOrValue, right: IntervalOrValue) -> Results:
    """The angle has its extrema at the corners if the interval is right of the origin; otherwise it may be any."""
    y, x = as_interval(left), as_interval(right)
    corners = _hull_of_arrays([bind1(op, a, b) for a in y for b in x])
    pi = float(np.nextafter(np.float32(np.pi), np.float32(4.0)))
    any_angle = Interval(fnp.full_like(corners.lo, -pi), fnp.full_like(corners.hi, pi))
    return [select_interval(x.lo > 0, round_outward(corners.lo, corners.hi, FUNCTION_ULPS), any_angle)]


_NEAR_ROOTS: Final = 2.0**-17
"""The absolute error near the roots of these functions, which are computed as differences of numbers near 1."""


def lgamma_interval(handler: object, op: Primitive, operand: IntervalOrValue) -> Results:
    """Decreasing up to its minimum, -0.12148629 at 1.4616321, then increasing; unbounded for negative arguments."""
    x = as_interval(operand)
    ends = _hull_of_arrays([bind1(op, x.lo), bind1(op, x.hi)])
    lo = fnp.where(x.contains(1.4616321), -0.1214863, ends.lo)
    good = round_outward(lo, ends.hi, FUNCTION_ULPS, _NEAR_ROOTS)
    return [select_interval(x.lo > 0, good, full_range(good.lo.aval))]


def digamma_interval(handler: object, op: Primitive, operand: IntervalOrValue) -> Results:
    """Increasing for positive arguments; unbounded for negative ones."""
    x = as_interval(operand)
    good = round_outward(bind1(op, x.lo), bind1(op, x.hi), FUNCTION_ULPS, _NEAR_ROOTS)
    return [select_interval(x.lo > 0, good, full_range(good.lo.aval))]


# ------------------------------------------------------------------ comparisons and logic


def lt_interval(handler: object, op: Primitive, left: IntervalOrValue, right: IntervalOrValue) -> Results:
    """`lo` is whether the comparison holds for all values, `hi` whether it holds for some."""
    x, y = as_interval(left), as_interval(right)
    return [ComparisonInterval(bind1(op, x.hi, y.lo), bind1(op, x.lo, y.hi), x, y)]


def gt_interval(handler: object, op: Primitive, left: IntervalOrValue, right: IntervalOrValue) -> Results:
    x, y = as_interval(left), as_interval(right)
    return [ComparisonInterval(bind1(op, x.lo, y.hi), bind1(op, x.hi, y.lo), y, x)]


def eq_interval(handler: object, op: Primitive, left: IntervalOrValue, right: IntervalOrValue) -> list[Interval]:
    x, y = as_interval(left), as_interval(right)
    sure = (x.lo == x.hi) & (y.lo == y.hi) & (x.lo == y.lo)
    return [Interval(sure, (x.lo <= y.hi) & (y.lo <= x.hi))]


def ne_interval(handler: object, op: Primitive, left: IntervalOrValue, right: IntervalOrValue) -> list[Interval]:
    (same,) = eq_interval(handler, op, left, right)
    return [Interval(~same.hi, ~same.lo)]


def is_finite_interval(handler: object, op: Primitive, operand: IntervalOrValue) -> Results:
    """True for all values if both ends are finite; otherwise it may be true or false."""
    x = as_interval(operand)
    sure = bind1(op, x.lo) & bind1(op, x.hi)
    return [Interval(sure, fnp.ones_like(sure))]


def and_or_interval(handler: object, op: Primitive, *operands: IntervalOrValue) -> Results:
    """`and` and `or` of booleans are increasing in both operands; of integers the result may be anything."""
    if dtypes.is_bool(as_interval(operands[0]).lo.aval.dtype):
        return exact_monotone_interval(handler, op, *operands)
    return [full_range(as_interval(operands[0]).lo.aval)]


def xor_interval(handler: object, op: Primitive, left: IntervalOrValue, right: IntervalOrValue) -> Results:
    if dtypes.is_bool(as_interval(left).lo.aval.dtype):
        return [*ne_interval(handler, op, left, right)]
    return [full_range(as_interval(left).lo.aval)]
