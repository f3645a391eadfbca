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
BoolScalar: TypeAlias = Array
"""A boolean without axes."""

SUFFICIENT_DECREASE: Final = 1e-4
"""How much of the decrease that the slope promises must be there."""
CURVATURE: Final = 0.9
"""How much of the slope at the beginning may be left."""
MAX_ZOOM_STEPS: Final = 30
"""After so many steps between two points the search has failed."""
INTERPOLATION_MARGINS: Final = (0.2, 0.1)
"""How far from both ends the least place of a cubic, and of a parabola, must be: in parts of the way between them."""


class LinePoint(NamedTuple):
    """A point on the way: how far it is, and the function and its slope there."""

    a: Array
    phi: Array
    dphi: Array


class GradientPoint(NamedTuple):
    """A point, and the function's gradient there."""

    point: LinePoint
    g: Array


class LineSearchResults(NamedTuple):
    """Where the search ended."""

    failed: BoolScalar
    nfev: Array
    """How often the function was evaluated, with its gradient each time."""
    a_k: Array
    f_k: Array
    g_k: Array
    status: Array
    """0 if it ended well, 1 if nothing was found between two points, 3 after too many steps."""


class _SearchState(NamedTuple):
    found: BoolScalar
    failed: BoolScalar
    steps: Array
    last: LinePoint
    best: GradientPoint
    nfev: Array


class _ZoomState(NamedTuple):
    found: BoolScalar
    failed: BoolScalar
    steps: Array
    lo: LinePoint
    hi: LinePoint
    third: tuple[Array, Array]
    """How far the end is that was given up last, and the function there."""
    best: GradientPoint


class _LineFunction:
    """A function along a line, and what is asked of a point there."""

    def __init__(self, f: Objective, x: Array, p: Array, start: LinePoint) -> None:
        self.f, self.x, self.p, self.start = f, x, p, start

    def evaluate(self, a: Array) -> GradientPoint:
        value, g = value_and_grad(self.f)(self.x + fnp.asarray(a, self.p.dtype) * self.p)
        slope = directional_derivative(g, self.p)
        at = LinePoint(a, fnp.asarray(value, self.start.phi.dtype), fnp.asarray(slope, self.start.dphi.dtype))
        return GradientPoint(at, fnp.asarray(g, self.x.dtype))

    def violates_decrease(self, point: LinePoint) -> BoolScalar:
        return point.phi > self.start.phi + SUFFICIENT_DECREASE * point.a * self.start.dphi

    def satisfies_curvature(self, point: LinePoint) -> BoolScalar:
        return fnp.abs(point.dphi) <= -CURVATURE * self.start.dphi

    def zoom(self, asked: BoolScalar, lo: LinePoint, hi: LinePoint, otherwise: GradientPoint) -> _ZoomState:
        """What lies between two points, if it is asked for. `lo` is the lower of them."""
        first = _ZoomState(
            fnp.array(False),
            fnp.array(False),
            fnp.array(0, dtype="int32"),
            lo,
            hi,
            ((lo.a + hi.a) / 2, (lo.phi + hi.phi) / 2),
            GradientPoint(LinePoint(fnp.ones_like(lo.a), lo.phi, lo.dphi), otherwise.g),
        )
        return while_loop(lambda z: asked & ~z.found & ~z.failed, self._zoom_step, first)

    def _zoom_step(self, z: _ZoomState) -> _ZoomState:
        lo, hi = z.lo, z.hi
        place = self.evaluate(_trial_step(lo, hi, z.third, z.steps))
        new = place.point
        # As in JAX, ends that come in falling order are too near to each other.
        near = hi.a - lo.a <= (1e-5 if dtypes.itemsize_bits(lo.a.dtype) < 64 else 1e-10)
        too_high = self.violates_decrease(new) | (new.phi >= lo.phi)
        good = ~too_high & self.satisfies_curvature(new)
        lower = ~too_high & ~good
        turned = lower & (new.dphi * (hi.a - lo.a) >= 0)
        gives_up_hi = too_high | turned
        third = _choose(gives_up_hi, (hi.a, hi.phi), _choose(lower, (lo.a, lo.phi), z.third))
        return _ZoomState(
            z.found | good,
            z.failed | near | (z.steps + 1 >= MAX_ZOOM_STEPS),
            z.steps + 1,
            _choose_point(lower, new, lo),
            _choose_point(too_high, new, _choose_point(turned, lo, hi)),
            third,
            _choose_gradient_point(good, place, z.best),
        )


def _choose(which: BoolScalar, x: tuple[Array, Array], y: tuple[Array, Array]) -> tuple[Array, Array]:
    return fnp.where(which, x[0], y[0]), fnp.where(which, x[1], y[1])


def _choose_point(which: BoolScalar, x: LinePoint, y: LinePoint) -> LinePoint:
    return LinePoint(*[fnp.where(which, a, b) for a, b in zip(x, y, strict=True)])


def _choose_gradient_point(which: BoolScalar, x: GradientPoint, y: GradientPoint) -> GradientPoint:
    return GradientPoint(_choose_point(which, x.point, y.point), fnp.where(which, x.g, y.g))


def _trial_step(lo: LinePoint, hi: LinePoint, third: tuple[Array, Array], steps: Array) -> Array:
    """The next point to look at: where a cubic is least, or else a parabola, or else half way."""
    least, most, gap = fnp.minimum(lo.a, hi.a), fnp.maximum(lo.a, hi.a), hi.a - lo.a

    def is_inside(a: Array, part: float) -> BoolScalar:
        return (a > least + part * gap) & (a < most - part * gap)

    cubic, parabola = _cubic_minimizer(lo, hi, third), _quadratic_minimizer(lo, hi)
    by_cubic, by_parabola = (
        (steps > 0) & is_inside(cubic, INTERPOLATION_MARGINS[0]),
        is_inside(parabola, INTERPOLATION_MARGINS[1]),
    )
    return fnp.where(by_cubic, cubic, fnp.where(by_parabola, parabola, (lo.a + hi.a) / 2))


def _cubic_minimizer(lo: LinePoint, hi: LinePoint, third: tuple[Array, Array]) -> Array:
    """Of the one that goes through three points, at the first with the slope there. NaN where it has no minimum."""
    a, phi = third
    d, e = hi.a - lo.a, a - lo.a
    u, v = hi.phi - lo.phi - lo.dphi * d, phi - lo.phi - lo.dphi * e
    scale = (d * e) ** 2 * (d - e)
    c3, c2 = (e**2 * u - d**2 * v) / scale, (d**3 * v - e**3 * u) / scale
    return lo.a + (-c2 + fnp.sqrt(c2 * c2 - 3 * c3 * lo.dphi)) / (3 * c3)


def _quadratic_minimizer(lo: LinePoint, hi: LinePoint) -> Array:
    d = hi.a - lo.a
    return lo.a - lo.dphi / (2 * ((hi.phi - lo.phi - lo.dphi * d) / d**2))


def directional_derivative(g: Array, p: Array) -> Array:
    """The slope in a direction of a function with a gradient."""
    return fnp.real(fnp.dot(g, p, precision="highest"))


def line_search(
    f: Objective, x: Array, p: Array, value: Array, g: Array, maxiter: int, before: Array | None = None
) -> LineSearchResults:
    """Goes from `x`, where `f` has a value and a gradient, in the direction `p`, downwards.

    `before` is the function's value one step before `x`: from it follows how far to go first.
    """
    part = dtypes.real_dtype(x.dtype)
    slope = directional_derivative(g, p)
    start = LinePoint(fnp.zeros((), part), value, slope)
    first = fnp.ones((), part)
    if before is not None:
        guess = 1.01 * 2 * (value - before) / slope
        first = fnp.asarray(fnp.where(guess > 1, 1.0, guess), part)
    line = _LineFunction(f, x, p, start)

    def further(s: _SearchState) -> _SearchState:
        is_first = s.steps == 0
        place = line.evaluate(fnp.where(is_first, first, 2 * s.last.a))
        new = place.point
        too_far = line.violates_decrease(new) | ((new.phi >= s.last.phi) & ~is_first)
        good = ~too_far & line.satisfies_curvature(new)
        rises = ~too_far & ~good & (new.dphi >= 0)
        lo, hi = _choose_point(too_far, s.last, new), _choose_point(too_far, new, s.last)
        zoomed = line.zoom(too_far | rises, lo, hi, GradientPoint(start, g))
        best = _choose_gradient_point(too_far | rises, zoomed.best, _choose_gradient_point(good, place, s.best))
        found = s.found | too_far | good | rises
        failed = s.failed | ((too_far | rises) & zoomed.failed)
        return _SearchState(found, failed, s.steps + 1, new, best, s.nfev + 1 + zoomed.steps)

    none = fnp.array(False)
    zero = fnp.array(0, dtype="int32")
    end = while_loop(
        lambda s: ~s.found & (s.steps < maxiter) & ~s.failed,
        further,
        _SearchState(none, none, zero, start, GradientPoint(start, g), zero),
    )
    a = end.best.point.a
    if dtypes.itemsize_bits(part) < 64:  # so short steps are lost in rounding, and the next direction would be zero
        a = fnp.where(fnp.abs(a) < 1e-8, fnp.sign(a) * 1e-8, a)
    status = fnp.where(end.failed, 1, fnp.where(end.steps >= maxiter, 3, 0))
    return LineSearchResults(
        end.failed | ~end.found, end.nfev, a, end.best.point.phi, end.best.g, fnp.asarray(status, "int32")
    )
