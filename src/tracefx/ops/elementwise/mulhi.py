"""`mulhi`: the high half of integer products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import numpy as np
from typing_extensions import override

from tracefx.core import Array, ArrayLike, NDArray, ShapedArray, dtypes
from tracefx.lowering import Builder, IrValue
from tracefx.ops import stablehlo
from tracefx.ops.casting import cast
from tracefx.ops.elementwise.bitwise import INTEGERS
from tracefx.ops.elementwise.elementwise import NonDifferentiable, bind_binary

_HALF: Final = np.uint64(32)
_LOW: Final = np.uint64(2**32 - 1)


@final
class MulHi(NonDifferentiable):
    """The high half of the bits of the product, elementwise: `x * y // 2**bits` for a dtype of `bits` bits.

    `x: i32[...], y: i32[...] -> i32[...]`, integers. Bound by `lax.mulhi`.
    """

    name = "mulhi"
    arity = 2
    domain = INTEGERS
    hlo = "chlo.mulhi"
    widens_narrow_ints = False

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        x, y = args
        bits = dtypes.itemsize_bits(x.dtype)
        if bits == 64:
            return _mulhi_64(x, y)
        wide = np.dtype(np.int64 if dtypes.is_signed(x.dtype) else np.uint64)
        product = cast(x, wide) * cast(y, wide)
        return cast(product >> wide.type(bits), x.dtype)

    @override
    def emit_elementwise(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        # XLA treats narrower numbers as 8-bit ones; its CPU backend lacks the signed operation in some fusions.
        bits = dtypes.itemsize_bits(out.dtype)
        is_signed = dtypes.is_signed(out.dtype)
        if bits < 8 or (is_signed and bits < 64):
            return _emit_by_widening(builder, out, operands, max(8, 2 * bits))
        return (
            _emit_signed_mulhi(builder, self.hlo, out, operands)
            if is_signed
            else builder.emit(self.hlo, operands, [out])[0]
        )


def _emit_by_widening(builder: Builder, out: ShapedArray, operands: Sequence[IrValue], width: int) -> IrValue:
    """Emits the high half of products computed in `width` bits."""
    is_signed = dtypes.is_signed(out.dtype)
    wide = out.update(dtype=dtypes.from_short_name(f"{'i' if is_signed else 'u'}{width}"))
    product = builder.emit("stablehlo.multiply", _converted(builder, wide, operands), [wide])[0]
    shift = "stablehlo.shift_right_arithmetic" if is_signed else "stablehlo.shift_right_logical"
    bits = stablehlo.emit_full(builder, dtypes.itemsize_bits(out.dtype), wide)
    return _converted(builder, out, builder.emit(shift, [product, bits], [wide]))[0]


def _emit_signed_mulhi(builder: Builder, name: str, out: ShapedArray, operands: Sequence[IrValue]) -> IrValue:
    """Emits the high half of signed products from that of the same bits taken as unsigned.

    The unsigned result is too large by either factor if the other one is negative.
    """
    words = out.update(dtype=dtypes.from_short_name(f"u{dtypes.itemsize_bits(out.dtype)}"))
    (result,) = _converted(builder, out, builder.emit(name, _converted(builder, words, operands), [words]))
    last = stablehlo.emit_full(builder, dtypes.itemsize_bits(out.dtype) - 1, out)
    for x, y in (operands, operands[::-1]):
        (minus_one,) = builder.emit("stablehlo.shift_right_arithmetic", [x, last], [out])
        (excess,) = builder.emit("stablehlo.and", [minus_one, y], [out])
        (result,) = builder.emit("stablehlo.subtract", [result, excess], [out])
    return result


def _converted(builder: Builder, to: ShapedArray, operands: Sequence[IrValue]) -> list[IrValue]:
    return [builder.emit("stablehlo.convert", [x], [to])[0] for x in operands]


def _mulhi_64(x: NDArray, y: NDArray) -> NDArray:
    """Computes the high half of 64-bit products from products of halves, corrected for negative factors."""
    a, b = x.astype(np.uint64), y.astype(np.uint64)
    (a_high, a_low), (b_high, b_low) = (a >> _HALF, a & _LOW), (b >> _HALF, b & _LOW)
    middle = a_high * b_low + (a_low * b_low >> _HALF)
    carried = a_low * b_high + (middle & _LOW)
    high = a_high * b_high + (middle >> _HALF) + (carried >> _HALF)
    if dtypes.is_signed(x.dtype):
        high = high - np.where(x < 0, b, np.uint64(0)) - np.where(y < 0, a, np.uint64(0))
    return np.asarray(high).astype(x.dtype)


MUL_HI: Final = MulHi()


def mulhi(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Returns the high half of the bits of `x * y`, elementwise: `x * y // 2**bits` for a dtype of `bits` bits.

    Args:
        x: Array of integers.
        y: Array of integers of the same dtype. Scalars and axes of size 1 are broadcast.

    Returns:
        An array of the broadcast shape and the common dtype.

    Raises:
        TypeError: The operands are not integers of one dtype, or the shapes don't broadcast.

    >>> mulhi(np.array([2**30, -1]), np.array([8, 1])).tolist()
    [2, -1]
    """
    return bind_binary(MUL_HI, x, y)
