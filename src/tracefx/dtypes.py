"""Dtypes and questions about them, under the names of `jax.dtypes`.

>>> from tracefx import dtypes
>>> dtypes.result_type("bfloat16", 2), dtypes.canonicalize_dtype("float64")
(dtype(bfloat16), dtype('float32'))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

import ml_dtypes

from tracefx.core import dtypes as core
from tracefx.core.dtypes import float0
from tracefx.errors import TypePromotionError
from tracefx.numpy.dtype_routines import (
    extended,
    finfo,
    iinfo,
    issubdtype,
    lattice_result_type,
    prng_key,
    resolve_dtype,
)
from tracefx.numpy.operand_promotion import python_scalar_type

if TYPE_CHECKING:
    from tracefx.core.array import ArrayLike
    from tracefx.core.dtypes import DType, DTypeLike

__all__ = [
    "TypePromotionError",
    "bfloat16",
    "canonicalize_dtype",
    "extended",
    "finfo",
    "float0",
    "iinfo",
    "issubdtype",
    "itemsize_bits",
    "prng_key",
    "result_type",
    "scalar_type_of",
]

bfloat16 = ml_dtypes.bfloat16


def canonicalize_dtype(dtype: DTypeLike | None, allow_extended_dtype: bool = False) -> DType:
    """The dtype that NumPy arrays of a dtype take when they come in: 64 bits become 32, unless `enable_x64` is on.

    None means float64 before that, as in NumPy.

    >>> canonicalize_dtype("int64"), canonicalize_dtype("bfloat16")
    (dtype('int32'), dtype(bfloat16))
    """
    del allow_extended_dtype  # random keys have dtypes as numbers do
    return core.canonicalize(core.as_dtype(core.float64 if dtype is None else dtype, "canonicalize_dtype: dtype"))


def itemsize_bits(dtype: DTypeLike) -> int:
    """The bits of one element where elements are packed.

    >>> itemsize_bits("int4"), itemsize_bits("complex64")
    (4, 64)
    """
    return core.itemsize_bits(resolve_dtype(dtype, "itemsize_bits: dtype")[0])


@overload
def result_type(*args: ArrayLike | DTypeLike | None, return_weak_type_flag: Literal[False] = ...) -> DType: ...
@overload
def result_type(*args: ArrayLike | DTypeLike | None, return_weak_type_flag: Literal[True]) -> tuple[DType, bool]: ...
def result_type(*args: ArrayLike | DTypeLike | None, return_weak_type_flag: bool = False) -> DType | tuple[DType, bool]:
    """The dtype in which the arguments, arrays or dtypes, meet; and, if that is asked for, whether it is weak.

    >>> result_type(1, 2.5, return_weak_type_flag=True)
    (dtype('float32'), True)
    """
    found = lattice_result_type(*args)
    return found if return_weak_type_flag else found[0]


def scalar_type_of(x: ArrayLike | DTypeLike) -> type[bool] | type[int] | type[float] | type[complex]:
    """The type of Python numbers that the elements of an array, or of a dtype, are.

    >>> scalar_type_of("bfloat16"), scalar_type_of(True)
    (<class 'float'>, <class 'bool'>)
    """
    return python_scalar_type(resolve_dtype(x, "scalar_type_of: x")[0])
