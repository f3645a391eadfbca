"""Operations linear in each of two operands: contractions, convolutions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from typing_extensions import override

from tracefx.core.avals import ShapedArray
from tracefx.core.handler import bind1
from tracefx.core.primitive import Differentiable, Linear, Primitive, Tangent, Transposable, Zero, not_linear
from tracefx.core.values import Value
from tracefx.ops.basis import fit
from tracefx.ops.elementwise import add_tangents


class Bilinear(Primitive, Differentiable, Transposable):
    """Linear in the first operand and in the second; what others there are has no derivative. It has one output."""

    __slots__ = ()

    @abstractmethod
    def pulled_left(self, ct: Value, x: ShapedArray, y: Value, *others: Value) -> Tangent:
        """The cotangent of the first operand, which has the type `x`."""
        raise NotImplementedError

    @abstractmethod
    def pulled_right(self, ct: Value, x: Value, y: ShapedArray, *others: Value) -> Tangent:
        """The cotangent of the second operand, which has the type `y`."""
        raise NotImplementedError

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        out = bind1(self, *primals)
        (x, y, *others), (dx, dy, *_) = primals, tangents
        aval = out.aval.tangent()
        left = dx if isinstance(dx, Zero) else fit(bind1(self, dx, y, *others), aval)
        right = dy if isinstance(dy, Zero) else fit(bind1(self, x, dy, *others), aval)
        if isinstance(left, Zero) and isinstance(right, Zero):
            return [out], [Zero(aval)]
        return [out], [add_tangents(left, right)]

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | Linear) -> Sequence[Tangent | None]:
        (ct,), (x, y, *others) = cts, args
        assert not isinstance(ct, Zero)
        known = [a for a in others if not isinstance(a, Linear)]
        nothing: list[Tangent | None] = [None] * len(known)
        if isinstance(x, Linear):
            if isinstance(y, Linear):
                raise not_linear(self)
            return [self.pulled_left(ct, x.aval, y, *known), None, *nothing]
        assert isinstance(y, Linear)
        return [None, self.pulled_right(ct, x, y.aval, *known), *nothing]
