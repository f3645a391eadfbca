"""Questions about dtypes: their limits, of which kind they are, in which one they meet."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias, final

import numpy as np
from typing_extensions import override

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike, has_jax_array_method
from tracefx.core.dtypes import DType, DTypeKind, DTypeLike
from tracefx.core.literal import Literal
from tracefx.core.promotion import promote
from tracefx.numpy.operand_promotion import dtype_and_weak_type

if TYPE_CHECKING:
    import ml_dtypes

AbstractDType: TypeAlias = "type[np.generic]"
"""A kind of dtypes, named by NumPy's class of their numbers: `np.floating`, `np.integer` and the like."""

generic: Final = np.generic
number: Final = np.number
inexact: Final = np.inexact
floating: Final = np.floating
complexfloating: Final = np.complexfloating
integer: Final = np.integer
signedinteger: Final = np.signedinteger
unsignedinteger: Final = np.unsignedinteger


class extended(np.generic):
    """The kind of dtypes whose elements are no numbers."""


class prng_key(extended):
    """The kind of the dtypes of random keys."""


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
    """The dtype and weak type that an argument has or says."""
    if isinstance(x, Array | Literal | np.ndarray | np.generic | bool | int | float | complex):
        return dtype_and_weak_type(x, what)
    if has_jax_array_method(x):
        return dtype_and_weak_type(x, what)  # type: ignore[arg-type]  # converted there
    # By identity: `float64` equals `float`, and is not weak.
    return dtypes.as_dtype(x, what), x is int or x is float or x is complex


@final
class FloatLimits:
    """The limits of a float dtype, as Python numbers, with NumPy's names."""

    __slots__ = ("_info",)

    def __init__(self, info: ml_dtypes.finfo) -> None:
        self._info = info

    @property
    def dtype(self) -> DType:
        return dtypes.as_dtype(self._info.dtype)

    @property
    def bits(self) -> int:
        """The bits of one number."""
        return self._info.bits

    @property
    def eps(self) -> float:
        """The distance from 1 to the next number above."""
        return float(self._info.eps)

    @property
    def epsneg(self) -> float:
        """The distance from 1 to the next number below."""
        return float(self._info.epsneg)

    @property
    def max(self) -> float:
        """The greatest finite number."""
        return float(self._info.max)

    @property
    def min(self) -> float:
        """The least finite number."""
        return float(self._info.min)

    @property
    def smallest_normal(self) -> float:
        """The least positive number with all its digits."""
        return float(self._info.smallest_normal)

    tiny = smallest_normal

    @property
    def smallest_subnormal(self) -> float:
        """The least positive number."""
        return float(self._info.smallest_subnormal)

    @property
    def resolution(self) -> float:
        """The distance from 1 that decimal digits tell."""
        return float(self._info.resolution)

    def __getattr__(self, name: str) -> int:
        """What NumPy counts: `nmant`, `nexp`, `iexp`, `machep`, `negep`, `minexp`, `maxexp`, `precision`."""
        if name.startswith("_"):
            raise AttributeError(name)
        found: int = getattr(self._info, name)
        return found

    @override
    def __repr__(self) -> str:
        return f"finfo(resolution={self.resolution}, min={self.min}, max={self.max}, dtype={self.dtype})"


def finfo(dtype: DTypeLike | ArrayLike) -> FloatLimits:
    """The limits of a float dtype, of a complex dtype's parts, or of an array's dtype; TypeError for others.

    >>> finfo("bfloat16").eps
    0.0078125
    """
    return FloatLimits(dtypes.finfo(resolve_dtype(dtype, "finfo: dtype")[0]))


def iinfo(int_type: DTypeLike | ArrayLike) -> ml_dtypes.iinfo:
    """The limits of an integer dtype, or of an array's dtype; TypeError for others.

    >>> iinfo("int4").min, iinfo(np.int8).max
    (-8, 127)
    """
    return dtypes.iinfo(resolve_dtype(int_type, "iinfo: int_type")[0])


def issubdtype(arg1: DTypeLike | AbstractDType | type | None, arg2: DTypeLike | AbstractDType | type | None) -> bool:
    """Whether the dtype `arg1` is of the kind `arg2`, such as `floating` or `integer`, or is that very dtype.

    Python's types are NumPy's 64 bits here, whatever new arrays of them have, and so is None, as in NumPy. Dtypes that
    only NumPy has, such as `object` and `str`, are compared as NumPy compares them.

    >>> issubdtype("bfloat16", floating), issubdtype("int4", floating), issubdtype("int8", np.int8)
    (True, False, True)
    """
    upper = _KINDS.get(arg2) if isinstance(arg2, type) else None
    lower = _KINDS.get(arg1) if isinstance(arg1, type) else None
    if lower is not None:
        return upper is not None and lower <= upper
    own = _as_supported_dtype(arg1)
    if own is None:
        return issubclass(_scalar_class(arg1, "issubdtype: arg1"), _scalar_class(arg2, "issubdtype: arg2"))
    if upper is not None:
        return dtypes.kind(own) in upper
    other = _as_supported_dtype(arg2)
    if other is None:
        _scalar_class(arg2, "issubdtype: arg2")  # which refuses what is no dtype of NumPy either
        return False
    return own == other


def _as_supported_dtype(x: object) -> DType | None:
    """The dtype of tracefx that `x` names, if any."""
    try:
        return dtypes.as_dtype(np.dtype(x) if x is None or x in (int, float, complex) else x)  # type: ignore[arg-type]  # refused there
    except TypeError:
        return None


def _scalar_class(x: object, what: str) -> type[np.generic]:
    """NumPy's class of the elements of a dtype that tracefx may lack, such as `object` and `str`."""
    if isinstance(x, type) and issubclass(x, np.generic):
        return x
    own = _as_supported_dtype(x)
    if own is not None:
        return own.type
    if isinstance(x, np.dtype):
        return x.type
    if (isinstance(x, type) and not hasattr(x, "dtype")) or (isinstance(x, str) and x.isidentifier()):
        with suppress(TypeError):
            return np.dtype(x).type
    dtypes.as_dtype(x, what)  # type: ignore[arg-type]  # refused there
    raise AssertionError("unreachable: as_dtype refuses it, too")


def isdtype(dtype: DTypeLike | ArrayLike, kind: DTypeLike | tuple[DTypeLike, ...]) -> bool:
    """Whether `dtype` (or an array's) is of a kind, by the names of the array API ("integral", "real floating" and so
    on), is that very dtype, or either of several. ValueError for an unknown name.

    >>> isdtype("int8", "integral"), isdtype("int8", ("real floating", "bool"))
    (True, False)
    """
    own = resolve_dtype(dtype, "isdtype: dtype")[0]
    if isinstance(kind, tuple):
        return any(isdtype(own, each) for each in kind)
    if isinstance(kind, str) and kind in _NAMES:
        return dtypes.kind(own) in _NAMES[kind]
    try:
        return own == dtypes.as_dtype(kind, "isdtype: kind")
    except TypeError as error:
        raise ValueError(f"isdtype: kind must be a dtype or of {', '.join(map(repr, _NAMES))}, got {kind!r}") from error


def promote_types(a: DTypeLike | None, b: DTypeLike | None) -> DType:
    """The dtype in which arrays of two dtypes meet, 64 bits staying 64; `int`, `float` and `complex` give way as
    Python numbers do. None means float64, as in NumPy.

    Raises TypePromotionError (a TypeError and a ValueError) if they have none in common.

    >>> promote_types("int32", "bfloat16"), promote_types("int8", int)
    (dtype(bfloat16), dtype('int8'))
    """
    one, other = [dtypes.float64 if x is None else x for x in (a, b)]
    return promote([resolve_dtype(one, "promote_types: a"), resolve_dtype(other, "promote_types: b")])[0]


def result_type(*args: ArrayLike | DTypeLike | None) -> DType:
    """The dtype in which the arguments, arrays or dtypes, meet, 64 bits that are asked for staying 64.

    None means the default float dtype.

    >>> result_type(2, 3.5), result_type("int8", 2)
    (dtype('float32'), dtype('int8'))
    """
    return lattice_result_type(*args)[0]


def lattice_result_type(*args: ArrayLike | DTypeLike | None) -> tuple[DType, bool]:
    """`result_type`, and whether that is a weak type."""
    if not args:
        raise ValueError("result_type takes at least one argument")
    given = [dtypes.default_float() if a is None else a for a in args]
    return promote([resolve_dtype(a, f"result_type: argument {i}") for i, a in enumerate(given)])
