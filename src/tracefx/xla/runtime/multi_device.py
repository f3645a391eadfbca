"""Arrays over several devices, and programs that run on several devices.

An array over several devices has one buffer for each device of this process. Splitting one makes jaxlib import jax,
which takes half a second the first time in a process; nothing else here does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Self, final

import numpy as np
from jaxlib.mlir import ir

from tracefx.bounded_cache import memoize
from tracefx.core.sharding import Tiling
from tracefx.errors import ExecutionError
from tracefx.xla.runtime import bindings
from tracefx.xla.runtime.callbacks import FfiCallback, FfiCallbacks
from tracefx.xla.runtime.executables import (
    CompiledExecutable,
    compile_and_load,
    deserialize,
    new_options,
    options_identity,
    run_with_ffi_callbacks,
    signature_of,
)


@final
class PjrtTiledSharding(bindings.GSPMDSharding):
    """A tiling as jaxlib's C++ code represents it. One instance per tiling."""

    memory_kind: Final = None

    def __init__(self, tiling: Tiling) -> None:
        devices = bindings.native_devices(tiling.devices)
        mine = devices[0].client.process_index()
        self.tiling = tiling
        self.device_sequence = devices
        self.local = tuple([d for d in devices if d.process_index == mine])
        if not self.local:
            ids = ", ".join([str(device.id) for device in devices])
            raise ValueError(
                f"none of the devices {ids} is one of process {mine}, so it can neither put arrays nor run programs "
                "there: do it in the processes that have these devices"
            )
        self._hlo = _tiling_to_hlo(tiling)
        super().__init__(bindings.device_list(devices), self._hlo)

    @property
    def _device_assignment(self) -> tuple[bindings.Device, ...]:
        return self.device_sequence

    @property
    def is_fully_addressable(self) -> bool:
        return len(self.local) == len(self.tiling.devices)

    @property
    def is_fully_replicated(self) -> bool:
        return self.tiling.num_replicas == len(self.tiling.devices)

    def _to_xla_hlo_sharding(self, ndim: int) -> bindings.HloSharding:
        return self._hlo


@memoize(4096)
def pjrt_tiled_sharding(tiling: Tiling) -> PjrtTiledSharding:
    return PjrtTiledSharding(tiling)


def _tiling_to_hlo(tiling: Tiling) -> bindings.HloSharding:
    if tiling.num_replicas == len(tiling.devices):
        return bindings.hlo_sharding(None, 1)
    order = np.array(tiling.device_order).reshape((*tiling.counts, tiling.num_replicas))
    return bindings.hlo_sharding(order, tiling.num_replicas)


def _tiling_from_hlo(sharding: bindings.HloSharding, devices: tuple[bindings.Device, ...], ndim: int) -> Tiling:
    """The inverse of `_tiling_to_hlo`."""
    if sharding.is_replicated() or not sharding.tile_assignment_dimensions():
        return Tiling(devices, (1,) * ndim, (0,) * len(devices))
    dims = tuple(sharding.tile_assignment_dimensions())
    num_replicas = dims[ndim] if len(dims) > ndim else 1
    tile_indices = [0] * len(devices)
    for k, device in enumerate(sharding.tile_assignment_devices()):
        tile_indices[device] = k // num_replicas
    return Tiling(devices, dims[:ndim], tuple(tile_indices))


# ------------------------------------------------------------------ arrays


def put_tiles(
    spec: bindings.ArraySpec,
    tiling: Tiling,
    tiles: Sequence[bindings.AnyArray] | Sequence[bindings.Buffer],
    *,
    copy: bool = False,
) -> bindings.Buffer:
    """Creates an array from its tiles on this process's devices, in the order of the tiling.

    With `copy=False` the array may use the memory of NumPy tiles, so nobody may write to them any more; with
    `copy=True` they are copied before the call returns. Buffers that are on their devices become part of the array;
    others are copied.

    Raises:
        ExecutionError: if there is not enough memory.
    """
    sharding = pjrt_tiled_sharding(tiling)
    try:
        return bindings.multi_device_put(
            spec,
            sharding,
            tiles,
            list(sharding.local),
            True,
            False,
            bindings.COPY_NOW if copy else bindings.BORROW,
            True,
        )
    except bindings.JaxRuntimeError as error:
        raise ExecutionError(str(error)) from error


def tiles_of(buffer: bindings.Buffer) -> list[bindings.Buffer]:
    """Returns the tiles of an array on this process's devices, in the order of its tiling."""
    if buffer.is_deleted():
        raise bindings.deleted_error(buffer)
    sharding: object = buffer._sharding
    if not isinstance(sharding, PjrtTiledSharding):
        return [buffer]
    spec = buffer.aval
    tile = bindings.ArraySpec(sharding.tiling.tile_shape(spec.shape), spec.dtype)
    # jaxlib imports jax to split an array.
    parts = [buffer] if len(sharding.tiling.devices) == 1 else buffer._arrays
    return [
        part._rewrap_with_aval_and_sharding(tile, bindings.pjrt_single_device_sharding(device))
        for part, device in zip(parts, sharding.local, strict=True)
    ]


# ------------------------------------------------------------------ programs


@final
class SpmdExecutable(CompiledExecutable):
    """A program compiled for several devices."""

    __slots__ = ("_functions", "_handlers", "devices", "input_tilings", "output_tilings")

    def __init__(
        self,
        name: str,
        loaded: bindings.LoadedExecutable,
        devices: tuple[bindings.Device, ...],
        parameters: tuple[bindings.ArraySpec, ...],
        results: tuple[bindings.ArraySpec, ...],
        functions: FfiCallbacks | None = None,
    ) -> None:
        super().__init__(name, loaded, parameters, results)
        self._functions = functions
        self.devices = devices
        self.input_tilings = _tilings(loaded.get_parameter_shardings(), devices, parameters)
        """The tilings of the parameters."""
        self.output_tilings = _tilings(loaded.get_output_shardings(), devices, results)
        """The tilings of the results."""
        specs = [bindings.ResultSpec(spec.shape, spec.dtype, name) for spec in results]
        self._handlers = [
            bindings.result_handler(spec, pjrt_tiled_sharding(tiling))
            for spec, tiling in zip(specs, self.output_tilings, strict=True)
        ]

    def execute(self, buffers: Sequence[object]) -> list[bindings.Buffer]:
        """Runs the program on arrays with the tilings of its parameters; may return before it has finished.

        If the program calls Python functions, it has finished when this returns.

        Raises:
            ExecutionError: for a deleted argument, or if the program fails.
            BaseException: an exception raised by a Python function that the program called.
        """
        if buffers and (first := bindings.native_buffer(buffers[0])).is_deleted():
            raise bindings.deleted_error(first)  # XLA compares the numbers of shards, and aborts if all are missing
        if self._functions is not None:
            return run_with_ffi_callbacks(self._functions, self.loaded, self._handlers, buffers, self.name)
        bindings.collect_garbage()
        try:
            return self.loaded.execute_sharded(buffers).consume_with_handlers(self._handlers)
        except bindings.JaxRuntimeError as error:
            bindings.raise_execution_error(self.name, error, buffers)

    @classmethod
    def load(
        cls, data: bytes, devices: tuple[bindings.Device, ...], free: tuple[Sequence[bool], Sequence[bool]], name: str
    ) -> Self:
        """Loads an executable that `serialize` wrote. Load only trusted data: it is machine code.

        Raises:
            LoadError: if the data are invalid, were written by another version of jaxlib, or XLA rejects them.
        """
        loaded, parameters, results = deserialize(data, devices, _spmd_options(devices, free, {}))
        return cls(name, loaded, devices, parameters, results)

    @staticmethod
    def identity(
        devices: tuple[bindings.Device, ...],
        free: tuple[Sequence[bool], Sequence[bool]],
        compiler_options: Mapping[str, bindings.CompilerOption],
    ) -> bytes:
        """Returns everything that an executable depends on besides its program; see `compilation_identity`."""
        return options_identity(devices[0], _spmd_options(devices, free, compiler_options))


def _tilings(
    shardings: Sequence[object] | None, devices: tuple[bindings.Device, ...], specs: tuple[bindings.ArraySpec, ...]
) -> tuple[Tiling, ...]:
    if not specs:  # XLA returns a sharding even if there is nothing
        return ()
    if shardings is None:  # all replicated
        return tuple([Tiling(devices, (1,) * len(spec.shape), (0,) * len(devices)) for spec in specs])
    hlo_shardings = [bindings.hlo_sharding_from_proto(sharding) for sharding in shardings]
    return tuple([_tiling_from_hlo(s, devices, len(spec.shape)) for s, spec in zip(hlo_shardings, specs, strict=True)])


def compile_spmd(
    module: ir.Module,
    functions: Sequence[FfiCallback] = (),
    given: Sequence[Sequence[bindings.ArraySpec]] = (),
    *,
    devices: tuple[bindings.Device, ...],
    free: tuple[Sequence[bool], Sequence[bool]],
    name: str = "program",
    compiler_options: Mapping[str, bindings.CompilerOption] | None = None,
) -> SpmdExecutable:
    """Compiles the public function `main` of a StableHLO module with Shardy's annotations for several devices.

    Args:
        module: is not changed.
        functions: the Python functions that custom calls of `host_call_target` call, by their `index`.
        given: the result types of each of these functions.
        devices: the partitions, in order.
        free: for which parameters and for which results XLA may choose the sharding.
        name: the program's name in error messages.
        compiler_options: XLA's options by name.

    Raises:
        CompilationError: if XLA rejects the program or an option, with XLA's text.
    """
    parameters, results = signature_of(module)
    options = _spmd_options(devices, free, compiler_options or {})
    callbacks = FfiCallbacks(functions, given) if functions else None
    loaded = compile_and_load(module, devices, options, () if callbacks is None else callbacks.entry_points())
    return SpmdExecutable(name, loaded, devices, parameters, results, callbacks)


def _spmd_options(
    devices: tuple[bindings.Device, ...],
    free: tuple[Sequence[bool], Sequence[bool]],
    overrides: Mapping[str, bindings.CompilerOption],
) -> bindings.CompileOptions:
    options = new_options(overrides)
    options.num_replicas, options.num_partitions = 1, len(devices)
    options.device_assignment = bindings.new_device_assignment(np.array([[d.id for d in devices]]))
    build_options = options.executable_build_options
    build_options.allow_spmd_sharding_propagation_to_parameters = list(free[0]) or [False]
    build_options.allow_spmd_sharding_propagation_to_output = list(free[1]) or [False]
    return options
