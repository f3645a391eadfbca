"""The supported dtypes: NumPy dtype objects, with their names, kinds, sizes and default widths.

All functions look up tables that are built once and keyed by `np.dtype`. Its hash and equality are fast and identify
equal dtypes, so `np.longlong` or a dtype with metadata finds the same row. Functions with a `DType` parameter expect a
result of `as_dtype`; for any other dtype they raise the same TypeError as `as_dtype`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, unique
from types import MappingProxyType
from typing import Any, Final, NamedTuple, NoReturn, Protocol, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tracefx.bounded_cache import memoize
from tracefx.settings import NUMERIC_OPTIONS, X64

DType: TypeAlias = np.dtype[Any]
NDArray: TypeAlias = npt.NDArray[Any]
Scalar: TypeAlias = bool | int | float | complex


class HasDType(Protocol):
    """An object with a `dtype` attribute that stands for that dtype, e.g. `jax.numpy.float32`."""

    @property
    def dtype(self) -> DType: ...


# Type checkers differ on whether `type[complex]` covers float and int, so each is named.
DTypeLike: TypeAlias = DType | str | type[np.generic] | type[bool] | type[int] | type[float] | type[complex] | HasDType


@unique
class DTypeKind(Enum):
    """The kinds of dtypes."""

    BOOL = "bool"
    SIGNED = "signed integer"
    UNSIGNED = "unsigned integer"
    FLOAT = "float"
    COMPLEX = "complex"
    FLOAT0 = "float0"
    KEY = "random key"


bool_: Final[DType] = np.dtype(np.bool_)
int2: Final[DType] = np.dtype(ml_dtypes.int2)
int4: Final[DType] = np.dtype(ml_dtypes.int4)
int8: Final[DType] = np.dtype(np.int8)
int16: Final[DType] = np.dtype(np.int16)
int32: Final[DType] = np.dtype(np.int32)
int64: Final[DType] = np.dtype(np.int64)
uint2: Final[DType] = np.dtype(ml_dtypes.uint2)
uint4: Final[DType] = np.dtype(ml_dtypes.uint4)
uint8: Final[DType] = np.dtype(np.uint8)
uint16: Final[DType] = np.dtype(np.uint16)
uint32: Final[DType] = np.dtype(np.uint32)
uint64: Final[DType] = np.dtype(np.uint64)
float4_e2m1fn: Final[DType] = np.dtype(ml_dtypes.float4_e2m1fn)
float8_e3m4: Final[DType] = np.dtype(ml_dtypes.float8_e3m4)
float8_e4m3: Final[DType] = np.dtype(ml_dtypes.float8_e4m3)
float8_e4m3b11fnuz: Final[DType] = np.dtype(ml_dtypes.float8_e4m3b11fnuz)
float8_e4m3fn: Final[DType] = np.dtype(ml_dtypes.float8_e4m3fn)
float8_e4m3fnuz: Final[DType] = np.dtype(ml_dtypes.float8_e4m3fnuz)
float8_e5m2: Final[DType] = np.dtype(ml_dtypes.float8_e5m2)
float8_e5m2fnuz: Final[DType] = np.dtype(ml_dtypes.float8_e5m2fnuz)
float8_e8m0fnu: Final[DType] = np.dtype(ml_dtypes.float8_e8m0fnu)
bfloat16: Final[DType] = np.dtype(ml_dtypes.bfloat16)
float16: Final[DType] = np.dtype(np.float16)
float32: Final[DType] = np.dtype(np.float32)
float64: Final[DType] = np.dtype(np.float64)
complex64: Final[DType] = np.dtype(np.complex64)
complex128: Final[DType] = np.dtype(np.complex128)
# The tangent dtype of integers and bools: a zero-dimensional vector space, without storage. Equals jax.dtypes.float0.
float0: Final[DType] = np.dtype([("float0", np.void, 0)])


class extended(np.generic):
    """The kind of dtypes whose elements are not numbers."""


class prng_key(extended, np.void):  # type: ignore[misc]  # NumPy's stubs declare a base class of void as final
    """The kind of the dtypes of random keys, and the `type` of these dtypes."""


# Random keys: structured dtypes of words, which NumPy can index and reshape but does not compute with. The field is
# named after the generator. `str` of these dtypes is NumPy's description of the record, which neither a subclass nor
# metadata of the dtype can change, so texts for users call `name`.
key_fry: Final[DType] = np.dtype((prng_key, [("fry", np.uint32, (2,))]))
key_rbg: Final[DType] = np.dtype((prng_key, [("rbg", np.uint32, (4,))]))
key_urbg: Final[DType] = np.dtype((prng_key, [("urbg", np.uint32, (4,))]))


class _DTypeInfo(NamedTuple):
    name: str
    short: str
    kind: DTypeKind
    bits: int  # the size of an element as packed by XLA; NumPy uses one byte for 2 and 4 bits


_DTYPE_INFO: Final[Mapping[DType, _DTypeInfo]] = MappingProxyType(
    {
        bool_: _DTypeInfo("bool", "bool", DTypeKind.BOOL, 8),
        int2: _DTypeInfo("int2", "i2", DTypeKind.SIGNED, 2),
        int4: _DTypeInfo("int4", "i4", DTypeKind.SIGNED, 4),
        int8: _DTypeInfo("int8", "i8", DTypeKind.SIGNED, 8),
        int16: _DTypeInfo("int16", "i16", DTypeKind.SIGNED, 16),
        int32: _DTypeInfo("int32", "i32", DTypeKind.SIGNED, 32),
        int64: _DTypeInfo("int64", "i64", DTypeKind.SIGNED, 64),
        uint2: _DTypeInfo("uint2", "u2", DTypeKind.UNSIGNED, 2),
        uint4: _DTypeInfo("uint4", "u4", DTypeKind.UNSIGNED, 4),
        uint8: _DTypeInfo("uint8", "u8", DTypeKind.UNSIGNED, 8),
        uint16: _DTypeInfo("uint16", "u16", DTypeKind.UNSIGNED, 16),
        uint32: _DTypeInfo("uint32", "u32", DTypeKind.UNSIGNED, 32),
        uint64: _DTypeInfo("uint64", "u64", DTypeKind.UNSIGNED, 64),
        float4_e2m1fn: _DTypeInfo("float4_e2m1fn", "f4_e2m1fn", DTypeKind.FLOAT, 4),
        float8_e3m4: _DTypeInfo("float8_e3m4", "f8_e3m4", DTypeKind.FLOAT, 8),
        float8_e4m3: _DTypeInfo("float8_e4m3", "f8_e4m3", DTypeKind.FLOAT, 8),
        float8_e4m3b11fnuz: _DTypeInfo("float8_e4m3b11fnuz", "f8_e4m3b11fnuz", DTypeKind.FLOAT, 8),
        float8_e4m3fn: _DTypeInfo("float8_e4m3fn", "f8_e4m3fn", DTypeKind.FLOAT, 8),
        float8_e4m3fnuz: _DTypeInfo("float8_e4m3fnuz", "f8_e4m3fnuz", DTypeKind.FLOAT, 8),
        float8_e5m2: _DTypeInfo("float8_e5m2", "f8_e5m2", DTypeKind.FLOAT, 8),
        float8_e5m2fnuz: _DTypeInfo("float8_e5m2fnuz", "f8_e5m2fnuz", DTypeKind.FLOAT, 8),
        float8_e8m0fnu: _DTypeInfo("float8_e8m0fnu", "f8_e8m0fnu", DTypeKind.FLOAT, 8),
        bfloat16: _DTypeInfo("bfloat16", "bf16", DTypeKind.FLOAT, 16),
        float16: _DTypeInfo("float16", "f16", DTypeKind.FLOAT, 16),
        float32: _DTypeInfo("float32", "f32", DTypeKind.FLOAT, 32),
        float64: _DTypeInfo("float64", "f64", DTypeKind.FLOAT, 64),
        complex64: _DTypeInfo("complex64", "c64", DTypeKind.COMPLEX, 64),
        complex128: _DTypeInfo("complex128", "c128", DTypeKind.COMPLEX, 128),
        float0: _DTypeInfo("float0", "float0", DTypeKind.FLOAT0, 0),
        key_fry: _DTypeInfo("key<fry>", "key<fry>", DTypeKind.KEY, 64),
        key_rbg: _DTypeInfo("key<rbg>", "key<rbg>", DTypeKind.KEY, 128),
        key_urbg: _DTypeInfo("key<urbg>", "key<urbg>", DTypeKind.KEY, 128),
    }
)

KEY_DTYPES: Final[tuple[DType, ...]] = (key_fry, key_rbg, key_urbg)
ALL_DTYPES: Final[tuple[DType, ...]] = tuple(dtype for dtype in _DTYPE_INFO if dtype not in KEY_DTYPES)
"""All supported dtypes except those of random keys."""

# Plain dicts, never mutated: a lookup through a MappingProxyType costs 50% more.
_SHORT_NAMES: Final[dict[DType, str]] = {dtype: row.short for dtype, row in _DTYPE_INFO.items()}
_BY_SHORT_NAME: Final[dict[str, DType]] = {row.short: dtype for dtype, row in _DTYPE_INFO.items()}
_DTYPE_KINDS: Final[dict[DType, DTypeKind]] = {dtype: row.kind for dtype, row in _DTYPE_INFO.items()}
_BITS: Final[dict[DType, int]] = {dtype: row.bits for dtype, row in _DTYPE_INFO.items()}
_INEXACT: Final = frozenset(d for d, row in _DTYPE_INFO.items() if row.kind in (DTypeKind.FLOAT, DTypeKind.COMPLEX))
_FLOATS: Final = frozenset(d for d, row in _DTYPE_INFO.items() if row.kind is DTypeKind.FLOAT)
_COMPLEXES: Final = frozenset(d for d, row in _DTYPE_INFO.items() if row.kind is DTypeKind.COMPLEX)
_INTEGERS: Final = frozenset(d for d, row in _DTYPE_INFO.items() if row.kind in (DTypeKind.SIGNED, DTypeKind.UNSIGNED))
_SIGNED: Final = frozenset(d for d, row in _DTYPE_INFO.items() if row.kind is DTypeKind.SIGNED)
_INTERNED: Final[dict[DType, DType]] = {d: d for d in _DTYPE_INFO}
_TANGENTS: Final[dict[DType, DType]] = {d: d if d in _INEXACT else float0 for d in _DTYPE_INFO}
_REALS: Final[dict[DType, DType]] = {d: d for d in _DTYPE_INFO} | {complex64: float32, complex128: float64}
_NARROWED: Final[dict[DType, DType]] = {int64: int32, uint64: uint32, float64: float32, complex128: complex64}

# Explicit spellings of a dtype: the dtype, its scalar type, its name. The scalar type of records is always np.void.
_EXPLICIT: Final[dict[object, DType]] = {
    **{dtype: dtype for dtype in _DTYPE_INFO},
    **{dtype.type: dtype for dtype, row in _DTYPE_INFO.items() if row.kind not in (DTypeKind.FLOAT0, DTypeKind.KEY)},
    **{row.name: dtype for dtype, row in _DTYPE_INFO.items()},
}
_SCALARS_32: Final[dict[object, DType]] = {bool: bool_, int: int32, float: float32, complex: complex64}
_SCALARS_64: Final[dict[object, DType]] = {bool: bool_, int: int64, float: float64, complex: complex128}


_BY_SPELLING: Final[dict[str, DType]] = {
    **{name: np.dtype(kind) for name, kind in np.sctypeDict.items() if np.dtype(kind) in _DTYPE_INFO},
    **{
        spelling: dtype
        for dtype, row in _DTYPE_INFO.items()
        for spelling in (row.name, *((dtype.str, dtype.str[1:], "=" + dtype.str[1:]) if dtype.isbuiltin == 1 else ()))
        if row.kind is not DTypeKind.KEY
    },
    **{np.dtype(char).char: np.dtype(char) for char in "?bBhHiIlLqQefdFD"},
}


def as_dtype(x: DTypeLike, argument: str = "dtype", exact: bool = False) -> DType:
    """Converts a dtype-like to a dtype.

    `int`, `float` and `complex` mean the default dtypes, with 32 bits per component unless `enable_x64` is on. All
    other dtype-likes are explicit and keep their width, unless programs for JAX run, in which they are narrowed too.

    Args:
        x: A dtype, a NumPy scalar type, a name, a Python number type, or an object with a `dtype` attribute.
        argument: The name of the argument in errors.
        exact: Whether the dtype keeps its width in programs for JAX, too, since it is not that of an array to make.

    Raises:
        TypeError: If `x` is not a supported dtype (strings, dates, objects, records, None).

    >>> as_dtype("bfloat16"), as_dtype(np.float64), as_dtype(float)
    (dtype(bfloat16), dtype('float64'), dtype('float32'))
    """
    try:
        result = _EXPLICIT.get(x)
        if result is None:
            result = (_SCALARS_64 if X64.value else _SCALARS_32).get(x)
    except TypeError:  # not hashable
        result = None
    if result is None:
        result = _as_uncommon_dtype(x, argument)
    if result in _NARROWED and not exact and NUMERIC_OPTIONS.value.narrow_dtypes:
        return canonicalize(result)
    return result


def interned(dtype: DType) -> DType:
    """Returns the object that is this dtype in avals; unpickled dtypes are equal objects.

    >>> import pickle
    >>> interned(pickle.loads(pickle.dumps(float32))) is float32
    True
    """
    return _INTERNED.get(dtype, dtype)


def named_dtype(x: object) -> DType | None:
    """Returns the dtype that a dtype, a NumPy or Python scalar type, or a string names; `None` for anything else.

    It neither raises nor warns. `int`, `float` and `complex` name 64-bit components, as in NumPy.

    >>> named_dtype("float32"), named_dtype(float), named_dtype("a, b"), named_dtype([1])
    (dtype('float32'), dtype('float64'), None, None)
    """
    if isinstance(x, np.dtype):
        return x
    if isinstance(x, str):
        return _BY_SPELLING.get(x)
    if isinstance(x, type):
        if x in _SCALARS_64:
            return _SCALARS_64[x]
        if issubclass(x, np.generic) and x not in _ABSTRACT_SCALAR_TYPES and x is not np.void:
            return np.dtype(x)
    return None


_ABSTRACT_SCALAR_TYPES: Final = frozenset(
    {
        *(np.generic, np.number, np.integer, np.signedinteger, np.unsignedinteger),
        *(np.inexact, np.floating, np.complexfloating, np.flexible, np.character),
    }
)
"""NumPy's abstract scalar types, each of which covers several dtypes."""


def _as_uncommon_dtype(x: DTypeLike, argument: str) -> DType:
    """Converts `x` by `np.dtype`, for names such as "f4" and for objects with a dtype. Rejects unsupported dtypes."""
    if x is None:  # NumPy's float64
        _refuse(x, argument)
    if isinstance(x, type) and x in _ABSTRACT_SCALAR_TYPES:  # NumPy 2.0 maps them to one dtype
        _refuse(x, argument)
    if isinstance(x, str) and ("," in x or x.startswith("a")):  # records and text: NumPy may warn
        _refuse(x, argument)
    try:
        dtype = np.dtype(x)
    except (TypeError, ValueError, SyntaxError) as error:
        _refuse(x, argument, error)
    result = _EXPLICIT.get(dtype)
    if result is None:
        _refuse(x, argument)
    return result


def _refuse(x: object, argument: str, cause: Exception | None = None) -> NoReturn:
    """Raises the TypeError for an unsupported dtype, with a hint if there is a likely correction."""
    hint = ""
    if isinstance(x, np.dtype) and not x.isnative:
        hint = f" Its byte order is not native: convert the data with .astype({x.newbyteorder('=').name!r}) first."
    elif isinstance(x, str) and x in _BY_SHORT_NAME:
        hint = f" Write {_BY_SHORT_NAME[x].name!r}."
    elif isinstance(x, int):
        hint = " If it is a size, put it into a shape, as in (3, 4)."
    supported = ", ".join(_DTYPE_INFO[dtype].name for dtype in ALL_DTYPES)
    raise TypeError(
        f"{argument}={x!r} is not a dtype that arrays can have.{hint} Supported are {supported}."
    ) from cause


def name(dtype: DType) -> str:
    """Returns the name of a dtype, also for those without a name in NumPy.

    >>> name(float32), name(float0), name(key_fry)
    ('float32', 'float0', 'key<fry>')
    """
    try:
        return _DTYPE_INFO[dtype].name
    except KeyError:
        _refuse(dtype, "dtype")


def short_name(dtype: DType) -> str:
    """Returns the name of a dtype in printed jaxprs.

    >>> short_name(float32), short_name(bfloat16), short_name(uint8), short_name(float8_e4m3fn)
    ('f32', 'bf16', 'u8', 'f8_e4m3fn')
    """
    try:
        return _SHORT_NAMES[dtype]
    except KeyError:
        _refuse(dtype, "dtype")


def from_short_name(name: str) -> DType:
    """Returns the dtype with this short name. Raises ValueError if there is none.

    >>> from_short_name("bf16")
    dtype(bfloat16)
    """
    try:
        return _BY_SHORT_NAME[name]
    except KeyError:
        raise ValueError(f"{name!r} names no dtype; the short names are {', '.join(_BY_SHORT_NAME)}") from None


def kind(dtype: DType) -> DTypeKind:
    """Returns the kind of a dtype.

    >>> kind(bfloat16)
    <DTypeKind.FLOAT: 'float'>
    """
    try:
        return _DTYPE_KINDS[dtype]
    except KeyError:
        _refuse(dtype, "dtype")


def is_bool(dtype: DType) -> bool:
    """Whether the dtype is bool."""
    return dtype == bool_


def is_integer(dtype: DType) -> bool:
    """Whether the dtype is a signed or unsigned integer dtype; bool is not."""
    return dtype in _INTEGERS


def is_signed(dtype: DType) -> bool:
    """Whether the dtype is a signed integer dtype."""
    return dtype in _SIGNED


def is_float(dtype: DType) -> bool:
    """Whether the dtype is a real floating-point dtype; float0 is not."""
    return dtype in _FLOATS


def is_complex(dtype: DType) -> bool:
    """Whether the dtype is complex."""
    return dtype in _COMPLEXES


def is_inexact(dtype: DType) -> bool:
    """Whether the dtype is real or complex floating point, i.e. differentiable."""
    return dtype in _INEXACT


def is_key(dtype: DType) -> bool:
    """Whether the dtype is one of random keys."""
    return dtype.names is not None and dtype in KEY_DTYPES


def key_data_size(dtype: DType) -> int:
    """Returns the number of 32-bit words in a key of this dtype."""
    return dtype.itemsize // 4


def itemsize_bits(dtype: DType) -> int:
    """Returns the bits of one element where elements are packed: 4 for int4, 8 for bool, 0 for float0.

    >>> itemsize_bits(int4), itemsize_bits(complex64)
    (4, 64)
    """
    try:
        return _BITS[dtype]
    except KeyError:
        _refuse(dtype, "dtype")


def canonicalize(dtype: DType) -> DType:
    """Returns the dtype that data of this dtype gets if no dtype is requested.

    Without `enable_x64`, 64-bit integers and floats and complex128 narrow to half their width; others are unchanged.

    >>> canonicalize(float64), canonicalize(float16)
    (dtype('float32'), dtype('float16'))
    """
    return dtype if X64.value else _NARROWED.get(dtype, dtype)


def default_int() -> DType:
    """Returns int32, or int64 if `enable_x64` is on."""
    return int64 if X64.value else int32


def index_dtype(size: int) -> DType:
    """Returns the dtype of indices into an axis: the default integer dtype unless the axis needs 64 bits.

    The axis may be symbolic, which is assumed to be smaller.
    """
    return default_int() if type(size) is not int or size <= 2**31 else int64


def default_uint() -> DType:
    """Returns uint32, or uint64 if `enable_x64` is on."""
    return uint64 if X64.value else uint32


def default_float() -> DType:
    """Returns float32, or float64 if `enable_x64` is on."""
    return float64 if X64.value else float32


def default_complex() -> DType:
    """Returns complex64, or complex128 if `enable_x64` is on."""
    return complex128 if X64.value else complex64


def scalar_dtype(scalar_type: type[bool] | type[int] | type[float] | type[complex]) -> DType:
    """Returns the dtype of Python numbers of exactly this type. Raises TypeError for other types.

    >>> scalar_dtype(int), scalar_dtype(bool)
    (dtype('int32'), dtype('bool'))
    """
    try:
        return (_SCALARS_64 if X64.value else _SCALARS_32)[scalar_type]
    except KeyError:
        raise TypeError(f"scalar_dtype takes bool, int, float or complex, got {scalar_type!r}") from None


def tangent_dtype(dtype: DType) -> DType:
    """Returns the dtype of tangents: the same for float and complex dtypes, float0 for all others.

    >>> tangent_dtype(float32), tangent_dtype(int32) == float0
    (dtype('float32'), True)
    """
    try:
        return _TANGENTS[dtype]
    except KeyError:
        _refuse(dtype, "dtype")


def real_dtype(dtype: DType) -> DType:
    """Returns the dtype of the real part of a complex dtype; any other dtype unchanged.

    >>> real_dtype(complex128)
    dtype('float64')
    """
    try:
        return _REALS[dtype]
    except KeyError:
        _refuse(dtype, "dtype")


def _describe(dtype: DType) -> str:
    return f"{name(dtype)}, whose elements are not numbers" if is_key(dtype) else str(dtype)


@memoize(256)
def finfo(dtype: DType) -> ml_dtypes.finfo:
    """Returns the limits of a float dtype, or of the parts of a complex dtype. Raises TypeError for others.

    >>> float(finfo(bfloat16).eps)
    0.0078125
    """
    if dtype not in _INEXACT:
        raise TypeError(f"finfo describes float and complex dtypes, got {_describe(dtype)}; iinfo describes integers")
    return ml_dtypes.finfo(dtype)


@memoize(256)
def iinfo(dtype: DType) -> ml_dtypes.iinfo:
    """Returns the limits of an integer dtype. Raises TypeError for others.

    >>> iinfo(int4).min, iinfo(int4).max
    (-8, 7)
    """
    if dtype not in _INTEGERS:
        raise TypeError(f"iinfo describes integer dtypes, got {_describe(dtype)}; finfo describes floats")
    return ml_dtypes.iinfo(dtype)
