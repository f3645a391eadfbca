"""Records of `tracefx.ops`: reductions over segments."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tests.differential.records import Call, Record, Weak, bools, call, grid, i32, record
from tracefx.testing.tolerances import SUMMED

X: Final = grid(4)
ROWS: Final = grid(4, 2)
IDS: Final = i32(0, 2, 2, 1)
OUTSIDE: Final = i32(0, -1, 7, 1)
EMPTY: Final = np.zeros((0, 2), np.float32)


def segment(name: str, *calls: Call, more: tuple[Call, ...] = (), **kw: Any) -> Record:
    return record(
        name,
        *calls,
        module="ops",
        via=lambda library: getattr(library.root.ops, name),
        values=[
            call(X, OUTSIDE, 3),
            call(X, OUTSIDE, 3, mode="clip"),
            call(X, np.sort(IDS), 3, indices_are_sorted=True),
            call(X, IDS, 0),
            call(EMPTY, IDS[:0], 2),
            call(Weak(X), IDS, 3),
            call(3.0, IDS, 3),
            call(X, IDS.astype(np.uint8), 3, bucket_size=3),
            *more,
        ],
        refused=[
            call(X, IDS, -1),
            call(X, IDS, 2.5),
            call(X, X),
            call(X, X, 3),
            call([1.0], IDS, 3),
            call(X, [1, 2, 3, 4], 3),
            call("a", IDS, 3),
            call(X[:3], IDS, 3),
            call(X, IDS, 3, mode="other"),
            call(EMPTY, IDS[:0]),
            call(X, IDS[0], 3),
        ],
        dtypes=("int8", "uint8", "int32", "bfloat16", "float64"),
        ulps=SUMMED,
        **kw,
    )


BOOLS: Final = bools(True, False, True, True)
FOLDED: Final = (call(X, IDS, 3), call(ROWS, IDS, 4, bucket_size=2))

RECORDS: Final[tuple[Record, ...]] = (
    segment(
        "segment_sum", *FOLDED, call(ROWS, OUTSIDE, 3, mode="clip"), more=(call(X, i32(3, 0, 1, 2), 4, False, True),)
    ),
    segment("segment_prod", call(X, i32(3, 0, 1, 2), 4, unique_indices=True), more=FOLDED, batched=False),
    segment("segment_max", *FOLDED, more=(call(BOOLS, IDS, 4),)),
    segment("segment_min", *FOLDED, more=(call(BOOLS, IDS, 4),)),
)
