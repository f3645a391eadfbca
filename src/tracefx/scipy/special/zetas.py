"""The zeta function and the Bernoulli numbers."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final, SupportsIndex

import numpy as np

import tracefx.numpy as fnp
from tracefx.core import Array, ArrayLike, dtypes
from tracefx.ops.elementwise import special
from tracefx.ops.static_integers import static_count
from tracefx.scipy.special.argument_promotion import call_promoted
from tracefx.transforms.custom_derivatives import custom_jvp
from tracefx.transforms.differentiation import jvp
from tracefx.transforms.jit import jit


def zeta(x: ArrayLike, q: ArrayLike | None = None) -> Array:
    """Computes the Hurwitz zeta function, or without `q` the Riemann zeta function.

    The Hurwitz zeta function is the sum of `(q + n)**-x` over `n` from 0 on.

    Args:
        x: an array of real numbers. The Riemann zeta function is continued to all `x` except 1.
        q: an array of real numbers; None means the Riemann zeta function.

    Returns:
        An array of floats of the shape that the arguments broadcast to.

    >>> round(float(zeta(2.0)), 5)
    1.64493
    """
    return call_promoted("zeta", _riemann, x) if q is None else call_promoted("zeta", _hurwitz, x, q)


@custom_jvp
@jit
def _hurwitz(x: Array, q: Array) -> Array:
    value = special.zeta(fnp.where(x == math.inf, 2.0, x), q)
    at_infinity = fnp.where(q > 1, 0.0, fnp.where(q == 1, 1.0, fnp.where(q > 0, math.inf, math.nan)))
    return fnp.where(x == math.inf, at_infinity, value)


@_hurwitz.defjvp
def _hurwitz_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    """Differentiates with respect to `q` in closed form, and with respect to `x` through the Euler-Maclaurin sum."""
    (x, q), (by_x, by_q) = primals, tangents
    _, slope = jvp(lambda x: _euler_maclaurin(x, q), (x,), (by_x,))
    return _hurwitz(x, q), slope - by_q * (x * _hurwitz(x + 1, q))


@jit
def _riemann(x: Array) -> Array:
    """Evaluates the sum for `x >= 0`, and the reflection formula for negative `x` (DLMF 25.4.2)."""
    is_negative = x < 0
    z = fnp.where(is_negative, 1 - x, x)
    above, one = z > 1, fnp.ones_like(z)
    value = fnp.where(above, _hurwitz(fnp.where(above, z, 2.0), one), _euler_maclaurin(fnp.where(above, 0.5, z), one))
    reflected = fnp.where(is_negative, x, 0.5)
    reflection = 2 * fnp.exp((reflected - 1) * math.log(2 * math.pi) + special.lgamma(1 - reflected))
    sine = fnp.sin(0.5 * math.pi * fnp.remainder(reflected, 4.0))
    return fnp.where(x == 1, math.inf, fnp.where(is_negative, reflection * sine * value, value))


_BERNOULLI: Final = (
    *(1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600),
    *(-3617 / 10670622842880000, 43867 / 5109094217170944000, -174611 / 802857662698291200000),
)
"""The Bernoulli numbers of even index, each divided by the factorial of its index."""


def _euler_maclaurin(s: Array, q: Array) -> Array:
    """Evaluates the Euler-Maclaurin formula (DLMF 25.11.28), which holds for `s < 1` as well."""
    terms = 10
    total = fnp.zeros_like(s)
    for k in range(terms):
        total = total + fnp.exp(-s * fnp.log(q + k))
    end = q + terms
    last = fnp.exp(-s * fnp.log(end))
    safe_distance = fnp.where(s == 1, 1.0, s - 1)
    correction = 0.5 + end / safe_distance
    factor = s / end
    for k, b in enumerate(_BERNOULLI if s.dtype == dtypes.float64 else _BERNOULLI[:5]):
        correction = correction + b * factor
        factor = factor * (s + (2 * k + 1)) * (s + (2 * k + 2)) / (end * end)
    return total + last * correction


def bernoulli(n: SupportsIndex) -> Array:
    """Returns the Bernoulli numbers of index 0 to `n`, with -1/2 at index 1.

    Args:
        n: the largest index, a concrete integer.

    Returns:
        `f32[n + 1]`, of the default float dtype.

    Raises:
        ValueError: if `n` is negative.

    >>> bernoulli(2).tolist() == [1.0, -0.5, float(fnp.float32(1 / 6))]
    True
    """
    count = static_count("bernoulli", n, "n")
    numbers = [1.0, -0.5] + [0.0] * count
    for i in range(2, count + 1, 2):
        numbers[i] = _even_bernoulli(i, numbers)
    return fnp.asarray(np.array(numbers[: count + 1]), dtype=dtypes.default_float())


def _even_bernoulli(n: int, before: list[float]) -> float:
    """Returns a Bernoulli number of even index: up to 40 exactly, else from the one before by `zeta` (DLMF 25.6.2)."""
    if n <= 40:
        return float(_exact(n))
    sign = 1 if n % 4 == 2 else -1
    log = math.log(2) + math.lgamma(n + 1) - n * math.log(2 * math.pi)
    if log > 700:
        return sign * math.inf
    ratio = -n * (n - 1) / (2 * math.pi) ** 2
    return before[n - 2] * ratio * ((1 + 2.0**-n) / (1 + 2.0 ** (2 - n)))


def _exact(n: int) -> Fraction:
    """Returns a Bernoulli number as a fraction."""
    numbers = [Fraction(1)]
    for m in range(1, n + 1):
        total = sum((math.comb(m + 1, k) * numbers[k] for k in range(m)), Fraction(0))
        numbers.append(-total / (m + 1))
    return numbers[n]
