"""Records of `tracefx.lax.linalg` and `tracefx.numpy.linalg`: decompositions, linear systems, norms."""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np

from tests.differential.records import (
    INF,
    NAN,
    Call,
    Library,
    Record,
    Weak,
    call,
    f32,
    grid,
    i32,
    operand_values,
    record,
)
from tracefx.core import NDArray
from tracefx.testing.tolerances import PROGRAM

DTYPES: Final = ("int32", "float64", "complex64")


def well_conditioned(*shape: int) -> NDArray:
    """Well-conditioned matrices with distinct eigenvalues."""
    rows, columns = shape[-2:]
    diagonal = np.eye(rows, columns) * np.arange(1.0, columns + 1)
    return np.asarray(grid(*shape, low=-0.5, high=0.5) + diagonal, np.float32)


def positive(*shape: int) -> NDArray:
    x = well_conditioned(*shape)
    return np.asarray(x @ np.swapaxes(x, -1, -2))


def complex_of(x: NDArray) -> NDArray:
    return (x + 0.25j * np.roll(x, 1, -1)).astype(np.complex64)


def hermitian(x: NDArray) -> NDArray:
    return np.asarray(x + np.swapaxes(x, -1, -2).conj())


def singular(n: int) -> NDArray:
    x = well_conditioned(n, n)
    x[-1] = x[0]
    return x


def linalg_record(module_path: str, name: str, *calls: Call, **kw: Any) -> Record:
    kw.setdefault("dtypes", DTYPES)
    kw.setdefault("ulps", PROGRAM)

    def via(library: Library) -> Any:
        f = getattr(getattr(library, module_path).linalg, name)

        def returning_tuples(*args: Any, **kwargs: Any) -> Any:
            out = f(*args, **kwargs)
            return tuple(out) if isinstance(out, list) else out  # JAX returns lists where it documents tuples

        return returning_tuples

    return record(f"linalg.{name}", *calls, module=module_path, via=via, **kw)


def lax(name: str, *calls: Call, **kw: Any) -> Record:
    """Only 32 and 64 bits: LAPACK has no other dtypes, and lax functions do not promote."""
    kw.setdefault("dtypes", ("float64", "complex64"))
    if "float64" in kw["dtypes"]:
        wide = [x.astype(np.float64) if x.dtype == np.float32 else x for x in map(operand_values, calls[0].operands)]
        kw["values"] = (*kw.get("values", ()), calls[0].at(wide))
    return linalg_record("lax", name, *calls, **kw)


def numpy(name: str, *calls: Call, **kw: Any) -> Record:
    return linalg_record("numpy", name, *calls, **kw)


SQUARE: Final = well_conditioned(3, 3)
STACK: Final = well_conditioned(2, 2, 2)
TALL: Final = well_conditioned(3, 2)
WIDE: Final = well_conditioned(2, 3)
COMPLEX: Final = complex_of(well_conditioned(2, 2))
WRONG: Final = (call(f32(1.0, 2.0)), call("a"), call(2.0))
NOT_SQUARE: Final = (call(TALL), *WRONG)
BAD: Final = np.stack([np.diag(f32(1.0, -1.0)), np.diag(f32(NAN, 1.0)), np.diag(f32(INF, 1.0))])
EMPTY: Final = (call(np.zeros((0, 0), np.float32)), call(np.zeros((0, 2, 2), np.float32)))
THIN: Final = (call(np.zeros((3, 0), np.float32)), call(np.zeros((0, 2), np.float32)), EMPTY[1])
DIAGONALS: Final = f32(0.0, -0.25, 0.75), f32(2.0, -3.0, 2.5), f32(0.25, 0.5, 0.0)

RECORDS: Final[tuple[Record, ...]] = (
    # ------------------------------------------------------------------ lax.linalg
    lax(
        "cholesky",
        call(positive(3, 3)),
        call(hermitian(COMPLEX * 3)),
        values=(call(BAD), *EMPTY),
        refused=(call(TALL), call(f32(1.0))),
    ),
    lax("cholesky_update", call(np.triu(SQUARE), f32(0.5, -0.25, 1.0)), derivatives=False, batched=False, dtypes=()),
    lax(
        "symmetric_product",
        call(WIDE, hermitian(well_conditioned(2, 2)), alpha=0.5, beta=2.0, symmetrize_output=True),
        derivatives=False,
        dtypes=("float64",),
    ),
    lax(
        "triangular_solve",
        call(SQUARE, TALL, left_side=True, lower=True),
        call(SQUARE, WIDE, transpose_a=True, unit_diagonal=True),
        call(COMPLEX, complex_of(WIDE)[:, :2], left_side=True, conjugate_a=True),
        values=(call(SQUARE, f32(1.0, 2.0, 3.0), left_side=True), call(SQUARE, f32(1.0, 2.0, 3.0))),
        refused=(call(SQUARE, TALL), call(TALL, TALL), call("a", TALL)),
        dtypes=("float64", "complex64", "bfloat16"),
    ),
    lax("lu", call(SQUARE), call(TALL), call(COMPLEX), values=(call(BAD), call(singular(3)), *THIN), refused=WRONG),
    lax(
        "lu_pivots_to_permutation",
        call(i32(2, 2, 3), 4),
        values=(call(i32([1, 1], [0, 1]), 2), call(np.zeros(0, np.int32), 3)),
        refused=(call(i32(1, 2), 1), call(f32(1.0), 2), call(i32(1), 1.5)),
        dtypes=(),
        derivatives=False,
    ),
    lax("householder_product", call(TALL, f32(1.5, 0.5)), refused=(call(WIDE, f32(1.0)),), derivatives=False),
    lax(
        "ormqr",
        call(TALL, f32(1.5, 0.5), well_conditioned(3, 2), transpose=True),
        refused=(call(TALL, f32(1.0), WIDE),),
        derivatives=False,
    ),
    lax(
        "qr",
        call(SQUARE),
        call(complex_of(TALL), full_matrices=False),
        call(TALL),
        call(WIDE, pivoting=True),
        values=(call(BAD), *THIN, call(np.zeros((2, 0), np.float32), pivoting=True, full_matrices=False)),
        refused=WRONG,
    ),
    lax(
        "eigh",
        call(hermitian(SQUARE)),
        call(hermitian(COMPLEX)),
        values=(call(BAD), call(hermitian(COMPLEX), lower=False, symmetrize_input=False), *EMPTY),
        refused=(call(TALL), call(f32(1.0))),
    ),
    lax(
        "eig",
        call(SQUARE, compute_left_eigenvectors=False, enable_eigvec_derivs=True),
        values=(call(SQUARE), call(BAD), call(COMPLEX, compute_right_eigenvectors=False), *EMPTY),
        refused=NOT_SQUARE,
        dtypes=("float64",),
    ),
    lax(
        "schur",
        call(SQUARE),
        values=(call(COMPLEX, compute_schur_vectors=False), *EMPTY),
        refused=NOT_SQUARE,
        derivatives=False,
    ),
    lax("hessenberg", call(SQUARE), values=(call(COMPLEX), call(f32([2.0]))), refused=NOT_SQUARE, derivatives=False),
    lax(
        "tridiagonal",
        call(hermitian(SQUARE)),
        values=(call(COMPLEX, lower=False),),
        refused=NOT_SQUARE,
        derivatives=False,
    ),
    lax(
        "tridiagonal_solve",
        call(*DIAGONALS, TALL),
        values=(call(*[x * 0 for x in DIAGONALS], TALL), call(*DIAGONALS, TALL, perturb_singular=True)),
        refused=(call(*DIAGONALS, WIDE), call(*DIAGONALS[:2], f32(1.0), TALL)),
    ),
    lax(
        "svd",
        call(complex_of(TALL), full_matrices=False),
        call(SQUARE, compute_uv=False),
        values=(call(TALL), call(BAD), call(np.zeros((0, 2), np.float32)), EMPTY[1]),
        refused=WRONG,
    ),
    # ------------------------------------------------------------------ numpy.linalg
    numpy("cholesky", call(positive(2, 2), upper=True), values=(call(BAD), *EMPTY), refused=NOT_SQUARE),
    numpy(
        "qr",
        call(TALL),
        call(SQUARE, "r"),
        values=(call(TALL, "complete"), call(TALL, "raw")),
        refused=(*WRONG, call(TALL, "x")),
    ),
    numpy(
        "svd",
        call(TALL, full_matrices=False),
        call(hermitian(well_conditioned(2, 2)) * f32([1.0, 1.0], [1.0, -1.0]), hermitian=True),
        values=(call(WIDE), call(SQUARE, compute_uv=False, hermitian=True)),
        refused=WRONG,
        dtypes=DTYPES,
    ),
    numpy("svdvals", call(STACK), values=(*THIN, call(Weak(well_conditioned(2, 2)))), refused=WRONG),
    numpy(
        "eigh",
        call(hermitian(well_conditioned(2, 2))),
        values=(call(COMPLEX, "U"),),
        refused=(*NOT_SQUARE, call(SQUARE, "X")),
    ),
    numpy("eigvalsh", call(hermitian(well_conditioned(2, 2))), refused=NOT_SQUARE),
    numpy("eig", call(SQUARE), values=(call(BAD),), refused=NOT_SQUARE, derivatives=False),
    # JAX has no second derivatives of eigenvalues; `tests/laws` tests those of tracefx.
    numpy("eigvals", call(well_conditioned(2, 2)), refused=NOT_SQUARE, derivatives=False),
    numpy(
        "solve",
        call(SQUARE, f32(1.0, 2.0, 3.0)),
        values=(
            call(STACK, well_conditioned(2, 3)),
            call(singular(2), f32(1.0, 2.0)),
            call(SQUARE, i32(1, 2, 3)),
            call(np.zeros((0, 0)), np.zeros((0, 2))),
        ),
        refused=(call(SQUARE, WIDE), call(TALL, f32(1.0, 2.0)), call(f32(1.0), f32(1.0)), call("a", f32(1.0))),
    ),
    numpy("inv", call(SQUARE), values=(call(STACK), call(singular(2)), *EMPTY), refused=NOT_SQUARE),
    numpy(
        "matrix_power",
        call(well_conditioned(2, 2), 3),
        call(well_conditioned(2, 2), -2),
        values=(call(STACK, 0), call(i32([1, 2], [3, 4]), 5), call(SQUARE, 1)),
        refused=(call(TALL, 2), call(SQUARE, 1.5)),
    ),
    numpy("tensorinv", call(well_conditioned(4, 4).reshape(2, 2, 4)), refused=(call(SQUARE), call(SQUARE, 0))),
    numpy(
        "tensorsolve",
        call(well_conditioned(4, 4).reshape(2, 2, 4), well_conditioned(2, 2)),
        values=(
            call(well_conditioned(4, 4).reshape(2, 4, 2), well_conditioned(2, 2), axes=(1,)),
            call(well_conditioned(6, 6).reshape(2, 1, 3, 6), well_conditioned(1, 6), axes=(0, 2)),
        ),
        refused=(call(SQUARE, well_conditioned(2, 2)),),
        dtypes=("float64",),
        derivatives=False,
    ),
    numpy(
        "pinv",
        call(TALL),
        values=(call(WIDE), call(singular(2), 0.1), call(hermitian(well_conditioned(2, 2)), hermitian=True), *THIN),
        refused=(*WRONG, call(TALL, 0.1, rcond=0.1)),
    ),
    numpy(
        "lstsq",
        call(TALL, f32(1.0, 2.0, 3.0)),
        values=(
            call(TALL, well_conditioned(3, 2), 0.9),
            call(np.zeros((3, 0), np.float32), f32(1.0, 2.0, 3.0)),
        ),
        refused=(call(TALL, f32(1.0)), call(STACK, STACK)),
    ),
    numpy(
        "det",
        call(well_conditioned(2, 2)),
        call(well_conditioned(4, 4)),
        values=(
            *(call(STACK), call(SQUARE), call(i32([1, 2], [3, 4])), call(singular(4)), *EMPTY),
            call(np.full((1, 1), 2, ml_dtypes.bfloat16)),
        ),
        refused=NOT_SQUARE,
    ),
    numpy(
        "slogdet",
        call(well_conditioned(2, 2)),
        call(-SQUARE),
        call(COMPLEX),
        values=(call(singular(3)), call(COMPLEX), call(SQUARE, method="qr"), *EMPTY),
        refused=(*NOT_SQUARE, call(SQUARE, method="x")),
    ),
    numpy(
        "norm",
        call(SQUARE),
        call(SQUARE, axis=0),
        call(TALL, "nuc"),
        call(TALL, 1, axis=(1, 0), keepdims=True),
        values=(
            *[call(TALL, ord) for ord in ("fro", -1, INF, -INF, 2, -2)],
            *[call(f32(0.0, 3.0, -4.0), ord) for ord in (0, 1, 3, INF, -INF, -2)],
            call(STACK, 2, (0, 2), True),
            call(complex_of(TALL)),
        ),
        refused=(call(STACK, 2), call(SQUARE, "x"), call(SQUARE, axis=3), call("a"), call(f32(1.0), "fro")),
    ),
    numpy("vector_norm", call(SQUARE, axis=1, ord=3), values=(call(SQUARE), call(SQUARE, ord=0)), refused=(call("a"),)),
    numpy("matrix_norm", call(STACK, ord=1), values=(call(STACK, keepdims=True),), refused=(call("a"),)),
    numpy(
        "cond",
        call(SQUARE),
        values=(*[call(SQUARE, p) for p in (1, -2, "fro", INF)], call(singular(2), 1)),
        refused=(*WRONG, EMPTY[0], call(TALL, 1)),
        dtypes=("int32", "complex64"),
    ),
    numpy(
        "matrix_rank",
        call(singular(3)),
        values=(call(f32(0.0, 1.0)), call(STACK, tol=f32(0.1, 5.0)), call(hermitian(SQUARE), hermitian=True)),
        refused=(call(SQUARE, 0.1, tol=0.1), call("a")),
        derivatives=False,
    ),
    numpy("cross", call(f32(1.0, 2.0, 3.0), f32(3.0, -1.0, 2.0)), refused=(call(f32(1.0, 2.0), f32(1.0, 2.0)),)),
    numpy("outer", call(f32(1.0, 2.0), f32(3.0, -1.0)), refused=(call(SQUARE, SQUARE),)),
    numpy("vecdot", call(SQUARE, f32(3.0, -1.0, 2.0)), values=(call(complex_of(TALL), TALL, axis=0),)),
    numpy("matmul", call(STACK, well_conditioned(2, 3))),
    numpy("tensordot", call(TALL, WIDE, axes=1), values=(call(TALL, TALL),)),
    numpy("matrix_transpose", call(STACK), refused=(call(f32(1.0)),)),
    numpy("diagonal", call(WIDE), values=(call(WIDE, offset=1),)),
    numpy("trace", call(WIDE), values=(call(WIDE, offset=-1), call(WIDE, dtype="float64"))),
    numpy(
        "multi_dot",
        call([TALL, WIDE, SQUARE]),
        values=(call([f32(1.0, 2.0, 3.0), TALL, f32(1.0, 2.0)]), call([TALL, WIDE])),
        refused=(call([TALL]), call([TALL, TALL]), call([TALL, STACK, TALL])),
    ),
)
