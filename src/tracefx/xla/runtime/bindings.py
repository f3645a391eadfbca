"""What is used of jaxlib, with types: devices, buffers as they are held, the client, dtypes and errors."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, cast, final

import ml_dtypes
import numpy as np
from attrs import define, field, frozen
from jaxlib.mlir import ir
from typing_extensions import override

from tracefx.jaxlib_support import import_jaxlib, jaxlib_version
from tracefx.xla.runtime.jaxlib_versions import SKIP_CHECKS

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import CapsuleType

AnyArray: TypeAlias = "NDArray[np.generic]"
Shape: TypeAlias = tuple[int, ...]
CompilerOption: TypeAlias = str | int | bool | float

# These two have no stubs. As module values their attributes are untyped, so each name that is used gets its type here.
_jax: Final[ModuleType] = import_jaxlib("jaxlib._jax")
_hlo: Final[ModuleType] = import_jaxlib("jaxlib._hlo")


class CompilationError(RuntimeError):
    """XLA refused a program; the message is XLA's own."""


class ExecutionError(RuntimeError):
    """A compiled program could not be run, or failed while it ran: which one, and in XLA's own words why."""


class DeletedBufferError(ExecutionError, ValueError):
    """A buffer was read after it was deleted, or donated to a program. JAX raises ValueError for some uses."""


class DonationError(ExecutionError, ValueError):
    """A program was called with a donated array that is another of its arguments as well."""


class InvalidModuleError(ValueError):
    """An MLIR module does not parse, or breaks the rules of a dialect; the message is MLIR's own."""


class LoadError(ValueError):
    """Bytes are no executable that this version of jaxlib can load on this device."""


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
        @property
        def client(self) -> Client: ...
        @property
        def local_hardware_id(self) -> int | None: ...
        def get_stream_for_external_ready_events(self) -> int: ...

    @final
    class Buffer:
        """An array on a device, in the hands of PJRT; the functions of this module make and read it."""

        @property
        def aval(self) -> ArraySpec: ...
        @property
        def _sharding(self) -> PjrtSingleDeviceSharding: ...
        @property
        def _arrays(self) -> list[Buffer]: ...
        def _single_device_array_to_np_array_did_copy(self) -> tuple[AnyArray, bool]: ...
        def _rewrap_with_aval_and_sharding(self, aval: ArraySpec, sharding: PjrtSingleDeviceSharding) -> Buffer: ...
        def __buffer__(self, flags: int, /) -> memoryview: ...
        def block_until_ready(self) -> object: ...
        def is_ready(self) -> bool: ...
        def is_deleted(self) -> bool: ...
        def delete(self) -> None: ...

    class _SingleDeviceSharding:
        def __init__(self, device: Device) -> None: ...

    class GSPMDSharding:
        """jaxlib's base of what says how an array lies on several devices."""

        def __init__(self, devices: _DeviceList, sharding: HloSharding) -> None: ...

else:
    Device = _jax.Device
    Buffer = _jax.ArrayImpl
    _SingleDeviceSharding = _jax.SingleDeviceSharding
    GSPMDSharding = _jax.GSPMDSharding


class Client(Protocol):
    """PJRT's client of one platform, as far as this module uses it."""

    @property
    def _raw_platform(self) -> str: ...
    def device_from_local_hardware_id(self, local_hardware_id: int) -> Device: ...
    def local_devices(self) -> list[Device]: ...
    def devices(self) -> list[Device]: ...
    def process_index(self) -> int: ...
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
    def execute_sharded(self, arguments: Sequence[Buffer], with_tokens: bool = ...) -> _Results: ...
    def get_hlo_text(self) -> str: ...
    def cost_analysis(self) -> dict[str, object]: ...
    def get_compiled_memory_stats(self) -> _MemoryStats: ...
    def get_parameter_shardings(self) -> list[object] | None: ...
    def get_output_shardings(self) -> list[object] | None: ...
    def serialize(self) -> bytes: ...


class _Results(Protocol):
    def consume_with_handlers(self, handlers: list[_ResultHandler], /) -> list[Buffer]: ...
    def consume_token(self) -> _ExecutionToken: ...


class _ExecutionToken(Protocol):
    """The end of an execution, if it was asked for with `with_tokens`."""

    def block_until_ready(self) -> object: ...


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


class _Topology(Protocol):
    def fingerprint(self) -> int: ...


class HloSharding(Protocol):
    """How XLA says in which way an array is cut."""

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
wait_for_all: Final[Callable[[Sequence[Buffer]], None]] = _jax.batched_block_until_ready
buffer_to_dlpack: Final[_ToCapsule] = _jax.buffer_to_dlpack_managed_tensor
dlpack_to_buffer: Final[Callable[[CapsuleType, Device, int | None, bool | None], Buffer]] = (
    _jax.dlpack_managed_tensor_to_buffer
)
device_list: Final[Callable[[tuple[Device, ...]], _DeviceList]] = _jax.DeviceList
new_compile_options: Final[Callable[[], CompileOptions]] = _jax.CompileOptions
register_custom_call_target: Final[Callable[[str, object, str, int], None]] = _jax.register_custom_call_target
topology_for_devices: Final[Callable[[list[Device]], _Topology]] = _jax.get_topology_for_devices
write_artifact: Final[Callable[[ir.Module, str, bool], bytes]] = _jax.mlir.serialize_portable_artifact
read_artifact: Final[Callable[[bytes], ir.Module]] = _jax.mlir.deserialize_portable_artifact
hlo_cost_analysis: Final[Callable[[object, object], Mapping[str, float]]] = _jax.hlo_module_cost_analysis
new_device_assignment: Final[Callable[[NDArray[np.int64]], object]] = _jax.DeviceAssignment.create


class HloComputation(Protocol):
    """A program in HLO, as XLA's bindings hold it."""

    def as_hlo_text(self) -> str: ...
    def as_hlo_module(self) -> object: ...


def hlo_computation(module: ir.Module) -> HloComputation:
    """A StableHLO module converted to HLO, before XLA's optimizations."""
    text = module.operation.get_asm(enable_debug_info=True)
    convert = _jax.mlir.mlir_module_to_xla_computation
    return cast(HloComputation, convert(text, use_tuple_args=False, return_tuple=False))


def result_handler(spec: ArraySpec, sharding: PjrtSingleDeviceSharding | GSPMDSharding) -> _ResultHandler:
    """Wraps one result of an execution as a committed array; given to `consume_with_handlers`."""
    return cast(_ResultHandler, _jax.array_result_handler(spec, sharding, True, *SKIP_CHECKS))


BORROW: Final[_HostBufferSemantics] = _jax.HostBufferSemantics.ZERO_COPY
COPY_NOW: Final[_HostBufferSemantics] = _jax.HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
_REPLICATED: Final[object] = _hlo.HloSharding.replicate()


def hlo_sharding(order: NDArray[np.int64] | None, copies: int) -> HloSharding:
    """The sharding of an array whose tiles lie on the devices in `order`, as many `copies` of each; whole without."""
    if order is None:
        return cast(HloSharding, _REPLICATED)
    kinds = [_hlo.OpSharding.Type.REPLICATED] if copies > 1 else []
    tiles = order if copies > 1 else order[..., 0]
    return cast(HloSharding, _hlo.HloSharding.subgroup_with_device_ordering(tiles, kinds))


JAXLIB_VERSION: Final[str] = jaxlib_version()

client_lock: Final = threading.RLock()  # two threads must not start two clients, whose devices would not mix


class DistributedClient(Protocol):
    """The connection of a process to those it works with, by their coordinator."""

    def connect(self) -> None: ...
    def shutdown(self) -> None: ...
    def wait_at_barrier(self, barrier_id: str, timeout_in_ms: int) -> None: ...
    def key_value_set_bytes(self, key: str, value: bytes) -> None: ...
    def key_value_delete(self, key: str) -> None: ...
    def blocking_key_value_get_bytes(self, key: str, timeout_in_ms: int) -> bytes: ...


class DistributedService(Protocol):
    """What the first of the processes runs for all of them."""

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
    """This process among several that work together."""

    distributed_client: DistributedClient
    coordinator: DistributedService | None
    """In the first process, which runs it for all."""
    index: int
    count: int
    host: str
    """The address of this machine at which the other processes reach it."""
    local_ids: tuple[int, ...] | None
    """Which devices of the machine are this process's; on the host, which has as many as it likes, how many. None for
    all, and for what `XLA_FLAGS` says."""
    shutdown_seconds: int
    """For how many seconds it waits for the others at its end."""
    barrier_ids: Iterator[int] = field(factory=itertools.count, init=False, repr=False)
    """Counts the occasions on which the processes meet."""


@final
@define(eq=False)
class ClientState:
    """What the client will be started with, and whether it was. As there is one client in a process, there is one."""

    process_group: ProcessGroup | None = None
    started: bool = False


CLIENT_STATE: Final = ClientState()


def start_cpu_client(place: ProcessGroup | None) -> Client:
    """The client of the host's own devices, which knows those of the other processes if there are some.

    The number of host devices is what `XLA_FLAGS=--xla_force_host_platform_device_count=n` says, else 1.
    """
    if place is None:
        return cast(Client, _jax.get_tfrt_cpu_client(asynchronous=True))
    between = _jax.make_gloo_tcp_collectives(distributed_client=place.distributed_client, hostname=place.host)
    return cast(
        Client,
        _jax.get_tfrt_cpu_client(
            asynchronous=True,
            distributed_client=place.distributed_client,
            node_id=place.index,
            num_nodes=place.count,
            collectives=between,
            num_devices=None if place.local_ids is None else len(place.local_ids),
        ),
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

# Neither Python's buffer protocol nor NumPy's DLPack knows these, so they are read as unsigned integers of their size.
READ_AS_BITS: Final[dict[np.dtype[np.generic], np.dtype[np.generic]]] = {
    dtype: np.dtype(f"u{dtype.itemsize}") for name, dtype in DTYPE_BY_MLIR_NAME.items() if name.startswith(("bf", "f8"))
}
# These are packed on the device and DLPack cannot carry them: a small program widens them first, which loses nothing.
READ_WIDENED: Final[dict[np.dtype[np.generic], np.dtype[np.generic]]] = {
    DTYPE_BY_MLIR_NAME["i2"]: np.dtype(np.int8),
    DTYPE_BY_MLIR_NAME["i4"]: np.dtype(np.int8),
    DTYPE_BY_MLIR_NAME["ui2"]: np.dtype(np.uint8),
    DTYPE_BY_MLIR_NAME["ui4"]: np.dtype(np.uint8),
    DTYPE_BY_MLIR_NAME["f4E2M1FN"]: np.dtype(np.float32),
}
READ_DIRECTLY: Final = frozenset(MLIR_NAME) - READ_AS_BITS.keys() - READ_WIDENED.keys()


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


@final
class ResultSpec(ArraySpec):
    """The type of a program's result, which knows the program: a buffer keeps it, so errors that come late can tell."""

    __slots__ = ("program",)

    def __init__(self, shape: Shape, dtype: np.dtype[np.generic], program: str) -> None:
        super().__init__(shape, dtype)
        self.program = program


def require_xla_dtype(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    if dtype not in MLIR_NAME:
        raise TypeError(f"XLA has no element type for dtype {dtype}: convert the array to a numeric or boolean dtype")
    return dtype


def deleted_error(buffer: Buffer) -> DeletedBufferError:
    return DeletedBufferError(f"{buffer.aval!r} was deleted, or donated to a program: keep a copy before that")


def execution_error(name: str, error: Exception, buffers: Sequence[Buffer]) -> ExecutionError:
    """What to say of a program that failed: of arguments that were deleted XLA says something else."""
    for i, buffer in enumerate(buffers):
        if buffer.is_deleted():
            return DeletedBufferError(
                f"the compiled {name} was given an array, {buffer.aval!r} at place {i}, that was deleted or donated to "
                "a program: keep a copy before that"
            )
    seen: dict[int, int] = {}
    for i, buffer in enumerate(buffers):
        if "donate" in str(error) and seen.setdefault(id(buffer), i) != i:
            return donation_error(name, seen[id(buffer)], i, buffer.aval)
    return ExecutionError(f"the compiled {name} failed: {error}")


def donation_error(name: str, first: int, second: int, aval: object) -> DonationError:
    return DonationError(
        f"the compiled {name} was given one array, {aval!r}, as parameters {first} and {second}, one of which is "
        "donated, so that the other would have no memory any more: pass a copy of the array, or do not donate it"
    )


@final
class PjrtSingleDeviceSharding(_SingleDeviceSharding):
    """One whole array on one device, as jaxlib's C++ side wants to be told. One instance a device."""

    memory_kind: Final = None

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self.device = device
        self.device_sequence = [device]

    def _to_xla_hlo_sharding(self, ndim: int) -> object:
        return _REPLICATED


@functools.cache
def pjrt_single_device_sharding(device: Device) -> PjrtSingleDeviceSharding:
    return PjrtSingleDeviceSharding(device)
