"""Records of `tracefx.numpy`: index arrays, and functions of shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tests.differential.records import Call, Library, Record, StaticArgument, call, f32, grid, i32, record

M: Final = grid(3, 3)
R: Final = grid(2, 3)


def indexed(name: str, *calls: Call, values: tuple[Call, ...] = (), refused: tuple[Call, ...] = ()) -> Record:
    """Record of an indexed object such as `mgrid`: the arguments of a call are its index."""

    def via(library: Library) -> Callable[..., Any]:
        return lambda *key: getattr(library.numpy, name)[key[0] if len(key) == 1 else key]

    return record(name, *calls, values=values, refused=refused, via=via, derivatives=bool(calls), batched=bool(calls))


def static_function(name: str, *values: Call, refused: tuple[Call, ...] = ()) -> Record:
    """Record of a function of static values."""
    return record(name, values=values, refused=refused, derivatives=False, batched=False)


def plain(name: str, *values: Call, refused: tuple[Call, ...] = ()) -> Record:
    return record(name, values=values, refused=refused, derivatives=False, batched=False, is_plain=True)


RECORDS: Final[tuple[Record, ...]] = (
    indexed(
        "mgrid",
        values=(call(slice(3)), call(slice(2), slice(1, 4, 2)), call(slice(2), slice(0, 1, 3j)), call()),
        refused=(call(1),),
    ),
    indexed("ogrid", values=(call(slice(0.5, 3)), call(slice(2), slice(0, 1, 3j)), call()), refused=(call(1),)),
    indexed(
        "r_",
        call(grid(2), slice(3), 1.5),
        call("0,3,1", grid(2), grid(1, 2)),
        values=(
            call("r", 1, 2),
            call("c", 1, 2),
            call("1,2,0", [1, 2], [3, 4]),
            call("-1", R, R),
            call("0,2,-1", [1], [2]),
            call(slice(0, 1, 3j)),
        ),
        refused=(call("a", 1), call(1, "r"), call(R, 1)),
    ),
    indexed(
        "c_", call(grid(3), slice(3)), call(R, R), values=(call([1], [2]), call("c", 1, 2)), refused=(call("a", 1),)
    ),
    static_function(
        "indices",
        call((2, 3)),
        call((2, 3), sparse=True),
        call((2, 0), dtype="float32"),
        call((), dtype="int8"),
        refused=(call((1.5,)), call((-1,)), call(None)),
    ),
    record(
        "ix_",
        values=[call(i32(1, 2), f32(1)), call(f32()), call()],
        refused=[call(R), call([1, 2]), call(2)],
        derivatives=False,
        batched=False,
    ),
    static_function("diag_indices", call(3), call(2, 3), call(2, 0), refused=(call(-1), call(2, -1), call(1.5))),
    static_function("diag_indices_from", call(M), refused=(call(R), call(f32(1)))),
    static_function("tril_indices", call(3), call(3, 1), call(2, -1, 3), call(0), refused=(call(1.5), call(2, "a"))),
    static_function("triu_indices", call(3), call(3, 1), call(2, -1, 3), call(0), refused=(call(1.5), call(2, "a"))),
    static_function("tril_indices_from", call(R), call(R, -1), refused=(call(f32(1)),)),
    static_function("triu_indices_from", call(R), call(R, -1), refused=(call(f32(1)),)),
    record(
        "ravel_multi_index",
        values=[
            call((i32(1, 5), i32(2, -9)), (2, 3), mode="wrap"),
            call((i32(1, 5), i32(2, -9)), (2, 3), mode="clip", dtype="int8"),
            call((), ()),
        ],
        refused=[
            call((i32(5),), (2,)),
            call((i32(1),), (200,), dtype="int8", mode="clip"),
            call((i32(1),), (2,), dtype="float32"),
            call((i32(1),), (2,), mode="other"),
            call((i32(1),), (2,), order="K"),
        ],
        derivatives=False,
    ),
    record(
        "unravel_index",
        values=[call(i32(-1, -7, 5, 7), (2, 3)), call(5, 8), call(np.array(5, np.uint8), (2, 3)), call(1, ())],
        refused=[call("a", (2, 3))],
        derivatives=False,
    ),
    # ------------------------------------------------------------------ functions of shapes
    plain("shape", call(R), call(2)),
    plain("broadcast_shapes", call((2, 1), (3,)), call(), call(2, (3, 1)), refused=(call((2,), (3,)), call("a"))),
    plain("isscalar", call(1.5), call(R), call(np.ones(())), call("a"), call(None), call([1])),
    plain("iterable", call(R), call(2), call([]), call(np.ones(()))),
    plain("iscomplexobj", call(R), call(1j), call(np.complex64(1)), call(None), call([1j]), call("a")),
    plain("isrealobj", call(R), call(1j), call(np.complex64(1)), call([1])),
    plain(
        "can_cast",
        call("int16", "float32"),
        call("float32", "int16"),
        call("float32", "int16", "unsafe"),
        call("int32", "float32", casting="same_kind"),
        call(StaticArgument(np.dtype("float32")), "bfloat16"),
        refused=(call("int16", "float32", "other"), call(1, "int8"), call("no", "int8")),
    ),
)
