"""The backend: programs compiled by XLA, run by PJRT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import cast, final

import numpy as np
from attrs import field, frozen
from typing_extensions import CapsuleType

from tracefx.core.avals import ShapedArray, shared
from tracefx.core.backend import Buffer, Device
from tracefx.core.digest import executable_key
from tracefx.core.dtypes import NDArray
from tracefx.core.handler import ROOT, Tracer, escaped
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.literal import Literal
from tracefx.core.values import ConcreteArray, Value, as_value
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
        return Compiled(executable, low.kept, low.donated, tuple(map(shared, low.results)), low.outputs)


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
    leading: int | None = field(init=False)

    @direct.default
    def _are_results_outputs(self) -> bool:
        """Whether the program's outputs are exactly the executable's results."""
        return self.outputs == tuple([Result(i) for i in range(len(self.results))])

    @leading.default
    def _count_leading(self) -> int | None:
        """How many inputs the executable takes if it takes just the first ones, as nearly all do."""
        count = len(self.kept)
        return count if self.kept == tuple(range(count)) else None

    def __call__(self, args: Sequence[Value | NDArray]) -> list[ConcreteArray]:
        for place in self.donated:
            x = args[place]
            if isinstance(x, ConcreteArray):
                x.donate()
        given = [args[place] for place in self.kept] if self.leading is None else args[: self.leading]
        put = self.executable.put
        buffers = [
            x.buffer
            if type(x) is ConcreteArray and x.buffer is not None
            else put(i, x)
            if type(x) is np.ndarray
            else self._put(i, x)
            for i, x in enumerate(given)
        ]
        results = self.executable.execute(cast(list[runtime.Buffer], buffers))
        arrays = list(map(ConcreteArray, self.results, repeat(None), results))
        return arrays if self.direct else [self._output(o, args, arrays) for o in self.outputs]

    def _output(
        self, output: Output, args: Sequence[Value | NDArray], results: Sequence[ConcreteArray]
    ) -> ConcreteArray:
        if isinstance(output, Result):
            return results[output.index]
        value = output if isinstance(output, Literal) else as_value(args[output.index])
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

    def _put(self, i: int, x: Value | NDArray) -> Buffer:
        """A buffer for parameter `i`. An array keeps the one that its first use makes."""
        if isinstance(x, ConcreteArray):
            if self.kept[i] in self.donated:
                return self.executable.put(i, x.numpy())  # a copy is given away: the numbers may be the caller's
            made = runtime.put(x.numpy(), self.executable.device)
            x.adopt(made)
            return made
        if isinstance(x, Literal):
            return runtime.put(x.numpy(), self.executable.device)
        assert isinstance(x, Tracer)
        raise escaped(x, ROOT, "as an argument of a compiled program")


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

    def to_dlpack(self, buffer: Buffer) -> CapsuleType:
        return runtime.to_dlpack(cast(runtime.Buffer, buffer))

    def read(self, buffer: Buffer) -> NDArray:
        return runtime.to_numpy(cast(runtime.Buffer, buffer))

    def wait(self, buffer: Buffer) -> None:
        runtime.block_until_ready(cast(runtime.Buffer, buffer))
