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
