"""`tracefx.nn`: the functions of neural networks, with the names and arguments of `jax.nn`.

All are made of `tracefx.numpy`, in forms whose derivatives are right where the plain formula's are not: at kinks, where
exponentials overflow, and where a mask leaves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Literal, SupportsIndex, overload

import tracefx.numpy as fnp
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike, Axes
from tracefx.core.dtypes import DTypeLike
from tracefx.core.handler import as_array
from tracefx.core.values import Value, as_value
from tracefx.numpy.promoting import all_inexact, inexact, retyped
from tracefx.numpy.reductions import axes
from tracefx.ops import collective, comparison, shape, special, transcendental
from tracefx.ops.filling import broadcasted_iota
from tracefx.ops.selection import stop_gradient
from tracefx.ops.static import axis_of, static_int

__all__ = [
    "relu",
    "sigmoid",
    "silu",
    "swish",
    "gelu",
    "softplus",
    "softmax",
    "log_softmax",
    "logsumexp",
    "one_hot",
]

# ------------------------------------------------------------------ element by element


def relu(x: ArrayLike) -> Array:
    """`maximum(x, 0)`. Its derivative at 0 is 0.

    >>> relu(fnp.array([-1.0, 0.0, 2.0])).tolist()
    [0.0, 0.0, 2.0]
    """
    out = fnp.maximum(x, 0)
    value = retyped(as_value(x, "relu: x"), out.dtype, out.weak_type)
    return fnp.where(fnp.greater(value, 0), value, stop_gradient(out))


def sigmoid(x: ArrayLike) -> Array:
    """`1 / (1 + exp(-x))` of a float or complex number.

    >>> sigmoid(0.0)
    Array(0.5, dtype=float32, weak_type=True)
    """
    return transcendental.logistic(as_value(x, "sigmoid: x"))


def silu(x: ArrayLike) -> Array:
    """`x * sigmoid(x)`, also called swish.

    >>> silu(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return fnp.multiply(x, sigmoid(x))


swish = silu


def softplus(x: ArrayLike) -> Array:
    """`log(1 + exp(x))` without overflow on the way. Its derivative is `sigmoid`, everywhere.

    >>> softplus(1000.0)
    Array(1000., dtype=float32, weak_type=True)
    """
    value = inexact(x, "softplus: x")
    if dtypes.is_complex(value.aval.dtype):
        raise TypeError(f"softplus is not defined for complex numbers, got {value.aval}")
    # Two branches that are smooth each, rather than `abs(x)`, whose derivatives at 0 are not what they add up to.
    above = fnp.greater(value, 0)
    below = fnp.where(above, fnp.negative(value), value)
    return fnp.add(fnp.where(above, value, 0), fnp.log1p(fnp.exp(below)))


def gelu(x: ArrayLike, approximate: bool = True) -> Array:
    """`x` times the probability that a normally distributed number is below it; by `tanh` unless `approximate=False`.

    >>> round(float(gelu(1.0, approximate=False)), 4)
    0.8413
    """
    given = inexact(x, "gelu: x")
    value = as_array(retyped(given, given.aval.dtype))
    if not approximate:
        return fnp.multiply(fnp.multiply(value, 0.5), special.erfc(fnp.multiply(fnp.negative(value), math.sqrt(0.5))))
    inner = fnp.multiply(fnp.add(value, fnp.multiply(fnp.power(value, 3), 0.044715)), math.sqrt(2 / math.pi))
    return fnp.multiply(value, fnp.multiply(fnp.add(fnp.tanh(inner), 1.0), 0.5))


# ------------------------------------------------------------------ over axes


def softmax(x: ArrayLike, axis: Axes = -1, where: ArrayLike | None = None) -> Array:
    """`exp(x)` divided by its sum over `axis`, without overflow on the way; 0 where the mask `where` does not hold.

    >>> softmax(fnp.array([1000.0, 1000.0])).tolist()
    [0.5, 0.5]
    """
    value = inexact(x, "softmax: x")
    highest = _highest(value, axis, where)
    shifted = fnp.subtract(value, highest)
    if where is not None:  # before the exponential, so that nothing infinite or missing is in its derivative
        shifted = fnp.where(where, shifted, -math.inf)
    powers = fnp.exp(shifted)
    # One division a row, rather than one an element, in the backward pass too.
    shares = fnp.multiply(powers, fnp.reciprocal(fnp.sum(powers, axis, keepdims=True)))
    return shares if where is None else fnp.where(where, shares, 0)


def log_softmax(x: ArrayLike, axis: Axes = -1, where: ArrayLike | None = None) -> Array:
    """The logarithm of `softmax`: minus infinity where the mask `where` does not hold.

    >>> log_softmax(fnp.array([-1000.0, 0.0])).tolist()
    [-1000.0, 0.0]
    """
    value = inexact(x, "log_softmax: x")
    highest = _highest(value, axis, where)
    if where is None:
        shifted = fnp.subtract(value, highest)
        return fnp.subtract(shifted, fnp.log(fnp.sum(fnp.exp(shifted), axis, keepdims=True)))
    shifted = fnp.subtract(fnp.where(where, value, -math.inf), highest)
    total = fnp.log(fnp.sum(fnp.exp(shifted), axis, keepdims=True, where=where))
    return fnp.where(where, fnp.subtract(shifted, total), -math.inf)


def _highest(x: Value, axis: Axes, where: ArrayLike | None) -> Array:
    """The greatest elements along `axis`, as constants: whatever is subtracted, the results are the same."""
    return stop_gradient(fnp.max(x, axis, keepdims=True, initial=-math.inf, where=where))


@overload
def logsumexp(
    a: ArrayLike,
    axis: Axes = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    return_sign: Literal[False] = False,
    where: ArrayLike | None = None,
) -> Array: ...
@overload
def logsumexp(
    a: ArrayLike,
    axis: Axes = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    *,
    return_sign: Literal[True],
    where: ArrayLike | None = None,
) -> tuple[Array, Array]: ...
def logsumexp(
    a: ArrayLike,
    axis: Axes = None,
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
        value = as_array(inexact(a, "logsumexp: a"))
    else:
        exponents, factors = all_inexact("logsumexp", a, b)
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


# ------------------------------------------------------------------ classes


def one_hot(
    x: ArrayLike, num_classes: SupportsIndex, *, dtype: DTypeLike | None = None, axis: SupportsIndex | Hashable = -1
) -> Array:
    """For each integer of `x` a vector with 1 at that place and 0 elsewhere, along a new axis; all 0 beyond the ends.

    `axis` may be the name of a mapped axis of size `num_classes`, along which the vector is spread. The dtype is the
    default float unless given. TypeError for numbers that are no integers.

    >>> one_hot(fnp.array([0, 2]), 3).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    value = as_value(x, "one_hot: x")
    if not dtypes.is_integer(value.aval.dtype):
        raise TypeError(f"one_hot: x must be of integers, got {value.aval}; convert it with astype")
    count = static_int("one_hot", num_classes, "num_classes")
    new = dtypes.default_float() if dtype is None else dtypes.as_dtype(dtype, "one_hot: dtype")
    if not isinstance(axis, SupportsIndex):
        size = collective.axis_size(axis)
        if size != count:
            raise ValueError(f"one_hot: num_classes {count} must be the size of the axis {axis!r}, which is {size}")
        return fnp.astype(fnp.equal(value, collective.axis_index(axis)), new)
    place = axis_of("one_hot", axis, value.aval.ndim + 1)
    rows = shape.expand_dims(value, (place,))
    sizes = [*value.aval.shape[:place], count, *value.aval.shape[place:]]
    classes = broadcasted_iota(value.aval.dtype, sizes, place)
    return fnp.astype(comparison.eq(fnp.broadcast_to(rows, sizes), classes), new)
