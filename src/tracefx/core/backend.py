"""What the core asks of whoever compiles programs and keeps device memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from typing_extensions import CapsuleType

from tracefx.core.dtypes import NDArray
from tracefx.core.injection import Injected
from tracefx.core.settings import CompilationCache

if TYPE_CHECKING:
    from tracefx.core.jaxpr import Jaxpr
    from tracefx.core.values import ConcreteArray, Value


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


class Program(Protocol):
    """A compiled program."""

    @property
    def on_buffers(self) -> Callable[[Sequence[Buffer]], list[ConcreteArray]] | None:
        """`__call__`, for buffers of the inputs; None if it takes more than to run on all of them."""
        ...

    @property
    def on_buffers_one(self) -> Callable[[Sequence[Buffer]], ConcreteArray]:
        """`on_buffers` for a program with one output, which it gives."""
        ...

    def __call__(self, args: Sequence[Value | NDArray]) -> list[ConcreteArray]:
        """The outputs; they may still be on their way. NumPy arrays, of the inputs' dtypes, are the caller's again."""
        ...

    def text(self) -> str:
        """The optimized program in the compiler's own language."""
        ...

    def cost_analysis(self) -> Mapping[str, float]:
        """The compiler's estimates for one run, such as `flops` and `bytes accessed`."""
        ...

    def memory_analysis(self) -> object:
        """What the compiler planned to allocate for one run, in bytes."""
        ...


class LoweredProgram(Protocol):
    """A program lowered to the compiler's input language."""

    def text(self, debug_info: bool = False) -> str:
        """The program in that language, with the user's lines and scopes if asked for."""
        ...

    def compile(
        self, options: Mapping[str, str | int | float | bool], cache: CompilationCache | None = None
    ) -> Program:
        """The program, compiled with these options, or found in `cache`: the one that is set, if not given."""
        ...


class Backend(Protocol):
    """Compiles and runs programs, and reads their results. Programs have no constants."""

    def run(self, jaxpr: Jaxpr, args: Sequence[Value], name: str) -> list[ConcreteArray]:
        """The outputs of a program, compiled once; equal programs share the result of compiling."""
        ...

    def compiled(self, jaxpr: Jaxpr, name: str, donated: tuple[int, ...], keep_unused: bool) -> Program:
        """The program as `run` runs it. Inputs at `donated` give their memory away."""
        ...

    def lower(self, jaxpr: Jaxpr, name: str, donated: tuple[int, ...], keep_unused: bool) -> LoweredProgram:
        """Lower the program anew, with its own names and lines."""
        ...

    def portable(
        self, jaxpr: Jaxpr, consts: Sequence[Value], name: str, platforms: Sequence[str]
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
        """Where programs run, e.g. `cpu`."""
        ...

    def devices(self, platform: str) -> list[Device]:
        """The devices of a platform; `ValueError` for one that isn't there."""
        ...

    def put(self, host: NDArray, device: Device | None) -> Buffer:
        """Host memory that nobody writes to any more on a device, the first one by default."""
        ...

    def device_of(self, buffer: Buffer) -> Device: ...

    def to_dlpack(self, buffer: Buffer) -> CapsuleType:
        """A DLPack capsule of the buffer; `BufferError` for dtypes that DLPack doesn't have."""
        ...

    def from_dlpack(self, external: SupportsDLPack, device: Device | None, copy: bool | None) -> Buffer:
        """A buffer of another library's array, shared unless `copy` is true; `BufferError` where that can't be."""
        ...

    def view_dlpack(self, external: SupportsDLPack) -> NDArray:
        """Another library's array in host memory as it lies there; `BufferError` if it is elsewhere."""
        ...

    def read(self, buffer: Buffer) -> NDArray:
        """The numbers, without a copy where the device's memory is the host's. Waits for them."""
        ...

    def wait(self, buffers: Sequence[Buffer]) -> None:
        """Return when the numbers of all are there; raise what went wrong in making them."""
        ...

    def is_ready(self, buffer: Buffer) -> bool:
        """Whether the numbers are there, or what went wrong in making them is known."""
        ...

    def is_deleted(self, buffer: Buffer) -> bool:
        """Whether the memory was given back or away."""
        ...

    def delete(self, buffer: Buffer) -> None:
        """Give the memory back as soon as nothing needs it."""
        ...


BACKEND: Final[Injected[Backend]] = Injected("the backend that runs compiled programs")
