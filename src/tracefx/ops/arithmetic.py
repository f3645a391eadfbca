"""Arithmetic of two operands, and what is next to it: powers, signs, extremes. (`add` stands with its family.)"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import numpy as np
from typing_extensions import override

from tracefx.core.array import Array, ArrayLike
from tracefx.core.dtypes import NDArray
from tracefx.core.handler import bind1
from tracefx.core.primitive import Differentiable, Linear, Tangent, Transposable, Zero
from tracefx.core.values import Value
from tracefx.ops.elementwise import NUMBERS, Elementwise, Smooth, operands, unbroadcast

# ------------------------------------------------------------------ neg


@final
class Neg(Elementwise, Differentiable, Transposable):
    __slots__ = ()
    name = "neg"
    domain = NUMBERS
    hlo = "stablehlo.negate"

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        out: NDArray = np.negative(*args)
        return out

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        return [neg(*primals)], [negate(*tangents)]

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | Linear) -> Sequence[Tangent | None]:
        return [negate(*cts)]


NEG: Final = Neg()


def neg(x: ArrayLike) -> Array:
    """`-x`, elementwise; integers wrap around.

    >>> neg(np.float32(2))
    Array(-2., dtype=float32)
    """
    return bind1(NEG, x)


def negate(t: Tangent) -> Tangent:
    return t if isinstance(t, Zero) else neg(t)


@final
class Mul(Smooth, Transposable):
    __slots__ = ()
    name = "mul"
    domain = NUMBERS
    hlo = "stablehlo.multiply"

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        out: NDArray = np.multiply(*args)
        return out

    @override
    def push(self, i: int, tangent: Value, out: Value, *primals: Value) -> Tangent:
        return mul(tangent, primals[1]) if i == 0 else mul(primals[0], tangent)

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | Linear) -> Sequence[Tangent | None]:
        (ct,), (x, y) = cts, args
        assert not isinstance(ct, Zero)
        if isinstance(x, Linear):
            assert not isinstance(y, Linear)
            return [unbroadcast(mul(ct, y), x.aval), None]
        assert isinstance(y, Linear)
        return [None, unbroadcast(mul(x, ct), y.aval)]


MUL: Final = Mul()


def mul(x: ArrayLike, y: ArrayLike) -> Array:
    """`x * y`, elementwise.

    >>> mul(np.arange(3), 2)
    Array([0, 2, 4], dtype=int32)
    """
    return bind1(MUL, *operands(x, y))
