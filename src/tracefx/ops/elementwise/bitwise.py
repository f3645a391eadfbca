"""Logic on booleans and on the bits of integers, and bit shifts."""

from __future__ import annotations

from typing import Final, final

import numpy as np
from typing_extensions import override

from tracefx.core import Array, ArrayLike, DType, NDArray, dtypes
from tracefx.core.handler import bind1
from tracefx.ops.casting import cast
from tracefx.ops.elementwise.elementwise import LOGICAL, NonDifferentiable, bind_binary
from tracefx.ops.operation import Domain

INTEGERS: Final = Domain("integers", dtypes.is_integer)


@final
class And(NonDifferentiable):
    """The bitwise AND, elementwise: `x & y`; that of booleans is logical.

    `x: bool[...], y: bool[...] -> bool[...]`, booleans or integers. Bound by `lax.bitwise_and`.
    """

    name = "and"
    arity = 2
    domain = LOGICAL
    hlo = "stablehlo.and"
    ufunc = np.bitwise_and


@final
class Or(NonDifferentiable):
    """The bitwise OR, elementwise: `x | y`; that of booleans is logical.

    `x: bool[...], y: bool[...] -> bool[...]`, booleans or integers. Bound by `lax.bitwise_or`.
    """

    name = "or"
    arity = 2
    domain = LOGICAL
    hlo = "stablehlo.or"
    ufunc = np.bitwise_or


@final
class Xor(NonDifferentiable):
    """The bitwise exclusive OR, elementwise: `x ^ y`; that of booleans is logical.

    `x: bool[...], y: bool[...] -> bool[...]`, booleans or integers. Bound by `lax.bitwise_xor`.
    """

    name = "xor"
    arity = 2
    domain = LOGICAL
    hlo = "stablehlo.xor"
    ufunc = np.bitwise_xor


@final
class Not(NonDifferentiable):
    """The bitwise complement, elementwise: `~x`; that of booleans is the negation.

    `x: bool[...] -> bool[...]`, booleans or integers. Bound by `lax.bitwise_not`.
    """

    name = "not"
    domain = LOGICAL
    hlo = "stablehlo.not"
    ufunc = np.invert


AND: Final = And()
OR: Final = Or()
XOR: Final = Xor()
NOT: Final = Not()


def bitwise_and(x: ArrayLike, y: ArrayLike) -> Array:
    """Returns `x & y`, elementwise.

    Args:
        x: Array of booleans or integers.
        y: Array of the same dtype. Scalars and axes of size 1 are broadcast.

    Returns:
        An array of the broadcast shape and the common dtype.

    Raises:
        TypeError: The dtypes differ or are inexact, or the shapes don't broadcast.

    >>> bitwise_and(np.arange(4), 2).tolist()
    [0, 0, 2, 2]
    """
    return bind_binary(AND, x, y)


def bitwise_or(x: ArrayLike, y: ArrayLike) -> Array:
    """Returns `x | y`, elementwise.

    Args:
        x: Array of booleans or integers.
        y: Array of the same dtype. Scalars and axes of size 1 are broadcast.

    Returns:
        An array of the broadcast shape and the common dtype.

    Raises:
        TypeError: The dtypes differ or are inexact, or the shapes don't broadcast.

    >>> bitwise_or(np.arange(4), 2).tolist()
    [2, 3, 2, 3]
    """
    return bind_binary(OR, x, y)


def bitwise_xor(x: ArrayLike, y: ArrayLike) -> Array:
    """Returns `x ^ y`, elementwise.

    Args:
        x: Array of booleans or integers.
        y: Array of the same dtype. Scalars and axes of size 1 are broadcast.

    Returns:
        An array of the broadcast shape and the common dtype.

    Raises:
        TypeError: The dtypes differ or are inexact, or the shapes don't broadcast.

    >>> bitwise_xor(np.arange(4), 2).tolist()
    [2, 3, 0, 1]
    """
    return bind_binary(XOR, x, y)


def bitwise_not(x: ArrayLike) -> Array:
    """Returns `~x`, elementwise: the negation of booleans, the bitwise complement of integers.

    Args:
        x: Array of booleans or integers.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError: `x` is of another dtype.

    >>> bitwise_not(np.array([True, False])).tolist(), bitwise_not(np.arange(2)).tolist()
    ([False, True], [-1, -2])
    """
    return bind1(NOT, x)


# ------------------------------------------------------------------ shifts


class Shift(NonDifferentiable):
    """A shift of integers, both of one dtype. The amount is unsigned; one beyond the width shifts out all bits."""

    __slots__ = ()
    domain = INTEGERS
    arity = 2
    widens_narrow_ints = False  # the width of the operand matters


def _amounts(y: NDArray, bits: int) -> tuple[NDArray, NDArray]:
    """Returns shift amounts valid in NumPy, and a mask of where they equal the requested ones."""
    inside = (y >= 0) & (y < bits)
    return np.where(inside, y, y.dtype.type(0)), inside


def extend_to_bytes(x: NDArray, signed: bool) -> NDArray:
    """Returns the bits of `x` as an integer dtype of at least 8 bits, sign-extended or zero-extended."""
    bits = dtypes.itemsize_bits(x.dtype)
    if bits >= 8:
        return x.view(f"{'i' if signed else 'u'}{x.dtype.itemsize}")
    low = x.astype(np.int8) & np.int8(2**bits - 1)
    if signed:
        sign = np.int8(2 ** (bits - 1))
        return (low ^ sign) - sign
    return low.view(np.uint8)


def _view_or_cast(x: NDArray, dtype: DType) -> NDArray:
    """Reinterprets bits as `dtype`, or truncates them if `dtype` is narrower than a byte."""
    return x.view(dtype) if dtypes.itemsize_bits(dtype) >= 8 else cast(x, dtype)


@final
class ShiftLeft(Shift):
    """The left shift, elementwise: `x << y`, shifting in zeros.

    `x: i32[...], y: i32[...] -> i32[...]`, integers. Bound by `lax.shift_left`.
    """

    name = "shift_left"
    hlo = "stablehlo.shift_left"

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        x, y = [extend_to_bytes(a, dtypes.is_signed(a.dtype)) for a in args]
        amounts, inside = _amounts(y, dtypes.itemsize_bits(args[0].dtype))
        return _view_or_cast(np.where(inside, np.left_shift(x, amounts), x.dtype.type(0)), args[0].dtype)


@final
class ShiftRightLogical(Shift):
    """The logical right shift, elementwise: `x >> y`, shifting in zeros.

    `x: i32[...], y: i32[...] -> i32[...]`, integers. Bound by `lax.shift_right_logical`.
    """

    name = "shift_right_logical"
    hlo = "stablehlo.shift_right_logical"

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        x, y = [extend_to_bytes(a, signed=False) for a in args]
        amounts, inside = _amounts(y, dtypes.itemsize_bits(args[0].dtype))
        return _view_or_cast(np.where(inside, np.right_shift(x, amounts), x.dtype.type(0)), args[0].dtype)


@final
class ShiftRightArithmetic(Shift):
    """The arithmetic right shift, elementwise: `x >> y`, shifting in copies of the highest bit.

    `x: i32[...], y: i32[...] -> i32[...]`, integers. Bound by `lax.shift_right_arithmetic`.
    """

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
    """Returns `x << y`, elementwise.

    Args:
        x: Array of integers.
        y: Number of bits, of the same dtype. Scalars and axes of size 1 are broadcast.

    Returns:
        An array of the broadcast shape and the common dtype; 0 where `y` is negative or at least the width.

    Raises:
        TypeError: The operands are not integers of one dtype, or the shapes don't broadcast.

    >>> shift_left(np.arange(4), 1).tolist()
    [0, 2, 4, 6]
    """
    return bind_binary(SHIFT_LEFT, x, y)


def shift_right_logical(x: ArrayLike, y: ArrayLike) -> Array:
    """Returns `x >> y`, elementwise, shifting in zeros.

    Args:
        x: Array of integers.
        y: Number of bits, of the same dtype. Scalars and axes of size 1 are broadcast.

    Returns:
        An array of the broadcast shape and the common dtype; 0 where `y` is negative or at least the width.

    Raises:
        TypeError: The operands are not integers of one dtype, or the shapes don't broadcast.

    >>> shift_right_logical(np.array([4, -1], np.int8), np.int8(1)).tolist()
    [2, 127]
    """
    return bind_binary(SHIFT_RIGHT_LOGICAL, x, y)


def shift_right_arithmetic(x: ArrayLike, y: ArrayLike) -> Array:
    """Returns `x >> y`, elementwise, shifting in copies of the highest bit.

    Args:
        x: Array of integers.
        y: Number of bits, of the same dtype. Scalars and axes of size 1 are broadcast.

    Returns:
        An array of the broadcast shape and the common dtype. Where `y` is negative or at least the width, all bits are
        copies of the highest bit.

    Raises:
        TypeError: The operands are not integers of one dtype, or the shapes don't broadcast.

    >>> shift_right_arithmetic(np.array([4, -4]), 1).tolist()
    [2, -2]
    """
    return bind_binary(SHIFT_RIGHT_ARITHMETIC, x, y)
