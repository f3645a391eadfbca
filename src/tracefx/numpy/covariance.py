"""Covariances and correlation coefficients of variables."""

from __future__ import annotations

import math

from tracefx.core import Array, ArrayLike, DTypeLike, dtypes
from tracefx.core.handler import as_array
from tracefx.numpy.complex_parts import conjugate, imag, real
from tracefx.numpy.creation import full, zeros
from tracefx.numpy.diagonals import diag
from tracefx.numpy.dot_products import dot
from tracefx.numpy.joining import concatenate
from tracefx.numpy.moments import average
from tracefx.numpy.operand_promotion import as_operand, convert_dtype, inexact_dtype, promote_dtypes
from tracefx.numpy.reductions import sum
from tracefx.numpy.shapes import atleast_2d, squeeze, transpose
from tracefx.numpy.transcendentals import sqrt
from tracefx.numpy.ufuncs import absolute, clip, divide, multiply, subtract
from tracefx.ops.elementwise import complex as complex_numbers
from tracefx.ops.shape import shape
from tracefx.transforms.eager_calls import eager_cached


@eager_cached(compiled=True)
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
    """Returns the covariance matrix of variables.

    Sums are divided by the number of samples minus `ddof`.

    Args:
        m: The samples, a matrix with one variable per row, `f32[variables, samples]`, or a vector of one variable.
        y: More variables of the same samples; None means no more.
        rowvar: Whether rows are variables; if False, columns are.
        bias: Whether the default of `ddof` is 0 instead of 1.
        ddof: The number subtracted from the number of samples; None means the default by `bias`.
        fweights: Integer frequencies: how many times each sample counts. None means once.
        aweights: The weight of each sample. None means equal weights.
        dtype: The dtype in which to compute; None means the promoted float dtype.

    Returns:
        A matrix with a row and a column for each variable; for a single variable, an array without axes.

    Raises:
        ValueError: If an operand has more than two axes.
        RuntimeError: If weights are not a vector with one number per sample.
        TypeError: If `fweights` are not integers.

    >>> import numpy as np
    >>> cov(np.array([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]])).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    operands = [m] if y is None else [m, y]
    values = promote_dtypes("cov", *operands, inexact=True) if y is not None else [as_operand(m, "cov: m")]
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
    ddof_ = (0 if bias else 1) if ddof is None else ddof
    weights, sample_weights = _weights(samples, fweights, aweights)
    if dtype is not None:
        computed_dtype = dtypes.as_dtype(dtype)
        x = as_array(convert_dtype(x, computed_dtype))
        weights = None if weights is None else as_array(convert_dtype(weights, computed_dtype))
    return _covariances(x, weights, sample_weights, ddof=ddof_)


@eager_cached(compiled=True)
def _covariances(x: Array, weights: Array | None, sample_weights: Array | None, *, ddof: int) -> Array:
    """Returns the covariances of the rows of `x`, with the product of all weights and the `aweights` alone."""
    means, totals = average(x, 1, weights, returned=True)
    total = totals[0]
    divisor: ArrayLike
    if weights is None:
        divisor = x.shape[1] - ddof
    elif ddof == 0:
        divisor = total
    elif sample_weights is None:
        divisor = total - ddof
    else:
        divisor = total - divide(multiply(sum(multiply(weights, sample_weights)), ddof), total)
    x = subtract(x, shape.expand_dims(means, (1,)))
    weighted = x if weights is None else multiply(x, weights)
    return squeeze(divide(dot(x, conjugate(transpose(weighted))), divisor))


def _weights(samples: int, fweights: ArrayLike | None, aweights: ArrayLike | None) -> tuple[Array | None, Array | None]:
    """Returns the product of all weights, and `aweights` alone, each None where not given."""
    weights: list[Array | None] = []
    for argument, what in ((fweights, "fweights"), (aweights, "aweights")):
        if argument is None:
            weights.append(None)
            continue
        w = as_operand(argument, f"cov: {what}")
        if w.aval.ndim > 1 or w.aval.shape[:1] != (samples,):
            raise RuntimeError(
                f"cov: {what} must be a vector with one number for each of {samples} samples, got {w.aval}"
            )
        if what == "fweights" and not dtypes.is_integer(w.aval.dtype):
            raise TypeError(f"cov: fweights must be integers, got {w.aval}")
        weights.append(absolute(w))
    counts, sample_weights = weights
    both = sample_weights if counts is None else counts if sample_weights is None else multiply(counts, sample_weights)
    return both, sample_weights


@eager_cached(compiled=True)
def corrcoef(x: ArrayLike, y: ArrayLike | None = None, rowvar: bool = True, dtype: DTypeLike | None = None) -> Array:
    """Returns the correlation coefficients of variables: covariances divided by both standard deviations.

    Args:
        x: The samples, as for `cov`.
        y: More variables of the same samples; None means no more.
        rowvar: Whether rows are variables; if False, columns are.
        dtype: The dtype in which to compute; None means the promoted float dtype.

    Returns:
        A matrix with a row and a column for each variable; for a single variable, an array without axes.

    Raises:
        ValueError: If `dtype` is not of floats or complex numbers, or an operand has more than two axes.

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


@eager_cached(compiled=True)
def _correlation_coefficients(c: Array) -> Array:
    """Divides covariances by the standard deviations of both variables."""
    deviations = as_array(convert_dtype(sqrt(real(diag(c))), c.dtype))
    c = divide(divide(c, shape.expand_dims(deviations, (1,))), deviations)
    if dtypes.is_complex(c.dtype):
        return complex_numbers.complex(clip(real(c), -1, 1), clip(imag(c), -1, 1))
    return clip(c, -1, 1)
