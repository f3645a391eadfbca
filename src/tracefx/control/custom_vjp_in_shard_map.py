"""User-defined derivative rules inside `shard_map`: backward rules take and return reduced cotangents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tracefx.control.callables import ClosureRebinder, JVPRule, derive
from tracefx.control.custom_vjp import ForwardResult, ForwardRule
from tracefx.core.avals import Axes
from tracefx.core.handler import current, varies
from tracefx.core.primitive import Tangent, Zero
from tracefx.core.values import Value
from tracefx.interpreters.jaxpr_transforms import Mask
from tracefx.ops.collectives.collective import from_unreduced, to_unreduced
from tracefx.ops.collectives.pvary import varying


def wrap_vjp_for_shard_map(label: str, fwd: ForwardRule, operands: Sequence[Value]) -> ForwardRule:
    """Wraps a forward pass so that its backward pass takes and returns unreduced cotangents, as `shard_map` does.

    The user's backward rule takes and returns reduced cotangents. Rules may run where the jaxpr is transformed later,
    and varying axes are no longer tracked there, so the wrapper stores the varying axes of the operands.

    Returns:
        The wrapped forward pass, or `fwd` itself if no mesh axes are checked. Its backward pass raises `ValueError` for
        a cotangent that varies along an axis along which the operand is replicated.
    """
    checked = tuple(current().checked.items())
    if not checked:
        return fwd
    operand_axes = tuple(map(varies, operands))

    @derive(fwd, "between devices", checked, operand_axes)
    def wrapped(primals: Sequence[Value], perturbed: Mask) -> ForwardResult:
        forward = fwd(list(map(varying, primals, operand_axes)), perturbed)
        out_axes, residual_axes = tuple(map(varies, forward.outs)), tuple(map(varies, forward.residuals))

        @derive(forward.pullback, "between devices", checked, operand_axes, out_axes, residual_axes)
        def pull(residuals: Sequence[Value], cts: Sequence[Tangent]) -> list[Tangent]:
            axes = [(name, size) for name, size in checked if name in current().checked]
            untracked = [name for name, _ in axes if name not in _tracked_axes()]
            in_cts = forward.pullback(
                list(map(varying, residuals, residual_axes)),
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


def wrap_jvp_for_shard_map(rule: JVPRule, operands: Sequence[Value]) -> JVPRule:
    """Wraps a JVP rule so that it knows the varying axes of the operands, where mesh axes are checked."""
    if not current().checked:
        return rule
    operand_axes = tuple(map(varies, operands))

    @derive(rule, "between devices", operand_axes)
    def wrapped(primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        varying_tangents = [
            t if isinstance(t, Zero) else varying(t, known) for t, known in zip(tangents, operand_axes, strict=True)
        ]
        return rule(list(map(varying, primals, operand_axes)), varying_tangents)

    return wrapped


def _tracked_axes() -> Mapping[str, int]:
    """Returns the checked axes along which varying cotangents are tracked here.

    In a jaxpr that is derived from one traced before, none are.
    """
    handler = current()
    while isinstance(handler, ClosureRebinder):
        handler = handler.inner
    return handler.checked


def _check_cotangent_axes(label: str, i: int, ct: Tangent, known: Axes) -> None:
    more = sorted(() if isinstance(ct, Zero) else varies(ct) - known)
    if more:
        names = ", ".join(map(repr, more))
        raise ValueError(
            f"the backward rule of {label} returns a cotangent of operand {i} that varies along {names}, "
            f"{ct.aval.varying(known.union(more))}, but the operand is replicated there, so its cotangent must be "
            f"too: sum it with psum along {names}"
        )
