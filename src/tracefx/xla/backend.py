"""The backend: programs compiled by XLA, run by PJRT."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Final, Self, cast, final

import numpy as np
from attrs import evolve, field, frozen
from typing_extensions import CapsuleType

from tracefx.core.avals import ShapedArray, intern_aval
from tracefx.core.backend import Runnable
from tracefx.core.callables import HasCallables
from tracefx.core.compiled_collectives import CompiledCollective
from tracefx.core.device import DEFAULT_DEVICE, Buffer, Device, SupportsDLPack
from tracefx.core.dtypes import NDArray
from tracefx.core.handler import ROOT, Tracer, bind, escaped_tracer_error
from tracefx.core.jaxpr import Jaxpr, Var
from tracefx.core.key_data import key_data_aval, to_key_data
from tracefx.core.literal import Literal
from tracefx.core.primitive import Expandable, Primitive
from tracefx.core.settings import COMPILATION_CACHE, CompilationCache
from tracefx.core.sharding import RequestedShardings, Sharding, SingleDeviceSharding, single_device_sharding
from tracefx.core.values import ConcreteArray, Value, as_value, to_numpy
from tracefx.interpreters.stage import stage
from tracefx.lowering import Lowerable
from tracefx.serialization.digest import executable_key
from tracefx.shardings.named_sharding import ShardingAssignment
from tracefx.shardings.sharded_array import ShardedArray
from tracefx.xla import runtime
from tracefx.xla.cache_keys import disk_cache_key
from tracefx.xla.disk_cache import DiskCache
from tracefx.xla.emitted_module import EmittedModule
from tracefx.xla.lower import ExecutionPlan, Output, Result, lower, lower_for, plan, plan_export
from tracefx.xla.once_cache import OnceCache
from tracefx.xla.resharding import tilewise_resharder
from tracefx.xla.spmd import (
    MAX_SHARDING_ASSIGNMENTS,
    HostRunner,
    ShardingDispatcher,
    SpmdCompileJob,
    SpmdProgram,
    UncommittedRunner,
    assign_shardings,
    assign_shardings_for,
    meshes_of,
    no_requested_shardings,
    resharded_outputs,
    single_device_assignment,
    tiling_of_words,
)


@final
@frozen(eq=False)
class CompileJob:
    """A program to be compiled, or to be found on disk."""

    jaxpr: Jaxpr
    name: str
    plan: ExecutionPlan
    keep_unused: bool
    disk: DiskCache
    fallback: Callable[[Sequence[Value | NDArray]], list[ConcreteArray]]

    def lower(self) -> EmittedModule:
        return lower(self.plan, self.name)

    def compile_or_load(
        self,
        lowered: Callable[[], EmittedModule],
        options: Mapping[str, runtime.CompilerOption],
        cache: CompilationCache | None,
    ) -> SingleDeviceProgram:
        """The program compiled. It is lowered if it has to be."""
        if cache is None:
            return self._compile(lowered(), options)
        name = disk_cache_key(self.jaxpr, self.plan.donated, self.keep_unused, runtime.devices()[0], options)
        if name is None:
            return self._compile(lowered(), options)
        found = self.disk.load(cache, name)
        if found is not None:
            with suppress(runtime.LoadError):  # for reasons of XLA's that the name doesn't tell: it is compiled anew
                loaded = runtime.load_executable(found, runtime.devices()[0], self.name)
                return SingleDeviceProgram.of(loaded, self.plan, self.fallback)
        module = lowered()
        compiled = self._compile(module, options)
        if not module.calls_host:
            with suppress(runtime.CompilationError):  # XLA has executables that it can't write
                self.disk.store(cache, name, compiled.executable.serialize(module.calls_kernels))
        return compiled

    def _compile(self, lowered: EmittedModule, options: Mapping[str, runtime.CompilerOption]) -> SingleDeviceProgram:
        device, module, functions = runtime.devices()[0], lowered.module, lowered.host_functions
        if functions:
            executable = runtime.compile_host_calling_module(
                module, functions, device=device, name=self.name, compiler_options=options
            )
        else:
            executable = runtime.compile_module(module, device=device, name=self.name, compiler_options=options)
        return SingleDeviceProgram.of(executable, self.plan, self.fallback)


class InspectableModule:
    """A lowered module as text and as objects of the bindings."""

    __slots__ = ()
    lowered: EmittedModule

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
class CrossPlatformModule(InspectableModule):
    """A module for other platforms, or for several."""

    lowered: EmittedModule
    platforms: tuple[str, ...]

    def compile(
        self, options: Mapping[str, runtime.CompilerOption], cache: CompilationCache | None = None
    ) -> SingleDeviceProgram:
        raise ValueError(
            f"a program that was lowered for {', '.join(self.platforms)} can't be compiled here: export it for those "
            "platforms, or lower it without lowering_platforms"
        )


@final
@frozen(eq=False)
class LoweredModule(InspectableModule):
    """A module ready to be compiled."""

    job: CompileJob
    lowered: EmittedModule

    def compile(
        self, options: Mapping[str, runtime.CompilerOption], cache: CompilationCache | None = None
    ) -> SingleDeviceProgram:
        return self.job.compile_or_load(
            lambda: self.lowered, options, COMPILATION_CACHE.value if cache is None else cache
        )


@final
@frozen(eq=False)
class SingleDeviceProgram:
    """A program ready to run."""

    executable: runtime.Executable
    inputs: int
    kept_inputs: tuple[int, ...]
    donated: frozenset[int]
    aliased: frozenset[int]
    """The donated inputs whose memory a result takes; XLA decides what else it uses."""
    results: tuple[ShapedArray, ...]
    outputs: tuple[Output, ...]
    fallback: Callable[[Sequence[Value | NDArray]], list[ConcreteArray]]
    """The program where its arguments are, if they are not to be brought to the device it is compiled for."""
    uncommitted_run: None = field(default=None, init=False)
    takes_all: bool = field(init=False)
    direct: bool = field(init=False)
    _donations: tuple[tuple[int, int, bool], ...] = field(init=False)
    """The parameters that are donated, the inputs that they are, and whether a result aliases them."""
    _run: Callable[[Sequence[Buffer]], list[ConcreteArray]] = field(init=False)

    @classmethod
    def of(
        cls,
        executable: runtime.Executable,
        planned: ExecutionPlan,
        elsewhere: Callable[[Sequence[Value | NDArray]], list[ConcreteArray]],
    ) -> Self:
        results = tuple(map(intern_aval, planned.results))
        donated = planned.donated.intersection(planned.kept_inputs)
        aliased = frozenset([planned.kept_inputs[i] for i in planned.aliases]) if donated else donated
        return cls(
            executable, planned.inputs, planned.kept_inputs, donated, aliased, results, planned.outputs, elsewhere
        )

    @takes_all.default
    def _are_inputs_parameters(self) -> bool:
        """Whether the executable's parameters are exactly the program's inputs, and none is given away."""
        return not self.donated and self.kept_inputs == tuple(range(self.inputs))

    @_donations.default
    def _find_donations(self) -> tuple[tuple[int, int, bool], ...]:
        places = [(i, place) for i, place in enumerate(self.kept_inputs) if place in self.donated]
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
        execute = self.executable.execute_function()
        (aval,) = self.results
        return lambda buffers: ConcreteArray(aval, None, execute(buffers)[0])  # type: ignore[arg-type]  # the runtime's

    def __call__(self, args: Sequence[Value | NDArray]) -> list[ConcreteArray]:
        default = DEFAULT_DEVICE.value
        return self.call_on_host(args) if default is None or default is self.executable.device else self.fallback(args)

    def call_on_host(self, args: Sequence[Value | NDArray]) -> list[ConcreteArray]:
        """`__call__`, whichever device is the default."""
        given = args if self.takes_all else self._select_inputs(args)
        buffers: list[Buffer] = []
        for x in given:
            if type(x) is ConcreteArray and x.buffer is not None:
                buffers.append(x.buffer)
            elif any(type(x) is ShardedArray for x in args):
                return self.fallback(args)
            else:
                buffers = self._buffers(given)
                break
        arrays = self._run(buffers)
        if self.donated:
            self._delete_donated(args, buffers)
        return arrays if self.direct else [self._output(o, args, arrays) for o in self.outputs]

    def _select_inputs(self, args: Sequence[Value | NDArray]) -> Sequence[Value | NDArray]:
        """The inputs that the executable takes."""
        for place in self.donated:
            x = args[place]
            if isinstance(x, ConcreteArray):
                x.drop_host_view()
        return [args[place] for place in self.kept_inputs]

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

    def named(self, name: str) -> SingleDeviceProgram:
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

    def collectives(self) -> tuple[CompiledCollective, ...]:
        return ()  # with no other device

    def _put(self, i: int, x: Value | NDArray) -> runtime.Buffer | NDArray:
        """A buffer for parameter `i`. An array keeps the one that its first use makes."""
        if isinstance(x, ConcreteArray):
            # The memory of a donated array is copied, as NumPy arrays of the caller may view it.
            made = runtime.buffer_from_numpy(
                x.numpy(), self.executable.device, copy=self.kept_inputs[i] in self.donated
            )
            x.attach_buffer(made)
            return made
        if isinstance(x, Literal):
            return runtime.buffer_from_numpy(x.numpy(), self.executable.device)
        assert isinstance(x, Tracer)
        raise escaped_tracer_error(x, ROOT, "as an argument of a compiled program")


def _runner(
    executable: runtime.Executable, results: Sequence[ShapedArray]
) -> Callable[[Sequence[runtime.Buffer]], list[ConcreteArray]]:
    """From what the executable takes to arrays of what it returns."""
    execute = executable.execute_function()
    if len(results) != 1:
        return lambda buffers: list(map(ConcreteArray, results, repeat(None), execute(buffers)))
    (aval,) = results  # written out, as calls of small programs count
    return lambda buffers: [ConcreteArray(aval, None, execute(buffers)[0])]


def _operation_jaxpr(prim: Primitive, avals: tuple[ShapedArray, ...]) -> Jaxpr:
    def bound(*xs: Value) -> Sequence[Value]:
        return bind(prim, *xs)

    return stage(bound, avals)[0]


@final
@frozen(eq=False)
class LoweredSpmdModule(InspectableModule):
    """A module for several devices, ready to be compiled."""

    job: SpmdCompileJob
    lowered: EmittedModule

    def compile(
        self, options: Mapping[str, runtime.CompilerOption], cache: CompilationCache | None = None
    ) -> SpmdProgram:
        return self.job.compile_or_load(
            lambda: self.lowered, options, COMPILATION_CACHE.value if cache is None else cache
        )


MAX_EXECUTABLES: Final = 1024
"""Programs that are kept after their functions are gone. Each takes three to twenty mappings of memory, of which Linux
gives a process 65530.
"""


@final
@frozen(eq=False)
class XlaBackend:
    """Runs each program compiled; programs that are equal but for names share an executable."""

    executables: OnceCache[tuple[bytes, tuple[int, ...], bool], SingleDeviceProgram] = field(
        factory=lambda: OnceCache(MAX_EXECUTABLES), init=False
    )
    disk: DiskCache = field(factory=DiskCache, init=False)
    operations: OnceCache[tuple[Primitive, tuple[ShapedArray, ...]], ShardingDispatcher] = field(
        factory=lambda: OnceCache(MAX_EXECUTABLES), init=False
    )
    """The programs of one operation, for what is evaluated on several devices."""
    resharders: OnceCache[tuple[ShapedArray, Sharding, Sharding], Callable[[Sequence[Value]], list[ConcreteArray]]] = (
        field(factory=lambda: OnceCache(4096), init=False)
    )
    """What moves arrays between devices."""

    def lower(
        self,
        jaxpr: Jaxpr,
        name: str,
        donated: tuple[int, ...] = (),
        keep_unused: bool = False,
        wishes: RequestedShardings | None = None,
    ) -> LoweredModule | LoweredSpmdModule:
        if wishes is not None or meshes_of(jaxpr) or not self.default_device_is_host:
            says_where = wishes is not None or meshes_of(jaxpr)
            placing = (
                assign_shardings(name, jaxpr, wishes or no_requested_shardings(jaxpr))
                if says_where
                else single_device_assignment(self.default_device, jaxpr)
            )
            spread = self._spmd_job(jaxpr, name, donated, keep_unused, placing)
            return LoweredSpmdModule(spread, spread.lower())
        job = self._job(jaxpr, name, donated, keep_unused)
        return LoweredModule(job, job.lower())

    def lower_for(
        self,
        jaxpr: Jaxpr,
        name: str,
        platforms: tuple[str, ...],
        keep_unused: bool,
        wishes: RequestedShardings | None = None,
    ) -> CrossPlatformModule:
        spread = wishes is not None or bool(meshes_of(jaxpr))
        placing = assign_shardings(name, jaxpr, wishes or no_requested_shardings(jaxpr)) if spread else None
        return CrossPlatformModule(lower_for(plan(jaxpr, (), keep_unused), name, platforms, placing), platforms)

    def compiled(
        self,
        jaxpr: Jaxpr,
        name: str,
        donated: tuple[int, ...] = (),
        keep_unused: bool = False,
        wishes: RequestedShardings | None = None,
        put: bool = False,
    ) -> SingleDeviceProgram | ShardingDispatcher:
        if wishes is not None or put or meshes_of(jaxpr) or not self._uses_host_device_only:
            return self._dispatcher(jaxpr, name, donated, keep_unused, wishes)
        return self._compiled(jaxpr, name, donated, keep_unused)

    def _dispatcher(
        self, jaxpr: Jaxpr, name: str, donated: tuple[int, ...], keep_unused: bool, wishes: RequestedShardings | None
    ) -> ShardingDispatcher:
        says_where = wishes is not None or bool(meshes_of(jaxpr))

        def here(args: Sequence[Value | NDArray]) -> Runnable:
            if not says_where and not any(type(x) is ShardedArray and x.committed for x in args):
                if self.default_device_is_host:
                    return HostRunner(self._compiled(jaxpr, name, donated, keep_unused).call_on_host)
                placing = single_device_assignment(self.default_device, jaxpr)
                return UncommittedRunner(self._compiled_spmd(jaxpr, name, donated, keep_unused, placing))
            placing = assign_shardings_for(name, jaxpr, args, wishes)
            return self._compiled_spmd(jaxpr, name, donated, keep_unused, placing)

        return ShardingDispatcher(here)

    def _compiled_spmd(
        self, jaxpr: Jaxpr, name: str, donated: tuple[int, ...], keep_unused: bool, placing: ShardingAssignment
    ) -> SpmdProgram:
        def compile_now() -> SpmdProgram:
            job = self._spmd_job(jaxpr, name, donated, keep_unused, placing)
            return job.compile_or_load(job.lower, {}, COMPILATION_CACHE.value)

        known = jaxpr.memo.get(
            ("spread", donated, keep_unused),
            lambda: OnceCache[ShardingAssignment, SpmdProgram](MAX_SHARDING_ASSIGNMENTS),
        )
        return known.get(placing, compile_now)

    def _spmd_job(
        self, jaxpr: Jaxpr, name: str, donated: tuple[int, ...], keep_unused: bool, placing: ShardingAssignment
    ) -> SpmdCompileJob:
        planned = plan(jaxpr, donated, keep_unused, resharded_outputs(jaxpr, placing))
        return SpmdCompileJob(jaxpr, name, planned, keep_unused, placing, self.disk)

    def evaluate_on_devices(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        # The functions that a primitive holds bind their own primitives again.
        if isinstance(prim, HasCallables) or not isinstance(prim, Lowerable | Expandable):
            return prim.evaluate(args)
        avals = tuple([x.aval for x in args])

        def program() -> ShardingDispatcher:
            return self._dispatcher(_operation_jaxpr(prim, avals), prim.name, (), False, None)

        return self.operations.get((prim, avals), program)(args)

    def reshard(self, x: ConcreteArray, sharding: Sharding) -> ConcreteArray:
        assert isinstance(x, ShardedArray)
        if x.placed.is_equivalent_to(sharding, x.aval.ndim) and x.placed.devices == sharding.devices:
            return ShardedArray(x.aval, x.buffer, sharding)

        def way() -> Callable[[Sequence[Value]], list[ConcreteArray]]:
            found = tilewise_resharder(x.aval, x.placed, sharding)
            if found is not None:
                return found
            v = Var(0, x.aval)
            return self._dispatcher(
                Jaxpr((), (v,), (), (v,)), "move", (), False, RequestedShardings((x.placed,), (sharding,))
            )

        (out,) = self.resharders.get((x.aval, x.placed, sharding), way)([x])
        return out

    def _compiled(self, jaxpr: Jaxpr, name: str, donated: tuple[int, ...], keep_unused: bool) -> SingleDeviceProgram:
        def compile_now() -> SingleDeviceProgram:
            job = self._job(jaxpr, name, donated, keep_unused)
            return job.compile_or_load(job.lower, {}, COMPILATION_CACHE.value)

        def find() -> SingleDeviceProgram:
            key = executable_key(jaxpr)
            if key is None:  # known by no more than the object: the object says who compiles it
                alone = jaxpr.memo.get(
                    "compiling", lambda: OnceCache[tuple[tuple[int, ...], bool], SingleDeviceProgram](16)
                )
                return alone.get((donated, keep_unused), compile_now)
            return self.executables.get((key, donated, keep_unused), compile_now).named(name)

        return jaxpr.memo.get(("compiled", donated, keep_unused), find)

    def serialize_portable(
        self,
        jaxpr: Jaxpr,
        consts: Sequence[Value],
        name: str,
        platforms: Sequence[str],
        wishes: RequestedShardings | None = None,
    ) -> tuple[bytes, tuple[int, ...]]:
        planned, count = plan_export(jaxpr), len(consts)
        constants = [to_numpy(consts[i]) for i in planned.kept_inputs if i < count]
        several = len(platforms) > 1
        spread = wishes is not None or bool(meshes_of(jaxpr))
        placing = assign_shardings(name, jaxpr, wishes or no_requested_shardings(jaxpr)) if spread else None
        lowered = lower_for(planned, name, tuple(platforms), placing)
        if lowered.calls_host:
            raise TypeError(f"export: {name} calls code of this process, so it can't leave it")
        module = runtime.portable_artifact(lowered.module, constants, int(several), spread=spread)
        return module, tuple([i - count for i in planned.kept_inputs if i >= count])

    def portable_text(self, data: bytes) -> str:
        return runtime.portable_text(data)

    def _job(self, jaxpr: Jaxpr, name: str, donated: tuple[int, ...], keep_unused: bool) -> CompileJob:
        elsewhere = self._dispatcher(jaxpr, name, donated, keep_unused, None)
        return CompileJob(jaxpr, name, plan(jaxpr, donated, keep_unused), keep_unused, self.disk, elsewhere)

    def run(self, jaxpr: Jaxpr, args: Sequence[Value], name: str) -> list[ConcreteArray]:
        if not self._uses_host_device_only or any(type(x) is ShardedArray for x in args):
            there = jaxpr.memo.get("anywhere", lambda: self._dispatcher(jaxpr, name, (), False, None))
            return there(args)
        return self.compiled(jaxpr, name)(args)

    @property
    def platform(self) -> str:
        return runtime.default_platform()

    @property
    def default_device(self) -> Device:
        return DEFAULT_DEVICE.value or runtime.default_device()

    @property
    def default_device_is_host(self) -> bool:
        return self.default_device is runtime.devices()[0]

    @property
    def _uses_host_device_only(self) -> bool:
        """Whether a program may be kept as one for the host's first device: nobody says otherwise."""
        return self.default_device_is_host and runtime.default_device() is runtime.devices()[0]

    @property
    def process_index(self) -> int:
        return runtime.process_index()

    def devices(self, platform: str) -> list[Device]:
        return list(runtime.all_devices(platform))

    def local_devices(self, platform: str) -> list[Device]:
        return list(runtime.devices(platform))

    def put_shards(
        self, aval: ShapedArray, sharding: Sharding, tiles: Sequence[NDArray], copied: bool = False
    ) -> Buffer:
        kind = key_data_aval(aval)
        tiling, spec = tiling_of_words(sharding.tiling(aval.ndim), kind.ndim), runtime.ArraySpec(kind.shape, kind.dtype)
        return runtime.put_tiles(spec, tiling, list(map(to_key_data, tiles)), copy=copied)

    def assemble_shards(self, aval: ShapedArray, sharding: Sharding, tiles: Sequence[Buffer]) -> Buffer:
        kind = key_data_aval(aval)
        tiling = tiling_of_words(sharding.tiling(aval.ndim), kind.ndim)
        spec = runtime.ArraySpec(kind.shape, kind.dtype)
        return runtime.put_tiles(spec, tiling, cast("list[runtime.Buffer]", tiles))

    def disassemble(self, buffer: Buffer) -> list[Buffer]:
        return list(runtime.tiles_of(cast(runtime.Buffer, buffer)))

    def put(self, host: NDArray, device: Device | None) -> Buffer:
        return runtime.buffer_from_numpy(host, runtime.devices()[0] if device is None else cast(runtime.Device, device))

    def device_of(self, buffer: Buffer) -> Device:
        return runtime.device_of(cast(runtime.Buffer, buffer))

    def to_dlpack(self, buffer: Buffer, stream: int | None = None) -> CapsuleType:
        return runtime.to_dlpack(cast(runtime.Buffer, buffer), stream)

    def dlpack_device(self, device: Device) -> tuple[int, int]:
        return runtime.dlpack_device(cast(runtime.Device, device))

    def from_dlpack(self, external: SupportsDLPack, device: Device | None, copy: bool | None) -> Buffer:
        return runtime.from_dlpack(external, cast("runtime.Device | None", device), copy=copy)

    def import_array(self, external: SupportsDLPack, weak_type: bool = False) -> ConcreteArray:
        buffer = runtime.from_dlpack(external)
        aval = intern_aval(ShapedArray(buffer.aval.shape, buffer.aval.dtype, weak_type))
        return ShardedArray(aval, buffer, single_device_sharding(runtime.device_of(buffer)))

    def view_dlpack(self, external: SupportsDLPack) -> NDArray:
        return runtime.view_dlpack(external)

    def read(self, buffer: Buffer) -> NDArray:
        return runtime.buffer_to_numpy(cast(runtime.Buffer, buffer))

    def is_ready(self, buffer: Buffer) -> bool:
        return runtime.is_ready(cast(runtime.Buffer, buffer))

    def is_deleted(self, buffer: Buffer) -> bool:
        return runtime.is_deleted(cast(runtime.Buffer, buffer))

    def delete(self, buffer: Buffer) -> None:
        runtime.delete_buffer(cast(runtime.Buffer, buffer))

    def wait(self, buffers: Sequence[Buffer]) -> None:
        runtime.block_until_all_ready(cast(Sequence[runtime.Buffer], buffers))
