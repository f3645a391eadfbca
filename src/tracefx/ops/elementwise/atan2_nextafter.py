"""Functions of two floats: the angle of a point, and the number next to another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

import numpy as np
from typing_extensions import override

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import NDArray
from tracefx.core.primitive import Tangent
from tracefx.core.values import Value
from tracefx.ops.elementwise.arithmetic import div, mul, neg
from tracefx.ops.elementwise.elementwise import FLOATS, INEXACT, NonDifferentiable, Smooth, add, bind_binary
from tracefx.ops.elementwise.powers import square
from tracefx.ops.operation import run_compiled


@final
class Atan2(Smooth):
    __slots__ = ()
    name = "atan2"
    arity = 2
    domain = INEXACT
    hlo = "stablehlo.atan2"
    ufunc = np.arctan2

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        if dtypes.is_complex(args[0].aval.dtype):  # for which NumPy has none
            return run_compiled(self, args)
        return Smooth.evaluate(self, args)

    @override
    def numpy_kernel(self, *avals: ShapedArray) -> Callable[..., NDArray] | None:
        return None if dtypes.is_complex(avals[0].dtype) else self.ufunc

    @override
    def jvp_term(self, i: int, tangent: Value, out: Value, *primals: Value) -> Tangent:
        y, x = primals
        other = x if i == 0 else neg(y)
        return mul(tangent, div(other, add(square(y), square(x))))


@final
class NextAfter(NonDifferentiable):
    __slots__ = ()
    name = "nextafter"
    arity = 2
    domain = FLOATS
    hlo = "chlo.next_after"

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        x, y = args
        return np.where(x == y, y, np.nextafter(x, y))  # where NumPy's 16-bit floats keep the sign of a zero


ATAN2: Final = Atan2()
NEXTAFTER: Final = NextAfter()


def atan2(x: ArrayLike, y: ArrayLike) -> Array:
    """The angle between -π and π of the point whose ordinate is `x` and whose abscissa is `y`, elementwise.

    >>> atan2(0.0, 1.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return bind_binary(ATAN2, x, y)


def nextafter(x1: ArrayLike, x2: ArrayLike) -> Array:
    """The float next to `x1` in the direction of `x2`, elementwise; `x2` where they are equal.

    >>> nextafter(np.float32(1), np.float32(2)) > 1
    Array(True, dtype=bool)
    """
    return bind_binary(NEXTAFTER, x1, x2)
