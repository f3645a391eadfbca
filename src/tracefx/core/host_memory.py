"""Host memory: its total size, and arrays that XLA can use without a copy."""

from __future__ import annotations

import functools
import math
import os
import sys
from typing import Final

import numpy as np

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
