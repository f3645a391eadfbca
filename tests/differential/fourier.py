"""Records of `tracefx.lax.fft` and of `tracefx.numpy.fft`."""

from __future__ import annotations

from typing import Final

import numpy as np

from tests.differential.records import Record, c_grid, call, grid, i32, record
from tracefx.testing.tolerances import ULPS

COMPLEX: Final = c_grid(2, 3, 4)
REAL: Final = grid(2, 3, 4)

LAX: Final[tuple[Record, ...]] = (
    record(
        "fft",
        call(COMPLEX, "FFT", (4,)),
        call(COMPLEX, "ifft", (3, 4)),
        call(REAL, "RFFT", (3, 4)),
        call(grid(2, 5), "rfft", (5,)),
        call(c_grid(3, 3), "IRFFT", (3, 4)),
        call(c_grid(2, 3), "IRFFT", (5,)),
        call(grid(2), "FFT", (2,)),
        module="lax",
        values=[
            call(i32(1, 2, 3), "RFFT", (3,)),
            call(np.float32(2), "FFT", ()),
            call(2.0, "RFFT", ()),
            call(np.zeros((0, 4), np.complex64), "FFT", (4,)),
            call(np.zeros((2, 0), np.complex64), "IFFT", (0,)),
            call(c_grid(2, 1), "IRFFT", (1,)),
            call(c_grid(2, 1), "IRFFT", (0,)),
            call(COMPLEX, "FFT", (2, 3, 4)),
        ],
        refused=[
            call(REAL, "other", (4,)),
            call(REAL, 0, (4,)),
            call(COMPLEX, "RFFT", (4,)),
            call(REAL, "FFT", (5,)),
            call(grid(4), "FFT", (4, 4)),
            call("a", "FFT", (1,)),
            call(REAL, "IRFFT", (4, 6)),
            call(REAL, "IRFFT", (1.5,)),
        ],
        dtypes=("bool", "int32", "int64", "bfloat16", "float16", "float64", "complex128"),
        ulps=ULPS["fft"],
    ),
)
RECORDS: Final = LAX
