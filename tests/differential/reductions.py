"""Records of `tracefx.numpy`: reductions, cumulative sums, indices of extremes."""

from __future__ import annotations

from typing import Any, Final

import jax.numpy as jnp
import numpy as np

from tests.differential.records import (
    DTYPES,
    INF,
    NAN,
    Call,
    Record,
    Weak,
    bools,
    c64,
    c_grid,
    call,
    f32,
    grid,
    i32,
    record,
    via_newer,
)
from tracefx.testing.tolerances import PROGRAM, SUMMED, ULPS

X: Final = grid(2, 3, 2, low=-1.0, high=2.0)
MASK: Final = np.array([[True, False], [True, True], [False, False]])
EMPTY: Final = np.zeros((2, 0), np.float32)
BAD: Final = (call("a"), call([1.0]), call(X, axis=3), call(X, axis=-4), call(X, axis=(0, 0)), call(X, axis=1.0))
"""Calls that every reduction refuses."""
EDGY: Final = f32([1, NAN, 3], [INF, 1, 0], [-INF, INF, -0.0])


def reduction(
    name: str, *more: Call, values: tuple[Call, ...] = (), refused: tuple[Call, ...] = (), **kw: Any
) -> Record:
    """Record of a reduction over all axes, one, several and none."""
    axes = [call(X, axis=1), call(X, axis=(0, -1)), call(X, axis=(), keepdims=True), call(X, keepdims=True)]
    data = (call(EDGY, axis=1), call(2), call(2.5), call(True), call(Weak(f32(1, 2))), call(X[:1, :1], axis=(0, 1)))
    return record(name, call(X), *axes, *more, values=(*data, *values), refused=(*BAD, *refused), **kw)


def summing(name: str, **kw: Any) -> Record:
    more = (
        call(X, where=MASK),
        call(X, 1, initial=2.0),
        call(X, initial=f32(0.5)[0], where=MASK),
        call(c_grid(2, 3), 1),
    )
    values = (
        call(EMPTY),
        call(EMPTY, axis=0),
        call(X, dtype="float64"),
        *[call(X, 0, dtype=dtype) for dtype in ("int8", "int32", "float16", "complex64")],
        *[call(x, dtype="float16") for x in (np.full(3, 100, np.int8), bools(True, True))],
        call(i32(1, 2), dtype=bool),
        call(bools(True, True), promote_integers=False),
        call(np.full(3, 100, np.int8)),
        call(f32(1, 2), initial=True),
        call(np.full(3, 100, np.int8), promote_integers=False),
        call(f32(NAN, 1), where=bools(False, True)),
    )
    refused = (call(X, where=f32(1, 2)), call(X, where=bools(True, False, True, True)), call(X, initial="a"))
    return reduction(name, *more, values=values, refused=refused, **kw)


def extreme(name: str, **kw: Any) -> Record:
    more = (call(X, 1, initial=0.1), call(X, 0, where=MASK, initial=-1.0))
    values = (call(EMPTY, axis=0), call(EMPTY, initial=1.0), call(i32(1, 5), initial=3), call(c64(1, 1j, -2)))
    refused = (call(EMPTY), call(EMPTY, 1), call(X, where=MASK), call(X, initial="a"))
    return reduction(name, *more, values=values, refused=refused, **kw)


def arg_extreme(name: str) -> Record:
    values = (
        call(EDGY),
        call(EDGY, 1),
        call(i32(3, 3, 1)),
        call(2),
        call(True),
        call(bools(False, True)),
        call(EMPTY, 0),
    )
    refused = (call(EMPTY), call(EMPTY, 1), call(X, (0, 1)), call("a"), call(X, 3), call(X, 1.0))
    # In JAX, compiling these in 64 bits fails unless x64 is enabled.
    dtypes = [dtype for dtype in DTYPES if "64" not in dtype]
    return record(
        name, call(X), call(X, 1), call(X, axis=-1, keepdims=True), values=values, refused=refused, dtypes=dtypes
    )


def deviation(name: str) -> Record:
    more = (
        call(X, 1, ddof=1),
        call(X, where=MASK),
        call(c_grid(2, 3), 1),
        call(X, 1, correction=1),
        call(X, 1, mean=X[:, :1]),
    )
    values = (call(EMPTY, 0), call(X, dtype="float64"), call(i32(1, 4, 4)), call(f32(1.0, 2.0), ddof=2), call(f32(3.0)))
    refused = (call(X, dtype="int32"), call(c_grid(2), dtype="float32"), call(X, ddof=1, correction=1))
    return reduction(name, *more, values=values, refused=refused, ulps=PROGRAM)


def cumulative(name: str) -> Record:
    return record(
        name,
        call(X, 1),
        call(X),
        call(X, axis=-1),
        call(c_grid(3)),
        call(Weak(grid(3))),
        values=[
            call(EDGY, 0),
            call(EMPTY, 1),
            call(i32(1, 2, 3)),
            call(bools(True, True)),
            call(2.0),
            call(i32(100, 100), dtype="int8"),
            call(X, 0, dtype="float64"),
        ],
        refused=[call("a"), call(X, 3), call(X, (0, 1)), call(None)],
        ulps=ULPS[name],
    )


def minmax_by_two_reductions(a: Any, axis: Any = None, *, initial: Any = None, **kw: Any) -> tuple[Any, Any]:
    """What `jax.numpy.minmax` computes."""
    least, greatest = initial if isinstance(initial, tuple) else (initial, initial)
    return jnp.min(a, axis, initial=least, **kw), jnp.max(a, axis, initial=greatest, **kw)


RECORDS: Final[tuple[Record, ...]] = (
    summing("sum", ulps=SUMMED),
    summing("prod", ulps=SUMMED),
    extreme("max", also=["amax"]),
    extreme("min", also=["amin"]),
    record(
        "minmax",
        call(X, 1, keepdims=True),
        call(X, 0, where=MASK, initial=(2.0, -1.0)),
        values=[call(EDGY), call(EMPTY, axis=0), call(EMPTY, initial=1.0), call(i32(1, 5), initial=(0, 9))],
        refused=[call(EMPTY), call(X, where=MASK), call(X, 3), call("a"), call(X, initial=(1, 2, 3))],
        via=via_newer("numpy", "minmax", minmax_by_two_reductions),
    ),
    reduction("all", call(X > 0, 0, where=MASK), values=(call(EMPTY), call(EMPTY, 0))),
    reduction("any", call(X > 0, 0, where=MASK), values=(call(EMPTY), call(EMPTY, 0))),
    reduction("count_nonzero", values=(call(EMPTY), call(i32([0, 1], [0, 0]), 0))),
    reduction("ptp", values=(call(EMPTY, 0),), refused=(call(EMPTY),), ulps=SUMMED),
    arg_extreme("argmax"),
    arg_extreme("argmin"),
    reduction(
        "mean",
        call(X, where=MASK),
        call(c_grid(2, 3), 1),
        values=(
            call(EMPTY, 0),
            call(X, dtype="float64"),
            call(X, dtype="int32"),
            call(i32(1, 2)),
            call(X, where=np.zeros((3, 2), bool)),
        ),
        ulps=SUMMED,
    ),
    deviation("var"),
    deviation("std"),
    record(
        "average",
        call(X),
        call(X, 1),
        call(X, (0, 1), keepdims=True),
        call(X, 1, f32(1, 2, 0.5)),
        call(X, weights=X * X + 1),
        call(X, (1, 2), weights=grid(3, 2, low=0.5)),
        call(X, -1, f32(1, 3), returned=True),
        call(X, returned=True),
        values=[
            call(i32(1, 2)),
            call(i32(1, 2), weights=i32(1, 3)),
            call(2.0),
            call(EMPTY, 0),
            call(bools(True, False)),
        ],
        refused=[call(X, weights=f32(1, 2)), call(X, 1, f32(1, 2)), call("a"), call(X, 3), call(X, 0, grid(2, 2))],
        ulps=SUMMED,
    ),
    cumulative("cumsum"),
    cumulative("cumprod"),
    record(
        "isclose",
        call(f32(1, 2, 3), f32(1, 2.00001, 4)),
        call(f32(1, 2), 1.001, rtol=0.01),
        call(c64(1, 1j), c64(1, 1.1j)),
        values=[
            call(EDGY, EDGY),
            call(EDGY, EDGY, equal_nan=True),
            call(i32(1, 2), i32(1, 3)),
            call(1, 1.0),
            call(bools(True), True),
            call(f32(INF), 1e30),
            call(f32(1), 2.0, atol=1.0),
        ],
        refused=[call("a", 1), call(f32(1, 2), f32(1, 2, 3)), call(f32(1), None), call([1.0], f32(1))],
    ),
    record(
        "allclose",
        call(f32(1, 2, 3), f32(1, 2.00001, 4)),
        call(f32(1, 2), f32(1, 2.00001)),
        call(f32([1, 2], [1, 1]), 1.001, rtol=0.01),
        values=[
            call(EDGY, EDGY),
            call(EDGY, EDGY, equal_nan=True),
            call(i32(1, 2), i32(1, 3)),
            call(1, 1.0),
            call(f32(), f32()),
        ],
        refused=[call("a", 1), call(f32(1, 2), f32(1, 2, 3))],
    ),
    record(
        "array_equal",
        call(f32(1, 2, 3), f32(1, 2, 4)),
        call(f32(1, 2), f32(1, 2)),
        call(f32([1, 2]), f32(1, 2)),
        values=[
            call(EDGY, EDGY),
            call(EDGY, EDGY, equal_nan=True),
            call(i32(1, 2), f32(1, 2)),
            call(f32(), f32()),
            call(1, 1),
        ],
        refused=[call("a", f32(1))],
    ),
)
