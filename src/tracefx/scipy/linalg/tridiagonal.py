"""Eigenvalues of tridiagonal matrices."""

from __future__ import annotations

from tracefx import numpy as fnp
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.handler import as_array
from tracefx.core.values import as_value
from tracefx.ops.linalg import eigen
from tracefx.ops.linalg.lapack import LAPACK_NUMBERS
from tracefx.ops.static_integers import static_int
from tracefx.transforms.at_once import at_once


def eigh_tridiagonal(
    d: ArrayLike,
    e: ArrayLike,
    *,
    eigvals_only: bool = False,
    select: str = "a",
    select_range: tuple[float, float] | None = None,
    tol: float | None = None,
    key: Array | None = None,
) -> Array | tuple[Array, Array]:
    """The increasing eigenvalues of the Hermitian matrix with diagonal `d` (`f32[n]`) and `e` (`f32[n - 1]`) below it,
    and unless `eigvals_only` their eigenvectors in columns.

    For `select` "i" those whose places are from the first to the second number of `select_range`, both included. They
    are as exact as the dtype allows, whatever `tol` and `key` are.

    >>> import numpy as np
    >>> eigh_tridiagonal(np.array([1.0, 1.0]), np.array([1.0]), eigvals_only=True).round(3).tolist()
    [0.0, 2.0]
    """
    x, y = [as_array(as_value(v, f"eigh_tridiagonal: {what}")) for v, what in ((d, "d"), (e, "e"))]
    if x.dtype != y.dtype:
        raise TypeError(f"eigh_tridiagonal: d and e must have one dtype, got {x.aval} and {y.aval}")
    LAPACK_NUMBERS.require("eigh_tridiagonal", x.aval, y.aval)
    if x.ndim != 1 or y.shape != (max(x.shape[0] - 1, 0),):
        raise ValueError(f"eigh_tridiagonal: d must be a vector and e one shorter, got {x.aval} and {y.aval}")
    if select == "v":
        raise NotImplementedError('eigh_tridiagonal: how many eigenvalues are in a range isn\'t known: use "a" or "i"')
    if select not in ("a", "i"):
        raise ValueError(f'eigh_tridiagonal: select must be "a" or "i", got {select!r}')
    subset = None
    if select == "i":
        if select_range is None or select_range[0] > select_range[1]:
            raise ValueError(f"eigh_tridiagonal: select_range must be two places in order, got {select_range!r}")
        first, last = [static_int("eigh_tridiagonal", i, "select_range") for i in select_range]  # type: ignore[arg-type]  # floats are refused there
        subset = first, last + 1
    return _eigh_tridiagonal(x, y, only=bool(eigvals_only), subset=subset)


@at_once
def _eigh_tridiagonal(d: Array, e: Array, *, only: bool, subset: tuple[int, int] | None) -> Array | tuple[Array, Array]:
    below = d.real if dtypes.is_complex(d.dtype) else d
    whole = fnp.diag(below.astype(d.dtype)) + fnp.diag(e, -1)
    vectors, values = eigen.eigh(whole, symmetrize_input=False, subset_by_index=subset)
    return values if only else (values, vectors)
