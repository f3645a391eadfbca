"""Host memory: its total size, and arrays that XLA can use without a copy."""

from __future__ import annotations

import functools
import math
import os
import sys
import weakref
from typing import Final

import numpy as np

from tracefx.bounded_cache import BoundedCache
from tracefx.core.dtypes import DType, NDArray
from tracefx.core.kernel_context import call_kernel

ALIGNMENT: Final = 64  # bytes; XLA uses host memory with this alignment without a copy
_WORTH_ALIGNING: Final = 1 << 16  # bytes
_WORTH_CHECKING: Final = 1 << 30  # bytes


@functools.cache
def total_memory() -> int:
    """Returns the size of this machine's memory in bytes, `sys.maxsize` if it is unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return sys.maxsize


def require_memory(what: str, shape: tuple[int, ...], dtype: DType) -> None:
    """Raises `MemoryError` for an array larger than this machine's memory.

    NumPy raises it where it allocates. But broadcast views allocate nothing, and kernels on them would run for hours.
    """
    size = math.prod(shape) * dtype.itemsize
    if size > _WORTH_CHECKING and size > total_memory():
        raise MemoryError(
            f"{what}: an array of shape {shape} and dtype {dtype} has {size / 2**30:,.1f} GiB; this machine has "
            f"{total_memory() / 2**30:,.1f} GiB of memory"
        )


def aligned_empty(shape: tuple[int, ...], dtype: DType) -> NDArray:
    """Returns a writable C-contiguous array with uninitialised elements, whose memory XLA can use without a copy.

    >>> aligned_empty((2, 3), np.dtype(np.float32)).ctypes.data % 64
    0
    """
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -data_address(memory) % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def data_address(array: NDArray) -> int:
    """Returns the address of the first element."""
    address: int = array.__array_interface__["data"][0]
    return address


def _convert(x: NDArray, dtype: DType) -> NDArray:
    return np.array(x, dtype, order="C", copy=True)


def _fill(out: NDArray, x: NDArray) -> None:
    np.copyto(out, x, casting="unsafe")


def read_only_copy(x: NDArray, dtype: DType) -> NDArray:
    """Returns a read-only copy converted to `dtype`, aligned for XLA if it is large."""
    if x.nbytes < _WORTH_ALIGNING:
        copy = call_kernel(_convert, x, dtype)
    else:
        copy = aligned_empty(x.shape, dtype)
        call_kernel(_fill, copy, x)
    copy.flags.writeable = False
    return copy


_COPIES: Final[BoundedCache[int, weakref.ref[NDArray]]] = BoundedCache(64)
"""The latest copies of large arrays, by the identities of the arrays that were copied."""
_COMPARED: Final = 1 << 15  # words that are compared at a time, so that the first difference ends the comparison


def shared_read_only_copy(x: NDArray) -> NDArray:
    """Returns a read-only copy of `x`, for a large array the previous one if it is in use and has equal elements."""
    if x.nbytes < _WORTH_ALIGNING or not x.flags.c_contiguous:
        return read_only_copy(x, x.dtype)
    known = _COPIES.get(id(x))
    copy = None if known is None else known()
    if copy is None or copy.shape != x.shape or copy.dtype != x.dtype or not _equal_bits(copy, x):
        copy = read_only_copy(x, x.dtype)
        _COPIES.replace(id(x), weakref.ref(copy))
    return copy


def _equal_bits(x: NDArray, y: NDArray) -> bool:
    """Whether two contiguous arrays of the same size and dtype have equal bits."""
    word = np.uint64 if x.nbytes % 8 == 0 else np.uint8
    a, b = x.reshape(-1).view(word), y.reshape(-1).view(word)
    return all(np.array_equal(a[i : i + _COMPARED], b[i : i + _COMPARED]) for i in range(0, len(a), _COMPARED))
