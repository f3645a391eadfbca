"""Vector quantization, with the names of `jax.scipy.cluster.vq`."""

from __future__ import annotations

from tracefx import numpy as fnp
from tracefx.core import Array, ArrayLike, dtypes
from tracefx.core.handler import as_array
from tracefx.numpy.operand_promotion import convert_dtype, inexact_dtype, promote_dtypes

__all__ = ["vq"]


def vq(obs: ArrayLike, code_book: ArrayLike, check_finite: bool = True) -> tuple[Array, Array]:
    """Assigns each observation to the nearest code vector, by Euclidean distance.

    Args:
        obs: the observations, `f32[m, n]`. An array of one axis is a column.
        code_book: the code vectors, `f32[k, n]`. An array of one axis is a column.
        check_finite: accepted for compatibility with SciPy; it has no effect. NaNs give distances of NaN.

    Returns:
        The index of the nearest code vector of each observation, `i32[m]`, and its distance, `f32[m]`.

    Raises:
        ColumnCountError: if the rows differ in length.
        ValueError: if the arrays differ in rank, or don't have one or two axes.

    >>> codes, distances = vq(fnp.array([[1.0, 1.0], [4.0, 4.0]]), fnp.array([[0.0, 1.0], [4.0, 4.0]]))
    >>> codes.tolist(), distances.tolist()
    ([0, 1], [1.0, 0.0])
    """
    del check_finite
    promoted = promote_dtypes("vq", obs, code_book)
    dtype = inexact_dtype(promoted[0].aval.dtype)
    x, codes = [as_array(convert_dtype(value, dtype, value.aval.weak_type)) for value in promoted]
    if x.ndim != codes.ndim:
        raise ValueError(f"vq: obs {x.aval} and code_book {codes.aval} must have equal ranks")
    if x.ndim not in (1, 2):
        raise ValueError(f"vq: obs and code_book must have one or two axes, got {x.aval}")
    if x.ndim == 1:
        x, codes = x[:, None], codes[:, None]
    if x.shape[1] != codes.shape[1]:
        raise ColumnCountError(f"vq: obs {x.aval} and code_book {codes.aval} must have rows of equal length")
    differences = x[:, None] - codes
    squared = fnp.real(differences * fnp.conj(differences)) if dtypes.is_complex(dtype) else differences * differences
    distances = fnp.sqrt(fnp.sum(squared, -1))
    nearest = fnp.argmin(distances, -1)
    nearest_distances = distances[fnp.arange(x.shape[0]), nearest] if x.shape[0] else fnp.min(distances, -1)
    return nearest, nearest_distances


class ColumnCountError(TypeError, ValueError):
    """Raised for rows of different lengths. It is also a TypeError, which JAX raises."""
