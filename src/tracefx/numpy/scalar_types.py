"""The dtypes of the namespace: each is accepted wherever a dtype is, and calling it makes an array of that dtype."""

from __future__ import annotations

from typing import Final, final

from typing_extensions import override

from tracefx.core import Array, ArrayLike, DType, dtypes
from tracefx.core.dtypes import named_dtype
from tracefx.filtered_tracebacks import api_boundary
from tracefx.numpy.creation import asarray


@final
class ScalarType(type):
    """The metaclass of `float32`, `int8` and so on: a dtype that is also a function making arrays of it.

    It is equal to everything else that names the dtype (`np.float32`, `"float32"`, `np.dtype("float32")`), and to
    nothing else.

    >>> float16 = ScalarType(dtypes.float16)
    >>> float16(3)
    Array(3., dtype=float16)
    >>> import numpy as np
    >>> np.dtype("float16") == float16 == np.float16
    True
    >>> float16.__name__, isinstance(np.float16(1), float16)
    ('float16', True)
    """

    dtype: DType

    def __new__(cls, dtype: DType) -> ScalarType:
        name = dtype.name
        doc = f"The dtype {dtype.name}. Called, it makes arrays of this dtype."
        scalar_type = type.__new__(cls, name, (), {"dtype": dtype, "__module__": "tracefx.numpy", "__doc__": doc})
        scalar_type.__qualname__ = scalar_type.__name__
        return scalar_type

    def __init__(cls, dtype: DType) -> None:
        type.__init__(cls, cls.__name__, (), {})

    @override
    @api_boundary
    def __call__(cls, x: ArrayLike) -> Array:
        return asarray(x, cls.dtype)

    @override
    def __instancecheck__(cls, instance: object) -> bool:
        """Returns whether `instance` is a NumPy scalar of the dtype. Arrays are not, even those without axes."""
        return isinstance(instance, cls.dtype.type)

    @override
    def __eq__(cls, other: object) -> bool:
        other_dtype = other.dtype if isinstance(other, ScalarType) else named_dtype(other)
        return other_dtype is not None and other_dtype == cls.dtype

    @override
    def __hash__(cls) -> int:
        return hash(cls.dtype.type)  # that of NumPy's scalar type, which is an equal element of sets

    @override
    def __repr__(cls) -> str:
        return f"{cls.__module__}.{cls.__name__}"


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

# Aliases, which do not depend on the default dtypes.
int_: Final = int64
uint: Final = uint64
single: Final = float32
double: Final = float64
float_: Final = float64
csingle: Final = complex64
cdouble: Final = complex128
complex_: Final = complex128
