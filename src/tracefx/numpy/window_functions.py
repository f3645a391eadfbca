"""Window functions for signal processing, and the Bessel function `i0`.

`M` is the number of weights, a static integer; a negative one raises a ValueError.
"""

from __future__ import annotations

import math

from tracefx.control.special.bessel import bessel_i0e
from tracefx.core import Array, ArrayLike, ShapedArray, dtypes
from tracefx.core.handler import as_array
from tracefx.numpy.operand_promotion import as_operand, to_inexact
from tracefx.numpy.transcendentals import cos, exp, sqrt
from tracefx.numpy.ufuncs import absolute, divide, multiply, square, subtract
from tracefx.ops import structural
from tracefx.ops.elementwise import abs_sign, arithmetic, selection
from tracefx.ops.shape import shape
from tracefx.ops.static_integers import static_count


def _sample_positions(name: str, M: int) -> Array | int:
    """Returns the positions of `M` samples, or just the number of samples if it is 0 or 1, whose weights are 1."""
    count = static_count(name, M, "M")
    return shape.iota(dtypes.default_float(), count) if count > 1 else count


def _ones(count: int) -> Array:
    return structural.full_like_aval(ShapedArray((count,), dtypes.default_float()), 1.0)


def _sum_of_cosines(name: str, M: int, *weights: float) -> Array:
    """Returns a sum of cosines whose angle runs from 0 to `2 pi` between the first and the last sample."""
    positions = _sample_positions(name, M)
    if isinstance(positions, int):
        return _ones(positions)
    out: ArrayLike = weights[0]
    for k, weight in enumerate(weights[1:], 1):
        out = subtract(out, multiply(weight, cos(divide(multiply(2 * math.pi * k, positions), positions.size - 1))))
    return as_array(as_operand(out, name))


def hamming(M: int) -> Array:
    """Returns the Hamming window, a raised cosine that is 0.08 at the ends.

    Args:
        M: The number of weights, a static integer.

    Returns:
        The weights, `f32[M]`.

    >>> hamming(3).round(2).tolist()
    [0.07999999821186066, 1.0, 0.07999999821186066]
    """
    return _sum_of_cosines("hamming", M, 0.54, 0.46)


def hanning(M: int) -> Array:
    """Returns the Hann window, a raised cosine that is 0 at the ends.

    Args:
        M: The number of weights, a static integer.

    Returns:
        The weights, `f32[M]`.

    >>> hanning(3).tolist()
    [0.0, 1.0, 0.0]
    """
    return _sum_of_cosines("hanning", M, 0.5, 0.5)


def blackman(M: int) -> Array:
    """Returns the Blackman window, a sum of two cosines that is nearly 0 at the ends.

    Args:
        M: The number of weights, a static integer.

    Returns:
        The weights, `f32[M]`.

    >>> blackman(3).round(4).tolist()
    [-0.0, 1.0, -0.0]
    """
    return _sum_of_cosines("blackman", M, 0.42, 0.5, -0.08)


def bartlett(M: int) -> Array:
    """Returns the Bartlett window, a triangle that is 0 at the ends.

    Args:
        M: The number of weights, a static integer.

    Returns:
        The weights, `f32[M]`.

    >>> bartlett(5).tolist()
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    positions = _sample_positions("bartlett", M)
    if isinstance(positions, int):
        return _ones(positions)
    n = positions.size
    return subtract(1.0, divide(absolute(subtract(multiply(2.0, positions), n - 1)), n - 1))


def kaiser(M: int, beta: ArrayLike) -> Array:
    """Returns the Kaiser window, given by a Bessel function.

    Args:
        M: The number of weights, a static integer.
        beta: The shape: 0 gives equal weights, and the window gets narrower as it grows.

    Returns:
        The weights, `f32[M]`.

    >>> kaiser(3, 0.0).tolist()
    [1.0, 1.0, 1.0]
    """
    positions = _sample_positions("kaiser", M)
    if isinstance(positions, int):
        return _ones(positions)
    middle = (positions.size - 1) / 2
    argument = sqrt(subtract(1.0, square(divide(subtract(positions, middle), middle))))
    return divide(i0(multiply(beta, argument)), i0(beta))


def i0(x: ArrayLike) -> Array:
    """Returns the modified Bessel function of the first kind and order 0.

    Args:
        x: An array or number; not complex.

    Returns:
        An array of floats of the shape of `x`.

    Raises:
        ValueError: If `x` is complex.

    >>> i0(0.0).round(4)
    Array(1., dtype=float32, weak_type=True)
    """
    value = to_inexact(x, "i0: x")
    if dtypes.is_complex(value.aval.dtype):
        raise ValueError(f"i0 is not defined for complex numbers, got {value.aval}")
    # The magnitude of x with derivative 0 at 0, as smooth `i0` needs; that of `absolute` is 1.
    magnitude = arithmetic.mul(value, selection.stop_gradient(abs_sign.sign(value)))
    return multiply(exp(magnitude), bessel_i0e(value))
