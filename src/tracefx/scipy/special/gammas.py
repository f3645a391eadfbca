"""The gamma function and what is made of it: factorials, the beta function, incomplete functions, polygamma."""

from __future__ import annotations

import math
from typing import Final

import tracefx.numpy as fnp
from tracefx.control.special import incomplete_beta, incomplete_gamma
from tracefx.control.special.log_gamma import log_beta, log_gamma, log_gamma_ratio, stirling_remainder
from tracefx.control.special.polynomials import chebyshev, chebyshev_on
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.numpy.operand_promotion import convert_dtype, to_inexact
from tracefx.ops.elementwise import complex as complex_numbers
from tracefx.ops.elementwise import special
from tracefx.ops.static_integers import static_int
from tracefx.scipy.special.argument_promotion import call_promoted, promote_real
from tracefx.scipy.special.chebyshev_coefficients import DIGAMMA_ROOT, GAMMA_UNIT
from tracefx.transforms.custom_derivatives import custom_jvp
from tracefx.transforms.jit import jit

# ------------------------------------------------------------------ the gamma function


def gammaln(x: ArrayLike) -> Array:
    """The logarithm of the absolute value of the gamma function.

    >>> float(gammaln(1.0))
    0.0
    """
    return call_promoted("gammaln", _gammaln, x)


@custom_jvp
@jit
def _gammaln(x: Array) -> Array:
    """Reflected where `x` is negative (DLMF 5.5.3)."""
    low = x < 0
    apart = fnp.where(low, x - fnp.round(x), 0.5)
    sine = fnp.log(math.pi / fnp.abs(fnp.sin(math.pi * apart)))
    value = log_gamma(fnp.where(low, 1 - x, x))
    return fnp.where(x == -math.inf, math.inf, fnp.where(low, sine - value, value))


_gammaln.defjvps(lambda t, out, x: t * special.digamma(x))


def gammasgn(x: ArrayLike) -> Array:
    """The sign of the gamma function; that of a zero, and NaN of negative integers.

    >>> float(gammasgn(-0.5))
    -1.0
    """
    (value,) = promote_real("gammasgn", x)
    floor = fnp.floor(value)
    below = value < 0
    negative = (below & (fnp.remainder(floor, 2) != 0)) | ((value == 0) & fnp.signbit(value))
    poles = (below & (value == floor)) | fnp.isnan(value)
    one = fnp.ones_like(value)
    return fnp.where(poles, one * math.nan, fnp.where(negative, -one, one))


def gamma(x: ArrayLike) -> Array:
    """The gamma function, of real and complex numbers. NaN at negative integers.

    >>> float(gamma(5.0))
    24.0
    """
    value = to_inexact(x, "gamma: x")
    if dtypes.is_complex(value.aval.dtype):
        return fnp.exp(loggamma(x))
    return call_promoted("gamma", _gamma, x)


@custom_jvp
@jit
def _gamma(x: Array) -> Array:
    """By `gamma(x + 1) = x * gamma(x)` from numbers between 1 and 2, by Stirling's formula, by reflection (DLMF 5.5.3).

    So the values at integers are exact as long as the dtype holds them.
    """
    low = x < 0.5
    reflected = fnp.where(low, 1 - x, x)
    most = 12
    small = fnp.where(reflected < most, reflected, 1.5)
    shift = fnp.floor(small) - 1  # -1 below 1
    start = small - shift
    product = fnp.ones_like(start)
    for k in range(most - 2):
        product = product * fnp.where(k < shift, small - 1 - k, 1.0)
    s = start - 1
    value = (1 + s * (s - 1) * chebyshev(GAMMA_UNIT, 4 * s - 2)) * product
    value = fnp.where(shift < 0, value / small, value)
    large = fnp.where(reflected < most, float(most), reflected)
    half = large ** (0.5 * large - 0.25)
    far = math.sqrt(2 * math.pi) * (half * fnp.exp(-large)) * half * fnp.exp(stirling_remainder(large))
    far = fnp.where(large > 200, math.inf, far)
    value = fnp.where(reflected < most, value, far)
    whole = fnp.round(x)
    sine = fnp.sin(math.pi * (x - whole)) * (1 - 2 * fnp.remainder(whole, 2))
    value = fnp.where(low, math.pi / (sine * value), value)
    value = fnp.where(low & (x == whole), fnp.where(x == 0, fnp.copysign(math.inf, x), math.nan), value)
    return fnp.where(x == -math.inf, math.nan, value)


_gamma.defjvps(lambda t, out, x: t * (out * special.digamma(x)))


def loggamma(x: ArrayLike) -> Array:
    """The logarithm of the gamma function: of negative numbers NaN, of complex ones the principal branch.

    >>> round(complex(loggamma(1j)).real, 5)
    -0.65092
    """
    value = to_inexact(x, "loggamma: x")
    aval = value.aval
    if not dtypes.is_complex(aval.dtype):
        (number,) = promote_real("loggamma", x)
        return fnp.where(number >= 0, gammaln(number), math.nan)
    return _loggamma(fnp.asarray(convert_dtype(value, aval.dtype, aval.weak_type)))


@custom_jvp
@jit
def _loggamma(z: Array) -> Array:
    """Stirling's formula, shifted where `z` is small (DLMF 5.11.1, 5.5.1), reflected where it is negative (5.5.3)."""
    x, y = fnp.real(z), fnp.imag(z)
    low = x < 0.5
    w = fnp.where(low, 1 - z, z)
    shifted = w
    logs = fnp.zeros_like(w)
    for _ in range(8):  # the logarithms of the factors, whose sum stays on the branch
        short = (fnp.real(shifted) < 8) & (fnp.abs(fnp.imag(shifted)) < 8)
        logs = logs + fnp.where(short, fnp.log(shifted), 0)
        shifted = fnp.where(short, shifted + 1, shifted)
    value = (shifted - 0.5) * fnp.log(shifted) - shifted + 0.5 * math.log(2 * math.pi) + _stirling(shifted) - logs
    # log(sin(pi * z)) is continuous above and below the axis.
    above = fnp.where(y < 0, fnp.conj(z), z)
    turn = fnp.where(low, above, 0.5 + 0j)
    turned = fnp.real(turn) - fnp.round(fnp.real(turn))
    power = fnp.exp(2j * math.pi * complex_numbers.complex(turned, fnp.imag(turn)))
    sine = -1j * math.pi * (turn - 0.5) - math.log(2) + fnp.log(1 - power)
    sine = fnp.where(y < 0, fnp.conj(sine), sine)
    value = fnp.where(low, math.log(math.pi) - sine - value, value)
    pole = (y == 0) & (x <= 0) & (x == fnp.floor(x))
    return fnp.where(pole, math.inf + 0j, value)


_TAIL: Final = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)


def _stirling(z: Array) -> Array:
    inverse = 1 / z
    square = inverse * inverse
    total = square * 0 + _TAIL[-1]
    for c in reversed(_TAIL[:-1]):
        total = total * square + c
    return total * inverse


def _complex_digamma(z: Array) -> Array:
    """The logarithmic derivative, for that of `loggamma`."""
    x = fnp.real(z)
    low = x < 0.5
    w = fnp.where(low, 1 - z, z)
    total = fnp.zeros_like(w)
    for _ in range(8):
        short = (fnp.real(w) < 8) & (fnp.abs(fnp.imag(w)) < 8)
        total = total - fnp.where(short, 1 / w, 0)
        w = fnp.where(short, w + 1, w)
    inverse = 1 / w
    square = inverse * inverse
    series = square * 0
    for n in range(len(_TAIL), 0, -1):
        series = (series + _TAIL[n - 1] * (2 * n - 1)) * square
    total = total + fnp.log(w) - 0.5 * inverse - series
    turn = fnp.where(low, z, 0.25 + 0j)
    return fnp.where(low, total - math.pi / fnp.tan(math.pi * turn), total)


_loggamma.defjvps(lambda t, out, z: t * _complex_digamma(z))


# ------------------------------------------------------------------ factorials


def factorial(n: ArrayLike, exact: bool = False) -> Array:
    """`gamma(n + 1)`; 0 of negative numbers.

    NotImplementedError for `exact=True`, since no dtype holds the exact ones beyond 20.

    >>> float(factorial(5))
    120.0
    """
    if exact:
        raise NotImplementedError("factorial: exact=True is not supported; use math.factorial")
    (number,) = promote_real("factorial", n)
    below = number < 0
    return fnp.where(below, 0.0, gamma(fnp.where(below, 0.0, number) + 1))


def comb(N: ArrayLike, k: ArrayLike, *, repetition: bool = False) -> Array:
    """In how many ways `k` of `N` things can be chosen, each more than once with `repetition`; 0 where in none.

    >>> float(comb(5, 2))
    10.0
    """
    n, count = promote_real("comb", N, k)
    if repetition:
        return fnp.where((count == 0) & (n >= 0), 1.0, comb(n + count - 1, count))
    possible = (count <= n) & (n >= 0) & (count >= 0)
    value = call_promoted("comb", _comb, fnp.where(possible, n, 0.0), fnp.where(possible, count, 0.0))
    return fnp.where(possible, value, 0.0)


_FACTORS: Final = 20


@custom_jvp
@jit
def _comb(n: Array, k: Array) -> Array:
    """A product where that has few factors, so that it is exact; otherwise by the beta function."""
    least = fnp.minimum(k, n - k)
    product = fnp.ones_like(least)
    for i in range(1, _FACTORS + 1):
        product = fnp.where(i <= least, product * (n - least + i) / i, product)
    exact = fnp.round(product)
    product = fnp.where((n == fnp.floor(n)) & (exact < 2.0 ** dtypes.finfo(n.dtype).nmant), exact, product)
    few = (least == fnp.floor(least)) & (least <= _FACTORS)
    return fnp.where(few, product, fnp.exp(-log_beta(n - k + 1, k + 1)) / (n + 1))


_comb.defjvps(
    lambda t, out, n, k: t * (out * (special.digamma(n + 1) - special.digamma(n - k + 1))),
    lambda t, out, n, k: t * (out * (special.digamma(n - k + 1) - special.digamma(k + 1))),
)


def poch(z: ArrayLike, m: ArrayLike) -> Array:
    """The rising factorial `gamma(z + m) / gamma(z)`.

    >>> float(poch(2.0, 3.0))
    24.0
    """
    return call_promoted("poch", _poch, z, m)


@custom_jvp
@jit
def _poch(z: Array, m: Array) -> Array:
    """A product where it has few factors; otherwise by logarithms."""
    product = fnp.ones_like(z)
    for i in range(_FACTORS):
        product = product * fnp.where(i < m, z + i, 1.0)
    few = (m == fnp.floor(m)) & (m >= 0) & (m <= _FACTORS)
    positive = (z > 0) & (z + m > 0)
    a, b = fnp.where(positive, z, 1.0), fnp.where(positive, m, 0.0)
    forwards = b >= 0
    low, apart = fnp.where(forwards, a, a + b), fnp.abs(b)
    ratio = log_gamma_ratio(low, apart)
    value = fnp.exp(fnp.where(forwards, -ratio, ratio))
    other = fnp.exp(special.lgamma(z + m) - special.lgamma(z)) * (gammasgn(z + m) * gammasgn(z))
    at_pole = (z <= 0) & (z == fnp.floor(z)) & ~((z + m <= 0) & (z + m == fnp.floor(z + m)))
    other = fnp.where(at_pole, 0.0, other)
    return fnp.where(few, product, fnp.where(positive, value, other))


_poch.defjvps(
    lambda t, out, z, m: t * (out * (special.digamma(z + m) - special.digamma(z))),
    lambda t, out, z, m: t * (out * special.digamma(z + m)),
)


def multigammaln(a: ArrayLike, d: ArrayLike) -> Array:
    """The logarithm of the multivariate gamma function of dimension `d`, an integer known when it is traced.

    >>> float(multigammaln(2.0, 1)) == float(gammaln(2.0))
    True
    """
    count = static_int("multigammaln", d, "d")  # type: ignore[arg-type]  # an array that is traced is refused by it
    (value,) = promote_real("multigammaln", a)
    total = fnp.zeros_like(value) + 0.25 * count * (count - 1) * math.log(math.pi)
    for i in range(count):
        total = total + gammaln(value - i / 2)
    return total


# ------------------------------------------------------------------ the beta function


def betaln(a: ArrayLike, b: ArrayLike) -> Array:
    """The logarithm of the absolute value of the beta function.

    >>> round(float(betaln(2.0, 3.0)), 5)
    -2.48491
    """
    return call_promoted("betaln", _betaln, a, b)


@custom_jvp
@jit
def _betaln(a: Array, b: Array) -> Array:
    positive = (a > 0) & (b > 0)
    value = log_beta(fnp.where(positive, a, 1.0), fnp.where(positive, b, 1.0))
    return fnp.where(positive, value, special.lgamma(a) + special.lgamma(b) - special.lgamma(a + b))


_betaln.defjvps(
    lambda t, out, a, b: t * (special.digamma(a) - special.digamma(a + b)),
    lambda t, out, a, b: t * (special.digamma(b) - special.digamma(a + b)),
)


def beta(a: ArrayLike, b: ArrayLike) -> Array:
    """The beta function, `gamma(a) * gamma(b) / gamma(a + b)`.

    >>> round(float(beta(2.0, 3.0)), 5)
    0.08333
    """
    p, q = promote_real("beta", a, b)
    return gammasgn(p) * gammasgn(q) * gammasgn(p + q) * fnp.exp(betaln(p, q))


def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """The regularized incomplete beta function. It has a derivative with respect to `x` alone.

    >>> round(float(betainc(1.0, 2.0, 0.5)), 5)
    0.75
    """
    return incomplete_beta.betainc(*promote_real("betainc", a, b, x))


# ------------------------------------------------------------------ incomplete gamma functions, polygamma


def gammainc(a: ArrayLike, x: ArrayLike) -> Array:
    """The regularized lower incomplete gamma function.

    >>> round(float(gammainc(1.0, 1.0)), 5)
    0.63212
    """
    return incomplete_gamma.igamma(*promote_real("gammainc", a, x))


def gammaincc(a: ArrayLike, x: ArrayLike) -> Array:
    """The regularized upper incomplete gamma function, `1 - gammainc(a, x)`.

    >>> round(float(gammaincc(1.0, 1.0)), 5)
    0.36788
    """
    return incomplete_gamma.igammac(*promote_real("gammaincc", a, x))


def digamma(x: ArrayLike) -> Array:
    """The derivative of `gammaln`.

    >>> round(float(digamma(1.0)), 5)
    -0.57722
    """
    return call_promoted("digamma", _digamma, x)


_ROOT: Final = 1.4616321449683622
"""Where `digamma` is 0, and what is left of that number."""
_ROOT_REST: Final = 9.549995429965697e-17


@custom_jvp
@jit
def _digamma(x: Array) -> Array:
    """XLA's, but by a Chebyshev series near the root, and infinite at 0."""
    near = (x > 1.25) & (x < 1.75)
    z = fnp.where(near, x, 1.5)
    close = ((z - _ROOT) - _ROOT_REST) * chebyshev_on(1.25, 1.75, DIGAMMA_ROOT, z)
    zero = x == 0
    value = special.digamma(fnp.where(zero, 1.0, x))
    return fnp.where(near, close, fnp.where(zero, -fnp.copysign(math.inf, x), value))


_digamma.defjvps(lambda t, out, x: t * special.polygamma(fnp.ones_like(x), x))


def polygamma(n: ArrayLike, x: ArrayLike) -> Array:
    """The derivative of `digamma` of order `n`. It has a derivative with respect to `x` alone.

    >>> round(float(polygamma(1, 1.0)), 5)
    1.64493
    """
    return special.polygamma(*promote_real("polygamma", n, x))
