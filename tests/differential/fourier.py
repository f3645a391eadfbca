"""Records of `tracefx.lax.fft` and of `tracefx.numpy.fft`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tests.differential.records import Call, Record, Weak, c_grid, call, grid, i32, record
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


def fft(name: str, *calls: Call, **kw: Any) -> Record:
    kw.setdefault("dtypes", ("bool", "int32", "int64", "bfloat16", "float16", "float64", "complex64"))
    return record(f"fft.{name}", *calls, via=lambda library: getattr(library.numpy.fft, name), ulps=ULPS["fft"], **kw)


def over_one_axis(name: str, x: Any, *, values: tuple[Call, ...] = (), refused: tuple[Call, ...] = ()) -> Record:
    bad = (call(x, norm="other"), call(x, 0), call(x, -2), call(x, 2.5), call(x, axis=(0,)), call(x, axis=5), call("a"))
    return fft(
        name,
        call(x),
        call(x, 5, 0, "ortho"),
        call(x, 3, norm="forward"),
        values=(call(x, 2), call(x, axis=1, norm="backward"), *values),
        refused=(*bad, call(2.0), call(x, axis=0.5), *refused),
    )


def over_two_axes(name: str, x: Any) -> Record:
    return fft(
        name,
        call(x),
        call(x, (3, 5), (0, 1), "ortho"),
        values=(call(x, axes=(1, 0), norm="forward"), call(x, (2, 2))),
        refused=(call(x, axes=(0,)), call(x, axes=(0, 0)), call(x, (1,)), call(x, norm="other"), call("a")),
    )


def over_axes(name: str, x: Any) -> Record:
    deep = x[None, :, None] if x.ndim == 3 else x
    return fft(
        name,
        call(x),
        call(deep),
        call(x, (5,), norm="ortho"),
        call(x, axes=(2, 0)),
        values=(call(x, axes=()), call(2.0), call(x, (2, 7), (0, 1), "forward"), call(x, norm="backward")),
        refused=(
            call(x, axes=(0, 0)),
            call(x, axes=(0, -3)),
            call(x, axes=(3,)),
            call(x, (2,), (0, 1)),
            call(x, (-1, 2)),
            call(x, (0,)),
            call(x, norm="other"),
            call("a"),
        ),
    )


def shifts(name: str) -> Record:
    return fft(
        name,
        call(grid(3, 4)),
        call(grid(3, 4), 0),
        call(grid(3, 4), (1, 0)),
        values=(call(2.0), call(i32(1, 2, 3)), call(Weak(grid(3))), call(grid(3, 4), -1)),
        refused=(call("a"), call([1.0]), call(grid(3), 1), call(grid(3), (0, 1))),
    )


def frequencies(name: str, *more: Call) -> Record:
    return fft(
        name,
        call(5, np.array(2.0, np.float32)),
        values=(
            *(call(4), call(5), call(1), call(2, 0.3), call(6, dtype="float64", d=0.5), call(6, dtype="bfloat16")),
            *(call(4, dtype="complex64"), *more),
        ),
        refused=(call([3]), call(3, [1.0]), call("a")),
        derivatives=False,
        dtypes=(),
    )


NOTHING: Final = np.zeros((3, 0), np.float32)
NUMPY: Final[tuple[Record, ...]] = (
    over_one_axis("fft", REAL, values=(call(REAL, axis=None), call(NOTHING), call(COMPLEX), call(Weak(grid(3))))),
    over_one_axis("ifft", COMPLEX, values=(call(NOTHING),)),
    over_one_axis("rfft", REAL, refused=(call(COMPLEX), call(NOTHING))),
    over_one_axis("irfft", COMPLEX, values=(call(NOTHING), call(COMPLEX[..., :1]))),
    over_one_axis("hfft", COMPLEX),
    over_one_axis("ihfft", REAL, refused=(call(COMPLEX),)),
    over_two_axes("fft2", COMPLEX),
    over_two_axes("ifft2", COMPLEX),
    over_two_axes("rfft2", REAL),
    over_two_axes("irfft2", COMPLEX),
    over_axes("fftn", COMPLEX),
    over_axes("ifftn", COMPLEX),
    over_axes("rfftn", REAL),
    over_axes("irfftn", COMPLEX),
    frequencies("fftfreq", call(4, dtype="int32")),
    frequencies("rfftfreq"),
    shifts("fftshift"),
    shifts("ifftshift"),
)
RECORDS: Final = (*LAX, *NUMPY)
