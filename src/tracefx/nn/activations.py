"""Activations: functions of each element.

They have forms whose derivatives are right where the plain formula's are not: at kinks, where exponentials overflow.
"""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.handler import as_array
from tracefx.core.values import as_value
from tracefx.numpy.operand_promotion import convert_dtype, to_inexact
from tracefx.ops.elementwise import special, transcendental
from tracefx.ops.elementwise.selection import stop_gradient
from tracefx.ops.static_integers import canonicalize_axis


def _as_float_array(name: str, x: ArrayLike) -> Array:
    return as_array(as_value(x, f"{name}: x"))


def identity(x: ArrayLike) -> Array:
    """`x` as it is.

    >>> identity(2.0)
    Array(2., dtype=float32, weak_type=True)
    """
    return _as_float_array("identity", x)


def relu(x: ArrayLike) -> Array:
    """`maximum(x, 0)`. Its derivative at 0 is 0.

    >>> relu(fnp.array([-1.0, 0.0, 2.0])).tolist()
    [0.0, 0.0, 2.0]
    """
    out = fnp.maximum(x, 0)
    value = convert_dtype(as_value(x, "relu: x"), out.dtype, out.weak_type)
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
    value = to_inexact(x, "softplus: x")
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
    given = to_inexact(x, "gelu: x")
    value = as_array(convert_dtype(given, given.aval.dtype))
    if not approximate:
        return fnp.multiply(fnp.multiply(value, 0.5), special.erfc(fnp.multiply(fnp.negative(value), math.sqrt(0.5))))
    inner = fnp.multiply(fnp.add(value, fnp.multiply(fnp.power(value, 3), 0.044715)), math.sqrt(2 / math.pi))
    return fnp.multiply(value, fnp.multiply(fnp.add(fnp.tanh(inner), 1.0), 0.5))


# ------------------------------------------------------------------ relatives of relu


def relu6(x: ArrayLike) -> Array:
    """`x` between 0 and 6, and the nearer of these beyond. Its derivative at either is 0.

    >>> relu6(fnp.array([-1.0, 2.0, 7.0])).tolist()
    [0.0, 2.0, 6.0]
    """
    out = fnp.minimum(fnp.maximum(x, 0), 6.0)
    value = convert_dtype(as_value(x, "relu6: x"), out.dtype, out.weak_type)
    return fnp.where(fnp.logical_and(fnp.greater(value, 0), fnp.less(value, 6)), value, stop_gradient(out))


def leaky_relu(x: ArrayLike, negative_slope: ArrayLike = 0.01) -> Array:
    """`x`, and `negative_slope * x` where it is below 0.

    >>> leaky_relu(fnp.array([-1.0, 2.0]), 0.25).tolist()
    [-0.25, 2.0]
    """
    value = _as_float_array("leaky_relu", x)
    return fnp.where(value >= 0, value, fnp.multiply(negative_slope, value))


def elu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Array:
    """`x`, and `alpha * (exp(x) - 1)` where it is below 0.

    >>> elu(fnp.array([-1e3, 2.0])).tolist()
    [-1.0, 2.0]
    """
    value = _as_float_array("elu", x)
    below = fnp.where(value > 0, 0.0, value)
    return fnp.where(value > 0, value, fnp.multiply(alpha, fnp.expm1(below)))


def celu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Array:
    """`x`, and `alpha * (exp(x / alpha) - 1)` where it is below 0, which has the slope 1 at 0 for any `alpha`.

    >>> celu(fnp.array([-1e3, 2.0]), 2.0).tolist()
    [-2.0, 2.0]
    """
    value = _as_float_array("celu", x)
    below = fnp.where(value > 0, 0.0, value)
    return fnp.where(value > 0, value, fnp.multiply(alpha, fnp.expm1(fnp.true_divide(below, alpha))))


def selu(x: ArrayLike) -> Array:
    """`scale * elu(x, alpha)` with the constants that keep mean 0 and variance 1 through layers.

    Klambauer, Unterthiner, Mayr and Hochreiter, Self-normalizing neural networks (2017).

    >>> round(float(selu(1.0)), 4)
    1.0507
    """
    return fnp.multiply(1.0507009873554804934193349852946, elu(x, 1.6732632423543772848170429916717))


def glu(x: ArrayLike, axis: int = -1) -> Array:
    """The first half of `x` along an axis, times the `sigmoid` of the other half.

    Raises ValueError for an axis of odd size.

    >>> glu(fnp.array([2.0, 0.0])).tolist()
    [1.0]
    """
    value = _as_float_array("glu", x)
    place = canonicalize_axis("glu", axis, value.ndim)
    if value.shape[place] % 2:
        raise ValueError(f"glu: the size of axis {axis} of {value.aval} must be even")
    first, second = fnp.split(value, 2, place)
    return first * sigmoid(second)


def sparse_plus(x: ArrayLike) -> Array:
    """0 up to -1, `x` from 1 on, and a parabola from one to the other.

    >>> sparse_plus(fnp.array([-2.0, 0.0, 2.0])).tolist()
    [0.0, 0.25, 2.0]
    """
    value = _as_float_array("sparse_plus", x)
    return fnp.where(value <= -1.0, 0.0, fnp.where(value >= 1.0, value, fnp.square(value + 1.0) / 4))


def squareplus(x: ArrayLike, b: ArrayLike = 4) -> Array:
    """`(x + sqrt(x**2 + b)) / 2`: smooth, and near `relu` for a small `b`. Large `x` do not overflow.

    >>> squareplus(0.0, 4)
    Array(1., dtype=float32, weak_type=True)
    """
    value = as_array(to_inexact(x, "squareplus: x"))
    large = fnp.abs(value) > math.sqrt(float(dtypes.finfo(value.dtype).max)) / 2  # their squares are too large
    near = fnp.where(large, 0, value)
    root = fnp.sqrt(fnp.add(fnp.square(near), b))
    far = fnp.where(large, value, 1)
    half = fnp.abs(far) / 2 * fnp.sqrt(1 + fnp.divide(b, far) / far)
    beyond = fnp.where(far > 0, far / 2 + half, fnp.divide(b, 4) / (half + fnp.abs(far) / 2))
    return fnp.where(large, beyond, (near + root) / 2)


# ------------------------------------------------------------------ relatives of sigmoid and tanh


def log_sigmoid(x: ArrayLike) -> Array:
    """The logarithm of `sigmoid`, without underflow on the way.

    >>> log_sigmoid(-1000.0)
    Array(-1000., dtype=float32, weak_type=True)
    """
    return fnp.negative(softplus(fnp.negative(_as_float_array("log_sigmoid", x))))


def hard_sigmoid(x: ArrayLike) -> Array:
    """`relu6(x + 3) / 6`.

    >>> hard_sigmoid(fnp.array([-9.0, 0.0, 9.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    return relu6(_as_float_array("hard_sigmoid", x) + 3.0) / 6.0


def hard_silu(x: ArrayLike) -> Array:
    """`x * hard_sigmoid(x)`, also called hard swish.

    >>> hard_silu(fnp.array([-9.0, 9.0])).tolist()
    [-0.0, 9.0]
    """
    value = _as_float_array("hard_silu", x)
    return value * hard_sigmoid(value)


hard_swish = hard_silu


def sparse_sigmoid(x: ArrayLike) -> Array:
    """`(x + 1) / 2` between -1 and 1, and 0 or 1 beyond: the derivative of `sparse_plus`.

    >>> sparse_sigmoid(fnp.array([-9.0, 0.0, 9.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    return 0.5 * fnp.clip(_as_float_array("sparse_sigmoid", x) + 1.0, 0.0, 2.0)


def soft_sign(x: ArrayLike) -> Array:
    """`x / (abs(x) + 1)`.

    >>> soft_sign(fnp.array([-1.0, 3.0])).tolist()
    [-0.5, 0.75]
    """
    value = _as_float_array("soft_sign", x)
    return value / (fnp.abs(value) + 1)


def hard_tanh(x: ArrayLike) -> Array:
    """`x` between -1 and 1, and the nearer of these beyond.

    >>> hard_tanh(fnp.array([-2.0, 0.5])).tolist()
    [-1.0, 0.5]
    """
    value = _as_float_array("hard_tanh", x)
    return fnp.where(value > 1, 1, fnp.where(value < -1, -1, value))


def mish(x: ArrayLike) -> Array:
    """`x * tanh(softplus(x))`.

    >>> mish(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    value = _as_float_array("mish", x)
    return value * fnp.tanh(softplus(value))


def log1mexp(x: ArrayLike) -> Array:
    """`log(1 - exp(-x))` of positive numbers, accurate for small and for large ones.

    By two formulas, on either side of the logarithm of 2: Mächler, Accurately computing log(1 - exp(-|a|)) (2012).

    >>> log1mexp(1e-10)
    Array(-23.02585, dtype=float32, weak_type=True)
    """
    value = as_array(to_inexact(fnp.negative(_as_float_array("log1mexp", x)), "log1mexp: x"))
    is_small = value > -math.log(2)
    # Each formula sees numbers that it is good for, so that no derivative is an infinity that is multiplied by 0.
    small = fnp.log(fnp.negative(fnp.expm1(fnp.where(is_small, value, -0.5))))
    large = fnp.log1p(fnp.negative(fnp.exp(fnp.where(is_small, -1.0, value))))
    return fnp.where(is_small, small, large)
