"""Inverse trigonometric functions, elementwise.

All take floats or complex numbers, keep shape and dtype, and raise TypeError for other dtypes.
"""

from __future__ import annotations

from typing import Final, final

import numpy as np
from typing_extensions import override

from tracefx.core import Array, ArrayLike, Value
from tracefx.core.handler import bind1
from tracefx.ops.elementwise import complex_lowering
from tracefx.ops.elementwise.arithmetic import mul, neg, sub
from tracefx.ops.elementwise.complex_lowering import ComplexRule
from tracefx.ops.elementwise.elementwise import add
from tracefx.ops.elementwise.transcendental import ReciprocalDerivative, Transcendental, rsqrt


@final
class Asin(Transcendental):
    """The inverse sine, elementwise: an angle between -π/2 and π/2; NaN for floats outside of [-1, 1].

    `x: f32[...] -> f32[...]`, floats or complex numbers. Bound by `lax.asin`.
    """

    name = "asin"
    hlo = "chlo.asin"
    complex_rule = ComplexRule(fixup=complex_lowering.asin)
    ufunc = np.arcsin

    @override
    def derivative(self, x: Value, out: Value) -> Value:
        return rsqrt(sub(1.0, mul(x, x)))


@final
class Acos(Transcendental):
    """The inverse cosine, elementwise: an angle between 0 and π; NaN for floats outside of [-1, 1].

    `x: f32[...] -> f32[...]`, floats or complex numbers. Bound by `lax.acos`.
    """

    name = "acos"
    hlo = "chlo.acos"
    complex_rule = ComplexRule(fixup=complex_lowering.acos)
    ufunc = np.arccos

    @override
    def derivative(self, x: Value, out: Value) -> Value:
        return neg(rsqrt(sub(1.0, mul(x, x))))


@final
class Atan(ReciprocalDerivative):
    """The inverse tangent, elementwise: an angle between -π/2 and π/2.

    `x: f32[...] -> f32[...]`, floats or complex numbers. Bound by `lax.atan`.
    """

    name = "atan"
    hlo = "chlo.atan"
    complex_rule = ComplexRule(fixup=complex_lowering.atan)
    ufunc = np.arctan

    @override
    def divisor(self, x: Value) -> Value:
        return add(mul(x, x), 1.0)


ASIN: Final = Asin()
ACOS: Final = Acos()
ATAN: Final = Atan()


def asin(x: ArrayLike) -> Array:
    """Returns the inverse sine, elementwise: an angle between -π/2 and π/2.

    Args:
        x: Array of floats or complex numbers, or a number.

    Returns:
        An array of the same shape and dtype; NaN for floats outside of [-1, 1].

    Raises:
        TypeError: `x` is not a float or complex number.

    >>> asin(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return bind1(ASIN, x)


def acos(x: ArrayLike) -> Array:
    """Returns the inverse cosine, elementwise: an angle between 0 and π.

    Args:
        x: Array of floats or complex numbers, or a number.

    Returns:
        An array of the same shape and dtype; NaN for floats outside of [-1, 1].

    Raises:
        TypeError: `x` is not a float or complex number.

    >>> acos(1.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return bind1(ACOS, x)


def atan(x: ArrayLike) -> Array:
    """Returns the inverse tangent, elementwise: an angle between -π/2 and π/2.

    Args:
        x: Array of floats or complex numbers, or a number.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError: `x` is not a float or complex number.

    >>> atan(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return bind1(ATAN, x)
