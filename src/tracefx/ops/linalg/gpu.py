"""Calls of GPU libraries: cuSOLVER and cuSPARSE (NVIDIA), hipSOLVER and hipSPARSE (AMD).

The jaxlib plug-ins for these platforms register a kernel for each routine by name. A program can be lowered without the
plug-in. Like LAPACK's, the kernels take matrices in column-major order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from tracefx.core import ShapedArray
from tracefx.lowering import Attr, Builder, IrValue, MlirText
from tracefx.ops.linalg.lapack import NO_CONFIG, custom_call_layouts

_PREFIXES: Final[Mapping[str, str]] = MappingProxyType({"cuda": "cu", "rocm": "hip"})


def on_gpu(builder: Builder) -> bool:
    """Returns whether the program is lowered for a GPU platform."""
    return builder.platform in _PREFIXES


def magma_attr(use_magma: bool | None) -> MlirText:
    """Returns the attribute that tells a hybrid GPU/CPU kernel whether to use MAGMA, which must be installed.

    None means to use it if it is found, else LAPACK on the CPU.
    """
    return MlirText('"auto"' if use_magma is None else '"on"' if use_magma else '"off"')


def call_gpu_solver(
    builder: Builder,
    kernel: str,
    operands: Sequence[IrValue],
    outs: Sequence[ShapedArray],
    config: Mapping[str, Attr] = NO_CONFIG,
    aliases: Sequence[tuple[int, int]] = (),
    *,
    by_rows: bool = False,
    own: int = 2,
) -> list[IrValue]:
    """Emits a call of a kernel, whose name lacks the platform's prefix (`solver_getrf_ffi` for `cusolver_getrf_ffi`).

    `aliases` and `own` are those of `KernelLayouts`. With `by_rows`, matrices are in row-major order.
    """
    layouts = custom_call_layouts([x.aval for x in operands], outs, aliases, by_rows=by_rows, own=own)
    return builder.custom_call(_PREFIXES[builder.platform] + kernel, operands, outs, config, layouts=layouts)
