"""Logarithmic and geometric sequences, Vandermonde matrices, `diagflat`."""

from __future__ import annotations

from tracefx.core import Array, ArrayLike, DTypeLike, dtypes
from tracefx.core.handler import as_array
from tracefx.numpy.diagonals import diag
from tracefx.numpy.dtype_routines import result_type
from tracefx.numpy.operand_promotion import as_operand, convert_dtype, convert_operand, inexact_dtype
from tracefx.numpy.ranges import linspace
from tracefx.numpy.shapes import moveaxis, ravel
from tracefx.numpy.transcendentals import log10
from tracefx.numpy.ufuncs import divide, multiply, power, sign
from tracefx.ops.shape import shape
from tracefx.ops.static_integers import static_count
from tracefx.transforms.eager_calls import eager_cached


def logspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    base: ArrayLike = 10.0,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> Array:
    """Returns numbers from `base**start` to `base**stop` that are evenly spaced on a logarithmic scale.

    Args:
        start: The exponent of the first number.
        stop: The exponent of the end.
        num: How many numbers.
        endpoint: Whether `base**stop` is the last number; if False, it is the exclusive end.
        base: The base.
        dtype: The dtype of the result; None means the promoted float dtype.
        axis: The position of the new axis, if `start` or `stop` has axes.

    Returns:
        An array of `num` numbers along the new axis.

    >>> logspace(0, 2, 3).tolist()
    [1.0, 10.0, 100.0]
    """
    new = _inexact_result_dtype("logspace", start, stop, dtype)
    computed = inexact_dtype(new)
    powers = linspace(
        _as_array_of_dtype(start, computed, "logspace: start"),
        _as_array_of_dtype(stop, computed, "logspace: stop"),
        num,
        endpoint,
        axis=axis,
    )
    return as_array(convert_dtype(power(as_operand(base, "logspace: base"), powers), new))


def geomspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> Array:
    """Returns numbers from `start` to `stop` in geometric progression.

    Args:
        start: The first number.
        stop: The end.
        num: How many numbers.
        endpoint: Whether `stop` is the last number; if False, it is the exclusive end.
        dtype: The dtype of the result; None means the promoted float dtype.
        axis: The position of the new axis, if `start` or `stop` has axes.

    Returns:
        An array of `num` numbers along the new axis.

    >>> geomspace(1, 100, 3).tolist()
    [1.0, 10.0, 100.0]
    """
    new = _inexact_result_dtype("geomspace", start, stop, dtype)
    computed = inexact_dtype(new)
    first, last = (
        _as_array_of_dtype(start, computed, "geomspace: start"),
        _as_array_of_dtype(stop, computed, "geomspace: stop"),
    )
    signs = sign(first)
    exponents = log10(divide(first, signs)), log10(divide(last, signs))
    out = multiply(signs, logspace(*exponents, num, endpoint, 10.0, computed))
    return as_array(convert_dtype(moveaxis(out, 0, axis), new))


def _inexact_result_dtype(name: str, start: ArrayLike, stop: ArrayLike, dtype: DTypeLike | None) -> dtypes.DType:
    for what, x in (("start", start), ("stop", stop)):
        as_operand(x, f"{name}: {what}")  # rejects dtype names, which `result_type` would accept
    return inexact_dtype(result_type(start, stop)) if dtype is None else dtypes.as_dtype(dtype, f"{name}: dtype")


def _as_array_of_dtype(x: ArrayLike, dtype: dtypes.DType, what: str) -> Array:
    return as_array(convert_operand(x, dtype, what=what))


def vander(x: ArrayLike, N: int | None = None, increasing: bool = False) -> Array:
    """Returns the Vandermonde matrix of a vector: the powers of each element as a row.

    Args:
        x: A vector.
        N: The number of columns; None means as many as rows.
        increasing: Whether powers increase from 0; by default they decrease to 0.

    Returns:
        A matrix of the dtype of `x`.

    Raises:
        ValueError: If `x` is not a vector or `N` is negative.

    >>> import numpy as np
    >>> vander(np.array([1, 2, 3])).tolist()
    [[1, 1, 1], [4, 2, 1], [9, 3, 1]]
    """
    value = as_operand(x, "vander: x")
    if value.aval.ndim != 1:
        raise ValueError(f"vander: x must be a vector, got {value.aval}")
    count = value.aval.size if N is None else static_count("vander", N, "N")
    exponents = shape.iota(value.aval.dtype, count)
    if not increasing:
        exponents = shape.rev(exponents, (0,))
    return _powers(as_array(value), exponents)


@eager_cached(compiled=True)
def _powers(x: Array, exponents: Array) -> Array:
    return power(shape.expand_dims(x, (1,)), shape.expand_dims(exponents, (0,)))


def diagflat(v: ArrayLike, k: int = 0) -> Array:
    """Returns a matrix with the elements of the flattened `v` on a diagonal, and zeros elsewhere.

    Args:
        v: The array.
        k: The diagonal: 0 is the main one, positive numbers lie above it.

    Returns:
        A square matrix of the dtype of `v`.

    >>> import numpy as np
    >>> diagflat(np.array([[1, 2]])).tolist()
    [[1, 0], [0, 2]]
    """
    return diag(ravel(as_operand(v, "diagflat: v")), k)
