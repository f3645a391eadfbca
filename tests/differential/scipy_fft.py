"""Records of `tracefx.scipy.fft`."""

from __future__ import annotations

from typing import Any, Final

import jax.scipy.fft  # noqa: F401  # JAX has it as an attribute only then

from tests.differential.records import Call, Record, Weak, c_grid, call, grid, record
from tracefx.testing.tolerances import ULPS

X: Final = grid(2, 3, 4)
ROW: Final = grid(5)
COMPLEX: Final = c_grid(2, 3)
WRONG: Final = (call(X, 1), call(X, norm="forward"), call("a"), call([1.0]))


def transform(name: str, *calls: Call, **kw: Any) -> Record:
    return record(
        name,
        *calls,
        module="scipy.fft",
        via=lambda library: getattr(library.root.scipy.fft, name),
        ulps=ULPS["fft"],
        **{"dtypes": ("int32", "bfloat16", "float64"), **kw},
    )


def one_axis(name: str) -> Record:
    return transform(
        name,
        call(X),
        call(ROW, norm="ortho"),
        call(X, n=5, axis=1),
        values=[call(X, 2, 2, 0, "backward"), call(COMPLEX), call(Weak(ROW)), call(X[..., :1]), call(ROW, n=2)],
        refused=[*WRONG, call(X, axis=3), call(X, axis=0.5), call(2.0), call(X, n=1.5)],
    )


def several_axes(name: str) -> Record:
    return transform(
        name,
        call(X),
        call(X, s=(2, 5), norm="ortho"),
        call(X, axes=(2, 0)),
        values=[call(X, s=3), call(X, axes=1), call(X, s=[2], axes=[0]), call(X, axes=())],
        dtypes=("complex64",),
        batched=False,
        refused=[*WRONG, call(X, axes=(0, 0)), call(X, axes=(3,)), call(X, s=(1, 1, 1, 1)), call(X, s=(1.5,))],
    )


RECORDS: Final[tuple[Record, ...]] = (one_axis("dct"), several_axes("dctn"), one_axis("idct"), several_axes("idctn"))
