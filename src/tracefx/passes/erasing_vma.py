"""Removal of varying mesh axes (vma) from the types in a program, for uses outside of checked `shard_map`s."""

from __future__ import annotations

from tracefx.core.avals import NOT_VARYING
from tracefx.core.bounded_cache import memoize_on_object
from tracefx.core.jaxpr import Jaxpr, Var
from tracefx.core.varying import HasVmaRule
from tracefx.passes.rebuilding import JaxprRebuilder, map_subjaxprs


@memoize_on_object
def erase_vma(jaxpr: Jaxpr) -> Jaxpr:
    """Returns the same program without varying mesh axes in its types, and without casts between them."""

    def plain(v: Var) -> Var:
        new.changed |= bool(v.aval.vma)
        return Var(v.index, v.aval.with_vma(NOT_VARYING)) if v.aval.vma else v

    new = JaxprRebuilder(jaxpr)
    constvars, invars = new.binders(list(map(plain, jaxpr.constvars))), new.binders(list(map(plain, jaxpr.invars)))
    for eqn in jaxpr.eqns:
        if isinstance(eqn.prim, HasVmaRule) and eqn.prim.is_vma_cast:
            new.replace(eqn.outs, new.reads(eqn.inputs))
        else:
            new.add(eqn, map_subjaxprs(eqn.prim, erase_vma), new.reads(eqn.inputs), list(map(plain, eqn.outs)))
    return new.finish(constvars, invars, jaxpr.outs)
