"""Dtype functions: limits, kinds and promotion of dtypes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Self, TypeAlias, final

import numpy as np
from typing_extensions import override

from tracefx.core import Array, ArrayLike, DType, DTypeLike, dtypes
from tracefx.core.abstract_array import has_jax_array_method
from tracefx.core.dtypes import DTypeKind, extended, prng_key
from tracefx.numpy.operand_promotion import dtype_and_weak_type
from tracefx.ops.promotion import promote

if TYPE_CHECKING:
    import ml_dtypes

AbstractDType: TypeAlias = type[np.generic]
"""A kind of dtypes, named by NumPy's scalar class: `np.floating`, `np.integer` and the like."""

generic: Final = np.generic
number: Final = np.number
inexact: Final = np.inexact
floating: Final = np.floating
complexfloating: Final = np.complexfloating
integer: Final = np.integer
signedinteger: Final = np.signedinteger
unsignedinteger: Final = np.unsignedinteger


_KINDS: Final[Mapping[type, frozenset[DTypeKind]]] = MappingProxyType(
    {
        generic: frozenset(DTypeKind),
        number: frozenset(DTypeKind) - {DTypeKind.BOOL, DTypeKind.KEY},
        inexact: frozenset({DTypeKind.FLOAT, DTypeKind.COMPLEX}),
        floating: frozenset({DTypeKind.FLOAT}),
        complexfloating: frozenset({DTypeKind.COMPLEX}),
        integer: frozenset({DTypeKind.SIGNED, DTypeKind.UNSIGNED}),
        signedinteger: frozenset({DTypeKind.SIGNED}),
        unsignedinteger: frozenset({DTypeKind.UNSIGNED}),
        extended: frozenset({DTypeKind.KEY}),
        prng_key: frozenset({DTypeKind.KEY}),
    }
)
_NAMES: Final[Mapping[str, frozenset[DTypeKind]]] = MappingProxyType(
    {
        "bool": frozenset({DTypeKind.BOOL}),
        "signed integer": frozenset({DTypeKind.SIGNED}),
        "unsigned integer": frozenset({DTypeKind.UNSIGNED}),
        "integral": frozenset({DTypeKind.SIGNED, DTypeKind.UNSIGNED}),
        "real floating": frozenset({DTypeKind.FLOAT}),
        "complex floating": frozenset({DTypeKind.COMPLEX}),
        "numeric": frozenset(DTypeKind) - {DTypeKind.BOOL, DTypeKind.KEY},
    }
)


def resolve_dtype(x: ArrayLike | DTypeLike, what: str) -> tuple[DType, bool]:
    """Returns the dtype and weak type of an array, or those named by a dtype argument."""
    if isinstance(x, Array | np.ndarray | np.generic | bool | int | float | complex):
        return dtype_and_weak_type(x, what)
    if has_jax_array_method(x):
        return dtype_and_weak_type(x, what)  # type: ignore[arg-type]  # converted there
    # Compared by identity: `float64` equals `float`, but is not weak.
    return dtypes.as_dtype(x, what, exact=True), x is int or x is float or x is complex


@final
class FloatLimit(float):
    """A limit of a float dtype: a Python float, as the array API specifies, that array functions take as of the dtype.

    It also has the attributes and methods of NumPy's scalars, such as `dtype`.
    """

    __slots__ = ("_scalar",)
    _scalar: np.generic

    def __new__(cls, scalar: np.generic) -> Self:
        limit = super().__new__(cls, scalar)
        limit._scalar = scalar
        return limit

    def __jax_array__(self) -> np.generic:
        return self._scalar

    @property
    def dtype(self) -> DType:
        """The dtype."""
        return self._scalar.dtype

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):
            raise AttributeError(name)
        value: object = getattr(self._scalar, name)
        return value

    @override
    def __reduce__(self) -> tuple[type[FloatLimit], tuple[np.generic]]:
        return FloatLimit, (self._scalar,)


@final
class FloatLimits:
    """The limits of a float dtype, with NumPy's names."""

    dtype: DType
    bits: int
    eps: FloatLimit
    epsneg: FloatLimit
    max: FloatLimit
    min: FloatLimit
    smallest_normal: FloatLimit
    smallest_subnormal: FloatLimit
    tiny: FloatLimit
    resolution: FloatLimit
    precision: int
    nmant: int
    nexp: int
    iexp: int
    machep: int
    negep: int
    minexp: int
    maxexp: int

    def __init__(self, info: ml_dtypes.finfo) -> None:
        for name in FloatLimits.__annotations__:
            value = getattr(info, name)
            setattr(self, name, FloatLimit(value) if isinstance(value, np.generic) else value)

    @override
    def __repr__(self) -> str:
        return f"finfo(resolution={self.resolution}, min={self.min}, max={self.max}, dtype={self.dtype})"


def finfo(dtype: DTypeLike | ArrayLike) -> FloatLimits:
    """Returns the limits of a float dtype, of the parts of a complex dtype, or of an array's dtype.

    Args:
        dtype: A dtype, or an array whose dtype is meant.

    Returns:
        An object with the limits as attributes, floats that array functions take as scalars of the dtype: `eps`, `max`,
        `min`, `smallest_normal` and more; `bits` is an integer.

    Raises:
        TypeError: If the dtype is neither of floats nor of complex numbers.

    >>> finfo("bfloat16").eps, finfo("float32").eps.dtype
    (0.0078125, dtype('float32'))
    """
    return FloatLimits(dtypes.finfo(resolve_dtype(dtype, "finfo: dtype")[0]))


def iinfo(int_type: DTypeLike | ArrayLike) -> ml_dtypes.iinfo:
    """Returns the limits of an integer dtype, or of an array's dtype.

    Args:
        int_type: A dtype, or an array whose dtype is meant.

    Returns:
        An object with the limits as attributes: `bits`, `min` and `max`.

    Raises:
        TypeError: If the dtype is not of integers.

    >>> iinfo("int4").min, iinfo(np.int8).max
    (-8, 127)
    """
    return dtypes.iinfo(resolve_dtype(int_type, "iinfo: int_type")[0])


def issubdtype(arg1: DTypeLike | AbstractDType | type | None, arg2: DTypeLike | AbstractDType | type | None) -> bool:
    """Returns whether the dtype `arg1` is of the kind `arg2` (such as `floating` or `integer`) or is that very dtype.

    Python's number types and None stand for NumPy's 64-bit dtypes, as in NumPy, whatever the default dtypes are. Dtypes
    that only NumPy has, such as `object` and `str`, are compared as NumPy compares them.

    Args:
        arg1: A dtype.
        arg2: A dtype, or an abstract one such as `floating`.

    Returns:
        A bool.

    >>> issubdtype("bfloat16", floating), issubdtype("int4", floating), issubdtype("int8", np.int8)
    (True, False, True)
    """
    upper = _KINDS.get(arg2) if isinstance(arg2, type) else None
    lower = _KINDS.get(arg1) if isinstance(arg1, type) else None
    if lower is not None:
        return upper is not None and lower <= upper
    dtype1 = _as_supported_dtype(arg1)
    if dtype1 is None:
        return issubclass(_scalar_class(arg1, "issubdtype: arg1"), _scalar_class(arg2, "issubdtype: arg2"))
    if upper is not None:
        return dtypes.kind(dtype1) in upper
    dtype2 = _as_supported_dtype(arg2)
    if dtype2 is None:
        _scalar_class(arg2, "issubdtype: arg2")  # raises unless it is a dtype of NumPy
        return False
    return dtype1 == dtype2


def _as_supported_dtype(x: object) -> DType | None:
    """Returns the supported dtype that `x` names, or None."""
    try:
        return dtypes.as_dtype(np.dtype(x) if x is None or x in (int, float, complex) else x, exact=True)  # type: ignore[arg-type]  # checked there
    except TypeError:
        return None


def _scalar_class(x: object, what: str) -> type[np.generic]:
    """Returns NumPy's scalar class of a dtype that tracefx may lack, such as `object` and `str`."""
    if isinstance(x, type) and issubclass(x, np.generic):
        return x
    dtype = _as_supported_dtype(x)
    if dtype is not None:
        return dtype.type
    if isinstance(x, np.dtype):
        return x.type
    if (isinstance(x, type) and not hasattr(x, "dtype")) or (isinstance(x, str) and x.isidentifier()):
        with suppress(TypeError):
            return np.dtype(x).type
    dtypes.as_dtype(x, what)  # type: ignore[arg-type]  # checked there
    raise AssertionError("unreachable: as_dtype raises, too")


def isdtype(dtype: DTypeLike | ArrayLike, kind: DTypeLike | tuple[DTypeLike, ...]) -> bool:
    """Returns whether a dtype is of a kind.

    Args:
        dtype: A dtype, or an array whose dtype is meant.
        kind: A name of the array API (`"integral"`, `"real floating"`, ...), a dtype, or a tuple of alternatives.

    Returns:
        A bool.

    Raises:
        ValueError: If the name of the kind is unknown.

    >>> isdtype("int8", "integral"), isdtype("int8", ("real floating", "bool"))
    (True, False)
    """
    dtype_ = resolve_dtype(dtype, "isdtype: dtype")[0]
    if isinstance(kind, tuple):
        return any(isdtype(dtype_, each) for each in kind)
    if isinstance(kind, str) and kind in _NAMES:
        return dtypes.kind(dtype_) in _NAMES[kind]
    try:
        return dtype_ == dtypes.as_dtype(kind, "isdtype: kind", exact=True)
    except TypeError as error:
        raise ValueError(f"isdtype: kind must be a dtype or of {', '.join(map(repr, _NAMES))}, got {kind!r}") from error


def promote_types(a: DTypeLike | None, b: DTypeLike | None) -> DType:
    """Returns the dtype to which arrays of two dtypes promote; 64 bits stay 64.

    `int`, `float` and `complex` promote weakly, as Python numbers do. None means float64, as in NumPy.

    Args:
        a: A dtype.
        b: A dtype.

    Returns:
        The dtype.

    Raises:
        TypePromotionError: If the dtypes have no common dtype; it is a TypeError and a ValueError.

    >>> promote_types("int32", "bfloat16"), promote_types("int8", int)
    (dtype(bfloat16), dtype('int8'))
    """
    one, other = [dtypes.float64 if x is None else x for x in (a, b)]
    return promote([resolve_dtype(one, "promote_types: a"), resolve_dtype(other, "promote_types: b")])[0]


def result_type(*args: ArrayLike | DTypeLike | None) -> DType:
    """Returns the dtype to which the arguments, arrays or dtypes, promote; explicit 64-bit dtypes stay 64 bits.

    Args:
        *args: Arrays, numbers and dtypes; None means the default float dtype.

    Returns:
        The dtype.

    >>> result_type(2, 3.5), result_type("int8", 2)
    (dtype('float32'), dtype('int8'))
    """
    return lattice_result_type(*args)[0]


def lattice_result_type(*args: ArrayLike | DTypeLike | None) -> tuple[DType, bool]:
    """Returns `result_type` and whether it is weak."""
    if not args:
        raise ValueError("result_type takes at least one argument")
    operands = [dtypes.default_float() if a is None else a for a in args]
    dtype, weak = promote([resolve_dtype(a, f"result_type: argument {i}") for i, a in enumerate(operands)])
    return dtypes.as_dtype(dtype), weak
