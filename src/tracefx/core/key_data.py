"""Random keys and the words that they are made of, which are along one more axis at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from tracefx.core import dtypes
from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import DType, NDArray


def key_data_aval(aval: ShapedArray) -> ShapedArray:
    """The type of the words of keys of this type; any other type itself.

    >>> key_data_aval(ShapedArray((3,), dtypes.key_fry))
    u32[3,2]
    """
    if not dtypes.is_key(aval.dtype):
        return aval
    return ShapedArray((*aval.shape, dtypes.key_data_size(aval.dtype)), dtypes.uint32)


def to_key_data(array: NDArray) -> NDArray:
    """The words of keys; any other array itself."""
    if not dtypes.is_key(array.dtype):
        return array
    (generator,) = array.dtype.names or ()
    found: NDArray = cast("npt.NDArray[np.void]", array)[generator]
    return found


def from_key_data(array: NDArray, dtype: DType) -> NDArray:
    """Keys of a dtype from their words; any other array itself, if `dtype` is none of keys."""
    if not dtypes.is_key(dtype):
        return array
    return np.ascontiguousarray(array).view(dtype).reshape(array.shape[:-1])


def on_key_data(function: Callable[..., Sequence[NDArray]], takes: Sequence[DType]) -> Callable[..., list[NDArray]]:
    """A function of arrays of these dtypes, as one in whose arguments and results random keys are words."""

    def called(*arrays: NDArray) -> list[NDArray]:
        given = [from_key_data(array, dtype) for array, dtype in zip(arrays, takes, strict=True)]
        return [to_key_data(out) for out in function(*given)]

    return called
