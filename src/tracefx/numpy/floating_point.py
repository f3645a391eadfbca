"""Floating-point functions: sign bits and neighbouring numbers."""

from __future__ import annotations

from tracefx.core import Array, ArrayLike, ShapedArray, dtypes
from tracefx.numpy.kernels import KERNELS
from tracefx.numpy.operand_promotion import as_operand, promote_args_inexact
from tracefx.numpy.ufuncs import broadcast_select, literal_like, python_zero
from tracefx.ops.elementwise import abs_sign, arithmetic, atan2_nextafter, comparison
from tracefx.ops.elementwise.bit_representation import bitcast_convert_type
from tracefx.ops.structural import full_like_aval
from tracefx.transforms.eager_calls import eager_cached


def signbit(x: ArrayLike, /) -> Array:
    """Returns whether `x` has its sign bit set, as -0.0 has and a NaN may have.

    Args:
        x: An array or number; not complex.

    Returns:
        An array of bools of the shape of `x`.

    Raises:
        ValueError: If `x` is complex.

    >>> signbit(-0.0)
    Array(True, dtype=bool)
    """
    value = as_operand(x, "signbit: x")
    dtype = value.aval.dtype
    if dtypes.is_complex(dtype):
        raise ValueError(f"signbit: complex numbers have no sign, got {value.aval}; take their real or imaginary part")
    if dtypes.is_float(dtype):
        value = bitcast_convert_type(value, f"int{dtypes.itemsize_bits(dtype)}")
    elif not dtypes.is_signed(dtype):
        return full_like_aval(ShapedArray(value.aval.shape, dtypes.bool_), False)
    return comparison.lt(value, literal_like(value, python_zero(value)))


@eager_cached(numbers=2, kernel=KERNELS["copysign"])
def copysign(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns the magnitude of `x1` with the sign of `x2`, as a float.

    Args:
        x1: The magnitudes, an array or number; not complex.
        x2: The signs, broadcast against `x1`.

    Returns:
        An array of floats of the broadcast shape.

    Raises:
        TypeError: If an operand is complex.

    >>> copysign(3.0, -0.0)
    Array(-3., dtype=float32, weak_type=True)
    """
    x, y = promote_args_inexact("copysign", x1, x2)
    if dtypes.is_complex(x.aval.dtype):
        raise TypeError(f"copysign is not defined for complex numbers, got {x.aval}")
    magnitude = abs_sign.abs(x)
    return broadcast_select(signbit(y), arithmetic.neg(magnitude), magnitude)


def nextafter(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns the next float after `x1` in the direction of `x2`.

    Args:
        x1: An array or number; not complex.
        x2: The direction, broadcast against `x1`.

    Returns:
        An array of floats of the broadcast shape.

    Raises:
        TypeError: If an operand is complex.

    >>> nextafter(1.0, 2.0) > 1.0
    Array(True, dtype=bool)
    """
    return atan2_nextafter.nextafter(*promote_args_inexact("nextafter", x1, x2))
