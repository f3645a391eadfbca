"""Powers: `pow`, `integer_pow`, `square`, `reciprocal`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar, final

import numpy as np
from attrs import evolve, frozen
from typing_extensions import override

from tracefx.bounded_cache import memoize
from tracefx.core import Array, ArrayLike, NDArray, ShapedArray, Value, dtypes
from tracefx.core.handler import bind1
from tracefx.core.primitive import Tangent, Zero
from tracefx.lowering import Builder, IrValue
from tracefx.ops import stablehlo
from tracefx.ops.casting import cast
from tracefx.ops.elementwise import complex_kernels, complex_lowering
from tracefx.ops.elementwise.arithmetic import mul, sub
from tracefx.ops.elementwise.comparison import eq
from tracefx.ops.elementwise.elementwise import INEXACT, NUMBERS, Smooth, bind_elementwise, common_shape
from tracefx.ops.elementwise.selection import select_with_aval
from tracefx.ops.elementwise.transcendental import log
from tracefx.ops.structural import convert

T = TypeVar("T")


# ------------------------------------------------------------------ pow


def power(x: NDArray, y: NDArray | float) -> NDArray:
    """Returns `np.power(x, y)` without NumPy's shortcut for a scalar exponent of 0.5.

    The shortcut takes the square root, whose results at -inf and -0.0 differ from those of the power.
    """
    exponent = y.item() if isinstance(y, np.ndarray | np.generic) and not y.ndim else y
    if type(exponent) is float and exponent == 0.5 and not np.greater(x, 0).all():
        filled: NDArray = np.power(np.atleast_1d(x), np.full(np.shape(x) or (1,), y, x.dtype)).reshape(np.shape(x))
        return filled
    out: NDArray = np.power(x, y)
    return out


@final
class Pow(Smooth):
    """The power, elementwise: `x**y`.

    `x: f32[...], y: f32[...] -> f32[...]`; `x` is a float or complex number, `y` has its dtype or any integer dtype.
    Bound by `lax.pow`.
    """

    name = "pow"
    arity = 2
    domain = INEXACT
    hlo = "stablehlo.power"

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        x, y = avals
        INEXACT.require("pow", x)
        if y.dtype != x.dtype and not dtypes.is_integer(y.dtype):
            raise TypeError(
                f"pow: the exponent must have the dtype of the base or be an integer, got {x} to the power {y}; "
                "convert one with astype, or use tracefx.numpy.power, which promotes"
            )
        return ShapedArray(common_shape(self, avals), x.dtype, x.weak_type and y.weak_type)

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        x, y = args[0], cast(args[1], args[0].dtype)
        out = power(x, y)
        if dtypes.is_complex(x.dtype):
            out = np.where(
                (x == 0) & (y.imag != 0), x.dtype.type(complex(np.nan, np.nan)), out
            )  # there is no limit, though NumPy returns 0
        return out

    @override
    def jvp_term(self, i: int, tangent: Value, out: Value, *primals: Value) -> Tangent:
        x, y = primals
        if i == 1:
            base = select_with_aval(eq(x, 0.0), 1, x, x.aval)
            return mul(tangent, mul(log(base), out))
        if not dtypes.is_integer(y.aval.dtype):
            return mul(tangent, mul(y, pow(x, sub(y, 1.0))))
        exponent = convert(y, x.aval.dtype, y.aval.weak_type)
        zero = eq(exponent, 0.0)
        slope = mul(select_with_aval(zero, 1, exponent, exponent.aval), pow(x, sub(exponent, 1.0)))
        return mul(tangent, select_with_aval(zero, 0, slope, slope.aval))

    @override
    def emit_elementwise(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        x, y = operands
        if y.aval.dtype != out.dtype:
            (y,) = builder.emit("stablehlo.convert", [y], [out])
        return builder.emit(self.hlo, [x, y], [out])[0]


def pow(x: ArrayLike, y: ArrayLike) -> Array:
    """Returns `x` to the power `y`, elementwise.

    Args:
        x: Base: floats or complex numbers.
        y: Exponent, of the same dtype or of any integer dtype. Scalars and axes of size 1 are broadcast.

    Returns:
        An array of the broadcast shape and the dtype of `x`.

    Raises:
        TypeError: `x` is not inexact, `y` has another inexact dtype, or the shapes don't broadcast.

    >>> pow(np.array([2.0, 4.0]), 0.5).tolist(), pow(2.0, 3)
    ([1.4142135381698608, 2.0], Array(8., dtype=float32, weak_type=True))
    """
    if type(y) is int:
        return bind1(POW, x, y)  # keeps the exponent's integer dtype
    return bind_elementwise(POW, x, y)


POW: Final = Pow()

# ------------------------------------------------------------------ integer_pow


@final
@frozen(eq=False)
class IntegerPow(Smooth):
    """The power with a static integer exponent, elementwise: `x**y`, by repeated squaring.

    Args:
        y: The exponent. It is not negative if `x` is an integer.

    `x: f32[...] -> f32[...]`, numbers. Bound by `lax.integer_pow`.
    """

    name = "integer_pow"
    domain = NUMBERS
    y: int

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        (x,) = avals
        if self.y < 0 and dtypes.is_integer(x.dtype):
            raise TypeError(f"integer_pow: integers have no negative powers, got {x} to the power {self.y}")
        return Smooth.out_aval(self, x)

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        if self.y < 0:
            self.abstract_eval(*[a.aval for a in args])  # the family's fast paths check only the domain
        return Smooth.evaluate(self, args)

    @override
    def numpy_kernel(self, *avals: ShapedArray) -> Callable[..., NDArray] | None:
        return self.kernel if avals[0].dtype in self.domain.plain else None

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        (x,) = args
        if self.y == 2:
            return np.asarray(x * x)
        one = x.dtype.type(1)
        if self.y == 0:
            return np.full_like(x, one)
        power = power_by_squaring(x, abs(self.y), lambda a, b: np.asarray(a * b))
        return np.asarray(one / power) if self.y < 0 else power

    @override
    def jvp_term(self, i: int, tangent: Value, out: Value, *primals: Value) -> Tangent:
        (x,) = primals
        if self.y == 0:
            return Zero(out.aval.tangent())
        if self.y == 1:
            return tangent
        return mul(tangent, mul(float(self.y), x if self.y == 2 else integer_pow(x, self.y - 1)))

    @override
    def emit_elementwise(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        (x,) = operands
        if self.y == 0:
            return stablehlo.emit_full(builder, 1, out)
        power = power_by_squaring(x, abs(self.y), lambda a, b: builder.emit("stablehlo.multiply", [a, b], [out])[0])
        if self.y > 0:
            return power
        return builder.emit("stablehlo.divide", [stablehlo.emit_full(builder, 1, out), power], [out])[0]


def power_by_squaring(x: T, n: int, times: Callable[[T, T], T]) -> T:
    """Returns the `n`-th power of `x` for `n > 0`, by repeated squaring with the product `times`."""
    power = None
    while True:
        if n & 1:
            power = x if power is None else times(power, x)
        n >>= 1
        if n == 0:
            assert power is not None
            return power
        x = times(x, x)


def integer_pow(x: ArrayLike, y: int) -> Array:
    """Returns `x` to the static integer power `y`, elementwise, by repeated multiplication.

    Args:
        x: Array of numbers, or a number.
        y: The exponent, known at trace time.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError: `y` is not an integer known at trace time, or is negative for integer `x`.

    >>> integer_pow(np.arange(4), 2).tolist()
    [0, 1, 4, 9]
    """
    try:
        exponent = y.__index__()
    except (AttributeError, TypeError):
        raise TypeError(f"integer_pow: y must be a Python integer, got {y!r}; use pow for others") from None
    return bind1(_integer_pow(exponent), x)


_integer_pow: Final = memoize(256)(IntegerPow)


def reciprocal(x: ArrayLike) -> Array:
    """Returns `1 / x`, elementwise.

    Args:
        x: Array of floats or complex numbers, or a number.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError: `x` is not a float or complex number.

    >>> reciprocal(4.0)
    Array(0.25, dtype=float32, weak_type=True)
    """
    return integer_pow(x, -1)


# ------------------------------------------------------------------ square


@final
class Square(Smooth):
    """The square, elementwise: `x * x`; integers wrap around.

    `x: f32[...] -> f32[...]`, numbers. Bound by `lax.square`.
    """

    name = "square"
    domain = evolve(NUMBERS, kernel_fixups=frozenset({dtypes.complex64, dtypes.complex128}))
    ufunc = np.square

    @override
    def jvp_term(self, i: int, tangent: Value, out: Value, *primals: Value) -> Tangent:
        return mul(tangent, mul(2.0, *primals))

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        return complex_kernels.complex_square(*args) if dtypes.is_complex(args[0].dtype) else super().kernel(*args)

    @override
    def emit_elementwise(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        (x,) = operands
        if dtypes.is_complex(out.dtype):
            return complex_lowering.emit_by_parts(builder, complex_lowering.square, x)
        return builder.emit("stablehlo.multiply", [x, x], [out])[0]


SQUARE: Final = Square()


def square(x: ArrayLike) -> Array:
    """Returns `x * x`, elementwise.

    Args:
        x: Array of numbers, or a number.

    Returns:
        An array of the same shape and dtype; integers wrap around.

    Raises:
        TypeError: `x` is boolean.

    >>> square(np.arange(4)).tolist()
    [0, 1, 4, 9]
    """
    return bind1(SQUARE, x)
