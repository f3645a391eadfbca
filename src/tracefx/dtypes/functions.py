"""Functions of dtypes: canonical dtypes, sizes, promotion, and the types of Python numbers."""

from __future__ import annotations

from typing import Literal, overload

import ml_dtypes

from tracefx.core import ArrayLike, DType, DTypeLike
from tracefx.core import dtypes as core
from tracefx.numpy.dtype_routines import lattice_result_type, resolve_dtype
from tracefx.numpy.operand_promotion import python_scalar_type

bfloat16 = ml_dtypes.bfloat16


def canonicalize_dtype(dtype: DTypeLike | None, allow_extended_dtype: bool = False) -> DType:
    """Returns the dtype that arrays of a dtype get on input: 32 bits instead of 64, unless `enable_x64` is set.

    Args:
        dtype: A dtype or its name. None means float64, as in NumPy.
        allow_extended_dtype: Accepted for compatibility with JAX, without effect: dtypes of random keys are always
            allowed.

    Returns:
        The dtype, a NumPy `dtype`.

    Raises:
        TypeError: If `dtype` is not a dtype.

    >>> canonicalize_dtype("int64"), canonicalize_dtype("bfloat16")
    (dtype('int32'), dtype(bfloat16))
    """
    del allow_extended_dtype
    return core.canonicalize(core.as_dtype(core.float64 if dtype is None else dtype, "canonicalize_dtype: dtype"))


def itemsize_bits(dtype: DTypeLike) -> int:
    """Returns the number of bits of one element, in packed memory.

    Args:
        dtype: A dtype or its name.

    Returns:
        The number of bits: 4 for `int4`, although a NumPy array of this dtype takes a byte per element.

    Raises:
        TypeError: If `dtype` is not a dtype.

    >>> itemsize_bits("int4"), itemsize_bits("complex64")
    (4, 64)
    """
    return core.itemsize_bits(resolve_dtype(dtype, "itemsize_bits: dtype")[0])


@overload
def result_type(*args: ArrayLike | DTypeLike | None, return_weak_type_flag: Literal[False] = ...) -> DType: ...
@overload
def result_type(*args: ArrayLike | DTypeLike | None, return_weak_type_flag: Literal[True]) -> tuple[DType, bool]: ...
def result_type(*args: ArrayLike | DTypeLike | None, return_weak_type_flag: bool = False) -> DType | tuple[DType, bool]:
    """Returns the dtype to which the arguments are promoted as operands of one operation.

    Args:
        *args: Arrays, numbers, dtypes or names of dtypes.
        return_weak_type_flag: Whether the result is a pair of the dtype and of whether it is weak. False by default.

    Returns:
        The dtype, or a pair `(dtype, is_weak)` with `return_weak_type_flag`.

    Raises:
        TypePromotionError: If the dtypes have no common dtype. It is a TypeError and a ValueError.

    >>> result_type(1, 2.5, return_weak_type_flag=True)
    (dtype('float32'), True)
    """
    result = lattice_result_type(*args)
    return result if return_weak_type_flag else result[0]


def scalar_type_of(x: ArrayLike | DTypeLike) -> type[bool] | type[int] | type[float] | type[complex]:
    """Returns the type of Python numbers that corresponds to a dtype: `bool`, `int`, `float` or `complex`.

    Args:
        x: An array, a number, a dtype, or its name.

    Returns:
        The type.

    Raises:
        TypeError: If `x` is neither an array nor a dtype.

    >>> scalar_type_of("bfloat16"), scalar_type_of(True)
    (<class 'float'>, <class 'bool'>)
    """
    return python_scalar_type(resolve_dtype(x, "scalar_type_of: x")[0])
