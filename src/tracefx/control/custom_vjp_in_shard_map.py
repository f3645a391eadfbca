"""Rules of the user's for backward passes, between devices: they are given true cotangents, and give true ones."""

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
    """The forward pass of a function that is called here, with a backward pass that takes and gives shares.

    The rules run wherever the program is transformed, where nobody knows any more along which axes values differ: so
    they are told. ValueError from the backward pass for a cotangent that differs where its operand is the same.
    """
    checked = tuple(current().checked.items())
    if not checked:
        return fwd
    ins = tuple(map(varies, operands))

    @derive(fwd, "between devices", checked, ins)
    def whole(primals: Sequence[Value], perturbed: Mask) -> ForwardResult:
        forward = fwd(list(map(varying, primals, ins)), perturbed)
        outs, kept = tuple(map(varies, forward.outs)), tuple(map(varies, forward.residuals))

        @derive(forward.pullback, "between devices", checked, ins, outs, kept)
        def pull(residuals: Sequence[Value], cts: Sequence[Tangent]) -> list[Tangent]:
            axes = [(name, size) for name, size in checked if name in current().checked]
            unknown = [name for name, _ in axes if name not in _tracked_axes()]
            found = forward.pullback(
                list(map(varying, residuals, kept)),
                [
                    ct if isinstance(ct, Zero) else varying(from_unreduced(varying(ct, unknown), known, axes), known)
                    for ct, known in zip(cts, outs, strict=True)
                ],
            )
            for i, (ct, known) in enumerate(zip(found, ins, strict=True)):
                _check_cotangent_axes(label, i, ct, known)
            return [
                ct if isinstance(ct, Zero) else to_unreduced(ct, known, axes)
                for ct, known in zip(found, ins, strict=True)
            ]

        return ForwardResult(forward.outs, forward.residuals, pull, tuple([name for name, _ in checked]))

    return whole


def wrap_jvp_for_shard_map(rule: JVPRule, operands: Sequence[Value]) -> JVPRule:
    """A forward rule for a function that is called here, which is told along which axes its operands differ."""
    if not current().checked:
        return rule
    ins = tuple(map(varies, operands))

    @derive(rule, "between devices", ins)
    def telling(primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        moved = [t if isinstance(t, Zero) else varying(t, known) for t, known in zip(tangents, ins, strict=True)]
        return rule(list(map(varying, primals, ins)), moved)

    return telling


def _tracked_axes() -> Mapping[str, int]:
    """The checked axes along which it is noted of a cotangent here where it differs: in a program that is derived from
    one traced before nothing is."""
    handler = current()
    while isinstance(handler, ClosureRebinder):
        handler = handler.inner
    return handler.checked


def _check_cotangent_axes(label: str, i: int, ct: Tangent, known: Axes) -> None:
    more = sorted(() if isinstance(ct, Zero) else varies(ct) - known)
    if more:
        names = ", ".join(map(repr, more))
        raise ValueError(
            f"the backward rule of {label} gives a cotangent of operand {i} that varies along {names}, "
            f"{ct.aval.varying(known.union(more))}, but the operand is the same there on all devices, so its cotangent "
            f"is too: sum it by psum along {names}"
        )
