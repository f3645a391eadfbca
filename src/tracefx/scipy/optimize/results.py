"""What a minimization gives."""

from __future__ import annotations

from typing import NamedTuple

from tracefx.core.array import Array


class OptimizeResults(NamedTuple):
    """What a minimization found, and how it went."""

    x: Array
    """Where the function is least, as far as was found."""
    success: Array
    """Whether the gradient there is small enough."""
    status: Array
    """0 if so; 1 after too many iterations; for BFGS 3 where the line search failed and 5 where it took too long; for
    L-BFGS 2 and 3 after too many evaluations, 4 where the function hardly decreased, 5 where the line search failed."""
    fun: Array
    """The function's value there."""
    jac: Array
    """Its gradient there."""
    hess_inv: Array | None
    """For BFGS, an estimate of the inverse of its second derivatives there."""
    nfev: Array
    """How often the function was evaluated."""
    njev: Array
    """How often its gradient was."""
    nit: Array
    """How many steps were made."""
