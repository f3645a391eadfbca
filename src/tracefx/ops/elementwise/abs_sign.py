"""Absolute value and sign: `abs`, `sign`."""

from __future__ import annotations

from typing import Final, final

import numpy as np
from typing_extensions import override

from tracefx.core import Array, ArrayLike, DType, NDArray, ShapedArray, Value, dtypes
from tracefx.core.handler import bind1
from tracefx.core.primitive import Tangent
from tracefx.lowering import Builder, IrValue
from tracefx.ops import stablehlo
from tracefx.ops.elementwise import complex_lowering
from tracefx.ops.elementwise.arithmetic import div, mul, neg
from tracefx.ops.elementwise.comparison import eq, ge
from tracefx.ops.elementwise.complex import conj, real
from tracefx.ops.elementwise.elementwise import NUMBERS, NonDifferentiable, Smooth
from tracefx.ops.elementwise.selection import select_with_aval
from tracefx.ops.operation import Domain
from tracefx.ops.structural import convert

SIGNED: Final = Domain(
    "signed integers, floats or complex numbers", lambda d: dtypes.is_signed(d) or dtypes.is_inexact(d)
)


@final
class Abs(Smooth):
    """The absolute value, elementwise: `abs(x)`, for complex numbers `sqrt(real(x)**2 + imag(x)**2)`.

    `x: f32[...] -> f32[...]`, signed integers, floats, or complex numbers, whose results are real. Bound by `lax.abs`.
    """

    name = "abs"
    domain = SIGNED
    hlo = "stablehlo.abs"
    ufunc = np.absolute

    @override
    def out_dtype(self, dtype: DType) -> DType:
        return dtypes.real_dtype(dtype)

    @override
    def emit_elementwise(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        (result,) = builder.emit(self.hlo, operands, [out])
        (x,) = operands
        return complex_lowering.emit_abs(builder, x, result) if dtypes.is_complex(x.aval.dtype) else result

    @override
    def jvp_term(self, i: int, tangent: Value, out: Value, *primals: Value) -> Tangent:
        (x,) = primals
        if not dtypes.is_complex(x.aval.dtype):
            return select_with_aval(ge(x, 0.0), tangent, neg(tangent), tangent.aval)
        size = select_with_aval(eq(out, 0.0), 1, out, out.aval)  # at 0, the derivative is defined as 0
        return real(mul(tangent, div(conj(x), convert(size, x.aval.dtype, x.aval.weak_type))))


@final
class Sign(NonDifferentiable):
    """The sign, elementwise: -1, 0 or 1, and `x / abs(x)` for complex numbers other than 0.

    `x: f32[...] -> f32[...]`, numbers. Bound by `lax.sign`.
    """

    name = "sign"
    domain = NUMBERS
    hlo = "stablehlo.sign"

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        (x,) = args
        if dtypes.is_complex(x.dtype):
            size = np.absolute(x)
            out: NDArray = np.empty_like(x)
            out.real, out.imag = x.real / size, x.imag / size
            return np.where(size == 0, x.dtype.type(0), out)
        sign: NDArray = np.sign(x)
        return np.copysign(sign, x) if dtypes.is_float(x.dtype) else sign

    @override
    def emit_elementwise(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        (x,) = operands
        if not dtypes.is_integer(out.dtype) or dtypes.is_signed(out.dtype):
            (result,) = builder.emit(self.hlo, [x], [out])
            return complex_lowering.emit_sign(builder, x, result) if dtypes.is_complex(out.dtype) else result
        zero, one = stablehlo.emit_full(builder, 0, out), stablehlo.emit_full(builder, 1, out)
        return builder.emit("stablehlo.select", [stablehlo.emit_compare(builder, "EQ", x, zero), zero, one], [out])[0]


ABS: Final = Abs()
SIGN: Final = Sign()


def abs(x: ArrayLike) -> Array:
    """Returns the absolute value, elementwise.

    Args:
        x: Array or number; not unsigned or boolean.

    Returns:
        An array of the same shape and dtype, or of the real dtype for complex `x`. The smallest signed integer is
        returned unchanged, as its absolute value overflows.

    Raises:
        TypeError: `x` is unsigned or boolean.

    >>> abs(3 - 4j)
    Array(5., dtype=float32, weak_type=True)
    """
    return bind1(ABS, x)


def sign(x: ArrayLike) -> Array:
    """Returns the sign, elementwise: -1, 0 or 1, and `x / abs(x)` for complex numbers other than 0.

    Args:
        x: Array or number; not boolean.

    Returns:
        An array of the same shape and dtype. Zeros (with their sign) and NaN are returned unchanged.

    >>> sign(np.array([-3, 0, 5])).tolist()
    [-1, 0, 1]
    """
    return bind1(SIGN, x)
