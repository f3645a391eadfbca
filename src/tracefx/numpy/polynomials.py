"""Polynomials given by coefficients, highest power first: evaluation, arithmetic, derivatives, integrals."""

from __future__ import annotations

import math

import numpy as np

from tracefx.core import Array, ArrayLike, DType, dtypes, from_numpy, to_numpy
from tracefx.core.handler import as_array
from tracefx.errors import ConcretizationError
from tracefx.numpy.creation import zeros
from tracefx.numpy.joining import concatenate
from tracefx.numpy.operand_promotion import (
    as_operand,
    broadcast_operand_shapes,
    convert_dtype,
    inexact_dtype,
    promote_dtypes,
)
from tracefx.numpy.reductions import sum
from tracefx.numpy.shapes import atleast_1d, broadcast_to
from tracefx.numpy.ufuncs import add, divide, multiply, negative
from tracefx.numpy.updates import at
from tracefx.ops import structural
from tracefx.ops.casting import convert_host
from tracefx.ops.shape import shape
from tracefx.ops.static_integers import static_int
from tracefx.transforms.eager_calls import eager_cached
from tracefx.transforms.scans import scan


def _coefficients(name: str, *arguments: tuple[str, ArrayLike], inexact: bool = True) -> list[Array]:
    """Returns coefficients in one dtype, a float or complex one if `inexact`; raises ValueError for scalars."""
    for what, x in arguments:
        if not as_operand(x, f"{name}: {what}").aval.ndim:
            raise ValueError(f"{name}: {what} must be a vector of coefficients, got {as_operand(x, name).aval}")
    return _promote_coefficients(name, *[x for _, x in arguments], inexact=inexact)


def _promote_coefficients(name: str, *arguments: ArrayLike, inexact: bool = True) -> list[Array]:
    values = (
        promote_dtypes(name, *arguments, inexact=inexact) if len(arguments) > 1 else [as_operand(arguments[0], name)]
    )
    dtype, weak = values[0].aval.dtype, values[0].aval.weak_type
    return [as_array(convert_dtype(v, inexact_dtype(dtype) if inexact else dtype, weak)) for v in values]


@eager_cached(numbers=2, compiled=True)
def polyval(p: ArrayLike, x: ArrayLike, *, unroll: int | None = None) -> Array:
    """Evaluates a polynomial at points by Horner's rule.

    Args:
        p: The coefficients, highest power first.
        x: The points.
        unroll: How many steps each iteration of the compiled loop takes; None means 16.

    Returns:
        An array of the shape of `x`.

    >>> polyval(np.array([1, 0, 2]), 3)
    Array(11, dtype=int32)
    """
    coefficients, at_ = _coefficients_and_points("polyval", p, x)
    start = zeros(broadcast_operand_shapes("polyval", coefficients.shape[1:], at_.shape), coefficients.dtype)
    unroll = 16 if unroll is None else unroll
    if coefficients.shape[0] <= unroll:
        out = start
        for i in range(coefficients.shape[0]):
            out = add(multiply(out, at_), coefficients[i])
        return out
    return scan(lambda y, c: (add(multiply(y, at_), c), None), start, coefficients, unroll=unroll)[0]


def _coefficients_and_points(name: str, p: ArrayLike, x: ArrayLike) -> tuple[Array, Array]:
    if not as_operand(p, f"{name}: p").aval.ndim:
        raise ValueError(f"{name}: p must be a vector of coefficients, got {as_operand(p, name).aval}")
    coefficients, at_ = _promote_coefficients(name, p, x, inexact=False)
    return coefficients, at_


@eager_cached
def polyadd(a1: ArrayLike, a2: ArrayLike) -> Array:
    """Returns the sum of two polynomials.

    Args:
        a1: The coefficients of the first polynomial, highest power first.
        a2: The coefficients of the second.

    Returns:
        The coefficients of the sum, highest power first.

    >>> polyadd(np.array([1, 2]), np.array([1, 0, 0])).tolist()
    [1, 1, 2]
    """
    x, y = _coefficients("polyadd", ("a1", a1), ("a2", a2), inexact=False)
    return add(*_pad_to_equal_length(x, y))


@eager_cached
def polysub(a1: ArrayLike, a2: ArrayLike) -> Array:
    """Returns the difference of two polynomials.

    Args:
        a1: The coefficients of the first polynomial, highest power first.
        a2: The coefficients of the second.

    Returns:
        The coefficients of the difference, highest power first.

    >>> polysub(np.array([1, 2]), np.array([1, 0, 0])).tolist()
    [-1, 1, 2]
    """
    x, y = _coefficients("polysub", ("a1", a1), ("a2", a2), inexact=False)
    return add(*_pad_to_equal_length(x, negative(y)))


def _pad_to_equal_length(x: Array, y: Array) -> tuple[Array, Array]:
    n = max(x.shape[0], y.shape[0])
    x, y = [concatenate([zeros((n - v.shape[0], *v.shape[1:]), v.dtype), v]) if v.shape[0] < n else v for v in (x, y)]
    return x, y


@eager_cached
def polymul(a1: ArrayLike, a2: ArrayLike, *, trim_leading_zeros: bool = False) -> Array:
    """Returns the product of two polynomials.

    Args:
        a1: A vector of coefficients.
        a2: A vector of coefficients.
        trim_leading_zeros: Whether to trim leading zeros first, which needs concrete coefficients.

    Returns:
        The coefficients of the product, highest power first.

    >>> polymul(np.array([1, 2]), np.array([1, 0, 3])).tolist()
    [1.0, 2.0, 3.0, 6.0]
    """
    x, y = _coefficients("polymul", ("a1", a1), ("a2", a2))
    if trim_leading_zeros and (x.size > 1 or y.size > 1):
        x, y = _trim_leading("polymul", x, 0.0), _trim_leading("polymul", y, 0.0)
    return _polymul(*[v if v.size else zeros(1, v.dtype) for v in (x, y)])


@eager_cached(compiled=True)
def _polymul(x: Array, y: Array) -> Array:
    """Sums the products of coefficients with equal powers: reshaping shifts each row by one position."""
    m, n = x.size, y.size
    rows = multiply(shape.expand_dims(x, (1,)), y)
    rows = shape.pad(rows, as_array(convert_dtype(as_operand(0, "pad"), x.dtype)), [(0, 0, 0), (0, m, 0)])
    skewed = shape.slice_axis(structural.reshape(rows, (m * (m + n),)), 0, m * (m + n - 1), 0)
    return sum(structural.reshape(skewed, (m, m + n - 1)), 0, x.dtype)


def polydiv(u: ArrayLike, v: ArrayLike, *, trim_leading_zeros: bool = False) -> tuple[Array, Array]:
    """Divides polynomials.

    Args:
        u: The coefficients of the dividend.
        v: The coefficients of the divisor.
        trim_leading_zeros: Whether to trim leading coefficients of the remainder that are nearly 0, which needs
            concrete coefficients. Otherwise it is as long as `u`.

    Returns:
        The quotient and the remainder.

    >>> [part.tolist() for part in polydiv(np.array([1, 3, 2]), np.array([1, 1]))]
    [[1.0, 2.0], [0.0, 0.0, 0.0]]
    """
    remainder, divisor = _coefficients("polydiv", ("u", u), ("v", v))
    steps, n = max(0, remainder.size - divisor.size + 1), divisor.size
    scale = divide(1.0, divisor[0])
    quotient: list[Array] = []
    for k in range(steps):
        factor = multiply(scale, remainder[k])
        quotient.append(factor)
        remainder = at(remainder)[k : k + n].add(negative(multiply(factor, divisor)))
    if trim_leading_zeros:
        remainder = _trim_leading("polydiv", remainder, math.sqrt(float(dtypes.finfo(remainder.dtype).eps)))
    return shape.stack(quotient, 0) if quotient else zeros(1, remainder.dtype), remainder


def _trim_leading(name: str, x: Array, least: float) -> Array:
    """Returns `x` without leading elements of magnitude up to `least`."""
    try:
        large = np.flatnonzero(np.abs(to_numpy(x)) > least)
    except ConcretizationError as error:
        raise ConcretizationError(
            f"{name}: trim_leading_zeros needs concrete coefficients, but they are traced; leave it out"
        ) from error
    return shape.slice_axis(x, int(large[0]) if large.size else x.size, x.size, 0)


def polyder(p: ArrayLike, m: int = 1) -> Array:
    """Returns a derivative of a polynomial.

    Args:
        p: The coefficients, highest power first.
        m: How many times to differentiate.

    Returns:
        The coefficients of the derivative, highest power first.

    Raises:
        ValueError: If `m` is negative.

    >>> polyder(np.array([1, 2, 3])).tolist()
    [2.0, 2.0]
    """
    order = static_int("polyder", m, "m")
    if order < 0:
        raise ValueError(f"polyder: m must not be negative, got {order}; polyint integrates")
    (x,) = _coefficients("polyder", ("p", p))
    if not order:
        return x
    n = x.shape[0]
    falling = [math.perm(k, order) for k in range(n - 1, order - 1, -1)]
    return multiply(shape.slice_axis(x, 0, max(0, n - order), 0), _constant_vector(falling, x.dtype))


def polyint(p: ArrayLike, m: int = 1, k: ArrayLike | None = None) -> Array:
    """Returns the `m`-th antiderivative of a polynomial.

    Args:
        p: The coefficients.
        m: How many times to integrate.
        k: The constants of integration: one for all, or one for each time. None means 0.

    Returns:
        The coefficients of the antiderivative, highest power first.

    Raises:
        ValueError: If `m` is negative or the number of constants does not fit.

    >>> polyint(np.array([2, 2]), k=3).tolist()
    [1.0, 2.0, 3.0]
    """
    order = static_int("polyint", m, "m")
    if order < 0:
        raise ValueError(f"polyint: m must not be negative, got {order}; polyder differentiates")
    (x,) = _coefficients("polyint", ("p", p))
    x, constants = _promote_coefficients("polyint", x, 0 if k is None else k)
    constants = atleast_1d(constants)
    if constants.size == 1:
        constants = broadcast_to(structural.reshape(constants, (1,)), (order,))
    if constants.shape != (order,):
        raise ValueError(f"polyint: k must be a number or a vector of {order}, got {constants.aval}")
    if not order:
        return x
    n = x.shape[0] + order
    # A constant is integrated by the later integrations only.
    falling = [math.perm(i, min(i, order)) for i in range(n - 1, -1, -1)]
    return divide(concatenate([x, constants]), _constant_vector(falling, x.dtype))


def _constant_vector(numbers: list[int], dtype: DType) -> Array:
    return from_numpy(convert_host(np.array(numbers, np.float64), dtype), dtype)
