"""The modified Bessel functions of the first kind of orders 0 and 1, scaled by `exp(-abs(x))`.

Order 0 is computed by a Chebyshev series in `x` for `abs(x) <= 8`, and otherwise, times `sqrt(x)`, by one in `1 / x`;
the coefficients of both were computed with 40 digits. XLA has an instruction for order 1.
"""

from __future__ import annotations

import math
from typing import Final, final

from typing_extensions import override

from tracefx.control.special.formula import ElementwiseFormula
from tracefx.control.special.polynomials import chebyshev
from tracefx.core import Array, ArrayLike, DType, Value, dtypes
from tracefx.core.handler import bind1
from tracefx.core.primitive import Tangent
from tracefx.ops.elementwise.abs_sign import abs, sign
from tracefx.ops.elementwise.arithmetic import div, mul, neg, sub
from tracefx.ops.elementwise.comparison import lt
from tracefx.ops.elementwise.elementwise import add
from tracefx.ops.elementwise.selection import select_with_aval
from tracefx.ops.elementwise.special import Special
from tracefx.ops.elementwise.transcendental import exp, sqrt


def series_limit(dtype: DType) -> float:
    """Returns the number below which `1 / 2 + x**2 / 16` is `I1(x) / x` up to rounding.

    Near 0 the derivative of the quotient of `I1(x)` and `x` would be a difference of two large numbers.
    """
    return math.pow(192 * float(dtypes.finfo(dtype).eps), 0.25)


@final
class BesselI0e(ElementwiseFormula):
    """The exponentially scaled modified Bessel function of order 0."""

    name = "bessel_i0e"

    @override
    def formula(self, *operands: Array) -> Array:
        size = abs(operands[0])
        far = size > 8
        inner, outer = select_with_aval(far, 0.0, size, size.aval), select_with_aval(far, size, 8.0, size.aval)
        near = chebyshev(_I0_NEAR, inner / 2 - 2)
        return select_with_aval(far, chebyshev(_I0_FAR, 32 / outer - 2) / sqrt(outer), near, size.aval)

    @override
    def jvp_term(self, i: int, tangent: Value, out: Value, *primals: Value) -> Tangent:
        (x,) = primals
        return mul(tangent, sub(bessel_i1e(x), mul(sign(x), out)))


@final
class BesselI1e(Special):
    """The exponentially scaled modified Bessel function of order 1."""

    name = "bessel_i1e"
    hlo = "chlo.bessel_i1e"

    @override
    def derivative(self, x: Value, out: Value) -> Value:
        near = lt(abs(x), series_limit(x.aval.dtype))
        inner = select_with_aval(near, x, 0.0, x.aval)
        # The product with the sign has the derivative 0 at 0.
        series = mul(exp(neg(mul(sign(inner), inner))), add(mul(mul(inner, inner), 1 / 16), 0.5))
        ratio = select_with_aval(near, series, div(out, select_with_aval(near, 1.0, x, x.aval)), x.aval)
        return sub(sub(bessel_i0e(x), mul(sign(x), out)), ratio)


BESSEL_I0E: Final = BesselI0e()
BESSEL_I1E: Final = BesselI1e()


def bessel_i0e(x: ArrayLike) -> Array:
    """Computes `exp(-abs(x))` times the modified Bessel function of order 0, elementwise.

    Args:
        x: an array of floats.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError: when `x` is not of a float dtype.

    >>> round(float(bessel_i0e(0.0)), 5)
    1.0
    """
    return bind1(BESSEL_I0E, x)


def bessel_i1e(x: ArrayLike) -> Array:
    """Computes `exp(-abs(x))` times the modified Bessel function of order 1, elementwise.

    Args:
        x: an array of floats.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError: when `x` is not of a float dtype.

    >>> bessel_i1e(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return bind1(BESSEL_I1E, x)


_I0_NEAR: Final = (
    0.33839763720473803,
    -0.3046826723431984,
    0.17162090152220877,
    -0.09490109704804764,
    0.04930528423967071,
    -0.02373741480589947,
    0.010546460394594998,
    -0.004324309995050576,
    0.0016394756169413357,
    -0.0005763755745385824,
    0.00018850288509584165,
    -5.754195010082104e-05,
    1.6448448070728896e-05,
    -4.4167383584587505e-06,
    1.1173875391201037e-06,
    -2.670793853940612e-07,
    6.046995022541919e-08,
    -1.300025009986248e-08,
    2.6598237246823866e-09,
    -5.189795601635263e-10,
    9.675809035373237e-11,
    -1.726826291441556e-11,
    2.95505266312964e-12,
    -4.856446783111929e-13,
    7.676185498604936e-14,
    -1.1685332877993451e-14,
    1.715391285555133e-15,
    -2.431279846547955e-16,
    3.3307945188222384e-17,
)
_I0_FAR: Final = (
    0.4022452055070544,
    0.0033691164782556943,
    6.889758346916825e-05,
    2.8913705208347567e-06,
    2.0489185894690638e-07,
    2.266668990498178e-08,
    3.3962320257083865e-09,
    4.94060238822497e-10,
    1.1889147107846439e-11,
    -3.1499165279632416e-11,
    -1.3215811840447713e-11,
    -1.7941785315068062e-12,
    7.180124451383666e-13,
    3.8527783827421426e-13,
    1.54008621752141e-14,
    -4.150569347287222e-14,
    -9.554846698828307e-15,
    3.8116806693526224e-15,
    1.7725601330565263e-15,
    -3.425485619677219e-16,
    -2.8276239805165836e-16,
    3.461222867697461e-17,
    4.46562142029676e-17,
    -4.830504485944182e-18,
    -7.233180487874754e-18,
)
