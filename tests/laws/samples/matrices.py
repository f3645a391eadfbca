"""Samples of linear algebra: decompositions and linear solves."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from jax._src.lax import linalg as jax_linalg
from jax.lax import linalg

from tests.laws.samples.making import Function, Sample, f32, grid, i32, make_sample
from tracefx.core import NDArray
from tracefx.ops.linalg.cholesky import Cholesky, CholeskyUpdate, SymmetricProduct
from tracefx.ops.linalg.eigen import Eig, Eigh
from tracefx.ops.linalg.lu import Lu, LuPivotsToPermutation
from tracefx.ops.linalg.qr import Geqp3, Geqrf, HouseholderProduct, Ormqr, Qr
from tracefx.ops.linalg.schur import Hessenberg, Schur, Tridiagonal
from tracefx.ops.linalg.svd import Svd
from tracefx.ops.linalg.triangular_solve import TriangularSolve
from tracefx.ops.linalg.tridiagonal_solve import TridiagonalSolve


def positive(*shape: int) -> NDArray:
    """Positive definite matrices with distinct eigenvalues, at least 1, and different triangles."""
    x = grid(*shape)
    out = x @ np.swapaxes(x, -1, -2) + np.diag(np.arange(1.0, shape[-1] + 1)).astype(np.float32)
    return np.asarray(np.tril(out) + np.triu(out, 1))


def well_conditioned(*shape: int) -> NDArray:
    """Well-conditioned matrices."""
    return np.asarray(grid(*shape) + 2 * np.eye(*shape[-2:], dtype=np.float32))


def complex_well_conditioned(n: int) -> NDArray:
    return np.asarray(well_conditioned(n, n) + 0.5j * grid(n, n)[::-1]).astype(np.complex64)


def _triangular_solve(p: Any) -> Function:
    return lambda a, b: jax_linalg.triangular_solve_p.bind(
        a,
        b,
        left_side=p.left_side,
        lower=p.is_lower,
        transpose_a=p.transpose_a,
        conjugate_a=p.conjugate_a,
        unit_diagonal=p.unit_diagonal,
    )


def _product(p: Any) -> Function:
    return lambda a, c: linalg.symmetric_product(a, c, alpha=p.alpha, beta=p.beta)


def _qr(p: Any) -> Function:
    return lambda x: linalg.qr(x, pivoting=p.pivoting, full_matrices=p.full_matrices)


def _eigh(p: Any) -> Function:
    return lambda x: linalg.eigh(x, lower=p.is_lower, symmetrize_input=False)


def _eig(p: Any) -> Function:
    options = {
        "compute_left_eigenvectors": p.compute_left_eigenvectors,
        "compute_right_eigenvectors": p.compute_right_eigenvectors,
    }
    return lambda x: linalg.eig(x, **options)


def _svd(p: Any) -> Function:
    def svd(x: Any) -> Any:
        out = linalg.svd(x, full_matrices=p.full_matrices, compute_uv=p.compute_uv)
        return (out[1], out[0], out[2]) if p.compute_uv else out

    return svd


DIAGONALS: Final = f32(0.5, -0.25, 0.75), f32(2.0, -3.0, 2.5), f32(0.25, 0.5, -0.75)

SAMPLES: Final[tuple[Sample, ...]] = (
    make_sample(
        Cholesky(),
        (positive(3, 3),),
        (positive(2, 2, 2),),
        reference=lambda p: lambda x: linalg.cholesky(x, symmetrize_input=False),
    ),
    make_sample(
        CholeskyUpdate(), (np.triu(well_conditioned(2, 2)), f32(0.5, -0.25)), reference=lambda p: linalg.cholesky_update
    ),
    make_sample(
        SymmetricProduct(0.5, 2.0), (grid(2, 3), grid(2, 2)), (grid(2, 2, 3), grid(2, 2, 2)), reference=_product
    ),
    make_sample(
        TriangularSolve(False, True, True, False, False),
        (well_conditioned(3, 3), grid(3, 2)),
        (well_conditioned(2, 2, 2), grid(2, 2, 3)),
        reference=_triangular_solve,
    ),
    make_sample(
        TriangularSolve(True, True, False, False, True),
        (complex_well_conditioned(2), complex_well_conditioned(2)[::-1]),
    ),
    make_sample(TriangularSolve(False, False, False, True, False), (well_conditioned(2, 2), grid(3, 2))),
    make_sample(Lu(), (well_conditioned(3, 3),), (well_conditioned(2, 2, 2),), reference=lambda p: linalg.lu),
    make_sample(Lu(), (well_conditioned(3, 2),)),
    make_sample(Lu(), (well_conditioned(2, 3),)),
    make_sample(
        LuPivotsToPermutation(4),
        (i32(2, 3, 2),),
        (i32([1, 1], [0, 3]),),
        reference=lambda p: lambda x: linalg.lu_pivots_to_permutation(x, p.permutation_size),
    ),
    make_sample(Geqrf(), (well_conditioned(3, 2),), (well_conditioned(2, 2, 3),), reference=lambda p: jax_linalg.geqrf),
    make_sample(Geqp3(), (well_conditioned(3, 2), i32(0, 0)), reference=lambda p: jax_linalg.geqp3),
    make_sample(
        HouseholderProduct(),
        (grid(3, 2), f32(1.5, 0.5)),
        (grid(2, 2, 2), grid(2, 2)),
        reference=lambda p: linalg.householder_product,
    ),
    make_sample(
        Ormqr(True, False),
        (grid(3, 2), f32(1.5, 0.5), grid(3, 2) / 2),
        reference=lambda p: lambda *xs: linalg.ormqr(*xs, left=p.left, transpose=p.transpose),
    ),
    make_sample(Ormqr(False, True), (grid(3, 2), f32(1.5, 0.5), grid(2, 3))),
    make_sample(Qr(False, False), (well_conditioned(3, 2),), (well_conditioned(2, 2, 2),), reference=_qr),
    make_sample(Qr(True, False), (well_conditioned(3, 2),)),
    make_sample(Qr(True, False), (well_conditioned(2, 3),)),
    make_sample(Qr(False, True), (well_conditioned(3, 2),)),
    make_sample(Eigh(None, True, True), (positive(3, 3),), (positive(2, 2, 2),), reference=_eigh),
    make_sample(Eig(False, False), (well_conditioned(2, 2),), (complex_well_conditioned(2),), reference=_eig),
    make_sample(Eig(True, True, True), (well_conditioned(2, 2),)),
    make_sample(
        Schur(True),
        (well_conditioned(2, 2),),
        (complex_well_conditioned(2),),
        reference=lambda p: lambda x: linalg.schur(x, compute_schur_vectors=p.compute_schur_vectors),
    ),
    make_sample(Hessenberg(), (well_conditioned(3, 3),), reference=lambda p: linalg.hessenberg),
    make_sample(
        Tridiagonal(True), (positive(3, 3),), reference=lambda p: lambda x: linalg.tridiagonal(x, lower=p.is_lower)
    ),
    make_sample(
        TridiagonalSolve(),
        (*DIAGONALS, grid(3, 2)),
        (*[np.stack([x, x[::-1]]) for x in DIAGONALS], grid(2, 3, 1)),
        reference=lambda p: lambda *xs: linalg.tridiagonal_solve(*xs, perturb_singular=p.perturb_singular),
    ),
    make_sample(Svd(None, True, False), (grid(3, 2),), (well_conditioned(2, 2, 2),), reference=_svd),
    make_sample(Svd(None, True, False), (grid(2, 3),)),
    make_sample(Svd(None, False, False), (grid(3, 2),)),
)
