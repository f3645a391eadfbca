"""`bounds` and `around`: interval arithmetic for users."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracefx.core import ArrayLike, Value, dtypes
from tracefx.core.handler import as_array
from tracefx.handlers.intervals.handler import Intervals
from tracefx.handlers.intervals.interval import ComparisonInterval, Interval, IntervalOrValue, as_interval
from tracefx.transforms.arguments import flatten_values, fun_name
from tracefx.transforms.handle import handle_values


def around(x: ArrayLike, radius: ArrayLike) -> Interval:
    """Returns the interval from `x - radius` to `x + radius`.

    Args:
        x: the center, an array of floats.
        radius: the distance to both ends; it broadcasts with `x`.

    Returns:
        The interval.

    >>> around(1.0, 0.25)
    Interval(lo=Array(0.75, dtype=float32, weak_type=True), hi=Array(1.25, dtype=float32, weak_type=True))
    """
    middle = as_array(x)
    return Interval(middle - radius, middle + radius)


def bounds(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `fun` for interval arguments: its results contain those of `fun` for all values in the intervals.

    An `Interval` may replace an array anywhere in the pytrees of the arguments. A result that depends on an interval is
    an `Interval`; any other is an ordinary array. Bounds hold for the exact mathematical result and for the computed
    one, because all arithmetic is rounded outward. They do not cover arguments outside of the domain of `fun`, e.g. the
    logarithm of negative numbers, and may be wider than necessary where a value is used more than once.

    Args:
        fun: a function of real arrays.

    Returns:
        A function like `fun` that accepts and returns intervals.

    Raises:
        TypeError: if `fun` is not callable, an interval is complex or its ends differ in shape or dtype, or the number
            of iterations of a `while_loop` depends on an interval.

    >>> bounds(lambda x: x * x - 1.0)(Interval(-1.0, 2.0)).lo < -0.99
    Array(True, dtype=bool)
    """
    return handle_values(
        "bounds",
        fun,
        Intervals(),
        Interval,
        lambda x: _checked_interval(x, fun_name(fun)),
        lambda handler, x: _result(handler.unwrap(x)),
    )


def _result(x: IntervalOrValue) -> Interval | Value:
    return as_interval(x) if isinstance(x, ComparisonInterval) else x


def _checked_interval(x: Interval, name: str) -> Interval:
    values, _ = flatten_values(tuple(x), f"bounds of {name}: the ends of an interval")
    lo, hi = map(as_array, values)
    if lo.aval.shape != hi.aval.shape or lo.aval.dtype != hi.aval.dtype:
        raise TypeError(f"bounds of {name}: the ends of an interval must have one type, got {lo.aval} and {hi.aval}")
    if dtypes.is_complex(lo.aval.dtype):
        raise TypeError(f"bounds of {name}: complex numbers have no order, got an interval of {lo.aval}")
    return Interval(lo, hi)
