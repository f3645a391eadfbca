"""Records of `tracefx.scipy.signal`: spectra and trends."""

from __future__ import annotations

from typing import Any, Final

import jax.scipy.signal  # noqa: F401  # JAX has it as an attribute only then
import numpy as np
from attrs import evolve

from tests.differential.records import Call, Record, c_grid, call, f32, grid, i32, record
from tracefx.testing.tolerances import SUMMED

ROUNDED: Final = evolve(SUMMED, least=1.0)
"""Tolerance for residuals of data of size 1 after subtracting means and lines."""
X: Final = grid(2, 20)
ROW: Final = grid(21, seed=1)
Y: Final = grid(2, 17, seed=2)
SHAPE: Final = f32(0.25, 0.5, 1.0, 0.75, 0.5)
PARTS: Final = {"nperseg": 6, "noverlap": 2}


def signal(name: str, *calls: Call, **kw: Any) -> Record:
    kw = {"dtypes": (), "batched": False, **kw}

    def via(library: Any) -> Any:
        return getattr(library.root.scipy.signal, name)

    return record(name, *calls, module="scipy.signal", via=via, ulps=ROUNDED, **kw)


def refused_calls(*first: Any) -> tuple[Call, ...]:
    options: tuple[dict[str, Any], ...] = (
        {"nperseg": 0},
        {"nperseg": 6, "noverlap": 6},
        {"nperseg": 6, "nfft": 5},
        {"window": SHAPE, "nperseg": 6},
        {"window": grid(40)},
        {"window": X},
        {"detrend": True},
        {"axis": 2},
    )
    return tuple([call(*first, **each) for each in options])


TRANSFORMS: Final = c_grid(2, 4, 5)

RECORDS: Final[tuple[Record, ...]] = (
    signal(
        "detrend",
        call(X),
        values=[
            call(X, type="constant"),
            call(ROW, bp=[5, 12]),
            call(X, 0),
            call(ROW, bp=np.array(7).tolist()),
            call(i32(1, 2, 4, 9)),
            call([1.0, 2.0, 4.0]),
            call(c_grid(6)),
            call(ROW, bp=[20]),
        ],
        refused=[call(X, type="other"), call(X, bp=21), call(X, bp=-1), call(X, overwrite_data=True), call("a")],
        dtypes=("float64",),
        batched=True,
    ),
    signal(
        "stft",
        call(X, **PARTS),
        values=[
            call(ROW, nperseg=5, boundary=None, padded=False, nfft=8),
            call(ROW, 2.5, SHAPE, nperseg=5, boundary="even", detrend="constant"),
            call(ROW, nperseg=6, boundary="odd", detrend="linear"),
            call(ROW, nperseg=6, boundary="constant", return_onesided=False),
            call(X, nperseg=2, axis=0, boundary=None),
            call(i32(1, 2, 3, 4, 5), nperseg=4),
            call(ROW[:0], nperseg=4),
            call(ROW, nperseg=1, noverlap=0),
        ],
        refused=[
            call(X, boundary="other"),
            call(X, nperseg=6, noverlap=6),
            call(ROW[:2], nperseg=4, boundary="odd", axis="a"),
        ],
    ),
    signal(
        "csd",
        call(X, Y, **PARTS),
        values=[
            call(ROW, X[0], nperseg=8, scaling="spectrum", detrend=False),
            call(ROW, X[0], nperseg=4, average="median"),
            call(ROW, ROW, window=SHAPE, return_onesided=False),
        ],
        refused=[*refused_calls(X, Y), call(X, ROW), call(X, grid(3, 20)), call(X, X, scaling="other")],
    ),
    signal(
        "welch",
        call(X, 10.0, **PARTS),
        values=[
            call(ROW),
            call(ROW, nperseg=5),
            call(ROW, nperseg=4, average="median"),
            call(X, nperseg=2, axis=0, scaling="spectrum"),
        ],
        refused=[call(X, nperseg=6, average="other")],
    ),
    signal(
        "istft",
        call(TRANSFORMS[0], noverlap=3),
        call(TRANSFORMS[1], 2.0, boundary=False),
        values=[
            call(TRANSFORMS[0], input_onesided=False),
            call(TRANSFORMS[0], window=f32(0.5, 1, 1, 1, 1, 0.5)),
            call(TRANSFORMS[0], time_axis=0, freq_axis=1),
            call(TRANSFORMS[0], nperseg=4, noverlap=2),
        ],
        refused=[
            call(TRANSFORMS[0, 0]),
            call(TRANSFORMS, time_axis=0, freq_axis=0),
            call(TRANSFORMS, nperseg=-1),
            call(TRANSFORMS, nperseg=8),
            call(TRANSFORMS, noverlap=6),
            call(TRANSFORMS, window=SHAPE),
            call(TRANSFORMS, window=X),
            call(TRANSFORMS, time_axis=3),
        ],
    ),
)
