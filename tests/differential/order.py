"""Records of `tracefx.numpy`: sorting, searching, sets, indices of elements."""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from tests.differential.records import (
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
from tracefx.testing.tolerances import PROGRAM

X: Final = grid(2, 3)
ROW: Final = grid(5)
EMPTY: Final = np.zeros((2, 0), np.float32)
EDGY: Final = f32(1, NAN, -0.0, INF, 0.0, -INF, NAN, -0.0, 2)
TIES: Final = i32([2, 1, 2, 1], [3, 3, 0, 3])
TRUTHS: Final = bools([True, False, True], [False, False, True])
ODD: Final = c64(1 + 1j, complex(1, NAN), complex(NAN, 0), 2j, 1j, complex(-INF, NAN), 5)
SMALL: Final = i32(3, 1, 3, 2, 1)
SECOND_SET: Final = i32(2, 5, 3, 5)
REALS: Final = ("bool", "int8", "uint8", "int32", "uint32", "bfloat16", "float16", "float64")
FEW: Final = ("bool", "int8", "float16", "bfloat16", "float64", "complex64")


def order(name: str, *calls: Call, **kw: Any) -> Record:
    values = (call(TIES), call(EDGY), call(ODD), call(EMPTY), call(EMPTY, 0), call(TIES, descending=True))
    refused = (call("a"), call([1.0]), call(X, 2), call(grid()), call(X, kind="stable"), call(X, order="x"))
    more = (call(EDGY, descending=True), call(X, descending=True, stable=False))
    return record(
        name, call(X), call(X, 0), call(X, None, descending=True), call(c_grid(4)), *calls,
        values=(*values, *more), refused=refused, dtypes=FEW, **kw,
    )  # fmt: skip


def top_k_by_lax(a: Any, k: int, *, axis: int = -1, mode: str = "largest", sorted: bool = True) -> tuple[Any, Any]:
    """What `jax.numpy.top_k` computes."""
    if mode not in ("largest", "smallest"):
        raise ValueError(mode)
    a = jnp.asarray(a)
    if mode == "largest":
        values, indices = jax.lax.top_k(a, k, axis=axis)
        return values, indices
    reverse = jnp.negative if jnp.issubdtype(a.dtype, jnp.floating) else jnp.invert
    values, indices = jax.lax.top_k(reverse(a), k, axis=axis)
    return reverse(values), indices


def partition(name: str) -> Record:
    return record(
        name,
        call(X, 1),
        call(X, -2, axis=0),
        call(ROW, 4),
        values=[call(TIES, 2), call(f32(1, NAN, -0.0, INF), 1), call(Weak(ROW), 0)],
        refused=[call("a", 0), call(X, 3), call(X, 0.5), call(X, 0, 2), call(grid(), 0), call(c_grid(3), 1)],
        dtypes=("int8", "uint8", "int32", "float16", "bfloat16", "float64"),
    )


def searching(method: str) -> list[Call]:
    edges = f32(-2, -0.0, 0.0, 1, NAN, NAN)
    return [call(edges, f32([1, NAN, 0.5], [-0.0, INF, -INF]), side, method=method) for side in ("left", "right")]


def selecting(name: str, **kw: Any) -> Record:
    mask = bools(True, False, True)
    more = [call(mask, X, 1, size=2)] if name == "compress" else []
    return record(
        name,
        call(mask, ROW[:3], size=2),
        call(mask, ROW[:3], size=3, fill_value=7),
        call(f32(1, 0, 2), ROW[:3], size=1),
        *more,
        values=[call(mask, ROW, size=3), call(bools(True, True), X, size=1), call(i32(0, 0), ROW, size=2)],
        refused=[call("a", ROW, size=1), call(mask, "a", size=1), call(mask, ROW, size=4), call(mask, ROW, size=-1)],
        dtypes=FEW,
        **kw,
    )


def set_of_two(name: str, *more: Call) -> Record:
    return record(
        name,
        call(SMALL, SECOND_SET, size=6),
        call(ROW, f32(ROW[1], ROW[3], 4, -0.0, 0), size=4),
        *more,
        values=[
            call(EDGY, EDGY[::-2], size=12, fill_value=1),
            call(TIES, X, size=7, fill_value=0),
            call(SMALL[:0], SECOND_SET, size=3, fill_value=4),
        ],
        refused=[call("a", SMALL, size=1), call(SMALL, [1, 2], size=1), call(SMALL, SECOND_SET, size=-1)],
        dtypes=("bfloat16", "uint8"),
    )


def unique(name: str, *more: Call, values: tuple[Call, ...] = (), differentiable: bool = False) -> Record:
    return record(
        name,
        call(SMALL, size=4),
        *more,
        values=[call(EDGY, size=9), call(EMPTY, size=2, fill_value=3), *values],
        refused=[call("a", size=1), call([1, 2], size=1), call(SMALL, size=-1), call(EMPTY, size=1)],
        dtypes=("bool", "bfloat16", "uint8"),
        derivatives=differentiable,
    )


RECORDS: Final[tuple[Record, ...]] = (
    order("sort"),
    order("argsort", call(TIES, 0, dtype="int8"), call(TIES, dtype="uint32", descending=True)),
    record(
        "lexsort",
        call((i32(1, 1, 0, 0), f32(2, 1, 2, 1))),
        call([X, -X], 0),
        call([c_grid(3), i32(1, 1, 0)]),
        values=[call((EDGY,)), call([grid(), grid()]), call(TIES), call([EMPTY, EMPTY])],
        refused=[call(()), call("a"), call([X, ROW]), call([X], 2), call(["a"]), call(grid())],
        dtypes=FEW,
    ),
    record(
        "top_k",
        call(X, 2),
        call(X, 1, axis=0, mode="smallest", sorted=False),
        values=[
            call(EDGY, 9, mode="smallest"),
            call(TIES, 3, mode="smallest"),
            call(TRUTHS, 2, mode="smallest"),
            call(EMPTY, 0),
            call(Weak(ROW), 2, mode="smallest"),
        ],
        refused=[call("a", 1), call(X, 4), call(grid(), 1), call(c64(1, 2), 1), call(X, 1, mode="")],
        dtypes=REALS,
        via=lambda library: lambda *args, **kw: tuple(via_newer("numpy", "top_k", top_k_by_lax)(library)(*args, **kw)),
    ),
    partition("partition"),
    partition("argpartition"),
    record(
        "sort_complex",
        call(c_grid(2, 3)),
        call(ROW),
        values=[call(TIES), call(ODD), call(EMPTY)],
        refused=[call("a"), call(grid()), call([1.0])],
        dtypes=FEW,
    ),
    record(
        "searchsorted",
        call(np.sort(ROW), X),
        call(np.sort(ROW), grid(), "right"),
        call(np.full(5, 0.25, np.float32), X, sorter=i32(3, 0, 4, 2, 1)),  # every element of a batch is a permutation
        call(np.sort(ROW), X, method="sort"),
        values=[
            *searching("scan"),
            call(ROW, X, sorter=np.argsort(ROW).astype(np.int32)),
            *searching("scan_unrolled"),
            *searching("sort"),
            *searching("compare_all"),
            call(c64(1, complex(1, 2), complex(NAN, 1)), c64(1 + 1j, complex(1, NAN), NAN)),
            call(i32(1, 2, 2, 3), f32(2, 2.5)),
            call(f32(), ROW),
            call(np.sort(ROW), EMPTY),
            call(np.arange(300, dtype=np.int32), i32(7, 299, 300, -1), method="compare_all"),
        ],
        refused=[
            call("a", ROW),
            call(X, ROW),
            call(ROW, ROW, "middle"),
            call(ROW, ROW, method="other"),
            call(ROW, [1.0]),
            call(grid(), ROW),
        ],
        dtypes=("bool", "int8", "uint32", "int64", "float16", "bfloat16", "float64", "complex64"),
        pairs=True,
    ),
    record(
        "digitize",
        call(X, f32(-1, 0, 1)),
        call(X, f32(1, 0, -1), True),
        call(grid(), np.sort(ROW), method="sort"),
        values=[call(EDGY, f32(-1, 0, INF)), call(TIES, i32(1, 2)), call(X, f32()), call(X, f32(0.5))],
        refused=[call("a", ROW), call(X, X), call(X, grid()), call(X, [1.0])],
        dtypes=FEW[:-1],
    ),
    record(
        "interp",
        call(X, f32(-1, 0, 1.5), f32(3, 5, 4)),
        call(grid(), f32(-1, 0, 1.5), f32(3, 5, 4), 0.5, grid()),
        call(4 * X, f32(-1, 0, 1.5), f32(3, 5, 4), left="extrapolate", right="extrapolate"),
        call(X, f32(1.9, 0.2, 0.8), f32(3, 5, 4), period=2.5),
        call(X, f32(-1, 0, 1.5), c_grid(3)),
        values=[
            call(EDGY, f32(-1, 0, 0, 1.5), f32(3, 5, 6, 4)),
            call(X, f32(0.5), f32(2)),
            call(i32(1, 2), i32(0, 4), i32(1, 5)),
        ],
        refused=[
            call("a", ROW, ROW),
            call(X, X, X),
            call(X, ROW, ROW[:3]),
            call(X, ROW, ROW, left="other"),
            call(X, ROW, ROW, right="other"),
            call(X, ROW, ROW, period=ROW),
            call(c_grid(2), ROW, ROW),
        ],
        dtypes=("int8", "float16", "float64"),
        ulps=PROGRAM,
    ),
    # ------------------------------------------------------------------ indices
    record(
        "nonzero",
        call(TRUTHS, size=4),
        call(TRUTHS, size=2),
        call(f32(0, 2, -0.0, NAN), size=3, fill_value=-1),
        call(np.stack([TRUTHS, TRUTHS]), size=3),
        values=[
            call(TRUTHS, size=5, fill_value=(7, 8)),
            call(TRUTHS, size=5, fill_value=0.5),
            call(EMPTY, size=2),
            call(EMPTY, size=0),
            call(c64(0, 1j), size=1),
            call(TRUTHS, size=0),
        ],
        refused=[
            call("a", size=1),
            call(grid(), size=1),
            call(TRUTHS, size=-1),
            call(TRUTHS, size=1.5),
            call(TRUTHS, size=4, fill_value=(1, 2, 3)),
            call(TRUTHS, size=4, fill_value=i32(1, 2)),
        ],
        dtypes=FEW,
    ),
    record(
        "flatnonzero",
        call(TRUTHS, size=4),
        call(TRUTHS, size=5, fill_value=6),
        values=[call(EMPTY, size=1), call(grid(), size=1)],
        refused=[call("a", size=1), call(TRUTHS, size=-1)],
        dtypes=FEW,
    ),
    record(
        "argwhere",
        call(TRUTHS, size=4),
        call(TRUTHS, size=5, fill_value=-1),
        values=[call(EMPTY, size=1), call(grid(), size=1), call(f32(0)[0], size=1)],
        refused=[call("a", size=1), call(TRUTHS, size=-1)],
        dtypes=FEW,
    ),
    selecting("extract"),
    selecting("compress"),
    record(
        "place",
        call(X, TRUTHS, f32(7, 8), inplace=False),
        call(X, X > 0, grid(5), inplace=False),
        values=[call(EMPTY, EMPTY > 0, f32(1), inplace=False), call(TIES, TIES, 0.5, inplace=False)],
        refused=[
            call(X, TRUTHS, f32(7)),
            call(X, TRUTHS[0], f32(7), inplace=False),
            call(X, TRUTHS, f32(), inplace=False),
            call("a", TRUTHS, f32(7), inplace=False),
        ],
        dtypes=FEW,
    ),
    record(
        "put",
        call(X, i32(0, 4), f32(7, 8), inplace=False),
        call(X, i32([0, 2], [1, 5]), f32(7), inplace=False),
        call(X, i32(-1, 9), f32(7, 8), "clip", inplace=False),
        call(X, i32(-1, 9), f32(7, 8), mode="wrap", inplace=False),
        values=[
            call(X, i32(-1, 9), 5, inplace=False),
            call(X, i32(-99, 1, 99), f32(5, 6, 7), inplace=False),
            call(EMPTY, i32(0), 1, inplace=False),
            call(X, 2, 5, inplace=False),
        ],
        refused=[
            call(X, i32(0), 1),
            call(X, i32(0), 1, "raise", inplace=False),
            call(X, i32(0), 1, "other", inplace=False),
            call("a", i32(0), 1, inplace=False),
            call(X, 0.5, 1, inplace=False),
        ],
        dtypes=FEW,
    ),
    # ------------------------------------------------------------------ sets
    unique(
        "unique",
        call(f32(2, 1, 2), size=3, fill_value=7),
        call(c_grid(3), size=4),
        call(SMALL, True, True, True, size=5),
        call(TIES.T, axis=0, size=3, return_index=True, return_inverse=True, return_counts=True),
        call(X, axis=1, size=3),
        values=(
            call(EDGY, True, True, True, size=9, equal_nan=False),
            call(EDGY, True, True, True, size=9, fill_value=0),
            call(i32([1, 1, 2]), axis=1, size=3, fill_value=9, return_counts=True),
            call(TIES, return_inverse=True, size=2),
            call(ODD, size=8, fill_value=0),
            call(2, size=2),
        ),
        differentiable=True,
    ),
    unique("unique_all"),
    unique("unique_counts"),
    unique("unique_inverse"),
    unique("unique_values"),
    set_of_two("union1d"),
    set_of_two(
        "intersect1d",
        call(SMALL, SECOND_SET, return_indices=True, size=3),
        call(i32(4, 1, 2), i32(2, 4), True, True, size=3),
    ),
    set_of_two("setdiff1d", call(i32(4, 1, 2), i32(2, 3), assume_unique=True, size=3)),
    set_of_two("setxor1d", call(i32(4, 1, 2), i32(2, 3), assume_unique=True, size=3)),
    record(
        "isin",
        call(TIES, i32(1, 3)),
        call(TIES, i32(1, 3), invert=True),
        call(X, ROW, method="binary_search"),
        values=[
            call(EDGY, EDGY),
            call(EDGY, EDGY, method="sort"),
            call(EDGY, f32(0, NAN), method="binary_search", invert=True),
            call(TIES, f32(1, 2.5)),
            call(c_grid(3), c_grid(3)[1:]),
            call(EMPTY, ROW),
            call(ROW, EMPTY),
            call(2, i32(2)),
            call(np.arange(9, dtype=np.int32), np.arange(0, 1200, 2, dtype=np.int32)),
        ],
        refused=[call("a", ROW), call(ROW, [1.0]), call(ROW, ROW, method="other")],
        dtypes=("bool", "int8", "uint32", "int64", "bfloat16", "float64", "complex64"),
    ),
)  # fmt: skip
