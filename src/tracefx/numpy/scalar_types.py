"""The dtypes of the namespace: each names a dtype wherever one is taken, and called makes an array of it."""

from __future__ import annotations

from typing import Final, final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.dtypes import DType
from tracefx.numpy.creation import asarray


@final
@frozen(eq=False)
class ScalarType:
    """A dtype, which is also the function that makes arrays of it; equal to whatever else names the dtype.

    >>> float16 = ScalarType(dtypes.float16)
    >>> float16(3)
    Array(3., dtype=float16)
    >>> np.dtype("float16") == float16 == np.float16
    True
    """

    dtype: DType

    def __call__(self, x: ArrayLike) -> Array:
        return asarray(x, self.dtype)

    @override
    def __eq__(self, other: object) -> bool:
        if isinstance(other, ScalarType | np.dtype | type | str):
            try:
                return bool(np.dtype(other) == self.dtype)
            except TypeError:
                return False
        return NotImplemented

    @override
    def __hash__(self) -> int:
        return hash(self.dtype)

    @override
    def __repr__(self) -> str:
        return f"tracefx.numpy.{'bool_' if self.dtype == dtypes.bool_ else self.dtype.name}"


bool_: Final = ScalarType(dtypes.bool_)
int2: Final = ScalarType(dtypes.int2)
int4: Final = ScalarType(dtypes.int4)
int8: Final = ScalarType(dtypes.int8)
int16: Final = ScalarType(dtypes.int16)
int32: Final = ScalarType(dtypes.int32)
int64: Final = ScalarType(dtypes.int64)
uint2: Final = ScalarType(dtypes.uint2)
uint4: Final = ScalarType(dtypes.uint4)
uint8: Final = ScalarType(dtypes.uint8)
uint16: Final = ScalarType(dtypes.uint16)
uint32: Final = ScalarType(dtypes.uint32)
uint64: Final = ScalarType(dtypes.uint64)
bfloat16: Final = ScalarType(dtypes.bfloat16)
float4_e2m1fn: Final = ScalarType(dtypes.float4_e2m1fn)
float8_e3m4: Final = ScalarType(dtypes.float8_e3m4)
float8_e4m3: Final = ScalarType(dtypes.float8_e4m3)
float8_e4m3b11fnuz: Final = ScalarType(dtypes.float8_e4m3b11fnuz)
float8_e4m3fn: Final = ScalarType(dtypes.float8_e4m3fn)
float8_e4m3fnuz: Final = ScalarType(dtypes.float8_e4m3fnuz)
float8_e5m2: Final = ScalarType(dtypes.float8_e5m2)
float8_e5m2fnuz: Final = ScalarType(dtypes.float8_e5m2fnuz)
float8_e8m0fnu: Final = ScalarType(dtypes.float8_e8m0fnu)
float16: Final = ScalarType(dtypes.float16)
float32: Final = ScalarType(dtypes.float32)
float64: Final = ScalarType(dtypes.float64)
complex64: Final = ScalarType(dtypes.complex64)
complex128: Final = ScalarType(dtypes.complex128)

# Other names of these, whose meaning doesn't depend on the default dtypes.
int_: Final = int64
uint: Final = uint64
single: Final = float32
double: Final = float64
float_: Final = float64
csingle: Final = complex64
cdouble: Final = complex128
complex_: Final = complex128
