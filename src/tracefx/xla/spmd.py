"""Programs that run where their arguments are: on several devices (SPMD), or on one that is not the first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, final

import numpy as np
from attrs import field, frozen
from typing_extensions import override

from tracefx.bounded_cache import BoundedCache
from tracefx.core import ConcreteArray, Literal, NDArray, ShapedArray, Value, float0, to_numpy
from tracefx.core.avals import intern_aval
from tracefx.core.backend import HostProgram, Runnable
from tracefx.core.compiled_collectives import CompiledCollective
from tracefx.core.device import DEFAULT_DEVICE, Buffer, Device
from tracefx.core.handler import ROOT, Tracer, escaped_tracer_error
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.key_data import key_data_aval, to_key_data
from tracefx.core.partition_spec import UNCONSTRAINED, PartitionSpec
from tracefx.core.sharding import RequestedShardings, Sharding, SingleDeviceSharding, Tiling, single_device_sharding
from tracefx.errors import DeletedArrayError, DeviceMismatchError
from tracefx.settings import RepeatsMode
from tracefx.shardings.meshes import Mesh, MeshEffect
from tracefx.shardings.named_sharding import NamedSharding, ShardingAssignment, require_shardable, to_named_sharding
from tracefx.shardings.sharded_array import ShardedArray
from tracefx.xla.cache_keys import spmd_disk_cache_key
from tracefx.xla.compile_job import CompileJob, InspectableProgram
from tracefx.xla.emitted_module import EmittedModule
from tracefx.xla.hlo_collectives import parse_collectives
from tracefx.xla.lower import ExecutionPlan, ForwardedInput, Result, lower_spmd
from tracefx.xla.runtime import bindings, buffers, multi_device, platforms

# ------------------------------------------------------------------ assignment of devices and shardings


def meshes_of(jaxpr: Jaxpr) -> list[Mesh]:
    """Returns the meshes that a program refers to."""
    return [effect.mesh for effect in jaxpr.effects if isinstance(effect, MeshEffect)]


def assign_shardings_for(
    name: str, jaxpr: Jaxpr, args: Sequence[Value | NDArray], requested: RequestedShardings | None
) -> ShardingAssignment | None:
    """Like `assign_shardings`, with the shardings of committed arguments; raises `ValueError` if they differ."""
    requested = requested or _no_requested_shardings(jaxpr)
    inputs = []
    for i, (x, requested_sharding) in enumerate(zip(args, requested.inputs, strict=True)):
        sharding = x.placed if isinstance(x, ShardedArray) and x.committed else None
        if sharding is not None and requested_sharding is not None and sharding != requested_sharding:
            aval = jaxpr.invars[i].aval
            if not sharding.is_equivalent_to(requested_sharding, aval.ndim):
                raise ValueError(
                    f"{name}: input {i}, {aval}, has sharding {sharding}, but in_shardings requests "
                    f"{requested_sharding}: move the argument with device_put, or request no sharding for it"
                )
        inputs.append(requested_sharding or sharding)
    return assign_shardings(name, jaxpr, RequestedShardings(tuple(inputs), requested.outputs))


def _no_requested_shardings(jaxpr: Jaxpr) -> RequestedShardings:
    return RequestedShardings((None,) * len(jaxpr.invars), (None,) * len(jaxpr.outs))


def assign_shardings(name: str, jaxpr: Jaxpr, requested: RequestedShardings | None) -> ShardingAssignment | None:
    """Assigns shardings from the requested ones; raises `ValueError` if these are on different devices.

    Returns None if none are requested and the program refers to no mesh: it can then run on any device.
    """
    requested = requested or _no_requested_shardings(jaxpr)
    inputs = requested.inputs
    outputs = _with_types(requested.outputs, jaxpr, _explicit_mesh(jaxpr, requested))
    device_sets: list[tuple[tuple[Device, ...], str | int, str]] = []
    for i, sharding in enumerate(inputs):
        if sharding is not None:
            require_shardable(jaxpr.invars[i].aval, sharding, f"input {i} of {name}")
            device_sets.append((sharding.devices, i, "is on"))
    for i, sharding in enumerate(outputs):
        if sharding is not None:
            require_shardable(jaxpr.outs[i].aval, sharding, f"output {i} of {name}")
            device_sets.append((sharding.devices, f"output {i}", "is requested on"))
    device_sets += [(mesh.flat, "it", f"refers to {mesh} with") for mesh in meshes_of(jaxpr)]
    if not device_sets:
        return None
    first, what, why = device_sets[0]
    for devices, other, other_why in device_sets[1:]:
        if set(devices) != set(first):
            raise DeviceMismatchError(name, ((what, f"{why} {_ids(first)}"), (other, f"{other_why} {_ids(devices)}")))
    return ShardingAssignment(first, inputs, outputs)


def _explicit_mesh(jaxpr: Jaxpr, requested: RequestedShardings) -> Mesh | None:
    """Returns the mesh with explicit axes that a program refers to, if there is one."""
    shardings = (*requested.inputs, *requested.outputs)
    meshes = [sharding.mesh for sharding in shardings if isinstance(sharding, NamedSharding)] + meshes_of(jaxpr)
    return next((mesh for mesh in meshes if mesh.explicit_axes), None)


def _with_types(outputs: tuple[Sharding | None, ...], jaxpr: Jaxpr, mesh: Mesh | None) -> tuple[Sharding | None, ...]:
    """Returns the shardings of outputs with those of their types, if no other is requested.

    Along automatic axes, which types know nothing of, the compiler chooses the shardings of outputs.
    """
    if mesh is None:
        return outputs
    shardings: list[Sharding | None] = []
    for requested, out in zip(outputs, jaxpr.outs, strict=True):
        free = UNCONSTRAINED if mesh.auto_axes else None
        spec = PartitionSpec(*[free if entry is None else entry for entry in out.aval.spec])
        shardings.append(requested or (None if free and UNCONSTRAINED in spec else NamedSharding(mesh, spec)))
    return tuple(shardings)


def _ids(devices: Sequence[Device]) -> str:
    return f"device{'s' if len(devices) > 1 else ''} {', '.join([str(d.id) for d in devices])}"


def resharded_outputs(jaxpr: Jaxpr, assignment: ShardingAssignment) -> frozenset[int]:
    """Returns the outputs that are inputs, or other outputs, with another sharding: the program reshards them."""
    shardings: dict[int, Sharding | None] = {
        v.index: assignment.inputs[i] for i, v in enumerate(jaxpr.invars) if v.aval.dtype != float0
    }
    resharded = set()
    for i, (a, requested) in enumerate(zip(jaxpr.outs, assignment.outputs, strict=True)):
        if isinstance(a, Literal) or requested is None:
            continue
        if a.index not in shardings:
            shardings[a.index] = requested
        elif shardings[a.index] != requested:
            resharded.add(i)
    return frozenset(resharded)


def output_mesh(assignment: ShardingAssignment, jaxpr: Jaxpr) -> Mesh | None:
    """Returns the mesh in terms of which the shardings of results are expressed, if there is one."""
    for sharding in (*assignment.inputs, *assignment.outputs):
        if isinstance(sharding, NamedSharding):
            return sharding.mesh
    return next(iter(meshes_of(jaxpr)), None)


# ------------------------------------------------------------------ the program


class MayRunElsewhere:
    """A program that may run on other devices than the first host device."""

    __slots__ = ()
    on_host: Final = None


@final
@frozen(eq=False)
class SpmdProgram(InspectableProgram, MayRunElsewhere):
    """A program compiled for several devices."""

    executable: multi_device.SpmdExecutable
    plan: ExecutionPlan
    assignment: ShardingAssignment
    mesh: Mesh | None
    results: tuple[ShapedArray, ...] = field(init=False)
    _parameter_shardings: tuple[tuple[Sharding, Tiling], ...] = field(init=False)
    """The shardings and tilings of the parameters."""
    _expected_shardings: tuple[tuple[int, Sharding | None], ...] = field(init=False)
    """For each parameter the index of the input, and the sharding whose buffers are used without further checks."""
    _result_shardings: tuple[Sharding, ...] = field(init=False)
    _reordered_results: tuple[tuple[int, Tiling], ...] = field(init=False)
    """The results whose shardings order the devices differently than the program, with their tilings."""
    _direct: bool = field(init=False)
    """Whether the outputs are exactly the results, in order."""
    uncommitted_run: None = field(default=None, init=False)

    @results.default
    def _shared_results(self) -> tuple[ShapedArray, ...]:
        return tuple(map(intern_aval, self.plan.results))

    @_parameter_shardings.default
    def _find_parameter_shardings(self) -> tuple[tuple[Sharding, Tiling], ...]:
        specified = [self.assignment.inputs[i] for i in self.plan.kept_inputs]
        entries = zip(specified, self.executable.input_tilings, self.plan.computed.in_avals, strict=True)
        return tuple(
            [(sharding or self._to_named_sharding(tiling, aval), tiling) for sharding, tiling, aval in entries]
        )

    @_expected_shardings.default
    def _find_expected_shardings(self) -> tuple[tuple[int, Sharding | None], ...]:
        devices = self.assignment.devices
        parameters = zip(self.plan.kept_inputs, self._parameter_shardings, strict=True)
        return tuple([(i, sharding if sharding.devices == devices else None) for i, (sharding, _) in parameters])

    @_result_shardings.default
    def _find_result_shardings(self) -> tuple[Sharding, ...]:
        specified = self.plan.select_results(self.assignment.outputs)
        entries = zip(specified, self.executable.output_tilings, self.plan.results, strict=True)
        return tuple([sharding or self._to_named_sharding(tiling, aval) for sharding, tiling, aval in entries])

    @_reordered_results.default
    def _find_reordered_results(self) -> tuple[tuple[int, Tiling], ...]:
        entries = zip(self._result_shardings, self.plan.results, self.executable.results, strict=True)
        return tuple(
            [
                (k, tiling_of_words(sharding.tiling(aval.ndim), len(spec.shape)))
                for k, (sharding, aval, spec) in enumerate(entries)
                if sharding.devices != self.assignment.devices
            ]
        )

    def _to_named_sharding(self, tiling: Tiling, aval: ShapedArray) -> Sharding:
        if self.mesh is None:
            (device,) = tiling.devices
            return SingleDeviceSharding(device)
        of_array = Tiling(tiling.devices, tiling.counts[: aval.ndim], tiling.tile_indices)
        for i, of_input in zip(self.plan.kept_inputs, self.plan.computed.in_avals, strict=True):
            sharding = self.assignment.inputs[i]
            if of_input.ndim == aval.ndim and sharding is not None and sharding.tiling(aval.ndim) == of_array:
                return sharding  # so that an operation on one array does not change its sharding
        return to_named_sharding(of_array, self.mesh)

    @_direct.default
    def _are_results_outputs(self) -> bool:
        return not self._reordered_results and self.plan.outputs == tuple([Result(i) for i in range(len(self.results))])

    @property
    def execute_function(self) -> Callable[[Sequence[Buffer]], Sequence[Buffer]] | None:
        """The executable's `execute`, if all inputs are parameters, all outputs are results and none is donated."""
        takes_all = tuple([i for i, _ in self._expected_shardings]) == tuple(range(len(self.assignment.inputs)))
        if not takes_all or not self._direct or self.plan.donated:
            return None
        return self.executable.execute

    def __call__(self, args: Sequence[Value | NDArray]) -> list[ConcreteArray]:
        for i in self.plan.donated:
            if isinstance(x := args[i], ShardedArray) and not x.is_deleted():
                x.prepare_donation()
        inputs = [
            x.buffer if type(x := args[i]) is ShardedArray and x.placed is expected else self._buffer(k, x)
            for k, (i, expected) in enumerate(self._expected_shardings)
        ]
        if self.plan.donated:
            self._require_one_use(args, inputs)
        try:
            outs = self.executable.execute(inputs)
        except DeletedArrayError:
            raise_deleted(args)
            raise
        if self.plan.donated:
            self._delete_donated(args, inputs)
        if self._direct:
            return list(map(ShardedArray, self.results, outs, self._result_shardings))
        for k, tiling in self._reordered_results:
            outs[k] = multi_device.put_tiles(
                outs[k].aval, tiling, _tiles_in_order(outs[k], self.assignment.devices, tiling)
            )
        arrays = list(map(ShardedArray, self.results, outs, self._result_shardings))
        return distinct([self._output(i, args, arrays) for i in range(len(self.plan.outputs))])

    def _delete_donated(self, args: Sequence[Value | NDArray], inputs: Sequence[Buffer]) -> None:
        """Deletes the donated arrays: those whose memory was used, or would have been if nothing else viewed it."""
        aliases = self.plan.aliases
        for k, (i, buffer) in enumerate(zip(self.plan.kept_inputs, inputs, strict=True)):
            x = args[i]
            is_donated = i in self.plan.donated and (k in aliases or buffers.is_deleted(bindings.native_buffer(buffer)))
            if is_donated and isinstance(x, ConcreteArray):
                x.delete_donated(f"an argument of {self.executable.name}")

    def _require_one_use(self, args: Sequence[Value | NDArray], buffers: Sequence[Buffer]) -> None:
        """Raises `DonationError` if a donated array is also another argument: XLA would abort the process."""
        for objects in (buffers, [args[i] for i in self.plan.kept_inputs]):
            uses: dict[int, list[int]] = {}
            for k, x in enumerate(objects):
                uses.setdefault(id(x), []).append(k)
            for first, *more in uses.values():
                x = args[self.plan.kept_inputs[first]]
                is_donated = any(self.plan.kept_inputs[k] in self.plan.donated for k in (first, *more))
                if more and is_donated and isinstance(x, ConcreteArray):
                    raise bindings.donation_error(self.executable.name, first, more[0], x.aval)

    def _buffer(self, k: int, x: Value | NDArray) -> Buffer:
        sharding, tiling = self._parameter_shardings[k]
        if isinstance(x, ShardedArray) and (x.committed or x.placed == sharding):
            if x.placed == sharding and x.placed.devices == self.assignment.devices:
                return x.buffer
            self._require_sharding(self.plan.kept_inputs[k], x, sharding)
            return self._reorder_tiles(x, tiling)
        aval = self.plan.computed.in_avals[k]
        if type(x) is not ConcreteArray or len(tiling.devices) > 1 or self.plan.kept_inputs[k] in self.plan.donated:
            return put_tiled(x, aval, tiling)
        cached = x.device_copy  # else each call would copy the host array to the device
        if cached is None or cached[0] != sharding:
            cached = x.device_copy = sharding, put_tiled(x, aval, tiling)
        return cached[1]

    def _require_sharding(self, i: int, x: ShardedArray, sharding: Sharding) -> None:
        if not x.placed.is_equivalent_to(sharding, x.aval.ndim):
            raise ValueError(
                f"the compiled {self.executable.name} takes input {i}, {x.aval}, with sharding {sharding}, but the "
                f"argument has {x.placed}: move it with device_put"
            )

    def _reorder_tiles(self, x: ShardedArray, tiling: Tiling) -> Buffer:
        """Returns an array's buffer with the tiles in the order in which the program numbers the devices."""
        ordered = _tiles_in_order(bindings.native_buffer(x.buffer), x.placed.devices, tiling)
        words_aval = key_data_aval(x.aval)
        return multi_device.put_tiles(bindings.ArraySpec(words_aval.shape, words_aval.dtype), tiling, ordered)

    def _output(self, i: int, args: Sequence[Value | NDArray], results: Sequence[ConcreteArray]) -> ConcreteArray:
        output = self.plan.outputs[i]
        if isinstance(output, Result):
            return results[output.index]
        x = args[output.index] if isinstance(output, ForwardedInput) else output
        sharding = self.assignment.outputs[i]
        if sharding is None and isinstance(output, ForwardedInput):
            sharding = self.assignment.inputs[output.index]
        if isinstance(x, ShardedArray) and (sharding is None or x.placed == sharding):
            return x.alias()
        if isinstance(x, ShardedArray) and x.committed and isinstance(output, ForwardedInput):
            self._require_sharding(output.index, x, self.assignment.inputs[output.index] or x.placed)
        aval = output.aval if isinstance(output, Literal) else self._aval_of(x)
        if aval.dtype == float0:  # devices have no arrays of it
            return ConcreteArray(aval, x if isinstance(x, np.ndarray) else to_numpy(x))
        target = sharding or self._replicated_sharding(aval.ndim)
        return ShardedArray(aval, put_tiled(x, aval, target.tiling(aval.ndim)), target)

    def _replicated_sharding(self, ndim: int) -> Sharding:
        """Returns a sharding of arrays that are replicated on all devices."""
        devices = self.assignment.devices
        if self.mesh is None:
            return SingleDeviceSharding(devices[0])
        return to_named_sharding(Tiling(devices, (1,) * ndim, (0,) * len(devices)), self.mesh)

    def _aval_of(self, x: Value | NDArray) -> ShapedArray:
        return ShapedArray(x.shape, x.dtype) if isinstance(x, np.ndarray) else x.aval

    @property
    def input_shardings(self) -> tuple[Sharding, ...]:
        parameters = {
            i: sharding for i, (sharding, _) in zip(self.plan.kept_inputs, self._parameter_shardings, strict=True)
        }
        specified = enumerate(self.assignment.inputs)
        return tuple([parameters.get(i) or requested or self._replicated_sharding(0) for i, requested in specified])

    @property
    def output_shardings(self) -> tuple[Sharding, ...]:
        inputs, shardings = self.input_shardings, []
        for output, requested in zip(self.plan.outputs, self.assignment.outputs, strict=True):
            if isinstance(output, Result):
                shardings.append(self._result_shardings[output.index])
            else:
                shardings.append(
                    requested
                    or (inputs[output.index] if isinstance(output, ForwardedInput) else self._replicated_sharding(0))
                )
        return tuple(shardings)

    def collectives(self) -> tuple[CompiledCollective, ...]:
        return parse_collectives(self.text(), [d.id for d in self.assignment.devices])


def _tiles_in_order(buffer: bindings.Buffer, devices: tuple[Device, ...], tiling: Tiling) -> list[bindings.Buffer]:
    """Returns this process's tiles of an array on `devices`, in the order in which `tiling` numbers the devices."""
    this_process = platforms.process_index()
    local = [d for d in devices if d.process_index == this_process]
    tiles = dict(zip(local, multi_device.tiles_of(buffer), strict=True))
    return [tiles[d] for d in tiling.devices if d in tiles]


def raise_deleted(args: Sequence[Value | NDArray]) -> None:
    """Raises the error that says why the first deleted argument, if there is one, is deleted."""
    for x in args:
        if isinstance(x, ConcreteArray) and x.is_deleted():
            raise x.deleted_error() from None


def distinct(outputs: Sequence[ConcreteArray]) -> list[ConcreteArray]:
    """Returns arrays that are distinct objects, so that deleting one of them does not delete another."""
    if len(set(map(id, outputs))) == len(outputs):
        return list(outputs)
    first = {id(x): i for i, x in reversed(list(enumerate(outputs)))}
    return [x if first[id(x)] == i else x.alias() for i, x in enumerate(outputs)]


def put_tiled(x: Value | NDArray, aval: ShapedArray, tiling: Tiling) -> Buffer:
    """Puts an array on devices with a given tiling."""
    if isinstance(x, Tracer):
        raise escaped_tracer_error(x, ROOT, "as an argument of a compiled program")
    host = to_key_data(x if isinstance(x, np.ndarray) else to_numpy(x))
    this_process = platforms.process_index()
    is_local = [device.process_index == this_process for device in tiling.devices]
    if is_local == [True]:
        return buffers.buffer_from_numpy(
            host, bindings.native_device(tiling.devices[0]), copy=isinstance(x, np.ndarray)
        )
    # NumPy arrays are copied: the caller may change them as soon as the program runs.
    tiles = Tiling(tiling.devices, tiling.counts[: aval.ndim], tiling.tile_indices).split_tiles(
        host, is_local, isinstance(x, np.ndarray)
    )
    return multi_device.put_tiles(bindings.ArraySpec(host.shape, host.dtype), tiling_of_words(tiling, host.ndim), tiles)


def tiling_of_words(tiling: Tiling, ndim: int) -> Tiling:
    """Extends a tiling of keys to the axis of their words, which is never sharded."""
    missing = ndim - len(tiling.counts)
    return Tiling(tiling.devices, tiling.counts + (1,) * missing, tiling.tile_indices) if missing else tiling


@final
@frozen(eq=False)
class SpmdCompileJob(CompileJob[SpmdProgram]):
    """A program to compile for assigned devices."""

    assignment: ShardingAssignment
    repeats: RepeatsMode

    @property
    def free(self) -> tuple[list[bool], list[bool]]:
        """For which parameters and which results XLA chooses the sharding."""
        return (
            [self.assignment.inputs[i] is None for i in self.plan.kept_inputs],
            [sharding is None for sharding in self.plan.select_results(self.assignment.outputs)],
        )

    @property
    def _devices(self) -> tuple[bindings.Device, ...]:
        return bindings.native_devices(self.assignment.devices)

    @override
    def lower(self) -> EmittedModule:
        return lower_spmd(self.plan, self.name, self.assignment, self.repeats)

    @override
    def _disk_key(self, options: Mapping[str, bindings.CompilerOption]) -> bytes | None:
        parts = self.plan.donated, (self.keep_unused, self.repeats), self.assignment
        return spmd_disk_cache_key(self.jaxpr, *parts, self.free, options)

    @override
    def _load(self, data: bytes) -> SpmdProgram:
        return self._program(multi_device.SpmdExecutable.load(data, self._devices, self.free, self.name))

    @override
    def _compile(self, lowered: EmittedModule, options: Mapping[str, bindings.CompilerOption]) -> SpmdProgram:
        executable = multi_device.compile_spmd(
            lowered.module,
            lowered.host_functions,
            lowered.host_results,
            devices=self._devices,
            free=self.free,
            name=self.name,
            compiler_options=options,
        )
        return self._program(executable)

    def _program(self, executable: multi_device.SpmdExecutable) -> SpmdProgram:
        return SpmdProgram(executable, self.plan, self.assignment, output_mesh(self.assignment, self.jaxpr))


MAX_SHARDING_ASSIGNMENTS: Final = 256
"""How many combinations of argument shardings to cache for one program."""


def single_device_assignment(device: Device, jaxpr: Jaxpr) -> ShardingAssignment:
    """Assigns all inputs and outputs of a program to one device."""
    sharding = single_device_sharding(device)
    return ShardingAssignment((device,), (sharding,) * len(jaxpr.invars), (sharding,) * len(jaxpr.outs))


@final
@frozen(eq=False)
class UncommittedRunner(MayRunElsewhere):
    """Runs a program on the default device; its results are uncommitted."""

    program: SpmdProgram
    uncommitted_run: tuple[Sharding, Callable[[Sequence[Buffer]], list[ConcreteArray]]] | None = field(init=False)

    @uncommitted_run.default
    def _find_away(self) -> tuple[Sharding, Callable[[Sequence[Buffer]], list[ConcreteArray]]] | None:
        program = self.program
        execute = program.execute_function
        if execute is None:
            return None
        sharding, results = single_device_sharding(program.assignment.devices[0]), program.results

        def run(buffers: Sequence[Buffer]) -> list[ConcreteArray]:
            outs = execute(buffers)
            return [ShardedArray(aval, out, sharding, False) for aval, out in zip(results, outs, strict=True)]

        return sharding, run

    def __call__(self, args: Sequence[Value | NDArray]) -> list[ConcreteArray]:
        outs = self.program(args)
        for x in outs:
            if type(x) is ShardedArray:
                x.committed = False
        return outs


@final
@frozen(eq=False)
class HostRunner(MayRunElsewhere):
    """Runs a program on the host's first device; arguments on other devices are copied to it."""

    run: Callable[[Sequence[Value | NDArray]], list[ConcreteArray]]
    uncommitted_run: None = field(default=None, init=False)

    def __call__(self, args: Sequence[Value | NDArray]) -> list[ConcreteArray]:
        return self.run([ConcreteArray(x.aval, x.numpy()) if type(x) is ShardedArray else x for x in args])


@final
@frozen(eq=False)
class CommittedHostRunner(MayRunElsewhere):
    """Runs a program on the host's first device, to which arguments are committed, and so are the results."""

    program: HostProgram
    run: Callable[[Sequence[Buffer]], list[ConcreteArray]]
    sharding: Sharding
    uncommitted_run: None = field(default=None, init=False)

    def __call__(self, args: Sequence[Value | NDArray]) -> list[ConcreteArray]:
        sharding, put = self.sharding, self.program.put
        buffers = [
            x.buffer
            if type(x) is ShardedArray and x.placed == sharding
            else put(i, ConcreteArray(x.aval, x.numpy()) if type(x) is ShardedArray else x)
            for i, x in enumerate(args)
        ]
        try:
            outs = self.run(buffers)
        except DeletedArrayError:
            raise_deleted(args)
            raise
        return [ShardedArray.on_host(out, sharding, True) for out in outs]


@final
class ShardingDispatcher(MayRunElsewhere):
    """A program that is compiled for each combination of its arguments' shardings when it is called.

    If no argument is committed, it runs on the current default device.
    """

    __slots__ = ("_find", "_programs", "_latest", "uncommitted_run")

    def __init__(self, find: Callable[[Sequence[Value | NDArray]], Runnable]) -> None:
        self._find = find
        self.uncommitted_run: tuple[Sharding, Callable[[Sequence[Buffer]], list[ConcreteArray]]] | None = None
        self._programs = BoundedCache[tuple[Device | Sharding | None, ...], Runnable](MAX_SHARDING_ASSIGNMENTS)
        self._latest: tuple[list[Device | Sharding | None], Runnable] | None = None

    def __call__(self, args: Sequence[Value | NDArray]) -> list[ConcreteArray]:
        shardings: list[Device | Sharding | None] = [
            x.placed if type(x) is ShardedArray and x.committed else None for x in args
        ]
        if (default := DEFAULT_DEVICE.value) is not None:
            shardings.append(default)
        latest = self._latest
        if latest is not None and latest[0] == shardings:
            return latest[1](args)
        key = tuple(shardings)
        program = self._programs.get(key) or self._programs.insert(key, self._find(args))
        self._latest = shardings, program
        if default is None:
            self.uncommitted_run = program.uncommitted_run or self.uncommitted_run
        return program(args)
