"""Special functions of floats: the error function, the gamma function, and their relatives."""

from __future__ import annotations

import math
from typing import Final, final

from typing_extensions import override

from tracefx.core.array import Array, ArrayLike
from tracefx.core.handler import bind1
from tracefx.core.primitive import Tangent
from tracefx.core.values import Value
from tracefx.ops.elementwise.arithmetic import mul, neg
from tracefx.ops.elementwise.elementwise import FLOATS, Smooth, add, bind_binary
from tracefx.ops.elementwise.powers import square
from tracefx.ops.elementwise.transcendental import Transcendental, exp
from tracefx.ops.operation import CompiledOperation


class Special(CompiledOperation, Transcendental):
    """A function of one float that NumPy doesn't have."""

    __slots__ = ()
    domain = FLOATS


# ------------------------------------------------------------------ the error function


@final
class Erf(Special):
    __slots__ = ()
    name = "erf"
    hlo = "chlo.erf"

    @override
    def derivative(self, x: Value, out: Value) -> Value:
        return mul(2 / math.sqrt(math.pi), exp(neg(square(x))))


@final
class Erfc(Special):
    __slots__ = ()
    name = "erfc"
    hlo = "chlo.erfc"

    @override
    def derivative(self, x: Value, out: Value) -> Value:
        return mul(-2 / math.sqrt(math.pi), exp(neg(square(x))))


@final
class ErfInv(Special):
    __slots__ = ()
    name = "erf_inv"
    hlo = "chlo.erf_inv"

    @override
    def derivative(self, x: Value, out: Value) -> Value:
        return mul(math.sqrt(math.pi) / 2, exp(square(out)))


ERF: Final = Erf()
ERFC: Final = Erfc()
ERF_INV: Final = ErfInv()


def erf(x: ArrayLike) -> Array:
    """The error function of a float, elementwise: twice the integral of `exp(-t**2) / sqrt(pi)` from 0 to `x`.

    >>> erf(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return bind1(ERF, x)


def erfc(x: ArrayLike) -> Array:
    """`1 - erf(x)` of a float, accurate where that is small, elementwise.

    >>> erfc(0.0)
    Array(1., dtype=float32, weak_type=True)
    """
    return bind1(ERFC, x)


def erf_inv(x: ArrayLike) -> Array:
    """The number whose error function is `x`, elementwise: infinite at -1 and 1, NaN beyond them.

    >>> erf_inv(1.0)
    Array(inf, dtype=float32, weak_type=True)
    """
    return bind1(ERF_INV, x)


# ------------------------------------------------------------------ the gamma function


@final
class Lgamma(Special):
    __slots__ = ()
    name = "lgamma"
    hlo = "chlo.lgamma"

    @override
    def derivative(self, x: Value, out: Value) -> Value:
        return digamma(x)


@final
class Digamma(Special):
    __slots__ = ()
    name = "digamma"
    hlo = "chlo.digamma"

    @override
    def derivative(self, x: Value, out: Value) -> Value:
        return polygamma(1.0, x)


@final
class Polygamma(CompiledOperation, Smooth):
    """Of an order and a place. There is no derivative with respect to the order."""

    __slots__ = ()
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
    """Of an exponent and a first term. There is no derivative with respect to the exponent."""

    __slots__ = ()
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
    """The logarithm of the absolute value of the gamma function of a float, elementwise.

    >>> lgamma(0.0)
    Array(inf, dtype=float32, weak_type=True)
    """
    return bind1(LGAMMA, x)


def digamma(x: ArrayLike) -> Array:
    """The derivative of `lgamma`, elementwise.

    >>> digamma(0.5)
    Array(-1.96351, dtype=float32, weak_type=True)
    """
    return bind1(DIGAMMA, x)


def polygamma(m: ArrayLike, x: ArrayLike) -> Array:
    """The derivative of `digamma` of order `m` (a whole number, as a float) at `x`, elementwise.

    Raises ValueError when differentiated with respect to `m`.

    >>> polygamma(1.0, 1.0)
    Array(1.644934, dtype=float32, weak_type=True)
    """
    return bind_binary(POLYGAMMA, m, x)


def zeta(x: ArrayLike, q: ArrayLike) -> Array:
    """Hurwitz's zeta function: the sum of `(q + n)**-x` over all `n` from 0 on, elementwise.

    Raises ValueError when differentiated with respect to `x`.

    >>> zeta(2.0, 1.0)
    Array(1.644934, dtype=float32, weak_type=True)
    """
    return bind_binary(ZETA, x, q)
