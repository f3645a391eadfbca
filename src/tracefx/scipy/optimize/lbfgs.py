"""The L-BFGS method: BFGS with the last few steps instead of a matrix, for real and complex vectors.

Nocedal and Wright, Numerical optimization (1999), algorithm 7.5; Sorber, Van Barel and De Lathauwer, Unconstrained
optimization of real functions in complex variables (2012).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from tracefx import numpy as fnp
from tracefx.core import Array, dtypes
from tracefx.lax import scan, while_loop
from tracefx.scipy.optimize.bfgs import evaluate_with_gradient, vector_norm
from tracefx.scipy.optimize.line_search import Objective, directional_derivative, line_search
from tracefx.scipy.optimize.results import OptimizeResults


class _History(NamedTuple):
    """The last steps, the newest last; rows of zeros before the first steps."""

    position_changes: Array
    gradient_changes: Array
    """The change of the gradient in each step."""
    rhos: Array
    """The inverse of the inner product of both changes, for each step."""

    def with_step(self, move: Array, turn: Array, rho: Array) -> _History:
        """Appends a step and drops the oldest."""
        return _History(
            _append_row(self.position_changes, move),
            _append_row(self.gradient_changes, turn),
            _append_row(self.rhos, rho),
        )


class _LbfgsState(NamedTuple):
    """The state of the iteration."""

    converged: Array
    failed: Array
    status: Array
    x: Array
    value: Array
    g: Array
    memory: _History
    scale: Array
    """The scale of the initial inverse Hessian, estimated from the last step."""
    nfev: Array
    steps: Array


def _append_row(rows: Array, new: Array) -> Array:
    """Appends a row and drops the first."""
    return fnp.concatenate([rows[1:], new[None]])


def minimize_lbfgs(
    f: Objective,
    x: Array,
    maxiter: float | None = None,
    norm: float = math.inf,
    maxcor: int = 10,
    ftol: float = 2.220446049250313e-09,
    gtol: float = 1e-05,
    maxfun: float | None = None,
    maxgrad: float | None = None,
    maxls: int = 20,
) -> OptimizeResults:
    """Minimizes `f` from `x` on; see `minimize`."""
    if maxiter is None and maxfun is None and maxgrad is None:
        maxiter = 200 * x.size
    value, g = evaluate_with_gradient(f, x)
    real_dtype = dtypes.real_dtype(x.dtype)

    def step(s: _LbfgsState) -> _LbfgsState:
        p = _descent_direction(s)
        search = line_search(f, s.x, p, s.value, s.g, maxls)
        move, gradient_change = fnp.asarray(search.a_k, p.dtype) * p, search.g_k - s.g
        product = directional_derivative(gradient_change, move)
        converged = vector_norm(search.g_k, norm) < gtol
        # If there are several reasons to stop, the last one determines the status.
        status = fnp.where(s.value - search.f_k < ftol, 4, 0)
        for reason, count, limit in ((3, s.nfev, maxgrad), (2, s.nfev, maxfun), (1, s.steps, maxiter)):
            if limit is not None:
                status = fnp.where(count >= limit, reason, status)
        status = fnp.where(search.failed, 5, status)
        return _LbfgsState(
            converged,
            (status > 0) & ~converged,
            fnp.asarray(fnp.where(converged, 0, status), "int32"),
            s.x + move,
            search.f_k,
            search.g_k,
            s.memory.with_step(move, gradient_change, fnp.asarray(1 / product, real_dtype)),
            fnp.asarray(product / directional_derivative(fnp.conj(gradient_change), gradient_change), real_dtype),
            s.nfev + search.nfev,
            s.steps + 1,
        )

    false, zero = fnp.array(False), fnp.array(0, dtype="int32")
    rows = fnp.zeros((maxcor, x.size), x.dtype)
    memory = _History(rows, rows, fnp.zeros((maxcor,), real_dtype))
    first = _LbfgsState(false, false, zero, x, value, g, memory, fnp.ones((), real_dtype), zero + 1, zero)
    s = while_loop(lambda s: ~s.converged & ~s.failed, step, first)
    success = s.converged & ~s.failed
    return OptimizeResults(s.x, success, s.status, s.value, s.g, None, s.nfev, s.nfev, s.steps)


def _descent_direction(s: _LbfgsState) -> Array:
    """Returns the negative gradient times the estimated inverse Hessian (two-loop recursion)."""

    def first_loop(q: Array, row: _History) -> tuple[Array, Array]:
        weight = row.rhos * directional_derivative(fnp.conj(row.position_changes), q)
        return q - weight * fnp.conj(row.gradient_changes), weight

    def second_loop(q: Array, row: tuple[_History, Array]) -> tuple[Array, None]:
        step, weight = row
        return q + (weight - step.rhos * directional_derivative(step.gradient_changes, q)) * step.position_changes, None

    q, weights = scan(first_loop, -fnp.conj(s.g), s.memory, reverse=True)
    out, _ = scan(second_loop, s.scale * q, (s.memory, weights))
    return out
