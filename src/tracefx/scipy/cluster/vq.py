"""Vectors written as the nearest of a few, with the names of `jax.scipy.cluster.vq`."""

from __future__ import annotations

from tracefx import numpy as fnp
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.handler import as_array
from tracefx.numpy.operand_promotion import convert_dtype, inexact_dtype, promote_dtypes

__all__ = ["vq"]


def vq(obs: ArrayLike, code_book: ArrayLike, check_finite: bool = True) -> tuple[Array, Array]:
    """For each row of `obs` (`f32[m, n]`) the nearest row of `code_book` (`f32[k, n]`), and how far it is.

    Arrays of one axis are taken for columns. Nothing depends on `check_finite`: numbers that are none are as far as
    they are. ValueError for arrays of other or different numbers of axes.

    >>> codes, distances = vq(fnp.array([[1.0, 1.0], [4.0, 4.0]]), fnp.array([[0.0, 1.0], [4.0, 4.0]]))
    >>> codes.tolist(), distances.tolist()
    ([0, 1], [1.0, 0.0])
    """
    del check_finite
    given = promote_dtypes("vq", obs, code_book)
    dtype = inexact_dtype(given[0].aval.dtype)
    x, codes = [as_array(convert_dtype(value, dtype, value.aval.weak_type)) for value in given]
    if x.ndim != codes.ndim:
        raise ValueError(f"vq: obs {x.aval} and code_book {codes.aval} must have equally many axes")
    if x.ndim not in (1, 2):
        raise ValueError(f"vq: obs and code_book must have one or two axes, got {x.aval}")
    if x.ndim == 1:
        x, codes = x[:, None], codes[:, None]
    if x.shape[1] != codes.shape[1]:
        raise ColumnCountError(f"vq: obs {x.aval} and code_book {codes.aval} must have equally long rows")
    away = x[:, None] - codes
    squares = fnp.real(away * fnp.conj(away)) if dtypes.is_complex(dtype) else away * away
    distances = fnp.sqrt(fnp.sum(squares, -1))
    nearest = fnp.argmin(distances, -1)
    least = distances[fnp.arange(x.shape[0]), nearest] if x.shape[0] else fnp.min(distances, -1)
    return nearest, least


class ColumnCountError(TypeError, ValueError):
    """Rows of different lengths: JAX raises a TypeError."""
