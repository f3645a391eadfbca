"""Records of `tracefx.numpy`: differences, cumulative sums, integrals and correlations along an axis."""

from __future__ import annotations

from typing import Final

import numpy as np

from tests.differential.records import NAN, Record, bools, c_grid, call, f32, grid, i32, record
from tracefx.testing.tolerances import SUMMED, ulps_of

X: Final = grid(3, 4)
V: Final = grid(5)
FEW: Final = ("bool", "int32", "bfloat16", "float32", "complex64")

RECORDS: Final[tuple[Record, ...]] = (
    record(
        "diff",
        call(X),
        call(V, prepend=np.float32(1), append=f32(2, 3)),
        values=[call(X, 2, 0), call(X, 9), call(V, 0), call(bools(True, False, False)), call(X, axis=0, prepend=1)],
        refused=[call(2.0), call(V, -1), call(V, 1.5), call(X, axis=2), call("a")],
    ),
    record(
        "ediff1d",
        call(X, f32(1, 2), np.float32(3)),
        values=[call(i32(1, 4, 9), to_begin=0.5), call(f32(1))],
        refused=[call("a"), call(bools(True, False))],
    ),
    record(
        "gradient",
        call(X),
        call(X, f32(0, 1, 3), np.float32(0.5)),
        values=[call(V, 2), call(X, axis=1), call(X, axis=()), call(i32(1, 4, 9)), call(V, f32(0, 1, 3, 4, 9))],
        refused=[call(f32(1)), call(X, 1, 2, 3), call(V, f32(1, 2)), call(X, axis=2), call(V, edge_order=2), call("a")],
        ulps=SUMMED,
        dtypes=FEW,
    ),
    record(
        "trapezoid",
        call(X),
        call(V, f32(0, 1, 3, 4, 9)),
        values=[
            call(X, dx=0.5, axis=0),
            call(X, grid(3, 4, seed=1), axis=0),
            call(i32(1, 2, 4)),
            call(X, dx=f32(1, 2, 3)),
        ],
        refused=[call(X, axis=2), call("a"), call(V, f32(1, 2, 3))],
        ulps=SUMMED,
        dtypes=FEW,
    ),
    record(
        "unwrap",
        call(grid(4, low=-9, high=9)),
        values=[
            call(grid(3, 4, low=-9, high=9), axis=0),
            call(i32(0, 5, 1, 9, 3), period=4),
            call(f32(0, 3, -3, 9), 4.0),
            call(f32()),
            call(f32(0, 2, NAN)),
        ],
        refused=[call(c_grid(2)), call("a"), call(X, axis=2)],
        ulps=SUMMED,
        dtypes=("int32", "float32", "float64"),
    ),
    record(
        "cumulative_sum",
        call(X, axis=1),
        values=[call(V, include_initial=True), call(X, axis=0, dtype="float64", include_initial=True)],
        refused=[call(X), call(1.0), call(X, axis=2), call("a")],
        ulps=ulps_of("cumsum"),
    ),
    record(
        "cumulative_prod",
        call(X, axis=1),
        values=[call(V, include_initial=True), call(X, axis=0, dtype="float64", include_initial=True)],
        refused=[call(X), call(1.0), call(X, axis=2), call("a")],
        ulps=ulps_of("cumprod"),
    ),
    record(
        "cov",
        call(X),
        call(V, grid(5, seed=1), aweights=f32(1, 2, 0.5, 1, 1)),
        values=[
            call(X, rowvar=False, bias=True),
            call(X, fweights=i32(1, 2, 0, 1), ddof=0),
            call(X, fweights=i32(1, 2, 0, 1), aweights=f32(1, 2, 3, 4)),
            call(V),
            call(np.zeros((0, 3), np.float32)),
            call(np.zeros((2, 0), np.float32)),
            call(c_grid(2, 3)),
            call(X, dtype="float64"),
        ],
        refused=[
            call(grid(2, 2, 2)),
            call(X, fweights=f32(1, 2, 3, 4)),
            call(X, fweights=i32(1, 2)),
            call(X, dtype="int32"),
            call("a"),
        ],
        ulps=SUMMED,
        dtypes=("int32", "float32", "complex64"),
    ),
    record(
        "corrcoef",
        call(X),
        values=[call(V), call(V, grid(5, seed=1)), call(c_grid(2, 3)), call(X, rowvar=False)],
        refused=[call(grid(2, 2, 2)), call(X, dtype="int32"), call("a")],
        ulps=SUMMED,
        dtypes=("int32", "float32", "complex64"),
    ),
)
