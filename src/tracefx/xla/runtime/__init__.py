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
from tracefx.xla.runtime.bindings import JAXLIB_VERSION as JAXLIB_VERSION
from tracefx.xla.runtime.bindings import ArraySpec as ArraySpec
from tracefx.xla.runtime.bindings import Buffer as Buffer
from tracefx.xla.runtime.bindings import Client as Client
from tracefx.xla.runtime.bindings import CompilerOption as CompilerOption
from tracefx.xla.runtime.bindings import Device as Device
from tracefx.xla.runtime.bindings import InvalidModuleError as InvalidModuleError
from tracefx.xla.runtime.bindings import LoadError as LoadError
from tracefx.xla.runtime.bindings import donation_error as donation_error
from tracefx.xla.runtime.bindings import hlo_computation as hlo_computation
from tracefx.xla.runtime.bindings import hlo_cost_analysis as hlo_cost_analysis
from tracefx.xla.runtime.bindings import native_buffer as native_buffer
from tracefx.xla.runtime.bindings import native_buffers as native_buffers
from tracefx.xla.runtime.bindings import native_device as native_device
from tracefx.xla.runtime.bindings import native_devices as native_devices
from tracefx.xla.runtime.buffers import block_until_all_ready as block_until_all_ready
from tracefx.xla.runtime.buffers import block_until_ready as block_until_ready
from tracefx.xla.runtime.buffers import buffer_from_numpy as buffer_from_numpy
from tracefx.xla.runtime.buffers import buffer_to_numpy as buffer_to_numpy
from tracefx.xla.runtime.buffers import copy_to_host as copy_to_host
from tracefx.xla.runtime.buffers import delete_buffer as delete_buffer
from tracefx.xla.runtime.buffers import device_of as device_of
from tracefx.xla.runtime.buffers import dlpack_device as dlpack_device
from tracefx.xla.runtime.buffers import from_dlpack as from_dlpack
from tracefx.xla.runtime.buffers import is_deleted as is_deleted
from tracefx.xla.runtime.buffers import is_ready as is_ready
from tracefx.xla.runtime.buffers import pending as pending
from tracefx.xla.runtime.buffers import to_dlpack as to_dlpack
from tracefx.xla.runtime.buffers import view_dlpack as view_dlpack
from tracefx.xla.runtime.callbacks import FfiCallback as FfiCallback
from tracefx.xla.runtime.callbacks import host_call_target as host_call_target
from tracefx.xla.runtime.executables import Executable as Executable
from tracefx.xla.runtime.executables import MemoryAnalysis as MemoryAnalysis
from tracefx.xla.runtime.executables import compilation_identity as compilation_identity
from tracefx.xla.runtime.executables import compile_host_calling_module as compile_host_calling_module
from tracefx.xla.runtime.executables import compile_module as compile_module
from tracefx.xla.runtime.executables import compiles_functions_once as compiles_functions_once
from tracefx.xla.runtime.executables import is_lapack_kernel as is_lapack_kernel
from tracefx.xla.runtime.executables import lapack_kernel as lapack_kernel
from tracefx.xla.runtime.executables import load_executable as load_executable
from tracefx.xla.runtime.executables import register_lapack_kernels as register_lapack_kernels
from tracefx.xla.runtime.gpu_kernels import GpuKernel as GpuKernel
from tracefx.xla.runtime.gpu_kernels import initialize_hybrid_kernels as initialize_hybrid_kernels
from tracefx.xla.runtime.gpu_kernels import is_gpu_kernel as is_gpu_kernel
from tracefx.xla.runtime.gpu_kernels import is_hybrid_kernel as is_hybrid_kernel
from tracefx.xla.runtime.gpu_kernels import is_kernel_available as is_kernel_available
from tracefx.xla.runtime.gpu_kernels import plugin_kernels as plugin_kernels
from tracefx.xla.runtime.gpu_kernels import register_plugin_kernels as register_plugin_kernels
from tracefx.xla.runtime.mlir import Attribute as Attribute
from tracefx.xla.runtime.mlir import Block as Block
from tracefx.xla.runtime.mlir import InsertionPoint as InsertionPoint
from tracefx.xla.runtime.mlir import Location as Location
from tracefx.xla.runtime.mlir import MlirOperation as MlirOperation
from tracefx.xla.runtime.mlir import MlirRegion as MlirRegion
from tracefx.xla.runtime.mlir import MlirValue as MlirValue
from tracefx.xla.runtime.mlir import Module as Module
from tracefx.xla.runtime.mlir import Type as Type
from tracefx.xla.runtime.mlir import add_function as add_function
from tracefx.xla.runtime.mlir import array_attr as array_attr
from tracefx.xla.runtime.mlir import at_end as at_end
from tracefx.xla.runtime.mlir import bool_array_attr as bool_array_attr
from tracefx.xla.runtime.mlir import bool_attr as bool_attr
from tracefx.xla.runtime.mlir import broadcast_of as broadcast_of
from tracefx.xla.runtime.mlir import create as create
from tracefx.xla.runtime.mlir import dense_attr as dense_attr
from tracefx.xla.runtime.mlir import dict_attr as dict_attr
from tracefx.xla.runtime.mlir import element_type as element_type
from tracefx.xla.runtime.mlir import float_attr as float_attr
from tracefx.xla.runtime.mlir import i64_array_attr as i64_array_attr
from tracefx.xla.runtime.mlir import integer_attr as integer_attr
from tracefx.xla.runtime.mlir import ir as ir
from tracefx.xla.runtime.mlir import location as location
from tracefx.xla.runtime.mlir import mlir_context as mlir_context
from tracefx.xla.runtime.mlir import module_text as module_text
from tracefx.xla.runtime.mlir import new_module as new_module
from tracefx.xla.runtime.mlir import parse_attribute as parse_attribute
from tracefx.xla.runtime.mlir import parse_module as parse_module
from tracefx.xla.runtime.mlir import spec_of as spec_of
from tracefx.xla.runtime.mlir import stablehlo as stablehlo
from tracefx.xla.runtime.mlir import string_attr as string_attr
from tracefx.xla.runtime.mlir import symbol_attr as symbol_attr
from tracefx.xla.runtime.mlir import tensor_type as tensor_type
from tracefx.xla.runtime.mlir import token_type as token_type
from tracefx.xla.runtime.mlir import unknown_location as unknown_location
from tracefx.xla.runtime.mlir import verify as verify
from tracefx.xla.runtime.mlir_blocks import add_parameter as add_parameter
from tracefx.xla.runtime.mlir_blocks import blocks_equal as blocks_equal
from tracefx.xla.runtime.mlir_blocks import erase_from as erase_from
from tracefx.xla.runtime.mlir_blocks import inline_first_region as inline_first_region
from tracefx.xla.runtime.mlir_blocks import insert_marker as insert_marker
from tracefx.xla.runtime.mlir_blocks import move_regions as move_regions
from tracefx.xla.runtime.multi_device import SpmdExecutable as SpmdExecutable
from tracefx.xla.runtime.multi_device import compile_spmd as compile_spmd
from tracefx.xla.runtime.multi_device import put_tiles as put_tiles
from tracefx.xla.runtime.multi_device import tiles_of as tiles_of
from tracefx.xla.runtime.platforms import all_devices as all_devices
from tracefx.xla.runtime.platforms import client as client
from tracefx.xla.runtime.platforms import default_device as default_device
from tracefx.xla.runtime.platforms import default_platform as default_platform
from tracefx.xla.runtime.platforms import devices as devices
from tracefx.xla.runtime.platforms import lowering_platform as lowering_platform
from tracefx.xla.runtime.platforms import process_index as process_index
from tracefx.xla.runtime.portable import portable_artifact as portable_artifact
from tracefx.xla.runtime.portable import portable_text as portable_text
from tracefx.xla.runtime.portable import read_portable as read_portable
from tracefx.xla.runtime.shared_functions import FLATTEN_AFTER_FUSION as FLATTEN_AFTER_FUSION
