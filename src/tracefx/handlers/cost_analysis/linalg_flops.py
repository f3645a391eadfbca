"""The flops of linear algebra: the leading terms of LAPACK's algorithms, as in textbooks.

The number of iterations for an eigenvalue depends on the matrix; it is counted as two, the usual number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from tracefx import ops
from tracefx.core import ShapedArray, dtypes
from tracefx.ops.linalg.lapack import MatrixOperation

_REAL_OPS_PER_COMPLEX_OP: Final = 4
"""Real operations for one complex operation, averaged over equally many products and sums."""


def _elimination_products(m: int, n: int) -> float:
    """Returns the number of products in an elimination of `min(m, n)` columns."""
    k = min(m, n)
    return m * n * k - (m + n) * k**2 / 2 + k**3 / 3


def _householder_flops(m: int, n: int, k: int) -> float:
    """Returns the flops of forming `n` columns of a product of `k` Householder reflectors of size `m`."""
    return 4 * m * n * k - 2 * (m + n) * k**2 + 4 * k**3 / 3


def _ormqr_flops(op: ops.Ormqr, a: tuple[int, int], taus: tuple[int], c: tuple[int, int]) -> float:
    (m, _), (k,) = a, taus
    return 2 * k * (2 * m - k) * (c[1] if op.left else c[0])


def _svd_flops(op: ops.Svd, m: int, n: int) -> float:
    m, n = max(m, n), min(m, n)
    return 14 * m * n**2 + 8 * n**3 if op.compute_uv else 4 * m * n**2 - 4 * n**3 / 3


LINALG_FLOPS: Final[Mapping[type[MatrixOperation], Callable[..., float]]] = MappingProxyType(
    {
        ops.Cholesky: lambda op, x: x[0] ** 3 / 3,
        ops.Lu: lambda op, x: 2 * _elimination_products(*x),
        ops.Geqrf: lambda op, x: 4 * _elimination_products(*x),
        ops.Geqp3: lambda op, x, first: 4 * _elimination_products(*x),
        ops.HouseholderProduct: lambda op, a, taus: _householder_flops(*a, *taus),
        ops.Ormqr: _ormqr_flops,
        ops.TriangularSolve: lambda op, a, b: a[0] * b[0] * b[1],
        ops.TridiagonalSolve: lambda op, dl, d, du, b: 3 * b[0] + 5 * b[0] * b[1],
        ops.Hessenberg: lambda op, x: 10 * x[0] ** 3 / 3,
        ops.Tridiagonal: lambda op, x: 4 * x[0] ** 3 / 3,
        ops.Schur: lambda op, x: (25 if op.compute_schur_vectors else 10) * x[0] ** 3,
        ops.Eigh: lambda op, x: 9 * x[0] ** 3,
        ops.Eig: lambda op, x: (
            (25 if op.compute_left_eigenvectors or op.compute_right_eigenvectors else 10) * x[0] ** 3
        ),
        ops.Svd: lambda op, x: _svd_flops(op, *x),
    }
)
"""Real operations on one matrix, by primitive, as a function of the primitive and the shapes of its operands."""


def linalg_flops(op: MatrixOperation, ins: Sequence[ShapedArray]) -> int:
    """Returns the floating-point operations for all matrices of a batch."""
    cuts = [a.ndim - rank for a, rank in zip(ins, op.ranks, strict=True)]
    sizes = [a.shape[cut:] for a, cut in zip(ins, cuts, strict=True)]
    each = _REAL_OPS_PER_COMPLEX_OP if dtypes.is_complex(ins[0].dtype) else 1
    return math.prod(ins[0].shape[: cuts[0]]) * each * round(LINALG_FLOPS[type(op)](op, *sizes))
