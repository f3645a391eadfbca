"""Records of `tracefx.numpy`: new arrays, diagonals."""

from __future__ import annotations

from typing import Final

import numpy as np

from tests.differential.records import Record, StaticArgument, Weak, bools, c_grid, call, f32, grid, i32, record
from tracefx.testing.tolerances import ELEMENTARY, SUMMED

X: Final = grid(2, 3, 4)
Y: Final = grid(2, 3)
ROW: Final = grid(3)
EMPTY: Final = np.zeros((2, 0), np.float32)
BAD_SHAPES: Final = (call(-1), call(2.0), call((2, "a")), call(None), call(2, "other"), call())


def k(x: object) -> StaticArgument:
    return StaticArgument(x)


RECORDS: Final[tuple[Record, ...]] = (
    record(
        "array",
        call([Y, Y + 1]),
        call([[grid(), 1], [2.5, grid(seed=1)]]),
        call([ROW, [1, 2.5, 3]]),
        call(Y),
        call(Weak(Y)),
        call(Y, ndmin=4),
        call(c_grid(2)),
        values=[
            call(1.0),
            call(1),
            call(True),
            call([1.0, 2]),
            call([]),
            call([[], []]),
            call([1, np.float16(2)]),
            call([True, 1]),
            call([[1, 2], (3, 4)]),
            call([k(np.ones(2)), k(np.zeros(2))]),
            call([k(np.arange(2)), (3, 4.5)]),
            call(np.float64(1)),
            call(k(np.arange(3))),
            call([1.0], dtype="float64"),
            call(k(np.ones(2)), dtype="float64"),
            call(3.7, dtype=int),
            call([3.7, 2.2], dtype="uint8"),
            call([1, 0, 2], dtype=bool),
            call(1, ndmin=2),
            call(Y, dtype="int32"),
            call([Y, i32([1, 2, 3], [4, 5, 6])]),
            call(1j),
        ],
        refused=[
            call([[1], [2, 3]]),
            call("text"),
            call(None),
            call([None]),
            call({}),
            call([2**40]),
            call(1, dtype="other"),
        ],
    ),
    record(
        "asarray",
        call([Y, Y + 1]),
        call(Y),
        call(Weak(Y)),
        values=[
            call(1j),
            call(k(range(3))),
            call(2),
            call([2.5, 1]),
            call(k(np.arange(2.0))),
            call(Y, dtype="int8"),
            call(k(np.float32(2))),
        ],
        refused=[call("text"), call(None), call([[1], [2, 3]]), call({})],
    ),
    record("copy", call(Y), call(Weak(Y)), values=[call(2.0), call(EMPTY)], refused=[call("text"), call(None)]),
    record(
        "full",
        call((2, 2), grid()),
        call((2, 3), ROW),
        call(2, Weak(grid())),
        values=[
            call((2,), 1.0),
            call(2, 1, "int8"),
            call((2,), True),
            call((0, 2), 1j),
            call((2,), 2.7, int),
            call((2,), 300, "int8"),
            call((), 1),
            call(2, grid(), "int8"),
        ],
        refused=[call(-1, 0), call((2, 1.5), 0), call((2,), ROW), call((2,), "a"), call(2, 1, "other")],
    ),
    *[
        record(
            name,
            values=[
                call(()),
                call((0, 2)),
                call((2, 3), "int8"),
                call(3, bool),
                call([2, np.int64(3)], float),
                call(2, "complex64"),
            ],
            refused=BAD_SHAPES,
        )
        for name in ("zeros", "ones", "empty")
    ],
    record(
        "full_like",
        call(Y, grid()),
        call(Y, ROW),
        call(Y, 2.5),
        call(Weak(Y), 2.5),
        values=[
            call(1.0, 2),
            call(i32(1, 2), 2.5),
            call(Y, 1, dtype="int8"),
            call(Y, 1, shape=(2,)),
            call(bools(True), 2),
        ],
        refused=[call("a", 1), call(Y, "a"), call(Y, 1, shape=-1), call(Y, f32(1, 2))],
    ),
    *[
        record(
            name,
            call(Y),
            call(Weak(Y)),
            values=[call(1), call(2.0), call(Y, "int8"), call(Y, shape=(2,)), call(EMPTY), call(c_grid(2), dtype=bool)],
            refused=[call("a"), call(None), call(Y, shape=-1)],
        )
        for name in ("zeros_like", "ones_like", "empty_like")
    ],
    record(
        "arange",
        values=[
            call(3),
            call(3.5),
            call(1, 7, 2),
            call(0, 1, 0.1),
            call(5, 0, -1),
            call(3, dtype=float),
            call(3, dtype="int8"),
            call(-3),
            call(np.float64(3)),
            call(0, 1, 0.1, dtype=int),
            call(2, 5),
            call(True),
            call(0),
            call(2, 0),
            call(1.0, 4),
            call(0, 5, 2, "float16"),
        ],
        refused=[call(3j), call(0, 3, 0), call("text"), call(None), call(3, dtype="other"), call([3]), call()],
    ),
    record(
        "linspace",
        call(grid(), grid(seed=3) + 1, 5),
        call(ROW, ROW + 2, 4, axis=1),
        call(grid(2, 1), ROW, 3),
        call(grid(), 2.0, 4, endpoint=False),
        call(grid(), 2.0, 4, retstep=True),
        call(c_grid(2), 1.0, 3),
        values=[
            call(0, 1, 5),
            call(0, 1, 5, endpoint=False),
            call(0, 10, 5, dtype=int),
            call(0, 1, 1),
            call(0, 1, 0),
            call(0, 1j, 3),
            call(0, 1, 3, dtype="float16"),
            call(np.float64(0), 1, 3),
            call(i32(0, 2), 10, 4),
            call(0, 1, 3, retstep=True),
            *[call(0, 2, n, end, retstep=True) for n in (0, 1, 3) for end in (True, False)],
            call(0, f32(1, 1), 3, retstep=True),
            call(0, 9, 4, dtype=int, retstep=True),
            call(True, 2, 3),
        ],
        refused=[
            call(0, 1, -1),
            call("a", 1),
            call(0, None),
            call(0, 1, 2.5),
            call(ROW, f32(1, 2)),
            call(0, 1, 3, axis=2),
        ],
        ulps=ELEMENTARY,
    ),
    record(
        "meshgrid",
        call(ROW, grid(2)),
        call(ROW, grid(2), indexing="ij", sparse=True),
        call(ROW, grid(2), grid(4)),
        call(ROW, Weak(grid(2)), indexing="ij"),
        values=[call(), call(i32(1), ROW), call(EMPTY[0], ROW)],
        refused=[call(Y), call(ROW, indexing="other"), call("a"), call(ROW, copy=False)],
    ),
    record(
        "eye",
        values=[call(2), call(2, 3, 1, int), call(3, k=-1, dtype=bool), call(0), call(2, 0), call(2, k=5)],
        refused=[call(-1), call(1.5), call("a"), call(2, k=0.5), call(2, dtype="other")],
    ),
    record(
        "identity",
        values=[call(2), call(0), call(3, dtype="int8")],
        refused=[call(-1), call(1.5), call("a"), call(2, "other")],
    ),
    record(
        "tri",
        values=[call(3), call(3, k=-1), call(2, 4, 1, dtype="int8"), call(0)],
        refused=[call(1.5), call("a"), call(-1)],
    ),
    *[
        record(
            name,
            call(Y),
            call(X, 1),
            call(X, -1),
            values=[call(EMPTY), call(Y > 0, 1), call(i32([1, 2], [3, 4])), call(Y, 9)],
            refused=[call(ROW), call("a"), call(2.0), call(Y, 0.5)],
        )
        for name in ("tril", "triu")
    ],
    record(
        "diag",
        call(ROW),
        call(ROW, -1),
        call(Y),
        call(Y, 2),
        call(Y, -1),
        values=[call(EMPTY[0]), call(EMPTY), call(i32(1, 2), 1), call(Y, 5)],
        refused=[call(X), call(2.0), call("a"), call(ROW, 0.5)],
    ),
    record(
        "diagonal",
        call(Y),
        call(X, -1),
        call(X, 1, 0, 2),
        call(X, 0, -1, 1),
        values=[call(EMPTY), call(Y, 5)],
        refused=[call(ROW), call("a"), call(X, 0, 0, 0), call(X, 0, 0, 3), call(2.0), call(Y, 0.5)],
    ),
    record(
        "trace",
        call(Y),
        call(X, 1),
        call(X, 0, 1, 2),
        values=[
            call(EMPTY),
            call(i32([1, 2], [3, 4])),
            call(Y, dtype="float64"),
            call(Y > 0),
            call(np.full((3, 3), 100, np.int8)),
        ],
        refused=[call(ROW), call("a"), call(X, 0, 0, 0)],
        ulps=SUMMED,
    ),
)
