"""Polynomials from their roots, their roots, and those that fit points best."""

from __future__ import annotations

import math

import numpy as np

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.handler import as_array
from tracefx.core.values import to_numpy
from tracefx.errors import ConcretizationError
from tracefx.numpy import linalg
from tracefx.numpy.creation import arange, asarray, ones, zeros
from tracefx.numpy.diagonals import diag
from tracefx.numpy.dot_products import matmul, outer
from tracefx.numpy.dtype_routines import promote_types
from tracefx.numpy.joining import concatenate
from tracefx.numpy.logic import equal
from tracefx.numpy.operand_promotion import as_operand, inexact_dtype, to_inexact
from tracefx.numpy.reductions import all, argmin, sum
from tracefx.numpy.repeating import roll
from tracefx.numpy.sequences import vander
from tracefx.numpy.shapes import atleast_1d, transpose
from tracefx.numpy.transcendentals import sqrt
from tracefx.numpy.ufuncs import divide, multiply, negative, square, subtract, where
from tracefx.numpy.updates import at
from tracefx.ops.shape import shape
from tracefx.ops.static_integers import static_int


def poly(seq_of_zeros: ArrayLike) -> Array:
    """The coefficients of the polynomial with these roots, that of the highest power, 1, first; of a square matrix its
    characteristic polynomial.

    >>> poly(np.array([1.0, 2.0])).tolist()
    [1.0, -3.0, 2.0]
    """
    found = atleast_1d(to_inexact(seq_of_zeros, "poly: seq_of_zeros"))
    if found.ndim == 2 and found.shape[0] == found.shape[1] and found.size:
        found = linalg.eigvals(found)
    if found.ndim != 1:
        raise ValueError(f"poly: seq_of_zeros must be a vector of roots or a square matrix, got {found.aval}")
    if not found.size:
        return ones((), found.dtype)
    one, zero = ones(1, found.dtype), zeros(1, found.dtype)
    out = one
    for i in range(found.size):
        out = subtract(concatenate([out, zero]), concatenate([zero, multiply(out, found[i])]))
    return out


def roots(p: ArrayLike, *, strip_zeros: bool = True) -> Array:
    """The roots of the polynomial with these coefficients, that of the highest power first.

    Coefficients of 0 in front are left out, which takes numbers that are known, unless `strip_zeros` is False: then the
    roots that are lacking are NaN at the end.

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
                "roots: how many coefficients are 0 isn't known while the program is traced; pass strip_zeros=False"
            ) from error
        x = shape.slice_axis(x, int(large[0]) if large.size else x.size, x.size, 0)
    return _roots(x)


def _roots(x: Array) -> Array:
    """The eigenvalues of the matrix that has this characteristic polynomial."""
    if x.size < 2:
        return zeros(0, promote_types(x.dtype, dtypes.complex64))
    matrix = diag(ones(x.size - 2, x.dtype), -1)
    return linalg.eigvals(at(matrix)[0].set(negative(divide(x[1:], x[0]))))


def _roots_with_leading_zeros(x: Array) -> Array:
    zero = equal(x, 0)
    lacking = where(all(zero), x.size, argmin(zero))
    found = _roots(roll(where(equal(lacking, x.size), 1.0, x), negative(lacking)))
    # Leading zeros, now at the end, gave roots of 0: those go behind the others.
    behind = equal(found, 0)
    order = where(behind, sum(~behind) + (behind.cumsum() - 1), (~behind).cumsum() - 1)
    found = at(zeros(found.shape, found.dtype))[order].set(found)
    return where(arange(found.size) < subtract(found.size, lacking), found, complex(math.nan, math.nan))


def polyfit(
    x: ArrayLike,
    y: ArrayLike,
    deg: int,
    rcond: float | None = None,
    full: bool = False,
    w: ArrayLike | None = None,
    cov: bool | str = False,
) -> Array | tuple[Array, ...]:
    """The coefficients of the polynomial of a degree that fits points best in the sense of least squares, weighted by
    `w`; `y` may have several columns.

    With `full` also what `lstsq` gives and `rcond`; with `cov` the covariances of the coefficients, not scaled by the
    rests if it is "unscaled". Raises TypeError for shapes that don't fit, ValueError for a negative degree.

    >>> polyfit(np.array([0.0, 1.0, 2.0]), np.array([1.0, 3.0, 5.0]), 1).round(4).tolist()
    [2.0, 1.0]
    """
    degree = static_int("polyfit", deg, "deg")
    if degree < 0:
        raise ValueError(f"polyfit: deg must not be negative, got {degree}")
    places, values = [as_array(as_operand(v, f"polyfit: {what}")) for v, what in ((x, "x"), (y, "y"))]
    if places.ndim != 1 or not places.size:
        raise TypeError(f"polyfit: x must be a vector that is not empty, got {places.aval}")
    if values.ndim not in (1, 2) or values.shape[0] != places.size:
        raise TypeError(f"polyfit: y must be a vector or a matrix as long as x, got {values.aval} for {places.aval}")
    if rcond is None:
        rcond = places.size * float(dtypes.finfo(inexact_dtype(places.dtype)).eps)
    powers: Array = vander(as_array(to_inexact(places, "polyfit: x")), degree + 1)
    if w is not None:
        weights = as_array(to_inexact(w, "polyfit: w"))
        if weights.ndim != 1 or weights.size != places.size:
            raise TypeError(f"polyfit: w must be a vector as long as x, got {weights.aval} for {places.aval}")
        column = shape.expand_dims(weights, (1,))
        powers, values = multiply(powers, column), multiply(values, weights if values.ndim == 1 else column)
    scale = sqrt(sum(square(powers), 0))
    powers = divide(powers, scale)
    found, rests, rank, singular = linalg.lstsq(powers, values, rcond)
    found = divide(found, scale if found.ndim == 1 else shape.expand_dims(scale, (1,)))
    if full:
        return found, rests, rank, singular, asarray(rcond)
    if not cov:
        return found
    base = divide(linalg.inv(matmul(transpose(powers), powers)), outer(scale, scale))
    if cov == "unscaled":
        return found, base if values.ndim == 1 else shape.expand_dims(base, (2,))
    if places.size <= degree + 1:
        raise ValueError(f"polyfit: to scale covariances takes more points than coefficients, got {places.size}")
    factor = divide(rests, places.size - degree - 1)
    return found, multiply(base if values.ndim == 1 else shape.expand_dims(base, (2,)), factor)
