"""Records of `tracefx.lax`: functions composed of slicing, reshaping and indexing primitives."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tests.differential.records import Call, Record, Weak, call, f32, grid, i32, record
from tracefx.testing.tolerances import SUMMED, ulps_of

X: Final = grid(2, 3)
Y: Final = grid(2, 3, seed=1)
Z: Final = grid(2, 3, 2)
WORDS: Final = i32(2**30, -(2**31), 7), i32(12, 2**31 - 1, -1)
SOME: Final = ("bool", "int8", "uint32", "bfloat16", "float64", "complex64")


def lax(name: str, *calls: Call, **kw: Any) -> Record:
    kw.setdefault("dtypes", SOME)
    return record(name, *calls, module="lax", **kw)


RECORDS: Final[tuple[Record, ...]] = (
    lax(
        "slice_in_dim",
        call(X, 1, None),
        call(Z, -2, -1, axis=1),
        call(Z, None, None, 2, -2),
        refused=[call(X, 0, 1, axis=5), call(X, 2, 1), call(X, 0, 9)],
    ),
    lax(
        "index_in_dim",
        call(X, 1),
        call(Z, -1, axis=1, keepdims=False),
        refused=[call(X, 5), call(X, 0, 5), call(X, 0.5)],
    ),
    lax(
        "index_take",
        call(X, (i32(0, 1, 5), i32(-1, 2, 0)), (0, 1)),
        call(Z, (i32(0, 1, -4),), (1,)),
        dtypes=(),
        batched=False,
    ),
    lax("unstack", call(X), call(Z, 1), call(Z, -1), refused=[call("a"), call(np.float32(1)), call(X, 2)]),
    lax(
        "collapse",
        call(Z, 0, 2),
        call(Z, 1),
        call(Z, -2, None),
        values=[call(Z, 1, 1)],
        refused=[call(Z, 2, 1)],
    ),
    lax("broadcast_like", call(X[0], Y), call(X, X), refused=[call(X, X[0]), call("a", X)]),
    lax("broadcast_to_rank", call(X, 4), call(X, 2), refused=[call("a", 1)]),
    lax(
        "broadcast_shapes",
        call((3, 1), (4,)),
        call((2, 0), (2, 1), ()),
        call(()),
        refused=[call((2,), (3,))],
        is_plain=True,
        derivatives=False,
        batched=False,
        dtypes=(),
    ),
    lax("shape_as_value", call((2, 3)), call((1,)), derivatives=False, batched=False, dtypes=()),
    lax("empty", call((2, 3), "float32"), call(3, "int8"), derivatives=False, batched=False, dtypes=()),
    lax(
        "reciprocal",
        call(X),
        call(Weak(X)),
        values=[call(f32(0, -0.0, np.inf, np.nan))],
        refused=[call("a")],
        ulps=ulps_of("integer_pow"),
    ),
    lax(
        "mulhi",
        call(*WORDS),
        call(WORDS[0], np.int32(2**20)),
        dtypes=("bool", "int8", "uint32", "int64", "float32"),
        derivatives=False,
        refused=[call("a", 1), call(*WORDS, 3), call(WORDS[0], WORDS[1][:2])],
    ),
    lax(
        "batch_matmul",
        call(Z, grid(2, 2, 4)),
        call(X, Y.T),
        refused=[call(X, X), call(X[0], X[0]), call(Z, X)],
        ulps=SUMMED,
        dtypes=("int8", "bfloat16", "complex64"),
    ),
    lax("stage", call(X), values=[call(2.0), call(Weak(X)), call(np.int8(3))], refused=[call("a")]),
    lax(
        "dtype",
        call(X),
        call(2.0),
        call(np.float64(2)),
        refused=[call("a")],
        is_plain=True,
        derivatives=False,
        batched=False,
        dtypes=(),
    ),
)
