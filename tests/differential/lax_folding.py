"""Records of `tracefx.lax`: reductions and window reductions with any function."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tests.differential.records import (
    INF,
    NAN,
    Call,
    Function,
    Library,
    Record,
    c_grid,
    call,
    f32,
    grid,
    i32,
    record,
)
from tracefx.testing.tolerances import SUMMED

X: Final = grid(3, 4)
Y: Final = grid(3, 4, seed=1)
POSITIVE: Final = grid(3, 4, low=0.5)
INDICES: Final = np.broadcast_to(np.arange(4, dtype=np.int32), (3, 4)).copy()
SAME: Final = (2, 2), (1, 2), "SAME"
DILATED: Final = (2, 2), (1, 2), ((0, 1), (1, 1)), (2, 1), (1, 2)


def resolve_computation(m: Library, computation: Any) -> Any:
    """Returns the library's function of that name, or one built from its functions."""
    return getattr(m.lax, computation) if isinstance(computation, str) else computation(m)


def reduction_via(name: str) -> Any:
    def via(m: Library) -> Function:
        def f(x: Any, start: Any, computation: Any, *args: Any, **kwargs: Any) -> Any:
            return getattr(m.lax, name)(x, start, resolve_computation(m, computation), *args, **kwargs)

        return f

    return via


def product(m: Library) -> Function:
    return lambda a, b: a * b + 0


def sum_and_count(m: Library) -> Function:
    """Computes sums and counts."""
    return lambda a, b: (a[0] + b[0], a[1] + b[1])


def max_and_index(m: Library) -> Function:
    """Computes the maximum and its index."""

    def f(a: Any, b: Any) -> Any:
        first = m.lax.ge(a[0], b[0])
        return tuple([m.lax.select(first, x, y) for x, y in zip(a, b, strict=True)])

    return f


def reduction(name: str, *calls: Call, **kw: Any) -> Record:
    return record(name, *calls, module="lax", via=reduction_via(name), dtypes=(), ulps=SUMMED, **kw)


ONE: Final = np.float32(1)
ZERO: Final = np.float32(0)
LEAST: Final = np.float32(-INF)
FIRST: Final = (LEAST, np.int32(-1))

RECORDS: Final[tuple[Record, ...]] = (
    reduction(
        "reduce",
        call(X, ZERO, "add", (0,)),
        call(X, ONE, product, (1,)),
        call((X, Y), (ZERO, ZERO), sum_and_count, (0, 1)),
        values=[
            call((X, INDICES), FIRST, max_and_index, (1,)),
            call(X, LEAST, "max", (1,)),
            call(X, np.float32(INF), "min", (1,)),
            call(X, ONE, "mul", (1,)),
            call(X, np.float32(5), "max", (0,)),
            *[call(INDICES, np.int32(n), f"bitwise_{f}", (1,)) for f, n in (("and", -1), ("or", 0), ("xor", 0))],
            call(X > 0, False, "bitwise_or", (0,)),
            call(f32(1, NAN), LEAST, "max", (0,)),
            call(f32(), np.float32(3), product, (0,)),
            call(c_grid(3), np.complex64(0), "add", (0,)),
        ],
        refused=[
            call("a", ZERO, "add", (0,)),
            call((X, Y), ZERO, "add", (0,)),
            call(X, f32(1, 2), product, (0,)),
            call(X, np.int32(1), product, (0,)),
            call(X, ONE, product, (5,)),
        ],
    ),
    reduction(
        "reduce_window",
        call(X, ZERO, "add", *DILATED),
        call(X, LEAST, "max", *SAME),
        values=[
            call(POSITIVE, ONE, product, *SAME),
            call((X, INDICES), FIRST, max_and_index, (1, 2)),
            call(X, np.float32(INF), "min", *DILATED),
            call(X, LEAST, "max", (2, 2), (1, 2), "SAME_LOWER"),
            call(X, ZERO, "add", (2, 2), (1, 1), ((-1, 1), (0, -1))),
            call(X, ZERO, "add", (5, 5)),
            call(i32([1, 2], [3, 4]), np.int32(0), "add", (2, 1)),
            call(f32(1, NAN, -0.0, 0.0), LEAST, "max", (2,)),
            call(c_grid(3), np.complex64(0), "add", (2,)),
        ],
        refused=[
            call(X, ZERO, "add", (2,)),
            call(X, ZERO, "add", (2, 0)),
            call(X, ZERO, "add", (2, 2), (1,)),
            call(X, ZERO, "add", (2, 2), (1, 1), "OTHER"),
            call(X, ZERO, "add", (2, 2), base_dilation=(0, 1)),
            call(X, np.int32(1), product, (2, 2)),
            call((X, Y), ZERO, "add", (2, 2)),
        ],
    ),
    record(
        "reduce_window_shape_tuple",
        call((10, 5), (3, 2), (2, 1), ((1, 1), (0, 0))),
        call((10, 5), (3, 2), (2, 1), ((1, 1), (0, 0)), (2, 1), (1, 3)),
        call((1,), (3,), (1,), ((0, 0),)),
        module="lax",
        dtypes=(),
        is_plain=True,
        derivatives=False,
        batched=False,
    ),
)
