"""Logic on booleans and on the bits of integers, and shifts."""

from __future__ import annotations

from typing import Final, final

import numpy as np
from typing_extensions import override

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.dtypes import DType, NDArray
from tracefx.core.handler import bind1
from tracefx.ops.casting import cast
from tracefx.ops.elementwise.elementwise import LOGICAL, NonDifferentiable, bind_binary
from tracefx.ops.operation import Domain

INTEGERS: Final = Domain("integers", dtypes.is_integer)


@final
class And(NonDifferentiable):
    __slots__ = ()
    name = "and"
    arity = 2
    domain = LOGICAL
    hlo = "stablehlo.and"
    ufunc = np.bitwise_and


@final
class Or(NonDifferentiable):
    __slots__ = ()
    name = "or"
    arity = 2
    domain = LOGICAL
    hlo = "stablehlo.or"
    ufunc = np.bitwise_or


@final
class Xor(NonDifferentiable):
    __slots__ = ()
    name = "xor"
    arity = 2
    domain = LOGICAL
    hlo = "stablehlo.xor"
    ufunc = np.bitwise_xor


@final
class Not(NonDifferentiable):
    __slots__ = ()
    name = "not"
    domain = LOGICAL
    hlo = "stablehlo.not"
    ufunc = np.invert


AND: Final = And()
OR: Final = Or()
XOR: Final = Xor()
NOT: Final = Not()


def bitwise_and(x: ArrayLike, y: ArrayLike) -> Array:
    """`x & y`, elementwise, for booleans or integers.

    >>> bitwise_and(np.arange(4), 2).tolist()
    [0, 0, 2, 2]
    """
    return bind_binary(AND, x, y)


def bitwise_or(x: ArrayLike, y: ArrayLike) -> Array:
    """`x | y`, elementwise, for booleans or integers.

    >>> bitwise_or(np.arange(4), 2).tolist()
    [2, 3, 2, 3]
    """
    return bind_binary(OR, x, y)


def bitwise_xor(x: ArrayLike, y: ArrayLike) -> Array:
    """`x ^ y`, elementwise, for booleans or integers.

    >>> bitwise_xor(np.arange(4), 2).tolist()
    [2, 3, 0, 1]
    """
    return bind_binary(XOR, x, y)


def bitwise_not(x: ArrayLike) -> Array:
    """`~x`, elementwise: the opposite of booleans, the complement of an integer's bits.

    >>> bitwise_not(np.array([True, False])).tolist(), bitwise_not(np.arange(2)).tolist()
    ([False, True], [-1, -2])
    """
    return bind1(NOT, x)


# ------------------------------------------------------------------ shifts


class Shift(NonDifferentiable):
    """Of two integers of one dtype. The amount counts as unsigned; one beyond the width moves every bit out."""

    __slots__ = ()
    domain = INTEGERS
    arity = 2
    widens_narrow_ints = False  # the width of the operand matters


def _amounts(y: NDArray, bits: int) -> tuple[NDArray, NDArray]:
    """Amounts that NumPy can shift by, and where they are the ones asked for."""
    inside = (y >= 0) & (y < bits)
    return np.where(inside, y, y.dtype.type(0)), inside


def _integer_dtype(dtype: DType, signed: bool) -> DType:
    """The NumPy integer of at least 8 bits, as wide as `dtype`."""
    return np.dtype(f"{'i' if signed else 'u'}{dtype.itemsize}")


def extend_to_bytes(x: NDArray, signed: bool) -> NDArray:
    """`x` as an integer of NumPy's with these bits, filled up on the left as a signed or unsigned number."""
    bits = dtypes.itemsize_bits(x.dtype)
    if bits >= 8:
        return x.view(_integer_dtype(x.dtype, signed))
    low = x.astype(np.int8) & np.int8(2**bits - 1)
    if signed:
        sign = np.int8(2 ** (bits - 1))
        return (low ^ sign) - sign
    return low.view(np.uint8)


def _view_or_cast(x: NDArray, dtype: DType) -> NDArray:
    return x.view(dtype) if dtypes.itemsize_bits(dtype) >= 8 else cast(x, dtype)


@final
class ShiftLeft(Shift):
    __slots__ = ()
    name = "shift_left"
    hlo = "stablehlo.shift_left"

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        x, y = [extend_to_bytes(a, dtypes.is_signed(a.dtype)) for a in args]
        amounts, inside = _amounts(y, dtypes.itemsize_bits(args[0].dtype))
        return _view_or_cast(np.where(inside, np.left_shift(x, amounts), x.dtype.type(0)), args[0].dtype)


@final
class ShiftRightLogical(Shift):
    __slots__ = ()
    name = "shift_right_logical"
    hlo = "stablehlo.shift_right_logical"

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        x, y = [extend_to_bytes(a, signed=False) for a in args]
        amounts, inside = _amounts(y, dtypes.itemsize_bits(args[0].dtype))
        return _view_or_cast(np.where(inside, np.right_shift(x, amounts), x.dtype.type(0)), args[0].dtype)


@final
class ShiftRightArithmetic(Shift):
    __slots__ = ()
    name = "shift_right_arithmetic"
    hlo = "stablehlo.shift_right_arithmetic"

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        bits = dtypes.itemsize_bits(args[0].dtype)
        x, y = extend_to_bytes(args[0], signed=True), extend_to_bytes(args[1], signed=False)
        amounts = np.where(y < bits, y, bits - 1).astype(x.dtype)
        return _view_or_cast(np.right_shift(x, amounts), args[0].dtype)


SHIFT_LEFT: Final = ShiftLeft()
SHIFT_RIGHT_LOGICAL: Final = ShiftRightLogical()
SHIFT_RIGHT_ARITHMETIC: Final = ShiftRightArithmetic()


def shift_left(x: ArrayLike, y: ArrayLike) -> Array:
    """`x << y`, elementwise, for integers of one dtype; 0 where `y` is negative or not less than the width.

    >>> shift_left(np.arange(4), 1).tolist()
    [0, 2, 4, 6]
    """
    return bind_binary(SHIFT_LEFT, x, y)


def shift_right_logical(x: ArrayLike, y: ArrayLike) -> Array:
    """`x >> y`, elementwise, zeros coming in on the left; 0 where `y` is negative or not less than the width.

    >>> shift_right_logical(np.array([4, -1], np.int8), np.int8(1)).tolist()
    [2, 127]
    """
    return bind_binary(SHIFT_RIGHT_LOGICAL, x, y)


def shift_right_arithmetic(x: ArrayLike, y: ArrayLike) -> Array:
    """`x >> y`, elementwise, copies of the leftmost bit coming in; only those where `y` is out of range.

    >>> shift_right_arithmetic(np.array([4, -4]), 1).tolist()
    [2, -2]
    """
    return bind_binary(SHIFT_RIGHT_ARITHMETIC, x, y)
