"""Records of `tracefx.numpy`: further elementwise functions, parts of floats, integers and bits."""

from __future__ import annotations

from typing import Final

import numpy as np

from tests.differential.records import (
    EDGES,
    INF,
    NAN,
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
from tracefx.testing.tolerances import ELEMENTARY, Ulps, ulps_of

X: Final = grid(2, 3)
C: Final = c_grid(3)
NO_ARRAY: Final = (call("a"), call(None), call([1.0]))
INTEGERS: Final = ("int8", "uint8", "int32", "uint32", "int64")
OCTETS: Final = np.array([[3, 128, 255], [0, 7, 64]], np.uint8)

RECORDS: Final[tuple[Record, ...]] = (
    record(
        "angle",
        call(X),
        call(C),
        values=[call(EDGES), call(C, deg=True), call(2.0), call(Weak(X))],
        refused=NO_ARRAY,
        ulps=ELEMENTARY,
    ),
    record("isreal", call(X), values=[call(c64(1, 1j, 0)), call(2.0)], refused=NO_ARRAY, derivatives=False),
    record("iscomplex", call(X), values=[call(c64(1, 1j, 0)), call(2.0)], refused=NO_ARRAY, derivatives=False),
    record(
        "heaviside",
        call(X, grid(3, seed=1)),
        values=[call(EDGES, 0.5), call(i32(-1, 0, 2), 3), call(Weak(X), 0.5)],
        refused=[call("a", 1), call(X)],
    ),
    record(
        "sinc",
        call(X),
        call(f32(0.0, 0.5)),
        values=[call(EDGES[:9]), call(2), call(c64(0, 1j))],
        refused=NO_ARRAY,
        ulps=ELEMENTARY,
    ),
    record(
        "float_power",
        call(grid(2, 3, low=0.1), grid(3, seed=1)),
        values=[call(2, -1), call(i32(1, 2), i32(3, -1))],
        refused=[call("a", 1)],
        ulps=ulps_of("pow"),
    ),
    record(
        "fmax",
        call(X, grid(3, seed=1)),
        values=[call(EDGES, EDGES[::-1].copy()), call(f32(1, NAN), 0.5), call(1, 2)],
        refused=[call("a", 1), call(X, f32(1, 2))],
    ),
    record(
        "fmin",
        call(X, grid(3, seed=1)),
        values=[call(EDGES, EDGES[::-1].copy()), call(f32(1, NAN), 0.5), call(1, 2)],
        refused=[call("a", 1), call(X, f32(1, 2))],
    ),
    record(
        "logaddexp2",
        call(X, grid(3, seed=1)),
        values=[call(f32(INF, -INF, INF, 1e4), f32(INF, -INF, -INF, 1e4)), call(1, 2.5)],
        refused=[call("a", 1)],
        dtypes=("bool", "int32", "bfloat16", "float16", "float32"),
        # Where the sum of powers is near 1, its logarithm is near 0.
        ulps=Ulps(4, 4, 2, least=1.0),
    ),
    record(
        "nan_to_num",
        call(X),
        values=[
            call(EDGES),
            call(EDGES, nan=1.0, posinf=2.0, neginf=-3),
            call(c64(NAN, complex(1, INF), complex(-INF, NAN))),
            call(EDGES, nan=grid(13)),
        ],
        refused=(*NO_ARRAY, call(X, nan="a")),
    ),
    # ------------------------------------------------------------------ parts of floats
    record("modf", call(X), values=[call(EDGES), call(3), call(Weak(X))], refused=NO_ARRAY),
    record("frexp", call(X), values=[call(EDGES), call(3)], refused=(*NO_ARRAY, call(C))),
    record(
        "ldexp",
        call(X, i32(2, -3, 0)),
        values=[call(EDGES, 3), call(EDGES, -130), call(1.5, 2), call(i32(1, 2), i32(3, 4))],
        refused=[call(X, 1.0), call(C, 1), call("a", 1)],
    ),
    record("spacing", values=[call(X), call(EDGES), call(3)], refused=(*NO_ARRAY, call(C)), derivatives=False),
    # ------------------------------------------------------------------ integers
    record(
        "gcd",
        call(i32(12, -9, 0, 7), i32(18, 6, 0, 0)),
        values=[call(12, 18), call(i32(4, 6), np.array([6], np.int8))],
        refused=[call(1.5, 2), call("a", 1), call(i32(1, 2), i32(1, 2, 3)), call(True, True)],
        dtypes=INTEGERS,
    ),
    record(
        "lcm",
        call(i32(12, -9, 0, 7), i32(18, 6, 0, 0)),
        values=[call(12, 18)],
        refused=[call(1.5, 2), call("a", 1), call(i32(1, 2), i32(1, 2, 3))],
        dtypes=INTEGERS,
    ),
    record(
        "bitwise_count",
        call(i32(0, 7, -1, -(2**31))),
        values=[call(5), call(bools(True, False))],
        refused=(*NO_ARRAY, call(X)),
        dtypes=INTEGERS,
    ),
    record(
        "packbits",
        values=[
            call(i32(*range(-2, 9))),
            call(i32([1, 0, 3], [0, 0, 1]), axis=0),
            call(bools([True] * 9, [False] * 9), axis=1, bitorder="little"),
            call(i32()),
        ],
        refused=[call(X), call(i32(1), bitorder="other"), call(i32(1), axis=1), call("a")],
        derivatives=False,
    ),
    record(
        "unpackbits",
        values=[
            call(OCTETS),
            call(OCTETS, axis=0, bitorder="little"),
            call(OCTETS, axis=1, count=5),
            call(OCTETS, count=60),
            call(OCTETS, axis=1, count=-3),
        ],
        refused=[call(X), call(OCTETS, bitorder="other"), call(OCTETS, axis=2), call("a")],
        derivatives=False,
    ),
)
