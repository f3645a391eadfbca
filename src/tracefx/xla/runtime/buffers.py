"""Buffers: transfer from and to host memory, and DLPack in both directions."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, cast, final

import ml_dtypes
import numpy as np
from jaxlib.mlir import ir

from tracefx.bounded_cache import memoize
from tracefx.core.device import SupportsDLPack
from tracefx.core.host_memory import ALIGNMENT, data_address
from tracefx.core.key_data import to_key_data
from tracefx.errors import ExecutionError
from tracefx.xla.runtime import bindings
from tracefx.xla.runtime.executables import Executable, compile_module
from tracefx.xla.runtime.mlir import add_function, create, new_module, tensor_type, unknown_location
from tracefx.xla.runtime.platforms import HOST, client, devices, lowering_platform

if TYPE_CHECKING:
    from typing_extensions import CapsuleType


def buffer_from_numpy(array: bindings.AnyArray, device: bindings.Device, *, copy: bool = False) -> bindings.Buffer:
    """Creates a buffer from an array of any strides, byte order and size.

    With `copy=False` the buffer borrows the array's memory if XLA can use it in place (C-contiguous and aligned to 64
    bytes, as `aligned_empty` makes it), and keeps the array alive as long as the buffer; otherwise it is copied,
    possibly after the call returns. In both cases nobody may write to the array any more. With `copy=True` the array
    is copied before the call returns, so the caller may change it afterwards.

    Raises:
        TypeError: if XLA does not support the dtype (objects, strings, `float0`).

    >>> from tracefx.xla.runtime.platforms import devices
    >>> buffer_to_numpy(buffer_from_numpy(np.arange(3, dtype=np.int32), devices()[0]))
    array([0, 1, 2], dtype=int32)
    """
    array = to_key_data(array)
    dtype = array.dtype
    if not dtype.isnative:
        dtype = dtype.newbyteorder("=")
        array = array.astype(dtype)
    sharding = bindings.pjrt_single_device_sharding(device)
    semantics = bindings.COPY_NOW if copy else bindings.BORROW
    try:
        return bindings.single_device_put(
            bindings.ArraySpec(array.shape, dtype),
            sharding,
            (array,),
            sharding.device_sequence,
            True,
            copy,
            semantics,
            True,
        )
    except bindings.JaxRuntimeError as error:
        bindings.require_xla_dtype(dtype)
        raise ExecutionError(str(error)) from error


def device_of(buffer: bindings.Buffer) -> bindings.Device:
    """Returns the device of a buffer."""
    return buffer._sharding.device


def buffer_to_numpy(buffer: bindings.Buffer) -> bindings.AnyArray:
    """Waits for a buffer's values and returns them as a read-only array.

    The array views the buffer's memory and keeps it alive. It is a copy for dtypes of less than 8 bits, and for memory
    of devices other than the host.

    Raises:
        DeletedArrayError: if the buffer was deleted or donated.
        ExecutionError: if the program that computes the buffer failed.
    """
    spec = buffer.aval
    dtype = spec.dtype
    if device_of(buffer).platform != HOST:
        return copy_to_host(buffer)
    try:
        # If a program ran out of memory, only this fails; reading such a buffer makes jaxlib abort the process.
        buffer.block_until_ready()
        if dtype in bindings.READ_DIRECTLY:
            # A memoryview, because NumPy would take an error of the buffer for "not a buffer" and try other protocols.
            return np.asarray(memoryview(buffer))
        if dtype in bindings.READ_AS_BITS:
            return _from_capsule(bindings.buffer_to_dlpack(buffer)).view(dtype)
    except (BufferError, bindings.JaxRuntimeError) as error:
        _raise_read_error(buffer, error)
    values = buffer_to_numpy(_widening_program(spec, device_of(buffer)).execute([buffer])[0]).astype(dtype)
    values.flags.writeable = False
    return values


def copy_to_host(buffer: bindings.Buffer) -> bindings.AnyArray:
    """Like `buffer_to_numpy`, for a buffer in another device's memory (for host buffers it works, but is slower).

    jaxlib imports jax for this, which the device's plug-in has done already.
    """
    try:
        values, _ = buffer._single_device_array_to_np_array_did_copy()
    except (RuntimeError, bindings.JaxRuntimeError) as error:
        _raise_read_error(buffer, error)
    values.flags.writeable = False
    return values


def _raise_read_error(buffer: bindings.Buffer, error: Exception) -> NoReturn:
    """Raises an error of ours for one of XLA while a buffer is read."""
    if buffer.is_deleted():
        raise bindings.deleted_error(buffer) from None
    spec = buffer.aval
    if not isinstance(spec, bindings.ResultSpec):
        raise ExecutionError(str(error)) from error
    raise ExecutionError(f"the compiled {spec.program} failed, or a program whose results it took: {error}") from error


@memoize(256)
def _widening_program(spec: bindings.ArraySpec, device: bindings.Device) -> Executable:
    module = new_module("widen")
    source, target = tensor_type(spec.shape, spec.dtype), tensor_type(spec.shape, bindings.READ_WIDENED[spec.dtype])
    with unknown_location():
        block = add_function(module, "main", [source], [target])
        with ir.InsertionPoint(block):
            wide = create("stablehlo.convert", [target], [block.arguments[0]])
            create("func.return", (), [wide.result])
    return compile_module(module, device=device)


def block_until_ready(buffer: bindings.Buffer) -> None:
    """Waits until a buffer's values are computed; raises `ExecutionError` if the program that computes them failed."""
    try:
        buffer.block_until_ready()
    except bindings.JaxRuntimeError as error:
        _raise_read_error(buffer, error)


def block_until_all_ready(buffers: Sequence[bindings.Buffer]) -> None:
    """Waits for several buffers like `block_until_ready`, with a single call."""
    try:
        bindings.wait_for_all(buffers)
    except bindings.JaxRuntimeError:
        for buffer in buffers:  # the error does not say which buffer failed
            block_until_ready(buffer)
        raise


def is_ready(buffer: bindings.Buffer) -> bool:
    """Whether a buffer's values are computed, or their computation has failed."""
    if buffer.is_deleted():  # is_ready of a deleted buffer would abort the process
        raise bindings.deleted_error(buffer)
    return buffer.is_ready()


def pending(buffer: bindings.Buffer) -> bindings.Buffer | None:
    """Returns None if a buffer's values are computed; otherwise a clone, which deleting the buffer does not delete.

    The caller must ensure that the buffer is not deleted.
    """
    return None if buffer.is_ready() else buffer.clone()


def is_deleted(buffer: bindings.Buffer) -> bool:
    """Whether a buffer was deleted or donated to a program."""
    return buffer.is_deleted()


def delete_buffer(buffer: bindings.Buffer) -> None:
    """Frees a buffer's memory as soon as no running program and no view uses it."""
    buffer.delete()


_DLPACK_CPU: Final = 1
_DLPACK_DEVICES: Final[Mapping[str, int]] = MappingProxyType({"cpu": _DLPACK_CPU, "cuda": 2, "rocm": 10})
_DLPACK_HOST_DEVICES: Final = frozenset({1, 3, 11})  # the last two are host memory pinned by CUDA and ROCm
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
# The offset of the dtype code in a capsule: after the data pointer, the device and the rank of the tensor, which comes
# first in an unversioned capsule, and after the version, two pointers and the flags in a versioned one.
_DLPACK_OFFSET: Final = {b"dltensor": 20, b"dltensor_versioned": 52}
_capsule_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class _SupportsDLPackStream(Protocol):
    """An array on a GPU, which takes the stream that the consumer reads on."""

    def __dlpack__(self, *, stream: int | None) -> CapsuleType: ...


@final
class _Capsule:
    """Passes an existing capsule to NumPy."""

    __slots__ = ("capsule",)

    def __init__(self, capsule: CapsuleType) -> None:
        self.capsule = capsule

    def __dlpack__(self, **_: object) -> CapsuleType:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _DLPACK_CPU, 0


def _from_capsule(capsule: CapsuleType) -> bindings.AnyArray:
    """Consumes a capsule in host memory and returns NumPy's view; bfloat16 and float8 dtypes are preserved."""
    name: bytes = _capsule_name(capsule)
    if name not in _DLPACK_OFFSET:
        raise ValueError(f"a DLPack capsule named {name!r} cannot be read: it was consumed before; ask for a new one")
    code = ctypes.c_uint8.from_address(_capsule_pointer(capsule, name) + _DLPACK_OFFSET[name])
    dtype = _DLPACK_FLOATS.get(code.value)
    if dtype is not None:
        code.value = _DLPACK_UINT  # the memory is the same, and NumPy reads unsigned integers
    array: bindings.AnyArray = np.from_dlpack(_Capsule(capsule))
    return array if dtype is None else array.view(dtype)


def to_dlpack(buffer: bindings.Buffer, stream: int | None = None) -> CapsuleType:
    """Returns a DLPack capsule that shares the buffer's memory; its consumer keeps the memory alive.

    DLPack capsules of this version have no read-only flag: do not write to the memory. A consumer on a GPU passes the
    `stream` that it reads on; without one, this waits for the values.

    Raises:
        BufferError: for dtypes that DLPack does not support (those of less than 8 bits).
    """
    uses_stream = stream is not None and device_of(buffer).platform != HOST
    if not uses_stream:
        block_until_ready(buffer)
    if buffer.aval.dtype in bindings.READ_WIDENED:
        raise BufferError(f"{buffer.aval!r} cannot be exported with DLPack: convert it to a dtype of 8 bits or more")
    return bindings.buffer_to_dlpack(buffer, stream=stream) if uses_stream else bindings.buffer_to_dlpack(buffer)


def dlpack_device(device: bindings.Device) -> tuple[int, int]:
    """Returns DLPack's device type and device id of a device.

    Raises:
        BufferError: for a platform that DLPack does not support.
    """
    platform = lowering_platform(device)
    if platform not in _DLPACK_DEVICES:
        raise BufferError(f"DLPack does not support memory of platform {platform!r}: move the array to the host first")
    return _DLPACK_DEVICES[platform], 0 if platform == HOST else device.local_hardware_id or 0


def view_dlpack(external: SupportsDLPack) -> bindings.AnyArray:
    """Returns NumPy's view of another library's array in host memory; the view keeps the array alive.

    Raises:
        BufferError: if the array is not in host memory.
    """
    device_type = external.__dlpack_device__()[0]
    if device_type not in _DLPACK_HOST_DEVICES:
        raise BufferError(f"the array must be in host memory, but is on DLPack device type {int(device_type)}")
    # NumPy refuses to export read-only arrays of its own without a version; they can be used directly.
    return external if isinstance(external, np.ndarray) else _from_capsule(external.__dlpack__())


def from_dlpack(
    external: SupportsDLPack, device: bindings.Device | None = None, *, copy: bool | None = None
) -> bindings.Buffer:
    """Creates a buffer from another library's array, on the array's device, or on `device` for arrays in host memory.

    `copy=False` shares the memory, and the other library must not write to it any more; `copy=True` copies before the
    call returns; `copy=None` shares where possible. The buffer keeps a shared array alive.

    Raises:
        BufferError: if the array is on another device than `device`, or if `copy=False` and XLA cannot use the memory
            in place.
    """
    device_type, index = (int(n) for n in external.__dlpack_device__())
    if device_type not in _DLPACK_HOST_DEVICES:
        return _from_device(external, device_type, index, device, copy)
    array = view_dlpack(external)
    if copy is False and not (array.flags.c_contiguous and data_address(array) % ALIGNMENT == 0):
        raise BufferError(
            f"memory at {data_address(array):#x} with strides {array.strides} cannot be shared without a copy: XLA "
            f"needs C-contiguous memory aligned to {ALIGNMENT} bytes; pass copy=None or copy=True"
        )
    return buffer_from_numpy(array, devices()[0] if device is None else device, copy=copy is True)


def _from_device(
    external: SupportsDLPack, device_type: int, index: int, device: bindings.Device | None, copy: bool | None
) -> bindings.Buffer:
    platforms = [name for name, number in _DLPACK_DEVICES.items() if number == device_type]
    if not platforms:
        raise BufferError(
            f"from_dlpack does not support DLPack device type {device_type}: move the array to the host first"
        )
    source_device = client(platforms[0]).device_from_local_hardware_id(index)
    if device is not None and device is not source_device:
        raise BufferError(
            f"from_dlpack: the array is on {source_device}, not on {device}: import it there, then move it"
        )
    stream = None
    with suppress(bindings.JaxRuntimeError):  # raised by plug-ins without streams
        stream = source_device.get_stream_for_external_ready_events()
    try:
        buffer = bindings.dlpack_to_buffer(
            cast(_SupportsDLPackStream, external).__dlpack__(stream=stream), source_device, stream, copy
        )
        return buffer._rewrap_with_aval_and_sharding(
            bindings.ArraySpec(buffer.aval.shape, buffer.aval.dtype),
            bindings.pjrt_single_device_sharding(source_device),
        )
    except bindings.JaxRuntimeError as error:
        raise BufferError(f"from_dlpack: {error}") from error
