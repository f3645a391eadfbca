"""Matrix decompositions and linear solvers, with the names of `jax.lax.linalg`.

Leading axes are batch axes. Dtypes are float32, float64, complex64 and complex128; LAPACK computes the results.

>>> import numpy as np
>>> from tracefx.lax import linalg
>>> linalg.cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
Array([[2., 0.],
       [1., 2.]], dtype=float32)
"""

from __future__ import annotations

from tracefx.lax.polar import qdwh as qdwh
from tracefx.ops.linalg.cholesky import cholesky as cholesky
from tracefx.ops.linalg.cholesky import cholesky_update as cholesky_update
from tracefx.ops.linalg.cholesky import symmetric_product as symmetric_product
from tracefx.ops.linalg.eigen import EighImplementation as EighImplementation
from tracefx.ops.linalg.eigen import EigImplementation as EigImplementation
from tracefx.ops.linalg.eigen import eig as eig
from tracefx.ops.linalg.eigen import eigh as eigh
from tracefx.ops.linalg.lu import lu as lu
from tracefx.ops.linalg.lu import lu_pivots_to_permutation as lu_pivots_to_permutation
from tracefx.ops.linalg.qr import householder_product as householder_product
from tracefx.ops.linalg.qr import ormqr as ormqr
from tracefx.ops.linalg.qr import qr as qr
from tracefx.ops.linalg.schur import hessenberg as hessenberg
from tracefx.ops.linalg.schur import schur as schur
from tracefx.ops.linalg.schur import tridiagonal as tridiagonal
from tracefx.ops.linalg.svd import SvdAlgorithm as SvdAlgorithm
from tracefx.ops.linalg.svd import svd as svd
from tracefx.ops.linalg.triangular_solve import triangular_solve as triangular_solve
from tracefx.ops.linalg.tridiagonal_solve import tridiagonal_solve as tridiagonal_solve

__all__ = [
    "EigImplementation",
    "EighImplementation",
    "SvdAlgorithm",
    "cholesky",
    "cholesky_update",
    "eig",
    "eigh",
    "hessenberg",
    "householder_product",
    "lu",
    "lu_pivots_to_permutation",
    "ormqr",
    "qdwh",
    "qr",
    "schur",
    "svd",
    "symmetric_product",
    "triangular_solve",
    "tridiagonal",
    "tridiagonal_solve",
]
