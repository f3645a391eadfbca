"""Functions over axes: softmax and its relatives, and standardizing.

They have forms that are right where the plain formula's are not: where exponentials overflow, and where a mask leaves
nothing.
"""

from __future__ import annotations

import math
from typing import Literal, overload

import tracefx.numpy as fnp
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike, AxisLike
from tracefx.core.handler import as_array
from tracefx.core.values import Value, as_value
from tracefx.numpy.operand_promotion import promote_args_inexact, to_inexact
from tracefx.numpy.reductions import axes
from tracefx.ops.elementwise.selection import stop_gradient
from tracefx.ops.elementwise.transcendental import rsqrt


def softmax(x: ArrayLike, axis: AxisLike = -1, where: ArrayLike | None = None) -> Array:
    """`exp(x)` divided by its sum over `axis`, without overflow on the way; 0 where the mask `where` does not hold.

    >>> softmax(fnp.array([1000.0, 1000.0])).tolist()
    [0.5, 0.5]
    """
    value = to_inexact(x, "softmax: x")
    highest = _constant_max(value, axis, where)
    shifted = fnp.subtract(value, highest)
    if where is not None:  # before the exponential, so that nothing infinite or missing is in its derivative
        shifted = fnp.where(where, shifted, -math.inf)
    powers = fnp.exp(shifted)
    # One division a row, rather than one an element, in the backward pass too.
    shares = fnp.multiply(powers, fnp.reciprocal(fnp.sum(powers, axis, keepdims=True)))
    return shares if where is None else fnp.where(where, shares, 0)


def log_softmax(x: ArrayLike, axis: AxisLike = -1, where: ArrayLike | None = None) -> Array:
    """The logarithm of `softmax`: minus infinity where the mask `where` does not hold.

    >>> log_softmax(fnp.array([-1000.0, 0.0])).tolist()
    [-1000.0, 0.0]
    """
    value = to_inexact(x, "log_softmax: x")
    highest = _constant_max(value, axis, where)
    if where is None:
        shifted = fnp.subtract(value, highest)
        return fnp.subtract(shifted, fnp.log(fnp.sum(fnp.exp(shifted), axis, keepdims=True)))
    shifted = fnp.subtract(fnp.where(where, value, -math.inf), highest)
    total = fnp.log(fnp.sum(fnp.exp(shifted), axis, keepdims=True, where=where))
    return fnp.where(where, fnp.subtract(shifted, total), -math.inf)


def _constant_max(x: Value, axis: AxisLike, where: ArrayLike | None) -> Array:
    """The greatest elements along `axis`, as constants: whatever is subtracted, the results are the same."""
    return stop_gradient(fnp.max(x, axis, keepdims=True, initial=-math.inf, where=where))


@overload
def logsumexp(
    a: ArrayLike,
    axis: AxisLike = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    return_sign: Literal[False] = False,
    where: ArrayLike | None = None,
) -> Array: ...
@overload
def logsumexp(
    a: ArrayLike,
    axis: AxisLike = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    *,
    return_sign: Literal[True],
    where: ArrayLike | None = None,
) -> tuple[Array, Array]: ...
def logsumexp(
    a: ArrayLike,
    axis: AxisLike = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    return_sign: bool = False,
    where: ArrayLike | None = None,
) -> Array | tuple[Array, Array]:
    """`log(sum(b * exp(a)))` over `axis` without overflow on the way, of the elements where the mask `where` holds.

    Minus infinity of nothing. With `return_sign` the logarithm of the sum's absolute value, and its sign; without, NaN
    where the sum is negative.

    >>> logsumexp(fnp.array([1000.0, 1000.0]))
    Array(1000.6932, dtype=float32)
    """
    if where is not None:
        a = fnp.where(where, a, 0)
    factors: Value | None = None
    if b is None:
        value = as_array(to_inexact(a, "logsumexp: a"))
    else:
        exponents, factors = promote_args_inexact("logsumexp", a, b)
        value = fnp.where(fnp.not_equal(factors, 0), exponents, -math.inf)
    gone = axes("logsumexp", axis, value.ndim)
    highest = fnp.max(fnp.real(value), axis, initial=-math.inf, where=where)
    highest = stop_gradient(fnp.where(fnp.isfinite(highest), highest, 0))
    kept = fnp.expand_dims(highest, gone)
    powers = fnp.exp(fnp.subtract(value, kept))
    if factors is not None:
        powers = fnp.multiply(powers, factors)
    total = fnp.sum(powers, axis, keepdims=keepdims, where=where)
    sign = fnp.sign(total)
    if return_sign or not dtypes.is_complex(total.dtype):
        total = fnp.absolute(total)
    out = fnp.add(fnp.log(total), kept if keepdims else highest)
    if factors is not None and not return_sign and not dtypes.is_complex(out.dtype):
        out = fnp.where(fnp.less(sign, 0), math.nan, out)
    return (out, sign) if return_sign else out


def logmeanexp(x: ArrayLike, axis: AxisLike = None, where: ArrayLike | None = None, keepdims: bool = False) -> Array:
    """`log(mean(exp(x)))` over `axis` without overflow on the way, of the elements where the mask `where` holds.

    >>> logmeanexp(fnp.array([1000.0, 1000.0]))
    Array(1000., dtype=float32)
    """
    total = logsumexp(x, axis, keepdims=keepdims, where=where)
    held = fnp.ones_like(as_array(to_inexact(x, "logmeanexp: x")), total.dtype)
    return total - fnp.log(fnp.sum(held, axis, keepdims=keepdims, where=where))


def standardize(
    x: ArrayLike,
    axis: AxisLike = -1,
    mean: ArrayLike | None = None,
    variance: ArrayLike | None = None,
    epsilon: ArrayLike = 1e-5,
    where: ArrayLike | None = None,
    *,
    algorithm: Literal["fast", "stable"] = "fast",
) -> Array:
    """`(x - mean) / sqrt(variance + epsilon)`, with the mean and variance over `axis` unless they are given.

    The `"fast"` algorithm takes the variance as the difference of the mean square and the squared mean, which loses
    digits where the mean is large; `"stable"` takes the mean of squared differences.

    Raises ValueError for another algorithm.

    >>> standardize(fnp.array([1.0, 3.0]), epsilon=0.0).tolist()
    [-1.0, 1.0]
    """
    if algorithm not in ("fast", "stable"):
        raise ValueError(f"standardize: algorithm must be 'fast' or 'stable', got {algorithm!r}")
    value = as_array(as_value(x, "standardize: x"))
    center = fnp.mean(value, axis, keepdims=True, where=where) if mean is None else as_array(mean)
    if variance is not None:
        spread = as_array(variance)
    elif algorithm == "stable":
        spread = fnp.mean(fnp.square(value - center), axis, keepdims=True, where=where)
    else:
        square = fnp.mean(fnp.square(value), axis, keepdims=True, where=where)
        spread = fnp.clip(square - fnp.square(center), 0)
    return (value - center) * rsqrt(fnp.add(spread, epsilon))
