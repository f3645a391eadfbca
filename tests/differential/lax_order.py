"""Records of `tracefx.lax`: sorting, top-k."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tests.differential.records import (
    INF,
    NAN,
    Call,
    Function,
    Library,
    Record,
    Weak,
    bools,
    c64,
    call,
    f32,
    grid,
    i32,
    record,
)

Y: Final = grid(2, 3, low=-1.0)
ROW: Final = grid(4, low=-1.0)
EMPTY: Final = np.zeros((2, 0), np.float32)
EDGY: Final = f32(1, NAN, -0.0, INF, 0.0, -INF, -NAN, -0.0, 2)
TIES: Final = i32(2, 1, 2, 1)
ODD: Final = c64(1 + 1j, complex(1, NAN), complex(NAN, 0), complex(-0.0, 2), complex(0.0, 1), complex(-INF, NAN), 5)
SOME: Final = ("bool", "int8", "uint32", "int64", "bfloat16", "float64", "complex64")
REALS: Final = SOME[:-1]


def lax(name: str, *calls: Call, **kw: Any) -> Record:
    kw.setdefault("dtypes", SOME)
    return record(name, *calls, module="lax", **kw)


def via_as_tuple(name: str) -> Callable[[Library], Function]:
    """JAX documents a tuple, but returns a list."""
    return lambda library: lambda *args, **kwargs: tuple(getattr(library.lax, name)(*args, **kwargs))


def approximate(name: str) -> Record:
    return lax(
        name,
        call(Y, 2),
        call(Y, 1, 0, aggregate_to_topk=False),
        values=[
            call(f32(3, INF, -INF, 2), 3),
            call(grid(300), 2, recall_target=0.5, aggregate_to_topk=False),
            call(ROW, 2, reduction_input_size_override=10),
            call(Weak(ROW), 2),
        ],
        refused=[
            call("a", 1),
            call(Y, 4),
            call(Y, 0),
            call(Y, 1.5),
            call(grid(), 1),
            call(TIES, 1),
            call(Y, 1, 2),
        ],
        dtypes=("bfloat16", "float16", "float64"),
        via=via_as_tuple(name),
    )


RECORDS: Final[tuple[Record, ...]] = (
    lax(
        "sort",
        call(Y),
        call(Y, 0, is_stable=False),
        call((TIES, ROW, ROW[::-1]), num_keys=2),
        call((Y, Y[::-1]), dimension=0),
        values=[
            call(EDGY),
            call((EDGY, i32(*range(9)))),
            call(ODD),
            call((ODD, i32(*range(7))), num_keys=1),
            call([ROW, TIES]),
            call(EMPTY),
            call(EMPTY, 0),
            call(Weak(ROW)),
            call((bools(True, False, True, False), EDGY[:4], i32(0, 1, 2, 3)), num_keys=2),
        ],
        refused=[
            call("a"),
            call(()),
            call(Y, 2),
            call(grid()),
            call(Y, num_keys=2),
            call((Y, Y), num_keys=3),
            call((Y, Y), num_keys=0),
            call((Y, ROW)),
            call(Y, 0.5),
        ],
    ),
    lax(
        "sort_key_val",
        call(Y, Y + 1),
        call(TIES, ROW, 0),
        values=[call(EDGY, i32(*range(9))), call(EMPTY, EMPTY)],
        refused=[call("a", Y), call(Y, ROW), call(Y, Y, 2)],
    ),
    lax(
        "top_k",
        call(Y, 2),
        call(Y, 1, axis=0),
        values=[
            call(EDGY, 9),
            call(-EDGY, 4),
            call(EDGY.astype(np.float16), 9),
            call(TIES, 3),
            call(bools(True, False, True), 2),
            call(ROW, 0),
            call(EMPTY, 0),
            call(Weak(ROW), 2),
            call(grid(3000), 5),
            call(np.arange(6000, dtype=np.int32).reshape(2, 3000) // 3, 4),
        ],
        refused=[
            call("a", 1),
            call(Y, 4),
            call(Y, -1),
            call(grid(), 1),
            call(c64(1, 2), 1),
            call(Y, 1, axis=2),
        ],
        dtypes=REALS,
        via=via_as_tuple("top_k"),
    ),
    approximate("approx_max_k"),
    approximate("approx_min_k"),
)
