"""Removes debug effects from a recomputed jaxpr: they ran in the forward pass."""

from __future__ import annotations

from attrs import evolve

from tracefx.bounded_cache import memoize_on_object
from tracefx.core.effects import DebugEffect
from tracefx.core.jaxpr import HasSubjaxprs, Jaxpr
from tracefx.passes.dce import dce
from tracefx.passes.rebuilding import renumber


@memoize_on_object
def drop_debug_effects(jaxpr: Jaxpr, unknown: tuple[bool, ...]) -> Jaxpr:
    """Returns the jaxpr without debug effects on known values, which ran when the jaxpr was first evaluated.

    `unknown` tells which inputs were unknown then; debug effects that depend on these are kept.
    """
    if not any(isinstance(effect, DebugEffect) for effect in jaxpr.effects):
        return jaxpr
    unknown_vars = {v for v, u in zip(jaxpr.invars, unknown, strict=True) if u}
    eqns = []
    for eqn in jaxpr.eqns:
        prim, is_unknown = eqn.prim, not unknown_vars.isdisjoint(eqn.inputs)
        if is_unknown:
            unknown_vars.update(eqn.outs)
        if isinstance(prim, HasSubjaxprs):  # treat all inputs of sub-jaxprs as known
            bodies = [drop_debug_effects(body, (False,) * len(body.invars)) for body in prim.jaxprs()]
            eqns.append(evolve(eqn, prim=prim.with_jaxprs(*bodies)))
        elif is_unknown or not any(isinstance(effect, DebugEffect) for effect in prim.effects):
            eqns.append(eqn)
    return dce(renumber(evolve(jaxpr, eqns=tuple(eqns))))
