"""Activation functions: elementwise functions with numerically stable values and derivatives.

The formulas differ from the textbook ones where those have wrong derivatives: at kinks, and where exponentials
overflow.
"""

from __future__ import annotations

import math

import tracefx.numpy as fnp
from tracefx.core import Array, ArrayLike, as_value, dtypes
from tracefx.core.handler import as_array
from tracefx.numpy.operand_promotion import convert_dtype, to_inexact
from tracefx.ops.elementwise import special, transcendental
from tracefx.ops.static_integers import canonicalize_axis
from tracefx.transforms.custom_derivatives import custom_jvp


def _to_array(name: str, x: ArrayLike) -> Array:
    """Converts the argument of the function `name` to an array."""
    return as_array(as_value(x, f"{name}: x"))


def identity(x: ArrayLike) -> Array:
    """Returns its argument unchanged.

    Args:
        x: an array.

    Returns:
        `x`, as an array.

    >>> identity(2.0)
    Array(2., dtype=float32, weak_type=True)
    """
    return _to_array("identity", x)


def relu(x: ArrayLike) -> Array:
    """Computes the rectified linear unit, `maximum(x, 0)`. Its derivative at 0 is 0.

    Args:
        x: an array.

    Returns:
        An array of the shape of `x`.

    >>> relu(fnp.array([-1.0, 0.0, 2.0])).tolist()
    [0.0, 0.0, 2.0]
    """
    value = _to_array("relu", x)
    return _relu(value) if dtypes.is_inexact(value.dtype) else fnp.maximum(value, 0)


@custom_jvp
def _relu(x: Array) -> Array:
    return fnp.maximum(x, 0)  # XLA fuses a maximum with the product or convolution before it, but not a selection


_relu.defjvps(lambda t, out, x: fnp.where(fnp.greater(x, 0), t, 0))


def sigmoid(x: ArrayLike) -> Array:
    """Computes the logistic sigmoid, `1 / (1 + exp(-x))`.

    Args:
        x: an array of floats or complex numbers.

    Returns:
        An array of the shape of `x`.

    >>> sigmoid(0.0)
    Array(0.5, dtype=float32, weak_type=True)
    """
    return transcendental.logistic(as_value(x, "sigmoid: x"))


def silu(x: ArrayLike) -> Array:
    """Computes the sigmoid linear unit, also called swish: `x * sigmoid(x)`.

    Args:
        x: an array of floats or complex numbers.

    Returns:
        An array of the shape of `x`.

    >>> silu(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return fnp.multiply(x, sigmoid(x))


swish = silu


def softplus(x: ArrayLike) -> Array:
    """Computes `log(1 + exp(x))` without intermediate overflow. Its derivative is `sigmoid(x)` everywhere.

    Args:
        x: an array. Integers are converted to floats.

    Returns:
        An array of the shape of `x`. The imaginary parts of complex results are in [-pi, pi].

    >>> softplus(1000.0)
    Array(1000., dtype=float32, weak_type=True)
    """
    value = to_inexact(x, "softplus: x")
    if dtypes.is_complex(value.aval.dtype):
        return fnp.logaddexp(as_array(value), 0.0)
    # Each branch is smooth. With `abs(x)` the derivatives at 0 would be wrong: those of the two terms don't add up.
    above = fnp.greater(value, 0)
    below = fnp.where(above, fnp.negative(value), value)
    return fnp.add(fnp.where(above, value, 0), fnp.log1p(fnp.exp(below)))


def gelu(x: ArrayLike, approximate: bool = True) -> Array:
    """Computes the Gaussian error linear unit: `x` times the standard normal cumulative distribution function of `x`.

    Args:
        x: an array of real numbers. Integers are converted to floats.
        approximate: whether to use the approximation `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))`;
            otherwise `x / 2 * erfc(-x / sqrt(2))`.

    Returns:
        An array of the shape of `x`.

    >>> round(float(gelu(1.0, approximate=False)), 4)
    0.8413
    """
    operand = to_inexact(x, "gelu: x")
    value = as_array(convert_dtype(operand, operand.aval.dtype))
    if not approximate:
        return fnp.multiply(fnp.multiply(value, 0.5), special.erfc(fnp.multiply(fnp.negative(value), math.sqrt(0.5))))
    inner = fnp.multiply(fnp.add(value, fnp.multiply(fnp.power(value, 3), 0.044715)), math.sqrt(2 / math.pi))
    return fnp.multiply(value, fnp.multiply(fnp.add(fnp.tanh(inner), 1.0), 0.5))


# ------------------------------------------------------------------ variants of relu


def relu6(x: ArrayLike) -> Array:
    """Computes `minimum(maximum(x, 0), 6)`. Its derivatives at 0 and 6 are 0.

    Args:
        x: an array.

    Returns:
        An array of the shape of `x`.

    >>> relu6(fnp.array([-1.0, 2.0, 7.0])).tolist()
    [0.0, 2.0, 6.0]
    """
    value = _to_array("relu6", x)
    return _relu6(value) if dtypes.is_inexact(value.dtype) else fnp.minimum(fnp.maximum(value, 0), 6.0)


@custom_jvp
def _relu6(x: Array) -> Array:
    return fnp.minimum(fnp.maximum(x, 0), 6.0)


_relu6.defjvps(lambda t, out, x: fnp.where(fnp.logical_and(fnp.greater(x, 0), fnp.less(x, 6)), t, 0))


def leaky_relu(x: ArrayLike, negative_slope: ArrayLike = 0.01) -> Array:
    """Computes the leaky rectified linear unit: `x` where `x >= 0`, `negative_slope * x` elsewhere.

    Args:
        x: an array.
        negative_slope: the slope for negative numbers.

    Returns:
        An array of the shape of `x`.

    >>> leaky_relu(fnp.array([-1.0, 2.0]), 0.25).tolist()
    [-0.25, 2.0]
    """
    value = _to_array("leaky_relu", x)
    return fnp.where(value >= 0, value, fnp.multiply(negative_slope, value))


def elu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Array:
    """Computes the exponential linear unit: `x` where `x > 0`, `alpha * (exp(x) - 1)` elsewhere.

    Args:
        x: an array.
        alpha: the negative of the limit at minus infinity.

    Returns:
        An array of the shape of `x`.

    >>> elu(fnp.array([-1e3, 2.0])).tolist()
    [-1.0, 2.0]
    """
    value = _to_array("elu", x)
    below = fnp.where(value > 0, 0.0, value)
    return fnp.where(value > 0, value, fnp.multiply(alpha, fnp.expm1(below)))


def celu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Array:
    """Computes the continuously differentiable exponential linear unit.

    It is `x` where `x > 0` and `alpha * (exp(x / alpha) - 1)` elsewhere, with slope 1 at 0 for every `alpha`.

    Args:
        x: an array.
        alpha: the negative of the limit at minus infinity.

    Returns:
        An array of the shape of `x`.

    >>> celu(fnp.array([-1e3, 2.0]), 2.0).tolist()
    [-2.0, 2.0]
    """
    value = _to_array("celu", x)
    below = fnp.where(value > 0, 0.0, value)
    return fnp.where(value > 0, value, fnp.multiply(alpha, fnp.expm1(fnp.true_divide(below, alpha))))


def selu(x: ArrayLike) -> Array:
    """Computes the scaled exponential linear unit, `1.0507 * elu(x, 1.67326)`.

    The constants preserve mean 0 and variance 1 through the layers of a network: Klambauer, Unterthiner, Mayr and
    Hochreiter, Self-normalizing neural networks (2017).

    Args:
        x: an array.

    Returns:
        An array of the shape of `x`.

    >>> round(float(selu(1.0)), 4)
    1.0507
    """
    return fnp.multiply(1.0507009873554804934193349852946, elu(x, 1.6732632423543772848170429916717))


def glu(x: ArrayLike, axis: int = -1) -> Array:
    """Computes the gated linear unit: the first half of `x` along an axis times the sigmoid of the second half.

    Args:
        x: an array.
        axis: the axis to split in halves.

    Returns:
        An array like `x` with half the size along `axis`.

    Raises:
        ValueError: if the size of the axis is odd.

    >>> glu(fnp.array([2.0, 0.0])).tolist()
    [1.0]
    """
    value = _to_array("glu", x)
    canonical_axis = canonicalize_axis("glu", axis, value.ndim)
    if value.shape[canonical_axis] % 2:
        raise ValueError(f"glu: the size of axis {axis} of {value.aval} must be even")
    first, second = fnp.split(value, 2, canonical_axis)
    return first * sigmoid(second)


def sparse_plus(x: ArrayLike) -> Array:
    """Computes the sparse plus function: 0 for `x <= -1`, `x` for `x >= 1`, and `(x + 1)**2 / 4` in between.

    Args:
        x: an array.

    Returns:
        An array of the shape of `x`.

    >>> sparse_plus(fnp.array([-2.0, 0.0, 2.0])).tolist()
    [0.0, 0.25, 2.0]
    """
    value = _to_array("sparse_plus", x)
    return fnp.where(value <= -1.0, 0.0, fnp.where(value >= 1.0, value, fnp.square(value + 1.0) / 4))


def squareplus(x: ArrayLike, b: ArrayLike = 4) -> Array:
    """Computes `(x + sqrt(x**2 + b)) / 2`, a smooth approximation of `relu`, without overflow for large `x`.

    Args:
        x: an array of real numbers. Integers are converted to floats.
        b: the smoothness; 0 gives `relu`.

    Returns:
        An array of the shape of `x`.

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


# ------------------------------------------------------------------ variants of sigmoid and tanh


def log_sigmoid(x: ArrayLike) -> Array:
    """Computes `log(sigmoid(x))` without intermediate underflow.

    Args:
        x: an array of real numbers.

    Returns:
        An array of the shape of `x`.

    >>> log_sigmoid(-1000.0)
    Array(-1000., dtype=float32, weak_type=True)
    """
    return fnp.negative(softplus(fnp.negative(_to_array("log_sigmoid", x))))


def hard_sigmoid(x: ArrayLike) -> Array:
    """Computes `relu6(x + 3) / 6`, a piecewise linear approximation of the sigmoid.

    Args:
        x: an array.

    Returns:
        An array of the shape of `x`.

    >>> hard_sigmoid(fnp.array([-9.0, 0.0, 9.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    return relu6(_to_array("hard_sigmoid", x) + 3.0) / 6.0


def hard_silu(x: ArrayLike) -> Array:
    """Computes `x * hard_sigmoid(x)`, also called hard swish.

    Args:
        x: an array.

    Returns:
        An array of the shape of `x`.

    >>> hard_silu(fnp.array([-9.0, 9.0])).tolist()
    [-0.0, 9.0]
    """
    value = _to_array("hard_silu", x)
    return value * hard_sigmoid(value)


hard_swish = hard_silu


def sparse_sigmoid(x: ArrayLike) -> Array:
    """Computes the derivative of `sparse_plus`: 0 for `x <= -1`, 1 for `x >= 1`, and `(x + 1) / 2` in between.

    Args:
        x: an array.

    Returns:
        An array of the shape of `x`.

    >>> sparse_sigmoid(fnp.array([-9.0, 0.0, 9.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    return 0.5 * fnp.clip(_to_array("sparse_sigmoid", x) + 1.0, 0.0, 2.0)


def soft_sign(x: ArrayLike) -> Array:
    """Computes `x / (abs(x) + 1)`.

    Args:
        x: an array.

    Returns:
        An array of the shape of `x`.

    >>> soft_sign(fnp.array([-1.0, 3.0])).tolist()
    [-0.5, 0.75]
    """
    value = _to_array("soft_sign", x)
    return value / (fnp.abs(value) + 1)


def hard_tanh(x: ArrayLike) -> Array:
    """Clips to the interval from -1 to 1: a piecewise linear approximation of `tanh`.

    Args:
        x: an array.

    Returns:
        An array of the shape of `x`.

    >>> hard_tanh(fnp.array([-2.0, 0.5])).tolist()
    [-1.0, 0.5]
    """
    value = _to_array("hard_tanh", x)
    return fnp.where(value > 1, 1, fnp.where(value < -1, -1, value))


def mish(x: ArrayLike) -> Array:
    """Computes the mish activation, `x * tanh(softplus(x))`.

    Args:
        x: an array of real numbers.

    Returns:
        An array of the shape of `x`.

    >>> mish(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    value = _to_array("mish", x)
    return value * fnp.tanh(softplus(value))


def log1mexp(x: ArrayLike) -> Array:
    """Computes `log(1 - exp(-x))` for positive `x`, accurate for both small and large numbers.

    It uses two formulas, one on either side of `log(2)`: Mächler, Accurately computing log(1 - exp(-|a|)) (2012).

    Args:
        x: an array of positive numbers.

    Returns:
        An array of the shape of `x`.

    >>> log1mexp(1e-10)
    Array(-23.02585, dtype=float32, weak_type=True)
    """
    value = as_array(to_inexact(fnp.negative(_to_array("log1mexp", x)), "log1mexp: x"))
    is_small = value > -math.log(2)
    # Each formula is evaluated only where it is accurate, so that no derivative is infinity times 0.
    small = fnp.log(fnp.negative(fnp.expm1(fnp.where(is_small, value, -0.5))))
    large = fnp.log1p(fnp.negative(fnp.exp(fnp.where(is_small, -1.0, value))))
    return fnp.where(is_small, small, large)
