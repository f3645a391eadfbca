"""Import and export of arrays: other libraries, buffers, text, files; arrays from functions of indices."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import IO, Any, Final, NoReturn

import numpy as np

from tracefx.core import Array, ConcreteArray, DTypeLike, ShapedArray, dtypes
from tracefx.core.backend import BACKEND
from tracefx.core.device import Device
from tracefx.numpy.creation import asarray
from tracefx.numpy.ranges import arange
from tracefx.numpy.shapes import ShapeLike, sizes_of
from tracefx.transforms.vmap import vmap

_IN_HOST_MEMORY: Final = frozenset({1, 3, 11})  # DLPack device types; the last two are pinned memory
save: Final = np.save
savez: Final = np.savez


def load(file: IO[bytes] | str | os.PathLike[str], *args: Any, **kwargs: Any) -> Any:
    """Loads the array that `save` wrote to a file, keeping its dtype.

    Args:
        file: A binary file, or a path.
        *args: Further positional arguments of `numpy.load`.
        **kwargs: Keyword arguments of `numpy.load`.

    Returns:
        The array; for an archive that `savez` wrote, NumPy's archive object.

    >>> import io
    >>> file = io.BytesIO()
    >>> save(file, np.arange(3))
    >>> _ = file.seek(0)
    >>> load(file)
    Array([0, 1, 2], dtype=int64)
    """
    loaded = np.load(file, *args, **kwargs)
    if not isinstance(loaded, np.ndarray):
        return loaded
    if loaded.dtype == np.dtype("V2"):  # how NumPy reads bfloat16, which it does not support
        loaded = loaded.view(dtypes.bfloat16)
    return asarray(loaded, loaded.dtype)


def frombuffer(buffer: Any, dtype: DTypeLike = float, count: int = -1, offset: int = 0) -> Array:
    """Interprets bytes as a vector.

    Args:
        buffer: An object with the buffer protocol.
        dtype: The dtype of the elements.
        count: How many elements to read; -1 means all.
        offset: The position of the first byte.

    Returns:
        A vector.

    Raises:
        ValueError: If the buffer is too short or its size does not fit.

    >>> frombuffer(b"\\x01\\x00\\x02\\x00", "int16")
    Array([1, 2], dtype=int16)
    """
    return asarray(np.frombuffer(buffer, _numpy(dtype), count, offset))


def fromstring(string: str, dtype: DTypeLike = float, count: int = -1, *, sep: str) -> Array:
    """Parses the numbers in a string.

    Args:
        string: The text.
        dtype: The dtype of the result.
        count: How many numbers to read; -1 means all.
        sep: The separator between numbers.

    Returns:
        A vector.

    >>> fromstring("1, 2", "int32", sep=",")
    Array([1, 2], dtype=int32)
    """
    return asarray(np.fromstring(string, _numpy(dtype), count, sep=sep))


def _numpy(dtype: DTypeLike) -> Any:
    return float if dtype is float else int if dtype is int else dtypes.as_dtype(dtype)


def fromfile(*args: object, **kwargs: object) -> NoReturn:
    """Raises NotImplementedError: reading a file is not a pure function.

    Args:
        *args: Ignored.
        **kwargs: Ignored.

    Raises:
        NotImplementedError: Always; `asarray(numpy.fromfile(...))` reads a file.

    >>> fromfile("data.bin")
    Traceback (most recent call last):
        ...
    NotImplementedError: ...
    """
    raise NotImplementedError("fromfile would read the file while tracing: use numpy.fromfile, then asarray")


def fromiter(*args: object, **kwargs: object) -> NoReturn:
    """Raises NotImplementedError: the first trace would exhaust the iterator.

    Args:
        *args: Ignored.
        **kwargs: Ignored.

    Raises:
        NotImplementedError: Always; `asarray(list(iterable))` reads an iterator.

    >>> fromiter(iter([1, 2]))
    Traceback (most recent call last):
        ...
    NotImplementedError: ...
    """
    raise NotImplementedError("fromiter would exhaust the iterator while tracing: use numpy.fromiter, then asarray")


def fromfunction(function: Callable[..., Array], shape: ShapeLike, *, dtype: DTypeLike = float, **kwargs: Any) -> Array:
    """Creates an array by evaluating a function at all indices.

    Args:
        function: A function of one scalar index per axis, which is mapped over the indices with `vmap`.
        shape: The shape of the grid of indices.
        dtype: The dtype of the indices.
        **kwargs: Further keyword arguments of the function.

    Returns:
        The results, with the axes of the grid first.

    >>> fromfunction(lambda i, j: 10 * i + j, (2, 3), dtype=int).tolist()
    [[0, 1, 2], [10, 11, 12]]
    """
    sizes = sizes_of("fromfunction", shape)
    mapped: Callable[..., Array] = functools.partial(function, **kwargs) if kwargs else function
    for i in range(len(sizes)):
        mapped = vmap(mapped, tuple([0 if i == j else None for j in range(len(sizes))][::-1]))
    return mapped(*[arange(n, dtype=dtype) for n in sizes])


def from_dlpack(x: Any, /, *, device: Device | None = None, copy: bool | None = None) -> Array:
    """Imports an array of another library through the DLPack protocol.

    Without a copy the memory is shared, and must not be written to afterwards.

    Args:
        x: An array with the DLPack protocol.
        device: The device of the result; None means that of `x`.
        copy: True copies always; None only if `device` is given and XLA cannot use the memory as it is laid out; with
            False that is a BufferError.

    Returns:
        An array with the elements of `x`.

    Raises:
        BufferError: If `copy` is False and a copy is necessary.

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
    data = BACKEND.value.read(buffer)
    return ConcreteArray(ShapedArray(data.shape, data.dtype), None, buffer)
