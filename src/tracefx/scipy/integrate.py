"""Numerical integration, with the names of `scipy.integrate`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar, final

import numpy as np
from attrs import frozen

from tracefx import lax
from tracefx import numpy as fnp
from tracefx.core import Array, ArrayLike, dtypes, is_arraylike
from tracefx.errors import ShapeError
from tracefx.filtered_tracebacks import api_boundary
from tracefx.flatten_util import ravel_pytree
from tracefx.numpy.differences import trapezoid as trapezoid
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree
from tracefx.transforms.arguments import fun_label, require_callable
from tracefx.transforms.closure_conversion import closure_convert
from tracefx.transforms.custom_derivatives import custom_vjp
from tracefx.transforms.differentiation import vjp
from tracefx.transforms.jit import jit
from tracefx.transforms.vmap import vmap

__all__ = ["odeint", "trapezoid"]

Y = TypeVar("Y")
Derivative = Callable[[Array, Array], Array]

# The pair of orders 5 and 4 of Dormand and Prince (1980), with Shampine's interpolant of order 4 (1986).
NODES: Final = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1, 1)
STAGES: Final = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
"""The weights of earlier derivatives in the argument of each later one. The last argument is the result of the step."""
ERROR: Final = (71 / 57600, 0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)
"""The weights of the derivatives in the difference between the results of order 5 and 4."""
INTERPOLANT: Final = (
    (1, 0, 0, 0, 0, 0, 0),
    (
        -8048581381 / 2820520608,
        0,
        131558114200 / 32700410799,
        -1754552775 / 470086768,
        127303824393 / 49829197408,
        -282668133 / 205662961,
        40617522 / 29380423,
    ),
    (
        8663915743 / 2820520608,
        0,
        -68118460800 / 10900136933,
        14199869525 / 1410260304,
        -318862633887 / 49829197408,
        2019193451 / 616988883,
        -110615467 / 29380423,
    ),
    (
        -12715105075 / 11282082432,
        0,
        87487479700 / 32700410799,
        -10690763975 / 1880347072,
        701980252875 / 199316789632,
        -1453857185 / 822651844,
        69997945 / 29380423,
    ),
)
"""The weights of the derivatives in the powers 1 to 4 of the fraction of the step."""
SMALLEST_FACTOR, LARGEST_FACTOR, SAFETY = 0.2, 10.0, 0.9
"""Bounds of the change of the step size, and the factor by which it is smaller than the largest that would do."""


class _State(NamedTuple):
    """The state of the solver after an accepted step from `t_before` to `t`."""

    y: Array
    dy: Array
    t: Array
    step: Array
    t_before: Array
    polynomial: Array
    """`f[5, n]`: the solution in the step, as a polynomial of the fraction of the step."""


@final
@frozen
class _Solver:
    """The options of `odeint`."""

    rtol: float
    atol: float
    mxstep: float
    hmax: float

    def solve(self, f: Derivative, y0: Array, ts: Array) -> Array:
        """Solves `dy/dt = f(y, t)` for vectors; returns `f[len(ts), n]`."""
        dy0 = f(y0, ts[0])
        polynomial = fnp.concatenate([y0[None], fnp.zeros((4, *y0.shape), y0.dtype)])
        start = _State(y0, dy0, ts[0], self.first_step(f, y0, dy0, ts[0]), ts[0], polynomial)

        def advance(state: _State, target: Array) -> tuple[_State, Array]:
            def is_before(counted: tuple[Array, _State]) -> Array:
                count, at = counted
                return (at.t < target) & (count < self.mxstep) & (at.t + at.step > at.t)

            def step(counted: tuple[Array, _State]) -> tuple[Array, _State]:
                return counted[0] + 1, self.try_step(f, counted[1])

            _, state = lax.while_loop(is_before, step, (fnp.int32(0), state))
            length = state.t - state.t_before
            fraction = fnp.where(length > 0, (target - state.t_before) / fnp.where(length > 0, length, 1), 0)
            y = fnp.polyval(state.polynomial[::-1], _real_like(fraction, y0))
            return state, fnp.where(state.t >= target, y, fnp.nan)

        _, ys = lax.scan(advance, start, ts[1:])
        return fnp.concatenate([y0[None], ys])

    def try_step(self, f: Derivative, state: _State) -> _State:
        """Returns the state after a step, or the same with a smaller step size if its error is too large."""
        y, h = state.y, _real_like(state.step, state.y)
        slopes = [state.dy]
        new_y = y
        for node, weights in zip(NODES, STAGES, strict=True):
            new_y = y + h * _combine(weights, slopes)
            slopes.append(f(new_y, state.t + node * state.step))
        error = self.norm(h * _combine(ERROR, slopes), fnp.maximum(fnp.abs(y), fnp.abs(new_y)))
        error = error.astype(state.t.dtype)
        # `error` is 0 if the function is constant: then the largest factor applies.
        wanted = SAFETY * fnp.where(error > 0, error, 1) ** (-1 / 5)
        factor = fnp.where(error == 0, LARGEST_FACTOR, fnp.clip(wanted, SMALLEST_FACTOR, LARGEST_FACTOR))
        accepted = error <= 1
        factor = fnp.where(accepted, fnp.maximum(factor, 1), factor)
        size = fnp.where(fnp.isnan(error), fnp.nan, fnp.minimum(state.step * factor, self.hmax))
        polynomial = fnp.stack([y, *[h * _combine(weights, slopes) for weights in INTERPOLANT]])
        new = _State(new_y, slopes[-1], state.t + state.step, size, state.t, polynomial)
        kept = state._replace(step=size)
        return _State(*[fnp.where(accepted, a, b) for a, b in zip(new, kept, strict=True)])

    def first_step(self, f: Derivative, y: Array, dy: Array, t: Array) -> Array:
        """Returns a first step size (Hairer, Norsett and Wanner, "Solving ordinary differential equations I", II.4)."""
        size, slope = self.norm(y, fnp.abs(y)), self.norm(dy, fnp.abs(y))
        is_tiny = (size < 1e-5) | (slope < 1e-5)
        guess = fnp.where(is_tiny, 1e-6, 0.01 * size / fnp.where(is_tiny, 1, slope))
        ahead = f(y + _real_like(guess, y) * dy, t + guess.astype(t.dtype))
        curvature = self.norm(ahead - dy, fnp.abs(y)) / guess
        largest = fnp.maximum(slope, curvature)
        is_flat = largest <= 1e-15
        better = fnp.where(is_flat, fnp.maximum(1e-6, guess * 1e-3), (0.01 / fnp.where(is_flat, 1, largest)) ** (1 / 5))
        return fnp.minimum(fnp.minimum(100 * guess, better), self.hmax).astype(t.dtype)

    def norm(self, x: Array, size: Array) -> Array:
        """Returns the root mean square of `x` relative to the error that is admitted for values of this size."""
        ratio = fnp.abs(x) / (self.atol + self.rtol * size)
        return fnp.sqrt(fnp.sum(ratio * ratio) / max(1, x.size))


def _real_like(x: Array, y: Array) -> Array:
    """Converts to the real dtype with the precision of `y`."""
    return x.astype(fnp.finfo(y.dtype).dtype)


def _combine(weights: tuple[float, ...], slopes: list[Array]) -> Array:
    """Returns the sum of the first slopes with these weights."""
    terms = [w * k for w, k in zip(weights, slopes, strict=False) if w]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


@api_boundary
def odeint(
    func: Callable[..., Y],
    y0: Y,
    t: ArrayLike,
    *args: PyTree,
    rtol: float = 1.4e-8,
    atol: float = 1.4e-8,
    mxstep: float = np.inf,
    hmax: float = np.inf,
) -> Y:
    """Solves an ordinary differential equation `dy/dt = func(y, t, *args)` from `y(t[0]) = y0`.

    The method is the Runge-Kutta method of Dormand and Prince of order 5, with adaptive steps. Gradients with respect
    to `y0`, `t`, `args` and the values that `func` closes over come from the adjoint equation, which is solved
    backwards in time: they need memory for the results only, whatever the number of steps, and have an error of the
    size of the tolerances. There is no forward mode.

    Args:
        func: The derivative, a function of `y` and the time. Its result has the structure, shapes and dtypes of `y`.
        y0: The initial value: a pytree of floats or complex numbers.
        t: The times, `f[n]`, in increasing order. The first is that of `y0`.
        *args: More arguments of `func`: pytrees of arrays.
        rtol: The relative error of a step that is admitted.
        atol: The absolute error that is admitted in addition.
        mxstep: The largest number of steps between two times. By default, there is no limit. The solution at a time
            that is not reached is NaN.
        hmax: The largest step size. By default, there is no limit.

    Returns:
        The solution at the times `t`: a pytree like `y0`, whose arrays have an additional first axis of length `n`.

    Raises:
        TypeError: If `func` is not callable or its result is not like `y0`, a leaf of `y0` is neither a float nor
            complex, `t` is not an array of floats, or a leaf of `args` is not an array.
        ValueError: If `t` does not have one axis with at least one time.

    >>> import tracefx as fx
    >>> def decay(y, t, rate):
    ...     return -rate * y
    >>> times = fnp.array([0.0, 1.0, 2.0])
    >>> fnp.round(odeint(decay, 8.0, times, fnp.log(2.0)), 4)
    Array([8., 4., 2.], dtype=float32)
    >>> fnp.round(fx.grad(lambda rate: odeint(decay, 8.0, times, rate)[1])(fnp.log(2.0)), 4).item()
    -4.0
    """
    require_callable("odeint", func)
    for leaf in trees.leaves(args):
        if not is_arraylike(leaf):
            raise TypeError(f"odeint: leaves of args must be arrays, got {leaf!r} of type {type(leaf).__name__}")
    times = fnp.asarray(t)
    if not dtypes.is_float(times.dtype):
        raise TypeError(f"odeint: t must be an array of floats, got {times.aval}")
    if times.ndim != 1 or not times.size:
        raise ShapeError(f"odeint: t must have one axis with at least one time, got {times.aval}")
    initial = trees.map(fnp.asarray, y0)
    for leaf in trees.leaves(initial):
        if not dtypes.is_inexact(leaf.dtype):
            raise TypeError(f"odeint: y0 must have floats or complex numbers, got {leaf.aval}")
    flat, unravel = ravel_pytree(initial)
    shapes = [x.shape for x in trees.leaves(initial)]

    def derivative(y: Array, time: Array, *params: PyTree) -> Array:
        dy = trees.map(fnp.asarray, func(unravel(y), time, *params))
        if trees.structure(dy) != trees.structure(initial) or [x.shape for x in trees.leaves(dy)] != shapes:
            raise TypeError(
                f"odeint: {fun_label(func)} must return values like y0, {_show_types(initial)}, got {_show_types(dy)}"
            )
        return ravel_pytree(dy)[0].astype(flat.dtype)

    converted, consts = closure_convert(derivative, flat, times[0], *args)
    solver = _Solver(rtol, atol, mxstep, hmax)
    solution: Y = vmap(unravel)(_solve(solver, jit(converted), flat, times, *args, *consts))
    return solution


def _solve_directly(solver: _Solver, func: Callable[..., Array], y0: Array, ts: Array, *args: PyTree) -> Array:
    return solver.solve(lambda y, t: func(y, t, *args), y0, ts)


_solve = custom_vjp(_solve_directly, nondiff_argnums=(0, 1))


def _forward(
    solver: _Solver, func: Callable[..., Array], y0: Array, ts: Array, *args: PyTree
) -> tuple[Array, tuple[Any, ...]]:
    ys: Array = _solve(solver, func, y0, ts, *args)
    return ys, (ys, ts, args)


def _backward(
    solver: _Solver, func: Callable[..., Array], residuals: tuple[Any, ...], cts: Array
) -> tuple[PyTree, ...]:
    """Solves the adjoint equation from the last time to the first, and adds the cotangent of each result on the way."""
    ys, ts, args = residuals
    leaves, structure = trees.flatten(args)
    is_active = [dtypes.is_inexact(fnp.asarray(x).dtype) for x in leaves]
    active = [fnp.asarray(x) for x, use in zip(leaves, is_active, strict=True) if use]

    def evaluate(y: Array, t: Array, params: list[Array]) -> Array:
        new = iter(params)
        merged = [next(new) if use else x for x, use in zip(leaves, is_active, strict=True)]
        return func(y, t, *structure.unflatten(merged))

    def adjoint(state: tuple[Any, ...], backward_time: Array) -> tuple[Any, ...]:
        y, ct, _, _ = state
        dy, pullback = vjp(evaluate, y, -backward_time, active)
        return (-dy, *pullback(ct))

    def step(carry: tuple[Array, Array, list[Array]], i: Array) -> tuple[tuple[Any, ...], Array]:
        ct, start_ct, params_ct = carry
        time_ct = fnp.real(fnp.dot(evaluate(ys[i], ts[i], active), cts[i])).astype(ts.dtype)
        state = (ys[i], ct, start_ct - time_ct, params_ct)
        times = fnp.stack([-ts[i], -ts[i - 1]])
        solution = odeint(adjoint, state, times, **_options(solver))
        _, ct, start_ct, params_ct = trees.map(lambda x: x[1], solution)
        return (ct + cts[i - 1], start_ct, params_ct), time_ct

    first = (cts[-1], fnp.zeros((), ts.dtype), [fnp.zeros_like(x) for x in active])
    (y_ct, start_ct, params_ct), time_cts = lax.scan(step, first, fnp.arange(ts.size - 1, 0, -1))
    new = iter(params_ct)
    args_ct = structure.unflatten([next(new) if use else None for use in is_active])
    return (y_ct, fnp.concatenate([start_ct[None], time_cts[::-1]]), *args_ct)


def _show_types(tree: PyTree) -> str:
    return str(trees.map(lambda x: str(x.aval), tree))


def _options(solver: _Solver) -> dict[str, float]:
    return {"rtol": solver.rtol, "atol": solver.atol, "mxstep": solver.mxstep, "hmax": solver.hmax}


_solve.defvjp(_forward, _backward)
