"""Records of convolutions in `tracefx.numpy` and `tracefx.scipy.signal`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import jax.scipy.signal  # noqa: F401  # JAX has it as an attribute only then
import numpy as np

from tests.differential.records import Call, Record, Weak, c_grid, call, grid, i32, record
from tracefx.testing.tolerances import SUMMED, ULPS

X: Final = grid(5)
Y: Final = grid(3, seed=1)
IMAGE: Final = grid(4, 5)
WINDOW: Final = grid(2, 3, seed=1)
EMPTY: Final = np.zeros(0, np.float32)
DTYPES: Final = ("bool", "int32", "int64", "bfloat16", "float64", "complex64")


def vectors(name: str) -> Record:
    return record(
        name,
        call(X, Y),
        call(Y, X, "same"),
        values=[
            call(X, Y, "full"),
            call(Y, X, "valid"),
            call(X, grid(2), "same"),
            call(c_grid(2), c_grid(3, seed=3), "full"),
            call(i32(1, 2, 3), i32(4, 5), preferred_element_type="int32"),
            call(Weak(X), 2.0 * Y, "full", precision="highest"),
        ],
        refused=[
            call(X, Y, "other"),
            call(X, IMAGE),
            call(X, 2.0),
            call(X, EMPTY),
            call(X, "a"),
            call(X, Y, precision="other"),
            call(X, Y, preferred_element_type="int32"),
        ],
        dtypes=DTYPES,
        ulps=SUMMED,
    )


def signal(name: str, *calls: Call, values: Sequence[Call] = (), refused: Sequence[Call] = (), **kw: Any) -> Record:
    kw.setdefault("ulps", SUMMED)
    return record(
        name,
        *calls,
        module="scipy.signal",
        via=lambda library: getattr(library.root.scipy.signal, name),
        values=values,
        refused=[*refused, call(IMAGE, WINDOW, "other"), call(IMAGE, Y)],
        dtypes=("int32", "float64", "complex64"),
        batched=False,
        **kw,
    )


def of_matrices(name: str) -> Record:
    return signal(
        name,
        call(IMAGE, WINDOW, "same"),
        values=[
            call(IMAGE, WINDOW),
            call(WINDOW, IMAGE, "valid"),
            call(WINDOW, IMAGE),
            call(c_grid(2, 2), c_grid(2, 2, seed=3), "valid"),
            call(c_grid(1, 2), c_grid(2, 3, seed=3), "valid"),
            call(c_grid(2, 3), c_grid(2, 2, seed=3), "full"),
            call(c_grid(2, 3), c_grid(2, 2, seed=3), "same"),
        ],
        refused=[call(X, Y), call(IMAGE, WINDOW, boundary="wrap"), call(IMAGE, WINDOW, fillvalue=1)],
    )


def of_any(name: str) -> Record:
    return signal(
        name,
        call(IMAGE, WINDOW, "same"),
        values=[
            call(X, Y),
            call(WINDOW, IMAGE, "same"),
            call(WINDOW, IMAGE, "valid"),
            call(X, Y, "same", "direct"),
            call(c_grid(3), c_grid(2, seed=3), "full", precision="high"),
        ],
        refused=[call(X, Y, method="other"), call(X, EMPTY)],
    )


RECORDS: Final[tuple[Record, ...]] = (
    vectors("convolve"),
    vectors("correlate"),
    of_any("convolve"),
    of_any("correlate"),
    of_matrices("convolve2d"),
    of_matrices("correlate2d"),
    signal(
        "fftconvolve",
        call(IMAGE, WINDOW),
        call(c_grid(3), c_grid(2, seed=3), "same"),
        values=[
            call(IMAGE, grid(4, 2), "valid", 1),
            call(grid(2, 4), IMAGE[:2], "valid", axes=[-1]),
            call(IMAGE[:2], WINDOW, "same", (1,)),
            call(X, grid(1)),
            call(IMAGE, IMAGE, axes=()),
            call(WINDOW, IMAGE, "same"),
        ],
        refused=[call(IMAGE, WINDOW, axes=1), call(IMAGE, WINDOW, axes=2), call(grid(2, 4), grid(4, 2), "valid")],
        ulps=ULPS["fft"],
    ),
)
