"""The backend: programs compiled by XLA, run by PJRT."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Final, Self, cast, final

import numpy as np
from attrs import evolve, field, frozen
from typing_extensions import CapsuleType

from tracefx.core.avals import ShapedArray, shared
from tracefx.core.backend import DEFAULT_DEVICE, Buffer, Device, Runnable, SupportsDLPack
from tracefx.core.digest import executable_key
from tracefx.core.dtypes import NDArray
from tracefx.core.handler import ROOT, Tracer, bind, escaped
from tracefx.core.jaxpr import Jaxpr, Var
from tracefx.core.key_words import type_of_words, words_of
from tracefx.core.literal import Literal
from tracefx.core.primitive import Primitive
from tracefx.core.settings import COMPILATION_CACHE, CompilationCache
from tracefx.core.sharded import ShardedArray
from tracefx.core.shardings import Placing, Sharding, SingleDeviceSharding, Wishes, alone_on
from tracefx.core.traffic import Collective
from tracefx.core.values import ConcreteArray, Value, as_value, to_numpy
from tracefx.interpreters.stage import stage
from tracefx.xla import runtime
from tracefx.xla.disk import Disk
from tracefx.xla.entries import entry_name
from tracefx.xla.executables import OnceCache
from tracefx.xla.lower import Output, Plan, Result, lower, lower_for, plan, whole
from tracefx.xla.modules import Lowered
from tracefx.xla.moves import by_tiles
from tracefx.xla.spread import (
    PLACINGS,
    Anywhere,
    Returning,
    SpreadJob,
    SpreadProgram,
    Wandering,
    meshes_of,
    moved,
    no_wishes,
    placing_for,
    placing_of,
    placing_on,
    widened,
)


@final
@frozen(eq=False)
class Job:
    """A program to be compiled, or to be found on disk."""

    jaxpr: Jaxpr
    name: str
    plan: Plan
    keep_unused: bool
    disk: Disk
    elsewhere: Callable[[Sequence[Value | NDArray]], list[ConcreteArray]]

    def lower(self) -> Lowered:
        return lower(self.plan, self.name)

    def done(
        self,
        lowered: Callable[[], Lowered],
        options: Mapping[str, runtime.CompilerOption],
        cache: CompilationCache | None,
    ) -> Compiled:
        """The program compiled. It is lowered if it has to be."""
        if cache is None:
            return self._compile(lowered(), options)
        name = entry_name(self.jaxpr, self.plan.donated, self.keep_unused, runtime.devices()[0], options)
        if name is None:
            return self._compile(lowered(), options)
        found = self.disk.load(cache, name)
        if found is not None:
            with suppress(runtime.LoadError):  # for reasons of XLA's that the name doesn't tell: it is compiled anew
                loaded = runtime.load_executable(found, runtime.devices()[0], self.name)
                return Compiled.of(loaded, self.plan, self.elsewhere)
        module = lowered()
        compiled = self._compile(module, options)
        if not module.calls_host:
            with suppress(runtime.CompilationError):  # XLA has executables that it can't write
                self.disk.store(cache, name, compiled.executable.serialize(module.calls_kernels))
        return compiled

    def _compile(self, lowered: Lowered, options: Mapping[str, runtime.CompilerOption]) -> Compiled:
        device, module, functions = runtime.devices()[0], lowered.module, lowered.host_functions
        if functions:
            executable = runtime.compile_calling_module(
                module, functions, device=device, name=self.name, compiler_options=options
            )
        else:
            executable = runtime.compile_module(module, device=device, name=self.name, compiler_options=options)
        return Compiled.of(executable, self.plan, self.elsewhere)


class Readable:
    """A lowered module as text and as objects of the bindings."""

    __slots__ = ()
    lowered: Lowered

    def text(self, debug_info: bool = False) -> str:
        return runtime.module_text(self.lowered.module, locations=debug_info)

    def hlo_text(self) -> str:
        return runtime.hlo_computation(self.lowered.module).as_hlo_text()

    def module(self, dialect: str) -> object:
        return self.lowered.module if dialect == "stablehlo" else runtime.hlo_computation(self.lowered.module)

    def cost_analysis(self) -> Mapping[str, float]:
        computation = runtime.hlo_computation(self.lowered.module)
        return runtime.hlo_cost_analysis(runtime.client(), computation.as_hlo_module())


@final
@frozen(eq=False)
class LoweredElsewhere(Readable):
    """A module for other platforms, or for several."""

    lowered: Lowered
    platforms: tuple[str, ...]

    def compile(self, options: Mapping[str, runtime.CompilerOption], cache: CompilationCache | None = None) -> Compiled:
        raise ValueError(
            f"a program that was lowered for {', '.join(self.platforms)} can't be compiled here: export it for those "
            "platforms, or lower it without lowering_platforms"
        )


@final
@frozen(eq=False)
class LoweredModule(Readable):
    """A module ready to be compiled."""

    job: Job
    lowered: Lowered

    def compile(self, options: Mapping[str, runtime.CompilerOption], cache: CompilationCache | None = None) -> Compiled:
        return self.job.done(lambda: self.lowered, options, COMPILATION_CACHE.value if cache is None else cache)


@final
@frozen(eq=False)
class Compiled:
    """A program ready to run."""

    executable: runtime.Executable
    inputs: int
    kept: tuple[int, ...]
    donated: frozenset[int]
    aliased: frozenset[int]
    """The donated inputs whose memory a result takes; XLA decides what else it uses."""
    results: tuple[ShapedArray, ...]
    outputs: tuple[Output, ...]
    elsewhere: Callable[[Sequence[Value | NDArray]], list[ConcreteArray]]
    """The program where its arguments are, if they are not to be brought to the device it is compiled for."""
    away: None = field(default=None, init=False)
    takes_all: bool = field(init=False)
    direct: bool = field(init=False)
    _donations: tuple[tuple[int, int, bool], ...] = field(init=False)
    """The parameters that are donated, the inputs that they are, and whether a result aliases them."""
    _run: Callable[[Sequence[Buffer]], list[ConcreteArray]] = field(init=False)

    @classmethod
    def of(
        cls,
        executable: runtime.Executable,
        planned: Plan,
        elsewhere: Callable[[Sequence[Value | NDArray]], list[ConcreteArray]],
    ) -> Self:
        results = tuple(map(shared, planned.results))
        donated = planned.donated.intersection(planned.kept)
        aliased = frozenset([planned.kept[i] for i in planned.aliases]) if donated else donated
        return cls(executable, planned.inputs, planned.kept, donated, aliased, results, planned.outputs, elsewhere)

    @takes_all.default
    def _are_inputs_parameters(self) -> bool:
        """Whether the executable's parameters are exactly the program's inputs, and none is given away."""
        return not self.donated and self.kept == tuple(range(self.inputs))

    @_donations.default
    def _find_donations(self) -> tuple[tuple[int, int, bool], ...]:
        places = [(i, place) for i, place in enumerate(self.kept) if place in self.donated]
        return tuple([(i, place, place in self.aliased) for i, place in places])

    @direct.default
    def _are_results_outputs(self) -> bool:
        """Whether the program's outputs are exactly the executable's results."""
        return self.outputs == tuple([Result(i) for i in range(len(self.results))])

    @_run.default
    def _choose_run(self) -> Callable[[Sequence[Buffer]], list[ConcreteArray]]:
        return _runner(self.executable, self.results)  # type: ignore[return-value]  # takes the runtime's buffers

    @property
    def on_buffers(self) -> Callable[[Sequence[Buffer]], list[ConcreteArray]] | None:
        return self._run if self.takes_all and self.direct else None

    @property
    def on_buffers_one(self) -> Callable[[Sequence[Buffer]], ConcreteArray]:
        execute = self.executable.executing()
        (aval,) = self.results
        return lambda buffers: ConcreteArray(aval, None, execute(buffers)[0])  # type: ignore[arg-type]  # the runtime's

    def __call__(self, args: Sequence[Value | NDArray]) -> list[ConcreteArray]:
        default = DEFAULT_DEVICE.get()
        return self.here(args) if default is None or default is self.executable.device else self.elsewhere(args)

    def here(self, args: Sequence[Value | NDArray]) -> list[ConcreteArray]:
        """`__call__`, whichever device is the default."""
        given = args if self.takes_all else self._given(args)
        buffers: list[Buffer] = []
        for x in given:
            if type(x) is ConcreteArray and x.buffer is not None:
                buffers.append(x.buffer)
            elif any(type(x) is ShardedArray for x in args):
                return self.elsewhere(args)
            else:
                buffers = self._buffers(given)
                break
        arrays = self._run(buffers)
        if self.donated:
            self._delete_donated(args, buffers)
        return arrays if self.direct else [self._output(o, args, arrays) for o in self.outputs]

    def _given(self, args: Sequence[Value | NDArray]) -> Sequence[Value | NDArray]:
        """The inputs that the executable takes."""
        for place in self.donated:
            x = args[place]
            if isinstance(x, ConcreteArray):
                x.drop_view()
        return [args[place] for place in self.kept]

    def _delete_donated(self, args: Sequence[Value | NDArray], buffers: Sequence[Buffer]) -> None:
        """Deletes the arrays whose memory the execution took, wherever they were made."""
        for i, place, aliased in self._donations:
            x = args[place]
            if isinstance(x, ConcreteArray) and (aliased or runtime.is_deleted(cast(runtime.Buffer, buffers[i]))):
                x.delete()

    def _buffers(self, given: Sequence[Value | NDArray]) -> list[Buffer]:
        inputs: list[object] = [
            x
            if type(x) is np.ndarray
            else x.buffer
            if type(x) is ConcreteArray and x.buffer is not None
            else self._put(i, x)
            for i, x in enumerate(given)
        ]
        return cast("list[Buffer]", self.executable.put(cast("list[runtime.Buffer | NDArray]", inputs)))

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

    def named(self, name: str) -> Compiled:
        """The same program under another name, for errors to tell: equal ones share their executable."""
        return self if name == self.executable.name else evolve(self, executable=self.executable.named(name))

    def text(self) -> str:
        return self.executable.hlo_text()

    def cost_analysis(self) -> dict[str, float]:
        return self.executable.cost_analysis()

    def memory_analysis(self) -> runtime.MemoryAnalysis:
        return self.executable.memory_analysis()

    @property
    def input_shardings(self) -> tuple[Sharding, ...]:
        return (SingleDeviceSharding(self.executable.device),) * self.inputs

    @property
    def output_shardings(self) -> tuple[Sharding, ...]:
        return (SingleDeviceSharding(self.executable.device),) * len(self.outputs)

    def collectives(self) -> tuple[Collective, ...]:
        return ()  # with no other device

    def _put(self, i: int, x: Value | NDArray) -> runtime.Buffer | NDArray:
        """A buffer for parameter `i`. An array keeps the one that its first use makes."""
        if isinstance(x, ConcreteArray):
            # The memory of a donated array is copied, as NumPy arrays of the caller may view it.
            made = runtime.put(x.numpy(), self.executable.device, copy=self.kept[i] in self.donated)
            x.adopt(made)
            return made
        if isinstance(x, Literal):
            return runtime.put(x.numpy(), self.executable.device)
        assert isinstance(x, Tracer)
        raise escaped(x, ROOT, "as an argument of a compiled program")


def _runner(
    executable: runtime.Executable, results: Sequence[ShapedArray]
) -> Callable[[Sequence[runtime.Buffer]], list[ConcreteArray]]:
    """From what the executable takes to arrays of what it returns."""
    execute = executable.executing()
    if len(results) != 1:
        return lambda buffers: list(map(ConcreteArray, results, repeat(None), execute(buffers)))
    (aval,) = results  # written out, as calls of small programs count
    return lambda buffers: [ConcreteArray(aval, None, execute(buffers)[0])]


def _one_operation(prim: Primitive, avals: tuple[ShapedArray, ...]) -> Jaxpr:
    def bound(*xs: Value) -> Sequence[Value]:
        return bind(prim, *xs)

    return stage(bound, avals)[0]


@final
@frozen(eq=False)
class LoweredSpread(Readable):
    """A module for several devices, ready to be compiled."""

    job: SpreadJob
    lowered: Lowered

    def compile(
        self, options: Mapping[str, runtime.CompilerOption], cache: CompilationCache | None = None
    ) -> SpreadProgram:
        return self.job.done(lambda: self.lowered, options, COMPILATION_CACHE.value if cache is None else cache)


KEPT: Final = 1024
"""Programs that are kept after their functions are gone. Each takes three to twenty mappings of memory, of which Linux
gives a process 65530.
"""


@final
@frozen(eq=False)
class XlaBackend:
    """Runs each program compiled; programs that are equal but for names share an executable."""

    executables: OnceCache[tuple[bytes, tuple[int, ...], bool], Compiled] = field(
        factory=lambda: OnceCache(KEPT), init=False
    )
    disk: Disk = field(factory=Disk, init=False)
    operations: OnceCache[tuple[Primitive, tuple[ShapedArray, ...]], Anywhere] = field(
        factory=lambda: OnceCache(KEPT), init=False
    )
    """The programs of one operation, for what is evaluated on several devices."""
    moves: OnceCache[tuple[ShapedArray, Sharding, Sharding], Callable[[Sequence[Value]], list[ConcreteArray]]] = field(
        factory=lambda: OnceCache(4096), init=False
    )
    """What moves arrays between devices."""

    def lower(
        self,
        jaxpr: Jaxpr,
        name: str,
        donated: tuple[int, ...] = (),
        keep_unused: bool = False,
        wishes: Wishes | None = None,
    ) -> LoweredModule | LoweredSpread:
        if wishes is not None or meshes_of(jaxpr) or not self.is_on_host:
            says_where = wishes is not None or meshes_of(jaxpr)
            placing = (
                placing_of(name, jaxpr, wishes or no_wishes(jaxpr))
                if says_where
                else placing_on(self.default_device, jaxpr)
            )
            spread = self._job_over(jaxpr, name, donated, keep_unused, placing)
            return LoweredSpread(spread, spread.lower())
        job = self._job(jaxpr, name, donated, keep_unused)
        return LoweredModule(job, job.lower())

    def lower_for(
        self, jaxpr: Jaxpr, name: str, platforms: tuple[str, ...], keep_unused: bool, wishes: Wishes | None = None
    ) -> LoweredElsewhere:
        spread = wishes is not None or bool(meshes_of(jaxpr))
        placing = placing_of(name, jaxpr, wishes or no_wishes(jaxpr)) if spread else None
        return LoweredElsewhere(lower_for(plan(jaxpr, (), keep_unused), name, platforms, placing), platforms)

    def compiled(
        self,
        jaxpr: Jaxpr,
        name: str,
        donated: tuple[int, ...] = (),
        keep_unused: bool = False,
        wishes: Wishes | None = None,
        put: bool = False,
    ) -> Compiled | Anywhere:
        if wishes is not None or put or meshes_of(jaxpr) or not self._is_simple:
            return self._anywhere(jaxpr, name, donated, keep_unused, wishes)
        return self._compiled(jaxpr, name, donated, keep_unused)

    def _anywhere(
        self, jaxpr: Jaxpr, name: str, donated: tuple[int, ...], keep_unused: bool, wishes: Wishes | None
    ) -> Anywhere:
        says_where = wishes is not None or bool(meshes_of(jaxpr))

        def here(args: Sequence[Value | NDArray]) -> Runnable:
            if not says_where and not any(type(x) is ShardedArray and x.committed for x in args):
                if self.is_on_host:
                    return Returning(self._compiled(jaxpr, name, donated, keep_unused).here)
                placing = placing_on(self.default_device, jaxpr)
                return Wandering(self._compiled_over(jaxpr, name, donated, keep_unused, placing))
            placing = placing_for(name, jaxpr, args, wishes)
            return self._compiled_over(jaxpr, name, donated, keep_unused, placing)

        return Anywhere(here)

    def _compiled_over(
        self, jaxpr: Jaxpr, name: str, donated: tuple[int, ...], keep_unused: bool, placing: Placing
    ) -> SpreadProgram:
        def compile_now() -> SpreadProgram:
            job = self._job_over(jaxpr, name, donated, keep_unused, placing)
            return job.done(job.lower, {}, COMPILATION_CACHE.value)

        known = jaxpr.memo.get(("spread", donated, keep_unused), lambda: OnceCache[Placing, SpreadProgram](PLACINGS))
        return known.get(placing, compile_now)

    def _job_over(
        self, jaxpr: Jaxpr, name: str, donated: tuple[int, ...], keep_unused: bool, placing: Placing
    ) -> SpreadJob:
        planned = plan(jaxpr, donated, keep_unused, moved(jaxpr, placing))
        return SpreadJob(jaxpr, name, planned, keep_unused, placing, self.disk)

    def evaluated(self, prim: Primitive, args: Sequence[Value]) -> list[ConcreteArray]:
        avals = tuple([x.aval for x in args])

        def program() -> Anywhere:
            return self._anywhere(_one_operation(prim, avals), prim.name, (), False, None)

        return self.operations.get((prim, avals), program)(args)

    def moved(self, x: ShardedArray, sharding: Sharding) -> ConcreteArray:
        if x.placed.is_equivalent_to(sharding, x.aval.ndim) and x.placed.devices == sharding.devices:
            return ShardedArray(x.aval, x.buffer, sharding)

        def way() -> Callable[[Sequence[Value]], list[ConcreteArray]]:
            found = by_tiles(x.aval, x.placed, sharding)
            if found is not None:
                return found
            v = Var(0, x.aval)
            return self._anywhere(Jaxpr((), (v,), (), (v,)), "move", (), False, Wishes((x.placed,), (sharding,)))

        (out,) = self.moves.get((x.aval, x.placed, sharding), way)([x])
        return out

    def _compiled(self, jaxpr: Jaxpr, name: str, donated: tuple[int, ...], keep_unused: bool) -> Compiled:
        def compile_now() -> Compiled:
            job = self._job(jaxpr, name, donated, keep_unused)
            return job.done(job.lower, {}, COMPILATION_CACHE.value)

        def find() -> Compiled:
            key = executable_key(jaxpr)
            if key is None:  # known by no more than the object: the object says who compiles it
                alone = jaxpr.memo.get("compiling", lambda: OnceCache[tuple[tuple[int, ...], bool], Compiled](16))
                return alone.get((donated, keep_unused), compile_now)
            return self.executables.get((key, donated, keep_unused), compile_now).named(name)

        return jaxpr.memo.get(("compiled", donated, keep_unused), find)

    def portable(
        self,
        jaxpr: Jaxpr,
        consts: Sequence[Value],
        name: str,
        platforms: Sequence[str],
        wishes: Wishes | None = None,
    ) -> tuple[bytes, tuple[int, ...]]:
        planned, count = whole(jaxpr), len(consts)
        constants = [to_numpy(consts[i]) for i in planned.kept if i < count]
        several = len(platforms) > 1
        spread = wishes is not None or bool(meshes_of(jaxpr))
        placing = placing_of(name, jaxpr, wishes or no_wishes(jaxpr)) if spread else None
        lowered = lower_for(planned, name, tuple(platforms), placing)
        if lowered.calls_host:
            raise TypeError(f"export: {name} calls code of this process, so it can't leave it")
        module = runtime.portable_artifact(lowered.module, constants, int(several), spread=spread)
        return module, tuple([i - count for i in planned.kept if i >= count])

    def portable_text(self, data: bytes) -> str:
        return runtime.portable_text(data)

    def _job(self, jaxpr: Jaxpr, name: str, donated: tuple[int, ...], keep_unused: bool) -> Job:
        elsewhere = self._anywhere(jaxpr, name, donated, keep_unused, None)
        return Job(jaxpr, name, plan(jaxpr, donated, keep_unused), keep_unused, self.disk, elsewhere)

    def run(self, jaxpr: Jaxpr, args: Sequence[Value], name: str) -> list[ConcreteArray]:
        if not self._is_simple or any(type(x) is ShardedArray for x in args):
            there = jaxpr.memo.get("anywhere", lambda: self._anywhere(jaxpr, name, (), False, None))
            return there(args)
        return self.compiled(jaxpr, name)(args)

    @property
    def platform(self) -> str:
        return runtime.default_platform()

    @property
    def default_device(self) -> Device:
        return DEFAULT_DEVICE.get() or runtime.default_device()

    @property
    def is_on_host(self) -> bool:
        return self.default_device is runtime.devices()[0]

    @property
    def _is_simple(self) -> bool:
        """Whether a program may be kept as one for the host's first device: nobody says otherwise."""
        return self.is_on_host and runtime.default_device() is runtime.devices()[0]

    @property
    def process_index(self) -> int:
        return runtime.process_index()

    def devices(self, platform: str) -> list[Device]:
        return list(runtime.all_devices(platform))

    def local_devices(self, platform: str) -> list[Device]:
        return list(runtime.devices(platform))

    def spread(self, aval: ShapedArray, sharding: Sharding, tiles: Sequence[NDArray], copied: bool = False) -> Buffer:
        kind = type_of_words(aval)
        tiling, spec = widened(sharding.tiling(aval.ndim), kind.ndim), runtime.ArraySpec(kind.shape, kind.dtype)
        return runtime.put_tiles(spec, tiling, list(map(words_of, tiles)), copy=copied)

    def join(self, aval: ShapedArray, sharding: Sharding, tiles: Sequence[Buffer]) -> Buffer:
        kind = type_of_words(aval)
        tiling = widened(sharding.tiling(aval.ndim), kind.ndim)
        spec = runtime.ArraySpec(kind.shape, kind.dtype)
        return runtime.put_tiles(spec, tiling, cast("list[runtime.Buffer]", tiles))

    def tiles(self, buffer: Buffer) -> list[Buffer]:
        return list(runtime.tiles_of(cast(runtime.Buffer, buffer)))

    def put(self, host: NDArray, device: Device | None) -> Buffer:
        return runtime.put(host, runtime.devices()[0] if device is None else cast(runtime.Device, device))

    def device_of(self, buffer: Buffer) -> Device:
        return runtime.device_of(cast(runtime.Buffer, buffer))

    def to_dlpack(self, buffer: Buffer, stream: int | None = None) -> CapsuleType:
        return runtime.to_dlpack(cast(runtime.Buffer, buffer), stream)

    def dlpack_device(self, device: Device) -> tuple[int, int]:
        return runtime.dlpack_device(cast(runtime.Device, device))

    def from_dlpack(self, external: SupportsDLPack, device: Device | None, copy: bool | None) -> Buffer:
        return runtime.from_dlpack(external, cast("runtime.Device | None", device), copy=copy)

    def taken(self, external: SupportsDLPack, weak_type: bool = False) -> ConcreteArray:
        buffer = runtime.from_dlpack(external)
        aval = shared(ShapedArray(buffer.aval.shape, buffer.aval.dtype, weak_type))
        return ShardedArray(aval, buffer, alone_on(runtime.device_of(buffer)))

    def view_dlpack(self, external: SupportsDLPack) -> NDArray:
        return runtime.view_dlpack(external)

    def read(self, buffer: Buffer) -> NDArray:
        return runtime.to_numpy(cast(runtime.Buffer, buffer))

    def is_ready(self, buffer: Buffer) -> bool:
        return runtime.is_ready(cast(runtime.Buffer, buffer))

    def is_deleted(self, buffer: Buffer) -> bool:
        return runtime.is_deleted(cast(runtime.Buffer, buffer))

    def delete(self, buffer: Buffer) -> None:
        runtime.delete(cast(runtime.Buffer, buffer))

    def wait(self, buffers: Sequence[Buffer]) -> None:
        runtime.block_until_all_ready(cast(Sequence[runtime.Buffer], buffers))
