"""What the core asks of whoever compiles programs and keeps device memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, Protocol, TypeGuard

from typing_extensions import CapsuleType

from tracefx.core.context_scopes import ContextVarScopes
from tracefx.core.dtypes import NDArray
from tracefx.core.late_binding import LateBound
from tracefx.core.settings import CompilationCache

if TYPE_CHECKING:
    from tracefx.core.avals import ShapedArray
    from tracefx.core.compiled_collectives import CompiledCollective
    from tracefx.core.jaxpr import Jaxpr
    from tracefx.core.primitive import Primitive
    from tracefx.core.values import ConcreteArray, Value
    from tracefx.shardings.named_sharding import RequestedShardings, Sharding
    from tracefx.shardings.sharded_array import ShardedArray


class Buffer(Protocol):
    """Memory on a device, as the backend that made it knows it; opaque to everyone else."""


class SupportsDLPack(Protocol):
    """Another library's array, as DLPack's Python protocol has it."""

    def __dlpack__(self) -> CapsuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...


class Device(Protocol):
    """Where programs run."""

    @property
    def id(self) -> int: ...
    @property
    def platform(self) -> str: ...
    @property
    def device_kind(self) -> str: ...
    @property
    def process_index(self) -> int: ...


def is_device(x: object) -> TypeGuard[Device]:
    """Whether it has what devices have: their classes are their runtimes'."""
    return hasattr(x, "process_index") and hasattr(x, "platform")


class Runnable(Protocol):
    """A program that can be run."""

    @property
    def on_buffers(self) -> Callable[[Sequence[Buffer]], list[ConcreteArray]] | None:
        """`__call__`, for buffers of the inputs; None if it takes more than to run on all of them."""
        ...

    @property
    def on_buffers_one(self) -> Callable[[Sequence[Buffer]], ConcreteArray] | None:
        """`on_buffers` for a program with one output, which it gives; None where that is."""
        ...

    @property
    def uncommitted_run(self) -> tuple[Sharding, Callable[[Sequence[Buffer]], list[ConcreteArray]]] | None:
        """Where inputs that nobody put anywhere lie, and `on_buffers` of them; None if that is the host."""
        ...

    def __call__(self, args: Sequence[Value | NDArray]) -> list[ConcreteArray]:
        """The outputs; they may still be on their way. NumPy arrays, of the inputs' dtypes, are the caller's again."""
        ...


class CompiledProgram(Runnable, Protocol):
    """A compiled program."""

    def text(self) -> str:
        """The optimized program in the compiler's own language."""
        ...

    def cost_analysis(self) -> Mapping[str, float]:
        """The compiler's estimates for one run, such as `flops` and `bytes accessed`."""
        ...

    def memory_analysis(self) -> object:
        """What the compiler planned to allocate for one run, in bytes."""
        ...

    @property
    def input_shardings(self) -> Sequence[Sharding]:
        """How the inputs have to lie."""
        ...

    @property
    def output_shardings(self) -> Sequence[Sharding]:
        """How the outputs will lie."""
        ...

    def collectives(self) -> tuple[CompiledCollective, ...]:
        """What devices do together."""
        ...


class LoweredProgram(Protocol):
    """A program lowered to the compiler's input language."""

    def text(self, debug_info: bool = False) -> str:
        """The program in that language, with the user's lines and scopes if asked for."""
        ...

    def hlo_text(self) -> str:
        """The program in HLO, before the compiler's optimizations."""
        ...

    def module(self, dialect: str) -> object:
        """The program as an object of the compiler's bindings, in the dialect `stablehlo` or `hlo`."""
        ...

    def cost_analysis(self) -> Mapping[str, float]:
        """The compiler's estimates for one run, before optimization."""
        ...

    def compile(
        self, options: Mapping[str, str | int | float | bool], cache: CompilationCache | None = None
    ) -> CompiledProgram:
        """The program, compiled with these options, or found in `cache`: the one that is set, if not given."""
        ...


class Backend(Protocol):
    """Compiles and runs programs, and reads their results. Programs have no constants."""

    def run(self, jaxpr: Jaxpr, args: Sequence[Value], name: str) -> list[ConcreteArray]:
        """The outputs of a program, compiled once; equal programs share the result of compiling."""
        ...

    def compiled(
        self,
        jaxpr: Jaxpr,
        name: str,
        donated: tuple[int, ...],
        keep_unused: bool,
        wishes: RequestedShardings | None = None,
        put: bool = False,
    ) -> Runnable:
        """The program as `run` runs it. Inputs at `donated` give their memory away.

        It runs where its arguments lie, if they lie where they were put, or where `wishes` want them. `put` says that
        they will, so that it isn't compiled for others before such come.
        """
        ...

    def lower(
        self,
        jaxpr: Jaxpr,
        name: str,
        donated: tuple[int, ...],
        keep_unused: bool,
        wishes: RequestedShardings | None = None,
    ) -> LoweredProgram:
        """Lower the program anew, with its own names and lines."""
        ...

    def lower_for(
        self,
        jaxpr: Jaxpr,
        name: str,
        platforms: tuple[str, ...],
        keep_unused: bool,
        wishes: RequestedShardings | None = None,
    ) -> LoweredProgram:
        """Lower the program for other platforms, or for several; it can be read, but not compiled here."""
        ...

    def evaluate_on_devices(self, prim: Primitive, args: Sequence[Value]) -> list[ConcreteArray]:
        """The outputs of one operation on arrays that lie where they were put, computed there."""
        ...

    def reshard(self, x: ShardedArray, sharding: Sharding) -> ConcreteArray:
        """The array as another sharding says: on the same devices, or if all of both are this process's."""
        ...

    def serialize_portable(
        self,
        jaxpr: Jaxpr,
        consts: Sequence[Value],
        name: str,
        platforms: Sequence[str],
        wishes: RequestedShardings | None = None,
    ) -> tuple[bytes, tuple[int, ...]]:
        """The program for these platforms as bytes for other processes, and which of the other inputs these take.

        The first inputs are the constants, which become a part of it. For several platforms it takes the index of the
        one it runs on first.
        """
        ...

    def portable_text(self, data: bytes) -> str:
        """What `portable` gave, in the compiler's input language; ValueError if it can't be read."""
        ...

    @property
    def platform(self) -> str:
        """The name of the platform on whose first device programs run that nobody put anywhere, e.g. `cpu`."""
        ...

    @property
    def default_device(self) -> Device:
        """The device that runs them here: `DEFAULT_DEVICE`, or the first of the platform."""
        ...

    @property
    def default_device_is_host(self) -> bool:
        """Whether that is the host's first, whose arrays are told from those that lie where they were put."""
        ...

    @property
    def process_index(self) -> int:
        """Which of the processes that work together this one is."""
        ...

    def devices(self, platform: str) -> list[Device]:
        """The devices of a platform, in all processes; `ValueError` for one that isn't there."""
        ...

    def local_devices(self, platform: str) -> list[Device]:
        """Those of this process. What nobody put anywhere runs on the first of them."""
        ...

    def put_shards(
        self, aval: ShapedArray, sharding: Sharding, tiles: Sequence[NDArray], copied: bool = False
    ) -> Buffer:
        """An array that lies as `sharding` says, of its tiles on this process's devices.

        Nobody writes to them any more, unless they are `copied` first.
        """
        ...

    def assemble_shards(self, aval: ShapedArray, sharding: Sharding, tiles: Sequence[Buffer]) -> Buffer:
        """`spread` of tiles that lie on these devices already."""
        ...

    def disassemble(self, buffer: Buffer) -> list[Buffer]:
        """The opposite of `join`."""
        ...

    def put(self, host: NDArray, device: Device | None) -> Buffer:
        """Host memory that nobody writes to any more on a device, the host's first one by default."""
        ...

    def device_of(self, buffer: Buffer) -> Device: ...

    def to_dlpack(self, buffer: Buffer, stream: int | None = None) -> CapsuleType:
        """A DLPack capsule of the buffer; `BufferError` for dtypes that DLPack doesn't have.

        The consumer's `stream` of a GPU waits for the numbers; where there is none, they are waited for here.
        """
        ...

    def dlpack_device(self, device: Device) -> tuple[int, int]:
        """DLPack's numbers for the kind of a device, and for which it is."""
        ...

    def from_dlpack(self, external: SupportsDLPack, device: Device | None, copy: bool | None) -> Buffer:
        """A buffer of another library's array, shared unless `copy` is true; `BufferError` where that can't be.

        Without a device it is on the one where the array lies.
        """
        ...

    def import_array(self, external: SupportsDLPack, weak_type: bool = False) -> ConcreteArray:
        """An array of another library that lies on a device which isn't the host's, as an array that lies there."""
        ...

    def view_dlpack(self, external: SupportsDLPack) -> NDArray:
        """Another library's array in host memory as it lies there; `BufferError` if it is elsewhere."""
        ...

    def read(self, buffer: Buffer) -> NDArray:
        """The numbers, without a copy where the device's memory is the host's. Waits for them."""
        ...

    def is_ready(self, buffer: Buffer) -> bool:
        """Whether the numbers are there."""
        ...

    def is_deleted(self, buffer: Buffer) -> bool:
        """Whether the memory was given back, or away."""
        ...

    def delete(self, buffer: Buffer) -> None:
        """Give the memory back, as soon as no running program and no view of it needs it."""
        ...

    def wait(self, buffers: Sequence[Buffer]) -> None:
        """Return when the numbers of all are there; raise what went wrong in making them."""
        ...


BACKEND: Final[LateBound[Backend]] = LateBound("the backend that runs compiled programs")


class ProcessMembership(Protocol):
    """This process among several that work together."""

    @property
    def distributed_client(self) -> object:
        """Its connection with the others, as XLA knows it."""
        ...

    @property
    def index(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def local_ids(self) -> tuple[int, ...] | None:
        """Which of the machine's devices are its own; None for all."""
        ...


class Plugins(Protocol):
    """Finds XLA's plug-ins for devices that are not the host's."""

    def client(self, platform: str, joined: ProcessMembership | None) -> object:
        """XLA's client of a platform; PlatformError if there is none."""
        ...

    def preferred_platform(self, joined: ProcessMembership | None) -> str:
        """The platform that is best to run on, of all that there are."""
        ...


PLUGINS: Final[LateBound[Plugins]] = LateBound("what finds plug-ins of XLA")
DEFAULT_DEVICE: Final[ContextVar[Device | None]] = ContextVar("tracefx_default_device", default=None)
"""The device that runs programs of uncommitted arrays, inside `default_device`; None elsewhere."""
DEFAULT_DEVICE_SCOPES: Final = ContextVarScopes(DEFAULT_DEVICE)
"""The blocks of `default_device`."""
