"""The gamma function and related functions: factorials, beta, incomplete gamma and beta functions, polygamma."""

from __future__ import annotations

import math
from typing import Final

import tracefx.numpy as fnp
from tracefx.control.special import incomplete_beta, incomplete_gamma
from tracefx.control.special.log_gamma import log_beta, log_gamma, log_gamma_ratio, stirling_remainder
from tracefx.control.special.polynomials import chebyshev, chebyshev_on
from tracefx.core import Array, ArrayLike, dtypes
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
    """Computes the logarithm of the absolute value of the gamma function.

    Args:
        x: an array of real numbers.

    Returns:
        An array of floats of the shape of `x`.

    >>> float(gammaln(1.0))
    0.0
    """
    return call_promoted("gammaln", _gammaln, x)


@custom_jvp
@jit
def _gammaln(x: Array) -> Array:
    """Evaluates `log_gamma`, by reflection for negative numbers (DLMF 5.5.3)."""
    is_negative = x < 0
    distance_to_integer = fnp.where(is_negative, x - fnp.round(x), 0.5)
    sine = fnp.log(math.pi / fnp.abs(fnp.sin(math.pi * distance_to_integer)))
    value = log_gamma(fnp.where(is_negative, 1 - x, x))
    return fnp.where(x == -math.inf, math.inf, fnp.where(is_negative, sine - value, value))


_gammaln.defjvps(lambda t, out, x: t * special.digamma(x))


def gammasgn(x: ArrayLike) -> Array:
    """Computes the sign of the gamma function.

    Args:
        x: an array of real numbers.

    Returns:
        -1 or 1 as floats: at 0 the sign of the zero, NaN at negative integers.

    >>> float(gammasgn(-0.5))
    -1.0
    """
    (value,) = promote_real("gammasgn", x)
    floor = fnp.floor(value)
    is_negative = value < 0
    has_negative_sign = (is_negative & (fnp.remainder(floor, 2) != 0)) | ((value == 0) & fnp.signbit(value))
    is_pole = (is_negative & (value == floor)) | fnp.isnan(value)
    one = fnp.ones_like(value)
    return fnp.where(is_pole, one * math.nan, fnp.where(has_negative_sign, -one, one))


def gamma(x: ArrayLike) -> Array:
    """Computes the gamma function.

    Args:
        x: an array of real or complex numbers.

    Returns:
        An array of the shape of `x`; NaN at negative integers.

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
    """Evaluates the gamma function so that values at integers are exact as long as the dtype holds them.

    Numbers below 12 are reduced by `gamma(x + 1) = x * gamma(x)` to a Chebyshev series between 1 and 2; larger ones use
    Stirling's formula, and those below 1/2 reflection (DLMF 5.5.3).
    """
    is_reflected = x < 0.5
    reflected = fnp.where(is_reflected, 1 - x, x)
    stirling_start = 12
    small = fnp.where(reflected < stirling_start, reflected, 1.5)
    shift = fnp.floor(small) - 1  # -1 below 1
    start = small - shift
    product = fnp.ones_like(start)
    for k in range(stirling_start - 2):
        product = product * fnp.where(k < shift, small - 1 - k, 1.0)
    s = start - 1
    value = (1 + s * (s - 1) * chebyshev(GAMMA_UNIT, 4 * s - 2)) * product
    value = fnp.where(shift < 0, value / small, value)
    large = fnp.where(reflected < stirling_start, float(stirling_start), reflected)
    half = large ** (0.5 * large - 0.25)
    stirling = math.sqrt(2 * math.pi) * (half * fnp.exp(-large)) * half * fnp.exp(stirling_remainder(large))
    first_infinite = 172 if x.dtype == dtypes.float64 else 36
    stirling = fnp.where(large > first_infinite, math.inf, stirling)  # the factors overflow and vanish
    value = fnp.where(reflected < stirling_start, value, stirling)
    whole = fnp.round(x)
    sine = fnp.sin(math.pi * (x - whole)) * (1 - 2 * fnp.remainder(whole, 2))
    value = fnp.where(is_reflected, math.pi / (sine * value), value)
    value = fnp.where(is_reflected & (x == whole), fnp.where(x == 0, fnp.copysign(math.inf, x), math.nan), value)
    return fnp.where(x == -math.inf, math.nan, value)


_gamma.defjvps(lambda t, out, x: t * (out * special.digamma(x)))


def loggamma(x: ArrayLike) -> Array:
    """Computes the logarithm of the gamma function: of complex numbers the principal branch.

    Args:
        x: an array of real or complex numbers.

    Returns:
        An array of the shape of `x`; NaN for negative real numbers.

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
    """Evaluates Stirling's formula (DLMF 5.11.1).

    Small numbers are shifted (5.5.1), numbers with negative real part reflected (5.5.3).
    """
    x, y = fnp.real(z), fnp.imag(z)
    is_reflected = x < 0.5
    w = fnp.where(is_reflected, 1 - z, z)
    shifted = w
    logs = fnp.zeros_like(w)
    for _ in range(8):  # a sum of logarithms stays on the principal branch
        needs_shift = (fnp.real(shifted) < 8) & (fnp.abs(fnp.imag(shifted)) < 8)
        logs = logs + fnp.where(needs_shift, fnp.log(shifted), 0)
        shifted = fnp.where(needs_shift, shifted + 1, shifted)
    value = (shifted - 0.5) * fnp.log(shifted) - shifted + 0.5 * math.log(2 * math.pi) + _stirling(shifted) - logs
    # log(sin(pi * z)) is continuous on either side of the real axis.
    above = fnp.where(y < 0, fnp.conj(z), z)
    reflected = fnp.where(is_reflected, above, 0.5 + 0j)
    distance_to_integer = fnp.real(reflected) - fnp.round(fnp.real(reflected))
    power = fnp.exp(2j * math.pi * complex_numbers.complex(distance_to_integer, fnp.imag(reflected)))
    sine = -1j * math.pi * (reflected - 0.5) - math.log(2) + fnp.log(1 - power)
    sine = fnp.where(y < 0, fnp.conj(sine), sine)
    value = fnp.where(is_reflected, math.log(math.pi) - sine - value, value)
    pole = (y == 0) & (x <= 0) & (x == fnp.floor(x))
    return fnp.where(pole, math.inf + 0j, value)


_TAIL: Final = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)


def _stirling(z: Array) -> Array:
    """Returns the remainder series of Stirling's formula."""
    inverse = 1 / z
    square = inverse * inverse
    total = square * 0 + _TAIL[-1]
    for c in reversed(_TAIL[:-1]):
        total = total * square + c
    return total * inverse


def _complex_digamma(z: Array) -> Array:
    """Computes the digamma function of complex numbers: the derivative of `loggamma`."""
    x = fnp.real(z)
    is_reflected = x < 0.5
    w = fnp.where(is_reflected, 1 - z, z)
    total = fnp.zeros_like(w)
    for _ in range(8):
        needs_shift = (fnp.real(w) < 8) & (fnp.abs(fnp.imag(w)) < 8)
        total = total - fnp.where(needs_shift, 1 / w, 0)
        w = fnp.where(needs_shift, w + 1, w)
    inverse = 1 / w
    square = inverse * inverse
    series = square * 0
    for n in range(len(_TAIL), 0, -1):
        series = (series + _TAIL[n - 1] * (2 * n - 1)) * square
    total = total + fnp.log(w) - 0.5 * inverse - series
    reflected = fnp.where(is_reflected, z, 0.25 + 0j)
    return fnp.where(is_reflected, total - math.pi / fnp.tan(math.pi * reflected), total)


_loggamma.defjvps(lambda t, out, z: t * _complex_digamma(z))


# ------------------------------------------------------------------ factorials


def factorial(n: ArrayLike, exact: bool = False) -> Array:
    """Computes `n! = gamma(n + 1)` as a float.

    Args:
        n: an array of real numbers.
        exact: must be False: no dtype holds the exact factorials beyond 20.

    Returns:
        An array of floats of the shape of `n`; 0 for negative numbers.

    Raises:
        NotImplementedError: if `exact` is True.

    >>> float(factorial(5))
    120.0
    """
    if exact:
        raise NotImplementedError("factorial: exact=True is not supported; use math.factorial")
    (number,) = promote_real("factorial", n)
    is_negative = number < 0
    return fnp.where(is_negative, 0.0, gamma(fnp.where(is_negative, 0.0, number) + 1))


def comb(N: ArrayLike, k: ArrayLike, *, repetition: bool = False) -> Array:
    """Computes the binomial coefficient: the number of ways to choose `k` of `N` things.

    Args:
        N: the number of things.
        k: the number of things chosen.
        repetition: whether things may be chosen repeatedly.

    Returns:
        An array of floats of the shape that the arguments broadcast to; 0 unless `0 <= k <= N`.

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
"""The largest number of factors of products."""


@custom_jvp
@jit
def _comb(n: Array, k: Array) -> Array:
    """Evaluates a product if it has few factors, which is exact; otherwise uses the beta function."""
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
    """Computes the rising factorial (Pochhammer symbol) `gamma(z + m) / gamma(z)`.

    Args:
        z: an array of real numbers.
        m: an array of real numbers.

    Returns:
        An array of floats of the shape that the arguments broadcast to.

    >>> float(poch(2.0, 3.0))
    24.0
    """
    return call_promoted("poch", _poch, z, m)


@custom_jvp
@jit
def _poch(z: Array, m: Array) -> Array:
    """Evaluates a product if it has few factors; otherwise uses logarithms."""
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
    """Computes the logarithm of the multivariate gamma function.

    Args:
        a: an array of real numbers.
        d: the dimension, a concrete integer.

    Returns:
        An array of floats of the shape of `a`.

    >>> float(multigammaln(2.0, 1)) == float(gammaln(2.0))
    True
    """
    count = static_int("multigammaln", d, "d")
    (value,) = promote_real("multigammaln", a)
    total = fnp.zeros_like(value) + 0.25 * count * (count - 1) * math.log(math.pi)
    for i in range(count):
        total = total + gammaln(value - i / 2)
    return total


# ------------------------------------------------------------------ the beta function


def betaln(a: ArrayLike, b: ArrayLike) -> Array:
    """Computes the logarithm of the absolute value of the beta function.

    Args:
        a: an array of real numbers.
        b: an array of real numbers.

    Returns:
        An array of floats of the shape that the arguments broadcast to.

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
    """Computes the beta function, `gamma(a) * gamma(b) / gamma(a + b)`.

    Args:
        a: an array of real numbers.
        b: an array of real numbers.

    Returns:
        An array of floats of the shape that the arguments broadcast to.

    >>> round(float(beta(2.0, 3.0)), 5)
    0.08333
    """
    p, q = promote_real("beta", a, b)
    return gammasgn(p) * gammasgn(q) * gammasgn(p + q) * fnp.exp(betaln(p, q))


def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """Computes the regularized incomplete beta function. Differentiable with respect to `x` only.

    Args:
        a: an array of positive numbers.
        b: an array of positive numbers.
        x: an array of numbers between 0 and 1.

    Returns:
        An array of floats of the shape that the arguments broadcast to.

    >>> round(float(betainc(1.0, 2.0, 0.5)), 5)
    0.75
    """
    return incomplete_beta.betainc(*promote_real("betainc", a, b, x))


# ------------------------------------------------------------------ incomplete gamma functions, polygamma


def gammainc(a: ArrayLike, x: ArrayLike) -> Array:
    """Computes the regularized lower incomplete gamma function.

    Args:
        a: an array of positive numbers.
        x: an array of nonnegative numbers.

    Returns:
        An array of floats of the shape that the arguments broadcast to.

    >>> round(float(gammainc(1.0, 1.0)), 5)
    0.63212
    """
    return incomplete_gamma.igamma(*promote_real("gammainc", a, x))


def gammaincc(a: ArrayLike, x: ArrayLike) -> Array:
    """Computes the regularized upper incomplete gamma function, `1 - gammainc(a, x)`.

    Args:
        a: an array of positive numbers.
        x: an array of nonnegative numbers.

    Returns:
        An array of floats of the shape that the arguments broadcast to.

    >>> round(float(gammaincc(1.0, 1.0)), 5)
    0.36788
    """
    return incomplete_gamma.igammac(*promote_real("gammaincc", a, x))


def digamma(x: ArrayLike) -> Array:
    """Computes the digamma function: the derivative of `gammaln`.

    Args:
        x: an array of real numbers.

    Returns:
        An array of floats of the shape of `x`.

    >>> round(float(digamma(1.0)), 5)
    -0.57722
    """
    return call_promoted("digamma", _digamma, x)


_ROOT: Final = 1.4616321449683622
"""The positive root of `digamma`, rounded to a double."""
_ROOT_REST: Final = 9.549995429965697e-17
"""The rest of the root."""


@custom_jvp
@jit
def _digamma(x: Array) -> Array:
    """Evaluates a Chebyshev series near the root, XLA's function elsewhere; infinite at 0."""
    is_near_root = (x > 1.25) & (x < 1.75)
    z = fnp.where(is_near_root, x, 1.5)
    close = ((z - _ROOT) - _ROOT_REST) * chebyshev_on(1.25, 1.75, DIGAMMA_ROOT, z)
    is_zero = x == 0
    value = special.digamma(fnp.where(is_zero, 1.0, x))
    return fnp.where(is_near_root, close, fnp.where(is_zero, -fnp.copysign(math.inf, x), value))


_digamma.defjvps(lambda t, out, x: t * special.polygamma(fnp.ones_like(x), x))


def polygamma(n: ArrayLike, x: ArrayLike) -> Array:
    """Computes the `n`-th derivative of `digamma`. Differentiable with respect to `x` only.

    Args:
        n: the order of the derivative, an array of nonnegative integers.
        x: an array of real numbers.

    Returns:
        An array of floats of the shape that the arguments broadcast to.

    >>> round(float(polygamma(1, 1.0)), 5)
    1.64493
    """
    return special.polygamma(*promote_real("polygamma", n, x))
