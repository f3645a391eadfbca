"""Programs without what shows known values: they are computed again, and have been shown."""

from __future__ import annotations

from attrs import evolve

from tracefx.core.effects import DebugEffect
from tracefx.core.jaxpr import HasSubjaxprs, Jaxpr
from tracefx.passes.dce import dce, renumber


def drop_debug_effects(jaxpr: Jaxpr, unknown: tuple[bool, ...]) -> Jaxpr:
    """The program without what shows known values, for computing again what has been shown.

    `unknown` says which inputs were unknown when that was.
    """
    return jaxpr.memo.get(("silenced", unknown), lambda: _drop_debug_effects(jaxpr, unknown))


def _drop_debug_effects(jaxpr: Jaxpr, unknown: tuple[bool, ...]) -> Jaxpr:
    if not any(isinstance(effect, DebugEffect) for effect in jaxpr.effects):
        return jaxpr
    late = {v for v, u in zip(jaxpr.invars, unknown, strict=True) if u}
    eqns = []
    for eqn in jaxpr.eqns:
        prim, is_late = eqn.prim, not late.isdisjoint(eqn.inputs)
        if is_late:
            late.update(eqn.outs)
        if isinstance(prim, HasSubjaxprs):  # whose inputs nobody can tell to be known or not
            bodies = [drop_debug_effects(body, (False,) * len(body.invars)) for body in prim.jaxprs()]
            eqns.append(evolve(eqn, prim=prim.with_jaxprs(*bodies)))
        elif is_late or not any(isinstance(effect, DebugEffect) for effect in prim.effects):
            eqns.append(eqn)
    return dce(renumber(evolve(jaxpr, eqns=tuple(eqns))))
