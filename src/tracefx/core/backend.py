"""The protocols of the backend, which compiles and runs programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from tracefx.core.avals import ShapedArray
from tracefx.core.compiled_collectives import CompiledCollective
from tracefx.core.device import Buffer, Memory
from tracefx.core.dtypes import NDArray
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.late_binding import LateBound
from tracefx.core.primitive import Primitive
from tracefx.core.repeated_blocks import RepeatedBlocks
from tracefx.core.sharding import RequestedShardings, Sharding
from tracefx.core.values import ArrayImporter, ConcreteArray, Value
from tracefx.settings import CompilationCache


class HostProgram(Protocol):
    """A compiled program that runs on the first host device."""

    @property
    def on_buffers(self) -> Callable[[Sequence[Buffer]], list[ConcreteArray]] | None:
        """A function from the buffers of all inputs to the outputs; `None` if running takes more than the buffers."""

    @property
    def on_buffers_one(self) -> Callable[[Sequence[Buffer]], ConcreteArray] | None:
        """The variant of `on_buffers` for a program with one output, which it returns; `None` where `on_buffers` is."""

    @property
    def on_donated_buffers(self) -> tuple[Callable[[Sequence[Buffer]], list[ConcreteArray]], Mapping[int, str]] | None:
        """A function like `on_buffers` that deletes the buffers of some inputs; these, with their names for messages.

        `None` if no input is donated, if a donated one may not be deleted, or if running takes more than the buffers.
        """

    def put(self, i: int, x: Value | NDArray) -> Buffer:
        """Returns a buffer for input `i`, which has none."""

    def shared_memory(self, i: int, limit: int) -> tuple[NDArray, Buffer] | None:
        """Returns new host memory for input `i`, and a buffer that reads it in place.

        The memory must not be written to while a program that has the buffer as an input runs. `None` if the input is
        not used, donated, of more than `limit` bytes, or of a type that a buffer cannot read in place, and if the
        program has no results, which would tell whether it has finished.
        """

    def pending_result(self, outs: Sequence[ConcreteArray]) -> Buffer | None:
        """Returns None if the run of the program that has just returned these outputs has finished.

        Otherwise returns another buffer of one of the results, which `Memory.is_ready` takes. All results are ready at
        the same time.
        """

    def put_function(self, i: int) -> Callable[[NDArray], Buffer]:
        """Returns a function that makes buffers for input `i` of NumPy arrays with its shape and dtype."""

    def call_with_buffers(self, args: Sequence[Value | NDArray], buffers: Sequence[Buffer]) -> list[ConcreteArray]:
        """Runs the program on its inputs, whose buffers are given."""

    def with_donated_names(self, names: Mapping[int, str]) -> HostProgram:
        """Returns the program that notes, in the arrays that are donated to it, these names of inputs for messages."""


class Runnable(Protocol):
    """A program that can be run."""

    @property
    def on_host(self) -> HostProgram | None:
        """The program as one that runs on the first host device; `None` if it may run elsewhere."""

    @property
    def uncommitted_run(self) -> tuple[Sharding, Callable[[Sequence[Buffer]], list[ConcreteArray]]] | None:
        """The fast path for uncommitted inputs: their sharding, and a function like `on_buffers` for it.

        `None` if there is no such fast path, e.g. if the program runs on the host.
        """

    def __call__(self, args: Sequence[Value | NDArray]) -> list[ConcreteArray]:
        """Runs the program and returns its outputs, which may not be ready yet.

        NumPy arrays must have the dtypes of the inputs. They may be written to after the call.
        """


class InterpretedProgram(Protocol):
    """A program that is interpreted where the compiled program is not ready."""

    def __call__(self, args: Sequence[Value | NDArray], is_compiled: Callable[[], bool]) -> list[ConcreteArray] | None:
        """Runs the program on its inputs. Returns None if the compiled program has to be called instead.

        If `is_compiled()` becomes true, a program without effects is not interpreted to its end.
        """


class CompiledProgram(Runnable, Protocol):
    """A compiled program."""

    def text(self) -> str:
        """Returns the optimized program in the compiler's own language."""

    def cost_analysis(self) -> Mapping[str, float]:
        """Returns the compiler's estimates for one run, e.g. `flops` and `bytes accessed`."""

    def runtime_executable(self) -> object:
        """Returns the executable as an object of the compiler's bindings."""

    def memory_analysis(self) -> object:
        """Returns the sizes in bytes of what the compiler allocates for one run."""

    @property
    def input_shardings(self) -> Sequence[Sharding]:
        """The shardings that the inputs must have."""

    @property
    def output_shardings(self) -> Sequence[Sharding]:
        """The shardings of the outputs."""

    def collectives(self) -> tuple[CompiledCollective, ...]:
        """Returns the collectives in the compiled program."""


class LoweredProgram(Protocol):
    """A program lowered to the compiler's input language."""

    def text(self, debug_info: bool = False) -> str:
        """Returns the program in that language; with `debug_info`, with source lines and scopes."""

    def hlo_text(self) -> str:
        """Returns the program as HLO, before the compiler's optimizations."""

    def module(self, dialect: str) -> object:
        """Returns the program as an object of the compiler's bindings, in the dialect `stablehlo` or `hlo`."""

    @property
    def repeats(self) -> RepeatedBlocks:
        """The repeated blocks of the program, and which of them are compiled once."""

    def cost_analysis(self) -> Mapping[str, float]:
        """Returns the compiler's estimates for one run, before optimization."""

    def compile(
        self, options: Mapping[str, str | int | float | bool], cache: CompilationCache | None = None
    ) -> CompiledProgram:
        """Compiles the program.

        Args:
            options: The compiler options.
            cache: The compilation cache to use; by default, the one of the current setting.
        """


class Backend(Memory, ArrayImporter, Protocol):
    """Compiles and runs programs, and manages device memory. Programs must not have constants."""

    def run(self, jaxpr: Jaxpr, args: Sequence[Value], name: str) -> list[ConcreteArray]:
        """Runs a program that is compiled at the first call. Equal programs share an executable."""

    def compiled(
        self,
        jaxpr: Jaxpr,
        name: str,
        donated: tuple[int, ...],
        keep_unused: bool,
        requested_shardings: RequestedShardings | None = None,
        committed: bool = False,
    ) -> Runnable:
        """Returns the compiled program.

        Committed arguments or requested shardings decide on which devices it runs.

        Args:
            jaxpr: The program.
            name: Its name in profiles and dumps.
            donated: The indices of the inputs whose buffers are donated.
            keep_unused: Whether inputs that are not used stay parameters of the executable.
            requested_shardings: The requested shardings of inputs and outputs; `None` for none.
            committed: Whether arguments will be committed. The program is then not compiled in advance for others.
        """

    def interpreted(self, jaxpr: Jaxpr, name: str, donated: tuple[int, ...], keep_unused: bool) -> InterpretedProgram:
        """Returns the program as one that is interpreted, with its calls inlined."""

    def lower(
        self,
        jaxpr: Jaxpr,
        name: str,
        donated: tuple[int, ...],
        keep_unused: bool,
        requested_shardings: RequestedShardings | None = None,
    ) -> LoweredProgram:
        """Lowers the program, without the cache, so that it has its own names and source lines."""

    def unusable_donations(self, jaxpr: Jaxpr, donated: tuple[int, ...], keep_unused: bool) -> tuple[int, ...]:
        """Returns the indices of donated inputs that the program uses, but whose memory no result can reuse."""

    def lower_for(
        self,
        jaxpr: Jaxpr,
        name: str,
        platforms: tuple[str, ...],
        keep_unused: bool,
        requested_shardings: RequestedShardings | None = None,
    ) -> LoweredProgram:
        """Lowers the program for one or several other platforms. The result can be inspected, but not compiled here."""

    def evaluate_on_devices(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        """Evaluates one primitive on the devices of its operands, some of which are sharded or committed.

        A primitive that cannot be lowered is evaluated on the host.
        """

    def reshard(self, x: ConcreteArray, sharding: Sharding) -> ConcreteArray:
        """Returns the array with another sharding.

        Its devices must be the same, unless all devices of both shardings belong to this process.
        """

    def serialize_portable(
        self,
        jaxpr: Jaxpr,
        consts: Sequence[Value],
        name: str,
        platforms: Sequence[str],
        requested_shardings: RequestedShardings | None = None,
    ) -> tuple[bytes, tuple[int, ...]]:
        """Serializes a program for these platforms, for use by other processes.

        Args:
            jaxpr: The program. Its leading inputs are the constants.
            consts: The constants, which become part of the serialized program.
            name: Its name.
            platforms: The platforms. If there are several, the serialized program has a leading input: the platform
                index.
            requested_shardings: The requested shardings of inputs and outputs; `None` for none.

        Returns:
            The bytes, and the indices of the other inputs that the serialized program keeps.
        """

    def portable_text(self, data: bytes) -> str:
        """Returns a result of `serialize_portable` as text. Raises ValueError for malformed bytes."""

    def put_shards(
        self, aval: ShapedArray, sharding: Sharding, tiles: Sequence[NDArray], copied: bool = False
    ) -> Buffer:
        """Returns the buffer of a sharded array, made of NumPy tiles for the devices of this process.

        The tiles must not be written to afterwards, unless they are `copied`.
        """

    def assemble_shards(self, aval: ShapedArray, sharding: Sharding, tiles: Sequence[Buffer]) -> Buffer:
        """Returns the buffer of a sharded array, made of buffers that are already on its devices."""

    def disassemble(self, buffer: Buffer) -> list[Buffer]:
        """Returns the buffers on this process's devices of which a sharded array consists."""


BACKEND: Final[LateBound[Backend]] = LateBound("the backend that runs compiled programs")


class ProcessMembership(Protocol):
    """The position of this process among the processes of a distributed program."""

    @property
    def distributed_client(self) -> object:
        """The client of XLA's distributed runtime."""

    @property
    def index(self) -> int:
        """The index of this process."""

    @property
    def count(self) -> int:
        """The number of processes."""

    @property
    def local_ids(self) -> tuple[int, ...] | None:
        """The ids of the machine's devices that belong to this process; `None` for all."""


class Plugins(Protocol):
    """Finds XLA plug-ins (PJRT) for accelerators."""

    def client(self, platform: str, joined: ProcessMembership | None) -> object:
        """Returns the XLA client of a platform. Raises PlatformError if there is none."""

    def preferred_platform(self, joined: ProcessMembership | None) -> str:
        """Returns the fastest platform that is available."""


PLUGINS: Final[LateBound[Plugins]] = LateBound("the finder of XLA plug-ins")
