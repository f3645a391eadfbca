"""User-defined derivative rules inside `shard_map`: backward rules take and return reduced cotangents."""

from __future__ import annotations

from collections.abc import Sequence

from tracefx.control.callables import ClosureRebinder, derive
from tracefx.control.custom_vjp import ForwardResult, ForwardRule
from tracefx.core import Value
from tracefx.core.avals import MeshAxes
from tracefx.core.handler import AxisEnvironment, checked_axes, current
from tracefx.core.primitive import Tangent, Zero
from tracefx.interpreters.masks import Mask
from tracefx.ops.collectives.collective import from_unreduced, to_unreduced
from tracefx.ops.collectives.pvary import varying


def wrap_vjp_for_shard_map(label: str, fwd: ForwardRule) -> ForwardRule:
    """Wraps a forward pass so that its backward pass takes and returns unreduced cotangents, as `shard_map` does.

    The user's backward rule takes and returns reduced cotangents.

    Returns:
        The wrapped forward pass, or `fwd` itself if no mesh axes are checked. Its backward pass raises `ValueError` for
        a cotangent that varies over an axis over which the operand is replicated.
    """
    checked = tuple(checked_axes(current().axes))
    if not checked:
        return fwd

    @derive(fwd, "between devices", checked)
    def wrapped(primals: Sequence[Value], perturbed: Mask) -> ForwardResult:
        forward = fwd(primals, perturbed)
        operand_axes, out_axes = _vma(primals), _vma(forward.outs)

        @derive(forward.pullback, "between devices", checked, operand_axes, out_axes)
        def pull(residuals: Sequence[Value], cts: Sequence[Tangent]) -> list[Tangent]:
            axes = [axis for axis in checked_axes(current().axes) if axis in checked]
            untracked = [axis[0] for axis in axes if axis not in checked_axes(_tracked_axes())]
            in_cts = forward.pullback(
                residuals,
                [
                    ct if isinstance(ct, Zero) else varying(from_unreduced(varying(ct, untracked), known, axes), known)
                    for ct, known in zip(cts, out_axes, strict=True)
                ],
            )
            for i, (ct, known) in enumerate(zip(in_cts, operand_axes, strict=True)):
                _check_cotangent_axes(label, i, ct, known)
            return [
                ct if isinstance(ct, Zero) else to_unreduced(ct, known, axes)
                for ct, known in zip(in_cts, operand_axes, strict=True)
            ]

        return ForwardResult(forward.outs, forward.residuals, pull, tuple([name for name, _ in checked]))

    return wrapped


def _vma(values: Sequence[Value]) -> tuple[MeshAxes, ...]:
    return tuple([x.aval.vma for x in values])


def _tracked_axes() -> AxisEnvironment:
    """Returns the axes in scope whose varying cotangents have types that say so.

    In a jaxpr that is derived from one traced before, cotangents have the types of the primal values instead.
    """
    handler = current()
    while isinstance(handler, ClosureRebinder):
        handler = handler.inner
    return handler.axes


def _check_cotangent_axes(label: str, i: int, ct: Tangent, known: MeshAxes) -> None:
    more = sorted(ct.aval.vma - known)
    if more:
        names = ", ".join(map(repr, more))
        raise ValueError(
            f"the backward rule of {label} returns a cotangent of operand {i} that varies along {names}, {ct.aval}, "
            f"but the operand is replicated there, so its cotangent must be too: sum it with psum along {names}"
        )
