"""Records of `tracefx.numpy`: joining and splitting, part 2."""

from __future__ import annotations

from typing import Final

import numpy as np

from tests.differential.records import Record, StaticArgument, call, f32, grid, i32, record

X: Final = grid(2, 3, 2)
M: Final = grid(2, 3)
V: Final = grid(3)

RECORDS: Final[tuple[Record, ...]] = (
    record("concat", call([V, grid(2)]), values=[call([M, M], axis=None), call(X)], refused=[call([])]),
    record(
        "column_stack",
        call([V, grid(3, 2)]),
        values=[call([np.float32(2), grid(1, 2)]), call(X), call([i32(1, 2), f32(1, 2)])],
        refused=[call([]), call([V, M]), call("a")],
    ),
    record(
        "dstack",
        call([M, grid(2, 3, 1)]),
        values=[call([V, i32(1, 2, 3)]), call([1, 2.5]), call([V], dtype="int32")],
        refused=[call([]), call([V, M])],
    ),
    record(
        "block",
        call([[M, grid(2, 1)], [grid(1, 3), 5]]),
        values=[
            call(V),
            call([V, 1]),
            call([[V], [V]]),
            call([[[X]], [[X]]]),
            call([X, V[:2]]),
            call([[1, 2], [3.5, 4]]),
        ],
        refused=[call([]), call([[V], V]), call([[V], []]), call((V, V)), call("a"), call([[M], [M[:, :2]]])],
    ),
    record(
        "unstack",
        call(M),
        call(X, axis=-1),
        values=[call(grid(0, 2))],
        refused=[call(np.float32(1)), call(M, axis=2), call("a")],
    ),
    record("vsplit", call(grid(4, 2), 2), values=[call(V, [1])], refused=[call(M, 5), call(V, None)]),
    record(
        "hsplit", call(M, 3), values=[call(V, [1]), call(V, StaticArgument(np.array([1, 2])))], refused=[call(M, 2)]
    ),
    record("dsplit", call(X, 2), values=[call(X, [1, 2])], refused=[call(M, 2)]),
)
