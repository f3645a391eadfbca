"""Records of `tracefx.numpy`: indexing and indexed updates.

The kinds of indices are tested in `tests/numpy/test_indexing.py`, which draws them and compares with NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tests.differential.records import (
    Call,
    Function,
    Library,
    Record,
    StaticArgument,
    Weak,
    bools,
    c_grid,
    call,
    f32,
    grid,
    i32,
    record,
)
from tracefx.testing.tolerances import EXACT, ULPS

X: Final = grid(3, 4, low=0.5)
ROWS: Final = i32(1, 0, -1)
BEYOND: Final = i32(1, 9, -9)
Y: Final = grid(3, 4, seed=1, low=0.5)
S: Final = slice


def getitem(_: Library) -> Function:
    return lambda x, *index, **options: x[tuple(index) if len(index) != 1 else index[0]]


def at_get(_: Library) -> Function:
    return lambda x, *index, **options: x.at[tuple(index)].get(**options)


def at_update(method: str) -> Callable[[Library], Function]:
    return lambda _: lambda x, index, y, **options: getattr(x.at[index], method)(y, **options)


def double(x: Any) -> Any:
    return x + x


INDEX_CALLS: Final = (
    call(X, 1),
    call(X, -1, 2),
    call(X, S(None, None, -2)),
    call(X, ..., 0),
    call(X, None, 1, None),
    call(X, S(1, 3), S(0, 2)),
    call(X, ROWS),
    call(X, S(None), ROWS),
    call(X, ROWS, ROWS),
    call(X, i32([0], [1]), i32(1, 2)),
    call(X, ROWS, None, 0),
    call(c_grid(3), ROWS),
    call(X, i32(1)[0]),
    call(X, StaticArgument(np.array([True, False, True]))),
)
ODD: Final = (
    call(X, BEYOND),
    call(X, 7),
    call(X, -7),
    call(X, S(5, 9)),
    call(X, bools(True, False, True)[:0].astype(np.int32)),
    call(X, cast := i32(1, 2).astype(np.uint8)),
)
BAD: Final = (
    call(X, 0, 0, 0),
    call(X, ..., ...),
    call(X, 1.0),
    call(X, "a"),
    call(X, S(None, None, 0)),
    call(X, f32(0.5)),
    call(X, ROWS, i32(1, 2)),
    call(X, StaticArgument(np.array([True, False]))),
)


def update_record(method: str, *more: Call, **kw: Any) -> Record:
    kw.setdefault("derivatives", True)
    unique: dict[str, Any] = {"unique_indices": True}  # without it, products are not differentiable
    calls = (
        call(X, 1, Y[0]),
        call(X, (S(None), 2), Y[:, 0]),
        call(X, (1, S(1, 3)), Y[0, :2]),
        call(X, ROWS, Y, **unique),
        call(X, (ROWS, i32(1, 0, 3)), Y[:, 0], **unique),
        call(X, 0, 2.0),
        call(c_grid(3), 1, 2.0),
        *more,
    )
    values = (
        call(X, BEYOND, Y),
        call(X, BEYOND, Y, mode="clip"),
        call(X, (S(None, None, -2), BEYOND), Y[:2, :3], mode="clip"),
        call(i32(1, 2, 3), 1, 300),
        call(X, BEYOND, Y, wrap_negative_indices=False),
        call(X, 7, 1.0),
        call(X, i32(0, 0), 2.0) if method not in ("set",) else call(X, 0, 3),
        call(i32(1, 2), 0, 3),
        call(i32(1, 2), 0, True),
        call(X, ..., 2.0),
        call(f32(), 0 if method == "never" else S(None), 1.0),
        call(Weak(f32(1, 2)), 0, 3),
        call(X, (S(None), None), Y[:, None]),
    )
    refused = (
        call(X, 0, "a"),
        call(X, 0, f32(1, 2)),
        call(X, (0, 0, 0), 1.0),
        call(X, 0, None),
        call(X, "a", 1.0),
        call(X, 0, 1.0, mode="other"),
    )
    kw.setdefault(
        "ulps", ULPS.get({"multiply": "mul", "mul": "mul", "divide": "div", "power": "pow"}.get(method, ""), EXACT)
    )
    return record(f"at.{method}", *calls, values=values, refused=refused, via=at_update(method), **kw)


RECORDS: Final[tuple[Record, ...]] = (
    record("getitem", *INDEX_CALLS, values=ODD, refused=BAD, via=getitem),
    record(
        "at.get",
        *INDEX_CALLS,
        call(X, BEYOND, mode="fill", fill_value=7),
        values=[
            *ODD,
            call(X, BEYOND, mode="fill"),
            call(X, BEYOND, mode="clip"),
            call(i32(1, 2), BEYOND, mode="fill"),
            call(X, 7, mode="fill"),
            *[call(X, BEYOND, mode=mode, wrap_negative_indices=False) for mode in ("fill", "clip")],
        ],
        refused=[*BAD, call(X, 0, mode="other")],
        via=at_get,
    ),
    *[update_record(method) for method in ("set", "add", "subtract", "multiply", "divide", "power", "min", "max")],
    update_record("mul"),
    record(
        "at.apply",
        call(X, 1, double),
        call(X, ROWS, double, unique_indices=True),
        call(X, (slice(1, 3), 0), double),
        values=[call(X, BEYOND, double, unique_indices=True), call(i32(1, 2), 0, double), call(X, 7, double)],
        refused=[call(X, (0, 0, 0), double), call(X, "a", double), call(X, 0, 1.0)],
        via=at_update("apply"),
        derivatives=False,  # JAX has no derivatives
    ),
    record(
        "take",
        call(X, ROWS),
        call(X, ROWS, 0),
        call(X, i32([0, -1], [2, 1]), 1),
        call(X, 2, 1),
        call(c_grid(3), ROWS),
        values=[
            *[call(X, BEYOND, axis, mode=mode) for axis in (None, 1) for mode in (None, "fill", "clip", "wrap")],
            call(X, BEYOND, 0, fill_value=-1),
            call(X, i32(), 0),
            call(i32(1, 2), BEYOND),
            call(2.0, 0),
        ],
        refused=[
            call("a", 0),
            call(X, 1.5),
            call(X, ROWS, 3),
            call(X, ROWS, mode="raise"),
            *[call(X, ROWS, mode=mode) for mode in ("drop", "promise_in_bounds", "one_hot")],
            call([1, 2], 0),
            call(f32(), 0),
            call(X, "a"),
        ],
        dtypes=("bool", "int8", "uint8", "int32", "bfloat16", "float64", "complex64"),
    ),
    record(
        "take_along_axis",
        call(X, i32([0, -1], [3, 1], [2, 2]), 1),
        call(X, i32([0, 1, 2, 0]), 0),
        call(X, ROWS, None),
        call(X, i32([0], [1], [2])),
        call(np.zeros((0, 3), np.float32), np.zeros((0, 1), np.int32), 1),
        values=[
            call(X, i32([9, -9], [1, 0], [0, 0]), 1),
            call(X, i32([9, -9], [1, 0], [0, 0]), 1, mode="clip"),
            call(X, i32([9, -9], [1, 0], [0, 0]), 1, mode="fill", fill_value=3.0),
            call(X, i32([9, -1], [1, -9], [0, 0]), 1, mode="one_hot"),
            *[
                call(X, i32([1, -1], [1, 0], [0, 0]), 1, mode=mode, wrap_negative_indices=False)
                for mode in (None, "clip", "promise_in_bounds")
            ],
            call(X, i32([1, -1], [1, 0], [-2, 0]), 1, mode="promise_in_bounds", wrap_negative_indices=True),
        ],
        refused=[
            call(X, ROWS, 1),
            call(X, f32([0], [1], [2]), 1),
            call(X, i32([0], [1], [2]), 2),
            call("a", ROWS, 0),
            call(X, i32([0], [1]), 1),
        ],
        dtypes=("bool", "int8", "bfloat16", "float64", "complex64"),
    ),
)
