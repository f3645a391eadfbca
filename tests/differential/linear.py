"""Records of `tracefx.numpy`: products."""

from __future__ import annotations

from typing import Any, Final

from tests.differential.records import Call, Record, Weak, bools, c_grid, call, f32, grid, i32, record
from tracefx.testing.tolerances import SUMMED


def g(*shape: int, seed: int = 0) -> Any:
    return grid(*shape, low=-1.0, high=2.0, seed=seed)


def product(name: str, *calls: Call, refused: tuple[Call, ...] = (), values: tuple[Call, ...] = ()) -> Record:
    refused = (*refused, call("a", g(2)), call(g(2), None), call([1.0], g(1)), call(g(2)))
    more = (
        call(i32(1, 2), f32(1, 2)),
        call(bools(True, False), bools(True, True)),
        call(f32(), f32()),
        call(Weak(g(2)), i32(1, 2)),
    )
    return record(name, *calls, values=(*values, *more), refused=refused, ulps=SUMMED, pairs=True)


V: Final = g(3), g(3, seed=1)
PREFER: Final = {"preferred_element_type": "float64"}

RECORDS: Final[tuple[Record, ...]] = (
    product(
        "matmul",
        call(g(2, 3), g(3, 4, seed=1)),
        call(*V),
        call(g(2, 3), g(3)),
        call(g(3), g(3, 2)),
        call(g(4, 2, 3), g(3, 2)),
        call(g(2, 1, 2, 3), g(4, 3, 2)),
        call(g(1, 2, 3), g(1, 3, 2)),
        call(c_grid(2, 3), g(3, 2)),
        call(g(3), g(2, 3, 2)),
        values=(
            call(g(0, 3), g(3, 2)),
            call(g(2, 0), g(0, 3)),
            call(g(2, 3), g(3), **PREFER),
            call(i32([1, 2]), i32([3], [4])),
        ),
        refused=(
            call(g(), g(3)),
            call(g(2, 3), g(2, 3)),
            call(g(2, 2, 3), g(3, 3, 4)),
            call(2.0, g(3)),
            call(g(2), 2.0),
        ),
    ),
    product(
        "dot",
        call(g(2, 3), g(3, 4, seed=1)),
        call(*V),
        call(g(), g(3)),
        call(g(2, 3), g(4, 3, 2)),
        call(g(2, 4, 3), g(3)),
        call(c_grid(3), c_grid(3, seed=3)),
        values=(call(g(), 2.0), call(2, 3), call(g(3), 2), call(g(2, 0), g(0, 3)), call(*V, **PREFER)),
        refused=(call(g(3), g(4)), call(g(2, 3), g(2, 3))),
    ),
    product(
        "inner",
        call(*V),
        call(g(2, 3), g(4, 3)),
        call(g(), g(3)),
        call(c_grid(3), c_grid(3, seed=3)),
        values=(call(2, 3), call(*V, **PREFER)),
        refused=(call(g(2, 3), g(2)),),
    ),
    product(
        "outer", call(g(3), g(2)), call(g(2, 2), g(3)), call(g(), g(3)), call(c_grid(2), g(3)), values=(call(2, 3.0),)
    ),
    product(
        "vdot",
        call(*V),
        call(g(2, 3), g(3, 2)),
        call(c_grid(3), c_grid(3, seed=3)),
        call(c_grid(3), g(3)),
        values=(call(2, 3), call(1j, 2j), call(*V, **PREFER)),
        refused=(call(g(2), g(3)),),
    ),
    product(
        "tensordot",
        call(g(2, 3), g(2, 3, seed=1)),
        call(g(2, 3), g(3, 4), 1),
        call(g(2), g(3), 0),
        call(g(2, 3, 4), g(4, 2), ([0, 2], [1, 0])),
        call(g(3, 3), g(3, 3, seed=1), (0, 1)),
        call(g(3, 3), g(3, 3, seed=1), ([1], [-1])),
        call(c_grid(3), g(3), 1),
        values=(call(g(2, 3), g(3, 4), 1, **PREFER), call(g(), g(), 0)),
        refused=(
            call(g(3, 3), g(3, 3), 3),
            call(g(3, 3), g(3, 3), ([0], [0, 1])),
            call(g(3, 3), g(3, 3), (0, 1, 2)),
            call(g(2, 3), g(2, 3), 1),
        ),
    ),
    record(
        "einsum",
        call("ij,jk->ik", g(2, 3), g(3, 2)),
        call("ii->i", g(3, 3)),
        call("ii", g(3, 3)),
        call("i,i", *V),
        call("i,j->ji", g(2), g(3)),
        call("bij,bjk->bik", g(4, 2, 3), g(4, 3, 2)),
        call("...ij,...j->...i", g(4, 2, 3), g(3)),
        call("ij->", g(2, 3)),
        call("ijk->kji", g(2, 3, 4)),
        call("bii,ij,jb->bi", g(2, 3, 3), g(3, 4), g(4, 2)),
        call("ij,jk,kl->il", g(2, 3), g(3, 4), g(4, 2)),
        call("ij,ij->ij", c_grid(2, 3), g(2, 3)),
        values=[
            call("ij,jk", i32([1, 2]), f32([1], [2])),
            call("i->", f32()),
            call(",->", 2, 3.0),
            call("i,i->i", V[0], i32(1, 2, 3)),
        ],
        refused=[
            call("ij,jk", g(2, 3)),
            call("ij,jk", g(2, 3), g(2, 3)),
            call("ij->ik", g(2, 3)),
            call("i->ii", g(2)),
            call("i", "a"),
            call("i$", g(2)),
            call("ijk", g(2, 3)),
            call("ij->i->", g(2, 2)),
        ],
        ulps=SUMMED,
        dtypes=("int32", "bfloat16", "float64", "complex64"),
    ),
)
