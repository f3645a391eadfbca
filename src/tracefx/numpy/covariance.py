"""How variables vary together: covariances and correlation coefficients."""

from __future__ import annotations

import math

import numpy as np

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import DTypeLike, NDArray
from tracefx.core.handler import as_array
from tracefx.numpy.creation import full, zeros
from tracefx.numpy.diagonals import diag
from tracefx.numpy.dot_products import dot
from tracefx.numpy.evaluated import Kernel, by_numpy
from tracefx.numpy.joining import concatenate
from tracefx.numpy.operand_promotion import as_operand, convert_dtype, inexact_dtype, promote_dtypes
from tracefx.numpy.reductions import average, sum
from tracefx.numpy.shapes import atleast_2d, squeeze, transpose
from tracefx.numpy.transcendentals import sqrt
from tracefx.numpy.ufuncs import absolute, clip, conjugate, divide, imag, multiply, real, subtract
from tracefx.ops.elementwise import complex as complex_numbers
from tracefx.ops.shape import shape
from tracefx.transforms.at_once import at_once


def _cov_kernel(
    m: ShapedArray, y: object = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None, **rest: object
) -> Kernel | None:
    """`cov` of a matrix of NumPy's."""
    less = (0 if bias else 1) if ddof is None else ddof
    if y is not None or rest or m.ndim != 2 or not m.size or min(m.shape) < 2 or not m.shape[1 if rowvar else 0] > less:
        return None
    element = m.dtype.type
    count = m.shape[1 if rowvar else 0]
    weights, divisor = np.full((count, 1), 1 / count, m.dtype), element(count - less)

    def kernel(x: NDArray) -> NDArray:
        if not rowvar:
            x = x.T
        x = x - np.dot(x, weights)
        found: NDArray = np.dot(x, x.T) / divisor
        return found

    return kernel


@by_numpy(_cov_kernel, replays=False, patient=False)
@at_once(arrays=2)
def cov(
    m: ArrayLike,
    y: ArrayLike | None = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: ArrayLike | None = None,
    aweights: ArrayLike | None = None,
    dtype: DTypeLike | None = None,
) -> Array:
    """The covariances of variables, which are the rows of `m` and `y` (or columns, unless `rowvar`), samples being
    along the other axis. Sums are divided by the number of samples less `ddof`: 1, or 0 with `bias`.

    Samples count `fweights` times, which are integers, and weigh `aweights`. ValueError for more than two axes.

    >>> import numpy as np
    >>> cov(np.array([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]])).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    given = [m] if y is None else [m, y]
    values = promote_dtypes("cov", *given) if y is not None else [as_operand(m, "cov: m")]
    values = [convert_dtype(v, inexact_dtype(v.aval.dtype), v.aval.weak_type) for v in values]
    for v, what in zip(values, ("m", "y"), strict=False):
        if v.aval.ndim > 2:
            raise ValueError(f"cov: {what} must be a vector or a matrix, got {v.aval}")
    if dtype is not None and not dtypes.is_inexact(wanted := dtypes.as_dtype(dtype, "cov: dtype")):
        raise ValueError(f"cov: dtype must be a float or complex dtype, got {dtypes.name(wanted)}")
    x = atleast_2d(values[0])
    if not rowvar and values[0].aval.ndim != 1:
        x = transpose(x)
    if not x.shape[0]:
        return zeros((0, 0))
    if y is not None:
        other = atleast_2d(values[1])
        x = concatenate([x, transpose(other) if not rowvar and other.shape[0] != 1 else other])
    variables, samples = x.shape
    if not samples:
        return full(() if variables == 1 else (variables, variables), math.nan, x.dtype)
    less = (0 if bias else 1) if ddof is None else ddof
    weights, own = _weights(samples, fweights, aweights)
    if dtype is not None:
        new = dtypes.as_dtype(dtype)
        x = as_array(convert_dtype(x, new))
        weights = None if weights is None else as_array(convert_dtype(weights, new))
    return _covariances(x, weights, own, less=less)


@at_once
def _covariances(x: Array, weights: Array | None, own: Array | None, *, less: int) -> Array:
    means, totals = average(x, 1, weights, returned=True)
    total = totals[0]
    divisor: ArrayLike
    if weights is None:
        divisor = x.shape[1] - less
    elif less == 0:
        divisor = total
    elif own is None:
        divisor = total - less
    else:
        divisor = total - divide(multiply(sum(multiply(weights, own)), less), total)
    x = subtract(x, shape.expand_dims(means, (1,)))
    weighed = x if weights is None else multiply(x, weights)
    return squeeze(divide(dot(x, conjugate(transpose(weighed))), divisor))


def _weights(samples: int, fweights: ArrayLike | None, aweights: ArrayLike | None) -> tuple[Array | None, Array | None]:
    """The weights of samples, and those that are no counts."""
    found: list[Array | None] = []
    for given, what in ((fweights, "fweights"), (aweights, "aweights")):
        if given is None:
            found.append(None)
            continue
        w = as_operand(given, f"cov: {what}")
        if w.aval.ndim > 1 or w.aval.shape[:1] != (samples,):
            raise RuntimeError(
                f"cov: {what} must be a vector with one number for each of {samples} samples, got {w.aval}"
            )
        if what == "fweights" and not dtypes.is_integer(w.aval.dtype):
            raise TypeError(f"cov: fweights must be integers, got {w.aval}")
        found.append(absolute(w))
    counts, own = found
    both = own if counts is None else counts if own is None else multiply(counts, own)
    return both, own


@at_once(arrays=2)
def corrcoef(x: ArrayLike, y: ArrayLike | None = None, rowvar: bool = True, dtype: DTypeLike | None = None) -> Array:
    """The correlation coefficients of variables: their covariances, divided by the standard deviations of both.

    >>> import numpy as np
    >>> corrcoef(np.array([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]])).round(4).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    if dtype is not None and not dtypes.is_inexact(wanted := dtypes.as_dtype(dtype, "corrcoef: dtype")):
        raise ValueError(f"corrcoef: dtype must be a float or complex dtype, got {dtypes.name(wanted)}")
    c = cov(x, y, rowvar, dtype=dtype)
    if not c.ndim:
        return divide(c, c)
    return _correlation_coefficients(c)


@at_once
def _correlation_coefficients(c: Array) -> Array:
    """Covariances divided by the deviations of both variables."""
    deviations = as_array(convert_dtype(sqrt(real(diag(c))), c.dtype))
    c = divide(divide(c, shape.expand_dims(deviations, (1,))), deviations)
    if dtypes.is_complex(c.dtype):
        return complex_numbers.complex(clip(real(c), -1, 1), clip(imag(c), -1, 1))
    return clip(c, -1, 1)
