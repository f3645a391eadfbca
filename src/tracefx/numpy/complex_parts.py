"""The parts of complex numbers and their conjugates."""

from __future__ import annotations

from tracefx.core import Array, ArrayLike, dtypes
from tracefx.core.handler import as_array
from tracefx.numpy.operand_promotion import as_operand
from tracefx.ops.elementwise import complex as complex_numbers
from tracefx.ops.structural import full_like_aval


def conjugate(x: ArrayLike, /) -> Array:
    """Returns the complex conjugate; real numbers are returned unchanged.

    Args:
        x: An array or number.

    Returns:
        An array of the shape and dtype of `x`.

    >>> conjugate(1 + 2j).item()
    (1-2j)
    """
    value = as_operand(x, "conjugate: x")
    return complex_numbers.conj(value) if dtypes.is_complex(value.aval.dtype) else as_array(value)


conj = conjugate


def real(val: ArrayLike, /) -> Array:
    """Returns the real part; real numbers are returned unchanged.

    Args:
        val: An array or number.

    Returns:
        An array of the shape of `val`: floats of its precision if it is complex, otherwise of its dtype.

    >>> real(1 + 2j).item()
    1.0
    """
    value = as_operand(val, "real: val")
    return complex_numbers.real(value) if dtypes.is_complex(value.aval.dtype) else as_array(value)


def imag(val: ArrayLike, /) -> Array:
    """Returns the imaginary part, 0 for real numbers.

    Args:
        val: An array or number.

    Returns:
        An array of the shape of `val`: floats of its precision if it is complex, otherwise of its dtype.

    >>> imag(1 + 2j).item()
    2.0
    """
    value = as_operand(val, "imag: val")
    return complex_numbers.imag(value) if dtypes.is_complex(value.aval.dtype) else full_like_aval(value.aval, False)
