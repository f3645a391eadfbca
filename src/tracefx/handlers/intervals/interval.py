"""`Interval` and its arithmetic: hulls, selections and outward rounding."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import tracefx.numpy as fnp
from tracefx.core import Array, ShapedArray, Value, dtypes
from tracefx.core.handler import as_array
from tracefx.ops.structural import constant_like_aval


class Interval(NamedTuple):
    """The set of arrays `x` with `lo <= x <= hi`, elementwise; both ends have the same shape and real dtype.

    Attributes:
        lo: the lower end.
        hi: the upper end.

    >>> from tracefx.handlers import around, bounds
    >>> result = bounds(lambda x: x * x)(around(2.0, 0.5))
    >>> isinstance(result, Interval), bool(result.lo <= 2.25), bool(result.hi >= 6.25)
    (True, True, True)
    """

    lo: Array
    hi: Array

    @property
    def width(self) -> Array:
        """The difference `hi - lo`."""
        return self.hi - self.lo

    @property
    def mid(self) -> Array:
        """The midpoint."""
        return self.lo + (self.hi - self.lo) * 0.5

    @property
    def magnitude(self) -> Array:
        """The largest absolute value in the interval."""
        return fnp.maximum(abs(self.lo), abs(self.hi))

    def contains(self, x: Value | float) -> Array:
        """Returns for each element of `x` whether it is in the interval.

        Args:
            x: An array or a number that broadcasts against the ends.

        Returns:
            An array `bool[...]`.
        """
        return (self.lo <= x) & (x <= self.hi)


class ComparisonInterval(NamedTuple):
    """The result of a comparison, with its operands: where it is true, `small <= large`.

    The truth values are between the booleans `lo` and `hi`. `select_n` uses the operands to narrow its cases.
    """

    lo: Array
    hi: Array
    small: Interval
    large: Interval


IntervalOrValue: TypeAlias = Interval | ComparisonInterval | Value


def as_interval(x: IntervalOrValue) -> Interval:
    """Returns the interval of a value; a plain array is an interval of width zero."""
    if isinstance(x, Interval):
        return x
    if isinstance(x, ComparisonInterval):
        return Interval(x.lo, x.hi)
    array = as_array(x)
    return Interval(array, array)


def full_range(aval: ShapedArray) -> Interval:
    """Returns the interval of all values of a dtype."""
    lowest: float
    if dtypes.is_inexact(aval.dtype):
        lowest, highest = -fnp.inf, fnp.inf
    elif dtypes.is_bool(aval.dtype):
        lowest, highest = False, True
    else:
        lowest, highest = int(dtypes.iinfo(aval.dtype).min), int(dtypes.iinfo(aval.dtype).max)
    return Interval(as_array(constant_like_aval(aval, lowest)), as_array(constant_like_aval(aval, highest)))


def hull(x: Interval, y: Interval) -> Interval:
    """Returns the smallest interval that contains both. Where their ends are equal, its derivative is that of `y`."""
    return Interval(fnp.where(y.lo <= x.lo, y.lo, x.lo), fnp.where(y.hi >= x.hi, y.hi, x.hi))


def select_interval(which: Array, x: Interval, y: Interval) -> Interval:
    """Returns `x` where `which` is true, otherwise `y`."""
    return Interval(fnp.where(which, x.lo, y.lo), fnp.where(which, x.hi, y.hi))


def round_outward(lo: Array, hi: Array, ulps: float, off: Array | float = 0.0) -> Interval:
    """Returns the interval from `lo` to `hi`, widened by rounding errors.

    The computed `lo` and `hi` may be off by `ulps` units in the last place and by `off` in addition. An overflowed
    result becomes an end at the largest finite number, NaN an unbounded end.
    """
    info = dtypes.finfo(lo.aval.dtype)
    eps, tiny, most = float(info.eps), float(info.tiny), float(info.max)
    down = lo - (abs(lo) * (eps * ulps) + (off + tiny))
    up = hi + (abs(hi) * (eps * ulps) + (off + tiny))
    down = fnp.where(lo == fnp.inf, most, fnp.where(fnp.isnan(down), -fnp.inf, down))
    up = fnp.where(hi == -fnp.inf, -most, fnp.where(fnp.isnan(up), fnp.inf, up))
    return Interval(down, up)
