"""Records of `tracefx.numpy`: shapes, element order, joining and splitting."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tests.differential.records import Call, Record, StaticArgument, Weak, bools, c_grid, call, f32, grid, i32, record
from tracefx.testing.tolerances import SUMMED

X: Final = grid(2, 3, 4)
Y: Final = grid(2, 3)
ROW: Final = grid(3)
EMPTY: Final = np.zeros((2, 0), np.float32)
PERIODIC: Final = ("edge", "reflect", "symmetric", "wrap")
STATISTICS: Final = ("maximum", "minimum", "mean")
PAD_OPTIONS: Final[tuple[dict[str, Any], ...]] = (
    *[{"mode": mode, "stat_length": n} for mode in STATISTICS for n in (2, ((1, 9), (3, 2)))],
    {"mode": "empty"},
    *[{"mode": "linear_ramp", "end_values": ends} for ends in (5, (1, 2), ((1, 2), (3, 4)))],
)
NO_ARRAY: Final = (call("a"), call(None), call([1.0, 2.0]))


def linear(name: str, *calls: Call, values: tuple[Call, ...] = (), refused: tuple[Call, ...] = (), **kw: Any) -> Record:
    """Record of a linear function, for which a few calls suffice to test derivatives."""
    return record(name, *calls, values=values, refused=refused, **kw)


RECORDS: Final[tuple[Record, ...]] = (
    linear(
        "reshape",
        call(Y, (3, 2)),
        call(Y, -1),
        call(X, (4, -1, 2)),
        call(X, (4, 6), order="F"),
        call(Weak(Y), (6, 1)),
        values=(
            call(EMPTY, (0, 5)),
            call(EMPTY, (3, 0)),
            call(2.0, (1, 1)),
            call(Y, np.int64(6)),
            call(Y, [2, 3]),
            call(f32(1)[0], ()),
        ),
        refused=(
            call(Y, (4, 2)),
            call(Y, (-1, -1)),
            call(Y, (-1, 4)),
            call(Y, (1.5, 4)),
            call(Y, (-2, 3)),
            call(Y, (6,), order="K"),
            call([1, 2], (2,)),
            call(EMPTY, (-1, 0)),
            call(Y, "a"),
        ),
    ),
    linear("ravel", call(Y), call(X, order="F"), values=(call(2.0), call(EMPTY)), refused=(*NO_ARRAY, call(Y, "X"))),
    linear(
        "transpose",
        call(Y),
        call(X, (1, -1, 0)),
        call(ROW),
        call(X, None),
        values=(call(2.0), call(EMPTY)),
        refused=(*NO_ARRAY, call(Y, (0, 0)), call(Y, (0,)), call(Y, (0, 2)), call(Y, 1.0)),
    ),
    linear(
        "permute_dims", call(Y, (1, 0)), call(X, (1, 2, 0)), refused=(call(Y, (0, 0)), call(Y, (0, 2)), call("a", (0,)))
    ),
    linear("matrix_transpose", call(Y), call(X), values=(call(EMPTY),), refused=(call(ROW), call(2.0), call("a"))),
    linear(
        "swapaxes",
        call(X, 0, -1),
        call(Y, 1, 1),
        values=(call(EMPTY, 0, 1),),
        refused=(call(Y, 0, 5), call("a", 0, 0), call(Y, 0.5, 1)),
    ),
    linear(
        "moveaxis",
        call(X, 0, -1),
        call(X, (0, 1), (-1, 0)),
        call(X, (), ()),
        refused=(call(X, 0, (0, 1)), call(X, 0, 3), call(X, (0, 0), (1, 2)), call("a", 0, 0), call(X, 0.5, 1)),
    ),
    linear(
        "squeeze",
        call(X[:1]),
        call(X[:, :1], 1),
        call(X[:1, :, :1], (0, -1)),
        call(X),
        values=(call(2.0), call(np.zeros((0, 1), np.float32))),
        refused=(*NO_ARRAY, call(Y, 0), call(Y, 3), call(X[:1], (0, 0)), call(X[:1], 0.0)),
    ),
    linear(
        "expand_dims",
        call(Y, 1),
        call(Y, (0, -1)),
        call(Y, ()),
        values=(call(2.0, 0), call(EMPTY, 0)),
        refused=(call(Y, 4), call(Y, (0, 0)), call("a", 0), call(Y, 0.5)),
    ),
    linear(
        "broadcast_to",
        call(Y, (4, 2, 3)),
        call(grid(3, 1), (3, 2)),
        call(Weak(grid()), (2,)),
        values=(call(2.0, (2,)), call(EMPTY, (3, 2, 0)), call(ROW, 3)),
        refused=(call(Y, (3, 3)), call(Y, (3,)), call("a", (2,)), call(Y, (-1, 3)), call(Y, 1.5)),
    ),
    linear(
        "broadcast_arrays",
        call(Y, ROW, Weak(grid())),
        call(Y),
        values=(call(), call(2.0, ROW), call(ROW, bools(True))),
        refused=(call(Y, f32(1, 2)), call(Y, "a")),
    ),
    linear(
        "flip",
        call(X),
        call(X, (0, -1)),
        call(X, 1),
        values=(call(EMPTY), call(2.0)),
        refused=(*NO_ARRAY, call(X, 3), call(X, (0, 0))),
    ),
    linear(
        "roll",
        call(X, 3),
        call(X, -1, 1),
        call(X, (1, 2), (0, 2)),
        call(X, 1, (0, 2)),
        call(ROW, 7),
        *[call(Y, i32(shift)[0], axis) for shift, axis in ((5, None), (-7, 0), (-1, -1))],
        call(Y, i32(1, -2), (0, 1)),
        values=(
            call(EMPTY, 1),
            call(ROW, i32(1)[0]),
            call(2.0, 1),
            call(X, (1, 2), 0),
            *[call(Y, *args) for args in ((i32(4), (1,)), (i32(4), 1), (i32(1), (0, 1)), (Weak(i32(5)[0]), 1))],
            call(np.zeros((2, 0), np.float32), i32(3)[0], 1),
        ),
        refused=(call("a", 1), call(X, 1, 3), call(X, (1, 2), (0, 1, 2)), call(X, 1.5)),
    ),
    linear(
        "tile",
        call(Y, 2),
        call(Y, (2, 1)),
        call(ROW, (2, 1, 2)),
        call(X, (1, 2)),
        values=(call(Y, (2, 0)), call(2.0, 3), call(Y, ())),
        refused=(call("a", 2), call(Y, -1), call(Y, 1.5)),
    ),
    linear(
        "repeat",
        call(Y, 2),
        call(X, 3, axis=1),
        call(Y, StaticArgument(np.array([1, 0, 2])), axis=1),
        call(Y, 2, axis=-1),
        call(Y, i32(1, 0, 2), axis=1, total_repeat_length=3),
        call(Y, i32(2, 1, 2), axis=1, total_repeat_length=4),
        call(Y, i32(2)[0], axis=1, total_repeat_length=5),
        values=(
            *[
                call(Y, times, axis=1, total_repeat_length=total)
                for times in (i32(1, 0, 2), i32(0, 0, 0), i32(3, 3, 3), i32(0)[0], Weak(i32(1)[0]))
                for total in (0, 1, 4, 12)
            ],
            call(Y, 2, total_repeat_length=15),
            call(f32(), 3),
            *[call(3, 2, axis=axis) for axis in (0, -1)],
            call(EMPTY, 2),
            call(2.0, 3),
            call(Y, 0),
            call(ROW, [1, 2, 0]),
            call(ROW, i32(1, 0, 0), total_repeat_length=4),
        ),
        refused=(call("a", 2), call(Y, 2, axis=2), call(Y, [1, 2], axis=1), call(Y, 1.5)),
    ),
    linear(
        "pad",
        call(Y, 1),
        call(Y, (1, 2), constant_values=7),
        call(X, ((0, 1), (2, 0), (0, 0))),
        call(Y, ((1, 0), (0, 2)), constant_values=((1, 2), (3, 4))),
        *[call(Y, ((1, 3), (2, 0)), mode=mode) for mode in PERIODIC],
        call(Y, 1, constant_values=((grid(), 0), (0, 2.5))),
        *[call(f32(1, 4, 9), (4, 2), mode=mode, reflect_type="odd") for mode in ("reflect", "symmetric")],  # exact sums
        values=(
            call(EMPTY, 1),
            call(ROW, 0),
            call(2.0, 1),
            *[call(Y, width, mode=mode) for mode in PERIODIC for width in ((2, 3), ((9, 4), (0, 0)), ((0, 1), (7, 0)))],
            *[call(EMPTY, ((1, 0), (0, 0)), mode=mode) for mode in PERIODIC],
            *[
                call(x, ((2, 1), (0, 3)), constant_values=constants)
                for x in (Y, np.arange(6, dtype=np.int8).reshape(2, 3))
                for constants in (2.5, (1, 2), ((5,), (6,)), StaticArgument(np.array([[1, 2]])), (3,))
            ],
            *[
                call(x, width, mode=mode, reflect_type="odd")
                for x in (i32([3, 1, 7, 4], [0, 2, 9, 5]), i32([5, 2]), np.arange(3, dtype=np.uint8))
                for width in (1, (2, 3), 11)
                for mode in ("reflect", "symmetric")
            ],
        ),
        refused=(
            call("a", 1),
            call(Y, -1),
            call(Y, ((1, 2), (1, 2), (1, 2))),
            call(Y, 1, mode="other"),
            call(Y, 1.5),
            call(EMPTY, 1, mode="reflect"),
        ),
    ),
    record(
        "pad with statistics",
        *[call(Y, ((1, 2), (0, 4)), mode=mode) for mode in ("maximum", "minimum", "mean", "linear_ramp")],
        values=[
            call(x, ((1, 2), (0, 4)), **options)
            for x in (Y, np.array([[3, -5, 1], [0, 2, 4]], np.int8))
            for options in PAD_OPTIONS
        ],
        via=lambda m: m.numpy.pad,
        dtypes=(),
        ulps=SUMMED,
    ),
    linear("atleast_1d", call(grid()), call(Y), call(grid(), Y), values=(call(2.0), call()), refused=NO_ARRAY),
    linear("atleast_2d", call(ROW), call(X), call(grid(), Y), values=(call(2.0), call()), refused=NO_ARRAY),
    linear("atleast_3d", call(ROW), call(Y), call(grid(), X), values=(call(2.0), call()), refused=NO_ARRAY),
    linear(
        "concatenate",
        call([Y, Y + 1], 1),
        call([Y, ROW], None),
        call((Y, Y[:1], Y)),
        call([Y, f32([1, 2]).T], -1),
        call([Y, Weak(Y)]),
        call(X),
        values=(
            call([Y, i32([1, 2, 3])]),
            call([Y, Y], dtype="float16"),
            call([EMPTY, EMPTY], 1),
            call([i32(1), bools(True)]),
            call([c_grid(2), ROW]),
        ),
        refused=(
            call([]),
            call(1),
            call([1, 2]),
            call([Y, ROW]),
            call([Y, Y], 2),
            call([Y, Y[:, :2]]),
            call([Y, "a"]),
            call("a"),
        ),
    ),
    linear(
        "stack",
        call([Y, Y + 1]),
        call([Y, Y + 1], -1),
        call((ROW, Weak(ROW)), 1),
        call(Y),
        values=(call([1, 2.5]), call([ROW, i32(1, 2, 3)]), call([EMPTY]), call([ROW], dtype="int8")),
        refused=(call([]), call([Y, ROW]), call([Y, Y], 3), call(1), call([Y, "a"])),
    ),
    linear(
        "vstack",
        call([ROW, ROW + 1]),
        call([Y, ROW]),
        values=(call([1, 2.5]), call([ROW], dtype="int8")),
        refused=(call([]), call([X, Y]), call(1)),
    ),
    linear(
        "hstack",
        call([ROW, ROW + 1]),
        call([Y, Y]),
        values=(call([1, 2.5]), call([ROW], dtype="int8")),
        refused=(call([]), call([X, Y]), call(1)),
    ),
    linear(
        "append",
        call(Y, ROW),
        call(Y, Y + 1, 0),
        call(ROW, 1.0),
        values=(call(ROW, i32(1)), call(EMPTY, ROW)),
        refused=(call(Y, ROW, 0), call("a", 1.0), call(ROW, "a"), call(Y, Y, 2)),
    ),
    linear(
        "split",
        call(X, 2),
        call(X, [1, 3], -1),
        call(Y, 1),
        call(X, 2, 2),
        values=(call(ROW, [5]), call(EMPTY, 2), call(ROW, [])),
        refused=(call(Y, 3), call("a", 2), call(Y, 2, 2), call(2.0, 1), call(Y, 0)),
    ),
    linear(
        "array_split",
        call(X, 3, 2),
        call(X, [1, 3], -1),
        call(ROW, 5),
        values=(call(EMPTY, 2),),
        refused=(call("a", 2), call(Y, 2, 2), call(Y, 0)),
    ),
    linear(
        "astype",
        call(Y, "float64"),
        call(Y, "bfloat16"),
        call(Y, "complex64"),
        call(c_grid(2), "complex64"),
        call(Y, None),
        call(Weak(Y), "float32"),
        values=(
            call(f32(1.5, -2.5, 300), "int8"),
            call(f32(0, 2), bool),
            call(i32(-1, 300), "uint8"),
            call(f32(-1.0, 3e9), "uint32"),
            call(2.5, int),
            call(bools(True), float),
        ),
        refused=(call(Y, "other"), call("a", "int8"), call(Y, np.dtype("datetime64"))),
    ),
    linear("ndim", call(X), call(2.0), call(f32(1)), is_plain=True, batched=False, derivatives=False, dtypes=()),
    linear(
        "size",
        call(X),
        call(X, 1),
        call(X, (0, 2)),
        call(2.0),
        call(EMPTY),
        refused=(call(X, 3),),
        is_plain=True,
        batched=False,
        derivatives=False,
        dtypes=(),
    ),
)
