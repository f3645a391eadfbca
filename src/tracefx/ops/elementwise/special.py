"""Special functions of floats: error functions, gamma function and derivatives, zeta function.

All raise TypeError for operands that are not floats.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, final

from typing_extensions import override

from tracefx.core import Array, ArrayLike, Value
from tracefx.core.handler import bind1
from tracefx.core.primitive import Tangent
from tracefx.lowering import Attr
from tracefx.ops.elementwise.accuracy import Accuracy, check_accuracy
from tracefx.ops.elementwise.arithmetic import mul, neg
from tracefx.ops.elementwise.elementwise import FLOATS, Smooth, add, bind_binary
from tracefx.ops.elementwise.powers import square
from tracefx.ops.elementwise.transcendental import Transcendental, exp
from tracefx.ops.operation import CompiledOperation


class Special(CompiledOperation, Transcendental):
    """A special function of one float. Eager evaluation compiles it, since NumPy does not have it."""

    __slots__ = ()
    domain = FLOATS

    @override
    def accuracy_attrs(self) -> Mapping[str, Attr]:
        return {}  # operations of CHLO have no accuracy


# ------------------------------------------------------------------ error functions


@final
class Erf(Special):
    """The error function, elementwise: `2 / sqrt(pi)` times the integral of `exp(-t**2)` from 0 to `x` (DLMF 7.2.1).

    `x: f32[...] -> f32[...]`, floats. Bound by `lax.erf`.
    """

    name = "erf"
    hlo = "chlo.erf"

    @override
    def derivative(self, x: Value, out: Value) -> Value:
        return mul(2 / math.sqrt(math.pi), exp(neg(square(x))))


@final
class Erfc(Special):
    """The complementary error function, elementwise: `1 - erf(x)` without cancellation for large `x` (DLMF 7.2.2).

    `x: f32[...] -> f32[...]`, floats. Bound by `lax.erfc`.
    """

    name = "erfc"
    hlo = "chlo.erfc"

    @override
    def derivative(self, x: Value, out: Value) -> Value:
        return mul(-2 / math.sqrt(math.pi), exp(neg(square(x))))


@final
class ErfInv(Special):
    """The inverse of the error function, elementwise: infinite at -1 and 1, NaN outside of [-1, 1] (DLMF 7.17).

    `x: f32[...] -> f32[...]`, floats. Bound by `lax.erf_inv`.
    """

    name = "erf_inv"
    hlo = "chlo.erf_inv"

    @override
    def derivative(self, x: Value, out: Value) -> Value:
        return mul(math.sqrt(math.pi) / 2, exp(square(out)))


ERF: Final = Erf()
ERFC: Final = Erfc()
ERF_INV: Final = ErfInv()


def erf(x: ArrayLike) -> Array:
    """Returns the error function, elementwise: the integral of `2 * exp(-t**2) / sqrt(pi)` from 0 to `x`.

    Args:
        x: Array of floats, or a float.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError: `x` is not of a float dtype.

    >>> erf(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return bind1(ERF, x)


def erfc(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Returns the complementary error function `1 - erf(x)`, elementwise, without cancellation for large `x`.

    Args:
        x: Array of floats, or a float.
        accuracy: The requested error bound: an `AccuracyMode` or a `Tolerance`; None, the default, means XLA's. XLA has
            one implementation of this function, so all compute the same.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError: `x` is not of a float dtype, or `accuracy` has another type.

    >>> erfc(0.0)
    Array(1., dtype=float32, weak_type=True)
    """
    return bind1(ERFC if accuracy is None else Erfc(check_accuracy("erfc", accuracy)), x)


def erf_inv(x: ArrayLike) -> Array:
    """Returns the inverse of the error function, elementwise: infinite at -1 and 1, NaN outside of [-1, 1].

    Args:
        x: Array of floats, or a float.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError: `x` is not of a float dtype.

    >>> erf_inv(1.0)
    Array(inf, dtype=float32, weak_type=True)
    """
    return bind1(ERF_INV, x)


# ------------------------------------------------------------------ gamma and zeta functions


@final
class Lgamma(Special):
    """The logarithm of the absolute value of the gamma function, elementwise: `log(abs(gamma(x)))` (DLMF 5.2.1).

    `x: f32[...] -> f32[...]`, floats. Bound by `lax.lgamma`.
    """

    name = "lgamma"
    hlo = "chlo.lgamma"

    @override
    def derivative(self, x: Value, out: Value) -> Value:
        return digamma(x)


@final
class Digamma(Special):
    """The digamma function, elementwise: the derivative of `log(gamma(x))` (DLMF 5.2.2).

    `x: f32[...] -> f32[...]`, floats. Bound by `lax.digamma`.
    """

    name = "digamma"
    hlo = "chlo.digamma"

    @override
    def derivative(self, x: Value, out: Value) -> Value:
        return polygamma(1.0, x)


@final
class Polygamma(CompiledOperation, Smooth):
    """The polygamma function, elementwise: the derivative of order `m` of `digamma(x)` (DLMF 5.15).

    It has no derivative with respect to the order.

    `m: f32[...], x: f32[...] -> f32[...]`, floats. Bound by `lax.polygamma`.
    """

    name = "polygamma"
    arity = 2
    domain = FLOATS
    hlo = "chlo.polygamma"

    @override
    def jvp_term(self, i: int, tangent: Value, out: Value, *primals: Value) -> Tangent:
        m, x = primals
        if i == 0:
            raise ValueError("polygamma has no derivative with respect to its order m; wrap m in stop_gradient")
        return mul(tangent, polygamma(add(m, 1.0), x))


@final
class Zeta(CompiledOperation, Smooth):
    """The Hurwitz zeta function, elementwise: the sum of `(k + q)**-s` over `k >= 0` (DLMF 25.11.1).

    It has no derivative with respect to the exponent `s`.

    `s: f32[...], q: f32[...] -> f32[...]`, floats. Bound by `lax.zeta`.
    """

    name = "zeta"
    arity = 2
    domain = FLOATS
    hlo = "chlo.zeta"

    @override
    def jvp_term(self, i: int, tangent: Value, out: Value, *primals: Value) -> Tangent:
        x, q = primals
        if i == 0:
            raise ValueError("zeta has no derivative with respect to its exponent x; wrap x in stop_gradient")
        return mul(tangent, mul(neg(x), zeta(add(x, 1.0), q)))


LGAMMA: Final = Lgamma()
DIGAMMA: Final = Digamma()
POLYGAMMA: Final = Polygamma()
ZETA: Final = Zeta()


def lgamma(x: ArrayLike) -> Array:
    """Returns the logarithm of the absolute value of the gamma function, elementwise.

    Args:
        x: Array of floats, or a float.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError: `x` is not of a float dtype.

    >>> lgamma(0.0)
    Array(inf, dtype=float32, weak_type=True)
    """
    return bind1(LGAMMA, x)


def digamma(x: ArrayLike) -> Array:
    """Returns the digamma function, the derivative of `lgamma`, elementwise.

    Args:
        x: Array of floats, or a float.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError: `x` is not of a float dtype.

    >>> digamma(0.5)
    Array(-1.96351, dtype=float32, weak_type=True)
    """
    return bind1(DIGAMMA, x)


def polygamma(m: ArrayLike, x: ArrayLike) -> Array:
    """Returns the polygamma function, the `m`-th derivative of `digamma`, elementwise.

    Args:
        m: The order, a non-negative whole number as a float.
        x: Where to evaluate, floats of the same dtype. Scalars and axes of size 1 are broadcast.

    Returns:
        An array of the broadcast shape and the common dtype.

    Raises:
        TypeError: The operands are not floats of one dtype.
        ValueError: It is differentiated with respect to `m`.

    >>> polygamma(1.0, 1.0)
    Array(1.644934, dtype=float32, weak_type=True)
    """
    return bind_binary(POLYGAMMA, m, x)


def zeta(x: ArrayLike, q: ArrayLike) -> Array:
    """Returns the Hurwitz zeta function, elementwise: the sum of `(q + n)**-x` over `n` = 0, 1, 2, ...

    Args:
        x: The exponent, floats.
        q: The first base, floats of the same dtype. Scalars and axes of size 1 are broadcast.

    Returns:
        An array of the broadcast shape and the common dtype.

    Raises:
        TypeError: The operands are not floats of one dtype.
        ValueError: It is differentiated with respect to `x`.

    >>> zeta(2.0, 1.0)
    Array(1.644934, dtype=float32, weak_type=True)
    """
    return bind_binary(ZETA, x, q)
