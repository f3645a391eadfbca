"""Polynomials from roots, roots of polynomials, and least-squares fits."""

from __future__ import annotations

import math

import numpy as np

from tracefx.core import Array, ArrayLike, dtypes, to_numpy
from tracefx.core.handler import as_array
from tracefx.errors import ConcretizationError
from tracefx.numpy import linalg
from tracefx.numpy.creation import asarray, ones, zeros
from tracefx.numpy.diagonals import diag
from tracefx.numpy.dot_products import matmul, outer
from tracefx.numpy.dtype_routines import promote_types
from tracefx.numpy.joining import concatenate
from tracefx.numpy.logic import equal
from tracefx.numpy.operand_promotion import as_operand, inexact_dtype, to_inexact
from tracefx.numpy.ranges import arange
from tracefx.numpy.reductions import all, argmin, sum
from tracefx.numpy.repeating import roll
from tracefx.numpy.sequences import vander
from tracefx.numpy.shapes import atleast_1d, transpose
from tracefx.numpy.transcendentals import sqrt
from tracefx.numpy.ufuncs import divide, multiply, negative, square, subtract, where
from tracefx.numpy.updates import at
from tracefx.ops.shape import shape
from tracefx.ops.static_integers import static_count


def poly(seq_of_zeros: ArrayLike) -> Array:
    """Returns the coefficients of the monic polynomial with given roots, highest power first.

    Args:
        seq_of_zeros: A vector of roots, or a square matrix whose characteristic polynomial is returned.

    Returns:
        A vector of floats or complex numbers.

    Raises:
        ValueError: If the argument is neither.

    >>> poly(np.array([1.0, 2.0])).tolist()
    [1.0, -3.0, 2.0]
    """
    roots_ = atleast_1d(to_inexact(seq_of_zeros, "poly: seq_of_zeros"))
    if roots_.ndim == 2 and roots_.shape[0] == roots_.shape[1] and roots_.size:
        roots_ = linalg.eigvals(roots_)
    if roots_.ndim != 1:
        raise ValueError(f"poly: seq_of_zeros must be a vector of roots or a square matrix, got {roots_.aval}")
    if not roots_.size:
        return ones((), roots_.dtype)
    one, zero = ones(1, roots_.dtype), zeros(1, roots_.dtype)
    out = one
    for i in range(roots_.size):
        out = subtract(concatenate([out, zero]), concatenate([zero, multiply(out, roots_[i])]))
    return out


def roots(p: ArrayLike, *, strip_zeros: bool = True) -> Array:
    """Returns the roots of a polynomial as complex numbers.

    Args:
        p: The coefficients, highest power first.
        strip_zeros: Whether to strip leading zeros, which needs concrete coefficients. If False, the missing roots are
            NaN at the end.

    Returns:
        A vector of complex numbers.

    Raises:
        ValueError: If `p` is not a vector.
        ConcretizationError: If `p` is traced and `strip_zeros` is True.

    >>> roots(np.array([1.0, -3.0, 2.0])).real.tolist()
    [2.0, 1.0]
    """
    x = atleast_1d(to_inexact(p, "roots: p"))
    if x.ndim != 1:
        raise ValueError(f"roots: p must be a vector of coefficients, got {x.aval}")
    if not strip_zeros and x.size > 1:
        return _roots_with_leading_zeros(x)
    if x.size > 1:
        try:
            large = np.flatnonzero(to_numpy(x))
        except ConcretizationError as error:
            raise ConcretizationError(
                "roots: strip_zeros=True needs concrete coefficients, but they are traced; pass strip_zeros=False"
            ) from error
        x = shape.slice_axis(x, int(large[0]) if large.size else x.size, x.size, 0)
    return _roots(x)


def _roots(x: Array) -> Array:
    """Returns the eigenvalues of the companion matrix."""
    if x.size < 2:
        return zeros(0, promote_types(x.dtype, dtypes.complex64))
    matrix = diag(ones(x.size - 2, x.dtype), -1)
    return linalg.eigvals(at(matrix)[0].set(negative(divide(x[1:], x[0]))))


def _roots_with_leading_zeros(x: Array) -> Array:
    """Returns the roots of traced coefficients, NaN for those that leading zeros remove."""
    zero = equal(x, 0)
    leading = where(all(zero), x.size, argmin(zero))
    roots_ = _roots(roll(where(equal(leading, x.size), 1.0, x), negative(leading)))
    # The leading zeros, rotated to the end, give roots of 0, which are moved behind the others.
    is_zero = equal(roots_, 0)
    order = where(is_zero, sum(~is_zero) + (is_zero.cumsum() - 1), (~is_zero).cumsum() - 1)
    roots_ = at(zeros(roots_.shape, roots_.dtype))[order].set(roots_)
    return where(arange(roots_.size) < subtract(roots_.size, leading), roots_, complex(math.nan, math.nan))


def polyfit(
    x: ArrayLike,
    y: ArrayLike,
    deg: int,
    rcond: float | None = None,
    full: bool = False,
    w: ArrayLike | None = None,
    cov: bool | str = False,
) -> Array | tuple[Array, ...]:
    """Fits a polynomial to points by least squares.

    Args:
        x: The first coordinates of the points, a vector.
        y: The second coordinates, a vector or a matrix with a column for each fit.
        deg: The degree of the polynomial.
        rcond: The relative size below which singular values are treated as 0; None means the machine epsilon times the
            number of points.
        full: Whether to return diagnostics too.
        w: The weights of the residuals; None means equal weights.
        cov: Whether to return covariances of the coefficients too; `"unscaled"` does not scale them by the residuals.

    Returns:
        The coefficients, highest power first. With `full`, a tuple of them, residuals, rank, singular values and
        `rcond`; with `cov`, a pair of them and the covariance matrix.

    Raises:
        TypeError: If shapes do not fit.
        ValueError: If `deg` is negative, or there are too few points to scale covariances.

    >>> polyfit(np.array([0.0, 1.0, 2.0]), np.array([1.0, 3.0, 5.0]), 1).round(4).tolist()
    [2.0, 1.0]
    """
    degree = static_count("polyfit", deg, "deg")
    points, values = [as_array(as_operand(v, f"polyfit: {what}")) for v, what in ((x, "x"), (y, "y"))]
    if points.ndim != 1 or not points.size:
        raise TypeError(f"polyfit: x must be a vector that is not empty, got {points.aval}")
    if values.ndim not in (1, 2) or values.shape[0] != points.size:
        raise TypeError(f"polyfit: y must be a vector or a matrix as long as x, got {values.aval} for {points.aval}")
    if rcond is None:
        rcond = points.size * float(dtypes.finfo(inexact_dtype(points.dtype)).eps)
    powers: Array = vander(as_array(to_inexact(points, "polyfit: x")), degree + 1)
    if w is not None:
        weights = as_array(to_inexact(w, "polyfit: w"))
        if weights.ndim != 1 or weights.size != points.size:
            raise TypeError(f"polyfit: w must be a vector as long as x, got {weights.aval} for {points.aval}")
        column = shape.expand_dims(weights, (1,))
        powers, values = multiply(powers, column), multiply(values, weights if values.ndim == 1 else column)
    scale = sqrt(sum(square(powers), 0))
    powers = divide(powers, scale)
    coefficients, residuals, rank, singular = linalg.lstsq(powers, values, rcond)
    coefficients = divide(coefficients, scale if coefficients.ndim == 1 else shape.expand_dims(scale, (1,)))
    if full:
        return coefficients, residuals, rank, singular, asarray(rcond)
    if not cov:
        return coefficients
    base = divide(linalg.inv(matmul(transpose(powers), powers)), outer(scale, scale))
    if cov == "unscaled":
        return coefficients, base if values.ndim == 1 else shape.expand_dims(base, (2,))
    if points.size <= degree + 1:
        raise ValueError(f"polyfit: scaling covariances needs more points than coefficients, got {points.size}")
    factor = divide(residuals, points.size - degree - 1)
    return coefficients, multiply(base if values.ndim == 1 else shape.expand_dims(base, (2,)), factor)
