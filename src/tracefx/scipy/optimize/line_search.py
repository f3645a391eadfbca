"""How far to go in a direction: to where the strong Wolfe conditions hold.

Nocedal and Wright, Numerical optimization (1999), algorithms 3.5 and 3.6.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from tracefx import numpy as fnp
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.lax import while_loop
from tracefx.transforms.gradients import value_and_grad

Objective: TypeAlias = Callable[[Array], ArrayLike]
Truth: TypeAlias = Array
"""A boolean without axes."""

DECREASE: Final = 1e-4
"""How much of the decrease that the slope promises must be there."""
CURVATURE: Final = 0.9
"""How much of the slope at the beginning may be left."""
MOST_ZOOMS: Final = 30
"""After so many steps between two points the search has failed."""
INSIDE: Final = (0.2, 0.1)
"""How far from both ends the least place of a cubic, and of a parabola, must be: in parts of the way between them."""


class Point(NamedTuple):
    """A point on the way: how far it is, and the function and its slope there."""

    a: Array
    phi: Array
    dphi: Array


class Place(NamedTuple):
    """A point, and the function's gradient there."""

    at: Point
    g: Array


class LineSearchResults(NamedTuple):
    """Where the search ended."""

    failed: Truth
    nfev: Array
    """How often the function was evaluated, with its gradient each time."""
    a_k: Array
    f_k: Array
    g_k: Array
    status: Array
    """0 if it ended well, 1 if nothing was found between two points, 3 after too many steps."""


class _Search(NamedTuple):
    found: Truth
    failed: Truth
    steps: Array
    last: Point
    best: Place
    nfev: Array


class _Zoom(NamedTuple):
    found: Truth
    failed: Truth
    steps: Array
    lo: Point
    hi: Point
    third: tuple[Array, Array]
    """How far the end is that was given up last, and the function there."""
    best: Place


class _Line:
    """A function along a line, and what is asked of a point there."""

    def __init__(self, f: Objective, x: Array, p: Array, start: Point) -> None:
        self.f, self.x, self.p, self.start = f, x, p, start

    def evaluate(self, a: Array) -> Place:
        value, g = value_and_grad(self.f)(self.x + fnp.asarray(a, self.p.dtype) * self.p)
        slope = slope_along(g, self.p)
        at = Point(a, fnp.asarray(value, self.start.phi.dtype), fnp.asarray(slope, self.start.dphi.dtype))
        return Place(at, fnp.asarray(g, self.x.dtype))

    def is_too_high(self, point: Point) -> Truth:
        return point.phi > self.start.phi + DECREASE * point.a * self.start.dphi

    def is_flat(self, point: Point) -> Truth:
        return fnp.abs(point.dphi) <= -CURVATURE * self.start.dphi

    def zoom(self, asked: Truth, lo: Point, hi: Point, otherwise: Place) -> _Zoom:
        """What lies between two points, if it is asked for. `lo` is the lower of them."""
        first = _Zoom(
            fnp.array(False),
            fnp.array(False),
            fnp.array(0, dtype="int32"),
            lo,
            hi,
            ((lo.a + hi.a) / 2, (lo.phi + hi.phi) / 2),
            Place(Point(fnp.ones_like(lo.a), lo.phi, lo.dphi), otherwise.g),
        )
        return while_loop(lambda z: asked & ~z.found & ~z.failed, self._closer, first)

    def _closer(self, z: _Zoom) -> _Zoom:
        lo, hi = z.lo, z.hi
        place = self.evaluate(_between(lo, hi, z.third, z.steps))
        new = place.at
        # As in JAX, ends that come in falling order are too near to each other.
        near = hi.a - lo.a <= (1e-5 if dtypes.itemsize_bits(lo.a.dtype) < 64 else 1e-10)
        too_high = self.is_too_high(new) | (new.phi >= lo.phi)
        good = ~too_high & self.is_flat(new)
        lower = ~too_high & ~good
        turned = lower & (new.dphi * (hi.a - lo.a) >= 0)
        gives_up_hi = too_high | turned
        third = _choose(gives_up_hi, (hi.a, hi.phi), _choose(lower, (lo.a, lo.phi), z.third))
        return _Zoom(
            z.found | good,
            z.failed | near | (z.steps + 1 >= MOST_ZOOMS),
            z.steps + 1,
            _choose_point(lower, new, lo),
            _choose_point(too_high, new, _choose_point(turned, lo, hi)),
            third,
            _choose_place(good, place, z.best),
        )


def _choose(which: Truth, x: tuple[Array, Array], y: tuple[Array, Array]) -> tuple[Array, Array]:
    return fnp.where(which, x[0], y[0]), fnp.where(which, x[1], y[1])


def _choose_point(which: Truth, x: Point, y: Point) -> Point:
    return Point(*[fnp.where(which, a, b) for a, b in zip(x, y, strict=True)])


def _choose_place(which: Truth, x: Place, y: Place) -> Place:
    return Place(_choose_point(which, x.at, y.at), fnp.where(which, x.g, y.g))


def _between(lo: Point, hi: Point, third: tuple[Array, Array], steps: Array) -> Array:
    """The next point to look at: where a cubic is least, or else a parabola, or else half way."""
    least, most, gap = fnp.minimum(lo.a, hi.a), fnp.maximum(lo.a, hi.a), hi.a - lo.a

    def is_inside(a: Array, part: float) -> Truth:
        return (a > least + part * gap) & (a < most - part * gap)

    cubic, parabola = _least_of_cubic(lo, hi, third), _least_of_parabola(lo, hi)
    by_cubic, by_parabola = (steps > 0) & is_inside(cubic, INSIDE[0]), is_inside(parabola, INSIDE[1])
    return fnp.where(by_cubic, cubic, fnp.where(by_parabola, parabola, (lo.a + hi.a) / 2))


def _least_of_cubic(lo: Point, hi: Point, third: tuple[Array, Array]) -> Array:
    """Of the one that goes through three points, at the first with the slope there. NaN where it has no minimum."""
    a, phi = third
    d, e = hi.a - lo.a, a - lo.a
    u, v = hi.phi - lo.phi - lo.dphi * d, phi - lo.phi - lo.dphi * e
    scale = (d * e) ** 2 * (d - e)
    c3, c2 = (e**2 * u - d**2 * v) / scale, (d**3 * v - e**3 * u) / scale
    return lo.a + (-c2 + fnp.sqrt(c2 * c2 - 3 * c3 * lo.dphi)) / (3 * c3)


def _least_of_parabola(lo: Point, hi: Point) -> Array:
    d = hi.a - lo.a
    return lo.a - lo.dphi / (2 * ((hi.phi - lo.phi - lo.dphi * d) / d**2))


def slope_along(g: Array, p: Array) -> Array:
    """The slope in a direction of a function with a gradient."""
    return fnp.real(fnp.dot(g, p, precision="highest"))


def line_search(
    f: Objective, x: Array, p: Array, value: Array, g: Array, maxiter: int, before: Array | None = None
) -> LineSearchResults:
    """Goes from `x`, where `f` has a value and a gradient, in the direction `p`, downwards.

    `before` is the function's value one step before `x`: from it follows how far to go first.
    """
    part = dtypes.real_dtype(x.dtype)
    slope = slope_along(g, p)
    start = Point(fnp.zeros((), part), value, slope)
    first = fnp.ones((), part)
    if before is not None:
        guess = 1.01 * 2 * (value - before) / slope
        first = fnp.asarray(fnp.where(guess > 1, 1.0, guess), part)
    line = _Line(f, x, p, start)

    def further(s: _Search) -> _Search:
        is_first = s.steps == 0
        place = line.evaluate(fnp.where(is_first, first, 2 * s.last.a))
        new = place.at
        too_far = line.is_too_high(new) | ((new.phi >= s.last.phi) & ~is_first)
        good = ~too_far & line.is_flat(new)
        rises = ~too_far & ~good & (new.dphi >= 0)
        lo, hi = _choose_point(too_far, s.last, new), _choose_point(too_far, new, s.last)
        zoomed = line.zoom(too_far | rises, lo, hi, Place(start, g))
        best = _choose_place(too_far | rises, zoomed.best, _choose_place(good, place, s.best))
        found = s.found | too_far | good | rises
        failed = s.failed | ((too_far | rises) & zoomed.failed)
        return _Search(found, failed, s.steps + 1, new, best, s.nfev + 1 + zoomed.steps)

    none = fnp.array(False)
    zero = fnp.array(0, dtype="int32")
    end = while_loop(
        lambda s: ~s.found & (s.steps < maxiter) & ~s.failed,
        further,
        _Search(none, none, zero, start, Place(start, g), zero),
    )
    a = end.best.at.a
    if dtypes.itemsize_bits(part) < 64:  # so short steps are lost in rounding, and the next direction would be zero
        a = fnp.where(fnp.abs(a) < 1e-8, fnp.sign(a) * 1e-8, a)
    status = fnp.where(end.failed, 1, fnp.where(end.steps >= maxiter, 3, 0))
    return LineSearchResults(
        end.failed | ~end.found, end.nfev, a, end.best.at.phi, end.best.g, fnp.asarray(status, "int32")
    )
