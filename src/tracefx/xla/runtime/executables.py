"""Executables: compiling, loading and running programs, and XLA's analyses of them."""

from __future__ import annotations

import functools
import itertools
import json
import math
import platform
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Final, Self, TypeVar, final

import numpy as np
from attrs import frozen
from jaxlib.mlir import ir
from typing_extensions import override

from tracefx.core.host_memory import aligned_empty, data_address
from tracefx.core.values import is_immutable
from tracefx.errors import CompilationError, ExecutionError
from tracefx.jaxlib_support import import_jaxlib
from tracefx.xla.runtime import bindings
from tracefx.xla.runtime.callbacks import FfiCallback, FfiCallbacks
from tracefx.xla.runtime.gpu_kernels import initialize_hybrid_kernels
from tracefx.xla.runtime.jaxlib_versions import EFFORT_OPTIONS, SHARED_FUNCTION_OPTIONS
from tracefx.xla.runtime.mlir import parse_module, spec_of
from tracefx.xla.runtime.platforms import HOST, devices
from tracefx.xla.runtime.shared_functions import FLATTEN_AFTER_FUSION, PROBE, with_flatten_after_fusion

T = TypeVar("T")
_UNKNOWN_KERNEL: Final = "No FFI handler registered"  # in XLA's message
_lapack: Final[ModuleType] = import_jaxlib("jaxlib.lapack")  # untyped, like the next one
_register_batch_partitionable: Final[Callable[[str], None]] = import_jaxlib(
    "jaxlib._jax"
).register_custom_call_as_batch_partitionable


@frozen
class MemoryAnalysis:
    """The device memory that one execution uses, as planned by XLA; for several devices, that of one of them.

    JAX's names (`temp_size_in_bytes`, ...) can be used, too.

    Attributes:
        argument_bytes: the bytes of the arguments, including arrays that the function closes over.
        output_bytes: the bytes of the results, including those that reuse donated arguments and the table of a tuple.
        temp_bytes: the bytes of the block for intermediate results, which is allocated during the whole execution;
            buffers that are not needed at the same time share memory in it.
        alias_bytes: the bytes of results that reuse donated arguments, which both figures above include.
        generated_code_bytes: the bytes of the machine code; 0 on CPUs, where XLA does not report it.

    >>> import numpy as np
    >>> import tracefx as fx
    >>> import tracefx.numpy as fnp
    >>> memory = fx.jit(fnp.sin).lower(np.ones(1000, np.float32)).compile().memory_analysis()
    >>> memory.argument_bytes, memory.output_bytes, memory.peak_bytes
    (4000, 4000, 8000)
    """

    argument_bytes: int
    output_bytes: int
    temp_bytes: int
    alias_bytes: int
    generated_code_bytes: int

    @property
    def peak_bytes(self) -> int:
        """The bytes that are allocated during the execution: arguments, results and intermediate results.

        XLA's `peak_memory_in_bytes`, which JAX shows, omits most intermediate results on CPUs.
        """
        return self.argument_bytes + self.output_bytes - self.alias_bytes + self.temp_bytes

    @property
    def argument_size_in_bytes(self) -> int:
        """JAX's name of `argument_bytes`."""
        return self.argument_bytes

    @property
    def output_size_in_bytes(self) -> int:
        """JAX's name of `output_bytes`."""
        return self.output_bytes

    @property
    def temp_size_in_bytes(self) -> int:
        """JAX's name of `temp_bytes`."""
        return self.temp_bytes

    @property
    def alias_size_in_bytes(self) -> int:
        """JAX's name of `alias_bytes`."""
        return self.alias_bytes

    @property
    def generated_code_size_in_bytes(self) -> int:
        """JAX's name of `generated_code_bytes`."""
        return self.generated_code_bytes

    @property
    def peak_memory_in_bytes(self) -> int:
        """JAX's name of `peak_bytes`."""
        return self.peak_bytes

    @classmethod
    def of(cls, loaded: bindings.LoadedExecutable) -> Self:
        """Reads the memory statistics of a loaded executable."""
        stats = loaded.get_compiled_memory_stats()
        return cls(
            argument_bytes=stats.argument_size_in_bytes,
            output_bytes=stats.output_size_in_bytes,
            temp_bytes=stats.temp_size_in_bytes,
            alias_bytes=stats.alias_size_in_bytes,
            generated_code_bytes=stats.generated_code_size_in_bytes,
        )


COLLECTION_INTERVAL: Final = 64
"""After how many executions of a program `collect_garbage` runs, which takes 1% of a small execution."""


class CompiledExecutable:
    """A compiled program, with XLA's analyses; for one on several devices, these are of one partition."""

    __slots__ = ("loaded", "name", "parameters", "results")

    def __init__(
        self,
        name: str,
        loaded: bindings.LoadedExecutable,
        parameters: tuple[bindings.ArraySpec, ...],
        results: tuple[bindings.ArraySpec, ...],
    ) -> None:
        self.name = name
        self.loaded = loaded
        self.parameters = parameters
        self.results = results

    def serialize(self, calls_kernels: bool = False) -> bytes:
        """Serializes the compiled program with its signature, to be loaded in another process with such devices.

        `calls_kernels` says whether the program calls jaxlib's kernels, which loading then registers.

        Raises:
            CompilationError: if XLA can't serialize this program.
        """
        return pack_executable(self.loaded, self.parameters, self.results, calls_kernels)

    def hlo_text(self) -> str:
        """Returns the HLO text of the program after XLA's optimizations."""
        return self.loaded.get_hlo_text()

    def cost_analysis(self) -> dict[str, float]:
        """Returns XLA's cost estimates for one execution: `"flops"`, `"bytes accessed"`, and more by operand."""
        return {
            name: float(value) for name, value in self.loaded.cost_analysis().items() if isinstance(value, int | float)
        }

    def memory_analysis(self) -> MemoryAnalysis:
        """Returns the memory that XLA plans to allocate for one execution."""
        return MemoryAnalysis.of(self.loaded)


class Executable(CompiledExecutable):
    """A compiled program on one device, created by `compile_module` or `load_executable`."""

    __slots__ = ("_handlers", "_run", "_where", "device")

    def __init__(
        self,
        name: str,
        loaded: bindings.LoadedExecutable,
        device: bindings.Device,
        parameters: tuple[bindings.ArraySpec, ...],
        results: tuple[bindings.ArraySpec, ...],
    ) -> None:
        super().__init__(name, loaded, parameters, results)
        self._run = loaded.execute_sharded
        self._where = bindings.pjrt_single_device_sharding(device)
        specs = [bindings.ResultSpec(spec.shape, spec.dtype, name) for spec in results]
        self._handlers = [bindings.result_handler(spec, self._where) for spec in specs]
        self.device = device

    def put_function(self, i: int, *, borrows: bool = False) -> Callable[[bindings.AnyArray], bindings.Buffer]:
        """Returns a function that makes a buffer for parameter `i` of an array, which must have its type.

        The buffer is a copy; with `borrows`, it shares the memory of an immutable array that is aligned. The function
        raises `ExecutionError` if XLA could not make a copy.
        """
        spec, sharding, devices = self.parameters[i], self._where, self._where.device_sequence

        def put(array: bindings.AnyArray) -> bindings.Buffer:
            copy, semantics = True, bindings.COPY_NOW
            if borrows and not array.flags.writeable and is_immutable(array):
                copy, semantics = False, bindings.BORROW
            try:
                return bindings.single_device_put(spec, sharding, (array,), devices, True, copy, semantics, True)
            except bindings.JaxRuntimeError as error:
                raise ExecutionError(str(error)) from error

        return put

    def shared_memory(self, i: int, limit: int) -> tuple[bindings.AnyArray, bindings.Buffer] | None:
        """Returns writable host memory and a buffer for parameter `i` that reads it in place.

        None for parameters of more than `limit` bytes, and for dtypes that XLA does not read in place.
        """
        spec, sharding = self.parameters[i], self._where
        if spec.dtype not in bindings.READ_DIRECTLY or not 0 < math.prod(spec.shape) * spec.dtype.itemsize <= limit:
            return None
        array = aligned_empty(spec.shape, spec.dtype)
        buffer = bindings.single_device_put(
            spec, sharding, (array,), sharding.device_sequence, True, False, bindings.BORROW, True
        )
        view = np.asarray(memoryview(buffer))
        return (array, buffer) if data_address(view) == data_address(array) else None

    def execute(self, buffers: Sequence[object]) -> list[bindings.Buffer]:
        """Runs the program and returns its results, possibly before they are computed.

        The caller must ensure the dtypes: XLA checks the number and the sizes of the arguments, but not their dtypes.
        A donated argument is deleted, unless something else still views its memory.

        Raises:
            DeletedArrayError: if an argument was deleted.
            ExecutionError: for a wrong number or size of arguments, or if the program fails.
        """
        bindings.collect_garbage()
        try:
            return self._run(buffers).consume_with_handlers(self._handlers)
        except bindings.JaxRuntimeError as error:
            bindings.raise_execution_error(self.name, error, buffers)

    def execute_function(self, wrap: Callable[[list[bindings.Buffer]], T]) -> Callable[[Sequence[object]], T]:
        """Returns `execute`, followed by `wrap`, as a closure: lookups are a large part of a small program's call."""
        run, handlers, name = self._run, self._handlers, self.name
        collects = itertools.cycle([*[False] * (COLLECTION_INTERVAL - 1), True]).__next__

        def execute(buffers: Sequence[object]) -> T:
            if collects():
                bindings.collect_garbage()
            try:
                return wrap(run(buffers).consume_with_handlers(handlers))
            except bindings.JaxRuntimeError as error:
                bindings.raise_execution_error(name, error, buffers)

        return execute

    def named(self, name: str) -> Executable:
        """Returns the same program under another name for error messages."""
        return self if name == self.name else Executable(name, self.loaded, self.device, self.parameters, self.results)

    @property
    def fingerprint(self) -> bytes | None:
        """XLA's digest of the compiled program, or None if the platform has none."""
        return self.loaded.fingerprint


@final
class HostCallingExecutable(Executable):
    """A compiled program that calls Python functions, which may raise. It has finished when `execute` returns."""

    __slots__ = ("_functions",)

    def __init__(
        self,
        name: str,
        loaded: bindings.LoadedExecutable,
        device: bindings.Device,
        parameters: tuple[bindings.ArraySpec, ...],
        results: tuple[bindings.ArraySpec, ...],
        functions: FfiCallbacks,
    ) -> None:
        super().__init__(name, loaded, device, parameters, results)
        self._functions = functions

    @override
    def execute(self, buffers: Sequence[object]) -> list[bindings.Buffer]:
        """Runs the program and waits until it has finished, even if it has no results.

        Raises:
            BaseException: the exception that one of the functions raised, as the same object.
            ExecutionError: for any other failure.
        """
        return run_with_ffi_callbacks(self._functions, self.loaded, self._handlers, buffers, self.name)

    @override
    def execute_function(self, wrap: Callable[[list[bindings.Buffer]], T]) -> Callable[[Sequence[object]], T]:
        return lambda buffers: wrap(self.execute(buffers))

    @override
    def named(self, name: str) -> Executable:
        specs = self.parameters, self.results
        return (
            self
            if name == self.name
            else HostCallingExecutable(name, self.loaded, self.device, *specs, self._functions)
        )


def run_with_ffi_callbacks(
    functions: FfiCallbacks,
    loaded: bindings.LoadedExecutable,
    handlers: list[bindings.ResultHandler],
    buffers: Sequence[object],
    name: str,
) -> list[bindings.Buffer]:
    """Executes a program with Python callbacks until it has finished; raises the exception of a callback as it is."""
    bindings.collect_garbage()
    functions.begin()
    try:
        running = loaded.execute_sharded(buffers, with_tokens=True)
        done = running.consume_token()
        results = running.consume_with_handlers(handlers)
        done.block_until_ready()
        raised = functions.pop_first_error()
        if raised is None:
            return results
    except bindings.JaxRuntimeError as error:
        raised = functions.pop_error(str(error))
        if raised is None:
            bindings.raise_execution_error(name, error, buffers)
    finally:
        functions.end()
    try:
        raise raised  # outside of `except`, so that XLA's error does not become its context
    finally:
        del raised  # breaks the reference cycle with this frame


_MAGIC: Final = b"tracefx executable 1\n"


def compile_module(
    module: ir.Module,
    *,
    device: bindings.Device,
    name: str = "program",
    compiler_options: Mapping[str, bindings.CompilerOption] | None = None,
    host_callbacks: Sequence[Callable[..., object]] = (),
) -> Executable:
    """Compiles the public function `main` of a StableHLO module for one device.

    Args:
        module: is not changed. The arguments of `main` may have the attributes `tf.aliasing_output` or
            `jax.buffer_donor`.
        device: the device to compile for.
        name: the program's name in error messages.
        compiler_options: XLA's options by name, without dashes (`{"xla_cpu_enable_fast_math": True}`).
        host_callbacks: the functions that custom calls of `host_call_target` call, by their `index`. If one raises,
            the execution raises an `ExecutionError`.

    Raises:
        CompilationError: if XLA rejects the program or an option, with XLA's text.
        TypeError: if a parameter or result of `main` is no tensor of a known dtype.
    """
    parameters, results = signature_of(module)
    options = _compile_options(device, compiler_options or {})
    loaded = compile_and_load(module, (device,), options, host_callbacks)
    return Executable(name, loaded, device, parameters, results)


def compile_and_load(
    module: ir.Module,
    devices: tuple[bindings.Device, ...],
    options: bindings.CompileOptions,
    host_callbacks: Sequence[Callable[..., object]],
) -> bindings.LoadedExecutable:
    """Compiles a module for devices with complete options; raises `CompilationError` if XLA rejects it."""
    client, pjrt_devices = devices[0].client, bindings.device_list(devices)
    try:
        if host_callbacks:
            return client.compile_and_load(module, pjrt_devices, options, host_callbacks)
        return client.compile_and_load(module, pjrt_devices, options)
    except bindings.JaxRuntimeError as error:
        advice = ". tracefx.ffi.register_ffi_target registers kernels" if _UNKNOWN_KERNEL in str(error) else ""
        raise CompilationError(f"{error}{advice}") from error


def compile_host_calling_module(
    module: ir.Module,
    functions: Sequence[FfiCallback],
    *,
    device: bindings.Device,
    name: str = "program",
    compiler_options: Mapping[str, bindings.CompilerOption] | None = None,
) -> Executable:
    """Like `compile_module`, for a program that calls Python functions and re-raises their exceptions."""
    callbacks = FfiCallbacks(functions)
    compiled = compile_module(
        module,
        device=device,
        name=name,
        compiler_options=compiler_options,
        host_callbacks=callbacks.entry_points(),
    )
    return HostCallingExecutable(name, compiled.loaded, device, compiled.parameters, compiled.results, callbacks)


def pack_executable(
    loaded: bindings.LoadedExecutable,
    parameters: Sequence[bindings.ArraySpec],
    results: Sequence[bindings.ArraySpec],
    calls_kernels: bool,
) -> bytes:
    """Serializes a compiled program with its signature; see `Executable.serialize`."""
    header = {
        "jaxlib": bindings.JAXLIB_VERSION,
        "kernels": calls_kernels,
        "parameters": [(spec.dtype.name, spec.shape) for spec in parameters],
        "results": [(spec.dtype.name, spec.shape) for spec in results],
    }
    text = json.dumps(header).encode()
    try:
        code = loaded.serialize()
    except bindings.JaxRuntimeError as error:
        raise CompilationError(str(error)) from error
    return _MAGIC + len(text).to_bytes(4, "little") + text + code


def unpack_executable(data: bytes) -> tuple[tuple[bindings.ArraySpec, ...], tuple[bindings.ArraySpec, ...], bytes]:
    """Parses the result of `pack_executable` into parameters, results and XLA's data; raises `LoadError`.

    Registers the kernels that the program calls.
    """
    start = len(_MAGIC) + 4
    if not data.startswith(_MAGIC) or len(data) < start:
        raise bindings.LoadError(f"these {len(data)} bytes are no serialized executable: they begin with {data[:20]!r}")
    end = start + int.from_bytes(data[len(_MAGIC) : start], "little")
    try:
        header = json.loads(data[start:end])
        version: object = header["jaxlib"]
        calls_kernels: object = header["kernels"]
        parameters, results = (
            tuple(bindings.ArraySpec(tuple(shape), bindings.DTYPE_BY_NAME[name]) for name, shape in header[part])
            for part in ("parameters", "results")
        )
    except (ValueError, KeyError, TypeError) as error:
        raise bindings.LoadError(f"the header of a serialized executable cannot be read: {error}") from error
    if version != bindings.JAXLIB_VERSION:
        raise bindings.LoadError(
            f"the executable was written by jaxlib {version}, this is {bindings.JAXLIB_VERSION}: compile it again"
        )
    if calls_kernels:
        register_lapack_kernels()
        initialize_hybrid_kernels()
    return parameters, results, data[end:]


def load_executable(data: bytes, device: bindings.Device, name: str = "program") -> Executable:
    """Loads an executable that `Executable.serialize` wrote. Load only trusted data: it is machine code.

    Raises:
        LoadError: if the data are invalid, were written by another version of jaxlib, or XLA rejects them.
    """
    loaded, parameters, results = deserialize(data, (device,), _compile_options(device, {}))
    return Executable(name, loaded, device, parameters, results)


def deserialize(
    data: bytes, devices: tuple[bindings.Device, ...], options: bindings.CompileOptions
) -> tuple[bindings.LoadedExecutable, tuple[bindings.ArraySpec, ...], tuple[bindings.ArraySpec, ...]]:
    """Loads a serialized executable, and returns it with its parameters and results; raises `LoadError`."""
    parameters, results, code = unpack_executable(data)
    try:
        loaded = devices[0].client.deserialize_executable(code, bindings.device_list(devices), options)
    except (bindings.JaxRuntimeError, ValueError) as error:
        raise bindings.LoadError(str(error)) from error
    return loaded, parameters, results


def compilation_identity(device: bindings.Device, compiler_options: Mapping[str, bindings.CompilerOption]) -> bytes:
    """Returns everything that an executable depends on besides its program, as bytes that are equal in all processes.

    This is jaxlib's version, the compiler options including those of `XLA_FLAGS`, and the device with the instruction
    set of its processor.

    Raises:
        CompilationError: if XLA does not know an option.
    """
    return options_identity(device, _compile_options(device, compiler_options))


def options_identity(device: bindings.Device, options: bindings.CompileOptions) -> bytes:
    """Like `compilation_identity`, for complete options; `device` is one of the devices that run the program."""
    topology = bindings.topology_for_devices(device.client.local_devices()).fingerprint()
    identity = (
        bindings.JAXLIB_VERSION,
        device.platform,
        device.device_kind,
        topology,
        platform.system(),
        platform.machine(),
    )
    return repr((identity, options.SerializeAsString())).encode()


def _compile_options(
    device: bindings.Device, overrides: Mapping[str, bindings.CompilerOption]
) -> bindings.CompileOptions:
    options = new_options(overrides)
    options.num_replicas = options.num_partitions = 1
    options.device_assignment = bindings.new_device_assignment(np.array([[device.id]]))
    return options


def new_options(overrides: Mapping[str, bindings.CompilerOption]) -> bindings.CompileOptions:
    """Returns XLA's options for a program, without its device assignment."""
    options = bindings.new_compile_options()
    build_options = options.executable_build_options
    build_options.use_spmd_partitioning = True
    build_options.use_shardy_partitioner = True
    flags = dict(overrides)
    flattens_after_fusion = flags.pop(FLATTEN_AFTER_FUSION, False)
    if flattens_after_fusion:
        flags |= _shared_function_options()
    for name in EFFORT_OPTIONS:
        if name in flags:
            value = flags.pop(name)
            try:
                setattr(build_options, name, value)
            except TypeError as error:
                raise CompilationError(f"compiler option {name!r} does not take {value!r}") from error
    options.env_option_overrides = sorted(flags.items())
    return with_flatten_after_fusion(options) if flattens_after_fusion else options


@functools.cache
def _shared_function_options() -> Mapping[str, bool]:
    """Returns `SHARED_FUNCTION_OPTIONS` if this jaxlib has them; compiles a probe, because only the compiler tells."""
    try:
        compile_module(parse_module(PROBE), device=devices(HOST)[0], compiler_options=dict(SHARED_FUNCTION_OPTIONS))
    except CompilationError:
        return {}
    return SHARED_FUNCTION_OPTIONS


@functools.cache
def compiles_functions_once() -> bool:
    """Whether the option `FLATTEN_AFTER_FUSION` takes effect on the host's CPU with this jaxlib; compiles a probe."""
    device = devices(HOST)[0]
    fusions = [
        compile_module(parse_module(PROBE), device=device, compiler_options=options).hlo_text().count(" fusion(")
        for options in ({}, {FLATTEN_AFTER_FUSION: True})
    ]
    return fusions == [1, 2]


def signature_of(module: ir.Module) -> tuple[tuple[bindings.ArraySpec, ...], tuple[bindings.ArraySpec, ...]]:
    for operation in module.body:
        attributes = operation.operation.attributes
        if "sym_name" in attributes and ir.StringAttr(attributes["sym_name"]).value == "main":
            function_type = ir.FunctionType(ir.TypeAttr(attributes["function_type"]).value)
            return tuple(map(spec_of, function_type.inputs)), tuple(map(spec_of, function_type.results))
    raise bindings.InvalidModuleError("the module has no function named 'main' to compile")


# ------------------------------------------------------------------ jaxlib's LAPACK kernels


def lapack_kernel(name: str, dtype: np.dtype[np.generic]) -> str:
    """Returns the custom-call target of a LAPACK kernel (`"potrf_ffi"`); the first call registers all kernels.

    >>> lapack_kernel("potrf_ffi", np.dtype(np.float32))
    'lapack_spotrf_ffi'
    """
    register_lapack_kernels()
    target: str = _lapack.build_lapack_fn_target(name, dtype)
    return target


def is_lapack_kernel(target: str) -> bool:
    """Whether jaxlib has a LAPACK kernel of this name, which every process can find by its name."""
    return target in _lapack_kernels()


@functools.cache
def register_lapack_kernels() -> None:
    """Registers jaxlib's LAPACK kernels with XLA, and loads LAPACK, which takes a sixth of a second."""
    with bindings.client_lock:
        for target, (kernel, version) in _lapack_kernels().items():
            bindings.register_custom_call_target(target, kernel, "cpu", version)
            _register_batch_partitionable(target)
        _lapack._lapack.initialize()


@functools.cache
def _lapack_kernels() -> Mapping[str, tuple[object, int]]:
    return {target: (kernel, version) for target, kernel, version in _lapack.registrations()["cpu"]}
