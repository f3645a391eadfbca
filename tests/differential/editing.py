"""Records of `tracefx.numpy`: editing, rotating and selecting, products, sequences."""

from __future__ import annotations

from typing import Final

import numpy as np

from tests.comparison import JAX_TOLERANCE
from tests.differential.records import Record, StaticArgument, Weak, bools, c_grid, call, f32, grid, i32, record
from tracefx.testing.tolerances import ELEMENTARY, SUMMED, ulps_of

X: Final = grid(3, 4)
V: Final = grid(5)
FEW: Final = ("bool", "int32", "bfloat16", "float32", "complex64")

RECORDS: Final[tuple[Record, ...]] = (
    # ------------------------------------------------------------------ editing
    record(
        "delete",
        call(X, 1, axis=1),
        call(V, slice(1, 4, 2)),
        values=[
            call(X, StaticArgument(np.array([0, -1])), axis=0),
            call(V, StaticArgument(np.array([True, False, True, False, False]))),
            call(V, i32(1, 3), assume_unique_indices=True),
            call(V, i32(-1, 7), assume_unique_indices=True),
            call(X, -2),
            call(X, slice(None), axis=0),
        ],
        refused=[
            call(X, 1.5),
            call(X, 3, axis=0),
            call(X, 1, axis=2),
            call("a", 1),
            call(V, StaticArgument(np.ones(3, bool))),
        ],
        dtypes=FEW,
    ),
    record(
        "insert",
        call(V, 1, np.float32(2.5)),
        call(X, i32(1, 1, 3), grid(3, 3, seed=1), axis=1),
        values=[
            call(X, 0, f32(1, 2, 3), axis=1),
            call(X, i32(1), f32(1, 2, 3).reshape(3, 1), axis=1),
            call(V, slice(0, 4, 2), 9),
            call(V, i32(-1, 9, 2), f32(1, 2, 3)),
            call(X, i32(3, 0), 7, axis=0),
        ],
        refused=[call(V, 1.5, 1), call(V, i32([1, 2], [3, 4]), 1), call("a", 1, 1), call(V, i32(1, 2), f32(1, 2, 3))],
        dtypes=FEW,
    ),
    record(
        "resize", call(V, (2, 4)), values=[call(X, 5), call(V, (0, 2)), call(f32(), (2,))], refused=[call(V, (-1,))]
    ),
    record(
        "fill_diagonal",
        call(X, np.float32(5), inplace=False),
        call(grid(2, 2, 2), f32(1, 2), inplace=False),
        values=[call(X, f32(1, 2), inplace=False), call(i32([1, 2], [3, 4]), 2, inplace=False)],
        refused=[
            call(X, 5),
            call(X, 5, True, inplace=False),
            call(V, 5, inplace=False),
            call(grid(2, 2, 3), 1, inplace=False),
        ],
        dtypes=FEW,
    ),
    record(
        "put_along_axis",
        call(X, i32([1], [0], [3]), grid(3, 1, seed=1), 1, inplace=False),
        values=[
            call(X, i32([0, 1, 2, 0]), 9.0, 0, inplace=False),
            call(X, i32(1, -1), f32(1, 2), None, inplace=False),
            call(X, i32([1], [0], [7]), 1.5, 1, inplace=False, mode="clip"),
        ],
        refused=[
            call(X, i32([1], [0], [3]), 1.0, 1),
            call(X, i32(1), 1.0, 1, inplace=False),
            call(X, i32([1], [0], [3]), f32(1, 2), 1, inplace=False),
        ],
        dtypes=FEW,
    ),
    # ------------------------------------------------------------------ rotating
    record(
        "rollaxis",
        call(grid(2, 3, 4), 2, 1),
        values=[call(X, 0, 2), call(X, 0, -1)],
        refused=[call(X, 2), call(X, 0, 3)],
    ),
    record(
        "rot90",
        call(X),
        values=[call(X, 2), call(X, -1), call(X, 4), call(grid(2, 3, 4), 1, (2, 0))],
        refused=[call(V), call(X, 1, (0, 0)), call(X, 1, (0, 2))],
    ),
    record("fliplr", call(X), refused=[call(V), call("a")]),
    record("flipud", call(X), values=[call(V)], refused=[call("a")]),
    # ------------------------------------------------------------------ selecting
    record(
        "select",
        call([grid(3) > 0, bools(True, True, False)], [grid(3), grid(3, seed=1)], np.float32(2)),
        values=[
            call([X > 0], [X]),
            call([i32(1, 0), bools(True)], [i32(5), f32(1.5, 2.5)]),
            call([bools(True, False)], [Weak(f32(1, 2))]),
        ],
        refused=[call([], []), call([X > 0], []), call([X > 0], ["a"])],
    ),
    record(
        "choose",
        call(i32(1, 0, -1), [grid(3), grid(3, seed=1)], mode="wrap"),
        values=[
            call(i32(1, 0, 9), [f32(1), i32(2)], mode="clip"),
            call(i32(0), [2.5], mode="clip"),
            call(i32([0], [1]), grid(2, 3), mode="wrap"),
        ],
        refused=[call(f32(1), [f32(1)]), call(i32(1), [f32(1)], mode="other"), call("a", [1])],
        dtypes=("int32", "int8", "uint32"),
    ),
    # ------------------------------------------------------------------ products
    record(
        "cross",
        call(grid(2, 3), grid(3, seed=1)),
        call(grid(2, 2), grid(2, 3, seed=1)),
        values=[
            call(grid(2, 2), grid(2, seed=1)),
            call(grid(3, 2), grid(3, 2, seed=1), axis=0),
            call(grid(3, 2), grid(2, seed=1)),
        ],
        refused=[call(grid(4), grid(4)), call("a", V), call(grid(2, 3), grid(3, 3))],
        dtypes=("int32", "bfloat16", "float32", "complex64"),
        ulps=JAX_TOLERANCE,
    ),
    record(
        "kron",
        call(grid(2, 2), grid(3, seed=1)),
        values=[call(grid(2), grid(2, 1, 2)), call(2.0, grid(2)), call(f32(), grid(2))],
        refused=[call("a", V)],
        ulps=ulps_of("mul"),
    ),
    record(
        "vecdot",
        call(grid(2, 3), grid(3, seed=1)),
        call(c_grid(3), c_grid(3, seed=1)),
        values=[call(grid(3, 2), grid(3, 1, seed=1), axis=0)],
        refused=[call(grid(2), grid(3)), call(1.0, 2.0), call("a", V)],
        dtypes=FEW,
        ulps=SUMMED,
    ),
    record(
        "matvec",
        call(grid(2, 3), grid(3, seed=1)),
        values=[call(grid(2, 2, 3), grid(2, 3)), call(c_grid(1, 2), c_grid(2, seed=1))],
        refused=[call(grid(3), grid(3)), call(X, grid(3)), call("a", V), call(X, 1.0)],
        dtypes=FEW,
        ulps=SUMMED,
    ),
    record(
        "vecmat",
        call(grid(3), grid(3, 2, seed=1)),
        values=[call(grid(2, 3), grid(2, 3, 2)), call(c_grid(2), c_grid(2, 1, seed=1))],
        refused=[call(grid(3), grid(3)), call(grid(3), X.T), call("a", V)],
        dtypes=FEW,
        ulps=SUMMED,
    ),
    # ------------------------------------------------------------------ sequences
    record(
        "logspace",
        call(np.float32(0.5), np.float32(2), 3),
        values=[
            call(0, 2, 3, endpoint=False, base=2.0),
            call(f32(0, 1), f32(2, 3), 3, axis=1),
            call(0, 3, 4, dtype="int32"),
            call(0, 1, 0),
        ],
        refused=[call("a", 1), call(0, 1, 2.5), call(0, 1, -1)],
        ulps=ELEMENTARY,
    ),
    record(
        "geomspace",
        call(np.float32(1), np.float32(100), 3),
        values=[
            call(-1, -8, 4),
            call(1, 256, 9, endpoint=False),
            call(f32(1, 2), f32(4, 32), 3, axis=-1),
            call(1 + 1j, 8j, 3),
        ],
        refused=[call("a", 1), call(1, 2, 2.5)],
        dtypes=("int32", "float32", "float64"),
        ulps=ELEMENTARY,
    ),
    record(
        "vander",
        call(grid(3)),
        call(grid(2), 3, increasing=True),
        values=[call(f32(0, 2), 4), call(grid(2), 0), call(i32(1, 2, 3))],
        refused=[call(X), call(V, -1), call(V, 1.5), call("a")],
        ulps=ELEMENTARY,
        dtypes=("int32", "bfloat16", "float32"),
    ),
    record("diagflat", call(V), values=[call(grid(2, 2), 1), call(V, -1), call(2.0)], refused=[call("a")]),
    record(
        "array_equiv",
        values=[call(grid(2, 3), grid(3)), call(np.ones((2, 3)), np.ones(3)), call(grid(2), grid(3)), call(1, 1.0)],
        refused=[call("a", 1)],
        derivatives=False,
    ),
)
