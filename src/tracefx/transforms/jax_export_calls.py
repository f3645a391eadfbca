"""Functions in JAX's export format as primitives that call them, and back."""

from __future__ import annotations

from collections.abc import Sequence

from tracefx.control.call_exported import CallExported
from tracefx.core import ShapedArray, dtypes
from tracefx.pytrees import trees
from tracefx.transforms.jax_export_format import JaxExport
from tracefx.transforms.stages import require_platforms


def call_of(export: JaxExport) -> CallExported:
    """Returns the primitive that calls an exported function."""
    return CallExported(
        export.fun_name,
        _without_float0(export.in_avals),
        _without_float0(export.out_avals),
        require_platforms(export.platforms, f"load of {export.fun_name}: platforms"),
        export.module,
        tuple(export.kept),
        None if export.vjp is None else call_of(export.vjp),
    )


def _without_float0(avals: Sequence[ShapedArray]) -> tuple[ShapedArray, ...]:
    """Returns types with booleans in place of `float0`, as in modules of StableHLO."""
    return tuple([a.update(dtype=dtypes.bool_) if a.dtype == dtypes.float0 else a for a in avals])


def export_of(prim: CallExported) -> JaxExport:
    """Returns the exported function that a primitive calls, as a function of arrays that returns a list of arrays."""
    return _export_of(prim, prim.in_avals, prim.out_avals)


def _export_of(prim: CallExported, ins: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> JaxExport:
    """Returns the function with these types, which have `float0` where those of the primitive have booleans."""
    vjp_ins, vjp_outs = [*ins, *[a.tangent() for a in outs]], [a.tangent() for a in ins]
    return JaxExport(
        prim.label,
        trees.structure((tuple(ins), {})),
        trees.structure(list(outs)),
        ins,
        outs,
        prim.platforms,
        prim.artifact,
        prim.kept,
        vjp=None if prim.vjp is None else _export_of(prim.vjp, vjp_ins, vjp_outs),
    )
