"""Rounding of floats to whole numbers: `floor`, `ceil`, `round`."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.core import Array, ArrayLike, NDArray, ShapedArray
from tracefx.core.handler import bind1
from tracefx.lowering import Builder, IrValue
from tracefx.ops.elementwise.elementwise import FLOATS, NonDifferentiable


@final
class Floor(NonDifferentiable):
    """The largest whole number that is not above `x`, elementwise.

    `x: f32[...] -> f32[...]`, floats. Bound by `lax.floor`.
    """

    name = "floor"
    domain = FLOATS
    hlo = "stablehlo.floor"
    ufunc = np.floor


@final
class Ceil(NonDifferentiable):
    """The smallest whole number that is not below `x`, elementwise.

    `x: f32[...] -> f32[...]`, floats. Bound by `lax.ceil`.
    """

    name = "ceil"
    domain = FLOATS
    hlo = "stablehlo.ceil"
    ufunc = np.ceil


@final
class RoundingMethod(IntEnum):
    """How `round` rounds a number halfway between two whole numbers."""

    AWAY_FROM_ZERO = 0
    """0.5 becomes 1, -0.5 becomes -1, 2.5 becomes 3."""
    TO_NEAREST_EVEN = 1
    """0.5 becomes 0, -0.5 becomes -0, 2.5 becomes 2."""


@final
@frozen(eq=False)
class Round(NonDifferentiable):
    """The nearest whole number, elementwise.

    Args:
        rounding_method: The direction in which numbers halfway between two whole numbers are rounded.

    `x: f32[...] -> f32[...]`, floats. Bound by `lax.round`.
    """

    name = "round"
    domain = FLOATS
    rounding_method: RoundingMethod

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        (x,) = args
        if self.rounding_method is RoundingMethod.TO_NEAREST_EVEN:
            out: NDArray = np.rint(x)
            return out
        whole: NDArray = np.trunc(x)
        up = (np.abs(x - whole) >= 0.5).astype(x.dtype)
        # Not by np.copysign, which returns NaN for zeros of dtypes without -0.0.
        rounded: NDArray = whole + np.where(np.signbit(x), -up, up)
        return rounded

    @override
    def emit_elementwise(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        even = self.rounding_method is RoundingMethod.TO_NEAREST_EVEN
        name = "stablehlo.round_nearest_even" if even else "stablehlo.round_nearest_afz"
        return builder.emit(name, operands, [out])[0]


FLOOR: Final = Floor()
CEIL: Final = Ceil()


def floor(x: ArrayLike) -> Array:
    """Returns the largest whole number not above `x`, elementwise.

    Args:
        x: Array of floats, or a float.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError: `x` is not of a float dtype.

    >>> floor(-1.5)
    Array(-2., dtype=float32, weak_type=True)
    """
    return bind1(FLOOR, x)


def ceil(x: ArrayLike) -> Array:
    """Returns the smallest whole number not below `x`, elementwise.

    Args:
        x: Array of floats, or a float.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError: `x` is not of a float dtype.

    >>> ceil(-1.5)
    Array(-1., dtype=float32, weak_type=True)
    """
    return bind1(CEIL, x)


def round(x: ArrayLike, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO) -> Array:
    """Returns the nearest whole number, elementwise, for floats.

    Args:
        x: Array of floats, or a float.
        rounding_method: Where halves go. By default away from zero; `RoundingMethod.TO_NEAREST_EVEN` is NumPy's way.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError: `x` is not of a float dtype.
        ValueError: `rounding_method` is not a `RoundingMethod`.

    >>> round(2.5), round(2.5, RoundingMethod.TO_NEAREST_EVEN)
    (Array(3., dtype=float32, weak_type=True), Array(2., dtype=float32, weak_type=True))
    """
    return bind1(Round(_method(rounding_method)), x)


def _method(rounding_method: RoundingMethod) -> RoundingMethod:
    try:
        return RoundingMethod(rounding_method)
    except ValueError:
        raise ValueError(
            f"round: rounding_method must be one of {', '.join(map(str, RoundingMethod.__members__))} of "
            f"RoundingMethod, got {rounding_method!r}"
        ) from None
