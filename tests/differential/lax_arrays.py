"""Records of `tracefx.lax`: shapes, slices, creation, reductions, contractions."""

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
    c_grid,
    call,
    f32,
    grid,
    i32,
    record,
)
from tracefx.testing.tolerances import SUMMED, ULPS

X: Final = grid(2, 3, 2, low=-1.0)
Y: Final = grid(2, 3, low=-1.0)
ROW: Final = grid(3, low=-1.0)
EMPTY: Final = np.zeros((2, 0), np.float32)
EDGY: Final = f32([1, NAN, 3], [INF, 1, 0], [-INF, INF, -0.0])
SOME: Final = ("bool", "int8", "uint32", "int32", "bfloat16", "float64", "complex64")
FIRST: Final = i32(1)[0]
PREFER: Final = {"preferred_element_type": "float64"}


def lax(name: str, *calls: Call, **kw: Any) -> Record:
    kw.setdefault("dtypes", SOME)
    return record(name, *calls, module="lax", **kw)


def reducing(name: str, **kw: Any) -> Record:
    values = (
        *[call(x, (1,)) for x in (EDGY, EMPTY, Weak(Y), c_grid(2, 3))],
        *[call(x, (0,)) for x in (i32([3, 5], [6, -1]), EMPTY)],
    )
    refused = (call("a", (0,)), call(X, (3,)), call(X, (0, 0)), call(X, (0.5,)), call(X))
    calls = (call(X, (1,)), call(X, (0, 2)), call(X, ()), call(Y, (0, 1)))
    return lax(name, *calls, values=values, refused=refused, **kw)


def bitwise(name: str) -> Record:
    x = i32([3, 5], [6, -1])
    return lax(
        name,
        call(x, (1,)),
        call(bools([True, False], [True, True]), (0,)),
        values=[call(np.zeros((2, 0), np.int32), (1,))],
        refused=[call(Y, (0,)), call("a", (0,)), call(x, (2,))],
    )


def arg_extreme(name: str) -> Record:
    return lax(
        name,
        call(Y, 1, "int32"),
        call(X, 0, "int8"),
        values=[call(EDGY, 1, "int32"), call(i32(3, 3, 1), 0, "uint8")],
        refused=[
            call(EMPTY, 1, "int32"),
            call(Y, 2, "int32"),
            call("a", 0, "int32"),
            call(Y, 0, "float32"),
            call(Y, 0, "other"),
        ],
        dtypes=("bool", "int8", "uint32", "int32", "bfloat16", "float16"),
    )


def cumulative(name: str, **kw: Any) -> Record:
    integer_calls = kw.pop("integer_calls", ())
    return lax(
        name,
        call(Y, 1),
        call(Y, 0, True),
        call(X, axis=1, reverse=True),
        values=[call(EDGY, 1), call(EMPTY, 1), call(Y), call(Weak(Y), 1), *integer_calls],
        refused=[call("a"), call(Y, 2), call(f32(1)[0]), call(bools(True))],
        ulps=ULPS.get(name),
        **kw,
    )


RECORDS: Final[tuple[Record, ...]] = (
    lax(
        "reshape",
        call(Y, (3, 2)),
        call(Y, (6,)),
        call(Y, (3, 2), (1, 0)),
        call(Weak(ROW), (1, 3)),
        values=[call(EMPTY, (0, 3)), call(2.0, (1,))],
        refused=[call(Y, (4, 2)), call(Y, (-1,)), call("a", (1,)), call(Y, (1.5,)), call(Y, (6,), (0, 0))],
    ),
    lax(
        "transpose",
        call(Y, (1, 0)),
        call(X, (1, 2, 0)),
        values=[call(2.0, ()), call(EMPTY, (1, 0))],
        refused=[call(Y, (0, 0)), call(Y, (0,)), call(Y, (0, 2)), call("a", ()), call(Y, (-1, 0))],
    ),
    lax(
        "broadcast",
        call(ROW, (2,)),
        call(Y, (2, 1)),
        values=[call(2.0, (2,)), call(ROW, ())],
        refused=[call("a", (2,)), call(ROW, (-1,)), call(ROW, (1.5,))],
    ),
    lax(
        "broadcast_in_dim",
        call(Y, (4, 2, 3), (1, 2)),
        call(grid(2, 1), (2, 3), (0, 1)),
        call(grid(), (2,), ()),
        values=[call(2.0, (2,), ()), call(ROW, (3, 0), (0,))],
        refused=[
            call(Y, (3, 2), (0, 1)),
            call(ROW, (3, 3), (1, 0)),
            call(ROW, (3, 3), (2,)),
            call(Y, (2, 3), (1, 0)),
            call("a", (2,), ()),
            call(ROW, (-1, 3), (1,)),
        ],
    ),
    lax(
        "squeeze",
        call(X[:1], (0,)),
        call(X[:1, :1], (0, -2)),
        call(ROW, ()),
        values=[call(EMPTY[:1], (0,)), call(Weak(X[:1]), (0,))],
        refused=[call(Y, (0,)), call(Y, (2,)), call(X[:1], (0, 0)), call("a", (0,))],
    ),
    lax(
        "expand_dims",
        call(Y, (1,)),
        call(Y, (0, -1)),
        values=[call(2.0, (0,))],
        refused=[call(Y, (4,)), call(Y, (0, 0)), call("a", (0,))],
    ),
    lax(
        "concatenate",
        call([Y, Y + 1], 1),
        call((Y, Y[:1]), 0),
        values=[
            call([EMPTY, EMPTY], 1),
            call([i32(1), i32(2)], 0),
            call([Y], 0),
            call([Y, EMPTY, Y[:, :2]], 1),
            *[call([Weak(ROW), x], 0) for x in (ROW, Weak(ROW))],
        ],
        refused=[
            call([], 0),
            call([Y, ROW], 0),
            call([Y, Y], 2),
            call([Y, Y[:, :2]], 0),
            call([Y, Y.astype(np.int32)], 0),
            call([Y, "a"], 0),
            call([1.0, 2.0], 0),
        ],
    ),
    lax(
        "stack",
        call([Y, Y + 1]),
        call([ROW, ROW + 1], 1),
        values=[call([ROW, ROW, ROW], -1), call([FIRST, FIRST], 0), call([Weak(ROW), ROW])],
        refused=[call([]), call([Y, ROW]), call([Y, Y], 3), call([Y, "a"])],
    ),
    lax(
        "split",
        call(Y, (1, 2), 1),
        call(Y, (1, 1)),
        values=[call(X, (0, 2, 1), -2), call(ROW, (3,)), call(Weak(ROW), (1, 2))],
        refused=[call(Y, (1, 1), 1), call(Y, (1, 2), 2), call("a", (1,)), call(Y, (-1, 4), 1)],
    ),
    lax(
        "tile",
        call(Y, (2, 1)),
        call(ROW, (3,)),
        values=[call(Y, (0, 1)), call(2.0, ()), call(Weak(X), (1, 0, 2))],
        refused=[call("a", ()), call(Y, (-1, 1)), call(Y, (1.5, 1)), call(Y, (2,))],
    ),
    lax(
        "slice",
        call(grid(2, 6), (0, 1), (2, 5), (1, 2)),
        call(grid(2, 6), (0, 1), (2, 5)),
        call(Y, (0, 0), (0, 3)),
        values=[call(Weak(ROW), (2,), (2,)), call(2.0, (), ())],
        refused=[
            call(Y, (0,), (1,)),
            call(Y, (0, 0), (3, 3)),
            call(Y, (1, 0), (0, 3)),
            call(Y, (-1, 0), (1, 3)),
            call(Y, (0, 0), (1, 1), (0, 1)),
            call("a", (0,), (1,)),
            call(Y, (0.5, 0), (1, 1)),
        ],
    ),
    lax(
        "pad",
        call(Y, grid(), ((1, 0, 2), (-1, 2, 0))),
        call(ROW, 0.5, ((1, 1, 0),)),
        call(ROW, Weak(grid()), ((-1, -1, 1),)),
        values=[
            call(EMPTY, 0.0, ((0, 0, 0), (1, 1, 1))),
            call(f32(), 0.5, ((1, 1, 3),)),
            call(ROW, 0.5, ((-2, -1, 1),)),
            call(2.0, 0.5, ()),
        ],
        refused=[
            call(Y, 0.5, ((1, 0, 0),)),
            call(Y, f32(1), ((0, 0, 0),) * 2),
            call(ROW, 0.5, ((0, 0, -1),)),
            call(ROW, i32(1)[0], ((0, 0, 0),)),
            call("a", 0.5, ()),
            call(ROW, 0.5, ((-4, 0, 0),)),
        ],
    ),
    lax(
        "rev",
        call(Y, (0, 1)),
        call(X, (1,)),
        call(ROW, ()),
        values=[call(f32(), (0,)), call(Weak(ROW), (0,))],
        refused=[call(Y, (0, 0)), call(Y, (2,)), call("a", (0,)), call(Y, (-1,))],
    ),
    lax(
        "dynamic_slice",
        call(Y, (FIRST, 1), (1, 2)),
        call(Y, i32(0, 2), (2, 1)),
        call(Y, (0, -1), (1, 1)),
        call(Y, (FIRST, 1), (1, 2), allow_negative_indices=False),
        values=[
            call(Y, (5, 5), (1, 2)),
            call(Y, (-9, 0), (1, 2)),
            call(Y, i32(9, -1), (1, 2), allow_negative_indices=False),
            call(Y, np.array([1, 250], np.uint8), (1, 2)),
            call(grid(), (), ()),
        ],
        refused=[
            call(Y, (0,), (1, 2)),
            call(Y, (0, 0), (3, 1)),
            call(Y, (0, 0.5), (1, 1)),
            call("a", (0,), (1,)),
            call(Y, (0, 0), (1,)),
            call(Y, (0, 0), (-1, 1)),
        ],
    ),
    lax(
        "dynamic_slice_in_dim",
        call(Y, FIRST, 2, 1),
        call(Y, -1, 1),
        refused=[call(Y, 0, 4, 1), call(Y, 0, 1, 2), call("a", 0, 1), call(Y, 0.5, 1)],
    ),
    lax(
        "dynamic_index_in_dim",
        call(Y, FIRST, 1),
        call(Y, FIRST, 1, False),
        values=[call(Y, 7), call(Y, -7)],
        refused=[call(Y, 0, 2), call("a", 0), call(Y, 0.5)],
    ),
    lax(
        "dynamic_update_slice",
        call(Y, grid(1, 2), (FIRST, 1)),
        call(Y, grid(2, 1), i32(0, -1)),
        values=[
            call(Y, grid(1, 2), (5, 5)),
            call(Y, grid(0, 3), np.array([1, 250], np.uint8)),
            call(Weak(Y), Weak(Y), (1, 1)),
        ],
        refused=[
            call(Y, grid(3, 1), (0, 0)),
            call(Y, grid(2), (0, 0)),
            call(Y, i32([1]), (0, 0)),
            call(Y, grid(1, 1), (0,)),
            call("a", Y, (0,)),
            call(Y, grid(1, 1), (0, 0.5)),
        ],
    ),
    lax(
        "dynamic_update_slice_in_dim",
        call(Y, grid(2, 2), FIRST, 1),
        call(Y, grid(1, 3), -1, 0),
        refused=[call(Y, grid(2, 4), 0, 1), call(Y, grid(2, 1), 0, 2), call("a", Y, 0, 0)],
    ),
    lax(
        "dynamic_update_index_in_dim",
        call(Y, grid(2), FIRST, 1),
        call(Y, grid(1, 3), 0, 0),
        call(ROW, 2.0, FIRST, 0),
        refused=[call(Y, grid(2), 0, 2), call("a", Y, 0, 0)],
    ),
    lax(
        "full",
        call((2, 2), grid()),
        call((2,), Weak(grid())),
        values=[call((2,), 1.0), call((2,), 1, "int8"), call((), True), call((0,), 1j), call((2,), 2.7, int)],
        refused=[call((-1,), 0), call((2,), ROW), call((2,), "a"), call((1.5,), 0), call((2,), 1, "other")],
    ),
    lax(
        "full_like",
        call(Y, 2.5),
        call(Weak(Y), 2.5),
        call(Y, grid()),
        values=[call(i32(1), 2.5), call(Y, 1, "int8"), call(Y, 1, shape=(2,)), call(1.0, 2)],
        refused=[call("a", 1), call(Y, "a"), call(Y, 1, shape=(-1,)), call(Y, ROW)],
    ),
    lax(
        "iota",
        values=[call("float32", 3), call("int8", 0), call(int, 2), call("bool", 2), call("complex64", 2)],
        refused=[call("float32", -1), call("other", 2), call("float32", 1.5)],
    ),
    lax(
        "broadcasted_iota",
        values=[call("float32", (2, 3), 1), call("int8", (2, 3), 0), call("int32", (0,), 0)],
        refused=[call("float32", (2, 3), 2), call("float32", (-1,), 0), call("other", (2,), 0), call("float32", (), 0)],
    ),
    reducing("reduce_sum", ulps=SUMMED),
    reducing("reduce_prod", ulps=SUMMED),
    reducing("reduce_max"),
    reducing("reduce_min"),
    bitwise("reduce_and"),
    bitwise("reduce_or"),
    bitwise("reduce_xor"),
    arg_extreme("argmax"),
    arg_extreme("argmin"),
    *[cumulative(name, integer_calls=[call(i32(1, 2), 0)]) for name in ("cumsum", "cumprod", "cummax", "cummin")],
    cumulative("cumlogsumexp", dtypes=("bfloat16", "float64")),
    lax(
        "dot",
        call(Y, grid(3, 4)),
        call(ROW, ROW + 1),
        call(Y, ROW),
        call(ROW, grid(3, 2)),
        call(c_grid(2, 3), c_grid(3, 2)),
        values=[call(Y, ROW, **PREFER), call(EMPTY, f32()), call(ROW, i32(1, 2, 3))],
        refused=[call(Y, Y), call("a", ROW), call(ROW, 2.0), call(X, Y)],
        ulps=SUMMED,
    ),
    lax(
        "dot_general",
        call(Y, grid(3, 2), (((1,), (0,)), ((), ()))),
        call(grid(2, 1, 3), grid(2, 3, 2), (((2,), (1,)), ((0,), (0,)))),
        call(X, grid(2, 3), (((1, 0), (1, 0)), ((), ()))),
        call(ROW, ROW + 1, (((), ()), ((), ()))),
        call(grid(4, 2, 3), grid(3, 2, 5), (((2,), (0,)), ((1,), (1,)))),
        call(c_grid(2, 3), c_grid(3, 2), (((1,), (0,)), ((), ()))),
        values=[
            call(Y, grid(3, 2), (((1,), (0,)), ((), ())), **PREFER),
            *[call(Weak(Y), x, (((1,), (0,)), ((), ()))) for x in (grid(3, 2), Weak(grid(3, 2)))],
            call(EMPTY, EMPTY, (((0,), (0,)), ((), ()))),
            call(EMPTY, EMPTY, (((1,), (1,)), ((), ()))),
            call(Y, i32([1, 2, 3]), (((1,), (1,)), ((), ()))),
        ],
        refused=[
            call(Y, Y, (((1,), (0,)), ((), ()))),
            call(Y, Y, (((2,), (0,)), ((), ()))),
            call(Y, Y, (((1,), (1,)), ((1,), (1,)))),
            call(Y, Y, (((0, 1), (1,)), ((), ()))),
            call("a", Y, (((), ()), ((), ()))),
        ],
        ulps=SUMMED,
    ),
)
