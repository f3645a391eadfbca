"""Hyperbolic functions and their inverses.

All take floats or complex numbers, keep shape and dtype, and raise TypeError for other dtypes.
"""

from __future__ import annotations

from typing import Final, final

import numpy as np
from typing_extensions import override

from tracefx.core import Array, ArrayLike, Value
from tracefx.core.handler import bind1
from tracefx.ops.elementwise import complex_kernels, complex_lowering
from tracefx.ops.elementwise.accuracy import Accuracy, check_accuracy
from tracefx.ops.elementwise.arithmetic import div, mul, sub
from tracefx.ops.elementwise.complex_lowering import ComplexRule
from tracefx.ops.elementwise.elementwise import INEXACT_WITH_COMPLEX_FIXUP, add
from tracefx.ops.elementwise.transcendental import Transcendental, rsqrt


@final
class Sinh(Transcendental):
    """The hyperbolic sine, elementwise: `(exp(x) - exp(-x)) / 2`.

    `x: f32[...] -> f32[...]`, floats or complex numbers. Bound by `lax.sinh`.
    """

    name = "sinh"
    hlo = "chlo.sinh"
    complex_rule = ComplexRule(lower=complex_lowering.sinh)
    ufunc = np.sinh
    compiles_large = True

    @override
    def derivative(self, x: Value, out: Value) -> Value:
        return cosh(x)


@final
class Cosh(Transcendental):
    """The hyperbolic cosine, elementwise: `(exp(x) + exp(-x)) / 2`.

    `x: f32[...] -> f32[...]`, floats or complex numbers. Bound by `lax.cosh`.
    """

    name = "cosh"
    hlo = "chlo.cosh"
    complex_rule = ComplexRule(lower=complex_lowering.cosh)
    ufunc = np.cosh
    compiles_large = True

    @override
    def derivative(self, x: Value, out: Value) -> Value:
        return sinh(x)


@final
class Tanh(Transcendental):
    """The hyperbolic tangent, elementwise: `sinh(x) / cosh(x)`.

    `x: f32[...] -> f32[...]`, floats or complex numbers. Bound by `lax.tanh`.
    """

    name = "tanh"
    hlo = "stablehlo.tanh"
    complex_rule = ComplexRule(fixup=complex_lowering.tanh, kernel=complex_kernels.complex_tanh)
    ufunc = np.tanh
    compiles_large = True
    domain = INEXACT_WITH_COMPLEX_FIXUP

    @override
    def derivative(self, x: Value, out: Value) -> Value:
        return mul(add(out, 1.0), sub(1.0, out))


@final
class Asinh(Transcendental):
    """The inverse hyperbolic sine, elementwise: `log(x + sqrt(x**2 + 1))`.

    `x: f32[...] -> f32[...]`, floats or complex numbers. Bound by `lax.asinh`.
    """

    name = "asinh"
    hlo = "chlo.asinh"
    complex_rule = ComplexRule(fixup=complex_lowering.asinh)
    ufunc = np.arcsinh
    compiles_large = True

    @override
    def derivative(self, x: Value, out: Value) -> Value:
        return rsqrt(add(mul(x, x), 1.0))


@final
class Acosh(Transcendental):
    """The inverse hyperbolic cosine, elementwise: `log(x + sqrt(x**2 - 1))`; NaN for real `x` below 1.

    `x: f32[...] -> f32[...]`, floats or complex numbers. Bound by `lax.acosh`.
    """

    name = "acosh"
    hlo = "chlo.acosh"
    complex_rule = ComplexRule(fixup=complex_lowering.acosh)
    ufunc = np.arccosh

    @override
    def derivative(self, x: Value, out: Value) -> Value:
        return rsqrt(sub(mul(x, x), 1.0))


@final
class Atanh(Transcendental):
    """The inverse hyperbolic tangent, elementwise: `log((1 + x) / (1 - x)) / 2`; NaN for real `x` outside of [-1, 1].

    `x: f32[...] -> f32[...]`, floats or complex numbers. Bound by `lax.atanh`.
    """

    name = "atanh"
    hlo = "chlo.atanh"
    complex_rule = ComplexRule(fixup=complex_lowering.atanh)
    ufunc = np.arctanh

    @override
    def derivative(self, x: Value, out: Value) -> Value:
        return div(div(1.0, add(x, 1.0)), sub(1.0, x))


SINH: Final = Sinh()
COSH: Final = Cosh()
TANH: Final = Tanh()
ASINH: Final = Asinh()
ACOSH: Final = Acosh()
ATANH: Final = Atanh()


def sinh(x: ArrayLike) -> Array:
    """Returns the hyperbolic sine, elementwise.

    Args:
        x: Array of floats or complex numbers, or a number.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError: `x` is not a float or complex number.

    >>> sinh(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return bind1(SINH, x)


def cosh(x: ArrayLike) -> Array:
    """Returns the hyperbolic cosine, elementwise.

    Args:
        x: Array of floats or complex numbers, or a number.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError: `x` is not a float or complex number.

    >>> cosh(0.0)
    Array(1., dtype=float32, weak_type=True)
    """
    return bind1(COSH, x)


def tanh(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Returns the hyperbolic tangent, elementwise.

    Args:
        x: Array of floats or complex numbers, or a number.
        accuracy: The error bound of compiled code: an `AccuracyMode` or a `Tolerance`. None means XLA's default.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError: `x` is not a float or complex number, or `accuracy` has another type.

    >>> tanh(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return bind1(TANH if accuracy is None else Tanh(check_accuracy("tanh", accuracy)), x)


def asinh(x: ArrayLike) -> Array:
    """Returns the inverse hyperbolic sine, elementwise.

    Args:
        x: Array of floats or complex numbers, or a number.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError: `x` is not a float or complex number.

    >>> asinh(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return bind1(ASINH, x)


def acosh(x: ArrayLike) -> Array:
    """Returns the inverse hyperbolic cosine, elementwise.

    Args:
        x: Array of floats or complex numbers, or a number.

    Returns:
        An array of the same shape and dtype; non-negative for floats, NaN for floats below 1.

    Raises:
        TypeError: `x` is not a float or complex number.

    >>> acosh(1.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return bind1(ACOSH, x)


def atanh(x: ArrayLike) -> Array:
    """Returns the inverse hyperbolic tangent, elementwise.

    Args:
        x: Array of floats or complex numbers, or a number.

    Returns:
        An array of the same shape and dtype; NaN for floats outside of [-1, 1].

    Raises:
        TypeError: `x` is not a float or complex number.

    >>> atanh(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return bind1(ATANH, x)
