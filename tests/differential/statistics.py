"""Records of `tracefx.numpy`: quantiles, histograms, reductions that ignore NaN."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tests.differential.records import (
    INF,
    NAN,
    Call,
    Record,
    Weak,
    bools,
    c64,
    c_grid,
    call,
    f32,
    grid,
    i32,
    record,
)
from tracefx.core import NDArray
from tracefx.testing.tolerances import PROGRAM, SUMMED, ULPS, Ulps

X: Final = grid(2, 3, 2, low=-1.0, high=2.0)
ROW: Final = grid(5)
EMPTY: Final = np.zeros((2, 0), np.float32)
WITH_NAN: Final = np.where(X > 1, np.float32(NAN), X)
EDGY: Final = f32([1, NAN, 3], [INF, 1, 0], [-INF, INF, -0.0], [NAN, NAN, NAN])
SHARES: Final = f32(0, 0.3, 1)
MASK: Final = np.array([[True, False], [True, True], [False, False]])
METHODS: Final = ("lower", "higher", "nearest", "midpoint", "inverted_cdf")
BAD: Final = (call("a"), call([1.0]), call(X, axis=3), call(X, axis=(0, 0)))
SOME: Final = ("bool", "int8", "float16", "bfloat16")


def quantile(name: str, data: NDArray) -> Record:
    return record(
        name,
        call(X, 0.3),
        call(X, SHARES, 1),
        call(data, SHARES, (0, 2), keepdims=True),
        call(X, f32(0.3)[0], -1, method="nearest"),
        *[call(X, SHARES, 1, method=method) for method in ("lower", "higher", "midpoint")],
        call(X, 0.3, method="inverted_cdf"),
        values=[
            *[call(EDGY[:3], SHARES, 0, method=method) for method in METHODS],
            *[call(EDGY, 0.3, 1, method=method, keepdims=True) for method in METHODS],
            call(X, 0.3, method="inverted_cdf", weights=np.abs(X)),
            call(X, SHARES, 1, method="inverted_cdf", weights=f32(1, 0, 2)),
            call(ROW, 0.3, method="inverted_cdf", weights=f32(1, -1, 2, 1, 1)),
            call(i32(1, 2, 5), 0.3),
            call(2.5, 0.3),
            call(Weak(ROW), 0.3),
            call(f32(5), SHARES),
        ],
        refused=[
            call("a", 0.3),
            call([1.0], 0.3),
            call(X, 0.3, 3),
            call(X, 0.3, (0, 0)),
            call(X, "a"),
            call(X, grid(2, 2)),
            call(c_grid(3), 0.3),
            call(X, 0.3, method="other"),
            call(X, 0.3, overwrite_input=True),
            call(X, 0.3, weights=np.abs(X)),
            call(X, 0.3, method="inverted_cdf", weights=ROW),
            call(X, 0.3, 1, method="inverted_cdf", weights=ROW),
            call(ROW, 0.3, method="inverted_cdf", weights=c_grid(5)),
        ],
        dtypes=("int8", "float16", "bfloat16"),
        ulps=PROGRAM,
    )


def percentile(name: str, data: NDArray) -> Record:
    """Record of percentiles, which are based on `quantile`."""
    return record(
        name,
        call(data, f32(0, 30, 100), 1, method="midpoint", keepdims=True),
        call(ROW, 30),
        values=[call(ROW, 30, method="inverted_cdf", weights=f32(1, 3, 2, 1, 1))],
        refused=[call("a", 30), call(X, "a"), call(X, 30, 3)],
        dtypes=(),
        ulps=PROGRAM,
    )


def median(name: str, data: NDArray) -> Record:
    return record(
        name,
        call(X),
        call(X, 1),
        call(data, (0, -1), keepdims=True),
        call(ROW),
        values=[call(EDGY, 1), call(i32(1, 2, 5)), call(2.5), call(bools(True, False)), call(Weak(ROW[:4]))],
        refused=[*BAD, call(c_grid(3)), call(X, overwrite_input=True)],
        dtypes=SOME,
        ulps=PROGRAM,
    )


def nan_reduction(name: str, *more: Call, values: tuple[Call, ...] = (), ulps: Ulps = SUMMED, **kw: Any) -> Record:
    """Record of a reduction over all axes, one, several."""
    axes = [call(WITH_NAN, axis=1), call(WITH_NAN, axis=(0, -1), keepdims=True)]
    data = (
        call(EDGY, axis=1),
        call(EDGY, axis=0),
        call(2.5),
        call(i32(1, 2)),
        call(bools(True)),
        call(Weak(f32(1, NAN))),
    )
    return record(
        name, call(X), call(WITH_NAN), *axes, *more, values=(*data, *values), refused=BAD, dtypes=SOME, ulps=ulps, **kw
    )


def summing(name: str) -> Record:
    holed = c_grid(4) * np.array([1, NAN, 1, 1], np.complex64)
    more = (call(WITH_NAN, where=MASK), call(WITH_NAN, 1, initial=2.0), call(holed))
    return nan_reduction(name, *more, values=(call(EMPTY, 0), call(WITH_NAN, dtype="float64")))


def deviation(name: str) -> Record:
    more = (call(WITH_NAN, 1, ddof=1), call(WITH_NAN, where=MASK), call(WITH_NAN, 1, mean=X[:, :1]))
    return nan_reduction(name, *more, values=(call(WITH_NAN, dtype="float64"), call(WITH_NAN, 2, ddof=1)), ulps=PROGRAM)


def extreme(name: str) -> Record:
    more = (call(WITH_NAN, 1, initial=0.5), call(WITH_NAN, 0, where=MASK, initial=-1.0))
    return nan_reduction(name, *more, values=(call(EMPTY, 0), call(EMPTY, initial=1.0)))


def arg_extreme(name: str) -> Record:
    return record(
        name,
        call(X),
        call(WITH_NAN),
        call(WITH_NAN, axis=-1, keepdims=True),
        values=[call(EDGY, 1), call(EDGY, 0), call(i32(3, 3, 1)), call(bools(False, True)), call(2.5)],
        refused=[call(EMPTY), call("a"), call(X, 3), call(X, (0, 1))],
        dtypes=SOME,
    )


def cumulative(name: str) -> Record:
    return record(
        name,
        call(X, 1),
        call(WITH_NAN),
        values=[call(EDGY, 1), call(EMPTY, 1), call(i32(1, 2, 3)), call(2.0), call(WITH_NAN, 0, "float64")],
        refused=[call("a"), call(X, 3), call(X, (0, 1))],
        dtypes=SOME,
        ulps=ULPS[name.removeprefix("nan")],
    )


RECORDS: Final[tuple[Record, ...]] = (
    quantile("quantile", X),
    quantile("nanquantile", WITH_NAN),
    percentile("percentile", X),
    percentile("nanpercentile", WITH_NAN),
    median("median", X),
    median("nanmedian", WITH_NAN),
    # ------------------------------------------------------------------ histograms
    record(
        "bincount",
        call(i32(0, 1, 1, 3), length=5),
        call(i32(0, 1, 1, 3), ROW[:4], length=3),
        values=[
            call(i32(), length=2),
            call(i32(-1, 0, 7), length=2),
            call(bools(True, False), length=2),
            call(i32(1, 2), i32(3, 4), length=4),
            call(np.array([200, 3], np.uint8), length=4),
        ],
        refused=[
            call("a", length=1),
            call(ROW, length=1),
            call(i32([1]), length=1),
            call(i32(1), ROW, length=1),
            call(i32(1), 1.0, length=1),
            call(i32(1), minlength=0.5, length=1),
        ],
        dtypes=("int8", "uint32", "int64"),
        ulps=SUMMED,
    ),
    record(
        "histogram_bin_edges",
        call(X, 3),
        call(X, 3, (0.5, grid())),
        call(X, np.sort(ROW)),
        values=[call(i32(1, 4), 2), call(f32(2, 2), 2), call(X), call(2.0, 1), call(X, 2, (1, 1))],
        refused=[call("a"), call(X, "auto"), call(X, 1.5), call(X, 2, (1, 2, 3)), call(X, X)],
        dtypes=SOME,
        ulps=PROGRAM,
    ),
    record(
        "histogram",
        call(X, 3),
        call(X, f32(-1, 0, 2), weights=X * X),
        call(ROW, 3, (-1, 1), density=True, weights=grid(5, low=0.5)),
        values=[
            call(i32(1, 4, 4, 2)),
            call(f32(1, 2, 3, 3, NAN), f32(1, 2, 3)),
            call(i32(1, 4), 2, weights=i32(2, 5)),
            call(X, 4, density=True),
        ],
        refused=[call("a"), call(X, "auto"), call(X, weights=ROW), call(X, 1.5)],
        dtypes=("int8", "int32", "float16"),
        ulps=PROGRAM,
    ),
    record(
        "histogram2d",
        call(ROW, grid(5, seed=1), 3),
        call(ROW, grid(5, seed=1), [2, f32(-2, 0, 2)], weights=grid(5, low=0.5, seed=2)),
        call(ROW, grid(5, seed=1), f32(-2, 0, 2), density=True),
        values=[
            call(ROW, i32(1, 2, 3, 4, 5), 2, [[-2, 2], None]),
            call(i32(1, 2), i32(2, 1), [2, 3]),
        ],
        refused=[call("a", ROW), call(ROW, ROW, 2, [[0, 1]]), call(ROW, ROW, weights=ROW[:2])],
        dtypes=("float16",),
        ulps=PROGRAM,
    ),
    record(
        "histogramdd",
        call(grid(5, 2), 3),
        call(grid(5, 2), [2, f32(-2, 0, 2)], weights=grid(5, low=0.5)),
        call(grid(4, 3), 2, density=True),
        values=[call(grid(5, 2), 2, [None, (-1, 1)]), call(i32([1, 2], [3, 4]), 2), call(grid(4, 1), 2)],
        refused=[
            call("a"),
            call(grid(5, 2), [2, 2, 2]),
            call(grid(5, 2), 2, [(0, 1)]),
            call(grid(5, 2), 2, [(0, 1, 2), (0, 1, 2)]),
            call(grid(5, 2), weights=f32(1, 2)),
            call(ROW),
        ],
        dtypes=("float16",),
        ulps=PROGRAM,
    ),
    # ------------------------------------------------------------------ ignoring NaN
    summing("nansum"),
    summing("nanprod"),
    extreme("nanmax"),
    extreme("nanmin"),
    arg_extreme("nanargmax"),
    arg_extreme("nanargmin"),
    nan_reduction(
        "nanmean", call(WITH_NAN, where=MASK), call(c64(1, NAN, 3j)), values=(call(WITH_NAN, dtype="float64"),)
    ),
    deviation("nanvar"),
    deviation("nanstd"),
    cumulative("nancumsum"),
    cumulative("nancumprod"),
)
