"""Distributions of vectors and matrices."""

from __future__ import annotations

import numpy as np

from tracefx import numpy as fnp
from tracefx.core import Array, ArrayLike, DType, DTypeLike, Shape, dtypes
from tracefx.core.named_sharding import OutSharding
from tracefx.lax import linalg
from tracefx.numpy.shapes import ShapeLike, sizes_of
from tracefx.ops.operation import static_shape
from tracefx.random.continuous import normal
from tracefx.random.samplers import check_parameter_shapes, float_dtype, jit_sampler


def multivariate_normal(
    key: ArrayLike,
    mean: ArrayLike,
    cov: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    method: str = "cholesky",
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Draws vectors from the multivariate normal distribution.

    Args:
        key: a random key, `key<...>[]`.
        mean: `f32[..., n]`.
        cov: the covariance, `f32[..., n, n]`, symmetric and positive definite; with `"svd"` and `"eigh"` it may be
            singular.
        shape: the shape of the result without its last axis; by default what the batch axes of `mean` and `cov`
            broadcast to.
        dtype: the float dtype of the draws; by default that of the promoted parameters.
        method: how the square root of `cov` is computed: `"cholesky"`, `"svd"` or `"eigh"`.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        `dtype[*shape, n]`.

    Raises:
        ValueError: if `method` is unknown, or shapes do not match.

    >>> from tracefx import random
    >>> random.multivariate_normal(random.key(0), [1.0, 2.0], [[1.0, 0.5], [0.5, 1.0]], (3,)).shape
    (3, 2)
    """
    if method not in ("svd", "eigh", "cholesky"):
        raise ValueError(f"multivariate_normal: method must be 'svd', 'eigh' or 'cholesky', got {method!r}")
    center, matrix = [x if dtypes.is_float(x.dtype) else x.astype(float) for x in map(fnp.asarray, (mean, cov))]
    if not center.ndim:
        raise ValueError(f"multivariate_normal: mean must have at least one axis, got {center.aval}")
    n = center.shape[-1]
    if matrix.shape[-2:] != (n, n):
        raise ValueError(
            f"multivariate_normal: cov must be of shape (..., {n}, {n}) for a mean {center.aval}, got {matrix.aval}"
        )
    common = fnp.promote_types(center.dtype, matrix.dtype)
    lead = center.shape[:-1], matrix.shape[:-2]
    sizes = np.broadcast_shapes(*lead) if shape is None else sizes_of("multivariate_normal", shape)
    check_parameter_shapes("multivariate_normal", sizes, *lead)
    result_dtype = common if dtype is None else float_dtype("multivariate_normal", dtype)
    return _multivariate_normal(key, center.astype(common), matrix.astype(common), sizes, result_dtype, method)


@jit_sampler("shape", "dtype", "method")
def _multivariate_normal(key: Array, mean: Array, cov: Array, shape: Shape, dtype: DType, method: str) -> Array:
    if method == "cholesky":
        root = linalg.cholesky(cov)
    elif method == "svd":
        vectors, sizes, _ = linalg.svd(cov)
        root = vectors * fnp.sqrt(sizes)[..., None, :]
    else:
        vectors, sizes = linalg.eigh(cov)
        root = vectors * fnp.sqrt(sizes)[..., None, :]
    drawn = normal(key, (*shape, mean.shape[-1]), dtype)
    return mean + fnp.einsum("...ij,...j->...i", root, drawn)


def orthogonal(
    key: ArrayLike,
    n: int,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    m: int | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Draws uniformly distributed orthogonal matrices, or unitary matrices for complex dtypes.

    The method is that of Mezzadri, How to generate random matrices from the classical compact groups, Notices of the
    AMS 54 (2007).

    Args:
        key: a random key, `key<...>[]`.
        n: the number of rows.
        shape: the batch axes of the result.
        dtype: the float or complex dtype of the result; None means the default float dtype.
        m: the number of columns, `n` by default. If it differs, the columns or the rows are orthonormal, whichever are
            fewer.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        `dtype[*shape, n, m]`.

    Raises:
        ValueError: if `dtype` is neither a float nor a complex dtype.

    >>> from tracefx import random
    >>> import tracefx.numpy as fnp
    >>> q = random.orthogonal(random.key(0), 3)
    >>> bool(abs(q @ q.T - fnp.eye(3)).max() < 1e-5)
    True
    """
    rows, columns = static_shape("orthogonal", (n, n if m is None else m), "n and m")
    result_dtype = float_dtype("orthogonal", dtype, complex_too=True)
    return _orthogonal(key, rows, columns, sizes_of("orthogonal", shape), result_dtype)


@jit_sampler("n", "m", "shape", "dtype")
def _orthogonal(key: Array, n: int, m: int, shape: Shape, dtype: DType) -> Array:
    drawn = normal(key, (*shape, max(n, m), min(n, m)), dtype)
    q, r = linalg.qr(drawn, full_matrices=False)
    x = q * fnp.expand_dims(fnp.sign(fnp.diagonal(r, axis1=-2, axis2=-1)), -2)
    return x.mT if n < m else x
