"""Records of `tracefx.lax`: gathers and scatters; named axes."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tests.differential.records import Call, Function, Library, Record, Weak, c_grid, call, f32, grid, i32, record
from tracefx.testing.tolerances import EXACT, SUMMED, Ulps, ulps_of

X: Final = grid(3, 4, low=0.5)
IN: Final = i32([2], [0])
BEYOND: Final = i32([1], [7], [-1])
Y: Final = grid(2, 4, low=0.5, seed=1)
SOME: Final = ("bool", "int8", "uint32", "int32", "bfloat16", "float64", "complex64")

Numbers = tuple[tuple[int, ...], ...]
ROWS: Final = ((1,), (0,), (0,))


def gather(m: Library) -> Function:
    def f(x: Any, indices: Any, numbers: Numbers, sizes: tuple[int, ...], **options: Any) -> Any:
        return m.lax.gather(x, indices, m.lax.GatherDimensionNumbers(*numbers), sizes, **options)

    return f


def scatter(name: str, *, derivatives: bool = True, options: dict[str, Any] | None = None) -> Record:
    """Record of updates of rows, single elements, and columns."""

    def via(m: Library) -> Function:
        def f(x: Any, indices: Any, y: Any, numbers: Numbers = ROWS, **options: Any) -> Any:
            return getattr(m.lax, name)(x, indices, y, m.lax.ScatterDimensionNumbers(*numbers), **options)

        return f

    always = options or {}
    return record(
        name,
        call(X, IN, Y, **always),
        call(X, i32([0, 1], [2, 3]), Y[0, :2], ((), (0, 1), (0, 1)), **always),
        call(X, i32([3], [1]), Y[:, :3], ((1,), (1,), (1,)), **always),
        call(c_grid(3, 4), IN, c_grid(2, 4), **always)
        if name in ("scatter", "scatter_add", "scatter_sub")
        else call(X, IN, Y / 2, mode="clip", **always),
        values=[
            *[call(X, BEYOND, grid(3, 4), mode=mode) for mode in (None, "clip", "fill")],
            call(f32(1), np.zeros((0, 1), np.int32), f32(), ((), (0,), (0,))),
            call(X, BEYOND.astype(np.int8), grid(3, 4)),
            call(Weak(X), IN, Y),
        ],
        refused=[
            call("a", IN, Y),
            call(X, f32([1], [0]), Y),
            call(X, IN, Y[0]),
            call(X, IN, Y[:, :2].astype(np.int32)),
            call(X, IN, Y, ((1,), (0,), (5,))),
            call(X, IN, Y, mode="other"),
        ],
        module="lax",
        via=via,
        derivatives=derivatives,
        dtypes=SOME,
        ulps=ulps_of("mul") if name == "scatter_mul" else EXACT,
    )


def apply_scatter(m: Library) -> Function:
    def f(x: Any, indices: Any, function: Function, numbers: Numbers, shape: tuple[int, ...], **options: Any) -> Any:
        dimensions = m.lax.ScatterDimensionNumbers(*numbers)
        return m.lax.scatter_apply(x, indices, function, dimensions, update_shape=shape, **options)

    return f


def add_one(x: Any) -> Any:
    return x * 2 + 1


def collective(name: str, *calls: Call, ulps: Ulps | None = None, **kw: Any) -> Record:
    """Record of a function of the named axis "i", the first axis of its operand."""

    def via(m: Library) -> Function:
        def f(x: Any, *args: Any, **kwargs: Any) -> Any:
            return m.root.vmap(lambda x: getattr(m.lax, name)(x, "i", *args, **kwargs), axis_name="i")(x)

        return f

    return record(name, *calls, module="lax", via=via, dtypes=SOME, ulps=ulps, **kw)


def axis_query(name: str) -> Record:
    def via(m: Library) -> Function:
        return lambda x, axis="i": m.root.vmap(lambda x: x * getattr(m.lax, name)(axis), axis_name="i")(x)

    return record(name, call(grid(3)), call(grid(3, 2)), refused=[call(grid(3), "j")], module="lax", via=via, dtypes=())


Z: Final = grid(2, 4, 2)
BAD: Final = (call("a"), call(2.0))

RECORDS: Final[tuple[Record, ...]] = (
    record(
        "gather",
        call(X, IN, ROWS, (1, 4)),
        call(X, i32([0, 1], [2, 3]), ((), (0, 1), (0, 1)), (1, 1)),
        call(X, i32([1], [0]), ((0, 1), (), (1,)), (2, 3)),
        call(c_grid(3, 4), IN, ROWS, (1, 4)),
        call(X[0], np.zeros((2, 0), np.int32), ((1,), (), ()), (2,)),
        values=[
            *[call(X, BEYOND, ROWS, (1, 4), mode=mode) for mode in (None, "clip", "fill")],
            call(X, BEYOND, ROWS, (1, 4), mode="fill", fill_value=-1.0),
            call(i32([1], [2], [3]), BEYOND, ROWS, (1, 1), mode="fill"),
            call(X, np.zeros((0, 1), np.int32), ROWS, (1, 4)),
            call(Weak(X), IN, ROWS, (1, 4)),
            call(X, (BEYOND % 256).astype(np.uint8), ROWS, (1, 4), mode="clip"),
        ],
        refused=[
            call("a", IN, ROWS, (1, 4)),
            call(X, f32([1], [0]), ROWS, (1, 4)),
            call(X, IN, ROWS, (1,)),
            call(X, IN, ROWS, (1, 5)),
            call(X, IN, ((1,), (0,), (5,)), (1, 4)),
            call(X, IN, ROWS, (2, 4)),
            call(X, IN, ROWS, (1, 4), mode="other"),
        ],
        module="lax",
        via=gather,
        dtypes=SOME,
    ),
    scatter("scatter"),
    scatter("scatter_add"),
    scatter("scatter_sub"),
    scatter("scatter_mul", options={"unique_indices": True}),
    scatter("scatter_min"),
    scatter("scatter_max"),
    record(
        "scatter_apply",
        call(X, IN, add_one, ROWS, (2, 4)),
        call(X, i32([0, 1], [2, 3]), add_one, ((), (0, 1), (0, 1)), (2,), unique_indices=True),
        values=[
            call(X, i32([1], [1], [-1]), add_one, ROWS, (3, 4)),
            call(X, BEYOND, add_one, ROWS, (3, 4), mode="clip"),
            call(i32(1, 2), i32([1]), add_one, ((), (0,), (0,)), (1,)),
        ],
        refused=[call(X, IN, add_one, ROWS, (2,)), call(X, IN, add_one, ROWS, (2, 4), mode="other")],
        module="lax",
        via=apply_scatter,
        derivatives=False,  # JAX has no derivatives
        dtypes=("int8", "bfloat16", "float64"),
    ),
    collective("psum", call(X), call(c_grid(3)), values=[call(i32(1, 2))], refused=BAD, ulps=SUMMED),
    collective("pmean", call(X), call(c_grid(3)), values=[call(i32(1, 2))], refused=BAD, ulps=SUMMED),
    collective("pmax", call(X), values=[call(i32(1, 2))], refused=BAD, derivatives=False),
    collective("pmin", call(X), values=[call(i32(1, 2))], refused=BAD, derivatives=False),
    collective("all_gather", call(X), call(Z, axis=1), call(Z, axis=1, tiled=True), refused=[call(X, axis=3)]),
    collective(
        "psum_scatter",
        call(grid(2, 2)),
        call(Z, tiled=True),
        call(Z.transpose(0, 2, 1), scatter_dimension=0),
        refused=[call(grid(2, 3)), call(grid(2, 3), tiled=True)],
        ulps=SUMMED,
    ),
    collective(
        "ppermute",
        call(X, [(0, 1), (1, 2), (2, 0)]),
        call(X, [(0, 0), (1, 2), (2, 1)]),
        refused=[call(X, [(0, 1), (0, 2)]), call(X, [(0, 5)])],
    ),
    collective(
        "all_to_all",
        call(grid(2, 2, 3), 0, 0),
        call(grid(2, 3, 2), 1, 0),
        call(Z, 0, 1, tiled=True),
        refused=[call(Z, 0, 0), call(Z, 5, 0)],
    ),
    axis_query("axis_index"),
    axis_query("axis_size"),
)
