"""Linear algebra, with the names of `jax.numpy.linalg`: the array API's extension and other functions of NumPy.

Matrices are the last two axes; the others are batch axes. Integers become floats. Where a decomposition does not exist
the result is NaN, and no error is raised.

>>> import tracefx.numpy as fnp
>>> fnp.linalg.solve(fnp.array([[2.0, 0.0], [1.0, 1.0]]), fnp.array([4.0, 3.0]))
Array([2., 1.], dtype=float32)
"""

from __future__ import annotations

from tracefx.numpy.linalg.decompositions import (
    cholesky,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    qr,
    svd,
    svdvals,
)
from tracefx.numpy.linalg.determinants import det, slogdet
from tracefx.numpy.linalg.norms import cond, matrix_norm, matrix_rank, norm, vector_norm
from tracefx.numpy.linalg.products import (
    cross,
    diagonal,
    matmul,
    matrix_transpose,
    multi_dot,
    outer,
    tensordot,
    trace,
    vecdot,
)
from tracefx.numpy.linalg.solving import inv, lstsq, matrix_power, pinv, solve, tensorinv, tensorsolve

__all__ = [
    "cholesky",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "lstsq",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "tensorinv",
    "tensorsolve",
    "trace",
    "vecdot",
    "vector_norm",
]
