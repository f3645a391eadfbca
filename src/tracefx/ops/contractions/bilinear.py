"""`Bilinear`, the base of contractions and convolutions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from typing_extensions import override

from tracefx.core import ShapedArray, Value
from tracefx.core.handler import bind1
from tracefx.core.primitive import Differentiable, Primitive, Tangent, UndefinedPrimal, Zero, not_linear_error
from tracefx.ops.elementwise.elementwise import add_tangents
from tracefx.ops.operation import HasPullback
from tracefx.ops.structural import match_aval


class Bilinear(Primitive, Differentiable, HasPullback):
    """A primitive with one output that is linear in its first and in its second operand; others have no derivative."""

    __slots__ = ()

    @abstractmethod
    def transpose_lhs(self, ct: Value, x: ShapedArray, y: Value, *others: Value) -> Tangent:
        """Returns the cotangent of the first operand, which has the aval `x`."""
        raise NotImplementedError

    @abstractmethod
    def transpose_rhs(self, ct: Value, x: Value, y: ShapedArray, *others: Value) -> Tangent:
        """Returns the cotangent of the second operand, which has the aval `y`."""
        raise NotImplementedError

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        out = bind1(self, *primals)
        (x, y, *others), (dx, dy, *_) = primals, tangents
        aval = out.aval.tangent()
        left = dx if isinstance(dx, Zero) else match_aval(bind1(self, dx, y, *others), aval)
        right = dy if isinstance(dy, Zero) else match_aval(bind1(self, x, dy, *others), aval)
        if isinstance(left, Zero) and isinstance(right, Zero):
            return [out], [Zero(aval)]
        return [out], [add_tangents(left, right)]

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        x, y, *others = args
        known = [a for a in others if not isinstance(a, UndefinedPrimal)]
        other_cts: list[Tangent | None] = [None] * len(known)
        if isinstance(x, UndefinedPrimal):
            if isinstance(y, UndefinedPrimal):
                raise not_linear_error(self)
            return [self.transpose_lhs(ct, x.aval, y, *known), None, *other_cts]
        assert isinstance(y, UndefinedPrimal)
        return [None, self.transpose_rhs(ct, x, y.aval, *known), *other_cts]
