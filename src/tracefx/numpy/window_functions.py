"""Windows: weights for the samples of a signal, which fall off towards its ends."""

from __future__ import annotations

import math

from tracefx.control.special.bessel import bessel_i0e
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import ShapedArray
from tracefx.core.handler import as_array
from tracefx.numpy.operand_promotion import as_operand, to_inexact
from tracefx.numpy.transcendentals import cos, exp, sqrt
from tracefx.numpy.ufuncs import absolute, divide, multiply, square, subtract
from tracefx.ops import structural
from tracefx.ops.elementwise import abs_sign, arithmetic, selection
from tracefx.ops.shape import shape
from tracefx.ops.static_integers import ShapeError, static_int


def _sample_positions(name: str, M: int) -> Array | int:
    """The numbers of `M` samples; their count where there is at most one, whose weight is 1."""
    count = static_int(name, M, "M")
    if count < 0:
        raise ShapeError(f"{name}: M must not be negative, got {count}")
    return shape.iota(dtypes.default_float(), count) if count > 1 else count


def _ones(count: int) -> Array:
    return structural.full_like_aval(ShapedArray((count,), dtypes.default_float()), 1.0)


def _sum_of_cosines(name: str, M: int, *weights: float) -> Array:
    """A sum of cosines of multiples of the angle that goes round once from the first sample to the last."""
    places = _sample_positions(name, M)
    if isinstance(places, int):
        return _ones(places)
    out: ArrayLike = weights[0]
    for k, weight in enumerate(weights[1:], 1):
        out = subtract(out, multiply(weight, cos(divide(multiply(2 * math.pi * k, places), places.size - 1))))
    return as_array(as_operand(out, name))


def hamming(M: int) -> Array:
    """`M` weights of a raised cosine that is 0.08 at the ends.

    >>> hamming(3).round(2).tolist()
    [0.07999999821186066, 1.0, 0.07999999821186066]
    """
    return _sum_of_cosines("hamming", M, 0.54, 0.46)


def hanning(M: int) -> Array:
    """`M` weights of a raised cosine that is 0 at the ends.

    >>> hanning(3).tolist()
    [0.0, 1.0, 0.0]
    """
    return _sum_of_cosines("hanning", M, 0.5, 0.5)


def blackman(M: int) -> Array:
    """`M` weights that come close to 0 at the ends: two cosines.

    >>> blackman(3).round(4).tolist()
    [-0.0, 1.0, -0.0]
    """
    return _sum_of_cosines("blackman", M, 0.42, 0.5, -0.08)


def bartlett(M: int) -> Array:
    """`M` weights of a triangle that is 0 at the ends.

    >>> bartlett(5).tolist()
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    places = _sample_positions("bartlett", M)
    if isinstance(places, int):
        return _ones(places)
    n = places.size
    return subtract(1.0, divide(absolute(subtract(multiply(2.0, places), n - 1)), n - 1))


def kaiser(M: int, beta: ArrayLike) -> Array:
    """`M` weights by a Bessel function; the greater `beta`, the narrower.

    >>> kaiser(3, 0.0).tolist()
    [1.0, 1.0, 1.0]
    """
    places = _sample_positions("kaiser", M)
    if isinstance(places, int):
        return _ones(places)
    middle = (places.size - 1) / 2
    across = sqrt(subtract(1.0, square(divide(subtract(places, middle), middle))))
    return divide(i0(multiply(beta, across)), i0(beta))


def i0(x: ArrayLike) -> Array:
    """The modified Bessel function of the first kind and order 0. ValueError for complex numbers.

    >>> i0(0.0).round(4)
    Array(1., dtype=float32, weak_type=True)
    """
    value = to_inexact(x, "i0: x")
    if dtypes.is_complex(value.aval.dtype):
        raise ValueError(f"i0 is not defined for complex numbers, got {value.aval}")
    # The magnitude of x, with derivative 0 at 0, where that of `absolute` is 1 and `i0` is smooth.
    size = arithmetic.mul(value, selection.stop_gradient(abs_sign.sign(value)))
    return multiply(exp(size), bessel_i0e(value))
