"""Arrays of every dtype, and small programs for the runtime."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from tracefx.xla.runtime import executables, mlir
from tracefx.xla.runtime.bindings import Device
from tracefx.xla.runtime.executables import Executable

AnyArray = NDArray[np.generic]

DTYPES: list[np.dtype[np.generic]] = [
    np.dtype(scalar)
    for scalar in (
        *(np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
        *(np.float16, np.float32, np.float64, np.complex64, np.complex128, ml_dtypes.bfloat16),
        *(ml_dtypes.int2, ml_dtypes.int4, ml_dtypes.uint2, ml_dtypes.uint4, ml_dtypes.float4_e2m1fn),
        *(ml_dtypes.float8_e3m4, ml_dtypes.float8_e4m3, ml_dtypes.float8_e4m3b11fnuz, ml_dtypes.float8_e4m3fn),
        *(ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz, ml_dtypes.float8_e8m0fnu),
    )
]
PACKED = [dtype for dtype in DTYPES if dtype.name in ("int2", "int4", "uint2", "uint4", "float4_e2m1fn")]
by_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)

SHAPES: dict[str, Callable[[AnyArray], AnyArray]] = {
    "matrix": lambda a: a,
    "scalar": lambda a: a[1, 2].reshape(()),
    "one": lambda a: a[:1, :1],
    "empty": lambda a: a[:, :0],
    "transposed": lambda a: a.T,
    "reversed": lambda a: a[::-1, ::-2],
    "broadcast": lambda a: np.broadcast_to(a[1, 2], (2, 3)),
    "rows": lambda a: np.broadcast_to(a[:, None], (3, 2, 4)),
}


def values(dtype: np.dtype[np.generic], shape: tuple[int, ...] = (3, 4)) -> AnyArray:
    """Returns sample values, with negative numbers, both zeros and NaN where the dtype has them."""
    array = np.random.default_rng(0).integers(-8, 8, shape).astype(np.complex128 if dtype.kind == "c" else np.float64)
    if dtype.kind in "fc" or dtype.name.startswith(("bfloat", "float8_e4", "float8_e5")):
        array.flat[:3] = [-0.0, np.nan, 0.5]
    if dtype.kind == "c":
        array = array + 1j * array[::-1]
    elif dtype.name.startswith(("u", "float8_e8")):
        array = np.abs(array)
    elif dtype.kind == "b":
        return np.asarray(array > 0)
    with np.errstate(all="ignore"):
        if "int" in dtype.name:
            return array.astype(np.int64).astype(dtype)
        return array.astype(dtype)


def same(got: AnyArray, want: AnyArray) -> bool:
    return got.dtype == want.dtype and got.shape == want.shape and got.tobytes() == want.tobytes()


def compiled(text: str, device: Device) -> Executable:
    return executables.compile_module(mlir.parse_module(text), device=device)


def doubling(device: Device, attributes: str = "") -> Executable:
    return compiled(
        f"""func.func public @main(%a: tensor<8xf32> {attributes}) -> tensor<8xf32> {{
            %r = stablehlo.add %a, %a : tensor<8xf32>
            return %r : tensor<8xf32>
        }}""",
        device,
    )


def address(array: AnyArray) -> int:
    return array.ctypes.data
