"""Conversion between random keys and the 32-bit words that represent them, along a trailing axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from tracefx.core import dtypes
from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import DType, NDArray


def key_data_aval(aval: ShapedArray) -> ShapedArray:
    """Returns the aval of the words of keys with this aval; any other aval unchanged.

    >>> key_data_aval(ShapedArray((3,), dtypes.key_fry))
    u32[3,2]
    """
    if not dtypes.is_key(aval.dtype):
        return aval
    return ShapedArray((*aval.shape, dtypes.key_data_size(aval.dtype)), dtypes.uint32)


def to_key_data(array: NDArray) -> NDArray:
    """Returns the words of keys; any other array unchanged."""
    if not dtypes.is_key(array.dtype):
        return array
    (generator,) = array.dtype.names or ()
    words: NDArray = cast("npt.NDArray[np.void]", array)[generator]
    return words


def from_key_data(array: NDArray, dtype: DType) -> NDArray:
    """Returns keys of a dtype from their words; the array unchanged if `dtype` is not a key dtype."""
    if not dtypes.is_key(dtype):
        return array
    return np.ascontiguousarray(array).view(dtype).reshape(array.shape[:-1])


def on_key_data(function: Callable[..., Sequence[NDArray]], takes: Sequence[DType]) -> Callable[..., list[NDArray]]:
    """Wraps a function of arrays with these dtypes, so that keys are passed and returned as words."""

    def called(*arrays: NDArray) -> list[NDArray]:
        operands = [from_key_data(array, dtype) for array, dtype in zip(arrays, takes, strict=True)]
        return [to_key_data(out) for out in function(*operands)]

    return called
