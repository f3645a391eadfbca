"""The backend: programs compiled by XLA, run by PJRT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast, final

from attrs import field, frozen

from tracefx.core.avals import ShapedArray
from tracefx.core.backend import Buffer, Device
from tracefx.core.digest import executable_key
from tracefx.core.dtypes import NDArray
from tracefx.core.handler import ROOT, Tracer, escaped
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.literal import Literal
from tracefx.core.values import ConcreteArray, Value
from tracefx.xla import runtime
from tracefx.xla.executables import OnceCache
from tracefx.xla.lower import Lowered, Output, Result, lower_jaxpr


@final
@frozen(eq=False)
class LoweredModule:
    """A module ready to be compiled."""

    lowered: Lowered

    def text(self, debug_info: bool = False) -> str:
        return runtime.module_text(self.lowered.module, locations=debug_info)

    def compile(self, options: Mapping[str, runtime.CompilerOption]) -> Compiled:
        low = self.lowered
        executable = runtime.compile_module(low.module, device=runtime.devices()[0], compiler_options=options)
        return Compiled(executable, low.kept, low.donated, low.results, low.outputs)


@final
@frozen(eq=False)
class Compiled:
    """A program ready to run."""

    executable: runtime.Executable
    kept: tuple[int, ...]
    donated: frozenset[int]
    results: tuple[ShapedArray, ...]
    outputs: tuple[Output, ...]
    direct: bool = field(init=False)

    @direct.default
    def _(self) -> bool:
        """Whether the program's outputs are exactly the executable's results."""
        return self.outputs == tuple([Result(i) for i in range(len(self.results))])

    def __call__(self, args: Sequence[Value]) -> list[ConcreteArray]:
        device = self.executable.device
        if self.donated:
            buffers = [_buffer(args[i], device, i in self.donated) for i in self.kept]
        else:
            buffers = [buffer_of(args[i], device) for i in self.kept]
        results = self.executable.execute(buffers)
        arrays = [ConcreteArray(aval, None, buffer) for aval, buffer in zip(self.results, results, strict=True)]
        return arrays if self.direct else [self._output(o, args, arrays) for o in self.outputs]

    def _output(self, output: Output, args: Sequence[Value], results: Sequence[ConcreteArray]) -> ConcreteArray:
        if isinstance(output, Result):
            return results[output.index]
        value = output if isinstance(output, Literal) else args[output.index]
        if isinstance(value, Literal):
            return ConcreteArray(value.aval, value.numpy())
        assert isinstance(value, ConcreteArray)
        return value

    def text(self) -> str:
        return self.executable.hlo_text()

    def cost_analysis(self) -> dict[str, float]:
        return self.executable.cost_analysis()

    def memory_analysis(self) -> runtime.MemoryAnalysis:
        return self.executable.memory_analysis()


def buffer_of(x: Value, device: runtime.Device) -> runtime.Buffer:
    """The device buffer of a value. A first use makes it, and the array keeps it."""
    if type(x) is ConcreteArray:
        buffer = x.buffer
        if buffer is None:
            made = runtime.put(x.numpy(), device)
            x.adopt(made)
            return made
        return cast(runtime.Buffer, buffer)
    if isinstance(x, Literal):
        return runtime.put(x.numpy(), device)
    assert isinstance(x, Tracer)
    raise escaped(x, ROOT, "as an argument of a compiled program")


def _buffer(x: Value, device: runtime.Device, donate: bool) -> runtime.Buffer:
    """The device buffer of a value that may be given away: host memory is copied first, it may be the caller's."""
    if donate and isinstance(x, ConcreteArray):
        if x.buffer is None:
            return runtime.put(x.numpy(), device, copy=True)
        x.donate()
    return buffer_of(x, device)


@final
@frozen(eq=False)
class XlaBackend:
    """Runs each program compiled; programs that are equal but for names share an executable."""

    executables: OnceCache[tuple[bytes, tuple[int, ...], bool], Compiled] = field(
        factory=lambda: OnceCache(4096), init=False
    )

    def lower(self, jaxpr: Jaxpr, name: str, donated: tuple[int, ...] = (), keep_unused: bool = False) -> LoweredModule:
        return LoweredModule(lower_jaxpr(jaxpr, name, donated, keep_unused))

    def compiled(self, jaxpr: Jaxpr, name: str, donated: tuple[int, ...] = (), keep_unused: bool = False) -> Compiled:
        def compile_now() -> Compiled:
            return self.lower(jaxpr, name, donated, keep_unused).compile({})

        def find() -> Compiled:
            key = executable_key(jaxpr)
            return compile_now() if key is None else self.executables.get((key, donated, keep_unused), compile_now)

        return jaxpr.memo.get(("compiled", donated, keep_unused), find)

    def run(self, jaxpr: Jaxpr, args: Sequence[Value], name: str) -> list[ConcreteArray]:
        return self.compiled(jaxpr, name)(args)

    def devices(self, platform: str) -> list[Device]:
        return list(runtime.devices(platform))

    def put(self, host: NDArray, device: Device | None) -> Buffer:
        return runtime.put(host, runtime.devices()[0] if device is None else cast(runtime.Device, device))

    def device_of(self, buffer: Buffer) -> Device:
        return runtime.device_of(cast(runtime.Buffer, buffer))

    def to_dlpack(self, buffer: Buffer) -> object:
        return runtime.to_dlpack(cast(runtime.Buffer, buffer))

    def read(self, buffer: Buffer) -> NDArray:
        return runtime.to_numpy(cast(runtime.Buffer, buffer))

    def wait(self, buffer: Buffer) -> None:
        runtime.block_until_ready(cast(runtime.Buffer, buffer))
