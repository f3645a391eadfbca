"""Minimization of functions of vectors, with the names of `jax.scipy.optimize`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tracefx.core import Array, ArrayLike
from tracefx.filtered_tracebacks import api_boundary
from tracefx.numpy.creation import asarray
from tracefx.scipy.optimize.bfgs import minimize_bfgs
from tracefx.scipy.optimize.lbfgs import minimize_lbfgs
from tracefx.scipy.optimize.results import OptimizeResults

__all__ = ["OptimizeResults", "minimize"]


@api_boundary
def minimize(
    fun: Callable[..., ArrayLike],
    x0: ArrayLike,
    args: tuple[Any, ...] = (),
    *,
    method: str,
    tol: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> OptimizeResults:
    """Minimizes a scalar function of a vector.

    It can be compiled, batched, and differentiated in forward mode; reverse mode is not supported, since the number of
    iterations is not known in advance.

    Args:
        fun: the objective, called as `fun(x, *args)` with `x` of the shape of `x0`; it returns a scalar.
        x0: the initial guess, `f32[n]`.
        args: further arguments of `fun`.
        method: `"BFGS"`, or `"l-bfgs-experimental-do-not-rely-on-this"`, which keeps the last few steps instead of a
            matrix.
        tol: accepted for compatibility with SciPy; it has no effect.
        options: `maxiter`, the maximum number of iterations; `gtol`, the norm of the gradient at which to stop; `norm`,
            the order of that norm (infinity by default); for BFGS also `line_search_maxiter`; for L-BFGS also `maxcor`,
            `ftol`, `maxfun`, `maxgrad` and `maxls`.

    Returns:
        The minimum found, and how the search went.

    Raises:
        TypeError: if `args` is not a tuple.
        ValueError: if `method` is unknown, or `x0` is not a vector.

    >>> round(minimize(lambda x: (x - 2.0) @ (x - 2.0), asarray([0.0, 1.0]), method="BFGS").x, 3)
    Array([2., 2.], dtype=float32)
    """
    del tol  # ignored, as in JAX
    if not isinstance(args, tuple):
        raise TypeError(f"minimize: args must be a tuple of further arguments of fun, got {args!r}")
    start = asarray(x0)
    if start.ndim != 1:
        raise ValueError(f"minimize: x0 must be a vector, got {start.aval}; ravel it, and reshape it in fun")

    def objective(x: Array) -> ArrayLike:
        return fun(x, *args)

    match method.lower():
        case "bfgs":
            return minimize_bfgs(objective, start, **(options or {}))
        case "l-bfgs-experimental-do-not-rely-on-this":
            return minimize_lbfgs(objective, start, **(options or {}))
        case _:
            raise ValueError(
                f"minimize: method must be 'BFGS' or 'l-bfgs-experimental-do-not-rely-on-this', got {method!r}"
            )
