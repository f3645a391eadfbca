"""Intervals of arrays, and rounding away from what is inside of them."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import tracefx.numpy as fnp
from tracefx.core import dtypes
from tracefx.core.array import Array
from tracefx.core.avals import ShapedArray
from tracefx.core.handler import as_array
from tracefx.core.values import Value
from tracefx.ops.structural import constant_like_aval


class Interval(NamedTuple):
    """Arrays of one type, `f32[...]` say, between which each element lies: `lo <= x <= hi`."""

    lo: Array
    hi: Array

    @property
    def width(self) -> Array:
        """`hi - lo`."""
        return self.hi - self.lo

    @property
    def mid(self) -> Array:
        """The middle."""
        return self.lo + (self.hi - self.lo) * 0.5

    @property
    def magnitude(self) -> Array:
        """The largest absolute value."""
        return fnp.maximum(abs(self.lo), abs(self.hi))

    def contains(self, x: Value | float) -> Array:
        """Whether each element of `x` is in it."""
        return (self.lo <= x) & (x <= self.hi)


class ComparisonInterval(NamedTuple):
    """Truth values that say whether `small` is less than `large`, or no more: where they hold, bounds of one are bounds
    of the other."""

    lo: Array
    hi: Array
    small: Interval
    large: Interval


IntervalOrValue: TypeAlias = Interval | ComparisonInterval | Value


def as_interval(x: IntervalOrValue) -> Interval:
    """A number as the interval that it is alone in."""
    if isinstance(x, Interval):
        return x
    if isinstance(x, ComparisonInterval):
        return Interval(x.lo, x.hi)
    array = as_array(x)
    return Interval(array, array)


def full_range(aval: ShapedArray) -> Interval:
    """All numbers of a type."""
    least: float
    if dtypes.is_inexact(aval.dtype):
        least, most = -fnp.inf, fnp.inf
    elif dtypes.is_bool(aval.dtype):
        least, most = False, True
    else:
        least, most = int(dtypes.iinfo(aval.dtype).min), int(dtypes.iinfo(aval.dtype).max)
    return Interval(as_array(constant_like_aval(aval, least)), as_array(constant_like_aval(aval, most)))


def hull(x: Interval, y: Interval) -> Interval:
    """The smallest interval around both. Where they end alike, its derivative is that of the second."""
    return Interval(fnp.where(y.lo <= x.lo, y.lo, x.lo), fnp.where(y.hi >= x.hi, y.hi, x.hi))


def select_interval(which: Array, x: Interval, y: Interval) -> Interval:
    """`x` where `which` holds, else `y`."""
    return Interval(fnp.where(which, x.lo, y.lo), fnp.where(which, x.hi, y.hi))


def round_outward(lo: Array, hi: Array, ulps: float, off: Array | float = 0.0) -> Interval:
    """The interval around numbers of which `lo` and `hi` are computed, `ulps` units in the last place, and `off`
    besides, from the exact ones.

    A result that overflowed stands for any number beyond the largest, and NaN for every number.
    """
    info = dtypes.finfo(lo.aval.dtype)
    eps, tiny, most = float(info.eps), float(info.tiny), float(info.max)
    down = lo - (abs(lo) * (eps * ulps) + (off + tiny))
    up = hi + (abs(hi) * (eps * ulps) + (off + tiny))
    down = fnp.where(lo == fnp.inf, most, fnp.where(fnp.isnan(down), -fnp.inf, down))
    up = fnp.where(hi == -fnp.inf, -most, fnp.where(fnp.isnan(up), fnp.inf, up))
    return Interval(down, up)
