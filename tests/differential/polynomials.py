"""Records of `tracefx.numpy`: polynomials, and windows."""

from __future__ import annotations

from typing import Final

import numpy as np

from tests.comparison import JAX_TOLERANCE
from tests.differential.records import Record, c_grid, call, f32, grid, i32, record
from tracefx.testing.tolerances import ELEMENTARY, SUMMED, ULPS, Ulps

P: Final = grid(4)
Q: Final = grid(3, seed=1)
FEW: Final = ("int32", "bfloat16", "float32", "complex64")
SPECTRAL: Final = Ulps(64, 64, least=1.0, relative_to_max=True)
"""Tolerance for results of matrix decompositions."""


def window(name: str) -> Record:
    return record(
        name,
        values=[call(5), call(4), call(1), call(0)],
        refused=[call(-1), call(None)],
        derivatives=False,
        batched=False,
        ulps=JAX_TOLERANCE,
    )


RECORDS: Final[tuple[Record, ...]] = (
    record(
        "polyval",
        call(P, grid(2, seed=2)),
        values=[
            call(i32(1, 0, 2), 3),
            call(grid(20), np.float32(0.5)),
            call(grid(3, 2), grid(2)),
            call(P, P, unroll=2),
        ],
        refused=[call("a", 1), call(P, "a")],
        ulps=SUMMED,
        dtypes=FEW,
    ),
    record("polyadd", call(P, Q), values=[call(Q, P), call(i32(1, 2), f32(1, 2))], refused=[call("a", P)]),
    record(
        "polysub",
        call(P, Q),
        values=[call(Q, P), call(i32(1, 2), f32(1, 2))],
        refused=[call("a", P)],
        dtypes=FEW,
    ),
    record(
        "polymul",
        call(P, Q),
        values=[call(f32(), Q), call(i32(1, 2), 2 * Q)],
        refused=[call("a", P)],
        ulps=SUMMED,
        dtypes=FEW,
    ),
    record(
        "polydiv",
        call(P, f32(1.5, 0.5)),
        values=[call(f32(1, 2), P), call(i32(1, 3, 2), i32(1, 1))],
        refused=[call("a", P)],
        ulps=SUMMED,
        dtypes=FEW,
    ),
    record(
        "polyder",
        call(P),
        values=[call(P, 2), call(P, 0), call(P, 6), call(i32(1, 2, 3))],
        refused=[call(P, -1), call(P, 1.5), call("a")],
        dtypes=FEW,
    ),
    record(
        "polyint",
        call(P),
        call(P, 2, f32(1, 2)),
        values=[call(P, 3), call(P, 0), call(i32(1, 2, 3), k=2)],
        refused=[call(P, -1), call(P, 1.5), call("a"), call(P, 2, f32(1, 2, 3))],
        dtypes=FEW,
        ulps=ULPS["div"],
    ),
    window("bartlett"),
    window("blackman"),
    window("hamming"),
    window("hanning"),
    record(
        "kaiser",
        values=[call(5, 8.5), call(4, np.float32(2.0)), call(1, 2.0), call(0, 2.0)],
        refused=[call(-1, 1.0)],
        derivatives=False,
        batched=False,
        ulps=JAX_TOLERANCE,
    ),
    record(
        "i0",
        call(grid(4, low=-6, high=6)),
        values=[call(f32(0, 50)), call(2)],
        refused=[call("a"), call(c_grid(2))],
        ulps=ELEMENTARY,
        dtypes=("int32", "bfloat16", "float32", "float64"),
    ),
    record(
        "poly",
        call(grid(3)),
        values=[call(i32(1, 2)), call(f32()), call(2.0), call(c_grid(2)), call(f32([2, 1], [1, 2]))],
        refused=[call("a"), call(grid(2, 3))],
        ulps=SUMMED,
        dtypes=("int32", "float32", "complex64"),
    ),
    record(
        "roots",
        call(f32(1, -3.5, 2), strip_zeros=False),
        values=[call(f32(0, 1, -3, 2), strip_zeros=False), call(f32(0, 0), strip_zeros=False), call(f32(1))],
        refused=[call("a"), call(grid(2, 2))],
        derivatives=False,
        ulps=SPECTRAL,
        dtypes=("float32", "complex64"),
    ),
    record(
        "polyfit",
        call(grid(6), grid(6, seed=1), 2),
        values=[
            call(grid(6), grid(6, 2, seed=1), 1, w=f32(1, 2, 1, 2, 1, 2)),
            call(grid(6), grid(6, seed=1), 1, cov=True),
            call(grid(6), grid(6, 2, seed=1), 1, cov="unscaled"),
            call(grid(6), grid(6, seed=1), 1, full=True),
        ],
        refused=[
            call(grid(6), grid(6), -1),
            call(grid(2, 3), grid(2), 1),
            call(grid(3), grid(2), 1),
            call(grid(3), grid(3), 1, w=grid(2)),
            call(f32(), f32(), 1),
            call(grid(2), grid(2), 3, cov=True),
        ],
        derivatives=False,
        batched=False,
        ulps=SPECTRAL,
        dtypes=("float32", "float64"),
    ),
)
