"""Bounds of operations element by element.

Sources of error beside rounding: XLA's and NumPy's functions are a few units in the last place from the exact ones;
`FUNCTION_ULPS` is more than either was ever found to be (`tracefx.testing.tolerances`).
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
"""Units in the last place of what IEEE rounds right: enough, though the widening itself is rounded."""
FUNCTION_ULPS: Final = 64.0
IntervalRule: TypeAlias = Callable[..., Sequence[IntervalOrValue]]


def is_float_interval(x: Interval) -> bool:
    return dtypes.is_inexact(x.lo.aval.dtype)


# ------------------------------------------------------------------ monotone functions


def exact_monotone_interval(handler: object, op: Primitive, *operands: IntervalOrValue) -> list[IntervalOrValue]:
    """Operations that grow in all their operands and round nothing: moving, choosing, extremes, roundings."""
    xs = list(map(as_interval, operands))
    return [Interval(bind1(op, *[x.lo for x in xs]), bind1(op, *[x.hi for x in xs]))]


def increasing(least: float = -np.inf, most: float = np.inf) -> IntervalRule:
    """The rule of a growing function defined from `least` to `most`."""

    def rule(handler: object, op: Primitive, operand: IntervalOrValue) -> list[IntervalOrValue]:
        x = clip_to_domain(as_interval(operand), least, most)
        return [round_outward(bind1(op, x.lo), bind1(op, x.hi), FUNCTION_ULPS)]

    return rule


def decreasing(least: float = -np.inf, most: float = np.inf) -> IntervalRule:
    """The rule of a falling function."""

    def rule(handler: object, op: Primitive, operand: IntervalOrValue) -> list[IntervalOrValue]:
        x = clip_to_domain(as_interval(operand), least, most)
        return [round_outward(bind1(op, x.hi), bind1(op, x.lo), FUNCTION_ULPS)]

    return rule


def clip_to_domain(x: Interval, least: float, most: float) -> Interval:
    """The part of it for which a function is defined."""
    if least == -np.inf and most == np.inf:
        return x
    lo, hi = [fnp.clip(end, least, most) for end in x]
    return Interval(fnp.where(lo == 0, 0.0, lo), fnp.where(hi == 0, 0.0, hi))  # no function is asked at -0.0


def neg_interval(handler: object, op: Primitive, operand: IntervalOrValue) -> list[IntervalOrValue]:
    x = as_interval(operand)
    return [Interval(bind1(op, x.hi), bind1(op, x.lo))]


def convert_interval(handler: object, op: Primitive, operand: IntervalOrValue) -> list[IntervalOrValue]:
    x = as_interval(operand)
    y = Interval(bind1(op, x.lo), bind1(op, x.hi))
    if not is_float_interval(y) or dtypes.is_bool(x.lo.aval.dtype):
        return [y]
    if is_float_interval(x) and dtypes.finfo(y.lo.aval.dtype).nmant >= dtypes.finfo(x.lo.aval.dtype).nmant:
        return [y]
    return [round_outward(y.lo, y.hi, ARITHMETIC_ULPS)]


# ------------------------------------------------------------------ arithmetic


def add_interval(
    handler: object, op: Primitive, left: IntervalOrValue, right: IntervalOrValue
) -> list[IntervalOrValue]:
    x, y = as_interval(left), as_interval(right)
    return [
        _round_or_overflow(
            op, bind1(op, x.lo, y.lo), bind1(op, x.hi, y.hi), lambda a, b: a + b, (x.lo, y.lo), (x.hi, y.hi)
        )
    ]


def sub_interval(
    handler: object, op: Primitive, left: IntervalOrValue, right: IntervalOrValue
) -> list[IntervalOrValue]:
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
    """Results of arithmetic: rounded, or all integers if one of them may have wrapped around."""
    if dtypes.is_inexact(lo.aval.dtype):
        return round_outward(lo, hi, ARITHMETIC_ULPS)
    info = dtypes.iinfo(lo.aval.dtype)
    a, b = [roughly(*[fnp.asarray(x, "float32") for x in pair]) for pair in (low, high)]
    fits = (a >= float(info.min) * 0.999) & (b <= float(info.max) * 0.999)
    return select_interval(fits, Interval(lo, hi), full_range(lo.aval))


def interval_product(x: Interval, y: Interval) -> Interval:
    """All products; zero times infinity is zero, since no number is infinite."""
    mul = Mul()
    if not is_float_interval(x):
        corners = [bind1(mul, a, b) for a in x for b in y]
        rough = [fnp.asarray(a, "float32") * fnp.asarray(b, "float32") for a in x for b in y]
        info = dtypes.iinfo(x.lo.aval.dtype)
        most = rough[0]
        least = rough[0]
        for r in rough[1:]:
            least, most = fnp.minimum(least, r), fnp.maximum(most, r)
        fits = (least >= float(info.min) * 0.999) & (most <= float(info.max) * 0.999)
        return select_interval(fits, _hull_of_arrays(corners), full_range(corners[0].aval))
    corners = [bind1(mul, a, b) for a in x for b in y]
    out = _hull_of_arrays([fnp.where(fnp.isnan(c), 0.0, c) for c in corners])
    return round_outward(out.lo, out.hi, ARITHMETIC_ULPS)


def _hull_of_arrays(values: list[Array]) -> Interval:
    lo = hi = values[0]
    for v in values[1:]:
        lo, hi = fnp.minimum(lo, v), fnp.maximum(hi, v)
    return Interval(lo, hi)


def mul_interval(handler: object, op: Mul, left: IntervalOrValue, right: IntervalOrValue) -> list[IntervalOrValue]:
    if left is right:
        return [even_function(as_interval(left), lambda x: bind1(op, x, x), ARITHMETIC_ULPS)]
    return [interval_product(as_interval(left), as_interval(right))]


def div_interval(handler: object, op: Div, left: IntervalOrValue, right: IntervalOrValue) -> list[IntervalOrValue]:
    x, y = as_interval(left), as_interval(right)
    if not is_float_interval(x):
        corners = _hull_of_arrays([bind1(op, a, b) for a in x for b in y])
        near = Interval(-x.magnitude, x.magnitude)  # whatever the divisor, if it is no zero
        return [
            select_interval(
                (y.lo > 0) | (y.hi < 0), corners, select_interval(y.contains(0), full_range(x.lo.aval), near)
            )
        ]
    lo, hi = (
        fnp.where(y.lo == 0, 0.0, y.lo),
        fnp.where(y.hi == 0, -0.0, y.hi),
    )  # a bound of zero is approached from inside
    corners = _hull_of_arrays([bind1(op, a, b) for a in x for b in (lo, hi)])
    good = round_outward(corners.lo, corners.hi, ARITHMETIC_ULPS)
    return [select_interval((y.lo < 0) & (y.hi > 0), full_range(good.lo.aval), good)]


def rem_interval(
    handler: object, op: Primitive, left: IntervalOrValue, right: IntervalOrValue
) -> list[IntervalOrValue]:
    """It has the sign of the first, and no more than the absolute value of either."""
    x, y = as_interval(left), as_interval(right)
    size = fnp.minimum(x.magnitude, y.magnitude)
    zero = fnp.zeros_like(size)
    return [Interval(fnp.where(x.lo < 0, -size, zero), fnp.where(x.hi > 0, size, zero))]


# ------------------------------------------------------------------ powers


def even_function(x: Interval, f: Callable[[Array], Array], ulps: float, least: float = 0.0) -> Interval:
    """An even function that grows from zero on, where it is `least`."""
    a, b = f(x.lo), f(x.hi)
    lo = fnp.where(x.contains(0), least, fnp.minimum(a, b))
    hi = fnp.maximum(a, b)
    return round_outward_clipped(lo, hi, ulps, least) if is_float_interval(x) else Interval(lo, hi)


def round_outward_clipped(lo: Array, hi: Array, ulps: float, least: float, most: float = np.inf) -> Interval:
    """`rounded`, for a function that has no value below `least`, nor above `most`."""
    out = round_outward(lo, hi, ulps)
    return Interval(fnp.maximum(out.lo, least), fnp.minimum(out.hi, most))


def square_interval(handler: object, op: Primitive, operand: IntervalOrValue) -> list[IntervalOrValue]:
    return [even_function(as_interval(operand), lambda x: bind1(op, x), ARITHMETIC_ULPS)]


def abs_interval(handler: object, op: Primitive, operand: IntervalOrValue) -> list[IntervalOrValue]:
    x = as_interval(operand)
    a, b = bind1(op, x.lo), bind1(op, x.hi)
    return [Interval(fnp.where(x.contains(0), fnp.zeros_like(a), fnp.minimum(a, b)), fnp.maximum(a, b))]


def cosh_interval(handler: object, op: Primitive, operand: IntervalOrValue) -> list[IntervalOrValue]:
    return [even_function(as_interval(operand), lambda x: bind1(op, x), FUNCTION_ULPS, 1.0)]


def integer_pow_interval(handler: object, op: IntegerPow, operand: IntervalOrValue) -> list[IntervalOrValue]:
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


def pow_interval(handler: object, op: Pow, left: IntervalOrValue, right: IntervalOrValue) -> list[IntervalOrValue]:
    """The bounds are at the corners where the base is positive; elsewhere all numbers may be powers."""
    x, y = as_interval(left), as_interval(right)
    base = fnp.where(x.lo < 0, 0.0, x.lo), fnp.where(x.hi < 0, 0.0, x.hi)
    corners = _hull_of_arrays([bind1(op, a, b) for a in base for b in y])
    out = round_outward_clipped(corners.lo, corners.hi, FUNCTION_ULPS, 0.0)
    good = (x.lo > 0) | ((x.lo == 0) & (y.lo > 0))
    return [select_interval(good, out, full_range(out.lo.aval))]


# ------------------------------------------------------------------ waves

_TWO_PI: Final = 2 * np.pi


def _may_contain_multiple(x: Interval, first: float, period: float) -> Array:
    """Whether one of the numbers `first`, `first + period`, ... may be inside."""
    eps = float(dtypes.finfo(x.lo.aval.dtype).eps)
    a, b = (x.lo - first) / period, (x.hi - first) / period
    slack = (fnp.maximum(abs(a), abs(b)) + 1.0) * (8 * eps)
    some = fnp.floor(b + slack) >= fnp.ceil(a - slack)
    return some | ~(fnp.isfinite(a) & fnp.isfinite(b)) | (slack > 0.25)


def sinusoid(top: float) -> IntervalRule:
    """The rule of a function between -1 and 1 with its maxima at `top` and a turn from there."""

    def rule(handler: object, op: Primitive, operand: IntervalOrValue) -> list[IntervalOrValue]:
        x = as_interval(operand)
        ends = _hull_of_arrays([bind1(op, x.lo), bind1(op, x.hi)])
        lo = fnp.where(_may_contain_multiple(x, top + np.pi, _TWO_PI), -1.0, ends.lo)
        hi = fnp.where(_may_contain_multiple(x, top, _TWO_PI), 1.0, ends.hi)
        return [round_outward_clipped(lo, hi, FUNCTION_ULPS, -1.0, 1.0)]

    return rule


def tan_interval(handler: object, op: Primitive, operand: IntervalOrValue) -> list[IntervalOrValue]:
    x = as_interval(operand)
    good = round_outward(bind1(op, x.lo), bind1(op, x.hi), FUNCTION_ULPS)
    return [select_interval(_may_contain_multiple(x, np.pi / 2, np.pi), full_range(good.lo.aval), good)]


def atan2_interval(
    handler: object, op: Primitive, left: IntervalOrValue, right: IntervalOrValue
) -> list[IntervalOrValue]:
    """The angle of a point: at the corners of what lies right of the origin, any elsewhere."""
    y, x = as_interval(left), as_interval(right)
    corners = _hull_of_arrays([bind1(op, a, b) for a in y for b in x])
    pi = float(np.nextafter(np.float32(np.pi), np.float32(4.0)))
    any_angle = Interval(fnp.full_like(corners.lo, -pi), fnp.full_like(corners.hi, pi))
    return [select_interval(x.lo > 0, round_outward(corners.lo, corners.hi, FUNCTION_ULPS), any_angle)]


_NEAR_ROOTS: Final = 2.0**-17
"""Near their roots these functions are computed as differences, right to a few units of numbers about 1."""


def lgamma_interval(handler: object, op: Primitive, operand: IntervalOrValue) -> list[IntervalOrValue]:
    """It falls to its minimum, -0.12148629 at 1.4616321, and grows from there; left of zero it is anything."""
    x = as_interval(operand)
    ends = _hull_of_arrays([bind1(op, x.lo), bind1(op, x.hi)])
    lo = fnp.where(x.contains(1.4616321), -0.1214863, ends.lo)
    good = round_outward(lo, ends.hi, FUNCTION_ULPS, _NEAR_ROOTS)
    return [select_interval(x.lo > 0, good, full_range(good.lo.aval))]


def digamma_interval(handler: object, op: Primitive, operand: IntervalOrValue) -> list[IntervalOrValue]:
    """It grows right of zero; left of it, it is anything."""
    x = as_interval(operand)
    good = round_outward(bind1(op, x.lo), bind1(op, x.hi), FUNCTION_ULPS, _NEAR_ROOTS)
    return [select_interval(x.lo > 0, good, full_range(good.lo.aval))]


# ------------------------------------------------------------------ truth


def lt_interval(handler: object, op: Primitive, left: IntervalOrValue, right: IntervalOrValue) -> list[IntervalOrValue]:
    """`<` and `<=` hold for sure if they do for what speaks most against it."""
    x, y = as_interval(left), as_interval(right)
    return [ComparisonInterval(bind1(op, x.hi, y.lo), bind1(op, x.lo, y.hi), x, y)]


def gt_interval(handler: object, op: Primitive, left: IntervalOrValue, right: IntervalOrValue) -> list[IntervalOrValue]:
    x, y = as_interval(left), as_interval(right)
    return [ComparisonInterval(bind1(op, x.lo, y.hi), bind1(op, x.hi, y.lo), y, x)]


def eq_interval(handler: object, op: Primitive, left: IntervalOrValue, right: IntervalOrValue) -> list[IntervalOrValue]:
    x, y = as_interval(left), as_interval(right)
    sure = (x.lo == x.hi) & (y.lo == y.hi) & (x.lo == y.lo)
    return [Interval(sure, (x.lo <= y.hi) & (y.lo <= x.hi))]


def ne_interval(handler: object, op: Primitive, left: IntervalOrValue, right: IntervalOrValue) -> list[IntervalOrValue]:
    (same,) = eq_interval(handler, op, left, right)
    assert isinstance(same, Interval)
    return [Interval(~same.hi, ~same.lo)]


def is_finite_interval(handler: object, op: Primitive, operand: IntervalOrValue) -> list[IntervalOrValue]:
    """Numbers are finite; what a program makes of numbers too large may not be."""
    x = as_interval(operand)
    sure = bind1(op, x.lo) & bind1(op, x.hi)
    return [Interval(sure, fnp.ones_like(sure))]


def and_or_interval(handler: object, op: Primitive, *operands: IntervalOrValue) -> list[IntervalOrValue]:
    """`and` and `or` of truth values grow in both; of integers nothing is known of them."""
    if dtypes.is_bool(as_interval(operands[0]).lo.aval.dtype):
        return exact_monotone_interval(handler, op, *operands)
    return [full_range(as_interval(operands[0]).lo.aval)]


def xor_interval(
    handler: object, op: Primitive, left: IntervalOrValue, right: IntervalOrValue
) -> list[IntervalOrValue]:
    if dtypes.is_bool(as_interval(left).lo.aval.dtype):
        return ne_interval(handler, op, left, right)
    return [full_range(as_interval(left).lo.aval)]
