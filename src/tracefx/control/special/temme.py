"""Temme's uniform expansion of the incomplete gamma functions, for large arguments that are near each other.

With `mu = (x - a) / a`, and `eta` of the sign of `mu` such that `eta**2 / 2 = mu - log(1 + mu)` (DLMF 8.12.1-8.12.8):

    P(a, x) = erfc(-eta * sqrt(a / 2)) / 2 - R
    R = exp(-a * eta**2 / 2) / sqrt(2 * pi * a) * sum(d[k][n] * eta**n / a**k)

The coefficients follow from recurrences (DLMF 8.12.10-8.12.13; Temme 1979, DiDonato and Morris 1986): `d[0]` from the
inversion of `eta`, the others from Stirling's series. They were computed as fractions. There are as many as 53 bits
need for `a >= 20` and `abs(eta) <= 0.48`; for 24 bits fewer are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tracefx.core import Array, DType, dtypes

MIN_A: Final = 20.0
"""The expansion holds for `a` above this bound."""
MAX_MU: Final = 0.4
"""The expansion holds for `abs(mu)` below this bound, where `abs(eta)` is below 0.48."""


def temme_expansion(a: Array, eta: Array) -> tuple[Array, Array, Array]:
    """Returns the sum, and its derivatives with respect to `a` and to `eta`."""
    w = 1 / a
    total, by_w, by_eta = w * 0, w * 0, w * 0
    for row in reversed(_significant_coefficients(a.dtype)):
        value, slope = _polynomial_and_derivative(row, eta)
        by_w = by_w * w + total
        total = total * w + value
        by_eta = by_eta * w + slope
    return total, -by_w * w * w, by_eta


def _polynomial_and_derivative(row: Sequence[float], x: Array) -> tuple[Array, Array]:
    value, slope = x * 0 + row[-1], x * 0
    for c in reversed(row[:-1]):
        slope = slope * x + value
        value = value * x + c
    return value, slope


def _significant_coefficients(dtype: DType) -> Sequence[Sequence[float]]:
    """Returns the coefficients that are significant in this dtype."""
    threshold = 2.0**-56 if dtype == dtypes.float64 else 2.0**-28
    rows = []
    for k, row in enumerate(_COEFFICIENTS):
        kept = [n for n, c in enumerate(row) if abs(c) * 0.48**n * MIN_A**-k > threshold]
        if kept:
            rows.append(row[: kept[-1] + 1])
    return rows


_COEFFICIENTS: Final = (
    (
        -0.3333333333333333,
        0.08333333333333333,
        -0.014814814814814815,
        0.0011574074074074073,
        0.0003527336860670194,
        -0.0001787551440329218,
        3.919263178522438e-05,
        -2.185448510679992e-06,
        -1.85406221071516e-06,
        8.296711340953087e-07,
        -1.7665952736826078e-07,
        6.707853543401498e-09,
        1.0261809784240309e-08,
        -4.382036018453353e-09,
        9.14769958223679e-10,
        -2.5514193994946248e-11,
        -5.830772132550426e-11,
        2.4361948020667415e-11,
    ),
    (
        -0.001851851851851852,
        -0.003472222222222222,
        0.0026455026455026454,
        -0.0009902263374485596,
        0.00020576131687242798,
        -4.018775720164609e-07,
        -1.8098550334489977e-05,
        7.64916091608111e-06,
        -1.6120900894563446e-06,
        4.647127802807434e-09,
        1.378633446915721e-07,
        -5.752545603517705e-08,
        1.1951628599778148e-08,
        -1.7543241719747647e-11,
        -1.0091543710600413e-09,
        4.162792991842583e-10,
        -8.56390702649298e-11,
    ),
    (
        0.004133597883597883,
        -0.0026813271604938273,
        0.0007716049382716049,
        2.0093878600823047e-06,
        -0.0001073665322636516,
        5.2923448829120125e-05,
        -1.2760635188618728e-05,
        3.423578734096138e-08,
        1.3721957309062934e-06,
        -6.298992138380055e-07,
        1.4280614206064242e-07,
        -2.0477098421990866e-10,
        -1.409252991086752e-08,
        6.228974084922022e-09,
        -1.3670488396617114e-09,
    ),
    (
        0.0006494341563786008,
        0.00022947209362139917,
        -0.0004691894943952557,
        0.00026772063206283885,
        -7.561801671883977e-05,
        -2.396505113867297e-07,
        1.1082654115347302e-05,
        -5.6749528269915965e-06,
        1.4230900732435883e-06,
        -2.7861080291528143e-11,
        -1.6958404091930278e-07,
        8.099464905388083e-08,
        -1.9111168485973655e-08,
    ),
    (
        -0.0008618882909167117,
        0.0007840392217200666,
        -0.0002990724803031902,
        -1.4638452578843418e-06,
        6.641498215465122e-05,
        -3.968365047179435e-05,
        1.1375726970678419e-05,
        2.507497226237533e-10,
        -1.6954149536558305e-06,
        8.907507532205309e-07,
        -2.292934834000805e-07,
        2.956794137544049e-11,
        2.8865829742708783e-08,
    ),
    (
        -0.00033679855336635813,
        -6.972813758365857e-05,
        0.0002772753244959392,
        -0.00019932570516188847,
        6.797780477937208e-05,
        1.419062920643967e-07,
        -1.3594048189768693e-05,
        8.018470256334202e-06,
        -2.291481176508095e-06,
        -3.252473551298454e-10,
        3.4652846491085265e-07,
        -1.8447187191171344e-07,
    ),
    (
        0.0005313079364639922,
        -0.0005921664373536939,
        0.0002708782096718045,
        7.902353232660328e-07,
        -8.153969367561969e-05,
        5.61168275310625e-05,
        -1.8329116582843375e-05,
        -3.0796134506033047e-09,
        3.465155368803609e-06,
        -2.0291327396058603e-06,
    ),
    (
        0.00034436760689237765,
        5.171790908260592e-05,
        -0.00033493161081142234,
        0.0002812695154763237,
        -0.00010976582244684731,
        -1.2741009095484485e-07,
        2.7744451511563645e-05,
        -1.8263488805711332e-05,
    ),
    (
        -0.0006526239185953094,
        0.0008394987206720873,
        -0.000438297098541721,
        -6.969091458420552e-07,
        0.00016644846642067547,
        -0.00012783517679769218,
        4.629953263691304e-05,
    ),
    (
        -0.0005967612901927463,
        -7.204895416020011e-05,
        0.0006782308837667328,
        -0.0006401475260262758,
        0.00027750107634328704,
    ),
    (0.0013324454494800656, -0.0019144384985654776, 0.0011089369134596636),
)
