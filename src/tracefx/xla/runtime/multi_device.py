"""Arrays that lie on several devices, and programs that run on several.

An array over several devices is one buffer for each device of this process. To take one apart jaxlib imports jax on its
own account, for half a second, the first time in a process; nothing else here does.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Final, Self, cast, final

import numpy as np
from jaxlib.mlir import ir

from tracefx.core.sharding import Tiling
from tracefx.xla.runtime.bindings import (
    BORROW,
    COPY_NOW,
    AnyArray,
    ArraySpec,
    Buffer,
    CompilationError,
    CompileOptions,
    CompilerOption,
    Device,
    ExecutionError,
    GSPMDSharding,
    HloSharding,
    JaxRuntimeError,
    LoadedExecutable,
    LoadError,
    ResultSpec,
    deleted_error,
    device_list,
    execution_error,
    hlo_sharding,
    hlo_sharding_from_proto,
    multi_device_put,
    new_device_assignment,
    pjrt_single_device_sharding,
    result_handler,
)
from tracefx.xla.runtime.callbacks import FfiCallback, FfiCallbacks
from tracefx.xla.runtime.executables import (
    HasCompilerAnalysis,
    new_options,
    options_identity,
    pack_executable,
    run_with_ffi_callbacks,
    signature_of,
    unpack_executable,
)


@final
class PjrtTiledSharding(GSPMDSharding):
    """A tiling, as jaxlib's C++ side wants to be told. One instance a tiling."""

    memory_kind: Final = None

    def __init__(self, tiling: Tiling) -> None:
        devices = cast("tuple[Device, ...]", tiling.devices)
        mine = devices[0].client.process_index()
        self.tiling = tiling
        self.device_sequence = devices
        self.local = tuple([d for d in devices if d.process_index == mine])
        if not self.local:
            ids = ", ".join([str(device.id) for device in devices])
            raise ValueError(
                f"none of the devices {ids} is one of process {mine}, which can neither put arrays there nor run "
                "programs there: let the processes that have them do so"
            )
        self._hlo = _tiling_to_hlo(tiling)
        super().__init__(device_list(devices), self._hlo)

    @property
    def _device_assignment(self) -> tuple[Device, ...]:
        return self.device_sequence

    @property
    def is_fully_addressable(self) -> bool:
        return len(self.local) == len(self.tiling.devices)

    @property
    def is_fully_replicated(self) -> bool:
        return self.tiling.num_replicas == len(self.tiling.devices)

    def _to_xla_hlo_sharding(self, ndim: int) -> HloSharding:
        return self._hlo


@functools.lru_cache(maxsize=4096)
def pjrt_tiled_sharding(tiling: Tiling) -> PjrtTiledSharding:
    return PjrtTiledSharding(tiling)


def _tiling_to_hlo(tiling: Tiling) -> HloSharding:
    if tiling.num_replicas == len(tiling.devices):
        return hlo_sharding(None, 1)
    order = np.array(tiling.device_order).reshape((*tiling.counts, tiling.num_replicas))
    return hlo_sharding(order, tiling.num_replicas)


def _tiling_from_hlo(sharding: HloSharding, devices: tuple[Device, ...], ndim: int) -> Tiling:
    """The opposite of `_tiling_to_hlo`."""
    if sharding.is_replicated() or not sharding.tile_assignment_dimensions():
        return Tiling(devices, (1,) * ndim, (0,) * len(devices))
    dims = tuple(sharding.tile_assignment_dimensions())
    copies = dims[ndim] if len(dims) > ndim else 1
    places = [0] * len(devices)
    for k, device in enumerate(sharding.tile_assignment_devices()):
        places[device] = k // copies
    return Tiling(devices, dims[:ndim], tuple(places))


# ------------------------------------------------------------------ arrays


def put_tiles(
    spec: ArraySpec, tiling: Tiling, tiles: Sequence[AnyArray] | Sequence[Buffer], *, copy: bool = False
) -> Buffer:
    """An array whose tiles are these, one for each of this process's devices in the order of the tiling.

    The memory of NumPy's arrays may become the array's, so nobody must write to it any more; with `copy` they are
    copied before this returns. Buffers that lie on their devices already become its own; others are copied.

    Raises:
        ExecutionError: if there is no memory for them.
    """
    where = pjrt_tiled_sharding(tiling)
    try:
        return multi_device_put(spec, where, tiles, list(where.local), True, False, COPY_NOW if copy else BORROW, True)
    except JaxRuntimeError as error:
        raise ExecutionError(str(error)) from error


def tiles_of(buffer: Buffer) -> list[Buffer]:
    """The tiles of an array over several devices: those on this process's, in the order of its tiling."""
    if buffer.is_deleted():
        raise deleted_error(buffer)
    where: object = buffer._sharding
    if not isinstance(where, PjrtTiledSharding):
        return [buffer]
    spec = buffer.aval
    tile = ArraySpec(where.tiling.tile_shape(spec.shape), spec.dtype)
    return [
        part._rewrap_with_aval_and_sharding(tile, pjrt_single_device_sharding(device))
        for part, device in zip(buffer._arrays, where.local, strict=True)
    ]


# ------------------------------------------------------------------ programs


@final
class SpmdExecutable(HasCompilerAnalysis):
    """A compiled program on several devices."""

    __slots__ = (
        "_functions",
        "_handlers",
        "devices",
        "name",
        "parameters",
        "results",
        "input_tilings",
        "output_tilings",
    )

    def __init__(
        self,
        name: str,
        loaded: LoadedExecutable,
        devices: tuple[Device, ...],
        parameters: tuple[ArraySpec, ...],
        results: tuple[ArraySpec, ...],
        functions: FfiCallbacks | None = None,
    ) -> None:
        self._loaded = loaded
        self._functions = functions
        self.name = name
        self.devices = devices
        self.parameters = parameters
        self.results = results
        self.input_tilings = _tilings(loaded.get_parameter_shardings(), devices, parameters)
        """How the parameters are cut."""
        self.output_tilings = _tilings(loaded.get_output_shardings(), devices, results)
        """How the results are."""
        specs = [ResultSpec(spec.shape, spec.dtype, name) for spec in results]
        self._handlers = [
            result_handler(spec, pjrt_tiled_sharding(tiling))
            for spec, tiling in zip(specs, self.output_tilings, strict=True)
        ]

    def execute(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """Runs the program on arrays that are cut as its parameters are. Returns perhaps before it is done.

        A program that calls Python functions is done when it returns.

        Raises:
            ExecutionError: for a deleted argument, or a failure on the way.
            BaseException: what a Python function raised that the program called.
        """
        if buffers and buffers[0].is_deleted():  # XLA compares the numbers of parts, and breaks off if all are none
            raise deleted_error(buffers[0])
        if self._functions is not None:
            return run_with_ffi_callbacks(self._functions, self._execute_blocking, buffers, self.name)
        try:
            return self._loaded.execute_sharded(buffers).consume_with_handlers(self._handlers)
        except JaxRuntimeError as error:
            raise execution_error(self.name, error, buffers) from error

    def serialize(self, calls_kernels: bool = False) -> bytes:
        """The compiled program with its signature, for `load` in another process that has such devices.

        Raises:
            CompilationError: if XLA can't write this one.
        """
        return pack_executable(self._loaded, self.parameters, self.results, calls_kernels)

    @classmethod
    def load(
        cls, data: bytes, devices: tuple[Device, ...], free: tuple[Sequence[bool], Sequence[bool]], name: str
    ) -> Self:
        """The executable that `serialize` wrote. Load only what you trust: it is machine code.

        Raises:
            LoadError: if the bytes are something else, another version of jaxlib wrote them, or XLA refuses them.
        """
        parameters, results, code = unpack_executable(data)
        options = _spmd_options(devices, free, {})
        try:
            loaded = devices[0].client.deserialize_executable(code, device_list(devices), options)
        except (JaxRuntimeError, ValueError) as error:
            raise LoadError(str(error)) from error
        return cls(name, loaded, devices, parameters, results)

    @staticmethod
    def identity(
        devices: tuple[Device, ...],
        free: tuple[Sequence[bool], Sequence[bool]],
        compiler_options: Mapping[str, CompilerOption],
    ) -> bytes:
        """All that an executable depends on beside its program, as `compilation_identity` says it."""
        return options_identity(devices[0], _spmd_options(devices, free, compiler_options))

    def _execute_blocking(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        running = self._loaded.execute_sharded(buffers, with_tokens=True)
        done = running.consume_token()
        results = running.consume_with_handlers(self._handlers)
        done.block_until_ready()
        return results


def _tilings(
    shardings: Sequence[object] | None, devices: tuple[Device, ...], specs: tuple[ArraySpec, ...]
) -> tuple[Tiling, ...]:
    if not specs:  # of which XLA says something all the same
        return ()
    if shardings is None:  # all whole
        return tuple([Tiling(devices, (1,) * len(spec.shape), (0,) * len(devices)) for spec in specs])
    found = [hlo_sharding_from_proto(sharding) for sharding in shardings]
    return tuple([_tiling_from_hlo(s, devices, len(spec.shape)) for s, spec in zip(found, specs, strict=True)])


def compile_spmd(
    module: ir.Module,
    functions: Sequence[FfiCallback] = (),
    given: Sequence[Sequence[ArraySpec]] = (),
    *,
    devices: tuple[Device, ...],
    free: tuple[Sequence[bool], Sequence[bool]],
    name: str = "program",
    compiler_options: Mapping[str, CompilerOption] | None = None,
) -> SpmdExecutable:
    """Compiles the public function `main` of a StableHLO module with Shardy's annotations for several devices.

    Args:
        module: is left as it is.
        functions: what custom calls of `host_call_target` call, by their `index`.
        given: the types of what each of them gives.
        devices: the partitions, in their order.
        free: of which parameters and of which results XLA may say how they are cut.
        name: what errors call it.
        compiler_options: XLA's options by name.

    Raises:
        CompilationError: if XLA refuses the program or an option, with XLA's text.
    """
    parameters, results = signature_of(module)
    options = _spmd_options(devices, free, compiler_options or {})
    calls = FfiCallbacks(functions, given) if functions else None
    there, where = devices[0].client, device_list(devices)
    try:
        if calls is None:
            loaded = there.compile_and_load(module, where, options)
        else:
            loaded = there.compile_and_load(module, where, options, calls.entry_points())
    except JaxRuntimeError as error:
        raise CompilationError(str(error)) from error
    return SpmdExecutable(name, loaded, devices, parameters, results, calls)


def _spmd_options(
    devices: tuple[Device, ...], free: tuple[Sequence[bool], Sequence[bool]], overrides: Mapping[str, CompilerOption]
) -> CompileOptions:
    options = new_options(overrides)
    options.num_replicas, options.num_partitions = 1, len(devices)
    options.device_assignment = new_device_assignment(np.array([[d.id for d in devices]]))
    build = options.executable_build_options
    build.allow_spmd_sharding_propagation_to_parameters = list(free[0]) or [False]
    build.allow_spmd_sharding_propagation_to_output = list(free[1]) or [False]
    return options
