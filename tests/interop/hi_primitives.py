"""Hijax primitives for tests; their derivative rules deliberately differ from the derivatives of their expansion."""

from __future__ import annotations

from typing import Any, Final

from jax.experimental import hijax
from typing_extensions import override

_BASE: Final[Any] = getattr(hijax, "HiPrim", None) or hijax.VJPHiPrimitive
"""The base class of hijax primitives; its name was VJPHiPrimitive before JAX 0.11."""


class Tripled(_BASE):  # type: ignore[misc]  # the base class depends on the version of JAX
    """`3 * x`, whose derivative rules say 5."""

    def __init__(self, aval: Any) -> None:
        self.in_avals = (aval,)
        self.out_aval = aval
        self.params = {"aval": aval}
        super().__init__()

    @override
    def expand(self, x: Any) -> Any:
        return 3 * x

    @override
    def batch(self, axis: Any, args: Any, dims: Any) -> Any:
        (x,), (dim,) = args, dims
        return type(self)(x.aval)(x), dim


class TripledByJvp(Tripled):
    """`Tripled` with a JVP rule."""

    @override
    def jvp(self, primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        return self(x), 5 * t


class TripledByVjp(Tripled):
    """`Tripled` with VJP rules."""

    @override
    def vjp_fwd(self, nonzeros: Any, x: Any) -> Any:
        return self(x), None

    @override
    def vjp_bwd_retval(self, residuals: Any, ct: Any) -> Any:
        return (5 * ct,)
