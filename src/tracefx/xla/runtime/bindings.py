"""Typed bindings to jaxlib: devices, buffers, clients, dtypes and errors."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, TypeAlias, cast, final

import ml_dtypes
import numpy as np
from attrs import define, field, frozen
from jaxlib.mlir import ir
from typing_extensions import override

from tracefx.bounded_cache import memoize
from tracefx.core import Shape
from tracefx.errors import DeletedArrayError, DonationError, ExecutionError
from tracefx.jaxlib_support import import_jaxlib, jaxlib_version
from tracefx.xla.runtime.jaxlib_versions import SKIP_CHECKS

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import CapsuleType

AnyArray: TypeAlias = "NDArray[np.generic]"
CompilerOption: TypeAlias = str | int | bool | float

# These two modules have no stubs. Their attributes are untyped, so each name that is used gets its type here.
_jax: Final[ModuleType] = import_jaxlib("jaxlib._jax")
_hlo: Final[ModuleType] = import_jaxlib("jaxlib._hlo")


class InvalidModuleError(ValueError):
    """Raised when an MLIR module does not parse or violates the rules of a dialect; the message is MLIR's."""


class LoadError(ValueError):
    """Raised for bytes that are no executable that this version of jaxlib can load on this device."""


if TYPE_CHECKING:

    @final
    class Device:
        """A device, created by PJRT; `devices()` returns them."""

        @property
        def id(self) -> int: ...
        @property
        def platform(self) -> str: ...
        @property
        def device_kind(self) -> str: ...
        @property
        def process_index(self) -> int: ...
        @property
        def client(self) -> Client: ...
        @property
        def local_hardware_id(self) -> int | None: ...
        def get_stream_for_external_ready_events(self) -> int: ...

    @final
    class Buffer:
        """An array on a device, owned by PJRT; functions of this package create and read buffers."""

        @property
        def aval(self) -> ArraySpec: ...
        @property
        def _sharding(self) -> PjrtSingleDeviceSharding: ...
        @property
        def _arrays(self) -> list[Buffer]: ...
        def _single_device_array_to_np_array_did_copy(self) -> tuple[AnyArray, bool]: ...
        def clone(self) -> Buffer: ...
        def _rewrap_with_aval_and_sharding(self, aval: ArraySpec, sharding: PjrtSingleDeviceSharding) -> Buffer: ...
        def __buffer__(self, flags: int, /) -> memoryview: ...
        def block_until_ready(self) -> object: ...
        def is_ready(self) -> bool: ...
        def is_deleted(self) -> bool: ...
        def delete(self) -> None: ...

    class PjrtSingleDeviceSharding:
        """The sharding of an array on one device. `pjrt_single_device_sharding` makes it and sets the attributes."""

        device: Device
        device_sequence: list[Device]
        _to_xla_hlo_sharding: Callable[[int], HloSharding]

        def __init__(self, device: Device) -> None: ...

    class GSPMDSharding:
        """jaxlib's base class of shardings over several devices."""

        def __init__(self, devices: _DeviceList, sharding: HloSharding) -> None: ...

else:
    Device = _jax.Device
    Buffer = _jax.ArrayImpl
    PjrtSingleDeviceSharding = _jax.SingleDeviceSharding
    GSPMDSharding = _jax.GSPMDSharding


class Client(Protocol):
    """The part of PJRT's client of one platform that this package uses."""

    @property
    def _raw_platform(self) -> str: ...
    def device_from_local_hardware_id(self, local_hardware_id: int) -> Device: ...
    def local_devices(self) -> list[Device]: ...
    def devices(self) -> list[Device]: ...
    def process_index(self) -> int: ...
    def heap_profile(self) -> bytes: ...
    def compile_and_load(
        self,
        computation: ir.Module,
        executable_devices: _DeviceList,
        compile_options: CompileOptions,
        host_callbacks: Sequence[Callable[..., object]] = ...,
    ) -> LoadedExecutable: ...
    def deserialize_executable(
        self, serialized: bytes, executable_devices: _DeviceList, compile_options: CompileOptions
    ) -> LoadedExecutable: ...


class LoadedExecutable(Protocol):
    @property
    def fingerprint(self) -> bytes | None: ...
    def execute_sharded(self, arguments: Sequence[object], with_tokens: bool = ...) -> _Results: ...
    def get_hlo_text(self) -> str: ...
    def cost_analysis(self) -> dict[str, object]: ...
    def get_compiled_memory_stats(self) -> _MemoryStats: ...
    def get_parameter_shardings(self) -> list[object] | None: ...
    def get_output_shardings(self) -> list[object] | None: ...
    def serialize(self) -> bytes: ...


class _Results(Protocol):
    def consume_with_handlers(self, handlers: list[ResultHandler], /) -> list[Buffer]: ...
    def consume_token(self) -> _ExecutionToken: ...


class _ExecutionToken(Protocol):
    """Completes when an execution with `with_tokens` has finished."""

    def block_until_ready(self) -> object: ...


class ResultHandler(Protocol):
    """Wraps one result; only passed back to jaxlib."""


class _DeviceList(Protocol):
    """The devices of an executable; only passed back to jaxlib."""


class _HostBufferSemantics(Protocol):
    """How long host memory must stay unchanged; only passed back to jaxlib."""


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
    allow_spmd_sharding_propagation_to_parameters: list[bool]
    allow_spmd_sharding_propagation_to_output: list[bool]
    optimization_level: int
    memory_fitting_level: int


class CompileOptions(Protocol):
    num_replicas: int
    num_partitions: int
    device_assignment: object
    env_option_overrides: list[tuple[str, CompilerOption]]

    @property
    def executable_build_options(self) -> _BuildOptions: ...
    def SerializeAsString(self) -> bytes: ...


class _CompileOptionsType(Protocol):
    def __call__(self) -> CompileOptions: ...
    def ParseFromString(self, data: bytes) -> CompileOptions: ...


class _Topology(Protocol):
    def fingerprint(self) -> int: ...


class HloSharding(Protocol):
    """XLA's representation of the sharding of an array."""

    def is_replicated(self) -> bool: ...
    def tile_assignment_dimensions(self) -> list[int]: ...
    def tile_assignment_devices(self) -> list[int]: ...


class _MultiDevicePut(Protocol):
    def __call__(
        self,
        aval: ArraySpec,
        sharding: GSPMDSharding,
        xs: Sequence[AnyArray] | Sequence[Buffer],
        devices: list[Device],
        committed: bool,
        force_copy: bool,
        host_buffer_semantics: _HostBufferSemantics,
        enable_x64: bool,
        /,
    ) -> Buffer: ...


class _SingleDevicePut(Protocol):
    def __call__(
        self,
        aval: ArraySpec,
        sharding: PjrtSingleDeviceSharding,
        xs: Sequence[AnyArray],
        devices: Sequence[Device],
        committed: bool,
        force_copy: bool,
        host_buffer_semantics: _HostBufferSemantics,
        enable_x64: bool,
        /,
    ) -> Buffer: ...


class _ToCapsule(Protocol):
    def __call__(self, buffer: Buffer, /, stream: int | None = ...) -> CapsuleType: ...


JaxRuntimeError: Final[type[Exception]] = _jax.JaxRuntimeError
single_device_put: Final[_SingleDevicePut] = _jax.batched_device_put
multi_device_put: Final[_MultiDevicePut] = _jax.batched_device_put
hlo_sharding_from_proto: Final[Callable[[object], HloSharding]] = _hlo.HloSharding.from_proto
collect_garbage: Final[Callable[[], None]] = _jax.collect_garbage
"""Releases the Python objects that finished executions held: PJRT's threads only list them, as they lack the GIL.

Call it with each execution: Python's garbage collector does not run in a loop that frees as much as it allocates.
"""
wait_for_all: Final[Callable[[Sequence[Buffer]], None]] = _jax.batched_block_until_ready
buffer_to_dlpack: Final[_ToCapsule] = _jax.buffer_to_dlpack_managed_tensor
dlpack_to_buffer: Final[Callable[[CapsuleType, Device, int | None, bool | None], Buffer]] = (
    _jax.dlpack_managed_tensor_to_buffer
)
device_list: Final[Callable[[tuple[Device, ...]], _DeviceList]] = _jax.DeviceList
new_compile_options: Final[_CompileOptionsType] = _jax.CompileOptions
register_custom_call_target: Final[Callable[[str, object, str, int], None]] = _jax.register_custom_call_target
topology_for_devices: Final[Callable[[list[Device]], _Topology]] = _jax.get_topology_for_devices
write_artifact: Final[Callable[[ir.Module, str, bool], bytes]] = _jax.mlir.serialize_portable_artifact
read_artifact: Final[Callable[[bytes], ir.Module]] = _jax.mlir.deserialize_portable_artifact
refine_shapes: Final[Callable[[bytes, bool, bool, bool], bytes]] = _jax.mlir.refine_polymorphic_shapes
"""Computes the sizes in a module from those of the parameters of its `main`.

Takes the bytecode, and whether to check assertions, to require that all sizes are known, and to support Shardy.
"""
hlo_cost_analysis: Final[Callable[[object, object], Mapping[str, float]]] = _jax.hlo_module_cost_analysis
new_device_assignment: Final[Callable[[NDArray[np.int64]], object]] = _jax.DeviceAssignment.create


class HloComputation(Protocol):
    """A program in HLO, as XLA's bindings represent it."""

    def as_hlo_text(self) -> str: ...
    def as_hlo_module(self) -> object: ...


def hlo_computation(module: ir.Module) -> HloComputation:
    """Converts a StableHLO module to HLO, before XLA's optimizations."""
    text = module.operation.get_asm(enable_debug_info=True)
    convert = _jax.mlir.mlir_module_to_xla_computation
    computation: HloComputation = convert(text, use_tuple_args=False, return_tuple=False)
    return computation


def result_handler(spec: ArraySpec, sharding: PjrtSingleDeviceSharding | GSPMDSharding) -> ResultHandler:
    """Returns a handler for `consume_with_handlers` that wraps one result of an execution as a committed array."""
    handler: ResultHandler = _jax.array_result_handler(spec, sharding, True, *SKIP_CHECKS)
    return handler


BORROW: Final[_HostBufferSemantics] = _jax.HostBufferSemantics.ZERO_COPY
COPY_NOW: Final[_HostBufferSemantics] = _jax.HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
_REPLICATED: Final[HloSharding] = _hlo.HloSharding.replicate()


def hlo_sharding(order: NDArray[np.int64] | None, copies: int) -> HloSharding:
    """Returns the sharding of an array with tiles on the devices in `order`, `copies` of each; replicated for None."""
    if order is None:
        return _REPLICATED
    subgroup_types = [_hlo.OpSharding.Type.REPLICATED] if copies > 1 else []
    tiles = order if copies > 1 else order[..., 0]
    sharding: HloSharding = _hlo.HloSharding.subgroup_with_device_ordering(tiles, subgroup_types)
    return sharding


JAXLIB_VERSION: Final[str] = jaxlib_version()

client_lock: Final = threading.RLock()  # two threads must not start two clients, whose devices could not be combined


class DistributedClient(Protocol):
    """The connection of a process to the coordinator of its process group."""

    def connect(self) -> None: ...
    def shutdown(self) -> None: ...
    def wait_at_barrier(self, barrier_id: str, timeout_in_ms: int) -> None: ...
    def key_value_set_bytes(self, key: str, value: bytes) -> None: ...
    def key_value_delete(self, key: str) -> None: ...
    def blocking_key_value_get_bytes(self, key: str, timeout_in_ms: int) -> bytes: ...


class DistributedService(Protocol):
    """The coordinator, which the first process of a group runs."""

    def shutdown(self) -> None: ...


class _DistributedClientFactory(Protocol):
    def __call__(
        self,
        address: str,
        node_id: int,
        *,
        init_timeout: int,
        shutdown_timeout: int,
        heartbeat_timeout: int,
        use_compression: bool,
    ) -> DistributedClient: ...


class _DistributedServiceFactory(Protocol):
    def __call__(
        self,
        address: str,
        num_nodes: int,
        *,
        heartbeat_timeout: int,
        cluster_register_timeout: int,
        shutdown_timeout: int,
    ) -> DistributedService: ...


new_distributed_client: Final[_DistributedClientFactory] = _jax.get_distributed_runtime_client
new_distributed_service: Final[_DistributedServiceFactory] = _jax.get_distributed_runtime_service


@final
@frozen
class ProcessGroup:
    """The process group that this process has joined."""

    distributed_client: DistributedClient
    coordinator: DistributedService | None
    """The coordinator, in the first process; None in the others."""
    index: int
    count: int
    host: str
    """The address at which other processes reach this machine."""
    local_ids: tuple[int, ...] | None
    """Which of the machine's devices belong to this process; for the host, only their number counts. None means all
    devices, and for the host the number in `XLA_FLAGS`."""
    shutdown_seconds: int
    """How many seconds this process waits for the others when it ends."""
    barrier_ids: Iterator[int] = field(factory=itertools.count, init=False, repr=False)
    """Numbers the synchronization points of the group."""


@final
@define(eq=False)
class ClientState:
    """The process's state before its clients start: its process group, and whether a client was started."""

    process_group: ProcessGroup | None = None
    started: bool = False


CLIENT_STATE: Final = ClientState()


def start_cpu_client(group: ProcessGroup | None) -> Client:
    """Starts the client of the host's devices, which knows those of the other processes of a group.

    The number of host devices is given by `XLA_FLAGS=--xla_force_host_platform_device_count=n`, by default 1.
    """
    start: Callable[..., Client] = _jax.get_tfrt_cpu_client
    if group is None:
        return start(asynchronous=True)
    gloo = _jax.make_gloo_tcp_collectives(distributed_client=group.distributed_client, hostname=group.host)
    return start(
        asynchronous=True,
        distributed_client=group.distributed_client,
        node_id=group.index,
        num_nodes=group.count,
        collectives=gloo,
        num_devices=None if group.local_ids is None else len(group.local_ids),
    )


DTYPE_BY_MLIR_NAME: Final[dict[str, np.dtype[np.generic]]] = {
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
MLIR_NAME: Final = {dtype: name for name, dtype in DTYPE_BY_MLIR_NAME.items()}
DTYPE_BY_NAME: Final = {dtype.name: dtype for dtype in MLIR_NAME}

# Python's buffer protocol and NumPy's DLPack do not support these, so they are read as unsigned integers of their size.
READ_AS_BITS: Final[dict[np.dtype[np.generic], np.dtype[np.generic]]] = {
    dtype: np.dtype(f"u{dtype.itemsize}") for name, dtype in DTYPE_BY_MLIR_NAME.items() if name.startswith(("bf", "f8"))
}
# These are packed on the device and DLPack cannot represent them: a small program first widens them, without loss.
READ_WIDENED: Final[dict[np.dtype[np.generic], np.dtype[np.generic]]] = {
    DTYPE_BY_MLIR_NAME["i2"]: np.dtype(np.int8),
    DTYPE_BY_MLIR_NAME["i4"]: np.dtype(np.int8),
    DTYPE_BY_MLIR_NAME["ui2"]: np.dtype(np.uint8),
    DTYPE_BY_MLIR_NAME["ui4"]: np.dtype(np.uint8),
    DTYPE_BY_MLIR_NAME["f4E2M1FN"]: np.dtype(np.float32),
}
READ_DIRECTLY: Final = frozenset(MLIR_NAME) - READ_AS_BITS.keys() - READ_WIDENED.keys()


class ArraySpec:
    """The shape and dtype of a buffer, with the attributes that jaxlib requires of an abstract value.

    A plain class for speed: every `put` creates one.
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


@final
class ResultSpec(ArraySpec):
    """The type of a program's result, with the program's name, which later errors of its buffer mention."""

    __slots__ = ("program",)

    def __init__(self, shape: Shape, dtype: np.dtype[np.generic], program: str) -> None:
        super().__init__(shape, dtype)
        self.program = program


def require_xla_dtype(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    if dtype not in MLIR_NAME:
        raise TypeError(f"XLA has no element type for dtype {dtype}: convert the array to a numeric or boolean dtype")
    return dtype


def native_buffer(x: object) -> Buffer:
    """Returns a buffer of this runtime, whose type `tracefx.core` does not know, with its type."""
    return cast(Buffer, x)


def native_buffers(xs: Sequence[object]) -> Sequence[Buffer]:
    """Returns buffers of this runtime, or NumPy arrays to be put in some, with their type."""
    return cast(Sequence[Buffer], xs)


def native_device(x: object) -> Device:
    """Returns a device of this runtime, whose type `tracefx.core` does not know, with its type."""
    return cast(Device, x)


def native_devices(xs: tuple[object, ...]) -> tuple[Device, ...]:
    """Returns devices of this runtime with their type."""
    return tuple(map(native_device, xs))


def deleted_error(buffer: Buffer) -> DeletedArrayError:
    return DeletedArrayError(
        f"an array of type {buffer.aval!r} is used after it was deleted, or donated to a program by donate_argnums: "
        "use the output of that program, or pass a copy to it"
    )


def raise_execution_error(name: str, error: Exception, buffers: Sequence[object]) -> NoReturn:
    """Raises an error of ours for one of XLA, whose text names neither deleted nor twice donated arguments."""
    for i, buffer in enumerate(native_buffers(buffers)):
        if buffer.is_deleted():
            raise DeletedArrayError(
                f"the compiled {name} was called with an array, {buffer.aval!r} at index {i}, that was deleted or "
                "donated to a program: keep a copy before that"
            ) from None
    seen: dict[int, int] = {}
    for i, buffer in enumerate(native_buffers(buffers)):
        if "donate" in str(error) and seen.setdefault(id(buffer), i) != i:
            raise donation_error(name, seen[id(buffer)], i, buffer.aval) from None
    raise ExecutionError(f"the compiled {name} failed: {error}") from error


def donation_error(name: str, first: int, second: int, aval: object) -> DonationError:
    return DonationError(
        f"the compiled {name} was given one array, {aval!r}, as parameters {first} and {second}, one of which is "
        "donated, so the other would lose its memory: pass a copy of the array, or do not donate it"
    )


@memoize(4096)
def pjrt_single_device_sharding(device: Device) -> PjrtSingleDeviceSharding:
    """Returns the sharding of arrays on a device, always the same object.

    It is an instance of jaxlib's own class, because transfers of a subclass take 0.5 µs more. jax adds the method that
    jaxlib calls to that class; here, it is an attribute.
    """
    sharding = PjrtSingleDeviceSharding(device)
    sharding.device, sharding.device_sequence = device, [device]
    sharding._to_xla_hlo_sharding = [_REPLICATED for _ in range(_MAX_RANK + 1)].__getitem__  # faster than a function
    return sharding


_MAX_RANK: Final = 64
"""The highest rank of a NumPy array."""
