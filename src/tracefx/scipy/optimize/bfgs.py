"""The BFGS method (Broyden, Fletcher, Goldfarb, Shanno), a quasi-Newton method.

Nocedal and Wright, Numerical optimization (1999), algorithm 6.1.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from tracefx import numpy as fnp
from tracefx.core import Array
from tracefx.lax import while_loop
from tracefx.scipy.optimize.line_search import Objective, line_search
from tracefx.scipy.optimize.results import OptimizeResults
from tracefx.transforms.gradients import value_and_grad


class _BfgsState(NamedTuple):
    """The state of the iteration."""

    converged: Array
    failed: Array
    line_status: Array
    x: Array
    value: Array
    before: Array
    """The value one iteration before."""
    g: Array
    """The gradient at `x`."""
    inverse: Array
    """The estimate of the inverse Hessian."""
    nfev: Array
    steps: Array


def vector_norm(v: Array, order: float) -> Array:
    """Computes the norm of a vector: of order infinity the largest absolute value, of order 2 the Euclidean norm."""
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
    """Returns the value and the gradient, as strongly typed arrays of the dtypes that the loop carries."""
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
    """Minimizes `f` from `x` on; see `minimize`."""
    max_steps = 200 * x.size if maxiter is None else maxiter
    identity = fnp.eye(x.size, dtype=x.dtype)
    value, g = evaluate_with_gradient(f, x)

    def step(s: _BfgsState) -> _BfgsState:
        p = -fnp.dot(s.inverse, s.g, precision="highest")
        search = line_search(f, s.x, p, s.value, s.g, line_search_maxiter, s.before)
        move, gradient_change = search.a_k * p, search.g_k - s.g
        rho = 1 / fnp.dot(gradient_change, move, precision="highest")
        w = identity - rho * fnp.outer(move, gradient_change)
        inverse = fnp.matmul(fnp.matmul(w, s.inverse, precision="highest"), w.T, precision="highest")
        inverse = inverse + rho * fnp.outer(move, move)
        return _BfgsState(
            vector_norm(search.g_k, norm) < gtol,
            search.failed,
            search.status,
            s.x + move,
            search.f_k,
            s.value,
            search.g_k,
            fnp.where(fnp.isfinite(rho), inverse, s.inverse),
            s.nfev + search.nfev,
            s.steps + 1,
        )

    zero = fnp.array(0, dtype="int32")
    before = value + vector_norm(g, 2) / 2
    converged = vector_norm(g, norm) < gtol
    first = _BfgsState(converged, fnp.array(False), zero, x, value, before, g, identity, zero + 1, zero)
    s = while_loop(lambda s: ~s.converged & ~s.failed & (s.steps < max_steps), step, first)
    stopped = fnp.where(s.steps == max_steps, 1, fnp.where(s.failed, 2 + s.line_status, -1))
    status = fnp.where(s.converged, 0, stopped)
    success = s.converged & ~s.failed
    return OptimizeResults(s.x, success, status, s.value, s.g, s.inverse, s.nfev, s.nfev, s.steps)
