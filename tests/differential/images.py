"""Records of `tracefx.image`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import jax.image  # noqa: F401  # JAX has it as an attribute only then
import numpy as np

from tests.differential.records import Call, Record, c_grid, call, grid, i32, record
from tracefx.testing.tolerances import PROGRAM

X: Final = grid(3, 4)
BATCH: Final = grid(2, 5, 3)
ROW: Final = grid(5)
DTYPES: Final = ("bool", "int32", "bfloat16", "float64", "complex64")


def image(name: str, *calls: Call, values: Sequence[Call], refused: Sequence[Call]) -> Record:
    return record(
        name,
        *calls,
        module="image",
        via=lambda library: getattr(library.root.image, name),
        values=values,
        refused=refused,
        dtypes=DTYPES,
        ulps=PROGRAM,
    )


def warp(*args: Any, **kwargs: Any) -> Call:
    """Scales and translations for which no sample lies at a kink of the kernels."""
    return call(
        BATCH, (2, 4, 4), (1, 2), np.array([0.7, 1.3], np.float32), np.array([0.2, 0.1], np.float32), *args, **kwargs
    )


RECORDS: Final[tuple[Record, ...]] = (
    image(
        "resize",
        call(X, (5, 3), "linear"),
        call(BATCH, (2, 3, 4), "cubic"),
        values=[
            *[call(ROW, (7,), method) for method in ("nearest", "lanczos3", "lanczos5", "cubic-pytorch", "area")],
            *[call(ROW, (2,), method, False) for method in ("bilinear", "lanczos3", "bicubic-pytorch", "area")],
            *[call(ROW, (2,), method) for method in ("nearest", "bicubic-pytorch", "triangle", "area")],
            call(X, (6, 2), "nearest"),
            call(X, (7, 3), "nearest", antialias=False, precision="high"),
            call(X, (3, 4), "cubic"),
            call(X, (0, 4), "linear"),
            call(i32(1, 2, 3), (2,), "nearest"),
            call(grid(1, 4), (3, 2), "cubic-pytorch", False),
            call(c_grid(3), (4,), "linear"),
        ],
        refused=[call(X, (3,), "linear"), call(X, (3, 4), "other"), call(X, (3, 4.5), "linear")],
    ),
    image(
        "scale_and_translate",
        warp("linear"),
        warp("lanczos3", antialias=False),
        values=[
            *[warp(method) for method in ("cubic", "lanczos5", "cubic-pytorch", "area")],
            *[warp(method, False) for method in ("cubic", "cubic-pytorch", "area")],
            call(ROW, (4,), (-1,), grid(1, low=1), i32(2), "linear"),
            call(ROW, (4,), (), np.zeros(0, np.float32), np.zeros(0, np.float32), "linear"),
        ],
        refused=[
            warp("nearest"),
            warp("other"),
            call(ROW, (4, 4), (0,), grid(1), grid(1), "linear"),
            call(ROW, (4,), (1,), grid(1), grid(1), "linear"),
        ],
    ),
)
