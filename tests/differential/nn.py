"""Records of `tracefx.nn`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tests.differential.records import (
    EDGES,
    INF,
    NAN,
    Call,
    Record,
    Weak,
    bools,
    c_grid,
    call,
    f32,
    grid,
    i32,
    record,
)
from tracefx.testing.tolerances import PROGRAM, ULPS, Ulps

X: Final = grid(3, 4)
MASK: Final = bools([True, False, True, True], [False, True, False, False], [True, True, True, True])
WIDE_RANGE: Final = f32(0.0, -0.0, 1e-30, -1e-30, 0.5, -3.0, 20.0, -20.0, 90.0, -90.0, 1e5, -1e5)
EMPTY: Final = np.zeros((2, 0), np.float32)


def element(name: str, *more: Call, values: tuple[Call, ...] = (), ulps: Ulps = PROGRAM, **kw: Any) -> Record:
    data = (call(EDGES), call(WIDE_RANGE), call(0.5), call(2), call(EMPTY), *values)
    refused = (call("a"), call(None), call([1.0]))
    return record(name, call(X), call(Weak(grid(3))), *more, values=data, refused=refused, ulps=ulps, module="nn", **kw)


def over_axes(name: str, *more: Call, values: tuple[Call, ...] = (), refused: tuple[Call, ...] = ()) -> Record:
    calls = (call(X), call(X, axis=0), call(X, axis=(0, 1)), call(X, axis=None), call(Weak(grid(3))), *more)
    data = (
        call(X + 1000),
        call(f32(-INF, 0.0)),
        call(f32(INF, 1.0)),
        call(f32(NAN, 1.0)),
        call(EMPTY),
        call(i32(1, 2)),
        call(f32(0.5)),
        *values,
    )
    bad = (call("a"), call(X, axis=2), call(None), call(X, where="a"), *refused)
    return record(name, *calls, values=data, refused=bad, ulps=PROGRAM, module="nn")


RECORDS: Final[tuple[Record, ...]] = (
    element("relu", ulps=ULPS.get("max", Ulps())),
    element("sigmoid", call(c_grid(3))),
    element("silu", call(c_grid(3)), also=["swish"]),
    element("softplus"),
    *[element(name) for name in ("log_sigmoid", "hard_sigmoid", "sparse_sigmoid", "soft_sign", "mish", "selu")],
    *[element(name) for name in ("relu6", "sparse_plus", "hard_tanh", "identity")],
    element("hard_silu", also=["hard_swish"]),
    element("leaky_relu", call(X, 0.2)),
    element("elu", call(X, 0.5)),
    element("celu", call(X, 0.5)),
    element("squareplus", call(X, 2.0)),
    record(
        "log1mexp",
        call(np.abs(X) + 0.01),
        values=[call(f32(1e-30, 0.6, 0.8, 90.0, 0.0, -1.0))],
        module="nn",
        ulps=PROGRAM,
    ),
    record("glu", call(X), call(X[:2], axis=0), refused=[call("a")], module="nn", ulps=PROGRAM),
    over_axes("logmeanexp", call(X, where=MASK)),
    record(
        "standardize",
        call(X),
        call(X, axis=0, epsilon=0.1),
        call(X, (0, 1), algorithm="stable"),
        call(X, mean=f32(0.5), variance=f32(2.0)),
        call(X, where=MASK, algorithm="stable"),
        refused=[call(X, algorithm="slow"), call("a")],
        module="nn",
        ulps=PROGRAM,
    ),
    element(
        "gelu", call(X, approximate=False), values=(call(WIDE_RANGE, approximate=False), call(EDGES, approximate=False))
    ),
    over_axes(
        "softmax",
        call(X, where=MASK),
        call(X, axis=0, where=MASK),
        values=(call(f32(1, NAN), where=bools(True, False)),),
    ),
    over_axes("log_softmax", call(X, axis=0, where=MASK[2:]), values=(call(X, where=MASK),)),
    over_axes(
        "logsumexp",
        call(X, 1, keepdims=True),
        call(X, axis=-1, b=f32(1, 2, 0.5, 1)),
        call(X, axis=-1, b=2),
        call(X, where=MASK),
        call(X, 1, where=MASK),
        call(X, -1, f32(1, -10, 1, 1), return_sign=True),  # no sum is close to 0
        call(c_grid(3)),
        values=(
            call(f32(0, 1, 2), b=f32(1, -2, 0)),
            call(f32(0, 1, 2), b=f32(1, -20, 0)),
            call(EMPTY, axis=1),
            call(2.0),
            call(X, where=np.zeros((3, 4), bool)),
            call(f32(1, 2), b=f32(0, 0)),
        ),
        refused=(call(X, b="a"), call(X, b=f32(1, 2, 3))),
    ),
    record(
        "one_hot",
        call(i32([0, 2, -1], [3, 1, 5]), 4),
        call(i32(1, 2), 3, axis=0),
        call(i32([0, 2], [1, 1]), 3, axis=1, dtype="int8"),
        values=[
            call(1, 3),
            call(i32(1, 2), 3, dtype=bool),
            call(i32(), 2),
            call(i32(1, 0), 0),
            call(f32(1.5, 2.0), 3),
            call(i32(1), 2, dtype="complex64"),
        ],
        refused=[
            call([1], 3),
            call(i32(1), "a"),
            call(i32(1), 3, axis=2),
            call(i32(1), 3, dtype="other"),
            call(i32(1), -1),
        ],
        module="nn",
        dtypes=("bool", "int8", "uint8", "uint32", "int64", "float32"),
    ),
)
