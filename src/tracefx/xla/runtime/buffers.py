"""Buffers: host memory in, host memory out, DLPack both ways."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol, cast, final

import ml_dtypes
import numpy as np
from jaxlib.mlir import ir

from tracefx.core.host_memory import ALIGNMENT, data_address
from tracefx.core.key_data import to_key_data
from tracefx.xla.runtime.bindings import (
    BORROW,
    COPY_NOW,
    READ_AS_BITS,
    READ_DIRECTLY,
    READ_WIDENED,
    AnyArray,
    ArraySpec,
    Buffer,
    Device,
    ExecutionError,
    JaxRuntimeError,
    ResultSpec,
    buffer_to_dlpack,
    deleted_error,
    dlpack_to_buffer,
    pjrt_single_device_sharding,
    require_xla_dtype,
    single_device_put,
    wait_for_all,
)
from tracefx.xla.runtime.executables import Executable, compile_module
from tracefx.xla.runtime.mlir import add_function, create, new_module, tensor_type, unknown_location
from tracefx.xla.runtime.platforms import HOST, client, devices, lowering_platform

if TYPE_CHECKING:
    from typing_extensions import CapsuleType


def buffer_from_numpy(array: AnyArray, device: Device, *, copy: bool = False) -> Buffer:
    """An array on a device.

    With `copy=False` the buffer borrows the array's memory where XLA can use it as it lies (C-contiguous, 64-byte
    aligned, as `aligned_empty` makes it), and holds on to the array until the buffer is gone; else it copies, possibly
    after this call returned. Either way nobody may write to the array any more. With `copy=True` the array is copied
    before the call returns and is the caller's again.

    Any strides, byte order and size are fine.

    Raises:
        TypeError: if XLA has no such dtype (objects, strings, `float0`).

    >>> from tracefx.xla.runtime import devices
    >>> buffer_to_numpy(buffer_from_numpy(np.arange(3, dtype=np.int32), devices()[0]))
    array([0, 1, 2], dtype=int32)
    """
    array = to_key_data(array)
    dtype = array.dtype
    if not dtype.isnative:
        dtype = dtype.newbyteorder("=")
        array = array.astype(dtype)
    where = pjrt_single_device_sharding(device)
    semantics = COPY_NOW if copy else BORROW
    try:
        return single_device_put(
            ArraySpec(array.shape, dtype), where, (array,), where.device_sequence, True, copy, semantics, True
        )
    except JaxRuntimeError as error:
        require_xla_dtype(dtype)
        raise ExecutionError(str(error)) from error


def device_of(buffer: Buffer) -> Device:
    """The device that a buffer is on."""
    return buffer._sharding.device


def buffer_to_numpy(buffer: Buffer) -> AnyArray:
    """A read-only array of a buffer's values, waiting for them.

    It views the buffer's memory and keeps it alive, except for the dtypes of less than 8 bits, which are copied, as is
    the memory of devices that are not the host's.

    Raises:
        DeletedBufferError: if the buffer was deleted or donated.
        ExecutionError: if the program that computes the buffer failed.
    """
    spec = buffer.aval
    dtype = spec.dtype
    if device_of(buffer).platform != HOST:
        return copy_to_host(buffer)
    try:
        # A program that ran out of memory fails only here; jaxlib ends the process if such a buffer is read.
        buffer.block_until_ready()
        if dtype in READ_DIRECTLY:
            # A memoryview, not the buffer itself: NumPy would take an error for "not a buffer" and look further.
            return np.asarray(memoryview(buffer))
        if dtype in READ_AS_BITS:
            return _from_capsule(buffer_to_dlpack(buffer)).view(dtype)
    except (BufferError, JaxRuntimeError) as error:
        raise _read_error(buffer, error) from error
    values = buffer_to_numpy(_widening_program(spec, device_of(buffer)).execute([buffer])[0]).astype(dtype)
    values.flags.writeable = False
    return values


def copy_to_host(buffer: Buffer) -> AnyArray:
    """`buffer_to_numpy` of a buffer in the memory of another device; of one in the host's it is `buffer_to_numpy`,
    too, but slower.

    jaxlib has jax imported for this, which the device's plug-in has done already.
    """
    try:
        values, _ = buffer._single_device_array_to_np_array_did_copy()
    except (RuntimeError, JaxRuntimeError) as error:
        raise _read_error(buffer, error) from error
    values.flags.writeable = False
    return values


def _read_error(buffer: Buffer, error: Exception) -> ExecutionError:
    if buffer.is_deleted():
        return deleted_error(buffer)
    spec = buffer.aval
    if not isinstance(spec, ResultSpec):
        return ExecutionError(str(error))
    return ExecutionError(f"the compiled {spec.program} failed, or a program whose results it took: {error}")


@functools.lru_cache(maxsize=256)
def _widening_program(spec: ArraySpec, device: Device) -> Executable:
    module = new_module("widen")
    source, target = tensor_type(spec.shape, spec.dtype), tensor_type(spec.shape, READ_WIDENED[spec.dtype])
    with unknown_location():
        block = add_function(module, "main", [source], [target])
        with ir.InsertionPoint(block):
            wide = create("stablehlo.convert", [target], [block.arguments[0]])
            create("func.return", (), [wide.result])
    return compile_module(module, device=device)


def block_until_ready(buffer: Buffer) -> None:
    """Waits until a buffer's values are there; raises `ExecutionError` if the program that computes them failed."""
    try:
        buffer.block_until_ready()
    except JaxRuntimeError as error:
        raise _read_error(buffer, error) from error


def block_until_all_ready(buffers: Sequence[Buffer]) -> None:
    """Waits as `block_until_ready` does, at once for all."""
    try:
        wait_for_all(buffers)
    except JaxRuntimeError:
        for buffer in buffers:  # which doesn't tell whose error it was
            block_until_ready(buffer)
        raise


def is_ready(buffer: Buffer) -> bool:
    """Whether a buffer's values are there (or known to be missing because of an error)."""
    if buffer.is_deleted():  # asking a deleted buffer kills the process
        raise deleted_error(buffer)
    return buffer.is_ready()


def is_deleted(buffer: Buffer) -> bool:
    """Whether a buffer was deleted, or donated to a program."""
    return buffer.is_deleted()


def delete_buffer(buffer: Buffer) -> None:
    """Gives a buffer's memory back now, as soon as no running program and no view of it needs it."""
    buffer.delete()


_DLPACK_CPU: Final = 1
_DLPACK_DEVICES: Final[Mapping[str, int]] = MappingProxyType({"cpu": _DLPACK_CPU, "cuda": 2, "rocm": 10})
_DLPACK_HOST_DEVICES: Final = frozenset({1, 3, 11})  # the last two are host memory that CUDA and ROCm have pinned
_DLPACK_UINT: Final = 1
_DLPACK_FLOATS: Final[dict[int, np.dtype[np.generic]]] = {
    4: np.dtype(ml_dtypes.bfloat16),
    7: np.dtype(ml_dtypes.float8_e3m4),
    8: np.dtype(ml_dtypes.float8_e4m3),
    9: np.dtype(ml_dtypes.float8_e4m3b11fnuz),
    10: np.dtype(ml_dtypes.float8_e4m3fn),
    11: np.dtype(ml_dtypes.float8_e4m3fnuz),
    12: np.dtype(ml_dtypes.float8_e5m2),
    13: np.dtype(ml_dtypes.float8_e5m2fnuz),
    14: np.dtype(ml_dtypes.float8_e8m0fnu),
}
# Where a capsule keeps the code of its dtype: behind the data pointer, the device and the rank of the tensor, which
# comes first in an unversioned capsule, and after the version, two pointers and the flags in a versioned one.
_DLPACK_OFFSET: Final = {b"dltensor": 20, b"dltensor_versioned": 52}
_capsule_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class SupportsDLPack(Protocol):
    """Another library's array, as DLPack's Python protocol has it."""

    def __dlpack__(self) -> CapsuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...


class _SupportsDLPackStream(Protocol):
    """An array on a GPU, which is told on which stream it will be read."""

    def __dlpack__(self, *, stream: int | None) -> CapsuleType: ...


@final
class _Capsule:
    """Hands NumPy a capsule that is there already."""

    __slots__ = ("capsule",)

    def __init__(self, capsule: CapsuleType) -> None:
        self.capsule = capsule

    def __dlpack__(self, **_: object) -> CapsuleType:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _DLPACK_CPU, 0


def _from_capsule(capsule: CapsuleType) -> AnyArray:
    """NumPy's view of a capsule in host memory, which it consumes; bfloat16 and the float8 types keep their dtype."""
    name: bytes = _capsule_name(capsule)
    if name not in _DLPACK_OFFSET:
        raise ValueError(f"a DLPack capsule named {name!r} cannot be read: it was consumed before; ask for a new one")
    code = ctypes.c_uint8.from_address(_capsule_pointer(capsule, name) + _DLPACK_OFFSET[name])
    dtype = _DLPACK_FLOATS.get(code.value)
    if dtype is not None:
        code.value = _DLPACK_UINT  # the memory is the same, and NumPy reads unsigned integers
    array: AnyArray = np.from_dlpack(_Capsule(capsule))
    return array if dtype is None else array.view(dtype)


def to_dlpack(buffer: Buffer, stream: int | None = None) -> CapsuleType:
    """A DLPack capsule of a buffer, which shares its memory; whoever consumes the capsule keeps the memory alive.

    DLPack capsules of this version cannot say "read-only": do not write to the memory. A consumer on a GPU says on
    which `stream` of its it will read; without one the values are waited for.

    Raises:
        BufferError: for dtypes that DLPack does not have (those of less than 8 bits).
    """
    waits = stream is not None and device_of(buffer).platform != HOST
    if not waits:
        block_until_ready(buffer)
    if buffer.aval.dtype in READ_WIDENED:
        raise BufferError(f"{buffer.aval!r} cannot be exported with DLPack: convert it to a dtype of 8 bits or more")
    return buffer_to_dlpack(buffer, stream=stream) if waits else buffer_to_dlpack(buffer)


def dlpack_device(device: Device) -> tuple[int, int]:
    """DLPack's numbers for the kind of a device, and for which it is.

    Raises:
        BufferError: for a platform that DLPack doesn't know.
    """
    platform = lowering_platform(device)
    if platform not in _DLPACK_DEVICES:
        raise BufferError(f"DLPack has no number for memory of platform {platform!r}: move the array to the host first")
    return _DLPACK_DEVICES[platform], 0 if platform == HOST else device.local_hardware_id or 0


def view_dlpack(external: SupportsDLPack) -> AnyArray:
    """NumPy's view of another library's array in host memory, which lives as long as the view.

    Raises:
        BufferError: if the array is not in host memory.
    """
    kind = external.__dlpack_device__()[0]
    if kind not in _DLPACK_HOST_DEVICES:
        raise BufferError(f"this takes arrays in host memory, got one on DLPack device type {int(kind)}")
    # NumPy refuses to export its own read-only arrays without a version; as a NumPy array it needs no exporting.
    return external if isinstance(external, np.ndarray) else _from_capsule(external.__dlpack__())


def from_dlpack(external: SupportsDLPack, device: Device | None = None, *, copy: bool | None = None) -> Buffer:
    """A buffer of another library's array: on the device where that lies, or on this one, if it is in host memory.

    `copy=False` shares the memory, and the other library must not write to it any more; `copy=True` copies before the
    call returns; `copy=None` shares where that is possible. A shared array lives as long as the buffer.

    Raises:
        BufferError: if the array is on another device than that, or `copy=False` and XLA cannot use the memory where it
            lies.
    """
    kind, index = (int(n) for n in external.__dlpack_device__())
    if kind not in _DLPACK_HOST_DEVICES:
        return _from_device(external, kind, index, device, copy)
    array = view_dlpack(external)
    if copy is False and not (array.flags.c_contiguous and data_address(array) % ALIGNMENT == 0):
        raise BufferError(
            f"memory at {data_address(array):#x} with strides {array.strides} cannot be shared without a copy: XLA "
            "needs "
            f"C-contiguous memory aligned to {ALIGNMENT} bytes; pass copy=None or copy=True"
        )
    return buffer_from_numpy(array, devices()[0] if device is None else device, copy=copy is True)


def _from_device(external: SupportsDLPack, kind: int, index: int, device: Device | None, copy: bool | None) -> Buffer:
    platforms = [name for name, number in _DLPACK_DEVICES.items() if number == kind]
    if not platforms:
        raise BufferError(f"from_dlpack knows no devices of DLPack's type {kind}: move the array to the host first")
    there = client(platforms[0]).device_from_local_hardware_id(index)
    if device is not None and device is not there:
        raise BufferError(f"from_dlpack: the array lies on {there}, not on {device}: take it as it lies, then move it")
    stream = None
    with suppress(JaxRuntimeError):  # of plug-ins that have no streams
        stream = there.get_stream_for_external_ready_events()
    try:
        made = dlpack_to_buffer(cast(_SupportsDLPackStream, external).__dlpack__(stream=stream), there, stream, copy)
        return made._rewrap_with_aval_and_sharding(
            ArraySpec(made.aval.shape, made.aval.dtype), pjrt_single_device_sharding(there)
        )
    except JaxRuntimeError as error:
        raise BufferError(f"from_dlpack: {error}") from error
