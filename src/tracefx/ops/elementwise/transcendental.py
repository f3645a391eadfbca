"""Exponentials, logarithms, sine, cosine, tangent, roots: smooth functions of one operand.

All take floats or complex numbers (`cbrt` only floats), keep shape and dtype, and raise TypeError for other dtypes.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Final, final

import numpy as np
from typing_extensions import override

from tracefx.core import Array, ArrayLike, DType, NDArray, ShapedArray, Value, dtypes
from tracefx.core.handler import bind1
from tracefx.core.primitive import Tangent
from tracefx.lowering import Builder, IrValue
from tracefx.ops import stablehlo
from tracefx.ops.elementwise import complex_kernels, complex_lowering
from tracefx.ops.elementwise.accuracy import Accuracy, HasAccuracy, check_accuracy
from tracefx.ops.elementwise.arithmetic import MUL, div, mul, neg, sub
from tracefx.ops.elementwise.complex_lowering import ComplexRule
from tracefx.ops.elementwise.elementwise import FLOATS, INEXACT, INEXACT_WITH_COMPLEX_FIXUP, add


class Transcendental(HasAccuracy):
    """A function of one float or complex operand, differentiated by a formula for its derivative."""

    __slots__ = ()
    domain = INEXACT

    @abstractmethod
    def derivative(self, x: Value, out: Value) -> Value:
        """Returns the derivative at `x`, where the function has the value `out`."""
        raise NotImplementedError

    @override
    def jvp_term(self, i: int, tangent: Value, out: Value, *primals: Value) -> Tangent:
        return bind1(MUL, tangent, self.derivative(primals[0], out))


class ReciprocalDerivative(HasAccuracy):
    """A function of one float or complex operand, differentiated by a formula for `1 / derivative`."""

    __slots__ = ()
    domain = INEXACT

    @abstractmethod
    def divisor(self, x: Value) -> Value:
        """Returns 1 divided by the derivative at `x`."""
        raise NotImplementedError

    @override
    def jvp_term(self, i: int, tangent: Value, out: Value, *primals: Value) -> Tangent:
        return div(tangent, self.divisor(primals[0]))


# ------------------------------------------------------------------ exponentials and logarithms


@final
class Exp(Transcendental):
    """The exponential function, elementwise: `e**x`.

    `x: f32[...] -> f32[...]`, floats or complex numbers. Bound by `lax.exp`.
    """

    name = "exp"
    hlo = "stablehlo.exponential"
    complex_rule = ComplexRule(fixup=complex_lowering.exp)
    ufunc = np.exp
    compiles_large = True

    @override
    def derivative(self, x: Value, out: Value) -> Value:
        return out


@final
class Exp2(Transcendental):
    """The exponential function with base 2, elementwise: `2**x`.

    `x: f32[...] -> f32[...]`, floats or complex numbers. Bound by `lax.exp2`.
    """

    name = "exp2"
    ufunc = np.exp2
    compiles_large = True

    @override
    def derivative(self, x: Value, out: Value) -> Value:
        return mul(out, math.log(2.0))

    @override
    def emit_elementwise(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        if dtypes.is_complex(out.dtype):
            (x,) = operands
            return complex_lowering.emit_exp2(builder, x)
        log2 = stablehlo.emit_full(builder, math.log(2.0), out)
        (scaled,) = builder.emit("stablehlo.multiply", [log2, *operands], [out])
        return builder.emit("stablehlo.exponential", [scaled], [out], self.accuracy_attrs())[0]


@final
class Expm1(Transcendental):
    """The exponential function minus 1, elementwise: `exp(x) - 1` without cancellation near 0.

    `x: f32[...] -> f32[...]`, floats or complex numbers. Bound by `lax.expm1`.
    """

    name = "expm1"
    hlo = "stablehlo.exponential_minus_one"
    complex_rule = ComplexRule(fixup=complex_lowering.expm1, kernel=complex_kernels.complex_expm1)
    ufunc = np.expm1
    compiles_large = True
    domain = INEXACT_WITH_COMPLEX_FIXUP

    @override
    def derivative(self, x: Value, out: Value) -> Value:
        return add(out, 1.0)


@final
class Log(ReciprocalDerivative):
    """The natural logarithm, elementwise: -inf at 0, NaN for negative floats.

    `x: f32[...] -> f32[...]`, floats or complex numbers. Bound by `lax.log`.
    """

    name = "log"
    hlo = "stablehlo.log"
    complex_rule = ComplexRule(fixup=complex_lowering.log)
    ufunc = np.log
    compiles_large = True

    @override
    def divisor(self, x: Value) -> Value:
        return x


@final
class Log1p(ReciprocalDerivative):
    """The natural logarithm of a number plus 1, elementwise: `log(1 + x)` without cancellation near 0.

    `x: f32[...] -> f32[...]`, floats or complex numbers. Bound by `lax.log1p`.
    """

    name = "log1p"
    hlo = "stablehlo.log_plus_one"
    complex_rule = ComplexRule(fixup=complex_lowering.log, kernel=complex_kernels.complex_log1p)
    ufunc = np.log1p
    compiles_large = True
    domain = INEXACT_WITH_COMPLEX_FIXUP

    @override
    def divisor(self, x: Value) -> Value:
        return add(x, 1.0)


@final
class Logistic(Transcendental):
    """The logistic function (sigmoid), elementwise: `1 / (1 + exp(-x))`.

    `x: f32[...] -> f32[...]`, floats or complex numbers. Bound by `lax.logistic`.
    """

    name = "logistic"
    compiles_large = True

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        (x,) = args
        wide = np.asarray(np.negative(x.astype(_accumulation_dtype(x.dtype), copy=False)))
        np.exp(wide, out=wide)  # in place: a new large array takes longer than a step
        wide += 1
        return np.asarray(np.divide(1, wide, out=wide), x.dtype)

    @override
    def derivative(self, x: Value, out: Value) -> Value:
        return mul(out, sub(1.0, out))

    @override
    def emit_elementwise(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        one = stablehlo.emit_full(builder, 1, out)
        (minus,) = builder.emit("stablehlo.negate", operands, [out])
        (decay,) = builder.emit("stablehlo.exponential", [minus], [out])
        return builder.emit("stablehlo.divide", [one, *builder.emit("stablehlo.add", [one, decay], [out])], [out])[0]


# ------------------------------------------------------------------ trigonometric functions


@final
class Sin(Transcendental):
    """The sine, elementwise: `sin(x)`, with `x` in radians.

    `x: f32[...] -> f32[...]`, floats or complex numbers. Bound by `lax.sin`.
    """

    name = "sin"
    hlo = "stablehlo.sine"
    complex_rule = ComplexRule(lower=complex_lowering.sin)
    ufunc = np.sin

    @override
    def derivative(self, x: Value, out: Value) -> Value:
        return cos(x, accuracy=self.accuracy)


@final
class Cos(Transcendental):
    """The cosine, elementwise: `cos(x)`, with `x` in radians.

    `x: f32[...] -> f32[...]`, floats or complex numbers. Bound by `lax.cos`.
    """

    name = "cos"
    hlo = "stablehlo.cosine"
    complex_rule = ComplexRule(lower=complex_lowering.cos)
    ufunc = np.cos

    @override
    def derivative(self, x: Value, out: Value) -> Value:
        return neg(sin(x, accuracy=self.accuracy))


@final
class Tan(Transcendental):
    """The tangent, elementwise: `sin(x) / cos(x)`, with `x` in radians.

    `x: f32[...] -> f32[...]`, floats or complex numbers. Bound by `lax.tan`.
    """

    name = "tan"
    hlo = "stablehlo.tan"
    complex_rule = ComplexRule(fixup=complex_lowering.tan, kernel=complex_kernels.complex_tan)
    ufunc = np.tan
    domain = INEXACT_WITH_COMPLEX_FIXUP

    @override
    def derivative(self, x: Value, out: Value) -> Value:
        return add(mul(out, out), 1.0)


# ------------------------------------------------------------------ roots


@final
class Sqrt(Transcendental):
    """The square root, elementwise: `x**(1/2)`; NaN for negative floats.

    `x: f32[...] -> f32[...]`, floats or complex numbers. Bound by `lax.sqrt`.
    """

    name = "sqrt"
    hlo = "stablehlo.sqrt"
    complex_rule = ComplexRule(fixup=complex_lowering.sqrt)
    ufunc = np.sqrt

    @override
    def derivative(self, x: Value, out: Value) -> Value:
        return div(0.5, out)


@final
class Rsqrt(Transcendental):
    """The reciprocal square root, elementwise: `1 / sqrt(x)`.

    `x: f32[...] -> f32[...]`, floats or complex numbers. Bound by `lax.rsqrt`.
    """

    name = "rsqrt"
    hlo = "stablehlo.rsqrt"

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        (x,) = args
        root = np.asarray(np.sqrt(x.astype(_accumulation_dtype(x.dtype), copy=False)))
        return np.asarray(np.divide(1, root, out=root), x.dtype)

    @override
    def derivative(self, x: Value, out: Value) -> Value:
        return mul(-0.5, div(out, x))


@final
class Cbrt(Transcendental):
    """The cube root, elementwise: `x**(1/3)`, with the sign of `x`.

    `x: f32[...] -> f32[...]`, floats. Bound by `lax.cbrt`.
    """

    name = "cbrt"
    domain = FLOATS
    hlo = "stablehlo.cbrt"
    ufunc = np.cbrt

    @override
    def derivative(self, x: Value, out: Value) -> Value:
        inverse = div(1.0, out)
        return mul(1.0 / 3.0, mul(inverse, inverse))  # its own derivative is right at 0 and infinity


def _accumulation_dtype(dtype: DType) -> DType:
    """Returns the dtype in which kernels of several steps compute floats of this dtype."""
    return dtype if dtypes.itemsize_bits(dtype) >= 32 else dtypes.float32


# ------------------------------------------------------------------ functions


EXP: Final = Exp()
EXP2: Final = Exp2()
EXPM1: Final = Expm1()
LOG: Final = Log()
LOG1P: Final = Log1p()
LOGISTIC: Final = Logistic()
SIN: Final = Sin()
COS: Final = Cos()
TAN: Final = Tan()
SQRT: Final = Sqrt()
RSQRT: Final = Rsqrt()
CBRT: Final = Cbrt()


def exp(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Returns `e` to the power `x`, elementwise.

    Args:
        x: Array of floats or complex numbers, or a number.
        accuracy: The error bound of compiled code: an `AccuracyMode` or a `Tolerance`. None means XLA's default.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError: `x` is not a float or complex number, or `accuracy` has another type.

    >>> exp(0.0)
    Array(1., dtype=float32, weak_type=True)
    """
    return bind1(EXP if accuracy is None else Exp(check_accuracy("exp", accuracy)), x)


def exp2(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Returns 2 to the power `x`, elementwise.

    Args:
        x: Array of floats or complex numbers, or a number.
        accuracy: The error bound of compiled code: an `AccuracyMode` or a `Tolerance`. None means XLA's default.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError: `x` is not a float or complex number, or `accuracy` has another type.

    >>> exp2(3.0)
    Array(8., dtype=float32, weak_type=True)
    """
    return bind1(EXP2 if accuracy is None else Exp2(check_accuracy("exp2", accuracy)), x)


def expm1(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Returns `exp(x) - 1`, elementwise, without cancellation near 0.

    Args:
        x: Array of floats or complex numbers, or a number.
        accuracy: The error bound of compiled code: an `AccuracyMode` or a `Tolerance`. None means XLA's default.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError: `x` is not a float or complex number, or `accuracy` has another type.

    >>> expm1(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return bind1(EXPM1 if accuracy is None else Expm1(check_accuracy("expm1", accuracy)), x)


def log(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Returns the natural logarithm, elementwise.

    Args:
        x: Array of floats or complex numbers, or a number.
        accuracy: The error bound of compiled code: an `AccuracyMode` or a `Tolerance`. None means XLA's default.

    Returns:
        An array of the same shape and dtype; -inf at 0, NaN for negative floats.

    Raises:
        TypeError: `x` is not a float or complex number, or `accuracy` has another type.

    >>> log(1.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return bind1(LOG if accuracy is None else Log(check_accuracy("log", accuracy)), x)


def log1p(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Returns `log(1 + x)`, elementwise, without cancellation near 0.

    Args:
        x: Array of floats or complex numbers, or a number.
        accuracy: The error bound of compiled code: an `AccuracyMode` or a `Tolerance`. None means XLA's default.

    Returns:
        An array of the same shape and dtype; -inf at -1, NaN for floats below.

    Raises:
        TypeError: `x` is not a float or complex number, or `accuracy` has another type.

    >>> log1p(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return bind1(LOG1P if accuracy is None else Log1p(check_accuracy("log1p", accuracy)), x)


def logistic(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Returns the logistic function `1 / (1 + exp(-x))`, elementwise.

    Args:
        x: Array of floats or complex numbers, or a number.
        accuracy: The error bound of compiled code: an `AccuracyMode` or a `Tolerance`. None means XLA's default.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError: `x` is not a float or complex number, or `accuracy` has another type.

    >>> logistic(0.0)
    Array(0.5, dtype=float32, weak_type=True)
    """
    return bind1(LOGISTIC if accuracy is None else Logistic(check_accuracy("logistic", accuracy)), x)


def sin(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Returns the sine of an angle, elementwise.

    Args:
        x: Array of floats or complex numbers, or a number: angles in radians.
        accuracy: The error bound of compiled code: an `AccuracyMode` or a `Tolerance`. None means XLA's default.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError: `x` is not a float or complex number, or `accuracy` has another type.

    >>> sin(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return bind1(SIN if accuracy is None else Sin(check_accuracy("sin", accuracy)), x)


def cos(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Returns the cosine of an angle, elementwise.

    Args:
        x: Array of floats or complex numbers, or a number: angles in radians.
        accuracy: The error bound of compiled code: an `AccuracyMode` or a `Tolerance`. None means XLA's default.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError: `x` is not a float or complex number, or `accuracy` has another type.

    >>> cos(0.0)
    Array(1., dtype=float32, weak_type=True)
    """
    return bind1(COS if accuracy is None else Cos(check_accuracy("cos", accuracy)), x)


def tan(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Returns the tangent of an angle, elementwise.

    Args:
        x: Array of floats or complex numbers, or a number: angles in radians.
        accuracy: The error bound of compiled code: an `AccuracyMode` or a `Tolerance`. None means XLA's default.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError: `x` is not a float or complex number, or `accuracy` has another type.

    >>> tan(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return bind1(TAN if accuracy is None else Tan(check_accuracy("tan", accuracy)), x)


def sqrt(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Returns the square root, elementwise.

    Args:
        x: Array of floats or complex numbers, or a number.
        accuracy: The error bound of compiled code: an `AccuracyMode` or a `Tolerance`. None means XLA's default.

    Returns:
        An array of the same shape and dtype; NaN for negative floats.

    Raises:
        TypeError: `x` is not a float or complex number, or `accuracy` has another type.

    >>> sqrt(4.0)
    Array(2., dtype=float32, weak_type=True)
    """
    return bind1(SQRT if accuracy is None else Sqrt(check_accuracy("sqrt", accuracy)), x)


def rsqrt(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Returns the reciprocal square root `1 / sqrt(x)`, elementwise.

    Args:
        x: Array of floats or complex numbers, or a number.
        accuracy: The error bound of compiled code: an `AccuracyMode` or a `Tolerance`. None means XLA's default.

    Returns:
        An array of the same shape and dtype; NaN for negative floats.

    Raises:
        TypeError: `x` is not a float or complex number, or `accuracy` has another type.

    >>> rsqrt(4.0)
    Array(0.5, dtype=float32, weak_type=True)
    """
    return bind1(RSQRT if accuracy is None else Rsqrt(check_accuracy("rsqrt", accuracy)), x)


def cbrt(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Returns the cube root, elementwise.

    Args:
        x: Array of floats, or a float.
        accuracy: The error bound of compiled code: an `AccuracyMode` or a `Tolerance`. None means XLA's default.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError: `x` is not a float, or `accuracy` has another type.

    >>> cbrt(8.0)
    Array(2., dtype=float32, weak_type=True)
    """
    return bind1(CBRT if accuracy is None else Cbrt(check_accuracy("cbrt", accuracy)), x)
