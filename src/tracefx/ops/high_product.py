"""`mulhi`: the upper half of the bits of products of integers."""

from __future__ import annotations

from typing import Final, final

import numpy as np
from typing_extensions import override

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.dtypes import NDArray
from tracefx.ops.bitwise import INTEGERS
from tracefx.ops.casting import cast
from tracefx.ops.elementwise import NonDifferentiable, bind_binary

_HALF: Final = np.uint64(32)
_LOW: Final = np.uint64(2**32 - 1)


@final
class MulHi(NonDifferentiable):
    __slots__ = ()
    name = "mulhi"
    arity = 2
    domain = INTEGERS
    hlo = "chlo.mulhi"
    kernels_widen = False

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        x, y = args
        bits = dtypes.itemsize_bits(x.dtype)
        if bits == 64:
            return _of_64_bits(x, y)
        wide = np.dtype(np.int64 if dtypes.is_signed(x.dtype) else np.uint64)
        product = cast(x, wide) * cast(y, wide)
        return cast(product >> wide.type(bits), x.dtype)


def _of_64_bits(x: NDArray, y: NDArray) -> NDArray:
    """By products of halves; those of negative numbers are too large by the other factor."""
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
    """The upper half of the bits of `x * y`, elementwise, for integers: `x * y // 2**bits`, of dtypes of so many bits.

    >>> mulhi(np.array([2**30, -1]), np.array([8, 1])).tolist()
    [2, -1]
    """
    return bind_binary(MUL_HI, x, y)
