"""Arithmetic: `neg`, `sub`, `mul`, `div`, `rem`, `max`, `min`. (`add` is in `elementwise`.)"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final, final

import numpy as np
from typing_extensions import override

from tracefx.core import Array, ArrayLike, DTypeLike, NDArray, ShapedArray, Value, dtypes
from tracefx.core.handler import bind1
from tracefx.core.primitive import Differentiable, Tangent, Transposable, UndefinedPrimal, Zero, not_linear_error
from tracefx.lowering import Builder, IrValue
from tracefx.ops.elementwise.comparison import eq, lt
from tracefx.ops.elementwise.elementwise import (
    NUMBERS,
    REALS,
    Elementwise,
    Smooth,
    add_tangents,
    bind_binary,
    operands,
    unbroadcast,
)
from tracefx.ops.elementwise.rounding import ceil, floor
from tracefx.ops.elementwise.selection import select, select_with_aval
from tracefx.ops.monoids import MAXIMUM, MINIMUM, Extremum
from tracefx.ops.operation import ANY_NUMBERS, HasPullback
from tracefx.ops.structural import convert_element_type, match_aval

# ------------------------------------------------------------------ neg


@final
class Neg(Elementwise, Differentiable, Transposable):
    """The negative, elementwise: `-x`; integers wrap around.

    `x: f32[...] -> f32[...]`, numbers. Bound by `lax.neg`.
    """

    name = "neg"
    domain = NUMBERS
    hlo = "stablehlo.negate"
    ufunc = np.negative

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        return [neg(*primals)], [neg_tangent(*tangents)]

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        return [neg_tangent(*cts)]


NEG: Final = Neg()


def neg(x: ArrayLike) -> Array:
    """Returns `-x`, elementwise.

    Args:
        x: Array of numbers, or a number.

    Returns:
        An array of the same shape and dtype; integers wrap around.

    Raises:
        TypeError: `x` is boolean.

    >>> neg(np.float32(2))
    Array(-2., dtype=float32)
    """
    return bind1(NEG, x)


def neg_tangent(t: Tangent) -> Tangent:
    """Returns the negative of a tangent; `Zero` stays `Zero`."""
    return t if isinstance(t, Zero) else neg(t)


# ------------------------------------------------------------------ sub


@final
class Sub(Elementwise, Differentiable, Transposable):
    """The difference, elementwise: `x - y`; integers wrap around.

    `x: f32[...], y: f32[...] -> f32[...]`, numbers. Bound by `lax.sub`.
    """

    name = "sub"
    arity = 2
    domain = NUMBERS
    hlo = "stablehlo.subtract"
    ufunc = np.subtract

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        out = bind1(self, *primals)
        x, y = [match_aval(t, out.aval.tangent()) for t in tangents]
        if isinstance(x, Zero) or isinstance(y, Zero):
            return [out], [add_tangents(x, neg_tangent(y))]
        return [out], [bind1(self, x, y)]

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        (ct,), (x, y) = cts, args
        return [
            unbroadcast(ct, x.aval) if isinstance(x, UndefinedPrimal) else None,
            neg_tangent(unbroadcast(ct, y.aval)) if isinstance(y, UndefinedPrimal) else None,
        ]


SUB: Final = Sub()


def sub(x: ArrayLike, y: ArrayLike) -> Array:
    """Returns `x - y`, elementwise; integers wrap around.

    Args:
        x: Array or number.
        y: Array or number of the same dtype. Scalars and axes of size 1 are broadcast.

    Returns:
        An array of the broadcast shape and the common dtype.

    Raises:
        TypeError: The dtypes differ, the shapes don't broadcast, or the operands are booleans.

    >>> sub(np.arange(3), 1)
    Array([-1,  0,  1], dtype=int32)
    """
    return bind_binary(SUB, x, y)


# ------------------------------------------------------------------ mul


@final
class Mul(Smooth, HasPullback):
    """The product, elementwise: `x * y`; integers wrap around.

    `x: f32[...], y: f32[...] -> f32[...]`, numbers. Bound by `lax.mul`.
    """

    name = "mul"
    arity = 2
    domain = NUMBERS
    hlo = "stablehlo.multiply"
    ufunc = np.multiply

    @override
    def jvp_term(self, i: int, tangent: Value, out: Value, *primals: Value) -> Tangent:
        return bind1(self, tangent, primals[1]) if i == 0 else bind1(self, primals[0], tangent)

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        x, y = args
        if isinstance(x, UndefinedPrimal):
            if isinstance(y, UndefinedPrimal):
                raise not_linear_error(self)
            return [unbroadcast(bind1(self, ct, y), x.aval), None]
        assert isinstance(y, UndefinedPrimal)
        return [None, unbroadcast(bind1(self, x, ct), y.aval)]


MUL: Final = Mul()


def mul(x: ArrayLike, y: ArrayLike, *, out_dtype: DTypeLike | None = None) -> Array:
    """Returns `x * y`, elementwise; integers wrap around.

    Args:
        x: Array or number.
        y: Array or number of the same dtype. Scalars and axes of size 1 are broadcast.
        out_dtype: The dtype that both operands are converted to before they are multiplied. None keeps theirs.

    Returns:
        An array of the broadcast shape.

    Raises:
        TypeError: The dtypes differ, the shapes don't broadcast, or the operands are booleans.

    >>> mul(np.arange(3), 2)
    Array([0, 2, 4], dtype=int32)
    """
    if out_dtype is not None:
        x, y = [convert_element_type(v, out_dtype) for v in operands(x, y)]
    return bind_binary(MUL, x, y)


# ------------------------------------------------------------------ div, rem


@final
class Div(Smooth, HasPullback):
    """The quotient, elementwise: `x / y`; that of integers is truncated towards 0.

    For integers, `x / 0` is -1 (all bits set), and the minimum divided by -1 is itself.

    `x: f32[...], y: f32[...] -> f32[...]`, numbers. Bound by `lax.div`.
    """

    name = "div"
    arity = 2
    domain = NUMBERS
    hlo = "stablehlo.divide"

    @override
    def numpy_kernel(self, *avals: ShapedArray) -> Callable[..., NDArray] | None:
        kernel = super().numpy_kernel(*avals)
        return np.true_divide if kernel is not None and dtypes.is_inexact(avals[0].dtype) else kernel

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        x, y = args
        if not dtypes.is_integer(x.dtype):
            out: NDArray = np.true_divide(x, y)
            return out
        quotient: NDArray = np.floor_divide(x, y)
        if dtypes.is_signed(x.dtype):
            quotient = quotient + ((np.remainder(x, y) != 0) & ((x < 0) != (y < 0)))
        return np.where(y == 0, np.invert(np.zeros_like(y)), quotient).astype(x.dtype)

    @override
    def jvp_term(self, i: int, tangent: Value, out: Value, *primals: Value) -> Tangent:
        x, y = primals
        if i == 0:
            return div(tangent, y)
        if x.aval.ndim and not y.aval.ndim:
            # The residual is the numerator, which exists anyway, instead of the quotient.
            inverse = div(1, y)
            return mul(mul(x, neg(mul(tangent, inverse))), inverse)
        # The division comes last, so that the backward pass divides the cotangent once for both operands.
        return div(mul(tangent, neg(out)), y)

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        x, y = args
        if isinstance(y, UndefinedPrimal):  # a quotient is linear only in its numerator
            raise not_linear_error(self)
        return [unbroadcast(div(ct, y), x.aval), None]

    @override
    def emit_elementwise(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        # XLA rewrites division by a broadcast with no other use into multiplication by the broadcast reciprocal.
        x, y = operands
        return builder.emit(self.hlo, [x, builder.reemit_broadcast(y)], [out])[0]


@final
class Rem(Smooth):
    """The remainder of truncated division, elementwise: `x - y * trunc(x / y)`, with the sign of `x`.

    For integers, `rem(x, 0)` is `x`.

    `x: f32[...], y: f32[...] -> f32[...]`, integers or floats. Bound by `lax.rem`.
    """

    name = "rem"
    arity = 2
    domain = REALS
    hlo = "stablehlo.remainder"

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        x, y = args
        out: NDArray = np.fmod(x, y)
        return np.where(y == 0, x, out) if dtypes.is_integer(x.dtype) else out

    @override
    def jvp_term(self, i: int, tangent: Value, out: Value, *primals: Value) -> Tangent:
        if i == 0:
            return tangent
        quotient = div(*primals)
        truncated = select(lt(quotient, 0), ceil(quotient), floor(quotient))
        return neg(mul(tangent, truncated))


DIV: Final = Div()
REM: Final = Rem()


def div(x: ArrayLike, y: ArrayLike) -> Array:
    """Returns `x / y`, elementwise; integer quotients are truncated towards zero.

    Args:
        x: Dividend, an array or number.
        y: Divisor of the same dtype. Scalars and axes of size 1 are broadcast.

    Returns:
        An array of the broadcast shape and the common dtype. An integer divided by 0 is -1, or the largest number if
        unsigned; a float is infinite or NaN.

    Raises:
        TypeError: The dtypes differ, the shapes don't broadcast, or the operands are booleans.

    >>> div(1.0, 4.0)
    Array(0.25, dtype=float32, weak_type=True)
    >>> div(np.array([7, -7, 7]), np.array([2, 2, 0])).tolist()
    [3, -3, -1]
    """
    return bind_binary(DIV, x, y)


def rem(x: ArrayLike, y: ArrayLike) -> Array:
    """Returns the remainder of `x / y` truncated towards zero, elementwise; it has the sign of `x`.

    Args:
        x: Dividend, an array or number; not complex.
        y: Divisor of the same dtype. Scalars and axes of size 1 are broadcast.

    Returns:
        An array of the broadcast shape and the common dtype. Where `y` is 0: NaN for floats, `x` for integers.

    Raises:
        TypeError: The dtypes differ, the shapes don't broadcast, or the operands are booleans or complex.

    >>> rem(np.array([7, -7, 7]), np.array([2, 2, 0])).tolist()
    [1, -1, 7]
    """
    return bind_binary(REM, x, y)


# ------------------------------------------------------------------ max, min


class BinaryExtremum(Smooth):
    """The elementwise maximum or minimum. Equal operands get half of the derivative each.

    NaN propagates. Complex numbers are ordered by their real, then by their imaginary parts.
    """

    __slots__ = ()
    domain = ANY_NUMBERS
    arity = 2
    compiles_large = True
    extremum: ClassVar[Extremum]

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        return self.extremum.combine(*args)

    @override
    def jvp_term(self, i: int, tangent: Value, out: Value, *primals: Value) -> Tangent:
        x, y = primals
        shape = out.aval.tangent()
        weight = select_with_aval(eq(primals[i], out), 1, 0, shape)
        return mul(tangent, select_with_aval(eq(x, y), 0.5, weight, shape))

    @override
    def emit_elementwise(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        return self.extremum.emit(builder, out, *operands)


@final
class Max(BinaryExtremum):
    """The maximum, elementwise: `max(x, y)`, NaN if either is NaN.

    `x: f32[...], y: f32[...] -> f32[...]`, booleans or numbers. Bound by `lax.max`.
    """

    name = "max"
    extremum = MAXIMUM


@final
class Min(BinaryExtremum):
    """The minimum, elementwise: `min(x, y)`, NaN if either is NaN.

    `x: f32[...], y: f32[...] -> f32[...]`, booleans or numbers. Bound by `lax.min`.
    """

    name = "min"
    extremum = MINIMUM


MAX: Final = Max()
MIN: Final = Min()


def max(x: ArrayLike, y: ArrayLike) -> Array:
    """Returns the larger of `x` and `y`, elementwise.

    Complex numbers are ordered by their real parts, then by their imaginary parts.

    Args:
        x: Array or number.
        y: Array or number of the same dtype. Scalars and axes of size 1 are broadcast.

    Returns:
        An array of the broadcast shape and the common dtype; NaN where either operand is NaN.

    Raises:
        TypeError: The dtypes differ or the shapes don't broadcast.

    >>> max(np.arange(4), 2).tolist()
    [2, 2, 2, 3]
    """
    return bind_binary(MAX, x, y)


def min(x: ArrayLike, y: ArrayLike) -> Array:
    """Returns the smaller of `x` and `y`, elementwise.

    Complex numbers are ordered by their real parts, then by their imaginary parts.

    Args:
        x: Array or number.
        y: Array or number of the same dtype. Scalars and axes of size 1 are broadcast.

    Returns:
        An array of the broadcast shape and the common dtype; NaN where either operand is NaN.

    Raises:
        TypeError: The dtypes differ or the shapes don't broadcast.

    >>> min(np.arange(4), 2).tolist()
    [0, 1, 2, 2]
    """
    return bind_binary(MIN, x, y)
