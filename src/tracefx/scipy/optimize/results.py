"""`OptimizeResults`: the result of a minimization."""

from __future__ import annotations

from typing import NamedTuple

from tracefx.core import Array


class OptimizeResults(NamedTuple):
    """The result of `minimize`."""

    x: Array
    """The minimum found, `f32[n]`."""
    success: Array
    """Whether the gradient at `x` is small enough."""
    status: Array
    """0 on success; 1 if the number of iterations was exceeded.

    For BFGS, 3 if the line search failed and 5 if it took too many steps; for L-BFGS, 2 and 3 if the number of
    evaluations was exceeded, 4 if the function hardly decreased, 5 if the line search failed.
    """
    fun: Array
    """The value at `x`."""
    jac: Array
    """The gradient at `x`."""
    hess_inv: Array | None
    """The estimate of the inverse Hessian at `x` for BFGS, else None."""
    nfev: Array
    """The number of evaluations of the function."""
    njev: Array
    """The number of evaluations of the gradient."""
    nit: Array
    """The number of iterations."""
