"""`eigh_tridiagonal`: eigenvalues of tridiagonal matrices."""

from __future__ import annotations

from tracefx import numpy as fnp
from tracefx.core import Array, ArrayLike, as_value, dtypes
from tracefx.core.handler import as_array
from tracefx.ops.linalg import eigen
from tracefx.ops.linalg.lapack import LAPACK_NUMBERS
from tracefx.ops.static_integers import static_int
from tracefx.transforms.eager_calls import eager_cached


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
    """Computes the eigenvalues and eigenvectors of a Hermitian tridiagonal matrix.

    Args:
        d: the diagonal, `f32[n]`.
        e: the subdiagonal, `f32[n - 1]`.
        eigvals_only: whether to omit the eigenvectors.
        select: `"a"` for all eigenvalues, or `"i"` for those with indices in `select_range`.
        select_range: the first and the last index, both inclusive.
        tol: accepted for compatibility with JAX; it has no effect: results have the full accuracy of the dtype.
        key: accepted for compatibility with JAX; it has no effect.

    Returns:
        The eigenvalues in increasing order, and the eigenvectors in columns.

    Raises:
        NotImplementedError: if `select` is `"v"`: the number of eigenvalues in an interval is unknown while tracing.
        TypeError: if the dtypes differ or are not supported.
        ValueError: if shapes do not match, or `select` or `select_range` is invalid.

    >>> import numpy as np
    >>> eigh_tridiagonal(np.array([1.0, 1.0]), np.array([1.0]), eigvals_only=True).round(3).tolist()
    [0.0, 2.0]
    """
    x, y = [as_array(as_value(v, f"eigh_tridiagonal: {argument}")) for v, argument in ((d, "d"), (e, "e"))]
    if x.dtype != y.dtype:
        raise TypeError(f"eigh_tridiagonal: d and e must have one dtype, got {x.aval} and {y.aval}")
    LAPACK_NUMBERS.require("eigh_tridiagonal", x.aval, y.aval)
    if x.ndim != 1 or y.shape != (max(x.shape[0] - 1, 0),):
        raise ValueError(f"eigh_tridiagonal: d must be a vector and e one shorter, got {x.aval} and {y.aval}")
    if select == "v":
        raise NotImplementedError(
            'eigh_tridiagonal: select "v" is not supported, since the number of eigenvalues is unknown: use "a" or "i"'
        )
    if select not in ("a", "i"):
        raise ValueError(f'eigh_tridiagonal: select must be "a" or "i", got {select!r}')
    subset = None
    if select == "i":
        if select_range is None:
            raise ValueError('eigh_tridiagonal: select "i" needs select_range, the first and the last index')
        first, last = [static_int("eigh_tridiagonal", i, "select_range") for i in select_range]
        if not 0 <= first <= last < x.size:
            raise ValueError(
                f"eigh_tridiagonal: select_range must be two indices below {x.size} in order, got {select_range!r}"
            )
        subset = first, last + 1
    return _eigh_tridiagonal(x, y, only=bool(eigvals_only), subset=subset)


@eager_cached(compiled=True)
def _eigh_tridiagonal(d: Array, e: Array, *, only: bool, subset: tuple[int, int] | None) -> Array | tuple[Array, Array]:
    diagonal = d.real if dtypes.is_complex(d.dtype) else d
    matrix = fnp.diag(diagonal.astype(d.dtype)) + fnp.diag(e, -1)
    vectors, values = eigen.eigh(matrix, symmetrize_input=False, subset_by_index=subset)
    return values if only else (values, vectors)
