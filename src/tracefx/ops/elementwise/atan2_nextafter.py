"""`atan2` and `nextafter`, functions of two floats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

import numpy as np
from typing_extensions import override

from tracefx.core import Array, ArrayLike, NDArray, ShapedArray, Value, dtypes
from tracefx.core.primitive import Tangent
from tracefx.ops.elementwise.arithmetic import div, mul, neg
from tracefx.ops.elementwise.elementwise import FLOATS, INEXACT, NonDifferentiable, Smooth, add, bind_binary
from tracefx.ops.elementwise.powers import square
from tracefx.ops.operation import run_compiled


@final
class Atan2(Smooth):
    """The angle, from -π to π, of the point with ordinate `x` and abscissa `y`, elementwise: `atan(x / y)` if `y > 0`.

    `x: f32[...], y: f32[...] -> f32[...]`, floats or complex numbers. Bound by `lax.atan2`.
    """

    name = "atan2"
    arity = 2
    domain = INEXACT
    hlo = "stablehlo.atan2"
    ufunc = np.arctan2

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        if dtypes.is_complex(args[0].aval.dtype):  # NumPy has no complex arctan2
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
    """The next representable float after `x` towards `y`, elementwise; `y` if they are equal.

    `x: f32[...], y: f32[...] -> f32[...]`, floats. Bound by `lax.nextafter`.
    """

    name = "nextafter"
    arity = 2
    domain = FLOATS
    hlo = "chlo.next_after"

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        x, y = args
        return np.where(x == y, y, np.nextafter(x, y))  # NumPy returns x for equal zeros of 16 bits


ATAN2: Final = Atan2()
NEXTAFTER: Final = NextAfter()


def atan2(x: ArrayLike, y: ArrayLike) -> Array:
    """Returns the angle, from -π to π, of the point with ordinate `x` and abscissa `y`, elementwise.

    Args:
        x: Ordinates: floats or complex numbers.
        y: Abscissas, of the same dtype. Scalars and axes of size 1 are broadcast.

    Returns:
        An array of the broadcast shape and the common dtype: the inverse tangent of `x / y` in the right quadrant.

    Raises:
        TypeError: The dtypes differ or are not inexact, or the shapes don't broadcast.

    >>> atan2(0.0, 1.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return bind_binary(ATAN2, x, y)


def nextafter(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Returns the next representable float after `x1` towards `x2`, elementwise.

    Args:
        x1: Floats.
        x2: Floats of the same dtype. Scalars and axes of size 1 are broadcast.

    Returns:
        An array of the broadcast shape and the common dtype; `x2` where the operands are equal.

    Raises:
        TypeError: The operands are not floats of one dtype, or the shapes don't broadcast.

    >>> nextafter(np.float32(1), np.float32(2)) > 1
    Array(True, dtype=bool)
    """
    return bind_binary(NEXTAFTER, x1, x2)
