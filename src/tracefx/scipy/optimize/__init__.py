"""Minima of functions of vectors, with the names of `jax.scipy.optimize`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tracefx.core.array import Array, ArrayLike
from tracefx.numpy.creation import asarray
from tracefx.scipy.optimize.bfgs import minimize_bfgs
from tracefx.scipy.optimize.lbfgs import minimize_lbfgs
from tracefx.scipy.optimize.results import OptimizeResults

__all__ = ["OptimizeResults", "minimize"]


def minimize(
    fun: Callable[..., ArrayLike],
    x0: ArrayLike,
    args: tuple[Any, ...] = (),
    *,
    method: str,
    tol: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> OptimizeResults:
    """The minimum of a function of a vector, `fun(x, *args)`, that is found from `x0` (`f32[n]`) downwards.

    `method` is "BFGS", or "l-bfgs-experimental-do-not-rely-on-this", which keeps a few steps in place of a matrix.
    Options are `maxiter`, `gtol` (the gradient's largest entry that is small enough) and `norm` (2, say, in place of
    the largest entry); for BFGS `line_search_maxiter`; for L-BFGS `maxcor`, `ftol`, `maxfun`, `maxgrad` and `maxls`.
    `tol` has no effect.

    It can be compiled and batched. Of derivatives it has tangents: the number of steps isn't known before.

    Raises ValueError for an unknown method or an `x0` that is no vector, TypeError for `args` that is no tuple.

    >>> round(minimize(lambda x: (x - 2.0) @ (x - 2.0), asarray([0.0, 1.0]), method="BFGS").x, 3)
    Array([2., 2.], dtype=float32)
    """
    del tol  # as in JAX
    if not isinstance(args, tuple):
        raise TypeError(f"minimize: args must be a tuple of what fun takes besides x, got {args!r}")
    start = asarray(x0)
    if start.ndim != 1:
        raise ValueError(f"minimize: x0 must be a vector, got {start.aval}; ravel it, and reshape it in fun")

    def of_x(x: Array) -> ArrayLike:
        return fun(x, *args)

    match method.lower():
        case "bfgs":
            return minimize_bfgs(of_x, start, **(options or {}))
        case "l-bfgs-experimental-do-not-rely-on-this":
            return minimize_lbfgs(of_x, start, **(options or {}))
        case _:
            raise ValueError(
                f"minimize: method must be 'BFGS' or 'l-bfgs-experimental-do-not-rely-on-this', got {method!r}"
            )
