"""The runtime: PJRT's client, devices, buffers and executables, and the MLIR bindings that StableHLO is built with.

This is the one place that knows jaxlib's unstable names; what leaves it is typed. jax itself is never imported, and
four of jaxlib's methods are avoided because they import it on their own account (they give an array's shape a type of
jax's): `unsafe_buffer_pointer`, `_single_device_array_to_np_array_did_copy`, `disassemble_into_single_device_arrays`
and `dlpack_managed_tensor_to_buffer`. Loading this module loads XLA, so only code that compiles or runs imports it.

**Who owns memory.** A `Buffer` owns its memory, or holds on to the NumPy array whose memory it borrowed (`put`).
An array read from a buffer (`to_numpy`) holds on to the buffer's memory and is read-only; while one is alive XLA
copies instead of reusing a donated buffer. Borrowed memory is never written to either: donating it makes XLA copy.

**When errors come.** A program whose arguments are still being computed, or that is large, runs on another thread.
What goes wrong before `Executable.execute` returns is raised by it. What goes wrong later is raised by whatever waits
for one of the results (`to_numpy`, `block_until_ready`, `to_dlpack`), every time, and likewise for programs that took
such a result as an argument; a failed result counts as ready. It is always an `ExecutionError`.

**Threads.** Everything here may be called from any thread. There is one MLIR context for the process, with MLIR's own
locking left on, so that programs can be built and compiled in several threads at once. What is made in a context
(types, attributes) is shared by content and lives as long as the process: arrays that are large belong among a
program's arguments, not in `dense`.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import json
import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, cast, final

import ml_dtypes
import numpy as np
from attrs import frozen
from typing_extensions import override

# XLA logs a line for every device when a client starts, and reads this level when its library is loaded. jax sets the
# same default for the same reason; a value that the user has set stands.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

from jaxlib.mlir import ir  # after the level
from jaxlib.mlir._mlir_libs import _chlo, _jax_mlir_ext, _mlirHlo, _sdy
from jaxlib.mlir._mlir_libs import _stablehlo as hlo

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray
    from typing_extensions import CapsuleType

__all__ = [
    # devices
    "Client",
    "Device",
    "client",
    "devices",
    # buffers
    "ArraySpec",
    "Buffer",
    "put",
    "to_numpy",
    "block_until_ready",
    "is_ready",
    "is_deleted",
    "delete",
    "to_dlpack",
    "from_dlpack",
    "aligned_empty",
    # executables
    "CompilerOption",
    "Executable",
    "MemoryAnalysis",
    "compile_module",
    "load_executable",
    "lapack_kernel",
    # building programs
    "ir",
    "hlo",
    "Value",
    "mlir_context",
    "lowering",
    "element_type",
    "tensor_type",
    "spec_of",
    "dense",
    "attribute",
    "integer_attr",
    "float_attr",
    "bool_attr",
    "string_attr",
    "symbol_attr",
    "i64_array_attr",
    "bool_array_attr",
    "array_attr",
    "dict_attr",
    "create",
    "new_module",
    "function",
    "verify",
    "module_text",
    "parse_module",
    # errors
    "CompilationError",
    "DeletedBufferError",
    "ExecutionError",
    "InvalidModuleError",
    "LoadError",
]

AnyArray: TypeAlias = "NDArray[np.generic]"
Shape: TypeAlias = tuple[int, ...]
Value: TypeAlias = "ir.Value[ir.Type]"
CompilerOption: TypeAlias = str | int | bool | float

# These two have no stubs. As module values their attributes are untyped, so each name that is used gets its type here.
_jax: Final[ModuleType] = importlib.import_module("jaxlib._jax")
_hlo: Final[ModuleType] = importlib.import_module("jaxlib._hlo")


class CompilationError(RuntimeError):
    """XLA refused a program; the message is XLA's own."""


class ExecutionError(RuntimeError):
    """A compiled program could not be run, or failed while it ran; the message is XLA's own."""


class DeletedBufferError(ExecutionError):
    """A buffer was read after it was deleted, or donated to a program."""


class InvalidModuleError(ValueError):
    """An MLIR module does not parse, or breaks the rules of a dialect; the message is MLIR's own."""


class LoadError(ValueError):
    """Bytes are no executable that this version of jaxlib can load on this device."""


# ------------------------------------------------------------------------------------------------ jaxlib's own types

if TYPE_CHECKING:

    @final
    class Device:
        """One device of the client. It is made by PJRT; ask `devices()` for it."""

        @property
        def id(self) -> int: ...
        @property
        def platform(self) -> str: ...
        @property
        def device_kind(self) -> str: ...
        @property
        def process_index(self) -> int: ...

    @final
    class Buffer:
        """An array on a device, in the hands of PJRT; the functions of this module make and read it."""

        @property
        def aval(self) -> ArraySpec: ...
        @property
        def _sharding(self) -> _Placement: ...
        def __buffer__(self, flags: int, /) -> memoryview: ...
        def block_until_ready(self) -> object: ...
        def is_ready(self) -> bool: ...
        def is_deleted(self) -> bool: ...
        def delete(self) -> None: ...

    class _SingleDeviceSharding:
        def __init__(self, device: Device) -> None: ...

else:
    Device = _jax.Device
    Buffer = _jax.ArrayImpl
    _SingleDeviceSharding = _jax.SingleDeviceSharding


class Client(Protocol):
    """PJRT's client of one platform, as far as this module uses it."""

    def local_devices(self) -> list[Device]: ...
    def compile_and_load(
        self,
        computation: ir.Module,
        executable_devices: _DeviceList,
        compile_options: _CompileOptions,
        host_callbacks: Sequence[Callable[..., object]] = ...,
    ) -> _Loaded: ...
    def deserialize_executable(
        self, serialized: bytes, executable_devices: _DeviceList, compile_options: _CompileOptions
    ) -> _Loaded: ...


class _Loaded(Protocol):
    @property
    def fingerprint(self) -> bytes | None: ...
    def execute_sharded(self, arguments: Sequence[Buffer]) -> _Results: ...
    def get_hlo_text(self) -> str: ...
    def cost_analysis(self) -> dict[str, object]: ...
    def get_compiled_memory_stats(self) -> _MemoryStats: ...
    def serialize(self) -> bytes: ...


class _Results(Protocol):
    def consume_with_handlers(self, handlers: list[_ResultHandler], /) -> list[Buffer]: ...


class _ResultHandler(Protocol):
    """Wraps one result; only handed back to jaxlib."""


class _DeviceList(Protocol):
    """The devices of one executable; only handed back to jaxlib."""


class _HostBufferSemantics(Protocol):
    """How long host memory must stay as it is; only handed back to jaxlib."""


class _MemoryStats(Protocol):
    argument_size_in_bytes: int
    output_size_in_bytes: int
    temp_size_in_bytes: int
    alias_size_in_bytes: int
    generated_code_size_in_bytes: int
    peak_memory_in_bytes: int


class _BuildOptions(Protocol):
    use_spmd_partitioning: bool
    use_shardy_partitioner: bool
    exec_time_optimization_effort: float
    memory_fitting_effort: float
    optimization_level: int
    memory_fitting_level: int


class _CompileOptions(Protocol):
    num_replicas: int
    num_partitions: int
    device_assignment: object
    env_option_overrides: list[tuple[str, CompilerOption]]

    @property
    def executable_build_options(self) -> _BuildOptions: ...


class _DevicePut(Protocol):
    def __call__(
        self,
        aval: ArraySpec,
        sharding: _Placement,
        xs: Sequence[AnyArray],
        devices: Sequence[Device],
        committed: bool,
        force_copy: bool,
        host_buffer_semantics: _HostBufferSemantics,
        enable_x64: bool,
        /,
    ) -> Buffer: ...


_JaxRuntimeError: Final[type[Exception]] = _jax.JaxRuntimeError
_device_put: Final[_DevicePut] = _jax.batched_device_put
_result_handler: Final[Callable[[ArraySpec, _Placement, bool, bool], _ResultHandler]] = _jax.array_result_handler
_to_capsule: Final[Callable[[Buffer], CapsuleType]] = _jax.buffer_to_dlpack_managed_tensor
_device_list: Final[Callable[[tuple[Device, ...]], _DeviceList]] = _jax.DeviceList
_new_compile_options: Final[Callable[[], _CompileOptions]] = _jax.CompileOptions
_new_assignment: Final[Callable[[NDArray[np.int64]], object]] = _jax.DeviceAssignment.create

_BORROW: Final[_HostBufferSemantics] = _jax.HostBufferSemantics.ZERO_COPY
_COPY_NOW: Final[_HostBufferSemantics] = _jax.HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
_REPLICATED: Final[object] = _hlo.HloSharding.replicate()
_JAXLIB_VERSION: Final[str] = importlib.import_module("jaxlib.version").__version__

ALIGNMENT: Final = 64
"""The alignment in bytes of host memory that XLA uses where it lies."""

# ------------------------------------------------------------------------------------------------ client and devices

_starting: Final = threading.RLock()  # two threads must not start two clients: their devices would not mix


@functools.cache
def _start_cpu_client() -> Client:
    return cast(Client, _jax.get_tfrt_cpu_client(asynchronous=True))


def client(platform: str = "cpu") -> Client:
    """The PJRT client of a platform, started at the first call.

    The number of host devices is what `XLA_FLAGS=--xla_force_host_platform_device_count=n` said at that moment, else 1.

    This function is the one seam for other platforms. GPUs and TPUs come as plug-ins that jax discovers and
    configures (`jax.extend.backend.get_backend(platform)` returns a client of this same type); a branch here would
    import jax for that, in this case only. Nothing else in tracefx depends on where a client came from.

    Raises:
        ValueError: for a platform other than `"cpu"`.
    """
    if platform != "cpu":
        raise ValueError(f"no runtime for platform {platform!r}: only 'cpu' is supported so far; use client('cpu')")
    with _starting:
        return _start_cpu_client()


@functools.cache
def devices(platform: str = "cpu") -> tuple[Device, ...]:
    """The devices of a platform that this process can use, by their position.

    >>> devices()[0].platform
    'cpu'
    """
    return tuple(client(platform).local_devices())


# ------------------------------------------------------------------------------------------------ dtypes

_BY_MLIR_NAME: Final[dict[str, np.dtype[np.generic]]] = {
    name: np.dtype(scalar)
    for name, scalar in {
        "i1": np.bool_,
        "i2": ml_dtypes.int2,
        "i4": ml_dtypes.int4,
        "i8": np.int8,
        "i16": np.int16,
        "i32": np.int32,
        "i64": np.int64,
        "ui2": ml_dtypes.uint2,
        "ui4": ml_dtypes.uint4,
        "ui8": np.uint8,
        "ui16": np.uint16,
        "ui32": np.uint32,
        "ui64": np.uint64,
        "bf16": ml_dtypes.bfloat16,
        "f16": np.float16,
        "f32": np.float32,
        "f64": np.float64,
        "f4E2M1FN": ml_dtypes.float4_e2m1fn,
        "f8E3M4": ml_dtypes.float8_e3m4,
        "f8E4M3": ml_dtypes.float8_e4m3,
        "f8E4M3B11FNUZ": ml_dtypes.float8_e4m3b11fnuz,
        "f8E4M3FN": ml_dtypes.float8_e4m3fn,
        "f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
        "f8E5M2": ml_dtypes.float8_e5m2,
        "f8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
        "f8E8M0FNU": ml_dtypes.float8_e8m0fnu,
        "complex<f32>": np.complex64,
        "complex<f64>": np.complex128,
    }.items()
}
_MLIR_NAME: Final = {dtype: name for name, dtype in _BY_MLIR_NAME.items()}
_DTYPE_BY_NAME: Final = {dtype.name: dtype for dtype in _MLIR_NAME}

# Neither Python's buffer protocol nor NumPy's DLPack knows these, so they are read as unsigned integers of their size.
_READ_AS_BITS: Final[dict[np.dtype[np.generic], np.dtype[np.generic]]] = {
    dtype: np.dtype(f"u{dtype.itemsize}") for name, dtype in _BY_MLIR_NAME.items() if name.startswith(("bf", "f8"))
}
# These are packed on the device and DLPack cannot carry them: a small program widens them first, which loses nothing.
_READ_WIDENED: Final[dict[np.dtype[np.generic], np.dtype[np.generic]]] = {
    _BY_MLIR_NAME["i2"]: np.dtype(np.int8),
    _BY_MLIR_NAME["i4"]: np.dtype(np.int8),
    _BY_MLIR_NAME["ui2"]: np.dtype(np.uint8),
    _BY_MLIR_NAME["ui4"]: np.dtype(np.uint8),
    _BY_MLIR_NAME["f4E2M1FN"]: np.dtype(np.float32),
}
_READ_DIRECTLY: Final = frozenset(_MLIR_NAME) - _READ_AS_BITS.keys() - _READ_WIDENED.keys()


@final
class ArraySpec:
    """The shape and dtype of a buffer, with the attributes that jaxlib asks an abstract value for.

    A plain class: it is made on every `put`, where attrs' frozen constructor would cost as much as the rest.
    """

    __slots__ = ("dtype", "shape")
    weak_type: Final = False

    def __init__(self, shape: Shape, dtype: np.dtype[np.generic]) -> None:
        self.shape = shape
        self.dtype = dtype

    @override
    def __repr__(self) -> str:
        return f"{self.dtype.name}{list(self.shape)}"

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArraySpec) and self.shape == other.shape and self.dtype == other.dtype

    @override
    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))


def _checked_dtype(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    if dtype not in _MLIR_NAME:
        raise TypeError(f"XLA has no element type for dtype {dtype}: convert the array to a numeric or boolean dtype")
    return dtype


# ------------------------------------------------------------------------------------------------ buffers


@final
class _Placement(_SingleDeviceSharding):
    """One whole array on one device, as jaxlib's C++ side wants to be told. One instance a device."""

    memory_kind: Final = None

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self.device = device
        self.listed = [device]

    def _to_xla_hlo_sharding(self, ndim: int) -> object:
        return _REPLICATED


@functools.cache
def _placement(device: Device) -> _Placement:
    return _Placement(device)


def put(array: AnyArray, device: Device, *, copy: bool = False) -> Buffer:
    """An array on a device.

    With `copy=False` the buffer borrows the array's memory where XLA can use it as it lies (C-contiguous, 64-byte
    aligned, as `aligned_empty` makes it), and holds on to the array until the buffer is gone; else it copies, possibly
    after this call returned. Either way nobody may write to the array any more. With `copy=True` the array is copied
    before the call returns and is the caller's again.

    Any strides, byte order and size are fine.

    Raises:
        TypeError: if XLA has no such dtype (objects, strings, `float0`).

    >>> to_numpy(put(np.arange(3, dtype=np.int32), devices()[0]))
    array([0, 1, 2], dtype=int32)
    """
    dtype = array.dtype
    if not dtype.isnative:
        dtype = dtype.newbyteorder("=")
        array = array.astype(dtype)
    placement = _placement(device)
    semantics = _COPY_NOW if copy else _BORROW
    try:
        return _device_put(
            ArraySpec(array.shape, dtype), placement, (array,), placement.listed, True, copy, semantics, True
        )
    except _JaxRuntimeError as error:
        _checked_dtype(dtype)
        raise ExecutionError(str(error)) from error


def to_numpy(buffer: Buffer) -> AnyArray:
    """A read-only array of a buffer's values, waiting for them.

    It views the buffer's memory and keeps it alive, except for the dtypes of less than 8 bits, which are copied.

    Raises:
        DeletedBufferError: if the buffer was deleted or donated.
        ExecutionError: if the program that computes the buffer failed.
    """
    spec = buffer.aval
    dtype = spec.dtype
    try:
        if dtype in _READ_DIRECTLY:
            # A memoryview, not the buffer itself: NumPy would take an error for "not a buffer" and look further.
            return np.asarray(memoryview(buffer))
        buffer.block_until_ready()
        if dtype in _READ_AS_BITS:
            return _from_capsule(_to_capsule(buffer)).view(dtype)
    except (BufferError, _JaxRuntimeError) as error:
        raise _read_error(buffer, error) from error
    values = to_numpy(_widening(spec, buffer._sharding.device).execute([buffer])[0]).astype(dtype)
    values.flags.writeable = False
    return values


def _read_error(buffer: Buffer, error: Exception) -> ExecutionError:
    return _deleted_error(buffer) if buffer.is_deleted() else ExecutionError(str(error))


def _deleted_error(buffer: Buffer) -> DeletedBufferError:
    return DeletedBufferError(f"{buffer.aval!r} was deleted, or donated to a program: keep a copy before that")


@functools.lru_cache(maxsize=256)
def _widening(spec: ArraySpec, device: Device) -> Executable:
    module = new_module("widen")
    source, target = tensor_type(spec.shape, spec.dtype), tensor_type(spec.shape, _READ_WIDENED[spec.dtype])
    with lowering():
        block = function(module, "main", [source], [target])
        with ir.InsertionPoint(block):
            wide = create("stablehlo.convert", [target], [block.arguments[0]])
            create("func.return", (), [wide.result])
    return compile_module(module, device=device)


def block_until_ready(buffer: Buffer) -> None:
    """Waits until a buffer's values are there; raises `ExecutionError` if the program that computes them failed."""
    try:
        buffer.block_until_ready()
    except _JaxRuntimeError as error:
        raise _read_error(buffer, error) from error


def is_ready(buffer: Buffer) -> bool:
    """Whether a buffer's values are there (or known to be missing because of an error)."""
    if buffer.is_deleted():  # asking a deleted buffer kills the process
        raise _deleted_error(buffer)
    return buffer.is_ready()


def is_deleted(buffer: Buffer) -> bool:
    """Whether a buffer was deleted, or donated to a program."""
    return buffer.is_deleted()


def delete(buffer: Buffer) -> None:
    """Gives a buffer's memory back now, as soon as no running program and no view of it needs it."""
    buffer.delete()


def aligned_empty(shape: Shape, dtype: DTypeLike) -> AnyArray:
    """A writable C-contiguous NumPy array with uninitialised values, whose memory `put` can borrow.

    >>> aligned_empty((2, 3), np.float32).ctypes.data % 64
    0
    """
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    room = np.empty(size + ALIGNMENT, np.uint8)
    start = -_address(room) % ALIGNMENT
    return room[start : start + size].view(dtype).reshape(shape)


def _address(array: AnyArray) -> int:
    return cast(int, array.__array_interface__["data"][0])


# ------------------------------------------------------------------------------------------------ DLPack


_DLPACK_CPU: Final = 1
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


def to_dlpack(buffer: Buffer) -> CapsuleType:
    """A DLPack capsule of a buffer, which shares its memory; whoever consumes the capsule keeps the memory alive.

    DLPack capsules of this version cannot say "read-only": do not write to the memory.

    Raises:
        BufferError: for dtypes that DLPack does not have (those of less than 8 bits).
    """
    block_until_ready(buffer)
    if buffer.aval.dtype in _READ_WIDENED:
        raise BufferError(f"{buffer.aval!r} cannot be exported with DLPack: convert it to a dtype of 8 bits or more")
    return _to_capsule(buffer)


def from_dlpack(external: SupportsDLPack, device: Device, *, copy: bool | None = None) -> Buffer:
    """A buffer of another library's array in host memory.

    `copy=False` shares the memory, and the other library must not write to it any more; `copy=True` copies before the
    call returns; `copy=None` shares where that is possible. A shared array lives as long as the buffer.

    Raises:
        BufferError: if the array is not in host memory, or `copy=False` and XLA cannot use the memory where it lies.
    """
    kind = external.__dlpack_device__()[0]
    if kind != _DLPACK_CPU:
        raise BufferError(f"from_dlpack takes arrays in host memory, got one on DLPack device type {int(kind)}")
    # NumPy refuses to export its own read-only arrays without a version; as a NumPy array it needs no exporting.
    array = external if isinstance(external, np.ndarray) else _from_capsule(external.__dlpack__())
    if copy is False and not (array.flags.c_contiguous and _address(array) % ALIGNMENT == 0):
        raise BufferError(
            f"memory at {_address(array):#x} with strides {array.strides} cannot be shared without a copy: XLA needs "
            f"C-contiguous memory aligned to {ALIGNMENT} bytes; pass copy=None or copy=True"
        )
    return put(array, device, copy=copy is True)


# ------------------------------------------------------------------------------------------------ executables


@frozen
class MemoryAnalysis:
    """Bytes of memory that one execution uses, as XLA planned it."""

    argument_bytes: int
    output_bytes: int
    temp_bytes: int
    alias_bytes: int
    generated_code_bytes: int
    peak_bytes: int


@final
class Executable:
    """A compiled program on one device. `compile_module` and `load_executable` make it."""

    __slots__ = ("_handlers", "_loaded", "_run", "device", "parameters", "results")

    device: Device
    parameters: tuple[ArraySpec, ...]
    results: tuple[ArraySpec, ...]

    def __init__(
        self, loaded: _Loaded, device: Device, parameters: tuple[ArraySpec, ...], results: tuple[ArraySpec, ...]
    ) -> None:
        self._loaded = loaded
        self._run = loaded.execute_sharded
        self._handlers = [_result_handler(spec, _placement(device), True, True) for spec in results]
        self.device = device
        self.parameters = parameters
        self.results = results

    def execute(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """Runs the program and returns its results, perhaps before they are computed.

        The caller answers for the dtypes: XLA compares the number and the sizes of the arguments, not their dtypes.
        An argument that the program declares as donated is deleted, unless something else still views its memory.

        Raises:
            ExecutionError: for a wrong number or size of arguments, a deleted argument, or a failure on the way.
        """
        try:
            return self._run(buffers).consume_with_handlers(self._handlers)
        except _JaxRuntimeError as error:
            raise ExecutionError(str(error)) from error

    @property
    def fingerprint(self) -> bytes | None:
        """XLA's digest of the compiled program, if the platform has one."""
        return self._loaded.fingerprint

    def hlo_text(self) -> str:
        """The program after XLA's optimizations."""
        return self._loaded.get_hlo_text()

    def cost_analysis(self) -> dict[str, float]:
        """XLA's estimates for one execution: `"flops"`, `"bytes accessed"`, and more by operand."""
        return {
            name: float(value) for name, value in self._loaded.cost_analysis().items() if isinstance(value, int | float)
        }

    def memory_analysis(self) -> MemoryAnalysis:
        """What XLA planned to allocate for one execution."""
        stats = self._loaded.get_compiled_memory_stats()
        return MemoryAnalysis(
            argument_bytes=stats.argument_size_in_bytes,
            output_bytes=stats.output_size_in_bytes,
            temp_bytes=stats.temp_size_in_bytes,
            alias_bytes=stats.alias_size_in_bytes,
            generated_code_bytes=stats.generated_code_size_in_bytes,
            peak_bytes=stats.peak_memory_in_bytes,
        )

    def serialize(self) -> bytes:
        """The compiled program with its signature, for `load_executable` in another process on such a host."""
        header = {
            "jaxlib": _JAXLIB_VERSION,
            "parameters": [(spec.dtype.name, spec.shape) for spec in self.parameters],
            "results": [(spec.dtype.name, spec.shape) for spec in self.results],
        }
        text = json.dumps(header).encode()
        return _MAGIC + len(text).to_bytes(4, "little") + text + self._loaded.serialize()


_MAGIC: Final = b"tracefx executable 1\n"


def compile_module(
    module: ir.Module,
    *,
    device: Device,
    compiler_options: Mapping[str, CompilerOption] | None = None,
    host_callbacks: Sequence[Callable[..., object]] = (),
) -> Executable:
    """Compiles the public function `main` of a StableHLO module for one device.

    Args:
        module: is left as it is. The arguments of `main` may carry `tf.aliasing_output` or `jax.buffer_donor`.
        device: where it will run.
        compiler_options: XLA's options by name, without dashes (`{"xla_cpu_enable_fast_math": True}`).
        host_callbacks: what custom calls of `xla_ffi_python_cpu_callback` call, by their `index`.

    Raises:
        CompilationError: if XLA refuses the program or an option, with XLA's text.
        TypeError: if `main` takes or returns something that is no tensor of a dtype known here.
    """
    parameters, results = _signature(module)
    options = _compile_options(device, compiler_options or {})
    where = _device_list((device,))
    try:
        if host_callbacks:
            loaded = client(device.platform).compile_and_load(module, where, options, host_callbacks)
        else:
            loaded = client(device.platform).compile_and_load(module, where, options)
    except _JaxRuntimeError as error:
        raise CompilationError(str(error)) from error
    return Executable(loaded, device, parameters, results)


def load_executable(data: bytes, device: Device) -> Executable:
    """The executable that `Executable.serialize` wrote. Load only what you trust: it is machine code.

    Raises:
        LoadError: if the bytes are something else, another version of jaxlib wrote them, or XLA refuses them.
    """
    start = len(_MAGIC) + 4
    if not data.startswith(_MAGIC) or len(data) < start:
        raise LoadError(f"these {len(data)} bytes are no serialized executable: they begin with {data[:20]!r}")
    end = start + int.from_bytes(data[len(_MAGIC) : start], "little")
    try:
        header = json.loads(data[start:end])
        version: object = header["jaxlib"]
        parameters, results = (
            tuple(ArraySpec(tuple(shape), _DTYPE_BY_NAME[name]) for name, shape in header[part])
            for part in ("parameters", "results")
        )
    except (ValueError, KeyError, TypeError) as error:
        raise LoadError(f"the header of a serialized executable cannot be read: {error}") from error
    if version != _JAXLIB_VERSION:
        raise LoadError(f"the executable was written by jaxlib {version}, this is {_JAXLIB_VERSION}: compile it again")
    try:
        loaded = client(device.platform).deserialize_executable(
            data[end:], _device_list((device,)), _compile_options(device, {})
        )
    except (_JaxRuntimeError, ValueError) as error:
        raise LoadError(str(error)) from error
    return Executable(loaded, device, parameters, results)


def _compile_options(device: Device, overrides: Mapping[str, CompilerOption]) -> _CompileOptions:
    options = _new_compile_options()
    options.num_replicas = options.num_partitions = 1
    options.device_assignment = _new_assignment(np.array([[device.id]]))
    build = options.executable_build_options
    build.use_spmd_partitioning = True
    build.use_shardy_partitioner = True
    flags = dict(overrides)
    for name in (
        "exec_time_optimization_effort",
        "memory_fitting_effort",
        "optimization_level",
        "memory_fitting_level",
    ):
        if name in flags:  # these four are fields, not flags of XLA's parser
            value = flags.pop(name)
            try:
                setattr(build, name, value)
            except TypeError as error:
                raise CompilationError(f"compiler option {name!r} does not take {value!r}") from error
    options.env_option_overrides = list(flags.items())
    return options


def _signature(module: ir.Module) -> tuple[tuple[ArraySpec, ...], tuple[ArraySpec, ...]]:
    for operation in module.body:
        attributes = operation.operation.attributes
        if "sym_name" in attributes and ir.StringAttr(attributes["sym_name"]).value == "main":
            kind = ir.FunctionType(ir.TypeAttr(attributes["function_type"]).value)
            return tuple(map(spec_of, kind.inputs)), tuple(map(spec_of, kind.results))
    raise InvalidModuleError("the module has no function named 'main' to compile")


@functools.cache
def lapack_kernel(name: str, dtype: np.dtype[np.generic]) -> str:
    """The custom-call target of a LAPACK kernel (`"potrf_ffi"`), registered with XLA at its first use.

    >>> lapack_kernel("potrf_ffi", np.dtype(np.float32))
    'lapack_spotrf_ffi'
    """
    with _starting:
        _register_lapack()
    return cast(str, importlib.import_module("jaxlib.lapack").prepare_lapack_call(name, dtype))


@functools.cache
def _register_lapack() -> None:
    for target, kernel, version in importlib.import_module("jaxlib.lapack").registrations()["cpu"]:
        _jax.register_custom_call_target(target, kernel, "cpu", version)


# ------------------------------------------------------------------------------------------------ building programs


@functools.cache
def _make_context() -> ir.Context:
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context = ir.Context()
    context.append_dialect_registry(registry)
    for dialect in (hlo, _chlo, _sdy):
        dialect.register_dialect(context)
    _mlirHlo.register_mhlo_dialect(context)
    context.load_all_available_dialects()
    return context


def mlir_context() -> ir.Context:
    """The MLIR context of this process, with StableHLO, CHLO, Shardy, func and the rest loaded. Safe to share."""
    with _starting:
        return _make_context()


@functools.cache
def lowering() -> ir.Location:
    """The unknown location; in `with lowering():` it and the context are current for this thread. May be nested.

    >>> with lowering():
    ...     ir.Type.parse("tensor<2xf32>")
    RankedTensorType(tensor<2xf32>)
    """
    return ir.Location.unknown(mlir_context())


@functools.cache
def element_type(dtype: np.dtype[np.generic]) -> ir.Type:
    """The MLIR type of an element: signless for signed integers and bool (`i1`), `ui8` and so on for unsigned ones.

    Raises:
        TypeError: if XLA has no such dtype.
    """
    dtype = dtype.newbyteorder("=")
    return ir.Type.parse(_MLIR_NAME[_checked_dtype(dtype)], mlir_context())


@functools.lru_cache(maxsize=8192)
def tensor_type(shape: Shape, dtype: np.dtype[np.generic]) -> ir.RankedTensorType:
    """The MLIR type of an array.

    >>> tensor_type((2, 3), np.dtype(np.float32))
    RankedTensorType(tensor<2x3xf32>)
    """
    return ir.RankedTensorType.get(shape, element_type(dtype), loc=lowering())


def spec_of(kind: ir.Type) -> ArraySpec:
    """The shape and dtype of an MLIR tensor type; the opposite of `tensor_type`.

    Raises:
        TypeError: for other types, unknown sizes, and elements without a dtype.
    """
    if not isinstance(kind, ir.RankedTensorType) or not kind.has_static_shape:
        raise TypeError(f"an array's type is expected, with sizes that are known, got {kind}")
    dtype = _BY_MLIR_NAME.get(str(kind.element_type))
    if dtype is None:
        raise TypeError(f"no dtype stands for the elements of {kind}")
    return ArraySpec(tuple(kind.shape), dtype)


def dense(array: AnyArray, shape: Shape | None = None) -> ir.DenseElementsAttr:
    """An array as a constant. One element (also `np.broadcast_to` of one) becomes a splat of any size.

    The context keeps a copy for the life of the process, so this is for small arrays.

    Args:
        array: of any dtype that `element_type` knows, any strides and byte order.
        shape: for an array of one element, the shape of the constant; else the array's own.

    >>> str(dense(np.array([True, False])))
    'dense<[true, false]> : tensor<2xi1>'
    >>> str(dense(np.array(1, ml_dtypes.bfloat16), (2, 3)))
    'dense<1.000000e+00> : tensor<2x3xbf16>'
    """
    if shape is None:
        shape = array.shape
    elif array.size != 1:
        raise ValueError(f"only an array of one element can be given a shape; got {shape} for shape {array.shape}")
    dtype = array.dtype.newbyteorder("=")
    kind = element_type(dtype)
    if array.size > 1 and not any(array.strides):
        array = array[(0,) * array.ndim]
    array = np.ascontiguousarray(array, dtype)
    if dtype.kind not in "biufc" or dtype not in _READ_DIRECTLY:
        array = array.view(f"u{dtype.itemsize}")  # ml_dtypes' arrays export no buffer
    return ir.DenseElementsAttr.get(array.data, type=kind, shape=shape, context=mlir_context())


@functools.lru_cache(maxsize=4096)
def attribute(text: str) -> ir.Attribute:
    """Any attribute from its text: `attribute("#stablehlo<comparison_direction LT>")`. Parsed once."""
    try:
        return ir.Attribute.parse(text, mlir_context())
    except ir.MLIRError as error:
        raise InvalidModuleError(str(error)) from error


@functools.lru_cache(maxsize=4096)
def integer_attr(value: int, bits: int = 64) -> ir.IntegerAttr:
    """A signless integer: `3 : i64`."""
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(bits, mlir_context()), value)


def float_attr(value: float, dtype: np.dtype[np.generic]) -> ir.FloatAttr:
    """A floating point number of a dtype: `1.0 : f32`."""
    return ir.FloatAttr.get(element_type(dtype), value, loc=lowering())


def bool_attr(value: bool) -> ir.BoolAttr:
    """`true` or `false`."""
    return ir.BoolAttr.get(value, mlir_context())


def string_attr(value: str | bytes) -> ir.StringAttr:
    """A string, in quotes."""
    return ir.StringAttr.get(value, mlir_context())


def symbol_attr(name: str) -> ir.FlatSymbolRefAttr:
    """A reference to a function of the module: `@name`."""
    return ir.FlatSymbolRefAttr.get(name, mlir_context())


@functools.lru_cache(maxsize=4096)
def i64_array_attr(values: tuple[int, ...]) -> ir.DenseI64ArrayAttr:
    """`array<i64: 0, 1>`, which is what StableHLO takes for dimensions."""
    return ir.DenseI64ArrayAttr.get(values, mlir_context())


def bool_array_attr(values: tuple[bool, ...]) -> ir.DenseBoolArrayAttr:
    """`array<i1: true, false>`."""
    return ir.DenseBoolArrayAttr.get(values, mlir_context())


def array_attr(values: Sequence[ir.Attribute]) -> ir.ArrayAttr:
    """A list of attributes: `[1, "two"]`."""
    return ir.ArrayAttr.get(values, mlir_context())


def dict_attr(values: Mapping[str, ir.Attribute]) -> ir.DictAttr:
    """Attributes by name: `{a = 1}`."""
    return ir.DictAttr.get(dict(values), mlir_context())


def create(
    name: str,
    results: Sequence[ir.Type],
    operands: Sequence[Value],
    attributes: dict[str, ir.Attribute] | None = None,
    regions: int = 0,
) -> ir.Operation:
    """Appends an operation at the current insertion point: the fastest of the ways to build StableHLO.

    Fill a region with `operation.regions[0].blocks.append(*types)`. Nothing is checked until `verify`.
    """
    return ir.Operation.create(name, results, operands, attributes, None, regions)


def new_module(name: str) -> ir.Module:
    """An empty module."""
    module = ir.Module.create(lowering())
    module.operation.attributes["sym_name"] = string_attr(name)
    return module


def function(
    module: ir.Module,
    name: str,
    inputs: Sequence[ir.Type],
    results: Sequence[ir.Type],
    *,
    public: bool = True,
    argument_attributes: Sequence[Mapping[str, ir.Attribute]] | None = None,
) -> ir.Block:
    """Appends a function to a module and returns its empty body, whose `arguments` are the function's.

    Args:
        argument_attributes: for each input, attributes such as `{"tf.aliasing_output": integer_attr(0, 32)}`.
    """
    context = mlir_context()
    attributes: dict[str, ir.Attribute] = {
        "sym_name": string_attr(name),
        "function_type": ir.TypeAttr.get(ir.FunctionType.get(inputs, results, context), context),
        "sym_visibility": string_attr("public" if public else "private"),
    }
    if argument_attributes is not None:
        attributes["arg_attrs"] = array_attr([dict_attr(each) for each in argument_attributes])
    with lowering():
        operation = ir.Operation.create(
            "func.func", attributes=attributes, regions=1, ip=ir.InsertionPoint(module.body)
        )
        return ir.Block.create_at_start(operation.regions[0], inputs)


def verify(module: ir.Module) -> None:
    """Checks a module against the rules of its dialects; raises `InvalidModuleError` with MLIR's text."""
    try:
        module.operation.verify()
    except ir.MLIRError as error:
        raise InvalidModuleError(str(error)) from error


def module_text(module: ir.Module, *, locations: bool = False) -> str:
    """A module in MLIR's syntax, with the source locations of its operations if asked for."""
    return cast(str, module.operation.get_asm(enable_debug_info=locations))


def parse_module(text: str) -> ir.Module:
    """The module that `module_text` wrote; raises `InvalidModuleError` with MLIR's text."""
    try:
        return ir.Module.parse(text, mlir_context())
    except ir.MLIRError as error:
        raise InvalidModuleError(str(error)) from error
