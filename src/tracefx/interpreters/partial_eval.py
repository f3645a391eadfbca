"""Partial evaluation: records the equations that depend on unknown inputs, evaluates the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, final

from attrs import field, frozen
from typing_extensions import override

from tracefx.core import Value
from tracefx.core.handler import CURRENT
from tracefx.core.primitive import Primitive
from tracefx.interpreters.recording import Recording, StageTracer


@final
@frozen(eq=False)
class PartialEval(Recording):
    """The handler of partial evaluation: records primitives with an unknown operand, passes the others to `inner`.

    An unknown operand is a tracer of this handler.
    """

    title: ClassVar[str] = "partial evaluation"
    evaluates: bool = field(init=False, repr=False)

    @evaluates.default
    def _evaluates(self) -> bool:
        return self.inner.evaluates

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        for a in args:
            if type(a) is StageTracer and a.handler is self:
                if type(prim).partial_eval is Primitive.partial_eval:  # fast path: the default rule records
                    return self.record(prim, args)
                return prim.partial_eval(self, [self.owns(a) for a in args], args)
        return self.inner.bind(prim, args)

    def evaluate(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        """Binds a primitive that a `partial_eval` rule created, all of whose operands are known."""
        token = CURRENT.set(self.inner)
        try:
            return self.inner.bind(prim, args)
        finally:
            CURRENT.reset(token)
