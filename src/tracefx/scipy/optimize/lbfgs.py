"""BFGS with the last few steps in place of a matrix, for real and for complex vectors.

Nocedal and Wright, Numerical optimization (1999), algorithm 7.5; Sorber, Van Barel and De Lathauwer, Unconstrained
optimization of real functions in complex variables (2012).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from tracefx import numpy as fnp
from tracefx.core import dtypes
from tracefx.core.array import Array
from tracefx.lax import scan, while_loop
from tracefx.scipy.optimize.bfgs import evaluate_with_gradient, length
from tracefx.scipy.optimize.line_search import Objective, directional_derivative, line_search
from tracefx.scipy.optimize.results import OptimizeResults


class _History(NamedTuple):
    """The last steps, the newest last; rows of zeros where there were none yet."""

    position_changes: Array
    gradient_changes: Array
    """How the gradient changed with each."""
    rhos: Array

    def with_step(self, move: Array, turn: Array, rho: Array) -> _History:
        return _History(
            _append_row(self.position_changes, move),
            _append_row(self.gradient_changes, turn),
            _append_row(self.rhos, rho),
        )


class _State(NamedTuple):
    converged: Array
    failed: Array
    status: Array
    x: Array
    value: Array
    g: Array
    memory: _History
    scale: Array
    """The size of the inverse second derivatives, as far as the last step tells."""
    nfev: Array
    steps: Array


def _append_row(rows: Array, new: Array) -> Array:
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
    """Goes from `x` downwards."""
    if maxiter is None and maxfun is None and maxgrad is None:
        maxiter = 200 * x.size
    value, g = evaluate_with_gradient(f, x)
    part = dtypes.real_dtype(x.dtype)

    def step(s: _State) -> _State:
        p = _descent_direction(s)
        found = line_search(f, s.x, p, s.value, s.g, maxls)
        move, turn = fnp.asarray(found.a_k, p.dtype) * p, found.g_k - s.g
        product = directional_derivative(turn, move)
        converged = length(found.g_k, norm) < gtol
        # Of several reasons to stop the last counts.
        status = fnp.where(s.value - found.f_k < ftol, 4, 0)
        for reason, count, most in ((3, s.nfev, maxgrad), (2, s.nfev, maxfun), (1, s.steps, maxiter)):
            if most is not None:
                status = fnp.where(count >= most, reason, status)
        status = fnp.where(found.failed, 5, status)
        return _State(
            converged,
            (status > 0) & ~converged,
            fnp.asarray(fnp.where(converged, 0, status), "int32"),
            s.x + move,
            found.f_k,
            found.g_k,
            s.memory.with_step(move, turn, fnp.asarray(1 / product, part)),
            fnp.asarray(product / directional_derivative(fnp.conj(turn), turn), part),
            s.nfev + found.nfev,
            s.steps + 1,
        )

    false, zero = fnp.array(False), fnp.array(0, dtype="int32")
    rows = fnp.zeros((maxcor, x.size), x.dtype)
    memory = _History(rows, rows, fnp.zeros((maxcor,), part))
    first = _State(false, false, zero, x, value, g, memory, fnp.ones((), part), zero + 1, zero)
    s = while_loop(lambda s: ~s.converged & ~s.failed, step, first)
    success = s.converged & ~s.failed
    return OptimizeResults(s.x, success, s.status, s.value, s.g, None, s.nfev, s.nfev, s.steps)


def _descent_direction(s: _State) -> Array:
    """The gradient, negated, times the inverse second derivatives that the steps tell of."""

    def older(q: Array, row: _History) -> tuple[Array, Array]:
        weight = row.rhos * directional_derivative(fnp.conj(row.position_changes), q)
        return q - weight * fnp.conj(row.gradient_changes), weight

    def newer(q: Array, row: tuple[_History, Array]) -> tuple[Array, None]:
        of, weight = row
        return q + (weight - of.rhos * directional_derivative(of.gradient_changes, q)) * of.position_changes, None

    q, weights = scan(older, -fnp.conj(s.g), s.memory, reverse=True)
    out, _ = scan(newer, s.scale * q, (s.memory, weights))
    return out
