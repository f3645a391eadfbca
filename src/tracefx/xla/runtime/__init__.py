"""The runtime: PJRT's client, devices, buffers and executables, and the MLIR bindings that StableHLO is built with.

This is the one place that knows jaxlib's unstable names; what leaves it is typed. It never imports jax, and four of
jaxlib's methods are avoided because they import it on their own account (they give an array's shape a type of jax's):
`unsafe_buffer_pointer`, `_single_device_array_to_np_array_did_copy`, `disassemble_into_single_device_arrays` and
`dlpack_managed_tensor_to_buffer`. There is no other way to take arrays over several devices apart, so who reads such an
array has jaxlib import jax (`spreading.tiles_of`). Loading this module loads XLA, so only code that compiles or runs
imports it.

**Who owns memory.** A `Buffer` owns its memory, or holds on to the NumPy array whose memory it borrowed (`put`).
An array read from a buffer (`buffer_to_numpy`) holds on to the buffer's memory and is read-only; while one is alive XLA
copies instead of reusing a donated buffer. Borrowed memory is never written to either: donating it makes XLA copy.

**When errors come.** A program whose arguments are still being computed, or that is large, runs on another thread.
What goes wrong before `Executable.execute` returns is raised by it. What goes wrong later is raised by whatever waits
for one of the results (`buffer_to_numpy`, `block_until_ready`, `to_dlpack`), every time, and likewise for programs
that took
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
from tracefx.xla.runtime.buffers import (
    SupportsDLPack,
    block_until_all_ready,
    block_until_ready,
    buffer_from_numpy,
    buffer_to_numpy,
    copy_to_host,
    delete_buffer,
    device_of,
    dlpack_device,
    from_dlpack,
    is_deleted,
    is_ready,
    to_dlpack,
    view_dlpack,
)
from tracefx.xla.runtime.callbacks import FfiCallback, host_call_target
from tracefx.xla.runtime.executables import (
    Executable,
    MemoryAnalysis,
    compilation_identity,
    compile_host_calling_module,
    compile_module,
    is_lapack_kernel,
    lapack_kernel,
    load_executable,
    register_lapack_kernels,
)
from tracefx.xla.runtime.gpu_kernels import (
    GpuKernel,
    initialize_hybrid_kernels,
    is_gpu_kernel,
    is_hybrid_kernel,
    is_kernel_available,
    plugin_kernels,
    register_plugin_kernels,
)
from tracefx.xla.runtime.mlir import (
    Attribute,
    Block,
    InsertionPoint,
    Location,
    MlirOperation,
    MlirRegion,
    MlirValue,
    Module,
    Type,
    add_function,
    array_attr,
    at_end,
    bool_array_attr,
    bool_attr,
    broadcast_of,
    create,
    dense_attr,
    dict_attr,
    element_type,
    float_attr,
    i64_array_attr,
    integer_attr,
    ir,
    location,
    mlir_context,
    module_text,
    new_module,
    parse_attribute,
    parse_module,
    spec_of,
    stablehlo,
    string_attr,
    symbol_attr,
    tensor_type,
    token_type,
    unknown_location,
    verify,
)
from tracefx.xla.runtime.mlir_blocks import (
    add_parameter,
    blocks_equal,
    erase_from,
    inline_first_region,
    insert_marker,
    move_regions,
)
from tracefx.xla.runtime.multi_device import SpmdExecutable, compile_spmd, put_tiles, tiles_of
from tracefx.xla.runtime.platforms import (
    all_devices,
    client,
    default_device,
    default_platform,
    devices,
    lowering_platform,
    process_index,
)
from tracefx.xla.runtime.portable import portable_artifact, portable_text, read_portable

__all__ = [
    # devices
    "Client",
    "Device",
    "client",
    "all_devices",
    "default_device",
    "default_platform",
    "devices",
    "lowering_platform",
    "process_index",
    # buffers
    "ArraySpec",
    "Buffer",
    "buffer_from_numpy",
    "buffer_to_numpy",
    "copy_to_host",
    "block_until_all_ready",
    "block_until_ready",
    "is_ready",
    "is_deleted",
    "delete_buffer",
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
    "compile_host_calling_module",
    "compile_module",
    "compile_spmd",
    "SpmdExecutable",
    "put_tiles",
    "tiles_of",
    "load_executable",
    "is_lapack_kernel",
    "lapack_kernel",
    "register_lapack_kernels",
    "GpuKernel",
    "is_gpu_kernel",
    "is_hybrid_kernel",
    "initialize_hybrid_kernels",
    "is_kernel_available",
    "plugin_kernels",
    "register_plugin_kernels",
    "host_call_target",
    "FfiCallback",
    # building programs
    "Attribute",
    "Block",
    "Location",
    "Module",
    "MlirOperation",
    "InsertionPoint",
    "add_parameter",
    "erase_from",
    "move_regions",
    "insert_marker",
    "blocks_equal",
    "inline_first_region",
    "MlirRegion",
    "Type",
    "ir",
    "stablehlo",
    "MlirValue",
    "mlir_context",
    "unknown_location",
    "location",
    "at_end",
    "element_type",
    "tensor_type",
    "token_type",
    "spec_of",
    "dense_attr",
    "parse_attribute",
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
    "add_function",
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
