"""Compiling functions that a module calls several times once: an option of XLA, and the proof that it takes effect.

By default XLA for CPUs inlines all calls before it fuses operations. With `xla_cpu_flatten_after_fusion` it compiles
each function on its own and inlines the calls afterwards. The option is in a map of `DebugOptions` that XLA does not
parse from strings, so it is appended to the serialized `CompileOptions`. XLA ignores fields that it does not know,
hence the proof.
"""

from __future__ import annotations

from typing import Final

from tracefx.xla.runtime.bindings import CompileOptions, new_compile_options

FLATTEN_AFTER_FUSION: Final = "xla_cpu_flatten_after_fusion"
"""The name of the option, among the compiler options of a program."""

PROBE: Final = """
module @probe {
  func.func public @main(%x: tensor<16xf32>) -> tensor<16xf32> {
    %y = func.call @block(%x) : (tensor<16xf32>) -> tensor<16xf32>
    %z = func.call @block(%y) : (tensor<16xf32>) -> tensor<16xf32>
    return %z : tensor<16xf32>
  }
  func.func private @block(%x: tensor<16xf32>) -> tensor<16xf32> {
    %y = stablehlo.multiply %x, %x : tensor<16xf32>
    %z = stablehlo.add %y, %x : tensor<16xf32>
    return %z : tensor<16xf32>
  }
}
"""
"""Two calls of a function: one fusion if they are inlined before fusion, two otherwise."""


def with_flatten_after_fusion(options: CompileOptions) -> CompileOptions:
    """Returns compile options with the option set, as an entry of the map `xla_backend_extra_options`."""
    entry = _field(1, FLATTEN_AFTER_FUSION.encode()) + _field(2, b"")
    build_options, debug_options, extra_options = 3, 3, 500
    added = _field(build_options, _field(debug_options, _field(extra_options, entry)))
    return new_compile_options.ParseFromString(options.SerializeAsString() + added)


def _field(number: int, data: bytes) -> bytes:
    """Returns a field of bytes in the format of protocol buffers."""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(n: int) -> bytes:
    more, last = [], n
    while last > 0x7F:
        more.append(last & 0x7F | 0x80)
        last >>= 7
    return bytes([*more, last])
