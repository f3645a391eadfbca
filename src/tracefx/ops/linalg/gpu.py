"""How operations call the libraries of GPUs: cuSOLVER and cuSPARSE of NVIDIA's, hipSOLVER and hipSPARSE of AMD's.

The plug-ins that bring these platforms to jaxlib bring a kernel for each routine too, known by name once the plug-in is
there; a program can be built without it. Kernels take and give matrices column by column, as LAPACK does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from tracefx.core.avals import ShapedArray
from tracefx.lowering import Attr, Builder, IrValue, MlirText
from tracefx.ops.linalg.lapack import NO_CONFIG, custom_call_layouts

_PREFIXES: Final[Mapping[str, str]] = MappingProxyType({"cuda": "cu", "rocm": "hip"})


def on_gpu(builder: Builder) -> bool:
    return builder.platform in _PREFIXES


def magma_attr(wanted: bool | None) -> MlirText:
    """Whether a kernel that works on the GPU and the CPU by turns shall use MAGMA, which has to be installed.

    Without a wish, it does where it finds MAGMA. Where it doesn't, LAPACK computes on the CPU.
    """
    return MlirText('"auto"' if wanted is None else '"on"' if wanted else '"off"')


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
    """The results of a kernel, named without the letters of its platform (`solver_getrf_ffi`, for `cusolver_...`).

    `aliases` and `own` as in `KernelLayouts`; with `to_block_diagonal`, matrices lie row by row, as everything else
    does.
    """
    layouts = custom_call_layouts([x.aval for x in operands], outs, aliases, by_rows=by_rows, own=own)
    return builder.custom_call(_PREFIXES[builder.platform] + kernel, operands, outs, config, layouts=layouts)
