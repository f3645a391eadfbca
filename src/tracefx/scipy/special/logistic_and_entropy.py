"""Logarithms and exponentials in forms that stay right at the ends: entropies, the logistic function, Box-Cox."""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx import nn
from tracefx.control.special.log_gamma import log1p_remainder
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike, AxisLike
from tracefx.numpy.operand_promotion import promote_args_inexact
from tracefx.ops.elementwise.transcendental import log, log1p, logistic
from tracefx.scipy.special.argument_promotion import promote_real
from tracefx.transforms.custom_derivatives import custom_jvp


def logit(x: ArrayLike) -> Array:
    """`log(x / (1 - x))`, accurate near 1/2 as well.

    >>> float(logit(0.5))
    0.0
    """
    return _logit(*promote_real("logit", x))


@custom_jvp
def _logit(x: Array) -> Array:
    near = fnp.abs(x - 0.5) < 0.1
    apart = fnp.where(near, 2 * x - 1, 0.0)  # exact there
    return fnp.where(near, 2 * fnp.arctanh(apart), log(x / (1 - x)))


_logit.defjvps(lambda t, out, x: t / (x * (1 - x)))


def expit(x: ArrayLike) -> Array:
    """The logistic function, `1 / (1 + exp(-x))`.

    >>> float(expit(0.0))
    0.5
    """
    return logistic(*promote_args_inexact("expit", x))


def xlogy(x: ArrayLike, y: ArrayLike) -> Array:
    """`x * log(y)`; 0 where `x` is, unless `y` is NaN.

    >>> float(xlogy(0.0, 0.0))
    0.0
    """
    return _xlogy(*[fnp.asarray(v) for v in promote_args_inexact("xlogy", x, y)])


@custom_jvp
def _xlogy(x: Array, y: Array) -> Array:
    return fnp.where((x != 0) | (y != y), x * log(y), fnp.zeros_like(x))


_xlogy.defjvps(lambda t, out, x, y: t * log(y), lambda t, out, x, y: t * (x / y))


def xlog1py(x: ArrayLike, y: ArrayLike) -> Array:
    """`x * log(1 + y)`; 0 where `x` is, unless `y` is NaN.

    >>> float(xlog1py(0.0, -1.0))
    0.0
    """
    return _xlog1py(*[fnp.asarray(v) for v in promote_args_inexact("xlog1py", x, y)])


@custom_jvp
def _xlog1py(x: Array, y: Array) -> Array:
    return fnp.where((x != 0) | (y != y), x * log1p(y), fnp.zeros_like(x))


_xlog1py.defjvps(lambda t, out, x, y: t * log1p(y), lambda t, out, x, y: t * (x / (1 + y)))


@custom_jvp
def _xlogx(x: Array) -> Array:
    return _xlogy(x, x)


_xlogx.defjvps(lambda t, out, x: t * (log(x) + 1))


def entr(x: ArrayLike) -> Array:
    """`-x * log(x)`: 0 at 0, minus infinity below.

    >>> float(entr(0.0))
    0.0
    """
    (value,) = promote_real("entr", x)
    below = value < 0
    return fnp.where(below, -math.inf, 0.0 - _xlogx(fnp.where(below, 1.0, value)))


def rel_entr(p: ArrayLike, q: ArrayLike) -> Array:
    """`p * log(p / q)`: 0 where `p` is 0 and `q` isn't negative, infinite where only one of both is positive.

    >>> float(rel_entr(1.0, 1.0))
    0.0
    """
    x, y = promote_real("rel_entr", p, q)
    missing = (x != x) | (y != y)
    nothing = (x == 0) & (y >= 0)
    both = (x > 0) & (y > 0)
    a, b = fnp.where(both, x, 1.0), fnp.where(both, y, 1.0)
    ratio = a / b
    near = (ratio > 0.8) & (ratio < 1.2)
    logs = fnp.where(near, log1p(fnp.where(near, (a - b) / b, 0.0)), log(a) - log(b))
    value = fnp.where(both, a * logs, fnp.where(nothing, 0.0, math.inf))
    return fnp.where(missing, x + y, value)


def kl_div(p: ArrayLike, q: ArrayLike) -> Array:
    """`rel_entr(p, q) - p + q`: infinite where one of both is negative.

    >>> float(kl_div(1.0, 1.0))
    0.0
    """
    x, y = promote_real("kl_div", p, q)
    near = (x > 0) & (y > 0) & (fnp.abs(x - y) < 0.5 * y)
    apart = fnp.where(near, (x - y) / fnp.where(near, y, 1.0), 0.0)
    close = y * (apart * apart - (1 + apart) * log1p_remainder(apart, 1 + apart))
    whole = rel_entr(x, y)
    return fnp.where(near, close, fnp.where((whole == math.inf) & ~((x > 0) & (y > 0)), whole, whole - x + y))


# ------------------------------------------------------------------ Box-Cox transformations


def boxcox(x: ArrayLike, lmbda: ArrayLike) -> Array:
    """`(x**lmbda - 1) / lmbda`, which becomes `log(x)` where `lmbda` is 0.

    >>> float(boxcox(1.0, 2.0))
    0.0
    """
    value, power = promote_real("boxcox", x, lmbda)
    return _boxcox(log(fnp.where(value < 0, math.nan, value)), power)


def boxcox1p(x: ArrayLike, lmbda: ArrayLike) -> Array:
    """`((1 + x)**lmbda - 1) / lmbda`, which becomes `log(1 + x)` where `lmbda` is 0.

    >>> float(boxcox1p(0.0, 2.0))
    0.0
    """
    value, power = promote_real("boxcox1p", x, lmbda)
    return _boxcox(log1p(value), power)


def _boxcox(logs: Array, power: Array) -> Array:
    """`(exp(power * logs) - 1) / power`, with the first terms of its series where that is small."""
    change = fnp.where(power == 0, 0.0, power * logs)
    small = fnp.abs(change) < 1e-3 if logs.dtype == dtypes.float64 else fnp.abs(change) < 0.05
    near = fnp.where(small & fnp.isfinite(logs), change, 0.0)
    series = logs * (1 + near / 2 * (1 + near / 3 * (1 + near / 4 * (1 + near / 5 * (1 + near / 6)))))
    divisor = fnp.where(small, 1.0, power)
    return fnp.where(small, series, fnp.expm1(fnp.where(small, 1.0, change)) / divisor)


# ------------------------------------------------------------------ over axes


def softmax(x: ArrayLike, /, *, axis: AxisLike = None) -> Array:
    """`exp(x)` divided by its sum over `axis`, over all axes by default.

    >>> softmax(fnp.array([1000.0, 1000.0])).tolist()
    [0.5, 0.5]
    """
    return nn.softmax(x, axis)


def log_softmax(x: ArrayLike, /, *, axis: AxisLike = None) -> Array:
    """The logarithm of `softmax`.

    >>> log_softmax(fnp.array([-1000.0, 0.0])).tolist()
    [-1000.0, 0.0]
    """
    return nn.log_softmax(x, axis)


logsumexp = nn.logsumexp
