"""Arrays from elsewhere: other libraries, memory, text, files, functions of indices."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import IO, Any, Final, NoReturn

import numpy as np

from tracefx.core import dtypes
from tracefx.core.array import Array
from tracefx.core.avals import ShapedArray
from tracefx.core.backend import BACKEND
from tracefx.core.device import Device
from tracefx.core.dtypes import DTypeLike
from tracefx.core.values import ConcreteArray
from tracefx.numpy.creation import arange, asarray
from tracefx.numpy.shapes import ShapeLike, sizes_of
from tracefx.transforms.vmap import vmap

_IN_HOST_MEMORY: Final = frozenset({1, 3, 11})  # as DLPack counts kinds of devices; the last two are pinned memory
save: Final = np.save
savez: Final = np.savez


def load(file: IO[bytes] | str | os.PathLike[str], *args: Any, **kwargs: Any) -> Any:
    """The array that `save` wrote to a file, in its dtype; of `savez` NumPy's object, from which arrays are loaded.

    >>> import io
    >>> file = io.BytesIO()
    >>> save(file, np.arange(3))
    >>> _ = file.seek(0)
    >>> load(file)
    Array([0, 1, 2], dtype=int64)
    """
    found = np.load(file, *args, **kwargs)
    if not isinstance(found, np.ndarray):
        return found
    if found.dtype == np.dtype("V2"):  # what NumPy, which doesn't know it, makes of a file of bfloat16
        found = found.view(dtypes.bfloat16)
    return asarray(found, found.dtype)


def frombuffer(buffer: Any, dtype: DTypeLike = float, count: int = -1, offset: int = 0) -> Array:
    """The numbers of a dtype that bytes stand for: `count` of them from byte `offset`. ValueError if they don't fit.

    >>> frombuffer(b"\\x01\\x00\\x02\\x00", "int16")
    Array([1, 2], dtype=int16)
    """
    return asarray(np.frombuffer(buffer, _numpy(dtype), count, offset))


def fromstring(string: str, dtype: DTypeLike = float, count: int = -1, *, sep: str) -> Array:
    """The numbers written in a string, with `sep` between them.

    >>> fromstring("1, 2", "int32", sep=",")
    Array([1, 2], dtype=int32)
    """
    return asarray(np.fromstring(string, _numpy(dtype), count, sep=sep))


def _numpy(dtype: DTypeLike) -> Any:
    return float if dtype is float else int if dtype is int else dtypes.as_dtype(dtype)


def fromfile(*args: object, **kwargs: object) -> NoReturn:
    """Not implemented, since a program that reads a file isn't a function: NotImplementedError."""
    raise NotImplementedError("fromfile reads a file when it is traced: read it with numpy.fromfile, then use asarray")


def fromiter(*args: object, **kwargs: object) -> NoReturn:
    """Not implemented, since an iterator is used up by the first trace: NotImplementedError."""
    raise NotImplementedError("fromiter uses up an iterator when it is traced: use numpy.fromiter, then asarray")


def fromfunction(function: Callable[..., Array], shape: ShapeLike, *, dtype: DTypeLike = float, **kwargs: Any) -> Array:
    """An array of the values of a function of indices, which takes one element's, as scalars of a dtype.

    >>> fromfunction(lambda i, j: 10 * i + j, (2, 3), dtype=int).tolist()
    [[0, 1, 2], [10, 11, 12]]
    """
    sizes = sizes_of("fromfunction", shape)
    mapped: Callable[..., Array] = functools.partial(function, **kwargs) if kwargs else function
    for i in range(len(sizes)):
        mapped = vmap(mapped, tuple([0 if i == j else None for j in range(len(sizes))][::-1]))
    return mapped(*[arange(n, dtype=dtype) for n in sizes])


def from_dlpack(x: Any, /, *, device: Device | None = None, copy: bool | None = None) -> Array:
    """An array of another library, by the DLPack protocol; its memory is shared unless `copy` is true.

    Nobody may write to shared memory any more. With a `device`, memory that XLA can't use as it lies is copied, or a
    BufferError if `copy` is false.

    >>> from_dlpack(np.arange(3))
    Array([0, 1, 2], dtype=int64)
    """
    if isinstance(x, Array) and not copy and device is None:
        return x
    if device is None and x.__dlpack_device__()[0] not in _IN_HOST_MEMORY:
        return BACKEND.value.import_array(x)
    if not copy and device is None:
        host = BACKEND.value.view_dlpack(x)
        if host.dtype.isnative:
            host = host.view()
            host.flags.writeable = False
            return ConcreteArray(
                ShapedArray(host.shape, dtypes.as_dtype(host.dtype, "from_dlpack: the dtype of x")), host
            )
    buffer = BACKEND.value.from_dlpack(x, device, copy)
    found = BACKEND.value.read(buffer)
    return ConcreteArray(ShapedArray(found.shape, found.dtype), None, buffer)
