"""The runtime: PJRT's client, devices, buffers and executables, and the MLIR bindings that StableHLO is built with.

This is the one place that knows jaxlib's unstable names; what leaves it is typed. It never imports jax, and four of
jaxlib's methods are avoided because they import it on their own account (they give an array's shape a type of jax's):
`unsafe_buffer_pointer`, `_single_device_array_to_np_array_did_copy`, `disassemble_into_single_device_arrays` and
`dlpack_managed_tensor_to_buffer`. There is no other way to take arrays over several devices apart, so who reads such an
array has jaxlib import jax (`spreading.tiles_of`). Loading this module loads XLA, so only code that compiles or runs
imports it.

**Who owns memory.** A `Buffer` owns its memory, or holds on to the NumPy array whose memory it borrowed (`put`).
An array read from a buffer (`to_numpy`) holds on to the buffer's memory and is read-only; while one is alive XLA
copies instead of reusing a donated buffer. Borrowed memory is never written to either: donating it makes XLA copy.

**When errors come.** A program whose arguments are still being computed, or that is large, runs on another thread.
What goes wrong before `Executable.execute` returns is raised by it. What goes wrong later is raised by whatever waits
for one of the results (`to_numpy`, `block_until_ready`, `to_dlpack`), every time, and likewise for programs that took
such a result as an argument; a failed result counts as ready. It is always an `ExecutionError`.
Programs that call Python functions are the exception: `execute` returns when they are done, and raises what a function
raised.

**Threads.** Everything here may be called from any thread. There is one MLIR context for the process, with MLIR's own
locking left on, so that programs can be built and compiled in several threads at once. What is made in a context
(types, attributes) is shared by content and lives as long as the process: arrays that are large belong among a
program's arguments, not in `dense`.
"""

from __future__ import annotations

from tracefx.xla.runtime import jaxlib_versions as jaxlib_versions
from tracefx.xla.runtime.bindings import (
    ArraySpec,
    Buffer,
    Client,
    CompilationError,
    CompilerOption,
    DeletedBufferError,
    Device,
    ExecutionError,
    InvalidModuleError,
    LoadError,
    donation_error,
    hlo_computation,
    hlo_cost_analysis,
)
from tracefx.xla.runtime.blocks import add_parameter, erase_from, hand_bodies, mark, same_block, unwrapped
from tracefx.xla.runtime.buffers import (
    SupportsDLPack,
    block_until_all_ready,
    block_until_ready,
    copied_to_host,
    delete,
    device_of,
    dlpack_device,
    from_dlpack,
    is_deleted,
    is_ready,
    put,
    to_dlpack,
    to_numpy,
    view_dlpack,
)
from tracefx.xla.runtime.building import (
    Attribute,
    Block,
    Location,
    Module,
    Operation,
    Point,
    Space,
    Type,
    Value,
    array_attr,
    at_end,
    attribute,
    bool_array_attr,
    bool_attr,
    broadcast_of,
    create,
    dense,
    dict_attr,
    element_type,
    float_attr,
    function,
    hlo,
    i64_array_attr,
    integer_attr,
    ir,
    location,
    lowering,
    mlir_context,
    module_text,
    new_module,
    parse_module,
    spec_of,
    string_attr,
    symbol_attr,
    tensor_type,
    token_type,
    verify,
)
from tracefx.xla.runtime.callbacks import HostFunction, host_call_target
from tracefx.xla.runtime.executables import (
    Executable,
    MemoryAnalysis,
    compilation_identity,
    compile_calling_module,
    compile_module,
    is_kernel,
    lapack_kernel,
    load_executable,
    prepare_kernels,
)
from tracefx.xla.runtime.gpu_kernels import (
    GpuKernel,
    is_gpu_kernel,
    is_hybrid,
    offers,
    plugin_kernels,
    prepare_hybrid_kernels,
    register_plugin_kernels,
)
from tracefx.xla.runtime.platforms import (
    all_devices,
    client,
    default_device,
    default_platform,
    devices,
    lowered_for,
    process_index,
)
from tracefx.xla.runtime.portable import portable_artifact, portable_text, read_portable
from tracefx.xla.runtime.spreading import SpreadExecutable, compile_over, put_tiles, tiles_of

__all__ = [
    # devices
    "Client",
    "Device",
    "client",
    "all_devices",
    "default_device",
    "default_platform",
    "devices",
    "lowered_for",
    "process_index",
    # buffers
    "ArraySpec",
    "Buffer",
    "put",
    "to_numpy",
    "copied_to_host",
    "block_until_all_ready",
    "block_until_ready",
    "is_ready",
    "is_deleted",
    "delete",
    "device_of",
    "to_dlpack",
    "dlpack_device",
    "donation_error",
    "hlo_computation",
    "hlo_cost_analysis",
    "from_dlpack",
    "view_dlpack",
    "SupportsDLPack",
    # executables
    "CompilerOption",
    "Executable",
    "MemoryAnalysis",
    "compilation_identity",
    "compile_calling_module",
    "compile_module",
    "compile_over",
    "SpreadExecutable",
    "put_tiles",
    "tiles_of",
    "load_executable",
    "is_kernel",
    "lapack_kernel",
    "prepare_kernels",
    "GpuKernel",
    "is_gpu_kernel",
    "is_hybrid",
    "prepare_hybrid_kernels",
    "offers",
    "plugin_kernels",
    "register_plugin_kernels",
    "host_call_target",
    "HostFunction",
    # building programs
    "Attribute",
    "Block",
    "Location",
    "Module",
    "Operation",
    "Point",
    "add_parameter",
    "erase_from",
    "hand_bodies",
    "mark",
    "same_block",
    "unwrapped",
    "Space",
    "Type",
    "ir",
    "hlo",
    "Value",
    "mlir_context",
    "lowering",
    "location",
    "at_end",
    "element_type",
    "tensor_type",
    "token_type",
    "spec_of",
    "dense",
    "attribute",
    "integer_attr",
    "float_attr",
    "bool_attr",
    "broadcast_of",
    "string_attr",
    "symbol_attr",
    "i64_array_attr",
    "bool_array_attr",
    "array_attr",
    "dict_attr",
    "create",
    "new_module",
    "function",
    "verify",
    "module_text",
    "parse_module",
    "portable_artifact",
    "portable_text",
    "read_portable",
    # errors
    "CompilationError",
    "DeletedBufferError",
    "ExecutionError",
    "InvalidModuleError",
    "LoadError",
]
