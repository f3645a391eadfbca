"""The backend: compiles programs with XLA and runs them with PJRT."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from operator import itemgetter
from types import MappingProxyType
from typing import Final, Self, TypeAlias, TypeVar, final

import numpy as np
from attrs import evolve, field, frozen
from typing_extensions import CapsuleType, override

from tracefx.bounded_cache import BoundedCache, MemoKey
from tracefx.core import ConcreteArray, Literal, NDArray, ShapedArray, Value, to_numpy
from tracefx.core.avals import intern_aval
from tracefx.core.backend import Runnable
from tracefx.core.compiled_collectives import CompiledCollective
from tracefx.core.device import DEFAULT_DEVICE, Buffer, Device, SupportsDLPack
from tracefx.core.handler import ROOT, Tracer, bind, escaped_tracer_error
from tracefx.core.jaxpr import Jaxpr, Var
from tracefx.core.key_data import key_data_aval, to_key_data
from tracefx.core.primitive import Expandable, Primitive
from tracefx.core.sharding import (
    RequestedShardings,
    Sharding,
    ShardingAssignment,
    SingleDeviceSharding,
    single_device_sharding,
)
from tracefx.interpreters.callables import HasCallables
from tracefx.interpreters.stage import stage
from tracefx.lowering import Lowerable
from tracefx.repeated_blocks.pieces import divide_into_pieces
from tracefx.repeated_blocks.sharing import inline_all_calls, share_repeats
from tracefx.serialization.digest import executable_key
from tracefx.settings import COMPILATION_CACHE, REPEATS, RepeatsMode
from tracefx.shardings.meshes import MeshEffect
from tracefx.shardings.sharded_array import ShardedArray, without_placement
from tracefx.xla import spmd
from tracefx.xla.cache_keys import disk_cache_key
from tracefx.xla.compile_job import CompileJob, CrossPlatformModule, InspectableProgram, LoweredModule
from tracefx.xla.disk_cache import DiskCache
from tracefx.xla.emitted_module import EmittedModule
from tracefx.xla.interpretation import InterpretedProgram, PiecewiseProgram
from tracefx.xla.lower import ExecutionPlan, Output, Result, assemble_outputs, lower, lower_for, plan, plan_export
from tracefx.xla.resharding import tilewise_resharder
from tracefx.xla.runtime import bindings, buffers, executables, multi_device, platforms, portable, shared_functions

Out = TypeVar("Out")


@final
@frozen(eq=False)
class SingleDeviceProgram(InspectableProgram):
    """A compiled program on one device."""

    executable: executables.Executable
    inputs: int
    kept_inputs: tuple[int, ...]
    donated: frozenset[int]
    aliased: frozenset[int]
    """The donated inputs that alias a result; XLA decides whether it uses the memory of the others."""
    results: tuple[ShapedArray, ...]
    outputs: tuple[Output, ...]
    fallback: Callable[[Sequence[Value | NDArray]], list[ConcreteArray]]
    """Runs the program where its arguments are, if that is not the device it is compiled for."""
    donated_names: Mapping[int, str] = MappingProxyType({})
    """The names of donated inputs, for messages."""
    uncommitted_run: None = field(default=None, init=False)
    direct: bool = field(init=False)
    _smallest_result: int | None = field(init=False)
    """The output that running the program computes and that has the fewest bytes; None if it computes none."""
    _puts: Mapping[int, Callable[[NDArray], bindings.Buffer]] = field(init=False)
    """For the inputs that are used, the functions that copy NumPy arrays to buffers."""
    _donations: tuple[tuple[int, bool, str], ...] = field(init=False)
    """The donated inputs, whether a result aliases each, and their names for messages."""
    _run: Callable[[Sequence[Buffer]], list[ConcreteArray]] = field(init=False)

    @classmethod
    def of(
        cls,
        executable: executables.Executable,
        plan: ExecutionPlan,
        fallback: Callable[[Sequence[Value | NDArray]], list[ConcreteArray]],
    ) -> Self:
        results = tuple(map(intern_aval, plan.results))
        donated = plan.donated.intersection(plan.kept_inputs)
        aliased = frozenset([plan.kept_inputs[i] for i in plan.aliases]) if donated else donated
        return cls(executable, plan.inputs, plan.kept_inputs, donated, aliased, results, plan.outputs, fallback)

    @_puts.default
    def _make_puts(self) -> Mapping[int, Callable[[NDArray], bindings.Buffer]]:
        return {
            index: self.executable.put_function(i, borrows=index not in self.donated)
            for i, index in enumerate(self.kept_inputs)
        }

    @_donations.default
    def _find_donations(self) -> tuple[tuple[int, bool, str], ...]:
        names, unnamed = self.donated_names, f"an argument of {self.executable.name}"
        donated = [index for index in self.kept_inputs if index in self.donated]
        return tuple([(index, index in self.aliased, names.get(index, unnamed)) for index in donated])

    @direct.default
    def _are_results_outputs(self) -> bool:
        """Whether the program's outputs are exactly the executable's results."""
        return self.outputs == tuple([Result(i) for i in range(len(self.results))])

    @_run.default
    def _choose_run(self) -> Callable[[Sequence[Buffer]], list[ConcreteArray]]:
        results = self.results
        if len(results) == 1:  # a special case, because the overhead matters for small programs
            (aval,) = results
            return self._of_inputs(lambda buffers: [ConcreteArray(aval, None, buffers[0])])
        return self._of_inputs(lambda buffers: list(map(ConcreteArray, results, repeat(None), buffers)))

    def _of_inputs(self, wrap: Callable[[Sequence[Buffer]], Out]) -> Callable[[Sequence[Buffer]], Out]:
        """Returns a function from the buffers of all inputs to the wrapped results."""
        execute, kept = self.executable.execute_function(wrap), self.kept_inputs
        if kept == tuple(range(self.inputs)):
            return execute
        if len(kept) > 1:
            select: Callable[[Sequence[Buffer]], Sequence[Buffer]] = itemgetter(*kept)
        else:
            select = itemgetter(slice(kept[0], kept[0] + 1) if kept else slice(0))
        return lambda buffers: execute(select(buffers))

    @property
    def on_host(self) -> SingleDeviceProgram:
        return self

    @property
    def on_buffers(self) -> Callable[[Sequence[Buffer]], list[ConcreteArray]] | None:
        return self._run if self.direct and not self.donated else None

    @property
    def on_buffers_one(self) -> Callable[[Sequence[Buffer]], ConcreteArray] | None:
        if self.on_buffers is None:
            return None
        (aval,) = self.results
        return self._of_inputs(lambda buffers: ConcreteArray(aval, None, buffers[0]))

    @property
    def on_donated_buffers(self) -> tuple[Callable[[Sequence[Buffer]], list[ConcreteArray]], Mapping[int, str]] | None:
        if not self.direct or not self.donated or self.donated != self.aliased:
            return None
        return self._run, {index: name for index, _, name in self._donations}

    @_smallest_result.default
    def _find_smallest_result(self) -> int | None:
        computed = [(self.results[out.index].nbytes, i) for i, out in enumerate(self.outputs) if type(out) is Result]
        return min(computed)[1] if computed else None

    def __call__(self, args: Sequence[Value | NDArray]) -> list[ConcreteArray]:
        default = DEFAULT_DEVICE.value
        return self.call_on_host(args) if default is None or default is self.executable.device else self.fallback(args)

    def call_on_host(self, args: Sequence[Value | NDArray]) -> list[ConcreteArray]:
        """Like `__call__`, but ignores the default device."""
        if any(type(x) is ShardedArray for x in args):
            return self.fallback(args)
        inputs = [
            buffer if type(x) is ConcreteArray and (buffer := x.buffer) is not None else self.put(i, x)
            for i, x in enumerate(args)
        ]
        return self.call_with_buffers(args, inputs)

    def call_with_buffers(self, args: Sequence[Value | NDArray], inputs: Sequence[Buffer]) -> list[ConcreteArray]:
        """Runs the program on inputs whose buffers are given, and deletes donated arrays."""
        donations = self._donations
        for index, _, _ in donations:
            x = args[index]
            if type(x) is ConcreteArray and not x.shares_buffer:
                x.host = None
            elif isinstance(x, ConcreteArray):
                x.prepare_donation()
                if x.buffer is None:  # another array shares the memory, so a copy is donated
                    inputs = [*inputs[:index], self.put(index, x), *inputs[index + 1 :]]
        arrays = self._run(inputs)
        for index, aliased, name in donations:  # deletes the arrays whose memory the execution took
            x = args[index]
            if isinstance(x, ConcreteArray) and (aliased or buffers.is_deleted(bindings.native_buffer(inputs[index]))):
                x.delete_donated(name)
        return arrays if self.direct else spmd.distinct(assemble_outputs(self.outputs, args, arrays))

    def put_function(self, i: int) -> Callable[[NDArray], Buffer]:
        return self._puts.get(i, _skip_unused)

    def shared_memory(self, i: int, limit: int) -> tuple[NDArray, Buffer] | None:
        if i not in self._puts or i in self.donated or self._smallest_result is None:
            return None
        return self.executable.shared_memory(self.kept_inputs.index(i), limit)

    def pending_result(self, outs: Sequence[ConcreteArray]) -> Buffer | None:
        if self._smallest_result is None:
            return None
        return buffers.pending(outs[self._smallest_result].buffer)  # type: ignore[arg-type]  # a result has a buffer

    def put(self, i: int, x: Value | NDArray) -> Buffer:
        """Returns a buffer for input `i`. An array or a literal caches the buffer that its first use creates.

        For an input that is not used, this is an object that takes the place of a buffer.
        """
        put = self._puts.get(i)
        if put is None:
            return _UNUSED
        if isinstance(x, np.ndarray):
            return put(to_key_data(x))
        if isinstance(x, Tracer):
            raise escaped_tracer_error(x, ROOT, "as an argument of a compiled program")
        is_donated = i in self.donated
        if isinstance(x, Literal):
            if is_donated:
                return put(x.numpy())
            if x.buffer is None:
                x.attach_buffer(put(x.numpy()))
            return x.buffer
        assert isinstance(x, ConcreteArray)
        if x.buffer is None:
            # The memory of a donated array is copied, because NumPy arrays of the caller may view it.
            x.attach_buffer(buffers.buffer_from_numpy(x.numpy(), self.executable.device, copy=is_donated))
        return x.buffer

    def with_donated_names(self, names: Mapping[int, str]) -> SingleDeviceProgram:
        return evolve(self, donated_names=names)

    def named(self, name: str) -> SingleDeviceProgram:
        """Returns the same program under another name for error messages: equal programs share their executable."""
        return self if name == self.executable.name else evolve(self, executable=self.executable.named(name))

    @property
    def input_shardings(self) -> tuple[Sharding, ...]:
        return (SingleDeviceSharding(self.executable.device),) * self.inputs

    @property
    def output_shardings(self) -> tuple[Sharding, ...]:
        return (SingleDeviceSharding(self.executable.device),) * len(self.outputs)

    def collectives(self) -> tuple[CompiledCollective, ...]:
        return ()  # there is no other device


_UNUSED: Final[Buffer] = object()
"""Takes the place of the buffer of an input that is not used."""


def _skip_unused(array: NDArray) -> Buffer:
    return _UNUSED


def _mode_of_whole() -> RepeatsMode:
    """Returns what happens to repeated blocks of a program that is one executable."""
    return "share" if REPEATS.value == "pieces" else REPEATS.value


def _operation_jaxpr(prim: Primitive, avals: tuple[ShapedArray, ...]) -> Jaxpr:
    def bound(*xs: Value) -> Sequence[Value]:
        return bind(prim, *xs)

    return stage(bound, avals)[0]


@final
@frozen(eq=False)
class SingleDeviceCompileJob(CompileJob[SingleDeviceProgram]):
    """A program to compile for the host's first device."""

    fallback: Callable[[Sequence[Value | NDArray]], list[ConcreteArray]]
    repeats: RepeatsMode

    @override
    def lower(self) -> EmittedModule:
        return lower(self.plan, self.name, self.repeats)

    @override
    def _disk_key(self, options: Mapping[str, bindings.CompilerOption]) -> bytes | None:
        choices = self.keep_unused, self.repeats
        return disk_cache_key(self.jaxpr, self.plan.donated, choices, platforms.devices()[0], options)

    @override
    def _load(self, data: bytes) -> SingleDeviceProgram:
        executable = executables.load_executable(data, platforms.devices()[0], self.name)
        return SingleDeviceProgram.of(executable, self.plan, self.fallback)

    @override
    def _compile(self, lowered: EmittedModule, options: Mapping[str, bindings.CompilerOption]) -> SingleDeviceProgram:
        device, module, functions = platforms.devices()[0], lowered.module, lowered.host_functions
        if lowered.repeats.shared:
            options = {**options, shared_functions.FLATTEN_AFTER_FUSION: True}
        if functions:
            executable = executables.compile_host_calling_module(
                module, functions, device=device, name=self.name, compiler_options=options
            )
        else:
            executable = executables.compile_module(module, device=device, name=self.name, compiler_options=options)
        return SingleDeviceProgram.of(executable, self.plan, self.fallback)


_PROGRAM: Final = MemoKey[SingleDeviceProgram]("program on the first host device")
_UNSHARED_PROGRAM: Final = MemoKey[SingleDeviceProgram]("program without an executable key")
_SPMD_PROGRAM: Final = MemoKey[spmd.SpmdProgram]("program for an assignment of shardings")
_DISPATCHER: Final = MemoKey[spmd.ShardingDispatcher]("program for any shardings")
MAX_EXECUTABLES: Final = 1024
"""How many compiled programs to keep after their functions are gone. Each takes three to twenty memory mappings, of
which Linux gives a process 65530.
"""


ReshardFunction: TypeAlias = Callable[[Sequence[Value]], list[ConcreteArray]]


@final
@frozen(eq=False)
class XlaBackend:
    """Compiles and runs programs; programs that are equal up to names share an executable."""

    executables: BoundedCache[tuple[bytes, tuple[int, ...], bool, RepeatsMode], SingleDeviceProgram] = field(
        factory=lambda: BoundedCache(MAX_EXECUTABLES), init=False
    )
    disk: DiskCache = field(factory=DiskCache, init=False)
    operations: BoundedCache[
        tuple[Primitive, tuple[ShapedArray, ...]], Callable[[Sequence[Value]], Sequence[Value]]
    ] = field(factory=lambda: BoundedCache(MAX_EXECUTABLES), init=False)
    """Programs of single operations, for eager evaluation on other or several devices."""
    resharders: BoundedCache[tuple[ShapedArray, Sharding, Sharding], ReshardFunction] = field(
        factory=lambda: BoundedCache(4096), init=False
    )
    """Functions that move arrays between shardings."""

    def lower(
        self,
        jaxpr: Jaxpr,
        name: str,
        donated: tuple[int, ...] = (),
        keep_unused: bool = False,
        requested_shardings: RequestedShardings | None = None,
    ) -> LoweredModule[SingleDeviceProgram] | LoweredModule[spmd.SpmdProgram]:
        assignment = spmd.assign_shardings(name, jaxpr, requested_shardings)
        if assignment is None and not self.default_device_is_host:
            assignment = spmd.single_device_assignment(self.default_device, jaxpr)
        if assignment is not None:
            job, assigned = self._spmd_job(jaxpr, name, donated, keep_unused, assignment), assignment
            return LoweredModule(
                job,
                module := job.lower(),
                lambda: self._compiled_spmd(jaxpr, name, donated, keep_unused, assigned, job.repeats, module),
            )
        host_job = self._job(jaxpr, name, donated, keep_unused)
        return LoweredModule(
            host_job,
            host_module := host_job.lower(),
            lambda: self._compiled(jaxpr, name, donated, keep_unused, host_job.repeats, host_module),
        )

    def unusable_donations(self, jaxpr: Jaxpr, donated: tuple[int, ...], keep_unused: bool) -> tuple[int, ...]:
        return plan(jaxpr, donated, keep_unused).unusable_donations

    def lower_for(
        self,
        jaxpr: Jaxpr,
        name: str,
        platforms: tuple[str, ...],
        keep_unused: bool,
        requested_shardings: RequestedShardings | None = None,
    ) -> CrossPlatformModule:
        assignment = spmd.assign_shardings(name, jaxpr, requested_shardings)
        return CrossPlatformModule(lower_for(plan(jaxpr, (), keep_unused), name, platforms, assignment), platforms)

    def compiled(
        self,
        jaxpr: Jaxpr,
        name: str,
        donated: tuple[int, ...] = (),
        keep_unused: bool = False,
        requested_shardings: RequestedShardings | None = None,
        committed: bool = False,
    ) -> SingleDeviceProgram | PiecewiseProgram | spmd.ShardingDispatcher:
        if requested_shardings is not None or committed or spmd.meshes_of(jaxpr) or not self._uses_host_device_only:
            return self._dispatcher(jaxpr, name, donated, keep_unused, requested_shardings)
        if REPEATS.value == "pieces":
            execution_plan = plan(jaxpr, donated, keep_unused)
            program = share_repeats(execution_plan.computed, nested=False)
            if program.bodies:
                whole = self._dispatcher(jaxpr, name, donated, keep_unused)
                return PiecewiseProgram(name, execution_plan, divide_into_pieces(program.jaxpr, name), whole)
        return self._compiled(jaxpr, name, donated, keep_unused)

    def interpreted(self, jaxpr: Jaxpr, name: str, donated: tuple[int, ...], keep_unused: bool) -> InterpretedProgram:
        execution_plan = plan(jaxpr, donated, keep_unused)
        return InterpretedProgram(name, execution_plan, inline_all_calls(execution_plan.computed))

    def _dispatcher(
        self,
        jaxpr: Jaxpr,
        name: str,
        donated: tuple[int, ...] = (),
        keep_unused: bool = False,
        requested_shardings: RequestedShardings | None = None,
    ) -> spmd.ShardingDispatcher:
        repeats = _mode_of_whole()

        def compile_for(args: Sequence[Value | NDArray]) -> Runnable:
            with REPEATS.override(repeats):
                return compile_now(args)

        def compile_now(args: Sequence[Value | NDArray]) -> Runnable:
            assignment = spmd.assign_shardings_for(name, jaxpr, args, requested_shardings)
            if assignment is not None:
                host = single_device_sharding(platforms.devices()[0])
                on_host = set(assignment.inputs) <= {host, None} and not spmd.meshes_of(jaxpr)
                if on_host and requested_shardings is None and not donated:
                    program = self._compiled(jaxpr, name, donated, keep_unused)
                    if program.on_buffers is not None:
                        return spmd.CommittedHostRunner(program, program.on_buffers, host)
                return self._compiled_spmd(jaxpr, name, donated, keep_unused, assignment)
            if self.default_device_is_host:
                return spmd.HostRunner(self._compiled(jaxpr, name, donated, keep_unused).call_on_host)
            assignment = spmd.single_device_assignment(self.default_device, jaxpr)
            return spmd.UncommittedRunner(self._compiled_spmd(jaxpr, name, donated, keep_unused, assignment))

        return spmd.ShardingDispatcher(compile_for)

    def _compiled_spmd(
        self,
        jaxpr: Jaxpr,
        name: str,
        donated: tuple[int, ...],
        keep_unused: bool,
        assignment: ShardingAssignment,
        repeats: RepeatsMode | None = None,
        lowered: EmittedModule | None = None,
    ) -> spmd.SpmdProgram:
        repeats = repeats or _mode_of_whole()

        def compile_now() -> spmd.SpmdProgram:
            with REPEATS.override(repeats):
                job = self._spmd_job(jaxpr, name, donated, keep_unused, assignment)
            return job.compile_or_load({}, COMPILATION_CACHE.value, lowered)

        key = self, name, donated, keep_unused, assignment, repeats
        return jaxpr.memo.get_once(_SPMD_PROGRAM, key, compile_now)

    def _spmd_job(
        self, jaxpr: Jaxpr, name: str, donated: tuple[int, ...], keep_unused: bool, assignment: ShardingAssignment
    ) -> spmd.SpmdCompileJob:
        execution_plan = plan(jaxpr, donated, keep_unused, spmd.resharded_outputs(jaxpr, assignment))
        return spmd.SpmdCompileJob(jaxpr, name, execution_plan, keep_unused, self.disk, assignment, _mode_of_whole())

    def evaluate_on_devices(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        # The functions that a primitive holds bind their own primitives again.
        if isinstance(prim, HasCallables) or not isinstance(prim, Lowerable | Expandable):
            return prim.evaluate(args)
        host = single_device_sharding(platforms.devices()[0])
        placed = without_placement(args, host)
        if placed is not None and not any(isinstance(effect, MeshEffect) for effect in prim.effects):
            operands, committed = placed
            outs = prim.evaluate(operands)
            arrays = [out if isinstance(out, ConcreteArray) else ConcreteArray(out.aval, to_numpy(out)) for out in outs]
            return [ShardedArray.on_host(x, host, committed) for x in arrays]
        avals = tuple([x.aval for x in args])

        def program() -> Callable[[Sequence[Value]], Sequence[Value]]:
            jaxpr = _operation_jaxpr(prim, avals)
            # Without results there is nothing to place: a check raises its error here.
            return self._dispatcher(jaxpr, prim.name) if jaxpr.outs else prim.evaluate

        return self.operations.compute_once((prim, avals), program)(args)

    def reshard(self, x: ConcreteArray, sharding: Sharding) -> ConcreteArray:
        assert isinstance(x, ShardedArray)
        if x.placed.is_equivalent_to(sharding, x.aval.ndim) and x.placed.devices == sharding.devices:
            return ShardedArray(x.aval, x.buffer, sharding)

        def make_resharder() -> ReshardFunction:
            resharder = tilewise_resharder(x.aval, x.placed, sharding)
            if resharder is not None:
                return resharder
            v = Var(0, x.aval)
            shardings = RequestedShardings((x.placed,), (sharding,))
            return self._dispatcher(Jaxpr((), (v,), (), (v,)), "move", requested_shardings=shardings)

        (out,) = self.resharders.compute_once((x.aval, x.placed, sharding), make_resharder)([x])
        return out

    def _compiled(
        self,
        jaxpr: Jaxpr,
        name: str,
        donated: tuple[int, ...],
        keep_unused: bool,
        repeats: RepeatsMode | None = None,
        lowered: EmittedModule | None = None,
    ) -> SingleDeviceProgram:
        """Returns the compiled program from the cache; a lowered module is compiled unless its own program is there."""
        repeats = repeats or _mode_of_whole()

        def compile_now() -> SingleDeviceProgram:
            with REPEATS.override(repeats):
                job = self._job(jaxpr, name, donated, keep_unused)
            return job.compile_or_load({}, COMPILATION_CACHE.value, lowered)

        def compile_or_get() -> SingleDeviceProgram:
            key = executable_key(jaxpr)
            if key is None:  # the program has no key, so only calls with this very object share the executable
                return jaxpr.memo.get_once(_UNSHARED_PROGRAM, (self, name, donated, keep_unused, repeats), compile_now)
            shared_key = key, donated, keep_unused, repeats
            if lowered is not None:  # the program of an equal function would have the names and lines of that function
                program = compile_now()
                self.executables.insert(shared_key, program)
                return program
            return self.executables.compute_once(shared_key, compile_now).named(name)

        return jaxpr.memo.get(_PROGRAM, (self, name, donated, keep_unused, repeats), compile_or_get)

    def serialize_portable(
        self,
        jaxpr: Jaxpr,
        consts: Sequence[Value],
        name: str,
        platforms: Sequence[str],
        requested_shardings: RequestedShardings | None = None,
    ) -> tuple[bytes, tuple[int, ...]]:
        execution_plan, num_consts = plan_export(jaxpr), len(consts)
        constants = [to_numpy(consts[i]) for i in execution_plan.kept_inputs if i < num_consts]
        multi_platform = len(platforms) > 1
        assignment = spmd.assign_shardings(name, jaxpr, requested_shardings)
        lowered = lower_for(execution_plan, name, tuple(platforms), assignment)
        if lowered.calls_host:
            raise TypeError(f"export: {name} calls Python code of this process, so it can't be exported")
        module = portable.portable_artifact(
            lowered.module, constants, int(multi_platform), spread=assignment is not None
        )
        return module, tuple([i - num_consts for i in execution_plan.kept_inputs if i >= num_consts])

    def portable_text(self, data: bytes) -> str:
        return portable.portable_text(data)

    def _job(self, jaxpr: Jaxpr, name: str, donated: tuple[int, ...], keep_unused: bool) -> SingleDeviceCompileJob:
        fallback = self._dispatcher(jaxpr, name, donated, keep_unused)
        execution_plan = plan(jaxpr, donated, keep_unused)
        return SingleDeviceCompileJob(jaxpr, name, execution_plan, keep_unused, self.disk, fallback, _mode_of_whole())

    def run(self, jaxpr: Jaxpr, args: Sequence[Value], name: str) -> list[ConcreteArray]:
        if not self._uses_host_device_only or any(type(x) is ShardedArray for x in args):
            key = self, name, _mode_of_whole()
            return jaxpr.memo.get(_DISPATCHER, key, lambda: self._dispatcher(jaxpr, name))(args)
        return self.compiled(jaxpr, name)(args)

    @property
    def platform(self) -> str:
        return platforms.default_platform()

    @property
    def default_device(self) -> Device:
        return DEFAULT_DEVICE.value or platforms.default_device()

    @property
    def default_device_is_host(self) -> bool:
        return self.default_device is platforms.devices()[0]

    @property
    def _uses_host_device_only(self) -> bool:
        """Whether programs without shardings always run on the host's first device, so that it need not be checked."""
        return self.default_device_is_host and platforms.default_device() is platforms.devices()[0]

    @property
    def process_index(self) -> int:
        return platforms.process_index()

    def devices(self, platform: str) -> list[Device]:
        return list(platforms.all_devices(platform))

    def local_devices(self, platform: str) -> list[Device]:
        return list(platforms.devices(platform))

    def put_shards(
        self, aval: ShapedArray, sharding: Sharding, tiles: Sequence[NDArray], copied: bool = False
    ) -> Buffer:
        words_aval = key_data_aval(aval)
        tiling, spec = (
            spmd.tiling_of_words(sharding.tiling(aval.ndim), words_aval.ndim),
            bindings.ArraySpec(words_aval.shape, words_aval.dtype),
        )
        return multi_device.put_tiles(spec, tiling, list(map(to_key_data, tiles)), copy=copied)

    def assemble_shards(self, aval: ShapedArray, sharding: Sharding, tiles: Sequence[Buffer]) -> Buffer:
        words_aval = key_data_aval(aval)
        tiling = spmd.tiling_of_words(sharding.tiling(aval.ndim), words_aval.ndim)
        spec = bindings.ArraySpec(words_aval.shape, words_aval.dtype)
        return multi_device.put_tiles(spec, tiling, bindings.native_buffers(tiles))

    def disassemble(self, buffer: Buffer) -> list[Buffer]:
        return list(multi_device.tiles_of(bindings.native_buffer(buffer)))

    def put(self, host: NDArray, device: Device | None) -> Buffer:
        return buffers.buffer_from_numpy(
            host, platforms.devices()[0] if device is None else bindings.native_device(device)
        )

    def device_of(self, buffer: Buffer) -> Device:
        return buffers.device_of(bindings.native_buffer(buffer))

    def to_dlpack(self, buffer: Buffer, stream: int | None = None) -> CapsuleType:
        return buffers.to_dlpack(bindings.native_buffer(buffer), stream)

    def dlpack_device(self, device: Device) -> tuple[int, int]:
        return buffers.dlpack_device(bindings.native_device(device))

    def from_dlpack(self, external: SupportsDLPack, device: Device | None, copy: bool | None) -> Buffer:
        return buffers.from_dlpack(external, None if device is None else bindings.native_device(device), copy=copy)

    def import_array(self, external: SupportsDLPack, weak_type: bool = False) -> ConcreteArray:
        buffer = buffers.from_dlpack(external)
        aval = intern_aval(ShapedArray(buffer.aval.shape, buffer.aval.dtype, weak_type))
        return ShardedArray(aval, buffer, single_device_sharding(buffers.device_of(buffer)))

    def view_dlpack(self, external: SupportsDLPack) -> NDArray:
        return buffers.view_dlpack(external)

    def read(self, buffer: Buffer) -> NDArray:
        return buffers.buffer_to_numpy(bindings.native_buffer(buffer))

    def is_ready(self, buffer: Buffer) -> bool:
        return buffers.is_ready(bindings.native_buffer(buffer))

    def is_deleted(self, buffer: Buffer) -> bool:
        return buffers.is_deleted(bindings.native_buffer(buffer))

    def delete(self, buffer: Buffer) -> None:
        buffers.delete_buffer(bindings.native_buffer(buffer))

    def wait(self, awaited: Sequence[Buffer]) -> None:
        buffers.block_until_all_ready(bindings.native_buffers(awaited))
