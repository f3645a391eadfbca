"""Records of `tracefx.scipy.linalg` and related functions."""

from __future__ import annotations

import importlib
from typing import Any, Final

import numpy as np

from tests.differential.decompositions import (
    COMPLEX,
    DIAGONALS,
    NOT_SQUARE,
    SQUARE,
    STACK,
    TALL,
    WIDE,
    WRONG,
    hermitian,
    lax,
    positive,
    well_conditioned,
)
from tests.differential.records import Call, Library, Record, call, f32, i32, record
from tracefx.testing.tolerances import PROGRAM

DTYPES: Final = ("int32", "float64", "complex64")


def scipy(name: str, *calls: Call, **kw: Any) -> Record:
    kw.setdefault("dtypes", DTYPES)
    kw.setdefault("ulps", PROGRAM)

    def via(library: Library) -> Any:
        f = getattr(importlib.import_module(f"{library.root.__name__}.scipy.linalg"), name)

        def returning_tuples(*args: Any, **kwargs: Any) -> Any:
            out = f(*args, **kwargs)
            return tuple(out) if isinstance(out, list) else out  # JAX returns lists where it documents tuples

        return returning_tuples

    return record(f"linalg.{name}", *calls, module="scipy", via=via, **kw)


def rearranging(name: str, *calls: Call, values: tuple[Call, ...] = (), refused: tuple[Call, ...] = ()) -> Record:
    """Record of a function that rearranges numbers."""
    return scipy(name, *calls, values=values, refused=refused, dtypes=("int32", "complex64"))


def sized(name: str, *calls: Call, refused: tuple[Call, ...] = ()) -> Record:
    """Record of a function of a size only."""
    return scipy(name, *calls, refused=refused, dtypes=(), derivatives=False, batched=False)


V: Final = f32(1.0, 2.0, 3.0)

RECORDS: Final[tuple[Record, ...]] = (
    lax("qdwh", call(TALL), refused=(call(WIDE), *WRONG), derivatives=False, batched=False),
    scipy(
        "cholesky",
        call(positive(2, 2), lower=True),
        values=(call(positive(3, 3)),),
        refused=NOT_SQUARE[:2],
        derivatives=False,
    ),
    scipy("cho_solve", call((np.triu(SQUARE), False), V), values=(call((np.tril(SQUARE), True), TALL),)),
    scipy("lu_factor", call(SQUARE), values=(call(TALL),), refused=WRONG),
    scipy(
        "lu_solve",
        call((SQUARE, i32(1, 1, 2)), V),
        values=(call((SQUARE, i32(1, 1, 2)), TALL, 1), call((COMPLEX, i32(0, 1)), f32(1.0, 2.0), 2)),
        refused=(call((SQUARE, i32(1, 1, 2)), V, 3), call((TALL, i32(1, 1)), V)),
        dtypes=(),
    ),
    scipy("lu", call(SQUARE), values=(call(TALL, permute_l=True), call(WIDE)), refused=WRONG, batched=False),
    scipy(
        "qr",
        call(SQUARE),
        values=(
            call(TALL, mode="economic", pivoting=True),
            call(TALL, mode="r"),
            call(SQUARE, mode="r", pivoting=True),
        ),
        refused=(*WRONG, call(SQUARE, mode="x")),
    ),
    scipy(
        "qr_multiply",
        call(TALL, V),
        values=(
            call(TALL, well_conditioned(2, 2), "left"),
            call(WIDE, f32(1.0, 2.0), pivoting=True),
            call(COMPLEX, COMPLEX, conjugate=True),
        ),
        refused=(call(TALL, V, "left"), call(TALL, V, "x"), call(TALL, f32(1.0))),
        derivatives=False,
    ),
    scipy("svd", call(SQUARE), values=(call(TALL, full_matrices=False), call(WIDE, compute_uv=False)), refused=WRONG),
    scipy(
        "eigh",
        call(hermitian(well_conditioned(2, 2))),
        values=(call(hermitian(SQUARE), eigvals_only=True),),
        refused=(call(TALL), call(SQUARE, SQUARE), call(SQUARE, type=2)),
    ),
    scipy(
        "schur",
        call(SQUARE),
        values=(call(SQUARE, "complex"),),
        refused=(call(SQUARE, "x"),),
        dtypes=("float64",),
        derivatives=False,
    ),
    scipy("hessenberg", call(SQUARE, calc_q=True), values=(call(STACK),), dtypes=("float64",), derivatives=False),
    scipy("det", call(well_conditioned(2, 2)), refused=NOT_SQUARE),
    scipy("inv", call(well_conditioned(2, 2)), refused=NOT_SQUARE),
    scipy(
        "solve",
        call(positive(2, 2), f32(1.0, 2.0), assume_a="pos"),
        values=(call(SQUARE, V), call(hermitian(COMPLEX * 3), COMPLEX, True, assume_a="pos")),
        refused=(call(SQUARE, V, assume_a="x"),),
    ),
    scipy(
        "solve_triangular",
        call(SQUARE, V, lower=True),
        values=(call(SQUARE, TALL, "T"), call(COMPLEX, f32(1.0, 2.0), 2, unit_diagonal=True)),
        refused=(call(SQUARE, V, "x"), call(TALL, V)),
    ),
    scipy(
        "solve_sylvester",
        call(SQUARE, well_conditioned(2, 2), TALL),
        values=(
            call(SQUARE, well_conditioned(2, 2), TALL, method="eigen"),
            call(-well_conditioned(2, 2), well_conditioned(2, 2), well_conditioned(2, 2)),
        ),
        refused=(call(SQUARE, SQUARE, TALL), call(SQUARE, well_conditioned(2, 2), TALL, method="x")),
        dtypes=("float64",),
        derivatives=False,
    ),
    scipy(
        "expm",
        call(well_conditioned(2, 2)),
        values=(call(SQUARE * 20), call(np.triu(SQUARE), upper_triangular=True), call(SQUARE * 100, max_squarings=2)),
        refused=NOT_SQUARE,
    ),
    scipy(
        "expm_frechet",
        call(well_conditioned(2, 2), well_conditioned(2, 2)),
        refused=(call(SQUARE, TALL),),
        dtypes=(),
        batched=False,
        derivatives=False,
    ),
    scipy("sqrtm", call(SQUARE), refused=(call(SQUARE, 2),), dtypes=(), derivatives=False, batched=False),
    scipy(
        "rsf2csf",
        call(np.triu(SQUARE), SQUARE),
        values=(call(f32([1.0, 2.0], [-2.0, 1.0]), np.eye(2, dtype=np.float32)),),
        refused=(call(SQUARE, TALL), call(SQUARE, well_conditioned(2, 2))),
        dtypes=("float64",),
        derivatives=False,
    ),
    scipy(
        "polar",
        call(TALL),
        values=(call(WIDE, "left"), call(WIDE, method="svd"), call(TALL, "left", method="svd")),
        refused=(call(TALL, "x"), call(WIDE), call(TALL, method="x")),
        dtypes=("float64", "complex64"),
        derivatives=False,
    ),
    scipy(
        "eigh_tridiagonal",
        call(DIAGONALS[1], DIAGONALS[2][:2], eigvals_only=True),
        values=(call(DIAGONALS[1], DIAGONALS[2][:2], eigvals_only=True, select="i", select_range=(1, 2)),),
        refused=(
            call(V, i32(1, 2)),
            call(V, V[:2], select="x"),
            call(V, V[:2], select="i"),
            call(V, V[:2], select="i", select_range=(2, 1)),
            call(V, V[:2], select="v"),
        ),
        dtypes=("float64",),
        derivatives=False,
        batched=False,
    ),
    rearranging("block_diag", call(TALL, V), values=(call(), call(WIDE, i32(2))), refused=(call(STACK),)),
    rearranging("toeplitz", call(V, V[:2]), values=(call(V), call(COMPLEX), call(f32(1.0)))),
    rearranging("hankel", call(V, V[:2]), values=(call(V), call(STACK[0])), refused=(call(2.0),)),
    rearranging("circulant", call(V), values=(call(TALL),)),
    rearranging("leslie", call(V, V[:2]), refused=(call(V, V), call(V[:1], V[:0]))),
    scipy("companion", call(V), values=(call(TALL),), refused=(call(V[:1]),), dtypes=("int32", "complex64")),
    rearranging("fiedler", call(V), values=(call(TALL),)),
    scipy("fiedler_companion", call(f32(1.0, 2.0, 3.0, 4.0, 5.0)), values=(call(V), call(V[:2])), dtypes=("int32",)),
    rearranging(
        "convolution_matrix",
        call(V, 2),
        values=(call(V, 4, "same"), call(V, 2, "valid"), call(V, 5, "valid"), call(TALL, 2)),
        refused=(call(V, 0), call(V, 2, "x"), call(2.0, 2)),
    ),
    sized("hilbert", call(3)),
    sized("invhilbert", call(3)),
    sized("pascal", call(4), call(4, "lower"), call(4, "upper"), refused=(call(4, "x"),)),
    sized("invpascal", call(4), call(4, "lower"), call(4, "upper"), refused=(call(4, "x"),)),
    sized("helmert", call(3), call(3, full=True), refused=(call(0),)),
    sized("hadamard", call(4), call(1, "float32"), refused=(call(3),)),
    sized(
        "dft",
        call(3),
        call(4, "sqrtn"),
        call(4, "n", dtype="complex128"),
        refused=(call(3, "x"), call(3, dtype="int32")),
    ),
)
