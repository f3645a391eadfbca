"""The runtime: PJRT clients, devices, buffers and executables, and the MLIR bindings that build StableHLO.

Only this package uses jaxlib's unstable names; everything it exports is typed. It never imports jax, and it avoids four
methods of jaxlib that import jax themselves (they give an array's shape a jax type): `unsafe_buffer_pointer`,
`_single_device_array_to_np_array_did_copy`, `disassemble_into_single_device_arrays` and
`dlpack_managed_tensor_to_buffer`. There is no other way to split an array over several devices, so reading such an
array makes jaxlib import jax (`multi_device.tiles_of`). Importing this package loads XLA, so only code that compiles or
runs programs imports it.

**Ownership of memory.** A `Buffer` owns its memory, or keeps alive the NumPy array whose memory it borrows
(`buffer_from_numpy`). An array read from a buffer (`buffer_to_numpy`) keeps the buffer's memory alive and is read-only;
while one exists XLA copies a donated buffer instead of reusing it. Borrowed memory is never written to either: if it is
donated, XLA copies it.

**When errors are raised.** Programs that are large, or whose arguments are still being computed, run asynchronously on
another thread. Errors that occur before `Executable.execute` returns are raised by it. Later errors are raised by every
function that waits for one of the results (`buffer_to_numpy`, `block_until_ready`, `to_dlpack`), each time it is
called, and by programs that take such a result as an argument; a failed result counts as ready. All are
`ExecutionError`s. Programs that call Python functions are the exception: `execute` returns when they have finished, and
raises what a function raised.

**Threads.** Everything here is thread-safe. There is one MLIR context for the process, with MLIR's locking enabled, so
that several threads can build and compile programs concurrently. Objects of a context (types, attributes) are shared by
value and live as long as the process: pass large arrays as arguments of a program, not as `dense_attr` constants.
"""

from __future__ import annotations

from tracefx.xla.runtime import jaxlib_versions as jaxlib_versions
from tracefx.xla.runtime.bindings import (
    JAXLIB_VERSION,
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
    native_buffer,
    native_buffers,
    native_device,
    native_devices,
)
from tracefx.xla.runtime.buffers import (
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
    compiles_functions_once,
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
from tracefx.xla.runtime.shared_functions import FLATTEN_AFTER_FUSION

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
    "native_device",
    "native_devices",
    "process_index",
    # buffers
    "ArraySpec",
    "Buffer",
    "buffer_from_numpy",
    "buffer_to_numpy",
    "native_buffer",
    "native_buffers",
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
    # executables
    "CompilerOption",
    "Executable",
    "MemoryAnalysis",
    "compilation_identity",
    "compile_host_calling_module",
    "compile_module",
    "compiles_functions_once",
    "FLATTEN_AFTER_FUSION",
    "JAXLIB_VERSION",
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
