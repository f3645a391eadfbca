"""Broyden, Fletcher, Goldfarb and Shanno's method: an estimate of the second derivatives from the steps made.

Nocedal and Wright, Numerical optimization (1999), algorithm 6.1.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from tracefx import numpy as fnp
from tracefx.core.array import Array
from tracefx.lax import while_loop
from tracefx.scipy.optimize.line_search import Objective, line_search
from tracefx.scipy.optimize.results import OptimizeResults
from tracefx.transforms.gradients import value_and_grad


class _State(NamedTuple):
    converged: Array
    failed: Array
    line_status: Array
    x: Array
    value: Array
    before: Array
    """The function's value one step before."""
    g: Array
    inverse: Array
    """Of the second derivatives."""
    nfev: Array
    steps: Array


def length(v: Array, order: float) -> Array:
    """The norm of a vector: `order` infinity for its largest entry, 2 for its length, and so on."""
    sizes = fnp.abs(v)
    if order == math.inf:
        return fnp.max(sizes)
    if order == -math.inf:
        return fnp.min(sizes)
    if order == 0:
        return fnp.sum(sizes != 0).astype(sizes.dtype)
    if order == 2:
        return fnp.sqrt(fnp.sum(sizes * sizes))
    return fnp.sum(sizes**order) ** (1 / order)


def evaluate_with_gradient(f: Objective, x: Array) -> tuple[Array, Array]:
    """The function and its gradient, as arrays whose types last."""
    value, g = value_and_grad(f)(x)
    out = fnp.asarray(value)
    return fnp.asarray(out, out.dtype), fnp.asarray(g, x.dtype)


def minimize_bfgs(
    f: Objective,
    x: Array,
    maxiter: int | None = None,
    norm: float = math.inf,
    gtol: float = 1e-5,
    line_search_maxiter: int = 10,
) -> OptimizeResults:
    """Goes from `x` downwards."""
    most = 200 * x.size if maxiter is None else maxiter
    one = fnp.eye(x.size, dtype=x.dtype)
    value, g = evaluate_with_gradient(f, x)

    def step(s: _State) -> _State:
        p = -fnp.dot(s.inverse, s.g, precision="highest")
        found = line_search(f, s.x, p, s.value, s.g, line_search_maxiter, s.before)
        move, turn = found.a_k * p, found.g_k - s.g
        rho = 1 / fnp.dot(turn, move, precision="highest")
        w = one - rho * fnp.outer(move, turn)
        inverse = fnp.matmul(fnp.matmul(w, s.inverse, precision="highest"), w.T, precision="highest")
        inverse = inverse + rho * fnp.outer(move, move)
        return _State(
            length(found.g_k, norm) < gtol,
            found.failed,
            found.status,
            s.x + move,
            found.f_k,
            s.value,
            found.g_k,
            fnp.where(fnp.isfinite(rho), inverse, s.inverse),
            s.nfev + found.nfev,
            s.steps + 1,
        )

    zero = fnp.array(0, dtype="int32")
    before = value + length(g, 2) / 2
    converged = length(g, norm) < gtol
    first = _State(converged, fnp.array(False), zero, x, value, before, g, one, zero + 1, zero)
    s = while_loop(lambda s: ~s.converged & ~s.failed & (s.steps < most), step, first)
    stopped = fnp.where(s.steps == most, 1, fnp.where(s.failed, 2 + s.line_status, -1))
    status = fnp.where(s.converged, 0, stopped)
    success = s.converged & ~s.failed
    return OptimizeResults(s.x, success, status, s.value, s.g, s.inverse, s.nfev, s.nfev, s.steps)
