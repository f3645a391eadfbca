"""The protocol of whoever compiles and runs programs."""

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
from tracefx.core.settings import CompilationCache
from tracefx.core.sharding import RequestedShardings, Sharding
from tracefx.core.values import ArrayImporter, ConcreteArray, Value


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


class Backend(Memory, ArrayImporter, Protocol):
    """Compiles and runs programs, and manages the memory of their inputs and results. Programs have no constants."""

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

    def evaluate_on_devices(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        """Evaluates one primitive on the devices of its operands, some of which are sharded or committed.

        A primitive that cannot be lowered is evaluated on the host.
        """
        ...

    def reshard(self, x: ConcreteArray, sharding: Sharding) -> ConcreteArray:
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
