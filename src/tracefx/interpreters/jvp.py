"""Forward-mode differentiation: the handler `JVP` and its tracers."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final, final

from attrs import field, frozen
from typing_extensions import override

from tracefx.core import Literal, NDArray, ShapedArray, Value
from tracefx.core.device import Device
from tracefx.core.handler import CURRENT, Handler, Origin, Tracer, bind_expansion, require_not_escaped
from tracefx.core.primitive import Differentiable, Expandable, Primitive, Tangent, Zero, missing_rule_error
from tracefx.errors import ConcretizationError, TracerBoolConversionError, TracerIntegerConversionError
from tracefx.source_location import SOURCE, at_location, current_provenance

PIECEWISE_CONSTANT: Final = frozenset({TracerBoolConversionError, TracerIntegerConversionError})
"""Conversions that are piecewise constant: their derivative is zero, so a program may depend on the result."""


@final
class JVPTracer(Tracer):
    """A primal with a tangent that may be nonzero; values whose tangent is zero stay unwrapped.

    A plain class rather than an attrs class, for the same reason as `StageTracer`: speed of construction.
    """

    __slots__ = ("aval", "handler", "origin", "primal", "tangent")
    aval: ShapedArray
    handler: JVP
    origin: Origin

    def __init__(self, handler: JVP, primal: Value, tangent: Value, origin: Origin) -> None:
        self.handler = handler
        self.primal = primal
        self.tangent = tangent
        self.origin = origin
        self.aval = primal.aval

    @property
    @override
    def parts(self) -> Sequence[Value]:
        return self.primal, self.tangent

    @property
    @override
    def device(self) -> Device | None:
        return self.primal.device

    @override
    def concrete_or_error(self, error: type[ConcretizationError], use: str = "") -> NDArray:
        if error not in PIECEWISE_CONSTANT:
            need = use or error.use
            require_not_escaped(self, f"by {need}")
            at = "" if isinstance(self.origin, str) else at_location(self.origin)
            raise error(
                f"{need} needs a concrete value, but a value of type {self.aval} is differentiated{at}: it would have "
                "no derivative. Use the functions of tracefx.numpy, or tracefx.lax.stop_gradient(x) if the derivative "
                "is to be zero"
            )
        return self.primal.numpy() if isinstance(self.primal, Literal) else self.primal.concrete_or_error(error, use)

    @override
    def __repr__(self) -> str:
        return f"JVPTracer({self.aval}, primal={self.primal}, tangent={self.tangent})"


@final
@frozen(eq=False)
class JVP(Handler):
    """The handler of forward-mode differentiation: applies the `jvp` rule of each primitive that has a tangent."""

    title = "differentiation"
    inner: Handler
    evaluates: bool = field(init=False, repr=False)
    thread: int = field(factory=threading.get_ident, init=False)

    @evaluates.default
    def _evaluates(self) -> bool:
        return self.inner.evaluates

    def wrap(self, primal: Value, tangent: Tangent) -> Value:
        """Returns a tracer of primal and tangent, or the primal itself if the tangent is `Zero`."""
        return primal if isinstance(tangent, Zero) else JVPTracer(self, primal, tangent, current_provenance())

    def unwrap(self, x: Value) -> tuple[Value, Tangent]:
        """Returns the primal and the tangent of a value; the tangent is `Zero` if it is no tracer of this handler."""
        if type(x) is JVPTracer and x.handler is self:
            return x.primal, x.tangent
        return x, Zero(x.aval.tangent())

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        for a in args:
            if type(a) is JVPTracer and a.handler is self:
                break
        else:
            return self.inner.bind(prim, args)
        if not isinstance(prim, Differentiable):
            if isinstance(prim, Expandable):
                return bind_expansion(self, prim, args)
            raise missing_rule_error(
                prim, "jvp", "inherit from Differentiable and define jvp(self, primals, tangents), or from Expandable"
            )
        primals: list[Value] = []
        tangents: list[Tangent] = []
        for a in args:
            if type(a) is JVPTracer and a.handler is self:
                primals.append(a.primal)
                tangents.append(a.tangent)
            else:
                primals.append(a)
                tangents.append(Zero(a.aval.tangent()))
        location = current_provenance(1)
        token, origin = CURRENT.set(self.inner), SOURCE.set(location)
        try:
            outs, out_tangents = prim.jvp(primals, tangents)
        finally:
            CURRENT.reset(token)
            SOURCE.reset(origin)
        if len(outs) == 1:  # fast path: nearly all primitives
            (p,), (t,) = outs, out_tangents
            return (p if type(t) is Zero else JVPTracer(self, p, t, location),)
        return [
            p if isinstance(t, Zero) else JVPTracer(self, p, t, location)
            for p, t in zip(outs, out_tangents, strict=True)
        ]
