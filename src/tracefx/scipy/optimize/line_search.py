"""A line search for the strong Wolfe conditions.

Nocedal and Wright, Numerical optimization (1999), algorithms 3.5 and 3.6.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from tracefx import numpy as fnp
from tracefx.core import Array, ArrayLike, dtypes
from tracefx.lax import while_loop
from tracefx.transforms.gradients import value_and_grad

Objective: TypeAlias = Callable[[Array], ArrayLike]
BoolScalar: TypeAlias = Array
"""A boolean scalar array, `bool[]`."""

SUFFICIENT_DECREASE: Final = 1e-4
"""The fraction of the decrease predicted by the slope that a step must reach (first Wolfe condition)."""
CURVATURE: Final = 0.9
"""The fraction of the initial slope that may remain (second Wolfe condition)."""
MAX_ZOOM_STEPS: Final = 30
"""The number of steps in an interval after which the search fails."""
INTERPOLATION_MARGINS: Final = (0.2, 0.1)
"""How far from both ends the minimum of the cubic, and of the parabola, must be, as fractions of the interval."""


class LinePoint(NamedTuple):
    """A point on the line: the step length, the value, and the slope."""

    a: Array
    phi: Array
    dphi: Array


class GradientPoint(NamedTuple):
    """A point on the line and the gradient there."""

    point: LinePoint
    g: Array


class LineSearchResults(NamedTuple):
    """The result of a line search."""

    failed: BoolScalar
    nfev: Array
    """The number of evaluations of the function and its gradient."""
    a_k: Array
    f_k: Array
    g_k: Array
    status: Array
    """0 on success, 1 if no step was found in an interval, 3 if the number of steps was exceeded."""


class _SearchState(NamedTuple):
    """The state of the bracketing phase."""

    found: BoolScalar
    failed: BoolScalar
    steps: Array
    last: LinePoint
    best: GradientPoint
    nfev: Array


class _ZoomState(NamedTuple):
    """The state of the zoom phase, in an interval."""

    found: BoolScalar
    failed: BoolScalar
    steps: Array
    lo: LinePoint
    hi: LinePoint
    third: tuple[Array, Array]
    """The step length and value of the end that was replaced last."""
    best: GradientPoint


class _LineFunction:
    """A function restricted to a line, and the Wolfe conditions."""

    def __init__(self, f: Objective, x: Array, p: Array, start: LinePoint) -> None:
        self.f, self.x, self.p, self.start = f, x, p, start

    def evaluate(self, a: Array) -> GradientPoint:
        """Returns the point at a step length."""
        value, g = value_and_grad(self.f)(self.x + fnp.asarray(a, self.p.dtype) * self.p)
        slope = directional_derivative(g, self.p)
        at = LinePoint(a, fnp.asarray(value, self.start.phi.dtype), fnp.asarray(slope, self.start.dphi.dtype))
        return GradientPoint(at, fnp.asarray(g, self.x.dtype))

    def violates_decrease(self, point: LinePoint) -> BoolScalar:
        """Returns whether a point violates the first Wolfe condition."""
        return point.phi > self.start.phi + SUFFICIENT_DECREASE * point.a * self.start.dphi

    def satisfies_curvature(self, point: LinePoint) -> BoolScalar:
        """Returns whether a point satisfies the second Wolfe condition."""
        return fnp.abs(point.dphi) <= -CURVATURE * self.start.dphi

    def zoom(self, asked: BoolScalar, lo: LinePoint, hi: LinePoint, otherwise: GradientPoint) -> _ZoomState:
        """Searches the interval between two points, if `asked`; `lo` is the point with the lower value."""
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
        trial = self.evaluate(_trial_step(lo, hi, z.third, z.steps))
        new = trial.point
        # As in JAX, an interval with its ends in decreasing order counts as too short.
        is_too_short = hi.a - lo.a <= (1e-5 if dtypes.itemsize_bits(lo.a.dtype) < 64 else 1e-10)
        is_too_high = self.violates_decrease(new) | (new.phi >= lo.phi)
        is_accepted = ~is_too_high & self.satisfies_curvature(new)
        becomes_lo = ~is_too_high & ~is_accepted
        hi_becomes_lo = becomes_lo & (new.dphi * (hi.a - lo.a) >= 0)
        replaces_hi = is_too_high | hi_becomes_lo
        third = _choose(replaces_hi, (hi.a, hi.phi), _choose(becomes_lo, (lo.a, lo.phi), z.third))
        return _ZoomState(
            z.found | is_accepted,
            z.failed | is_too_short | (z.steps + 1 >= MAX_ZOOM_STEPS),
            z.steps + 1,
            _choose_point(becomes_lo, new, lo),
            _choose_point(is_too_high, new, _choose_point(hi_becomes_lo, lo, hi)),
            third,
            _choose_gradient_point(is_accepted, trial, z.best),
        )


def _choose(which: BoolScalar, x: tuple[Array, Array], y: tuple[Array, Array]) -> tuple[Array, Array]:
    return fnp.where(which, x[0], y[0]), fnp.where(which, x[1], y[1])


def _choose_point(which: BoolScalar, x: LinePoint, y: LinePoint) -> LinePoint:
    return LinePoint(*[fnp.where(which, a, b) for a, b in zip(x, y, strict=True)])


def _choose_gradient_point(which: BoolScalar, x: GradientPoint, y: GradientPoint) -> GradientPoint:
    return GradientPoint(_choose_point(which, x.point, y.point), fnp.where(which, x.g, y.g))


def _trial_step(lo: LinePoint, hi: LinePoint, third: tuple[Array, Array], steps: Array) -> Array:
    """Returns the next step length: the minimum of a cubic, or else of a parabola, or else the midpoint."""
    lowest, highest, gap = fnp.minimum(lo.a, hi.a), fnp.maximum(lo.a, hi.a), hi.a - lo.a

    def is_inside(a: Array, margin: float) -> BoolScalar:
        return (a > lowest + margin * gap) & (a < highest - margin * gap)

    cubic, parabola = _cubic_minimizer(lo, hi, third), _quadratic_minimizer(lo, hi)
    by_cubic, by_parabola = (
        (steps > 0) & is_inside(cubic, INTERPOLATION_MARGINS[0]),
        is_inside(parabola, INTERPOLATION_MARGINS[1]),
    )
    return fnp.where(by_cubic, cubic, fnp.where(by_parabola, parabola, (lo.a + hi.a) / 2))


def _cubic_minimizer(lo: LinePoint, hi: LinePoint, third: tuple[Array, Array]) -> Array:
    """Returns the minimum of the cubic through three points with the slope at the first; NaN if it has none."""
    a, phi = third
    d, e = hi.a - lo.a, a - lo.a
    u, v = hi.phi - lo.phi - lo.dphi * d, phi - lo.phi - lo.dphi * e
    scale = (d * e) ** 2 * (d - e)
    c3, c2 = (e**2 * u - d**2 * v) / scale, (d**3 * v - e**3 * u) / scale
    return lo.a + (-c2 + fnp.sqrt(c2 * c2 - 3 * c3 * lo.dphi)) / (3 * c3)


def _quadratic_minimizer(lo: LinePoint, hi: LinePoint) -> Array:
    """Returns the minimum of the parabola through two points with the slope at the first."""
    d = hi.a - lo.a
    return lo.a - lo.dphi / (2 * ((hi.phi - lo.phi - lo.dphi * d) / d**2))


def directional_derivative(g: Array, p: Array) -> Array:
    """Returns the derivative along `p` of a function with the gradient `g`."""
    return fnp.real(fnp.dot(g, p, precision="highest"))


def line_search(
    f: Objective, x: Array, p: Array, value: Array, g: Array, maxiter: int, before: Array | None = None
) -> LineSearchResults:
    """Searches from `x` along `p` for a step that satisfies the strong Wolfe conditions.

    Args:
        f: the function.
        x: the start.
        p: the direction, a descent direction.
        value: the value at `x`.
        g: the gradient at `x`.
        maxiter: the maximum number of steps of the bracketing phase.
        before: the value one iteration before, from which the first step length is guessed; 1 by default.
    """
    real_dtype = dtypes.real_dtype(x.dtype)
    slope = directional_derivative(g, p)
    start = LinePoint(fnp.zeros((), real_dtype), value, slope)
    first = fnp.ones((), real_dtype)
    if before is not None:
        guess = 1.01 * 2 * (value - before) / slope
        first = fnp.asarray(fnp.where(guess > 1, 1.0, guess), real_dtype)
    line = _LineFunction(f, x, p, start)

    def advance(s: _SearchState) -> _SearchState:
        is_first = s.steps == 0
        trial = line.evaluate(fnp.where(is_first, first, 2 * s.last.a))
        new = trial.point
        is_too_far = line.violates_decrease(new) | ((new.phi >= s.last.phi) & ~is_first)
        is_accepted = ~is_too_far & line.satisfies_curvature(new)
        has_positive_slope = ~is_too_far & ~is_accepted & (new.dphi >= 0)
        lo, hi = _choose_point(is_too_far, s.last, new), _choose_point(is_too_far, new, s.last)
        zoomed = line.zoom(is_too_far | has_positive_slope, lo, hi, GradientPoint(start, g))
        best = _choose_gradient_point(
            is_too_far | has_positive_slope, zoomed.best, _choose_gradient_point(is_accepted, trial, s.best)
        )
        is_found = s.found | is_too_far | is_accepted | has_positive_slope
        failed = s.failed | ((is_too_far | has_positive_slope) & zoomed.failed)
        return _SearchState(is_found, failed, s.steps + 1, new, best, s.nfev + 1 + zoomed.steps)

    false = fnp.array(False)
    zero = fnp.array(0, dtype="int32")
    final = while_loop(
        lambda s: ~s.found & (s.steps < maxiter) & ~s.failed,
        advance,
        _SearchState(false, false, zero, start, GradientPoint(start, g), zero),
    )
    a = final.best.point.a
    if dtypes.itemsize_bits(real_dtype) < 64:  # shorter steps are lost in rounding
        a = fnp.where(fnp.abs(a) < 1e-8, fnp.sign(a) * 1e-8, a)
    status = fnp.where(final.failed, 1, fnp.where(final.steps >= maxiter, 3, 0))
    return LineSearchResults(
        final.failed | ~final.found, final.nfev, a, final.best.point.phi, final.best.g, fnp.asarray(status, "int32")
    )
