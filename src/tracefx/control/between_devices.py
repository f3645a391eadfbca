"""Rules of the user's for backward passes, between devices: they are given true cotangents, and give true ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tracefx.control.custom_vjp import Forward, ForwardRule
from tracefx.control.functions import Hosting, Rule, made_from
from tracefx.core.avals import Axes
from tracefx.core.handler import current, varies
from tracefx.core.primitive import Tangent, Zero
from tracefx.core.values import Value
from tracefx.interpreters.derived import Mask
from tracefx.ops.collective import in_shares, of_shares
from tracefx.ops.varying import varying


def between_devices(label: str, fwd: ForwardRule, operands: Sequence[Value]) -> ForwardRule:
    """The forward pass of a function that is called here, with a backward pass that takes and gives shares.

    The rules run wherever the program is transformed, where nobody knows any more along which axes values differ: so
    they are told. ValueError from the backward pass for a cotangent that differs where its operand is the same.
    """
    checked = tuple(current().checked.items())
    if not checked:
        return fwd
    ins = tuple(map(varies, operands))

    @made_from(fwd, "between devices", checked, ins)
    def whole(primals: Sequence[Value], perturbed: Mask) -> Forward:
        forward = fwd(list(map(varying, primals, ins)), perturbed)
        outs, kept = tuple(map(varies, forward.outs)), tuple(map(varies, forward.residuals))

        @made_from(forward.pull, "between devices", checked, ins, outs, kept)
        def pull(residuals: Sequence[Value], cts: Sequence[Tangent]) -> list[Tangent]:
            axes = [(name, size) for name, size in checked if name in current().checked]
            unknown = [name for name, _ in axes if name not in _noted()]
            found = forward.pull(
                list(map(varying, residuals, kept)),
                [
                    ct if isinstance(ct, Zero) else varying(of_shares(varying(ct, unknown), known, axes), known)
                    for ct, known in zip(cts, outs, strict=True)
                ],
            )
            for i, (ct, known) in enumerate(zip(found, ins, strict=True)):
                _require_no_more(label, i, ct, known)
            return [
                ct if isinstance(ct, Zero) else in_shares(ct, known, axes) for ct, known in zip(found, ins, strict=True)
            ]

        return Forward(forward.outs, forward.residuals, pull, tuple([name for name, _ in checked]))

    return whole


def told(rule: Rule, operands: Sequence[Value]) -> Rule:
    """A forward rule for a function that is called here, which is told along which axes its operands differ."""
    if not current().checked:
        return rule
    ins = tuple(map(varies, operands))

    @made_from(rule, "between devices", ins)
    def telling(primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        moved = [t if isinstance(t, Zero) else varying(t, known) for t, known in zip(tangents, ins, strict=True)]
        return rule(list(map(varying, primals, ins)), moved)

    return telling


def _noted() -> Mapping[str, int]:
    """The checked axes along which it is noted of a cotangent here where it differs: in a program that is derived from
    one traced before nothing is."""
    handler = current()
    while isinstance(handler, Hosting):
        handler = handler.inner
    return handler.checked


def _require_no_more(label: str, i: int, ct: Tangent, known: Axes) -> None:
    more = sorted(() if isinstance(ct, Zero) else varies(ct) - known)
    if more:
        names = ", ".join(map(repr, more))
        raise ValueError(
            f"the backward rule of {label} gives a cotangent of operand {i} that varies along {names}, "
            f"{ct.aval.varying(known.union(more))}, but the operand is the same there on all devices, so its cotangent "
            f"is too: sum it by psum along {names}"
        )
