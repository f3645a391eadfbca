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
from tracefx.scipy.optimize.bfgs import evaluated, length
from tracefx.scipy.optimize.line_search import Objective, line_search, slope_along
from tracefx.scipy.optimize.results import OptimizeResults


class _Memory(NamedTuple):
    """The last steps, the newest last; rows of zeros where there were none yet."""

    moves: Array
    turns: Array
    """How the gradient changed with each."""
    rhos: Array

    def pushed(self, move: Array, turn: Array, rho: Array) -> _Memory:
        return _Memory(_pushed(self.moves, move), _pushed(self.turns, turn), _pushed(self.rhos, rho))


class _State(NamedTuple):
    converged: Array
    failed: Array
    status: Array
    x: Array
    value: Array
    g: Array
    memory: _Memory
    scale: Array
    """The size of the inverse second derivatives, as far as the last step tells."""
    nfev: Array
    steps: Array


def _pushed(rows: Array, new: Array) -> Array:
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
    value, g = evaluated(f, x)
    part = dtypes.real_dtype(x.dtype)

    def step(s: _State) -> _State:
        p = _direction(s)
        found = line_search(f, s.x, p, s.value, s.g, maxls)
        move, turn = fnp.asarray(found.a_k, p.dtype) * p, found.g_k - s.g
        product = slope_along(turn, move)
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
            s.memory.pushed(move, turn, fnp.asarray(1 / product, part)),
            fnp.asarray(product / slope_along(fnp.conj(turn), turn), part),
            s.nfev + found.nfev,
            s.steps + 1,
        )

    false, zero = fnp.array(False), fnp.array(0, dtype="int32")
    rows = fnp.zeros((maxcor, x.size), x.dtype)
    memory = _Memory(rows, rows, fnp.zeros((maxcor,), part))
    first = _State(false, false, zero, x, value, g, memory, fnp.ones((), part), zero + 1, zero)
    s = while_loop(lambda s: ~s.converged & ~s.failed, step, first)
    success = s.converged & ~s.failed
    return OptimizeResults(s.x, success, s.status, s.value, s.g, None, s.nfev, s.nfev, s.steps)


def _direction(s: _State) -> Array:
    """The gradient, negated, times the inverse second derivatives that the steps tell of."""

    def older(q: Array, row: _Memory) -> tuple[Array, Array]:
        weight = row.rhos * slope_along(fnp.conj(row.moves), q)
        return q - weight * fnp.conj(row.turns), weight

    def newer(q: Array, row: tuple[_Memory, Array]) -> tuple[Array, None]:
        of, weight = row
        return q + (weight - of.rhos * slope_along(of.turns, q)) * of.moves, None

    q, weights = scan(older, -fnp.conj(s.g), s.memory, reverse=True)
    out, _ = scan(newer, s.scale * q, (s.memory, weights))
    return out
