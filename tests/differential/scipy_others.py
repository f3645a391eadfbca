"""Records of `tracefx.scipy.ndimage`, `interpolate`, `integrate` and `cluster.vq`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax.scipy.cluster.vq
import jax.scipy.integrate
import jax.scipy.interpolate
import jax.scipy.ndimage  # noqa: F401  # JAX has them as attributes only then
import numpy as np

from tests.differential.records import Call, Function, Library, Record, Weak, c_grid, call, f32, grid, i32, record
from tracefx.testing.tolerances import SUMMED


def scipy(module: str, name: str, *calls: Call, of: Callable[[Any], Function] | None = None, **kw: Any) -> Record:
    def via(library: Library) -> Function:
        submodule: Any = library.root.scipy
        for part in module.split("."):
            submodule = getattr(submodule, part)
        f: Function = getattr(submodule, name) if of is None else of(submodule)
        return f

    return record(name, *calls, module=f"scipy.{module}", via=via, ulps=kw.pop("ulps", SUMMED), **kw)


# ------------------------------------------------------------------ images

IMAGE: Final = grid(3, 4)
ROWS, COLUMNS = f32(-1.6, 0.4, 2.7, 3.2, 1.3), f32(0.4, 1.7, -0.6, 4.8, -5.3)
COORDINATES: Final = [ROWS, COLUMNS]

IMAGES: Final = scipy(
    "ndimage",
    "map_coordinates",
    call(IMAGE, COORDINATES, 1),
    call(IMAGE, COORDINATES, 1, "mirror", 0.5),
    values=[
        *[call(IMAGE, COORDINATES, 1, mode) for mode in ("nearest", "wrap", "reflect")],
        *[call(IMAGE, COORDINATES, 0, mode) for mode in ("constant", "nearest", "wrap", "mirror", "reflect")],
        call(IMAGE, COORDINATES, 0, cval=7),
        call(IMAGE, [i32(-1, 2), i32(0, 3)], 1),
        call(i32([1, 2], [5, 9]), [f32(0.5, 0.25), f32(0.5, 0.75)], 1),
        call(c_grid(2, 2), [f32(0.5, 0.25), f32(0.5, 0.75)], 1, "nearest"),
        call(IMAGE, [ROWS[:, None], COLUMNS[:2]], 1),
        call(Weak(IMAGE), COORDINATES, 1),
    ],
    refused=[
        call(IMAGE, COORDINATES, 2),
        call(IMAGE, COORDINATES, 1, "other"),
        call(IMAGE, COORDINATES[:1], 1),
        call("a", COORDINATES, 1),
    ],
    dtypes=("int32", "bfloat16", "float64"),
)

# ------------------------------------------------------------------ interpolation

AXES: Final = [f32(0, 1, 3, 4), f32(-1, 0.5, 2)]
VALUES: Final = grid(4, 3, 2)
POINTS: Final = f32([0.25, 0.0], [3.5, -0.9], [2.0, 1.9])
EDGES: Final = f32([0, -1], [4, 2], [3, 0.5], [-1, 0], [1, 5])


def interpolated(module: Any) -> Function:
    def f(axes: Any, values: Any, points: Any, method: str = "linear", **options: Any) -> Any:
        interpolator = module.RegularGridInterpolator(axes, values, method, **options)
        return interpolator(points), interpolator(points, "nearest")

    return f


INTERPOLATORS: Final = scipy(
    "interpolate",
    "RegularGridInterpolator",
    call(AXES, VALUES, POINTS),
    values=[
        call(AXES, VALUES[..., 0], EDGES, fill_value=None),
        call(AXES, VALUES[..., 0], EDGES, fill_value=3),
        call(AXES, i32([1, 2, 3], [4, 5, 6], [7, 8, 9], [0, 1, 2]), POINTS),
        call(AXES, VALUES, (f32(0.5, 3.5), f32(1.5))),
    ],
    refused=[
        call(AXES, VALUES, POINTS, "cubic"),
        call(AXES, VALUES, POINTS, bounds_error=True),
        call(AXES, VALUES[0, 0], POINTS),
        call(AXES, VALUES, grid(2, 3)),
        call(AXES, VALUES, POINTS, fill_value=1j),
    ],
    dtypes=("float64",),
    batched=False,
    of=interpolated,
)

# ------------------------------------------------------------------ integrals, codes

ROW: Final = grid(4)
BOOK: Final = grid(3, 2, seed=1)

RECORDS: Final[tuple[Record, ...]] = (
    IMAGES,
    INTERPOLATORS,
    scipy(
        "integrate",
        "trapezoid",
        call(IMAGE),
        call(IMAGE, ROW),
        values=[call(IMAGE, dx=0.5), call(IMAGE, axis=0), call(IMAGE[:, :1]), call(i32(1, 2, 4))],
        refused=[call(2.0), call("a"), call([1.0]), call(IMAGE, ROW[:3]), call(IMAGE, axis=3)],
        dtypes=("float64",),
    ),
    scipy(
        "cluster.vq",
        "vq",
        call(grid(4, 2), BOOK),
        values=[
            call(ROW, grid(3, seed=2)),
            call(i32([1, 2], [5, 6]), i32([1, 1], [5, 7])),
            call(Weak(BOOK), Weak(BOOK)),
            call(np.zeros((0, 2), np.float32), BOOK),
            call(c_grid(2, 2), BOOK),
        ],
        refused=[call(ROW, BOOK), call(BOOK[None], BOOK[None]), call([1.0], ROW), call(BOOK, IMAGE), call("a", ROW)],
        dtypes=("bfloat16",),
    ),
)
